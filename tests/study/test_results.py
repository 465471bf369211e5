"""docs/results.md: current, and true to the rows it is made from."""

from __future__ import annotations

import json
import re
import shutil
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from tsnn.config import LATER, Config
from tsnn.errors import ConfigError
from tsnn.study.grids import NOT_COUNTED, latex_document
from tsnn.study.jobs import Job
from tsnn.study.overview import ASKS, Ask, distance_figure, first_screen, table
from tsnn.study.published import best_peer, paper_figure
from tsnn.study.reproduce import write_formats
from tsnn.study.results import PAGE, keys_in_use, render, render_tables, stored_rows
from tsnn.study.store import ResultStore
from tsnn.study.tables import TABLES, Cell, add_changes, make_row

ROOT = Path(__file__).resolve().parents[2]


def row(data: str, mean: float, features: float, **changes):
    figure = {"mean": mean, "std": 0.1, "values": [mean]}
    return {
        "data": data,
        "visibility": "arrival",
        "setting": "transductive",
        "variant": "full",
        "kind": "",
        "seeds": 5,
        "stateless": 0,
        "ours": {"ap": figure},
        "paper": {"ap": paper_figure("dgb", "ap", data)},
        "best_peer": {"ap": best_peer("dgb", "ap", data)},
        "peers_alike": {},
        "baselines": {"features": {"ap": {"mean": features, "std": None}}},
    } | changes


def write(folder: Path, table: str, rows: list) -> None:
    (folder / f"{table}.json").write_text(json.dumps({"table": table, "rows": rows}))


def text_of(folder: Path) -> str:
    """All that is written of a folder of results."""
    return "\n".join([render(folder), *render_tables(folder).values()])


def test_the_pages_are_current():
    """`python scripts/results.py` writes them."""
    assert (ROOT / PAGE).read_text() == render(ROOT / "results")
    pages = render_tables(ROOT / "results")
    assert {path.stem for path in (ROOT / "docs" / "results").glob("*.md")} == set(pages)
    for name, text in pages.items():
        assert (ROOT / "docs" / "results" / f"{name}.md").read_text() == text


def question(table: str, setting: str) -> Ask:
    return next(ask for ask in ASKS if (ask.table, ask.setting) == (table, setting))


def strict_rows() -> list:
    """Two sets with a ceiling; on one ours is first, on the other second to a peer."""
    peers = {"TGAT": {"ap": {"mean": 96.0}}, "DyGFormer": {"ap": {"mean": 90.0, "std": 1.0}}}
    common = {"visibility": "strict", "peers_alike": peers, "ceiling": {"ap": 99.5}}
    return [row("dgb:uci", 97.26, 91.0, **common), row("dgb:enron", 94.0, 95.0, **common)]


def test_a_question_is_a_small_table_with_ours_first_and_the_best_marked():
    head, _, enron, uci = table(sorted(strict_rows(), key=lambda row: row["data"]), "ap")
    assert head == "| data | ours | ceiling | features | TGAT | DyGFormer |"
    assert uci == "| uci | **97.26 ± 0.10** | 99.50 | 91.00 | *96.00* | 90.00 |"
    assert enron == "| enron | 94.00 ± 0.10 | 99.50 | *95.00* | **96.00** | 90.00 |"
    without = {**strict_rows()[0], "ours": {}, "seeds": 0}
    assert table([without], "ap")[2] == "| uci | not run | 99.50 | *91.00* | **96.00** | 90.00 |"


def test_every_sentence_is_counted_from_the_rows(tmp_path):
    write(tmp_path, "dgb", strict_rows())
    lines = "\n".join(first_screen(stored_rows(tmp_path)))
    assert "ours is first of all that see the same on 1 of 2 sets (uci); not on enron (place 3 of 4)." in lines
    assert "**Historical negatives**: ours has not been run yet" in lines
    assert "the ceiling is below 100: AP 99.50 on every set with random ones." in lines
    assert "Published above" not in lines
    low = {**strict_rows()[0], "data": "dgb:CanParl", "ceiling": {"ap": 94.78}}
    fast = row("dgb:mooc", 90.0, 80.0, ceiling={"ap": 98.93}, stateless=2)
    slow = {**fast, "visibility": "strict", "ours": {"ap": {"mean": 80.5, "std": None}}, "peers_alike": {}}
    write(tmp_path, "dgb", [*strict_rows(), low, fast, slow])
    lines = "\n".join(first_screen(stored_rows(tmp_path)))
    assert "AP 94.78 (CanParl) to 99.50 with random ones." in lines
    assert "DyGFormer on CanParl (97.36, ceiling 94.78 under `strict`)" in lines
    assert "TSNN on mooc (99.36, ceiling 98.93 under `arrival`)." in lines
    assert "`arrival` against `strict`: mooc 9.5." in lines
    assert "Of the 20 runs of ours with random negatives, validation kept 2 without states." in lines
    blind = {**strict_rows()[0], "baselines": {"source-recency": {"ap": {"mean": 92.0}}}}
    write(tmp_path, "dgb-historical", [blind])
    assert "beside published methods: uci 92.0, above 1 of 2." in "\n".join(first_screen(stored_rows(tmp_path)))


def test_the_page_has_no_cell_with_four_numbers():
    for line in (ROOT / PAGE).read_text().splitlines():
        if line.startswith("| "):
            assert all(len(re.findall(r"\d+\.\d+", cell)) <= 2 for cell in line.split("|")), line


def test_the_first_screen_is_a_figure_and_ten_lines():
    text = (ROOT / PAGE).read_text()
    first = text[: text.index("Made from the JSON")]
    assert first.index("![") < first.index("\n- ")
    assert first.count("\n- ") <= 10
    assert len(distance_figure(stored_rows(ROOT / "results")).axes) == 3


def test_every_row_says_ours_the_peers_and_the_ceiling():
    stored = stored_rows(ROOT / "results")
    for ask in ASKS:
        for own in ask.rows(stored):
            assert own["ceiling"], (ask, own["data"])
            for metric, reach in own["ceiling"].items():
                if metric in own["ours"]:
                    assert own["ours"][metric]["mean"] < reach + 0.05, "nobody is above what can be had"
    assert question("dgb", "transductive").rows(stored)


def test_the_tables_are_current_in_every_format(tmp_path):
    """`python scripts/results.py` writes them."""
    shutil.copytree(ROOT / "results" / "jobs", tmp_path / "jobs")
    for name, rows in stored_rows(ROOT / "results").items():
        write_formats(name, rows, tmp_path)
        for ending in ("md", "tex", "csv"):
            assert (tmp_path / f"{name}.{ending}").read_text() == (ROOT / "results" / f"{name}.{ending}").read_text()


def test_every_figure_of_every_table_can_be_made_again_from_the_records():
    records = ResultStore(ROOT / "results").load()
    for name, rows in stored_rows(ROOT / "results").items():
        for row in rows:
            jobs = [Job(**records[key]["job"]) for key in row["jobs"]]
            of = {scorer: [job for job in jobs if job.scorer == scorer] for scorer in ("tsnn", *row["baselines"])}
            cell = Cell(row["data"], row["visibility"], row["variant"], row["configuration"], of.pop("tsnn"), of)
            made = make_row(TABLES[name], cell, records, row["setting"])
            assert {part: row[part] for part in made} == made


def test_no_stored_run_is_run_again_for_a_setting_that_came_later():
    """Else `tsnn reproduce dgb --out results` would train everything anew."""
    for key, record in ResultStore(ROOT / "results").load().items():
        job = Job(**record["job"])
        planned_today = replace(job, config=Config.parse(job.config).to_toml() if job.config else "")
        assert planned_today.key == key


def test_a_setting_that_came_later_tells_runs_apart_where_it_is_in_use():
    words = ("all", "full", "keyed", "kept", "log", "bounded")
    for dotted, before in LATER.items():
        for other in words if isinstance(before, str) else (not before if isinstance(before, bool) else before + 0.5,):
            with suppress(ConfigError):  # a word of another setting
                used, before_it = (Config.build(overrides={dotted: value}).identity() for value in (other, before))
                assert used != before_it, dotted
                break
        else:
            pytest.fail(f"none of {words} is a value of {dotted}")


def test_only_records_that_a_table_refers_to_are_kept():
    """`python scripts/results.py` drops the others."""
    assert ResultStore(ROOT / "results").load().keys() == keys_in_use(ROOT / "results")


def test_the_page_says_what_agrees_and_what_does_not(tmp_path):
    write(tmp_path, "dgb", [row("dgb:uci", 97.26, 96.0), row("dgb:enron", 94.0, 95.0)])
    page = text_of(tmp_path)
    assert "| dgb:uci | 5 | 97.26 ± 0.10 | 97.06 ± 0.02 | +0.20 | TPNet 97.35 |" in page
    assert "at or above the paper's figure on 1 of 2: dgb:uci (+0.20); below on dgb:enron (-0.81)." in page
    assert "at or above the best peer's on 1 of 2: dgb:enron (+1.10); below on dgb:uci (-0.09)." in page
    assert "at or above `features` on 1 of 2: dgb:uci (+1.26); below on dgb:enron (-1.00)." in page


def test_a_shuffled_row_stands_beside_the_one_it_should_equal(tmp_path):
    rows = [row("dgb:uci", 97.26, 96.0), row("dgb:uci", 97.2, 96.0, kind="shuffled")]
    write(tmp_path, "dgb", rows)
    assert "shuffled inside their timestamps: 97.20 ± 0.10 against 97.26 ± 0.10 AP" in text_of(tmp_path)


def test_ranks_appear_with_enough_data_sets(tmp_path):
    names = ["uci", "enron", "mooc", "CanParl"]
    write(tmp_path, "dgb", [row(f"dgb:{name}", 99.9, 90.0) for name in names])
    assert "average ranks over 4 data sets: ours 1.00, TSNN" in text_of(tmp_path)


def test_removals_are_counted(tmp_path):
    core = row("dgb:uci", 95.0, 0.0, variant="core", baselines={}, best_peer=None)
    worse = {**core, "variant": "no-residual", "change": {"ours": -3.0, "paper": -18.79, "same_direction": True}}
    better = {**core, "variant": "no-smooth", "change": {"ours": 0.5, "paper": -0.27, "same_direction": False}}
    write(tmp_path, "ablation", [core, worse, better])
    page = text_of(tmp_path)
    assert "1 of 2 removals lower AP; 1 of 2 point the way the paper's do." in page
    assert "dgb:uci: no-residual -3.00, no-smooth +0.50." in page


def test_a_row_says_how_many_of_its_runs_are_without_states(tmp_path):
    write(tmp_path, "dgb", [row("dgb:uci", 97.26, 96.0, stateless=2), row("dgb:enron", 94.0, 95.0)])
    page = text_of(tmp_path)
    assert "| dgb:uci | 5 (2 without states) | 97.26" in page
    assert "| dgb:enron | 5 | 94.00" in page


def test_comparisons_with_runs_without_states_are_marked_and_left_out(tmp_path):
    core = row("dgb:uci", 95.0, 0.0, variant="core", baselines={}, best_peer=None)
    told = {"ours": -3.0, "paper": -18.79, "same_direction": True, "counts": True}
    counted = {**core, "variant": "no-residual", "change": told}
    marked = {**core, "variant": "no-smooth", "stateless": 1, "change": {"ours": -0.5, "paper": -0.27, "counts": False}}
    write(tmp_path, "ablation", [core, counted, marked])
    page = text_of(tmp_path)
    assert "| dgb:uci | no-smooth | 5 (1 without states) | 95.00 ± 0.10 | (-0.50) |" in page
    assert "| dgb:uci | no-residual | 5 | 95.00 ± 0.10 | -3.00 |" in page
    assert page.count(NOT_COUNTED) == 1
    assert (
        "1 of 1 removals lower AP; 1 of 1 point the way the paper's do. Not counted, for runs without states: 1" in page
    )
    assert "dgb:uci: no-residual -3.00." in page
    assert NOT_COUNTED in latex_document("ablation", [core, counted, marked])
    assert NOT_COUNTED not in latex_document("ablation", [core, counted])
    write(tmp_path, "ablation", [core, marked])
    assert "- `arrival`: none counts: each of 1 has runs without states on a side." in text_of(tmp_path)


@pytest.mark.parametrize(
    ("core", "removal", "variant", "expected"),
    [
        *((0, 0, "no-transport", True), (1, 0, "no-transport", False), (0, 1, "no-transport", False)),
        *((0, 3, "no-state", True), (1, 3, "no-state", False)),
    ],
)
def test_what_counts_as_evidence_about_states(core, removal, variant, expected):
    """A side without states says nothing about them, unless to do without is the very thing compared."""
    rows = [row("dgb:uci", 95.0, 0.0, stateless=core), row("dgb:uci", 94.0, 0.0, variant=variant, stateless=removal)]
    add_changes(TABLES["sheaf"], rows)
    assert rows[1]["change"] == {"ours": -1.0, "counts": expected}


def test_no_comparison_that_counts_rests_on_a_run_without_states():
    """In the committed tables, by the records themselves."""
    records = ResultStore(ROOT / "results").load()
    for name in ("ablation", "sheaf"):
        rows = stored_rows(ROOT / "results")[name]
        stateless = {
            (row["data"], row["visibility"], row["variant"])
            for row in rows
            for key in row["jobs"]
            if (records[key]["training"] or {}).get("best_epoch") == -1
        }
        assert stateless, "else this shows nothing"
        for row in (row for row in rows if row.get("change", {}).get("counts")):
            sides = {TABLES[name].yardstick, row["variant"]} - {"no-state"}
            assert not {(row["data"], row["visibility"], side) for side in sides} & stateless
        assert all(row["change"]["counts"] for row in rows if "same_direction" in row.get("change", {}))


def test_notes_are_put_under_their_table(tmp_path):
    write(tmp_path, "dgb", [row("dgb:uci", 97.26, 96.0)])
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "dgb.md").write_text("Because of this and that.\n")
    assert text_of(tmp_path).endswith("Because of this and that.\n")


def test_an_empty_folder_says_so(tmp_path):
    assert "Nothing is stored yet" in text_of(tmp_path)


@pytest.mark.parametrize("visibility", ["strict", "batch:200"])
def test_peers_that_see_the_same_have_their_column(tmp_path, visibility):
    alike = {"TGN": {"ap": {"mean": 92.34, "std": 1.04}}, "NAT": {"ap": {"mean": 93.4, "std": 0.26}}}
    write(tmp_path, "dgb", [row("dgb:uci", 97.26, 96.0, visibility=visibility, peers_alike=alike)])
    page = text_of(tmp_path)
    assert "NAT 93.40" in page
    assert ("| TGN | NAT | PINT |" in page) == (visibility == "batch:200")
