"""Published tables as data: the paper's LaTeX, and the figures of a later comparison that closed the peers' leaks.

python scripts/published.py PAPER.txt           writes src/tsnn/study/published.json
python scripts/published.py --peers PEERS.json  writes src/tsnn/study/peers.json
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

TARGET = Path(__file__).resolve().parents[1] / "src" / "tsnn" / "study" / "published.json"
PEERS = TARGET.with_name("peers.json")
OURS = "TSNN"
NUMBER = re.compile(r"\d+\.\d+")
ADDRESSES = {
    "Wikipedia": "dgb:wikipedia",
    "Reddit": "dgb:reddit",
    "MOOC": "dgb:mooc",
    "LastFM": "dgb:lastfm",
    "Enron": "dgb:enron",
    "Social Evo.": "dgb:SocialEvo",
    "UCI": "dgb:uci",
    "Flights": "dgb:Flights",
    "Can. Parl.": "dgb:CanParl",
    "CanParl": "dgb:CanParl",
    "US Legis.": "dgb:USLegis",
    "USLegis": "dgb:USLegis",
    "UN Trade": "dgb:UNtrade",
    "UN Vote": "dgb:UNvote",
    "Contact": "dgb:Contacts",
    "wiki-v2": "tgb:tgbl-wiki",
    "review-v2": "tgb:tgbl-review",
    "thgl-software": "tgb:thgl-software",
}
VARIANTS = {
    "TSNN-core": "core",
    "w/o residual scorer": "no-residual",
    "w/o transport": "no-transport",
    "Fixed frames": "fixed-frames",
    "w/o carryover": "no-carry-over",
    "w/o smooth": "no-smooth",
    "w/o diffusion": "no-diffusion",
}
TGB_NAMES = {
    "EB$_{\\infty}$": "EdgeBank",
    "EB$_{tw}$": "EdgeBank (window)",
    "Heur": "Heuristic",
    "TGN$_{et}$": "TGN (edge type)",
    "GMixer": "GraphMixer",
    "DyGFmr": "DyGFormer",
    "DyGM": "DyGMamba",
    "HypEv": "HyperEvent",
}


def body(paper: str, label: str) -> list[list[str]]:
    """Rows of a table, as cells: the header, then the rest."""
    start = paper.index(f"\\label{{{label}}}")
    text = paper[paper.index("\\toprule", start) : paper.index("\\bottomrule", start)]
    text = re.sub(r"\\(toprule|midrule|cmidrule\(lr\)\{[\d-]+\})", "", text).replace("\n", " ")
    rows = [row.split("&") for row in re.split(r"\\\\", text) if "&" in row]
    return [[cell.strip() for cell in row] for row in rows]


def plain(cell: str) -> str:
    """A label without its commands."""
    cell = re.sub(r"\\tsnn\{\}( \(Ours\))?", OURS, cell)
    cell = re.sub(r"\\(textbf|textit)\{(.*)\}", r"\2", cell)
    return cell.replace("~", " ").strip()


def figure(cell: str) -> dict[str, float] | None:
    """Mean and, where it is given, standard deviation; the change in parentheses is left to whoever subtracts."""
    found = [float(text) for text in NUMBER.findall(cell)]
    if not found:
        return None
    return {"mean": found[0]} | ({"std": found[1]} if "\\pm" in cell else {})


def columns(names: list[str], cells: list[str]) -> dict[str, dict[str, float]]:
    """The figures of a row by column."""
    return {name: value for name, cell in zip(names, cells, strict=True) if (value := figure(cell)) is not None}


def two_metrics(paper: str, label: str) -> dict[str, Any]:
    """`tab:dyglib` and its inductive sister: a block of AP, then a block of AUC, each with its average ranks."""
    header, *rows = body(paper, label)
    names = [plain(cell) for cell in header[2:]]
    table: dict[str, Any] = {"label": label, "figures": {"ap": {}, "auc": {}}, "average_rank": {}}
    metric = ""
    for first, data, *cells in rows:
        metric = next((name for name in ("ap", "auc") if f"{{{name.upper()}}}" in first), metric)
        values = columns(names, cells)
        if "Rank" in data:
            table["average_rank"][metric] = {name: value["mean"] for name, value in values.items()}
        else:
            table["figures"][metric][ADDRESSES[plain(data)]] = values
    return table


def one_metric(paper: str, label: str, metric: str, names: dict[str, str]) -> dict[str, Any]:
    """A table with a data set a row."""
    header, *rows = body(paper, label)
    found = [plain(cell) for cell in header[1:]]
    titles = [names.get(name, name) for name in found]
    return {"label": label, "figures": {metric: {ADDRESSES[row[0]]: columns(titles, row[1:]) for row in rows}}}


def transcribe(paper: str) -> dict[str, Any]:
    """All four tables."""
    return {
        "dgb": two_metrics(paper, "tab:dyglib"),
        "dgb-inductive": two_metrics(paper, "tab:dyglib_inductive"),
        "tgb": one_metric(paper, "tab:tgb_results", "mrr", TGB_NAMES),
        "ablation": one_metric(paper, "tab:core-ablation", "ap", VARIANTS),
    }


STRATEGIES = {"random": "dgb-corrected", "historical": "dgb-historical", "inductive": "dgb-inductive-negatives"}
PARTS = {"transductive": "", "new_nodes": "-new-nodes"}


def transcribe_peers(given: dict[str, Any]) -> dict[str, Any]:
    """Tables by negative strategy and nodes, and on which sets a method was run again after its leaks were closed."""
    closed = given["retrained_with_leaks_closed"]
    ends = [name + ending for name in STRATEGIES.values() for ending in PARTS.values()]
    tables: dict[str, Any] = {name: {"label": "arXiv 2610.04869", "figures": {}} for name in ends}
    for part, ending in PARTS.items():
        for metric, strategies in given[part].items():
            for strategy, sets in strategies.items():
                tables[STRATEGIES[strategy] + ending]["figures"][metric] = {
                    f"dgb:{data}": {method: {"mean": mean} for method, mean in row.items()}
                    for data, row in sets.items()
                }
    again = {method: sets if sets == "all" else [f"dgb:{data}" for data in sets] for method, sets in closed.items()}
    return {"source": given["source"], "protocol": given["protocol"], "closed": again, "tables": tables}


def written(tables: dict[str, Any]) -> str:
    """As it stands in the package."""
    return json.dumps(tables, indent=1) + "\n"


if __name__ == "__main__":
    *flag, source = sys.argv[1:]
    if flag == ["--peers"]:
        PEERS.write_text(written(transcribe_peers(json.loads(Path(source).read_text()))))
    else:
        TARGET.write_text(written(transcribe(Path(source).read_text())))
