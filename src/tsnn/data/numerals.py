"""Numbers in text, as tables have them: "$1,234.50", "1.234,50 EUR", "12 500".

A column is read as a whole: one of its cells may settle what the point and the comma mean in all of them. Where none
does, the column is refused by name.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence

import numpy as np

from tsnn.data.times import Where
from tsnn.errors import InputError
from tsnn.types import F64

_AROUND = r"[^\d\s.,'’+−-]+"  # what may be a currency
_CELL = re.compile(rf"([-+−]?)\s*({_AROUND})?\s*([-+−]?)\s*([\d.,][\d.,'’\s]*?)\s*({_AROUND})?")
# Groups of three digits behind one and the same mark, then the decimals.
_DECIMAL = {
    mark: re.compile(rf"\d{{1,3}}([{others}'’\s])\d{{3}}(?:\1\d{{3}})*(?:\{mark}\d*)?|\d+(?:\{mark}\d*)?|\{mark}\d+")
    for mark, others in ((".", ","), (",", "."))
}


def read_numerals(texts: Sequence[str], label: str, where: Where) -> tuple[F64, str]:
    """The numbers, and their currency ("" if none); InputError if a cell is no number or could be two."""
    cells = {text: _taken_apart(text) for text in dict.fromkeys(texts)}
    bad = next((text for text, cell in cells.items() if cell is None), None)
    if bad is not None:
        raise InputError(
            f"column {label!r} holds {bad!r} in {where(texts.index(bad))}, which is no number; mend it, or leave the "
            "column out."
        )
    told = {text: cell for text, cell in cells.items() if cell is not None}
    currencies = sorted({currency for *_, currency in told.values()} - {""})
    if len(currencies) > 1:
        raise InputError(f"column {label!r} is in several currencies ({', '.join(currencies)}); convert them to one.")
    values = _in_one_way({text: (sign, digits) for text, (sign, digits, _) in told.items()}, label, where, texts)
    return np.array([values[text] for text in texts]), currencies[0] if currencies else ""


def _taken_apart(text: str) -> tuple[int, str, str] | None:
    """Sign, digits with their marks, and currency of a cell."""
    found = _CELL.fullmatch(text.strip())
    if found is None:
        return None
    outer, ahead, inner, digits, behind = (part or "" for part in found.groups())
    currency = ahead or behind
    if (outer and inner) or (ahead and behind) or (currency and not _is_currency(currency)):
        return None
    if not any(_is_plain(digits, mark) for mark in _DECIMAL):
        return None
    return -1 if (outer or inner) in ("-", "−") else 1, digits, currency


def _is_currency(text: str) -> bool:
    """A sign such as € or US$, or a code such as EUR."""
    return unicodedata.category(text[-1]) == "Sc" or (len(text) == 3 and text.isascii() and text.isupper())


def _is_plain(digits: str, decimal: str) -> bool:
    return _DECIMAL[decimal].fullmatch(digits) is not None


def _in_one_way(cells: dict[str, tuple[int, str]], label: str, where: Where, texts: Sequence[str]) -> dict[str, float]:
    """Values of all cells under the one meaning of point and comma that fits every cell."""
    fits = [mark for mark in _DECIMAL if all(_is_plain(digits, mark) for _, digits in cells.values())]
    if not fits:
        pair = [next(text for text, (_, digits) in cells.items() if not _is_plain(digits, mark)) for mark in ",."]
        raise InputError(f"column {label!r} writes numbers in two ways, as {pair[0]!r} and as {pair[1]!r}; choose one.")
    values, *others = ({text: sign * _value(digits, mark) for text, (sign, digits) in cells.items()} for mark in fits)
    for other in others:
        doubtful = next((text for text, value in values.items() if other[text] != value), None)
        if doubtful is not None:
            raise InputError(
                f"column {label!r} holds {doubtful!r} in {where(texts.index(doubtful))}, which may be "
                f"{values[doubtful]:g} or {other[doubtful]:g}; write such numbers without marks between thousands."
            )
    return values


def _value(digits: str, decimal: str) -> float:
    whole, _, rest = digits.partition(decimal)
    return float(re.sub(r"\D", "", whole) + "." + rest)
