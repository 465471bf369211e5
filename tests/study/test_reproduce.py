"""`tsnn reproduce`: what is planned, what is stored, what is never run twice, and what a row says."""

from __future__ import annotations

import csv
import json
import shutil
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

from tests.evaluation.streams import tied_stream
from tests.study.small import DATA, SETTINGS, small_study
from tsnn.cli.reproduce import reproduce as command
from tsnn.config import CONFIGS, Config
from tsnn.data.question import Question
from tsnn.errors import ConfigError, InputError, RunError
from tsnn.evaluation.baselines import baseline, compared
from tsnn.evaluation.evaluate import evaluate
from tsnn.evaluation.formats import summary
from tsnn.evaluation.metrics import link_metrics
from tsnn.study import reproduce as module
from tsnn.study.ceilings import refresh
from tsnn.study.grids import table_lines
from tsnn.study.jobs import Job, attempt, identity_of, run_job, shuffle_ties, study_split
from tsnn.study.reproduce import Study, config_path, plan, reproduce, run_missing, write_summary
from tsnn.study.store import ResultStore
from tsnn.study.tables import DGB, TABLES, addresses
from tsnn.types import Visibility, unwatched

FLAGS = [part for name, value in SETTINGS.items() for part in ("--set", f"{name}={value}")]


@pytest.fixture(scope="module")
def stored(tmp_path_factory) -> tuple[Path, dict]:
    folder = tmp_path_factory.mktemp("study")
    return folder, reproduce("dgb", folder, small_study(), workers=1)


def test_a_row_says_everything(stored):
    (row,) = stored[1]["rows"]
    assert (row["data"], row["visibility"], row["setting"], row["seeds"]) == (DATA, "strict", "transductive", 2)
    for metric in ("ap", "auc"):
        ours = row["ours"][metric]
        assert ours["mean"] == pytest.approx(np.mean(ours["values"]))
        assert ours["std"] == pytest.approx(np.std(ours["values"], ddof=1))
        assert ours["values"][0] != ours["values"][1], "two seeds are two models"
    assert set(row["baselines"]) == set(compared())
    assert row["baselines"]["features"]["ap"]["std"] is not None
    assert row["baselines"]["edgebank"]["ap"]["std"] is None, "a heuristic has no seed"
    assert row["paper"] is None
    assert row["best_peer"] is None


def test_a_table_is_written_in_every_format(stored, tmp_path):
    folder, result = stored
    shutil.copytree(folder / "jobs", tmp_path / "jobs")
    write_summary(result, tmp_path)
    (row,) = result["rows"]
    with (tmp_path / "dgb.csv").open() as file:
        lines = list(csv.DictReader(file))
    ours = [line for line in lines if (line["scorer"], line["metric"]) == ("tsnn", "ap")]
    assert [float(line["value"]) for line in ours] == row["ours"]["ap"]["values"]
    assert [line["seed"] for line in ours] == ["0", "1"]
    assert {line["scorer"] for line in lines} >= {"tsnn", "features", "popularity", "recency"}
    assert {(line["set"], line["visibility"], line["negatives"], line["data"]) for line in lines} == {
        ("test", "strict", "random", "synthetic:roles:nodes=40,events=600")
    }
    text = (tmp_path / "dgb.tex").read_text()
    assert text.count(r"\begin{table}") == 2, "one a metric"
    best = max(mean["ap"]["mean"] for mean in (row["ours"], *row["baselines"].values()))
    assert rf"\textbf{{{best:.2f}" in text
    assert "| " + DATA in (tmp_path / "dgb.md").read_text()


def test_nothing_is_run_twice(stored, monkeypatch):
    monkeypatch.setattr(module, "attempt", lambda job: pytest.fail(f"{job} ran again"))
    assert reproduce("dgb", stored[0], small_study(), workers=1)["rows"] == stored[1]["rows"]


def test_the_inductive_table_needs_no_job_of_its_own(stored, monkeypatch):
    monkeypatch.setattr(module, "attempt", lambda job: pytest.fail(f"{job} ran again"))
    assert reproduce("dgb-inductive", stored[0], small_study(), workers=1)["rows"][0]["setting"] == "inductive"


@pytest.fixture
def small_benchmark(tmp_path, monkeypatch) -> str:
    """A DGB set of a few hundred rows, by an address that no table names."""
    stream = tied_stream(5, events=900, nodes=30, times=300)
    folder = tmp_path / "data" / "dgb" / "myket"
    folder.mkdir(parents=True)
    columns = zip((stream.src + 1).tolist(), (stream.dst + 1).tolist(), stream.t.tolist(), strict=True)
    lines = [f"{i},{u},{v},{t},0,{i + 1}" for i, (u, v, t) in enumerate(columns)]
    (folder / "ml_myket.csv").write_text("\n".join([",u,i,ts,label,idx", *lines]) + "\n")
    monkeypatch.setenv("TSNN_DATA", str(tmp_path / "data"))
    study_split.cache_clear()
    return "dgb:myket"


@pytest.mark.parametrize(
    ("table", "strategy"), [("dgb-historical", "historical"), ("dgb-inductive-negatives", "inductive")]
)
def test_tables_of_other_negatives_have_both_kinds_of_nodes(table, strategy, small_benchmark, tmp_path):
    study = small_study(data=[small_benchmark], seeds=1, visibilities=["strict", "arrival"])
    result = reproduce(table, tmp_path / "out", study, workers=1)
    rows = {(row["visibility"], row["setting"]): row for row in result["rows"]}
    assert list(rows) == [(v, s) for v in ("strict", "arrival") for s in ("transductive", "new nodes")]
    assert {"source-recency", "features"} < set(rows["strict", "transductive"]["baselines"])
    split, question = study_split(small_benchmark), Question(Visibility.parse("strict"), negatives=strategy)
    for setting, part in (("transductive", "test"), ("new nodes", "new_test")):
        row = rows["strict", setting]
        alone = evaluate(baseline("source-recency"), split, question)
        assert row["baselines"]["source-recency"]["ap"]["mean"] == alone.metrics[part]["ap"]
        assert row["ceiling"]["ap"] == alone.card.ceilings[part]["ap"]
    assert TABLES[table].visibilities == ("strict", "arrival", "batch:200")
    write_summary(result, tmp_path / "out")
    text = (tmp_path / "out" / f"{table}.md").read_text()
    assert [line for line in text.splitlines() if line.startswith("###")] == [
        "### `arrival`",
        "### `arrival`, new nodes",
        "### `strict`",
        "### `strict`, new nodes",
    ]
    with (tmp_path / "out" / f"{table}.csv").open() as file:
        lines = list(csv.DictReader(file))
    assert {(line["set"], line["negatives"]) for line in lines} == {("test", strategy), ("new_test", strategy)}
    assert all(float(line["value"]) <= 100 and float(line["ceiling"]) > 50 for line in lines)


def test_without_seeds_the_baselines_run_alone(small_benchmark, tmp_path):
    study = small_study(data=[small_benchmark], seeds=0)
    (row, _) = reproduce("dgb-historical", tmp_path / "out", study, workers=1)["rows"]
    assert (row["seeds"], row["ours"]) == (0, {})
    assert row["baselines"]["features"]["ap"]["values"]
    assert f"| {small_benchmark} (changed) | 0 | n/a |" in "\n".join(table_lines([row]))


def test_negatives_and_history_tell_jobs_apart_and_older_jobs_keep_their_keys():
    (cell,) = plan(TABLES["dgb"], [DATA], small_study(seeds=1))
    for job in cell.jobs:
        assert len({job.key, replace(job, negatives="historical").key, replace(job, history="full").key}) == 3
    changed = small_study(seeds=1, overrides={**SETTINGS, "train.history": "full"})
    (cell,) = plan(TABLES["dgb"], [DATA], changed)
    assert {job.question.history for job in cell.jobs} == {"full"}
    assert {job.question.negatives for job in plan(TABLES["dgb-historical"], [DATA], changed)[0].jobs} == {"historical"}


def test_rows_from_before_there_were_ceilings_get_them_without_a_run(stored, tmp_path, monkeypatch):
    folder, result = stored
    records = ResultStore(folder).load()
    for record in records.values():
        ResultStore(tmp_path).save("dgb", {**record, "card": {**record["card"], "ceilings": {}}})
    (row,) = result["rows"]
    old = {name: value for name, value in row.items() if name != "ceiling"} | {"peers_alike": {"nobody": {}}}
    (tmp_path / "dgb.json").write_text(json.dumps({"table": "dgb", "rows": [old]}))
    assert "ceiling" not in "\n".join(table_lines([old])), "a row without one is read all the same"
    monkeypatch.setattr(module, "attempt", lambda job: pytest.fail(f"{job} ran again"))
    assert refresh(tmp_path) == {"dgb": []}
    (found,) = json.loads((tmp_path / "dgb.json").read_text())["rows"]
    assert found["ceiling"] == row["ceiling"]
    assert found["peers_alike"] == {}


def test_an_interrupted_study_goes_on(stored, tmp_path):
    """Half of the records are there: the other half is run, and the figures are those of the whole run."""
    kept = list(ResultStore(stored[0]).load().values())[::2]
    for record in kept:
        ResultStore(tmp_path).save("dgb", record)
    counts: list[tuple[int, int]] = []
    result = reproduce("dgb", tmp_path, small_study(), workers=2, progress=lambda *now: counts.append(now))
    assert counts[0] == (len(kept), 7)
    assert counts[-1] == (7, 7)
    assert result["rows"] == stored[1]["rows"], "another number of processes gives the same figures, to the last bit"


def test_the_key_holds_everything_that_determines_a_figure():
    (cell,) = plan(TABLES["dgb"], [DATA], small_study(seeds=1))
    (job,) = cell.model
    other = Config.build(overrides={**SETTINGS, "train.lr": 0.1}).to_toml()
    changes = {"identity": "x", "visibility": "arrival", "scorer": "features", "seed": 1, "config": other}
    keys = {job.key, *(replace(job, **{name: value}).key for name, value in changes.items())}
    assert len(keys) == 1 + len(changes)
    assert job.key == replace(job).key


def test_a_record_holds_its_card_and_its_configuration(stored):
    folder, result = stored
    record = ResultStore(folder).load()[result["rows"][0]["jobs"][1]]
    assert record["card"]["visibility"] == "strict"
    assert Config.parse(record["job"]["config"]).train.seed == 1
    assert record["training"]["epochs"] == SETTINGS["train.epochs"]
    assert len(record["training"]["validation"]) >= SETTINGS["train.epochs"]
    assert record["metrics"]["test"]["ap"] == result["rows"][0]["ours"]["ap"]["values"][1]


def test_a_job_that_fails_leaves_the_others_stored(tmp_path):
    cell = plan(TABLES["dgb"], [DATA], small_study(seeds=1))[0]
    bad = replace(cell.model[0], identity="other rows")
    with pytest.raises(RunError, match=r"1 of 2 jobs failed.*copy the same files"):
        run_missing(
            [bad, cell.baselines["popularity"][0]], ResultStore(tmp_path), "dgb", partial(map, attempt), unwatched
        )
    assert list(ResultStore(tmp_path).load()) == [cell.baselines["popularity"][0].key]


def test_a_job_is_the_evaluation_of_its_baseline():
    split = study_split(DATA)
    record = run_job(Job(DATA, identity_of(split), "strict", "popularity", 0))
    assert record["metrics"]["test"].keys() >= link_metrics(np.ones(3), np.zeros(3)).keys()
    assert record["scorer"] == "popularity"


# Planning


def test_the_ablation_switches_one_thing_at_a_time():
    cells = plan(TABLES["ablation"], [DATA], Study(seeds=1, visibilities=["arrival"]))
    trees = {cell.variant: Config.parse(cell.model[0].config).model_dump() for cell in cells}
    assert len(trees) == 7
    core = trees.pop("core")
    assert core["model"]["edgebank"] is False
    changed = {
        name: [(part, key) for part in core for key in core[part] if tree[part][key] != core[part][key]]
        for name, tree in trees.items()
    }
    assert changed == {
        "no-residual": [("model", "residual")],
        "no-transport": [("model", "transport")],
        "fixed-frames": [("model", "frame_update")],
        "no-carry-over": [("model", "carry_over")],
        "no-smooth": [("train", "loss")],
        "no-diffusion": [("model", "diffusion_steps")],
    }
    assert {cell.visibility for cell in cells} == {"arrival"}


def test_absent_data_says_where_its_files_belong(tmp_path, monkeypatch):
    monkeypatch.setenv("TSNN_DATA", str(tmp_path))
    present, absent = addresses(TABLES["dgb"], None)
    assert present == []
    assert [entry["data"] for entry in absent] == list(DGB)
    assert absent[0]["put_files_in"].startswith(str(tmp_path))
    with pytest.raises(ConfigError, match="dgb:wikipedia into"):
        reproduce("dgb", tmp_path / "out", Study())
    with pytest.raises(InputError, match=r"put ml_reddit.csv"):
        reproduce("dgb", tmp_path / "out", Study(data=["reddit"]))
    assert not (tmp_path / "out").exists()


def test_names_are_short_for_addresses():
    assert addresses(TABLES["dgb"], ["uci", DATA])[0] == ["dgb:uci", DATA]
    assert addresses(TABLES["tgb"], ["tgbl-wiki"])[0] == ["tgb:tgbl-wiki"]


@pytest.mark.parametrize(
    ("table", "study", "says"),
    [
        ("nothing", Study(), "no table 'nothing'"),
        ("dgb", Study(data=[DATA], seeds=-1), "--seeds -1"),
        ("dgb", Study(data=[DATA], visibilities=["all"]), "strict, arrival, batch:N"),
        ("dgb", Study(data=[DATA], overrides={"model.nonsense": 1}), "nonsense"),
    ],
)
def test_bad_input_is_one_sentence_and_writes_nothing(table, study, says, tmp_path):
    with pytest.raises(ConfigError, match=says):
        reproduce(table, tmp_path / "out", study, workers=1)
    assert not (tmp_path / "out").exists()


def test_shuffled_ties_keep_rows_times_and_bounds(need_data):
    need_data("dgb/USLegis")
    split = study_split("dgb:USLegis")
    shuffled = shuffle_ties(split)
    a, b = split.stream, shuffled.stream
    assert (a.t == b.t).all()
    assert (a.dst != b.dst).any()
    rows = [np.lexsort((s.dst, s.src, s.t)) for s in (a, b)]
    assert (a.src[rows[0]] == b.src[rows[1]]).all()
    assert (a.dst[rows[0]] == b.dst[rows[1]]).all()
    assert (split.new_node == shuffled.new_node).all()
    assert identity_of(split) != identity_of(shuffled)


# Configurations


def test_a_file_for_one_visibility_goes_first(tmp_path):
    (tmp_path / "uci.toml").touch()
    (tmp_path / "uci.batch.toml").touch()
    assert config_path("dgb:uci", "strict", tmp_path) == tmp_path / "uci.toml"
    assert config_path("dgb:uci", "batch:200", tmp_path) == tmp_path / "uci.batch.toml"
    assert config_path("dgb:enron", "strict", tmp_path) is None


def test_a_job_has_the_configuration_of_its_data_visibility_and_overrides():
    def config(**asked) -> Config:
        study = Study(seeds=1, visibilities=["batch:200"], overrides={"model.stalk_dim": 8}, **asked)
        return Config.parse(plan(TABLES["dgb"], [DATA], study)[0].model[0].config)

    expected = {"model.stalk_dim": 8, "train.visibility": "batch:200", "train.seed": 0}
    assert config() == config(tuned=False) == Config.build(overrides=expected)


def test_the_package_carries_its_configurations():
    assert config_path("dgb:uci", "strict") == CONFIGS / "uci.toml"
    assert all(isinstance(Config.build(path), Config) for path in CONFIGS.glob("*.toml"))


# The command


def test_the_summary_keeps_the_rows_of_other_data(stored, tmp_path):
    shutil.copytree(stored[0] / "jobs", tmp_path / "jobs")
    first = {**stored[1]["rows"][0], "kind": "", "data": "dgb:uci"}
    for seeds, data in ((5, "dgb:uci"), (3, "dgb:enron"), (1, "dgb:uci")):
        write_summary({"table": "dgb", "rows": [{**first, "data": data, "seeds": seeds}]}, tmp_path)
    whole = json.loads((tmp_path / "dgb.json").read_text())
    assert [(row["data"], row["seeds"]) for row in whole["rows"]] == [("dgb:enron", 3), ("dgb:uci", 1)]
    assert "dgb:enron" in (tmp_path / "dgb.md").read_text()
    assert "<svg" in (tmp_path / "dgb.svg").read_text()


def test_a_deviation_needs_two_seeds():
    assert summary([2.0])["std"] is None
    assert summary([1.0, 3.0])["std"] == pytest.approx(2**0.5)


def invoke(*arguments: str):
    app = typer.Typer()
    app.command()(command)
    return CliRunner().invoke(app, list(arguments))


def test_the_command_prints_one_object(stored):
    asked = ["dgb", "--data", DATA, "--seeds", "2", "--visibility", "strict", *FLAGS, "--out", str(stored[0])]
    printed = invoke(*asked, "--json")
    assert printed.exit_code == 0, printed.output
    assert json.loads(printed.stdout)["rows"] == stored[1]["rows"]
    shown = invoke(*asked)
    assert "### `strict`" in shown.stdout
    assert f"| {DATA} (changed) | 2 (" in shown.stdout


def test_the_committed_figures_are_compared(stored, tmp_path, monkeypatch):
    """A project that holds the same jobs: equal figures differ by nothing, a changed one by its change."""
    (tmp_path / "pyproject.toml").write_text("")
    shutil.copytree(stored[0] / "jobs", tmp_path / "results" / "jobs")
    monkeypatch.chdir(tmp_path)
    assert reproduce("dgb", stored[0], small_study())["committed"] == {"jobs": 7, "largest_difference": 0.0}
    committed = ResultStore(tmp_path / "results")
    record = committed.load()[stored[1]["rows"][0]["jobs"][0]]
    record["metrics"]["test"]["auc"] += 0.5
    committed.save("dgb", record)
    again = reproduce("dgb", stored[0], small_study())["committed"]
    assert again["largest_difference"] == pytest.approx(0.5)
