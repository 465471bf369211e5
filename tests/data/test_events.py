import time
from datetime import UTC, datetime
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tsnn.data.events import EventStream, NodeIds, make_stream, map_ids, stable_key, stable_keys, write_whole
from tsnn.errors import InputError


def small(**changes):
    columns = {"src": [5, 3, 5], "dst": [3, 9, 9], "t": [0, 1, 1]} | changes
    return make_stream(**columns)


def test_integer_ids_are_mapped_by_value():
    stream = small()
    assert stream.ids.external == [3, 5, 9]
    assert stream.src.tolist() == [1, 0, 1]
    assert stream.dst.tolist() == [0, 2, 2]
    assert stream.t.dtype == np.int64


def test_other_ids_are_mapped_by_appearance_source_first():
    ids, src, dst = map_ids(["b", "a", "b"], ["a", "c", "d"])
    assert ids.external == ["b", "a", "c", "d"]
    assert (src.tolist(), dst.tolist()) == ([0, 1, 0], [1, 2, 3])


def test_mixed_and_tuple_ids_keep_their_values():
    ids, src, dst = map_ids([1, "1", (1, 2)], ["1", (1, 2), 1])
    assert ids.external == [1, "1", (1, 2)]
    assert (src.tolist(), dst.tolist()) == ([0, 1, 2], [1, 2, 0])


def test_given_ids_take_dense_indices():
    stream = make_stream([0, 1], [1, 2], [0.0, 1.0], ids=NodeIds(["x", "y", "z"]))
    assert stream.num_nodes == 3
    assert stream.ids.index("z") == 2
    with pytest.raises(InputError, match=r"0\.\.2"):
        make_stream([0, 1], [1, 3], [0.0, 1.0], ids=NodeIds(["x", "y", "z"]))


@given(st.integers(-(2**63), 2**63 - 1))
def test_vectorized_key_is_the_single_key(value):
    assert int(stable_keys(np.array([value], dtype=np.int64))[0]) == stable_key(value)


def test_key_depends_on_the_id_alone():
    assert stable_key(np.int32(7)) == stable_key(7) == stable_key(7.0)
    assert stable_key(True) == stable_key(1)
    assert stable_key("7") != stable_key(7)
    mixed = NodeIds([7, "a", 2**70])
    assert int(mixed.keys[0]) == int(NodeIds(np.array([3, 7])).keys[1]) == stable_key(7)
    assert int(mixed.keys[2]) == stable_key(2**70)


def test_a_million_keys_are_quick_and_distinct():
    ids = NodeIds(range(1_000_000))
    start = time.perf_counter()
    keys = ids.keys
    assert time.perf_counter() - start < 0.5
    assert len(np.unique(keys)) == 1_000_000


def test_indices_of_many_ids():
    ids = NodeIds([30, 10, 20])
    assert ids.indices(np.array([10, 20, 30, 10])).tolist() == [1, 2, 0, 1]
    assert ids.indices([20]).tolist() == [2]
    assert NodeIds(["a", "b"]).indices(["b", "a"]).tolist() == [1, 0]
    with pytest.raises(InputError, match="node 11 does not occur"):
        ids.indices(np.array([10, 11]))
    with pytest.raises(InputError, match="does not occur"):
        ids.index("x")
    assert 30 in ids
    assert 31 not in ids


def test_repeated_ids_are_refused():
    with pytest.raises(InputError, match="repeat"):
        NodeIds([1, 2, 1])


@pytest.mark.parametrize("external", [[3, -1, 2**40], ["b", "a"], [1, "1", "x"]])
def test_ids_survive_parquet(tmp_path, external):
    ids = NodeIds(external)
    ids.save(tmp_path / "ids.parquet")
    back = NodeIds.load(tmp_path / "ids.parquet")
    assert back.external == ids.external
    assert (back.keys == ids.keys).all()


@pytest.mark.parametrize("strange", [(1, 2), 2**64, Fraction(1, 3), 0.5])
def test_ids_that_cannot_be_stored_leave_no_file(tmp_path, strange):
    with pytest.raises(InputError, match="integers or strings"):
        NodeIds([1, strange]).save(tmp_path / "ids.parquet")
    assert not list(tmp_path.iterdir())


def test_saving_is_whole_or_nothing(tmp_path):
    target = tmp_path / "file"

    def fail(partial):
        partial.write_text("half")
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        write_whole(target, fail)
    assert not list(tmp_path.iterdir())
    with pytest.raises(InputError, match="there is no folder"):
        NodeIds([1]).save(tmp_path / "absent" / "ids.parquet")


def test_loading_ids_from_nothing_or_garbage(tmp_path):
    with pytest.raises(InputError, match="there is no node table"):
        NodeIds.load(tmp_path / "ids.parquet")
    (tmp_path / "ids.parquet").write_text("no table")
    with pytest.raises(InputError, match="not a table of node ids"):
        NodeIds.load(tmp_path / "ids.parquet")


def test_columns_are_read_only_and_the_input_is_not_touched():
    t = np.array([0.0, 1.0, 2.0])
    stream = small(t=t, msg=np.ones((3, 2)))
    for column in (stream.src, stream.dst, stream.t, stream.msg, stream.take(np.array([0, 2])).src):
        with pytest.raises(ValueError, match="read-only"):
            column[0] = 1
    t[0] = 5.0
    assert stream.t[0] == 0.0


def test_take_keeps_nodes_and_columns():
    stream = small(msg=[[1.0], [2.0], [3.0]], edge_type=[0, 2, 1], node_type=[0, 1, 1])
    part = stream.take(slice(1, 3))
    assert part.num_nodes == 3
    assert part.msg.tolist() == [[2.0], [3.0]]
    assert part.edge_type.tolist() == [2, 1]
    assert (stream.num_relations, stream.num_types, stream.msg_dim) == (3, 2, 1)


def test_fingerprint_sees_every_column():
    base = small(msg=[[1.0], [2.0], [3.0]], edge_type=[0, 1, 0], node_type=[0, 0, 1])
    same = small(msg=[[1.0], [2.0], [3.0]], edge_type=[0, 1, 0], node_type=[0, 0, 1])
    assert base.fingerprint() == same.fingerprint()
    assert len(base.fingerprint()) == 16
    others = [
        small(src=[5, 3, 6], msg=[[1.0], [2.0], [3.0]], edge_type=[0, 1, 0], node_type=[0, 0, 1, 1]),
        small(t=[0, 1, 2], msg=[[1.0], [2.0], [3.0]], edge_type=[0, 1, 0], node_type=[0, 0, 1]),
        small(t=[0.0, 1.0, 1.0], msg=[[1.0], [2.0], [3.0]], edge_type=[0, 1, 0], node_type=[0, 0, 1]),
        small(msg=[[1.0], [2.0], [4.0]], edge_type=[0, 1, 0], node_type=[0, 0, 1]),
        small(msg=[[1.0], [2.0], [3.0]], edge_type=[0, 1, 1], node_type=[0, 0, 1]),
        small(msg=[[1.0], [2.0], [3.0]], edge_type=[0, 1, 0], node_type=[0, 1, 1]),
        small(src=[50, 30, 50], dst=[30, 90, 90], msg=[[1.0], [2.0], [3.0]], edge_type=[0, 1, 0], node_type=[0, 0, 1]),
        small(),
    ]
    assert len({x.fingerprint() for x in [base, *others]}) == 1 + len(others)


def test_sorting_is_asked_for_and_stable():
    columns = {"src": [1, 2, 3, 4], "dst": [9, 9, 9, 9], "t": [2, 1, 2, 1], "msg": [1.0, 2.0, 3.0, 4.0]}
    with pytest.raises(InputError, match="--sort, or pass sort=True"):
        make_stream(**columns)
    stream = make_stream(**columns, sort=True)
    assert stream.t.tolist() == [1, 1, 2, 2]
    assert stream.msg[:, 0].tolist() == [2.0, 4.0, 1.0, 3.0]


def test_millisecond_epochs_stay_exact():
    t = np.array([1_700_000_000_001, 1_700_000_000_002, 2**53 + 1], dtype=np.int64)
    assert small(t=t).t.tolist() == t.tolist()


def test_dates_become_microseconds():
    t = np.array(["1970-01-01", "1970-01-02", "1970-01-02"], dtype="datetime64[D]")
    assert small(t=t).t.tolist() == [0, 86_400_000_000, 86_400_000_000]


def test_relations_by_name_are_numbered_in_order():
    assert small(edge_type=["likes", "buys", "likes"]).edge_type.tolist() == [1, 0, 1]


def test_node_types_by_mapping():
    assert small(node_type={3: 1, 5: 0, 9: 1, 77: 4}).node_type.tolist() == [1, 0, 1]


BAD = [
    ({"t": [0, 1]}, "differ in length"),
    ({"t": [0.0, np.nan, 1.0]}, "row 1 is nan"),
    ({"t": [0.0, np.inf, 1.0]}, "finite"),
    ({"t": [-1, 0, 1]}, "negative"),
    ({"t": [0, None, 1]}, "row 1 is missing"),
    ({"t": ["0", "b", "c"]}, "row 1 is 'b', neither a number nor an ISO date"),
    ({"t": ["10", "2020-01-01", "12"]}, "are numbers and others dates"),
    ({"t": np.array([0j, 1j, 2j])}, "convert them"),
    ({"t": np.zeros(3, np.float32)}, "pass float64 or int64"),
    ({"t": [datetime(2020, 1, 1), datetime(2020, 1, 1), datetime(2020, 1, 1, tzinfo=UTC)]}, "row 2 .* a time zone"),
    ({"t": ["2020-01-01", "2020-01-01 10:00", "2020-01-01T10:00Z"]}, "have a zone and others have none"),
    ({"t": np.array(["1969-12-31", "1970-01-01", "2020-01-02"], dtype="datetime64[D]")}, "row 0 is before 1970"),
    ({"t": np.array(["2020-01-01", "NaT", "2020-01-02"], dtype="datetime64[D]")}, "missing"),
    ({"t": np.array([0, 1, 2**63], dtype=np.uint64)}, "64 bits"),
    ({"t": np.zeros((3, 1))}, "dimensions"),
    ({"src": [], "dst": [], "t": []}, "no events"),
    ({"src": [1, None, 2]}, "missing"),
    ({"src": [1.0, np.nan, 2.0]}, "missing"),
    ({"src": [[1], [2], [3]]}, "hashable"),
    ({"msg": [[1.0], [1.0, 2.0], [3.0]]}, "ragged"),
    ({"msg": [["a"], ["b"], ["c"]]}, "not numeric"),
    ({"msg": [[1.0], [np.nan], [3.0]]}, "row 1 is not finite"),
    ({"msg": [[1.0], [2.0]]}, "3 rows"),
    ({"edge_type": [0, -1, 0]}, "negative"),
    ({"edge_type": [0, 1]}, "differ in length"),
    ({"node_type": [0, 1]}, "3 nodes"),
    ({"node_type": {3: 0, 5: 1}}, "node 9"),
]


@pytest.mark.parametrize(("changes", "says"), BAD)
def test_bad_columns_get_one_sentence(changes, says):
    with pytest.raises(InputError, match=says) as caught:
        small(**changes)
    message = str(caught.value)
    assert message.endswith(".")
    assert "\n" not in message


def test_direct_construction_is_read_only_too():
    stream = EventStream(np.array([0]), np.array([1]), np.array([0.0]), NodeIds([0, 1]))
    assert not stream.src.flags.writeable
