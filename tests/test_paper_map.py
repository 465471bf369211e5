"""The paper map is complete, current, and says what the code says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from scripts import paper_map

ROOT = Path(__file__).resolve().parents[1]


def _tree(root: Path, src: str, test: str) -> Path:
    for folder, name, text in (("src/tsnn", "part.py", src), ("tests", "test_part.py", test)):
        (root / folder).mkdir(parents=True)
        (root / folder / name).write_text(text)
    return root


def test_every_required_label_has_a_function_and_a_test() -> None:
    assert paper_map.PaperMap.scan(ROOT).problems() == []


def test_the_page_is_current() -> None:
    assert (ROOT / paper_map.PAGE).read_text() == paper_map.PaperMap.scan(ROOT).page()


def test_a_citation_belongs_to_the_innermost_function_around_it(tmp_path: Path) -> None:
    # The labels are put together here so that this file cites nothing.
    label = "eq" + ":message"
    src = f"# {label}\nclass A:\n    def f(self):\n        '{label}'\n    def g(self):\n        pass  # {label}\n"
    found = paper_map.PaperMap.scan(_tree(tmp_path, src, "")).functions(label)
    assert found == ["part.py: A.f", "part.py: A.g"]


@pytest.mark.parametrize(
    ("test", "covered"),
    [("def test_it():\n    # {0}\n    pass", True), ("def oracle():\n    '{0}'", False), ("# {0}", False)],
)
def test_only_a_test_covers_a_label(tmp_path: Path, test: str, covered: bool) -> None:
    label = "eq" + ":message"
    tree = _tree(tmp_path, f"def f():\n    '{label}'\n", test.format(label) + "\n")
    assert bool(paper_map.PaperMap.scan(tree).checks(label)) is covered


def test_in_cuda_a_comment_belongs_to_the_function_below_it_or_around_it() -> None:
    label = "eq" + ":message"
    source = f"// {label}\n\n// {label}\ntemplate <int N>\n__device__ int f(int x) {{\n  return x;  // {label}\n}}\n"
    spans = list(paper_map.cuda_scopes(source))
    assert [(scope.name, scope.first, scope.last) for scope in spans] == [("f", 3, 7)]
    assert list(paper_map.cuda_cited_lines(source)) == [(label, 1), (label, 3), (label, 6)]


@pytest.mark.parametrize("name", ["frame_update", "message", "gru_update", "diffusion_local"])
def test_the_kernels_of_the_gpu_are_on_the_map(name: str) -> None:
    """Every step of the recurrence is found in each of its executions."""
    places = paper_map.PaperMap.scan(ROOT).functions("eq" + f":{name}")
    assert any(place.startswith("engine/recurrence.cu: ") for place in places)
    assert any(place.startswith("engine/forward.py: ") for place in places)


def test_a_misspelt_label_is_a_problem(tmp_path: Path) -> None:
    label = "eq" + ":mesage"
    problems = paper_map.PaperMap.scan(_tree(tmp_path, f"def f():\n    '{label}'\n", "")).problems()
    assert f"{label} is cited but is no label of the paper." in problems


def test_every_deviation_cited_in_the_code_is_explained() -> None:
    cited = {n for path in (ROOT / "src").rglob("*.py") for n in re.findall(r"\bD-\d\d\b", path.read_text())}
    explained = set(re.findall(r"^## (D-\d\d)\b", (ROOT / "docs/deviations.md").read_text(), flags=re.MULTILINE))
    assert cited <= explained
