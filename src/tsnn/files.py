"""Writing files so that an interruption never leaves half of one."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from tsnn.errors import InputError


def check_file_target(target: Path) -> None:
    """Refuse a file that cannot be written: worth asking before the work whose result it is to hold."""
    if not target.parent.is_dir():
        raise InputError(f"there is no folder {target.parent}; make it first.")
    if target.is_dir():
        raise InputError(f"{target} is a folder; name a file.")


def check_folder_target(target: Path) -> None:
    """Refuse a folder whose name, or a part of whose path, is that of a file."""
    for path in (target, *target.parents):
        if path.exists() and not path.is_dir():
            raise InputError(f"{path} is a file; name a folder.")


def write_text(target: Path, text: str) -> None:
    """Write a text file whole or not at all."""

    def write(partial: Path) -> None:
        partial.write_text(text, encoding="utf-8")

    write_whole(target, write)


def write_whole(target: Path, write: Callable[[Path], None]) -> None:
    """Let `write` fill a file beside the target, then put it in place: the target is whole or as it was."""
    check_file_target(target)
    partial = target.with_name(f".partial-{os.getpid()}-{target.name}")
    try:
        write(partial)
        with partial.open("rb") as file:
            os.fsync(file.fileno())
        os.replace(partial, target)
    finally:
        partial.unlink(missing_ok=True)
