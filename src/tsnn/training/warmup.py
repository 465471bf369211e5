"""Warming up: the score head learns what the data alone says, before states and frames join in.

Training itself takes events in the order of the stream, where neighbors resemble each other; here the same events come
in random order. The geometry is off meanwhile, so the result is a scorer of its own and the first candidate for the
best weights: adding states never makes a run worse on validation.

A number for `train.warmup` is a number of epochs at a falling rate. "search" trains as long as validation rows gain by
it, since streams differ in how long that is, and on several sets of columns, since on some streams what is counted
beyond the floor only misleads: the best head of all is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from tsnn.data.events import EventStream
from tsnn.data.queries import Asked
from tsnn.data.question import Question
from tsnn.data.split import Split
from tsnn.evaluation.evaluate import validation_questions
from tsnn.evaluation.features import FLOOR
from tsnn.evaluation.scorer import plan_blocks
from tsnn.memory.store import StateStore
from tsnn.memory.versions import Versions
from tsnn.model.features import feature_matrix, features
from tsnn.model.geometry import Geometry
from tsnn.model.losses import data_losses, loss_weights
from tsnn.model.tsnn import TSNN, Compared
from tsnn.plan.chunk import ScorePlan, join
from tsnn.plan.facts import BLOCKS
from tsnn.plan.planner import Planner, PlanSpec
from tsnn.training.course import linear
from tsnn.training.draw import TrainingRows
from tsnn.types import F64, I64

NEGATIVES = 3
MAX_ROWS = 300_000  # of a longer stream, a sample; bounds memory
BATCH = 500
LR = 2e-3

# Of a search:
PATIENCE = 5  # epochs without a better one after which a head is trained enough
MOST_EPOCHS = 40
MAX_TRIED = 40_000  # queries that sets of columns are compared on; the best of them goes on with all
MAX_ASKED = 300_000  # candidates of the validation rows that heads are judged by; bounds memory
BLOCKS_LEFT_OUT = {
    "all": (),
    "without walks": ("walks",),
    "the floor's": tuple(block for block in BLOCKS if not getattr(FLOOR, block)),
}

# Of learned stalks:
LEARNED_EPOCHS = 10
LEARNED_PATIENCE = 2
VECTOR_LR = 1e-2
VECTOR_DECAY = 1e-2  # what a vector says has to be said again and again

Judge = Callable[[TSNN], float]


class WarmHead(NamedTuple):
    """How a head was warmed: on which columns, for how many epochs, and for how many with learned stalks, if kept."""

    columns: str
    epochs: int
    learned: int = 0


def warm_up(model: TSNN, split: Split, rows: TrainingRows, store: StateStore) -> WarmHead:
    """Fit the standardization of the features and train the head on them, geometry off; then learned stalks.

    States are those of the store, which are the first of all: no event has happened.
    """
    plan, rng = warm_plan(model, rows)
    lesson = Lesson(model, plan, rows, Versions(store.h, store.F, store.h[:0, 0], store.h[:0, 0]))
    model.head.geometry_weight.fill_(0.0)
    epochs = model.config.train.warmup
    if epochs != "search":
        optimizer = lesson.optimizer()
        for factor, order in shuffled(len(plan), epochs, rng):
            lesson.epoch(optimizer, order, factor)
        warm = WarmHead("all", epochs)
        judge = lesson.judge(split) if hasattr(model, "learned") else None
    else:
        judge = lesson.judge(split)
        warm = _search(lesson, judge, rng)
    if hasattr(model, "learned") and judge is not None:
        warm = warm._replace(learned=_learn_stalks(lesson, judge, rng))
    return warm


def warm_plan(model: TSNN, rows: TrainingRows) -> tuple[ScorePlan, np.random.Generator]:
    """Facts of training events and of a few negatives each, in one pass over the rows; and what draws their order."""
    rng = np.random.default_rng([model.config.train.seed, len(rows.cuts)])
    return draw_plan(model, rows, rng), rng


def draw_plan(model: TSNN, rows: TrainingRows, rng: np.random.Generator) -> ScorePlan:
    """The same with other negatives and, of a longer stream, another sample of its rows."""
    sample = np.arange(len(rows.cuts))
    if len(sample) > MAX_ROWS:
        sample = np.sort(rng.choice(sample, MAX_ROWS, replace=False))
    queries = rows.queries(sample, rows.negatives(sample, NEGATIVES, model.config.train, rng))
    return _planned(model, rows.stream, queries)


def _planned(model: TSNN, stream: EventStream, queries: Asked) -> ScorePlan:
    """Facts of queries, and the partners of their sources where those are read; version rows are nodes."""
    spec = PlanSpec.of(model.config, model.shape.mean_gap)
    attention = spec.attention if hasattr(model, "learned") else 0
    blocks = plan_blocks(Planner(stream, spec.without_states()._replace(attention=attention)), queries)
    plan = join([block.score for _, block in blocks])
    src, cand = plan.src.astype(np.int32), plan.cand.astype(np.int32)
    return replace(plan, src_h=src, src_F=src, cand_h=cand, cand_F=cand, nbr_h=plan.nbr, nbr_F=plan.nbr)


def shuffled(queries: int, epochs: int, rng: np.random.Generator) -> Iterator[tuple[float, I64]]:
    """Of each epoch: what the learning rate is multiplied by, and the order of the queries."""
    for epoch in range(epochs):
        yield linear(epoch, epochs), rng.permutation(queries)


class Lesson:
    """A model's head, and the queries that it learns from."""

    def __init__(self, model: TSNN, plan: ScorePlan, rows: TrainingRows, states: Versions) -> None:
        self.model, self.rows = model, rows
        self._states = states
        model.standardize(self._take(plan))
        self._standardize()

    def _take(self, plan: ScorePlan) -> Tensor:
        """The plan to learn from, and its features as they are."""
        config, model = self.model.config, self.model
        raw = feature_matrix(plan.facts, config.features, gaps=config.model.gaps, mean_gap=model.shape.mean_gap)
        self._plan = plan
        self._data = torch.tensor(raw, dtype=model.dtype, device=model.device)
        return self._data

    def _standardize(self) -> None:
        """The features as the head reads them; columns that are left out are 0."""
        self._data.sub_(self.model.feature_shift).div_(self.model.feature_scale)

    def redraw(self, rng: np.random.Generator) -> None:
        """Learn from other negatives from now on."""
        self._take(draw_plan(self.model, self.rows, rng))
        self._standardize()

    def __len__(self) -> int:
        return len(self._plan)

    def optimizer(self) -> torch.optim.Optimizer:
        """For all that a score without recurrence is made of."""
        named = self.model.named_parameters()
        own = [parameter for name, parameter in named if _is_learned_here(name) and parameter.requires_grad]
        vectors = [parameter for parameter in own if parameter is self._vectors]
        others = [parameter for parameter in own if parameter is not self._vectors]
        groups: list[dict[str, Any]] = [{"params": others, "base": LR}]
        if vectors:
            groups.append({"params": vectors, "base": VECTOR_LR, "weight_decay": VECTOR_DECAY})
        return torch.optim.AdamW(groups, lr=LR, weight_decay=self.model.config.train.weight_decay, fused=True)

    @property
    def _vectors(self) -> Tensor | None:
        return self.model.learned.vectors if hasattr(self.model, "learned") else None

    def epoch(self, optimizer: torch.optim.Optimizer, order: I64, factor: float = 1.0) -> None:
        """Learn from the queries in this order; columns that the model has switched off are 0."""
        self.model.train()
        used = torch.isfinite(self.model.feature_scale).to(self.model.dtype)
        for group in optimizer.param_groups:
            group["lr"] = group["base"] * factor
        for start in range(0, len(order), BATCH):
            self._step(optimizer, order[start : start + BATCH], used)

    def _step(self, optimizer: torch.optim.Optimizer, queries: I64, used: Tensor) -> None:
        model, width = self.model, 1 + NEGATIVES
        at = (queries[:, None] * width + np.arange(width)).ravel()
        data = self._data[torch.from_numpy(at).to(self._data.device)] * used
        losses = data_losses(self.score(self._plan.pick(queries), data), width=width)
        weights = loss_weights(model.config.train.loss, model.dtype, model.device)
        optimizer.zero_grad(set_to_none=True)
        (losses * weights[: len(losses)]).sum().backward()  # type: ignore[no-untyped-call]
        optimizer.step()

    def score(self, plan: ScorePlan, data: Tensor | None = None) -> Tensor:
        """Scores of a plan's candidates before any event: on data, and on learned stalks where they are on."""
        model, states = self.model, self._states
        if model.has_learned:
            compared = model.candidate_geometry(model.source(states, plan), states, plan)
        else:
            nothing = torch.zeros(len(plan.cand), dtype=model.dtype, device=model.device)
            compared = Compared(Geometry(nothing, nothing, nothing, nothing))
        return model.decode(compared, plan, self.rows.stream, data).total

    def judge(self, split: Split) -> Judge:
        """What heads are worth on the validation rows, from facts that are planned once."""
        questions = validation_questions(split, Question.of(self.model.config.train)).thinned(MAX_ASKED)
        plan = _planned(self.model, split.stream, questions.asked)

        @torch.no_grad()
        def measure(model: TSNN) -> float:
            model.eval()
            parts = [self.score(plan.slice(at, at + BATCH)) for at in range(0, len(plan), BATCH)]
            scores: F64 = torch.cat(parts).double().cpu().numpy()
            return questions.validation(questions.answers(scores, plan.ptr))

        return measure


def _search(lesson: Lesson, judge: Judge, rng: np.random.Generator) -> WarmHead:
    """Try every set of columns on a sample of the queries, then train the best of them on all."""
    model = lesson.model
    scale, untrained = model.feature_scale.clone(), _weights(model)
    tried = rng.permutation(len(lesson))[:MAX_TRIED]
    found = {}
    for name, left_out in BLOCKS_LEFT_OUT.items():
        _restore(model, untrained)
        _leave_out(model, scale, left_out)
        found[name] = _until_enough(lesson, judge, tried, rng)
    columns = max(found, key=lambda name: found[name][0])
    best, epochs, weights = found[columns]
    _leave_out(model, scale, BLOCKS_LEFT_OUT[columns])
    _restore(model, weights)
    if len(tried) < len(lesson):
        more, longer, others = _until_enough(lesson, judge, np.arange(len(lesson)), rng)
        if more > best:
            epochs, weights = epochs + longer, others
        _restore(model, weights)
    return WarmHead(columns, epochs)


def _until_enough(
    lesson: Lesson, judge: Judge, queries: I64, rng: np.random.Generator
) -> tuple[float, int, dict[str, Tensor]]:
    """Train on these queries until validation gains no more: its best figure, after how many epochs, the weights."""
    model, optimizer = lesson.model, lesson.optimizer()
    best = (-np.inf, 0, _weights(model))
    for epoch in range(1, MOST_EPOCHS + 1):
        lesson.epoch(optimizer, rng.permutation(queries))
        figure = judge(model)
        if figure > best[0]:
            best = (figure, epoch, _weights(model))
        if epoch - best[1] >= PATIENCE:
            break
    return best


def _learn_stalks(lesson: Lesson, judge: Judge, rng: np.random.Generator) -> int:
    """Learn a vector for each node, beside the warm head; kept if validation gains by it. For how many epochs."""
    model, rows = lesson.model, lesson.rows
    alone, best, epochs = _weights(model), judge(model), 0
    kept = alone
    trained = np.concatenate([rows.stream.src[: rows.end], rows.stream.dst[: rows.end]])
    model.learned.met[torch.from_numpy(np.unique(trained)) + 1] = True
    model.learned.on.fill_(1.0)
    model.learned.vectors.requires_grad_(True)
    model.head.geometry_weight.fill_(1.0)
    optimizer = lesson.optimizer()
    figures: list[float] = []
    for epoch in range(LEARNED_EPOCHS):
        model.learned.forgetting = torch.Generator().manual_seed(int(rng.integers(1 << 62)))
        lesson.redraw(rng)
        lesson.epoch(optimizer, rng.permutation(len(lesson)), linear(epoch, LEARNED_EPOCHS))
        model.learned.forgetting = None
        figures.append(judge(model))
        if figures[-1] > best:
            best, epochs, kept = figures[-1], epoch + 1, _weights(model)
        if epoch - int(np.argmax(figures)) >= LEARNED_PATIENCE:
            break
    _restore(model, kept)
    model.learned.vectors.requires_grad_(
        False
    )  # what follows reads the stream in order, and would bend them to its end
    if not epochs:
        model.learned.on.fill_(0.0)
        model.head.geometry_weight.fill_(0.0)
    else:  # vectors are read through the frames they were learned in, until frames learn to move to some purpose
        for parameter in model.updater.frame_out.parameters():
            parameter.data.zero_()
    return epochs


def _is_learned_here(parameter: str) -> bool:
    return not parameter.startswith("updater.")


def _weights(model: TSNN) -> dict[str, Tensor]:
    """Copies of what is learned here."""
    own = model.named_parameters()
    return {name: value.detach().clone() for name, value in own if _is_learned_here(name)}


def _restore(model: TSNN, weights: dict[str, Tensor]) -> None:
    model.load_state_dict(weights, strict=False)


def _leave_out(model: TSNN, scale: Tensor, blocks: tuple[str, ...]) -> None:
    """Switch off the columns of these blocks: over infinity they are 0, wherever psi is made."""
    table = features(model.config.features)
    off = torch.tensor([feature.fact.block in blocks for feature in table], device=scale.device)
    model.feature_scale.copy_(scale.masked_fill(off, torch.inf))
