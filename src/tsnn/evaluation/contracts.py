"""What every scorer promises, each promise with the check that would find it broken.

`check_scorer` checks all of them on a short stream; `spot_check`, in moments, those that figures rest on. Whoever keeps
them may be run in blocks of any size, beside anybody, and answers as if it had waited for each question and known
nothing of what came after.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from tsnn.data.events import EventStream, NodeIds
from tsnn.data.queries import Queries, relations
from tsnn.data.question import Question
from tsnn.data.split import Split, make_split
from tsnn.errors import ContractError, InputError
from tsnn.evaluation.method import Method, as_scorer
from tsnn.evaluation.replay import score_queries
from tsnn.evaluation.scorer import Scorer
from tsnn.types import F64, I64, Visibility

VISIBILITIES = ("strict", "arrival", "batch:7")
ROWS = 300  # of a stream that `check_scorer` is given
SPOT_ROWS = 256  # enough for a block with as much behind the questions as before them
WIDTH = 5  # candidates of a question


@dataclass
class Trial:
    """A scorer, the first rows of a stream, and questions about them."""

    scorer: Scorer
    stream: EventStream
    question: Question
    rows: int
    asked: tuple[float, float] = (0, 1)  # which of the rows are asked about, as shares
    places: Sequence[float] = (1 / 6, 1 / 2, 5 / 6)  # where the rows divide into seen and rewritten ones

    @cached_property
    def split(self) -> Split:
        """The rows, cut by number: so few may all have one time."""
        first = self.stream.take(slice(0, self.rows))
        n = first.num_events
        return make_split(first, n * 70 // 100, n * 85 // 100)

    @cached_property
    def cuts(self) -> I64:
        """For each row, how many rows it may see."""
        return self.question.cuts(self.split)

    @cached_property
    def queries(self) -> Queries:
        """At the time of each row its own source, then that of a later row: whoever peeks knows what becomes of it.

        Its own destination is the first candidate. The last question of all may see every row, so that all are run.
        """
        stream, rng = self.stream, np.random.default_rng(0)
        n = len(self.cuts)
        at = np.repeat(np.arange(*(int(share * n) for share in self.asked)), 2)
        about = at.copy()
        about[1::2] = rng.integers(at[1::2], n)
        at, about = np.append(at, n - 1), np.append(about, n - 1)
        lively = stream.dst[rng.integers(0, stream.num_events, (len(at), 2))]
        cand = np.column_stack([stream.dst[about], lively, rng.integers(0, stream.num_nodes, (len(at), 2))])
        ptr = np.arange(len(at) + 1, dtype=np.int64) * WIDTH
        cut = np.append(self.cuts[at[:-1]], n)
        return Queries(cut, stream.src[about], stream.t[at], relations(stream, about), ptr, cand.ravel())

    def rewritten(self, start: int) -> EventStream:
        """The rows with others from one on: sources, and what they turn to, from anywhere in the stream.

        They happen later than those that were there, but not after the stream has ended.
        """
        stream, kept = self.stream, np.arange(start)
        drawn = np.random.default_rng(start).integers(0, stream.num_events, (2, len(self.cuts) - start))
        other = stream.take(np.concatenate([kept, drawn[0]]))
        t: NDArray[Any] = self.split.stream.t
        later: NDArray[Any] = np.minimum(t[start:] + (t[-1] - t[0] + 1), stream.t[-1])
        src = stream.src[np.concatenate([kept, drawn[1]])]
        return replace(other, src=src, t=np.concatenate([t[:start], later]))

    @cached_property
    def whole(self) -> F64:
        """All scores, the rows run in one block."""
        return self.run()

    def run(
        self,
        stream: EventStream | None = None,
        queries: Queries | None = None,
        scorer: Scorer | None = None,
        small: bool = False,
    ) -> F64:
        """All scores, with something else in the place of the trial's own, in one block or in twenty and more."""
        asked = (scorer or self.scorer, stream or self.split.stream, queries or self.queries)
        if not small:
            return score_queries(*asked)
        return score_queries(*asked, max_rows=max(1, len(self.cuts) // 20), max_candidates=10 * WIDTH)


def changed(before: F64, after: F64, rounding: bool = False) -> str:
    """How many scores differ and by how much, `rounding` aside if so wanted; nothing where none does."""
    slack = _rounding(before) if rounding else 0.0
    with np.errstate(invalid="ignore"):  # of infinities, which may be scores
        apart = np.abs(after - before)
    both_nan = np.isnan(before) & np.isnan(after)
    differs = ~((before == after) | both_nan | (apart <= slack))
    if not differs.any():
        return ""
    return f"{differs.sum():,} of {len(before):,} scores changed, by up to {apart[differs].max():.2g},"


def _rounding(scores: F64) -> float:
    """What single precision may do to scores of this size and spread."""
    finite = scores[np.isfinite(scores)]
    return float(1e-5 * np.ptp(finite) + 1e-6 * np.abs(finite).max()) if len(finite) else 0.0


def _no_number(trial: Trial) -> str:
    missing = int(np.isnan(trial.whole).sum())
    return f"{missing:,} of {len(trial.whole):,} scores are NaN" if missing else ""


def _remembers(trial: Trial) -> str:
    before = trial.whole
    trial.run(trial.rewritten(0))
    found = changed(before, trial.run())
    return found and f"{found} when other rows were run in between"


def _learns_from_test(trial: Trial) -> str:
    """Which nodes there are in test rows is no secret, but who is with whom. The scorer ends as it began."""
    split, before, rng = trial.split, trial.whole, np.random.default_rng(0)
    stream, known, n = split.stream, np.arange(split.val_end), split.stream.num_events
    seen = trial.queries.ptr[np.searchsorted(trial.queries.cut, split.val_end, side="right")]
    drawn = [np.concatenate([known, rng.permutation(np.arange(split.val_end, n))]) for _ in range(2)]
    other = replace(stream.take(drawn[0]), src=stream.src[drawn[1]], t=stream.t)
    trial.scorer.fit(replace(split, stream=other), trial.question)
    after = trial.run()
    trial.scorer.fit(split, trial.question)
    found = changed(before[:seen], after[:seen])
    return found and f"{found} when it was fitted with other test rows"


def _peeks(trial: Trial) -> str:
    queries = trial.queries
    for share in trial.places:
        start = int(trial.cuts[int(share * len(trial.cuts))])
        seen = queries.ptr[np.searchsorted(queries.cut, start, side="right")]
        found = changed(trial.whole[:seen], trial.run(trial.rewritten(start))[:seen])
        if found:
            return f"{found} when that was rewritten"
    return ""


def _depends_on_blocks(trial: Trial) -> str:
    found = changed(trial.whole, trial.run(small=True), rounding=True)
    return found and f"{found} when fewer rows were run at once"


class _Twice:
    """A scorer that is asked everything twice."""

    def __init__(self, scorer: Scorer) -> None:
        self._scorer = scorer

    def __getattr__(self, name: str) -> Any:
        return getattr(self._scorer, name)

    def score(self, plan: Any, versions: Any) -> F64:
        self._scorer.score(plan, versions)
        return self._scorer.score(plan, versions)


def _writes(trial: Trial) -> str:
    queries, width = trial.queries, np.arange(WIDTH)
    found = changed(trial.whole, trial.run(scorer=cast(Scorer, _Twice(trial.scorer))))
    if found:
        return f"{found} when it was asked the same twice"
    few = np.arange(0, len(queries), 3)
    cand = (few[:, None] * WIDTH + width).ravel()
    asked = Queries(
        queries.cut[few],
        queries.src[few],
        queries.t[few],
        queries.edge_type[few],
        queries.ptr[: len(few) + 1],
        queries.cand[cand],
    )
    found = changed(trial.whole[cand], trial.run(queries=asked, small=True), rounding=True)
    return found and f"{found} when it was asked less in between"


def _minds_company(trial: Trial) -> str:
    queries, whole = trial.queries, trial.whole.reshape(-1, WIDTH)
    cand = queries.cand.reshape(-1, WIDTH)
    turned = trial.run(queries=replace(queries, cand=cand[:, ::-1].ravel())).reshape(-1, WIDTH)[:, ::-1]
    found = changed(whole.ravel(), turned.ravel(), rounding=True)
    if found:
        return f"{found} when the candidates came in another order"
    alone = trial.run(queries=replace(queries, cand=cand[:, 0].copy(), ptr=np.arange(len(queries) + 1)))
    found = changed(whole[:, 0], alone, rounding=True)
    return found and f"{found} when candidates stood alone"


class Contract(NamedTuple):
    """A promise, what would show that it is broken, and what to do then."""

    promise: str
    broken: Callable[[Trial], str]  # in words; nothing where it is kept
    mend: str


_CUT_BY_CUT = "write it with observe(row) and score(src, candidates, t), which are run cut by cut"
NUMBERS = Contract("every candidate gets a number", _no_number, "find out where the others come from")
RESET = Contract(
    "a pass leaves nothing behind for the next",
    _remembers,
    "empty whatever events have filled when it is reset, and set the seed again of whatever is random",
)
FIT = Contract(
    "what is learned does not depend on test rows, and is the same each time",
    _learns_from_test,
    "let fit read the rows before split.val_end only, and give it a seed of its own",
)
PEEK = Contract("what a question may not see changes no answer", _peeks, _CUT_BY_CUT)
BLOCKS = Contract("how many rows are run at once changes no answer", _depends_on_blocks, _CUT_BY_CUT)
WRITES = Contract(
    "answering writes nothing",
    _writes,
    "let score read only, and leave whatever is to be remembered to update or observe",
)
COMPANY = Contract(
    "no answer depends on the other candidates",
    _minds_company,
    "score each candidate by itself, and leave out ranks and normalization over the candidates",
)
CONTRACTS = (NUMBERS, RESET, FIT, PEEK, BLOCKS, WRITES, COMPANY)  # each leans on those before it
SPOT = (PEEK, BLOCKS)


@dataclass(frozen=True)
class Kept:
    """What a scorer was found to keep."""

    scorer: str
    visibilities: tuple[str, ...]
    promises: tuple[str, ...]

    def __str__(self) -> str:
        listed = "\n".join(f"  {promise}" for promise in self.promises)
        return f"{self.scorer} keeps every promise of a scorer under {', '.join(self.visibilities)}:\n{listed}"

    __repr__ = __str__


def check_scorer(
    scorer: Scorer | Method, stream: EventStream | None = None, visibility: Visibility | str | None = None
) -> Kept:
    """Check every promise of a scorer, or of a method of one's own, on a short stream; what is kept can be printed.

    The first one that is broken is a `ContractError`, which says by how much and how to mend it. The stream is one with
    ties, self-loops, repeats, newcomers and features, or the first rows of the one given, which a scorer made for
    certain data needs; the visibility is the one given, or each of three. The scorer is fitted to these rows.
    """
    own = as_scorer(scorer)
    stream = _stream_for(own) if stream is None else stream
    if not isinstance(stream, EventStream):
        raise InputError("a check needs a stream; give what tsnn.load returns, or the stream of a split.")
    if stream.num_events < 20:
        raise InputError(f"a check needs 20 events or more and the stream has {stream.num_events}; give a longer one.")
    wanted = VISIBILITIES if visibility is None else (str(visibility),)
    for name in wanted:
        trial = Trial(own, stream, Question(Visibility.parse(name)), ROWS)
        own.fit(trial.split, trial.question)
        found = _first_broken(trial, CONTRACTS)
        if found:
            raise ContractError(f"{own.name} breaks a promise: {found}")
    return Kept(own.name, tuple(wanted), tuple(contract.promise for contract in CONTRACTS))


def _stream_for(scorer: Scorer) -> EventStream:
    from tsnn.evaluation.model import ModelScorer

    if isinstance(scorer, ModelScorer):
        raise InputError(f"{scorer.name} was made for a stream of its own; give it to check_scorer as well.")
    return tied_stream()


def spot_check(scorer: Scorer, split: Split, question: Question) -> None:
    """Refuse a fitted scorer that, on the first rows of the stream, knows what it may not see.

    Scorers of this package are held to it by its tests, and methods by the way they are run.
    """
    if type(scorer).__module__.startswith("tsnn."):
        return
    trial = Trial(scorer, split.stream, question, SPOT_ROWS, asked=(3 / 8, 1 / 2), places=(1 / 2,))
    found = _first_broken(trial, SPOT)
    if found:  # chance, or a past that it does not forget, looks the same
        found = _first_broken(trial, (RESET,)) or found
        raise ContractError(f"{scorer.name} gets no figures: {found}")


def _first_broken(trial: Trial, contracts: Sequence[Contract]) -> str:
    for promise, broken, mend in contracts:
        found = broken(trial)
        if found:
            return f"under {trial.question.visibility}, {promise}, but {found}; {mend}."
    return ""


def tied_stream(nodes: int = 15, events: int = 120) -> EventStream:
    """A small stream with everything that answers go wrong on: ties, self-loops, repeats, late newcomers, features."""
    rng = np.random.default_rng(0)
    src, dst = rng.integers(0, nodes - 3, events), rng.integers(0, nodes - 2, events)
    dst[::17] = src[::17]
    late = events * 3 // 4
    src[late:] = rng.integers(0, nodes, events - late)
    t = np.sort(rng.integers(0, events // 3, events)).astype(np.float64)
    return EventStream(src, dst, t, NodeIds(range(nodes)), msg=rng.normal(size=(events, 2)).astype(np.float32))
