"""Temporal link prediction on event streams with dynamic orthogonal frames."""

import importlib
import typing

if typing.TYPE_CHECKING:
    from tsnn.api import evaluate, train, train_seeds
    from tsnn.asof.facts import facts
    from tsnn.config import Config
    from tsnn.data.events import EventStream, make_stream
    from tsnn.data.table import from_arrays, from_pandas, from_polars, from_temporal_data, read_table
    from tsnn.errors import ConfigError, ContractError, InputError, RunError, TsnnError
    from tsnn.evaluation.baselines import baseline
    from tsnn.evaluation.catalog import default_split, load
    from tsnn.evaluation.contracts import check_scorer
    from tsnn.evaluation.model import ModelScorer
    from tsnn.online.predictor import Predictor
    from tsnn.runs.seeds import SeedRuns
    from tsnn.training.run import Run
    from tsnn.types import Visibility

__all__ = [
    "Config",
    "ConfigError",
    "ContractError",
    "EventStream",
    "InputError",
    "ModelScorer",
    "Predictor",
    "Run",
    "RunError",
    "SeedRuns",
    "TsnnError",
    "Visibility",
    "baseline",
    "check_scorer",
    "default_split",
    "evaluate",
    "facts",
    "from_arrays",
    "from_pandas",
    "from_polars",
    "from_temporal_data",
    "load",
    "make_stream",
    "read_table",
    "train",
    "train_seeds",
]

# Loaded when first asked for: whoever wants one name should not wait for what the others need.
_HOME = {
    "Config": "tsnn.config",
    "ConfigError": "tsnn.errors",
    "ContractError": "tsnn.errors",
    "EventStream": "tsnn.data.events",
    "InputError": "tsnn.errors",
    "ModelScorer": "tsnn.evaluation.model",
    "Predictor": "tsnn.online.predictor",
    "Run": "tsnn.training.run",
    "RunError": "tsnn.errors",
    "SeedRuns": "tsnn.runs.seeds",
    "TsnnError": "tsnn.errors",
    "Visibility": "tsnn.types",
    "baseline": "tsnn.evaluation.baselines",
    "check_scorer": "tsnn.evaluation.contracts",
    "default_split": "tsnn.evaluation.catalog",
    "evaluate": "tsnn.api",
    "facts": "tsnn.asof.facts",
    "from_arrays": "tsnn.data.table",
    "from_pandas": "tsnn.data.table",
    "from_polars": "tsnn.data.table",
    "from_temporal_data": "tsnn.data.table",
    "load": "tsnn.evaluation.catalog",
    "make_stream": "tsnn.data.events",
    "read_table": "tsnn.data.table",
    "train": "tsnn.api",
    "train_seeds": "tsnn.api",
}


# What people try who know other libraries, and what does it here.
_INSTEAD = {
    "fit": "tsnn.train(data) trains.",
    "predict": "tsnn.Predictor.load(run) answers: recommend, score_pairs.",
    "recommend": "tsnn.Predictor.load(run).recommend(source) ranks.",
    "read_csv": "tsnn.read_table reads CSV and Parquet; every function takes a path as well.",
    "read_parquet": "tsnn.read_table reads CSV and Parquet; every function takes a path as well.",
}


def __getattr__(name: str) -> typing.Any:
    if name == "__version__":
        return importlib.import_module("importlib.metadata").version("tsnn")
    if name in _HOME:
        return getattr(importlib.import_module(_HOME[name]), name)
    if name.startswith("_"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    raise importlib.import_module("tsnn.words").missing_name("tsnn", name, __all__, _INSTEAD.get(name, ""))


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
