"""Figures in every format."""

from __future__ import annotations

import csv
import io

import pytest

from tsnn.evaluation.formats import COLUMNS, Figure, Grid, csv_text, latex, markdown, summary, tex, tidy

A, B, TIED = Figure(97.061, 0.021), Figure(96.5), Figure(97.059)


def test_a_figure_has_two_digits_in_per_cent_and_four_as_a_fraction():
    assert str(A) == "97.06 ± 0.02"
    assert str(B) == "96.50"
    assert str(Figure(0.23712, 0.01)) == "0.2371 ± 0.0100"
    assert str(Figure(97.4, of="TPNet")) == "TPNet 97.40"


def test_a_summary_has_a_deviation_from_two_values_on():
    assert summary([1.0, 3.0]) == {"mean": 2.0, "std": pytest.approx(2**0.5), "values": [1.0, 3.0]}
    assert summary([1.0])["std"] is None


def test_markdown_says_what_is_unknown():
    grid = Grid("", ["data", "ours", "theirs"], [["uci", (A, None), ()]])
    assert markdown(grid) == ["| data | ours | theirs |", "| --- | --- | --- |", "| uci | 97.06 ± 0.02 / n/a | n/a |"]


def test_the_best_as_printed_is_bold_along_a_row_or_down_a_column():
    rows = [["x", (A,), (B,), "+0.56"], ["y", (B,), (TIED,), ""]]
    assert Grid("", ["data", "a", "b", "c"], rows).best() == {(0, 1), (1, 2)}
    assert Grid("", ["data", "a", "b", "c"], rows, down=True).best() == {(0, 1), (1, 2)}
    assert Grid("", ["data", "a", "b"], [["x", (A,), (TIED,)]]).best() == {(0, 1), (0, 2)}, "equal as printed"
    assert Grid("", ["data", "a"], [["x", (A,)]]).best() == set(), "alone it is not the best of anything"
    text = latex([Grid("", ["data", "a", "b"], [["x", (A,), (B,)]])])
    assert r"x & \textbf{97.06 $\pm$ 0.02} & 96.50 \\" in text


def test_any_text_survives_latex():
    assert tex("50 % of a_b & #1 {~^\\} -0.5 no-state tgbl-2") == (
        r"50 \% of a\_b \& \#1 \{\textasciitilde{}\textasciicircum{}\textbackslash{}\} $-$0.5 no-state tgbl-2"
    )


def test_tidy_is_a_row_a_figure_with_what_it_holds_under():
    card = {
        "protocol": "dgb",
        "data": {"name": "dgb:uci", "fingerprint": "f00"},
        "visibility": "strict",
        "question": {"candidates": "all"},
        "negatives": {"strategy": "random", "seeds": {"val": 0, "test": 2}},
        "positives": {"test": 9},
    }
    result = {"scorer": "tsnn", "card": card, "metrics": {"val": {"ap": 96.0}, "test": {"ap": 97.0, "mrr": 0.5}}}
    rows = list(csv.DictReader(io.StringIO(csv_text(tidy(result, run="first", seed=3)))))
    assert [(row["set"], row["metric"], float(row["value"])) for row in rows] == [
        ("val", "ap", 96.0),
        ("test", "ap", 97.0),
        ("test", "mrr", 0.5),
    ]
    assert tuple(rows[0]) == COLUMNS
    held = {"run": "first", "seed": "3", "visibility": "strict", "candidates": "all", "negatives": "random"}
    assert rows[1].items() >= {**held, "negatives_seed": "2", "events": "9", "data": "dgb:uci"}.items()
    assert rows[0]["events"] == ""
