"""Temporal link prediction on event streams with dynamic orthogonal frames."""

from tsnn.config import Config
from tsnn.data.catalog import default_split, load
from tsnn.data.events import EventStream, make_stream
from tsnn.data.table import from_arrays, from_pandas, from_polars, from_temporal_data, read_table
from tsnn.errors import ConfigError, InputError, RunError, TsnnError
from tsnn.evaluation.evaluate import evaluate
from tsnn.evaluation.model import ModelScorer
from tsnn.evaluation.roster import baseline
from tsnn.online.predictor import Predictor
from tsnn.training.run import Run
from tsnn.training.train import train
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
]
