"""Data-only score features: facts made fit for a network. One place for all of them.

lg(gap) = log1p(gap / mean gap), or the gap itself with gaps = "raw" (D-07); never(gap) marks "no such event" (D-06).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from tsnn.config import FeatureConfig
from tsnn.plan.facts import COLUMN, FACTS
from tsnn.types import F64

_MEETINGS = [name for name in FACTS if name.startswith("walk_") and name[-2:].isdigit()]
_SELVES = ["walk_src_1", "walk_dst_1", "walk_src_2", "walk_dst_2"]


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
    if config.activity:
        names += ["log src_count", "log dst_count", "log dst_in_count", "lg dst_in_gap", "never dst_in"]
        names += ["log src_recent", "log dst_recent", "src_in_share", "dst_in_share"]
    if config.strength:
        names += ["log src_strength", "log dst_strength", "log pair_strength"]
    if config.walks:
        names += [f"log {name}" for name in (*_MEETINGS, *_SELVES)] + [f"cos {name}" for name in _MEETINGS]
    return names


def feature_matrix(facts: F64, config: FeatureConfig, *, gaps: str, mean_gap: float) -> F64:
    """The data-only part of psi (eq:score_features, app:optional_score_features), shape (candidates, features)."""

    def raw(name: str) -> F64:
        return facts[:, COLUMN[name]]

    def lg(name: str) -> F64:
        gap = np.maximum(raw(name), 0.0)
        return np.log1p(gap / mean_gap) if gaps == "log" else gap

    def never(name: str) -> F64:
        return (raw(name) < 0).astype(facts.dtype)

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
    if config.activity:
        columns += [log("src_count"), log("dst_count"), log("dst_in_count"), lg("dst_in_gap"), never("dst_in_gap")]
        src_out, src_in = raw("src_out_recent"), raw("src_in_recent")
        dst_out, dst_in = raw("dst_out_recent"), raw("dst_in_recent")
        columns += [np.log1p(src_out + src_in), np.log1p(dst_out + dst_in)]
        columns += [_share(src_in, src_out), _share(dst_in, dst_out)]
    if config.strength:
        columns += [log("src_strength"), log("dst_strength"), log("pair_strength")]
    if config.walks:
        columns += [np.log1p(np.maximum(raw(name), 0.0)) for name in (*_MEETINGS, *_SELVES)]
        columns += [_cosine(raw, name) for name in _MEETINGS]
    return np.stack(columns, axis=1)


def _share(part: F64, other: F64) -> F64:
    """Of two counts, the part of the first; a half where there is nothing to tell."""
    whole = part + other
    share: F64 = np.divide(part, whole, out=np.full_like(whole, 0.5), where=whole > 0)
    return share


def _cosine(raw: Callable[[str], F64], name: str) -> F64:
    """Walks that meet, over the geometric mean of those of either side with itself."""
    i, j = name[-2], name[-1]
    src = raw(f"walk_src_{i}") if i != "0" else 1.0
    dst = raw(f"walk_dst_{j}") if j != "0" else 1.0
    cosine: F64 = raw(name) / np.sqrt(np.maximum(src * dst, 1e-12))
    return cosine
