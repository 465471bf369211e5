"""A process that compiles the kernels and one that finds them compiled give the same bits."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

# Weights after two chunks: whatever differs in a forward or backward pass, in the facts or in the losses shows there.
TRAIN = """
import hashlib
from tsnn.config import Config
from tsnn.evaluation.catalog import default_split, load
from tsnn.training.trainer import Trainer

split = default_split(load("synthetic:roles:events=570"))
trainer = Trainer(Config.build(None, {"train.warmup": 0, "train.epochs": 1}), split, lambda model: 0.0).run()
digest = hashlib.sha256()
for weight in trainer.model.parameters():
    digest.update(weight.detach().numpy().tobytes())
print(digest.hexdigest())
"""


@pytest.mark.slow
def test_compiling_and_loading_give_the_same_bits(tmp_path):
    """Code of the same kernel, optimized in another surrounding, adds up in another order (see pointers.ENTRY)."""
    environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", TRAIN]
    compiled, loaded = (
        subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout for _ in range(2)
    )
    assert any(tmp_path.rglob("backward.backward-*.nbc"))
    assert compiled == loaded
