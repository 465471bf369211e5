"""Write docs/paper-map.md: which function computes each labelled part of the paper, and which test holds it to that.

    python scripts/paper_map.py            write the page
    python scripts/paper_map.py --check    fail where the page is out of date or a label lacks a function or a test

A citation is a LaTeX label (`eq:message`) in a docstring, a comment or another string of src/tsnn or tests. It belongs
to the innermost function or class around it; one at module level belongs to nobody and does not count. In CUDA source
the comment right above a function belongs to it. In tests only what stands inside a test function or a test class
counts: the oracle and the helpers are not tests.
"""

from __future__ import annotations

import argparse
import ast
import io
import re
import sys
import tokenize
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = Path("docs/paper-map.md")

REQUIRED = {
    "Frames and transport": ("eq:householder_product", "eq:frame_update", "eq:sheaf_laplacian", "alg:transport"),
    "Score": (
        "eq:rel_frame_bias",
        "eq:sdist",
        "eq:dsq",
        "eq:sgeo",
        "eq:sres",
        "eq:score_features",
        "eq:edgebank_mixture",
        "alg:edgebank",
        "alg:nbrattn",
        "app:optional_score_features",
    ),
    "Update": ("alg:tsnn", "eq:time_encoding", "eq:message", "eq:gru_update", "app:inductive"),
    "Diffusion": ("eq:norm_sheaf_lap", "eq:diffusion_global", "eq:diffusion_local", "alg:diffuse"),
    "Training": (
        "alg:train",
        "eq:loss_ce",
        "eq:loss_geo",
        "eq:loss_bias",
        "eq:loss_smooth",
        "eq:loss_energy",
        "app:neg_sampling",
    ),
    "Statements": (
        "lem:low_rank",
        "lem:houshlip",
        "eq:smooth_lipschitz",
        "lem:flat_transport",
        "prop:carry_over",
        "prop:sync_equiv",
        "prop:psi_equiv",
        "prop:twl",
        "cor:spectral_equivalence",
        "cor:energy_descent",
        "thm:energy",
        "thm:feature_scaled",
        "thm:nonexpansive",
        "thm:stale",
    ),
}
# A citation of the whole counts for its parts, and one of a part for the whole.
PARTS = {
    "eq:sdist": ("eq:dsq", "eq:sgeo", "eq:sres"),
    "eq:frame_update": ("eq:frame_update_u", "eq:frame_update_v"),
    "eq:loss_aux": ("eq:loss_bias", "eq:loss_smooth", "eq:loss_energy"),
}
# The paper's other labels: free to cite, not required.
OPTIONAL = (
    *("eq:frame_update_u", "eq:frame_update_v", "eq:loss_aux", "eq:firm_nonexpansive", "eq:psi_equiv"),
    *("eq:invariant_form", "eq:twl_induction", "eq:cost_event"),
    *("rem:houshlip", "rem:drift_control", "rem:spectral_bound"),
    *("tab:tgb_results", "tab:dyglib", "tab:core-ablation", "tab:datasets", "tab:dyglib_stats", "tab:dyglib_inductive"),
    *("app:proofs", "app:proof_setup", "app:frame_level_proofs", "app:proof_low_rank", "app:smoothness_lip"),
    *("app:proof_carry_over", "app:frozen_operator_proofs", "app:proof_flat_transport", "app:proof_sync_equiv"),
    *("app:proof_spectral", "app:energy_proofs", "app:proof_energy", "app:proof_feature_scaled"),
    *("app:proof_nonexpansive", "app:stored_frame_proofs", "app:proof_stale", "app:proof_step_size"),
    *("app:nonlinear_scope", "app:proof_nonreducible", "app:proof_twl", "app:algorithms", "app:alg_transport"),
    *("app:alg_diffusion", "app:alg_nbrattn", "app:alg_edgebank", "app:alg_train", "app:complexity"),
    *("app:hyperparams", "app:dataset_stats", "app:tracka_baselines", "app:dyglib_datasets"),
    *("app:trackb_baselines", "app:trackb_hyperparams", "app:scalability"),
)
LABEL = re.compile(r"\b(?:eq|alg|lem|thm|prop|cor|rem|app|tab):[A-Za-z]\w*(?:-\w+)*")
SETTINGS = "config.py"  # cites what its switches switch, computes nothing

Citations = dict[str, set[str]]  # label -> places


@dataclass(frozen=True)
class Scope:
    """A function or class and the lines it spans, decorators included."""

    first: int
    last: int
    name: str


def scopes(tree: ast.AST, outer: str = "") -> Iterator[Scope]:
    """Every function and class of a module, outer before inner, by qualified name."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            name = f"{outer}.{node.name}" if outer else node.name
            first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
            yield Scope(first, node.end_lineno or node.lineno, name)
            yield from scopes(node, name)
        else:
            yield from scopes(node, outer)


def cited_lines(source: str) -> Iterator[tuple[str, int]]:
    """(label, line) of every citation in a string or a comment."""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type in (tokenize.STRING, tokenize.COMMENT):
            for found in LABEL.finditer(token.string):
                yield found.group(), token.start[0] + token.string.count("\n", 0, found.start())


def cuda_scopes(source: str) -> Iterator[Scope]:
    """Every device function of CUDA source with the comment right above it; a function ends at a brace in column 0."""
    lines = source.splitlines()
    for at, line in enumerate(lines):
        head = re.match(r"(?:extern \"C\" )?__(?:device|global)__ .*?(\w+)\(", line)
        if head is None or line.endswith(";"):
            continue
        first, last = at, at
        while first and lines[first - 1].startswith(("//", "template")):
            first -= 1
        while not line.endswith("}") and lines[last] != "}":
            last += 1
        yield Scope(first + 1, last + 1, head[1])


def cuda_cited_lines(source: str) -> Iterator[tuple[str, int]]:
    """(label, line) of every citation in a comment of CUDA source."""
    for number, line in enumerate(source.splitlines(), 1):
        for found in LABEL.finditer(line.partition("//")[2]):
            yield found.group(), number


def file_citations(path: Path, shown: str) -> Iterator[tuple[str, str]]:
    """(label, place) of one file; the place is `file: qualified.name`, or the file alone at module level."""
    source = path.read_text(encoding="utf-8")
    is_cuda = path.suffix == ".cu"
    spans = list(cuda_scopes(source) if is_cuda else scopes(ast.parse(source)))
    for label, line in cuda_cited_lines(source) if is_cuda else cited_lines(source):
        around = [scope for scope in spans if scope.first <= line <= scope.last]
        yield label, f"{shown}: {around[-1].name}" if around else shown


def citations(folder: Path) -> Citations:
    """Citations of every Python and CUDA file under a folder, places relative to it."""
    found: Citations = defaultdict(set)
    for path in sorted([*folder.rglob("*.py"), *folder.rglob("*.cu")]):
        for label, place in file_citations(path, path.relative_to(folder).as_posix()):
            found[label].add(place)
    return found


def computes(place: str) -> bool:
    """Whether a place in src is a function or class that can compute something."""
    file, _, name = place.partition(": ")
    return bool(name) and file != SETTINGS


def verifies(place: str) -> bool:
    """Whether a place in tests is a test."""
    file, _, name = place.partition(": ")
    return file.rpartition("/")[2].startswith("test_") and name.startswith(("test_", "Test"))


def family(label: str) -> tuple[str, ...]:
    """The labels whose citation counts for this one."""
    wholes = [whole for whole, parts in PARTS.items() if label in parts]
    return (label, *PARTS.get(label, ()), *wholes)


@dataclass(frozen=True)
class PaperMap:
    """Citations in the package and in its tests."""

    src: Citations
    tests: Citations

    @classmethod
    def scan(cls, root: Path) -> PaperMap:
        """Read both trees."""
        return cls(citations(root / "src" / "tsnn"), citations(root / "tests"))

    def functions(self, label: str) -> list[str]:
        """Places of the package that compute this label."""
        return sorted({p for name in family(label) for p in self.src.get(name, ()) if computes(p)})

    def checks(self, label: str) -> list[str]:
        """Tests that cite this label."""
        return sorted({p for name in family(label) for p in self.tests.get(name, ()) if verifies(p)})

    def problems(self) -> list[str]:
        """One sentence per label that is not covered or not in the paper."""
        unknown = (set(self.src) | self._cited_in_tests()) - set(required()) - set(OPTIONAL)
        return [
            *(f"{label} has no function that cites it." for label in required() if not self.functions(label)),
            *(f"{label} has no test that cites it." for label in required() if not self.checks(label)),
            *(f"{label} is cited but is no label of the paper." for label in sorted(unknown)),
        ]

    def _cited_in_tests(self) -> set[str]:
        return {label for label, places in self.tests.items() if any(verifies(p) for p in places)}

    def page(self) -> str:
        """The generated page."""
        head = (
            "# Paper map\n\nLabel of the paper, the function that computes it, the test that holds it to that.\n"
            "Generated from the citations in the code by `python scripts/paper_map.py`; edit those, not this page.\n"
        )
        sections = [self._section(title, labels) for title, labels in REQUIRED.items()]
        others = tuple(label for label in OPTIONAL if self.functions(label) or self.checks(label))
        return "\n".join([head, *sections, *([self._section("Also cited", others)] if others else [])])

    def _section(self, title: str, labels: tuple[str, ...]) -> str:
        rows = [f"| `{x}` | {_cell(self.functions(x))} | {_cell(self.checks(x))} |" for x in labels]
        return "\n".join([f"## {title}", "", "| label | in `src/tsnn` | in `tests` |", "|---|---|---|", *rows, ""])


def required() -> list[str]:
    """Every label that must have a function and a test."""
    return [label for labels in REQUIRED.values() for label in labels]


def check(root: Path) -> list[str]:
    """What is wrong: labels not covered, labels unknown, a page out of date."""
    paper_map = PaperMap.scan(root)
    problems = paper_map.problems()
    page = root / PAGE
    if not page.exists() or page.read_text(encoding="utf-8") != paper_map.page():
        problems.append(f"{PAGE} is out of date; run python scripts/paper_map.py.")
    return problems


def main() -> int:
    """Write the page, or check it."""
    parser = argparse.ArgumentParser(description="Label of the paper -> function -> test.")
    parser.add_argument("--check", action="store_true", help="write nothing; fail on a gap or an outdated page")
    if parser.parse_args().check:
        problems = check(ROOT)
        print("\n".join(problems) or f"{len(required())} labels, each with a function and a test.")
        return 1 if problems else 0
    (ROOT / PAGE).write_text(PaperMap.scan(ROOT).page(), encoding="utf-8")
    print(f"wrote {PAGE}")
    return 0


def _cell(places: list[str]) -> str:
    return "<br>".join(f"`{place}`" for place in places) or "none"


if __name__ == "__main__":
    sys.exit(main())
