"""What a figure of somebody else's model is made of, from a table of what it scored and nothing of the model.

A row of the table is one scored event: src, dst, t, score, label (1 it happened, 0 it is a negative) and batch (what
was scored together). Four things are asked of it.

- The ceiling, and collisions: how many negatives happen, and what the figure is without them.
- The order of the file: rows are shuffled inside their times, and batches filled again.
- Dependence: how much of the score is explained by what no scorer may read, the rows that stand before it at the same
  time (ties) or are scored together with it (company), once source, destination, what happens and the heuristics have
  explained what they can; and what is left of the figure without that part.
- What simple rules get on the very same rows.

Dependence is measured by least squares on ranks of the scores: it finds what grows or falls with such counts, not every
way of reading them, and where all positives look alike in them there is nothing to be found.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata

from tsnn.data.events import EventStream, map_ids
from tsnn.data.queries import Queries
from tsnn.data.question import Question
from tsnn.data.split import Split, make_split
from tsnn.data.table import open_table
from tsnn.errors import InputError
from tsnn.evaluation.baselines import baseline, compared
from tsnn.evaluation.catalog import Data, default_split
from tsnn.evaluation.metrics import average_precision, roc_auc
from tsnn.evaluation.oracle import Oracle
from tsnn.evaluation.replay import score_queries
from tsnn.evaluation.scorer import Scorer
from tsnn.types import F64, I64, Bool, Progress, unwatched

COLUMNS = ("src", "dst", "t", "score", "label", "batch")
LEARN = "features"  # the baseline that needs training rows
TELLING = 0.05  # a share of the score, explained by what may not be read, that is no accident
SHUFFLES = 10
ROUNDS = 20  # of taking out means of sources and destinations in turn


@dataclass(frozen=True)
class Scored:
    """The rows of the table, and the events that they are about."""

    split: Split
    src: I64
    dst: I64
    t: NDArray[Any]
    score: F64
    happened: Bool  # the label
    batch: I64  # 0, 1, ... in the order in which they first appear

    def figures(self, score: F64, among: Bool | None = None) -> dict[str, float]:
        """AP and AUC in per cent, means over batches; of some of the rows, over batches that still have both labels."""
        chosen = np.ones(len(score), np.bool_) if among is None else among
        found: dict[str, list[float]] = {"ap": [], "auc": []}
        for own in _groups(np.where(chosen, self.batch, -1)):
            pos, neg = score[own[self.happened[own]]], score[own[~self.happened[own]]]
            if len(pos) and len(neg):
                found["ap"].append(100 * average_precision(pos, neg))
                found["auc"].append(100 * roc_auc(pos, neg))
        if not found["ap"]:
            raise InputError("no batch holds a row labeled 1 and one labeled 0 to compare; check label and batch.")
        return {name: float(np.mean(values)) for name, values in found.items()}

    def queries(self) -> tuple[Queries, I64]:
        """What each row asks, under `strict`, sorted by cut; and the row of each query."""
        cut = np.searchsorted(self.split.stream.t, self.t, side="left").astype(np.int64)
        order = np.argsort(cut, kind="stable")
        ptr, none = np.arange(len(order) + 1, dtype=np.int64), np.zeros(len(order), np.int64)
        return Queries(cut[order], self.src[order], self.t[order], none, ptr, self.dst[order]), order


def _groups(code: I64) -> Iterable[I64]:
    """The rows of each code but -1."""
    order = np.argsort(code, kind="stable")
    starts = np.flatnonzero(np.diff(code[order], prepend=-1))
    return np.split(order[code[order] >= 0], (starts - (code < 0).sum())[1:]) if len(starts) else []


def read_scored(path: Path | str, data: Data | None = None) -> Scored:
    """The table, about the events of `data`, or else about its own rows labeled 1."""
    table = open_table(path)
    absent = [name for name in COLUMNS if name not in table]
    if absent:
        raise InputError(f"{path} has no column {absent[0]!r}; an audit reads {', '.join(COLUMNS)}.")
    label, score, t = (_numbers(table[name], name, path) for name in ("label", "score", "t"))
    if not np.isin(label, (0, 1)).all():
        raise InputError(f"column 'label' of {path} holds other values than 0 and 1; 1 is an event, 0 a negative.")
    happened = label == 1
    if not happened.any() or happened.all():
        raise InputError(f"{path} holds rows of one label only; give events (1) and negatives (0).")
    batch = _in_order(table["batch"])
    if data is None:
        ids, src, dst = map_ids(table["src"], table["dst"])
        order = np.flatnonzero(happened)[np.argsort(t[happened], kind="stable")]
        stream = EventStream(src[order], dst[order], t[order], ids, name=str(path))
        split = make_split(stream, 0, 0)
    else:
        split = default_split(data)
        src, dst = (split.stream.ids.indices(table[name]) for name in ("src", "dst"))
        t = t.astype(split.stream.t.dtype)
    scored = Scored(split, src, dst, t, score, happened, batch)
    lost = int((_knowing(scored, sources_differ=True)[happened] == 0).sum())
    if lost:
        raise InputError(f"{lost:,} rows labeled 1 are no events of {split.stream.name}; name the data they are of.")
    return scored


def _numbers(column: NDArray[Any], name: str, path: Path | str) -> NDArray[Any]:
    if column.dtype.kind not in "iufb" or not np.isfinite(column.astype(np.float64)).all():
        raise InputError(f"column {name!r} of {path} must hold finite numbers only.")
    return column.astype(np.float64) if name != "t" else column


def _in_order(names: NDArray[Any]) -> I64:
    _, first, code = np.unique(names, return_index=True, return_inverse=True)
    number = np.empty(len(first), np.int64)
    number[np.argsort(first)] = np.arange(len(first))
    return number[code]


def _knowing(scored: Scored, sources_differ: bool) -> F64:
    """The oracle's scores of the rows."""
    oracle = Oracle()
    oracle.fit(scored.split, Question(negatives="historical" if sources_differ else None))
    queries, order = scored.queries()
    known = np.empty(len(order))
    known[order] = oracle.known(queries)
    return known


def sources_differ(scored: Scored) -> bool:
    """Whether a negative has a source of which nothing happens at its time."""
    acts = set(zip(scored.src[scored.happened].tolist(), scored.t[scored.happened].tolist(), strict=True))
    others = zip(scored.src[~scored.happened].tolist(), scored.t[~scored.happened].tolist(), strict=True)
    return any(pair not in acts for pair in others)


def audit(scored: Scored, progress: Progress = unwatched) -> dict[str, Any]:
    """All that can be said, as JSON would hold it."""
    differ = sources_differ(scored)
    known, own = _knowing(scored, differ), scored.figures(scored.score)
    simple = _simple(scored, compared(differ), progress)
    reachable, true = scored.figures(known), (known > 0) & ~scored.happened
    told = [rankdata(values) for values in (*simple.values(), known)]
    controls = np.stack([*told, known > 0, scored.happened], axis=1)
    parts = {"ties": tie_facts(scored), "company": company_facts(scored)}
    found: dict[str, Any] = {
        "rows": len(known),
        "events": int(scored.happened.sum()),
        "batches": int(scored.batch.max()) + 1,
        "figures": own,
        "ceiling": reachable,
        "collisions": {
            "share": float(true.sum() / (~scored.happened).sum()),
            "figures_without": scored.figures(scored.score, ~true),
        },
        "shuffled": shuffled(scored),
        **{name: dependence(scored, facts, controls) for name, facts in parts.items()},
        "simple": {name: scored.figures(values) for name, values in simple.items()},
    }
    return {**found, "says": list(sentences(found))}


def _simple(scored: Scored, names: Iterable[str], progress: Progress) -> dict[str, F64]:
    """Scores of the baselines; of one that learns only where there are rows to learn from."""
    queries, order = scored.queries()
    found = {}
    for name in names:
        if name == LEARN and not scored.split.train_end:
            continue
        scorer: Scorer = baseline(name, data=scored.split.stream.name)
        scorer.fit(scored.split, Question())
        found[name] = np.empty(len(order))
        found[name][order] = score_queries(scorer, scored.split.stream, queries, progress=progress)
    return found


def _turns(scored: Scored) -> I64:
    """Places in the order of the events; the i-th negative of a batch stands where its i-th event does."""
    turn = np.empty(len(scored.batch), np.int64)
    for label in (True, False):
        own = np.flatnonzero(scored.happened == label)
        own = own[np.argsort(scored.batch[own], kind="stable")]
        batch = scored.batch[own]
        place = np.arange(len(own)) - np.searchsorted(batch, batch)
        turn[own] = batch * (len(turn) + 1) + place
    return turn


def tie_facts(scored: Scored) -> F64:
    """Of each row, the events of its time that stand before it, to its candidate and of its source: how many, how near.

    Not those of the same pair: who knows whom somebody likes scores such rows high, and needs no ties for it.
    """
    turn = np.unique(_turns(scored), return_inverse=True)[1]
    time = np.unique(scored.t, return_inverse=True)[1]
    columns = []
    for nodes in (scored.dst, scored.src):
        count, since = _before(time * scored.split.stream.num_nodes + nodes, turn, scored.happened)
        columns += [np.log1p(count), count > 0, np.where(count > 0, 1 / since, 0), np.where(count, np.log(since), 0)]
    return np.stack(columns, axis=1).astype(np.float64)


def _before(group: I64, turn: I64, happened: Bool) -> tuple[I64, I64]:
    """For each row, the events of its group with an earlier turn, and the turns since the last; 1 without any."""
    group = np.unique(group, return_inverse=True)[1]
    width = len(turn) + 1
    events = np.sort(group[happened] * width + turn[happened])
    first, end = (np.searchsorted(events, group * width + place) for place in (0, turn))
    last = events[np.maximum(end - 1, 0)] - group * width
    return end - first, np.where(end > first, turn - last, 1)


def company_facts(scored: Scored) -> F64:
    """Of each row, among those scored in one go with it: how many share candidate and source, and how alike all are."""
    call = scored.batch * 2 + scored.happened
    n = scored.split.stream.num_nodes
    size = np.bincount(call)[call]
    alike, columns = {}, []
    for name, nodes in (("dst", scored.dst), ("src", scored.src)):
        _, code, count = np.unique(call * n + nodes, return_inverse=True, return_counts=True)
        alike[name] = count[code]
        columns.append((count[code] - 1) / np.maximum(size - 1, 1))
        largest = np.zeros(call.max() + 1)
        np.maximum.at(largest, call, count[code] / size)
        columns.append(largest[call])
    return np.stack(columns, axis=1)


def dependence(scored: Scored, facts: F64, controls: F64) -> dict[str, Any]:
    """How much of what else does not explain these facts do, and the figures once their part is taken out."""
    ranks = rankdata(scored.score) / len(scored.score)
    columns = _within(scored, np.column_stack([ranks, controls, facts]))
    y, control, own = columns[:, 0], columns[:, 1 : 1 + controls.shape[1]], columns[:, 1 + controls.shape[1] :]
    own = own[:, own.std(axis=0) > 1e-9]
    kept = facts[:, columns[:, 1 + controls.shape[1] :].std(axis=0) > 1e-9]
    rest = y - control @ np.linalg.lstsq(control, y, rcond=None)[0]
    if not own.shape[1] or rest.std() < 1e-9:
        return {"explains": 0.0, "reads": False, "figures_without": scored.figures(scored.score)}
    both = np.column_stack([control, own])
    weights = np.linalg.lstsq(both, y, rcond=None)[0]
    free = max(len(y) - both.shape[1] - 1, 1)
    explains = 1 - ((y - both @ weights) ** 2).sum() / (rest**2).sum() * (free + own.shape[1]) / free
    part = (kept - kept.mean(axis=0)) @ weights[control.shape[1] :]
    share = float(max(explains, 0.0))
    reads = share > TELLING  # else the part is noise, and to take it out would say nothing
    return {"explains": share, "reads": reads, "figures_without": scored.figures(ranks - part if reads else ranks)}


def _within(scored: Scored, columns: F64) -> F64:
    """Columns less what belongs to each candidate and each source as such, whom every scorer may know."""
    left: F64 = columns - columns.mean(axis=0)
    for _ in range(ROUNDS):
        for nodes in (scored.dst, scored.src):
            count = np.maximum(np.bincount(nodes), 1)
            means = np.stack([np.bincount(nodes, column) / count for column in left.T], axis=1)
            left = left - means[nodes]
    return left


def shuffled(scored: Scored) -> dict[str, float]:
    """AP with the rows shuffled inside their times and batches of the same sizes filled again: mean and deviation."""
    rng, values = np.random.default_rng(0), []
    turn = _turns(scored)
    for _ in range(SHUFFLES):
        batch = np.empty_like(scored.batch)
        for label in (True, False):
            own = np.flatnonzero(scored.happened == label)
            in_time = own[np.lexsort((turn[own], scored.t[own]))]
            mixed = own[np.lexsort((rng.random(len(own)), scored.t[own]))]
            batch[mixed] = scored.batch[in_time]
        again = Scored(scored.split, scored.src, scored.dst, scored.t, scored.score, scored.happened, batch)
        values.append(again.figures(scored.score)["ap"])
    return {"ap": float(np.mean(values)), "std": float(np.std(values, ddof=1))}


def sentences(found: Mapping[str, Any]) -> Iterable[str]:
    """What it comes to."""
    own, reach, collisions = found["figures"]["ap"], found["ceiling"]["ap"], found["collisions"]
    yield f"{100 * collisions['share']:.2f} % of the negatives happen; knowing every event, AP is {reach:.2f}."
    if own > reach + 1:
        yield f"The AP of {own:.2f} is above what can be had: it was made with more than the question tells."
    ways = (
        ("ties", "rows that stand before it at the same time"),
        ("company", "what is scored together with it"),
    )
    for name, what in ways:
        part = found[name]
        share, without = 100 * part["explains"], part["figures_without"]["ap"]
        if part["reads"]:
            yield f"It depends on {what} ({share:.0f} % of what is left open otherwise); without, AP is {without:.2f}."
        else:
            yield f"No dependence on {what} was found ({share:.1f} %)."
    best = max(found["simple"], key=lambda name: found["simple"][name]["ap"])
    yield f"The best simple rule, {best}, has an AP of {found['simple'][best]['ap']:.2f} on the same rows."
