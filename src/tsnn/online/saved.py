"""Whether a saved state belongs to its model and its ids: shapes, ranges and numbers, before anything runs on it."""

from __future__ import annotations

import numpy as np
from torch import Tensor, isfinite

from tsnn.errors import RunError
from tsnn.model.tsnn import TSNN
from tsnn.plan.planner import PlanSpec
from tsnn.plan.saved import check_counts


def check_state(saved: dict[str, Tensor], model: TSNN, ids: int) -> None:
    """Refuse what cannot be a state of this model over so many nodes."""
    sizes, nodes = model.config.model, len(saved["h"])
    shapes = {"h": (nodes, sizes.stalk_dim), "F": (nodes, sizes.num_reflectors, sizes.stalk_dim)}
    shapes |= {"origin": (), "clock": ()}
    for name, shape in shapes.items():
        _must(name in saved and tuple(saved[name].shape) == shape and bool(isfinite(saved[name]).all()), name)
    _must(nodes <= ids, "h")
    _must(bool(saved["origin"] <= saved["clock"]), "clock")
    _must(("node_type" in saved) == bool(model.shape.num_types), "node_type")
    if "node_type" in saved:
        _must(
            tuple(saved["node_type"].shape) == (nodes,) and _in(saved["node_type"], model.shape.num_types), "node_type"
        )
    _check_tie(saved, model, nodes)
    counts = {name.removeprefix("counters/"): x.numpy() for name, x in saved.items() if name.startswith("counters/")}
    check_counts(counts, nodes, PlanSpec.of(model.config, model.shape.mean_gap).walk_dim)


def _check_tie(saved: dict[str, Tensor], model: TSNN, nodes: int) -> None:
    """The events of the last timestamp, which a start replays."""
    tie = {name.removeprefix("tie/"): x for name, x in saved.items() if name.startswith("tie/")}
    length = len(tie["src"]) if "src" in tie else 0
    shapes: dict[str, tuple[int, ...]] = {"src": (length,), "dst": (length,), "t": (length,)}
    if model.shape.msg_dim:
        shapes["msg"] = (length, model.shape.msg_dim)
    if model.shape.num_relations:
        shapes["edge_type"] = (length,)
    _must(length > 0 and set(shapes) == set(tie), "tie")
    for name, shape in shapes.items():
        _must(tuple(tie[name].shape) == shape and bool(isfinite(tie[name]).all()), f"tie/{name}")
    for name in ("src", "dst"):
        _must(_in(tie[name], nodes), f"tie/{name}")
    _must(bool((tie["t"] == saved["clock"]).all()), "tie/t")
    if model.shape.num_relations:
        _must(_in(tie["edge_type"], model.shape.num_relations), "tie/edge_type")


def _in(values: Tensor, size: int) -> bool:
    found = values.numpy()
    return found.dtype == np.int64 and bool(((found >= 0) & (found < size)).all())


def _must(holds: bool, name: str) -> None:
    if not holds:
        raise RunError(f"the saved state is damaged: {name} holds what it cannot hold; restore the run.")
