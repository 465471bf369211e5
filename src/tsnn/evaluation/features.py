"""The floor: a small MLP on data-only features, without states or frames. What a model has to beat.

Facts of positives follow from the events alone, so they are planned once; each epoch draws and plans new negatives.
"""

from __future__ import annotations

import copy

import numpy as np
import torch
from torch import Tensor, nn

from tsnn.config import Config, FeatureConfig
from tsnn.data.events import EventStream
from tsnn.data.negatives import NegativePool, draw_training_negatives
from tsnn.data.queries import pairs
from tsnn.data.question import Asks, Question, asks
from tsnn.data.split import Split
from tsnn.errors import RunError
from tsnn.evaluation.baselines import Stateless
from tsnn.evaluation.metrics import average_precision, mean_over_batches
from tsnn.evaluation.scorer import plan_blocks
from tsnn.model.features import feature_matrix, feature_names
from tsnn.plan.chunk import ChunkPlan
from tsnn.plan.facts import BLOCKS
from tsnn.plan.planner import Planner, PlanSpec, mean_gap
from tsnn.types import F64, I64


def only(*blocks: str) -> FeatureConfig:
    """These blocks of the table of facts and no others, whatever the table comes to hold."""
    return FeatureConfig.model_validate({block: block in blocks for block in BLOCKS})


FLOOR = only("pairs", "common_neighbors")
WITH_SUCCESSOR = only("pairs", "common_neighbors", "successor")
WIDTH = 128
PATIENCE = 4  # epochs without a better validation AP before it stops
RATE = 2e-3


class Features(Stateless):
    """MLP(data-only features), binary cross entropy, one random negative per positive; stops on validation AP."""

    def __init__(self, config: FeatureConfig = FLOOR, seed: int = 0, epochs: int = 20, batch: int = 500) -> None:
        self.config = config
        self.seed = seed
        self.epochs = epochs
        self.batch = batch  # positives per step, each with one negative
        self.name = "features+successor" if config.successor else "features"
        self.history: list[float] = []  # validation AP after each epoch
        self._mean_gap = 1.0
        self._shift, self._scale = np.zeros(1), np.ones(1)
        self._net: nn.Sequential | None = None

    def fit(self, split: Split, question: Question) -> None:
        """Train on the training rows, stop on the validation rows; every statistic is the training rows'."""
        stream = split.stream
        self._mean_gap = mean_gap(stream.t[: split.train_end])
        self.spec = PlanSpec.of(Config(features=self.config), self._mean_gap).without_states()
        whole = asks(stream, np.arange(split.val_end))
        cuts = question.cuts(split)[whole.rows]
        ends = np.searchsorted(whole.rows, [split.train_end, split.val_end])
        train, val = np.arange(ends[0]), np.arange(*ends)
        rng = np.random.default_rng(self.seed)

        def draw(own: I64, stop: int) -> F64:
            """Features of one random negative each, among the candidates as the rows before `stop` tell them."""
            pool = NegativePool.build(stream, stop, question)
            drawn = draw_training_negatives(stream, cuts[own], own, 1, "random", rng, pool)
            return self._features(stream, whole.take(own), cuts[own], drawn[:, 0])

        pos = self._features(stream, whole.take(train), cuts[train], whole.dst[train])
        neg = draw(train, split.train_end)
        self._standardize(np.concatenate([pos, neg]))
        val_pos = self._tensor(self._features(stream, whole.take(val), cuts[val], whole.dst[val]))
        val_neg = self._tensor(draw(val, split.val_end))
        net, optimizer, shuffle = _network(pos.shape[1], self.seed)
        best = net
        history: list[float] = []
        for epoch in range(self.epochs):
            if epoch:
                neg = draw(train, split.train_end)
            _epoch(net, optimizer, self._tensor(pos), self._tensor(neg), self.batch, shuffle)
            ap = mean_over_batches(average_precision, _logits(net, val_pos), _logits(net, val_neg))
            if not history or ap > max(history):
                best = copy.deepcopy(net)
            history.append(ap)
            if len(history) - 1 - int(np.argmax(history)) >= PATIENCE:
                break
        self._net, self.history = best, history

    def score(self, plan: ChunkPlan, versions: None) -> F64:
        """Logit of each candidate."""
        if self._net is None:
            raise RunError("the features baseline has not been fitted; call fit first.")
        return _logits(self._net, self._tensor(self._matrix(plan)))

    def _matrix(self, plan: ChunkPlan) -> F64:
        return feature_matrix(plan.score.facts, self.config, gaps="log", mean_gap=self._mean_gap)

    def _features(self, stream: EventStream, own: Asks, cuts: I64, dst: I64) -> F64:
        """Features of one candidate each."""
        queries = pairs(stream, own.rows, cuts, own.src, dst)
        out = np.empty((len(dst), len(feature_names(self.config))))
        for step, block in plan_blocks(Planner(stream, self.spec), queries, max_rows=20_000):
            out[step.first : step.last] = self._matrix(block)
        return out

    def _standardize(self, matrix: F64) -> None:
        self._shift, spread = matrix.mean(0), matrix.std(0)
        self._scale = np.where(spread > 0, spread, 1.0)

    def _tensor(self, matrix: F64) -> Tensor:
        return torch.from_numpy(((matrix - self._shift) / self._scale).astype(np.float32))


def _network(inputs: int, seed: int) -> tuple[nn.Sequential, torch.optim.Optimizer, torch.Generator]:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        net = nn.Sequential(
            nn.Linear(inputs, WIDTH),
            nn.ReLU(),
            nn.Linear(WIDTH, WIDTH),
            nn.ReLU(),
            nn.Linear(WIDTH, 1),
        )
    shuffle = torch.Generator().manual_seed(seed)
    return net, torch.optim.Adam(net.parameters(), lr=RATE, fused=True), shuffle


def _epoch(
    net: nn.Sequential, optimizer: torch.optim.Optimizer, pos: Tensor, neg: Tensor, batch: int, shuffle: torch.Generator
) -> None:
    order = torch.randperm(len(pos), generator=shuffle)
    for rows in torch.split(order, batch):
        logits = net(torch.cat([pos[rows], neg[rows]])).squeeze(1)
        labels = torch.zeros_like(logits)
        labels[: len(rows)] = 1
        loss = nn.functional.binary_cross_entropy_with_logits(logits, labels)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()


@torch.no_grad()
def _logits(net: nn.Sequential, inputs: Tensor) -> F64:
    logits: F64 = net(inputs).squeeze(1).double().numpy()
    return logits
