"""tsnn explain"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tsnn.cli.display import console, plain, print_json, shown_bar, visible
from tsnn.cli.options import Json, RunFolder
from tsnn.cli.recommend import At, EdgeType, Numbers, behind_service, node_id


def explain(
    run: RunFolder,
    src: Annotated[str, typer.Option(help="Id of the source.")],
    dst: Annotated[str, typer.Option(help="Id of the destination.")],
    at: At = None,
    edge_type: EdgeType = None,
    numbers: Numbers = False,
    figure: Annotated[Path | None, typer.Option(help="PNG or SVG file to draw the explanation to.")] = None,
    json: Json = False,
) -> None:
    """Why a destination has the score it has, in sentences; --numbers has the facts, parts and frames behind them."""
    from tsnn.online.predictor import Predictor

    with shown_bar(json):
        predictor = Predictor.load(run)
        ends = node_id(predictor, src), node_id(predictor, dst)
        explanation = predictor.explain(*ends, predictor.question_time(at), edge_type)
    behind = behind_service(predictor)
    if figure is not None:
        explanation.figure(figure, numbers)
    if json:
        print_json(explanation.to_dict() | ({"behind": behind} if behind else {}))
        return
    print("\n".join(map(visible, explanation.text(numbers).split("\n"))))
    if behind:
        console.print(plain(behind), highlight=False)
    if figure is not None:
        console.print(f"figure written to {figure}")
