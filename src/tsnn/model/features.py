"""Data-only score features: facts made fit for a network, as the table of facts says (`tsnn.plan.facts`).

A feature is a rule and a fact. Those of one rule are made together: a few calls a chunk, not one for each column.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from tsnn.config import FeatureConfig
from tsnn.plan.facts import COLUMN, FACTS, RULES, Fact, Rule
from tsnn.types import F64, I64

_NODE_GAPS = 2  # delta t_u and delta t_v of eq:score_features, the first columns of all


class Feature(NamedTuple):
    """A column of psi.

    Rules: `lg` log1p(gap / mean gap), with gaps = "raw" log1p(gap), and delta t_u and delta t_v as they are (D-07);
    `never` marks "no such event" (D-06);
    `log` log1p of a count; `raw` the fact as it is.
    """

    rule: Rule
    fact: Fact

    @property
    def name(self) -> str:
        """As tables and errors show it; a person reads `fact.says`."""
        return self.fact.name if self.rule == "raw" else f"{self.rule} {self.fact.name}"


@lru_cache
def features(config: FeatureConfig) -> tuple[Feature, ...]:
    """Every feature that is switched on, in the order of the columns: rule by rule, then as in the table of facts."""
    on = [fact for fact in FACTS if not fact.block or getattr(config, fact.block)]
    rules = [rule for rule in RULES if config.never or rule != "never"]
    return tuple(Feature(rule, fact) for rule in rules for fact in on if rule in fact.rules)


def feature_names(config: FeatureConfig) -> list[str]:
    """Names of the columns of `feature_matrix`, in order."""
    return [feature.name for feature in features(config)]


def feature_matrix(facts: F64, config: FeatureConfig, *, gaps: str, mean_gap: float) -> F64:
    """The data-only part of psi (eq:score_features, app:optional_score_features), shape (candidates, features)."""
    columns, lg, log, never = _layout(config)
    matrix = facts[:, columns]
    matrix[:, never] = matrix[:, never] < 0
    positive = matrix[:, : log.stop]
    np.maximum(positive, 0.0, out=positive)  # -1 stands for "never"; sums of random walks may fall below zero
    if gaps == "log":
        matrix[:, lg] /= mean_gap
    logarithms = positive if gaps == "log" else positive[:, _NODE_GAPS:]
    np.log1p(logarithms, out=logarithms)
    return matrix


def feature_tensor(facts: Tensor, config: FeatureConfig, *, gaps: str, mean_gap: float) -> Tensor:
    """`feature_matrix` where the facts already are, in their precision."""
    _, lg, log, never = _layout(config)
    matrix = facts[:, _columns(config, facts.device)]
    matrix[:, never].lt_(0)
    positive = matrix[:, : log.stop].clamp_(min=0)
    if gaps == "log":
        matrix[:, lg].div_(mean_gap)
    (positive if gaps == "log" else positive[:, _NODE_GAPS:]).log1p_()
    return matrix


@lru_cache
def _columns(config: FeatureConfig, device: torch.device) -> Tensor:
    return torch.from_numpy(_layout(config)[0]).to(device)


@lru_cache
def _layout(config: FeatureConfig) -> tuple[I64, slice, slice, slice]:
    """The fact of each column, and where the columns of the first three rules stand."""
    table = features(config)
    ends = np.cumsum([sum(feature.rule == rule for feature in table) for rule in RULES]).tolist()
    columns = np.array([COLUMN[feature.fact.name] for feature in table])
    return columns, slice(0, ends[0]), slice(ends[0], ends[1]), slice(ends[1], ends[2])
