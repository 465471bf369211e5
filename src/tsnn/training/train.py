"""From a stream to a finished run: train, evaluate, compare with the baselines, save."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch

from tsnn.config import Config
from tsnn.data.catalog import default_split, load
from tsnn.data.events import EventStream
from tsnn.data.split import Split
from tsnn.engine.compiled import NOTICE, is_compiled
from tsnn.errors import RunError
from tsnn.evaluation.evaluate import compared_baselines, evaluate, validation_metric
from tsnn.evaluation.model import ModelScorer
from tsnn.model.tsnn import TSNN
from tsnn.training.run import METRICS, Run, save_run, write_config
from tsnn.training.tensorboard import FOLDER as BOARD
from tsnn.training.tensorboard import TensorBoard
from tsnn.training.trainer import Trainer, check_device
from tsnn.types import Progress, Visibility, unwatched

Report = Callable[[str], None]


def train(
    data: str | Path | EventStream,
    out: str | Path,
    config: Config | None = None,
    *,
    compare: bool = True,
    progress: Progress = unwatched,
    report: Report | None = None,
) -> Run:
    """Train on a stream's own split and leave a run folder; an interrupted call goes on where it stopped.

    With `compare`, the heuristics and the `features` baseline are evaluated beside the model.
    """
    say = report or (lambda _: None)
    config = config or Config()
    folder = Path(out)
    if (folder / METRICS).exists():
        raise RunError(f"{folder} already holds a finished run; choose another folder.")
    stream = data if isinstance(data, EventStream) else load(data)
    split = default_split(stream)
    visibility = Visibility.parse(config.train.visibility)
    check_device(config.train)  # before anything is written
    torch.set_num_threads(1)  # the recurrence is sequential; a second thread only gets in its way
    if not is_compiled():
        say(NOTICE)
    folder.mkdir(parents=True, exist_ok=True)
    write_config(folder, config)
    validate = validation_metric(split, visibility)
    with ExitStack() as open_files:
        board = open_files.enter_context(TensorBoard(folder / BOARD)) if config.train.tensorboard else None
        trainer = Trainer(
            config, split, lambda model: validate(ModelScorer(model, split.stream)), folder, progress, board
        )
        trained = trainer.run()
    say("evaluating")
    metrics = _figures(trained.model, split, visibility, compare, say)
    best = {"best_epoch": trained.best_epoch, "validation": trained.best_metric}
    metrics["training"] = {"epochs": trained.epochs, **best}
    run = save_run(folder, trained.model, split.stream, metrics)
    (folder / "checkpoint.safetensors").unlink(missing_ok=True)
    return run


def _figures(model: TSNN, split: Split, visibility: Visibility, compare: bool, say: Report) -> dict[str, Any]:
    figures: dict[str, Any] = evaluate(ModelScorer(model, split.stream), split, visibility).to_dict()
    if compare:
        figures["baselines"] = []
        for scorer in compared_baselines(split.stream, model.config.train.seed):
            say(f"comparing with {scorer.name}")
            figures["baselines"].append(evaluate(scorer, split, visibility).to_dict())
    return figures
