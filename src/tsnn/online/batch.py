"""Many pairs at once: one plan and one score for sources, destinations and times of all kinds. Reads only."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from tsnn.data.events import keys_of
from tsnn.data.queries import Queries
from tsnn.engine.engine import score
from tsnn.errors import InputError
from tsnn.memory.versions import Versions
from tsnn.online.checks import check_numbers
from tsnn.online.live import LiveState, Moment
from tsnn.online.standpoint import BLOCK, no_rows, seat
from tsnn.types import F64, I64, U64


def as_column(values: Any) -> list[Any] | None:
    """A list, an array or a column of a frame as a list; None for a single value (a tuple is one: it names a node)."""
    if isinstance(values, np.ndarray) and values.dtype.kind == "M":
        values = values.astype("datetime64[us]")  # of nanoseconds, numpy makes plain numbers
    if isinstance(values, list):
        return values
    if getattr(values, "shape", ()) == () or not hasattr(values, "__len__"):
        return None
    if len(values.shape) != 1:
        raise InputError(f"values of shape {tuple(values.shape)} are no column; give one value for each pair.")
    listed: list[Any] = values.to_list() if hasattr(values, "to_list") else values.tolist()
    return listed


def side_by_side(**columns: Any) -> dict[str, list[Any]]:
    """The columns, each of one length; a single value stands in every row."""
    found = {name: as_column(values) for name, values in columns.items()}
    lengths = {name: len(values) for name, values in found.items() if values is not None}
    if len(set(lengths.values())) > 1:
        told = ", ".join(f"{name} {length}" for name, length in lengths.items())
        raise InputError(f"the columns differ in length ({told}); give as many of each, or a single value for all.")
    rows = next(iter(lengths.values()), 1)
    return {name: [columns[name]] * rows if values is None else values for name, values in found.items()}


@torch.no_grad()
def score_pairs(
    state: LiveState, src: Sequence[Hashable], dst: Sequence[Hashable], t: NDArray[Any], edge_type: I64
) -> F64:
    """The score of every pair at its own time: up to rounding what each gets alone (`standpoint.score_candidates`)."""
    strangers: dict[tuple[Hashable, int], int] = {}

    def index(name: Hashable, role: int) -> int:
        """A stranger on both sides is two nodes, since its type is guessed by the side."""
        known = state.ids.find(name)
        return strangers.setdefault((name, role), len(state.ids) + len(strangers)) if known is None else known

    u = np.array([index(name, 0) for name in src], np.int64)
    v = np.array([index(name, int(name != own)) for name, own in zip(dst, src, strict=True)], np.int64)
    keys = keys_of(name for name, _ in strangers)
    stream = no_rows(state, [role for _, role in strangers])
    found = np.empty(len(u))
    moments = state.moment(state.clock), state.moment(np.inf)
    for moment in moments:
        seat(moment.counters, len(state.ids), keys)
        rows = np.flatnonzero((t <= state.clock) == moment.settled)
        for start in range(0, len(rows), BLOCK):
            own = rows[start : start + BLOCK]
            one_each, none_run = np.arange(len(own) + 1), np.zeros(len(own), np.int64)
            queries = Queries(none_run, u[own], t[own], edge_type[own], one_each, v[own])
            plan = state.planner(stream, moment.counters).plan(0, queries)
            versions = _read(state, moment, plan.update.nodes, keys)
            found[own] = score(state.model, state.engine, versions, plan.score, stream).parts.total.double().numpy()
    check_numbers(found)
    return found


def _read(state: LiveState, moment: Moment, nodes: I64, strangers: U64) -> Versions:
    """States of these nodes; those behind the known ones begin with what belongs to their name."""
    known = nodes < len(state.ids)
    h, F = state.store.read(np.where(known, nodes, 0), moment.settled)
    if not known.all():
        others = np.flatnonzero(~known)
        h[others], F[others] = state.store.initial(strangers[nodes[others] - len(state.ids)])
    return Versions(h, F, h.new_zeros(0), h.new_zeros(0))
