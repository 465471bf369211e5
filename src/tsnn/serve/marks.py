"""Marks: what proves that a log still holds what was acknowledged.

A mark stands for all events up to a position. It is made of the mark before and of the rows that a transaction adds,
so one changed byte changes every later mark. Its second half is a sum over the keys of requests, which have no order
of their own. The log keeps a mark for every transaction, each snapshot the one of its position, and the *end file*
beside the log the newest one: a log that has lost its end is told by it.
"""

from __future__ import annotations

import hashlib
import os
import zlib
from collections.abc import Iterable
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from tsnn.errors import RunError
from tsnn.files import sync, write_whole

END = "events.end"
_HALF = 16  # bytes
_BLOCK = 2000  # rows that are looked at together
_SLOT = 512  # what a disk writes as one
FIRST = bytes(2 * _HALF)  # the mark of no events


def next_mark(mark: bytes, rows: Iterable[tuple[Any, ...]], receipts: Iterable[tuple[str, bytes]] = ()) -> bytes:
    """The mark behind these rows, each a position and the parts of its event, and these requests (key, digest)."""
    digest, left = hashlib.blake2b(mark, digest_size=_HALF), iter(rows)
    while block := list(islice(left, _BLOCK)):
        # `ascii` writes integers, floats, texts and bytes in one way each, on every machine and version of Python.
        digest.update("".join(map(ascii, block)).encode())
    return digest.digest() + _plus(requests_half(mark), receipts)


def with_requests(mark: bytes, receipts: Iterable[tuple[str, bytes]]) -> bytes:
    """The mark of the same events when these are all requests of the log."""
    return events_half(mark) + _plus(bytes(_HALF), receipts)


def events_half(mark: bytes) -> bytes:
    """The part of a mark that stands for events."""
    return mark[:_HALF]


def requests_half(mark: bytes) -> bytes:
    """The part of a mark that stands for requests."""
    return mark[_HALF:]


def _plus(total: bytes, receipts: Iterable[tuple[str, bytes]]) -> bytes:
    value = int.from_bytes(total, "little")
    for key, digest in receipts:
        one = hashlib.blake2b(ascii((key, digest)).encode(), digest_size=_HALF).digest()
        value += int.from_bytes(one, "little")
    return (value % (1 << 8 * _HALF)).to_bytes(_HALF, "little")


class End(NamedTuple):
    """Where a log ends: the number of its events, and their mark."""

    position: int
    mark: bytes


class EndFile:
    """The end of the log, beside it. Written before events are acknowledged; the system keeps that through a kill.

    Two slots take turns, so that a write which a power cut tears leaves the one before it.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / END
        self._serial = 0
        self._file: int | None = None
        self._synced = True

    def begin(self, end: End) -> None:
        """Start the file anew: whole, and on the disk."""
        self.close()
        write_whole(self._path, lambda partial: _fill(partial, [_slot(1, end), _slot(0, end)]))
        self._serial = 1
        self._file = os.open(self._path, os.O_RDWR)

    def write(self, end: End) -> None:
        """The log ends here now."""
        assert self._file is not None
        self._serial += 1
        os.pwrite(self._file, _slot(self._serial, end), _SLOT * (self._serial % 2))
        self._synced = False

    def sync(self) -> None:
        """Put the newest end on the disk, if it is not there yet."""
        if self._file is not None and not self._synced:
            self._synced = True
            os.fdatasync(self._file)

    def close(self) -> None:
        """Let go of the file."""
        self.sync()
        if self._file is not None:
            os.close(self._file)
            self._file = None


def _fill(path: Path, slots: list[bytes]) -> None:
    path.write_bytes(b"".join(reversed(slots)))


def _slot(serial: int, end: End) -> bytes:
    text = f"{serial} {end.position} {end.mark.hex()}"
    return f"{text} {zlib.crc32(text.encode()):08x}\n".encode().ljust(_SLOT)


def read_end(folder: Path) -> End | None:
    """The end of the log in a folder; None where nothing has been kept of it. RunError if it cannot be read."""
    path = folder / END
    if not path.is_file():
        return None
    data = path.read_bytes()
    slots = [found for at in (0, _SLOT) if (found := _read_slot(data[at : at + _SLOT])) is not None]
    if not slots:
        raise RunError(f"{path}, which says where the log of events ends, is damaged; run tsnn log repair.")
    return max(slots)[1]


def _read_slot(data: bytes) -> tuple[int, End] | None:
    try:
        text, _, check = data.decode().rstrip().rpartition(" ")
        serial, position, mark = text.split(" ")
        if int(check, 16) != zlib.crc32(text.encode()):
            return None
        return int(serial), End(int(position), bytes.fromhex(mark))
    except ValueError:
        return None


def replace_end(folder: Path, end: End) -> None:
    """Say where a log ends whose file nobody holds."""
    file = EndFile(folder)
    file.begin(end)
    file.close()
    sync(folder)
