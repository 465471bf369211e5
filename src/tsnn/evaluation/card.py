"""The protocol card: everything a figure needs to mean something, stored beside it."""

from __future__ import annotations

import html
import platform
from dataclasses import asdict, dataclass, field
from importlib.metadata import PackageNotFoundError, version
from typing import Any, ClassVar

from tsnn.data.events import EventStream
from tsnn.data.split import Split
from tsnn.tabular import Brief, Columns, Tabular, html_table
from tsnn.words import Helpful

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
    ceilings: dict[str, dict[str, float]] = field(default_factory=dict)  # what a perfect scorer gets; some know none


@dataclass(frozen=True, repr=False)
class Result(Tabular, Brief, Helpful):
    """Metrics by set, with the card they hold under."""

    _instead: ClassVar = dict.fromkeys(("ap", "auc", "mrr", "test", "val"), 'say metrics["test"]["ap"] and so on.')

    scorer: str
    data: str
    metrics: dict[str, dict[str, float]]
    card: Card
    remark: str = ""  # what has to be known wherever a figure is shown; mostly nothing

    def to_dict(self) -> dict[str, Any]:
        """The result as JSON would hold it."""
        return asdict(self)

    def columns(self) -> Columns:
        """A row for each set, for each metric a column and one of its ceiling; None where a set has no such figure."""
        names = dict.fromkeys(name for found in self.metrics.values() for name in found)
        figures: dict[str, list[Any]] = {"set": list(self.metrics)}
        for name in names:
            figures[name] = [found.get(name) for found in self.metrics.values()]
            figures[f"{name} ceiling"] = [self.card.ceilings.get(part, {}).get(name) for part in self.metrics]
        return figures

    def brief(self) -> dict[str, object]:
        """What was asked of whom, and the test figures."""
        test = self.metrics.get("test", {})
        main = {name: f"{test[name]:.4g}" for name in ("ap", "mrr") if name in test}
        about = {"scorer": self.scorer, "data": self.data, "visibility": self.card.visibility}
        remark = {"remark": self.remark} if self.remark else {}
        return {**about, **{f"test {name}": value for name, value in main.items()}, **remark}

    def _repr_html_(self) -> str:
        under = f"{self.scorer} on {self.data}, visibility {self.card.visibility}, protocol {self.card.protocol}"
        return f"<p>{html.escape(under)}</p>{html_table(self.columns())}<p>{html.escape(self.remark)}</p>"


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
        **({"held_out": split.held_out} if split.held_out else {}),
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
