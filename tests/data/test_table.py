import gzip
from types import SimpleNamespace

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from tsnn.data.table import from_arrays, from_pandas, from_polars, from_temporal_data, read_table
from tsnn.errors import InputError

TEXT = """who,whom,at,kind,a,b,note
u1,u2,1700000000001,likes,0.5,1,x
u2,u3,1700000000002,buys,1.5,2,y
u1,u3,1700000000002,likes,2.5,3,z
"""
NAMES = {"src": "who", "dst": "whom", "t": "at"}


@pytest.fixture
def csv(tmp_path):
    path = tmp_path / "log.csv"
    path.write_text(TEXT)
    return path


def check(stream):
    assert stream.ids.external == ["u1", "u2", "u3"]
    assert stream.src.tolist() == [0, 1, 0]
    assert stream.dst.tolist() == [1, 2, 2]
    assert stream.t.dtype == np.int64
    assert stream.t.tolist() == [1700000000001, 1700000000002, 1700000000002]


def test_csv(csv):
    stream = read_table(csv, **NAMES, edge_type="kind")
    check(stream)
    assert stream.msg is None
    assert stream.edge_type.tolist() == [1, 0, 1]
    assert stream.name == "table:log"


def test_gzip_and_parquet_give_the_same_stream(csv, tmp_path):
    zipped = tmp_path / "log.csv.gz"
    zipped.write_bytes(gzip.compress(TEXT.encode()))
    parquet = tmp_path / "log.parquet"
    pq.write_table(pa.csv.read_csv(str(csv)), parquet)
    prints = {read_table(path, **NAMES, msg=["a", "b"]).fingerprint() for path in (csv, zipped, parquet)}
    assert len(prints) == 1


def test_feature_columns_are_taken_when_asked(csv):
    assert read_table(csv, **NAMES, msg="auto").msg.tolist() == [[0.5, 1], [1.5, 2], [2.5, 3]]
    assert read_table(csv, **NAMES, msg=["b"]).msg.tolist() == [[1], [2], [3]]
    assert read_table(csv, **NAMES, msg="a").msg.tolist() == [[0.5], [1.5], [2.5]]


def test_node_types_from_a_table(csv, tmp_path):
    types = tmp_path / "types.csv"
    types.write_text("node,type\nu1,0\nu2,1\nu3,1\nu9,1\n")
    assert read_table(csv, **NAMES, node_type=types).node_type.tolist() == [0, 1, 1]
    types.write_text("node\nu1\n")
    with pytest.raises(InputError, match="fewer than two columns"):
        read_table(csv, **NAMES, node_type=types)


def test_frames(csv):
    for stream in (
        from_pandas(pd.read_csv(csv), **NAMES, msg=["a", "b"], edge_type="kind"),
        from_polars(pl.read_csv(csv), **NAMES, msg=["a", "b"], edge_type="kind"),
    ):
        check(stream)
        assert stream.msg.tolist() == [[0.5, 1], [1.5, 2], [2.5, 3]]
        assert stream.edge_type.tolist() == [1, 0, 1]


def test_list_columns_are_features():
    frame = pl.DataFrame({"src": [1, 2], "dst": [2, 1], "t": [0, 1], "vec": [[1.0, 2.0], [3.0, 4.0]]})
    assert from_polars(frame, msg="vec").msg.tolist() == [[1.0, 2.0], [3.0, 4.0]]
    ragged = pl.DataFrame({"src": [1, 2], "dst": [2, 1], "t": [0, 1], "vec": [[1.0, 2.0], [3.0]]})
    with pytest.raises(InputError, match="ragged"):
        from_polars(ragged, msg="vec")


def test_temporal_data():
    data = SimpleNamespace(
        src=torch.tensor([4, 7]),
        dst=torch.tensor([7, 9]),
        t=torch.tensor([2**60, 2**60 + 1]),
        msg=torch.tensor([[1.0], [2.0]], requires_grad=True),
        edge_type=torch.tensor([1, 0]),
    )
    stream = from_temporal_data(data)
    assert stream.ids.external == [4, 7, 9]
    assert stream.t.tolist() == [2**60, 2**60 + 1]
    assert stream.msg.tolist() == [[1.0], [2.0]]
    assert stream.num_relations == 2
    with pytest.raises(InputError, match="no 't'"):
        from_temporal_data(SimpleNamespace(src=data.src, dst=data.dst))


def test_arrays_of_many_kinds_agree():
    ways = [
        ([1, 2], [2, 3], [0.0, 1.0]),
        (np.array([1, 2], np.int32), np.array([2, 3], np.uint8), np.array([0.0, 1.0])),
        (torch.tensor([1, 2]), torch.tensor([2, 3]), torch.tensor([0.0, 1.0], dtype=torch.float64)),
        (pd.Series([1, 2]), pl.Series([2, 3]), pa.array([0.0, 1.0])),
        (np.array([1.0, 2.0]), [2, 3], [0.0, 1.0]),
    ]
    assert len({from_arrays(*way).fingerprint() for way in ways}) == 1


def test_missing_things(csv, tmp_path):
    with pytest.raises(InputError, match="there is no column 'src'; name one of the columns that are there: who"):
        read_table(csv)
    with pytest.raises(InputError, match="no column 'speed'"):
        read_table(csv, **NAMES, msg=["speed"])
    with pytest.raises(InputError, match="there is no file"):
        read_table(tmp_path / "absent.csv")
    (tmp_path / "log.xls").write_text("")
    with pytest.raises(InputError, match="no known kind"):
        read_table(tmp_path / "log.xls")


BROKEN = [
    ("src,dst,t\n1,2,0\n\n1,2\n", "line 4 of .* has 2 columns, the first line 3, so it cannot be read as CSV"),
    ("", "is empty"),
    ("src,dst,t\n", "no events"),
    ("src,dst,t\n1,2,0\n1,2,\n", "the time of line 3 of .*log.csv is missing"),
    ("src,dst,t\n1,2,0.5\n1,2,nan\n", "line 3 .* is missing"),
    ("src,dst,t\n1,2,0\n,2,1\n,3,1\n", r"source of line 3 of .* \(and of 1 more\) is missing; fill in column 'src'"),
    ("src,dst,t\n1,2,-4\n", "line 2 .* negative"),
    ("src,dst,t\n1,2,5\n1,2,4\n", "backward at line 3 .* sort=True"),
    ("src,dst,t\n1,2,soon\n", "line 2 .* is 'soon', neither a number nor an ISO date"),
    ("src,dst,src\n1,2,3\n", "two columns named 'src'"),
]


@pytest.mark.parametrize(("text", "says"), BROKEN)
def test_broken_tables(tmp_path, text, says):
    path = tmp_path / "log.csv"
    path.write_text(text)
    with pytest.raises(InputError, match=says) as caught:
        read_table(path)
    assert "\n" not in str(caught.value)


def test_broken_containers(tmp_path):
    (tmp_path / "a.parquet").write_text("not parquet")
    with pytest.raises(InputError, match="Parquet"):
        read_table(tmp_path / "a.parquet")
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress(TEXT.encode())[:-20])
    with pytest.raises(InputError, match="CSV"):
        read_table(tmp_path / "a.csv.gz", **NAMES)


TABLES = {"EmailEu": (986, 332_334, 24_929, 207_880), "BitcoinOTC": (5_881, 35_592, 35_592, 35_592)}


@pytest.mark.parametrize("name", TABLES)
def test_real_tables(data_root, name):
    path = data_root / "tables" / name / "edges.csv.gz"
    if not path.is_file():
        pytest.skip(f"real data is absent: {path}")
    stream = read_table(path)
    pairs = len(np.unique(stream.src * stream.num_nodes + stream.dst))
    assert (stream.num_nodes, stream.num_events, pairs, len(np.unique(stream.t))) == TABLES[name]


TYPED = "who,is,what,of,t\nann,adult,x,shop,1\nbob,child,y,school,2\nann,adult,bob,child,3\n"


def kinds_of(stream):
    return dict(zip(stream.ids.external, stream.node_type.tolist(), strict=True))


def test_columns_may_hold_the_types_of_both_ends(tmp_path):
    table = tmp_path / "visits.csv"
    table.write_text(TYPED)
    stream = read_table(table, src="who", dst="what", node_type=("is", "of"))
    assert kinds_of(stream) == {"ann": 0, "bob": 1, "x": 3, "y": 2}
    assert from_pandas(pd.read_csv(table), src="who", dst="what", node_type=("is", "of")).num_types == 4


def test_a_side_without_a_column_is_a_type_of_its_own(tmp_path):
    table = tmp_path / "visits.csv"
    table.write_text(TYPED.replace("bob,child,3", "y,school,3"))
    assert kinds_of(read_table(table, src="who", dst="what", node_type=(None, "of"))) == {
        "ann": 2, "bob": 2, "x": 1, "y": 0,
    }  # fmt: skip
    table.write_text(TYPED)
    with pytest.raises(InputError, match="node 'bob' is of type 'source' and of type 'child'"):
        read_table(table, src="who", dst="what", node_type=(None, "of"))


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ("ann,child,x,shop,4", "node 'ann' is of type 'adult' and of type 'child'; give every node one type"),
        ("ann,,x,shop,4", "type of the source of line 5 of .* is missing"),
    ],
)
def test_types_that_contradict_or_lack_are_refused(tmp_path, row, words):
    table = tmp_path / "visits.csv"
    table.write_text(f"{TYPED}{row}\n")
    with pytest.raises(InputError, match=words):
        read_table(table, src="who", dst="what", node_type=("is", "of"))
