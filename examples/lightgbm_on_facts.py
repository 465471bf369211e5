"""Another model on what tsnn knows: facts as of each event, negatives beside it, and gradient boosting on them.

python examples/lightgbm_on_facts.py [DATA]
"""

from __future__ import annotations

import sys

import numpy as np
from sklearn.ensemble import HistGradientBoostingClassifier  # or LightGBM: LGBMRanker takes sizes of groups as well

import tsnn
from tsnn.asof.facts import as_of
from tsnn.asof.sheet import Negatives
from tsnn.data.question import Question
from tsnn.evaluation.metrics import average_precision, rank_metrics, ranks
from tsnn.evaluation.replay import score_queries

ASKED = ("query", "label", "src", "dst", "t", "split")
HEURISTICS = {"EdgeBank": "pair_count", "popularity": "dst_in_count"}  # each is a column of the table


def main(data: str = "synthetic:roles:events=6000,nodes=60", negatives: int = 5) -> dict[str, float]:
    """Train on the first 70 % of the events, stop on the next 15 %, measure on the last: test AP by model."""
    split = tsnn.default_split(data)
    wanted = as_of(split, negatives=Negatives(negatives))  # tsnn.facts(data, negatives=5) is its table
    table = wanted.table().to_pandas()
    inputs, truth = table.drop(columns=list(ASKED)), table["label"] == 1
    print(f"{len(table):,} rows of {inputs.shape[1]} facts, {truth.mean():.0%} of them events, nothing seen too early")

    model, (train, val, test) = None, (table["split"] == name for name in ("train", "val", "test"))
    for leaves in (8, 32):  # the larger trees only if validation rows say so
        tried = HistGradientBoostingClassifier(max_leaf_nodes=leaves, learning_rate=0.05, random_state=0)
        tried.fit(inputs[train], truth[train])
        scores = tried.predict_proba(inputs)[:, 1]
        ap = average_precision(scores[val & truth], scores[val & ~truth])
        if model is None or ap > model[0]:
            model = ap, scores

    rival = tsnn.baseline("features")
    rival.fit(split, Question())
    told = {"boosted trees": model[1], "features": score_queries(rival, split.stream, wanted.sheet.asked)}
    told |= {name: table[column].to_numpy() for name, column in HEURISTICS.items()}
    found = {}
    for name, scores in told.items():
        found[name] = 100 * average_precision(scores[test & truth], scores[test & ~truth])
        mrr = rank_metrics(ranks(scores[test], np.arange(0, test.sum() + 1, 1 + negatives)))["mrr"]
        print(f"{name:<14} test AP {found[name]:5.1f}   MRR among {1 + negatives} {mrr:.3f}")
    return found


if __name__ == "__main__":
    main(*sys.argv[1:])
