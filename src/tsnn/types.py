"""Names shared by every part: array types and visibility, the rule of what a score may see."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from tsnn.errors import ConfigError
from tsnn.words import did_you_mean

Float = NDArray[np.floating]
F64 = NDArray[np.float64]
I64 = NDArray[np.int64]
I32 = NDArray[np.int32]
U64 = NDArray[np.uint64]
Bool = NDArray[np.bool_]


class Progress(Protocol):
    """Told again and again how far a piece of work is: events, candidates, jobs, whatever it counts."""

    def __call__(self, done: int, total: int, text: str = "") -> None:
        """So much is done of so much; `text` says what is going on, where there is more to say."""
        ...


def unwatched(done: int, total: int, text: str = "") -> None:
    """The progress of work that nobody watches."""


Watch = Progress | bool | None
"""Who hears how far work is: with True bars in a terminal or a notebook, with False or None nobody, or a function."""


VISIBILITIES = ("strict", "arrival", "batch")


@dataclass(frozen=True)
class Visibility:
    """What an event may see when it is scored.

    `strict`: every event with an earlier time. `arrival`: every earlier row. `batch:N`: every row of
    earlier batches of N, the batches counted from the start of each split segment.
    """

    kind: str
    batch: int = 0

    def __post_init__(self) -> None:
        if self.kind not in VISIBILITIES or (self.kind == "batch") != (self.batch > 0):
            raise _no_visibility(f"{self.kind}:{self.batch}" if self.batch else self.kind)

    @classmethod
    def parse(cls, text: str | Visibility) -> Visibility:
        """Read `strict`, `arrival` or `batch:N`; a visibility is taken as it is."""
        if isinstance(text, Visibility):
            return text
        kind, colon, size = text.partition(":") if isinstance(text, str) else ("", "", "")
        if not kind or bool(colon) != size.isdecimal():
            raise _no_visibility(text)
        return cls(kind, int(size or 0))

    def __str__(self) -> str:
        return f"batch:{self.batch}" if self.kind == "batch" else self.kind

    def cuts(self, t: NDArray[np.generic], segment_starts: tuple[int, ...] = (0,)) -> I64:
        """For each row, how many rows from the start of the stream its score may see.

        `t` is non-decreasing. Cuts are non-decreasing and never exceed the row's own position.
        """
        rows = np.arange(len(t), dtype=np.int64)
        if self.kind == "arrival":
            return rows
        if self.kind == "strict":
            return np.searchsorted(t, t, side="left").astype(np.int64)
        starts = np.asarray(segment_starts, dtype=np.int64)
        start = starts[np.searchsorted(starts, rows, side="right") - 1]
        return start + (rows - start) // self.batch * self.batch


def _no_visibility(told: object) -> ConfigError:
    meant = did_you_mean(told, VISIBILITIES[:2]) or "for example batch:200."
    return ConfigError(f"visibility {told!r} is none of strict, arrival, batch:N; {meant}")
