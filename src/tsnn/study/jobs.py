"""Jobs: one scorer on one data set under one visibility with one seed, and the record of what came out.

A job's key is a hash of everything that determines its figures, so a stored one is never run again and a changed
configuration, data file or format never passes for an old result.
"""

from __future__ import annotations

import hashlib
import json
import time
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
import torch

from tsnn.config import Config
from tsnn.data.question import Question
from tsnn.data.split import Split, make_split
from tsnn.errors import RunError, TsnnError
from tsnn.evaluation.baselines import baseline
from tsnn.evaluation.card import Result
from tsnn.evaluation.catalog import default_split, load
from tsnn.evaluation.evaluate import evaluate, validation_metric
from tsnn.evaluation.model import ModelScorer
from tsnn.evaluation.scorer import Scorer
from tsnn.study.store import Record
from tsnn.training.course import Course
from tsnn.training.trainer import Trainer
from tsnn.types import Visibility

FORMAT = 2  # raise it when stored figures no longer mean what the code computes
MODEL = "tsnn"
LATER = {"negatives": None, "history": "train"}  # fields that came later, each as jobs were before
_SHUFFLE_SEED = 0


@dataclass(frozen=True)
class Job:
    """What is to be run; `config` is the resolved TOML of the model and empty for a baseline."""

    data: str
    identity: str  # of the split's rows
    visibility: str
    scorer: str
    seed: int
    config: str = ""
    shuffled: bool = False  # rows shuffled inside their timestamps
    negatives: str | None = None  # how figures choose them; None as the protocol usually does
    history: str = "train"  # of a baseline; a model's configuration says its own

    @property
    def key(self) -> str:
        """Hash of everything above; a setting that came later and is not in use leaves it what it was."""
        config = Config.parse(self.config).identity() if self.config else ""
        told = {name: value for name, value in asdict(self).items() if LATER.get(name, ...) != value}
        text = json.dumps({"format": FORMAT, **told, "config": config}, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:20]

    @property
    def question(self) -> Question:
        """What is asked: of a model what it is trained for, against these negatives."""
        if self.config:
            return replace(Question.of(Config.parse(self.config).train), negatives=self.negatives)
        return Question(Visibility.parse(self.visibility), negatives=self.negatives, history=self.history)


@lru_cache(maxsize=2)
def study_split(data: str, shuffled: bool = False) -> Split:
    """The data set's own split, kept for the next job on it."""
    split = default_split(load(data))
    return shuffle_ties(split) if shuffled else split


def shuffle_ties(split: Split) -> Split:
    """The same rows in another order inside each timestamp; no timestamp spans two segments."""
    stream = split.stream
    drawn = np.random.default_rng(_SHUFFLE_SEED).permutation(stream.num_events)
    order = drawn[np.argsort(stream.t[drawn], kind="stable")]
    return make_split(stream.take(order), split.train_end, split.val_end, split.full)


def identity_of(split: Split) -> str:
    """Changes when a row, an id or a bound of the split does."""
    return f"{split.stream.fingerprint()}-{split.train_end}-{split.val_end}"


def run_job(job: Job) -> Record:
    """Train if the scorer is the model, evaluate, and return the record to be stored."""
    torch.set_num_threads(1)  # one process a core
    split = split_of(job)
    question = job.question
    began = time.monotonic()
    scorer: Scorer
    course = None
    if job.scorer == MODEL:
        measure = validation_metric(split, replace(question, negatives=None))  # epochs are chosen as in training
        config = Config.parse(job.config)
        model, course = Trainer(config, split, lambda model: measure(ModelScorer(model, split.stream))).run()
        scorer = ModelScorer(model, split.stream)
    else:
        scorer = baseline(job.scorer, data=split.stream.name, seed=job.seed)
    return make_record(job, evaluate(scorer, split, question), course, began)


def split_of(job: Job) -> Split:
    """The rows that the job was planned on."""
    split = study_split(job.data, job.shuffled)
    if identity_of(split) != job.identity:
        raise RunError(f"{job.data} has other rows here than where the study was planned; copy the same files.")
    return split


def make_record(job: Job, result: Result, course: Course | None, began: float, **others: Any) -> Record:
    """What is stored of a job: its figures, how its model was trained if it has one, and how long all of it took."""
    training = None
    if course is not None:
        training = {"epochs": course.epoch, "best_epoch": course.best_epoch, "validation": course.history}
    whole = {"training": training, "seconds": round(time.monotonic() - began, 1), **others}
    return {"format": FORMAT, "key": job.key, "job": asdict(job), **result.to_dict(), **whole}


@dataclass(frozen=True)
class Outcome:
    """A finished job: its record, or the sentence that says why there is none."""

    job: Job
    record: Record | None
    error: str = ""


def attempt(job: Job) -> Outcome:
    """Run a job; an error of the package's own becomes part of the outcome, so that the other jobs go on."""
    try:
        return Outcome(job, run_job(job))
    except TsnnError as error:
        return Outcome(job, None, str(error))
