"""Tables as people have them: separators, currencies, empty cells, repeats; and what is said of them."""

import pandas as pd
import polars as pl
import pytest

from tsnn.data.csv_file import separator_of
from tsnn.data.description import Cleaning
from tsnn.data.numerals import read_numerals
from tsnn.data.table import from_pandas, from_polars, read_table, write_table
from tsnn.errors import InputError

MESSY = """who;what;when;kind;price;note
ann;x;2024-03-01 10:00;buy;1.234,50 EUR;first
bob;y;2024-03-01 09:00;look;2,50 EUR;
ann;x;2024-03-01 10:00;buy;1.234,50 EUR;first again

cid;x;2024-03-02;;3,00 EUR;
;x;2024-03-02 08:00;buy;3,00 EUR;nobody
cid;y;2024-03-02 09:00;buy;NA;
"""
NAMES = {"src": "who", "dst": "what", "t": "when", "msg": ["price"], "edge_type": "kind"}
CLEAN = {"sort": True, "drop_missing": True, "dedupe": True, "missing_relation": "none"}


@pytest.fixture
def messy(tmp_path):
    path = tmp_path / "shop.csv"
    path.write_text(MESSY)
    return path


def test_a_messy_table_is_cleaned_as_asked_for(messy):
    stream = read_table(messy, **NAMES, **CLEAN)
    names = stream.ids.external
    assert [(names[u], names[v]) for u, v in zip(stream.src, stream.dst, strict=True)] == [
        ("bob", "y"), ("ann", "x"), ("cid", "x"),
    ]  # fmt: skip
    assert [stream.description.show_time(t.item()) for t in stream.t] == [
        "2024-03-01T09:00:00Z", "2024-03-01T10:00:00Z", "2024-03-02T00:00:00Z",
    ]  # fmt: skip
    assert stream.msg.tolist() == [[2.5], [1234.5], [3.0]]
    assert [stream.description.relation_name(kind) for kind in stream.edge_type] == ["look", "buy", "none"]


def test_the_preview_says_how_every_column_was_understood(messy):
    preview = read_table(messy, **NAMES, **CLEAN).preview
    assert preview.headline() == f"{messy}: 6 rows, columns separated by semicolons"
    assert [(view.column, view.part, view.understood) for view in preview.columns] == [
        ("who", "source", "3 nodes, by text"),
        ("what", "destination", "2 nodes, by text"),
        ("when", "time", "dates, 2024-03-01T09:00:00Z to 2024-03-02T00:00:00Z"),
        ("kind", "relation", "3 kinds: buy, look, none"),
        ("price", "feature", "numbers, 2.5 to 1234.5 EUR"),
        ("note", "ignored", ""),
    ]
    assert [view.first for view in preview.columns][3:] == ["buy", "1.234,50 EUR", "first"]
    assert preview.cleaned.sentences() == [
        "2 rows left out for an empty cell (who in 1, price in 1)",
        "1 row given the kind named for events without a relation",
        "1 row put in order of time",
        "1 row left out as repeats of an earlier row",
    ]


def test_a_clean_copy_of_it_is_read_without_words(messy, tmp_path):
    first, path = read_table(messy, **NAMES, **CLEAN), tmp_path / "clean.parquet"
    write_table(first, path)
    again = read_table(path)
    for stream in (first, again):  # which number their nodes as they appear in the one and in the other
        assert [stream.ids.external[node] for node in stream.src] == ["bob", "ann", "cid"]
        assert (stream.t.tolist(), stream.msg.tolist()) == (first.t.tolist(), first.msg.tolist())
        assert [stream.description.relation_name(kind) for kind in stream.edge_type] == ["look", "buy", "none"]
    assert again.description.cleaning == Cleaning(missing_relation="none")


def test_a_run_cleans_the_table_again_as_it_did(messy):
    first = read_table(messy, **NAMES, **CLEAN)
    assert read_table(messy, like=first.description).fingerprint() == first.fingerprint()


@pytest.mark.parametrize(
    ("left_out", "words"),
    [
        ("drop_missing", "the source of line 7 of .*shop.csv is missing"),
        ("missing_relation", "relation of line 6 .*, or name the kind they are of with --missing-relation NAME"),
        ("sort", "backward at line 3"),
    ],
)
def test_what_was_not_asked_for_is_refused_by_line(messy, left_out, words):
    cleaning = {word: value for word, value in CLEAN.items() if word != left_out}
    if left_out == "missing_relation":
        cleaning["drop_missing"] = False
        messy.write_text(MESSY.replace("\n;x;2024-03-02 08:00;buy;3,00 EUR;nobody\ncid;y;2024-03-02 09:00;buy;NA;", ""))
    with pytest.raises(InputError, match=words):
        read_table(messy, **NAMES, **cleaning)


def test_frames_are_cleaned_as_files_are(messy):
    frame = pd.read_csv(messy, sep=";")
    expected = read_table(messy, **NAMES, **CLEAN).fingerprint()
    assert from_pandas(frame, **NAMES, **CLEAN).fingerprint() == expected
    assert from_polars(pl.from_pandas(frame), **NAMES, **CLEAN).fingerprint() == expected
    with pytest.raises(InputError, match="the relation of row 3 is missing"):
        from_pandas(frame.drop(index=[4, 5]), **NAMES, sort=True)


def test_numbers_beside_empty_cells_stay_whole(tmp_path):
    path = tmp_path / "log.csv"
    path.write_text("src,dst,t,kind\n7,2,1700000000000000001,1\n,2,1700000000000000002,0\n2,7,1700000000000000003,\n")
    stream = read_table(path, edge_type="kind", drop_missing=True, missing_relation="none")
    assert stream.ids.external == [2, 7]
    assert stream.t.tolist() == [1700000000000000001, 1700000000000000003]
    assert stream.description.relations == ("1", "none")
    frame = pd.read_csv(path)
    assert from_pandas(frame, edge_type="kind", drop_missing=True, missing_relation="none").description.relations == (
        "1", "none",
    )  # fmt: skip


def test_a_column_that_is_not_read_may_have_holes(tmp_path):
    path = tmp_path / "log.csv"
    path.write_text("src,dst,t,age\n1,2,0,30\n2,1,1,\n")
    assert read_table(path).num_events == 2


def test_another_encoding_is_named(tmp_path):
    path = tmp_path / "log.csv"
    path.write_bytes("src,dst,t,note\nann,käse,1,brötchen\n".encode("latin-1"))
    with pytest.raises(InputError, match="column 'dst' is not UTF-8 text"):
        read_table(path)
    assert read_table(path, dst="src").num_events == 1, "nobody reads the others"
    path.write_bytes("src,dst,t,größe\nann,bob,1,2\n".encode("latin-1"))
    with pytest.raises(InputError, match=r"names of the columns of .* are not UTF-8"):
        read_table(path)


def test_a_table_of_dates_is_no_answer_to_a_run_of_numbers(messy, tmp_path):
    path = tmp_path / "numbers.csv"
    path.write_text("who,what,when\n1,2,0\n2,1,1\n")
    run = read_table(path, src="who", dst="what", t="when").description
    with pytest.raises(InputError, match="the times of table:shop are dates, but those of the run are plain numbers"):
        read_table(messy, like=run, sort=True, drop_missing=True)


def test_a_kind_for_missing_relations_needs_relations(messy):
    with pytest.raises(InputError, match="no column has relations; name --edge-type too"):
        read_table(messy, src="who", dst="what", t="when", **CLEAN)


@pytest.mark.parametrize(
    ("text", "separator"),
    [
        ("src,dst,t\na,b,1\n", ","),
        ("src;dst;t\na;b;1,5\nc;d;2,5\n", ";"),
        ("src\tdst\tt\na, x\tb\t1\n", "\t"),
        ("src|dst|t\na;1|b|2\n", "|"),
        ('src,dst,t\n"a;b;c;d",b,1\n', ","),
        ("src,dst,t\na,b\n", ","),
        ("src\na\n", ","),
        ("", ","),
    ],
)
def test_the_separator_is_recognized(tmp_path, text, separator):
    path = tmp_path / "log.txt"
    path.write_text(text)
    assert separator_of(path) == separator


NUMERALS = [
    (["$1,234.50", "-$3", "7"], [1234.5, -3, 7], "$"),
    (["1.234,50 EUR", "2,5 EUR"], [1234.5, 2.5], "EUR"),
    (["€ 1'234.5", "€0.50"], [1234.5, 0.5], "€"),
    (["12 500", "1 000 000"], [12500, 1000000], ""),
    (["1,234,567"], [1234567], ""),
    (["1,50", "1,234"], [1.5, 1.234], ""),
    (["US$ 1.50"], [1.5], "US$"),
]


@pytest.mark.parametrize(("texts", "values", "currency"), NUMERALS)
def test_numbers_in_text_are_read_where_they_have_one_meaning(texts, values, currency):
    found, told = read_numerals(texts, "price", str)
    assert found.tolist() == values
    assert told == currency


DOUBTFUL = [
    (["$5", "$1,234"], "column 'price' holds '\\$1,234' in 1, which may be 1234 or 1.234"),
    (["1,234.5", "1.234,5"], "writes numbers in two ways, as '1,234.5' and as '1.234,5'"),
    (["$5", "5 EUR"], r"several currencies \(\$, EUR\)"),
    (["5", "five"], "holds 'five' in 1, which is no number"),
    (["5%"], "no number"),
    (["$5 EUR"], "no number"),
    (["1,2,3"], "no number"),
    (["--5"], "no number"),
]


@pytest.mark.parametrize(("texts", "words"), DOUBTFUL)
def test_numbers_of_two_meanings_are_refused_by_name(texts, words):
    with pytest.raises(InputError, match=words):
        read_numerals(texts, "price", str)
