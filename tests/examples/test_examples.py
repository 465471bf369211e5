"""The examples run, stay short, and do what they say."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest

from tests.repositories import Repository

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = sorted((ROOT / "examples").glob("*.py"))
TINY = {"train.epochs": 1, "model.stalk_dim": 8, "model.hidden_dim": 8}


def example(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / "examples" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_each_of_them_is_short_and_run_by_a_test():
    tests = Path(__file__).read_text()
    assert SCRIPTS
    assert [path.stem for path in SCRIPTS if f'example("{path.stem}").main(' not in tests] == []
    assert all(len(path.read_text().splitlines()) < 60 for path in SCRIPTS)


def test_train_and_ask(tmp_path, capsys):
    rows = "\n".join(f"user{i % 7},item{i % 5},{i}" for i in range(200))
    (tmp_path / "log.csv").write_text(f"src,dst,t\n{rows}\n")
    example("train_and_ask").main(str(tmp_path / "log.csv"), tmp_path / "run", **TINY)
    said = capsys.readouterr().out
    assert "200 events of 12 nodes, visibility strict" in said
    assert "who does 'user3' meet next?" in said
    assert "1. '" in said
    assert "features" in said


def test_shop(tmp_path, capsys):
    example("shop").main(tmp_path / "run", rows=400, **TINY)
    said = capsys.readouterr().out
    assert "price     feature                 numbers, 3" in said
    assert "channel   ignored" in said
    assert "6 rows left out as repeats of an earlier row" in said, "of seven; one has no price and is gone already"
    ranked = [line.split()[4] for line in said.splitlines() if line.startswith("  from ")]
    assert len(ranked) == 5
    assert all(article.startswith(("tea-", "books-", "garden-", "bikes-")) for article in ranked), (
        "customers are no answer"
    )


def test_live_loop(tmp_path):
    mean = example("live_loop").main(tmp_path / "run", history=400, live=60, **TINY)
    assert 0.05 < mean <= 1


@pytest.mark.slow
def test_lightgbm_on_facts(capsys):
    found = example("lightgbm_on_facts").main("synthetic:roles:events=1500,nodes=60")
    assert "9,000 rows of 53 facts, 17% of them events" in capsys.readouterr().out
    assert found["boosted trees"] > max(found["EdgeBank"], found["popularity"])


@pytest.mark.slow
def test_live_loop_beats_chance(tmp_path):
    assert example("live_loop").main(tmp_path / "run") > 0.25


@pytest.mark.slow
def test_contacts(tmp_path, capsys):
    shares = example("contacts").main(tmp_path / "run", rows=1200, **TINY | {"train.warmup": 2})
    assert "contacts, test AP" in capsys.readouterr().out
    assert min(shares) > 0.5  # three friends on either side; by chance, five of sixty


def test_add_a_feature(tmp_path, capsys):
    example("add_a_feature").main(tmp_path / "run", data="synthetic:roles:events=400,nodes=40", **TINY)
    said = capsys.readouterr().out
    assert "weight chosen on validation rows" in said
    assert "test AP without" in said


def test_own_scorer(capsys):
    example("own_scorer").main(rows=1500)
    said = capsys.readouterr().out
    assert "FadingCounts keeps every promise of a scorer under strict, arrival, batch:7:" in said
    assert "peeking gets no figures: under strict, what a question may not see changes no answer, but" in said
    bank, own = (float(ap) for ap in re.findall(r": test AP ([\d.]+)", said))
    assert 50 < bank < own < 100


def test_the_feature_is_added_to_the_score(tmp_path):
    """With a weight, scores change by exactly the weighted feature."""
    import numpy as np

    import tsnn
    from tsnn.data.queries import pairs
    from tsnn.evaluation.replay import score_queries
    from tsnn.evaluation.scorer import plan_blocks
    from tsnn.plan.planner import Planner

    module = example("add_a_feature")
    data = "synthetic:roles:events=400,nodes=40"
    run = tsnn.train(data, tmp_path / "run", tsnn.Config.build(overrides=TINY), compare=False)
    stream = tsnn.load(data)
    rows = np.arange(300, 400)
    asked = pairs(stream, rows, rows, stream.dst[rows], stream.src[rows])
    plain, changed = tsnn.ModelScorer(run.model, stream), module.WithFeature(run.model, stream)
    changed.weight = 2.0
    facts = np.concatenate([block.score.facts for _, block in plan_blocks(Planner(stream, plain.spec), asked)])
    difference = score_queries(changed, stream, asked) - score_queries(plain, stream, asked)
    np.testing.assert_allclose(difference, 2.0 * module.reciprocity(facts), atol=1e-5)
    assert difference.max() > 1, "some of these pairs have met the other way round"


@pytest.mark.slow
def test_next_files(tmp_path, capsys):
    repository = Repository(tmp_path / "project")
    for i in range(60):  # ann works on the first three files, bob on the others
        who = ("ann", "bob")[i % 2]
        repository.commit(who, **{f"{who}{i // 2 % 3}_py": f"{i}\n", f"{who}{(i // 2 + 1) % 3}_py": f"{i}\n"})
    example("next_files").main(repository.folder, tmp_path / "runs", **TINY)
    said = capsys.readouterr().out
    assert "120 changes, test MRR" in said
    assert "which files does ann touch next?\n  1. ann" in said
    assert re.search(r"who should review ann\d\.py\?\n  1\. ann\n  2\. bob\n", said)
