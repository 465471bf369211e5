"""`--population`: jobs of one shape share a population, and the figures are those of the runs one by one."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from tests.engine import emulated
from tests.study.small import DATA, small_study
from tsnn.config import Config
from tsnn.errors import ConfigError
from tsnn.study import jobs as store
from tsnn.study import populations as module
from tsnn.study import tune as search
from tsnn.study.jobs import run_job, study_split
from tsnn.study.populations import attempt_population, populations, shelves
from tsnn.study.reproduce import Study, plan, reproduce
from tsnn.study.tables import TABLES
from tsnn.training.turns import finish, side_by_side

TINY = {
    "model.stalk_dim": 4, "model.num_reflectors": 1, "model.hidden_dim": 4, "model.score_dim": 4,
    "model.num_neighbors": 2, "train.epochs": 1, "train.warmup": 1, "train.chunk": 10, "train.dtype": "float64",
    "model.partners": False,
}  # fmt: skip


@pytest.fixture
def tiny_uci(tmp_path, monkeypatch):
    """Sixty rows in the place of UCI, kernels on the host, groups of two."""
    emulated.small_stacks(monkeypatch)
    rng = np.random.default_rng(0)
    folder = tmp_path / "data" / "dgb" / "uci"
    folder.mkdir(parents=True)
    pairs = zip(rng.integers(1, 7, 60), rng.integers(5, 12, 60), strict=True)
    rows = [f"{i},{u},{v},{i // 2}.0,0,{i + 1}" for i, (u, v) in enumerate(pairs)]
    (folder / "ml_uci.csv").write_text("\n".join([",u,i,ts,label,idx", *rows, ""]))
    monkeypatch.setenv("TSNN_DATA", str(tmp_path / "data"))
    for part in (module, search):
        monkeypatch.setattr(part, "gpu", lambda: torch.device("cpu"))
    for cached in (study_split, search._tuning_split):
        cached.cache_clear()
    yield
    for cached in (study_split, search._tuning_split):
        cached.cache_clear()


def planned(**changes) -> list[store.Job]:
    study = Study(["uci"], 3, ["strict"], overrides=TINY, **changes)
    (cell,) = plan(TABLES["dgb"], ["dgb:uci"], study)
    return cell.model


def test_figures_are_those_of_the_jobs_one_by_one(tiny_uci):
    jobs = planned()
    for job, outcome in zip(jobs, finish(attempt_population(jobs, torch.device("cpu"))), strict=True):
        alone = run_job(job)
        assert outcome.record["key"] == job.key
        assert outcome.record["population"] == 3
        assert outcome.record["training"]["best_epoch"] == alone["training"]["best_epoch"]
        for segment, figures in alone["metrics"].items():
            assert outcome.record["metrics"][segment] == pytest.approx(figures, abs=1e-6), segment
        assert outcome.record["card"] == alone["card"]


def test_any_table_can_be_a_population(tiny_uci):
    """A table of a user's own has the figures of the protocol `stream`, as one by one."""
    data = "synthetic:roles:events=80,nodes=24"
    (cell,) = plan(TABLES["dgb"], [data], Study([data], 2, ["strict"], overrides=TINY))
    for job, outcome in zip(cell.model, finish(attempt_population(cell.model, torch.device("cpu"))), strict=True):
        alone = run_job(job)
        assert outcome.record["card"] == alone["card"]
        assert set(outcome.record["metrics"]["test"]) == {*alone["metrics"]["test"]} >= {"ap", "mrr"}
        # a negative may be the positive itself, and rounding breaks such a tie in a dozen rows
        assert outcome.record["training"]["validation"] == pytest.approx(alone["training"]["validation"], abs=2.0)


def test_an_ablation_runs_its_variants_side_by_side(tiny_uci, tmp_path, monkeypatch):
    """Seven variants of a seed each are seven populations on one card; figures and order are those of the table."""
    at_once = []

    def counting(works, device):
        at_once.append(len(works))
        return side_by_side(works, device)

    monkeypatch.setattr(module, "side_by_side", counting)
    study = Study(["dgb:uci"], 1, ["strict"], overrides=TINY, population=8)
    rows = reproduce("ablation", tmp_path, study, workers=1)["rows"]
    variants = TABLES["ablation"].variants
    assert [row["variant"] for row in rows] == list(variants)
    assert at_once == [len(variants) - 1], "no-smooth differs in a loss weight alone and joins the yardstick"
    assert all(len(row["ours"]["ap"]["values"]) == 1 for row in rows)


def test_a_population_that_fails_takes_no_other_with_it(tiny_uci):
    good, bad = planned(), [replace(job, identity="other rows") for job in planned()]
    works = [attempt_population(jobs, torch.device("cpu")) for jobs in (bad, good)]
    failed, done = side_by_side(works, torch.device("cpu"))
    assert all(outcome.record is None and "other rows" in outcome.error for outcome in failed)
    assert [outcome.record["key"] for outcome in done] == [job.key for job in good]


def test_a_table_and_a_search_by_population(tiny_uci, tmp_path):
    study = Study(["uci"], 2, ["strict"], overrides=TINY, population=2)
    (row,) = reproduce("dgb", tmp_path, study, workers=1)["rows"]
    assert row["kind"] == "changed gpu"
    assert len(row["ours"]["ap"]["values"]) == 2
    pytest.importorskip("optuna", reason="needs optuna; install it with pip install 'tsnn[tune]'")
    asked = search.Search("dgb:uci", "strict", TINY)
    found = search.tune(asked, tmp_path / "study.db", trials=3, population=2)
    assert found["trials"] == {"complete": 3}
    assert found["best"]["validation"] >= found["defaults"]
    assert {"train.lr", "train.loss.geo", "model.kappa", "train.negatives"} <= set(found["best"]["settings"])
    assert search.tune(asked, tmp_path / "study.db", trials=3, population=2) == found, "nothing was left to run"


def test_a_search_tries_shapes_side_by_side(tiny_uci, tmp_path, monkeypatch):
    """Pairs of trials share what a population must share, and differ in the rest; the first pair has the defaults'."""
    optuna = pytest.importorskip("optuna", reason="needs optuna; install it with pip install 'tsnn[tune]'")
    monkeypatch.setattr(search, "OF_ONE_SHAPE", 2)
    asked = search.Search("dgb:uci", "strict", TINY)
    search.tune(asked, tmp_path / "study.db", trials=4, population=4)
    trials = optuna.load_study(study_name=asked.name, storage=f"sqlite:///{tmp_path / 'study.db'}").trials
    shapes = [{name: value for name, value in t.params.items() if name not in search.FREE} for t in trials]
    default = {name: value for name, value in search.default_point().items() if name not in search.FREE}
    assert shapes[0] == shapes[1] == default
    assert shapes[2] == shapes[3] != default
    assert len({t.params["train.lr"] for t in trials}) == 4
    assert all(t.value is not None for t in trials)


def test_only_runs_of_one_shape_share_a_population():
    def job(seed: int, **changes) -> store.Job:
        settings = {name.replace("__", "."): value for name, value in changes.items()}
        text = Config.build(overrides={**settings, "train.seed": seed}).to_toml()
        return store.Job("dgb:uci", "x", "strict", "tsnn", seed, text)

    alike = [job(seed, train__lr=0.001 * (1 + seed)) for seed in range(5)]
    wide, other = job(0, model__stalk_dim=32), replace(alike[0], identity="y")
    found = populations([*alike[:2], wide, other, *alike[2:]], 4)
    assert found == [alike[:4], alike[4:], [wide], [other]]
    assert shelves(found, 4) == [[alike[:4]], [alike[4:], [wide], [other]]]


def test_without_a_gpu_it_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "has_cupy", lambda: False)
    with pytest.raises(ConfigError, match="needs a GPU and CuPy"):
        reproduce("dgb", tmp_path, small_study(population=2), workers=1)
    with pytest.raises(ConfigError, match="needs a GPU and CuPy"):
        search.tune(search.Search(DATA), tmp_path / "study.db", trials=1, population=2)
