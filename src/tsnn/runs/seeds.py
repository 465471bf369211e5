"""Runs that differ in their seed alone, trained side by side: how far a figure is the seed's."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tsnn.config import Config
from tsnn.data.direction import looks_undirected
from tsnn.data.events import EventStream
from tsnn.errors import ConfigError, RunError
from tsnn.evaluation.catalog import default_split
from tsnn.report.grids import summary_of
from tsnn.report.page import REPORT, write_comparison
from tsnn.report.trace import Trace
from tsnn.report.view import make_view, trace_run
from tsnn.runs.train import train
from tsnn.study.workers import run_tasks
from tsnn.training.run import METRICS, Run
from tsnn.types import Progress, unwatched


@dataclass(frozen=True)
class SeedRuns:
    """Runs of several seeds, and what their figures have in common."""

    folder: Path
    runs: Sequence[Run]
    summary: dict[str, Any]  # the card, the seeds, and for every scorer, set and metric mean, std and values


def train_seeds(
    stream: EventStream,
    folder: Path,
    config: Config,
    *,
    seeds: int,
    compare: bool = True,
    workers: int | None = None,
    progress: Progress = unwatched,
) -> SeedRuns:
    """Train a run for each of several seeds, from `train.seed` on, in folders of the folder; one process per core."""
    if seeds < 1:
        raise ConfigError(f"{seeds} seeds leave nothing to train; give 1 or more.")
    if doubt := looks_undirected(stream):
        warnings.warn(doubt, stacklevel=2)
    numbers = range(config.train.seed, config.train.seed + seeds)
    tasks = [_Task(stream, folder / f"seed-{seed}", _with_seed(config, seed), compare) for seed in numbers]
    for task in tasks:
        task.check()
    text = f"training {seeds} seeds"
    progress(0, seeds, text)
    traces: dict[Path, Trace] = {}
    for done, (path, trace) in enumerate(run_tasks(_trained, tasks, workers=workers), 1):
        traces[path] = trace
        progress(done, seeds, text)
    runs = [Run.load(task.folder) for task in tasks]
    write_comparison([(run, traces[run.folder]) for run in runs], folder / REPORT)
    return SeedRuns(folder, runs, summary_of([make_view(run, None) for run in runs]))


def _with_seed(config: Config, seed: int) -> Config:
    return config.model_copy(update={"train": config.train.model_copy(update={"seed": seed})})


@dataclass(frozen=True)
class _Task:
    stream: EventStream
    folder: Path
    config: Config
    compare: bool

    def check(self) -> None:
        """Refuse a finished run of something else."""
        if not self.is_finished():
            return
        run = Run.load(self.folder)
        same_data = run.metrics["card"]["data"]["fingerprint"] == self.stream.fingerprint()
        if not same_data or run.config != self.config:
            what = "settings" if same_data else "data"
            raise RunError(f"{self.folder} holds a finished run of other {what}; choose another folder.")

    def is_finished(self) -> bool:
        return (self.folder / METRICS).exists()


def _trained(task: _Task) -> tuple[Path, Trace]:
    """Train a run unless it is finished, and see what a replay of it shows."""
    if not task.is_finished():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # about the data, said once by the caller
            train(task.stream, task.folder, task.config, compare=task.compare)
    run = Run.load(task.folder)
    return task.folder, trace_run(run, default_split(task.stream))
