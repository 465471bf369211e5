"""Write docs/results.md from the JSON files in results/."""

from __future__ import annotations

from pathlib import Path

from tsnn.study.results import write_page

if __name__ == "__main__":
    print(f"wrote {write_page(Path(__file__).resolve().parents[1])}")
