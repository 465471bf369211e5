"""Data-only score features: facts made fit for a network. One place for all of them.

lg(gap) = log1p(gap / mean gap), or the gap itself with gaps = "raw" (D-07); never(gap) marks "no such event" (D-06).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tsnn.config import FeatureConfig
from tsnn.plan.facts import COLUMN
from tsnn.types import F64


def feature_names(config: FeatureConfig) -> list[str]:
    """Names of the columns of `feature_matrix`, in order."""
    names = ["lg src_gap", "lg dst_gap", "never src", "never dst"]
    if config.pairs:
        names += ["log pair_count", "lg pair_gap", "never pair", "log reverse_count"]
    if config.edgebank_recency:
        names += ["log bank_count", "lg bank_gap", "never bank"]
    if config.common_neighbors:
        names += ["log cn_count", "cn_decayed", "cn_adamic_adar", "cn_jaccard"]
    if config.two_hop:
        names += ["log two_hop_count", "two_hop_share"]
    if config.successor:
        names += [f"log succ_count_{j}" for j in (1, 2, 3)] + [f"succ_share_{j}" for j in (1, 2, 3)]
    return names


def feature_matrix(facts: F64, config: FeatureConfig, *, gaps: str, mean_gap: float) -> F64:
    """The data-only part of psi (eq:score_features, app:optional_score_features), shape (candidates, features)."""

    def raw(name: str) -> F64:
        return facts[:, COLUMN[name]]

    def lg(name: str) -> F64:
        gap = np.maximum(raw(name), 0.0)
        return np.log1p(gap / mean_gap) if gaps == "log" else gap

    def never(name: str) -> F64:
        return (raw(name) < 0).astype(np.float64)

    def log(name: str) -> F64:
        return np.log1p(raw(name))

    columns: list[NDArray[np.float64]] = [lg("src_gap"), lg("dst_gap"), never("src_gap"), never("dst_gap")]
    if config.pairs:
        columns += [log("pair_count"), lg("pair_gap"), never("pair_gap"), log("reverse_count")]
    if config.edgebank_recency:
        columns += [log("bank_count"), lg("bank_gap"), never("bank_gap")]
    if config.common_neighbors:
        columns += [log("cn_count"), raw("cn_decayed"), raw("cn_adamic_adar"), raw("cn_jaccard")]
    if config.two_hop:
        columns += [log("two_hop_count"), raw("two_hop_share")]
    if config.successor:
        columns += [log(f"succ_count_{j}") for j in (1, 2, 3)] + [raw(f"succ_share_{j}") for j in (1, 2, 3)]
    return np.stack(columns, axis=1)
