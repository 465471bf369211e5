"""Warming up: the score head learns what the data alone says, before states and frames join in.

Chunks arrive in the order of the stream, and neighbors in a stream resemble each other; here the same training events
are seen shuffled over the whole stream, which is worth points. The geometry is switched off meanwhile, so the result is
a scorer of its own, and the first candidate for the best weights: adding states never makes a run worse on validation.
"""

from __future__ import annotations

import numpy as np
import torch

from tsnn.data.negatives import NegativePool, draw_training_negatives
from tsnn.data.split import Split
from tsnn.evaluation.scorer import plan_blocks
from tsnn.model.decoder import Geometry
from tsnn.model.features import feature_matrix
from tsnn.model.losses import binary_loss, ranking_loss
from tsnn.model.tsnn import TSNN, Compared
from tsnn.plan.chunk import ScorePlan, join
from tsnn.plan.planner import Planner, PlanSpec
from tsnn.training.draw import training_queries
from tsnn.types import I64

NEGATIVES = 3
MAX_ROWS = 300_000  # of a longer stream, a sample; bounds memory
BATCH = 500
LR = 2e-3


def warm_up(model: TSNN, split: Split, cuts: I64, pool: NegativePool, *, epochs: int, seed: int) -> None:
    """Fit the standardization of the features and train the head on them, geometry off."""
    rng = np.random.default_rng([seed, len(cuts)])
    plan = training_plan(model, split, cuts, pool, rng)
    config = model.config
    raw = feature_matrix(plan.facts, config.features, gaps=config.model.gaps, mean_gap=model.shape.mean_gap)
    model.standardize(torch.tensor(raw, dtype=model.dtype, device=model.device))
    model.head.geometry_weight.fill_(0.0)
    updater = {id(parameter) for parameter in model.updater.parameters()}
    trained = [parameter for parameter in model.parameters() if id(parameter) not in updater]
    optimizer = torch.optim.AdamW(trained, lr=LR, weight_decay=config.train.weight_decay, fused=True)
    model.train()
    for epoch in range(epochs):
        for group in optimizer.param_groups:
            group["lr"] = LR * (1.0 - epoch / epochs)
        order = rng.permutation(len(plan))
        for start in range(0, len(order), BATCH):
            _step(model, plan.pick(order[start : start + BATCH]), split, optimizer)


def training_plan(model: TSNN, split: Split, cuts: I64, pool: NegativePool, rng: np.random.Generator) -> ScorePlan:
    """Facts of training events and of a few negatives each, in one pass over the rows."""
    stream = split.stream
    rows = np.arange(split.train_end)
    if len(rows) > MAX_ROWS:
        rows = np.sort(rng.choice(rows, MAX_ROWS, replace=False))
    sampler = model.config.train.sampler
    negatives = draw_training_negatives(stream, cuts[rows], rows, NEGATIVES, sampler, rng, pool)
    queries = training_queries(stream, cuts, rows, negatives)
    spec = PlanSpec.of(model.config, model.shape.mean_gap).without_states()
    return join([block.score for _, block in plan_blocks(Planner(stream, spec), queries)])


def _step(model: TSNN, plan: ScorePlan, split: Split, optimizer: torch.optim.Optimizer) -> None:
    nothing = torch.zeros(len(plan.cand), dtype=model.dtype, device=model.device)
    compared = Compared(Geometry(nothing, nothing, nothing, nothing))
    parts = model.decode(compared, plan, split.stream)
    scores, weights = parts.total.view(-1, 1 + NEGATIVES), model.config.train.loss
    loss = weights.ce * ranking_loss(scores) + weights.binary * binary_loss(scores)
    optimizer.zero_grad(set_to_none=True)
    loss.backward()  # type: ignore[no-untyped-call]
    optimizer.step()
