"""Times: plain numbers in a unit of the table's own, or dates, which count as microseconds since 1970 in UTC.

Columns of times are read here, and single times as people write and read them.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta, timezone, tzinfo
from functools import lru_cache
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tsnn.errors import InputError

Time = int | float
Where = Callable[[int], str]
"""What to call a row in a complaint: "line 7 of clicks.csv"."""

NOW = "now"
EXAMPLE = "2024-03-01T08:00:00"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LAST = (datetime.max.replace(tzinfo=UTC) - _EPOCH) // timedelta(microseconds=1)
_SPAN = re.compile(r"(\d+(?:\.\d+)?) ?([smhdw])")
_MICROSECONDS = {"s": 10**6, "m": 60 * 10**6, "h": 3600 * 10**6, "d": 86400 * 10**6, "w": 7 * 86400 * 10**6}
_OFFSET = re.compile(r"(?:UTC)?([+-])(\d\d):?(\d\d)")


def plain_row(row: int) -> str:
    """A row where there is no file: its number, counted from 0."""
    return f"row {row}"


class Times(NamedTuple):
    """A column of times that has been checked."""

    values: NDArray[np.generic]  # int64 or float64
    dates: bool = False
    zone: str = "UTC"  # in which dates are shown


def read_times(times: NDArray[Any], where: Where = plain_row) -> Times:
    """Numbers, dates or ISO texts as times; anything else is refused by row."""
    zone = None
    if times.dtype.kind in "OUT":
        times, zone = _of_objects(times.tolist(), where)
    dates = times.dtype.kind == "M"
    if dates:
        missing = np.isnat(times)
        if missing.any():
            raise InputError(f"the time of {where(_first(missing))} is missing; drop such rows.")
        finer, times = times, times.astype("datetime64[us]").astype(np.int64)
        _check_resolution(finer, times)
    if times.dtype in (np.float16, np.float32):
        # float32 holds 24 bits: epochs in seconds would be rounded to multiples of 128 s and fall together.
        raise InputError(f"times are {times.dtype}, too coarse to keep events apart; pass float64 or int64.")
    if times.dtype.kind == "u" and (times > np.uint64(2**63 - 1)).any():
        raise InputError("a time does not fit in 64 bits; use a coarser unit such as milliseconds.")
    if times.dtype.kind not in "iuf":
        raise InputError(f"times are {times.dtype}; convert them to numbers, for example seconds since 1970.")
    _check_values(times, dates, where)
    return Times(times.astype(np.float64 if times.dtype.kind == "f" else np.int64), dates, zone or "UTC")


def _check_resolution(finer: NDArray[Any], times: NDArray[Any]) -> None:
    """Dates count in microseconds. That two in a million fall together matters little; that most do is another unit."""
    if np.datetime_data(finer.dtype)[0] not in ("ns", "ps", "fs", "as"):
        return
    distinct, kept = len(np.unique(finer)), len(np.unique(times))
    if 2 * kept < distinct:
        raise InputError(
            f"{distinct:,} different times are only {kept:,} in microseconds, to which dates are kept; give the column "
            "as whole numbers of nanoseconds."
        )


def _of_objects(listed: list[Any], where: Where) -> tuple[NDArray[Any], str | None]:
    """Python's numbers, dates and texts."""
    if all(type(x) is int for x in listed):
        try:
            return np.array(listed, dtype=np.int64), None
        except OverflowError:
            raise InputError("a time does not fit in 64 bits; use a coarser unit such as milliseconds.") from None
    missing = np.array([x is None or x != x or x == "" for x in listed])
    if missing.any():
        raise InputError(f"the time of {where(_first(missing))} is missing; drop the rows without a finite time.")
    if all(isinstance(x, date | np.datetime64) for x in listed):
        return _of_dates(listed, where)
    try:
        return np.array(listed, dtype=np.float64), None
    except (TypeError, ValueError):
        return _of_texts([str(x) for x in listed], where)


def _of_dates(listed: list[Any], where: Where) -> tuple[NDArray[Any], str | None]:
    zones = [getattr(x, "tzinfo", None) for x in listed]
    mixed = np.array([(zone is None) != (zones[0] is None) for zone in zones])
    if mixed.any():
        raise InputError(f"{where(_first(mixed))} differs from those before in having a time zone; give all times one.")
    values = np.array([instant(x, "UTC") for x in listed], np.int64).view("datetime64[us]")
    return values, str(zones[0]) if zones[0] is not None and len(set(zones)) == 1 else None


def _of_texts(texts: list[str], where: Where) -> tuple[NDArray[Any], str | None]:
    """ISO texts, read by the reader of CSV files."""
    found = _iso_array(texts)
    if found is not None:
        return found, None
    strange = (row for row, text in enumerate(texts) if _iso_array([text]) is None and _spelled(text) is None)
    bad = next(strange, None)
    if bad is None:
        numbers = any(_spelled(text) is not None for text in texts)
        mixed = "are numbers and others dates" if numbers else "have a zone and others have none"
        raise InputError(f"some times {mixed}; write all of them in one way.")
    raise InputError(
        f"the time of {where(bad)} is {texts[bad]!r}, neither a number nor an ISO date; write it like {EXAMPLE}."
    )


def _iso_array(texts: list[str]) -> NDArray[Any] | None:
    column = pa.array(texts, pa.string())
    for kind in (pa.timestamp("us"), pa.timestamp("us", "UTC"), pa.timestamp("ns"), pa.timestamp("ns", "UTC")):
        try:
            return np.asarray(column.cast(kind)).astype("datetime64[us]")
        except pa.ArrowInvalid:
            continue
    return None


def _check_values(times: NDArray[Any], dates: bool, where: Where) -> None:
    bad = ~np.isfinite(times)
    if bad.any():
        row = _first(bad)
        raise InputError(f"the time of {where(row)} is {times[row]}; drop the rows without a finite time.")
    if len(times) and times.min() < 0:
        row = _first(times < 0)
        if dates:
            raise InputError(f"the time of {where(row)} is before 1970; give such times as numbers from 0 on.")
        raise InputError(
            f"the time of {where(row)} is negative ({times[row]}); shift all times to start at 0 or later."
        )


def _first(mask: NDArray[Any]) -> int:
    return int(np.flatnonzero(mask)[0])


# Single times


def number_of_time(value: Any) -> Time | None:
    """A finite number, also one that a text spells; None for anything else."""
    if isinstance(value, np.number):
        value = value.item()
    if isinstance(value, str):
        value = _spelled(value.strip())
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return value


def _spelled(text: str) -> Time | None:
    try:
        return int(text) if text.removeprefix("-").isdecimal() else float(text)
    except ValueError:
        return None


def instant(value: Any, zone: str) -> int:
    """Microseconds since 1970 of a date, an ISO text or "now"; where these name no zone, they are of this one."""
    when = _datetime(value)
    if when is None:
        raise InputError(f"time {value!r} is no date; write it like {EXAMPLE}, or say {NOW}.")
    if when.tzinfo is None:
        when = when.replace(tzinfo=_zone(zone))
    return int((when - _EPOCH) // timedelta(microseconds=1))


def _datetime(value: Any) -> datetime | None:
    if isinstance(value, np.datetime64):
        value = value.astype("datetime64[us]").item()
    if isinstance(value, str):
        text = value.strip()
        if text == NOW:
            return datetime.now(UTC)
        try:
            return datetime.fromisoformat(text)
        except ValueError:
            return None
    if value != value:  # no date, as pandas writes it
        return None
    if isinstance(value, date) and not isinstance(value, datetime):
        return datetime(value.year, value.month, value.day)
    return value if isinstance(value, datetime) else None


def is_date(text: str) -> bool:
    """Whether a text is an ISO date or "now"."""
    return not text.isdecimal() and _datetime(text) is not None


def is_date_number(value: Time) -> bool:
    """Whether a number of microseconds is a date that a calendar has."""
    return 0 <= value <= _LAST


def moment(microseconds: Time, zone: str) -> datetime:
    """The date of a number of microseconds since 1970."""
    return (_EPOCH + timedelta(microseconds=round(microseconds))).astimezone(_zone(zone))


def iso(when: datetime) -> str:
    """A date as text that needs no quotes on a command line."""
    return when.isoformat().replace("+00:00", "Z")


def read_span(value: Any, dates: bool) -> float:
    """A length of time in the unit of a stream; of dates also as 90s, 15m, 12h, 30d or 4w. "inf" has no end."""
    written = _SPAN.fullmatch(value.strip()) if dates and isinstance(value, str) else None
    number = float(written[1]) * _MICROSECONDS[written[2]] if written else _plain_number(value)
    if number is None or not number >= 0:
        how = "write it like 12h or 30d" if dates else "give a number in the unit of the data"
        raise InputError(f"{value!r} is no length of time; {how}, or say inf.")
    return number


def _plain_number(value: Any) -> float | None:
    try:
        return None if isinstance(value, bool) else float(value)
    except (TypeError, ValueError):
        return None


@lru_cache
def _zone(name: str) -> tzinfo:
    offset = _OFFSET.fullmatch(name)
    if name == "UTC":
        return UTC
    if offset:
        sign = 1 if offset[1] == "+" else -1
        return timezone(sign * timedelta(hours=int(offset[2]), minutes=int(offset[3])))
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError):
        raise InputError(f"the time zone {name!r} is unknown on this machine; install the package tzdata.") from None
