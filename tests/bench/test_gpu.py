"""What `tsnn bench gpu` measures, with the kernels on the host: every figure is there, whatever it is."""

from __future__ import annotations

import pytest
from rich.console import Console

from tests.engine import emulated
from tests.engine.streams import TINY
from tsnn.bench import gpu
from tsnn.cli.bench import print_gpu
from tsnn.config import Config
from tsnn.engine.cuda import STAGES
from tsnn.training import trainer


@pytest.fixture(autouse=True)
def _on_the_host(monkeypatch):
    emulated.small_stacks(monkeypatch)
    monkeypatch.setattr(trainer, "pick_engine", lambda name, device: emulated.EmulatedEngine())
    smaller = {"ON_GPU": {}, "CLUSTERS": (1, 2), "TEAMS": (1, 3), "REPEATS": 1}
    answers = {"has_cupy": lambda: True, "clock_rate": lambda: 1e9, "teams_for": lambda streams, device: 2}
    for name, value in (smaller | answers).items():
        monkeypatch.setattr(gpu, name, value)


def test_every_figure_is_there_and_shown():
    config = Config.build(overrides=TINY | {"train.chunk": 8})
    result = gpu.bench_gpu("synthetic:roles:events=60,nodes=24", config, populations=(1, 3))
    one = result["one_stream"]
    assert one["train_events_per_s"] > 0
    assert set(one["stages_us_per_event"]) >= {"plan", "recurrence", "score and losses", "backward", "optimizer"}
    assert [row["blocks"] for row in one["clusters"]] == [1, 2]
    for row in one["clusters"]:
        for name in ("forward_stages_us", "backward_stages_us"):
            assert set(row[name]) == set(STAGES)
            assert min(row[name].values()) > 0
    assert [(row["blocks"], row["teams"]) for row in one["teams"]] == [(1, 1), (1, 3), (2, 1), (2, 3)]
    assert [row["streams"] for row in result["populations"]] == [1, 3]
    assert all(row["train_events_per_s"] > 0 and row["update_events_per_s"] > 0 for row in result["populations"])
    out = Console(record=True, width=120)
    print_gpu(out, result)
    shown = out.export_text()
    for words in ("training, all included", "score and losses", "new frames", "teams: 3", "everything included"):
        assert words in shown
