"""What the numbers of a stream stand for: columns by role, names of relations, what times are, rows with a direction.

A stream carries its description, a Parquet file keeps it among its metadata and a run in data.json: whoever reads one
of them later needs no options, and sees the names and dates of the table again.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Any

from tsnn.data.times import EXAMPLE, Time, instant, is_date_number, iso, moment, number_of_time
from tsnn.errors import InputError
from tsnn.words import did_you_mean, listed

PARTS = {
    "src": "source",
    "dst": "destination",
    "t": "time",
    "msg": "feature",
    "edge_type": "relation",
    "src_type": "type of the source",
    "dst_type": "type of the destination",
}
"""What a column can be read as, in words."""


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

    def by_part(self) -> list[tuple[str, str]]:
        """Every part with a column that plays it; several may be features."""
        told = {part: getattr(self, part) for part in PARTS}
        several = {part: columns if isinstance(columns, tuple) else (columns,) for part, columns in told.items()}
        return [(part, column) for part, columns in several.items() for column in columns if column is not None]

    @property
    def columns(self) -> tuple[str, ...]:
        """Every column that plays one."""
        return tuple(column for _, column in self.by_part())


KINDS = ("number", "boolean", "category", "text")
CODE = 16  # numbers that stand for a text


@dataclass(frozen=True)
class MessageColumn:
    """A feature column as it was understood; `tsnn.data.messages` says what becomes of its cells."""

    column: str
    kind: str
    categories: tuple[str, ...] = ()
    fill: float = 0.0  # the mean of training rows, in the place of a missing number

    @property
    def names(self) -> tuple[str, ...]:
        """Of the features that it becomes."""
        middle = {
            "number": (self.column,),
            "boolean": (self.column,),
            "category": (*(f"{self.column} = {name}" for name in self.categories), f"{self.column} is another"),
            "text": tuple(f"{self.column} {i}" for i in range(CODE)),
        }
        return (*middle[self.kind], f"{self.column} is missing")

    @property
    def says(self) -> str:
        """For people who look at a table."""
        return f"category: {listed(self.categories)}" if self.kind == "category" else self.kind


@dataclass(frozen=True)
class Cleaning:
    """What is done about the rows of a messy table; by default nothing, and a row that needs it is refused."""

    sort: bool = False
    drop_missing: bool = False
    dedupe: bool = False
    missing_relation: str | None = None  # the kind of an event whose relation is missing

    def beside(self, other: Cleaning) -> Cleaning:
        """What either of the two does."""
        return Cleaning(
            self.sort or other.sort,
            self.drop_missing or other.drop_missing,
            self.dedupe or other.dedupe,
            self.missing_relation or other.missing_relation,
        )


@dataclass(frozen=True)
class Description:
    """How a stream was made of a table, and what to call what is in it."""

    roles: Roles | None = None  # None where the events came from arrays
    cleaning: Cleaning = Cleaning()
    relations: tuple[str, ...] = ()  # their names by number; none where the data themselves number them
    dates: bool = False  # times are microseconds since 1970 in UTC, not plain numbers
    zone: str = "UTC"  # in which dates are shown, and meant where they name none
    types: tuple[str, ...] = ()  # names of node types by number, as with relations
    path: str | None = field(default=None, compare=False)  # of the table, where it was a file
    undirected: bool = False  # an event is one of two equals: which of them stood in the first column says nothing
    messages: tuple[MessageColumn, ...] = ()  # of the feature columns that are more than plain numbers

    def to_json(self) -> str:
        """As a person may read it."""
        times = {"are": "dates", "unit": "us", "zone": self.zone} if self.dates else {"are": "numbers"}
        told = {
            "roles": None if self.roles is None else asdict(self.roles),
            "cleaning": asdict(self.cleaning),
            "relations": list(self.relations),
            "types": list(self.types),
            "times": times,
            "messages": [asdict(own) for own in self.messages],
            "events": "undirected" if self.undirected else "directed",
            "path": self.path,
        }
        return json.dumps(told, indent=2, ensure_ascii=False) + "\n"

    @classmethod
    def from_json(cls, text: str | bytes) -> Description:
        """Read what `to_json` wrote."""
        told = json.loads(text)
        return cls(
            roles=told["roles"] and Roles(**{**told["roles"], "msg": tuple(told["roles"]["msg"])}),
            cleaning=Cleaning(**told["cleaning"]),
            relations=tuple(told["relations"]),
            dates=told["times"]["are"] == "dates",
            zone=told["times"].get("zone", "UTC"),
            types=tuple(told.get("types", ())),  # files of the first version say none of what follows
            path=told.get("path"),
            undirected=told.get("events") == "undirected",
            messages=tuple(
                MessageColumn(**{**own, "categories": tuple(own["categories"])}) for own in told.get("messages", ())
            ),
        )

    def parse_time(self, value: Any) -> Time:
        """A time as the stream counts it: from a number, and of dates also from a date, an ISO text or "now"."""
        number = number_of_time(value)
        if not self.dates:
            if number is None:
                raise InputError(f"time {value!r} is not a finite number; give it in the unit of the training data.")
            return number
        if number is None:
            number = instant(value, self.zone)
        if not is_date_number(number):
            raise InputError(f"time {value!r} is no date from 1970 on in microseconds; write it like {EXAMPLE}.")
        return number

    def moment(self, t: Time) -> Time | datetime:
        """A time of the stream as Python reckons with it: a date of the stream's zone, or the number that it is."""
        return moment(t, self.zone) if self.dates and is_date_number(t) else t

    def show_time(self, t: Time | datetime) -> Time | str:
        """A time of the stream as people read it, and as `parse_time` takes it back: an ISO text, or the number."""
        when = t if isinstance(t, datetime) else self.moment(t)
        return iso(when) if isinstance(when, datetime) else when

    def relation_name(self, number: int) -> str | int:
        """The relation as the table calls it."""
        return self.relations[number] if self.relations else number

    def type_name(self, number: int) -> str:
        """The type of a node as the table calls it."""
        return self.types[number] if self.types else str(number)

    def relation_number(self, name: Any, num_relations: int) -> int:
        """The number of a relation; where the table has names, a name and nothing else."""
        if name is None and self.cleaning.missing_relation is not None:
            name = self.cleaning.missing_relation
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
        meant = did_you_mean(name, relations) or "name one of these."
        what = "no relation is given" if name is None else f"relation {name!r} is unknown"
        raise InputError(f"{what}, the known ones are {listed(relations)}; {meant}") from None
