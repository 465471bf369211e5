"""Jobs as populations on a GPU: runs of one shape on the same rows are trained at once (`tsnn.training.population`)."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict

import torch

from tsnn.config import Config
from tsnn.engine.cuda import has_cupy
from tsnn.engine.population import FREE
from tsnn.errors import ConfigError, RunError, TsnnError
from tsnn.evaluation.dgb import DgbQuestions
from tsnn.study.jobs import FORMAT, Job, Outcome, identity_of, study_split
from tsnn.training.population import PopulationTrainer
from tsnn.types import Visibility

ON_GPU = {"train.device": "cuda", "train.engine": "cuda"}


def gpu() -> torch.device:
    """The device of populations, if there is one."""
    if not has_cupy():
        raise ConfigError("--population needs a GPU and CuPy; install tsnn[cuda] on a machine that has one.")
    return torch.device("cuda")


def check_suite(data: str) -> None:
    """Raise unless validation and figures of the data are those of DGB, the only ones a population knows."""
    if not data.startswith("dgb:"):
        raise ConfigError(f"--population knows the figures of DGB only; leave it out for {data}.")


def populations(jobs: Sequence[Job], size: int) -> list[list[Job]]:
    """Jobs that can be trained together, at most `size` at a time."""
    alike: dict[str, list[Job]] = {}
    for job in jobs:
        shape = Config.parse(job.config).model_dump(exclude=FREE)
        key = json.dumps([job.data, job.identity, job.visibility, job.shuffled, shape], sort_keys=True)
        alike.setdefault(key, []).append(job)
    return [group[i : i + size] for group in alike.values() for i in range(0, len(group), size)]


def attempt_populations(jobs: Sequence[Job], size: int) -> Iterator[Outcome]:
    """Run jobs population by population; one that cannot be run becomes an outcome that says why."""
    device = gpu()
    for group in populations(jobs, size):
        try:
            yield from run_population(group, device)
        except TsnnError as error:
            yield from (Outcome(job, None, str(error)) for job in group)


def run_population(jobs: list[Job], device: torch.device) -> Iterator[Outcome]:
    """Train and evaluate jobs of one shape at once; `seconds` of a record are those of the whole population."""
    first = jobs[0]
    split = study_split(first.data, first.shuffled)
    if identity_of(split) != first.identity:
        raise RunError(f"{first.data} has other rows here than where the study was planned; copy the same files.")
    check_suite(first.data)
    began = time.monotonic()
    trainer = PopulationTrainer([Config.parse(job.config) for job in jobs], split, device)
    trained, questions = trainer.run(), DgbQuestions(split, Visibility.parse(first.visibility))
    scores = trainer.evaluate(questions)
    seconds = round(time.monotonic() - began, 1)
    for i, (job, member, made) in enumerate(zip(jobs, trainer.members, trained, strict=True)):
        if not member.history:
            yield Outcome(job, None, "the loss became no number; lower train.lr.")
            continue
        training = {"epochs": made.epochs, "best_epoch": made.best_epoch, "validation": list(member.history)}
        record = {
            "format": FORMAT,
            "key": job.key,
            "job": asdict(job),
            **questions.result(job.scorer, scores[i]).to_dict(),
        }
        yield Outcome(job, {**record, "training": training, "seconds": seconds, "population": len(jobs)})
