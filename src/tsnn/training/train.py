"""From a stream to a finished run: train, replay the stream once for all that is wanted of it, compare, save."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from contextlib import closing, nullcontext
from dataclasses import replace
from pathlib import Path

import torch

from tsnn.config import Config
from tsnn.data.direction import looks_undirected
from tsnn.data.events import EventStream
from tsnn.data.question import Question
from tsnn.data.split import Split
from tsnn.errors import RunError
from tsnn.evaluation.card import Result
from tsnn.evaluation.catalog import default_split, load
from tsnn.evaluation.evaluate import compared_baselines, make_questions, validation_questions
from tsnn.evaluation.health import StateHealth
from tsnn.evaluation.model import ModelScorer, remark_of
from tsnn.evaluation.questions import Questions
from tsnn.evaluation.replay import Listener, answering, answers_of, figures, replay
from tsnn.evaluation.scorer import Scorer
from tsnn.files import held, make_folder, sweep_partial, write_text
from tsnn.intensity.calibration import calibration
from tsnn.intensity.intensity import Intensity
from tsnn.model.tsnn import TSNN
from tsnn.plan.planner import PlanSpec
from tsnn.training.run import CONFIG, METRICS, FinalState, Run, save_run
from tsnn.training.tensorboard import TensorBoard
from tsnn.training.trainer import Trainer, check_device
from tsnn.types import Progress, unwatched

Follow = Callable[[ModelScorer, Questions], Sequence[Listener]]


def follow_nothing(scorer: ModelScorer, questions: Questions) -> Sequence[Listener]:
    """No further listener."""
    return ()


def train(
    data: str | Path | EventStream,
    out: str | Path,
    config: Config | None = None,
    *,
    compare: bool = True,
    follow: Follow = follow_nothing,
    progress: Progress = unwatched,
) -> Run:
    """Train on a stream's own split and leave a run folder; an interrupted call goes on where it stopped.

    With `compare`, the heuristics and the `features` baseline are evaluated beside the model. `follow` makes further
    listeners to the one replay that gives the figures and the final state.
    """
    config = config or Config()
    folder = Path(out)
    _check_unfinished(folder)
    stream = data if isinstance(data, EventStream) else load(data)
    if doubt := looks_undirected(stream):
        warnings.warn(doubt, stacklevel=2)
    split = default_split(stream)
    split.stream.ids.check_storable()
    question = Question.of(config.train)
    check_device(config.train)  # before anything is written
    torch.set_num_threads(1)  # the recurrence is sequential; a second thread only gets in its way
    make_folder(folder)
    with held(folder, f"another process trains in {folder}; wait for it, or choose another folder."):
        _check_unfinished(folder)  # it may have been finished while we looked
        sweep_partial(folder)
        write_text(folder / CONFIG, config.to_toml())
        return _trained(folder, split, config, question, compare, follow, progress)


def _check_unfinished(folder: Path) -> None:
    if (folder / METRICS).exists():
        raise RunError(f"{folder} already holds a finished run; choose another folder.")


def _trained(
    folder: Path, split: Split, config: Config, question: Question, compare: bool, follow: Follow, progress: Progress
) -> Run:
    """The run of a folder that nobody else is at work in."""
    validate = _Validation(validation_questions(split, question))
    with closing(TensorBoard(folder / "tensorboard")) if config.train.tensorboard else nullcontext() as board:
        model, course = Trainer(config, split, validate, folder, progress, board, validate.states).run()
    rivals = compared_baselines(split.stream, question, config.train.seed) if compare else []
    for i, rival in enumerate(rivals):
        progress(i, len(rivals), f"fitting {rival.name}")
        rival.fit(split, question)
        progress(i + 1, len(rivals), f"fitting {rival.name}")
    intensity = Intensity.fit(split, question) if config.train.intensity else None
    questions = make_questions(split, question)
    seen, looked_at = questions.split.stream, questions.fewer()
    scorer = ModelScorer(model, seen)
    scorer.paces = None if intensity is None else intensity.grid
    final, health = FinalState(scorer, seen), StateHealth(scorer, looked_at)
    listeners = [final, health, *follow(scorer, looked_at)]
    results = _figures(scorer, seen, questions, rivals, listeners, progress)
    metrics, *baselines = (result.to_dict() for result in results)
    if compare:
        metrics["baselines"] = baselines
    metrics["states"] = health.measure().to_dict()
    if intensity is not None:
        metrics["intensity"] = calibration(intensity, split)
    metrics["training"] = {"epochs": course.epoch, "best_epoch": course.best_epoch, "validation": course.best_metric}
    metrics["training"] |= {"head": course.head} if course.head else {}
    run = save_run(folder, model, split.stream, metrics, final.tensors, intensity)
    (folder / "checkpoint.safetensors").unlink(missing_ok=True)
    return run


class _Validation:
    """The figure that chooses an epoch, and what the states were like that it was measured with."""

    def __init__(self, questions: Questions) -> None:
        self._questions = questions
        self._states: dict[str, float] = {}

    def __call__(self, model: TSNN) -> float:
        scorer = ModelScorer(model, self._questions.split.stream)
        answers, health = answering(self._questions, scorer), StateHealth(scorer, self._questions.fewer())
        replay(scorer, self._questions.split.stream, [answers, health])
        self._states = health.measure().to_dict()
        return self._questions.choice(answers.metrics()["val"])

    def states(self) -> dict[str, float]:
        """Of the last weights that were validated."""
        return self._states


def _figures(
    scorer: ModelScorer,
    stream: EventStream,
    questions: Questions,
    rivals: Sequence[Scorer],
    listeners: Sequence[Listener],
    progress: Progress,
) -> list[Result]:
    """Figures of the model, then of its rivals, from one replay of the model that the listeners follow too."""
    own = answering(questions, scorer)
    # Rivals that read no more than the plain counts, which every plan has, are scored in that same replay.
    plain = [rival for rival in rivals if rival.spec == PlanSpec() and not questions.follow(rival)]
    beside = {rival.name: answers_of(rival, questions) for rival in plain}
    replay(scorer, stream, [own, *beside.values(), *listeners], progress=progress, text="evaluating")
    found = [replace(own.result(scorer.name), remark=remark_of(scorer.model))]
    for rival in rivals:
        if rival.name in beside:
            found.append(beside[rival.name].result(rival.name))
        else:
            found.append(figures(rival, stream, questions, progress, f"comparing with {rival.name}"))
    return found
