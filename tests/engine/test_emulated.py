"""The kernels of the cuda engine equal the oracle in every switch they know, run on the host."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from functools import partial

import pytest
import torch

from tests.engine import emulated
from tests.engine.streams import config_of, tricky_stream
from tests.engine.test_parity import ENGINES, SWITCHES, check_parity
from tsnn.data.events import EventStream, NodeIds
from tsnn.data.queries import NO_QUERIES
from tsnn.data.split import split_by_time
from tsnn.engine import cuda
from tsnn.engine.layout import Parameters
from tsnn.evaluation.contracts import tied_stream
from tsnn.plan.planner import Planner, PlanSpec
from tsnn.training.trainer import Trainer

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="no C++ compiler is at hand")

# of the switches, those that change the kernels
COMPILED = (
    "default", "no transport", "fixed frames", "no carry-over", "no diffusion", "three rounds", "one reflector",
    "kept lengths", "kept lengths, fixed frames",
)  # fmt: skip


@pytest.fixture(autouse=True)
def _on_the_host(monkeypatch):
    monkeypatch.setattr(cuda, "launch", emulated.launch)
    monkeypatch.setitem(ENGINES, "emulated", emulated.EmulatedEngine)


@pytest.mark.parametrize("switch", COMPILED)
def test_kernels_equal_the_oracle(switch):
    check_parity(config_of(**SWITCHES[switch]), tricky_stream(relations=True), "strict", "emulated", 1e-9)


@pytest.mark.parametrize(("switch", "blocks"), [(switch, 2) for switch in COMPILED] + [("three rounds", 8)])
def test_a_cluster_of_blocks_equals_the_oracle(switch, blocks, monkeypatch):
    """Layers shared by columns that do not divide evenly, leaves by whoever comes next."""
    monkeypatch.setattr(emulated.EmulatedEngine, "cluster", blocks)
    check_parity(config_of(**SWITCHES[switch]), tricky_stream(relations=True), "strict", "emulated", 1e-9)


@pytest.mark.parametrize(("switch", "blocks"), [(switch, 1) for switch in COMPILED] + [("three rounds", 2)])
def test_teams_that_take_turns_equal_the_oracle(switch, blocks, monkeypatch):
    """Three teams, each at an event of its own, wait for one another's versions."""
    monkeypatch.setattr(emulated.EmulatedEngine, "teams", 3)
    monkeypatch.setattr(emulated.EmulatedEngine, "cluster", blocks)
    check_parity(config_of(**SWITCHES[switch]), tricky_stream(relations=True), "strict", "emulated", 1e-9)


def test_kernels_in_float32_with_whole_vectors():
    """Rows that divide by four take the wide loads, and weights stand in shared memory."""
    settings = {"model__stalk_dim": 8, "model__hidden_dim": 12, "train__dtype": "float32"}
    config = config_of(**settings)
    shape = cuda.Shape.of(config.model, torch.float32)
    assert shape.vector == 4
    assert shape.resident
    check_parity(config, tricky_stream(), "arrival", "emulated", 1e-4)


def recurrence(**settings: object) -> Callable[..., tuple[cuda.Logs, list[torch.Tensor]]]:
    """The recurrence of a chunk with gradients of everything: run(more arguments of `cuda_update`).

    Its plan has neighbors even where nothing diffuses to them.
    """
    config = config_of(**settings)
    trainer = Trainer(config, split_by_time(tied_stream()), lambda model: 0.0)
    planner = Planner(trainer.stream, trainer.planner.spec._replace(num_neighbors=3))
    model, plan = trainer.model, planner.plan(20, NO_QUERIES).update
    shared = cuda.DevicePlan.of(plan, torch.device("cpu"))
    states = [part[None] for part in trainer.store.gather(plan.nodes)]
    context, eta = model.context(plan, trainer.stream)[None], torch.full((1,), 0.1)

    def run(**hands: object) -> tuple[cuda.Logs, list[torch.Tensor]]:
        leaves = [tensor.detach().clone().requires_grad_() for tensor in (context, *states)]
        weights = [weight.detach()[None].requires_grad_() for weight in Parameters.of(model.updater)]
        log = cuda.cuda_update(shared, config.model, eta, *leaves, Parameters(*weights), **hands)
        torch.autograd.backward(log, [torch.ones_like(part) for part in log])
        return log, [tensor.grad for tensor in (*leaves, *weights) if tensor.grad is not None]

    return run


@pytest.mark.parametrize("rounds", [0, 1, 2])
def test_no_bit_depends_on_the_number_of_teams(rounds):
    """Also where a team finds every event taken: there are 20."""
    run = recurrence(model__diffusion_steps=rounds)
    expected, gradients = run()
    for teams in (2, 5, 24):
        log, found = run(teams=teams)
        assert all(torch.equal(a, b) for a, b in zip((*log, *found), (*expected, *gradients), strict=True)), teams


@pytest.mark.parametrize(
    ("switch", "cluster", "teams"),
    [
        ("default", 1, 1),
        ("no carry-over", 1, 3),
        ("no diffusion", 1, 3),
        ("three rounds", 1, 3),
        ("three rounds", 2, 2),
        ("kept lengths", 2, 2),
    ],
)
def test_no_two_accesses_are_left_without_an_order(switch, cluster, teams, monkeypatch):
    """Every number that two warps touch is handed over by a barrier or a flag (see racecheck.h)."""
    monkeypatch.setattr(cuda, "launch", partial(emulated.launch, racecheck=True))
    monkeypatch.setattr(cuda.Shape, "threads", property(lambda shape: 128))
    recurrence(**SWITCHES[switch])(cluster=cluster, teams=teams)
    shape = cuda.Shape.of(config_of(**SWITCHES[switch]).model, torch.float64, cluster)
    assert emulated.races(shape) == 0


def test_events_wait_for_their_nodes_and_for_nothing_else():
    """A path, a leaf shared, a self-loop: u-v, w-x, v-x, v-v, y-z."""
    stream = EventStream([0, 2, 1, 1, 4], [1, 3, 3, 1, 5], [0, 1, 2, 3, 4], NodeIds(range(6)))
    plan = Planner(stream, PlanSpec(num_neighbors=2)).plan(5, NO_QUERIES).update
    order = cuda.event_order(plan)
    assert order["before_src"].tolist() == [-1, -1, 0, 4, -1]
    assert order["before_dst"].tolist() == [-1, -1, 2, 4, -1]
    assert order["after_src"].tolist() == [4, 4, 7, -1, -1]  # 0 is a leaf of event 2, and so is 2; 1 an end of event 3
    assert order["after_dst"].tolist() == [5, 5, 6, -1, -1]
    entries = dict(zip(range(plan.act_ptr[2], plan.act_ptr[3]), order["before_act"][plan.act_ptr[2] :], strict=False))
    assert set(entries.values()) == {0, 2}, "event 2 touches what events 0 and 1 wrote"


def test_every_stage_takes_time():
    """The clocks of `tsnn bench gpu`: both passes, all stages, and the figures stay what they are."""
    run = recurrence()
    cycles = torch.zeros(2, len(cuda.STAGES), dtype=torch.int64)
    timed, _ = run(cluster=2, cycles=cycles)
    assert (cycles > 0).all()
    plain, _ = run(cluster=2)
    assert all(torch.equal(a, b) for a, b in zip(timed, plain, strict=True))
