"""A run: the folder that training leaves and everything else starts from. No pickle anywhere.

config.toml          the resolved configuration
weights.safetensors  parameters; its metadata hold the shape of the stream
state.safetensors    stalks, frames and counters after the last event of the stream
ids.parquet          external node ids, in index order
metrics.json         every figure, each with its protocol card
journal.jsonl        what happened, epoch by epoch
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from tsnn.config import Config
from tsnn.data.events import EventStream, NodeIds
from tsnn.errors import RunError
from tsnn.evaluation.model import ModelScorer
from tsnn.evaluation.scorer import replay_all
from tsnn.files import write_whole
from tsnn.model.tsnn import TSNN, StreamShape
from tsnn.training.checkpoint import write_tensors

CONFIG, WEIGHTS, STATE, IDS, METRICS = (
    "config.toml", "weights.safetensors", "state.safetensors", "ids.parquet", "metrics.json",
)  # fmt: skip
FORMAT = "1"


@dataclass(frozen=True)
class Run:
    """A trained model with its ids and figures."""

    folder: Path
    model: TSNN
    ids: NodeIds
    metrics: dict[str, Any]

    @property
    def config(self) -> Config:
        """The resolved configuration it was trained with."""
        return self.model.config

    @classmethod
    def load(cls, folder: str | Path) -> Run:
        """Read a run folder."""
        folder = Path(folder)
        for name in (CONFIG, WEIGHTS, STATE, IDS, METRICS):
            if not (folder / name).is_file():
                raise RunError(f"{folder} is not a finished run: {name} is missing; train it with tsnn train.")
        config = Config.build(folder / CONFIG)
        tensors, metadata = read_tensors(folder / WEIGHTS)
        model = TSNN(config, StreamShape(**json.loads(metadata["shape"]))).to(getattr(torch, config.train.dtype))
        model.load_state_dict(tensors)
        return cls(folder, model.eval(), NodeIds.load(folder / IDS), json.loads((folder / METRICS).read_text()))


def read_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Tensors and metadata of a safetensors file of this format."""
    try:
        with safe_open(path, framework="pt") as file:
            metadata = dict(file.metadata() or {})
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError) as error:
        raise RunError(f"{path} cannot be read ({error}); train the run again.") from None
    if metadata.get("format") != FORMAT:
        found = metadata.get("format")
        raise RunError(f"{path} is of format {found}, this version reads {FORMAT}; train the run again.")
    return tensors, metadata


def write_config(folder: Path, config: Config) -> None:
    """Store the resolved configuration."""
    write_whole(folder / CONFIG, lambda partial: _write_text(partial, config.to_toml()))


def _write_text(path: Path, text: str) -> None:
    path.write_text(text)


def save_run(folder: Path, model: TSNN, stream: EventStream, metrics: dict[str, Any]) -> Run:
    """Write a finished run; `metrics.json` comes last, so a torn run is never taken for a finished one."""
    write_config(folder, model.config)
    shape = {"format": FORMAT, "shape": json.dumps(asdict(model.shape))}
    write_tensors(folder / WEIGHTS, dict(model.state_dict()), shape)
    write_tensors(folder / STATE, final_state(model, stream), {"format": FORMAT})
    stream.ids.save(folder / IDS)
    text = json.dumps(metrics, indent=2) + "\n"
    write_whole(folder / METRICS, lambda partial: _write_text(partial, text))
    return Run(folder, model, stream.ids, metrics)


def final_state(model: TSNN, stream: EventStream) -> dict[str, Tensor]:
    """Stalks, frames and counters once every event of the stream has been observed by the frozen weights."""
    scorer = ModelScorer(model, stream)
    planner = replay_all(scorer, stream)
    counters = {f"counters/{name}": torch.from_numpy(column) for name, column in planner.counters.snapshot().items()}
    origin = torch.tensor(planner.origin)
    return {**scorer.store.snapshot(), **counters, "origin": origin, "clock": torch.tensor(stream.t[-1])}
