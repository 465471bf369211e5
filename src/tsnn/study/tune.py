"""Choosing a configuration on validation rows alone: Optuna, one trial a task, all of them in one storage.

The objective is handed a split whose test rows are gone, so no figure of theirs can be read, by mistake or otherwise.
Each epoch's validation figure is reported; a trial below the median of the others at the same epoch is stopped.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import socket
import threading
import time
import warnings
from dataclasses import dataclass, field
from functools import lru_cache
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np
import tomli_w
import torch

from tsnn.config import Config
from tsnn.data.question import Question
from tsnn.data.split import Split, make_split
from tsnn.engine.stack import FREE
from tsnn.errors import ConfigError, TsnnError
from tsnn.evaluation.catalog import default_split, load
from tsnn.evaluation.evaluate import validation_metric
from tsnn.evaluation.model import COUNTS_ONLY, ModelScorer
from tsnn.files import write_text
from tsnn.model.tsnn import TSNN
from tsnn.plan.facts import BLOCKS
from tsnn.study.populations import ON_GPU, gpu
from tsnn.study.workers import import_ray, run_tasks
from tsnn.training.course import WARM_HEAD
from tsnn.training.stacked import StackedTrainer
from tsnn.training.trainer import Trainer
from tsnn.training.turns import Turns, side_by_side
from tsnn.types import Progress, unwatched

STARTUP_TRIALS = 8  # before the median says anything
WARMUP_EPOCHS = 2
WARM_EPOCHS = 8  # of heads on a GPU, where their length cannot be searched
_BEST_EPOCH = "best_epoch"  # what a trial remembers beside its figure
OF_ONE_SHAPE = 8  # trials of a population's generation: rates are tried together, sizes one after the other
LOG_RANGES = {
    "train.lr": (5e-4, 1e-2),
    "train.weight_decay": (1e-6, 1e-2),
    "model.kappa": (1.0, 100.0),
}
ALWAYS_READ = ("pairs", "common_neighbors", "edgebank_recency")  # blocks of facts that no trial goes without
CHOICES: dict[str, list[Any]] = {
    "train.chunk": [50, 100, 200, 400],
    "train.negatives": [1, 3, 5],
    "train.geometry_lr": [0.1, 0.3, 1.0],
    "train.head_lr": [0.1, 0.3, 1.0],
    "train.loss.geo": [0.0, 0.01, 0.1],
    "train.loss.bias": [0.0, 1e-4, 1e-2],
    "train.loss.smooth": [0.0, 1e-3, 1e-2],
    "train.loss.energy": [0.0, 1e-3, 1e-2],
    "model.score_dim": [16, 32, 64, 128],
    "model.stalk_dim": [32, 64, 128],
    "model.num_reflectors": [1, 2, 4],
    "model.num_neighbors": [5, 10, 20, 30],
    "model.diffusion_steps": [0, 1, 2],
    **{f"features.{block}": [True, False] for block in BLOCKS if block not in ALWAYS_READ},
    "features.walk_decay": [1e4, 1e5],
    "features.activity_decay": [1e3, 1e4],
    "features.encoded_gaps": [True, False],
    "features.cn_neighbors": [10, 20, 50],
}
Storage = str | tuple[str, int]  # a path of an SQLite file, or host and port of the process that holds one


@dataclass(frozen=True)
class Search:
    """What is tuned: `fixed` overrides stay as they are in every trial, `table` says how to read a plain table."""

    data: str
    visibility: str = "strict"
    fixed: dict[str, Any] = field(default_factory=dict)
    table: tuple[tuple[str, Any], ...] = ()

    @property
    def name(self) -> str:
        """Name of the study: other fixed settings or another space are another study."""
        table = [self.table] if self.table else []  # without one, the name is what it has always been
        text = json.dumps([sorted(self.fixed.items()), LOG_RANGES, CHOICES, *table], sort_keys=True)
        return f"{self.data} {self.visibility} {hashlib.sha256(text.encode()).hexdigest()[:8]}"


@dataclass(frozen=True)
class Task:
    """One trial for whoever runs it; `number` seeds the sampler."""

    search: Search
    storage: Storage
    number: int
    deadline: float  # no trial begins after it; infinite where there is none


def without_test(split: Split) -> Split:
    """The split with every test row removed, also from what a protocol draws its negatives from."""
    stream = split.stream.take(np.arange(split.val_end))
    full = None if split.full is None else split.full.take(split.full.t <= stream.t[-1])
    return make_split(stream, split.train_end, split.val_end, full)


@lru_cache(maxsize=1)
def _tuning_split(data: str, table: tuple[tuple[str, Any], ...]) -> Split:
    return without_test(default_split(load(data, **dict(table))))


def tune(
    search: Search,
    storage: Path,
    *,
    trials: int,
    timeout: float | None = None,
    workers: int | None = None,
    ray: str | None = None,
    population: int | None = None,
    progress: Progress = unwatched,
) -> dict[str, Any]:
    """Bring the study up to `trials` finished trials and return the best; what the storage holds is not run again."""
    if trials < 1:
        raise ConfigError(f"--trials {trials} leaves nothing to run; give 1 or more.")
    if population is not None:
        gpu()
    Config.build(overrides=search.fixed)
    _tuning_split(search.data, search.table)
    storage.parent.mkdir(parents=True, exist_ok=True)
    study = _study(search, str(storage))
    if not study.trials:
        study.enqueue_trial(default_point())
    deadline = math.inf if timeout is None else time.time() + timeout
    if population is not None:
        _tune_population(search, study, population, trials, deadline, progress)
        return _report(search, study)
    at: Storage = str(storage) if ray is None else _serve(_open(str(storage)))
    finished = len(_finished(study))
    tasks = [Task(search, at, number, deadline) for number in range(finished, trials)]
    progress(finished, trials)
    for done, _ in enumerate(run_tasks(run_trial, tasks, workers=workers, ray=ray) if tasks else (), finished + 1):
        progress(done, trials)
    return _report(search, study)


def run_trial(task: Task) -> None:
    """One trial, unless the time is up."""
    if time.time() < task.deadline:
        torch.set_num_threads(1)
        study = _study(task.search, task.storage, task.number)
        split = _tuning_split(task.search.data, task.search.table)
        study.optimize(lambda trial: objective(trial, task.search, split), n_trials=1)


def objective(trial: Any, search: Search, split: Split) -> float:
    """Best validation figure of a configuration; stops early where the median of other trials is better."""
    optuna = _optuna()
    config = Config.build(overrides=_overrides(trial, search))
    measure = validation_metric(split, Question.of(config.train))
    epochs = itertools.count()

    def validate(model: TSNN) -> float:
        value = measure(ModelScorer(model, split.stream))
        trial.report(value, next(epochs))
        if trial.should_prune():
            raise optuna.TrialPruned
        return value

    try:
        course = Trainer(config, split, validate).run().course
        trial.set_user_attr(_BEST_EPOCH, course.best_epoch)
        return course.best_metric
    except TsnnError as error:  # a loss that is no number
        raise optuna.TrialPruned(str(error)) from None


def _tune_population(search: Search, study: Any, size: int, trials: int, deadline: float, progress: Progress) -> None:
    """Generations of trials, each trained at once; every one is told before the next is asked for."""
    split = _tuning_split(search.data, search.table)
    pruned = _optuna().trial.TrialState.PRUNED
    device = gpu()
    progress(len(_finished(study)), trials)
    while (done := len(_finished(study))) < trials and time.time() < deadline:
        number = min(size, trials - done)
        shapes = [_ask(study, min(OF_ONE_SHAPE, number - start)) for start in range(0, number, OF_ONE_SHAPE)]
        for trained in side_by_side([_train(search, asked, split, device) for asked in shapes], device):
            for trial, best in trained:
                study.tell(trial, best, state=pruned if best is None else None)  # none: a loss that is no number
            progress(len(_finished(study)), trials)


def _ask(study: Any, number: int) -> list[Any]:
    """Trials of one shape: settings in which members of a population may not differ are the first trial's."""
    first = study.ask()
    shape = {name: value for name, value in suggest(first).items() if name not in FREE}
    for _ in range(number - 1):
        study.enqueue_trial(shape)
    return [first, *(study.ask() for _ in range(number - 1))]


def _train(
    search: Search, asked: list[Any], split: Split, device: torch.device
) -> Turns[list[tuple[Any, float | None]]]:
    """Each trial with its best validation figure, if it has one."""
    fixed = {**ON_GPU, "train.warmup": WARM_EPOCHS}
    configs = [Config.build(overrides=_overrides(trial, search) | fixed) for trial in asked]
    trained = yield from StackedTrainer(configs, split, device).run()
    figures = [made.course.best_metric if made.course.history else None for made in trained]
    for trial, made in zip(asked, trained, strict=True):
        trial.set_user_attr(_BEST_EPOCH, made.course.best_epoch)
    return list(zip(asked, figures, strict=True))


def _overrides(trial: Any, search: Search) -> dict[str, Any]:
    return {**suggest(trial), **search.fixed, "train.visibility": search.visibility}


def suggest(trial: Any) -> dict[str, Any]:
    """A point of the search space."""
    ranges = {name: trial.suggest_float(name, *bounds, log=True) for name, bounds in LOG_RANGES.items()}
    return ranges | {name: trial.suggest_categorical(name, values) for name, values in CHOICES.items()}


def default_point() -> dict[str, Any]:
    """The default configuration as a point of the space: the first trial, so that tuning never ends below it."""
    return {name: attrgetter(name)(Config()) for name in [*LOG_RANGES, *CHOICES]}


def write_config(result: dict[str, Any], path: Path, command: str) -> None:
    """The best configuration as a TOML file of what differs from the defaults."""
    best = Config.build(overrides={**result["best"]["settings"], "train.visibility": result["visibility"]})
    head = f"# chosen on validation rows alone: {command}\n# validation {result['best']['validation']:.4f}"
    head += f", the defaults {result['defaults']:.4f}\n" if result["defaults"] is not None else "\n"
    write_text(path, head + tomli_w.dumps(best.model_dump(exclude_defaults=True)))


def _report(search: Search, study: Any) -> dict[str, Any]:
    optuna = _optuna()
    states = [trial.state.name.lower() for trial in study.trials]
    complete = study.get_trials(deepcopy=False, states=(optuna.trial.TrialState.COMPLETE,))
    if not complete:
        raise TsnnError(f"no trial of {search.name} was finished; give it more --timeout or more --trials.")
    best = study.best_trial
    first = study.trials[0]
    return {
        "data": search.data,
        "visibility": search.visibility,
        "study": search.name,
        "trials": {name: states.count(name) for name in sorted(set(states))},
        "defaults": first.value if first.state == optuna.trial.TrialState.COMPLETE else None,
        "best": {
            "validation": best.value,
            "trial": best.number,
            "remark": COUNTS_ONLY if best.user_attrs.get(_BEST_EPOCH) == WARM_HEAD else "",
            "settings": {**best.params, **search.fixed},
        },
    }


def _finished(study: Any) -> list[Any]:
    """Trials that count; one left running by a process that was killed does not."""
    state = _optuna().trial.TrialState
    found: list[Any] = study.get_trials(deepcopy=False, states=(state.COMPLETE, state.PRUNED))
    return found


def _study(search: Search, storage: Storage, seed: int = 0) -> Any:
    optuna = _optuna()
    return optuna.create_study(
        study_name=search.name,
        storage=_open(storage),
        direction="maximize",
        sampler=optuna.samplers.TPESampler(seed=seed),
        pruner=optuna.pruners.MedianPruner(STARTUP_TRIALS, WARMUP_EPOCHS),
        load_if_exists=True,
    )


def _open(storage: Storage) -> Any:
    optuna = _optuna()
    if isinstance(storage, tuple):
        return optuna.storages.GrpcStorageProxy(host=storage[0], port=storage[1])
    return optuna.storages.RDBStorage(f"sqlite:///{storage}", engine_kwargs={"connect_args": {"timeout": 60}})


def _serve(storage: Any) -> tuple[str, int]:
    """Open this process's storage to the nodes of a cluster; returns host and port."""
    host: str = import_ray().util.get_node_ip_address()
    with socket.socket() as probe:
        probe.bind((host, 0))
        port = int(probe.getsockname()[1])
    serve = _optuna().storages.run_grpc_proxy_server
    threading.Thread(target=serve, args=(storage,), kwargs={"host": host, "port": port}, daemon=True).start()
    return host, port


def _optuna() -> Any:
    try:
        import optuna
    except ImportError:
        raise ConfigError("tsnn tune needs the package optuna; install it with pip install 'tsnn[tune]'.") from None
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    warnings.filterwarnings("ignore", category=optuna.exceptions.ExperimentalWarning)  # about the storage proxy
    return optuna
