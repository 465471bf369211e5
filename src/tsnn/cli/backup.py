"""tsnn backup"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from tsnn.cli.display import console, plain, print_json, shown_bar
from tsnn.cli.options import Json, RunFolder
from tsnn.errors import ConfigError


def backup(
    run: RunFolder,
    target: Annotated[Path, typer.Argument(help="Folder for the copy; it must not be there yet.")],
    json: Json = False,
) -> None:
    """Copy a run, with all that its service has logged, also while it serves; the copy is proved by a start from it."""
    from tsnn.training.run import read_description

    try:
        from tsnn.serve.backup import back_up
    except ModuleNotFoundError as error:
        raise ConfigError(f"the log needs {error.name}; install it with pip install 'tsnn[serve]'.") from None
    with shown_bar(json) as progress:
        done = back_up(run, target, lambda said: console.print(plain(said)), progress)
    clock = read_description(target).show_time(done.clock)
    if json:
        print_json({"folder": str(done.folder), "events": done.events, "clock": clock})
        return
    told = f"{plain(done.folder)} holds the run and {done.events:,} logged events; its clock stands at {clock}."
    Console().print(told, highlight=False, soft_wrap=True)
