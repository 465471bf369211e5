"""docs/results.md and the pages behind it, written from the stored rows alone."""

from __future__ import annotations

import json
from pathlib import Path

from tsnn.files import write_text
from tsnn.study.figures import save_svg
from tsnn.study.grids import Row
from tsnn.study.overview import ASKS, distance_figure, first_screen, question_lines
from tsnn.study.reproduce import write_formats
from tsnn.study.sections import HEADINGS, section
from tsnn.study.store import ResultStore
from tsnn.study.tables import TABLES

PAGE = Path("docs") / "results.md"
OVERVIEW = "results-overview.svg"
INTRODUCTION = f"""# Results

Points of average precision that are missing to [the ceiling](how-to/evaluation.md#the-ceiling), what a scorer gets
that knows every event: further left is better. A scored event sees earlier times only (`strict`), as with those that it
is compared with.

![Distance to the ceiling](images/{OVERVIEW})
"""
READING = """Made from the JSON files in `results/` by `python scripts/results.py`; a test keeps it up to date. Per
cent, ours mean ± standard deviation (n - 1) over seeds; in bold the best and in italics the second of a line, the
ceiling apart. Peers are published figures, with their leaks closed where that was done (arXiv 2610.04869). Other
visibilities, the paper's own figures, tests of significance and what we make of it all:
"""


def render(folder: Path) -> str:
    """The page for a folder of results."""
    stored = stored_rows(folder)
    if not stored:
        return f"{INTRODUCTION}\nNothing is stored yet; `tsnn reproduce dgb --out results` stores a table.\n"
    lines = [INTRODUCTION, *first_screen(stored), "", READING]
    lines += [f"- [{HEADINGS[name]}](results/{name}.md)" for name in stored]
    lines += ["", "Every job's record, with its protocol card and configuration, stands in `results/jobs/`.", ""]
    for ask in ASKS:
        if rows := ask.rows(stored):
            lines += question_lines(ask, rows)
    return "\n".join(lines).rstrip() + "\n"


def render_tables(folder: Path) -> dict[str, str]:
    """The page of each table, by its name."""
    stored = stored_rows(folder)
    return {name: "\n".join(section(name, rows, folder)).rstrip() + "\n" for name, rows in stored.items()}


def write_page(root: Path) -> Path:
    """Write the pages of a project and its tables in every format, and drop records that no table refers to."""
    folder, docs = root / "results", root / PAGE.parent
    stored = stored_rows(folder)
    for name, rows in stored.items():
        write_formats(name, rows, folder)
    for drawn in folder.glob("*.svg"):
        write_text(docs / "images" / f"results-{drawn.name}", drawn.read_text())
    save_svg(distance_figure(stored), docs / "images" / OVERVIEW)
    write_text(root / PAGE, render(folder))
    for name, text in render_tables(folder).items():
        (docs / "results").mkdir(exist_ok=True)
        write_text(docs / "results" / f"{name}.md", text)
    ResultStore(folder).keep_only(keys_in_use(folder))
    return root / PAGE


def keys_in_use(folder: Path) -> set[str]:
    """The jobs that the stored rows are made from."""
    return {key for rows in stored_rows(folder).values() for row in rows for key in row["jobs"]}


def stored_rows(folder: Path) -> dict[str, list[Row]]:
    """The rows of each table that a folder of results holds."""
    paths = {name: folder / f"{name}.json" for name in TABLES}
    return {name: json.loads(path.read_text())["rows"] for name, path in paths.items() if path.is_file()}
