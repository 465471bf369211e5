"""Results by slice: what kind of event it was, how long ago its destination was seen, how busy the destination is."""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import numpy as np

from tsnn.evaluation.metrics import average_precision
from tsnn.report.replay import Trace
from tsnn.types import F64, Bool

_FEW = 5  # fewer events than this say nothing


class Slice(NamedTuple):
    """The tested events of one kind."""

    group: str
    name: str
    events: int
    ap: float  # per cent, against one random other destination
    mrr: float  # among OTHERS of them


def slices(trace: Trace, mean_gap: float) -> list[Slice]:
    """All groups of slices, small ones left out."""
    groups = {
        "kind of event": _novelty(trace),
        "destination last seen": _recency(trace, mean_gap),
        "events of the destination": _degree(trace.fact("dst_count")),
    }
    found = [
        _measure(trace, group, name, mask)
        for group, masks in groups.items()
        for name, mask in masks.items()
        if mask.sum() >= min(_FEW, len(mask))
    ]
    return found


def _novelty(trace: Trace) -> dict[str, Bool]:
    """As of each event's cut, so that a node counts as new until its first visible event."""
    new_node = (trace.fact("src_count") == 0) | (trace.fact("dst_count") == 0)
    repeat = trace.fact("pair_count") > 0
    return {"repeat": repeat, "new pair": ~repeat & ~new_node, "new node": new_node & ~repeat}


def _recency(trace: Trace, mean_gap: float) -> dict[str, Bool]:
    gap = trace.fact("dst_gap")
    seen = gap >= 0
    masks = _quartiles(gap / mean_gap, seen, "mean gaps ago")
    return masks | {"never": ~seen}


def _degree(count: F64) -> dict[str, Bool]:
    return {"none": count == 0} | _quartiles(count, count > 0, "")


def _quartiles(values: F64, among: Bool, unit: str) -> dict[str, Bool]:
    """Four slices of about equal size; fewer where values repeat."""
    if not among.any():
        return {}
    edges = np.unique(np.quantile(values[among], [0, 0.25, 0.5, 0.75, 1]))
    if len(edges) == 1:
        return {f"{edges[0]:,.0f} {unit}".strip(): among}
    masks = {}
    for i, (low, high) in enumerate(pairwise(edges)):
        above = values >= low if i == 0 else values > low
        masks[f"{_short(low)} to {_short(high)} {unit}".strip()] = among & above & (values <= high)
    return masks


def _short(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 or value == int(value) else f"{value:.1f}"


def _measure(trace: Trace, group: str, name: str, mask: Bool) -> Slice:
    own, other = trace.positive[mask].sum(1), trace.negative[mask].sum(1)
    ap = 100 * average_precision(own, other)
    return Slice(group, name, int(mask.sum()), ap, float((1 / trace.rank[mask]).mean()))
