"""Columns of messages by kind: what a number, a boolean, a category or a text becomes among an event's features.

    number     its value, and whether it is missing
    boolean    whether it is true, and whether it is missing
    category   one place for each of the categories that are common in training, one for any other, one for none
    text       a code of its words, each drawn from the word, and whether there is no text

What is learned of a column, its categories and what stands in for a missing number, is learned from training rows. It
is a part of the stream's description, so that a run encodes later rows and live events as it was trained. A column of
numbers that nobody declares stays a single feature, in which no cell may be empty.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tsnn.data.columns import Column
from tsnn.data.description import CODE, KINDS, MessageColumn
from tsnn.data.events import keys_of
from tsnn.data.times import Where, plain_row
from tsnn.errors import InputError
from tsnn.random import random_words
from tsnn.types import I64, Bool
from tsnn.words import did_you_mean, listed

MOST = 32  # categories with a place of their own
_TRUE, _FALSE = ("true", "yes", "t", "y", "1"), ("false", "no", "f", "n", "0")
Features = NDArray[np.float32]


def encode(own: MessageColumn, column: Column, where: Where) -> Features:
    """The features of every row."""
    present = np.flatnonzero(~column.missing)
    found = np.zeros((len(column.missing), len(own.names)), np.float32)
    found[:, -1] = column.missing
    if own.kind == "number":
        found[:, 0] = own.fill

    def at(row: int) -> str:
        return where(int(present[row]))

    if len(present):
        found[present, :-1] = _present(own, column.take(present), at)
    return found


def _present(own: MessageColumn, column: Column, where: Where) -> Features:
    """The features but the last, of rows that have a value."""
    if own.kind == "number":
        values, _ = column.features(where)
        if values.shape[1] != 1 or not np.isfinite(values).all():
            raise InputError(f"column {own.column!r} is declared as numbers, but holds something else.")
        return values
    texts = as_texts(column.values)
    if own.kind == "boolean":
        strange = next((i for i, text in enumerate(texts) if text.lower() not in _TRUE + _FALSE), None)
        if strange is not None:
            raise InputError(
                f"column {own.column!r} says {texts[strange]!r} in {where(strange)}, neither true nor false; "
                "declare it as a category."
            )
        return np.array([[text.lower() in _TRUE] for text in texts], np.float32)
    if own.kind == "category":
        place = {name: i for i, name in enumerate(own.categories)}
        return np.eye(len(place) + 1, dtype=np.float32)[[place.get(text, len(place)) for text in texts]]
    return np.array([_code(text) for text in texts], np.float32)


def as_texts(values: NDArray[Any]) -> list[str]:
    """Values as text, a whole number like itself whether or not a missing cell has made floats of a column."""
    return [str(int(x)) if isinstance(x, float) and x.is_integer() else str(x) for x in values.tolist()]


def _code(text: str) -> NDArray[np.float64]:
    """The sum of its words' signs, of a length that does not grow with their number."""
    words = re.findall(r"\w+", text.lower())
    if not words:
        return np.zeros(CODE)
    signs = (random_words(0, keys_of(words), CODE) >> np.uint64(63)).astype(np.float64) * 2 - 1
    code: NDArray[np.float64] = signs.sum(0) / np.sqrt(len(words) * CODE)
    return code


def declared(table: Mapping[str, Any], wanted: Sequence[str]) -> dict[str, str | None]:
    """Columns and the kind each is declared as, from texts like `level:category`; without a kind, it is recognized."""
    found: dict[str, str | None] = {}
    for text in wanted:
        head, colon, kind = text.rpartition(":")
        if text in table or not colon or head not in table:
            found[text] = None  # a column that is not there is told of where it is read
            continue
        if kind not in KINDS:
            meant = did_you_mean(kind, KINDS) or f"use one of {', '.join(KINDS)}."
            raise InputError(f"column {head!r} is declared as {kind!r}; {meant}")
        found[head] = kind
    return found


def understood(column: Column, kind: str | None, like: MessageColumn | None, training: Bool) -> MessageColumn | None:
    """What the column is, learned from training rows unless it is known already; None for plain numbers."""
    if like is not None:
        if kind not in (None, like.kind):
            raise InputError(f"column {column.label!r} is declared as {kind}, but the run read it as {like.kind}.")
        return like
    kind = kind or _recognized(column)
    if kind is None:
        return None
    rows: I64 = np.flatnonzero(training & ~column.missing)
    if kind == "category":
        common = Counter(as_texts(column.values[rows])).most_common(MOST)
        return MessageColumn(column.label, kind, tuple(sorted(name for name, _ in common)))
    plain = MessageColumn(column.label, kind)
    if kind != "number" or not len(rows):
        return plain
    return MessageColumn(column.label, kind, fill=float(encode(plain, column.take(rows), plain_row)[:, 0].mean()))


def _recognized(column: Column) -> str | None:
    """The kind of a column of text that spells no numbers: few different ones are categories."""
    values = column.values[~column.missing]
    if values.dtype.kind not in "OUT" or not len(values) or not all(isinstance(x, str) for x in values.tolist()):
        return None
    texts = set(values.tolist())
    if any(any(letter.isdigit() for letter in text) for text in texts):
        return None
    return "category" if len(texts) <= MOST else "text"


def _an_event(row: int) -> str:
    return "the event"


def encode_event(labels: Sequence[str], columns: Sequence[MessageColumn], told: Mapping[str, Any]) -> Features:
    """The features of one event from its values by column; one that is not named is missing."""
    strange = next((name for name in told if name not in labels), None)
    if strange is not None:
        meant = did_you_mean(strange, labels) or f"the run reads {listed(tuple(labels))}."
        raise InputError(f"msg names {strange!r}, which is no column of the run; {meant}")
    known = {own.column: own for own in columns}
    return np.concatenate([_one_cell(label, known.get(label), told.get(label)) for label in labels])


def _one_cell(label: str, own: MessageColumn | None, value: Any) -> Features:
    if isinstance(value, Mapping | list | tuple):
        raise InputError(f"msg gives {label!r} several values; give one.")
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    gone = value is None or value != value or (isinstance(value, str) and not value.strip())
    if own is None or own.kind == "number":
        if gone and own is None:
            raise InputError(f"msg lacks {label!r}, in which the run knows no missing value; give a number.")
        if not gone and not is_number:
            raise InputError(f"msg gives {label!r} as {value!r}, which is no number.")
    if own is None:
        return np.array([value], np.float32)
    cells = np.empty(1, object)
    cells[0] = value
    column = Column(label, "msg", np.array([value]) if is_number else cells, np.array([gone]))
    found: Features = encode(own, column, _an_event)[0]
    return found
