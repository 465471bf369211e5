"""A peer side by side: TGN, put together from PyTorch Geometric's parts, on the same stream in the same run.

TGN sees earlier batches of 200 rows, so both models are trained and evaluated under `batch:200`, with the same
negatives. The peer's settings are those of PyTorch Geometric's own example. A rate is that of the fastest epoch,
because other work on the machine can only slow an epoch down. tsnn's warm-up is timed separately.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits as cross_entropy

from tsnn.bench.engine import trained_with
from tsnn.bench.machine import machine_card
from tsnn.config import Config
from tsnn.data.negatives import DgbNegatives, NegativePool, draw_training_negatives
from tsnn.data.question import Question
from tsnn.data.split import Split
from tsnn.errors import ConfigError
from tsnn.evaluation.catalog import default_split, load
from tsnn.evaluation.evaluate import evaluate, validation_metric
from tsnn.evaluation.metrics import link_metrics
from tsnn.evaluation.model import ModelScorer, remark_of
from tsnn.training.trainer import Trainer
from tsnn.types import I64

BATCH = 200
VISIBILITY = f"batch:{BATCH}"
DIM, NEIGHBORS, LR = 100, 10, 1e-4


def bench_peers(data: str, config: Config, epochs: int = 3) -> dict[str, Any]:
    """Training events/s and test AP of both after the same number of epochs."""
    split = default_split(load(data))
    ours = _measure_tsnn(config, split, epochs)
    theirs = _measure_tgn(split, epochs)
    return {
        "data": data,
        "epochs": epochs,
        "visibility": VISIBILITY,
        "config": config.model_dump(),
        "machine": machine_card(),
        "tsnn": ours,
        "tgn": theirs,
        "ratio": ours["events_per_s"] / theirs["events_per_s"],
    }


def _measure_tsnn(config: Config, split: Split, epochs: int) -> dict[str, Any]:
    torch.set_num_threads(1)
    config = trained_with(config, visibility=VISIBILITY, epochs=epochs, patience=epochs)
    question = Question.of(config.train)
    validate = validation_metric(split, question)
    spent: list[float] = []  # seconds between validations
    began = 0.0

    def watch(model: Any) -> float:
        nonlocal began
        spent.append(time.perf_counter() - began)
        metric = validate(ModelScorer(model, split.stream))
        began = time.perf_counter()
        return metric

    chunks = Trainer(config, split, watch).train_chunks(0)
    for _ in range(2):  # compiles outside the clock
        next(chunks)
    chunks.close()
    trainer = Trainer(config, split, watch)
    began = time.perf_counter()
    trained = trainer.run()
    metrics = evaluate(ModelScorer(trained.model, split.stream), split, question, sets=("test",)).metrics["test"]
    return {
        "events_per_s": split.train_end / min(spent[-epochs:]),
        "warm_head_s": sum(spent[:-epochs]),
        "remark": remark_of(trained.model),
        "test_ap": metrics["ap"],
        "test_auc": metrics["auc"],
    }


def _measure_tgn(split: Split, epochs: int, seed: int = 0) -> dict[str, float]:
    torch.set_num_threads(2)
    torch.manual_seed(seed)
    peer = Tgn(split)
    spent = []
    for epoch in range(epochs):
        began = time.perf_counter()
        peer.train_epoch(epoch)
        spent.append(time.perf_counter() - began)
    metrics = peer.test()
    torch.set_num_threads(1)
    return {"events_per_s": split.train_end / min(spent), "test_ap": metrics["ap"], "test_auc": metrics["auc"]}


class Tgn(nn.Module):
    """TGNMemory, one attention layer over the last neighbors, and a small link predictor."""

    def __init__(self, split: Split) -> None:
        super().__init__()
        try:
            from torch_geometric.nn import TGNMemory, TransformerConv
            from torch_geometric.nn.models.tgn import IdentityMessage, LastAggregator, LastNeighborLoader
        except ImportError:
            raise ConfigError("bench peers needs PyTorch Geometric; pip install 'tsnn[bench]'.") from None
        stream = split.stream
        self.split = split
        self.num_nodes = stream.num_nodes
        self.msg = torch.zeros(stream.num_events, 1) if stream.msg is None else torch.tensor(stream.msg)
        self.src, self.dst = torch.tensor(stream.src), torch.tensor(stream.dst)
        self.t = torch.tensor(np.asarray(stream.t - stream.t[0]), dtype=torch.long)
        width = self.msg.shape[1]
        self.memory = TGNMemory(
            self.num_nodes, width, DIM, DIM,
            message_module=IdentityMessage(width, DIM, DIM), aggregator_module=LastAggregator(),
        )  # fmt: skip
        self.attention = TransformerConv(DIM, DIM // 2, heads=2, dropout=0.1, edge_dim=width + DIM)
        self.link = nn.Sequential(nn.Linear(2 * DIM, DIM), nn.ReLU(), nn.Linear(DIM, 1))
        self.neighbors = LastNeighborLoader(self.num_nodes, size=NEIGHBORS)
        self.local = torch.empty(self.num_nodes, dtype=torch.long)
        self.pool = NegativePool.build(stream, split.train_end, Question())
        self.optimizer = torch.optim.Adam(self.parameters(), lr=LR)

    def train_epoch(self, epoch: int) -> None:
        """One pass over the training rows, from an empty memory."""
        self.train()
        self.memory.reset_state()
        self.neighbors.reset_state()
        stream, rng = self.split.stream, np.random.default_rng(epoch)
        for start in range(0, self.split.train_end, BATCH):
            rows = np.arange(start, min(start + BATCH, self.split.train_end))
            drawn = draw_training_negatives(stream, np.full(len(rows), start), rows, 1, "random", rng, self.pool)
            self.optimizer.zero_grad()
            pos, neg = self._score(rows, drawn[:, 0])
            loss = cross_entropy(pos, torch.ones_like(pos)) + cross_entropy(neg, torch.zeros_like(neg))
            self._observe(rows)
            loss.backward()  # type: ignore[no-untyped-call]
            self.optimizer.step()
            self.memory.detach()

    @torch.no_grad()
    def test(self) -> dict[str, float]:
        """Figures on the test rows, the validation rows observed on the way."""
        self.eval()
        negatives = DgbNegatives(self.split, "test").neg_dst
        pos, neg = [], []
        for segment in ("val", "test"):
            first, last = self.split.bounds(segment)
            for start in range(first, last, BATCH):
                rows = np.arange(start, min(start + BATCH, last))
                if segment == "test":
                    scores = self._score(rows, negatives[rows - first])
                    pos.append(scores[0].numpy())
                    neg.append(scores[1].numpy())
                self._observe(rows)
        return link_metrics(np.concatenate(pos), np.concatenate(neg))

    def _score(self, rows: I64, drawn: I64) -> tuple[Tensor, Tensor]:
        at = torch.from_numpy(rows)
        src, dst, other = self.src[at], self.dst[at], torch.from_numpy(drawn)
        nodes, edges, events = self.neighbors(torch.unique(torch.cat([src, dst, other])))
        self.local[nodes] = torch.arange(len(nodes))
        z, last = self.memory(nodes)
        code = self.memory.time_enc((last[edges[0]] - self.t[events]).to(z.dtype))
        z = self.attention(z, edges, torch.cat([code, self.msg[events]], dim=1))
        source, positive, negative = (z[self.local[side]] for side in (src, dst, other))
        pos, neg = (self.link(torch.cat([source, end], dim=1)).squeeze(1) for end in (positive, negative))
        return pos, neg

    def _observe(self, rows: I64) -> None:
        at = torch.from_numpy(rows)
        self.memory.update_state(self.src[at], self.dst[at], self.t[at], self.msg[at])
        self.neighbors.insert(self.src[at], self.dst[at])
