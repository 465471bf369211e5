"""tsnn verify"""

from __future__ import annotations

import json as json_format
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Column, Table

from tsnn.cli.display import print_json, shown_bar
from tsnn.cli.options import Json, RunFolder
from tsnn.files import write_text

if TYPE_CHECKING:
    from tsnn.theory.verify import Verification
    from tsnn.training.run import Run


def verify(
    run: RunFolder,
    data: Annotated[
        str | None, typer.Option(help="The data it was trained on, where it is no longer where it was.")
    ] = None,
    sample: Annotated[int, typer.Option(min=1, help="Events to check, spread along the stream.")] = 12,
    step_size: Annotated[
        float | None, typer.Option(help="Force a diffusion step on the run and see which statements no longer hold.")
    ] = None,
    json: Json = False,
) -> None:
    """Check the paper's statements on a run's own frames, stalks and active graphs; exit status 1 if one fails."""
    import torch

    from tsnn.report.view import VERIFICATION
    from tsnn.theory.verify import verify as verify_run
    from tsnn.training.run import Run, run_split

    torch.set_num_threads(1)
    loaded = Run.load(run)
    stream = run_split(loaded, *([data] if data else [])).stream
    with shown_bar(json) as progress:
        outcome = verify_run(loaded.model, stream, samples=sample, step_size=step_size, progress=progress)
    document = _document(loaded, outcome)
    if step_size is None:
        write_text(run / VERIFICATION, json_format.dumps(document, indent=2) + "\n")
    if json:
        print_json(document)
    else:
        _print(outcome)
        _print_states(loaded)
    if not outcome.passed:
        raise typer.Exit(1)


def _document(run: Run, outcome: Verification) -> dict[str, Any]:
    return {
        "data": run.metrics["card"]["data"]["name"],
        "passed": outcome.passed,
        "facts": outcome.facts._asdict(),
        "states": run.metrics.get("states"),  # for information: nothing of it can fail
        "statements": [asdict(statement) for statement in outcome.statements],
    }


def _print(outcome: Verification) -> None:
    from tsnn.theory.verify import slack_text

    facts = outcome.facts
    table = Table("statement", "worst slack, and where", Column("", no_wrap=True), show_lines=True)
    for line in outcome.statements:
        verdict = "[green]holds[/green]" if line.passed else f"[red]fails {line.failed}/{line.events}[/red]"
        claim = f"[bold]{line.label}[/bold]\n{escape(line.claim)}"
        table.add_row(
            claim, f"{slack_text(line.slack, line.tolerance)}\nrow {line.row:,}: {escape(line.where)}", verdict
        )
    out = Console()
    out.print(table)
    failed = sum(not line.passed for line in outcome.statements)
    out.print(f"{failed} of {len(outcome.statements)} statements fail." if failed else "Every statement holds.")
    step = "forced step" if facts.forced else "step"
    out.print(
        f"Checked on {facts.events} events along the stream, active sets of up to {facts.largest_active_set} nodes; "
        f"{step} {facts.step_size:g}, bound {facts.step_bound:g}; smallest reflector {facts.smallest_reflector:g}.",
        style="dim",
        highlight=False,
    )


def _print_states(run: Run) -> None:
    """What the run's states are like: for information, nothing of it can fail."""
    from tsnn.evaluation.health import MEASURES

    out = Console()
    states = run.metrics.get("states")
    if states is None:
        out.print("The run is from before its states were measured; tsnn report measures them.", style="dim")
        return
    table = Table("", "", "", title="What the states do, at the end of the stream", show_header=False)
    for name, measure in MEASURES.items():
        table.add_row(measure.title, measure.show(states[name]), measure.limit)
    out.print(table)
    if run.remark:
        out.print(run.remark)
