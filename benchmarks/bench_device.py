"""Training events/s with the score on the CPU and on the GPU, in one run: python benchmarks/bench_device.py [DATA]"""

from __future__ import annotations

import json
import sys

import torch

from tsnn.bench.engine import settled_clock
from tsnn.bench.machine import machine_card
from tsnn.config import Config
from tsnn.evaluation.catalog import default_split, load
from tsnn.training.trainer import Trainer

CASES = {
    "d=64, one negative": {"train.chunk": 200},
    "d=256, 200 negatives": {
        "train.chunk": 200, "train.negatives": 200, "train.sampler": "mixed", "model.stalk_dim": 256,
        "model.num_reflectors": 4, "model.hidden_dim": 256, "model.num_neighbors": 30, "model.diffusion_steps": 2,
    },
}  # fmt: skip
CHUNKS = 40


def rate(split, settings: dict, device: str) -> float:
    trainer = Trainer(Config.build(overrides={**settings, "train.device": device}), split, lambda model: 0.0)
    chunks = trainer.train_chunks(0)
    next(chunks)
    next(chunks)
    began = settled_clock()
    done = sum(next(chunks) for _ in range(CHUNKS))
    seconds = settled_clock() - began
    chunks.close()
    return done / seconds


def main() -> None:
    data = sys.argv[1] if len(sys.argv) > 1 else "dgb:uci"
    devices = ["cpu", "cuda"] if torch.cuda.is_available() else ["cpu"]
    split = default_split(load(data))
    rows = {}
    for name, settings in CASES.items():
        rows[name] = {}
        for device in devices:
            torch.set_num_threads(1 if device == "cuda" or settings.get("train.negatives", 1) == 1 else 4)
            rows[name][device] = rate(split, settings, device)
    print(json.dumps({"data": data, "machine": machine_card(), "events_per_s": rows}, indent=2))


if __name__ == "__main__":
    main()
