"""What everything that a person understands adds to a score, measured against other destinations of the same source.

A *player* is a group of facts (`tsnn.online.sentences`), the state of the candidate, or its type. The worth of a
coalition is the mean score of destinations that are the candidate in what the coalition holds and another one in
the rest: of none it is the mean score of the others, of all the candidate's own. Shapley values share the difference
out: each player gets what it adds to a coalition, averaged over all orders in which they could join, so that together
they are the difference, and equal players get the same.

Others of the same source, because they are what a candidate is ranked with; a node that was never seen would be no
such yardstick: in training it hardly ever is a negative, so its score says little about popularity (decision 0022).
"""

from __future__ import annotations

from dataclasses import replace
from math import factorial

import numpy as np
import torch

from tsnn.data.question import Question
from tsnn.model.features import features
from tsnn.online.retrieve import eligible
from tsnn.online.sentences import ABOUT, GROUPS
from tsnn.online.standpoint import Standpoint
from tsnn.plan.chunk import ScorePlan
from tsnn.plan.facts import COLUMN
from tsnn.types import F64, I64

OTHERS = 64  # destinations that a candidate is measured against: a mean over more changes the picture little


def facts_read(standpoint: Standpoint) -> frozenset[str]:
    """The facts on which the run's scores depend."""
    model = standpoint.state.model
    config = model.config
    read: set[str] = {"bank_count"} if config.model.edgebank else set()
    if config.model.residual:
        used = torch.isfinite(model.feature_scale).tolist()  # a column over infinity is left out
        read |= {feature.fact.name for feature, on in zip(features(config.features), used, strict=True) if on}
        read |= {"src_gap", "dst_gap"} if config.features.encoded_gaps else set()
    return frozenset(read)


def others_of(standpoint: Standpoint, question: Question, cand: int) -> tuple[I64, int]:
    """The destinations that a candidate is measured against, taken evenly of all that the question ranks; how many."""
    pool = eligible(standpoint, question)
    source = np.array([standpoint.src])
    if not standpoint.survey(source, np.array([True])).facts[0, COLUMN["pair_count"]]:  # as in a ranking
        pool = pool[pool != standpoint.src]
    if not len(pool):
        pool = np.array([cand])
    return pool[np.linspace(0, len(pool) - 1, min(len(pool), OTHERS)).astype(np.int64)], len(pool)


@torch.no_grad()
def attribute(standpoint: Standpoint, plan: ScorePlan, score: float) -> tuple[float, dict[str, float]]:
    """The mean score of the others, and what every player adds to it; all of it together is the candidate's score.

    `plan` is of the candidate, whose score this is, and then of the others.
    """
    players = _players(standpoint)
    held = (np.arange(1 << len(players))[:, None] >> np.arange(len(players))) & 1 == 1
    cand, others = plan.cand[0], plan.cand[1:]

    def node(player: str) -> I64:
        """Whose state or type each row has."""
        own = held[:, players.index(player)] if player in players else np.ones(len(held), np.bool_)
        return np.where(own[:, None], cand, others).ravel()

    # What is the source's alone is the same in all rows, whoever is said to hold it.
    holder = [players.index(ABOUT[fact]) if ABOUT[fact] in players else 0 for fact in COLUMN]
    facts = np.where(held[:, None, holder], plan.facts[0], plan.facts[1:]).reshape(-1, len(COLUMN))
    rows = replace(plan, ptr=np.array([0, len(facts)]), cand=node("kind"), facts=facts)
    mixed = standpoint.state.model.decode(standpoint.compare(node("states")), rows, standpoint.stream)
    worth = mixed.total.double().numpy().reshape(len(held), len(others)).mean(1)
    worth[-1] = score  # the very number, not one that differs in its last digits
    return float(worth[0]), dict(zip(players, shapley(worth).tolist(), strict=True))


def _players(standpoint: Standpoint) -> list[str]:
    """What the scores of two destinations of one source can differ by."""
    model, read = standpoint.state.model, facts_read(standpoint)
    players = [group for group in GROUPS if any(ABOUT[fact] == group for fact in read) and group != "source"]
    if model.head.geometry_weight or model.reads_partners:
        players.append("states")
    if model.shape.num_types and model.config.model.residual:
        players.append("kind")
    return players


def shapley(worth: F64) -> F64:
    """Shapley values, given the worth of every coalition: bit p of its index says whether it holds player p."""
    players = len(worth).bit_length() - 1
    coalitions = np.arange(len(worth))
    size = ((coalitions[:, None] >> np.arange(players)) & 1).sum(1)
    orders = np.array([factorial(s) * factorial(players - 1 - s) / factorial(players) for s in range(players)])
    values = np.zeros(players)
    for player in range(players):
        without = coalitions[(coalitions >> player) & 1 == 0]
        values[player] = (orders[size[without]] * (worth[without | 1 << player] - worth[without])).sum()
    return values
