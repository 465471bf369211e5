"""The two walks: every hop is there, no file comes twice, and a running program takes them in the order of the page."""

from __future__ import annotations

import ast
import re
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from tests.serve.runs import CLOCK, make_small_run
from tsnn.cli.main import app
from tsnn.config import Config
from tsnn.data.table import read_table
from tsnn.model.tsnn import TSNN, StreamShape
from tsnn.plan.planner import mean_gap
from tsnn.training.run import save_run

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "tsnn"
PAGE = (ROOT / "docs" / "walk.md").read_text()


class Hop(NamedTuple):
    file: str
    names: list[str]


def hops(section: str) -> list[Hop]:
    """The numbered lines of a section: a file, and the names in it."""
    found = re.findall(r"^(\d+)\. `(\S+\.py)` ((?:`[\w.]+`(?:, )?)+):", section, flags=re.MULTILINE)
    assert [int(number) for number, _, _ in found] == list(range(1, len(found) + 1))
    return [Hop(file, re.findall(r"`(.*?)`", names)) for _, file, names in found]


WALKS = [hops(section) for section in PAGE.split("\n## ")[1:]]
CSV, LIVE = WALKS


def definitions(tree: ast.AST, outer: str = "") -> Iterator[tuple[str, ast.AST]]:
    """Every function and class of a module by its qualified name, inner ones too."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield outer + node.name, node
            yield from definitions(node, f"{outer}{node.name}.")


def is_called_from_python(hop: Hop) -> bool:
    """Whether a profiler sees the hop: not a class, nor anything that is compiled."""
    node = dict(definitions(ast.parse((SOURCE / hop.file).read_text())))[hop.names[0]]
    if isinstance(node, ast.ClassDef):
        return False
    return not {"kernel", "inlined"} & {getattr(getattr(d, "func", None), "id", "") for d in node.decorator_list}


@pytest.mark.parametrize("walk", WALKS, ids=["csv", "live"])
def test_every_hop_is_there_and_none_goes_back(walk):
    assert len(walk) > 10
    for hop in walk:
        defined = dict(definitions(ast.parse((SOURCE / hop.file).read_text())))
        assert set(hop.names) <= set(defined), hop
    assert len({hop.file for hop in walk}) == len(walk)


def test_every_file_that_the_page_names_is_there():
    named = set(re.findall(r"`(\w+/[\w/]+\.py)`", PAGE))
    assert [file for file in named if not (SOURCE / file).is_file()] == []


class Trace:
    """What is called, in the order of first calls, in this thread and all that begin meanwhile."""

    def __init__(self) -> None:
        self.called: dict[tuple[str, str], None] = {}
        self.running = False

    def __call__(self, frame: Any, event: str, _: object) -> None:
        code: CodeType = frame.f_code
        if self.running and event == "call" and code.co_filename.startswith(str(SOURCE)):
            file = Path(code.co_filename).relative_to(SOURCE).as_posix()
            self.called.setdefault((file, code.co_qualname.replace("<locals>.", "")))

    @contextmanager
    def listening(self) -> Iterator[None]:
        before = sys.getprofile()
        sys.setprofile(self)
        threading.setprofile(self)
        try:
            yield
        finally:
            sys.setprofile(before)
            threading.setprofile(None)

    def check(self, walk: list[Hop]) -> None:
        seen = [hop for hop in walk if is_called_from_python(hop)]
        assert [(hop.file, name) for hop in seen for name in hop.names if (hop.file, name) not in self.called] == []
        order = list(self.called)
        assert sorted(seen, key=lambda hop: order.index((hop.file, hop.names[0]))) == seen


@pytest.mark.slow
def test_an_event_of_a_table_goes_this_way(tmp_path):
    rng = np.random.default_rng(0)
    table, run, trace = tmp_path / "letters.csv", tmp_path / "run", Trace()
    rows = [f"w{a},r{b},{t}" for t, (a, b) in enumerate(rng.integers(0, 8, (60, 2)))]
    table.write_text("\n".join(["src,dst,t", *rows]))
    stream = read_table(table)
    torch.manual_seed(0)
    model = TSNN(Config.build(overrides={"model.stalk_dim": 8}), StreamShape(0, 0, 0, mean_gap(stream.t)))
    run.mkdir()
    save_run(run, model.eval(), stream, {"metrics": {}})
    with trace.listening():
        trace.running = True
        result = CliRunner().invoke(app, ["evaluate", str(run), str(table)])
    assert result.exit_code == 0, result.output
    trace.check(CSV)


@pytest.mark.slow
def test_a_live_event_goes_this_way(tmp_path):
    testclient = pytest.importorskip(
        "starlette.testclient", reason="needs fastapi, absent here; it is in the extra serve"
    )
    from tsnn.serve.http import build_application
    from tsnn.serve.service import Service

    trace = Trace()
    with trace.listening():
        service = Service(make_small_run(tmp_path / "run"))
        client = testclient.TestClient(build_application(service), base_url="http://localhost")
        trace.running = True
        event = {"src": "node 0", "dst": "eve", "t": CLOCK + 1, "msg": [0.5, 1.0], "edge_type": 1}
        assert client.post("/events", json=event).json()["applied"] == 1
        answer = client.get("/recommend", params={"src": "node 0", "edge_type": 1, "k": 50}).json()
        trace.running = False
        service.close()
    assert "eve" in [ranked["dst"] for ranked in answer["destinations"]]
    trace.check(LIVE)
