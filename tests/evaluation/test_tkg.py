"""Temporal knowledge graphs: the loader, the filter, ranks among all nodes, and the published figures of recurrency."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from tests.engine.streams import config_of
from tsnn.api import evaluate
from tsnn.cli.main import app
from tsnn.data.direction import looks_undirected
from tsnn.data.question import Question
from tsnn.data.split import Split
from tsnn.data.tkg import with_inverses
from tsnn.errors import ConfigError, InputError
from tsnn.evaluation.against_all import AllRanks
from tsnn.evaluation.baselines import baseline
from tsnn.evaluation.catalog import default_split, load
from tsnn.evaluation.evaluate import make_questions, validation_questions
from tsnn.evaluation.model import ModelScorer
from tsnn.evaluation.recurrency import ALPHAS, DECAYS, Recurrency
from tsnn.evaluation.replay import Answers, answering, replay
from tsnn.evaluation.tkg import VALIDATION
from tsnn.training.trainer import build_model
from tsnn.types import Visibility

FILTERS = ("time-aware", "static", "none")


def graph(facts: int = 200, nodes: int = 12, relations: int = 3, seed: int = 0) -> Split:
    """Few nodes and times, so that questions have several true answers; some facts are there twice."""
    rng = np.random.default_rng(seed)
    src, dst = rng.integers(0, nodes, facts), rng.integers(0, nodes, facts)
    t = np.sort(rng.integers(0, 20, facts))
    ends = np.searchsorted(t, [13, 16]).tolist()
    return default_split(with_inverses(src, dst, t, rng.integers(0, relations, facts), tuple(ends), "tkg:small"))


def model(split: Split, **switches: object) -> ModelScorer:
    built = build_model(config_of(**switches), split)
    with torch.no_grad():
        for parameter in built.parameters():
            parameter.add_(0.2 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(1)))
    return ModelScorer(built, split.stream)


def naive_ranks(split: Split, leave_out: str, scores: dict[tuple[int, int, int], list[float]]) -> list[float]:
    """Of the test rows, as the definition reads; scores by source, relation and time."""
    stream = split.stream
    rows = list(
        zip(stream.src.tolist(), stream.edge_type.tolist(), stream.dst.tolist(), stream.t.tolist(), strict=True)
    )
    found = []
    for s, r, o, t in rows[split.val_end :]:
        true = {b for a, q, b, when in rows if (a, q) == (s, r) and (leave_out == "static" or when == t)}
        true = set() if leave_out == "none" else true
        row = scores[s, r, t]
        others = [row[node] for node in range(stream.num_nodes) if node != o and node not in true]
        found.append(1 + sum(x > row[o] for x in others) + 0.5 * sum(x == row[o] for x in others))
    return found


class FromTable:
    """A method with coarse scores of its own, so that there are ties."""

    name = "table"

    def __init__(self, split: Split) -> None:
        self.split = split
        self.asked: dict[tuple[int, int, int], list[float]] = {}

    def reset(self) -> None:
        """Nothing to forget."""

    def observe(self, row: object) -> None:
        """Nothing to learn."""

    def score(self, src: int, candidates: np.ndarray, t: float) -> list[float]:
        return [float((7 * src + 3 * node + int(t)) % 5) for node in candidates.tolist()]


@pytest.mark.parametrize("leave_out", FILTERS)
def test_ranks_are_those_of_the_definition(leave_out: str) -> None:
    split = graph()
    stream, method = split.stream, FromTable(split)
    keys = {
        (s, r, t) for s, r, t in zip(stream.src.tolist(), stream.edge_type.tolist(), stream.t.tolist(), strict=True)
    }
    scores = {key: method.score(key[0], np.arange(stream.num_nodes), key[2]) for key in keys}
    expected = naive_ranks(split, leave_out, scores)
    result = evaluate(method, split, negatives=leave_out, sets="test", progress=False).metrics["test"]
    assert result["mrr"] == pytest.approx(np.mean(1 / np.array(expected)), abs=1e-12)
    for k in (1, 3, 10):
        assert result[f"hits@{k}"] == pytest.approx(np.mean(np.array(expected) <= k), abs=1e-12)


@pytest.mark.parametrize("leave_out", FILTERS)
@pytest.mark.parametrize("visibility", ["strict", "batch:7", "arrival"])
@pytest.mark.parametrize("name", ["popularity", "recency", "edgebank:repeat_threshold", "recurrency", "tsnn"])
def test_all_nodes_at_once_are_ranked_as_one_by_one(leave_out: str, visibility: str, name: str) -> None:
    split = graph()
    scorer = model(split) if name == "tsnn" else baseline(name)
    question = Question(Visibility.parse(visibility), negatives=leave_out)
    questions = make_questions(split, question)
    scorer.fit(split, question)
    slow, quick = Answers(questions), answering(questions, scorer)
    assert isinstance(quick, AllRanks)
    replay(scorer, split.stream, [slow])
    replay(scorer, split.stream, [quick])
    np.testing.assert_array_equal(slow.values[:, 2], quick.values[:, 2])
    np.testing.assert_allclose(slow.values, quick.values, atol=1e-12)


def test_a_model_that_needs_vectors_is_ranked_too() -> None:
    split = graph()
    scorer = model(split, model__attention=True)
    questions = make_questions(split, Question(), sets=("test",))
    assert type(answering(questions, scorer)) is Answers
    assert 0 < evaluate(scorer, split, sets="test", progress=False).metrics["test"]["mrr"] < 1


def test_progress_counts_every_candidate() -> None:
    split, told = graph(), []
    evaluate(baseline("popularity"), split, progress=lambda done, total, text="": told.append((done, total)))
    done = [now for now, _ in told]
    assert done == sorted(done)
    assert told[-1][0] == told[-1][1]
    assert len({total for _, total in told}) == 1


def test_the_card_says_filter_and_sample() -> None:
    card = evaluate(baseline("popularity"), graph(), negatives="static", progress=False).card
    assert card.negatives["filter"] == "static"
    assert card.question["candidates"] == "all"
    assert not card.notes
    big = graph(facts=8000, nodes=60)
    few = validation_questions(big, Question())
    assert len(few.asked) == VALIDATION
    assert f"val: {VALIDATION} queries drawn at random" in few.result("x", np.ones((VALIDATION, 3))).card.notes[0]


def test_inverse_relations_are_rows_of_their_own() -> None:
    stream = graph().stream
    np.testing.assert_array_equal(stream.src[::2], stream.dst[1::2])
    np.testing.assert_array_equal(stream.edge_type[::2] + 3, stream.edge_type[1::2])
    assert stream.num_relations == 6


def test_inverse_relations_do_not_look_undirected() -> None:
    assert looks_undirected(graph().stream) is None


def write(path: Path, *lines: str) -> Path:
    path.write_text("\n".join(lines) + "\n")
    return path


ROWS = ("ann,bob,0,met,train", "bob,eve,1,met,train", "eve,ann,2,left,val", "ann,eve,3,met,test")


def test_a_table_with_a_split_column(tmp_path: Path) -> None:
    table = write(tmp_path / "facts.csv", "src,dst,t,edge_type,split", *ROWS)
    split = default_split(f"tkg:{table}")
    assert (split.train_end, split.val_end, split.stream.num_events) == (4, 6, 8)
    assert split.stream.description.relations == ("left", "met", "inverse of left", "inverse of met")
    assert load(split.stream.name).fingerprint() == split.stream.fingerprint()


def test_a_folder_as_the_field_shares_them(tmp_path: Path) -> None:
    for name, lines in {"train": ("0\t0\t1\t0\t0", "1\t1\t2\t24\t0"), "valid": ("0\t0\t2\t48\t0",)}.items():
        write(tmp_path / f"{name}.txt", *lines)
    with pytest.raises(InputError, match="lacks one of"):
        load(f"tkg:{tmp_path}")
    write(tmp_path / "test.txt", "2\t1\t0\t72\t0")
    split = default_split(str(tmp_path))
    assert (split.train_end, split.val_end, split.stream.num_events) == (4, 6, 8)
    assert split.stream.t.tolist() == [0, 0, 24, 24, 48, 48, 72, 72]


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        (ROWS[:3], "no test rows"),
        ((*ROWS, "ann,bob,2,met,later"), "says 'later'"),
        ((*ROWS, "ann,bob,2,met,test"), "test rows of .* begin at 2, not after 2"),
    ],
)
def test_a_split_that_is_none_is_refused(tmp_path: Path, rows: tuple[str, ...], says: str) -> None:
    table = write(tmp_path / "facts.csv", "src,dst,t,edge_type,split", *rows)
    with pytest.raises(InputError, match=says):
        load(f"tkg:{table}")


def test_a_table_without_the_column_and_a_set_that_is_none(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no column 'split'"):
        load(f"tkg:{write(tmp_path / 'facts.csv', 'src,dst,t,edge_type', 'a,b,0,met')}")
    with pytest.raises(InputError, match="did you mean 'icews1"):
        load("tkg:icews13")


def naive_recurrency(split: Split, row: int, decay: float, alpha: float) -> list[float]:
    """As its module's first lines read, for the question of a row under strict."""
    stream = split.stream
    step = np.unique(stream.t, return_inverse=True)[1]
    s, r, now = stream.src[row], stream.edge_type[row], step[row]
    before = [i for i in range(stream.num_events) if step[i] < now]
    steps = sum(2.0 ** (decay * (tau - now)) for tau in range(now - 1)) or 1.0
    same = [i for i in before if stream.edge_type[i] == r]
    found = []
    for node in range(stream.num_nodes):
        psi = sum(2.0 ** (decay * (step[i] - now)) for i in same if stream.src[i] == s and stream.dst[i] == node)
        xi = sum(stream.dst[i] == node for i in same) / max(len(same), 1)
        found.append(alpha * psi / steps + (1 - alpha) * xi)
    return found


@pytest.mark.parametrize(("decay", "alpha"), [(0.1, 0.999), (0.0, 0.5), (1.0001, 1.0), (0.3, 0.0)])
def test_recurrency_is_its_definition(decay: float, alpha: float) -> None:
    split, asked = graph(), []

    class Noted(Recurrency):
        def score(self, plan: object, versions: None) -> np.ndarray:
            scores = super().score(plan, versions)
            asked.append((plan.queries, scores))
            return scores

    scorer = Noted(decay, alpha)
    scorer.fit(split, Question())
    questions = make_questions(split, Question(negatives="none"), sets=("test",))
    replay(scorer, split.stream, [Answers(questions)])
    rows = iter(range(split.val_end, split.stream.num_events))
    for queries, scores in asked:
        for q in range(len(queries)):
            own = slice(queries.ptr[q], queries.ptr[q + 1])
            expected = np.array(naive_recurrency(split, next(rows), decay, alpha))
            np.testing.assert_allclose(scores[own], expected[queries.cand[own]], rtol=1e-12, atol=1e-15)
    assert next(rows, None) is None


def test_settings_are_chosen_by_true_validation_ranks() -> None:
    """What the quick count of reciprocal ranks says of each setting is what ranking all nodes says."""
    split = graph()
    gains, counts = Recurrency()._validate(split, Question())
    assert counts.sum() == split.val_end - split.train_end
    for i, decay in list(enumerate(DECAYS))[::4]:
        for j, alpha in list(enumerate(ALPHAS))[::3]:
            mrr = evaluate(Recurrency(decay, alpha), split, sets="val", progress=False).metrics["val"]["mrr"]
            assert gains[:, i, j].sum() / counts.sum() == pytest.approx(mrr, abs=1e-9)


def test_chosen_settings_are_the_best_of_each_relation() -> None:
    split = graph()
    gains, counts = Recurrency()._validate(split, Question())
    best = gains.reshape(len(counts), -1).max(1).sum() / counts.sum()
    chosen = evaluate(Recurrency(), split, sets="val", progress=False).metrics["val"]["mrr"]
    assert chosen == pytest.approx(best, abs=1e-9)


def test_settings_are_named_and_checked() -> None:
    assert baseline("recurrency", settings={"recurrency.decay": 0.5})._given == {"decay": 0.5}
    with pytest.raises(ConfigError, match=r"did you mean 'recurrency\.decay'"):
        baseline("recurrency", settings={"recurrency.decai": 0.5})
    with pytest.raises(ConfigError, match=r"recurrency\.alpha is 1\.5; give a number of at least 0 and at most 1"):
        baseline("recurrency", settings={"recurrency.alpha": 1.5})
    with pytest.raises(ConfigError, match="popularity has no setting"):
        baseline("popularity", settings={"recurrency.alpha": 0.5})


def test_the_command_takes_settings(tmp_path: Path) -> None:
    table = write(tmp_path / "facts.csv", "src,dst,t,edge_type,split", *ROWS)
    told = ["evaluate", "recurrency", f"tkg:{table}", "--set", "recurrency.decay=0.1", "--json"]
    found = CliRunner().invoke(app, told)
    assert json.loads(found.stdout)["card"]["protocol"] == "tkg"


GOLDEN = [  # set, decay, alpha, MRR, hits@10: PROTOCOLS.md of the guide
    ("icews14", 0.02, 0.999, 0.3745, 0.5234),
    ("icews14", 0.1, 0.999, 0.3517, 0.4858),
    ("icews14", 0.1, 1.0, 0.3535, 0.4762),
    ("icews14", 0.01, 0.9, 0.3459, 0.5117),
    ("icews18", 0.02, 0.999, 0.2840, 0.4363),
]


@pytest.mark.parametrize(("name", "decay", "alpha", "mrr", "hits"), GOLDEN)
def test_recurrency_on_icews(name: str, decay: float, alpha: float, mrr: float, hits: float, need_data) -> None:
    need_data("streams")
    settings = {"recurrency.decay": decay, "recurrency.alpha": alpha}
    found = evaluate("recurrency", f"tkg:{name}", settings=settings, sets="test", progress=False).metrics["test"]
    assert (round(found["mrr"], 4), round(found["hits@10"], 4)) == (mrr, hits)


@pytest.mark.parametrize(("name", "mrr", "hits"), [("icews14", 37.4, 51.5), ("icews18", 28.7, 43.6)])
def test_recurrency_chosen_on_validation_is_the_published_one(name: str, mrr: float, hits: float, need_data) -> None:
    need_data("streams")
    found = evaluate("recurrency", f"tkg:{name}", sets="test", progress=False).metrics["test"]
    assert 100 * found["mrr"] == pytest.approx(mrr, abs=0.3)
    assert 100 * found["hits@10"] == pytest.approx(hits, abs=0.5)
