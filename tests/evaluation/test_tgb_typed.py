"""TGB's sets with relations, made small in the format of their files: loaded, trained and evaluated from end to end."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest

import tsnn
from tsnn.config import Config
from tsnn.data.question import Question
from tsnn.evaluation.catalog import default_split
from tsnn.evaluation.evaluate import make_questions

TINY = {"train.epochs": 1, "train.warmup": 1, "model.stalk_dim": 8, "model.hidden_dim": 8}
ROWS = 300


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TSNN_DATA", str(tmp_path / "data"))
    return tmp_path / "data" / "tgb"


def write_thgl(root: Path) -> None:
    """Users (type 0) act on repositories (1) in two ways; 15 negatives of the right type by (time, head, relation)."""
    rng = np.random.default_rng(0)
    folder = root / "thgl_software"
    folder.mkdir(parents=True)
    users, repositories = np.arange(100, 112), np.arange(200, 220)
    lines = [f"{1000 + i},{rng.choice(users)},{rng.choice(repositories)},{i % 2}" for i in range(ROWS)]
    (folder / "thgl-software_edgelist.csv").write_text("\n".join(["timestamp,head,tail,relation_type", *lines]) + "\n")
    types = [f"{node},{int(node >= 200)}" for node in (*users, *repositories)]
    (folder / "thgl-software_nodetype.csv").write_text("\n".join(["node_id,type", *types]) + "\n")
    split = default_split("tgb:thgl-software")
    stream = split.stream
    assert stream.node_type is not None
    assert stream.edge_type is not None
    of_type = np.flatnonzero(stream.node_type == 1)
    for segment in ("val", "test"):
        a, b = split.bounds(segment)
        samples = {}
        for row in range(a, b):
            key = (int(stream.t[row]), int(stream.src[row]), int(stream.edge_type[row]))
            samples[key] = rng.choice(of_type[of_type != stream.dst[row]], 15, replace=False)
        (folder / f"thgl-software_{segment}_ns.pkl").write_bytes(pickle.dumps(samples))


@pytest.mark.slow
def test_thgl_from_file_to_figure(root: Path, tmp_path: Path) -> None:
    write_thgl(root)
    run = tsnn.train("tgb:thgl-software", tmp_path / "run", Config.of(TINY), compare=False, progress=False)
    card = run.metrics["card"]
    assert (card["protocol"], card["data"]["relations"], card["data"]["node_types"]) == ("tgb", 2, 2)
    assert card["negatives"]["mean_per_positive"]["test"] == 15
    again = tsnn.evaluate(run, "tgb:thgl-software", progress=False)
    assert again.metrics == run.metrics["metrics"]
    assert 0 < again.metrics["test"]["mrr"] <= 1


def write_tkgl(root: Path, name: str) -> Path:
    """Facts of few days; smallpedia names nodes and relations, the others number them."""
    rng = np.random.default_rng(1)
    folder = root / name.replace("-", "_")
    folder.mkdir(parents=True)
    node, relation = ("Q{}", "P{}") if name == "tkgl-smallpedia" else ("{}", "{}")
    lines = [
        f"{i // 6},{node.format(rng.integers(20))},{node.format(rng.integers(20))},{relation.format(rng.integers(3))}"
        for i in range(ROWS)
    ]
    (folder / f"{name}_edgelist.csv").write_text("\n".join(["timestamp,head,tail,relation_type", *lines]) + "\n")
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("name", ["tkgl-smallpedia", "tkgl-icews"])
def test_tkgl_from_file_to_figure(root: Path, tmp_path: Path, name: str) -> None:
    write_tkgl(root, name)
    run = tsnn.train(f"tkg:{name}", tmp_path / "run", Config.of(TINY), compare=False, progress=False)
    assert run.metrics["card"]["protocol"] == "tkg"
    assert run.metrics["card"]["data"]["relations"] == 6
    again = tsnn.evaluate(run, f"tkg:{name}", progress=False)
    assert again.metrics == run.metrics["metrics"]


@pytest.mark.parametrize(("name", "shares"), [("tkgl-icews", (0.15, 0.15)), ("tkgl-yago", (0.1, 0.1))])
def test_tkgl_splits_and_filters_as_its_evaluator(root: Path, name: str, shares: tuple[float, float]) -> None:
    """The candidates are all destinations but the conflicts: what is true of the same time, head and relation."""
    folder = write_tkgl(root, name)
    split = default_split(str(folder))
    stream = split.stream
    assert stream.edge_type is not None
    cut = np.quantile(stream.t, [1 - sum(shares), 1 - shares[1]])
    assert (split.train_end, split.val_end) == tuple(np.searchsorted(stream.t, cut, side="right"))
    first = [line.split(",") for line in (folder / f"{name}_edgelist.csv").read_text().splitlines()[1:]]
    appeared = list(dict.fromkeys(node for _, head, tail, _ in first for node in (head, tail)))
    assert [str(node) for node in stream.ids.external] == appeared
    facts = list(zip(stream.t, stream.src, stream.edge_type, stream.dst, strict=True))
    questions = make_questions(split, Question(), sets=("test",))
    asked = questions.asked.slice(0, len(questions.asked))
    for q, (t, s, r, o) in enumerate(facts[split.val_end :]):
        conflicts = {b for when, a, relation, b in facts if (when, a, relation) == (t, s, r)}
        own = asked.cand[asked.ptr[q] : asked.ptr[q + 1]].tolist()
        assert own[0] == o
        assert sorted(own[1:]) == [node for node in range(stream.num_nodes) if node not in conflicts]
