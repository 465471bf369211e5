"""tsnn data list | show | import"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from rich.console import Console
from rich.table import Column, Table

from tsnn.cli.display import console, print_json, print_preview
from tsnn.cli.options import Data, Json, TableOptions, reads_table
from tsnn.data.direction import looks_bipartite, looks_undirected
from tsnn.data.table import write_table
from tsnn.evaluation.catalog import default_split, list_data, load
from tsnn.types import Visibility

app = typer.Typer(help="See what data is at hand, look into a stream, import a table.", no_args_is_help=True)


@app.command("list")
def list_(json: Json = False) -> None:
    """Every dataset known by name, and whether its files are here."""
    entries = list_data()
    if json:
        print_json({"data": [entry._asdict() for entry in entries]})
        return
    table = Table(Column("address", overflow="fold"), "here", "nodes", "events")
    for entry in entries:
        counts = [f"{n:,}" if n is not None else "" for n in (entry.num_nodes, entry.num_events)]
        table.add_row(entry.address, "yes" if entry.present else "no", *counts)
    Console().print(table)
    console.print("tsnn data show of a set that is not here says which file goes where.", style="dim")


@app.command()
@reads_table
def show(data: Data, json: Json = False, *, table: TableOptions) -> None:
    """How a table was understood; counts, time range, ties and split: what a figure on it will depend on."""
    stream = load(data, **table)
    split = default_split(stream)
    tied = int((Visibility.parse("strict").cuts(stream.t) < np.arange(stream.num_events)).sum())
    facts = {
        "name": stream.name,
        "fingerprint": stream.fingerprint(),
        "nodes": stream.num_nodes,
        "events": stream.num_events,
        "pairs": len(np.unique(stream.src * stream.num_nodes + stream.dst)),
        "times": len(np.unique(stream.t)),
        "rows_after_a_row_of_the_same_time": tied,
        "self_loops": int((stream.src == stream.dst).sum()),
        "first_time": stream.description.show_time(stream.t[0].item()),
        "last_time": stream.description.show_time(stream.t[-1].item()),
        "msg_dim": stream.msg_dim,
        "relations": stream.num_relations,
        "node_types": stream.num_types,
        "train": split.train_end,
        "validation": split.val_end - split.train_end,
        "test": split.stream.num_events - split.val_end,
        "new_nodes": int(split.new_node.sum()),
        "direction": stream.direction,
    }
    remark = looks_undirected(stream) or looks_bipartite(stream)
    if json:
        preview = {"table": stream.preview.to_dict()} if stream.preview else {}
        print_json(facts | preview | ({"looks": remark} if remark else {}))
        return
    out = Console()
    if stream.preview:
        print_preview(stream.preview, out)
    shown = Table("fact", "value")
    for name, value in facts.items():
        counted = isinstance(value, int) and not name.endswith("_time")
        shown.add_row(name.replace("_", " "), f"{value:,}" if counted else str(value))
    out.print(shown)
    if remark:
        out.print(remark, highlight=False)


@app.command("import")
@reads_table
def import_(
    path: Annotated[Path, typer.Argument(help="A CSV or Parquet table of events.")],
    out: Annotated[Path, typer.Option(help="Parquet file to write, with columns src, dst, t and what else was named.")],
    *,
    table: TableOptions,
) -> None:
    """Check a table, clean it as asked for, and write it as a stream that every verb reads as it is."""
    stream = load(path, **table)
    write_table(stream, out)
    if stream.preview:
        print_preview(stream.preview, console)
    Console().print(f"{stream.num_events:,} events of {stream.num_nodes:,} nodes written to {out}")
