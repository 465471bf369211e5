"""From a stream to a finished run: train, evaluate, compare with the baselines, save."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from tsnn.config import Config
from tsnn.data.catalog import default_split, load
from tsnn.data.events import EventStream
from tsnn.data.split import Split
from tsnn.errors import RunError
from tsnn.evaluation.evaluate import baselines, evaluate_scorer, protocol_of, validation_metric
from tsnn.evaluation.model import ModelScorer
from tsnn.model.tsnn import TSNN
from tsnn.training.run import CONFIG, METRICS, Run, save_run, write_text
from tsnn.training.trainer import Progress, Trainer
from tsnn.types import Visibility

Report = Callable[[str], None]


def train(
    data: str | Path | EventStream,
    out: str | Path,
    config: Config | None = None,
    *,
    compare: bool = True,
    progress: Callable[[Progress], None] | None = None,
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
    protocol, visibility = protocol_of(stream), Visibility.parse(config.train.visibility)
    torch.set_num_threads(1)  # the recurrence is sequential; a second thread only gets in its way
    folder.mkdir(parents=True, exist_ok=True)
    write_text(folder / CONFIG, config.to_toml())
    validate = validation_metric(split, protocol, visibility)
    trainer = Trainer(config, split, lambda model: validate(ModelScorer(model, split.stream)), folder, progress)
    trained = trainer.run()
    say("evaluating")
    metrics = _figures(trained.model, split, protocol, visibility, compare, say)
    metrics["training"] = {"best_epoch": trained.best_epoch, "epochs": trained.epochs, "validation": trained.best_metric}
    run = save_run(folder, trained.model, split.stream, metrics)
    (folder / "checkpoint.safetensors").unlink(missing_ok=True)
    return run


def _figures(
    model: TSNN, split: Split, protocol: str, visibility: Visibility, compare: bool, say: Report
) -> dict[str, Any]:
    result = evaluate_scorer(ModelScorer(model, split.stream), split, protocol, visibility)
    figures: dict[str, Any] = result.to_dict()
    if compare:
        figures["baselines"] = []
        for scorer in baselines(split.stream, protocol):
            say(f"comparing with {scorer.name}")
            figures["baselines"].append(evaluate_scorer(scorer, split, protocol, visibility).to_dict())
    return figures
