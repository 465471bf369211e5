"""tsnn serve"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tsnn.errors import ConfigError


def serve(
    run: Annotated[Path, typer.Argument(help="Folder of a finished run; the events go to its folder online/.")],
    host: Annotated[str, typer.Option(help="Address to listen on; anything but loopback needs a token.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0 takes a free one.")] = 8000,
    token: Annotated[
        str | None, typer.Option(envvar="TSNN_TOKEN", help="Bearer token that every request must carry.")
    ] = None,
    max_body: Annotated[int, typer.Option(min=1, help="Largest body in bytes; 413 beyond it.")] = 4 * 2**20,
    queue: Annotated[int, typer.Option(min=1, help="Requests that may wait; 429 beyond it.")] = 1024,
    snapshot_every: Annotated[int, typer.Option(min=1, help="Events between two snapshots.")] = 100_000,
    max_ahead: Annotated[
        str | None,
        typer.Option(
            help="Refuse an event so much later than the one before it, as a wrong unit makes them: in the unit of the "
            "data, of dates as 12h or 30d; inf for no limit. By default ten times the span of all events so far."
        ),
    ] = None,
    max_nodes: Annotated[
        int | None,
        typer.Option(min=1, help="Refuse newcomers beyond so many nodes. By default what half of the memory holds."),
    ] = None,
) -> None:
    """Score, recommend and explain over HTTP while events come in; nothing acknowledged is ever lost."""
    try:
        from tsnn.serve.process import run_service
    except ModuleNotFoundError as error:
        raise ConfigError(f"serving needs {error.name}; install it with pip install 'tsnn[serve]'.") from None
    run_service(
        run,
        host=host,
        port=port,
        token=token,
        max_body=max_body,
        queue_length=queue,
        snapshot_every=snapshot_every,
        max_ahead=max_ahead,
        max_nodes=max_nodes,
    )


if __name__ == "__main__":  # the verb alone, without loading the others
    typer.run(serve)
