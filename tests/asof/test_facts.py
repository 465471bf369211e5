"""What was known at a time is what training saw, nothing later matters, and a table comes back as it was asked."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import polars
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import tsnn
from tests.asof.runs import run_on
from tests.evaluation.streams import tied_stream
from tsnn.asof.facts import METADATA, as_of
from tsnn.cli.main import app
from tsnn.data.events import EventStream
from tsnn.data.queries import pairs
from tsnn.data.split import split_by_time
from tsnn.errors import TsnnError
from tsnn.evaluation.catalog import default_split
from tsnn.evaluation.replay import score_queries
from tsnn.model.geometry import rotate
from tsnn.plan.facts import FACTS
from tsnn.plan.planner import Planner

STREAM = tied_stream()
TINY = tsnn.Config.build(overrides={"train.epochs": 1, "model.stalk_dim": 8, "model.hidden_dim": 8})
NAMES = [fact.name for fact in FACTS]


def rewritten(stream: EventStream, start: int) -> EventStream:
    """Other events from a row on, at the same times."""
    rng = np.random.default_rng(start)
    src, dst = stream.src.copy(), stream.dst.copy()
    src[start:], dst[start:] = rng.permutation(src[start:]), rng.permutation(dst[start:])
    return replace(stream, src=src, dst=dst)


def raw(table: pa.Table) -> np.ndarray:
    """The facts as the plan has them."""
    return np.stack([table[fact.name].fill_null(fact.unseen).to_numpy() for fact in FACTS], axis=1)


# Exact


def test_they_are_what_training_saw_bit_for_bit(tmp_path, monkeypatch):
    seen: dict[tuple[int, int, float], np.ndarray] = {}
    plan = Planner.plan

    def noted(self, stop, queries):
        made = plan(self, stop, queries)
        query = np.repeat(np.arange(len(queries)), np.diff(queries.ptr))
        keys = zip(queries.src[query].tolist(), queries.cand.tolist(), queries.t[query].tolist(), strict=True)
        seen.update(zip(keys, made.score.facts, strict=True))
        return made

    monkeypatch.setattr(Planner, "plan", noted)
    run = tsnn.train(STREAM, tmp_path / "run", TINY, compare=False)
    monkeypatch.undo()
    train_end = tsnn.default_split(STREAM).train_end
    keys = list(zip(STREAM.src.tolist(), STREAM.dst.tolist(), STREAM.t.tolist(), strict=True))
    assert len(seen) > STREAM.num_events, "training, validation, test and their negatives"
    assert set(keys[:train_end]) <= set(seen)
    told = np.stack([seen[key] for key in keys])
    np.testing.assert_array_equal(raw(tsnn.facts(STREAM)), told)
    np.testing.assert_array_equal(raw(tsnn.facts(STREAM, run=run)), told)


@pytest.mark.parametrize("with_run", [False, True])
@pytest.mark.parametrize("visibility", ["strict", "arrival", "batch:7"])
def test_what_may_not_be_seen_cannot_matter(visibility, with_run):
    run = run_on(STREAM) if with_run else None
    before = tsnn.facts(STREAM, run=run, visibility=visibility)
    cuts = tsnn.Visibility.parse(visibility).cuts(STREAM.t, split_by_time(STREAM).segment_starts)
    for row in (40, 170, 290):
        cut = int(cuts[row])
        changed, same = rewritten(STREAM, cut), np.arange(cut)
        assert (changed.src[cut:] != STREAM.src[cut:]).any()
        assert tsnn.facts(changed, run=run, visibility=visibility).take(same).equals(before.take(same))
        if visibility == "batch:7":  # about events alone
            continue
        asked = np.flatnonzero(STREAM.t <= STREAM.t[cut] if visibility == "strict" else STREAM.t < STREAM.t[cut])
        own = pa.table({part: getattr(STREAM, part)[asked] for part in ("src", "dst", "t")})
        first, second = (tsnn.facts(stream, events=own, run=run, visibility=visibility) for stream in (STREAM, changed))
        assert first.equals(second)
        if visibility == "strict":
            assert first.select(NAMES).equals(before.take(asked).select(NAMES))


def test_what_may_be_seen_does_matter():
    late = {"src": STREAM.src[-50:], "dst": STREAM.dst[-50:], "t": STREAM.t[-50:]}
    run, changed = run_on(STREAM), rewritten(STREAM, 30)
    before, after = (tsnn.facts(stream, events=late, run=run) for stream in (STREAM, changed))
    for name in ("pair_count", "src_gap", "walk_11", "score", "src_state_0"):
        assert not before[name].equals(after[name]), name


def test_as_of_a_time_is_as_if_the_stream_had_ended_there():
    cut = int(np.searchsorted(STREAM.t, 30.0))
    split = split_by_time(STREAM)
    asked = {"src": [3, 5, 7], "dst": [5, 7, 3], "t": [30.0, 30.0, 30.0]}
    past = replace(STREAM, **{name: getattr(STREAM, name)[:cut] for name in ("src", "dst", "t")})
    ended = replace(split, stream=past, train_end=cut - 2, val_end=cut - 1)
    run = run_on(STREAM)
    assert tsnn.facts(STREAM, events=asked, run=run).equals(tsnn.facts(ended, events=asked, run=run))
    assert tsnn.facts(STREAM, at=30.0, run=run).equals(tsnn.facts(ended, at=30.0, run=run))


def test_arrival_sees_the_time_itself():
    time = float(STREAM.t[150])
    counts = {
        how: tsnn.facts(STREAM, at=time, visibility=how)["dst_count"].to_numpy().sum() for how in ("strict", "arrival")
    }
    ends = np.where(STREAM.src == STREAM.dst, 1, 2)
    assert counts == {"strict": ends[STREAM.t < time].sum(), "arrival": ends[STREAM.t <= time].sum()}


# States and scores


def test_states_are_those_of_the_run_in_common_coordinates():
    run = run_on(STREAM)
    scorer = tsnn.ModelScorer(run.model, STREAM)
    rows = np.arange(STREAM.num_events)
    strict = tsnn.Visibility.parse("strict").cuts(STREAM.t)
    scores = score_queries(scorer, STREAM, pairs(STREAM, rows, strict, STREAM.src, STREAM.dst))
    np.testing.assert_allclose(tsnn.facts(STREAM, run=run)["score"].to_numpy(), scores, rtol=1e-5, atol=1e-6)
    nodes = tsnn.facts(STREAM, at=STREAM.t[-1] + 1, run=run)
    all_run = pairs(STREAM, rows[-1:], np.array([STREAM.num_events]), STREAM.src[-1:], STREAM.dst[-1:])
    score_queries(scorer, STREAM, all_run)  # the store now stands behind the last row
    common = rotate(scorer.store.F, scorer.store.h, run.config.model).detach().numpy()
    told = np.stack([nodes[f"state_{i}"].to_numpy() for i in range(common.shape[1])], axis=1)
    np.testing.assert_allclose(told, common[nodes["node"].to_numpy()], rtol=1e-5, atol=1e-6)
    assert "score" not in nodes.column_names
    pair = tsnn.facts(STREAM, events={"src": [3], "dst": [5], "t": [1e3]}, run=run)
    told = [pair[f"dst_state_{i}"][0].as_py() for i in range(common.shape[1])]
    np.testing.assert_allclose(told, common[5], rtol=1e-5)


# One's own questions


def test_a_table_comes_back_in_its_order_with_all_it_had():
    rng = np.random.default_rng(0)
    rows = rng.permutation(STREAM.num_events)
    frame = pd.DataFrame({"note": rows * 2, "src": STREAM.src[rows], "dst": STREAM.dst[rows], "t": STREAM.t[rows]})
    own = tsnn.facts(STREAM, events=frame)
    assert own.column_names == ["note", "src", "dst", "t", *NAMES]
    assert own.select(list(frame)).to_pandas().equals(frame)
    assert own.select(NAMES).equals(tsnn.facts(STREAM).take(rows).select(NAMES))
    assert polars.from_arrow(own).shape == own.shape
    assert tsnn.facts(STREAM, events=polars.from_pandas(frame)).equals(own)


def test_columns_are_found_by_the_names_of_the_data(tmp_path):
    path = tmp_path / "log.csv"
    kinds = ("look", "buy", "buy")
    lines = [f"u{i % 7},{kinds[i % 3]},i{i % 5},2024-03-{1 + i // 8:02}T{i % 8:02}:00" for i in range(160)]
    path.write_text("who,kind,what,when\n" + "\n".join(lines) + "\n")
    stream = tsnn.read_table(path, src="who", dst="what", t="when", edge_type="kind")
    asked = {"who": ["u1", "u2"], "what": ["i3", "i2"], "kind": ["buy", "look"], "when": ["2024-03-09", "2030-01-01"]}
    own = tsnn.facts(stream, events=asked)
    before = [row for row in lines if row.split(",")[-1] < "2024-03-09"]
    counted = [sum(row.startswith("u1,") and ",i3," in row for row in before)]
    counted += [sum(row.startswith("u2,look,i2") for row in lines)]
    assert [own["pair_count"][0].as_py(), own["bank_count"][1].as_py()] == counted
    events = tsnn.facts(stream)
    assert str(events.schema.field("t").type) == "timestamp[us, tz=UTC]"
    assert set(events["edge_type"].to_pylist()) == {"buy", "look"}
    nodes = tsnn.facts(stream, at="2024-03-02")
    assert nodes.column_names[:2] == ["node", "t"]
    assert nodes["dst_count"].to_numpy().sum() == 16, "eight events by then"
    for wrong, says in [
        ({**asked, "kind": ["buy", "sell"]}, "did you mean|unknown"),
        ({"who": ["u1"], "what": ["i3"], "kind": ["buy"], "when": [17]}, "plain numbers"),
        ({"who": ["u1"], "what": ["i3"], "when": ["2024-03-09"]}, "no column 'kind' or 'edge_type'"),
    ]:
        with pytest.raises(TsnnError, match=says):
            tsnn.facts(stream, events=wrong)


@pytest.mark.parametrize("with_run", [False, True])
def test_whoever_was_never_seen_is_null_or_nothing(with_run):
    asked = {"src": [10**6, 3], "dst": [3, 10**6], "t": [50.0, 50.0]}
    run = run_on(STREAM) if with_run else None
    own = tsnn.facts(STREAM, events=asked, run=run).to_pylist()
    assert (own[0]["src_gap"], own[0]["src_count"], own[0]["pair_gap"], own[0]["pair_count"]) == (None, 0, None, 0)
    assert (own[1]["dst_gap"], own[1]["dst_in_age"], own[1]["dst_in_count"]) == (None, None, 0)
    assert own[0]["dst_gap"] is not None
    assert as_of(default_split(STREAM), events=asked).card["strangers"] == 1
    if with_run:
        assert own[0]["src_state_0"] == 0
        assert np.isfinite(own[0]["score"])
    known = tsnn.facts(STREAM, events={"src": ["3"], "dst": ["5"], "t": [50.0]})
    assert known["src_count"][0].as_py() > 0, "3 as text is 3"


# Training tables


def test_negatives_are_drawn_by_the_definition_of_the_question():
    split = split_by_time(STREAM)
    table = tsnn.facts(STREAM, negatives=3).to_pandas()
    assert list(table.columns[:6]) == ["query", "label", "src", "dst", "t", "split"]
    groups = table.groupby("query")
    assert (groups.size() == 4).all()
    assert (groups["label"].sum() == 1).all()
    assert (groups["dst"].nunique() == 4).all(), "others, and each once"
    assert (table[table.label == 1].dst.to_numpy() == STREAM.dst).all()
    for name in ("train", "val", "test"):
        start, end = split.bounds(name)
        part = table[table.split == name]
        assert part["query"].min() == start
        assert set(part.dst) <= set(STREAM.dst[:end].tolist())
    events = tsnn.facts(STREAM, negatives=3).filter(table.label.to_numpy() == 1)
    assert events.select(NAMES).equals(tsnn.facts(STREAM).select(NAMES))
    assert not tsnn.facts(STREAM, negatives=3, seed=1)["dst"].equals(pa.chunked_array([table.dst.to_numpy()]))


def test_an_undirected_event_is_asked_about_from_both_ends():
    stream = STREAM.as_undirected()
    table = tsnn.facts(stream, negatives=1).to_pandas()
    events = table[table.label == 1]
    assert len(events) == np.where(stream.src == stream.dst, 1, 2).sum()
    assert events.src.value_counts().equals(events.dst.value_counts().rename_axis("src"))


# Files


def invoke(*arguments: str, status: int = 0):
    result = CliRunner().invoke(app, ["facts", *arguments])
    assert result.exit_code == status, (result.output, result.exception)
    return result


@pytest.fixture
def log(tmp_path) -> str:
    path = tmp_path / "log.csv"
    rows = zip(STREAM.src.tolist(), STREAM.dst.tolist(), STREAM.t.astype(int).tolist(), strict=True)
    path.write_text("src,dst,t\n" + "".join(f"u{s},u{d},{t}\n" for s, d, t in rows))
    return str(path)


def test_a_file_holds_the_same_table(log, tmp_path, monkeypatch):
    monkeypatch.setattr("tsnn.asof.facts.ROW_GROUP", 100)
    monkeypatch.setattr("tsnn.asof.facts._ROWS_WITHOUT_STATES", 30)
    whole = tsnn.facts(log, negatives=1)
    out = tmp_path / "facts.parquet"
    assert "600 rows written" in invoke(log, "--out", str(out), "--negatives", "1").stdout
    found = pq.ParquetFile(out)
    assert found.num_row_groups >= 5
    assert found.read().equals(whole)
    assert found.schema_arrow.field("pair_count").metadata == {b"says": b"events the source -> the candidate so far"}
    assert json.loads(found.schema_arrow.metadata[METADATA])["question"]["visibility"] == "strict"
    invoke(log, "--out", str(out.with_suffix(".csv")), "--negatives", "1")
    back = pd.read_csv(out.with_suffix(".csv"))
    pd.testing.assert_frame_equal(back, whole.to_pandas(), check_dtype=False)
    questions = tmp_path / "questions.csv"
    questions.write_text("src,dst\nu3,u5\nu4,stranger\n")
    said = invoke(log, "--events", str(questions), "--at", "40", "--out", str(out))
    assert "1 node of the questions has no event" in said.stderr
    assert pq.read_table(out)["dst_in_count"][1].as_py() == 0
    told = json.loads(invoke(log, "--at", "40", "--out", str(out), "--json").stdout)
    assert told["rows"] == pq.read_metadata(out).num_rows == 20


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--out", "facts.xlsx"], "no known kind"),
        (["--out", "absent/facts.csv"], "no folder"),
        (["--out", "facts.csv", "--at", "yesterday"], "not a finite number"),
        (["--out", "facts.csv", "--at", "0"], "no event before 0"),
        (["--out", "facts.csv", "--at", "9", "--negatives", "1"], "drawn for the events"),
        (["--out", "facts.csv", "--at", "9", "--visibility", "batch:200"], "strict or arrival"),
        (["--out", "facts.csv", "--events", "none.csv"], "there is no file"),
        (["--out", "facts.csv", "--events", "log.csv", "--run", "absent"], "not a finished run"),
        (["--out", "facts.csv", "--events", "taken.csv"], "rename it"),
        (["--out", "facts.csv", "--events", "dest.csv"], "no column 'dst'; they have src, dest, t"),
        (["--out", "facts.csv", "--events", "gap.csv"], "'dst' of line 3 of gap.csv is missing"),
        (["--out", "facts.csv", "--events", "log.csv", "--at", "9", "--visibility", "batch:7"], "strict or arrival"),
    ],
)
def test_a_refusal_is_one_sentence_and_leaves_nothing(log, tmp_path, monkeypatch, words, says):
    monkeypatch.chdir(tmp_path)
    Path("taken.csv").write_text("src,dst,t,pair_count\nu1,u2,9,3\n")
    Path("gap.csv").write_text("src,dst,t\nu1,u2,9\nu1,,9\n")
    Path("dest.csv").write_text("src,dest,t\nu1,u2,9\n")
    error = invoke("log.csv", *words, status=1).exception
    assert isinstance(error, TsnnError)
    assert says in str(error)
    assert str(error).endswith(".")
    assert not list(tmp_path.glob("*facts*"))
