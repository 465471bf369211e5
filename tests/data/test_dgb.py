import gzip

import numpy as np
import pytest

from tsnn.data.dgb import load_dgb
from tsnn.errors import InputError

TEXT = ",u,i,ts,label,idx\n0,1,4,0.0,0.0,1\n1,2,4,1.5,0,2\n2,1,5,1.5,0,3\n"


@pytest.fixture
def folder(tmp_path):
    path = tmp_path / "toy"
    path.mkdir()
    (path / "ml_toy.csv").write_text(TEXT)
    return path


def test_ids_are_the_files(folder):
    stream = load_dgb(folder)
    assert stream.name == "dgb:toy"
    assert stream.ids.external == [1, 2, 3, 4, 5]  # node 3 has no event
    assert stream.src.tolist() == [0, 1, 0]
    assert stream.dst.tolist() == [3, 3, 4]
    assert stream.t.dtype == np.float64
    assert stream.msg is None


def test_gzip_and_features_by_idx(folder):
    (folder / "ml_toy.csv").unlink()
    (folder / "ml_toy.csv.gz").write_bytes(gzip.compress(TEXT.replace("0,2\n", "0,3\n").encode()))
    np.save(folder / "ml_toy.npy", np.array([[0.0, 0.0], [1, 10], [2, 20], [3, 30]]))
    stream = load_dgb(folder)
    assert stream.msg.tolist() == [[1, 10], [3, 30], [3, 30]]
    assert stream.msg.dtype == np.float32


BROKEN = [
    ("u,i,ts\n1,2,0\n", "no column 'idx'"),
    (TEXT.replace("0,1,4,", "0,0,4,"), "below 1"),
    (TEXT.replace("0,1,4,", "0,1.5,4,"), "whole numbers"),
    (TEXT.replace("0,1,4,", "0,x,4,"), "whole numbers"),
    (TEXT.replace("1.5,0,3", "1.0,0,3"), "backward"),
    (TEXT.replace("1.5,0,3", "nan,0,3"), "finite"),
    (TEXT.replace("0.0,0.0,1", "-2,0.0,1"), "negative"),
    (TEXT.replace("0.0,0.0,1", "now,0.0,1"), "numbers only"),
    (",u,i,ts,label,idx\n", "whole numbers|no events"),
]


@pytest.mark.parametrize(("text", "says"), BROKEN)
def test_broken_files(folder, text, says):
    (folder / "ml_toy.csv").write_text(text)
    with pytest.raises(InputError, match=says):
        load_dgb(folder)


def test_broken_features(folder):
    np.save(folder / "ml_toy.npy", np.zeros((2, 4)))
    with pytest.raises(InputError, match="need row 3"):
        load_dgb(folder)
    (folder / "ml_toy.npy").write_text("nothing")
    with pytest.raises(InputError, match="not a numpy array"):
        load_dgb(folder)
    np.save(folder / "ml_toy.npy", np.array([{"a": 1}], dtype=object))
    with pytest.raises(InputError, match="not a numpy array"):
        load_dgb(folder)


def test_empty_folder(tmp_path):
    with pytest.raises(InputError, match=r"put ml_.*\.csv"):
        load_dgb(tmp_path)


README = {  # nodes, events, pairs, times, features
    "dgb:uci": (1_899, 59_835, 20_296, 58_911, 0),
    "dgb:USLegis": (225, 60_396, 26_423, 12, 1),
    "dgb:CanParl": (734, 74_478, 51_331, 14, 1),
    "dgb:enron": (184, 125_235, 3_125, 22_632, 0),
    "dgb:mooc": (7_144, 411_749, 178_443, 345_600, 4),
    "dgb:wikipedia": (9_227, 157_474, 18_257, 152_757, 0),
}


@pytest.mark.parametrize("address", README)
def test_real_counts(real, address):
    stream = real(address)
    pairs = len(np.unique(stream.src * stream.num_nodes + stream.dst))
    counted = (stream.num_nodes, stream.num_events, pairs, len(np.unique(stream.t)), stream.msg_dim)
    assert counted == README[address]
    assert stream.ids.external[0] == 1
