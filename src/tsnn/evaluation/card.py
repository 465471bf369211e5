"""The protocol card: everything a figure needs to mean something, stored beside it."""

from __future__ import annotations

import platform
from dataclasses import asdict, dataclass, field
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from tsnn.data.events import EventStream
from tsnn.data.split import Split

PACKAGES = ("tsnn", "torch", "numpy", "numba", "scikit-learn")
UPDATES = {
    "strict": "a score sees every event with an earlier time",
    "arrival": "a score sees every earlier row",
    "batch": "a score sees every row of earlier batches, counted from the start of its split segment",
}


@dataclass(frozen=True)
class Card:
    """How a result came about."""

    protocol: str
    data: dict[str, Any]
    split: dict[str, Any]
    question: dict[str, Any]  # as `tsnn.data.question.Question` wrote it
    visibility: str
    updates: str
    negatives: dict[str, Any]
    aggregation: str
    versions: dict[str, str]
    notes: list[str] = field(default_factory=list)
    positives: dict[str, int] = field(default_factory=dict)  # events behind the figures of each set


@dataclass(frozen=True)
class Result:
    """Metrics by set, with the card they hold under."""

    scorer: str
    data: str
    metrics: dict[str, dict[str, float]]
    card: Card

    def to_dict(self) -> dict[str, Any]:
        """The result as JSON would hold it."""
        return asdict(self)


def data_card(stream: EventStream) -> dict[str, Any]:
    """Name, sizes and fingerprint of a stream."""
    return {
        "name": stream.name,
        "fingerprint": stream.fingerprint(),
        "events": stream.num_events,
        "nodes": stream.num_nodes,
        "msg_dim": stream.msg_dim,
        "relations": stream.num_relations,
        "node_types": stream.num_types,
    }


def split_card(split: Split) -> dict[str, Any]:
    """Sizes of the segments."""
    return {
        "train": split.train_end,
        "val": split.val_end - split.train_end,
        "test": split.stream.num_events - split.val_end,
        "new_nodes": int(split.new_node.sum()),
    }


def versions() -> dict[str, str]:
    """Python and the packages that make the figures."""
    found = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "not installed"
    return found
