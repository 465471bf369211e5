"""The baseline `recurrency`: what has been true will be true again, the sooner the more often and the more lately.

    score(s, r, o, t) = alpha psi + (1 - alpha) xi
    psi   sum over earlier occurrences of (s, r, o), at steps t_k, of 2^(decay (t_k - t)), divided by the same sum over
          all steps from the first to the last but one before t
    xi    share of o among all earlier rows of relation r

Steps are places among the distinct times. Nothing is trained: decay and alpha are given, or chosen for each relation
by how validation queries fare. Gastinger et al., "History repeats itself: a baseline for temporal knowledge graph
forecasting" (IJCAI 2024).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from tsnn.data.events import EventStream
from tsnn.data.every_node import EveryNode
from tsnn.data.queries import Queries, relations
from tsnn.data.question import Question, asks
from tsnn.data.split import Split
from tsnn.errors import ConfigError
from tsnn.evaluation.against_all import Everyone, Here
from tsnn.evaluation.baselines import Stateless
from tsnn.evaluation.scorer import Block
from tsnn.kernel_cache import inlined, kernel
from tsnn.types import F64, I64

DECAYS = (0.0, 1e-4, 1e-3, 5e-3, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 0.9, 1.0001)
ALPHAS = (0.0, 1e-5, 1e-4, 1e-3, 0.01, 0.1, 0.5, 0.9, 0.99, 0.999, 0.9999, 0.99999, 1.0)
USUAL = {"decay": 0.02, "alpha": 0.999}  # the best of all relations together on the sets that are usual
MOST = 100_000  # validation queries that choose; of more, a sample
Int = Any


class Past(NamedTuple):
    """A stream's asks, listed by what they are looked up by. A list is read up to a row, so nothing later matters."""

    row: I64  # of each ask
    dst: I64
    step: I64  # of each ask: its time's place among the distinct ones
    pair_key: I64  # source * relations + relation, ascending
    pair: I64  # asks in this order, those of one key in order of rows
    end_key: I64  # relation * nodes + destination, ascending
    end: I64
    of_relation: I64  # asks by relation
    relation_ptr: I64  # (relations + 1,)
    relations: int  # that there is room for: rows that are left out may take the last ones with them

    @classmethod
    def of(cls, stream: EventStream) -> Past:
        """The lists of a whole stream."""
        own, n = asks(stream, np.arange(stream.num_events)), max(stream.num_relations, 1)
        relation = relations(stream, own.rows)
        step = np.cumsum(np.concatenate([[0], np.diff(stream.t) > 0]))[own.rows] if stream.num_events else own.rows
        pair_key, end_key = own.src * n + relation, relation * stream.num_nodes + own.dst
        pair, end = np.argsort(pair_key, kind="stable"), np.argsort(end_key, kind="stable")
        of_relation = np.argsort(relation, kind="stable")
        ptr = np.searchsorted(relation[of_relation], np.arange(n + 1))
        return cls(
            own.rows, own.dst, step.astype(np.int64), pair_key[pair], pair, end_key[end], end, of_relation, ptr, n
        )


class Asked(NamedTuple):
    """Questions as the kernels read them."""

    src: I64
    relation: I64
    cut: I64
    now: I64  # steps that lie before the question's time, as far as it may see

    @classmethod
    def of(cls, stream: EventStream, past: Past, queries: Queries) -> Asked:
        """Questions about a stream."""
        seen = np.maximum(queries.cut, 1) - 1
        steps = past.step[np.searchsorted(past.row, seen)] + (stream.t[seen] < queries.t)
        return cls(queries.src, queries.edge_type, queries.cut, np.where(queries.cut > 0, steps, 0))


class Recurrency(Stateless):
    """Counts of a fact that fade with time, and shares of the relation's objects."""

    name = "recurrency"

    def __init__(self, decay: float | None = None, alpha: float | None = None) -> None:
        """With neither given, both are chosen for each relation on validation rows."""
        for what, value, most in (("decay", decay, np.inf), ("alpha", alpha, 1.0)):
            is_number = isinstance(value, int | float) and not isinstance(value, bool)
            if value is not None and not (is_number and 0 <= value <= most):
                upper = "" if np.isinf(most) else f" and at most {most:g}"
                raise ConfigError(f"recurrency.{what} is {value!r}; give a number of at least 0{upper}.")
        self._given = {name: value for name, value in (("decay", decay), ("alpha", alpha)) if value is not None}
        self._decay, self._alpha = np.array([USUAL["decay"]]), np.array([USUAL["alpha"]])
        self._past: tuple[EventStream, Past] | None = None

    def fit(self, split: Split, question: Question) -> None:
        """Choose decay and alpha of each relation on validation rows, unless they were given."""
        n = max(split.stream.num_relations, 1)
        self._past = None
        told = USUAL | self._given
        self._decay, self._alpha = np.full(n, float(told["decay"])), np.full(n, float(told["alpha"]))
        if self._given or split.val_end == split.train_end:
            return
        gains, counts = self._validate(split, question)
        total = gains.sum(0)
        usual = np.unravel_index(int(total.argmax()), total.shape)
        best = gains.reshape(n, -1).argmax(1)
        rows, columns = np.unravel_index(best, total.shape)
        for chosen, grid, picked, common in ((self._decay, DECAYS, rows, 0), (self._alpha, ALPHAS, columns, 1)):
            chosen[:] = np.where(counts > 0, np.array(grid)[picked], grid[int(usual[common])])

    def _validate(self, split: Split, question: Question) -> tuple[F64, I64]:
        """For each relation, decay and alpha the sum of reciprocal ranks of validation queries; and their number."""
        known = split.stream.take(slice(0, split.val_end))
        n = max(split.stream.num_relations, 1)
        cuts = question.cuts(split)
        asked = EveryNode.of(known, (split.train_end, split.val_end), cuts, "time-aware", 0).some(MOST, 0)
        queries, past = asked.without_candidates(0, len(asked)), Past.of(known)
        own = Asked.of(known, past, queries)
        order = np.lexsort([own.cut, own.relation])
        gains = np.zeros((n, len(DECAYS), len(ALPHAS)))
        answers = (asked.asks.dst[order], asked.group[order], asked.out_ptr, asked.out)
        own = Asked(*(column[order] for column in own))
        _try(past, own, *answers, np.array(DECAYS), np.array(ALPHAS), known.num_nodes, gains)
        return gains, np.bincount(own.relation, minlength=n)

    def _of(self, stream: EventStream) -> Past:
        if self._past is None or self._past[0] is not stream:
            self._past = stream, Past.of(stream)
        return self._past[1]

    def score(self, plan: Block, versions: None) -> F64:
        """Of each candidate, from the rows that the question may see."""
        past, queries = self._of(plan.stream), plan.queries
        own = Asked.of(plan.stream, past, queries)
        found, nodes = np.empty(len(queries.cand)), plan.stream.num_nodes
        _some(past, own, queries.ptr, queries.cand, self._decay[own.relation], self._alpha[own.relation], nodes, found)
        return found

    def against_all(self, here: Here) -> Everyone:
        """All nodes at once; those that share a relation share its objects."""
        stream = here.planner.stream
        past, nodes = self._of(stream), stream.num_nodes
        shares: dict[int, F64] = {}

        def everyone(queries: Queries) -> F64:
            own = Asked.of(stream, past, queries)
            found = np.empty((len(queries), nodes))
            for i, relation in enumerate(own.relation.tolist()):
                if relation not in shares:
                    shares[relation] = np.asarray(_shares(past, relation, here.row, nodes))
                found[i] = (1 - self._alpha[relation]) * shares[relation]
            _add_recurrences(past, own, self._decay[own.relation], self._alpha[own.relation], found)
            return found

        return everyone


@inlined()
def _before(listed: I64, rows: I64, begin: Int, end: Int, cut: Int) -> Int:
    """How many of an interval of a list stand before the cut."""
    low, high = begin, end
    while low < high:
        middle = (low + high) // 2
        if rows[listed[middle]] < cut:
            low = middle + 1
        else:
            high = middle
    return low - begin


@inlined()
def _interval(keys: I64, listed: I64, rows: I64, key: Int, cut: Int) -> tuple[Int, Int]:
    """Where the asks of a key that stand before the cut begin and end in their list."""
    begin = np.searchsorted(keys, key, side="left")
    end = np.searchsorted(keys, key, side="right")
    return begin, begin + _before(listed, rows, begin, end, cut)


@inlined()
def _all_steps(decay: float, now: Int) -> float:
    """The sum over all steps but the last before now, each worth what it has left; 1 where there is none."""
    total = 0.0
    for step in range(now - 1):
        total += 2.0 ** (decay * (step - now))
    return total if total > 0 else 1.0


@kernel()
def _shares(past: Past, relation: Int, cut: Int, nodes: Int) -> F64:
    """xi of every node."""
    share = np.zeros(nodes)
    begin, end = past.relation_ptr[relation], past.relation_ptr[relation + 1]
    seen = _before(past.of_relation, past.row, begin, end, cut)
    for at in range(begin, begin + seen):
        share[past.dst[past.of_relation[at]]] += 1
    share /= max(seen, 1)
    return share


@kernel()
def _add_recurrences(past: Past, own: Asked, decay: F64, alpha: F64, found: F64) -> None:
    """Add alpha psi of every node to its row."""
    psi = np.zeros(found.shape[1])
    for q in range(len(own.src)):
        key = own.src[q] * past.relations + own.relation[q]
        begin, end = _interval(past.pair_key, past.pair, past.row, key, own.cut[q])
        worth = alpha[q] / _all_steps(decay[q], own.now[q])
        for at in range(begin, end):
            k = past.pair[at]
            psi[past.dst[k]] += 2.0 ** (decay[q] * (past.step[k] - own.now[q]))
        for at in range(begin, end):
            node = past.dst[past.pair[at]]
            found[q, node] += worth * psi[node]
            psi[node] = 0.0


@kernel()
def _some(past: Past, own: Asked, ptr: I64, cand: I64, decay: F64, alpha: F64, nodes: Int, found: F64) -> None:
    """The score of some candidates of each question."""
    psi = np.zeros(nodes)
    for q in range(len(own.src)):
        relation, cut = own.relation[q], own.cut[q]
        begin, end = _interval(past.pair_key, past.pair, past.row, own.src[q] * past.relations + relation, cut)
        worth = alpha[q] / _all_steps(decay[q], own.now[q])
        for at in range(begin, end):
            k = past.pair[at]
            psi[past.dst[k]] += 2.0 ** (decay[q] * (past.step[k] - own.now[q]))
        first, last = past.relation_ptr[relation], past.relation_ptr[relation + 1]
        seen = max(_before(past.of_relation, past.row, first, last, cut), 1)
        for j in range(ptr[q], ptr[q + 1]):
            a, b = _interval(past.end_key, past.end, past.row, relation * nodes + cand[j], cut)
            found[j] = (1 - alpha[q]) * ((b - a) / seen) + worth * psi[cand[j]]
        for at in range(begin, end):
            psi[past.dst[past.pair[at]]] = 0.0


@inlined()
def _count(tree: I64, at: Int, change: Int) -> None:
    """One node more, or less, that has been the object so often (a Fenwick tree)."""
    at += 1
    while at < len(tree):
        tree[at] += change
        at += at & -at


@inlined()
def _at_most(tree: I64, at: Int) -> Int:
    """Nodes that have been the object so often or less."""
    at = min(at + 1, len(tree) - 1)
    total: Any = 0
    while at > 0:
        total += tree[at]
        at -= at & -at
    return total


@kernel()
def _try(
    past: Past, own: Asked, dst: I64, group: I64, out_ptr: I64, out: I64, decays: F64, alphas: F64,
    nodes: Int, gains: F64,
) -> None:  # fmt: skip
    """Add the reciprocal rank of every question, sorted by relation and cut, under every decay and alpha, to `gains`.

    Few nodes have a psi. How many of the others lie above a score follows from how often they have been objects, which
    a tree of counts says; so no question looks at all nodes.
    """
    psi, member, counts = np.zeros((nodes, len(decays))), np.full(nodes, -1), np.zeros(nodes, np.int64)
    met = np.empty(nodes, np.int64)
    tree, relation, at = np.zeros(1, np.int64), -1, 0
    for q in range(len(dst)):
        if own.relation[q] != relation:
            relation = own.relation[q]
            at = past.relation_ptr[relation]
            counts[:] = 0
            tree = np.zeros(past.relation_ptr[relation + 1] - at + 2, np.int64)
            _count(tree, 0, nodes)
        end = past.relation_ptr[relation + 1]
        while at < end and past.row[past.of_relation[at]] < own.cut[q]:
            node = past.dst[past.of_relation[at]]
            _count(tree, counts[node], -1)
            counts[node] += 1
            _count(tree, counts[node], 1)
            at += 1
        seen = max(at - past.relation_ptr[relation], 1)
        begin, stop = _interval(past.pair_key, past.pair, past.row, own.src[q] * past.relations + relation, own.cut[q])
        size = 0
        for j in range(begin, stop):
            k = past.pair[j]
            node = past.dst[k]
            if member[node] != q:
                member[node], met[size] = q, node
                psi[node] = 0.0
                size += 1
            for i in range(len(decays)):
                psi[node, i] += 2.0 ** (decays[i] * (past.step[k] - own.now[q]))
        if member[dst[q]] != q:
            psi[dst[q]] = 0.0
        others = out[out_ptr[group[q]] : out_ptr[group[q] + 1]]
        for i in range(len(decays)):
            steps = _all_steps(decays[i], own.now[q])
            for j in range(len(alphas)):
                worth, share = alphas[j] / steps, (1 - alphas[j]) / seen
                score = worth * psi[dst[q], i] + share * counts[dst[q]]
                greater, equal = _among_plain(tree, counts, share, score, nodes, met[:size], others, member, q)
                for m in range(size):
                    node = met[m]
                    if not _is_in(others, node):
                        theirs = worth * psi[node, i] + share * counts[node]
                        greater += theirs > score
                        equal += theirs == score
                gains[relation, i, j] += 1.0 / (1.0 + greater + 0.5 * equal)


@inlined()
def _is_in(sorted_nodes: I64, node: Int) -> Any:
    at = np.searchsorted(sorted_nodes, node)
    return at < len(sorted_nodes) and sorted_nodes[at] == node


@inlined()
def _among_plain(
    tree: I64, counts: I64, share: float, score: float, nodes: Int, met: I64, others: I64, member: I64, q: Int
) -> tuple[Int, Int]:
    """How many nodes without a psi that are not left out lie above a score, and at it."""
    if share == 0.0:  # all of them have 0
        plain = nodes - len(met)
        for node in others:
            plain -= member[node] != q
        return (0, plain) if score == 0.0 else (0, 0)
    edge = score / share
    whole = round(edge)
    tied = abs(edge - whole) <= 1e-9 * max(edge, 1.0)
    below = whole if tied else np.int64(min(edge, float(len(tree))))
    greater = nodes - _at_most(tree, below)
    equal = _at_most(tree, below) - (_at_most(tree, below - 1) if below > 0 else 0) if tied else 0
    for node in met:
        greater -= counts[node] > below
        equal -= tied and counts[node] == below
    for node in others:
        if member[node] != q:
            greater -= counts[node] > below
            equal -= tied and counts[node] == below
    return greater, equal
