"""Temporal link prediction on event streams with dynamic orthogonal frames."""

import importlib
import typing

if typing.TYPE_CHECKING:
    from tsnn.config import Config
    from tsnn.data.events import EventStream, make_stream
    from tsnn.data.table import from_arrays, from_pandas, from_polars, from_temporal_data, read_table
    from tsnn.errors import ConfigError, InputError, RunError, TsnnError
    from tsnn.evaluation.baselines import baseline
    from tsnn.evaluation.catalog import default_split, load
    from tsnn.evaluation.evaluate import evaluate
    from tsnn.evaluation.model import ModelScorer
    from tsnn.online.predictor import Predictor
    from tsnn.runs.seeds import SeedRuns, train_seeds
    from tsnn.runs.train import train
    from tsnn.training.run import Run
    from tsnn.types import Visibility

__all__ = [
    "Config",
    "ConfigError",
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
    "default_split",
    "evaluate",
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
    "default_split": "tsnn.evaluation.catalog",
    "evaluate": "tsnn.evaluation.evaluate",
    "from_arrays": "tsnn.data.table",
    "from_pandas": "tsnn.data.table",
    "from_polars": "tsnn.data.table",
    "from_temporal_data": "tsnn.data.table",
    "load": "tsnn.evaluation.catalog",
    "make_stream": "tsnn.data.events",
    "read_table": "tsnn.data.table",
    "train": "tsnn.runs.train",
    "train_seeds": "tsnn.runs.seeds",
}


def __getattr__(name: str) -> typing.Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
