"""Arguments and options that several verbs share, so that one word means one thing in all of them."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from tsnn.data.description import KINDS
from tsnn.data.question import CANDIDATES
from tsnn.errors import ConfigError
from tsnn.evaluation.baselines import ROSTER
from tsnn.evaluation.catalog import ADDRESSES, list_data


def complete_data(incomplete: str) -> list[str]:
    """Addresses that begin so; where none does, the shell completes the names of files."""
    return [entry.address for entry in list_data() if entry.present and entry.address.startswith(incomplete)]


def complete_scorer(incomplete: str) -> list[str]:
    """Baselines that begin so; where none does, the shell completes the names of folders."""
    names = [f"{name}{mode}" for name, entry in ROSTER.items() for mode in ("", *(f":{m}" for m in entry.modes))]
    return [name for name in names if name.startswith(incomplete)]


Data = Annotated[str, typer.Argument(help=f"{ADDRESSES}.", autocompletion=complete_data)]
RunFolder = Annotated[Path, typer.Argument(help="Run folder, as tsnn train leaves it.")]
VisibilityName = Annotated[
    str, typer.Option(help="What a scored event may see: strict, arrival or batch:N, as in batch:200.")
]
Seed = Annotated[int, typer.Option(help="Seed of a baseline that learns.")]
Settings = Annotated[list[str] | None, typer.Option("--set", help="section.key=value; may be given several times.")]
Workers = Annotated[int | None, typer.Option(min=1, help="Processes; by default one per core.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")]
PopulationSize = Annotated[int | None, typer.Option(min=1, help="Train so many runs at once, on a GPU.")]

Candidates = Annotated[
    str | None,
    typer.Option(help=f"Who may be the answer: {' or '.join(CANDIDATES)} (every node). By default past destinations."),
]

TableOptions = dict[str, Any]
"""How a plain table is to be read, in the words of `read_table`: only what was said."""

_KINDS = ", ".join(KINDS)


def _of_table(text: str, *names: str) -> Any:
    return typer.Option(*names, help=text, rich_help_panel="A plain table")


def _table_options(
    src: Annotated[str | None, _of_table("Column of the source; by default src.")] = None,
    dst: Annotated[str | None, _of_table("Column of the destination; by default dst.")] = None,
    t: Annotated[str | None, _of_table("Column of the time; by default t.")] = None,
    msg: Annotated[
        list[str] | None,
        _of_table(
            f"Column with an event feature, as NAME or NAME:KIND ({_KINDS}), several times; auto is every numeric one."
        ),
    ] = None,
    edge_type: Annotated[str | None, _of_table("Column of the relation.")] = None,
    src_type: Annotated[str | None, _of_table("Column of the node type of the source.")] = None,
    dst_type: Annotated[str | None, _of_table("Column of the node type of the destination.")] = None,
    node_type: Annotated[str | None, _of_table("Table of two columns, node and type, in place of --src-type.")] = None,
    sort: Annotated[bool, _of_table("Sort the rows by time.", "--sort")] = False,
    drop_missing: Annotated[
        bool, _of_table("Leave out rows with an empty cell that is read.", "--drop-missing")
    ] = False,
    dedupe: Annotated[bool, _of_table("Leave out rows that repeat an earlier one.", "--dedupe")] = False,
    missing_relation: Annotated[str | None, _of_table("Name of the kind of events without a relation.")] = None,
    undirected: Annotated[
        bool, _of_table("Events are of two equals: which of the two stands first says nothing.", "--undirected")
    ] = False,
) -> TableOptions:
    if node_type and (src_type or dst_type):
        raise ConfigError("--node-type gives every node a type already; leave out --src-type and --dst-type.")
    told = {
        "src": src,
        "dst": dst,
        "t": t,
        "msg": "auto" if msg == ["auto"] else tuple(msg or ()),
        "edge_type": edge_type,
        "node_type": (src_type, dst_type) if src_type or dst_type else node_type,
        "sort": sort,
        "drop_missing": drop_missing,
        "dedupe": dedupe,
        "missing_relation": missing_relation,
        "undirected": undirected,
    }
    return {name: value for name, value in told.items() if value}


def reads_table(verb: Callable[..., None]) -> Callable[..., None]:
    """The verb with the options above in place of its parameter `table`, which gets what they say."""
    own, options = (inspect.signature(f, eval_str=True).parameters for f in (verb, _table_options))

    @functools.wraps(verb)
    def command(*args: Any, **given: Any) -> None:
        table = _table_options(**{name: given.pop(name) for name in options if name in given})
        verb(*args, table=table, **given)

    optional = [option.replace(kind=inspect.Parameter.KEYWORD_ONLY) for option in options.values()]
    shown = [*(parameter for name, parameter in own.items() if name != "table"), *optional]
    command.__signature__ = inspect.Signature(shown)  # type: ignore[attr-defined]
    command.__annotations__ = {parameter.name: parameter.annotation for parameter in shown}
    return command
