"""Many pairs in one call: what each of them gets alone; and states of nodes that may be compared."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from tests.online.streams import KNOWN, LAST_DATE, SWITCHES, dated_stream, live_stream, save_prefix, save_stream
from tests.online.test_predictor import events_of, fingerprint
from tsnn.online import batch
from tsnn.online.predictor import Predictor


def asked(predictor: Predictor, pairs: int = 60) -> tuple[list, list, list]:
    """Known nodes, strangers on either side, loops; at the clock, where a tie may not be seen, and later."""
    rng = np.random.default_rng(1)
    names = [*predictor._state.ids.external[:12], "stranger", "another"]
    src = [names[i] for i in rng.integers(0, len(names), pairs)]
    dst = [names[i] for i in rng.integers(0, len(names), pairs)]
    dst[::9] = src[::9]
    times = [predictor.clock + float(later) for later in rng.choice([0, 0, 1, 7.5], pairs)]
    return src, dst, times


@pytest.mark.parametrize("name", SWITCHES)
def test_pairs_get_in_one_call_what_each_gets_alone(tmp_path, name, monkeypatch):
    monkeypatch.setattr(batch, "BLOCK", 7)
    stream = live_stream(relations=True, types=True)
    save_prefix(tmp_path, stream, **SWITCHES[name])
    predictor = Predictor.load(tmp_path)
    predictor.observe_many(events_of(stream, KNOWN, KNOWN + 20))
    src, dst, times = asked(predictor)
    kinds = np.arange(len(src)) % 3
    before = fingerprint(predictor)
    together = predictor.score_pairs(src, dst, times, kinds)
    assert fingerprint(predictor) == before, "scoring changes nothing"
    alone = [predictor.score(*one) for one in zip(src, dst, times, kinds.tolist(), strict=True)]
    np.testing.assert_allclose(together, alone, rtol=1e-5, atol=1e-5)
    assert np.ptp(together) > 0.1


def test_undirected_pairs_too(tmp_path):
    stream = live_stream(undirected=True)
    save_prefix(tmp_path, stream)
    predictor = Predictor.load(tmp_path)
    src, dst, times = asked(predictor)
    alone = [predictor.score(*one) for one in zip(src, dst, times, strict=True)]
    np.testing.assert_allclose(predictor.score_pairs(src, dst, times), alone, rtol=1e-5, atol=1e-5)


def test_columns_of_frames_dates_of_all_kinds_and_single_values(tmp_path):
    predictor = Predictor.load(save_stream(tmp_path / "run", dated_stream("Europe/Berlin")))
    pairs = pd.DataFrame({"user": ["user1", "user2"], "item": ["item3", "item4"]})
    later = pd.Timestamp(LAST_DATE) + pd.Timedelta("1h")
    naive = later.tz_convert("Europe/Berlin").tz_localize(None)  # without a zone: of the run's
    alone = [predictor.score(u, v, later, "buy") for u, v in pairs.itertuples(index=False)]
    for times in (later, str(later), str(naive), pd.Series([later] * 2), [naive] * 2, np.array([naive] * 2, "M8[ns]")):
        together = predictor.score_pairs(pairs["user"], pairs["item"].to_numpy(), times, "buy")
        np.testing.assert_allclose(together, alone, rtol=1e-6)
    assert predictor.score_pairs("user1", ["item1", "item2"], edge_type=["buy", "look"]).shape == (2,)
    assert predictor.score_pairs([], []).shape == (0,)


def test_states_may_be_compared_by_their_distance(tmp_path):
    """prop:sync_equiv: the distance of two rows is the transported distance that an explanation names."""
    stream = live_stream()
    save_prefix(tmp_path, stream)
    predictor = Predictor.load(tmp_path)
    predictor.observe_many(events_of(stream, KNOWN, KNOWN + 20))
    names = predictor._state.ids.external
    for at in (predictor.clock, predictor.clock + 1):  # at the clock the last tie has not happened yet
        states = predictor.embed([names[0], names[1], "nobody"], at)
        distance = predictor.explain(names[0], names[1], at).distance
        assert np.linalg.norm(states.values[0] - states.values[1]) == pytest.approx(distance, rel=1e-4)
        assert not states.values[2].any(), "nothing has happened to somebody never seen"
    last = events_of(stream, KNOWN, KNOWN + 20)[-1]
    assert (predictor.embed(last.src, predictor.clock).values != predictor.embed(last.src).values).any()


def test_all_states_come_with_their_ids(tmp_path):
    save_prefix(tmp_path, live_stream())
    predictor = Predictor.load(tmp_path)
    states = predictor.embed()
    assert states.ids == predictor._state.ids.external
    assert np.asarray(states).shape == (predictor.num_nodes, predictor.run.config.model.stalk_dim)
    frame = states.to_pandas()
    assert frame.columns[:2].tolist() == ["node", "g0"]
    assert frame["g0"].tolist() == states.values[:, 0].tolist()
