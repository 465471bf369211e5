"""How every column of a table was understood: what to look at before any figure on it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tsnn.data.cleaning import Cleaned
from tsnn.data.columns import Column, first_cell
from tsnn.data.csv_file import SEPARATORS
from tsnn.data.description import PARTS
from tsnn.types import I64
from tsnn.words import listed

if TYPE_CHECKING:
    from tsnn.data.events import EventStream

IGNORED = "ignored"


@dataclass(frozen=True)
class ColumnView:
    """A column: the part it plays, what was understood of it, and its first cell as it stands in the table."""

    column: str
    part: str
    understood: str
    first: str


@dataclass(frozen=True)
class Preview:
    """A table as it was read."""

    table: str
    separator: str | None  # of a CSV file, by name
    columns: tuple[ColumnView, ...]
    cleaned: Cleaned

    def headline(self) -> str:
        """The table in a line."""
        separated = f", columns separated by {self.separator}" if self.separator else ""
        return f"{self.table}: {self.cleaned.rows:,} rows{separated}"

    def to_dict(self) -> dict[str, Any]:
        """As JSON would hold it."""
        return asdict(self)


def preview_of(
    table: str,
    separator: str | None,
    raw: Mapping[str, Any],
    used: Sequence[Column],
    currencies: Sequence[str],
    stream: EventStream,
    cleaned: Cleaned,
) -> Preview:
    """What became of every column: those `used`, with the currencies of the features among them, and the others."""
    said: dict[str, list[tuple[str, str]]] = {label: [] for label in raw}
    features = _features(used, currencies, stream)
    for column in used:
        told = features[column.label] if column.part == "msg" else _understood(column, stream)
        said[column.label].append((PARTS[column.part], told))
    views = [_view(label, parts, raw[label]) for label, parts in said.items()]
    return Preview(table, SEPARATORS[separator] if separator else None, tuple(views), cleaned)


def _view(label: str, parts: list[tuple[str, str]], raw: Any) -> ColumnView:
    names, told = zip(*parts, strict=True) if parts else ((IGNORED,), ("",))
    return ColumnView(label, " and ".join(names), "; ".join(dict.fromkeys(told)), str(first_cell(raw)))


def _understood(column: Column, stream: EventStream) -> str:
    if column.part in ("src", "dst"):
        nodes: I64 = getattr(stream, column.part)
        kind = "text" if column.values.dtype.kind in "OUT" else "numbers"
        return f"{len(np.unique(nodes)):,} nodes, by {kind}"
    if column.part == "t":
        first, last = (stream.description.show_time(t.item()) for t in (stream.t[0], stream.t[-1]))
        return f"{'dates' if stream.description.dates else 'numbers'}, {first} to {last}"
    if column.part == "edge_type":
        names = stream.description.relations
        return f"{len(names)} kinds: {listed(names)}" if names else f"{stream.num_relations} kinds, by number"
    types = tuple(str(kind) for kind in dict.fromkeys(column.values.tolist()))
    return f"{len(types)} {'type' if len(types) == 1 else 'types'}: {listed(types)}"


def _features(used: Sequence[Column], currencies: Sequence[str], stream: EventStream) -> dict[str, str]:
    """What every feature column holds; one of lists takes several places of the stream's features."""
    if stream.msg is None:
        return {}
    found, start = {}, 0
    messages = {own.column: own for own in stream.description.messages}
    columns = [column for column in used if column.part == "msg"]
    for column, currency in zip(columns, currencies, strict=True):
        if own := messages.get(column.label):
            missing = f", {int(column.missing.sum()):,} missing" if column.missing.any() else ""
            found[column.label] = f"{own.says}{missing}"
            start += len(own.names)
            continue
        width = np.size(column.values[0])
        values = stream.msg[:, start : start + width]
        start += width
        kind = "numbers" if width == 1 else f"lists of {width} numbers"
        found[column.label] = f"{kind}, {values.min():g} to {values.max():g}" + (f" {currency}" if currency else "")
    return found
