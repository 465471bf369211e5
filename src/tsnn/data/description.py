"""What the numbers of a stream stand for: columns by role, names of relations, what times are, rows with a direction.

A stream carries its description, a Parquet file keeps it among its metadata and a run in data.json: whoever reads one
of them later needs no options, and sees the names and dates of the table again.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from difflib import get_close_matches
from typing import Any

from tsnn.errors import InputError


@dataclass(frozen=True)
class Roles:
    """Columns of a table by the part they play."""

    src: str = "src"
    dst: str = "dst"
    t: str = "t"
    msg: tuple[str, ...] = ()
    edge_type: str | None = None
    src_type: str | None = None  # of the node, where the rows say it
    dst_type: str | None = None

    @property
    def columns(self) -> tuple[str, ...]:
        """Every column that plays one."""
        optional = (self.edge_type, self.src_type, self.dst_type)
        return (self.src, self.dst, self.t, *self.msg, *(column for column in optional if column))


@dataclass(frozen=True)
class Cleaning:
    """What is done about the rows of a messy table; by default nothing, and a row that needs it is refused."""

    sort: bool = False
    drop_missing: bool = False
    dedupe: bool = False
    missing_relation: str | None = None  # the kind of an event whose relation is missing


@dataclass(frozen=True)
class Description:
    """How a stream was made of a table, and what to call what is in it."""

    roles: Roles | None = None  # None where the events came from arrays
    cleaning: Cleaning = Cleaning()
    relations: tuple[str, ...] = ()  # their names by number; none where the data themselves number them
    dates: bool = False  # times are microseconds since 1970 in UTC, not plain numbers
    undirected: bool = False  # an event is one of two equals: which of them stood in the first column says nothing

    def to_json(self) -> str:
        """As a person may read it."""
        times = {"are": "dates", "unit": "us", "zone": "UTC"} if self.dates else {"are": "numbers"}
        told = {
            "roles": None if self.roles is None else asdict(self.roles),
            "cleaning": asdict(self.cleaning),
            "relations": list(self.relations),
            "times": times,
            "events": "undirected" if self.undirected else "directed",
        }
        return json.dumps(told, indent=2, ensure_ascii=False) + "\n"

    @classmethod
    def from_json(cls, text: str | bytes) -> Description:
        """Read what `to_json` wrote."""
        told = json.loads(text)
        roles = told["roles"] and Roles(**{**told["roles"], "msg": tuple(told["roles"]["msg"])})
        dates = told["times"]["are"] == "dates"
        undirected = told.get("events") == "undirected"  # files from before it was said are directed
        return cls(roles, Cleaning(**told["cleaning"]), tuple(told["relations"]), dates, undirected)

    def relation_name(self, number: int) -> str | int:
        """The relation as the table calls it."""
        return self.relations[number] if self.relations else number

    def relation_number(self, name: Any, num_relations: int) -> int:
        """The number of a relation; where the table has names, a name and nothing else."""
        if self.relations:
            return number_of(name, self.relations)
        number = int(name) if isinstance(name, str) and name.isdecimal() else name
        if isinstance(number, bool) or not hasattr(number, "__index__") or not 0 <= int(number) < num_relations:
            raise InputError(f"edge_type is {name!r}; give one of the run's relations, 0 to {num_relations - 1}.")
        return int(number)


def number_of(name: Any, relations: tuple[str, ...]) -> int:
    """Where a relation stands among the known ones."""
    try:
        return relations.index(str(name))
    except ValueError:
        known = ", ".join(relations)
        close = get_close_matches(str(name), relations, 1)
        meant = f"; did you mean {close[0]!r}?" if close else "; name one of these."
        what = "no relation is given" if name is None else f"relation {name!r} is unknown"
        raise InputError(f"{what}, the known ones are {known}{meant}") from None
