"""tsnn train"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tsnn.cli.display import console, print_figures, print_json, shown_bar
from tsnn.cli.options import Candidates, Data, DstType, Json, NodeTypeFile, Settings, SrcType, Undirected
from tsnn.config import Config, parse_override
from tsnn.data.direction import looks_bipartite
from tsnn.errors import ConfigError
from tsnn.evaluation.catalog import load
from tsnn.files import check_folder_target

if TYPE_CHECKING:
    from tsnn.evaluation.model import ModelScorer
    from tsnn.evaluation.questions import Questions
    from tsnn.report.trace import Tracer


def train(
    data: Data,
    out: Annotated[Path, typer.Option(help="Folder for the run; an interrupted run in it goes on.")],
    config: Annotated[Path | None, typer.Option(help="TOML file with the settings to change.")] = None,
    set_: Settings = None,
    src: Annotated[str | None, typer.Option(help="Column of a table that holds the source; by default src.")] = None,
    dst: Annotated[str | None, typer.Option(help="Column that holds the destination; by default dst.")] = None,
    t: Annotated[str | None, typer.Option(help="Column that holds the time; by default t.")] = None,
    msg: Annotated[
        list[str] | None, typer.Option(help="Column with an event feature; may be given several times.")
    ] = None,
    edge_type: Annotated[str | None, typer.Option(help="Column that holds the relation.")] = None,
    src_type: SrcType = None,
    dst_type: DstType = None,
    node_type: NodeTypeFile = None,
    undirected: Undirected = False,
    candidates: Candidates = None,
    compare: Annotated[bool, typer.Option(help="Evaluate the baselines beside the model.")] = True,
    json: Json = False,
) -> None:
    """Train on an event log, and see how well the next link is predicted beside what simple rules predict."""
    from tsnn.report.page import REPORT, write_report
    from tsnn.report.trace import Tracer
    from tsnn.training.train import train as train_run

    check_folder_target(out)
    told = dict(parse_override(text) for text in set_ or [])
    settings = Config.build(config, told | ({"train.candidates": candidates} if candidates else {}))
    types = node_types(src_type, dst_type, node_type)
    columns = table_columns(src=src, dst=dst, t=t, msg=msg, edge_type=edge_type, node_type=types)
    stream = load(data, undirected=undirected, **columns)
    if remark := looks_bipartite(stream):
        console.print(remark, style="dim", highlight=False)
    tracers: list[Tracer] = []

    def follow(scorer: ModelScorer, questions: Questions) -> list[Tracer]:
        tracers.append(Tracer(scorer, questions))
        return tracers

    with shown_bar(json) as progress:
        run = train_run(stream, out, settings, compare=compare, follow=follow, progress=progress)
    write_report(run, tracers[0].trace())
    if json:
        print_json(run.metrics)
    else:
        print_figures([run.metrics, *run.metrics.get("baselines", [])])
        console.print(f"run written to {run.folder}, its report to {run.folder / REPORT}")


def table_columns(**columns: Any) -> dict[str, Any]:
    """The column names that were given."""
    return {name: value for name, value in columns.items() if value}


def node_types(src_type: str | None, dst_type: str | None, path: str | None) -> Any:
    """Where the types of nodes stand: in columns of the table, or in a table of their own."""
    if path and (src_type or dst_type):
        raise ConfigError("--node-type gives every node a type already; leave out --src-type and --dst-type.")
    return (src_type, dst_type) if src_type or dst_type else path
