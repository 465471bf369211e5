"""Facts of many candidates of one source, as the live state asks for them: of every node, column by column."""

from __future__ import annotations

from typing import Any

from tsnn.kernel_cache import inlined, kernel
from tsnn.plan.query_facts import mark_source, own_facts, shared_facts, source_facts, walk_facts
from tsnn.plan.tables import Int, Options, Scratch, Tables, borrow
from tsnn.types import I64, Bool


@kernel()
def survey(
    tab: Tables, scr: Scratch, opt: Options, u: Int, t: float, rel: Int, cand: I64, related: Bool, facts: Any
) -> None:
    """Fill the columns of `facts`, which are 0, as `Planner.survey` explains; `t` counts from the stream's origin."""
    tab, scr = borrow(tab), borrow(scr)
    worth = source_facts(tab, opt, u, t, scr.source)
    for column in range(len(scr.source)):
        if scr.source[column] != 0:
            facts[:, column] = scr.source[column]
    marked = mark_source(tab, scr, opt, u)
    for j in range(len(cand)):
        c = cand[j]
        own_facts(tab, opt, c, t, facts[j])
        if tab.walk.shape[2]:
            walk_facts(tab, opt, u, c, t, worth, facts[j])
        if related[j] or _is_near(tab, scr, c, marked[0]):
            shared_facts(tab, scr, opt, u, c, rel, t, marked, facts[j])


@inlined()
def _is_near(tab: Tables, scr: Scratch, c: Int, stamp: Int) -> bool:
    """Whether the candidate may share a neighbor with the source, straight or over two hops."""
    for at in range(min(tab.ring_len[c], tab.ring_id.shape[1])):  # all of them: one too many does no harm
        x = tab.ring_id[c, at]
        if scr.mark[x] == stamp or scr.hop[x] == stamp:
            return True
    return False
