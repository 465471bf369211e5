"""Ceilings of a table's rows: from the cards of the results, or computed again, which takes no training.

Results that were stored before there were ceilings are read as they are; `python scripts/ceilings.py` adds theirs.
"""

from __future__ import annotations

import json
from functools import lru_cache
from pathlib import Path
from typing import Any

from tsnn.data.question import Question
from tsnn.errors import InputError
from tsnn.evaluation.evaluate import make_questions
from tsnn.evaluation.questions import Figures
from tsnn.files import write_text
from tsnn.study.jobs import MODEL, Job, study_split
from tsnn.study.store import Record, ResultStore
from tsnn.study.tables import TABLES, Cell, Table, make_row
from tsnn.types import Visibility

Row = dict[str, Any]


def add_ceilings(table: Table, rows: list[Row], records: dict[str, Record]) -> None:
    """Put `ceiling` into every row: the card of its first result has it, or it is computed now."""
    for row in rows:
        segment = table.settings[row["setting"]]
        known = records[row["jobs"][0]]["card"].get("ceilings") or computed(table, row)
        of = known.get(segment, {})
        row["ceiling"] = {m: 100 * of[m] if m == "mrr" else of[m] for m in table.metrics if m in of}


def computed(table: Table, row: Row) -> dict[str, Figures]:
    """The ceilings of what a row was asked."""
    return _ceilings(row["data"], row["shuffled"], row["visibility"], table.negatives)


@lru_cache(maxsize=64)
def _ceilings(data: str, shuffled: bool, visibility: str, negatives: str | None) -> dict[str, Figures]:
    question = Question(Visibility.parse(visibility), negatives=negatives)
    return make_questions(study_split(data, shuffled), question).ceilings


def stored_ceiling(row: Row, metric: str) -> float | None:
    """A row's ceiling as records hold figures, where it has one."""
    value = (row.get("ceiling") or {}).get(metric)
    return None if value is None else value / 100 if metric == "mrr" else value


def refresh(folder: Path) -> dict[str, list[str]]:
    """Bring stored rows up to date without any run: published figures, and ceilings where the data are here.

    Returns, for each table, the data sets that are not here, whose rows keep the ceilings that they have.
    """
    records, absent = ResultStore(folder).load(), {}
    for name, table in TABLES.items():
        path = folder / f"{name}.json"
        if not path.is_file():
            continue
        stored = json.loads(path.read_text())
        missing: list[str] = []
        for row in stored["rows"]:
            row |= make_row(table, cell_of(row, records), records, row["setting"])
            try:
                add_ceilings(table, [row], records)
            except InputError:
                missing.append(row["data"])
        write_text(path, json.dumps(stored, indent=1) + "\n")
        absent[name] = sorted(set(missing))
    return absent


def cell_of(row: Row, records: dict[str, Record]) -> Cell:
    """The jobs behind a stored row."""
    jobs = [Job(**records[key]["job"]) for key in row["jobs"]]
    of = {scorer: [job for job in jobs if job.scorer == scorer] for scorer in (MODEL, *row["baselines"])}
    return Cell(row["data"], row["visibility"], row["variant"], row["configuration"], of.pop(MODEL), of)
