"""SQLite's write-ahead log after damage: its checksums made right again, so that what lies behind the damage is read.

SQLite stops at the first frame whose checksum is wrong and takes all that follows for never written. A frame holds a
whole page, and later frames hold newer versions of the same few pages; so with one byte changed, nearly everything is
there. Whether it is right, the marks of the log tell (https://www.sqlite.org/fileformat2.html#walformat).
"""

from __future__ import annotations

import struct
from pathlib import Path

_HEADER, _FRAME = 32, 24
_MAGIC = 0x377F0682  # plus one where checksums are of big-endian words
_MASK = 0xFFFFFFFF


def mend_wal(path: Path) -> bool:
    """Write the checksums, and the salts of frames, as they belong; False where there is nothing to go by."""
    data = bytearray(path.read_bytes()) if path.is_file() else bytearray()
    if len(data) < _HEADER:
        return False
    magic, _, page = struct.unpack_from(">III", data)
    size = _FRAME + page
    if magic & ~1 != _MAGIC or page not in [1 << bits for bits in range(9, 17)] or len(data) < _HEADER + size:
        return False
    order, salts = ">" if magic & 1 else "<", bytes(data[16:24])
    check = _checksum(data[:24], order, (0, 0))
    struct.pack_into(">II", data, 24, *check)
    starts = range(_HEADER, len(data) - size + 1, size)
    own = [start for start in starts if data[start + 8 : start + 16] == salts]
    for start in starts:
        if not own or start > own[-1]:  # from here on frames are of an earlier round
            break
        data[start + 8 : start + 16] = salts
        check = _checksum(data[start : start + 8], order, check)
        check = _checksum(data[start + _FRAME : start + size], order, check)
        struct.pack_into(">II", data, start + 16, *check)
    path.write_bytes(data)
    return True


def _checksum(data: bytearray, order: str, start: tuple[int, int]) -> tuple[int, int]:
    first, second = start
    words = struct.unpack(f"{order}{len(data) // 4}I", data)
    for one, other in zip(words[::2], words[1::2], strict=True):
        first = (first + one + second) & _MASK
        second = (second + other + first) & _MASK
    return first, second
