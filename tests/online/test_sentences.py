"""Sentences: every fact is about something, values come in units a person knows, and the words are true."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tsnn.online.sentences import ABOUT, GROUPS, LETTERS, Clock, Told, measured, moment, shortened
from tsnn.plan.facts import COLUMN, FACTS, UNSEEN

HOUR = 3600e6
NUMBERS, DATES = Clock(dates=False, mean_gap=2.0), Clock(dates=True, mean_gap=HOUR)
PLAIN = Told(
    src="ann",
    dst="bob",
    facts=dict(zip(COLUMN, UNSEEN.tolist(), strict=True)),
    others={name: np.full(4, unseen) for name, unseen in zip(COLUMN, UNSEEN.tolist(), strict=True)},
    clock=DATES,
    fade=7 * 24 * HOUR,
    span=90 * 24 * HOUR,
    window=0.0,
    reads=frozenset(COLUMN),
)


def says(group: str, others: dict[str, list[float]] | None = None, told: Told = PLAIN, **facts: float) -> str:
    among = {name: np.array(values) for name, values in (others or {}).items()}
    changed = replace(told, facts=told.facts | facts, others=told.others | among)
    return GROUPS[group].sentence(changed)


@pytest.mark.parametrize("fact", FACTS, ids=lambda fact: fact.name)
def test_a_fact_is_about_what_its_words_name(fact) -> None:
    group = ABOUT[fact.name]
    both = "{src}" in fact.says and "{dst}" in fact.says
    assert both == (group not in ("source", "destination"))
    assert group in GROUPS


@pytest.mark.parametrize(
    ("name", "group"),
    [
        ("bank_gap", "pair"),
        ("reverse_count", "pair"),
        ("walk_10", "pair"),
        ("walk_cos_22", "paths"),
        ("two_hop_share", "paths"),
        ("walk_dst_2", "destination"),
        ("dst_in_age", "destination"),
        ("src_strength", "source"),
        ("cn_jaccard", "common"),
        ("succ_pair_share", "moves"),
    ],
)
def test_what_facts_are_about(name: str, group: str) -> None:
    assert ABOUT[name] == group


@pytest.mark.parametrize(
    ("name", "value", "shown"),
    [
        ("pair_count", 12.0, "12"),
        ("pair_gap", 7.0, "3.5 mean gaps ago"),
        ("pair_gap", 2.0, "1 mean gap ago"),
        ("pair_gap", -1.0, "never"),
        ("dst_in_age", 1200.0, "1,200 events ago"),
        ("dst_in_age", 1.0, "1 event ago"),
        ("cn_jaccard", 0.25, "25 %"),
        ("walk_21", 0.0317, "0.032"),
        ("walk_02", -0.5, "-0.5"),
        ("src_recent", 99.7, "100"),
    ],
)
def test_numbers_are_shown_in_their_unit(name: str, value: float, shown: str) -> None:
    assert NUMBERS.shown(FACTS[COLUMN[name]], value) == shown


@pytest.mark.parametrize(
    ("hours", "said"),
    [
        (1e-7, "less than a second"),
        (1 / 3600, "1 second"),
        (1.5, "90 minutes"),
        (11.2, "11 hours"),
        (47, "47 hours"),
        (49, "2 days"),
        (24 * 50, "50 days"),
        (24 * 365 * 3, "2 years"),
    ],
)
def test_durations_of_dates_are_those_of_a_clock(hours: float, said: str) -> None:
    assert DATES.duration(hours * HOUR) == said


def test_durations_of_numbers_are_in_the_unit_of_the_stream() -> None:
    assert NUMBERS.duration(35.0) == "35 time units"
    assert NUMBERS.duration(1) == "1 time unit"
    assert NUMBERS.lately(7.0, 8.0) == "lately"
    assert NUMBERS.lately(7.0, 7.0) == "so far"
    assert [DATES.lately(days * 24 * HOUR, 9000 * HOUR) for days in (0.05, 1, 6, 40, 300)] == [
        "this hour",
        "today",
        "this week",
        "this month",
        "this year",
    ]


def test_of_two_who_met() -> None:
    assert says("pair") == "never met"
    met = {"pair_count": 41.0, "pair_gap": 11 * HOUR, "bank_count": 41.0}
    assert says("pair", **met) == "met 41 times, last 11 hours ago"
    assert says("pair", **met, reverse_count=1.0) == "ann → bob 41 times, last 11 hours ago, bob → ann once"
    assert says("pair", reverse_count=3.0) == "ann → bob never, bob → ann 3 times"
    itself = replace(PLAIN, dst="ann", itself=True)
    assert says("pair", told=itself) == "never turned to itself"
    assert says("pair", told=itself, **met, reverse_count=41.0) == "turned to itself 41 times, last 11 hours ago"


def test_of_two_equals_who_met() -> None:
    """An undirected event is counted for both, so the way back is the same event."""
    equals = replace(PLAIN, undirected=True)
    met = {"pair_count": 2.0, "reverse_count": 2.0, "bank_count": 2.0, "pair_gap": 11 * HOUR}
    assert says("pair", told=equals, **met) == "met twice, last 11 hours ago"
    seen = {"dst_count": 20.0, "dst_in_count": 20.0, "dst_in_gap": HOUR / 3}
    assert says("destination", told=equals, **seen).endswith("20 events with it, last 20 minutes ago")
    assert equals.words(FACTS[COLUMN["pair_count"]]) == "events ann - bob so far"


def test_of_what_edgebank_remembers_of_them() -> None:
    met = {"pair_count": 41.0, "pair_gap": HOUR * 11}
    pay, lately = replace(PLAIN, relation="pay"), replace(PLAIN, window=72 * HOUR)
    assert says("pair", told=pay, **met, bank_count=2.0).endswith("ago; 2 of them of relation pay")
    assert says("pair", told=lately, **met, bank_count=0.0).endswith("ago; none of them in the last 3 days")
    unread = replace(lately, reads=PLAIN.reads - {"bank_count"})
    assert says("pair", told=unread, **met) == "met 41 times, last 11 hours ago"


def test_of_the_destination() -> None:
    assert says("destination") == "bob has never been seen"
    assert says("destination", dst_count=2.0) == "bob has been a source only, twice"
    seen = {"dst_count": 30.0, "dst_in_count": 20.0, "dst_in_gap": HOUR / 3, "dst_in_share": 0.5}
    count = "20 events to it, last 20 minutes ago"
    others = {"dst_recent": [1.0, 2.0, 3.0, 4.0], "dst_in_share": [0.5] * 4}
    degrees = {0.5: "hardly chosen", 1.5: "less popular than most", 2.5: "as popular as most", 3.5: "popular"}
    for recent, degree in (degrees | {9.0: "very popular"}).items():
        assert says("destination", others, **seen, dst_recent=recent) == f"bob is {degree} this week: {count}"
    quiet = replace(PLAIN, reads=PLAIN.reads - {"dst_recent"})
    assert says("destination", told=quiet, **seen) == f"bob: {count}"


def test_popularity_is_that_of_destinations() -> None:
    """Whoever writes a lot is not popular for that."""
    seen = {"dst_count": 30.0, "dst_in_count": 1.0, "dst_in_gap": HOUR, "dst_recent": 30.0, "dst_in_share": 1 / 30}
    others = {"dst_recent": [3.0] * 4, "dst_in_share": [1.0] * 4}
    assert "hardly chosen" in says("destination", others, **seen)


def test_of_common_neighbors() -> None:
    assert says("common") == "no recent neighbors in common"
    one, many = replace(PLAIN, common=("cy",)), replace(PLAIN, common=("cy", "di", "eve"))
    assert says("common", told=one, cn_count=1.0) == "1 recent neighbor in common: cy"
    assert says("common", told=many, cn_count=3.0) == "3 recent neighbors in common, cy and di lately"


def test_of_where_the_source_went_last() -> None:
    assert says("moves") == "ann has not gone anywhere yet"
    went = replace(PLAIN, last=("cy", "di", "cy"))
    assert says("moves", told=went) == "bob never came next after cy and di, where ann went last"
    moves = {"succ_count_1": 3.0, "succ_share_1": 0.25, "succ_count_2": 1.0, "succ_share_2": 1.0}
    said = "bob came next in 3 of 12 moves on from cy and 1 of 1 move on from di, where ann went last"
    assert says("moves", told=went, **moves, succ_count_3=3.0, succ_share_3=0.25) == said


def test_of_paths_between_them() -> None:
    walks, hops = replace(PLAIN, reads=frozenset({"walk_12"})), replace(PLAIN, reads=frozenset({"two_hop_count"}))
    others = {"walk_22": [0.1, 0.2, 0.3, 0.4], "two_hop_count": [0.0, 0.0, 20.0, 20.0]}
    assert says("paths", others, walk_22=0.35, two_hop_count=12.0) == (
        "12 ways to bob by way of two others, more than 50 % of the others, over longer paths bob is nearer to ann "
        "than 75 % of the others"
    )
    assert says("paths", others, walks, walk_02=1.0) == "over longer paths bob is nearer to ann than all the others"
    assert (
        says("paths", others, walks, walk_12=0.15)
        == "over longer paths bob is farther from ann than 75 % of the others"
    )
    assert says("paths", others, hops) == "no ways to bob by way of two others, fewer than 75 % of the others"


def test_of_states_types_and_the_source() -> None:
    near = replace(PLAIN, distances=(1.0, np.array([2.0, 3.0, 0.5, 4.0])), kind="2")
    assert says("states", told=near) == "bob is nearer to ann than 75 % of the others"
    assert says("kind", told=near) == "bob is of type 2"
    assert says("source") == "never seen before"
    assert says("source", src_count=1.0, src_gap=2 * HOUR) == "1 event so far, last 2 hours ago"


def test_long_names_keep_both_ends() -> None:
    name = "https://example.org/" + 20 * "very/" + "last"
    assert shortened(name) == "https://…/very/very/last"
    assert len(shortened(name)) <= LETTERS
    assert shortened("bob") == "bob"
    assert shortened(7) == "7"
    far = replace(PLAIN, src=shortened(name), dst=shortened(name), last=("cy",))
    assert says("moves", told=far) == "it never came next after cy, where the source went last"


def test_times_are_shown_to_the_second() -> None:
    for text in ("2024-05-18T09:29:41.144899Z", "2024-05-18T09:29:41+02:00", "2024-05-18T09:29:41"):
        assert moment(text) == "2024-05-18 09:29:41"
    assert moment("2024-05-18T09:29") == "2024-05-18 09:29"
    assert moment(17) == "17"
    assert moment(26277.557605615843) == "26277.55761"


def test_what_a_score_is_measured_against() -> None:
    assert measured(3.0, -1.5, 64, 5000) == "4.50 above -1.50, the mean of 64 of the 5,000 destinations that are ranked"
    assert measured(-3.0, -1.5, 7, 7) == "1.50 below -1.50, the mean of the 7 destinations that are ranked"
