from dataclasses import replace

import numpy as np
import pytest

from tsnn.data.question import Question
from tsnn.data.split import split_by_time
from tsnn.errors import InputError
from tsnn.evaluation import catalog
from tsnn.evaluation.baselines import Popularity
from tsnn.evaluation.evaluate import evaluate, validation_metric, validation_questions
from tsnn.evaluation.replay import figures
from tsnn.evaluation.stream import StreamQuestions
from tsnn.evaluation.suite import DataEntry, Suite, data_root
from tsnn.evaluation.tgb import stored_negatives
from tsnn.types import Visibility


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
    ptr, values = stored_negatives(split).query("test")
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
        ("dgb:UCI", "did you mean 'uci'"),
        ("dgb:reddit", r"put ml_reddit\.csv .*TSNN_DATA"),
        ("tgb:wiki", "did you mean 'tgbl-wiki'"),
        ("tgb:zzz", "known ones are tgbl-wiki"),
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
    with pytest.raises(InputError, match="a folder of no suite"):
        catalog.load(root)
    with pytest.raises(InputError, match="own columns"):
        catalog.load("dgb:uci", src="u")


def test_default_root_is_beside_the_project(tmp_path, monkeypatch):
    monkeypatch.delenv("TSNN_DATA", raising=False)
    inner = tmp_path / "project" / "docs"
    inner.mkdir(parents=True)
    (tmp_path / "project" / "pyproject.toml").write_text("")
    monkeypatch.chdir(inner)
    assert data_root() == tmp_path / "shared" / "data"


def test_a_suite_is_its_record_and_a_line_of_the_roster(root, monkeypatch, tmp_path):
    """Nothing else has to know it: it is listed, loaded by name and from its folder, split, asked and chosen by."""
    stream = replace(catalog.load("synthetic:roles:events=300,nodes=50"), name="toy:blocks")

    class Ranked(StreamQuestions):
        protocol, metric = "toy", "mrr"

    toy = Suite(
        "toy",
        "toy:NAME",
        load=lambda name: stream if name == "blocks" else None,
        split=lambda stream: split_by_time(stream, 0.1, 0.1),
        questions=Ranked,
        entries=lambda: [DataEntry("toy:blocks", "generated", True)],
        read_folder=lambda folder: stream if folder.name == "blocks" else None,
    )
    monkeypatch.setitem(catalog.ROSTER, "toy", toy)
    (tmp_path / "blocks").mkdir()
    assert catalog.load("toy:blocks") is stream is catalog.load(tmp_path / "blocks")
    assert "toy:blocks" in [entry.address for entry in catalog.list_data()]
    split = catalog.default_split("toy:blocks")
    assert split.stream.num_events - split.val_end == pytest.approx(30, abs=3)
    result = evaluate(Popularity(), split, Visibility("strict"))
    assert result.card.protocol == "toy"
    chosen_by = validation_metric(split, Question())(Popularity())
    questions = validation_questions(split, Question())
    assert chosen_by == questions.choice(figures(Popularity(), stream, questions).metrics["val"]) < 100


@pytest.mark.parametrize("address", ["dgb:uci", "dgb:enron", "tgb:tgbl-wiki"])
def test_listed_counts_are_the_loaded_ones(need_data, address):
    need_data(address.replace(":", "/").replace("-", "_"))
    stream = catalog.load(address)
    entry = next(entry for entry in catalog.list_data() if entry.address == address)
    assert (entry.num_nodes, entry.num_events) == (stream.num_nodes, stream.num_events)
