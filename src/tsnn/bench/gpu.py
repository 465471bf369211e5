"""The cuda engine: one stream and populations of them, trained with everything included, and their recurrence alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from tsnn.bench.engine import START, settled_clock, stages, train_rate, trained_with
from tsnn.bench.machine import machine_card
from tsnn.config import Config
from tsnn.data.split import Split
from tsnn.engine.cuda import STAGES, DevicePlan, Logs, Shape, clock_rate, cuda_update, has_cupy, teams_for
from tsnn.engine.layout import Parameters
from tsnn.errors import ConfigError
from tsnn.evaluation.catalog import default_split, load
from tsnn.plan.chunk import UpdatePlan
from tsnn.sheaf.diffusion import capped_step
from tsnn.training.stacked import StackedTrainer
from tsnn.training.trainer import Trainer
from tsnn.training.turns import finish

ON_GPU = {"device": "cuda", "engine": "cuda"}
POPULATIONS = (1, 5, 128)
CLUSTERS = (1, 2, 4, 8)  # thread blocks that share an event
TEAMS = (1, 2, 4, 8, 16)  # that take the events of a stream in turn
LANES = 128  # float32 multiply-adds a multiprocessor starts each cycle
REPEATS = 3


def bench_gpu(data: str, config: Config, populations: tuple[int, ...] = POPULATIONS) -> dict[str, Any]:
    """Events/s on this GPU, with the time of the recurrence and the floor that its arithmetic sets."""
    if not has_cupy():
        raise ConfigError("tsnn bench gpu needs a GPU and CuPy; install tsnn[cuda] on a machine that has one.")
    torch.set_num_threads(1)  # small products on the host, as in training
    config = trained_with(config, **ON_GPU)
    split = default_split(load(data))

    def trainer() -> Trainer:
        return Trainer(config, split, lambda model: 0.0)

    rates = [train_rate(trainer(), split.train_end) for _ in range(REPEATS)]
    plan = _late_plan(trainer())
    return {
        "data": data,
        "machine": machine_card(),
        "config": config.model_dump(),
        "one_stream": {
            "train_events_per_s": max(rates),
            "stages_us_per_event": stages(config, split, config.train.engine),
            "floor_us_per_event": _floor(config),
            "clusters": [_cluster(trainer(), plan, blocks) for blocks in CLUSTERS],
            "teams": [_teams(trainer(), plan, blocks, teams) for blocks in CLUSTERS for teams in TEAMS],
        },
        "populations": [
            _population(trainer(), plan, streams) | _population_training(config, split, streams)
            for streams in populations
        ],
    }


def _population_training(config: Config, split: Split, streams: int) -> dict[str, float]:
    """Training events/s of all members together, validation apart; the first epoch compiles and records."""
    configs = [trained_with(config, warmup=0, epochs=REPEATS, seed=seed) for seed in range(streams)]
    trainer = StackedTrainer(configs, split, torch.device(config.train.device))
    finish(trainer.start())
    seconds = []
    for epoch in range(REPEATS):
        began = settled_clock()
        finish(trainer.train_epoch(epoch))
        seconds.append(settled_clock() - began)
    return {"train_events_per_s": streams * split.train_end / min(seconds)}


def _late_plan(trainer: Trainer) -> UpdatePlan:
    """A chunk once the neighbor buffers are full."""
    length = trainer.config.train.chunk
    stop = min(START, trainer.split.train_end // 2) // length * length + length
    *_, last = trainer.planner.walk(min(stop, trainer.split.train_end), length)
    return last.update


def _cluster(trainer: Trainer, plan: UpdatePlan, blocks: int) -> dict[str, Any]:
    """Where an event's time goes when so many thread blocks share it."""
    cycles = torch.zeros(2, len(STAGES), dtype=torch.int64, device=trainer.model.device)
    log = _recurrence(trainer, plan, 1, cluster=blocks, cycles=cycles)()
    torch.autograd.backward(log, [torch.ones_like(part) for part in log])
    shares = 1e6 * cycles.double().cpu() / clock_rate() / plan.num_events
    forward, adjoint = (dict(zip(STAGES, row, strict=True)) for row in shares.tolist())
    return {"blocks": blocks, "forward_stages_us": forward, "backward_stages_us": adjoint}


def _teams(trainer: Trainer, plan: UpdatePlan, blocks: int, teams: int) -> dict[str, Any]:
    """The chunk's recurrence of one stream by teams of so many thread blocks."""
    forward, adjoint = _recurrence_seconds(trainer, plan, 1, cluster=blocks, teams=teams)
    return {
        "blocks": blocks,
        "teams": teams,
        "forward_us_per_event": 1e6 * forward / plan.num_events,
        "backward_us_per_event": 1e6 * adjoint / plan.num_events,
    }


def _population(trainer: Trainer, plan: UpdatePlan, streams: int) -> dict[str, float]:
    """The chunk's recurrence for so many streams at once."""
    teams = teams_for(streams, trainer.model.device)
    forward, adjoint = _recurrence_seconds(trainer, plan, streams, teams=teams)
    rows = streams * plan.num_events
    return {
        "streams": streams,
        "teams": teams,
        "forward_us_per_event_and_stream": 1e6 * forward / plan.num_events,
        "backward_us_per_event_and_stream": 1e6 * adjoint / plan.num_events,
        "update_events_per_s": rows / forward,
        "recurrence_training_events_per_s": rows / (forward + adjoint),
    }


def _recurrence_seconds(trainer: Trainer, plan: UpdatePlan, streams: int, **hands: int) -> tuple[float, float]:
    """Forward, without a graph, and backward, with all weight gradients."""
    run = _recurrence(trainer, plan, streams, **hands)
    with torch.no_grad():
        forward = _best_seconds(run)
    log = run()
    up = [torch.ones_like(part) for part in log]
    return forward, _best_seconds(lambda: torch.autograd.backward(log, up, retain_graph=True))


def _recurrence(trainer: Trainer, plan: UpdatePlan, streams: int, **hands: Any) -> Callable[[], Logs]:
    """The chunk's recurrence, ready to run, all streams alike; `hands` as in `cuda_update`."""
    model, device = trainer.model, trainer.model.device
    config = model.config.model

    def many(tensor: Tensor) -> Tensor:
        return tensor.detach().to(device).expand(streams, *tensor.shape).contiguous()

    weights = Parameters(*(many(weight).requires_grad_() for weight in Parameters.of(model.updater)))
    h, F = (many(part) for part in trainer.store.gather(plan.nodes))
    context = many(model.context(plan, trainer.stream))
    eta = many(capped_step(config.step_size, model.updater.gain()))
    shared = DevicePlan.of(plan, device)
    return lambda: cuda_update(shared, config, eta, context, h, F, weights, **hands)


def _best_seconds(work: Callable[[], Any]) -> float:
    seconds = []
    for _ in range(REPEATS + 1):  # the first compiles
        began = settled_clock()
        work()
        seconds.append(settled_clock() - began)
    return min(seconds)


def _floor(config: Config) -> float:
    """Multiply-adds of the update networks, forward and input gradients, over what one multiprocessor can start."""
    shape = Shape.of(config.model, torch.float32)
    cycles = 2 * 2 * sum(shape.layers) / LANES  # two endpoints, two passes
    return 1e6 * cycles / clock_rate()
