"""tsnn serve"""

from __future__ import annotations

import inspect
import tomllib
from pathlib import Path
from typing import Annotated, Any

import typer

from tsnn.errors import ConfigError


def read_settings(context: typer.Context, path: Path | None) -> Path | None:
    """Let a TOML file say what neither the command line nor the environment does."""
    if path is None:
        return None
    known = set(inspect.signature(serve).parameters) - {"run", "config"}
    try:
        told = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path} cannot be read as TOML ({str(error).splitlines()[0]}); mend it.") from None
    settings = {name.replace("-", "_"): value for name, value in told.items()}
    for name, value in settings.items():
        if name not in known:
            raise ConfigError(f"{path} has a setting {name!r}; the settings are {', '.join(sorted(known))}.")
        if isinstance(value, dict | list):
            raise ConfigError(f"the setting {name!r} of {path} is no single value; write {name} = VALUE.")
    context.default_map = settings
    return path


def _named(name: str, help: str, **rules: Any) -> Any:
    """An option that an environment variable can set too."""
    return typer.Option(help=help, envvar=f"TSNN_{name.upper()}", **rules)


def serve(
    run: Annotated[Path, typer.Argument(help="Folder of a finished run; the events go to its folder online/.")],
    config: Annotated[
        Path | None,
        typer.Option(
            envvar="TSNN_CONFIG",
            help="TOML file with any of these settings, as port = 8000. The command line comes first, then the "
            "environment, then the file.",
            callback=read_settings,
            is_eager=True,
        ),
    ] = None,
    host: Annotated[str, _named("host", "Address to listen on; anything but loopback needs a token.")] = "127.0.0.1",
    port: Annotated[int, _named("port", "Port to listen on; 0 takes a free one.", min=0, max=65535)] = 8000,
    token: Annotated[
        str | None,
        _named(
            "token",
            "Bearer token that every request must carry. Whoever sees the processes of the machine sees it "
            "here, but not in the environment or the file.",
        ),
    ] = None,
    max_body: Annotated[int, _named("max_body", "Largest body in bytes; 413 beyond it.", min=1)] = 4 * 2**20,
    queue: Annotated[int, _named("queue", "Requests that may wait; 429 beyond it.", min=1)] = 1024,
    snapshot_every: Annotated[int, _named("snapshot_every", "Events between two snapshots.", min=1)] = 100_000,
    max_ahead: Annotated[
        str | None,
        _named(
            "max_ahead",
            "Refuse an event so much later than the one before it, as a wrong unit makes them: in the unit of the "
            "data, of dates as 12h or 30d; inf for no limit. By default ten times the span of all events so far.",
        ),
    ] = None,
    max_nodes: Annotated[
        int | None,
        _named("max_nodes", "Refuse newcomers beyond so many nodes. By default what half of the memory holds.", min=1),
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
