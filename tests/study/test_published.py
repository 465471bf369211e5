"""The transcribed tables: the paper's own numbers, and nothing lost on the way."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from scripts.published import PEERS, TARGET, transcribe, transcribe_peers, written
from tsnn.study.published import (
    LATER,
    NEW_NODES,
    best_peer,
    figures,
    paper_figure,
    peers_alike,
    published,
    table_of,
)
from tsnn.study.tables import DGB, TGB

PAPER = next((Path(__file__).resolve().parents[3] / "shared" / "paper").glob("*.txt"), None)


@pytest.mark.parametrize(
    ("table", "metric", "data", "column", "mean", "std"),
    [
        ("dgb", "ap", "dgb:uci", "TSNN", 97.06, 0.02),
        ("dgb", "auc", "dgb:CanParl", "DyGFormer", 97.76, 0.41),
        ("dgb", "ap", "dgb:SocialEvo", "EdgeBank", 74.95, 0.0),
        ("dgb", "auc", "dgb:Contacts", "JODIE", 96.66, 0.89),
        ("dgb-inductive", "ap", "dgb:mooc", "TSNN", 99.43, 0.02),
        ("dgb-inductive", "auc", "dgb:UNvote", "NAT", 68.55, 0.90),
        ("tgb", "mrr", "tgb:tgbl-wiki", "TSNN", 82.82, 0.05),
        ("tgb", "mrr", "tgb:tgbl-review", "GraphMixer", 52.10, 1.50),
        ("ablation", "ap", "dgb:USLegis", "no-residual", 67.11, 0.49),
        ("ablation", "ap", "dgb:uci", "no-diffusion", 94.42, 0.10),
    ],
)
def test_a_cell_is_the_papers(table, metric, data, column, mean, std):
    assert paper_figure(table, metric, data, column) == {"mean": mean, "std": std}


def test_every_table_is_whole():
    for table, methods in (("dgb", 13), ("dgb-inductive", 12)):
        for metric in ("ap", "auc"):
            assert set(figures(table, metric)) == set(DGB)
            assert {len(row) for row in figures(table, metric).values()} == {methods}
            assert len(published(table)["average_rank"][metric]) == methods
    assert [len(row) for row in figures("tgb", "mrr").values()] == [14, 10, 6]
    assert set(figures("tgb", "mrr")) == set(TGB)
    assert {len(row) for row in figures("ablation", "ap").values()} == {7}
    assert published("dgb")["label"] == "tab:dyglib"


def test_a_cell_that_the_paper_leaves_empty_is_nothing():
    assert paper_figure("tgb", "mrr", "tgb:thgl-software", "TPNet") is None
    assert paper_figure("tgb", "mrr", "tgb:tgbl-wiki", "EdgeBank") == {"mean": 49.5}
    assert best_peer("dgb", "ap", "synthetic:roles") is None


def test_the_best_peer_is_never_the_papers_own():
    assert best_peer("dgb", "ap", "dgb:CanParl") == {"method": "DyGFormer", "mean": 97.36, "std": 0.45}
    assert best_peer("dgb", "auc", "dgb:uci") == {"method": "TPNet", "mean": 96.79, "std": 0.05}


def test_the_later_tables_are_what_the_parser_reads(need_data):
    folder = need_data("published")
    assert PEERS.read_text() == written(transcribe_peers(json.loads((folder / "peers-2026-10.json").read_text())))


def test_every_later_table_is_whole():
    for table in ("dgb-corrected", "dgb-historical", "dgb-inductive-negatives"):
        for ending, metrics in (("", {"ap", "auc"}), ("-new-nodes", {"ap"})):
            if (table, ending) == ("dgb-inductive-negatives", "-new-nodes"):
                metrics = set()
            assert set(published(table + ending)["figures"]) == metrics
            for metric in metrics:
                assert {len(row) for row in figures(table + ending, metric).values()} == {13}
                assert len(figures(table + ending, metric)) == 6
            assert published(table + ending)["label"] == LATER
    assert best_peer("dgb-historical", "ap", "dgb:uci") == {"method": "SFS+activity", "mean": 96.0}
    assert table_of("dgb-historical", NEW_NODES) == "dgb-historical-new-nodes"
    assert table_of("dgb-inductive", "inductive") == "dgb-inductive"


def test_under_strict_peers_stand_with_their_leaks_closed():
    parliament = peers_alike("dgb", ("ap", "auc"), "dgb:CanParl", "strict")
    assert parliament["TPNet"] == {"ap": {"mean": 80.06}, "auc": {"mean": 86.54}}
    assert parliament["DyGFormer"]["ap"] == {"mean": 61.99}
    assert parliament["TGAT"]["ap"] == {"mean": 70.73, "std": 0.72}, "not measured again"
    congress = peers_alike("dgb", ("ap",), "dgb:USLegis", "strict")
    assert (congress["TPNet"]["ap"]["mean"], congress["DyGFormer"]["ap"]["mean"]) == (68.73, 71.11)
    assert "TPNet" not in peers_alike("dgb", ("ap",), "dgb:mooc", "strict"), "there it sees rows of earlier batches"
    assert peers_alike("dgb", ("ap",), "dgb:CanParl", "batch:200")["NAT"]["ap"]["mean"] == 79.72
    new = peers_alike("dgb-inductive", ("ap", "auc"), "dgb:CanParl", "strict")["DyGFormer"]
    assert new == {"ap": figures("dgb-corrected-new-nodes", "ap")["dgb:CanParl"]["DyGFormer"]}
    assert "auc" not in new, "the AUC with the leak is no stand-in for one that nobody measured again"


def test_peers_that_see_the_same():
    strict = peers_alike("dgb", ("ap",), "dgb:USLegis", "strict")
    assert max(strict, key=lambda name: strict[name]["ap"]["mean"]) == "DyGFormer"
    assert set(peers_alike("dgb", ("ap",), "dgb:uci", "batch:200")) == {"JODIE", "DyRep", "TGN", "NAT", "PINT"}
    assert peers_alike("dgb", ("ap",), "dgb:uci", "arrival") == {}


@pytest.mark.skipif(PAPER is None, reason="needs the paper's LaTeX, absent here")
def test_the_stored_tables_are_what_the_parser_reads():
    assert json.loads(TARGET.read_text()) == transcribe(PAPER.read_text())
