"""Times that are dates stay dates: columns of every library, and single times both ways."""

from datetime import UTC, date, datetime, timedelta, timezone

import numpy as np
import pandas as pd
import polars as pl
import pytest

from tsnn.data.description import Description
from tsnn.data.events import make_stream
from tsnn.data.table import from_pandas, from_polars, read_table, write_table
from tsnn.errors import InputError

MARCH = 1709280000000000  # 2024-03-01T08:00:00Z
DATES, BERLIN = Description(dates=True), Description(dates=True, zone="Europe/Berlin")


def test_a_time_is_shown_as_it_is_taken():
    for description in (DATES, BERLIN, Description(dates=True, zone="UTC-03:30")):
        for t in (0, MARCH, MARCH + 1, 253402300799999999 - 86_400_000_000):
            assert description.parse_time(description.show_time(t)) == t
    assert DATES.show_time(MARCH) == "2024-03-01T08:00:00Z"
    assert BERLIN.show_time(MARCH) == "2024-03-01T09:00:00+01:00"
    assert BERLIN.moment(MARCH) == datetime(2024, 3, 1, 8, tzinfo=UTC)
    assert Description().show_time(MARCH) == MARCH


SAME = [
    MARCH,
    str(MARCH),
    "2024-03-01T08:00:00Z",
    "2024-03-01 08:00",
    "2024-03-01T09:00+01:00",
    "20240301T08",
    datetime(2024, 3, 1, 8),
    datetime(2024, 3, 1, 8, tzinfo=UTC),
    pd.Timestamp("2024-03-01 08:00"),
    np.datetime64("2024-03-01T08:00", "ns"),
    np.int64(MARCH),
]


@pytest.mark.parametrize("time", SAME, ids=str)
def test_dates_are_taken_in_every_form(time):
    assert DATES.parse_time(time) == MARCH


def test_a_date_alone_is_its_midnight_and_now_is_now():
    assert DATES.parse_time("2024-03-01") == DATES.parse_time(date(2024, 3, 1)) == MARCH - 8 * 3_600_000_000
    now = datetime.now(UTC)
    assert abs(DATES.moment(DATES.parse_time("now")) - now) < timedelta(seconds=5)
    assert BERLIN.parse_time("2024-03-01T09:00:00") == MARCH  # what names no zone is of the stream's


@pytest.mark.parametrize("time", ["noon", "2024-13-01", 1.7e18, -1, float("nan"), None, True])
def test_what_is_no_date_is_refused(time):
    with pytest.raises(InputError, match=r"is no date.* write it like 2024-03-01T08:00:00"):
        DATES.parse_time(time)


def test_plain_numbers_stay_numbers():
    plain = Description()
    assert plain.parse_time("5000") == 5000
    assert isinstance(plain.parse_time("5000"), int)
    assert plain.parse_time("2.5") == plain.parse_time(np.float64(2.5)) == 2.5
    for time in ("now", "2024-03-01", datetime(2024, 3, 1), float("inf"), None, True):
        with pytest.raises(InputError, match="is not a finite number"):
            plain.parse_time(time)


def test_a_zone_that_nobody_knows_is_one_sentence():
    with pytest.raises(InputError, match="'Mars/Olympus' is unknown on this machine"):
        Description(dates=True, zone="Mars/Olympus").show_time(MARCH)


COLUMNS = {
    "texts": ["2024-03-01 08:00", "2024-03-01T08:00:00.5"],
    "texts with a zone": ["2024-03-01T08:00Z", "2024-03-01T09:00:00.5+01:00"],
    "dates": [datetime(2024, 3, 1, 8), datetime(2024, 3, 1, 8, 0, 0, 500_000)],
}


@pytest.mark.parametrize("kind", COLUMNS)
def test_columns_of_texts_and_dates_are_times(kind, tmp_path):
    column = COLUMNS[kind]
    expected = [MARCH, MARCH + 500_000]
    assert make_stream([1, 2], [2, 3], column).t.tolist() == expected
    frame = pd.DataFrame({"src": [1, 2], "dst": [2, 3], "t": column})
    for stream in (from_pandas(frame), from_polars(pl.from_pandas(frame))):
        assert stream.t.tolist() == expected
        assert stream.description.dates
    path = tmp_path / "log.csv"
    frame.to_csv(path, index=False)
    assert read_table(path).t.tolist() == expected


def test_the_zone_of_a_column_is_remembered(tmp_path):
    berlin = pd.to_datetime(["2024-03-01 09:00", "2024-03-01 10:00"]).tz_localize("Europe/Berlin")
    frame = pd.DataFrame({"src": [1, 2], "dst": [2, 3], "t": berlin})
    path = tmp_path / "log.parquet"
    stream = from_pandas(frame)
    write_table(stream, path)
    for same in (stream, from_polars(pl.from_pandas(frame)), read_table(path), make_stream([1, 2], [2, 3], frame["t"])):
        assert same.description.zone == "Europe/Berlin"
        assert same.description.show_time(same.t[0].item()) == "2024-03-01T09:00:00+01:00"
    east = [datetime(2024, 3, 1, 10, tzinfo=timezone(timedelta(hours=2))) for _ in range(2)]
    assert make_stream([1, 2], [2, 3], east).description.zone == "UTC+02:00"


def test_a_missing_date_of_a_frame_is_missing():
    frame = pd.DataFrame({"src": [1, 2], "dst": [2, 3], "t": [pd.Timestamp("2024-03-01", tz="UTC"), pd.NaT]})
    with pytest.raises(InputError, match="the time of row 1 is missing"):
        from_pandas(frame)
    assert from_pandas(frame, drop_missing=True).num_events == 1
