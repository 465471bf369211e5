"""The facts: what the data alone says about a source and a candidate, each said once.

A row of `FACTS` is a fact. From it follow the column where compiled code writes it, its value before anything is
counted, the columns of psi made of it, and the words in which a person reads it. `tsnn.plan.query_facts` fills the
columns, each as of what its query may see; features and baselines are functions of these columns alone. Sentences that
take several facts together are in `tsnn.online.sentences`, which no kernel is made of.

A new fact is a row here and a line in `tsnn.plan.query_facts`. Compiled code reaches columns by name (`AT.pair_gap`),
so rows may stand anywhere in their block, except that numbered ones (`succ_count_1`, ...) stay together and in order.
"""

from __future__ import annotations

from collections import namedtuple
from typing import Any, Literal, NamedTuple, get_args

import numpy as np

Rule = Literal["lg", "log", "never", "raw"]
RULES: tuple[Rule, ...] = get_args(Rule)
Unit = Literal["mean gaps", "events", "share", ""]
STEPS = 2  # of the longest walk


class Fact(NamedTuple):
    """A row of the table.

    `says` is what its value is; {src} and {dst} stand for the names of source and candidate. `rules` are the columns
    of psi made of the fact, as `tsnn.model.features` explains them. `unseen` is its value for nodes, or a pair, without
    any event. `note` is for the documentation: what the sentence leaves out.
    """

    name: str
    says: str
    rules: tuple[Rule, ...]
    unseen: float = 0.0
    unit: Unit = ""
    note: str = ""
    block: str = ""  # the switch of FeatureConfig that turns its columns of psi on; always on if empty


def _gap(name: str, says: str, note: str = "") -> Fact:
    """Time since an event, in the stream's own unit; -1 where there was none."""
    return Fact(name, says, ("lg", "never"), unseen=-1.0, unit="mean gaps", note=note)


def _count(name: str, says: str, note: str = "") -> Fact:
    """A count or a length: of any size, so psi has its logarithm."""
    return Fact(name, says, ("log",), note=note)


def _share(name: str, says: str, note: str = "", unseen: float = 0.0) -> Fact:
    """A part of a whole."""
    return Fact(name, says, ("raw",), unseen, "share", note)


def _block(switch: str, *facts: Fact) -> tuple[Fact, ...]:
    return tuple(fact._replace(block=switch) for fact in facts)


# What a walk fact is about: i steps from the source, j steps from the candidate. Without a step it is the node itself.
_MEETINGS = [(i, j) for i in range(STEPS + 1) for j in range(STEPS + 1) if i + j]
_PATHS = ("", "paths of one step", "paths of two steps")


def _meet(i: int, j: int) -> str:
    if i and j:
        return f"{_PATHS[i]} from {{src}} meet {_PATHS[j]} from {{dst}}"
    return f"{_PATHS[i]} from {{src}} end at {{dst}}" if i else f"{_PATHS[j]} from {{dst}} end at {{src}}"


_LAST = ("where {src} went last", "where {src} went last but one", "where {src} went last but two")
_RECENT = "each event fades by exp(-gap / activity_decay)"
_WALKS = "each step fades by exp(-gap / walk_decay)"

FACTS: tuple[Fact, ...] = (
    _gap("src_gap", "last event of {src}", "in either role"),
    _gap("dst_gap", "last event of {dst}", "in either role"),
    Fact("dst_in_age", "last event to {dst}", (), unseen=-1.0, unit="events", note="in rows of the stream"),
    *_block(
        "pairs",
        _count("pair_count", "events {src} -> {dst} so far", "of any relation"),
        _gap("pair_gap", "last event {src} -> {dst}"),
        _count("reverse_count", "events {dst} -> {src} so far"),
    ),
    *_block(
        "edgebank_recency",
        _count("bank_count", "events {src} -> {dst} in EdgeBank", "of the relation asked about, inside the window"),
        _gap("bank_gap", "last event {src} -> {dst} in EdgeBank", "of the relation asked about, inside the window"),
    ),
    *_block(
        "common_neighbors",
        _count("cn_count", "recent partners of both {src} and {dst}"),
        Fact(
            "cn_decayed",
            "recent partners of both {src} and {dst}, those met lately weighing more",
            ("raw",),
            note="each weighs exp(-gap / cn_decay), the gap to the last contact with either",
        ),
        Fact(
            "cn_adamic_adar",
            "recent partners of both {src} and {dst}, those with few events weighing more",
            ("raw",),
            note="Adamic-Adar: each weighs 1 / log(2 + its events)",
        ),
        _share("cn_jaccard", "recent partners of {src} or {dst} that are partners of both", "Jaccard"),
    ),
    *_block(
        "two_hop",
        _count("two_hop_count", "ways from {src} to {dst} by way of two recent partners", "partners' partners capped"),
        _share("two_hop_share", "two-step ways from {src} that lead on to {dst}"),
    ),
    *_block(
        "successor",
        *(_count(f"succ_count_{k}", f"moves to {{dst}} from {last}", "by all") for k, last in enumerate(_LAST, 1)),
        _count("succ_pair_count", "moves to {dst} after the last two destinations of {src}", "in this order, by all"),
        *(_share(f"succ_share_{k}", f"moves from {last} that led to {{dst}}") for k, last in enumerate(_LAST, 1)),
        _share("succ_pair_share", "moves after the last two destinations of {src} that led to {dst}"),
    ),
    *_block(
        "activity",
        _count("src_count", "events of {src} so far", "in either role"),
        _count("dst_count", "events of {dst} so far", "in either role"),
        _count("dst_in_count", "events to {dst} so far"),
        _gap("dst_in_gap", "last event to {dst}"),
        _count("src_recent", "events of {src} lately", f"{_RECENT}; a self-loop counts in both roles"),
        _count("dst_recent", "events of {dst} lately", f"{_RECENT}; a self-loop counts in both roles"),
        _share("src_in_share", "events of {src} lately in which it was the destination", _RECENT, unseen=0.5),
        _share("dst_in_share", "events of {dst} lately in which it was the destination", _RECENT, unseen=0.5),
    ),
    *_block(
        "strength",
        _count("src_strength", "mean length of messages of {src} lately", _RECENT),
        _count("dst_strength", "mean length of messages of {dst} lately", _RECENT),
        _count("pair_strength", "length of the last message {src} -> {dst}"),
    ),
    *_block(
        "walks",
        *(_count(f"walk_{i}{j}", _meet(i, j), _WALKS) for i, j in _MEETINGS),
        *(
            _count(f"walk_{side}_{i}", f"{_PATHS[i]} from {{{side}}} meet one another", _WALKS)
            for i in range(1, STEPS + 1)
            for side in ("src", "dst")
        ),
        *(
            _share(
                f"walk_cos_{i}{j}",
                f"{_meet(i, j)}, of the most that could",
                "over the geometric mean of how often either side's meet one another",
            )
            for i, j in _MEETINGS
        ),
    ),
)
COLUMN = {fact.name: i for i, fact in enumerate(FACTS)}
AT: Any = namedtuple("At", COLUMN)(**COLUMN)  # the same for compiled code, to which these are constants
UNSEEN = np.array([fact.unseen for fact in FACTS])
UNSEEN.flags.writeable = False
BLOCKS = tuple(dict.fromkeys(fact.block for fact in FACTS if fact.block))
