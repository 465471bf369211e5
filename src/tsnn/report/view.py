"""What a report knows of a run: its figures, its journal, its settings, a replay, the statements that were checked."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from tsnn.data.split import Split
from tsnn.evaluation.evaluate import make_questions
from tsnn.evaluation.model import ModelScorer
from tsnn.evaluation.replay import replay
from tsnn.report.trace import Trace, Tracer
from tsnn.training.run import Run
from tsnn.types import Progress, unwatched

VERIFICATION = "verify.json"


@dataclass(frozen=True)
class View:
    """One run, ready to be shown."""

    name: str
    remark: str  # what has to be known wherever a figure of the run is shown
    metrics: dict[str, Any]
    card: dict[str, Any]  # what the figures hold under
    settings: dict[str, Any]  # flat, by dotted name
    journal: list[dict[str, Any]]
    verification: dict[str, Any] | None
    step_size: float
    step_bound: float
    trace: Trace | None  # None where the data is not at hand
    train_end: int
    val_end: int

    @property
    def replayed(self) -> Trace:
        """The trace of a run whose data is at hand."""
        assert self.trace is not None
        return self.trace

    @property
    def states(self) -> dict[str, float]:
        """What its states are like: as measured after training, or in this replay; empty where neither is at hand."""
        measured: dict[str, float] = self.metrics.get("states") or (self.trace.states if self.trace else {})
        return measured

    @property
    def results(self) -> list[dict[str, Any]]:
        """The run's figures, then those of the baselines."""
        return [self.metrics, *self.metrics.get("baselines", [])]


def trace_run(run: Run, split: Split, progress: Progress = unwatched) -> Trace:
    """What a replay of the run shows, under the questions that its figures answer."""
    questions = make_questions(split, run.question)
    scorer = ModelScorer(run.model, split.stream)
    tracer = Tracer(scorer, questions.fewer())
    replay(scorer, questions.split.stream, [tracer], progress=progress, text=f"replaying {run.folder.name}")
    return tracer.trace()


def make_view(run: Run, trace: Trace | None) -> View:
    """What the run folder holds, and the replay where there is one."""
    journal = run.folder / "journal.jsonl"
    verified = run.folder / VERIFICATION
    sizes = run.metrics["card"]["split"]
    train_end = sizes["train"] + (sizes.get("held_out", 0) if run.question.history == "full" else 0)
    bound = float(run.model.updater.gain().detach().max().reciprocal())
    return View(
        name=run.folder.resolve().name,
        remark=run.remark,
        metrics=run.metrics,
        card=run.metrics["card"],
        settings=flatten(run.config.model_dump()),
        journal=[json.loads(line) for line in journal.read_text().splitlines()] if journal.is_file() else [],
        verification=json.loads(verified.read_text()) if verified.is_file() else None,
        step_size=min(run.config.model.step_size, bound),
        step_bound=bound,
        trace=trace,
        train_end=train_end,
        val_end=train_end + sizes["val"],
    )


def flatten(tree: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """A nested dictionary by dotted names."""
    flat: dict[str, Any] = {}
    for key, value in tree.items():
        flat |= flatten(value, f"{prefix}{key}.") if isinstance(value, dict) else {f"{prefix}{key}": value}
    return flat
