"""TGB's negative samples: one-vs-many, stored by key, or generated where that gives the published ones.

A `tgbl` sample is kept under (source, destination, time), a `thgl` sample under (time, source, relation); events with
the same key share it. The published files are pickles, which run code when loaded carelessly: they are read here by
an unpickler that knows numpy arrays and plain containers and nothing else, and can be kept as npz.
"""

from __future__ import annotations

import _codecs
import gzip
import io
import pickle
import re
import resource
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from tsnn.data.events import EventStream
from tsnn.data.split import Split
from tsnn.data.tgb import negative_file
from tsnn.errors import InputError
from tsnn.files import write_whole
from tsnn.types import I32, I64, Bool

GENERATED = {"tgbl-wiki": 12_000}  # asks for more than there are destinations: every other one, whatever the draw
GENERATOR_SEED = 42
HISTORY_SHARE = 0.5

Ragged = tuple[I64, I32]
"""`ptr` and `values`: entry i is values[ptr[i]:ptr[i+1]]."""

Key = tuple[int, int, int]

_BYTES_A_BYTE = 64  # of memory that a byte of a pickle may need
_ROOM = 256 * 2**20


class _Dtype:
    """Stands for a dtype of plain numbers while a file is read: numpy's own trusts what a file says."""

    def __init__(self, code: str, *_: object) -> None:
        if not re.fullmatch(r"[<>|=]?[biuf][1248]", code):
            raise pickle.UnpicklingError(f"it holds arrays of {code!r}")
        self.code = code.lstrip("<>|=")
        self.order = code[0] if code[0] in "<>" else "<"

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        if state[1] in ("<", ">"):
            self.order = state[1]

    def read(self, data: bytes) -> NDArray[Any]:
        return np.frombuffer(data, np.dtype(self.order + self.code))


class _Array:
    """Stands for an array: its numbers, once the file has told them."""

    def __init__(self) -> None:
        self.values: NDArray[Any] | None = None

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        _, shape, dtype, in_columns, data = state
        self.values = _shaped(data, dtype, shape, "F" if in_columns else "C")

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        if self.values is None:
            raise ValueError("an array without its numbers")
        return np.array(self.values, dtype)


def _shaped(data: Any, dtype: _Dtype, shape: tuple[int, ...], order: str) -> NDArray[Any]:
    """Exactly the numbers that the file holds: never more than it has bytes."""
    return dtype.read(bytes(data)).reshape(shape, order="F" if order == "F" else "C")


def _of_buffer(data: Any, dtype: _Dtype, shape: tuple[int, ...], order: str) -> _Array:
    array = _Array()
    array.values = _shaped(data, dtype, shape, order)
    return array


def _scalar(dtype: _Dtype, data: bytes | str) -> Any:
    return dtype.read(data.encode("latin1") if isinstance(data, str) else data)[0].item()


def _latin1(text: str, encoding: str) -> bytes:
    if encoding != "latin1":
        raise pickle.UnpicklingError(f"it asks for the encoding {encoding}")
    return _codecs.encode(text, encoding)


class _NdArray:
    """Names numpy's class, which a file may mention and nobody calls."""

    def __new__(cls, *_: object) -> _NdArray:
        raise pickle.UnpicklingError("it calls numpy.ndarray")


_CORES = ("numpy.core", "numpy._core")
_KNOWN: dict[tuple[str, str], Any] = {
    ("numpy", "ndarray"): _NdArray,
    ("numpy", "dtype"): _Dtype,
    ("_codecs", "encode"): _latin1,  # how old protocols write the bytes of an array
    **{(f"{core}.multiarray", "_reconstruct"): lambda *_: _Array() for core in _CORES},
    **{(f"{core}.multiarray", "scalar"): _scalar for core in _CORES},
    **{(f"{core}.numeric", "_frombuffer"): _of_buffer for core in _CORES},
    **{(module, "set"): set for module in ("builtins", "__builtin__")},
}


class _PlainUnpickler(pickle.Unpickler):
    """Loads numpy arrays and plain containers, all made here; refuses every other name."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _KNOWN:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}")
        return _KNOWN[module, name]

    def persistent_load(self, pid: Any) -> NoReturn:
        raise pickle.UnpicklingError("it refers to objects outside the file")


@contextmanager
def _bounded_memory(more: int) -> Iterator[None]:
    """Let this process grow by so many bytes and no further: a short file can ask the unpickler for any table."""
    pages = int(Path("/proc/self/statm").read_text().split()[0]) if Path("/proc/self/statm").exists() else None
    before = resource.getrlimit(resource.RLIMIT_AS)
    if pages is not None:
        limit = pages * resource.getpagesize() + more
        ceiling = [bound for bound in before if bound != resource.RLIM_INFINITY]
        resource.setrlimit(resource.RLIMIT_AS, (min([limit, *ceiling]), before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


def read_pickle(path: Path | str) -> dict[Any, Any]:
    """A dictionary of negative samples from a pickle, without running anything in it."""
    path = Path(path)
    opened = gzip.open if path.suffix == ".gz" else open
    try:
        with _bounded_memory(_ROOM + _BYTES_A_BYTE * path.stat().st_size), opened(path, "rb") as file:
            data = file.read()
        with _bounded_memory(_ROOM + _BYTES_A_BYTE * len(data)):
            samples = _PlainUnpickler(io.BytesIO(data)).load()
    except FileNotFoundError:
        raise InputError(f"there is no file {path}; put the negative samples there.") from None
    except Exception as error:  # a malformed pickle raises almost anything
        reason = str(error) or type(error).__name__
        raise InputError(f"{path} is not a pickle of negative samples ({reason}); fetch it again.") from None
    if not isinstance(samples, dict):
        raise InputError(f"{path} holds a {type(samples).__name__}, not a dictionary of samples; fetch it again.")
    return samples


class NegativeTable:
    """Samples by key, in one array."""

    def __init__(self, keys: I64, ptr: I64, values: I32) -> None:
        self.keys, self.ptr, self.values = keys, ptr, values
        self._place: dict[Key, int] = {(a, b, c): i for i, (a, b, c) in enumerate(keys.tolist())}

    @classmethod
    def from_samples(cls, samples: dict[Any, Any], origin: Path | str) -> NegativeTable:
        """The table of a dictionary as `read_pickle` gives it."""
        try:
            keys = np.array([[int(part) for part in key] for key in samples], dtype=np.int64).reshape(len(samples), 3)
            parts = [np.asarray(sample).ravel() for sample in samples.values()]
            ptr = _pointers(len(part) for part in parts)
            values = np.concatenate(parts).astype(np.int32) if parts else np.empty(0, np.int32)
        except (TypeError, ValueError, OverflowError):
            raise InputError(f"{origin} does not map keys of three integers to node lists; fetch it again.") from None
        return cls(keys, ptr, values)

    @classmethod
    def load(cls, path: Path | str) -> NegativeTable:
        """Read what `save` wrote."""
        try:
            with Path(path).open("rb") as opened, np.load(opened, allow_pickle=False) as file:
                return cls(file["keys"], file["ptr"], file["values"])
        except (OSError, KeyError, ValueError, EOFError, zipfile.BadZipFile, zlib.error):
            raise InputError(f"{path} is not a table of negative samples; convert the pickle again.") from None

    def save(self, path: Path | str) -> None:
        """Write the table as npz, whole or not at all."""
        columns: dict[str, NDArray[Any]] = {"keys": self.keys, "ptr": self.ptr, "values": self.values}
        write_whole(Path(path), lambda partial: _save_npz(partial, columns))

    def lookup(self, keys: I64) -> Ragged:
        """The samples of these keys, in their order."""
        try:
            places = np.array([self._place[a, b, c] for a, b, c in keys.tolist()], dtype=np.int64)
        except KeyError as error:
            raise InputError(f"no negative sample is stored for {error}; fetch both anew.") from None
        return _take(self.ptr, self.values, places)


def _save_npz(path: Path, columns: dict[str, NDArray[Any]]) -> None:
    with path.open("wb") as file:  # a path without .npz would be given one
        np.savez_compressed(file, allow_pickle=False, **columns)


def convert_negatives(source: Path | str, target: Path | str) -> NegativeTable:
    """Read a pickle of samples safely and keep it as npz."""
    table = NegativeTable.from_samples(read_pickle(source), source)
    table.save(target)
    return table


class TgbNegatives:
    """The negatives of a TGB set, aligned with the rows of its split."""

    def __init__(self, split: Split, folder: Path | str | None = None) -> None:
        self.split = split
        self.name = split.stream.name.removeprefix("tgb:")
        self.folder = None if folder is None else Path(folder)
        self._generated: dict[str, Ragged] = {}

    def query(self, segment: str) -> Ragged:
        """`ptr` and candidates for the rows of `val` or `test`, in row order; candidates are dense node indices."""
        if segment not in ("val", "test"):
            raise InputError(f"TGB has negatives for val and test, not for {segment!r}.")
        table = self._stored(segment)
        if table is not None:
            ptr, values = table.lookup(_keys(self.split, segment))
            if len(values) and (values.min() < 0 or values.max() >= self.split.stream.num_nodes):
                raise InputError(f"the stored negatives of {self.name} name nodes the set lacks; fetch both again.")
            return ptr, values
        if self.name not in GENERATED:
            file = f"{negative_file(self.name, segment)}.pkl"
            where = self.folder or "the set's folder, and name it"
            raise InputError(f"{self.name} has no negative samples; put {file} into {where}.")
        if not self._generated:
            self._generated = generate_negatives(self.split, GENERATED[self.name])
        return self._generated[segment]

    def _stored(self, segment: str) -> NegativeTable | None:
        if self.folder is None:
            return None
        base = self.folder / negative_file(self.name, segment)
        kept = base.with_name(base.name + ".npz")
        if kept.is_file():
            return NegativeTable.load(kept)
        for suffix in (".pkl", ".pkl.gz"):
            path = base.with_name(base.name + suffix)
            if path.is_file():
                return NegativeTable.from_samples(read_pickle(path), path)
        return None


def _keys(split: Split, segment: str) -> I64:
    a, b = split.bounds(segment)
    stream = split.stream
    src, dst, t = stream.src[a:b], stream.dst[a:b], stream.t[a:b].astype(np.int64)
    if stream.edge_type is None:
        return np.stack([src, dst, t], axis=1)
    return np.stack([t, src, stream.edge_type[a:b]], axis=1)


def generate_negatives(split: Split, num: int, seed: int = GENERATOR_SEED) -> dict[str, Ragged]:
    """Samples as TGB's own generator draws them (strategy hist_rnd): validation first, test from the same stream."""
    state = np.random.RandomState(seed)
    return {segment: _generate_segment(split, segment, num, state) for segment in ("val", "test")}


def _generate_segment(split: Split, segment: str, num: int, state: np.random.RandomState) -> Ragged:
    stream = split.stream
    a, b = split.bounds(segment)
    first, last = int(stream.dst.min()), int(stream.dst.max())
    seen = _train_destinations(stream, split.train_end)
    true = _true_destinations(stream, a, b)
    keys = _keys(split, segment)
    drawn: dict[Key, I32] = {}
    for s, d, t in keys.tolist():
        free = np.ones(last - first + 1, dtype=bool)
        drawn[s, d, t] = _generate_one(true[s, t], seen.get(s), free, first, num, state)
    parts = [drawn[s, d, t] for s, d, t in keys.tolist()]
    return _pointers(len(part) for part in parts), np.concatenate([*parts, np.zeros(0, np.int32)])


def _generate_one(true: I64, seen: I64 | None, free: Bool, first: int, num: int, state: np.random.RandomState) -> I32:
    """Destinations of the source's training events, then others; never one that is true at this source and time."""
    free[true - first] = False
    history = np.empty(0, np.int64)
    if seen is not None:
        pool = np.setdiff1d(seen, true)
        history = state.choice(pool, min(int(num * HISTORY_SHARE), len(pool)), replace=False)
        free[seen - first] = False
    others = np.flatnonzero(free) + first
    wanted = num - len(history)
    if wanted <= len(others):
        others = state.choice(others, wanted, replace=False)
    return np.concatenate([history, others]).astype(np.int32)


def _train_destinations(stream: EventStream, train_end: int) -> dict[int, I64]:
    pairs = np.unique(np.stack([stream.src[:train_end], stream.dst[:train_end]], axis=1), axis=0)
    sources, start = np.unique(pairs[:, 0], return_index=True)
    return dict(zip(sources.tolist(), np.split(pairs[:, 1], start[1:]), strict=True))


def _true_destinations(stream: EventStream, a: int, b: int) -> dict[tuple[int, int], I64]:
    grouped: dict[tuple[int, int], list[int]] = {}
    for s, d, t in zip(stream.src[a:b].tolist(), stream.dst[a:b].tolist(), stream.t[a:b].tolist(), strict=True):
        grouped.setdefault((s, t), []).append(d)
    return {key: np.array(targets, dtype=np.int64) for key, targets in grouped.items()}


def _pointers(lengths: Iterable[int]) -> I64:
    return np.concatenate([[0], np.cumsum(np.fromiter(lengths, dtype=np.int64))]).astype(np.int64)


def _take(ptr: I64, values: NDArray[np.int32], places: I64) -> Ragged:
    lengths = ptr[places + 1] - ptr[places]
    out_ptr = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    shift = np.repeat(ptr[places] - out_ptr[:-1], lengths)
    return out_ptr, values[np.arange(out_ptr[-1]) + shift]
