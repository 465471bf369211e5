"""From the name of a table to its rows: plan the jobs, run those not yet stored, and set ours beside the paper's."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from tsnn.config import CONFIGS, Config
from tsnn.errors import ConfigError, RunError
from tsnn.evaluation.baselines import ROSTER
from tsnn.evaluation.formats import CEILING, COLUMNS, csv_text, tidy
from tsnn.evaluation.suite import project_root
from tsnn.files import write_text
from tsnn.study.ceilings import add_ceilings, stored_ceiling
from tsnn.study.figures import save_svg, table_figure
from tsnn.study.grids import Row, document, latex_document
from tsnn.study.jobs import MODEL, Job, Outcome, attempt, identity_of, study_split
from tsnn.study.populations import ON_GPU, attempt_populations
from tsnn.study.published import NEW_NODES, published
from tsnn.study.store import Record, ResultStore
from tsnn.study.tables import TABLES, Cell, Overrides, Table, add_changes, addresses, is_stateless, make_rows
from tsnn.study.workers import run_tasks
from tsnn.types import Progress, Visibility, unwatched

COMMITTED = Path("results")  # seen from the project's root
CSV_COLUMNS = ("variant", "kind", *COLUMNS[1:])  # a study has variants where a folder has runs


@dataclass(frozen=True)
class Study:
    """What a caller asks for besides the table's name; None leaves the choice to the table."""

    data: Sequence[str] | None = None
    seeds: int | None = None
    visibilities: Sequence[str] | None = None
    shuffled: bool = False
    tuned: bool = True
    overrides: Overrides = field(default_factory=dict)
    population: int | None = None  # so many runs at once on a GPU

    @property
    def kind(self) -> str:
        """A mark for rows made with other settings than the table's: they never replace the table's own rows."""
        marks = [("shuffled", self.shuffled), ("untuned", not self.tuned), ("changed", bool(self.overrides))]
        marks.append(("gpu", self.population is not None))
        return " ".join(name for name, is_set in marks if is_set)


def reproduce(
    name: str,
    out: Path,
    study: Study,
    *,
    workers: int | None = None,
    ray: str | None = None,
    progress: Progress = unwatched,
) -> dict[str, Any]:
    """Run what is missing of a table, store every result as it comes, and return the rows asked for."""
    if name not in TABLES:
        raise ConfigError(f"there is no table {name!r}; use one of {', '.join(TABLES)}.")
    table = TABLES[name]
    present, absent = addresses(table, study.data)
    if not present:
        places = "; ".join(f"{entry['data']} into {entry['put_files_in']}" for entry in absent)
        raise ConfigError(f"no data of table {name} is here; put the files of {places}.")
    cells = plan(table, present, study)
    jobs = [job for cell in cells for job in cell.jobs]
    outcomes = partial(_outcomes, population=study.population, workers=workers, ray=ray)
    records = run_missing(jobs, ResultStore(out), name, outcomes, progress)
    rows = [{**row, "kind": study.kind} for cell in cells for row in make_rows(table, cell, records)]
    add_changes(table, rows)
    add_ceilings(table, rows, records)
    committed = compare_committed(table, cells, records, out)
    return {"table": name, "rows": rows, "absent": absent, "committed": committed}


def plan(table: Table, data: Sequence[str], study: Study) -> list[Cell]:
    """One cell per data set, visibility and variant; every address is loaded, so a bad one stops before any work."""
    if study.seeds is not None and study.seeds < 0:
        raise ConfigError(f"--seeds {study.seeds} is no number of runs; give 1 or more, or 0 for the baselines alone.")
    seen = [str(Visibility.parse(text)) for text in study.visibilities or table.visibilities]
    cells = []
    for address in data:
        identity = identity_of(study_split(address, study.shuffled))
        cells += [_cell(table, study, address, identity, v, name) for v in seen for name in table.variants]
    return cells


def _cell(table: Table, study: Study, data: str, identity: str, visibility: str, variant: str) -> Cell:
    def job(scorer: str, seed: int, config: str = "") -> Job:
        of_baseline = "train" if config else str(changes.get("train.history", "train"))
        return Job(data, identity, visibility, scorer, seed, config, study.shuffled, table.negatives, of_baseline)

    seeds = range(table.seeds if study.seeds is None else study.seeds)
    path = config_path(data, visibility) if study.tuned else None
    changes = {**study.overrides, **table.variants[variant], **(ON_GPU if study.population else {})}
    changes["train.visibility"] = visibility
    configs = [Config.build(path, {**changes, "train.seed": seed}) for seed in seeds]
    baselines = table.baselines if variant == table.yardstick else ()
    return Cell(
        data,
        visibility,
        variant,
        path.name if path else "defaults",
        [job(MODEL, seed, config.to_toml()) for seed, config in zip(seeds, configs, strict=True)],
        {name: [job(name, seed) for seed in (seeds or [0] if ROSTER[name].learns else [0])] for name in baselines},
    )


def config_path(data: str, visibility: str, folder: Path = CONFIGS) -> Path | None:
    """The configuration of a data set: `uci.arrival.toml` under that visibility, else `uci.toml`, else none."""
    name = data.rpartition(":")[2]
    paths = (folder / f"{name}.{visibility.partition(':')[0]}.toml", folder / f"{name}.toml")
    return next((path for path in paths if path.is_file()), None)


def run_missing(
    jobs: list[Job], store: ResultStore, table: str, run: Callable[[list[Job]], Iterable[Outcome]], progress: Progress
) -> dict[str, Record]:
    """The records of all jobs by key; those not stored yet are run, the model's first because they take longest."""
    wanted = {job.key: job for job in jobs}
    records = {key: record for key, record in store.load().items() if key in wanted}
    missing = sorted((job for key, job in wanted.items() if key not in records), key=lambda job: job.scorer != MODEL)
    progress(len(records), len(wanted))
    failed = []
    for outcome in run(missing):
        if outcome.record is None:
            failed.append(f"{outcome.job.data} {outcome.job.visibility} seed {outcome.job.seed}: {outcome.error}")
            continue
        store.save(table, outcome.record)
        records[outcome.job.key] = outcome.record
        progress(len(records), len(wanted))
    if failed:
        raise RunError(f"{len(failed)} of {len(missing)} jobs failed, the others are stored; the first: {failed[0]}")
    return records


def _outcomes(missing: list[Job], population: int | None, *, workers: int | None, ray: str | None) -> Iterator[Outcome]:
    """Outcomes as they finish. The model's jobs run on the GPU if populations are asked for, others in processes."""
    if population is not None:
        yield from attempt_populations([job for job in missing if job.scorer == MODEL], population)
        missing = [job for job in missing if job.scorer != MODEL]
    if missing:
        yield from run_tasks(attempt, missing, workers=workers, ray=ray)


def compare_committed(table: Table, cells: list[Cell], records: dict[str, Record], out: Path) -> dict[str, Any]:
    """How far the figures are from those stored with the project for the same jobs."""
    folder = project_root() / COMMITTED
    if folder.resolve() == out.resolve():
        return {"jobs": 0, "largest_difference": None}
    committed = ResultStore(folder).load()
    differences = []
    for key in {job.key for cell in cells for job in cell.jobs} & committed.keys():
        for segment in table.settings.values():
            ours, theirs = (found[key]["metrics"].get(segment, {}) for found in (records, committed))
            differences += [abs(ours[name] - theirs[name]) for name in table.metrics if name in ours]
    return {
        "jobs": len(differences) // len(table.metrics) // len(table.settings),
        "largest_difference": max(differences, default=None),
    }


def write_summary(result: dict[str, Any], out: Path) -> Path:
    """OUT/<table>.json and its other formats; new rows replace those of the same data, visibility, variant and kind."""
    name = result["table"]
    path = out / f"{name}.json"
    kept = json.loads(path.read_text())["rows"] if path.is_file() else []
    merged = {_place(row): row for row in [*kept, *result["rows"]]}
    rows = [merged[place] for place in sorted(merged)]
    out.mkdir(parents=True, exist_ok=True)
    write_text(path, json.dumps({"table": name, "label": published(name)["label"], "rows": rows}, indent=1) + "\n")
    write_formats(name, rows, out)
    return path


def write_formats(name: str, rows: list[Row], out: Path) -> None:
    """The stored rows as Markdown, LaTeX and SVG, and every figure behind them as CSV."""
    heading = f"{name} ({published(name)['label']})"
    write_text(out / f"{name}.md", document(heading, rows))
    write_text(out / f"{name}.tex", latex_document(heading, rows))
    write_text(out / f"{name}.csv", csv_text(_measured(rows, ResultStore(out).load(), TABLES[name]), CSV_COLUMNS))
    save_svg(table_figure(rows, heading), out / f"{name}.svg")


def _measured(rows: list[Row], records: dict[str, Record], table: Table) -> Iterator[dict[str, Any]]:
    """Every figure of the table's set and metrics that was measured here, one seed each."""
    for row in rows:
        for record in (records[key] for key in row["jobs"]):
            also = {"seed": record["job"]["seed"], "variant": row["variant"], "kind": row["kind"]}
            also["stateless"] = is_stateless(record) if record["training"] else None
            for line in tidy(record, **also):
                if line["set"] == table.settings[row["setting"]] and line["metric"] in table.metrics:
                    yield {**line, CEILING: stored_ceiling(row, line["metric"])}


def _place(row: dict[str, Any]) -> tuple[Any, ...]:
    same = (row["data"].lower(), row["data"], row["kind"], row["variant"])
    return row["visibility"], row["setting"] == NEW_NODES, *same
