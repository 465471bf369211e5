import gzip
import os
import pickle
import resource

import numpy as np
import pytest

from tsnn.data.split import split_by_time
from tsnn.data.tgb import NAMES, edge_file, folder_name, load_tgb
from tsnn.data.tgb_negatives import (
    NegativeTable,
    TgbNegatives,
    convert_negatives,
    generate_negatives,
    read_pickle,
)
from tsnn.errors import InputError


def write(tmp_path, name, lines, **others):
    folder = tmp_path / folder_name(name)
    folder.mkdir(exist_ok=True)
    (folder / edge_file(name)).write_text("\n".join(["some,header", *lines, ""]))
    for suffix, text in others.items():
        (folder / f"{name}_{suffix}.csv").write_text(text)
    return folder


def test_names_and_files():
    assert len(NAMES) == 13
    assert edge_file("tgbl-wiki") == "tgbl-wiki_edgelist_v2.csv"
    assert edge_file("thgl-software") == "thgl-software_edgelist.csv"


def test_wiki_offsets_destinations_and_cuts_seconds(tmp_path):
    stream = load_tgb(write(tmp_path, "tgbl-wiki", ["0,0,0.0,0,0.5,-1", "2,1,3.9,0,1,2", "1,0,4.2,0,3,4"]))
    assert stream.name == "tgb:tgbl-wiki"
    assert stream.src.tolist() == [0, 2, 1]
    assert stream.dst.tolist() == [3, 4, 3]
    assert stream.t.tolist() == [0, 3, 4]
    assert stream.t.dtype == np.int64
    assert stream.num_nodes == 5
    assert stream.msg.tolist() == [[0.5, -1], [1, 2], [3, 4]]


@pytest.mark.parametrize("name", ["tgbl-uci", "tgbl-enron", "tgbl-lastfm", "tgbl-subreddit"])
def test_others_like_wiki_without_features(tmp_path, name):
    stream = load_tgb(write(tmp_path, name, ["0,0,0,0", "1,1,3,0"]))
    assert stream.dst.tolist() == [2, 3]
    assert stream.msg is None


@pytest.mark.parametrize("name", ["tgbl-review", "tgbl-coin"])
def test_strings_are_mapped_by_first_appearance(tmp_path, name):
    stream = load_tgb(write(tmp_path, name, ["1,zed,07,0", "2,7,zed,8", "2,amy,7,2.0"]))
    assert stream.ids.external == ["zed", "07", "7", "amy"]
    assert stream.src.tolist() == [0, 2, 3]
    assert stream.dst.tolist() == [1, 0, 2]
    assert stream.msg.ravel().tolist() == [0, 3, 1]


def test_comment_features(tmp_path):
    stream = load_tgb(write(tmp_path, "tgbl-comment", ["1,a,b,2500,-3", "2,b,c,5000,4"]))
    assert stream.msg.tolist() == [[0.5, 0.5, -3], [1, 1, 4]]


def test_flight_characters(tmp_path):
    stream = load_tgb(write(tmp_path, "tgbl-flight", ["10,A,B,ab1,", "11,B,A,12345678,TOOLONGCODE"]))
    assert stream.msg.shape == (2, 16)
    assert stream.msg[0].tolist() == [30, 31, 1, *[-1] * 5, *[-1] * 8]
    assert stream.msg[1].tolist() == [1, 2, 3, 4, 5, 6, 7, 8, *[-1] * 8]


def test_thgl_relations_and_types(tmp_path):
    types = "node_id,type\n9,2\n4,0\n7,1\n1000,3\n"
    stream = load_tgb(write(tmp_path, "thgl-software", ["1,9,4,5", "2,7,9,0"], nodetype=types))
    assert stream.ids.external == [9, 4, 7]
    assert stream.edge_type.tolist() == [5, 0]
    assert stream.node_type.tolist() == [2, 0, 1]
    assert stream.msg.tolist() == [[0], [0]]
    forum = load_tgb(write(tmp_path, "thgl-forum", ["1,9,4,1,100,-50", "2,7,9,0,0,0"], nodetype=types))
    assert forum.msg[0].tolist() == pytest.approx([0.01, -0.005])


def test_gzip(tmp_path):
    folder = write(tmp_path, "tgbl-wiki", ["0,0,0,0", "1,0,1,0"])
    plain = load_tgb(folder).fingerprint()
    path = folder / edge_file("tgbl-wiki")
    (folder / f"{path.name}.gz").write_bytes(gzip.compress(path.read_bytes()))
    path.unlink()
    assert load_tgb(folder).fingerprint() == plain


BROKEN = [
    ("tgbl-wiki", ["0,0"], "3 are needed"),
    ("tgbl-wiki", [], "no events|cannot be read"),
    ("tgbl-wiki", ["a,0,0,0"], "numbers only"),
    ("tgbl-wiki", ["0,0,nan,0"], "numbers only"),
    ("tgbl-wiki", ["0,0,-5,0"], "negative"),
    ("tgbl-wiki", ["0,0,1,0,1.0", "0,0,1,0"], "cannot be read as CSV"),
    ("tgbl-coin", ["0,a,b,-1"], "negative"),
    ("thgl-github", ["1,9,4,5"], r"thgl-github_nodetype\.csv"),
]


@pytest.mark.parametrize(("name", "lines", "says"), BROKEN)
def test_broken_edge_lists(tmp_path, name, lines, says):
    with pytest.raises(InputError, match=says):
        load_tgb(write(tmp_path, name, lines))


def test_missing_edge_list_and_unknown_name(tmp_path):
    with pytest.raises(InputError, match=r"tgbl-wiki_edgelist_v2\.csv"):
        load_tgb(tmp_path, "tgbl-wiki")
    with pytest.raises(InputError, match="known ones are"):
        load_tgb(tmp_path, "tgbl-unheard")


def test_a_node_without_type(tmp_path):
    with pytest.raises(InputError, match="node 4"):
        load_tgb(write(tmp_path, "thgl-myket", ["1,9,4,5"], nodetype="node_id,type\n9,2\n"))


def wiki(tmp_path, num=400, seed=0):
    rng = np.random.default_rng(seed)
    t = np.sort(rng.integers(150, size=num))
    lines = [f"{rng.integers(12)},{rng.integers(25)},{x},0" for x in t]
    return load_tgb(write(tmp_path, "tgbl-wiki", lines))


def literal_generator(stream, split, num):
    """TGB's generator as its page tells it."""
    state = np.random.RandomState(42)
    src, dst, t = stream.src, stream.dst, stream.t
    everything = np.arange(dst.min(), dst.max() + 1)
    train = np.arange(stream.num_events) < split.train_end
    made = {}
    for segment in ("val", "test"):
        a, b = split.bounds(segment)
        samples = {}
        for s, d, x in zip(src[a:b], dst[a:b], t[a:b], strict=True):
            true = dst[a:b][(src[a:b] == s) & (t[a:b] == x)]
            seen = np.unique(dst[train & (src == s)])
            pool = np.setdiff1d(seen, true)
            past = state.choice(pool, min(num // 2, len(pool)), replace=False) if len(seen) else seen
            rest = np.setdiff1d(everything, np.concatenate([true, seen]))
            if num - len(past) <= len(rest):
                rest = state.choice(rest, num - len(past), replace=False)
            samples[int(s), int(d), int(x)] = np.concatenate([past, rest])
        made[segment] = [samples[int(s), int(d), int(x)] for s, d, x in zip(src[a:b], dst[a:b], t[a:b], strict=True)]
    return made


@pytest.mark.parametrize("num", [12_000, 8])
def test_generated_negatives_are_the_literal_ones(tmp_path, num):
    stream = wiki(tmp_path)
    split = split_by_time(stream)
    made = generate_negatives(split, num)
    for segment, samples in literal_generator(stream, split, num).items():
        ptr, values = made[segment]
        assert values.dtype == np.int32
        assert np.diff(ptr).tolist() == [len(x) for x in samples]
        assert values.tolist() == np.concatenate(samples).tolist()


def test_real_wiki(real):
    stream = real("tgb:tgbl-wiki")
    split = split_by_time(stream)
    sizes = [b - a for a, b in map(split.bounds, ("train", "val", "test"))]
    assert (stream.num_nodes, stream.num_events) == (9_227, 157_474)
    assert sizes == [110_232, 23_621, 23_621]
    negatives = TgbNegatives(split)
    for segment in ("val", "test"):
        ptr, values = negatives.query(segment)
        widths, counts = np.unique(np.diff(ptr), return_counts=True)
        assert dict(zip(widths.tolist(), counts.tolist(), strict=True)) == {998: 2, 999: 23_619}
        a, b = split.bounds(segment)
        assert (values != np.repeat(stream.dst[a:b], np.diff(ptr))).all()
        assert values.min() == stream.dst.min()
        assert values.max() == stream.dst.max()


def stored_samples(split, segment, shift=0):
    a, b = split.bounds(segment)
    rows = zip(*(column[a:b].tolist() for column in (split.stream.src, split.stream.dst, split.stream.t)), strict=True)
    return {(s, d, t): np.arange(s % 3 + 1) + shift for s, d, t in rows}


@pytest.mark.parametrize("protocol", [2, 4, 5])
def test_stored_negatives_are_aligned_with_rows(tmp_path, protocol):
    stream = wiki(tmp_path)
    split = split_by_time(stream)
    folder = tmp_path / "tgbl_wiki"
    source = folder / "tgbl-wiki_val_ns_v2.pkl"
    source.write_bytes(pickle.dumps(stored_samples(split, "val"), protocol=protocol))
    ptr, values = TgbNegatives(split, folder).query("val")
    a, b = split.bounds("val")
    assert np.diff(ptr).tolist() == (stream.src[a:b] % 3 + 1).tolist()
    assert values[ptr[5] : ptr[6]].tolist() == list(range(stream.src[a + 5] % 3 + 1))
    convert_negatives(source, folder / "tgbl-wiki_val_ns_v2.npz")
    source.unlink()
    kept = TgbNegatives(split, folder).query("val")
    assert (kept[0] == ptr).all()
    assert (kept[1] == values).all()


def test_thgl_keys(tmp_path):
    types = "node_id,type\n" + "".join(f"{x},0\n" for x in range(10))
    lines = [f"{t},{t % 3},{5 + t % 4},{t % 2}" for t in range(40)]
    folder = write(tmp_path, "thgl-github", lines, nodetype=types)
    split = split_by_time(load_tgb(folder))
    a, b = split.bounds("test")
    stream = split.stream
    keys = zip(stream.t[a:b].tolist(), stream.src[a:b].tolist(), stream.edge_type[a:b].tolist(), strict=True)
    (folder / "thgl-github_test_ns.pkl").write_bytes(pickle.dumps({key: [1, 2] for key in keys}))
    ptr, values = TgbNegatives(split, folder).query("test")
    assert len(ptr) == b - a + 1
    assert values.reshape(-1, 2).tolist() == [[1, 2]] * (b - a)
    with pytest.raises(InputError, match=r"put thgl-github_val_ns\.pkl"):
        TgbNegatives(split, folder).query("val")


def test_missing_and_foreign_samples(tmp_path):
    split = split_by_time(wiki(tmp_path))
    folder = tmp_path / "tgbl_wiki"
    samples = stored_samples(split, "test")
    samples.pop(next(iter(samples)))
    (folder / "tgbl-wiki_test_ns_v2.pkl").write_bytes(pickle.dumps(samples))
    with pytest.raises(InputError, match="no negative sample is stored"):
        TgbNegatives(split, folder).query("test")
    (folder / "tgbl-wiki_test_ns_v2.pkl").write_bytes(pickle.dumps(stored_samples(split, "test", shift=1000)))
    with pytest.raises(InputError, match="nodes the set lacks"):
        TgbNegatives(split, folder).query("test")
    with pytest.raises(InputError, match="val and test"):
        TgbNegatives(split, folder).query("train")


class Evil:
    def __reduce__(self):
        return os.mkdir, ("made-by-a-pickle",)


class Sneaky:
    def __reduce__(self):
        return eval, ("1 + 1",)


@pytest.mark.parametrize("content", [Evil(), Sneaky(), {(1, 2, 3): Evil()}])
def test_a_pickle_runs_nothing(tmp_path, monkeypatch, content):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ns.pkl").write_bytes(pickle.dumps(content))
    with pytest.raises(InputError, match="not a pickle of negative samples"):
        convert_negatives(tmp_path / "ns.pkl", tmp_path / "ns.npz")
    assert [path.name for path in tmp_path.iterdir()] == ["ns.pkl"]


class Call:
    """Asks for a call of something that an unpickler of arrays cannot do without."""

    def __init__(self, what, *arguments, state=None):
        self.asked = (what, arguments) if state is None else (what, arguments, state)

    def __reduce__(self):
        return self.asked


ATTACKS = {
    "numpy writes through an address": Call(np.ndarray, (10**6,), np.dtype("u1"), None, 0, (1,)),
    "an array of gigabytes": Call(np._core.multiarray._reconstruct, np.ndarray, (2**33,), b"b"),
    "bytes of gigabytes": Call(bytearray, 2**33),
    "a range": Call(list, Call(range, 2**31)),
    "a wide number": Call(np._core.multiarray.scalar, Call(np.dtype, "V4000000000"), b"x"),
    "an array of objects": np.array([None, {}], dtype=object),
    "an array that is longer than its bytes": Call(
        np._core.multiarray._reconstruct,
        np.ndarray,
        (0,),
        b"b",
        state=(1, (10**9,), np.dtype("i8"), False, b"12345678"),
    ),
}


@pytest.mark.parametrize("attack", ATTACKS)
def test_a_pickle_gets_no_memory_that_it_does_not_fill(tmp_path, attack):
    path = tmp_path / "ns.pkl"
    path.write_bytes(pickle.dumps({(1, 2, 3): ATTACKS[attack]}))
    with pytest.raises(InputError, match="fetch it again"):
        NegativeTable.from_samples(read_pickle(path), path)


def test_a_pickle_that_asks_for_a_huge_table_of_its_own_gets_none(tmp_path):
    path = tmp_path / "ns.pkl"
    path.write_bytes(
        pickle.PROTO + b"\x02" + pickle.EMPTY_DICT + pickle.LONG_BINPUT + b"\xff\xff\xff\x1f" + pickle.STOP
    )
    before = resource.getrlimit(resource.RLIMIT_AS)
    with pytest.raises(InputError, match="not a pickle of negative samples"):
        read_pickle(path)
    assert resource.getrlimit(resource.RLIMIT_AS) == before


def test_a_torn_archive_of_samples_is_told(tmp_path):
    path = tmp_path / "ns.npz"
    path.write_bytes(b"PK\x03\x04" + b"garbage" * 20)
    with pytest.raises(InputError, match="convert the pickle again"):
        NegativeTable.load(path)


def test_malformed_pickles(tmp_path):
    path = tmp_path / "ns.pkl"
    for content in (b"", b"garbage", pickle.dumps({(1, 2, 3): [4]})[:-3]):
        path.write_bytes(content)
        with pytest.raises(InputError, match="not a pickle"):
            read_pickle(path)
    path.write_bytes(pickle.dumps([1, 2]))
    with pytest.raises(InputError, match="holds a list"):
        read_pickle(path)
    for strange in ({(1, 2): [3]}, {"key": [3]}, {(1, 2, 3): ["a"]}, {5: [3]}):
        with pytest.raises(InputError, match="three integers"):
            NegativeTable.from_samples(strange, path)
    with pytest.raises(InputError, match="there is no file"):
        read_pickle(tmp_path / "absent.pkl")
    with pytest.raises(InputError, match="convert the pickle again"):
        NegativeTable.load(path)


def test_other_streams_have_no_samples():
    from tsnn.data.synthetic import RolesSpec, make_roles

    split = split_by_time(make_roles(RolesSpec(events=200, nodes=50)))
    with pytest.raises(InputError, match="no negative samples"):
        TgbNegatives(split).query("test")
