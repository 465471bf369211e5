"""tsnn demo"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tsnn.cli.display import console, print_figures, print_json
from tsnn.cli.options import Json
from tsnn.cli.train import train

DEMO_DATA = "synthetic:roles"


def demo(
    out: Annotated[Path, typer.Option(help="Folder for the run.")] = Path("runs/demo"),
    json: Json = False,
) -> None:
    """The main job on an embedded synthetic stream: train, evaluate under `strict`, compare with the baselines."""
    from tsnn.training.run import METRICS, Run

    if not (out / METRICS).exists():
        train(DEMO_DATA, out, json=json)
        return
    run = Run.load(out)
    if json:
        print_json(run.metrics)
        return
    console.print(f"{out} already holds the demo's run; remove it to train again.")
    print_figures([run.metrics, *run.metrics["baselines"]])
    if run.remark:
        console.print(run.remark)
