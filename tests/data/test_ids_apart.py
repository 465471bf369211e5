"""Ids that a number would take for one another stay apart, and ids that cannot be kept are refused before training."""

from __future__ import annotations

from datetime import date

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tsnn.asof.facts import as_of
from tsnn.data.events import make_stream
from tsnn.data.split import split_by_time
from tsnn.data.table import from_pandas, from_polars, read_table
from tsnn.errors import InputError
from tsnn.training.train import train

LARGE = [2**63 + 10 + i for i in range(9)]


def table(tmp_path, rows, header="src,dst,t"):
    path = tmp_path / "events.csv"
    path.write_text("\n".join([header, *rows]))
    return path


def test_unsigned_ids_of_a_csv_file_stay_apart(tmp_path):
    stream = read_table(table(tmp_path, [f"{x},{i % 2},{i}" for i, x in enumerate(LARGE)]))
    assert stream.ids.external == [*[str(LARGE[0]), "0", str(LARGE[1]), "1"], *map(str, LARGE[2:])]
    stream.ids.check_storable()


def test_leading_zeros_keep_ids_apart_on_both_sides(tmp_path):
    stream = read_table(table(tmp_path, ["007,1,1", "07,7,2", "7,007,3"]))
    assert stream.ids.external == ["007", "1", "07", "7"]
    assert stream.src.tolist() == [0, 2, 3]


def test_plain_integers_stay_integers(tmp_path):
    assert read_table(table(tmp_path, ["10,-3,1", "0,7,2"])).ids.integers is not None
    assert read_table(table(tmp_path, ["10.0,3,1", "2.0,7,2"])).ids.external == [2, 3, 7, 10]
    mixed = table(tmp_path, [f"{2**53 + 1},1,1", f"{2**53},1,2"])
    assert read_table(mixed).ids.external == [1, 2**53, 2**53 + 1]


def test_dates_and_truths_are_names_as_they_stand(tmp_path):
    stream = read_table(table(tmp_path, ["2024-01-01,true,1", "2024-01-02,false,2"]))
    assert stream.ids.external == ["2024-01-01", "true", "2024-01-02", "false"]


@pytest.mark.parametrize("first", [LARGE[0], None])
def test_unsigned_columns_of_parquet_and_frames(tmp_path, first):
    columns = {"src": pa.array([first, *LARGE[1:]], pa.uint64()), "dst": pa.array(range(9)), "t": pa.array(range(9))}
    pq.write_table(pa.table(columns), tmp_path / "events.parquet")
    expected = {str(x) for x in LARGE if x != LARGE[0] or first} | {str(i) for i in range(9) if i or first}
    assert set(read_table(tmp_path / "events.parquet", drop_missing=True).ids.external) == expected
    polars = pl.DataFrame(
        {name: column.to_pylist() for name, column in columns.items()}, schema_overrides={"src": pl.UInt64}
    )
    assert set(from_polars(polars, drop_missing=True).ids.external) == expected
    if first:
        frame = pd.DataFrame({"src": np.array(LARGE, np.uint64), "dst": range(9), "t": range(9)})
        assert set(from_pandas(frame).ids.external) == expected


def test_floats_that_stand_for_several_integers_are_refused():
    with pytest.raises(InputError, match="too large to tell from its neighbors"):
        make_stream(np.array(LARGE, np.float64), np.arange(9), np.arange(9))


def test_types_and_questions_find_ids_that_are_text(tmp_path):
    kinds = tmp_path / "kinds.csv"
    kinds.write_text("node,kind\n007,a\n07,b\n7,c\n1,d\n")
    stream = read_table(table(tmp_path, ["007,1,1", "07,7,2", "7,007,3"]), node_type=kinds)
    assert [stream.description.types[kind] for kind in stream.node_type] == ["a", "d", "b", "c"]
    events = read_table(table(tmp_path, [f"00{i % 3},{i % 2},{i}" for i in range(40)]))
    asked = tmp_path / "asked.csv"
    asked.write_text("src,dst,t\n001,1,30\n1,001,30\n01,0,30\n")
    assert as_of(split_by_time(events), None, asked).card["strangers"] == 1  # 01


@pytest.mark.parametrize("name", [1.5, date(2024, 1, 1), b"x", (1, 2), 2**64])
def test_ids_that_no_run_can_keep_are_refused_before_training(tmp_path, name):
    stream = make_stream([name, *range(30)], [*range(31)], [*range(31)])
    with pytest.raises(InputError, match="cannot be stored"):
        train(stream, tmp_path / "run")
    assert not (tmp_path / "run").exists()
