"""tgbl-wiki whole, at the size of the paper: wall clock of one epoch and of the evaluation.

    python benchmarks/bench_tgb.py [DATA] [section.key=value ...]        as in train.device=cuda

200 negatives an event in training, 999 or so in evaluation, d=256, k=4, 30 neighbors, two rounds of diffusion.
"""

from __future__ import annotations

import json
import sys

import torch

from tsnn.bench.engine import settled_clock
from tsnn.bench.machine import machine_card
from tsnn.config import Config, parse_override
from tsnn.data.question import Question
from tsnn.evaluation.catalog import default_split, load
from tsnn.evaluation.evaluate import evaluate
from tsnn.evaluation.model import ModelScorer
from tsnn.training.trainer import Trainer

SETTINGS = {
    "train.chunk": 200, "train.negatives": 200, "train.sampler": "mixed", "train.epochs": 1, "model.stalk_dim": 256,
    "model.num_reflectors": 4, "model.num_neighbors": 30, "model.diffusion_steps": 2,
}  # fmt: skip


def main() -> None:
    torch.set_num_threads(2)
    changes = [text for text in sys.argv[1:] if "=" in text]
    (data,) = [text for text in sys.argv[1:] if "=" not in text] or ["tgb:tgbl-wiki"]
    split = default_split(load(data))
    config = Config.build(overrides=SETTINGS | dict(parse_override(text) for text in changes))
    marks = [settled_clock()]

    def mark(model: object) -> float:
        marks.append(settled_clock())
        return float(len(marks))  # every epoch counts as the best so far

    trained = Trainer(config, split, mark).run()
    question = Question.of(config.train)
    began = settled_clock()
    result = evaluate(ModelScorer(trained.model, split.stream), split, question)
    seconds = {"warm-up": marks[1] - marks[0], "epoch": marks[2] - marks[1], "evaluation": settled_clock() - began}
    card = {"data": data, "machine": machine_card(), "config": config.model_dump(), "seconds": seconds}
    print(json.dumps({**card, "metrics": result.metrics, "visibility": str(question.visibility)}, indent=2))


if __name__ == "__main__":
    main()
