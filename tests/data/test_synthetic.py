import time

import numpy as np
import pytest

from tsnn.data.synthetic import RolesSpec, best_possible, load_synthetic, make_roles, true_scores
from tsnn.errors import InputError


def test_the_default_stream():
    start = time.perf_counter()
    stream = load_synthetic("roles")
    assert time.perf_counter() - start < 2
    assert (stream.num_nodes, stream.num_events, stream.msg_dim) == (400, 8000, 3)
    assert stream.t.dtype == np.int64
    ties = stream.num_events - len(np.unique(stream.t))
    assert 0 < ties < 400
    pairs = len(np.unique(stream.src * 400 + stream.dst))
    assert pairs > 0.95 * stream.num_events
    assert (stream.src != stream.dst).all()
    assert stream.name == "synthetic:roles"


def test_seed_and_address():
    one, two = make_roles(RolesSpec(events=500)), make_roles(RolesSpec(events=500, seed=1))
    assert one.fingerprint() == load_synthetic("roles:events=500").fingerprint()
    assert one.fingerprint() != two.fingerprint()
    assert two.name == "synthetic:roles:events=500,seed=1"
    assert load_synthetic(two.name.partition(":")[2]).fingerprint() == two.fingerprint()


def test_true_scores_are_log_ratios_of_a_distribution():
    spec = RolesSpec(events=300, nodes=50)
    stream = make_roles(spec)
    rows = np.array([0, 100, 299])
    everyone = np.tile(np.arange(50), (3, 1))
    scores = true_scores(spec, rows, everyone)
    assert np.exp(scores).mean(axis=1) == pytest.approx(1)
    assert np.isneginf(scores[np.arange(3), stream.src[rows]]).all()
    assert np.isfinite(scores[np.arange(3), stream.dst[rows]]).all()


def test_scores_are_calibrated():
    """The mean log-probability of what happened is the negative entropy of what was drawn from."""
    spec = RolesSpec(events=3000, nodes=60)
    stream = make_roles(spec)
    rows = np.arange(3000)
    log_prob = true_scores(spec, rows, np.tile(np.arange(60), (3000, 1))) - np.log(60)
    happened = log_prob[rows, stream.dst].mean()
    expected = np.where(np.isfinite(log_prob), np.exp(log_prob) * np.nan_to_num(log_prob, neginf=0), 0).sum(1).mean()
    assert happened == pytest.approx(expected, abs=0.05)


def test_best_possible_grows_with_what_is_planted():
    sharp = best_possible(RolesSpec(events=2000))
    blunt = best_possible(RolesSpec(events=2000, sharpness=1))
    nothing = best_possible(RolesSpec(events=2000, sharpness=0, affinity=0))
    assert sharp["ap"] > 0.88
    assert sharp["ap"] > blunt["ap"] > nothing["ap"]
    assert sharp["auc"] > blunt["auc"] > nothing["auc"] > 0.45


def test_messages_tell_switches():
    spec = RolesSpec(events=2000, noise=0.0)
    told = make_roles(spec).msg
    switched = told[:, 0] > 0
    assert switched.mean() == pytest.approx(spec.switch, abs=0.05)
    assert (told[~switched] == 0).all()
    assert np.hypot(told[switched, 1], told[switched, 2]) == pytest.approx(spec.loudness)


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("rings", "known one is synthetic:roles"),
        ("roles:speed=2", "did you mean 'seed'"),
        ("roles:zz=2", "settings are nodes"),
        ("roles:events=many", "write a number"),
        ("roles:events=0", "at least 1"),
        ("roles:nodes=5", "more nodes"),
        ("roles:switch=2", "between 0 and 1"),
        ("roles:noise=-1", "0 or more"),
    ],
)
def test_bad_settings(name, says):
    with pytest.raises(InputError, match=says):
        load_synthetic(name)
