"""`tsnn tune`: resumable, pruned, and blind to the test rows."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

from tests.study.small import DATA, SETTINGS
from tsnn.cli.tune import tune as command
from tsnn.config import Config
from tsnn.data.dgb import load_dgb, split_dgb
from tsnn.data.negatives import DgbNegatives
from tsnn.data.table import write_table
from tsnn.errors import ConfigError, InputError
from tsnn.evaluation.catalog import default_split, load
from tsnn.evaluation.model import COUNTS_ONLY
from tsnn.study.tune import CHOICES, LOG_RANGES, Search, default_point, objective, tune, without_test, write_config

optuna = pytest.importorskip("optuna", reason="needs optuna; install it with pip install 'tsnn[tune]'")
pytestmark = pytest.mark.slow
FIXED = {**SETTINGS, "train.epochs": 2}
SEARCH = Search(DATA, "strict", FIXED)


@pytest.fixture(scope="module")
def tuned(tmp_path_factory) -> tuple[Path, dict]:
    storage = tmp_path_factory.mktemp("tune") / "study.db"
    return storage, tune(SEARCH, storage, trials=2, workers=1)


def trials(storage: Path, search: Search = SEARCH) -> list:
    return optuna.load_study(study_name=search.name, storage=f"sqlite:///{storage}").trials


def test_the_first_trial_is_the_default_and_the_best_is_never_below_it(tuned):
    first = trials(tuned[0])[0]
    assert first.params == default_point()
    assert tuned[1]["defaults"] == first.value
    assert tuned[1]["best"]["validation"] == max(trial.value for trial in trials(tuned[0]))


def test_the_default_lies_in_the_space():
    point = default_point()
    assert all(low <= point[name] <= high for name, (low, high) in LOG_RANGES.items())
    assert all(point[name] in values for name, values in CHOICES.items())
    Config.build(overrides=point)


def test_a_search_goes_on_where_it_stopped(tuned):
    storage, before = tuned
    again = tune(SEARCH, storage, trials=2, workers=1)
    assert again == before, "two trials were asked for and two are there"
    tune(SEARCH, storage, trials=3, workers=1)
    assert len(trials(storage)) == 3
    assert trials(storage)[0].value == before["defaults"]


def test_no_test_row_is_ever_seen(tmp_path):
    """Two tables that differ in every test row, and in nothing else, get the same trials to the last bit."""
    stream = default_split(load(DATA)).stream
    val_end = default_split(stream).val_end
    rng = np.random.default_rng(0)
    src, dst, msg = stream.src.copy(), stream.dst.copy(), stream.msg.copy()
    src[val_end:], dst[val_end:] = rng.permutation(src[val_end:]), rng.permutation(dst[val_end:])
    msg[val_end:] = 1e3
    found = []
    for name, columns in (("whole", {}), ("garbled", {"src": src, "dst": dst, "msg": msg})):
        path = tmp_path / f"{name}.parquet"
        write_table(replace(stream, **columns), path)
        search = Search(str(path), "strict", FIXED)
        tune(search, tmp_path / "study.db", trials=2, workers=1)
        found.append([(t.value, t.intermediate_values, t.params) for t in trials(tmp_path / "study.db", search)])
    assert found[0] == found[1]


def test_the_negatives_of_a_suite_come_from_the_rows_that_are_left(need_data):
    split = split_dgb(load_dgb(need_data("dgb/uci")))
    cut = without_test(split)
    assert cut.stream.num_events == cut.val_end == split.val_end
    assert (cut.stream.dst == split.stream.dst[: split.val_end]).all()
    assert (cut.new_node == split.new_node).all()
    drawn = DgbNegatives(cut, "val")
    assert len(drawn) == split.val_end - split.train_end
    late = np.setdiff1d(split.stream.dst[split.val_end :], cut.full.dst)
    assert len(late)
    assert not np.isin(drawn.neg_dst, late).any()


class Pruning:
    """A trial with the default point that is told to stop after its first report."""

    def __init__(self):
        self.reported = []

    def suggest_float(self, name, low, high, log):
        return default_point()[name]

    def suggest_categorical(self, name, values):
        return default_point()[name]

    def report(self, value, step):
        self.reported.append((step, value))

    def should_prune(self):
        return True


def test_a_trial_below_the_median_stops_after_its_epoch():
    trial = Pruning()
    with pytest.raises(optuna.TrialPruned):
        objective(trial, SEARCH, without_test(default_split(load(DATA))))
    assert len(trial.reported) == 1


def test_time_that_is_up_begins_no_trial(tuned):
    before = len(trials(tuned[0]))
    tune(SEARCH, tuned[0], trials=before + 5, timeout=0, workers=1)
    assert len(trials(tuned[0])) == before


def test_the_file_holds_what_differs_from_the_defaults(tuned, tmp_path):
    path = tmp_path / "best.toml"
    write_config(tuned[1], path, "tsnn tune DATA")
    config = Config.build(path)
    assert config == Config.build(overrides=tuned[1]["best"]["settings"])
    assert "validation rows alone: tsnn tune DATA" in path.read_text()
    assert "reflector_eps" not in path.read_text()


def test_bad_input_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="--trials 0"):
        tune(SEARCH, tmp_path / "a.db", trials=0)
    with pytest.raises(ConfigError, match="nonsense"):
        tune(Search(DATA, "strict", {"model.nonsense": 1}), tmp_path / "a.db", trials=1)
    with pytest.raises(InputError, match=r"absent.csv"):
        tune(Search("absent.csv"), tmp_path / "a.db", trials=1)
    assert not (tmp_path / "a.db").exists()


def test_the_command_prints_one_object(tuned, tmp_path):
    app = typer.Typer()
    app.command()(command)
    flags = [part for name, value in FIXED.items() for part in ("--set", f"{name}={value}")]
    asked = [DATA, "--trials", "1", "--storage", str(tuned[0]), *flags, "--out", str(tmp_path / "c.toml"), "--json"]
    printed = CliRunner().invoke(app, asked)
    assert printed.exit_code == 0, printed.output
    assert json.loads(printed.stdout)["best"]["validation"] >= tuned[1]["best"]["validation"]
    assert (tmp_path / "c.toml").is_file()


def test_a_best_trial_without_states_says_so(tmp_path):
    fixed = {**FIXED, "train.epochs": 0}
    flags = [part for name, value in fixed.items() for part in ("--set", f"{name}={value}")]
    app = typer.Typer()
    app.command()(command)
    shown = CliRunner().invoke(app, [DATA, "--trials", "1", "--storage", str(tmp_path / "a.db"), *flags])
    assert shown.exit_code == 0, shown.output
    assert " ".join(shown.output.split()).count(COUNTS_ONLY) == 1
