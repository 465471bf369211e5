"""CSV files as people have them: whatever separates their columns, and complaints by the line of the file."""

from __future__ import annotations

import csv
import gzip
import zlib
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import IO, Any, cast

import pyarrow as pa
import pyarrow.csv as pa_csv

from tsnn.data.times import Where
from tsnn.errors import InputError

SUFFIXES = (".csv", ".csv.gz", ".tsv", ".tsv.gz", ".txt", ".txt.gz")
SEPARATORS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "pipes"}
NO_NUMBER = frozenset(pa_csv.ConvertOptions().null_values)  # what a cell may hold where a number is missing
_HEAD = 20  # lines that the separator is recognized by


def read_csv(
    path: Path, header: bool = True, text_columns: tuple[str, ...] = (), separator: str = ",", only: bool = False
) -> pa.Table:
    """A CSV file, `only` its columns of text if so asked; with `header=False` its first line is skipped and columns
    are named f0, f1, ..."""
    if not path.stat().st_size:
        raise InputError(f"{path} is empty; give a table with a line of column names and a line for each event.")
    read = pa_csv.ReadOptions(use_threads=False, skip_rows=0 if header else 1, autogenerate_column_names=not header)
    texts = {name: pa.string() for name in text_columns}
    convert = pa_csv.ConvertOptions(column_types=texts, include_columns=list(text_columns) if only else None)
    odd: list[Any] = []  # rows of another width than the first

    def refuse(row: Any) -> str:
        odd.append(row)
        return "error"

    try:
        parse = pa_csv.ParseOptions(delimiter=separator, invalid_row_handler=refuse)
        table = pa_csv.read_csv(str(path), read, parse, convert)
        _ = table.column_names  # which arrow decodes only when asked for them
        return table
    except UnicodeDecodeError:
        raise InputError(f"the names of the columns of {path} are not UTF-8 text; save it as UTF-8.") from None
    except (pa.ArrowException, OSError, EOFError) as error:
        if odd:
            where = lines_of(path, separator)(odd[0].number - 2)  # arrow counts from 1, the line of names included
            counts = f"has {odd[0].actual_columns} columns, the first line {odd[0].expected_columns}"
            raise InputError(f"{where} {counts}, so it cannot be read as CSV; mend the line.") from None
        reason = str(error).splitlines()[0].rstrip(".")
        raise InputError(f"{path} cannot be read as CSV ({reason}); write it again as a plain CSV table.") from None


def separator_of(path: Path) -> str:
    """What gives the first lines one number of columns, the largest; else what the line of names has most of."""
    head: list[str] = []
    with suppress(OSError, EOFError, zlib.error), _open(path) as file:  # what is torn is told by who reads it all
        head = [line for line in islice(file, _HEAD) if line.strip()]
    widths = {mark: [len(row) for row in csv.reader(head, delimiter=mark)] for mark in SEPARATORS}
    even = {mark: found[0] for mark, found in widths.items() if len(set(found)) == 1 and found[0] > 1}
    first = even or {mark: found[0] if found else 0 for mark, found in widths.items()}
    return max(first, key=lambda mark: first[mark])


def lines_of(path: Path, separator: str) -> Where:
    """What to call the rows of a CSV file: the line at which each begins, the line of names being the first."""

    def where(row: int) -> str:
        with _open(path) as file:
            reader, last = csv.reader(file, delimiter=separator), 0
            for cells in reader:
                start, last = last + 1, reader.line_num
                if cells and row < 0:
                    return f"line {start} of {path}"
                row -= bool(cells)
        return f"the last line of {path}"

    return where


def _open(path: Path) -> IO[str]:
    opened = gzip.open if path.name.endswith(".gz") else open
    return cast(IO[str], opened(path, "rt", encoding="utf-8-sig", errors="replace", newline=""))
