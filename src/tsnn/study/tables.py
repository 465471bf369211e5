"""The tables as studies: which data, visibilities, variants and baselines, and the rows they become."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from tsnn.data.question import Question
from tsnn.evaluation.baselines import compared
from tsnn.evaluation.catalog import list_data
from tsnn.evaluation.formats import summary
from tsnn.study.jobs import Job
from tsnn.study.published import NEW_NODES, PAPER, best_peer, paper_figure, peers_alike, table_of
from tsnn.study.store import Record
from tsnn.training.course import WARM_HEAD

Overrides = dict[str, Any]
CORE: Overrides = {"model.edgebank": False, "features.edgebank_recency": False}
REMOVALS: dict[str, Overrides] = {
    "no-residual": {"model.residual": False},
    "no-transport": {"model.transport": False},
    "fixed-frames": {"model.frame_update": False},
    "no-carry-over": {"model.carry_over": False},
    "no-smooth": {"train.loss.smooth": 0.0},
    "no-diffusion": {"model.diffusion_steps": 0},
}
_DGB_NAMES = "wikipedia reddit mooc lastfm enron SocialEvo uci Flights CanParl USLegis UNtrade UNvote Contacts"
DGB = tuple(f"dgb:{name}" for name in _DGB_NAMES.split())
TGB = ("tgb:tgbl-wiki", "tgb:tgbl-review", "tgb:thgl-software")
VISIBILITIES = ("strict", "arrival", "batch:200")


BOTH = {"transductive": "test", NEW_NODES: "new_test"}


@dataclass(frozen=True)
class Table:
    """One table. `variants` are changes to a data set's configuration; all others are compared with the first."""

    name: str
    settings: dict[str, str]  # what its rows are about, each with the set of events that their figures are of
    data: tuple[str, ...]
    metrics: tuple[str, ...]
    negatives: str | None = None  # as the protocol usually chooses them
    visibilities: tuple[str, ...] = VISIBILITIES
    seeds: int = 5
    variants: dict[str, Overrides] = field(default_factory=lambda: {"full": {}})
    without: tuple[str, ...] = ()  # baselines that are left out

    @property
    def baselines(self) -> list[str]:
        """What stands beside the model."""
        own = compared(Question(negatives=self.negatives).sources_differ)
        return [name for name in own if name not in self.without]

    @property
    def yardstick(self) -> str:
        """The first variant, which the others are compared with."""
        return next(iter(self.variants))


TABLES = {
    table.name: table
    for table in (
        Table("dgb", {"transductive": "test"}, DGB, ("ap", "auc")),
        Table("dgb-inductive", {"inductive": "new_test"}, DGB, ("ap", "auc")),
        Table("dgb-historical", BOTH, DGB, ("ap", "auc"), negatives="historical"),
        Table("dgb-inductive-negatives", BOTH, DGB, ("ap", "auc"), negatives="inductive"),
        Table("tgb", {"one positive among many": "test"}, TGB, ("mrr",)),
        Table(
            "ablation",
            {"transductive, EdgeBank off": "test"},
            ("dgb:USLegis", "dgb:CanParl", "dgb:uci"),
            ("ap",),
            visibilities=("arrival", "strict"),
            seeds=3,
            variants={"core": CORE} | {name: CORE | change for name, change in REMOVALS.items()},
            without=compared(),
        ),
        Table(
            "sheaf",
            {"transductive, equal features and settings": "test"},
            DGB,
            ("ap", "auc"),
            visibilities=("strict",),
            seeds=3,
            variants={"full": {}, "no-state": {"train.epochs": 0}}
            | {name: change for name, change in REMOVALS.items() if name != "no-smooth"},
            without=tuple(name for name in compared() if name != "features"),
        ),
    )
}


def addresses(table: Table, names: Sequence[str] | None) -> tuple[list[str], list[dict[str, str]]]:
    """The data to run, and those of the table that are not here with the folder their files belong in.

    A name is one of the table's (`uci`), or any address; what is asked for by name has to be here.
    """
    if names:
        known = {address.partition(":")[2]: address for address in table.data}
        return [known.get(name, name) for name in names], []
    where = {entry.address: entry for entry in list_data()}
    present = [address for address in table.data if where[address].present]
    return present, [{"data": a, "put_files_in": where[a].where} for a in table.data if not where[a].present]


@dataclass(frozen=True)
class Cell:
    """The jobs behind one row: the model's and those of each baseline, one a seed."""

    data: str
    visibility: str
    variant: str
    configuration: str  # the file its settings come from
    model: list[Job]
    baselines: dict[str, list[Job]]

    @property
    def jobs(self) -> list[Job]:
        """All of them."""
        return [*self.model, *(job for jobs in self.baselines.values() for job in jobs)]


def make_rows(table: Table, cell: Cell, records: dict[str, Record]) -> list[dict[str, Any]]:
    """Our figures of one data set, visibility and variant beside the published ones, for each setting of the table."""
    return [make_row(table, cell, records, setting) for setting in table.settings]


def make_row(table: Table, cell: Cell, records: dict[str, Record], setting: str) -> dict[str, Any]:
    """The same for one setting."""
    is_ablation = table.name == "ablation"
    column = cell.variant if is_ablation else PAPER
    other, segment = table_of(table.name, setting), table.settings[setting]
    published = {metric: paper_figure(other, metric, cell.data, column) for metric in table.metrics}
    peers = {metric: best_peer(other, metric, cell.data) for metric in table.metrics}
    return {
        "data": cell.data,
        "visibility": cell.visibility,
        "setting": setting,
        "variant": cell.variant,
        "shuffled": cell.jobs[0].shuffled,
        "configuration": cell.configuration,
        "seeds": len(cell.model),
        "stateless": sum(is_stateless(records[job.key]) for job in cell.model),
        "ours": _figures(table, segment, cell.model, records),
        "paper": _present(published),
        "best_peer": None if is_ablation else _present(peers),
        "peers_alike": {} if is_ablation else peers_alike(other, table.metrics, cell.data, cell.visibility),
        "baselines": {name: _figures(table, segment, jobs, records) for name, jobs in cell.baselines.items()},
        "jobs": [job.key for job in cell.jobs],
    }


def is_stateless(record: Record) -> bool:
    """Whether the weights of a model's record are those of the warm head, to which states are nothing."""
    return bool(record["training"]["best_epoch"] == WARM_HEAD)


def _figures(table: Table, segment: str, jobs: list[Job], records: dict[str, Record]) -> dict[str, Any]:
    found = [records[job.key]["metrics"].get(segment, {}) for job in jobs]
    columns = {name: [figures[name] for figures in found if name in figures] for name in table.metrics}
    if "mrr" in columns:  # a fraction in the records, per cent in the tables
        columns["mrr"] = [100 * value for value in columns["mrr"]]
    return {name: summary(values) for name, values in columns.items() if values}


def _present(cells: dict[str, Any]) -> dict[str, Any] | None:
    return {name: value for name, value in cells.items() if value is not None} or None


def add_changes(table: Table, rows: list[dict[str, Any]]) -> None:
    """For each removal: what it changes here and in the paper, whether it counts, and whether both point the same way.

    A comparison in which a side holds runs without states is no evidence about them, unless to do without is the very
    thing compared.
    """
    if len(table.variants) == 1:
        return
    base = {(row["data"], row["visibility"]): row for row in rows if row["variant"] == table.yardstick}
    for row in rows:
        core = base.get((row["data"], row["visibility"]))
        if core is None or row is core or "ap" not in row["ours"]:
            continue
        by_design = table.variants[row["variant"]].get("train.epochs") == 0
        counts = not (core["stateless"] or (row["stateless"] and not by_design))
        row["change"] = {"ours": row["ours"]["ap"]["mean"] - core["ours"]["ap"]["mean"], "counts": counts}
        if table.name == "ablation" and row["paper"] and core["paper"]:
            row["change"]["paper"] = row["paper"]["ap"]["mean"] - core["paper"]["ap"]["mean"]
            if counts:
                row["change"]["same_direction"] = row["change"]["ours"] * row["change"]["paper"] > 0
