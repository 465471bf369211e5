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


def _use(package: Path) -> list[str]:
    """What another process finds cached before its first call, and what the kernel writes."""
    env = {"PYTHONPATH": str(package.parent), "PATH": ""}
    done = subprocess.run([sys.executable, "-c", USE], env=env, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


def test_a_constant_from_another_file_compiles_anew_only_what_it_is_part_of(package: Path) -> None:
    assert _use(package) == ["False False", "{'gap': 0.0, 'count': 7.0}"]
    assert _use(package) == ["True True", "{'gap': 0.0, 'count': 7.0}"]
    columns = package / "columns.py"
    columns.write_text(columns.read_text().replace("'count'", "'age', 'count'"))
    assert _use(package) == ["False True", "{'gap': 0.0, 'age': 0.0, 'count': 7.0}"]
    assert _use(package) == ["True True", "{'gap': 0.0, 'age': 0.0, 'count': 7.0}"]
