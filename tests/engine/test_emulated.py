"""The kernels of the cuda engine equal the oracle in every switch they know, run on the host."""

from __future__ import annotations

import shutil

import pytest
import torch

from tests.engine import emulated
from tests.engine.streams import config_of, tricky_stream
from tests.engine.test_parity import ENGINES, SWITCHES, check_parity
from tests.test_contracts import tied_stream
from tsnn.data.split import split_by_time
from tsnn.engine import cuda
from tsnn.engine.fused import Parameters
from tsnn.training.trainer import Trainer

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="no C++ compiler is at hand")

# of the switches, those that change the kernels
COMPILED = (
    "default", "no transport", "fixed frames", "no carry-over", "no diffusion", "three rounds", "one reflector"
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


def test_kernels_in_float32_with_whole_vectors():
    """Rows that divide by four take the wide loads, and weights stand in shared memory."""
    settings = {"model__stalk_dim": 8, "model__hidden_dim": 12, "train__dtype": "float32"}
    config = config_of(**settings)
    shape = cuda.Shape.of(config.model, torch.float32)
    assert shape.vector == 4
    assert shape.resident
    check_parity(config, tricky_stream(), "arrival", "emulated", 1e-4)


def test_every_stage_takes_time():
    """The clocks of `tsnn bench gpu`: both passes, all stages, and the figures stay what they are."""
    config = config_of()
    trainer = Trainer(config, split_by_time(tied_stream()), lambda model: 0.0)
    model, plan = trainer.model, next(iter(trainer.planner.walk(20, 20))).update
    weights = Parameters(*(weight.detach()[None].requires_grad_() for weight in Parameters.of(model.updater)))
    h, F = (part[None] for part in trainer.store.gather(plan.nodes))
    context, eta = model.context(plan, trainer.stream)[None], torch.full((1,), 0.1)
    shared = cuda.DevicePlan.of(plan, torch.device("cpu"))
    cycles = torch.zeros(2, len(cuda.STAGES), dtype=torch.int64)
    timed = cuda.cuda_update(shared, config.model, eta, context, h, F, weights, 2, cycles)
    torch.autograd.backward(timed, [torch.ones_like(part) for part in timed])
    assert (cycles > 0).all()
    plain = cuda.cuda_update(shared, config.model, eta, context, h, F, weights, 2)
    assert all(torch.equal(a, b) for a, b in zip(timed, plain, strict=True))
