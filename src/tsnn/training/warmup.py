"""Warming up: the score head learns what the data alone says, before states and frames join in.

Training itself takes events in the order of the stream, where neighbors resemble each other; here the same events come
in random order. The geometry is off meanwhile, so the result is a scorer of its own and the first candidate for the
best weights: adding states never makes a run worse on validation.

A number for `train.warmup` is a number of epochs at a falling rate. "search" trains as long as validation rows gain by
it, since streams differ in how long that is, and on several sets of columns, since on some streams what is counted
beyond the floor only misleads: the best head of all is kept. Then vectors of partners are learned beside that head,
and kept where validation rows are answered better with them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from tsnn.data.events import EventStream
from tsnn.data.queries import Asked
from tsnn.data.question import Question
from tsnn.data.split import Split
from tsnn.evaluation.evaluate import validation_questions
from tsnn.evaluation.features import FLOOR
from tsnn.evaluation.questions import Questions
from tsnn.evaluation.scorer import plan_blocks
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
HOPELESS = 1.0  # below the best set of columns, in per cent: another one is given up after as many epochs
MAX_TRIED = 40_000  # queries that sets of columns are compared on; the best of them goes on with all
MAX_ASKED = 300_000  # candidates of the validation rows that heads are judged by; bounds memory
BLOCKS_LEFT_OUT = {
    "all": (),
    "without walks": ("walks",),
    "the floor's": tuple(block for block in BLOCKS if not getattr(FLOOR, block)),
}

# Of vectors:
VECTOR_EPOCHS = 10  # at most
VECTOR_STEPS = 400  # which a short stream has in more epochs than these
VECTOR_PATIENCE = 0.2  # of those epochs
VECTOR_LR = 1e-2
VECTOR_DECAY = 1e-2
WORTH = 0.25  # what validation has to gain by them, in per cent: they cost time

Judge = Callable[[TSNN], float]


class WarmHead(NamedTuple):
    """How a head was warmed: on which columns, for how many epochs, and how many more with vectors, if those stay."""

    columns: str
    epochs: int
    partners: int = 0


def warm_up(model: TSNN, split: Split, rows: TrainingRows) -> WarmHead:
    """Fit the standardization of the features and train the head on them, geometry off; then vectors of partners."""
    rng = _generator(model, rows)
    lesson = Lesson(model, rows, rng)
    model.head.geometry_weight.fill_(0.0)
    untrained = _weights(model)
    epochs = model.config.train.warmup
    asked = validation_questions(split, Question.of(model.config.train)).fewer().thinned(MAX_ASKED)
    judge = lesson.judge(asked) if epochs == "search" or model.config.model.partners else None
    if epochs == "search":
        assert judge is not None
        warm = _search(lesson, judge, rng)
    else:
        optimizer = lesson.optimizer()
        for factor, order in shuffled(len(lesson), epochs, rng):
            lesson.epoch(optimizer, order, factor)
        warm = WarmHead("all", epochs)
    if model.config.model.partners:
        assert judge is not None
        warm = warm._replace(partners=_learn_vectors(lesson, judge, rng, untrained, _worth(asked)))
    return warm


def warm_plan(model: TSNN, rows: TrainingRows) -> tuple[ScorePlan, np.random.Generator]:
    """Facts of training events and of a few negatives each, in one pass over the rows; and what draws their order."""
    rng = _generator(model, rows)
    return draw_plan(model, rows, rng), rng


def _generator(model: TSNN, rows: TrainingRows) -> np.random.Generator:
    return np.random.default_rng([model.config.train.seed, len(rows.cuts)])


def draw_plan(model: TSNN, rows: TrainingRows, rng: np.random.Generator) -> ScorePlan:
    """Facts of training events, of a long stream of some of them, and of random negatives."""
    sample = np.arange(len(rows.cuts))
    if len(sample) > MAX_ROWS:
        sample = np.sort(rng.choice(sample, MAX_ROWS, replace=False))
    queries = rows.queries(sample, rows.negatives(sample, NEGATIVES, model.config.train, rng))
    return _planned(model, rows.stream, queries)


def _planned(model: TSNN, stream: EventStream, queries: Asked) -> ScorePlan:
    """Facts of queries, and the partners of their sources if those may be read."""
    config = model.config
    spec = PlanSpec.of(config, model.shape.mean_gap).without_states()
    spec = spec.with_partners(config) if config.model.partners else spec
    return join([block.score for _, block in plan_blocks(Planner(stream, spec), queries)])


def shuffled(queries: int, epochs: int, rng: np.random.Generator) -> Iterator[tuple[float, I64]]:
    """Of each epoch: what the learning rate is multiplied by, and the order of the queries."""
    for epoch in range(epochs):
        yield linear(epoch, epochs), rng.permutation(queries)


class Lesson:
    """A model's head, and the queries that it learns from."""

    def __init__(self, model: TSNN, rows: TrainingRows, rng: np.random.Generator) -> None:
        self.model, self.rows = model, rows
        model.standardize(self._take(draw_plan(model, rows, rng)))
        self._standardize()

    def __len__(self) -> int:
        return len(self._plan)

    def _take(self, plan: ScorePlan) -> Tensor:
        """The plan to learn from, and its features as they are."""
        config, model = self.model.config, self.model
        raw = feature_matrix(plan.facts, config.features, gaps=config.model.gaps, mean_gap=model.shape.mean_gap)
        self._plan = plan
        self._data = torch.tensor(raw, dtype=model.dtype, device=model.device)
        return self._data

    def _standardize(self) -> None:
        """The features as the head reads them."""
        self._data.sub_(self.model.feature_shift).div_(self.model.feature_scale)

    def redraw(self, rng: np.random.Generator) -> None:
        """Learn from other negatives from now on."""
        self._take(draw_plan(self.model, self.rows, rng))
        self._standardize()

    def optimizer(self) -> torch.optim.Optimizer:
        """For all of the score that needs no recurrence."""
        model = self.model
        vectors = [model.partners.vectors] if hasattr(model, "partners") else []
        others = [
            own for name, own in model.named_parameters() if not name.startswith(("updater.", "partners.vectors"))
        ]
        groups = [
            {"params": others, "base": LR, "weight_decay": model.config.train.weight_decay},
            {"params": vectors, "base": VECTOR_LR, "weight_decay": VECTOR_DECAY},
        ]
        return torch.optim.AdamW([group for group in groups if group["params"]], fused=True)

    def epoch(self, optimizer: torch.optim.Optimizer, order: I64, factor: float = 1.0) -> None:
        """Learn from the queries in this order."""
        self.model.train()
        used = torch.isfinite(self.model.feature_scale).to(self.model.dtype)  # what is left out is 0
        for group in optimizer.param_groups:
            group["lr"] = group["base"] * factor
        for start in range(0, len(order), BATCH):
            self._step(optimizer, order[start : start + BATCH], used)

    def _step(self, optimizer: torch.optim.Optimizer, queries: I64, used: Tensor) -> None:
        model, width = self.model, 1 + NEGATIVES
        at = (queries[:, None] * width + np.arange(width)).ravel()
        data = self._data[torch.from_numpy(at).to(self._data.device)] * used
        losses = data_losses(self._score(self._plan.pick(queries), data), width=width)
        weights = loss_weights(model.config.train.loss, model.dtype, model.device)
        optimizer.zero_grad(set_to_none=True)
        (losses * weights[: len(losses)]).sum().backward()  # type: ignore[no-untyped-call]
        optimizer.step()

    def _score(self, plan: ScorePlan, data: Tensor | None = None) -> Tensor:
        nothing = torch.zeros(len(plan.cand), dtype=self.model.dtype, device=self.model.device)
        compared = Compared(Geometry(nothing, nothing, nothing, nothing))
        return self.model.decode(compared, plan, self.rows.stream, data).total

    def judge(self, questions: Questions) -> Judge:
        """What the head is worth on these questions, from facts that are planned once."""
        plan = _planned(self.model, questions.split.stream, questions.asked)

        @torch.no_grad()
        def measure(model: TSNN) -> float:
            model.eval()
            ends = [*range(0, len(plan), BATCH), len(plan)]
            parts = [self._score(plan.slice(first, last)) for first, last in pairwise(ends)]
            scores: F64 = torch.cat(parts).double().cpu().numpy()
            return questions.validation(questions.answers(scores, plan.ptr))

        return measure


def _search(lesson: Lesson, judge: Judge, rng: np.random.Generator) -> WarmHead:
    """Try every set of columns on a sample of the queries, then train the best of them on all."""
    model = lesson.model
    scale, untrained = model.feature_scale.clone(), _weights(model)
    tried = rng.permutation(len(lesson))[:MAX_TRIED]
    found: dict[str, tuple[float, int, dict[str, Tensor]]] = {}
    for name, left_out in BLOCKS_LEFT_OUT.items():
        _restore(model, untrained)
        _leave_out(model, scale, left_out)
        found[name] = _until_enough(lesson, judge, tried, rng, max([best for best, _, _ in found.values()], default=0))
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
    lesson: Lesson, judge: Judge, queries: I64, rng: np.random.Generator, rival: float = 0.0
) -> tuple[float, int, dict[str, Tensor]]:
    """Train on these queries until validation gains no more, or is far below a rival's figure.

    Its best figure, after how many epochs it was reached, and the weights of then.
    """
    model, optimizer = lesson.model, lesson.optimizer()
    best = (-np.inf, 0, _weights(model))
    for epoch in range(1, MOST_EPOCHS + 1):
        lesson.epoch(optimizer, rng.permutation(queries))
        figure = judge(model)
        if figure > best[0]:
            best = (figure, epoch, _weights(model))
        if epoch - best[1] >= PATIENCE or (epoch >= PATIENCE and best[0] < rival - HOPELESS):
            break
    return best


def _learn_vectors(
    lesson: Lesson, judge: Judge, rng: np.random.Generator, untrained: dict[str, Tensor], worth: float
) -> int:
    """Learn a vector for each node, together with a new head; both are kept if that is worth it. For how many epochs.

    A head that is trained already leaves vectors little to learn.
    """
    model, rows = lesson.model, lesson.rows
    own = model.partners
    kept, best, epochs = _weights(model), judge(model) + worth, 0
    trained = np.concatenate([rows.stream.src[: rows.end], rows.stream.dst[: rows.end]])
    own.met[torch.from_numpy(np.unique(trained)).to(own.met.device) + 1] = True
    own.on.fill_(1.0)
    own.requires_grad_(True)
    _restore(model, untrained)
    optimizer = lesson.optimizer()
    figures: list[float] = []
    most = max(VECTOR_EPOCHS, VECTOR_STEPS * BATCH // len(lesson))
    for epoch in range(most):
        lesson.redraw(rng)
        own.forgetting = torch.Generator().manual_seed(int(rng.integers(1 << 62)))
        lesson.epoch(optimizer, rng.permutation(len(lesson)), linear(epoch, most))
        own.forgetting = None
        figures.append(judge(model))
        if figures[-1] > best:
            best, epochs, kept = figures[-1], epoch + 1, _weights(model)
        if epoch - int(np.argmax(figures)) >= VECTOR_PATIENCE * most:
            break
    own.requires_grad_(False)
    own.on.fill_(float(epochs > 0))
    _restore(model, kept)
    return epochs


def _worth(questions: Questions) -> float:
    """What has to be gained: more than two standard errors, as if half of all answers changed sides by chance."""
    positives = max(len(questions.asked), 1)
    return WORTH + 100 / math.sqrt(positives)


def _weights(model: TSNN) -> dict[str, Tensor]:
    """Copies of what is learned here."""
    return {name: own.detach().clone() for name, own in model.named_parameters() if not name.startswith("updater.")}


def _restore(model: TSNN, weights: dict[str, Tensor]) -> None:
    model.load_state_dict(weights, strict=False)


def _leave_out(model: TSNN, scale: Tensor, blocks: tuple[str, ...]) -> None:
    """Switch off the columns of these blocks: over infinity they are 0, wherever psi is made."""
    table = features(model.config.features)
    off = torch.tensor([feature.fact.block in blocks for feature in table], device=scale.device)
    model.feature_scale.copy_(scale.masked_fill(off, torch.inf))
