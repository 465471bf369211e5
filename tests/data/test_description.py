"""Roles, names of relations and the kind of times travel with a stream, a Parquet file and a run."""

import pyarrow.parquet as pq
import pytest

from tsnn.data.description import Cleaning, Description, Roles
from tsnn.data.events import make_stream
from tsnn.data.table import read_table, write_table
from tsnn.errors import InputError

TEXT = """who,whom,at,kind,a,b,note
u1,u2,2024-01-01 10:00:00,pay,0.5,1,x
u2,u3,2024-01-01 11:00:00,buy,1.5,2,y
u1,u3,2024-01-02 09:30:00,pay,2.5,3,z
"""
NAMES = {"src": "who", "dst": "whom", "t": "at"}


@pytest.fixture
def csv(tmp_path):
    path = tmp_path / "log.csv"
    path.write_text(TEXT)
    return path


def test_a_description_is_read_as_it_was_written():
    for description in (
        Description(),
        Description(
            Roles("who", "whom", "at", ("a", "b"), "kind"),
            Cleaning(True, True, True, "none"),
            ("ä", "b"),
            True,
            "Europe/Berlin",
            ("x", "y"),
            "a.csv",
        ),
    ):
        assert Description.from_json(description.to_json()) == description


def test_a_written_table_is_read_without_names(csv, tmp_path):
    stream = read_table(csv, **NAMES, msg=["a"], edge_type="kind")
    assert stream.description == Description(
        Roles("who", "whom", "at", ("a",), "kind"), relations=("buy", "pay"), dates=True
    )
    path = tmp_path / "log.parquet"
    write_table(stream, path)
    again = read_table(path)
    assert again.fingerprint() == stream.fingerprint()
    assert again.description == Description(
        Roles(msg=("a",), edge_type="edge_type"), relations=("buy", "pay"), dates=True
    )
    assert pq.read_table(path)["edge_type"].to_pylist() == ["pay", "buy", "pay"]
    assert read_table(path, msg=()).msg is None


def test_names_given_come_before_those_of_a_run_and_these_before_the_files_own(csv, tmp_path):
    run = read_table(csv, **NAMES, msg=["a"], edge_type="kind")
    assert read_table(csv, like=run.description).fingerprint() == run.fingerprint()
    assert read_table(csv, like=run.description, msg=["b"]).msg.tolist() == [[1], [2], [3]]
    path = tmp_path / "log.parquet"
    write_table(run, path)
    assert read_table(path, like=run.description).fingerprint() == run.fingerprint()  # it has none of those columns
    plain = read_table(csv, **NAMES).description
    assert read_table(csv, like=plain).msg is None


def test_another_table_is_numbered_by_the_relations_of_the_run(csv):
    run = read_table(csv, **NAMES, edge_type="kind")
    csv.write_text(TEXT.replace("buy", "pay"))
    assert read_table(csv, like=run.description).edge_type.tolist() == [1, 1, 1]
    csv.write_text(TEXT.replace("buy", "bay"))
    with pytest.raises(InputError, match="relation 'bay' is unknown, the known ones are buy, pay; did you mean"):
        read_table(csv, like=run.description)


def test_a_missing_relation_is_never_the_first_one():
    for kinds in (["pay", "", "buy"], ["pay", None, "buy"], [1.0, float("nan"), 0.0]):
        with pytest.raises(InputError, match="row 1 is missing"):
            make_stream([1, 2, 3], [2, 3, 1], [0, 1, 2], edge_type=kinds)
    assert make_stream([1, 2], [2, 3], [0, 1], edge_type=[4, 0]).description.relations == ()


def test_columns_with_the_types_of_nodes_are_remembered(tmp_path):
    table, path = tmp_path / "visits.csv", tmp_path / "visits.parquet"
    table.write_text("who,what,of,t\nann,x,shop,1\nbob,y,school,2\nann,y,school,3\n")
    stream = read_table(table, src="who", dst="what", node_type=(None, "of"))
    assert read_table(table, like=stream.description).fingerprint() == stream.fingerprint()
    write_table(stream, path)
    assert read_table(path).fingerprint() == read_table(path, like=stream.description).fingerprint()
    assert read_table(path).fingerprint() == stream.fingerprint()
    assert read_table(path).description.types == ("school", "shop", "source")
