"""Words of a refusal: the name that was probably meant, names in a row, what a value is, where an attribute is."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, ClassVar

from tsnn.errors import MissingNameError


def did_you_mean(name: Any, known: Iterable[str]) -> str:
    """A question that names the known name that is most like this one, if any is."""
    by_lower = {word.lower(): word for word in known}
    close = get_close_matches(str(name).lower(), by_lower, 1)
    return f"did you mean {by_lower[close[0]]!r}?" if close else ""


def listed(names: tuple[str, ...], most: int = 8) -> str:
    """Names in a sentence; of very many, the first few."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def kind_of(value: object) -> str:
    """What a value is, with its package where that is another: a list, an EventStream, a pandas.DataFrame."""
    if value is None:
        return "None"
    kind = type(value)
    package = kind.__module__.partition(".")[0]
    name = kind.__name__ if package in ("builtins", "__main__", "tsnn") else f"{package}.{kind.__name__}"
    return f"{'an' if name[0].lower() in 'aeiou' else 'a'} {name}"


def missing_name(owner: str, name: str, known: Iterable[str], instead: str = "") -> MissingNameError:
    """The refusal of a name that `owner` does not have: what to write instead, else the likeliest name."""
    public = [word for word in known if not word.startswith("_")]
    then = instead or did_you_mean(name, public) or f"it has {', '.join(sorted(public))}."
    return MissingNameError(f"{owner} has no {name!r}; {then}")


class Helpful:
    """Refuses a missing attribute in a sentence that says where to find what was probably wanted."""

    _instead: ClassVar[Mapping[str, str]] = {}  # natural wrong names, and what to write instead

    if not TYPE_CHECKING:  # a type checker knows what there is

        def __getattr__(self, name: str) -> Any:
            if name.startswith("_"):  # asked for by copy, pickle and notebooks, not by people
                raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
            raise missing_name(kind_of(self), name, dir(self), self._instead.get(name, ""))
