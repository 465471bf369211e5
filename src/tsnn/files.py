"""Writing files so that an interruption never leaves half of one."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from tsnn.errors import InputError


def write_whole(target: Path, write: Callable[[Path], None]) -> None:
    """Let `write` fill a file beside the target, then put it in place: the target is whole or as it was."""
    if not target.parent.is_dir():
        raise InputError(f"there is no folder {target.parent}; make it first.")
    partial = target.with_name(f".partial-{os.getpid()}-{target.name}")
    try:
        write(partial)
        with partial.open("rb") as file:
            os.fsync(file.fileno())
        os.replace(partial, target)
    finally:
        partial.unlink(missing_ok=True)
