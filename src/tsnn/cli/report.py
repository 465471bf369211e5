"""tsnn report"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tsnn.cli.display import console, shown_bar
from tsnn.errors import InputError
from tsnn.files import check_file_target


def report(
    runs: Annotated[list[Path], typer.Argument(help="Run folders; several are set side by side.")],
    out: Annotated[
        Path | None, typer.Option(help="HTML file to write; by default report.html in the folder of a single run.")
    ] = None,
    data: Annotated[
        list[str] | None,
        typer.Option(help="The data of the runs, where it is no longer where it was; may be given several times."),
    ] = None,
) -> None:
    """Write a run's report, or that of several side by side: one HTML file that needs nothing else."""
    import torch

    from tsnn.report.page import REPORT, write_comparison
    from tsnn.report.view import trace_run
    from tsnn.training.run import Run, run_split

    torch.set_num_threads(1)
    if out is None and len(runs) > 1:
        raise InputError("several runs have no folder in common; name the file to write with --out.")
    loaded = [Run.load(folder) for folder in runs]
    path = out or runs[0] / REPORT
    check_file_target(path)
    splits = [run_split(run, *(data or [])) for run in loaded]
    with shown_bar(quiet=False) as progress:
        traces = [trace_run(run, split, progress) for run, split in zip(loaded, splits, strict=True)]
    write_comparison(list(zip(loaded, traces, strict=True)), path)
    console.print(f"report written to {path}")
