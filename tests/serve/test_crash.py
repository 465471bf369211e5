"""A few kills in every test run; `python -m tests.serve.crash --kills 200` for many."""

from __future__ import annotations

import pytest

from tests.serve.crash import crash


@pytest.mark.slow
def test_nothing_acknowledged_is_lost_in_a_kill(tmp_path):
    outcome = crash(tmp_path, kills=4)
    assert outcome["acknowledged"] > 50
    assert outcome["events"] >= outcome["acknowledged"]
