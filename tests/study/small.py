"""A study small enough for a test: a synthetic stream and a model of a few numbers."""

from __future__ import annotations

from tsnn.study.reproduce import Study

DATA = "synthetic:roles:events=600,nodes=40"
SETTINGS = {"train.epochs": 1, "model.stalk_dim": 8, "model.hidden_dim": 8, "model.score_dim": 16}


def small_study(**changes) -> Study:
    return Study(**({"data": [DATA], "seeds": 2, "visibilities": ["strict"], "overrides": SETTINGS} | changes))
