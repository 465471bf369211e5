"""`device = "cuda"`: parameters, scores, losses and optimizer on the GPU, the same results to float32 tolerance."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from tests.engine.streams import config_of, every_row
from tsnn.bench.gpu import bench_gpu
from tsnn.data.split import split_by_time
from tsnn.engine.cuda import DevicePlan, Parameters, cuda_update, has_cupy
from tsnn.engine.engine import CudaEngine
from tsnn.errors import ConfigError
from tsnn.evaluation.contracts import tied_stream
from tsnn.evaluation.model import ModelScorer
from tsnn.evaluation.replay import score_queries
from tsnn.training.trainer import Trainer

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU is at hand")
needs_cupy = pytest.mark.skipif(not has_cupy(), reason="no GPU with CuPy is at hand")


def trained(device: str, **switches: object) -> Trainer:
    if device == "cpu" and switches.get("train__engine") == "cuda":
        switches["train__engine"] = "fused"
    settings = {"train__device": device, "train__dtype": "float32", "train__chunk": 10, "train__warmup": 2, **switches}
    trainer = Trainer(config_of(**settings), split_by_time(tied_stream()), lambda model: 0.0)
    trainer.run()
    return trainer


@needs_gpu
@pytest.mark.parametrize("switch", [{}, {"model__attention": True, "features__transported_difference": True}])
@pytest.mark.parametrize("engine", ["fused", "reference", pytest.param("cuda", marks=needs_cupy)])
def test_training_and_scoring_agree_with_the_cpu(engine, switch):
    stream = tied_stream()
    options = {"train__epochs": 1, "train__engine": engine, **switch}
    on_cpu, on_gpu = trained("cpu", **options), trained("cuda", **options)
    assert on_gpu.model.device.type == "cuda"
    for name, value in on_cpu.model.state_dict().items():
        torch.testing.assert_close(on_gpu.model.state_dict()[name].cpu(), value, rtol=1e-3, atol=1e-3, msg=name)
    queries = every_row(stream, "strict")
    scores = [torch.tensor(score_queries(ModelScorer(t.model, stream), stream, queries)) for t in (on_cpu, on_gpu)]
    torch.testing.assert_close(*scores, rtol=1e-2, atol=1e-2)


@pytest.mark.skipif(torch.cuda.is_available(), reason="a GPU is at hand")
def test_without_a_gpu_the_setting_is_refused():
    with pytest.raises(ConfigError, match="no GPU"):
        trained("cuda")


def test_the_engine_needs_its_device():
    with pytest.raises(ConfigError, match="engine = cuda needs device = cuda"):
        config_of(train__engine="cuda")


@pytest.mark.skipif(has_cupy(), reason="a GPU is at hand")
def test_without_a_gpu_its_benchmark_is_refused():
    with pytest.raises(ConfigError, match="needs a GPU and CuPy"):
        bench_gpu("dgb:uci", config_of())


Run = Callable[..., tuple[tuple[torch.Tensor, ...], list[torch.Tensor]]]


def three_streams(rounds: int) -> Run:
    """The recurrence of a chunk with gradients: run(some of three streams, who works on each) -> logs, gradients."""
    settings = {"train__device": "cuda", "train__engine": "cuda", "train__dtype": "float32"}
    config = config_of(**settings, model__diffusion_steps=rounds)
    trainer = Trainer(config, split_by_time(tied_stream()), lambda model: 0.0)
    plan = next(iter(trainer.planner.walk(20, 20))).update
    shared = DevicePlan.of(plan, trainer.model.device)
    generator = torch.Generator("cuda").manual_seed(0)

    def draw(tensor: torch.Tensor) -> torch.Tensor:
        return torch.randn(3, *tensor.shape, generator=generator, device="cuda")

    weights = [draw(weight).mul_(0.3) for weight in Parameters.of(trainer.model.updater)]
    context, (h, F) = draw(trainer.model.context(plan, trainer.stream)), map(draw, trainer.store.gather(plan.nodes))
    eta = torch.tensor([0.01, 0.1, 0.2], device="cuda")

    def run(at: slice, **hands: int) -> tuple[tuple[torch.Tensor, ...], list[torch.Tensor]]:
        own = Parameters(*(weight[at].clone().requires_grad_() for weight in weights))
        log = cuda_update(shared, config.model, eta[at], context[at], h[at], F[at], own, **hands)
        sum(part.square().sum() for part in log).backward()
        return log, [weight.grad for weight in own]

    return run


def assert_alike(a: torch.Tensor, b: torch.Tensor) -> None:
    torch.testing.assert_close(a, b, rtol=0, atol=1e-5 * a.abs().max().item())


@needs_cupy
@pytest.mark.parametrize("rounds", [0, 1, 2])
def test_a_stream_does_not_depend_on_its_neighbors(rounds):
    """Three streams at once and each alone: logs and gradients agree to rounding."""
    run = three_streams(rounds)
    together, gradients = run(slice(0, 3))
    for i in range(3):
        alone, own_gradients = run(slice(i, i + 1))
        for a, b in zip((*together, *gradients), (*alone, *own_gradients), strict=True):
            assert_alike(a[i], b[0])


@needs_cupy
@pytest.mark.parametrize("blocks", [2, 4, 8])
@pytest.mark.parametrize("rounds", [0, 1, 3])
def test_a_cluster_of_blocks_computes_what_one_does(rounds, blocks):
    run = three_streams(rounds)
    alone, cluster = run(slice(0, 3)), run(slice(0, 3), cluster=blocks)
    for a, b in zip((*alone[0], *alone[1]), (*cluster[0], *cluster[1]), strict=True):
        assert_alike(a, b)


@needs_cupy
@pytest.mark.parametrize("rounds", [0, 1, 3])
def test_no_bit_depends_on_the_number_of_teams(rounds):
    """Also with more teams than events, and with clusters of blocks as teams."""
    run = three_streams(rounds)
    for blocks, some in ((1, (2, 3, 8, 24)), (2, (2, 8))):
        alone = run(slice(0, 3), cluster=blocks)
        for teams in some:
            together = run(slice(0, 3), cluster=blocks, teams=teams)
            for a, b in zip((*alone[0], *alone[1]), (*together[0], *together[1]), strict=True):
                assert torch.equal(a, b), (blocks, teams)


@needs_cupy
def test_training_does_not_depend_on_the_number_of_teams(monkeypatch):
    """Whole chunks of a stream with repeats and ties, again and again: a race would show sooner or later."""
    states = []
    for teams in (1, 8, 8):
        monkeypatch.setattr(CudaEngine, "teams", teams)
        states.append(trained("cuda", train__engine="cuda", train__epochs=2, train__chunk=50).model.state_dict())
    for other in states[1:]:
        for name, value in states[0].items():
            assert torch.equal(other[name], value), name
