"""The suite TKG: temporal knowledge graphs, each query ranked among all entities; MRR and hits over both directions."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np

from tsnn.data.events import EventStream
from tsnn.data.every_node import FILTERS, EveryNode
from tsnn.data.queries import Joined
from tsnn.data.question import Question
from tsnn.data.split import Split, make_split, split_by_time
from tsnn.data.tgb import folder_name
from tsnn.data.tkg import TKGL, find_tkgl, is_folder, load_tkg, load_tkgl
from tsnn.errors import InputError
from tsnn.evaluation.metrics import rank_metrics, ranks
from tsnn.evaluation.questions import Outcomes, Questions
from tsnn.evaluation.suite import DataEntry, Suite, data_root
from tsnn.types import F64, I64
from tsnn.words import did_you_mean

HITS = (1, 3, 10)
VALIDATION = 2000  # queries that speak for all validation rows: they choose epochs, and are ranked after each
LOOKED_AT = 1_000_000  # candidates of each set whose scores are looked at one by one
_SEED = 0
_COUNTS = {"icews14": (7_128, 2 * 90_730), "icews18": (23_033, 2 * 468_558)}  # nodes and rows, inverses included


class TkgQuestions(Questions):
    """One query per row, and so two per fact: its own destination among all entities."""

    protocol = "tkg"
    says = "MRR and hits@1, 3, 10 among all nodes, the filter said by --negatives"
    strategies = FILTERS
    metric = "mrr"
    aggregation = (
        "mean over queries, of a fact one in either direction where its inverse is a row too; a rank is the mean of "
        "the optimistic and the pessimistic one, in double precision"
    )
    undirected = True
    columns = 3

    def __init__(
        self, split: Split, question: Question, sets: Sequence[str] | None = None, most: int | None = None
    ) -> None:
        """With `most`, no more queries of each set than these."""
        super().__init__(split, question, sets)
        self.question = self.question.among("all")
        cuts, leave_out = self.question.cuts(split), str(self.question.negatives)
        self._most = {"val": VALIDATION, "test": None} if most is None else dict.fromkeys(self.names, most)
        self.parts = []
        for name in self.names:
            own = EveryNode.of(split.stream, split.bounds(name), cuts, leave_out, _SEED)
            most_here = self._most[name]
            self.parts.append(own if most_here is None else own.some(most_here, _SEED))
        self.asked: Joined = Joined(self.parts)

    def fewer(self) -> Self:
        """As many of each set as have about so many candidates together as a set of other suites."""
        most = max(LOOKED_AT // self.split.stream.num_nodes, 1)
        return type(self)(self.split, self.question, self.names, most)

    def follow(self, scorer: Any) -> Any:
        """Ranks all nodes at once, with a scorer that can score them at once."""
        if not getattr(scorer, "against_all", None):
            return None
        from tsnn.evaluation.against_all import AllRanks

        return AllRanks(self, self.parts, scorer)

    def answers(self, scores: F64, ptr: I64) -> F64:
        """Score of the positive, score of one negative, rank."""
        return np.stack([scores[ptr[:-1]], scores[ptr[:-1] + 1], ranks(scores, ptr)], axis=1)

    def outcomes(self, answers: F64) -> dict[str, Outcomes]:
        """Each positive among all nodes."""
        own = zip(self.names, self.parts, self.asked.split(answers), strict=True)
        return {name: Outcomes(part.asks.rows, *table.T) for name, part, table in own}

    def figures(self, own: Outcomes) -> dict[str, float]:
        """MRR and hits."""
        found: dict[str, float] = {}
        for k in HITS:
            found |= rank_metrics(own.rank, k)
        return found

    def negatives(self) -> dict[str, Any]:
        """All other nodes, but for what the filter leaves out."""
        filtered = f"{self.question.negatives} filter" if self.question.negatives != "none" else "no filter"
        mean = {name: float(np.diff(part.ptr).mean() - 1) for name, part in zip(self.names, self.parts, strict=True)}
        return {
            "strategy": f"all other nodes, {filtered}",
            "filter": self.question.negatives,
            "mean_per_positive": mean,
        }

    def _notes(self, found: Any) -> list[str]:
        told = super()._notes(found)
        for name, part in zip(self.names, self.parts, strict=True):
            most = self._most[name]
            if most is not None and len(part) == most:
                told.append(f"{name}: {most} queries drawn at random, the same for every scorer")
        return told


def split_tkg(stream: EventStream) -> Split:
    """The published split."""
    return split_by_time(stream) if stream.ends is None else make_split(stream, *stream.ends)


def _table_of(name: str) -> Path:
    return data_root() / "streams" / f"{name}.csv.gz"


def _load(name: str) -> EventStream:
    if name in _COUNTS:
        path = _table_of(name)
        if not path.is_file():
            raise InputError(f"tkg:{name} is not here; put {path.name} into {path.parent}, or set TSNN_DATA.")
        return load_tkg(path, f"tkg:{name}")
    path = data_root() / "tgb" / folder_name(name) if name in TKGL else Path(name)
    if name in TKGL or find_tkgl(path):
        return load_tkgl(path, f"tkg:{name}" if name in TKGL else f"tkg:{path.resolve()}")
    if not path.exists():
        known = (*_COUNTS, *TKGL)
        meant = did_you_mean(name, known) or f"the known ones are {', '.join(known)}."
        raise InputError(f"tkg:{name} is no known set and no path of a table or folder with a split; {meant}")
    return load_tkg(path, f"tkg:{path.resolve()}")


def _entries() -> list[DataEntry]:
    found = []
    for name, counts in _COUNTS.items():
        path = _table_of(name)
        there = path.is_file()
        found.append(DataEntry(f"tkg:{name}", str(path), there, *(counts if there else ())))
    for name in TKGL:
        folder = data_root() / "tgb" / folder_name(name)
        found.append(DataEntry(f"tkg:{name}", str(folder), find_tkgl(folder) is not None))
    return found


def _read_folder(folder: Path) -> EventStream | None:
    return _load(str(folder)) if is_folder(folder) or find_tkgl(folder) else None


TKG = Suite("tkg", "tkg:NAME|PATH", _load, split_tkg, TkgQuestions, _entries, _read_folder, rivals=("recurrency",))
