"""The command line. One small file per verb; this one joins them and turns errors into one sentence and status 2."""

from __future__ import annotations

import sys

import typer

from tsnn.cli.bench import app as bench_app
from tsnn.cli.data import app as data_app
from tsnn.cli.demo import demo
from tsnn.cli.evaluate import evaluate
from tsnn.cli.explain import explain
from tsnn.cli.recommend import recommend
from tsnn.cli.report import report
from tsnn.cli.reproduce import reproduce
from tsnn.cli.serve import serve
from tsnn.cli.slices import slices
from tsnn.cli.train import train
from tsnn.cli.tune import tune
from tsnn.cli.verify import verify
from tsnn.errors import TsnnError

app = typer.Typer(
    name="tsnn",
    help="Who meets whom next: train on a stream of events, evaluate honestly, ask.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command()(demo)
app.command()(train)
app.command()(evaluate)
app.command()(recommend)
app.command()(explain)
app.command()(serve)
app.command()(reproduce)
app.command()(tune)
app.command()(slices)
app.command()(verify)
app.command()(report)
app.add_typer(data_app, name="data")
app.add_typer(bench_app, name="bench")


def main() -> None:
    """Entry point of the `tsnn` command."""
    try:
        app()
    except TsnnError as error:
        print(f"tsnn: {error}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        print("tsnn: interrupted; the same command goes on where it stopped.", file=sys.stderr)
        sys.exit(130)


if __name__ == "__main__":
    main()
