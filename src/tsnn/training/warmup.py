"""Warming up: the score head learns what the data alone says, before states and frames join in.

Training itself takes events in the order of the stream, where neighbors resemble each other; here the same events come
in random order. The geometry is off meanwhile, so the result is a scorer of its own and the first candidate for the
best weights: adding states never makes a run worse on validation.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch

from tsnn.evaluation.scorer import plan_blocks
from tsnn.model.features import feature_matrix
from tsnn.model.geometry import Geometry
from tsnn.model.losses import data_losses, loss_weights
from tsnn.model.tsnn import TSNN, Compared
from tsnn.plan.chunk import ScorePlan, join
from tsnn.plan.planner import Planner, PlanSpec
from tsnn.training.course import linear
from tsnn.training.draw import TrainingRows
from tsnn.types import I64

NEGATIVES = 3
MAX_ROWS = 300_000  # of a longer stream, a sample; bounds memory
BATCH = 500
LR = 2e-3


def warm_up(model: TSNN, rows: TrainingRows) -> None:
    """Fit the standardization of the features and train the head on them, geometry off."""
    config = model.config
    plan, rng = warm_plan(model, rows)
    raw = feature_matrix(plan.facts, config.features, gaps=config.model.gaps, mean_gap=model.shape.mean_gap)
    model.standardize(torch.tensor(raw, dtype=model.dtype, device=model.device))
    model.head.geometry_weight.fill_(0.0)
    trained = [parameter for name, parameter in model.named_parameters() if not name.startswith("updater.")]
    optimizer = torch.optim.AdamW(trained, lr=LR, weight_decay=config.train.weight_decay, fused=True)
    model.train()
    for factor, order in shuffled(len(plan), config.train.warmup, rng):
        for group in optimizer.param_groups:
            group["lr"] = LR * factor
        for start in range(0, len(order), BATCH):
            _step(model, plan.pick(order[start : start + BATCH]), rows, optimizer)


def warm_plan(model: TSNN, rows: TrainingRows) -> tuple[ScorePlan, np.random.Generator]:
    """Facts of training events and of a few negatives each, in one pass over the rows; and what draws their order."""
    train = model.config.train
    rng = np.random.default_rng([train.seed, len(rows.cuts)])
    sample = np.arange(len(rows.cuts))
    if len(sample) > MAX_ROWS:
        sample = np.sort(rng.choice(sample, MAX_ROWS, replace=False))
    queries = rows.queries(sample, rows.negatives(sample, NEGATIVES, train, rng))
    spec = PlanSpec.of(model.config, model.shape.mean_gap).without_states()
    return join([block.score for _, block in plan_blocks(Planner(rows.stream, spec), queries)]), rng


def shuffled(queries: int, epochs: int, rng: np.random.Generator) -> Iterator[tuple[float, I64]]:
    """Of each epoch: what the learning rate is multiplied by, and the order of the queries."""
    for epoch in range(epochs):
        yield linear(epoch, epochs), rng.permutation(queries)


def _step(model: TSNN, plan: ScorePlan, rows: TrainingRows, optimizer: torch.optim.Optimizer) -> None:
    nothing = torch.zeros(len(plan.cand), dtype=model.dtype, device=model.device)
    compared = Compared(Geometry(nothing, nothing, nothing, nothing))
    losses = data_losses(model.decode(compared, plan, rows.stream).total, width=1 + NEGATIVES)
    weights = loss_weights(model.config.train.loss, model.dtype, model.device)
    optimizer.zero_grad(set_to_none=True)
    (losses * weights[: len(losses)]).sum().backward()  # type: ignore[no-untyped-call]
    optimizer.step()
