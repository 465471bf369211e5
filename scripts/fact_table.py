"""Write docs/facts.md: every fact, in plain words, from the table in tsnn.plan.facts.

python scripts/fact_table.py
"""

from __future__ import annotations

from itertools import groupby
from pathlib import Path

from tsnn.plan.facts import FACTS, Fact

ROOT = Path(__file__).resolve().parents[1]
PAGE = Path("docs/facts.md")
HEAD = """# Facts

What the data alone says about a source and a candidate, as of what the score may see. Generated from the table in
`src/tsnn/plan/facts.py` by `python scripts/fact_table.py`; edit that, not this page.

*In words* is what an explanation says about the two among its numbers, with their names. *Unseen* is the value for
nodes, or a pair, without any event; gaps are in the stream's own unit of time. *Columns* are what the score reads: `lg`
log(1 + gap / mean gap), `log` log(1 + value), `never` 1 where there was no such event, `raw` the value as it is. Each
block is a switch of the configuration, `features.BLOCK`, that turns its columns on.
"""


def page() -> str:
    """The generated page."""
    sections = [_section(block, list(facts)) for block, facts in groupby(FACTS, lambda fact: fact.block)]
    return "\n".join([HEAD, *sections])


def _section(block: str, facts: list[Fact]) -> str:
    title = f"## `{block}`" if block else "## Always"
    rows = [f"| `{f.name}` | {_words(f)} | {f.unseen:g} | {', '.join(f.rules) or 'none'} | {f.note} |" for f in facts]
    return "\n".join([title, "", "| fact | in words | unseen | columns | note |", "|---|---|---|---|---|", *rows, ""])


def _words(fact: Fact) -> str:
    words = fact.says.format(src="source", dst="candidate")
    return f"{words}, in {fact.unit}" if fact.unit in ("mean gaps", "events") else words


if __name__ == "__main__":
    (ROOT / PAGE).write_text(page(), encoding="utf-8")
    print(f"wrote {PAGE}")
