"""Bring results/*.json up to date without training: ceilings, and the published figures beside ours."""

from __future__ import annotations

from pathlib import Path

from tsnn.study.ceilings import refresh

if __name__ == "__main__":
    for table, absent in refresh(Path(__file__).resolve().parents[1] / "results").items():
        print(f"{table}: {'every row' if not absent else 'all but ' + ', '.join(absent)}")
