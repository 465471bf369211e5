"""Compiled kernels follow every file they are made of."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import tsnn.kernel_cache

FILES = {
    "__init__.py": "",
    "columns.py": "NAMES = ('gap', 'count')\nCOLUMN = {name: i for i, name in enumerate(NAMES)}\n",
    "reading.py": (
        "from numba import njit\nfrom tsnn.columns import COLUMN\nCOUNT = COLUMN['count']\n"
        "@njit(forceinline=True)\ndef fill(row): row[COUNT] = 7\n"
    ),
    "loops.py": (
        "from tsnn import reading\nfrom tsnn.kernel_cache import is_cached, kernel\nfill = reading.fill\n"
        "@kernel()\ndef table(out):\n    for r in range(len(out)): fill(out[r])\n"
    ),
    "apart.py": "from tsnn.kernel_cache import is_cached, kernel\n@kernel()\ndef double(x): return 2 * x\n",
}
USE = """
import numpy as np
from tsnn import apart, columns, loops
print(loops.is_cached(loops.table), apart.is_cached(apart.double))
out = np.zeros((2, len(columns.NAMES)))
loops.table(out)
assert apart.double(3) == 6
print(dict(zip(columns.NAMES, out[1].tolist())))
"""


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A small package of this name, with a constant two imports away from the kernel that it is compiled into."""
    folder = tmp_path / "tsnn"
    folder.mkdir()
    for name, text in FILES.items():
        (folder / name).write_text(text)
    shutil.copy(tsnn.kernel_cache.__file__, folder)
    return folder


def _use(package: Path, script: str = USE, **more: str) -> list[str]:
    """What another process finds cached before its first call, and what the kernel writes."""
    env = {"PYTHONPATH": str(package.parent), "PATH": "", "XDG_CACHE_HOME": str(cache_of(package))} | more
    done = subprocess.run([sys.executable, "-c", script], env=env, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


def cache_of(package: Path) -> Path:
    return package.parent / "users"


def test_a_constant_from_another_file_compiles_anew_only_what_it_is_part_of(package: Path) -> None:
    assert _use(package) == ["False False", "{'gap': 0.0, 'count': 7.0}"]
    assert _use(package) == ["True True", "{'gap': 0.0, 'count': 7.0}"]
    columns = package / "columns.py"
    columns.write_text(columns.read_text().replace("'count'", "'age', 'count'"))
    assert _use(package) == ["False True", "{'gap': 0.0, 'age': 0.0, 'count': 7.0}"]
    assert _use(package) == ["True True", "{'gap': 0.0, 'age': 0.0, 'count': 7.0}"]


def test_kernels_are_kept_in_the_user_s_cache_and_not_beside_the_sources(package: Path, tmp_path: Path) -> None:
    _use(package)
    assert {path.suffix for path in package.rglob("*") if path.is_file()} == {".py", ".pyc"}
    assert len(list((cache_of(package) / "tsnn").rglob("*.nbc"))) == 2
    shutil.rmtree(cache_of(package))
    assert _use(package) == ["False False", "{'gap': 0.0, 'count': 7.0}"]
    assert _use(package, NUMBA_CACHE_DIR=str(tmp_path / "named"))[0] == "False False"
    assert len(list((tmp_path / "named").rglob("*.nbc"))) == 2


def test_two_copies_of_the_package_do_not_share_a_place(package: Path, tmp_path: Path) -> None:
    other = tmp_path / "other" / "tsnn"
    shutil.copytree(package, other)
    columns = other / "columns.py"
    columns.write_text(columns.read_text().replace("'count'", "'age', 'count'"))
    env = {"XDG_CACHE_HOME": str(cache_of(package))}
    for expected in ("False", "True"):
        assert _use(package, **env)[0] == f"{expected} {expected}"
        assert _use(other, **env)[0] == f"{expected} {expected}"


def test_where_nothing_can_be_kept_kernels_still_run_and_it_is_said(package: Path) -> None:
    cache_of(package).write_text("a file where the folder should be")
    warned = "import warnings; warnings.simplefilter('error')\n"
    assert _use(package)[0] == "False False"
    with pytest.raises(subprocess.CalledProcessError) as stop:
        _use(package, warned + USE)
    assert "set NUMBA_CACHE_DIR to a folder that can be written" in stop.value.stderr


USE_TOLD = """
from tsnn import apart, kernel_cache, loops
with kernel_cache.telling(lambda *now: print(*now)) as progress:
    progress(1, 9, "working")
    apart.double(3)
    apart.double(4)
    apart.double(5.0)
"""


def test_what_is_compiled_is_told_and_counted(package: Path) -> None:
    compiling = "compiling for this machine, once: double"
    told = ["1 9 working", f"0 2 {compiling}", f"1 2 {compiling}", "2 2 compiled for this machine"]
    assert _use(package, USE_TOLD) == told
    assert _use(package, USE_TOLD) == ["1 9 working"]


USE_FACTS = """
import numpy as np
from tsnn import facts_kernel
from tsnn.plan.facts import COLUMN
print(facts_kernel.is_cached(facts_kernel.fill))
row = np.zeros(len(COLUMN))
facts_kernel.fill(row)
print([float(row[COLUMN[name]]) for name in ("bank_count", "bank_gap", "dst_in_share", "lately") if name in COLUMN])
"""
FACTS_KERNEL = """
from tsnn.kernel_cache import is_cached, kernel
from tsnn.plan.facts import AT, UNSEEN

@kernel()
def fill(row):
    row[:] = UNSEEN
    row[AT.bank_count] = 7
"""
STAMPS = """
from pathlib import Path
import tsnn.kernel_cache
folder = Path(tsnn.kernel_cache.__file__).parent / "plan"
print(*(tsnn.kernel_cache.source_stamp(folder / name) for name in ("sweep.py", "survey.py", "query_facts.py")))
"""


def _insert_fact(package: Path) -> None:
    table = package / "plan" / "facts.py"
    first = "FACTS: tuple[Fact, ...] = (\n"
    assert first in table.read_text()
    row = '    Fact("lately", "a fact about {src} and {dst}", ("log",), unseen=3.0),\n'
    table.write_text(table.read_text().replace(first, first + row))


def test_inserting_a_fact_compiles_anew_what_writes_its_columns(package: Path) -> None:
    real = Path(tsnn.kernel_cache.__file__).parent
    (package / "plan").mkdir()
    shutil.copy(real / "plan" / "facts.py", package / "plan")
    (package / "facts_kernel.py").write_text(FACTS_KERNEL)
    assert _use(package, USE_FACTS) == ["False", "[7.0, -1.0, 0.5]"]
    assert _use(package, USE_FACTS) == ["True", "[7.0, -1.0, 0.5]"]
    _insert_fact(package)
    assert _use(package, USE_FACTS) == ["False", "[7.0, -1.0, 0.5, 3.0]"]


def test_inserting_a_fact_makes_every_kernel_of_the_plan_stale(tmp_path: Path) -> None:
    package = tmp_path / "tsnn"
    shutil.copytree(Path(tsnn.kernel_cache.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__"))
    before = _use(package, STAMPS)[0].split()
    _insert_fact(package)
    assert all(old != new for old, new in zip(before, _use(package, STAMPS)[0].split(), strict=True))
