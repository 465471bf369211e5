"""Results as tables: other libraries' frames, and a notebook's HTML."""

from __future__ import annotations

import copy
import sys
from dataclasses import asdict, dataclass

import pytest

from tsnn.errors import ConfigError
from tsnn.tabular import Rows, html_table


@dataclass(frozen=True)
class Found:
    node: object
    score: float


@dataclass(frozen=True)
class Answer:
    found: Rows[Found]


def test_rows_are_a_list_and_a_frame_of_each_library():
    rows = Rows([Found("ann", 0.5), Found("bob", 0.25)])
    assert rows == [Found("ann", 0.5), Found("bob", 0.25)]
    told = {"node": ["ann", "bob"], "score": [0.5, 0.25]}
    assert rows.to_pandas().to_dict("list") == told
    assert rows.to_polars().to_dict(as_series=False) == told
    assert rows.to_arrow().to_pydict() == told
    assert asdict(Answer(rows)) == {"found": [{"node": "ann", "score": 0.5}, {"node": "bob", "score": 0.25}]}
    assert copy.deepcopy(rows).to_pandas().equals(rows.to_pandas())


def test_no_rows_have_their_columns():
    assert list(Rows(kind=Found).to_pandas().columns) == ["node", "score"]
    assert Rows(kind=Found).to_polars().shape == (0, 2)


def test_ids_of_two_kinds_are_texts_where_a_column_has_one_kind():
    rows = Rows([Found("ann", 0.5), Found(7, 0.25)])
    assert rows.to_arrow()["node"].to_pylist() == ["ann", "7"]
    assert rows.to_pandas()["node"].tolist() == ["ann", 7]


def test_an_absent_library_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "polars", None)
    with pytest.raises(
        ConfigError, match="to_polars needs polars; install it with pip install polars, or use to_arrow"
    ):
        Rows(kind=Found).to_polars()


def test_html_is_escaped_and_cut_and_has_no_color_of_its_own():
    page = html_table({"<b>": ["a & b"] * 30, "score": [0.123456] * 30}, most=5)
    assert page.count("a &amp; b") == 5
    assert "&lt;b&gt;" in page
    assert "0.1235" in page
    assert page.endswith("<p>25 more rows</p>")
    assert "background" not in page
