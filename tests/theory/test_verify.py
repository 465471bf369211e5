"""`tsnn verify`: every statement on a trained run, and each failing where and only where it should."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import typer
from typer.testing import CliRunner

from tsnn.cli.verify import verify as verify_command
from tsnn.config import Config
from tsnn.data.events import EventStream
from tsnn.errors import InputError
from tsnn.evaluation.catalog import default_split, load
from tsnn.evaluation.health import MEASURES
from tsnn.model.tsnn import TSNN
from tsnn.theory.sample import fit_dense, sample_events, sample_rows
from tsnn.theory.verify import Verification, verify
from tsnn.training.run import Run
from tsnn.training.train import train
from tsnn.training.trainer import build_model

DATA = "synthetic:roles:events=600,nodes=40"
TINY = {"train.epochs": 1, "model.stalk_dim": 8, "model.hidden_dim": 8, "model.num_neighbors": 4}
EVERY = {
    *("eq:householder_product", "lem:low_rank", "lem:houshlip", "eq:smooth_lipschitz", "rem:houshlip"),
    *("prop:carry_over", "lem:flat_transport", "prop:sync_equiv", "cor:spectral_equivalence", "thm:energy"),
    *("thm:feature_scaled", "cor:energy_descent", "thm:nonexpansive", "thm:stale", "rem:drift_control"),
    *("rem:spectral_bound", "prop:psi_equiv", "prop:twl", "alg:tsnn"),
}


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Run:
    folder = tmp_path_factory.mktemp("verify") / "run"
    return train(DATA, folder, Config.build(overrides=TINY), compare=False)


@pytest.fixture(scope="module")
def stream() -> EventStream:
    return default_split(load(DATA)).stream


def untrained(stream: EventStream, **switches: object) -> TSNN:
    settings = {name.replace("__", "."): value for name, value in switches.items()}
    return build_model(Config.build(overrides=TINY | settings), default_split(stream))


def failures(outcome: Verification) -> set[str]:
    return {statement.label for statement in outcome.statements if not statement.passed}


def test_what_the_states_do_is_told_beside_the_statements(run):
    app = typer.Typer()
    app.command()(verify_command)
    shown = CliRunner().invoke(app, [str(run.folder), "--sample", "2"])
    assert shown.exit_code == 0, shown.output
    assert "What the states do" in shown.output
    for name, measure in MEASURES.items():
        line = next(line for line in shown.output.splitlines() if line.startswith(f"│ {measure.title} "))
        assert f" {measure.show(run.metrics['states'][name])} " in line
        assert measure.limit in line
    assert json.loads((run.folder / "verify.json").read_text())["states"] == run.metrics["states"]


def test_every_statement_holds_on_a_trained_run(run, stream):
    outcome = verify(run.model, stream, samples=4)
    assert {statement.label for statement in outcome.statements} == EVERY
    assert failures(outcome) == set()
    assert outcome.passed
    assert all(s.events == 4 for s in outcome.statements if s.label != "prop:psi_equiv")
    assert outcome.facts.largest_active_set > 2, "the sampled events have neighbors"


def test_the_scope_names_what_is_outside_the_class(run, stream):
    claims = [s.claim for s in verify(run.model, stream, samples=2).statements if s.label == "prop:psi_equiv"]
    assert len(claims) == 3
    assert "MLP_msg does not commute" in claims[1]
    assert "GRU does not commute" in claims[2]


@pytest.mark.parametrize(
    ("times", "expected"),
    [
        (0.99, {"thm:nonexpansive", "cor:energy_descent"}),
        (3.0, {"thm:nonexpansive", "cor:energy_descent", "thm:feature_scaled", "rem:spectral_bound"}),
    ],
)
def test_a_forced_step_fails_the_statements_it_should(run, stream, times, expected):
    """rem:spectral_bound: 1/2 and 1 bound the normalized statements, 1 / max(D_theta) the feature-scaled ones."""
    bound = verify(run.model, stream, samples=1).facts.step_bound
    assert bound > 1.05, "the gain is below 1 here, so the normalized bounds are passed first"
    failed = failures(verify(run.model, stream, samples=3, step_size=times * bound))
    assert failed - {"thm:stale"} == expected  # stale frames widen their own bound, so it may hold or not
    assert times > 1 or "thm:stale" not in failed


def test_a_step_between_the_normalized_bounds_fails_firmness_alone(run, stream):
    """thm:nonexpansive asks for 1/2, cor:energy_descent for 1."""
    assert failures(verify(run.model, stream, samples=3, step_size=0.8)) == {"thm:nonexpansive"}


def test_without_carry_over_its_proposition_fails_and_nothing_else(stream):
    """prop:carry_over."""
    model = untrained(stream, model__carry_over=False)
    assert failures(verify(model, stream, samples=3)) == {"prop:carry_over"}


def test_an_engine_that_strays_is_found(run, stream, monkeypatch):
    """alg:tsnn: the statements are checked on what the run does, not on what it should do."""
    from tsnn.evaluation import model

    def stray(*arguments):
        versions = sample_run(*arguments)
        return versions._replace(h=versions.h * 1.01)

    sample_run = model.run_update
    monkeypatch.setattr(model, "run_update", stray)
    assert failures(verify(run.model, stream, samples=3)) == {"alg:tsnn"}


@pytest.mark.parametrize("switch", ["transport", "frame_update"])
def test_the_ablations_can_be_verified(stream, switch):
    outcome = verify(untrained(stream, **{f"model__{switch}": False}), stream, samples=2)
    assert failures(outcome) == set()


def test_no_diffusion_can_be_verified(stream):
    assert verify(untrained(stream, model__diffusion_steps=0), stream, samples=2).passed


def test_a_reflector_below_the_operating_regime_is_found(run, stream):
    """rem:houshlip."""
    taken, _ = sample_events(run.model, stream, 2)
    from tsnn.theory.frames import operating_regime

    assert operating_regime(taken[0].pre_F, tau=1e-2).passed
    assert not operating_regime(taken[0].pre_F * 1e-3, tau=1e-2).passed


def test_samples_are_spread_and_never_the_first_row():
    assert sample_rows(600, 5) == [99, 199, 299, 399, 499]
    assert sample_rows(2, 12) == [1]


def test_large_active_sets_are_cut_to_what_fits(run, stream):
    active = sample_events(run.model, stream, 1)[0][0].active
    small = fit_dense(active, limit=3 * active.h.shape[-1])
    assert len(small.h) == 3 < len(active.h)
    torch.testing.assert_close(small.h, active.h[:3])
    assert fit_dense(active) is active
    assert len(fit_dense(replace(active, is_loop=False), limit=1).h) == 2


@pytest.mark.parametrize("bad", [{"samples": 0}, {"step_size": 0.0}])
def test_bad_input_is_refused(run, stream, bad):
    with pytest.raises(InputError):
        verify(run.model, stream, **bad)


# The command


def invoke(*arguments: str):
    app = typer.Typer()
    app.command()(verify_command)
    return CliRunner().invoke(app, list(arguments))


def test_the_command_prints_one_object_and_keeps_it(run):
    result = invoke(str(run.folder), "--sample", "2", "--json")
    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout)
    assert document["passed"]
    assert {"label", "claim", "slack", "where", "passed"} <= document["statements"][0].keys()
    assert json.loads((run.folder / "verify.json").read_text()) == document


def test_a_failure_is_status_one_and_does_not_replace_the_record(run):
    invoke(str(run.folder), "--sample", "2")
    before = (run.folder / "verify.json").read_bytes()
    result = invoke(str(run.folder), "--sample", "2", "--step-size", "50")
    assert result.exit_code == 1
    assert "fails 2/2" in result.stdout
    assert (run.folder / "verify.json").read_bytes() == before


def test_a_run_finds_its_table_again_or_is_told_where_it_is(tmp_path):
    rows = "\n".join(f"{i % 5},{i % 3 + 5},{i}" for i in range(80))
    table, other = tmp_path / "log.csv", tmp_path / "other.csv"
    table.write_text(f"src,dst,t\n{rows}\n")
    other.write_text(f"src,dst,t\n{rows}\n0,6,90\n")
    made = train(table, tmp_path / "run", Config.build(overrides=TINY), compare=False)
    assert invoke(str(made.folder), "--sample", "1").exit_code == 0
    assert "not the data" in str(invoke(str(made.folder), "--data", str(other)).exception)
    moved = table.rename(tmp_path / "moved.csv")
    assert "--data" in str(invoke(str(made.folder)).exception)
    assert invoke(str(made.folder), "--data", str(moved), "--sample", "1").exit_code == 0


def test_a_missing_run_is_refused():
    assert "not a finished run" in str(invoke(str(Path("nowhere"))).exception)
