"""Truncated BPTT over a stream (alg:train), under any visibility.

An event is scored in the chunk that writes the last row it may see: chunk [a, b) answers the queries cut in (a, b].
Where one timestamp fills many chunks, all its events are cut at the same row; they are scored in minibatches, and the
rows of that one chunk are run again, inside the graph, for each. So the ranking loss reaches the update networks under
every visibility (docs/decisions/0001).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from tsnn.config import Config, TrainConfig
from tsnn.data.queries import Queries
from tsnn.data.split import Split
from tsnn.engine.cuda import has_cupy
from tsnn.engine.engine import commit, make_store, pick_engine, run_update, score
from tsnn.errors import ConfigError, RunError, TsnnError
from tsnn.memory.versions import Versions
from tsnn.model.losses import LOSSES, contrasted, total_loss
from tsnn.model.tsnn import TSNN, StreamShape
from tsnn.plan.ahead import ahead
from tsnn.plan.chunk import ChunkPlan, ScorePlan
from tsnn.plan.planner import Planner, mean_gap
from tsnn.training.checkpoint import Journal, Position, load_checkpoint, restore_optimizer, save_checkpoint
from tsnn.training.course import Course, cosine
from tsnn.training.draw import TrainingRows
from tsnn.training.optim import FlatAdamW
from tsnn.training.tensorboard import TensorBoard
from tsnn.training.warmup import warm_up
from tsnn.types import Progress, unwatched

Validate = Callable[[TSNN], float]


class Trained(NamedTuple):
    """The outcome of training: the model with its best weights, and how it came to them."""

    model: TSNN
    course: Course


def build_model(config: Config, split: Split) -> TSNN:
    """A model for this stream, its weights drawn from the configured seed."""
    stream = split.stream
    gap = mean_gap(stream.t[: split.train_end])
    learned = stream.num_nodes if config.model.partners else 0
    shape = StreamShape(stream.msg_dim, stream.num_relations, stream.num_types, gap, stream.undirected, learned)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.train.seed)
        model = TSNN(config, shape)
    if config.model.standardize_msg and stream.msg is not None and split.train_end > 1:
        model.standardize(torch.tensor(stream.msg[: split.train_end]), "msg")
    return model.to(dtype=getattr(torch, config.train.dtype), device=check_device(config.train))


def check_device(train: TrainConfig) -> str:
    """The device, if this machine has it."""
    if train.device == "cuda" and not torch.cuda.is_available():
        raise ConfigError("train.device is cuda but no GPU is at hand; set train.device=cpu.")
    if train.engine == "cuda" and not has_cupy():
        raise ConfigError("train.engine is cuda but CuPy is missing; install tsnn[cuda], or set train.engine=fused.")
    return train.device


class Trainer:
    """Trains one model on one split; `run` can be interrupted at any moment and called again."""

    checkpoint_seconds = 60.0  # from one checkpoint to the next inside an epoch

    def __init__(
        self,
        config: Config,
        split: Split,
        validate: Validate,
        folder: Path | None = None,
        progress: Progress = unwatched,
        board: TensorBoard | None = None,
        states: Callable[[], dict[str, float]] = dict,
    ) -> None:
        """`states` tells the journal what the states were like that `validate` has just seen."""
        self.config = config
        self.split = split
        self.stream = split.stream
        self._validate = validate
        self._states = states
        self._progress = progress
        self.model = build_model(config, split)
        self.planner = Planner(self.stream, self.model.plan_spec)
        self.engine = pick_engine(config.train.engine, self.model.device)
        self.store = make_store(self.model, self.engine, self.stream.ids.keys)
        self.optimizer = FlatAdamW(self.model, config.train)
        self.rows = TrainingRows.of(split, config.train)
        self._total_steps = config.train.epochs * self.rows.steps
        self._path = None if folder is None else folder / "checkpoint.safetensors"
        self._board = board
        self._journal = Journal(None if folder is None else folder / "journal.jsonl")
        self._best: dict[str, Tensor] = {}
        self._unread: tuple[int, Tensor, Tensor] | None = None  # the last step and its losses, not yet looked at
        self.position = Position(config.to_toml(), self.stream.fingerprint(), Course.of(config))

    def run(self) -> Trained:
        """Train to the end, from the last checkpoint if there is one."""
        self._resume()
        if self.course.warming:
            # Start from what the data alone says (docs/decisions/0006).
            self.course.head = warm_up(self.model, self.split, self.rows)._asdict()
            self._close()
        while not self.course.is_over:
            self._train_epoch()
            self._close()
        self.model.load_state_dict(self._best)
        return Trained(self.model.eval(), self.course)

    @property
    def course(self) -> Course:
        """How far the run is."""
        return self.position.course

    def queries(self, start: int, first: int, last: int) -> Queries:
        """Training rows first..last-1 with fresh negatives, as this epoch draws them."""
        return self.rows.queries(*self.rows.draw(self.config.train, self.course.epoch, start, first, last))

    def _plans(self, row: int) -> Iterator[tuple[ChunkPlan, Tensor]]:
        """Chunk plans from a row on, with the features of their candidates."""
        for start, stop, first, last in self.rows.chunks(row):
            plan = self.planner.plan(stop, self.queries(start, first, last))
            yield plan, self.model.data_features(plan.score)

    def _train_epoch(self) -> None:
        """One pass over the training rows, from where the epoch stands."""
        self.model.train()
        self.planner = Planner(self.stream, self.model.plan_spec)
        if self.position.row == 0:
            self.store.reset_state()
            self.position.sums = []
            self.position.terms = 0
        self.planner.advance(self.position.row)
        saved = time.monotonic()
        for _ in self.train_chunks(self.position.row):
            if self._path is not None and time.monotonic() - saved > self.checkpoint_seconds:
                self._save()
                saved = time.monotonic()

    def train_chunks(self, row: int) -> Generator[int, None, None]:
        """Train on chunk after chunk from a row on; yields the number of rows of each once its states are stored."""
        for plan, data in ahead(self._plans(row)):
            self._train_chunk(plan, data)
            self.position.row = plan.update.stop
            yield plan.update.num_events

    def _train_chunk(self, plan: ChunkPlan, data: Tensor) -> None:
        """Every minibatch of the chunk's queries, then its last states into the store."""
        length = self.config.train.chunk
        if not len(plan.score):
            with torch.no_grad():
                versions = run_update(self.model, self.engine, self.store, plan.update, self.stream)
        for start in range(0, len(plan.score), length):
            stop = min(start + length, len(plan.score))
            rows = slice(plan.score.ptr[start], plan.score.ptr[stop])
            versions = run_update(self.model, self.engine, self.store, plan.update, self.stream)
            self._step(self.losses(plan.score.slice(start, stop), versions, data[rows]))
        commit(self.store, plan.update, versions)

    def losses(self, plan: ScorePlan, versions: Versions, data: Tensor | None = None) -> Tensor:
        """The losses of a set of training queries, from one run of the chunk's rows."""
        width = 1 + self.config.train.negatives
        trainable = np.arange(len(plan.cand)) % width == 0
        generator = torch.Generator().manual_seed(hash((self.config.train.seed, self.position.step)) % (1 << 62))
        parts, geometry = score(self.model, self.engine, versions, plan, self.stream, trainable, generator, data)
        products = contrasted(geometry, self.config.train.loss)
        terms = (parts.total, products, parts.raw_residual, versions.smooth, versions.energy)
        return self.engine.losses(*terms, width=width, temperature=self.config.train.loss.geo_temperature)

    def _step(self, losses: Tensor) -> None:
        loss = total_loss(losses, self.config.train.loss)
        step = self.position.step
        self.optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        self.optimizer.clip_and_step(cosine(step, self._total_steps))
        self.position.step += 1
        self._read_losses()  # of the step before: to wait for those of this one, a GPU would have to stop
        self._unread = (step, losses.detach(), loss.detach())

    def _read_losses(self) -> None:
        """Count the last step's losses, if that has not been done."""
        if self._unread is None:
            return
        step, losses, loss = self._unread
        self._unread = None
        if not torch.isfinite(loss):
            raise TsnnError(f"the loss became {loss.item()} at step {step}; lower train.lr.")
        position, course, epochs = self.position, self.course, self.config.train.epochs
        terms = losses.tolist()
        position.sums = [a + b for a, b in zip(position.sums or [0.0] * len(terms), terms, strict=True)]
        position.terms += 1
        mean = position.sums[0] / position.terms
        rows = self.split.train_end
        done = course.epoch * rows + position.row
        best = f", best validation {course.best_metric:.4f}" if course.best_metric >= 0 else ""
        self._progress(done, epochs * rows, f"epoch {course.epoch + 1}/{epochs}, loss {mean:.4f}{best}")
        if self._board is not None:
            self._board.running_loss(done, mean)

    def _close(self) -> None:
        """End the warm-up or an epoch: validate, keep the weights that are the best, journal, checkpoint."""
        self._read_losses()
        self.model.eval()
        metric = self._validate(self.model)
        warming = self.course.warming
        epoch = self.course.epoch
        if self.course.close(metric):
            self._best = {name: value.detach().clone() for name, value in self.model.state_dict().items()}
        if warming:
            self.model.head.geometry_weight.fill_(1.0)
        else:
            means = [total / max(self.position.terms, 1) for total in self.position.sums]
            losses = dict(zip(LOSSES, means, strict=False))
            states = self._states()
            self._journal.write(epoch=epoch, step=self.position.step, losses=losses, validation=metric, states=states)
            if self._board is not None:
                self._board.epoch(epoch, losses, metric, states)
        self.position.row = 0
        self._save()

    def _save(self) -> None:
        if self._path is None:
            return
        self._read_losses()  # never keep weights whose loss was no number
        self.position.journal = self._journal.size
        sections = {"weights": self.model.state_dict(), "best": self._best, "store": self.store.snapshot()}
        save_checkpoint(self._path, self.position, sections, self.optimizer)

    def _resume(self) -> None:
        if self._path is None:
            return
        if not self._path.exists():
            self._journal.truncate(0)  # of a run whose checkpoint is gone, so that it begins anew
            return
        position, sections = load_checkpoint(self._path)
        if (position.config, position.data) != (self.position.config, self.position.data):
            raise RunError(f"{self._path.parent} holds a run with other settings or data; choose another folder.")
        self.position = position
        self._unread = None  # of the run that was interrupted
        self.model.load_state_dict(sections["weights"])
        self._best = sections.get("best", {})
        self.store.restore(sections["store"])
        restore_optimizer(self.optimizer, sections.get("optimizer", {}))
        self._journal.truncate(position.journal)
