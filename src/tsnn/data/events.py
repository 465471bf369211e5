"""The event stream: immutable, sorted by time, columnar.

Nodes are dense indices 0..num_nodes-1; `ids` keeps the names a user knows them by. `make_stream` is the one door
in: it checks every column, so that the parts below can lean on sorted finite times and indices in range.
"""

from __future__ import annotations

import hashlib
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, cast

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from tsnn.data.columns import open_column
from tsnn.data.description import Description, number_of
from tsnn.data.times import Times, Where, plain_row, read_times
from tsnn.errors import InputError
from tsnn.files import write_whole
from tsnn.tabular import Brief
from tsnn.types import I64, U64, Bool
from tsnn.words import Helpful

if TYPE_CHECKING:
    from tsnn.data.preview import Preview

_INT64 = range(-(2**63), 2**63)
_KINDS = 2**20  # of relations or of nodes, where they are numbered
_EXACT = 2**53  # from here on a float stands for several integers
_WORD = 2**64 - 1
_GOLDEN, _MIX1, _MIX2 = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB


def stable_key(node_id: Hashable) -> int:
    """A 64-bit key of an external id that depends on the id alone, not on when it was first seen (D-05).

    Ids that are equal in Python (1, True, 1.0, numpy's 1) share a key.
    """
    plain = _plain(node_id)
    if isinstance(plain, int) and plain in _INT64:
        return _mix_one(plain)
    text = f"{type(plain).__name__}:{plain!r}".encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little")


def keys_of(ids: Iterable[Hashable]) -> U64:
    """`stable_key` of some ids."""
    return np.array([stable_key(node_id) for node_id in ids], np.uint64)


def stable_keys(values: I64) -> U64:
    """`stable_key` of many integer ids at once."""
    z = values.astype(np.int64).view(np.uint64) + np.uint64(_GOLDEN)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(_MIX1)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(_MIX2)
    return z ^ (z >> np.uint64(31))


def _mix_one(value: int) -> int:
    z = (value + _GOLDEN) & _WORD
    z = ((z ^ (z >> 30)) * _MIX1) & _WORD
    z = ((z ^ (z >> 27)) * _MIX2) & _WORD
    return z ^ (z >> 31)


def _plain(node_id: Hashable) -> Hashable:
    """The id as a plain Python value, integers in every guise as int."""
    if isinstance(node_id, np.generic):
        node_id = node_id.item()
    if isinstance(node_id, bool) or (isinstance(node_id, float) and node_id.is_integer()):
        return int(node_id)
    return node_id


class NodeIds:
    """External ids of the nodes, in index order, and their stable keys."""

    def __init__(self, external: Iterable[Hashable]) -> None:
        self._ints = _int_column(external)
        self.external: list[Hashable] = (
            list(self._ints.tolist()) if self._ints is not None else [_plain(x) for x in external]
        )
        if self._ints is None:  # a list of plain ints may have come as something else
            self._ints = _int_column(self.external)
        self._index = {name: i for i, name in enumerate(self.external)}
        if len(self._index) != len(self.external):
            raise InputError("node ids repeat; give every node one id.")
        self._keys: U64 | None = None
        self._by_value: tuple[I64, I64] | None = None

    def __len__(self) -> int:
        return len(self.external)

    def index(self, node_id: Hashable) -> int:
        """Dense index of an external id."""
        try:
            return self._index[node_id]
        except KeyError:
            raise InputError(f"node {node_id!r} does not occur in this stream.") from None

    def indices(self, node_ids: Iterable[Hashable] | NDArray[Any]) -> I64:
        """Dense indices of many external ids."""
        values = _int_column(node_ids)
        if values is None or self._ints is None:
            listed = values.tolist() if values is not None else node_ids
            return np.array([self.index(x) for x in listed], dtype=np.int64)
        if self._by_value is None:
            order = np.argsort(self._ints, kind="stable").astype(np.int64)
            self._by_value = self._ints[order], order
        ordered, order = self._by_value
        at = np.minimum(np.searchsorted(ordered, values), max(len(ordered) - 1, 0))
        strange = ordered[at] != values if len(ordered) else np.ones(len(values), dtype=bool)
        if strange.any():
            self.index(int(values[strange][0]))
        return order[at]

    def __contains__(self, node_id: object) -> bool:
        return node_id in self._index

    @property
    def integers(self) -> I64 | None:
        """The ids as one integer array, or None where some id is no 64-bit integer."""
        return self._ints

    @property
    def keys(self) -> U64:
        """Stable 64-bit keys, one per node; initial frames are drawn from them."""
        if self._keys is None:
            if self._ints is not None:
                self._keys = stable_keys(self._ints)
            else:
                self._keys = keys_of(self.external)
            self._keys.setflags(write=False)
        return self._keys

    def check_storable(self) -> None:
        """Refuse ids that `save` could not write: worth asking before training."""
        if self._ints is None:
            _storable(self.external)

    def save(self, path: Path | str) -> None:
        """Write the ids to Parquet: each row an integer or a text. Nothing is written if one is neither."""
        numbers, texts = _storable(self.external)
        table = pa.table({"number": pa.array(numbers, pa.int64()), "text": pa.array(texts, pa.string())})
        write_whole(Path(path), lambda partial: pq.write_table(table, partial))

    @classmethod
    def load(cls, path: Path | str) -> NodeIds:
        """Read what `save` wrote."""
        try:
            table = pq.read_table(path, columns=["number", "text"])
        except FileNotFoundError:
            raise InputError(f"there is no node table {path}; give the folder of a finished run.") from None
        except (OSError, pa.ArrowException):
            raise InputError(f"{path} is not a table of node ids; save it again with NodeIds.save.") from None
        if not table["number"].null_count:
            return cls(table["number"].to_numpy())
        pairs = zip(table["number"].to_pylist(), table["text"].to_pylist(), strict=True)
        return cls([text if number is None else number for number, text in pairs])


def _storable(external: Sequence[Hashable]) -> tuple[list[int | None], list[str | None]]:
    for name in external:
        if not isinstance(name, str) and not (isinstance(name, int) and name in _INT64):
            kind = type(name).__name__
            raise InputError(f"node id {name!r} ({kind}) cannot be stored; use 64-bit integers or strings as ids.")
    numbers = [x if isinstance(x, int) else None for x in external]
    return numbers, [x if isinstance(x, str) else None for x in external]


def _int_column(values: object) -> I64 | None:
    """`values` as int64 if every one is a 64-bit integer (whole floats in an array count), else None."""
    if isinstance(values, range):
        return np.arange(values.start, values.stop, values.step, dtype=np.int64)
    if isinstance(values, np.ndarray):
        return _int_array(values)
    if isinstance(values, list | tuple) and all(type(x) is int for x in values):
        try:
            return np.array(values, dtype=np.int64)
        except OverflowError:
            return None
    return None


def _int_array(values: NDArray[Any]) -> I64 | None:
    kind = values.dtype.kind
    if kind == "O":
        return _int_column(values.tolist())
    if kind in "ib" or (kind == "u" and (values.itemsize < 8 or not (values > np.int64(2**63 - 1)).any())):
        return values.astype(np.int64)
    if kind == "f" and np.isfinite(values).all() and (np.abs(values) < _EXACT).all() and (values % 1 == 0).all():
        return values.astype(np.int64)
    return None


@dataclass(frozen=True, eq=False, repr=False)
class EventStream(Brief, Helpful):
    """Events (src, dst, t) with optional features, relations and node types. The columns are read-only."""

    _instead: ClassVar = {
        "columns": "its columns are src, dst, t, msg, edge_type and node_type.",
        "fit": "train a model with tsnn.train(stream).",
        "split": "cut it in time with tsnn.default_split(stream).",
    }

    src: I64
    dst: I64
    t: NDArray[np.generic]  # float64 or int64, non-decreasing; never float32 (D-10)
    ids: NodeIds
    msg: NDArray[np.float32] | None = None
    edge_type: I64 | None = None
    node_type: I64 | None = None
    name: str = field(default="table", compare=False)
    description: Description = field(default=Description(), compare=False)
    preview: Preview | None = field(default=None, compare=False)  # of the table it was read from
    ends: tuple[int, int] | None = None  # the rows at which validation and test begin, where the data say so

    def __post_init__(self) -> None:
        if self.undirected:
            for column, ends in zip(("src", "dst"), _in_one_order(self), strict=True):
                object.__setattr__(self, column, ends)
        for column in ("src", "dst", "t", "msg", "edge_type", "node_type"):
            values = getattr(self, column)
            if values is not None:
                object.__setattr__(self, column, _read_only(values))

    def __deepcopy__(self, memo: object) -> EventStream:
        """The same one: nothing can change it."""
        return self

    @property
    def undirected(self) -> bool:
        """Whether an event is one of two equals, seen from both ends."""
        return self.description.undirected

    @property
    def direction(self) -> str:
        """The same as a word."""
        return "undirected" if self.undirected else "directed"

    @property
    def num_events(self) -> int:
        """Number of rows."""
        return len(self.src)

    @property
    def num_nodes(self) -> int:
        """Number of nodes, those without an event included."""
        return len(self.ids)

    @property
    def msg_dim(self) -> int:
        """Number of features of an event."""
        return 0 if self.msg is None else int(self.msg.shape[1])

    @property
    def num_relations(self) -> int:
        """Number of relations; 0 where the stream has none."""
        return 0 if self.edge_type is None else int(self.edge_type.max(initial=-1)) + 1

    @property
    def num_types(self) -> int:
        """Number of node types; 0 where the stream has none."""
        return 0 if self.node_type is None else int(self.node_type.max(initial=-1)) + 1

    def brief(self) -> dict[str, object]:
        """Its name and sizes."""
        show = self.description.show_time
        times = {"first": show(self.t[0].item()), "last": show(self.t[-1].item())} if self.num_events else {}
        sizes = {"features": self.msg_dim, "relations": self.num_relations, "node types": self.num_types}
        counts = {"data": self.name, "events": self.num_events, "nodes": self.num_nodes}
        return counts | times | {"direction": self.direction} | {name: n for name, n in sizes.items() if n}

    def take(self, rows: slice | Bool | I64) -> EventStream:
        """The same nodes, only these rows."""
        return replace(
            self,
            src=self.src[rows],
            dst=self.dst[rows],
            t=self.t[rows],
            msg=None if self.msg is None else self.msg[rows],
            edge_type=None if self.edge_type is None else self.edge_type[rows],
            ends=None,  # of other rows
        )

    def as_undirected(self) -> EventStream:
        """The same events as those of two equals."""
        return self if self.undirected else replace(self, description=replace(self.description, undirected=True))

    def fingerprint(self) -> str:
        """Sixteen hex digits that change when any value of any column, any id, or the direction does."""
        digest = hashlib.sha256(b"undirected;" if self.undirected else b"")
        columns = {
            "src": self.src,
            "dst": self.dst,
            "t": self.t,
            "ids": self.ids.keys,
            "msg": self.msg,
            "edge_type": self.edge_type,
            "node_type": self.node_type,
        }
        for label, values in columns.items():
            if values is not None:
                digest.update(f"{label}:{values.dtype.str}:{values.shape};".encode())
                digest.update(np.ascontiguousarray(values).view(np.uint8).data if values.size else b"")
        return digest.hexdigest()[:16]


def _in_one_order(stream: EventStream) -> tuple[I64, I64]:
    """Both ends of every undirected event, in an order that their ids alone decide.

    So a table and the same table with some rows turned round are one stream, to the last bit of every answer.
    """
    keys = stream.ids.keys
    turned = keys[stream.src] > keys[stream.dst]
    return np.where(turned, stream.dst, stream.src), np.where(turned, stream.src, stream.dst)


def _read_only(values: NDArray[Any]) -> NDArray[Any]:
    view = np.ascontiguousarray(values).view()
    view.setflags(write=False)
    return view


def make_stream(
    src: Any,
    dst: Any,
    t: Any,
    msg: Any = None,
    edge_type: Any = None,
    node_type: Any = None,
    ids: NodeIds | None = None,
    name: str = "table",
    sort: bool = False,
    undirected: bool = False,
) -> EventStream:
    """A checked stream from columns.

    Without `ids`, `src` and `dst` are external ids and are mapped here: integers in order of value, anything else
    hashable in order of appearance, a row's source before its destination. With `ids` they are dense indices into it.
    `node_type` is an array in index order or a mapping from external ids. Times are numbers, dates or ISO texts; dates
    become microseconds since 1970. Relations given as text are numbered in sorted order. `undirected` events are of two
    equals: which of them is `src` says nothing.
    """
    stream = in_order(checked_stream(src, dst, t, msg, edge_type, node_type, ids, name), sort)
    return stream.as_undirected() if undirected else stream


def checked_stream(
    src: Any,
    dst: Any,
    t: Any,
    msg: Any = None,
    edge_type: Any = None,
    node_type: Any = None,
    ids: NodeIds | None = None,
    name: str = "table",
    relations: tuple[str, ...] = (),
    where: Where = plain_row,
) -> EventStream:
    """`make_stream` but for the order of times, with relations numbered as in `relations`; `where` names rows."""
    columns = {"src": _column(src), "dst": _column(dst), "edge_type": _column(edge_type)}
    times = _times(t, where)
    _check_lengths({"t": times.values} | {label: values for label, values in columns.items() if values is not None})
    if ids is None:
        ids, src_index, dst_index = map_ids(columns["src"], columns["dst"])
    else:
        src_index, dst_index = (_check_indices(columns[side], len(ids), side) for side in ("src", "dst"))
    features = _check_features(msg, len(times.values), where)
    kinds = None
    if columns["edge_type"] is not None:
        kinds, relations = _check_codes(columns["edge_type"], "edge_type", relations, where)
    types, type_names = (None, ()) if node_type is None else _check_node_types(node_type, ids)
    names = relations if kinds is not None else ()
    described = Description(relations=names, dates=times.dates, zone=times.zone, types=type_names)
    return EventStream(src_index, dst_index, times.values, ids, features, kinds, types, name, described)


def _times(t: Any, where: Where) -> Times:
    if isinstance(t, Times):
        return t
    if hasattr(t, "to_numpy"):
        return open_column(t, "t", "t", of_numbers=True).times(where)
    values = _column(t)
    if not isinstance(values, np.ndarray):
        listed, values = values, np.empty(len(values), dtype=object)
        values[:] = listed
    if values.ndim != 1:
        raise InputError(f"column t has {values.ndim} dimensions; give one value for each event.")
    return read_times(values, where)


def in_order(stream: EventStream, sort: bool, where: Where = plain_row) -> EventStream:
    """The stream itself if its times never go backward; otherwise sorted, or refused."""
    t: NDArray[Any] = stream.t
    backward = np.flatnonzero(t[1:] < t[:-1])
    if not len(backward):
        return stream
    if not sort:
        row = where(int(backward[0]) + 1)
        raise InputError(f"the times go backward at {row}; sort them with --sort, or pass sort=True.")
    return stream.take(np.argsort(stream.t, kind="stable").astype(np.int64))


def map_ids(src: Any, dst: Any) -> tuple[NodeIds, I64, I64]:
    """External ids and the dense indices of both columns."""
    src, dst = _column(src), _column(dst)
    src_ints, dst_ints = _int_column(src), _int_column(dst)
    if src_ints is not None and dst_ints is not None:
        values, index = np.unique(np.concatenate([src_ints, dst_ints]), return_inverse=True)
        index = index.astype(np.int64)
        return NodeIds(values), index[: len(src_ints)], index[len(src_ints) :]
    return _map_by_appearance(_listed(src), _listed(dst))


def _map_by_appearance(src: list[Hashable], dst: list[Hashable]) -> tuple[NodeIds, I64, I64]:
    seen: dict[Hashable, int] = {}
    try:
        flat = [seen.setdefault(x, len(seen)) for x in chain.from_iterable(zip(src, dst, strict=True))]
    except TypeError:
        raise InputError("a node id is not hashable; use integers, strings or tuples as ids.") from None
    if any(x is None or x != x or x == "" for x in seen):  # an empty cell of a column of text is ""
        raise InputError("a node id is missing; drop the rows without a source or destination.")
    merged = next((x for x in seen if isinstance(x, float) and abs(x) >= _EXACT), None)
    if merged is not None:
        raise InputError(
            f"node id {merged!r} is a floating-point number too large to tell from its neighbors; give ids as integers "
            "or as text."
        )
    index = np.array(flat, dtype=np.int64)
    return NodeIds(list(seen)), index[0::2], index[1::2]


def _listed(values: NDArray[Any] | list[Any]) -> list[Hashable]:
    return cast(list[Hashable], values.tolist() if isinstance(values, np.ndarray) else values)


def _column(values: Any) -> Any:
    """A column as a numpy array, or as a list where numpy would change its values (mixed types, tuples)."""
    if values is None or isinstance(values, np.ndarray):
        return values
    if hasattr(values, "detach"):
        return values.detach().cpu().numpy()
    if hasattr(values, "to_numpy"):
        return np.asarray(values.to_numpy())
    if not isinstance(values, Iterable) or isinstance(values, str):
        raise InputError(f"{values!r} is no column; give a list or an array with a value for each event.")
    listed = list(values)
    kinds = {type(x) for x in listed}
    if kinds <= {int, float} or all(issubclass(kind, np.generic) for kind in kinds):
        try:
            return np.array(listed)
        except OverflowError:
            return listed
    return listed


def _check_lengths(columns: Mapping[str, Any]) -> None:
    for label, values in columns.items():
        if isinstance(values, np.ndarray) and values.ndim != 1:
            raise InputError(f"column {label} has {values.ndim} dimensions; give one value for each event.")
    lengths = {label: len(values) for label, values in columns.items()}
    if len(set(lengths.values())) > 1:
        told = ", ".join(f"{label} {length}" for label, length in lengths.items())
        raise InputError(f"the columns differ in length ({told}); give one value for each event.")
    if not lengths["src"]:
        raise InputError("the table has no events; give at least one row.")


def _check_indices(values: Any, num_nodes: int, label: str) -> I64:
    index = _int_column(values)
    if index is None or index.min() < 0 or index.max() >= num_nodes:
        raise InputError(f"column {label} must hold indices 0..{num_nodes - 1} into the given ids.")
    return index


def _check_features(msg: Any, num_events: int, where: Where) -> NDArray[np.float32] | None:
    if msg is None:
        return None
    try:
        features = np.array(_column(msg) if hasattr(msg, "detach") else msg, dtype=np.float32)
    except (TypeError, ValueError):
        raise InputError("msg is ragged or not numeric; give every event the same number of numbers.") from None
    features = features[:, None] if features.ndim == 1 else features
    if features.ndim != 2 or len(features) != num_events:
        raise InputError(f"msg has shape {features.shape}; give it {num_events} rows, one for each event.")
    if not np.isfinite(features).all():
        row = int(np.flatnonzero(~np.isfinite(features).all(axis=1))[0])
        raise InputError(f"msg of {where(row)} is not finite; fill in or drop missing features.")
    return features if features.shape[1] else None


def _check_codes(
    values: Any, label: str, names: tuple[str, ...] = (), where: Where = plain_row
) -> tuple[I64, tuple[str, ...]]:
    """Non-negative integers as they are; other labels numbered as in `names`, or in sorted order, and their names."""
    codes = _int_column(values)
    if codes is not None and not names:
        if codes.min(initial=0) < 0:
            raise InputError(f"column {label} holds a negative number; number the kinds 0, 1, 2 and so on.")
        if codes.max(initial=0) >= _KINDS:  # every number up to the largest gets weights of its own
            raise InputError(
                f"column {label} holds the number {codes.max()}; number the kinds 0, 1, 2 and so on, or name them."
            )
        return codes, ()
    listed = _listed(values)
    gap = next((row for row, x in enumerate(listed) if x is None or x != x or x == ""), None)
    if gap is not None:
        raise InputError(f"the {label} of {where(gap)} is missing; give such rows a kind of their own, or drop them.")
    try:
        found, numbers = np.unique(np.array(listed), return_inverse=True)
    except TypeError:
        found = np.zeros(0)
    if not len(found) or len({isinstance(x, str) for x in listed}) > 1:
        raise InputError(f"column {label} mixes kinds of values; use integers or strings throughout.")
    told = tuple(str(x) for x in found.tolist())
    if not names:
        return numbers.astype(np.int64), told
    return np.array([number_of(x, names) for x in told])[numbers], names


def _check_node_types(node_type: Any, ids: NodeIds) -> tuple[I64, tuple[str, ...]]:
    if isinstance(node_type, Mapping):
        absent = next((x for x in ids.external if x not in node_type), None)
        if absent is not None:
            raise InputError(f"node_type does not mention node {absent!r}; give a type to every node.")
        node_type = [node_type[x] for x in ids.external]
    codes, names = _check_codes(_column(node_type), "node_type")
    if codes.shape != (len(ids),):
        raise InputError(f"node_type has shape {codes.shape}; give one type to each of the {len(ids)} nodes.")
    return codes, names
