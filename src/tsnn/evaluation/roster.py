"""Baselines by name, as the command line and the reports ask for them."""

from __future__ import annotations

from tsnn.errors import ConfigError
from tsnn.evaluation.baselines import EdgeBank, Popularity, Recency, best_edgebank_mode
from tsnn.evaluation.features import FLOOR, WITH_SUCCESSOR, Features, FitOptions
from tsnn.evaluation.scorer import Scorer

NAMES = ("edgebank", "popularity", "recency", "features", "features+successor")


def baseline(name: str, *, data: str = "", seed: int = 0) -> Scorer:
    """A baseline that has yet to be fitted. `edgebank:MODE` chooses a mode; without one, the best known for `data`."""
    base, _, mode = name.partition(":")
    if base not in NAMES or (mode and base != "edgebank"):
        raise ConfigError(f"there is no baseline {name!r}; use one of {', '.join(NAMES)}, edgebank:MODE.")
    if base == "edgebank":
        return EdgeBank(mode or best_edgebank_mode(data))
    if base == "popularity":
        return Popularity()
    if base == "recency":
        return Recency()
    return Features(WITH_SUCCESSOR if base == "features+successor" else FLOOR, FitOptions(seed=seed))
