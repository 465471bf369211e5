"""TensorBoard: the numbers of the journal arrive, and its absence is one sentence."""

from __future__ import annotations

import sys
from contextlib import closing

import pytest

from tsnn.errors import ConfigError
from tsnn.training.tensorboard import TensorBoard


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_losses_validation_and_the_running_loss_arrive(tmp_path):
    pytest.importorskip("tensorboard", reason="needs tensorboard, absent here; it is an extra")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    with closing(TensorBoard(tmp_path)) as board:
        for row in (0, 100, 2000, 2100, 4000):
            board.running_loss(row, row / 1000)
        board.epoch(0, losses={"ce": 0.5, "geo": 0.25}, validation=81.5, states={"saturated": 0.9})
        board.epoch(1, losses={"ce": 0.4, "geo": 0.2}, validation=82.5, states={"saturated": 0.8})
    read = EventAccumulator(str(tmp_path)).Reload()
    assert {"loss/running", "losses/ce", "losses/geo", "states/saturated", "validation"} == set(read.Tags()["scalars"])
    assert [(e.step, e.value) for e in read.Scalars("validation")] == [(1, 81.5), (2, 82.5)]
    assert [e.step for e in read.Scalars("loss/running")] == [0, 2000, 4000], "thinned out"


def test_without_the_package_it_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(ConfigError, match=r"tsnn\[tensorboard\]"):
        TensorBoard(tmp_path / "board")
    assert not (tmp_path / "board").exists()
