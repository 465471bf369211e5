"""What `tsnn` itself offers to call: runs, scorers, data and settings in whatever form they are at hand.

A frame becomes a stream here, a folder a run, a name a baseline, a word a visibility: the parts below take only these.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

from tsnn.config import Config
from tsnn.data.events import EventStream
from tsnn.data.question import Question
from tsnn.data.split import Split
from tsnn.errors import ConfigError, InputError
from tsnn.evaluation.baselines import ROSTER, baseline, meant_baseline
from tsnn.evaluation.card import Result
from tsnn.evaluation.catalog import Data, default_split, load
from tsnn.evaluation.evaluate import evaluate as evaluate_scorer
from tsnn.evaluation.method import Method, as_scorer
from tsnn.evaluation.model import ModelScorer
from tsnn.evaluation.scorer import Scorer
from tsnn.files import check_folder_target
from tsnn.progress import watched
from tsnn.runs.seeds import SeedRuns
from tsnn.runs.seeds import train_seeds as train_stream_seeds
from tsnn.runs.train import train as train_stream
from tsnn.training.run import Run, folder_of, keep_joint, split_like
from tsnn.training.train import Follow, follow_nothing
from tsnn.types import Visibility, Watch
from tsnn.words import kind_of

Settings = Config | Mapping[str, Any] | str | Path | None
RUNS = Path("runs")  # where a run goes that has been given no place


def train(
    data: Data,
    out: str | Path | None = None,
    config: Settings = None,
    *,
    compare: bool = True,
    follow: Follow = follow_nothing,
    progress: Watch = True,
    **columns: Any,
) -> Run:
    """Train on the split of some events and leave a run folder: figures beside those of the baselines, and a report.

    Args:
        data: a pandas or polars frame, the path of a table, an address such as "dgb:uci", or a stream.
        out: the run's folder; a call that was interrupted goes on in it. Without one, a new folder below runs/.
        config: a `Config`, settings such as `{"train.epochs": 5}`, a preset's name such as "paper", or a TOML file.
        compare: whether the heuristics and the `features` baseline are evaluated beside the model.
        follow: makes further listeners to the one replay that gives the figures and the final state.
        progress: True shows bars in a terminal or a notebook, False nothing; a function is told instead.
        columns: how a frame or a table is read: src, dst, t, msg, edge_type, undirected, sort ... as in `read_table`.
    """
    stream, folder, settings = _checked(data, out, config, columns)
    with watched(progress) as show:
        if out is None and progress:
            print(f"the run goes to {folder}", file=sys.stderr)
        return train_stream(stream, folder, settings, compare=compare, follow=follow, progress=show)


def train_seeds(
    data: Data,
    out: str | Path,
    config: Settings = None,
    *,
    seeds: int = 5,
    compare: bool = True,
    workers: int | None = None,
    progress: Watch = True,
    **columns: Any,
) -> SeedRuns:
    """Train a run for each of several seeds, side by side, and say how far a figure is the seed's.

    The runs go to `out`/seed-0 and so on; beside them stands a report of all, with mean and deviation of every figure,
    also as `report.json`. A call that was interrupted goes on.

    Args:
        data: as in `train`.
        out: the folder of the runs.
        config: as in `train`; seeds count from its `train.seed` on.
        seeds: how many.
        compare: as in `train`.
        workers: processes; by default one per core.
        progress: as in `train`.
        columns: as in `train`.
    """
    stream, folder, settings = _checked(data, out, config, columns)
    with watched(progress) as show:
        return train_stream_seeds(
            stream, folder, settings, seeds=seeds, compare=compare, workers=workers, progress=show
        )


def _checked(
    data: Data, out: str | Path | None, config: Settings, columns: dict[str, Any]
) -> tuple[EventStream, Path, Config]:
    """The events, the folder and the settings that are meant; bad ones are refused before anything is said."""
    settings = Config.of(config)
    if out is not None and not isinstance(out, str | Path):
        raise InputError(f"out is {kind_of(out)}; give the folder of the run, and settings as config=...")
    stream = load(data, **columns)
    default_split(stream)
    folder = fresh_folder(stream.name) if out is None else Path(out)
    check_folder_target(folder)
    return stream, folder, settings


def fresh_folder(data: str) -> Path:
    """The first folder below runs/ that is not there yet, by the name of the data and a number."""
    words = "".join(letter if letter.isalnum() else "-" for letter in data.removeprefix("table:"))
    return next(path for n in count(1) if not (path := RUNS / f"{words}-{n}").exists())


def evaluate(
    scorer: Run | Scorer | Method | str | Path,
    data: Data,
    visibility: str | Visibility | Question = "strict",
    *,
    protocol: str | None = None,
    candidates: str | None = None,
    negatives: str | None = None,
    history: str | None = None,
    sets: str | Iterable[str] | None = None,
    seed: int = 0,
    settings: Mapping[str, Any] | None = None,
    progress: Watch = True,
    **columns: Any,
) -> Result:
    """The figures of a run, of a baseline or of a scorer of your own, with the card they hold under.

    Args:
        scorer: a run or its folder, a baseline's name such as "edgebank", a method of your own with `observe(row)` and
            `score(src, candidates, t)`, or any scorer; what has to learn is fitted here.
        data: as in `train`, or a split. A table is read as the run's own was, where nothing else is said.
        visibility: what a scored event may see: "strict", "arrival" or "batch:N". Or a whole `Question`.
        protocol: "stream", "dgb", "tgb" or "tkg"; by default that of the data.
        candidates: who may be the answer, "destinations" or "all"; by default what the run was trained for.
        negatives: how the protocol chooses them, by default its usual way.
        history: "full" shows the rows that DGB keeps out of training, "train" does not; by default as the run's own.
        sets: only these, "test" for example; by default all that the protocol has.
        seed: of a baseline that learns.
        settings: of a baseline that has some, such as {"recurrency.decay": 0.02}.
        progress: True shows bars in a terminal or a notebook, False nothing; a function is told instead.
        columns: how a frame or a table is read, as in `train`.
    """
    asked = visibility if isinstance(visibility, Question) else Question(Visibility.parse(visibility))
    judged, split, usual = asked_of(scorer, data, seed, settings, **columns)
    if asked is not visibility:
        asked = replace(usual, visibility=asked.visibility, negatives=None)
    told: dict[str, Any] = {"candidates": candidates, "negatives": negatives, "history": history}
    question = replace(asked, **{name: word for name, word in told.items() if word is not None})
    names = None if sets is None else (sets,) if isinstance(sets, str) else tuple(sets)
    with watched(progress) as show:
        result = evaluate_scorer(judged, split, question, protocol=protocol, sets=names, progress=show)
    if isinstance(scorer, Run) or (isinstance(scorer, str | Path) and isinstance(judged, ModelScorer)):
        keep_joint(folder_of(scorer), result.card)
    return result


def asked_of(
    scorer: Any, data: Data, seed: int, settings: Mapping[str, Any] | None = None, **columns: Any
) -> tuple[Scorer, Split, Question]:
    """The scorer that is meant, the data it is asked about, and the question it is made for."""
    if isinstance(scorer, str) and scorer.partition(":")[0] in ROSTER:
        baseline(scorer, settings=settings)  # what cannot be made is refused before anything is read
        split = split_like(data, None, **columns)
        return baseline(scorer, data=split.stream.name, seed=seed, settings=settings), split, Question()
    if settings:
        raise ConfigError("only baselines have settings here; a run keeps those that it was trained with.")
    if isinstance(scorer, str | Path) and not Path(scorer).is_dir():
        raise ConfigError(f"{scorer} is neither a run folder nor a baseline; {meant_baseline(str(scorer))}")
    if isinstance(scorer, Run | str | Path):
        run = Run.of(scorer)
        split = split_like(data, run, **columns)
        return ModelScorer(run.model, split.stream), split, run.question
    if isinstance(getattr(scorer, "run", None), Run):
        raise InputError(f"{kind_of(scorer)} goes on where its run ended; evaluate the run itself, as predictor.run.")
    return as_scorer(scorer), split_like(data, None, **columns), Question()
