"""`kernel` compiles a function for Python to call, and keeps the result for the next process.

Numba's own cache looks at the file that holds the function and at no other, so a constant or an inlined function from
elsewhere may change without being noticed. Here a kernel is compiled anew when its file, or any file of this package
that it imports, straight or through others, is no longer the same. What kernels call is part of them, and needs no
cache of its own: `numba.njit` will do.
"""

from __future__ import annotations

import ast
import hashlib
import os
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from numba import njit
from numba.core.caching import CompileResultCacheImpl, FunctionCache

if TYPE_CHECKING:
    from tsnn.types import Progress

Function = TypeVar("Function", bound=Callable[..., Any])
_PACKAGE = Path(__file__).resolve().parent
_kernels: list[Callable[..., Any]] = []
_listeners: list[Callable[[str], None]] = []  # told the name of a kernel that is about to be compiled


def cache_folder() -> Path:
    """Where compiled kernels are kept: `NUMBA_CACHE_DIR` if it is set, else in the user's cache.

    Not beside the sources, where they would stay behind when the package is uninstalled. Whoever removes the folder
    waits for the compiler once more, and loses nothing else.
    """
    if told := os.environ.get("NUMBA_CACHE_DIR"):
        return Path(told)
    users = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(users).expanduser() / _PACKAGE.name


def kernel(**options: Any) -> Callable[[Function], Function]:
    """Compile a function on its first call, cache it, and let other threads run meanwhile."""

    def compiled(function: Function) -> Function:
        dispatcher = njit(nogil=True, **options)(function)
        dispatcher._cache = _Cache(function)  # type: ignore[no-untyped-call]
        _kernels.append(dispatcher)
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
    with suppress(OSError):
        return bool(function._cache._cache_file._load_index())  # type: ignore[attr-defined]
    return False


@contextmanager
def telling(progress: Progress) -> Iterator[Progress]:
    """The same progress; while the block runs, it is also told of every kernel that is about to be compiled."""
    begun: dict[str, None] = {}
    total = 0  # of all that are not there yet; how many of them are needed shows only when they are called
    is_last = False  # of what was told

    def hear(name: str) -> None:
        nonlocal total, is_last
        total = total or sum(not is_cached(known) for known in _kernels)
        progress(len(begun), total, f"compiling for this machine, once: {name}")
        begun[name] = None
        is_last = True

    def show(done: int, total: int, text: str = "") -> None:
        nonlocal is_last
        is_last = False
        progress(done, total, text)

    _listeners.append(hear)
    try:
        yield show
    finally:
        _listeners.remove(hear)
        if is_last:
            progress(total, total, "compiled for this machine")


class _Place:
    """Where the compiled form of a function is, and of which sources; the methods are those that Numba calls."""

    def __init__(self, function: Callable[..., Any], file: str) -> None:
        path = Path(file).resolve()
        self._py_file = file  # which Numba names in its warnings
        self._line = function.__code__.co_firstlineno
        self._stamp = source_stamp(path)
        of_folder = hashlib.sha256(str(path.parent).encode()).hexdigest()[:12]  # several copies of the package
        self._folder = cache_folder() / f"{path.parent.name}-{of_folder}"

    @classmethod
    def from_function(cls, function: Callable[..., Any], file: str) -> _Place:
        return cls(function, file)

    def get_cache_path(self) -> str:
        return str(self._folder)

    def ensure_cache_path(self) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)

    def get_source_stamp(self) -> str:
        return self._stamp

    def get_disambiguator(self) -> str:
        return str(self._line)


class _Stored(CompileResultCacheImpl):
    _locator_classes = [_Place]  # noqa: RUF012 - Numba's own list, of one


class _Cache(FunctionCache):
    """What njit's `cache=True` does, with a place and a key of our own."""

    _impl_class = _Stored

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """What was compiled for these types; where there is nothing, Numba compiles next."""
        found = None
        with suppress(OSError):
            found = super().load_overload(sig, target_context)  # type: ignore[no-untyped-call]
        if found is None:
            for hear in tuple(_listeners):
                hear(self._py_func.__name__)
        return found

    def save_overload(self, sig: Any, data: Any) -> None:
        """Keep what was compiled, if that can be."""
        try:
            super().save_overload(sig, data)  # type: ignore[no-untyped-call]
        except OSError as error:
            warnings.warn(
                f"compiled kernels cannot be kept ({error}), so every process will compile its own; "
                "set NUMBA_CACHE_DIR to a folder that can be written.",
                RuntimeWarning,
                stacklevel=2,
            )


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
