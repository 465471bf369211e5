"""Reference against fused on the same rows in one run: training and update-only events/s, and where the time goes."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import torch

from tsnn.bench.machine import machine_card, multiply_add_rate
from tsnn.config import Config, ModelConfig
from tsnn.data.split import Split
from tsnn.engine.engine import commit, run_update
from tsnn.errors import InputError
from tsnn.evaluation.catalog import default_split, load
from tsnn.evaluation.scorer import MAX_ROWS
from tsnn.model.losses import total_loss
from tsnn.plan.ahead import ahead
from tsnn.plan.chunk import ChunkPlan
from tsnn.training.trainer import Trainer

START = 5_000  # rows that fill the neighbor buffers before the clock starts
WINDOWS = {"reference": 400, "fused": 30_000}  # rows that each engine is timed on
REPEATS = 3


def bench_engine(data: str, config: Config) -> dict[str, Any]:
    """Events/s of both engines on one stream, with the floor that the arithmetic sets."""
    torch.set_num_threads(1)
    split = default_split(load(data))
    result: dict[str, Any] = {"data": data, "machine": machine_card(), "config": config.model_dump()}
    rates = {name: _rates(config, split, name) for name in WINDOWS}
    for kind in ("train", "update"):
        fused, reference = rates["fused"][kind], rates["reference"][kind]
        result[kind] = {"fused_events_per_s": fused, "reference_events_per_s": reference, "ratio": fused / reference}
    result["stages_us_per_event"] = stages(config, split, "fused")
    result["floor"] = _floor(config.model, split)
    return result


def _rates(config: Config, split: Split, engine: str) -> dict[str, float]:
    """The best of a few runs each: what disturbs a run only ever slows it."""
    window = WINDOWS[engine]
    return {
        "train": max(train_rate(_trainer(config, split, engine), window) for _ in range(REPEATS)),
        "update": max(_update_rate(_trainer(config, split, engine), window) for _ in range(REPEATS)),
    }


def _trainer(config: Config, split: Split, engine: str) -> Trainer:
    return Trainer(trained_with(config, engine=engine), split, lambda model: 0.0)


def trained_with(config: Config, **settings: Any) -> Config:
    """The configuration with other settings of its training."""
    return Config.model_validate({**config.model_dump(), "train": {**config.train.model_dump(), **settings}})


def train_rate(trainer: Trainer, window: int) -> float:
    """Training events/s: plan made ahead, features, recurrence, scores, losses, backward, optimizer, commit."""
    plans = trainer.train_chunks(_filled(trainer))
    next(plans)  # compiles, and lets the plan get ahead
    done = 0
    began = settled_clock()
    for rows in plans:
        done += rows
        if done >= window:
            break
    elapsed = settled_clock() - began
    plans.close()
    return _rate(trainer, done, elapsed)


@torch.no_grad()
def _update_rate(trainer: Trainer, window: int) -> float:
    """Events/s of the recurrence alone, forward and without gradients: replaying a stream, as evaluation does."""
    start = _filled(trainer)
    stop = min(start + window, trainer.split.train_end)
    rows = MAX_ROWS if stop - start > 2 * MAX_ROWS else trainer.config.train.chunk
    plans = ahead(trainer.planner.walk(stop, rows))
    _run(trainer, next(plans))  # compiles
    done = 0
    began = time.perf_counter()
    for plan in plans:
        _run(trainer, plan)
        done += plan.update.num_events
    return _rate(trainer, done, time.perf_counter() - began)


def _rate(trainer: Trainer, rows: int, seconds: float) -> float:
    if not rows:
        chunk = trainer.config.train.chunk
        raise InputError(
            f"{trainer.stream.name} has too few rows to time; give a longer one, or less than {chunk} for train.chunk."
        )
    return rows / seconds


def _run(trainer: Trainer, plan: ChunkPlan) -> None:
    versions = run_update(trainer.model, trainer.engine, trainer.store, plan.update, trainer.stream)
    commit(trainer.store, plan.update, versions)


def _filled(trainer: Trainer) -> int:
    """The row where the clock starts; the rows before it are observed."""
    chunk = trainer.config.train.chunk
    start = min(START, trainer.split.train_end // 4) // chunk * chunk
    trainer.planner.advance(start)
    return start


def settled_clock() -> float:
    """Seconds, read when a GPU, if there is one at work, has done all it was given."""
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        torch.cuda.synchronize()
    return time.perf_counter()


def stages(config: Config, split: Split, engine: str, window: int = 10_000) -> dict[str, float]:
    """Microseconds an event of each stage of training, one after the other; training overlaps some of them."""
    trainer = _trainer(config, split, engine)
    seconds: dict[str, float] = defaultdict(float)
    events = 0
    for chunk in trainer.rows.chunks(_filled(trainer)):
        events += _timed_chunk(trainer, chunk, seconds)
        if events == config.train.chunk:  # the first compiled
            seconds.clear()
        if events > window:
            break
    return {name: 1e6 * spent / (events - config.train.chunk) for name, spent in seconds.items()}


def _timed_chunk(trainer: Trainer, chunk: tuple[int, int, int, int], seconds: dict[str, float]) -> int:
    """Train on a chunk and add up the seconds of each stage."""

    def timed(name: str, work: Callable[[], Any]) -> Any:
        began = settled_clock()
        result = work()
        seconds[name] += settled_clock() - began
        return result

    start, stop, first, last = chunk
    model, store = trainer.model, trainer.store
    plan = timed("plan", lambda: trainer.planner.plan(stop, trainer.queries(start, first, last)))
    data = timed("features", lambda: model.data_features(plan.score))
    versions = timed("recurrence", lambda: run_update(model, trainer.engine, store, plan.update, trainer.stream))
    losses = timed("score and losses", lambda: trainer.losses(plan.score, versions, data))
    trainer.optimizer.zero_grad()
    timed("backward", total_loss(losses, trainer.config.train.loss).backward)
    timed("optimizer", trainer.optimizer.clip_and_step)
    timed("commit", lambda: commit(store, plan.update, versions))
    return stop - start


def _floor(model: ModelConfig, split: Split) -> dict[str, float]:
    """Multiply-adds of the update networks alone, forward, input and weight gradients, over the measured rate."""
    d, k, w = model.stalk_dim, model.num_reflectors, model.hidden_dim
    context = split.stream.msg_dim + model.time_dim
    per_endpoint = 2 * w * (2 * d + context) + w * k * d + w * d + 6 * d * d
    forward = 2 * per_endpoint
    rate = multiply_add_rate()
    return {
        "multiply_adds_per_event": 3.0 * forward,
        "multiply_adds_per_s": rate,
        "us_per_event": 3e6 * forward / rate,
        "forward_us_per_event": 1e6 * forward / rate,
    }
