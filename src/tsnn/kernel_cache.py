"""`kernel` compiles a function for Python to call, and keeps the result for the next process.

Numba's own cache looks at the file that holds the function and at no other, so a constant or an inlined function from
elsewhere may change without being noticed. Here a kernel is compiled anew when its file, or any file of this package
that it imports, straight or through others, is no longer the same. What kernels call is part of them, and needs no
cache of its own: `numba.njit` will do.
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from numba import njit
from numba.core.caching import FunctionCache, IndexDataCacheFile

Function = TypeVar("Function", bound=Callable[..., Any])
_PACKAGE = Path(__file__).resolve().parent


def kernel(**options: Any) -> Callable[[Function], Function]:
    """Compile a function on its first call, cache it, and let other threads run meanwhile."""

    def compiled(function: Function) -> Function:
        dispatcher = njit(nogil=True, **options)(function)
        dispatcher._cache = _Cache(function)  # what njit's `cache=True` does, with a key of our own
        return dispatcher  # type: ignore[no-any-return]

    return compiled


def inlined(**options: Any) -> Callable[[Function], Function]:
    """A function that is compiled into every kernel that calls it.

    A call would hand over a tuple of thirty arrays word by word, and a sum in free order could differ between a kernel
    compiled and the same one loaded (decision 0008).
    """
    return njit(nogil=True, forceinline=True, **options)  # type: ignore[no-any-return]


def is_cached(function: Callable[..., Any]) -> bool:
    """True if a kernel, as its sources are now, was compiled on this machine before."""
    return bool(function._cache._cache_file._load_index())  # type: ignore[attr-defined]


class _Cache(FunctionCache):
    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__(function)  # type: ignore[no-untyped-call]
        stamp = source_stamp(Path(function.__code__.co_filename).resolve())
        name = self._impl.filename_base
        self._cache_file = IndexDataCacheFile(self._cache_path, name, stamp)  # type: ignore[no-untyped-call]


@cache
def source_stamp(file: Path) -> str:
    """A hash of the file and of all it imports from this package."""
    found, waiting = set[Path](), [file]
    while waiting:
        path = waiting.pop()
        if path not in found:
            found.add(path)
            waiting += _imported(path)
    digest = hashlib.sha256()
    for path in sorted(found):
        digest.update(path.read_bytes())
    return digest.hexdigest()


@cache
def _imported(file: Path) -> tuple[Path, ...]:
    """Files of this package that a file names in its imports."""
    modules: list[str] = []
    for node in ast.walk(ast.parse(file.read_bytes())):
        if isinstance(node, ast.ImportFrom) and node.module:
            modules += [node.module, *(f"{node.module}.{name.name}" for name in node.names)]
        elif isinstance(node, ast.Import):
            modules += [name.name for name in node.names]
    inside = [module.split(".") for module in modules if module.split(".")[0] == _PACKAGE.name]
    paths = [_PACKAGE.parent.joinpath(*parts).with_suffix(".py") for parts in inside]
    return tuple(path for path in paths if path.is_file())
