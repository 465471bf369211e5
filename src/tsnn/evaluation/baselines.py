"""Baselines: what a model is set beside. Heuristics are pure functions of the plan's facts; `ROSTER` lists them all.

The command line names every baseline in its help, so nothing slow is imported here before a baseline is made.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, cast

import numpy as np
from numpy.typing import NDArray

from tsnn.data.events import EventStream
from tsnn.data.question import Question, asks
from tsnn.data.split import Split
from tsnn.errors import ConfigError
from tsnn.plan.facts import COLUMN
from tsnn.types import F64, I64
from tsnn.words import did_you_mean

if TYPE_CHECKING:
    from tsnn.evaluation.against_all import Everyone, Here
    from tsnn.evaluation.scorer import Block, Scorer
    from tsnn.plan.chunk import ChunkPlan
    from tsnn.plan.planner import PlanSpec

DGB_MODES = ("unlimited", "fixed_proportion", "repeat_interval", "repeat_threshold")
TGB_MODES = ("unlimited", "fixed_time_window")
MODES = tuple(dict.fromkeys(DGB_MODES + TGB_MODES))
PROPORTION = 0.15  # of the history (DGB) or of the training span (TGB) that a window covers

_DGB_BEST_MODE = {
    **dict.fromkeys(("mooc", "lastfm", "enron", "CanParl", "USLegis"), "fixed_proportion"),
    **dict.fromkeys(("UNtrade", "UNvote", "Contacts"), "repeat_interval"),
    "SocialEvo": "repeat_threshold",
}


def best_edgebank_mode(name: str) -> str:
    """The mode with the best published figure on a DGB set (random negatives); unlimited for any other stream."""
    return _DGB_BEST_MODE.get(name.removeprefix("dgb:"), "unlimited")


def quantile_of_sorted(t: NDArray[Any], n: I64, q: float, origin: Any = 0) -> F64:
    """`np.quantile(t[:n] - origin, q)` for every n, in constant time each: t is sorted already."""
    at = q * (n - 1)
    low = np.floor(at).astype(np.int64)
    high = np.minimum(low + 1, n - 1)
    weight = at - low
    a, b = _since(t[low], origin), _since(t[high], origin)
    # numpy interpolates from the nearer end
    result: F64 = np.where(weight < 0.5, a + (b - a) * weight, b - (b - a) * (1 - weight))
    return result


def mean_repeat_gap(stream: EventStream) -> F64:
    """For n = 0 .. num_events, over all pairs among the first n rows: the mean of their mean gaps, 0 for a single."""
    t = stream.t.astype(np.float64)
    pair = stream.src * stream.num_nodes + stream.dst
    order = np.argsort(pair, kind="stable")
    starts = np.flatnonzero(np.diff(pair[order], prepend=-1))
    seen = np.arange(len(order)) - np.repeat(starts, np.diff(starts, append=len(order)))
    since_first = t[order] - np.repeat(t[order[starts]], np.diff(starts, append=len(order)))
    mean = since_first / np.maximum(seen, 1)
    change = np.empty(len(order))
    change[order] = mean - np.where(seen > 0, np.concatenate([[0.0], mean[:-1]]), 0.0)
    pairs = np.zeros(len(order))
    pairs[order] = seen == 0
    return np.concatenate([[0.0], np.cumsum(change) / np.cumsum(pairs)])


class Stateless:
    """A scorer that has no state and nothing to learn: the plan counts, `score` reads."""

    name: str

    @cached_property  # a subclass that counts more sets its own
    def spec(self) -> PlanSpec:
        """The plain counts, which every plan has."""
        from tsnn.plan.planner import PlanSpec

        return PlanSpec()

    def fit(self, split: Split, question: Question) -> None:
        """Nothing to learn."""

    def reset_state(self) -> None:
        """Nothing to forget."""

    def update(self, plan: ChunkPlan) -> None:
        """Nothing to write."""

    def against_all(self, here: Here) -> Everyone:
        """All nodes at once, where `score` reads nothing but facts."""
        from tsnn.evaluation.against_all import from_facts

        return from_facts(cast("Scorer", self), here)


class Popularity(Stateless):
    """How often the candidate was a destination."""

    name = "popularity"

    def score(self, plan: ChunkPlan, versions: None) -> F64:
        """Count of events with the candidate as destination."""
        return _fact(plan, "dst_in_count")


class Recency(Stateless):
    """How recently the candidate was a destination."""

    name = "recency"

    def score(self, plan: Block, versions: None) -> F64:
        """The row of that event, so that rows of one time are told apart; one that never was stands last."""
        age = _fact(plan, "dst_in_age")
        return np.where(age < 0, -1.0, np.repeat(plan.queries.cut, np.diff(plan.score.ptr)) - age)


class SourceRecency(Stateless):
    """How recently the source turned to anybody: the same for all candidates, so it says nothing of whom it turns to.

    Where a negative keeps the source of its positive nothing comes of it; where it has another, often nearly all.
    """

    name = "source-recency"

    def __init__(self) -> None:
        self._stream: EventStream | None = None
        self._acts = np.zeros(0, np.int64)

    def score(self, plan: Block, versions: None) -> F64:
        """The time since then, negative; a source that has never acted stands last."""
        stream, queries = plan.stream, plan.queries
        if stream is not self._stream:
            self._stream, self._acts = stream, self._acts_of(stream)
        width = stream.num_events + 1
        at = np.searchsorted(self._acts, queries.src * width + queries.cut) - 1  # the last one before the cut
        found = self._acts[np.maximum(at, 0)] if len(self._acts) else np.full(len(at), -1)
        acted = (at >= 0) & (found // width == queries.src)
        last: NDArray[Any] = stream.t[np.where(acted, found % width, 0)]
        t: NDArray[Any] = queries.t
        return np.repeat(np.where(acted, (last - t).astype(np.float64), -np.inf), np.diff(plan.score.ptr))

    @staticmethod
    def _acts_of(stream: EventStream) -> I64:
        """Every row beside whom it has act, as one number, sorted by who and then by row."""
        own = asks(stream, np.arange(stream.num_events))
        acts: I64 = np.unique(own.src * (stream.num_events + 1) + own.rows)
        return acts


class EdgeBank(Stateless):
    """1 if the pair is in memory, 0 if not; the modes, those of DGB and TGB, differ in how far back memory reaches."""

    def __init__(self, mode: str = "unlimited", proportion: float = PROPORTION) -> None:
        if mode not in MODES:
            meant = did_you_mean(mode, MODES) or f"use one of {', '.join(MODES)}."
            raise ConfigError(f"EdgeBank has no mode {mode!r}; {meant}")
        self.mode = mode
        self.proportion = proportion
        self.name = f"edgebank:{mode}"
        self._window = 0.0
        self._window_at = np.zeros(1)

    def fit(self, split: Split, question: Question) -> None:
        """Measure the windows: TGB's on the training span, DGB's repeat interval on the rows before each cut."""
        t = split.stream.t[: split.train_end]
        self._window = self.proportion * float(t[-1] - t[0]) if len(t) else 0.0
        if self.mode == "repeat_interval":
            self._window_at = mean_repeat_gap(split.with_history(question.history).stream)

    def score(self, plan: Block, versions: None) -> F64:
        """Is the pair in memory as of the query's cut."""
        sizes = np.diff(plan.score.ptr)
        seen = _fact(plan, "pair_count")
        if self.mode == "unlimited":
            return (seen > 0).astype(np.float64)
        if self.mode == "repeat_threshold":
            mean_count = plan.queries.cut / np.maximum(plan.score.num_pairs, 1)
            return ((seen > 0) & (seen >= np.repeat(mean_count, sizes))).astype(np.float64)
        reach = np.repeat(self._reach(plan), sizes)
        return ((seen > 0) & (_fact(plan, "pair_gap") <= reach)).astype(np.float64)

    def _reach(self, plan: Block) -> F64:
        """How far back from its own time each query's memory goes.

        Compared with gaps, not with times: rounding is monotone, so a pair exactly at the edge stays inside.
        """
        cut, t, origin = np.maximum(plan.queries.cut, 1), plan.stream.t, plan.stream.t[0]
        if self.mode == "fixed_proportion":
            oldest = quantile_of_sorted(t, cut, 1 - self.proportion, origin)
        else:
            window = self._window if self.mode == "fixed_time_window" else self._window_at[cut]
            oldest = _since(t[cut - 1], origin) - window
        return _since(plan.queries.t, origin) - oldest


def _since(t: NDArray[Any], origin: Any) -> F64:
    """Times on the plan's own clock, which starts at the first row."""
    since: F64 = (t - origin).astype(np.float64)
    return since


def _fact(plan: ChunkPlan, name: str) -> F64:
    column: F64 = plan.score.facts[:, COLUMN[name]]
    return column


def _features(seed: int, successor: bool) -> Scorer:
    from tsnn.evaluation.features import FLOOR, WITH_SUCCESSOR, Features

    return Features(WITH_SUCCESSOR if successor else FLOOR, seed)


def _oracle() -> Scorer:
    from tsnn.evaluation.oracle import Oracle

    return Oracle()


def _recurrency(**settings: float) -> Scorer:
    from tsnn.evaluation.recurrency import Recurrency

    return cast("Scorer", Recurrency(**settings))


@dataclass(frozen=True)
class Baseline:
    """One line of the roster. `make` takes a mode (or nothing), the name of the data, a seed, and its settings."""

    name: str
    says: str  # what its score is, for help and documentation
    make: Callable[..., Scorer]
    modes: tuple[str, ...] = ()  # asked for as NAME:MODE
    settings: tuple[str, ...] = ()  # asked for as --set NAME.SETTING=VALUE
    learns: bool = False  # with a seed, so that runs differ
    compared: Literal["", "always", "where sources differ"] = ""  # set beside a model unless told otherwise
    foresees: bool = False  # knows what it is asked: a bound for all scorers, no method that has figures of its own


_BASELINES = (
    Baseline(
        "edgebank",
        "whether the pair is in memory",
        lambda mode, data, seed: EdgeBank(mode or best_edgebank_mode(data)),
        modes=MODES,
        compared="always",
    ),
    Baseline("popularity", "how often the candidate was a destination", lambda *_: Popularity(), compared="always"),
    Baseline("recency", "how recently the candidate was a destination", lambda *_: Recency(), compared="always"),
    Baseline(
        "source-recency",
        "how recently the source acted, whoever the candidate",
        lambda *_: SourceRecency(),
        compared="where sources differ",
    ),
    Baseline(
        "features",
        "a small network on counts and gaps of the data, without states",
        lambda mode, data, seed: _features(seed, successor=False),
        learns=True,
        compared="always",
    ),
    Baseline(
        "features+successor",
        "the same with what tends to follow a source's last destinations",
        lambda mode, data, seed: _features(seed, successor=True),
        learns=True,
    ),
    Baseline(
        "recurrency",
        "how often and how lately the same was true, and what its relation mostly leads to",
        lambda mode, data, seed, **settings: _recurrency(**settings),
        settings=("decay", "alpha"),
    ),
    Baseline(
        "oracle",
        "how often just this event happens: the ceiling of all scorers, and none itself",
        lambda *_: _oracle(),
        foresees=True,
    ),
)
ROSTER = {entry.name: entry for entry in _BASELINES}


def compared(sources_differ: bool = False) -> tuple[str, ...]:
    """The baselines that stand beside a model, by whether its figures compare scores of different sources."""
    wanted = ("always", "where sources differ") if sources_differ else ("always",)
    return tuple(name for name, entry in ROSTER.items() if entry.compared in wanted)


def baseline(name: str, *, data: str = "", seed: int = 0, settings: Mapping[str, Any] | None = None) -> Scorer:
    """A baseline that has yet to be fitted. `edgebank:MODE` chooses a mode; without one, the best known for `data`.

    Settings are named as on the command line, `{"recurrency.decay": 0.02}`.
    """
    base, _, mode = name.partition(":") if isinstance(name, str) else ("", "", "")
    entry = ROSTER.get(base)
    if entry is None or (mode and not entry.modes):
        raise ConfigError(f"there is no baseline {name!r}; {meant_baseline(name)}")
    return entry.make(mode, data, seed, **_settings_of(entry, settings or {}))


def _settings_of(entry: Baseline, settings: Mapping[str, Any]) -> dict[str, Any]:
    known = {f"{entry.name}.{name}": name for name in entry.settings}
    strange = next((name for name in settings if name not in known), None)
    if strange is not None:
        own = f"its own are {', '.join(known)}." if known else "it has none."
        raise ConfigError(f"{entry.name} has no setting {strange!r}; {did_you_mean(strange, known) or own}")
    return {known[name]: value for name, value in settings.items()}


def meant_baseline(name: str) -> str:
    """The baseline that is most like this name, else all of them."""
    return did_you_mean(str(name).partition(":")[0], ROSTER) or f"use one of {', '.join(ROSTER)}, edgebank:MODE."


def told() -> str:
    """The roster in one sentence, for help texts."""
    listed = "; ".join(f"{entry.name} ({entry.says})" for entry in ROSTER.values())
    moded = "; ".join(f"{name}:MODE is one of {', '.join(e.modes)}" for name, e in ROSTER.items() if e.modes)
    return f"{listed}. {moded}."
