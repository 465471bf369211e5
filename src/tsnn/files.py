"""Writing files so that an interruption never leaves half of one, and locks on folders.

A file is on the disk once its bytes are and once the folder says so: a new name is only in memory until the folder,
too, is synced.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tsnn.errors import InputError, RunError

PARTIAL = ".partial-"


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
    partial = target.with_name(f"{PARTIAL}{os.getpid()}-{target.name}")
    try:
        write(partial)
        sync(partial)
        os.replace(partial, target)
        sync(target.parent)
    finally:
        partial.unlink(missing_ok=True)


def sync(path: Path) -> None:
    """Force a file, or the names in a folder, to the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def make_folder(folder: Path) -> None:
    """Make a folder, and those above it, so that a power cut leaves them there."""
    made = [path for path in (folder, *folder.parents) if not path.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    for path in made:
        sync(path.parent)


def sweep_partial(folder: Path) -> None:
    """Remove what interrupted writes have left; for whoever holds the folder."""
    for path in folder.glob(f"{PARTIAL}*"):
        if path.is_file():
            path.unlink(missing_ok=True)


@contextmanager
def held(folder: Path, sentence: str) -> Iterator[None]:
    """Keep a folder to this process; RunError with the sentence if another one holds it. A kill lets it go."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise RunError(sentence) from None
        yield
    finally:
        os.close(handle)
