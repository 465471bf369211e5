"""Facts in sentences: what a person understands of them, grouped by what it is about.

Every fact of the table belongs to one group, by the nodes that its words name and by its block. A group has a title and
a function that says its facts in a sentence; a fact that no sentence mentions still stands among the group's numbers.
Times are durations here, hours and days where times are dates; mean gaps are for the numbers.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from tsnn.plan.facts import FACTS, STEPS, Fact
from tsnn.types import F64

_SECOND = 1e6  # in microseconds, the unit of dates
_UNITS = {"year": 31_557_600, "month": 2_629_800, "day": 86_400, "hour": 3600, "minute": 60}  # in seconds
_SPANS = {"this hour": 3600, "today": 86_400, "this week": 604_800, "this month": 2_629_800, "this year": 31_557_600}
_OF_BLOCK = {"common_neighbors": "common", "two_hop": "paths", "walks": "paths", "successor": "moves"}
_ONE_STEP = ("walk_01", "walk_10", "walk_cos_01", "walk_cos_10")
_LONGER = tuple(f"walk_{i}{j}" for i in range(STEPS + 1) for j in range(STEPS + 1) if i + j > 1)
_BELOW_SECONDS = re.compile(r"(:\d\d)(\.\d+)?(Z|[+-]\d\d:?\d\d)?$")
LETTERS = 24  # of a name inside a sentence
NAMED = 2  # common neighbors that are called by name


def _about(fact: Fact) -> str:
    """The group of a fact; one that names both nodes and is of no block with a group is about the pair."""
    if "{src}" not in fact.says or "{dst}" not in fact.says:
        return "source" if "{src}" in fact.says else "destination"
    return "pair" if fact.name in _ONE_STEP else _OF_BLOCK.get(fact.block, "pair")


ABOUT = {fact.name: _about(fact) for fact in FACTS}


class Clock(NamedTuple):
    """How a stream counts time."""

    dates: bool  # in microseconds, which are said in hours and days
    mean_gap: float

    def duration(self, span: float) -> str:
        """A span of time as a person says it."""
        if not self.dates:
            return plural(span, "time unit")
        seconds = span / _SECOND
        for unit, length in _UNITS.items():
            if seconds >= 2 * length:
                return plural(int(seconds / length), unit)
        return plural(int(seconds), "second") if seconds >= 1 else "less than a second"

    def lately(self, fade: float, span: float) -> str:
        """When events were that have not faded yet, `fade` being the time in which they do; all took a `span`."""
        if fade >= span:
            return "so far"
        if not self.dates:
            return "lately"
        away = {word: abs(np.log(fade / _SECOND / length)) for word, length in _SPANS.items()}
        return min(away, key=lambda word: away[word])

    def shown(self, fact: Fact, value: float) -> str:
        """The value of a fact among the numbers."""
        if fact.unseen < 0 and value < 0:
            return "never"
        if fact.unit == "mean gaps":
            return f"{plural(value / self.mean_gap, 'mean gap')} ago"
        if fact.unit == "events":
            return f"{plural(value, 'event')} ago"
        return percent(value) if fact.unit == "share" else number(value)


def number(value: float) -> str:
    """With as many digits as one wants to read."""
    return f"{value:,.0f}" if value == round(value) or abs(value) >= 10 else f"{value:.2g}"


def percent(share: float) -> str:
    """A share of one."""
    return f"{100 * share:.0f} %"


def beside(rank: float, above: str, below: str) -> str:
    """How the candidate stands to the others, in the word for more or in the one for less."""
    share = max(rank, 1 - rank)
    most = "all the others" if share > 0.99 else f"{percent(share)} of the others"
    return f"{above if rank >= 0.5 else below} than {most}"


def shortened(name: object) -> str:
    """A name with most of its middle left out where it is long: ids differ at their ends, and more so at the last."""
    text = str(name)
    return text if len(text) <= LETTERS else f"{text[: LETTERS // 3]}…{text[1 - LETTERS + LETTERS // 3 :]}"


def moment(when: object) -> str:
    """A time as a person wants to read it: of a date the seconds and no more; its zone is the data's."""
    if not isinstance(when, str):
        return f"{when:.10g}" if isinstance(when, float) else str(when)
    return _BELOW_SECONDS.sub(r"\1", when.replace("T", " "))


def measured(score: float, mean: float, some: int, of: int) -> str:
    """How far a score is from that of the destinations that it is measured against."""
    where = "above" if score >= mean else "below"
    which = f"{some} of the {of:,}" if some < of else f"the {of}"
    return f"{abs(score - mean):.2f} {where} {mean:.2f}, the mean of {which} destinations that are ranked"


def plural(count: float, thing: str) -> str:
    """So many of a thing."""
    text = number(count)
    return f"{text} {thing}" if text == "1" else f"{text} {thing}s"


def times(count: float) -> str:
    """How often."""
    return {1: "once", 2: "twice"}.get(int(count), f"{count:,.0f} times")


def listed(texts: Iterable[str]) -> str:
    """One after the other, each once."""
    *first, last = dict.fromkeys(texts)
    return f"{', '.join(first)} and {last}" if first else last


@dataclass(frozen=True)
class Told:
    """What the sentences about a source and a candidate are made of."""

    src: str
    dst: str
    facts: dict[str, float]
    others: dict[str, F64]  # the same facts of other destinations
    clock: Clock
    fade: float  # the time in which events of `*_recent` fade
    span: float  # from the first event to the question
    window: float  # of EdgeBank; 0 is unlimited
    reads: frozenset[str]  # facts on which the score depends
    undirected: bool = False  # whether an event is one of two equals
    itself: bool = False  # whether the candidate is the source
    relation: str = ""  # the one asked about, where there are several
    kind: str = ""  # the candidate's type, where nodes have types
    last: tuple[str, ...] = ()  # where the source went last, latest first
    common: tuple[str, ...] = ()  # recent partners of both, those met last first
    distances: tuple[float, F64] = (0.0, np.zeros(0))  # from the source: the candidate's state and those of the others

    def words(self, fact: Fact) -> str:
        """What a fact is, about these two."""
        says = fact.says.replace(" -> ", " - ") if self.undirected else fact.says
        return says.format(src=self.src, dst=self.dst)

    @property
    def it(self) -> str:
        """The candidate in a sentence about it: by its name, unless that is too long to be read so often."""
        return "it" if "…" in self.dst else self.dst

    @property
    def who(self) -> str:
        """The source in a sentence."""
        return "the source" if "…" in self.src else self.src

    def near(self, rank: float) -> str:
        """That the candidate is near the source, or is not, in some sense in which it has this rank."""
        return f"{self.it} is {beside(rank, f'nearer to {self.who}', f'farther from {self.who}')}"

    def ago(self, gap: str) -> str:
        """When the event of a gap was."""
        return f"{self.clock.duration(self.facts[gap])} ago"

    def rank(self, own: float, others: F64) -> float:
        """The share of the others that have less, those with the same counted by half."""
        return float(np.mean(others < own) + 0.5 * np.mean(others == own))


def source(told: Told) -> str:
    """The source by itself."""
    events = told.facts["src_count"]
    return f"{plural(events, 'event')} so far, last {told.ago('src_gap')}" if events else "never seen before"


def pair(told: Told) -> str:
    """Events between the two."""
    return "; ".join(filter(None, (_met(told), _remembered(told))))


def _met(told: Told) -> str:
    there, back = told.facts["pair_count"], told.facts["reverse_count"]
    last = f"{times(there)}, last {told.ago('pair_gap')}" if there else ""
    if told.itself:
        return f"turned to itself {last}" if there else "never turned to itself"
    if told.undirected or not back or "reverse_count" not in told.reads:
        return f"met {last}" if there else "never met"
    return f"{told.src} → {told.dst} {last or 'never'}, {told.dst} → {told.src} {times(back)}"


def _remembered(told: Told) -> str:
    """EdgeBank's part of these events, where it is not all of them."""
    count = told.facts["bank_count"]
    if "bank_count" not in told.reads or count == told.facts["pair_count"]:
        return ""
    relation = f" of relation {told.relation}" if told.relation else ""
    window = f" in the last {told.clock.duration(told.window)}" if told.window else ""
    return f"{number(count) if count else 'none'} of them{relation}{window}"


def destination(told: Told) -> str:
    """The candidate by itself: how much it is chosen, by anybody."""
    facts, others = told.facts, told.others
    if not facts["dst_count"]:
        return f"{told.it} has never been seen"
    if not facts["dst_in_count"]:
        return f"{told.it} has been a source only, {times(facts['dst_count'])}"
    end = "with" if told.undirected else "to"
    count = f"{plural(facts['dst_in_count'], 'event')} {end} it, last {told.ago('dst_in_gap')}"
    if "dst_recent" not in told.reads:
        return f"{told.it}: {count}"
    rank = told.rank(facts["dst_recent"] * facts["dst_in_share"], others["dst_recent"] * others["dst_in_share"])
    degrees = ((0.9, "very popular"), (0.65, "popular"), (0.35, "as popular as most"), (0.1, "less popular than most"))
    degree = next((words for least, words in degrees if rank >= least), "hardly chosen")
    return f"{told.it} is {degree} {told.clock.lately(told.fade, told.span)}: {count}"


def common(told: Told) -> str:
    """Recent partners that both have, by name."""
    count = round(told.facts["cn_count"])
    if not count:
        return "no recent neighbors in common"
    named = listed(told.common[:NAMED])
    some = f", {named} lately" if count > NAMED else f": {named}"
    return f"{plural(count, 'recent neighbor')} in common{some}"


def paths(told: Told) -> str:
    """Ways from one to the other by way of others."""
    parts = []
    if "two_hop_count" in told.reads:
        ways = told.facts["two_hop_count"]
        standing = beside(told.rank(ways, told.others["two_hop_count"]), "more", "fewer")
        parts.append(f"{number(ways) if ways else 'no'} ways to {told.it} by way of two others, {standing}")
    if not told.reads.isdisjoint(_LONGER):
        own = sum(told.facts[name] for name in _LONGER)
        others = np.sum([told.others[name] for name in _LONGER], axis=0)
        parts.append(f"over longer paths {told.near(told.rank(own, others))}")
    return ", ".join(parts)


def moves(told: Told) -> str:
    """What tends to come after the places where the source went last."""
    if not told.last:
        return f"{told.who} has not gone anywhere yet"
    found = []
    for k, place in enumerate(told.last, 1):
        count, share = told.facts[f"succ_count_{k}"], told.facts[f"succ_share_{k}"]
        if count:
            found.append(f"{count:,.0f} of {plural(count / share, 'move')} on from {place}")
    came = f"came next in {listed(found)}" if found else f"never came next after {listed(told.last)}"
    return f"{told.it} {came}, where {told.who} went last"


def states(told: Told) -> str:
    """How near the learned states of the two are."""
    own, others = told.distances
    return told.near(told.rank(-own, -others))


def kind(told: Told) -> str:
    """The candidate's type."""
    return f"{told.it} is of type {told.kind}"


class Group(NamedTuple):
    """What facts can be about."""

    title: str
    sentence: Callable[[Told], str]


GROUPS = {
    "pair": Group("these two together", pair),
    "destination": Group("the destination", destination),
    "common": Group("common acquaintances", common),
    "moves": Group("where it went last", moves),
    "paths": Group("paths between them", paths),
    "states": Group("their states", states),
    "kind": Group("its type", kind),
    "source": Group("the source", source),
}
