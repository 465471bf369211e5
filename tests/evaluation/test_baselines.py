from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.evaluation.streams import History, replay, tied_split, tied_stream
from tsnn.config import Config, FeatureConfig
from tsnn.data.events import NodeIds, make_stream
from tsnn.data.queries import Queries, Ranking, pairs
from tsnn.data.question import Question, asks
from tsnn.data.split import Split
from tsnn.errors import ConfigError, RunError
from tsnn.evaluation.baselines import (
    DGB_MODES,
    ROSTER,
    TGB_MODES,
    EdgeBank,
    Popularity,
    Recency,
    baseline,
    best_edgebank_mode,
    compared,
    mean_repeat_gap,
    quantile_of_sorted,
)
from tsnn.evaluation.features import FLOOR, WITH_SUCCESSOR, Features, only
from tsnn.evaluation.replay import score_queries
from tsnn.plan.planner import PlanSpec, mean_gap
from tsnn.types import Visibility

VISIBILITIES = ["strict", "arrival", "batch:7"]


def every_row(split: Split, visibility: str, seed: int = 0) -> Queries:
    rng = np.random.default_rng(seed)
    rows = np.arange(split.stream.num_events)
    cut = Visibility.parse(visibility).cuts(split.stream.t, split.segment_starts)
    negatives = rng.integers(0, split.stream.num_nodes, 3 * len(rows))
    bounds = 3 * np.arange(len(rows) + 1)
    return Ranking(split.stream, asks(split.stream, rows), cut, bounds, negatives).slice(0, len(rows))


def edgebank_rule(mode: str, train_span: float) -> object:
    """EdgeBank as PROTOCOLS.md words it, over a set of pairs."""

    def rule(history: History, src: int, dst: int, t: float) -> float:
        seen = history.times_of
        times = seen.get((src, dst))
        if not times:
            return 0.0
        if mode == "repeat_threshold":
            return float(len(times) >= np.mean([len(v) for v in seen.values()]))
        start = {
            "unlimited": lambda: -np.inf,
            "fixed_proportion": lambda: np.quantile(history.t, 0.85),
            "repeat_interval": lambda: (
                max(history.t) - np.sum([np.mean(np.diff(v)) for v in seen.values() if len(v) > 1]) / len(seen)
            ),
            "fixed_time_window": lambda: max(history.t) - 0.15 * train_span,
        }[mode]()
        return float(max(times) >= start)

    return rule


@pytest.mark.parametrize("visibility", VISIBILITIES)
@pytest.mark.parametrize("mode", dict.fromkeys(DGB_MODES + TGB_MODES))
def test_edgebank_is_its_definition(mode: str, visibility: str) -> None:
    split = tied_split()
    stream = split.stream
    queries = every_row(split, visibility)
    scorer = EdgeBank(mode)
    scorer.fit(split, Question(Visibility.parse(visibility)))
    scores = score_queries(scorer, stream, queries, max_rows=50)
    span = float(stream.t[split.train_end - 1] - stream.t[0])
    np.testing.assert_array_equal(scores, replay(stream, queries, edgebank_rule(mode, span)))  # type: ignore[arg-type]
    assert 0 < scores.mean() < 1


@pytest.mark.parametrize("visibility", VISIBILITIES)
def test_popularity_and_recency_are_their_definitions(visibility: str) -> None:
    split = tied_split(1)
    queries = every_row(split, visibility)

    def last_seen(history: History, src: int, dst: int, t: float) -> float:
        return max((row for row, d in enumerate(history.dst) if d == dst), default=-1)

    popular = score_queries(Popularity(), split.stream, queries)
    recent = score_queries(Recency(), split.stream, queries)
    np.testing.assert_array_equal(popular, replay(split.stream, queries, lambda h, u, c, t: h.dst.count(c)))
    np.testing.assert_array_equal(recent, replay(split.stream, queries, last_seen))


def test_quantiles_of_prefixes_are_numpys() -> None:
    t = np.sort(np.random.default_rng(0).normal(size=200))
    n = np.arange(1, 201)
    np.testing.assert_array_equal(quantile_of_sorted(t, n, 0.85), [np.quantile(t[:k], 0.85) for k in n])


def test_a_window_keeps_its_edge_on_nanosecond_clocks() -> None:
    start = 1_700_000_000_000_000_000  # as float64 these times would fall together
    stream = make_stream([0, 0, 0, 0], [1, 2, 3, 1], np.array([0, 1, 10, 11]) + start, ids=NodeIds(range(4)))
    split = Split(stream, 3, 3, np.zeros(4, bool))
    queries = pairs(stream, np.array([3, 3, 3]), np.array([3, 3, 3]), np.zeros(3, np.int64), np.array([1, 2, 3]))
    scorer = EdgeBank("fixed_time_window", proportion=0.9)
    scorer.fit(split, Question(Visibility.parse("arrival")))
    np.testing.assert_array_equal(score_queries(scorer, stream, queries), [0, 1, 1])


def test_mean_repeat_gap_of_every_prefix() -> None:
    stream = tied_stream(3, events=80, nodes=5)
    expected = [0.0]
    for n in range(1, 81):
        seen = History(*(column[:n].tolist() for column in (stream.src, stream.dst, stream.t))).times_of
        expected.append(sum(np.mean(np.diff(v)) for v in seen.values() if len(v) > 1) / len(seen))
    np.testing.assert_allclose(mean_repeat_gap(stream), expected, atol=1e-12)


def test_features_score_the_same_whatever_shares_the_block() -> None:
    split = tied_split()
    visibility = Visibility.parse("strict")
    scorer = Features(epochs=2, batch=50)
    scorer.fit(split, Question(visibility))
    queries = every_row(split, "strict")
    whole = score_queries(scorer, split.stream, queries)
    pieces = score_queries(scorer, split.stream, queries, max_rows=3, max_candidates=4)
    np.testing.assert_allclose(whole, pieces, atol=1e-5)


def test_features_are_repeatable_and_change_with_the_seed() -> None:
    split, visibility = tied_split(), Visibility.parse("arrival")
    queries = every_row(split, "arrival")

    def scores(seed: int) -> np.ndarray:
        scorer = baseline("features", seed=seed)
        scorer.fit(split, Question(visibility))
        return score_queries(scorer, split.stream, queries)

    np.testing.assert_array_equal(scores(0), scores(0))
    assert not np.array_equal(scores(0), scores(1))


def test_features_find_a_pattern_in_the_training_rows() -> None:
    stream = tied_stream(events=1)
    src = np.arange(600) % 10
    stream = type(stream)(src, 10 + src, np.arange(600.0), stream.ids)
    split = Split(stream, 400, 500, np.zeros(20, bool))
    scorer = Features()
    scorer.fit(split, Question(Visibility.parse("strict")))
    assert max(scorer.history) > 0.99


def test_features_are_planned_as_a_model_with_the_same_blocks_plans_them() -> None:
    """Every switch counts: no decay and no walk is left at a value of its own."""
    split, config = tied_split(), Config.build(overrides={"features.cn_neighbors": 5})
    scorer = Features(config.features, epochs=1)
    scorer.fit(split, Question(Visibility.parse("strict")))
    model = PlanSpec.of(config, mean_gap(split.stream.t[: split.train_end]))
    assert model.walk_dim == config.features.walk_dim
    assert scorer.spec == model.without_states()


def test_the_floor_has_the_blocks_it_names_and_no_others() -> None:
    assert (
        FeatureConfig(
            two_hop=False, successor=False, edgebank_recency=False, activity=False, strength=False, walks=False
        )
        == FLOOR
    )
    assert only("pairs", "common_neighbors", "successor") == FLOOR.model_copy(update={"successor": True})
    assert FLOOR.model_copy(update={"successor": True}) == WITH_SUCCESSOR


def test_features_must_be_fitted_first() -> None:
    split = tied_split()
    with pytest.raises(RunError, match="fit"):
        score_queries(Features(), split.stream, every_row(split, "strict"))


@pytest.mark.parametrize("name", ROSTER)
def test_only_baselines_that_learn_depend_on_the_seed(name: str) -> None:
    split, visibility = tied_split(), Visibility.parse("strict")
    found = []
    for seed in (0, 1):
        scorer = baseline(name, seed=seed)
        scorer.fit(split, Question(visibility))
        found.append(score_queries(scorer, split.stream, every_row(split, "strict")))
    assert np.array_equal(*found) != ROSTER[name].learns


def test_the_documentation_lists_every_baseline() -> None:
    page = (Path(__file__).parents[2] / "docs/how-to/evaluation.md").read_text()
    for name, entry in ROSTER.items():
        assert f"| `{name}` | {entry.says} |" in page


@pytest.mark.parametrize("visibility", ["strict", "arrival", "batch:7"])
def test_source_recency_is_when_the_source_last_acted(visibility: str) -> None:
    split = tied_split()
    asked = every_row(split, visibility)
    found = score_queries(baseline("source-recency"), split.stream, asked)
    expected = replay(
        split.stream,
        asked,
        lambda past, u, v, t: max((s - t for a, s in zip(past.src, past.t, strict=True) if a == u), default=-np.inf),
    )
    assert found.tolist() == expected
    assert -np.inf in expected


def test_source_recency_stands_beside_models_where_sources_differ() -> None:
    assert set(compared(sources_differ=True)) - set(compared()) == {"source-recency"}
    assert Question(negatives="historical").sources_differ
    assert not Question(negatives="random").sources_differ
    assert not Question().sources_differ


def test_baselines_have_names() -> None:
    assert [baseline(name).name.partition(":")[0] for name in ROSTER] == list(ROSTER)
    assert baseline("edgebank", data="dgb:mooc").name == "edgebank:fixed_proportion"
    assert baseline("edgebank:repeat_interval", data="dgb:mooc").name == "edgebank:repeat_interval"
    assert best_edgebank_mode("table") == "unlimited"
    for wrong in ("edge", "recency:unlimited", "edgebank:sometimes"):
        with pytest.raises(ConfigError):
            baseline(wrong)
