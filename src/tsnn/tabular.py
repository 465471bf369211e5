"""How objects come out of Python: results as tables for other libraries, everything as a few words in a notebook."""

from __future__ import annotations

import html
import importlib
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from typing import Any, TypeVar

import numpy as np

from tsnn.errors import ConfigError

Columns = Mapping[str, Sequence[Any] | np.ndarray[Any, Any]]
Record = TypeVar("Record")
SHOWN = 20  # rows of a table in a notebook


class Tabular(ABC):
    """A result that is a table: as a frame for other libraries, and as itself in a notebook."""

    @abstractmethod
    def columns(self) -> Columns:
        """The columns by name, all of one length."""

    def to_pandas(self) -> Any:
        """As a pandas frame."""
        return _library("pandas", "to_pandas").DataFrame(dict(self.columns()))

    def to_polars(self) -> Any:
        """As a polars frame; values of mixed kinds, such as ids that are numbers and texts, become texts."""
        return _library("polars", "to_polars").from_arrow(self.to_arrow())

    def to_arrow(self) -> Any:
        """As an Arrow table; values of mixed kinds, such as ids that are numbers and texts, become texts."""
        arrow = importlib.import_module("pyarrow")
        return arrow.table({name: _arrow_column(arrow, values) for name, values in self.columns().items()})

    def _repr_html_(self) -> str:
        return html_table(self.columns())


class Rows(list[Record], Tabular):
    """A list of records (a dataclass), which is a table as well. A `kind` names the columns of a list without any."""

    def __init__(self, records: Iterable[Record] = (), kind: Any = None) -> None:
        super().__init__(records)
        self._kind = kind

    def columns(self) -> Columns:
        """A column for each field of a record."""
        kind: Any = type(self[0]) if self else self._kind
        return {field.name: [getattr(record, field.name) for record in self] for field in fields(kind)} if kind else {}


class Brief(ABC):
    """Says in a few words what it is: in a line where it is printed, as a small table in a notebook."""

    @abstractmethod
    def brief(self) -> Mapping[str, object]:
        """The few words, by what they are about."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={value}' for name, value in self.brief().items())})"

    def _repr_html_(self) -> str:
        told = self.brief()
        return html_table({type(self).__name__: list(told), "": [str(value) for value in told.values()]})


def html_table(columns: Columns, most: int = SHOWN) -> str:
    """A plain table in the colors of whatever page it stands on; of very many rows the first."""
    names, rows = list(columns), list(zip(*columns.values(), strict=True))
    lines = ['<table style="color: inherit">', "<thead>", _html_row("th", names), "</thead>", "<tbody>"]
    lines += [_html_row("td", row) for row in rows[:most]]
    lines += ["</tbody>", "</table>"]
    more = f"<p>{len(rows) - most:,} more rows</p>" if len(rows) > most else ""
    return "\n".join(lines) + more


def _html_row(tag: str, values: Iterable[object]) -> str:
    cells = (f'<{tag} style="text-align: left">{html.escape(_shown(value))}</{tag}>' for value in values)
    return f"<tr>{''.join(cells)}</tr>"


def _shown(value: object) -> str:
    """A cell as people read it."""
    if value is None:
        return ""
    return f"{value:.4f}" if isinstance(value, float | np.floating) else str(value)


def _arrow_column(arrow: Any, values: Any) -> Any:
    try:
        return arrow.array(values)
    except (arrow.ArrowInvalid, arrow.ArrowTypeError):
        return arrow.array([None if value is None else str(value) for value in values])


def _library(name: str, wanted_by: str) -> Any:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError:
        raise ConfigError(f"{wanted_by} needs {name}; install it with pip install {name}, or use to_arrow.") from None
