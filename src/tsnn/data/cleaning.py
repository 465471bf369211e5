"""Rows of a messy table: which are left out, with what was done about them counted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from tsnn.data.columns import Column
from tsnn.data.description import PARTS, Cleaning
from tsnn.data.events import EventStream
from tsnn.data.times import Where
from tsnn.errors import InputError
from tsnn.types import I64


@dataclass(frozen=True)
class Cleaned:
    """What became of the rows of a table."""

    rows: int  # in the table
    dropped: int = 0  # for an empty cell
    empty: dict[str, int] = field(default_factory=dict)  # rows with an empty cell, by column
    unnamed: int = 0  # of no relation, and so of the kind that such events were given
    late: int = 0  # that stood behind a row of a later time
    repeated: int = 0  # left out as repeats of an earlier row

    def sentences(self) -> list[str]:
        """In words, a line each; nothing of a table that needed nothing."""
        cells = ", ".join(f"{label} in {count:,}" for label, count in self.empty.items())
        told = {
            f"left out for an empty cell ({cells})": self.dropped,
            "given the kind named for events without a relation": self.unnamed,
            "put in order of time": self.late,
            "left out as repeats of an earlier row": self.repeated,
        }
        return [f"{count:,} {'row' if count == 1 else 'rows'} {what}" for what, count in told.items() if count]


def clean_rows(used: Sequence[Column], cleaning: Cleaning, where: Where) -> tuple[I64, Cleaned]:
    """The rows in which every cell that is read is filled; a row with an empty one is refused unless it may go."""
    incomplete = np.zeros(len(used[0].missing), np.bool_)
    empty, unnamed = {}, np.zeros(len(incomplete), np.bool_)
    for column in used:
        if column.may_be_empty or not column.missing.any():
            continue
        if column.part == "edge_type" and cleaning.missing_relation is not None:
            unnamed = column.missing
        elif cleaning.drop_missing:
            empty[column.label] = int(column.missing.sum())
            incomplete |= column.missing
        else:
            _refuse(column, where)
    rows: I64 = np.flatnonzero(~incomplete)
    return rows, Cleaned(len(incomplete), int(incomplete.sum()), empty, int((unnamed & ~incomplete).sum()))


def _refuse(column: Column, where: Where) -> None:
    rows = np.flatnonzero(column.missing)
    others = f" (and of {len(rows) - 1:,} more)" if len(rows) > 1 else ""
    kind = ", or name the kind they are of with --missing-relation NAME" if column.part == "edge_type" else ""
    if column.part == "msg":
        kind = f", or have such cells marked with --msg {column.label}:number"
    raise InputError(
        f"the {PARTS[column.part]} of {where(int(rows[0]))}{others} is missing; fill in column {column.label!r}, or "
        f"drop such rows with --drop-missing (drop_missing=True){kind}."
    )


def without_repeats(stream: EventStream) -> tuple[EventStream, int]:
    """The stream without rows that repeat an earlier one in every column, and how many these were."""
    columns = [stream.src, stream.dst, stream.t, stream.edge_type, *(() if stream.msg is None else stream.msg.T)]
    keys = [column for column in columns if column is not None]
    order = np.lexsort(keys)  # stable: of equal rows the first comes first
    repeats = np.zeros(stream.num_events, np.bool_)
    repeats[order[1:]] = np.logical_and.reduce([key[order][1:] == key[order][:-1] for key in keys])
    return stream.take(~repeats), int(repeats.sum())
