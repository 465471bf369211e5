"""Data-only score features: facts made fit for a network. One table for all of them.

A feature is a rule and a fact. Those of one rule are made together: a few calls a chunk, not one for each column.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from tsnn.config import FeatureConfig
from tsnn.plan.facts import COLUMN, FACTS
from tsnn.types import F64, I64

_MEETINGS = tuple(name for name in FACTS if name.startswith("walk_") and name[5:].isdigit())
_COSINES = tuple(name for name in FACTS if name.startswith("walk_cos_"))
_SELVES = ("walk_src_1", "walk_dst_1", "walk_src_2", "walk_dst_2")


RULES = ("lg", "log", "never", "raw")


class Feature(NamedTuple):
    """A column of psi.

    Rules: `lg` log1p(gap / mean gap), or the gap itself with gaps = "raw" (D-07); `never` marks "no such event" (D-06);
    `log` log1p of a count; `raw` the fact as it is.
    """

    rule: str
    fact: str

    @property
    def name(self) -> str:
        """As an explanation shows it."""
        return self.fact if self.rule == "raw" else f"{self.rule} {self.fact}"


def _all(rule: str, *facts: str) -> list[Feature]:
    return [Feature(rule, fact) for fact in facts]


@lru_cache
def features(config: FeatureConfig) -> tuple[Feature, ...]:
    """Every feature that is switched on, in the order of the columns: rule by rule."""
    table = _all("lg", "src_gap", "dst_gap") + _all("never", "src_gap", "dst_gap")
    if config.pairs:
        table += [Feature("log", "pair_count"), Feature("lg", "pair_gap"), Feature("never", "pair_gap")]
        table += [Feature("log", "reverse_count")]
    if config.edgebank_recency:
        table += [Feature("log", "bank_count"), Feature("lg", "bank_gap"), Feature("never", "bank_gap")]
    if config.common_neighbors:
        table += [Feature("log", "cn_count"), *_all("raw", "cn_decayed", "cn_adamic_adar", "cn_jaccard")]
    if config.two_hop:
        table += [Feature("log", "two_hop_count"), Feature("raw", "two_hop_share")]
    if config.successor:
        table += _all("log", "succ_count_1", "succ_count_2", "succ_count_3", "succ_pair_count")
        table += _all("raw", "succ_share_1", "succ_share_2", "succ_share_3", "succ_pair_share")
    if config.activity:
        table += _all("log", "src_count", "dst_count", "dst_in_count")
        table += [Feature("lg", "dst_in_gap"), Feature("never", "dst_in_gap")]
        table += _all("log", "src_recent", "dst_recent") + _all("raw", "src_in_share", "dst_in_share")
    if config.strength:
        table += _all("log", "src_strength", "dst_strength", "pair_strength")
    if config.walks:
        table += _all("log", *_MEETINGS, *_SELVES) + _all("raw", *_COSINES)
    return tuple(sorted(table, key=lambda feature: RULES.index(feature.rule)))


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
    matrix[:, lg] /= mean_gap if gaps == "log" else 1.0
    logarithms = positive if gaps == "log" else matrix[:, log]
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
    (positive if gaps == "log" else matrix[:, log]).log1p_()
    return matrix


@lru_cache
def _columns(config: FeatureConfig, device: torch.device) -> Tensor:
    return torch.from_numpy(_layout(config)[0]).to(device)


@lru_cache
def _layout(config: FeatureConfig) -> tuple[I64, slice, slice, slice]:
    """The fact of each column, and where the columns of the first three rules stand."""
    table = features(config)
    ends = np.cumsum([sum(feature.rule == rule for feature in table) for rule in RULES]).tolist()
    columns = np.array([COLUMN[feature.fact] for feature in table])
    return columns, slice(0, ends[0]), slice(ends[0], ends[1]), slice(ends[1], ends[2])
