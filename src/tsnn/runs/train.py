"""A run with its report."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tsnn.config import Config
from tsnn.data.events import EventStream
from tsnn.evaluation.model import ModelScorer
from tsnn.evaluation.questions import Questions
from tsnn.evaluation.replay import Listener
from tsnn.report.page import write_report
from tsnn.report.trace import Tracer
from tsnn.training.run import Run
from tsnn.training.train import Follow, follow_nothing
from tsnn.training.train import train as train_run
from tsnn.types import Progress, unwatched


def train(
    stream: EventStream,
    folder: Path,
    config: Config,
    *,
    compare: bool = True,
    follow: Follow = follow_nothing,
    progress: Progress = unwatched,
) -> Run:
    """Train on a stream's own split and leave a run folder with its report; an interrupted call goes on.

    With `compare`, the heuristics and the `features` baseline are evaluated beside the model. `follow` makes further
    listeners to the one replay that gives the figures, the final state and the report.
    """
    tracers: list[Tracer] = []

    def listen(scorer: ModelScorer, questions: Questions) -> Sequence[Listener]:
        tracers.append(Tracer(scorer, questions))
        return [*tracers, *follow(scorer, questions)]

    run = train_run(stream, folder, config, compare=compare, follow=listen, progress=progress)
    write_report(run, tracers[0].trace())
    return run
