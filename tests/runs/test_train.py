"""A run from Python has its report, like one from the command line."""

from __future__ import annotations

import csv
import json

import tsnn
from tsnn.evaluation.baselines import compared
from tsnn.evaluation.replay import Listener

DATA = "synthetic:roles:events=600,nodes=40"
TINY = tsnn.Config.build(overrides={"train.epochs": 1, "model.stalk_dim": 8, "model.hidden_dim": 8})


class Blocks(Listener):
    def __init__(self, asked):
        self.asked = asked
        self.heard = 0

    def hear(self, seen, own):
        self.heard += 1


def test_training_from_python_leaves_its_report_in_every_format(tmp_path):
    blocks: list[Blocks] = []

    def follow(scorer, questions):
        blocks.append(Blocks(questions.asked))
        return blocks

    run = tsnn.train(DATA, tmp_path / "run", TINY, follow=follow)
    assert blocks[0].heard > 0, "further listeners still hear"
    test_ap = run.metrics["metrics"]["test"]["ap"]
    page = (run.folder / "report.html").read_text()
    assert "<h2>Results by slice</h2>" in page
    assert f"{test_ap:.2f}" in page
    assert f"| tsnn | {test_ap:.2f} |" in (run.folder / "report.md").read_text()
    tex = (run.folder / "report.tex").read_text()
    assert tex.count(r"\begin{table}") == tex.count(r"\end{tabular}}") == len(run.metrics["metrics"])
    (found,) = json.loads((run.folder / "report.json").read_text())
    assert found["figures"]["tsnn"]["test"]["ap"] == {"mean": test_ap, "std": None, "values": [test_ap]}
    with (run.folder / "report.csv").open() as file:
        rows = list(csv.DictReader(file))
    scorers = {row["scorer"] for row in rows}
    assert len(scorers) == 1 + len(compared())
    assert {(row["visibility"], row["negatives"], row["negatives_seed"], row["seed"]) for row in rows} == {
        ("strict", "random", "0", "0")
    }
    own = {(row["set"], row["metric"]): float(row["value"]) for row in rows if row["scorer"] == "tsnn"}
    assert own == {(part, m): value for part, held in run.metrics["metrics"].items() for m, value in held.items()}
