"""tsnn log show | drop | verify | repair | export"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from tsnn.cli.display import console, plain, print_json, shown_bar
from tsnn.cli.options import Json, RunFolder
from tsnn.errors import ConfigError, InputError

if TYPE_CHECKING:
    from tsnn.data.description import Description
    from tsnn.serve.eventlog import Chosen
    from tsnn.serve.rewrite import Logged

app = typer.Typer(
    help="The events that a service has logged: see them, take some back, export them, check and mend the log.",
    no_args_is_help=True,
)
SHOWN = 20

Positions = Annotated[str | None, typer.Option(help="Position in the log, or a range of them, as 120 or 120-140.")]
From = Annotated[str | None, typer.Option("--from", help="Events at this time or later.")]
To = Annotated[str | None, typer.Option("--to", help="Events at this time or earlier.")]


@app.command()
def show(
    run: RunFolder,
    positions: Positions = None,
    since: From = None,
    until: To = None,
    last: Annotated[int, typer.Option(min=1, help="How many of them, the latest.")] = SHOWN,
    json: Json = False,
) -> None:
    """The latest events of the log, or of a part of it, each with its position."""
    from tsnn.training.run import read_description

    about = read_description(run)
    found = _rewriting().find_events(run, _chosen(positions, since, until, about), last)
    if json:
        print_json({"events": _listed(found, about)})
    else:
        _print(found, about)


@app.command()
def drop(run: RunFolder, positions: Positions = None, since: From = None, until: To = None, json: Json = False) -> None:
    """Take events back: out of the log, and the state is replayed without them. Not while a service holds the run."""
    from tsnn.training.run import read_description

    if positions is None and since is None and until is None:
        raise InputError("name the events to drop with --positions, --from or --to; tsnn log show lists them.")
    about = read_description(run)
    chosen = _chosen(positions, since, until, about)
    with shown_bar(json) as progress:
        done = _rewriting().drop_events(run, chosen, console.print, progress)
    clock = about.show_time(done.clock)
    if json:
        print_json({"dropped": _listed(done.dropped, about), "left": done.left, "clock": clock})
        return
    _print(done.dropped[-SHOWN:], about)
    number = len(done.dropped)
    told = f"{number:,} {'event' if number == 1 else 'events'} dropped, {done.left:,} left in the log"
    Console().print(f"{told}; the clock stands at {clock}.", highlight=False)


@app.command()
def verify(run: RunFolder, json: Json = False) -> None:
    """Whether the log holds every event as it was acknowledged; also while a service runs. Status 1 if it does not."""
    _rewriting().check_there(run)
    verdict = _served("verify").verify_log(run / _served("service").HOME)
    if json:
        print_json(verdict._asdict())
    elif verdict.fault:
        Console().print(f"the log is damaged: {plain(verdict.fault)}; tsnn log repair {plain(str(run))} mends it")
    else:
        told = "all as they were acknowledged" if verdict.marked else "which have no checksums before tsnn serve runs"
        parts = f"{verdict.events:,} events in {verdict.transactions:,} transactions" if verdict.marked else "events"
        Console().print(f"{parts}, {told}", highlight=False)
    if verdict.fault:
        raise typer.Exit(1)


@app.command()
def repair(run: RunFolder, json: Json = False) -> None:
    """Mend a damaged log: what is proved stays, what is lost is named. Not while a service holds the run."""
    from tsnn.training.run import read_description

    about = read_description(run)
    with shown_bar(json) as progress:
        done = _served("repair").repair_log(run, console.print, progress)
    clock = about.show_time(done.clock)
    if json:
        readable = _listed(done.readable, about)
        told = {"lost": done.lost, "readable": readable, "left": done.kept, "aside": str(done.aside), "clock": clock}
        print_json(told)
        return
    ranges = ", ".join(f"{first}-{last}" for first, last in done.lost)
    number = sum(last - first + 1 for first, last in done.lost)
    lost = f"{number:,} events are lost, at positions {ranges} of the old log" if number else "no event is lost"
    if done.readable:
        _print(done.readable[-SHOWN:], about)
        Console().print(f"of these, {len(done.readable):,} can still be read, perhaps wrongly (--json lists all)")
    Console().print(f"{lost}; {done.kept:,} are left, and the clock stands at {clock}.", highlight=False)
    Console().print(f"The files as they were found are in {plain(str(done.aside))}.", highlight=False)


@app.command()
def export(
    run: RunFolder,
    out: Annotated[Path, typer.Option(help="Parquet file to write.")],
    json: Json = False,
) -> None:
    """All logged events as a Parquet table, which tsnn train reads without further words; also while a service runs."""
    count = _served("export").export_log(run, out)
    if json:
        print_json({"out": str(out), "events": count})
    else:
        Console().print(f"{count:,} events written to {plain(out)}", highlight=False)


def _rewriting() -> ModuleType:
    return _served("rewrite")


def _served(name: str) -> ModuleType:
    """A module of the service, which needs an extra."""
    try:
        return import_module(f"tsnn.serve.{name}")
    except ModuleNotFoundError as error:
        raise ConfigError(f"the log needs {error.name}; install it with pip install 'tsnn[serve]'.") from None


def _chosen(positions: str | None, since: str | None, until: str | None, about: Description) -> Chosen:
    from tsnn.serve.eventlog import Chosen

    chosen = Chosen()
    if positions is not None:
        first, dash, last = positions.partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()):
            raise InputError(f"--positions {positions} is neither a position nor a range of them, as 120 or 120-140.")
        chosen = chosen._replace(first=int(first), last=int(last or first))
    if since is not None:
        chosen = chosen._replace(since=about.parse_time(since))
    if until is not None:
        chosen = chosen._replace(until=about.parse_time(until))
    return chosen


def _listed(events: Logged, about: Description) -> list[dict[str, Any]]:
    """Events as JSON, in the form in which they can be sent again."""
    return [
        {
            "position": position,
            "src": event.src,
            "dst": event.dst,
            "t": about.show_time(event.t),
            "msg": None if event.msg is None else _numbers(event.msg),
            "edge_type": None if event.edge_type is None else about.relation_name(event.edge_type),
            "key": event.key,
        }
        for position, event in events
    ]


def _numbers(msg: bytes) -> list[float]:
    import numpy as np

    values: list[float] = np.frombuffer(msg, "<f4").tolist()
    return values


def _print(events: Logged, about: Description) -> None:
    table = Table("position", "time", "source", "destination", "relation", "key")
    for entry in _listed(events, about):
        cells = (entry[name] for name in ("position", "t", "src", "dst", "edge_type", "key"))
        table.add_row(*("" if cell is None else plain(cell) for cell in cells))
    Console().print(table)
