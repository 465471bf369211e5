"""Node types from a table of events whose rows say of which type each end is."""

from __future__ import annotations

from typing import Any

import numpy as np

from tsnn.errors import InputError

SIDES = ("source", "destination")


def types_by_side(ends: tuple[Any, Any], kinds: tuple[Any, ...]) -> dict[Any, Any]:
    """Types by node from the columns of both ends and the columns of their types.

    A side without a column is one type of its own, so a node cannot be on both sides then.
    """
    pairs: dict[tuple[Any, Any], None] = {}  # as a set that keeps the order
    for nodes, column, side in zip(ends, kinds, SIDES, strict=True):
        listed = np.asarray(nodes).tolist()
        labels = [side] * len(listed) if column is None else np.asarray(column).tolist()
        pairs |= dict.fromkeys(zip(listed, labels, strict=True))
    if len({type(kind) for _, kind in pairs}) > 1:
        pairs = {(node, str(kind)): None for node, kind in pairs}
    types: dict[Any, Any] = {}
    for node, kind in pairs:
        first = types.setdefault(node, kind)
        if first != kind:
            raise InputError(f"node {node!r} is of type {first!r} and of type {kind!r}; give every node one type.")
    return types
