"""Heads tell labels from what they are given and from nothing else, and labels stay beside their events."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace

import numpy as np
import pytest
from typer.testing import CliRunner

import tsnn
from tests.asof.runs import run_on
from tsnn.asof.label import HEADS, SHARES, auc_error, label, load_labeled
from tsnn.cli.main import app
from tsnn.data.description import Roles
from tsnn.data.events import NodeIds
from tsnn.errors import TsnnError
from tsnn.evaluation.metrics import roc_auc

EVENTS = 600
RNG = np.random.default_rng(5)
STREAM = tsnn.make_stream(
    RNG.integers(0, 25, EVENTS),
    RNG.integers(0, 25, EVENTS),
    np.arange(EVENTS) // 2,
    RNG.normal(size=(EVENTS, 2)),
    ids=NodeIds(range(25)),
)
RUN = run_on(STREAM)


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    monkeypatch.setattr("tsnn.asof.label.HEADS", HEADS[1:2])


def aucs(labels: np.ndarray) -> dict[str, float]:
    return {found.scorer: found.metrics["test"]["auc"] for found in label(RUN, STREAM, labels)}


def test_each_head_knows_what_it_was_given():
    told = aucs((STREAM.msg[:, 0] > 0.5).astype(int))
    assert list(told) == ["message", "facts", "facts + message", "state", "states + facts", "states + facts + message"]
    assert min(told[name] for name in told if "message" in name) > 90
    assert max(told[name] for name in told if "message" not in name) < 70
    told = aucs(tsnn.facts(STREAM)["pair_count"].to_numpy() > 0)
    assert told["facts"] > 99
    assert told["message"] < 70


def test_without_messages_there_is_no_head_on_them():
    bare = replace(STREAM, msg=None)
    found = label(run_on(bare), bare, np.arange(EVENTS) % 2)
    assert [one.scorer for one in found] == ["facts", "state", "states + facts"]


def test_the_state_is_the_source_s_before_the_event():
    """A label that is a direction of the state as of then is told by the state, and not by the other end's."""
    table = tsnn.facts(STREAM, run=RUN)
    value = table["src_state_0"].to_numpy()
    told = aucs(value > np.median(value))
    assert told["state"] > 90


def test_rare_labels_come_with_their_number_and_an_interval():
    labels = np.zeros(EVENTS)
    labels[::23] = 1
    found = label(RUN, STREAM, labels)[1]
    train, val = int(0.7 * EVENTS), int(0.85 * EVENTS)
    counts = (labels[:train].sum(), labels[train:val].sum(), labels[val:].sum())
    assert tuple(found.card.positives.values()) == pytest.approx(counts, abs=1)
    assert found.metrics["test"]["half_width"] > 5
    assert found.metrics["test"]["spread"] > 0
    assert found.card.visibility == "strict"
    assert SHARES["facts"] in found.card.notes[0]
    assert found.card.notes[1] == HEADS[1].name


def test_the_interval_is_delong_s():
    rng = np.random.default_rng(0)
    pos, neg = rng.normal(0.7, 1, 30).round(1), rng.normal(0, 1, 200).round(1)
    wins = (pos[:, None] > neg) + 0.5 * (pos[:, None] == neg)
    assert wins.mean() == pytest.approx(roc_auc(pos, neg))
    expected = np.sqrt(wins.mean(1).var(ddof=1) / len(pos) + wins.mean(0).var(ddof=1) / len(neg))
    assert auc_error(pos, neg) == pytest.approx(expected)
    assert auc_error(pos[:1], neg) == np.inf


@pytest.mark.parametrize(
    ("labels", "says"),
    [
        (np.arange(EVENTS), "0 or 1"),
        (np.zeros(EVENTS), "all 420 train events have one label"),
        (np.arange(EVENTS) < 100, "all 90 val events have one label"),
        (np.zeros(7), "one for each event"),
    ],
)
def test_labels_that_say_nothing_are_refused(labels, says):
    with pytest.raises(TsnnError, match=says):
        label(RUN, STREAM, labels)


def test_undirected_events_have_no_source_to_label():
    with pytest.raises(TsnnError, match="undirected"):
        label(RUN, STREAM.as_undirected(), np.zeros(EVENTS))


def test_labels_of_a_table_stay_beside_their_events(tmp_path):
    path = tmp_path / "log.csv"
    rows = [f"{i % 7},{i % 5},{(i * 37) % 101},{i},{i % 2}" for i in range(101)]
    path.write_text("src,dst,t,price,banned\n" + "\n".join(rows) + "\n3,,4,7,1\n")
    run = replace(RUN, description=replace(STREAM.description, roles=Roles(msg=("price",))))
    stream, labels = load_labeled(str(path), "banned", run, sort=True, drop_missing=True)
    assert stream.num_events == 101
    assert stream.msg_dim == 1
    np.testing.assert_array_equal(labels, stream.msg[:, 0] % 2)
    bare = replace(RUN, description=replace(STREAM.description, roles=Roles()))
    assert load_labeled(str(path), "banned", bare, sort=True, drop_missing=True)[0].msg is None
    for column, says in [("price", "as a feature"), ("baned", "did you mean 'banned'")]:
        with pytest.raises(TsnnError, match=says):
            load_labeled(str(path), column, run, sort=True, drop_missing=True)


def write_dgb(folder, labels) -> None:
    folder.mkdir(parents=True)
    ends = np.stack([STREAM.src + 1, STREAM.dst + 1, STREAM.t, labels, np.arange(EVENTS) + 1], axis=1)
    lines = [f"{i},{','.join(str(x) for x in row)}" for i, row in enumerate(ends.astype(int).tolist())]
    with gzip.open(folder / f"ml_{folder.name}.csv.gz", "wt") as file:
        file.write(",u,i,ts,label,idx\n" + "\n".join(lines) + "\n")
    np.save(folder / f"ml_{folder.name}.npy", np.vstack([np.zeros((1, 2)), STREAM.msg]))


@pytest.mark.slow
def test_the_command_tells_labels_of_a_suite(tmp_path, monkeypatch):
    labels = (STREAM.msg[:, 0] > 0.5).astype(int)
    write_dgb(tmp_path / "data/dgb/mooc", labels)
    monkeypatch.setenv("TSNN_DATA", str(tmp_path / "data"))
    tiny = {"train.epochs": 1, "model.stalk_dim": 8, "model.hidden_dim": 8}
    run = tsnn.train("dgb:mooc", tmp_path / "run", tsnn.Config.build(overrides=tiny), compare=False)
    np.testing.assert_array_equal(load_labeled("dgb:mooc", "label", run)[1], labels)
    words = ["label", str(run.folder), "dgb:mooc"]
    said = CliRunner().invoke(app, words)
    assert said.exit_code == 0, (said.output, said.exception)
    assert "facts + message" in said.stdout
    assert f"Labeled 1: {labels[:420].sum()} of 420 train" in " ".join(said.stdout.split())
    told = json.loads(CliRunner().invoke(app, [*words, "--json"]).stdout)
    assert told["results"][0]["metrics"]["test"]["auc"] > 90
    for wrong, says in [
        ([*words, "--label", "banned"], "no column 'banned'"),
        (["label", str(run.folder), "tgb:tgbl-wiki"], "comes without labels"),
    ]:
        error = CliRunner().invoke(app, wrong).exception
        assert isinstance(error, TsnnError)
        assert says in str(error)


@pytest.mark.parametrize(("name", "positives"), [("wikipedia", 217), ("mooc", 4066)])
def test_the_benchmarks_labels_are_as_rare_as_published(need_data, monkeypatch, name, positives):
    root = need_data(f"dgb/{name}").parents[1]
    monkeypatch.setenv("TSNN_DATA", str(root))
    stream, labels = load_labeled(f"dgb:{name}", "label", RUN)
    assert (len(labels), labels.sum()) == (stream.num_events, positives)
