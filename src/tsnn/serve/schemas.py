"""What travels over HTTP: the bodies of requests and answers, each with its limits."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from typing import Annotated, Any, NotRequired

import numpy as np
from pydantic import AfterValidator, BaseModel, BeforeValidator, Field, TypeAdapter, ValidationError, with_config
from typing_extensions import TypedDict

from tsnn.data.times import NOW, is_date, number_of_time
from tsnn.errors import InputError
from tsnn.online.event import Event

MAX_ID = 256  # letters of a text id
MAX_KEY = 200  # letters of a key
MAX_TIME = 64  # letters of a date
MAX_FEATURES = 65_536
MAX_COLUMNS = 1000  # of a message that is given by column
MAX_TEXT = 10_000  # letters of a text among them
MAX_CANDIDATES = 100_000
MAX_TOP = 1000
MAX_EVENTS = 20_000  # in one request: what is applied in about a second
NOT_JSON = "the body is not JSON; send an object or, for events, a list of them."
_INT64 = 2**63
_INT32 = 2**31
MAX_FEATURE = 1e9  # beyond it the squares of a frame leave the range of float32
_BIGGEST_TIME = 2.0**62  # differences of two times stay inside 64 bits


def _check_id(value: Any) -> int | str:
    if type(value) is int and -_INT64 <= value < _INT64:
        return value
    if type(value) is str and 0 < len(value) <= MAX_ID and _is_unicode(value):
        return value
    raise ValueError(f"must be a 64-bit integer or a text of 1 to {MAX_ID} characters")


def _is_unicode(text: str) -> bool:
    """False for half of a surrogate pair, which JSON can spell but no file can hold."""
    return text.isascii() or not any("\ud800" <= letter <= "\udfff" for letter in text)


def _check_time(value: Any) -> int | float | str:
    if type(value) is str and len(value) <= MAX_TIME and is_date(value):
        return value
    if type(value) not in (int, float) or not 0 <= value < _BIGGEST_TIME:
        raise ValueError("must be a number from 0 to below 2^62 or, where times are dates, an ISO date or now")
    checked: int | float = value + 0  # -0.0 becomes 0.0
    return checked


def _check_relation(value: Any) -> int | str:
    if type(value) is int and 0 <= value < _INT32:
        return value
    if type(value) is str and 0 < len(value) <= MAX_ID:
        return value
    raise ValueError(f"must be the name of a relation, of 1 to {MAX_ID} characters, or its number")


def _check_features(value: Any) -> Any:
    if isinstance(value, dict):
        return _check_cells(value)
    if not isinstance(value, list) or not 0 < len(value) <= MAX_FEATURES:
        raise ValueError("must be a list of numbers, or values by column")
    for x in value:
        if type(x) not in (int, float) or not -MAX_FEATURE <= x <= MAX_FEATURE:
            raise ValueError("must hold numbers between -1e9 and 1e9")
    return value


def _check_cells(value: dict[Any, Any]) -> dict[Any, Any]:
    if not 0 < len(value) <= MAX_COLUMNS:
        raise ValueError(f"must name 1 to {MAX_COLUMNS} columns")
    for name, cell in value.items():
        is_text = type(cell) is str and len(cell) <= MAX_TEXT and _is_unicode(cell)
        is_number = type(cell) in (int, float) and -MAX_FEATURE <= cell <= MAX_FEATURE
        if not (0 < len(name) <= MAX_ID and _is_unicode(name)) or not (
            cell is None or type(cell) is bool or is_text or is_number
        ):
            raise ValueError(
                f"must hold numbers between -1e9 and 1e9, texts of up to {MAX_TEXT:,} letters, true, false or null"
            )
    return value


WholeId = Annotated[int, Field(ge=-_INT64, lt=_INT64)]
TextId = Annotated[str, Field(min_length=1, max_length=MAX_ID)]
NodeId = Annotated[WholeId | TextId, BeforeValidator(_check_id)]
# `Field` is for the OpenAPI document; `_check_time` does the checking, before anything is converted.
TimeNumber = Annotated[int | float, Field(ge=0, lt=_BIGGEST_TIME)]
TimeText = Annotated[str, Field(max_length=MAX_TIME, description="an ISO date or now, where times are dates")]
Time = Annotated[TimeNumber | TimeText, BeforeValidator(_check_time)]
ShownTime = float | int | str  # a date is shown as an ISO text
Feature = Annotated[float, Field(ge=-MAX_FEATURE, le=MAX_FEATURE)]
Numbers = Annotated[list[Feature], Field(min_length=1, max_length=MAX_FEATURES)]
Column = Annotated[str, Field(min_length=1, max_length=MAX_ID)]
Cell = bool | Feature | Annotated[str, Field(max_length=MAX_TEXT)] | None
Cells = Annotated[dict[Column, Cell], Field(min_length=1, max_length=MAX_COLUMNS)]
Features = Annotated[Numbers | Cells, BeforeValidator(_check_features)]
RelationNumber = Annotated[int, Field(ge=0, lt=_INT32)]
RelationName = Annotated[str, Field(min_length=1, max_length=MAX_ID)]
Relation = Annotated[RelationNumber | RelationName, BeforeValidator(_check_relation)]
Key = Annotated[str, Field(min_length=1, max_length=MAX_KEY, strict=True)]


@with_config({"extra": "forbid"})
class EventIn(TypedDict):
    """One event. With a `key`, sending it again changes nothing."""

    src: NodeId
    dst: NodeId
    t: Time
    msg: NotRequired[Features | None]
    edge_type: NotRequired[Relation | None]
    key: NotRequired[Key | None]


def _to_event(fields: dict[str, Any]) -> Event:
    if fields["t"] == NOW and fields.get("key") is not None:
        raise ValueError("an event with a key cannot be of now: sent again it would be another; give its time")
    if isinstance(fields.get("msg"), list):
        fields["msg"] = np.asarray(fields["msg"], "<f4").tobytes()
    return Event(**fields)


OneEvent = Annotated[EventIn, AfterValidator(_to_event)]  # parsed straight into the event that is logged and observed


class ScoreIn(BaseModel, extra="forbid"):
    """Destinations to score for a source at a time; the clock's own where none is given."""

    src: NodeId
    dst: Annotated[list[NodeId], Field(min_length=1, max_length=MAX_CANDIDATES)]
    t: Time | None = None
    edge_type: Relation | None = None


class EventsOut(BaseModel):
    """What became of the events: all are in the log when this is sent."""

    applied: int = Field(ge=0, description="events new to the log")
    duplicates: int = Field(ge=0, description="events that it held already, by their key")
    position: int = Field(ge=0, description="events in the log")
    clock: ShownTime | None = Field(description="time of the latest event")


class ScoreOut(BaseModel):
    """Scores in the order of the destinations asked for."""

    src: int | str
    t: ShownTime
    scores: list[float]


class Ranked(BaseModel):
    """One destination; geometric + residual + edgebank = score."""

    dst: int | str
    score: float
    geometric: float
    residual: float
    edgebank: float


class RecommendOut(BaseModel):
    """The best destinations, best first."""

    src: int | str
    t: ShownTime
    known: bool = Field(description="whether the source has been named before")
    exact: bool
    destinations: list[Ranked]


class DueOut(BaseModel):
    """A source with the events that are expected of it."""

    src: int | str
    expected: float = Field(ge=0, description="events until the horizon")
    probability: float = Field(ge=0, le=1, description="of any")


class DuePairOut(DueOut):
    """A pair with the events that are expected of it."""

    dst: int | str
    edge_type: int | str | None


class ForecastOut(BaseModel):
    """Who is due, most likely first; rates fade as if nothing new happened until the horizon."""

    t: ShownTime
    within: float = Field(description="in the unit of the data, of dates in microseconds")
    sources: list[DueOut]
    pairs: list[DuePairOut]
    expected: float = Field(description="events of all sources that have acted")
    newcomers: float = Field(description="events of sources that never acted before")


class Recent(BaseModel):
    """An event of a node: the other end, when, and of which relation."""

    node: int | str
    t: ShownTime
    edge_type: int | str | None


class Drift(BaseModel):
    """How far a node's frame had moved from its first one at a time."""

    t: ShownTime
    drift: float


class NodeOut(BaseModel):
    """What the page shows of a node."""

    id: int | str
    known: bool
    recent: list[Recent]
    drift: list[Drift]


class HealthOut(BaseModel):
    """Where the service stands, and how fast it has been lately."""

    status: str
    clock: ShownTime | None
    nodes: int
    events: int = Field(description="events that the state has seen, those of training included")
    position: int = Field(description="events in the log")
    snapshot: int = Field(description="log position of the newest snapshot")
    relations: int = Field(description="relations of the run; 0 where it has none")
    relation_names: list[str] = Field(description="their names, by number; none where the data number them")
    queue: int = Field(description="requests that wait to be written")
    events_per_second: float
    latency_ms: dict[str, dict[str, float]] = Field(description="p50 and p99 by path, of the latest requests")


class ProbeOut(BaseModel):
    """What somebody who only watches may know."""

    status: str = Field(description="ok, or not ready; /health says why, to who has the token")


class ErrorOut(BaseModel):
    """One sentence that says what to do."""

    error: str


def read_id(text: str) -> int | str:
    """A node id from a URL: 7 is the integer, "7" in quotes the text, anything else the text as it stands."""
    value: Any = int(text) if _is_integer(text) else text
    if text.startswith('"'):
        with suppress(json.JSONDecodeError):
            value = json.loads(text)
    try:
        return _check_id(value)
    except ValueError as error:
        raise InputError(f"a node id {error}.") from None


def _is_integer(text: str) -> bool:
    digits = text.removeprefix("-")
    return digits.isascii() and digits.isdigit() and len(digits) < 20


def read_time(text: str) -> int | float | str:
    """A time from a URL: an integer stays one."""
    number = number_of_time(text)
    try:
        return _check_time(text if number is None else number)
    except ValueError as error:
        raise InputError(f"{text[:40]!r} {error}.") from None


_ONE: TypeAdapter[Any] = TypeAdapter(OneEvent)
_MANY: TypeAdapter[Any] = TypeAdapter(Annotated[list[OneEvent], Field(min_length=1, max_length=MAX_EVENTS)])


def read_events(body: bytes) -> list[Event]:
    """The events of a request body."""
    try:
        return _MANY.validate_json(body) if body.lstrip().startswith(b"[") else [_ONE.validate_json(body)]
    except ValidationError as error:
        raise InputError(first_fault(error.errors(include_url=False, include_input=False)[0])) from None


def read_key(text: str) -> str:
    """The key of a request."""
    if not 0 < len(text) <= MAX_KEY:
        raise InputError(f"the header Idempotency-Key must have 1 to {MAX_KEY} characters.")
    return text


def events_schema() -> dict[str, Any]:
    """What `read_events` takes, for the OpenAPI document."""
    one = TypeAdapter(EventIn).json_schema()
    return {"anyOf": [one, {"type": "array", "items": one, "minItems": 1, "maxItems": MAX_EVENTS}]}


def first_fault(error: Mapping[str, Any]) -> str:
    """One sentence of what pydantic found."""
    if error["type"] == "json_invalid":
        return NOT_JSON
    where = ".".join(str(part) for part in error["loc"] if part not in ("body", "query", "header"))
    words = str(error["msg"]).removeprefix("Value error, ").rstrip(".")
    return f"{where or 'the body'}: {words[:1].lower()}{words[1:]}."
