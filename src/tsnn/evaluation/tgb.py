"""The suite TGB: each positive ranked among its own negatives; MRR and hits@10 over positives."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tsnn.data.question import Asks, Question
from tsnn.data.split import Split, split_by_time
from tsnn.data.tgb import NAMES, edge_file, find_edges, folder_name, load_tgb
from tsnn.data.tgb_negatives import Ragged, TgbNegatives
from tsnn.errors import ConfigError
from tsnn.evaluation.metrics import rank_metrics
from tsnn.evaluation.questions import Outcomes, RankedQuestions
from tsnn.evaluation.suite import benchmark, data_root

_COUNTS = {"tgbl-wiki": (9_227, 157_474)}  # nodes and events, as measured on the files themselves


class TgbQuestions(RankedQuestions):
    """One query per event: its destination first, then the set's own negatives."""

    protocol = "tgb"
    says = "MRR and hits@10 against the suite's own lists of negatives"
    strategies = ("own",)
    metric = "mrr"
    aggregation = "mean over positives; a rank is the mean of the optimistic and the pessimistic one"

    def __init__(
        self, split: Split, question: Question, sets: Sequence[str] | None = None, lists: TgbNegatives | None = None
    ) -> None:
        self._lists = lists or stored_negatives(split)
        super().__init__(split, question, sets)

    def draw(self, name: str, own: Asks) -> Ragged:
        """The set's lists."""
        return self._lists.query(name)

    def figures(self, own: Outcomes) -> dict[str, float]:
        """MRR and hits@10."""
        return rank_metrics(own.rank)

    def negatives(self) -> dict[str, Any]:
        """As many as the set has."""
        return {"strategy": "the set's own, one-versus-many", "mean_per_positive": self.mean_negatives()}


def stored_negatives(split: Split) -> TgbNegatives:
    """The negatives of a TGB split, stored beside its edge list or generated."""
    scheme, _, name = split.stream.name.partition(":")
    if scheme != "tgb":
        raise ConfigError(f"{split.stream.name} has no negatives of TGB; choose another protocol.")
    return TgbNegatives(split, data_root() / "tgb" / folder_name(name))


_SETS = {name: (folder_name(name), edge_file(name)) for name in NAMES}
TGB = benchmark("tgb", _SETS, _COUNTS, find_edges, load_tgb, split_by_time, TgbQuestions)
