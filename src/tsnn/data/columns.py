"""One column of a table as numpy, with its empty cells apart, whatever library it comes from."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tsnn.data.csv_file import NO_NUMBER
from tsnn.data.numerals import read_numerals
from tsnn.data.times import Times, Where, read_times
from tsnn.errors import InputError
from tsnn.types import I64, Bool

_NONE = ("NAType", "NaTType")  # of pandas


@dataclass(frozen=True)
class Column:
    """A column that plays a part; `values` mean nothing where the cell is `missing`."""

    label: str
    part: str
    values: NDArray[Any]
    missing: Bool
    zone: str | None = None  # of dates, where the column names one
    may_be_empty: bool = False  # a missing cell says so among the features

    def take(self, rows: I64) -> Column:
        """Only these rows."""
        return replace(self, values=self.values[rows], missing=self.missing[rows])

    def times(self, where: Where) -> Times:
        """The column as times."""
        if self.missing.any():
            row = int(np.flatnonzero(self.missing)[0])
            raise InputError(f"the time of {where(row)} is missing; drop the rows without a finite time.")
        times = read_times(self.values, where)
        return times._replace(zone=self.zone) if self.zone and times.dates else times

    def features(self, where: Where) -> tuple[NDArray[np.float32], str]:
        """As (E, width): a column of numbers, of text that spells them, or of lists of one length; and its currency."""
        values, currency = self.values, ""
        if values.dtype.kind in "OUT" and all(isinstance(x, str) for x in values.tolist()):
            values, currency = read_numerals(values.tolist(), self.label, where)
        try:
            if values.dtype.kind == "O":
                values = np.array([np.asarray(x, dtype=np.float32) for x in values], dtype=np.float32)
            features = values.astype(np.float32)
        except (TypeError, ValueError):
            raise InputError(
                f"feature column {self.label!r} is ragged or not numeric; give every event the same number of numbers."
            ) from None
        return features[:, None] if features.ndim == 1 else features, currency

    def labels(self, missing: str | None) -> Any:
        """Kinds as they are; where some are missing and these have a name, all of them as text."""
        if missing is None or not self.missing.any():
            return self.values
        pairs = zip(self.values.tolist(), self.missing.tolist(), strict=True)
        return [missing if gone else str(_whole(x)) for x, gone in pairs]


def _whole(value: Any) -> Any:
    """Integers that a missing cell beside them has made floats."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def open_column(raw: Any, label: str, part: str, of_numbers: bool) -> Column:
    """A column of arrow, pandas, polars or numpy; in one `of_numbers`, "NA" and the like are empty cells too."""
    if hasattr(raw, "to_arrow"):  # polars: only arrow keeps whole numbers whole beside empty cells
        raw = raw.to_arrow()
    if isinstance(raw, pa.Array | pa.ChunkedArray):
        if pa.types.is_binary(raw.type):
            raise InputError(f"column {label!r} is not UTF-8 text; save the table as UTF-8.")
        values, missing = _from_arrow(raw)
    else:
        values = _from_series(raw)
        missing = _missing_in(values)
    if of_numbers and values.dtype.kind in "OUT":
        missing |= np.array([isinstance(x, str) and x.strip() in NO_NUMBER for x in values.tolist()], np.bool_)
    return Column(label, part, values, missing, _zone_of(raw))


def _zone_of(raw: Any) -> str | None:
    kind = getattr(raw, "type", None) or getattr(raw, "dtype", None)
    zone = getattr(kind, "tz", None)
    return str(zone) if zone else None


def _from_arrow(raw: Any) -> tuple[NDArray[Any], Bool]:
    if pa.types.is_dictionary(raw.type):
        raw = raw.cast(raw.type.value_type)
    missing = np.array(raw.is_null(nan_is_null=True))
    if pa.types.is_string(raw.type) or pa.types.is_large_string(raw.type) or pa.types.is_string_view(raw.type):
        missing |= np.array(pc.equal(pc.utf8_trim_whitespace(raw), "").fill_null(True))
    elif raw.null_count and (pa.types.is_integer(raw.type) or pa.types.is_boolean(raw.type)):
        raw = raw.fill_null(0)  # whole numbers never go through floats
    return as_numpy(raw), missing


def as_numpy(raw: Any) -> NDArray[Any]:
    """An arrow column as numpy."""
    return np.asarray(raw.to_numpy(zero_copy_only=False) if isinstance(raw, pa.Array) else raw.to_numpy())


def _from_series(raw: Any) -> NDArray[Any]:
    """A pandas series or an array; dates of a zone as UTC, which is what numpy can hold."""
    if getattr(getattr(raw, "dtype", None), "tz", None):
        raw = raw.dt.tz_convert("UTC").dt.tz_localize(None)
    return np.asarray(raw.to_numpy() if hasattr(raw, "to_numpy") else raw)


def _missing_in(values: NDArray[Any]) -> Bool:
    if values.dtype.kind in "fM":
        return np.asarray(np.isnan(values))
    if values.dtype.kind in "iub":
        return np.zeros(len(values), np.bool_)
    return np.array([_is_missing(x) for x in values.tolist()], np.bool_)


def _is_missing(value: Any) -> bool:
    if isinstance(value, str):
        return not value or value.isspace()
    # Neither NaN nor NaT equals itself, and pandas' NA will not even be compared.
    return value is None or type(value).__name__ in _NONE or (isinstance(value, float) and value != value)


def is_numeric(raw: Any) -> bool:
    """Whether a column holds numbers as they are, not text that spells them."""
    if isinstance(raw, pa.ChunkedArray):
        kinds = (pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean, pa.types.is_decimal)
        return any(is_kind(raw.type) for is_kind in kinds)
    return np.asarray(raw).dtype.kind in "iufb"


def first_cell(raw: Any) -> Any:
    """The first cell of a column, as Python has it; None where the table has no rows."""
    if not len(raw):
        return None
    cell = raw.iloc[0] if hasattr(raw, "iloc") else raw[0]
    return cell.as_py() if hasattr(cell, "as_py") else cell
