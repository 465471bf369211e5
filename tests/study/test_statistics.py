"""The tests of significance: against the ranks the paper prints, scipy, and Demsar's own table."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from tsnn.errors import InputError
from tsnn.study.figures import save_svg
from tsnn.study.published import published
from tsnn.study.statistics import (
    Scores,
    add_statistics,
    average_ranks,
    cliques,
    collect,
    critical_difference,
    critical_difference_figure,
    friedman,
    wilcoxon,
)


@pytest.mark.parametrize("metric", ["ap", "auc"])
@pytest.mark.parametrize("method", ["TSNN", "TPNet", "DyGFormer", "PINT", "EdgeBank"])
def test_average_ranks_are_the_papers(metric, method):
    found = average_ranks(collect("dgb", metric))
    assert found[method] == pytest.approx(published("dgb")["average_rank"][metric][method], abs=0.0051)


def test_the_papers_claim_against_tpnet_holds():
    """Its text: TSNN is better than TPNet with p < 0.01 on both, by a Wilcoxon test over 13 sets."""
    for metric in ("ap", "auc"):
        scores = collect("dgb", metric)
        found = wilcoxon(scores, "TSNN", "TPNet")
        assert found["p"] == stats.wilcoxon(scores.column("TSNN"), scores.column("TPNet")).pvalue
        assert found["p"] < 0.01
        assert friedman(scores)["p"] < 1e-10


def test_friedman_is_scipys():
    scores = collect("dgb", "ap")
    expected = stats.friedmanchisquare(*scores.values.T)
    assert friedman(scores)["statistic"] == expected.statistic
    assert friedman(scores)["p"] == expected.pvalue


@pytest.mark.parametrize(("methods", "q"), [(2, 1.960), (5, 2.728), (10, 3.164)])
def test_the_critical_difference_is_demsars(methods, q):
    """q at 0.05 from table 5(a) of Demsar (2006)."""
    expected = q * np.sqrt(methods * (methods + 1) / (6 * 13))
    assert critical_difference(methods, 13) == pytest.approx(expected, abs=2e-3)


def test_ours_joins_on_the_sets_it_covers():
    scores = collect("dgb", "ap", {"dgb:uci": 99.0, "dgb:enron": 50.0, "synthetic:roles": 1.0})
    assert sorted(scores.data) == ["dgb:enron", "dgb:uci"]
    ranks = average_ranks(scores)
    assert ranks["ours"] == (1 + 14) / 2
    assert "TSNN" in ranks


def test_a_method_with_a_missing_figure_is_left_out():
    assert "TPNet" in collect("tgb", "mrr", {"tgb:tgbl-wiki": 80.0}).methods
    assert "TPNet" not in collect("tgb", "mrr").methods


def test_equal_columns_do_not_differ():
    scores = Scores(["a", "b", "c"], ["x", "y"], np.array([[1.0, 1.0], [2.0, 2.0], [3.0, 3.0]]))
    assert wilcoxon(scores, "x", "y")["p"] == 1.0
    assert average_ranks(scores) == {"x": 1.5, "y": 1.5}


def test_cliques_join_what_does_not_differ():
    assert cliques({"a": 1.0, "b": 1.5, "c": 2.6, "d": 4.0}, 1.2) == [(1.0, 1.5), (1.5, 2.6)]
    assert cliques({"a": 1.0, "b": 3.0}, 1.0) == []


def test_bad_questions_are_refused():
    with pytest.raises(InputError, match="no method 'nobody'"):
        wilcoxon(collect("dgb", "ap"), "nobody", "TPNet")
    with pytest.raises(InputError, match="2 data sets"):
        friedman(collect("dgb", "ap", {"dgb:uci": 97.0}))
    with pytest.raises(InputError, match="published"):
        collect("dgb", "ap", {"synthetic:roles": 1.0})


def test_the_figure_names_every_method_and_is_the_same_every_time(tmp_path):
    ranks = average_ranks(collect("dgb", "ap"))
    for name in ("a.svg", "b.svg"):
        save_svg(critical_difference_figure(ranks, 5.0, "heading"), tmp_path / name)
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()
    figure = critical_difference_figure(ranks, 5.0, "heading")
    texts = " ".join(text.get_text() for text in figure.axes[0].texts)
    assert all(f"{name} {rank:.2f}" in texts for name, rank in ranks.items())


def test_statistics_of_a_result(tmp_path):
    rows = [
        {"data": f"dgb:{name}", "visibility": "strict", "setting": "transductive"}
        | {"ours": {"ap": {"mean": value}}, "baselines": {}}
        for name, value in (("uci", 97.5), ("enron", 95.0), ("mooc", 99.5))
    ]
    result = {"table": "dgb", "rows": rows}
    add_statistics(result, tmp_path)
    found = result["statistics"]["strict"]["ap"]
    assert found["average_ranks"]["ours"] == 1.0
    assert found["wilcoxon"]["TPNet"]["median_difference"] > 0
    assert (tmp_path / found["figure"]).is_file()
    assert result["statistics"]["paper"]["ap"]["average_ranks"]["TPNet"] == pytest.approx(1.96, abs=0.005)
