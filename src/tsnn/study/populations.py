"""Jobs as populations on a GPU: runs of one shape on the same rows are trained at once (`tsnn.training.stacked`).

Runs that differ in more, such as the variants of an ablation, are populations of their own, side by side on the card.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence

import torch

from tsnn.config import Config
from tsnn.engine.cuda import has_cupy
from tsnn.engine.stack import in_common
from tsnn.errors import ConfigError, TsnnError
from tsnn.evaluation.evaluate import make_questions
from tsnn.study.jobs import Job, Outcome, make_record, split_of
from tsnn.training.stacked import StackedTrainer
from tsnn.training.turns import Turns, side_by_side

# A population learns no vectors of partners.
ON_GPU = {"train.device": "cuda", "train.engine": "cuda", "model.partners": False}


def gpu() -> torch.device:
    """The device of populations, if there is one."""
    if not has_cupy():
        raise ConfigError("--population needs a GPU and CuPy; install tsnn[cuda] on a machine that has one.")
    return torch.device("cuda")


def populations(jobs: Sequence[Job], size: int) -> list[list[Job]]:
    """Jobs that can be trained together, at most `size` at a time."""
    alike: dict[str, list[Job]] = {}
    for job in jobs:
        common = in_common(Config.parse(job.config))
        key = json.dumps([job.data, job.identity, job.visibility, job.shuffled, job.negatives, common], sort_keys=True)
        alike.setdefault(key, []).append(job)
    return [group[i : i + size] for group in alike.values() for i in range(0, len(group), size)]


def shelves(groups: Sequence[list[Job]], size: int) -> list[list[list[Job]]]:
    """Populations in their order, put side by side while no more than `size` jobs run at once."""
    filled: list[list[list[Job]]] = []
    room = 0
    for group in groups:
        if len(group) > room:
            filled.append([])
            room = size
        filled[-1].append(group)
        room -= len(group)
    return filled


def attempt_populations(jobs: Sequence[Job], size: int) -> Iterator[Outcome]:
    """Run jobs, at most `size` at once; a population that cannot be run becomes outcomes that say why."""
    device = gpu()
    for groups in shelves(populations(jobs, size), size):
        for outcomes in side_by_side([attempt_population(group, device) for group in groups], device):
            yield from outcomes


def attempt_population(jobs: list[Job], device: torch.device) -> Turns[list[Outcome]]:
    """Train and evaluate jobs of one shape at once; `seconds` of a record are those of the whole population."""
    try:
        split = split_of(jobs[0])
        began = time.monotonic()
        trainer = StackedTrainer([Config.parse(job.config) for job in jobs], split, device)
        trained = yield from trainer.run()
        questions = make_questions(split, jobs[0].question)
        answers = yield from trainer.evaluate(questions)
    except TsnnError as error:
        return [Outcome(job, None, str(error)) for job in jobs]
    outcomes = []
    for job, (_, course), own in zip(jobs, trained, answers, strict=True):
        if course.history:
            result = questions.result(job.scorer, own)
            outcomes.append(Outcome(job, make_record(job, result, course, began, population=len(jobs))))
        else:
            outcomes.append(Outcome(job, None, "the loss became no number; lower train.lr."))
    return outcomes
