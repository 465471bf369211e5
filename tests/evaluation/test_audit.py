"""An audit finds what was planted, and nothing where nothing was."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from typer.testing import CliRunner

from tsnn.cli.main import app
from tsnn.data.events import NodeIds, make_stream
from tsnn.data.queries import Queries
from tsnn.errors import InputError
from tsnn.evaluation.audit import COLUMNS, audit, read_scored, sources_differ
from tsnn.evaluation.baselines import baseline
from tsnn.evaluation.replay import score_queries

SOURCES, DESTINATIONS, TIMES, PER_TIME, BATCH = 40, 15, 12, 150, 50


class World:
    """Few times with many rows each, in blocks of one destination; who likes whom is known to nobody but the world."""

    def __init__(self) -> None:
        rng = np.random.default_rng(0)
        self.liking = rng.normal(size=(SOURCES, SOURCES + DESTINATIONS))
        src, dst = [], []
        for _ in range(TIMES):
            alive = rng.choice(DESTINATIONS, 5, replace=False) + SOURCES
            s = rng.integers(0, SOURCES, PER_TIME)
            chance = np.exp(1.5 * self.liking[s][:, alive])
            d = alive[(rng.random((PER_TIME, 1)) > np.cumsum(chance / chance.sum(1, keepdims=True), 1)).sum(1)]
            order = np.argsort(d, kind="stable")
            src.append(s[order])
            dst.append(d[order])
        self.src, self.dst = np.concatenate(src), np.concatenate(dst)
        self.t = np.repeat(np.arange(TIMES), PER_TIME)
        self.negative = rng.integers(SOURCES, SOURCES + DESTINATIONS, len(self.src))
        self.batch = np.arange(len(self.src)) // BATCH

    def honest(self, dst):
        return self.liking[self.src, dst]

    def reads_ties(self, dst):
        """How recently the candidate was a destination, by rows, those of the same time included."""
        ids = NodeIds(range(SOURCES + DESTINATIONS))
        stream = make_stream(self.src, self.dst, self.t, ids=ids)
        n = len(dst)
        none = np.zeros(n, np.int64)
        asked = Queries(np.arange(n), self.src, self.t, none, np.arange(n + 1), dst)
        seen = score_queries(baseline("recency"), stream, asked)
        return self.honest(dst) - 0.1 * (np.arange(n) - seen)

    def reads_its_batch(self, dst):
        """How many of those scored in one go have the same candidate."""
        same = [(dst[self.batch == b] == d).sum() for b, d in zip(self.batch, dst, strict=True)]
        return self.honest(dst) + 0.3 * np.array(same)

    def table(self, scorer, path, negative=None):
        negative = self.negative if negative is None else negative
        n = len(self.src)
        columns = {
            "src": np.tile(self.src, 2),
            "dst": np.concatenate([self.dst, negative]),
            "t": np.tile(self.t, 2),
            "score": np.concatenate([scorer(self.dst), scorer(negative)]),
            "label": np.repeat([1, 0], n),
            "batch": np.tile(self.batch, 2),
        }
        rows = zip(*(columns[name].tolist() for name in COLUMNS), strict=True)
        path.write_text("\n".join([",".join(COLUMNS), *(",".join(map(repr, row)) for row in rows)]) + "\n")
        return path


@pytest.fixture(scope="module")
def world() -> World:
    return World()


def found_of(world, scorer, tmp_path):
    return audit(read_scored(world.table(scorer, tmp_path / "scored.csv")))


def test_who_reads_nothing_is_found_to_read_nothing(world, tmp_path):
    found = found_of(world, world.honest, tmp_path)
    assert not found["ties"]["reads"], found["ties"]
    assert not found["company"]["reads"], found["company"]
    for part in ("ties", "company"):
        assert found[part]["figures_without"] == pytest.approx(found["figures"])
    assert found["shuffled"]["ap"] == pytest.approx(found["figures"]["ap"], abs=2)


def test_who_reads_ties_is_found_and_loses_what_that_was_worth(world, tmp_path):
    honest, found = (found_of(world, scorer, tmp_path) for scorer in (world.honest, world.reads_ties))
    assert found["ties"]["reads"]
    assert found["figures"]["ap"] > honest["figures"]["ap"] + 10
    assert not found["company"]["reads"]
    assert found["ties"]["figures_without"]["ap"] == pytest.approx(honest["figures"]["ap"], abs=8)
    assert any("It depends on rows that stand before it at the same time" in told for told in found["says"])


def test_who_reads_its_batch_is_found_and_loses_what_that_was_worth(world, tmp_path):
    honest, found = (found_of(world, scorer, tmp_path) for scorer in (world.honest, world.reads_its_batch))
    assert found["company"]["reads"]
    assert found["figures"]["ap"] > honest["figures"]["ap"] + 10
    assert not found["ties"]["reads"]
    assert found["company"]["figures_without"]["ap"] == pytest.approx(honest["figures"]["ap"], abs=8)
    assert any("It depends on what is scored together with it" in told for told in found["says"])


def test_collisions_the_ceiling_and_simple_rules_are_of_the_same_rows(world, tmp_path):
    found = found_of(world, world.honest, tmp_path)
    happens = set(zip(world.src.tolist(), world.dst.tolist(), world.t.tolist(), strict=True))
    true = [e in happens for e in zip(world.src.tolist(), world.negative.tolist(), world.t.tolist(), strict=True)]
    assert found["collisions"]["share"] == pytest.approx(np.mean(true))
    assert found["collisions"]["figures_without"]["ap"] > found["figures"]["ap"]
    assert found["figures"]["ap"] < found["ceiling"]["ap"] < 100
    assert set(found["simple"]) == {"edgebank", "popularity", "recency"}, "nothing to learn from, and sources are kept"
    alone = audit(read_scored(world.table(lambda dst: (dst % 3).astype(float), tmp_path / "other.csv")))
    assert alone["simple"] == found["simple"], "whatever the model scored"


def test_features_are_set_beside_it_where_the_data_are_named(world, tmp_path):
    """Rows of the last times, about a stream that is longer than they are."""
    path = world.table(world.honest, tmp_path / "scored.csv")
    events = zip(world.src.tolist(), world.dst.tolist(), world.t.tolist(), strict=True)
    data = tmp_path / "events.csv"
    data.write_text("src,dst,t\n" + "".join(f"{s},{d},{t}\n" for s, d, t in events))
    lines = path.read_text().splitlines()
    late = [line for line in lines[1:] if int(line.split(",")[2]) >= TIMES - 2]
    path.write_text("\n".join([lines[0], *late]) + "\n")
    known = {int(line.split(",")[1]) for line in late}
    assert known <= set(world.dst.tolist()) | set(world.src.tolist())
    result = CliRunner().invoke(app, ["audit", str(path), "--data", str(data), "--json"])
    assert result.exit_code == 0, result.exception
    found = json.loads(result.stdout)
    assert found["events"] == 2 * PER_TIME
    assert {"features", "edgebank", "recency"} <= set(found["simple"])
    shown = CliRunner().invoke(app, ["audit", str(path), "--data", str(data)])
    assert "of the negatives happen; knowing every event, AP is" in shown.stdout


def test_negatives_of_other_sources_bring_in_who_is_active(world, tmp_path):
    scored = read_scored(world.table(world.honest, tmp_path / "scored.csv"))
    assert not sources_differ(scored)
    other = replace(scored, src=np.where(scored.happened, scored.src, scored.dst))  # who never acts
    assert sources_differ(other)
    assert "source-recency" in audit(other)["simple"]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda rows: [rows[0].replace("batch", "group"), *rows[1:]], "no column 'batch'"),
        (lambda rows: [rows[0], *(row.replace(",1,", ",2,") for row in rows[1:])], "other values than 0 and 1"),
        (lambda rows: rows[:10], "rows of one label only"),
        (lambda rows: [rows[0], "1,2,3,nan,1,0", "1,2,3,0.5,0,0"], "column 'score'"),
        (lambda rows: [rows[0], "1,2,3,0.4,1,0", "1,2,3,0.5,0,1"], "no batch holds a row labeled 1 and one labeled 0"),
    ],
)
def test_a_table_that_cannot_be_audited_is_refused_in_a_sentence(world, tmp_path, change, says):
    path = world.table(world.honest, tmp_path / "scored.csv")
    path.write_text("\n".join(change(path.read_text().splitlines())) + "\n")
    with pytest.raises(InputError, match=says):
        audit(read_scored(path))


def test_events_that_the_data_do_not_hold_are_told(world, tmp_path):
    path = world.table(world.honest, tmp_path / "scored.csv")
    data = tmp_path / "events.csv"
    rows = zip(world.dst.tolist(), world.src.tolist(), world.t.tolist(), strict=True)
    data.write_text("src,dst,t\n" + "".join(f"{s},{d},{t}\n" for s, d, t in rows))
    with pytest.raises(InputError, match="labeled 1 are no events of"):
        read_scored(path, str(data))
