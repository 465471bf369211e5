"""tsnn recommend"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Column, Table

from tsnn.cli.display import console, plain, print_json, shown_bar
from tsnn.cli.options import Json, RunFolder
from tsnn.data.question import CANDIDATES
from tsnn.errors import InputError

if TYPE_CHECKING:
    from tsnn.online.predictor import Predictor

At = Annotated[
    str | None,
    typer.Option(
        help="Time of the question: every earlier event counts. A number or, where the run's times are dates, an ISO "
        "date or now. By default one mean gap after the last event."
    ),
]
EdgeType = Annotated[str | None, typer.Option(help="Relation by name, where the run has relations.")]
Numbers = Annotated[bool, typer.Option("--numbers", help="Show the numbers behind the sentences.")]

EXPLAINED = 20  # destinations that get a reason: more are for programs to read, and every reason takes its time


def recommend(
    run: RunFolder,
    src: Annotated[str, typer.Option(help="Id of the source.")],
    top: Annotated[int, typer.Option(help="How many destinations.")] = 10,
    at: At = None,
    edge_type: EdgeType = None,
    exclude_seen: Annotated[bool, typer.Option("--exclude-seen", help="Leave out past destinations.")] = False,
    candidates: Annotated[
        str | None,
        typer.Option(
            help="Who is ranked: destinations (past ones, or nodes of a type that has been one), all nodes, or a FILE "
            "of ids, one a line. By default what the run's card says, which is what its figures were made with."
        ),
    ] = None,
    two_stage: Annotated[
        bool, typer.Option("--two-stage", help="Rank a shortlist instead of every candidate.")
    ] = False,
    numbers: Numbers = False,
    json: Json = False,
) -> None:
    """The likeliest next destinations of a source, among those that the run was trained to tell apart."""
    from tsnn.online.predictor import Predictor
    from tsnn.online.sentences import moment

    with shown_bar(json):
        predictor = Predictor.load(run)
        source, time = node_id(predictor, src), predictor.question_time(at)
        ranked = who_is_ranked(predictor, candidates)
        best = predictor.recommend(source, time, top, ranked, exclude_seen, edge_type, exact=not two_stage)
        why = [predictor.explain(source, one.dst, time, edge_type).why for one in best[:EXPLAINED]]
    shown_time = predictor.run.description.show_time(time)
    why += [""] * (len(best) - len(why))
    remarks = [*filter(None, (predictor.run.remark, behind_service(predictor)))]
    if json:
        who = candidates or predictor.run.question.candidates
        told = [asdict(one) | {"why": says} for one, says in zip(best, why, strict=True)]
        answer = {"src": source, "t": shown_time, "candidates": who, "recommendations": told}
        print_json(answer | ({"remark": " ".join(remarks)} if remarks else {}))
        return
    parts = ("geometric", "residual", "edgebank") if numbers else ()
    table = Table("", Column("destination", overflow="fold"), Column("score", justify="right"))
    table.title = plain(f"{src} at {moment(shown_time)}")
    for name in parts:
        table.add_column("EdgeBank" if name == "edgebank" else name, justify="right")
    table.add_column("why", overflow="fold")
    for rank, (one, says) in enumerate(zip(best, why, strict=True), 1):
        shown = (f"{getattr(one, name):z.4f}" for name in ("score", *parts))
        table.add_row(str(rank), plain(one.dst), *shown, plain(says))
    Console().print(table)
    for remark in remarks:
        console.print(plain(remark), highlight=False)


def behind_service(predictor: Predictor) -> str:
    """That a service has gone on from this state, and the answer is not of now; nothing where none has."""
    from tsnn.serve.marks import read_end
    from tsnn.training.run import SERVED

    folder = predictor.run.folder
    end = read_end(folder / SERVED)
    if end is None or not end.position:
        return ""
    return (
        f"this is the state of {folder} before the {end.position:,} events that its service has logged; ask it for now."
    )


def node_id(predictor: Predictor, text: str) -> Hashable:
    """The node that a text on the command line names: the text itself, or the integer it spells."""
    if predictor.knows(text):
        return text
    if text.removeprefix("-").isdecimal() and predictor.knows(int(text)):
        return int(text)
    raise InputError(f"the run has never heard of node {text!r}; give an id of its data.")


def who_is_ranked(predictor: Predictor, text: str | None) -> str | list[Hashable] | None:
    """What --candidates means: a word of the question, or the ids in a file."""
    if text is None or text in CANDIDATES:
        return text
    path = Path(text)
    if not path.is_file():
        raise InputError(f"--candidates {text} is neither {' nor '.join(CANDIDATES)} nor a file of ids, one a line.")
    lines = (line.strip() for line in path.read_text(encoding="utf-8").splitlines())
    return [node_id(predictor, line) for line in dict.fromkeys(lines) if line]
