"""The documentation builds without a warning, and a reader's browser fetches nothing from elsewhere."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from scripts import concept_figures

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    pytest.importorskip("mkdocs", reason="needs mkdocs, absent here; it is in the extra docs")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.slow
def test_it_builds_with_warnings_as_errors(site):
    assert (site / "index.html").is_file()
    assert "Verification" in (site / "api" / "theory.html").read_text(), "API pages come from docstrings"


@pytest.mark.slow
def test_a_reader_fetches_nothing_from_elsewhere(site):
    fetched = [
        (page.name, link)
        for page in site.rglob("*.html")
        for tag in re.findall(r"<(?:script|link|img|iframe)\b[^>]*>", page.read_text())
        for link in re.findall(r'(?:src|href)="((?:https?:)?//[^"]+)"', tag)
        if "canonical" not in tag
    ]
    assert fetched == []


def test_the_pictures_are_current(tmp_path):
    concept_figures.main(tmp_path)
    for name in concept_figures.DRAWINGS:
        drawn, kept = ((folder / f"{name}.svg").read_text() for folder in (tmp_path, ROOT / "docs" / "images"))
        assert drawn.count("<path") == kept.count("<path"), name
        assert re.findall(r">([^<>]+)</text>", drawn) == re.findall(r">([^<>]+)</text>", kept), name


def test_every_picture_is_used():
    text = "".join(page.read_text() for page in (ROOT / "docs").rglob("*.md")) + (ROOT / "README.md").read_text()
    unused = [path.name for path in (ROOT / "docs" / "images").iterdir() if path.name not in text]
    assert [name for name in unused if name != "page.png"] == []
