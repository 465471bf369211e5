"""What `tsnn bench engine` says: a speed of either engine, or a sentence; never a zero."""

from __future__ import annotations

import pytest

from tests.engine.streams import config_of
from tsnn.bench.engine import bench_engine
from tsnn.errors import InputError


def test_both_engines_have_a_speed_on_a_short_stream():
    result = bench_engine("synthetic:roles:events=400", config_of(train__chunk=50))
    for kind in ("train", "update"):
        assert result[kind]["fused_events_per_s"] > result[kind]["reference_events_per_s"] > 0
    assert all(value > 0 for value in result["stages_us_per_event"].values())
    assert result["floor"]["us_per_event"] > 0


def test_a_stream_of_one_chunk_cannot_be_timed():
    with pytest.raises(InputError, match="too few rows to time"):
        bench_engine("synthetic:roles:events=200", config_of(train__chunk=200))
