"""tsnn forecast"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, astuple
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Column, Table

from tsnn.cli.display import print_json, shown_bar
from tsnn.cli.options import Json, RunFolder
from tsnn.cli.recommend import At

if TYPE_CHECKING:
    from tsnn.online.forecast import Due, DuePair


def forecast(
    run: RunFolder,
    within: Annotated[
        str | None,
        typer.Option(
            help="How far ahead: a number or, where the run's times are dates, as in 1h or 30d. By default a "
            "hundred mean gaps."
        ),
    ] = None,
    top: Annotated[int, typer.Option(help="How many sources, and how many pairs.")] = 20,
    at: At = None,
    json: Json = False,
) -> None:
    """Who is due: the sources, and the pairs, most likely to act within a length of time.

    With expected events and the probability of any. Rates fade as if nothing new happened until then.
    """
    from tsnn.online.predictor import Predictor
    from tsnn.online.sentences import moment

    with shown_bar(json):
        predictor = Predictor.load(run)
        found = predictor.forecast(within, top, predictor.question_time(at))
    if json:
        print_json(asdict(found))
        return
    out = Console()
    related = any(one.edge_type is not None for one in found.pairs)
    tables: list[tuple[str, Sequence[Due | DuePair], list[str]]] = [
        ("sources", found.sources, ["source"]),
        ("pairs", found.pairs, ["source", "destination", *(["relation"] if related else [])]),
    ]
    for title, rows, names in tables:
        table = Table("", *(Column(name, overflow="fold") for name in names))
        for heading in ("expected events", "probability of any"):
            table.add_column(heading, justify="right")
        table.title = escape(f"the {title} most likely to act after {moment(found.t)}")
        for rank, one in enumerate(rows, 1):
            who = astuple(one)[: len(names)]
            shown = (f"{one.expected:.3g}", f"{100 * one.probability:.1f} %")
            table.add_row(str(rank), *(escape(str(part)) for part in who), *shown)
        out.print(table)
    told = f"{found.expected:.3g} events of known sources, and {found.newcomers:.3g} sources that never acted before,"
    said = f"In all {told} are expected. Rates fade as if nothing new happened until then."
    out.print(said, style="dim", highlight=False)
