import numpy as np
import pytest

from tsnn.data import catalog
from tsnn.errors import InputError


@pytest.fixture
def root(tmp_path, monkeypatch):
    monkeypatch.setenv("TSNN_DATA", str(tmp_path))
    folder = tmp_path / "dgb" / "uci"
    folder.mkdir(parents=True)
    rng = np.random.default_rng(0)
    lines = [f"{k},{rng.integers(1, 30)},{rng.integers(30, 50)},{k}.0,0,{k + 1}" for k in range(300)]
    (folder / "ml_uci.csv").write_text("\n".join([",u,i,ts,label,idx", *lines, ""]))
    wiki = tmp_path / "tgb" / "tgbl_wiki"
    wiki.mkdir(parents=True)
    (wiki / "tgbl-wiki_edgelist_v2.csv").write_text(
        "\n".join(["u,i,t,l", *(f"{k % 9},{k % 7},{k},0" for k in range(90)), ""])
    )
    return tmp_path


def test_addresses(root):
    assert catalog.load("dgb:uci").name == "dgb:uci"
    assert catalog.load(root / "dgb" / "uci").fingerprint() == catalog.load("dgb:uci").fingerprint()
    assert catalog.load("tgb:tgbl-wiki").num_nodes == 16
    assert catalog.load(str(root / "tgb" / "tgbl_wiki")).name == "tgb:tgbl-wiki"
    assert catalog.load("synthetic:roles:events=100").num_events == 100
    table = root / "log.csv"
    table.write_text("a,b,when\n1,2,3\n")
    assert catalog.load(table, src="a", dst="b", t="when").num_events == 1


def test_default_splits(root):
    dgb = catalog.default_split("dgb:uci")
    assert dgb.full.num_events == 300
    assert dgb.stream.num_events < 300
    assert catalog.default_split("tgb:tgbl-wiki").full is None
    synthetic = catalog.default_split(catalog.load("synthetic:roles:events=1000"))
    assert synthetic.train_end == pytest.approx(700, abs=3)


def test_tgb_negatives_by_name(root):
    split = catalog.default_split("tgb:tgbl-wiki")
    ptr, values = catalog.tgb_negatives(split).query("test")
    a, b = split.bounds("test")
    assert len(ptr) == b - a + 1
    assert np.diff(ptr).max() == 6
    assert np.isin(values, split.stream.dst).all()


def test_listing(root):
    entries = {entry.address: entry for entry in catalog.list_data()}
    assert entries["dgb:uci"].present
    assert entries["tgb:tgbl-wiki"].present
    assert not entries["dgb:reddit"].present
    assert entries["dgb:reddit"].num_events is None
    assert entries["synthetic:roles"].num_events == 8000


@pytest.mark.parametrize(
    ("address", "says"),
    [
        ("dgb:UCI", "known ones are uci"),
        ("dgb:reddit", r"put ml_reddit\.csv .*TSNN_DATA"),
        ("tgb:wiki", "known ones are tgbl-wiki"),
        ("tgb:tgbl-coin", r"put tgbl-coin_edgelist_v2\.csv"),
        ("synthetic:rings", "synthetic:roles"),
        ("hub:uci", "no known address"),
        ("nowhere.csv", "there is no file"),
    ],
)
def test_bad_addresses(root, address, says):
    with pytest.raises(InputError, match=says):
        catalog.load(address)


def test_folders_and_columns_that_do_not_fit(root):
    with pytest.raises(InputError, match="neither DGB nor TGB"):
        catalog.load(root)
    with pytest.raises(InputError, match="own columns"):
        catalog.load("dgb:uci", src="u")


def test_default_root_is_beside_the_project(tmp_path, monkeypatch):
    monkeypatch.delenv("TSNN_DATA", raising=False)
    inner = tmp_path / "project" / "docs"
    inner.mkdir(parents=True)
    (tmp_path / "project" / "pyproject.toml").write_text("")
    monkeypatch.chdir(inner)
    assert catalog.data_root() == tmp_path / "shared" / "data"


@pytest.mark.parametrize("address", ["dgb:uci", "dgb:enron", "tgb:tgbl-wiki"])
def test_listed_counts_are_the_loaded_ones(real, address):
    stream = real(address)
    entry = next(entry for entry in catalog.list_data() if entry.address == address)
    assert (entry.num_nodes, entry.num_events) == (stream.num_nodes, stream.num_events)
