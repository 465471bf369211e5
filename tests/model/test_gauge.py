"""Which parts of the score survive a common rotation of all frames, and which optional features do not."""

from __future__ import annotations

import pytest
import torch

from tests.engine.streams import config_of, every_row, tricky_stream
from tests.engine.test_parity import Pair
from tsnn.engine.engine import run_update, score
from tsnn.memory.versions import Versions


def parts(pair: Pair, versions: Versions, plan):
    with torch.no_grad():
        return score(pair.model, pair.engine, versions, plan.score, pair.stream)


def rotated(versions: Versions, n: int) -> Versions:
    """The same stalks, and U_w -> R U_w for all: n reflectors appended to every frame."""
    torch.manual_seed(1)
    common = torch.randn(1, n, versions.h.shape[1], dtype=versions.h.dtype)
    return versions._replace(F=torch.cat([versions.F, common.expand(len(versions.F), -1, -1)], dim=1))


@pytest.mark.parametrize(("switch", "invariant"), [({}, True), ({"features__transported_difference": True}, True)])
def test_a_common_rotation_of_the_synchronized_frames_is_invisible(switch, invariant):
    """eq:sdist: s_geo and every scalar stay; so does the difference, which is read in the source's own frame."""
    pair = Pair(config_of(**switch), tricky_stream(), "reference")
    plan = pair.planner.plan(26, every_row(pair.stream, "arrival"))
    with torch.no_grad():
        versions = run_update(pair.model, pair.engine, pair.store, plan.update, pair.stream)
    before, after = parts(pair, versions, plan), parts(pair, rotated(versions, 2), plan)
    torch.testing.assert_close(after.geometry.d2, before.geometry.d2)
    torch.testing.assert_close(after.geometry.inner, before.geometry.inner)
    assert torch.allclose(after.parts.total, before.parts.total) == invariant


@pytest.mark.parametrize(("switch", "invariant"), [({}, True), ({"features__transported_difference": True}, False)])
def test_re_choosing_local_coordinates_shows_only_in_the_difference(switch, invariant):
    """app:optional_score_features: h_w -> R h_w, U_w -> U_w R^T is invisible to scalars, not to coordinates."""
    pair = Pair(config_of(**switch), tricky_stream(), "reference")
    plan = pair.planner.plan(26, every_row(pair.stream, "arrival"))
    with torch.no_grad():
        versions = run_update(pair.model, pair.engine, pair.store, plan.update, pair.stream)
    axis = torch.randn(versions.h.shape[1], dtype=versions.h.dtype)
    mirrored = versions.h - 2 * (versions.h @ axis)[:, None] * axis / axis.dot(axis)
    frames = torch.cat([axis.expand(len(versions.F), 1, -1), versions.F], dim=1)
    before, after = parts(pair, versions, plan), parts(pair, versions._replace(h=mirrored, F=frames), plan)
    torch.testing.assert_close(after.geometry.d2, before.geometry.d2)
    assert torch.allclose(after.parts.total, before.parts.total) == invariant
