"""tsnn bench engine | scale | peers | gpu | serve"""

from __future__ import annotations

from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from tsnn.cli.display import print_json
from tsnn.cli.options import Json, Settings
from tsnn.config import Config, parse_override

app = typer.Typer(help="Measure: every speed is a ratio in one run on one machine.", no_args_is_help=True)
Stream = Annotated[str, typer.Option(help="Address or path of the stream.")]
Nodes = Annotated[list[int] | None, typer.Option(min=2, help="Numbers of nodes; may be given several times.")]
CHUNK = 200
PEERS_CHUNK = 1600  # fewer, larger steps: a figure of speed, with the AP it costs or does not cost beside it


def _config(settings: list[str] | None, chunk: int = CHUNK) -> Config:
    return Config.build(overrides=dict([("train.chunk", chunk), *(parse_override(text) for text in settings or [])]))


@app.command()
def engine(
    data: Stream = "dgb:uci",
    set_: Settings = None,
    json: Json = False,
) -> None:
    """Reference against fused on the same rows: events/s, their ratio, and the time of each stage."""
    from tsnn.bench.engine import bench_engine

    result = bench_engine(data, _config(set_))
    if json:
        print_json(result)
        return
    table = Table("", "fused events/s", "reference events/s", "ratio", title=f"{data} on {result['machine']['cpu']}")
    for kind in ("train", "update"):
        row = result[kind]
        rates = (f"{row[f'{name}_events_per_s']:,.0f}" for name in ("fused", "reference"))
        table.add_row(kind, *rates, f"{row['ratio']:.0f}")
    out = Console()
    out.print(table)
    _print_stages(out, "fused", result["stages_us_per_event"], result["floor"]["us_per_event"])


def _print_stages(out: Console, engine: str, stages: dict[str, float], floor: float) -> None:
    table = Table(f"stage of {engine} training", "microseconds an event")
    for name, value in stages.items():
        table.add_row(name, f"{value:.1f}")
    table.add_row("floor: multiply-adds of the update networks", f"{floor:.1f}")
    out.print(table)


@app.command()
def scale(
    events: Annotated[list[int] | None, typer.Option(min=10, help="Numbers of events; several times.")] = None,
    nodes: Nodes = None,
    set_: Settings = None,
    json: Json = False,
) -> None:
    """Training events/s and memory as a synthetic stream grows in events and in nodes."""
    from tsnn.bench.scale import EVENTS, NODES, bench_scale

    result = bench_scale(_config(set_), tuple(events or EVENTS), tuple(nodes or NODES))
    if json:
        print_json(result)
        return
    table = Table("events", "nodes", "events/s", "chunks MB", "peak MB", title=f"on {result['machine']['cpu']}")
    for row in result["events"] + result["nodes"]:
        sizes = (f"{row['num_events']:,}", f"{row['num_nodes']:,}", f"{row['events_per_s']:,.0f}")
        table.add_row(*sizes, f"{row['chunk_mb']:.0f}", f"{row['peak_mb']:.0f}")
    Console().print(table)


@app.command()
def peers(
    data: Stream = "dgb:uci",
    epochs: Annotated[int, typer.Option(min=1, help="Epochs that both are trained for.")] = 3,
    set_: Settings = None,
    json: Json = False,
) -> None:
    """TGN, built from PyTorch Geometric's parts, beside tsnn: events/s and AP in the same run."""
    from tsnn.bench.peers import bench_peers

    result = bench_peers(data, _config(set_, PEERS_CHUNK), epochs)
    if json:
        print_json(result)
        return
    title = f"{data}, {epochs} epochs, visibility {result['visibility']}"
    table = Table("model", "training events/s", "test AP", "test AUC", title=title)
    for name in ("tsnn", "tgn"):
        row = result[name]
        table.add_row(name, f"{row['events_per_s']:,.0f}", f"{row['test_ap']:.2f}", f"{row['test_auc']:.2f}")
    Console().print(table)
    Console().print(
        f"tsnn trains {result['ratio']:.1f} times as fast, after {result['tsnn']['warm_head_s']:.1f} s of warm-up."
    )
    if result["tsnn"]["remark"]:
        Console().print(result["tsnn"]["remark"])


@app.command()
def gpu(
    data: Stream = "dgb:uci",
    streams: Annotated[list[int] | None, typer.Option(help="Sizes of populations; may be given several times.")] = None,
    set_: Settings = None,
    json: Json = False,
) -> None:
    """One stream and populations of streams on the GPU: the recurrence alone, and training with everything included."""
    from tsnn.bench.gpu import POPULATIONS, bench_gpu

    result = bench_gpu(data, _config(set_, PEERS_CHUNK), tuple(streams or POPULATIONS))
    if json:
        print_json(result)
        return
    print_gpu(Console(), result)


def print_gpu(out: Console, result: dict[str, Any]) -> None:
    """Tables of what `bench_gpu` found."""
    table = Table("streams", "forward us", "backward us", "update events/s", "with backward", "training, all included")
    for row in result["populations"]:
        times = (f"{row[f'{name}_us_per_event_and_stream']:.1f}" for name in ("forward", "backward"))
        names = ("update_events_per_s", "recurrence_training_events_per_s", "train_events_per_s")
        rates = (f"{row[name]:,.0f}" for name in names)
        table.add_row(str(row["streams"]), *times, *rates)
    one = result["one_stream"]
    out.print(table)
    _print_stages(out, "cuda", one["stages_us_per_event"], one["floor_us_per_event"])
    _print_clusters(out, one["clusters"])
    _print_teams(out, one["teams"])
    out.print(
        f"one stream, everything included: {one['train_events_per_s']:,.0f} training events/s on "
        f"{result['machine']['gpu']}"
    )


def _print_clusters(out: Console, clusters: list[dict[str, Any]]) -> None:
    """Where the recurrence of one stream spends its time, by the number of thread blocks that share an event."""
    table = Table("one event: us", *(f"blocks: {row['blocks']}" for row in clusters))
    for name in ("forward", "backward"):
        whole = (sum(row[f"{name}_stages_us"].values()) for row in clusters)
        table.add_row(name, *(f"{us:.1f}" for us in whole), style="bold")
        for stage in clusters[0][f"{name}_stages_us"]:
            table.add_row(f"  {stage}", *(f"{row[f'{name}_stages_us'][stage]:.1f}" for row in clusters))
    out.print(table)


def _print_teams(out: Console, rows: list[dict[str, Any]]) -> None:
    """Forward and backward of one stream, by the number of teams that take its events in turn."""
    counts = sorted({row["teams"] for row in rows})
    table = Table("forward + backward, us an event", *(f"teams: {count}" for count in counts))
    for blocks in sorted({row["blocks"] for row in rows}):
        own = [row for row in rows if row["blocks"] == blocks]
        times = (f"{row['forward_us_per_event']:.1f} + {row['backward_us_per_event']:.1f}" for row in own)
        table.add_row(f"blocks of a team: {blocks}", *times)
    out.print(table)


@app.command()
def serve(
    nodes: Nodes = None,
    seconds: Annotated[float, typer.Option(min=0.1, help="Most seconds of each phase.")] = 20.0,
    queries: Annotated[int, typer.Option(min=1, help="Most recommendations timed in each phase.")] = 1000,
    events: Annotated[int, typer.Option(min=1, help="Most events of each phase without recommendations.")] = 200_000,
    json: Json = False,
) -> None:
    """The live service under load on loopback: durable events/s, and latency of recommendations meanwhile."""
    from tsnn.bench.serve import NODES as SERVED
    from tsnn.bench.serve import bench_serve

    result = bench_serve(tuple(nodes or SERVED), seconds, queries, events)
    if json:
        print_json(result)
        return
    _print_served(Console(), result)


def _print_served(out: Console, result: dict[str, Any]) -> None:
    ways = {"batches_of_100": "100 events a request", "one_a_request_16_clients": "one event a request, 16 clients"}
    table = Table("durable events", "events/s", "p50 ms", "p99 ms", title=f"on {result['machine']['cpu']}")
    for name, title in ways.items():
        row = result["ingest"][name]
        table.add_row(title, f"{row['events_per_s']:,.0f}", f"{row['p50_ms']:.1f}", f"{row['p99_ms']:.1f}")
    out.print(table)
    readings = result["ingest"]["batches_of_100"]["memory"]
    memory = ", ".join(f"{row['events']:,}: {row['resident_mb']:,.0f}" for row in readings)
    out.print(f"memory of the server in MB after so many events in batches: {memory}")
    table = Table("recommendations while events come in", "nodes", "events/s", "p50 ms", "p99 ms", "recall@10")
    for answers in result["recommend"]:
        for name, title in {"exact": "among every node", "two_stage": "in two stages"}.items():
            row = answers[name]
            rates = (f"{answers['num_nodes']:,}", f"{row['ingest_events_per_s']:,.0f}")
            recall = f"{row['recall_at_10']:.3f}" if "recall_at_10" in row else ""
            table.add_row(title, *rates, f"{row['p50_ms']:.1f}", f"{row['p99_ms']:.1f}", recall)
    out.print(table)
