"""The command line. One small file per verb; this one joins them and turns errors into one sentence and status 2.

A verb imports what it works with when it is called: help and refusals need not wait for PyTorch.
"""

from __future__ import annotations

import sys
import warnings
from typing import Annotated, NoReturn

import typer

from tsnn.cli.audit import audit
from tsnn.cli.backup import backup
from tsnn.cli.bench import app as bench_app
from tsnn.cli.data import app as data_app
from tsnn.cli.demo import demo
from tsnn.cli.evaluate import evaluate
from tsnn.cli.explain import explain
from tsnn.cli.facts import facts
from tsnn.cli.forecast import forecast
from tsnn.cli.label import label
from tsnn.cli.log import app as log_app
from tsnn.cli.recommend import recommend
from tsnn.cli.report import report
from tsnn.cli.reproduce import reproduce
from tsnn.cli.serve import serve
from tsnn.cli.slices import slices
from tsnn.cli.train import train
from tsnn.cli.tune import tune
from tsnn.cli.verify import verify
from tsnn.errors import TsnnError
from tsnn.words import did_you_mean

app = typer.Typer(
    name="tsnn",
    help="Who meets whom next: train on a stream of events, evaluate honestly, ask.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


def _print_version(wanted: bool) -> None:
    if wanted:
        from tsnn import __version__

        print(f"tsnn {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", is_eager=True, callback=_print_version)
    ] = False,
) -> None:
    pass


app.command()(demo)
app.command()(train)
app.command()(evaluate)
app.command()(recommend)
app.command()(explain)
app.command()(forecast)
app.command()(facts)
app.command()(label)
app.command()(serve)
app.command()(backup)
app.command()(reproduce)
app.command()(tune)
app.command()(slices)
app.command()(audit)
app.command()(verify)
app.command()(report)
app.add_typer(data_app, name="data")
app.add_typer(log_app, name="log")
app.add_typer(bench_app, name="bench")


INTERRUPTED = 130  # what typer makes of an interruption


def main() -> None:
    """Entry point of the `tsnn` command."""
    warnings.formatwarning = lambda message, *_, **__: f"tsnn: {message}\n"
    try:
        status = app(standalone_mode=False, prog_name="tsnn")
    except TsnnError as error:
        _refuse(str(error))
    except typer.TyperException as error:  # wrong words on the command line
        _refuse(_usage(error))
    except OSError as error:
        _refuse(f"{error.filename or 'the system'}: {error.strerror or error}.")
    if status == INTERRUPTED:
        print("tsnn: interrupted; train, tune and reproduce go on where they stopped if called again.", file=sys.stderr)
    sys.exit(status if isinstance(status, int) else 0)


def _refuse(sentence: str) -> NoReturn:
    if sentence:
        print(f"tsnn: {sentence}", file=sys.stderr)
    sys.exit(2)


def _usage(error: typer.TyperException) -> str:
    """What is wrong and where to look; nothing where a bare command has already printed its help."""
    message = " ".join(error.format_message().split()).rstrip(".")
    context = getattr(error, "ctx", None)
    if not message or context is None:
        return message
    message, _, meant = message.partition(". Did you mean ")
    if possible := getattr(error, "possibilities", None):  # of a wrong option, several that are hardly like it
        name = getattr(error, "option_name", "")
        message, meant = f"no such option: {name}", did_you_mean(name, possible).removeprefix("did you mean ")
    if meant:
        return f"{message[0].lower()}{message[1:]}; did you mean {meant}"
    return f"{message[0].lower()}{message[1:]}; {context.command_path} --help lists what it takes."


if __name__ == "__main__":
    main()
