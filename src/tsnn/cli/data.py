"""tsnn data list | show | import"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from rich.console import Console
from rich.table import Column, Table

from tsnn.cli.display import console, print_json
from tsnn.cli.options import Data, DstType, Json, NodeTypeFile, SrcType, Undirected
from tsnn.cli.train import node_types, table_columns
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
def show(data: Data, undirected: Undirected = False, json: Json = False) -> None:
    """Counts, time range, ties and split of a stream: what a figure on it will depend on."""
    stream = load(data, undirected=undirected)
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
        "first_time": float(stream.t[0]),
        "last_time": float(stream.t[-1]),
        "msg_dim": stream.msg_dim,
        "relations": stream.num_relations,
        "node_types": stream.num_types,
        "train": split.train_end,
        "validation": split.val_end - split.train_end,
        "test": split.stream.num_events - split.val_end,
        "new_nodes": int(split.new_node.sum()),
        "direction": stream.direction,
    }
    if remark := looks_undirected(stream) or looks_bipartite(stream):
        facts["looks"] = remark
    if json:
        print_json(facts)
        return
    table = Table("fact", "value")
    for name, value in facts.items():
        if name != "looks":
            table.add_row(name.replace("_", " "), f"{value:,}" if isinstance(value, int) else str(value))
    Console().print(table)
    if remark:
        Console().print(remark, highlight=False)


@app.command("import")
def import_(
    path: Annotated[Path, typer.Argument(help="A CSV or Parquet table of events.")],
    out: Annotated[Path, typer.Option(help="Parquet file to write, with columns src, dst, t and what else was named.")],
    src: Annotated[str | None, typer.Option(help="Column of the source; by default src.")] = None,
    dst: Annotated[str | None, typer.Option(help="Column of the destination; by default dst.")] = None,
    t: Annotated[str | None, typer.Option(help="Column of the time; by default t.")] = None,
    msg: Annotated[
        list[str] | None, typer.Option(help="Column with an event feature; may be given several times.")
    ] = None,
    edge_type: Annotated[str | None, typer.Option(help="Column of the relation.")] = None,
    src_type: SrcType = None,
    dst_type: DstType = None,
    node_type: NodeTypeFile = None,
    sort: Annotated[bool, typer.Option(help="Sort the rows by time.")] = False,
    undirected: Undirected = False,
) -> None:
    """Check a table, sort it if asked, and write it as a stream that `tsnn train` reads as it is."""
    types = node_types(src_type, dst_type, node_type)
    columns = table_columns(src=src, dst=dst, t=t, msg=msg, edge_type=edge_type, node_type=types, sort=sort)
    stream = load(path, undirected=undirected, **columns)
    write_table(stream, out)
    Console().print(f"{stream.num_events:,} events of {stream.num_nodes:,} nodes written to {out}")
