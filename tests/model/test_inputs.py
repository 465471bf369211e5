"""What the networks read: encoded gaps, features, initial frames, attention."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from tests.engine.streams import config_of
from tsnn.config import FeatureConfig, ModelConfig
from tsnn.memory.store import StateStore, initial_frames
from tsnn.model.attention import NeighborAttention
from tsnn.model.features import feature_matrix, feature_names, feature_tensor
from tsnn.model.time_encoding import encode_gap
from tsnn.plan.facts import COLUMN, FACTS


def test_encoding_by_hand():
    """eq:time_encoding: log-compressed, sine at even and cosine at odd positions, 10000^(-2 floor(j/2) / d_t)."""
    code = encode_gap(torch.tensor([6.0, -3.0], dtype=torch.float64), 4, 2.0)
    s = math.log1p(3.0)
    expected = [math.sin(s), math.cos(s), math.sin(s / 100), math.cos(s / 100)]
    torch.testing.assert_close(code[0], torch.tensor(expected, dtype=torch.float64))
    torch.testing.assert_close(code[1], torch.tensor([0.0, 1.0, 0.0, 1.0], dtype=torch.float64))


BLOCKS = ("pairs", "common_neighbors", "two_hop", "successor", "edgebank_recency", "activity", "strength", "walks")


@pytest.mark.parametrize("off", [None, *BLOCKS])
def test_every_feature_has_a_name(off):
    """app:optional_score_features: a switch removes its columns and only those."""
    config = FeatureConfig(**({off: False} if off else {}))
    facts = np.abs(np.random.default_rng(0).normal(size=(3, len(FACTS))))
    matrix = feature_matrix(facts, config, gaps="log", mean_gap=2.0)
    assert matrix.shape == (3, len(feature_names(config)))
    assert len(feature_names(FeatureConfig())) - len(feature_names(config)) == {
        None: 0, "pairs": 4, "common_neighbors": 4, "two_hop": 2, "successor": 8, "edgebank_recency": 3, "activity": 9,
        "strength": 3, "walks": 20,
    }[off]  # fmt: skip


@pytest.mark.parametrize("gaps", ["log", "raw"])
def test_features_made_on_a_device_are_those_made_on_the_host(gaps):
    """`feature_tensor` is `feature_matrix` in the facts' own precision."""
    facts = np.random.default_rng(0).normal(scale=100.0, size=(50, len(FACTS)))  # also below zero: never
    matrix = feature_matrix(facts, FeatureConfig(), gaps=gaps, mean_gap=2.0)
    torch.testing.assert_close(
        feature_tensor(torch.from_numpy(facts), FeatureConfig(), gaps=gaps, mean_gap=2.0), torch.from_numpy(matrix)
    )
    single = feature_tensor(torch.from_numpy(facts).float(), FeatureConfig(), gaps=gaps, mean_gap=2.0)
    torch.testing.assert_close(single, torch.from_numpy(matrix).float(), rtol=1e-5, atol=1e-6)


def test_a_node_never_seen_is_not_one_seen_just_now():
    """D-06."""
    facts = np.zeros((2, len(FACTS)))
    facts[0, COLUMN["src_gap"]] = -1.0
    never, now = feature_matrix(facts, FeatureConfig(), gaps="log", mean_gap=1.0)
    names = feature_names(FeatureConfig())
    assert never[names.index("lg src_gap")] == now[names.index("lg src_gap")] == 0
    assert (never[names.index("never src_gap")], now[names.index("never src_gap")]) == (1, 0)


def test_raw_gaps_are_those_of_the_two_nodes():
    """eq:score_features, D-07: the paper's delta t_u and delta t_v; further gaps are no entries of its psi."""
    facts = np.zeros((1, len(FACTS)))
    gaps = ("src_gap", "dst_gap", "pair_gap", "bank_gap")
    facts[0, [COLUMN[name] for name in gaps]] = 40.0
    matrix = feature_matrix(facts, FeatureConfig(), gaps="raw", mean_gap=10.0)
    row = dict(zip(feature_names(FeatureConfig()), matrix[0], strict=True))
    assert [row[f"lg {name}"] for name in gaps] == [40.0, 40.0, *[pytest.approx(math.log(41.0))] * 2]
    tensor = feature_tensor(torch.from_numpy(facts), FeatureConfig(), gaps="raw", mean_gap=10.0)
    np.testing.assert_allclose(tensor[0], list(row.values()))


def test_without_indicators_never_is_now():
    """D-06."""
    config = FeatureConfig(never=False)
    assert [name for name in feature_names(config) if name.startswith("never ")] == []
    facts = np.zeros((2, len(FACTS)))
    facts[0, COLUMN["src_gap"]] = -1.0
    never, now = feature_matrix(facts, config, gaps="log", mean_gap=1.0)
    np.testing.assert_array_equal(never, now)


def test_keyed_stalks_depend_on_seed_and_node_alone():
    """D-22: N(0, 1/4), apart from the frames, and there again after a reset."""
    keys = np.arange(4000, dtype=np.uint64)
    sizes = ModelConfig(stalk_dim=8, num_reflectors=4, stalks="keyed")
    store = StateStore(keys, 3, sizes, torch.float64)
    assert float(store.h.std()) == pytest.approx(0.5, abs=0.01)
    assert abs(np.corrcoef(store.h[:, 0], store.F[:, 0, 0])[0, 1]) < 0.05
    h, F = store.initial(keys[[7, 5]])
    assert torch.equal(h, store.h[[7, 5]])
    assert torch.equal(F, store.F[[7, 5]])
    assert not torch.equal(StateStore(keys[:5], 4, sizes, torch.float64).h, store.h[:5])
    store.scatter(np.array([7]), torch.zeros(1, 8), torch.zeros(1, 4, 8))
    store.reset_state()
    assert torch.equal(store.h[[7]], h[:1])


def test_initial_frames_depend_on_seed_and_node_alone():
    """app:inductive and D-05: N(0, 1/k), whatever the order or the company."""
    keys = np.arange(4000, dtype=np.uint64)
    frames = initial_frames(3, keys, 4, 8)
    assert abs(frames.mean()) < 0.005
    assert frames.std() == pytest.approx(0.5, abs=0.005)
    assert abs(np.corrcoef(frames[:, 0, 0], frames[:, 1, 3])[0, 1]) < 0.05
    order = np.random.default_rng(0).permutation(4000)
    np.testing.assert_array_equal(initial_frames(3, keys[order], 4, 8), frames[order])
    assert not np.array_equal(initial_frames(4, keys[:5], 4, 8), frames[:5])


def test_store_starts_from_zero_stalks_and_returns_there():
    """app:inductive."""
    store = StateStore(np.arange(5, dtype=np.uint64), 0, ModelConfig(stalk_dim=3, num_reflectors=2), torch.float64)
    fresh = store.snapshot()
    assert fresh["h"].abs().max() == 0
    store.scatter(np.array([1, 3]), torch.ones(2, 3), torch.ones(2, 2, 3))
    h, F = store.gather(np.array([3, 0]))
    assert h.tolist() == [[1.0] * 3, [0.0] * 3]
    assert bool((F[0] == 1).all())
    store.restore(fresh)
    assert torch.equal(store.F, fresh["F"])
    store.scatter(np.array([2]), torch.ones(1, 3), torch.ones(1, 2, 3))
    store.reset_state()
    assert torch.equal(store.h, fresh["h"])


def test_attention_ignores_absent_neighbors_and_falls_back_to_the_null_token():
    """alg:nbrattn."""
    config = config_of(model__attention=True).model
    torch.manual_seed(0)
    attention = NeighborAttention(config, 0).double()
    h, aligned = torch.randn(2, 6, dtype=torch.float64), torch.randn(2, 3, 6, dtype=torch.float64)
    code = torch.randn(2, 3, 2, dtype=torch.float64)
    present = torch.tensor([[True, True, False], [False, False, False]])
    out = attention(h, aligned, code, None, present)
    changed = torch.where(present[..., None], aligned, 1e6)
    torch.testing.assert_close(attention(h, changed, code, None, present), out)
    alone = attention.norm(h[1] + attention.out(attention.value(attention.null)))
    torch.testing.assert_close(out[1], alone)


def test_attention_dropout_is_drawn_from_the_given_generator():
    config = config_of(model__attention=True, model__attention_dropout=0.5).model
    attention = NeighborAttention(config, 0)
    inputs = torch.randn(4, 6), torch.randn(4, 3, 6), torch.randn(4, 3, 2), None, torch.ones(4, 3, dtype=torch.bool)
    first, second, other = (attention(*inputs, torch.Generator().manual_seed(seed)) for seed in (1, 1, 2))
    assert torch.equal(first, second)
    assert not torch.equal(first, other)
    assert torch.equal(attention.eval()(*inputs), attention(*inputs))
