"""What the two columns of a stream look like: two kinds of node, one kind with a direction, or one without.

A guess and no more, from the rows alone: it is told to the user, who knows what a row means, and decides nothing.
"""

from __future__ import annotations

import numpy as np

from tsnn.data.events import EventStream
from tsnn.data.queries import relations
from tsnn.types import I64, Bool

ENOUGH = 20  # pairs that agree; fewer may do so by chance
_SAY_SO = "if which of the two stands first means nothing, say --undirected (undirected=True in Python)"


def looks_undirected(stream: EventStream) -> str | None:
    """A sentence where a directed stream looks as if its rows had no direction."""
    if stream.undirected:
        return None
    src, dst = _between_equals(stream)
    if len(np.unique(src * stream.num_nodes + dst)) < ENOUGH:
        return None
    place = _order_of_names(stream)
    first, second = place[src], place[dst]
    if (first < second).all() or (first > second).all():
        which = "smaller" if (first < second).all() else "larger"
        return (
            f"in every row the {which} of the two ids stands first, so this looks like a list of undirected "
            f"contacts; {_SAY_SO}: as it is, nobody is recommended who only ever stands first."
        )
    if _comes_both_ways(stream):
        return (
            "every event stands in the table twice, once in either direction at the same time, so this looks like a "
            f"list of undirected contacts; {_SAY_SO}, and keep one row of each two with --dedupe."
        )
    return None


def looks_bipartite(stream: EventStream) -> str | None:
    """A sentence where no node stands in both columns."""
    if stream.undirected or _in_both(stream).any():
        return None
    return (
        "no node stands in both columns: sources and destinations are two kinds of node, as users and items are, and "
        "only destinations are recommended."
    )


def _in_both(stream: EventStream) -> Bool:
    """Nodes that stand in both columns."""
    ends = [np.bincount(column, minlength=stream.num_nodes) > 0 for column in (stream.src, stream.dst)]
    both: Bool = ends[0] & ends[1]
    return both


def _between_equals(stream: EventStream) -> tuple[I64, I64]:
    """Rows of two nodes each of which stands in both columns: of the others, the order of the ids says nothing."""
    both = _in_both(stream)
    rows = both[stream.src] & both[stream.dst] & (stream.src != stream.dst)
    return stream.src[rows], stream.dst[rows]


def _order_of_names(stream: EventStream) -> I64:
    """The place of every node in the order of the ids, of texts where they are not all numbers."""
    integers = stream.ids.integers
    names = np.array([str(name) for name in stream.ids.external]) if integers is None else integers
    place = np.empty(len(names), np.int64)
    place[np.argsort(names, kind="stable")] = np.arange(len(names))
    return place


def _comes_both_ways(stream: EventStream) -> bool:
    """Whether, time by time, the rows are the same when turned round: of the same relation too, not of an inverse."""
    _, time = np.unique(stream.t, return_inverse=True)
    relation = relations(stream, np.arange(stream.num_events))
    forth = np.lexsort((relation, stream.dst, stream.src, time))
    back = np.lexsort((relation, stream.src, stream.dst, time))
    columns = ((stream.src, stream.dst), (stream.dst, stream.src), (relation, relation))
    return all(bool((one[forth] == other[back]).all()) for one, other in columns)
