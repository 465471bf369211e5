"""What a notebook calls: frames, folders, names and words go in; runs, figures and tables come out."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pytest

import tsnn
from tsnn.data.question import Question
from tsnn.errors import TsnnError
from tsnn.evaluation.baselines import Popularity
from tsnn.online.predictor import Predictor
from tsnn.progress import watched
from tsnn.training.run import Run

HEAD = {"train.epochs": 0, "train.warmup": 1, "model.stalk_dim": 8}  # no more than a score head
COLUMNS = {"src": "who", "dst": "what", "t": "when", "msg": ["price"], "edge_type": "kind"}


def shop() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    return pd.DataFrame(
        {
            "who": [f"user{i}" for i in rng.integers(0, 20, 240)],
            "what": [f"item{i}" for i in rng.integers(0, 9, 240)],
            "when": pd.date_range("2024-03-01", periods=240, freq="h"),
            "kind": rng.choice(["look", "buy"], 240),
            "price": rng.normal(size=240),
        }
    )


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Run:
    folder = tmp_path_factory.mktemp("api") / "run"
    return tsnn.train(shop(), folder, HEAD, compare=False, progress=False, **COLUMNS)


@pytest.fixture(scope="module")
def predictor(run) -> Predictor:
    return Predictor.load(run)


# Data


def test_every_form_of_the_same_events_is_one_stream(tmp_path):
    shop().to_parquet(tmp_path / "shop.parquet")
    forms = [shop(), pl.from_pandas(shop()), tmp_path / "shop.parquet", str(tmp_path / "shop.parquet")]
    streams = [tsnn.load(form, **COLUMNS) for form in forms]
    assert len({stream.fingerprint() for stream in streams}) == 1
    assert tsnn.load(streams[0]) is streams[0]
    assert tsnn.default_split(shop(), **COLUMNS).train_end == 168
    both = pd.DataFrame({"src": [2, 1, 3], "dst": [1, 2, 1], "t": [1, 2, 3]})
    assert tsnn.load(both, undirected=True).undirected


def test_a_run_reads_a_frame_as_its_own_was_read(run):
    """Columns by their parts and relations by name: no word of it is said again."""
    only_looks = shop().query("kind == 'look'")
    assert set(tsnn.load(only_looks, like=run.description).edge_type) == {1}
    assert set(tsnn.load(only_looks, **COLUMNS).edge_type) == {0}
    assert tsnn.evaluate(run, shop()).metrics == run.metrics["metrics"]


# Train


def test_a_run_without_a_place_gets_a_fresh_folder(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    made = [tsnn.train("synthetic:roles:events=400", config=HEAD, compare=False, progress=quiet) for quiet in (1, 0)]
    assert [str(one.folder) for one in made] == [
        "runs/synthetic-roles-events-400-1",
        "runs/synthetic-roles-events-400-2",
    ]
    assert capsys.readouterr().err == "the run goes to runs/synthetic-roles-events-400-1\n"


def test_settings_are_a_config_a_mapping_or_a_file(tmp_path):
    (tmp_path / "mine.toml").write_text("[train]\nepochs = 3\n")
    told = tsnn.Config.build(overrides={"train.epochs": 3})
    forms = (told, {"train.epochs": 3}, {"train": {"epochs": 3}}, tmp_path / "mine.toml", str(tmp_path / "mine.toml"))
    assert [tsnn.Config.of(form) for form in forms] == [told] * 5
    assert tsnn.Config.of(None) == tsnn.Config()


# Evaluate


def test_a_run_its_folder_and_its_address_are_judged_alike(run):
    split = tsnn.default_split(shop(), **COLUMNS)
    strict = tsnn.Visibility.parse("strict")
    asked = [
        tsnn.evaluate(run, shop()),
        tsnn.evaluate(run.folder, pl.from_pandas(shop()), "strict"),
        tsnn.evaluate(str(run.folder), split, strict),
        tsnn.evaluate(tsnn.ModelScorer(run.model, split.stream), split, Question("strict")),
    ]
    assert [result.metrics for result in asked] == [run.metrics["metrics"]] * 4


def test_a_baseline_is_named_or_handed_over():
    named = tsnn.evaluate("popularity", shop(), "batch:10", sets="test", **COLUMNS)
    split = tsnn.default_split(shop(), **COLUMNS)
    own = tsnn.evaluate(Popularity(), split, tsnn.Visibility("batch", 10), sets=("test",))
    assert named.metrics == own.metrics
    assert list(named.metrics) == ["test"]
    assert named.card.visibility == "batch:10"
    everybody = tsnn.evaluate("popularity", shop(), candidates="all", **COLUMNS)
    assert everybody.card.question["candidates"] == "all"
    whole = tsnn.evaluate(
        "popularity", shop(), Question("arrival", candidates="all"), candidates="destinations", **COLUMNS
    )
    assert (whole.card.visibility, whole.card.question["candidates"]) == ("arrival", "destinations")


def test_relations_that_are_numbered_otherwise_are_refused(run):
    strange = shop().replace({"kind": {"look": "yield"}})  # buy, yield: other names for the numbers 0 and 1
    stream = tsnn.load(strange, **COLUMNS)
    with pytest.raises(tsnn.InputError, match=r"numbers its relations otherwise than the run.*like=run.description"):
        tsnn.evaluate(run, stream)


# Progress


def test_a_function_hears_how_far_work_is(run):
    heard: list[tuple[int, int, str]] = []
    tsnn.evaluate(run, shop(), progress=lambda done, total, text="": heard.append((done, total, text)))
    assert heard[-1][0] == heard[-1][1]
    assert heard[-1][2] == "evaluating tsnn"


@pytest.mark.parametrize(
    ("terminal", "progress", "drawn"), [("1", True, True), ("1", False, False), ("0", True, False)]
)
def test_bars_are_drawn_where_somebody_looks(monkeypatch, capsys, terminal, progress, drawn):
    monkeypatch.setenv("TTY_COMPATIBLE", terminal)
    with watched(progress) as show:
        show(1, 2, "at work")
    assert ("at work" in capsys.readouterr().err) == drawn


def test_a_notebook_gets_bars_as_text_that_is_replaced(monkeypatch):
    display = pytest.importorskip("IPython.display", reason="needs IPython, absent here")
    from tsnn import progress

    drawn: list[str] = []

    class Place:
        def update(self, page):
            drawn.append(page.data)

    def first(page, display_id):
        drawn.append(page.data)
        return Place()

    monkeypatch.setattr(display, "display", first)
    with progress._notebook_bars() as show:
        show(1, 2, "epoch <1>")
        show(2, 2, "epoch <1>")
    assert len(drawn) == 2, "drawn at once, and at the end; not at every call"
    assert "epoch &lt;1&gt;" in drawn[0]
    assert "2/2" in drawn[-1]


# How things show


def test_things_say_in_a_line_and_in_a_table_what_they_are(run, predictor):
    stream = tsnn.load(shop(), **COLUMNS)
    asked = predictor.explain("user1", "item1", edge_type="buy")
    shown = [
        (
            stream,
            "(data=pandas, events=240, nodes=29, first=2024-03-01T00:00:00Z, last=2024-03-10T23:00:00Z, direction",
        ),
        (tsnn.default_split(stream), "Split(data=pandas, train=168, val=36, test=36, new nodes=0)"),
        (run, "data=pandas, visibility=strict, test ap="),
        (run, "Config(model=ModelConfig(stalk_dim=8), train=TrainConfig(epochs=0, warmup=1))"),
        (predictor, "events=240, clock=2024-03-10T23:00:00Z)"),
        (tsnn.evaluate("edgebank", stream), "(scorer=edgebank:unlimited, data=pandas, visibility=strict, test ap="),
        (asked, "Explanation(src=user1, dst=item1, t=2024-03-11T00:00:00Z, score="),
        (predictor.embed(["user1"]), "Embedding(nodes=1, coordinates=8, t=2024-03-11T00:00:00Z)"),
    ]
    for thing, words in shown:
        assert words in repr(thing)
        assert "<td" in thing._repr_html_()
    assert "item1 is " in asked._repr_html_()


def test_figures_and_answers_are_tables(run, predictor):
    figures = tsnn.evaluate(run, shop()).to_pandas()
    assert figures["set"].tolist() == ["val", "test"]
    assert figures["ap"][1] == run.metrics["metrics"]["test"]["ap"]
    best = predictor.recommend("user1", k=3, edge_type="buy")
    assert best.to_pandas()["dst"].tolist() == [one.dst for one in best]
    assert list(best.to_pandas().columns) == ["dst", "score", "geometric", "residual", "edgebank"]
    reasons = predictor.explain("user1", best[0].dst, edge_type="buy")
    assert reasons.to_polars()["contribution"].sum() == pytest.approx(reasons.score - reasons.baseline.score, abs=1e-6)


def test_the_package_says_its_version():
    assert tsnn.__version__ == tsnn.evaluate("recency", shop(), **COLUMNS).card.versions["tsnn"]


# Wrong calls


FRAME = pd.DataFrame({"src": ["a", "b"] * 60, "dst": ["x", "y", "z"] * 40, "t": range(120)})
NAN = float("nan")
WRONG = {
    "a word for a scorer": (lambda r, p: tsnn.evaluate("strict", FRAME), "neither a run folder nor a baseline"),
    "a baseline misspelt": (lambda r, p: tsnn.evaluate("edgbank", FRAME), "did you mean 'edgebank'?"),
    "a number for a baseline": (lambda r, p: tsnn.baseline(3), "there is no baseline 3; use one of edgebank"),
    "a word for data": (lambda r, p: tsnn.evaluate("edgebank", "strict"), "there is no file strict"),
    "a list for data": (lambda r, p: tsnn.evaluate("edgebank", [1, 2]), "a list is no table of events; give a pandas"),
    "nothing for data": (lambda r, p: tsnn.train(None), "None is no table of events"),
    "an array for data": (lambda r, p: tsnn.train(FRAME.to_numpy()), "a numpy.ndarray is no table of events"),
    "swapped": (lambda r, p: tsnn.evaluate(FRAME, "edgebank"), "a pandas.DataFrame is no scorer; give a run"),
    "a predictor for a run": (lambda r, p: tsnn.evaluate(p, FRAME), "evaluate the run itself, as predictor.run"),
    "a class for a scorer": (lambda r, p: tsnn.evaluate(Popularity, FRAME), "Popularity is a class; give an object"),
    "a model for a run": (lambda r, p: tsnn.evaluate(r.model, FRAME), "a TSNN is no scorer"),
    "a visibility misspelt": (lambda r, p: tsnn.evaluate("edgebank", FRAME, "stric"), "did you mean 'strict'?"),
    "a number for a visibility": (lambda r, p: tsnn.Visibility.parse(5), "visibility 5 is none of strict, arrival"),
    "a kind misspelt": (lambda r, p: tsnn.Visibility("arival"), "did you mean 'arrival'?"),
    "a batch of none": (lambda r, p: tsnn.Visibility("batch"), "for example batch:200"),
    "a set misspelt": (
        lambda r, p: tsnn.evaluate("edgebank", FRAME, sets="tset"),
        "no set 'tset'; its own are val and",
    ),
    "a protocol misspelt": (lambda r, p: tsnn.evaluate("edgebank", FRAME, protocol="strem"), "did you mean 'stream'?"),
    "an option misspelt": (lambda r, p: tsnn.evaluate("edgebank", FRAME, edge_typ="k"), "did you mean 'edge_type'?"),
    "other times": (lambda r, p: tsnn.evaluate(r, FRAME), "the times of pandas are plain numbers"),
    "progress as a word": (lambda r, p: tsnn.evaluate("edgebank", FRAME, progress="yes"), "progress is a str; give"),
    "no such columns": (lambda r, p: tsnn.train(shop()), "there is no column 'src'; name one of the columns"),
    "a column misspelt": (lambda r, p: tsnn.train(FRAME, src="srcc"), "did you mean 'src'?"),
    "columns of a stream": (lambda r, p: tsnn.train(tsnn.load(FRAME), src="src"), "an EventStream has its own columns"),
    "no file": (lambda r, p: tsnn.train("absent.csv"), "there is no file absent.csv"),
    "a set of data misspelt": (lambda r, p: tsnn.train("dgb:ucy"), "did you mean 'uci'?"),
    "a suite misspelt": (lambda r, p: tsnn.train("dbg:uci"), "did you mean 'dgb'?"),
    "settings for a folder": (lambda r, p: tsnn.train(FRAME, tsnn.Config()), "out is a Config; give the folder of the"),
    "a setting misspelt": (lambda r, p: tsnn.Config.of({"model.stalkdim": 3}), "did you mean 'model.stalk_dim'?"),
    "a setting of no section": (lambda r, p: tsnn.Config.of({"lr": 3}), "did you mean 'train.lr'?"),
    "a setting below a setting": (lambda r, p: tsnn.Config(train={"lrr": 1}), "did you mean 'train.lr'?"),
    "settings as a list": (lambda r, p: tsnn.Config.of([]), "config is a list; give a Config"),
    "missing times": (lambda r, p: tsnn.train(FRAME.assign(t=NAN)), "the time of row 0"),
    "no rows": (lambda r, p: tsnn.train(FRAME[:0]), "the table has no events"),
    "two rows": (lambda r, p: tsnn.train(FRAME[:2]), "give events at more distinct times"),
    "a frame to read": (lambda r, p: tsnn.read_table(FRAME), "a pandas.DataFrame is no path of a table; tsnn.load"),
    "the other library": (lambda r, p: tsnn.from_polars(FRAME), "was given a pandas.DataFrame; give a polars frame"),
    "numbers as columns": (lambda r, p: tsnn.from_arrays(1, 2, 3), "1 is no column; give a list or an array"),
    "a frame for a run": (lambda r, p: tsnn.Run.load(FRAME), "a pandas.DataFrame is no run; give a run, or the folder"),
    "no folder": (lambda r, p: tsnn.Run.load("absent"), "absent is not a finished run: there is no such folder"),
    "a predictor of no folder": (lambda r, p: Predictor.load("absent"), "absent is not a finished run"),
    "a predictor made by hand": (lambda r, p: Predictor(r), r"call tsnn.Predictor.load\(run\)"),
    "fit": (lambda r, p: r.fit(FRAME), "a Run has no 'fit'; it is trained already"),
    "recommend of a run": (lambda r, p: r.recommend("user1"), r"ask a predictor: tsnn.Predictor.load\(run\)"),
    "predict": (lambda r, p: p.predict("user1"), r"score_pairs\(src, dst, t\) scores pairs"),
    "a method misspelt": (lambda r, p: p.recomend("user1"), "did you mean 'recommend'?"),
    "a figure as an attribute": (lambda r, p: tsnn.evaluate("recency", FRAME).ap, r'say metrics\["test"\]\["ap"\]'),
    "cuts of a stream": (lambda r, p: tsnn.load(FRAME).cuts, "an EventStream has no 'cuts'; "),
    "fit of the package": (lambda r, p: tsnn.fit, r"tsnn has no 'fit'; tsnn.train\(data\) trains"),
    "a name misspelt": (lambda r, p: tsnn.Predctor, "did you mean 'Predictor'?"),
    "a negative k": (lambda r, p: p.recommend("user1", k=-1, edge_type="buy"), "k is -1; ask for at least one"),
    "k as a text": (lambda r, p: p.recommend("user1", k="3", edge_type="buy"), "k is '3'; ask for at least one"),
    "several sources": (lambda r, p: p.recommend(["user1"], edge_type="buy"), "cannot name a node"),
    "a number of candidates": (
        lambda r, p: p.recommend("user1", candidates=5, edge_type="buy"),
        "candidates are an int",
    ),
    "no time": (lambda r, p: p.score("user1", "item1", NAN, "buy"), "time nan is no date"),
    "no date of pandas": (lambda r, p: p.score("user1", "item1", pd.NaT, "buy"), "time NaT is no date"),
    "the past": (lambda r, p: p.embed(at="2024-01-01"), "is before the clock"),
    "a relation misspelt": (lambda r, p: p.score("user1", "item1", edge_type="bye"), "did you mean 'buy'?"),
    "sides that differ": (lambda r, p: p.score_pairs(["user1"], ["item1"] * 2), "differ in length .src 1, dst 2."),
    "frames as sides": (lambda r, p: p.score_pairs(FRAME, FRAME), r"values of shape \(120, 3\) are no column"),
    "no node": (lambda r, p: p.score_pairs(["user1", None], "item1", edge_type="buy"), "a node id is missing"),
    "a frame of events": (lambda r, p: p.observe_many(FRAME), r"'src' is no event; give tuples.*df.itertuples"),
    "no events": (lambda r, p: p.observe_many(None), "None holds no events"),
    "nowhere to save": (lambda r, p: p.save(None), "None is no run"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_call_gets_one_sentence(case, run, predictor, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    call, words = WRONG[case]
    with pytest.raises(TsnnError, match=words) as refused:
        call(run, predictor)
    assert "\n" not in str(refused.value)
    assert list(Path().iterdir()) == [], "nothing half-written"


def test_a_missing_name_is_still_an_attribute_error(run):
    assert not hasattr(run, "fit")
    assert getattr(tsnn, "fit", None) is None
