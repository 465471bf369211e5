"""All that an interrupted training run needs to go on as if nothing had happened: a checkpoint and the journal.

The checkpoint is one safetensors file, written whole or not at all; the journal is cut back to where it was then.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from tsnn.errors import RunError
from tsnn.files import write_whole
from tsnn.training.course import Course


@dataclass
class Position:
    """Where training stands, apart from tensors."""

    config: str  # resolved TOML: a checkpoint of other settings is refused
    data: str  # fingerprint of the stream
    course: Course
    row: int = 0  # next training row of this epoch
    step: int = 0  # optimizer steps taken
    journal: int = 0  # bytes
    sums: list[float] = field(default_factory=list)  # running sums of this epoch's losses
    terms: int = 0


def write_tensors(path: Path, tensors: dict[str, Tensor], metadata: dict[str, str]) -> None:
    """Write a safetensors file so that a reader sees either the old one or the whole new one."""
    whole = {name: tensor.contiguous() for name, tensor in tensors.items()}
    write_whole(path, lambda partial: save_file(whole, partial, metadata))


def save_checkpoint(
    path: Path, position: Position, sections: dict[str, dict[str, Tensor]], optimizer: torch.optim.Optimizer
) -> None:
    """Sections are named groups of tensors: weights, best weights, the store."""
    tensors = {f"{section}/{name}": value for section, group in sections.items() for name, value in group.items()}
    for index, state in optimizer.state_dict()["state"].items():
        tensors |= {f"optimizer/{index}/{name}": torch.as_tensor(value) for name, value in state.items()}
    write_tensors(path, tensors, {"position": json.dumps(asdict(position))})


def load_checkpoint(path: Path) -> tuple[Position, dict[str, dict[str, Tensor]]]:
    """The position and the sections; optimizer tensors stand in section `optimizer`."""
    try:
        with safe_open(path, framework="pt") as file:
            saved = json.loads(file.metadata()["position"])
            position = Position(**saved | {"course": Course(**saved["course"])})
            sections: dict[str, dict[str, Tensor]] = {}
            for key in file.keys():  # noqa: SIM118 - safe_open is not a dict
                section, name = key.split("/", 1)
                sections.setdefault(section, {})[name] = file.get_tensor(key)
    except (SafetensorError, KeyError, TypeError, json.JSONDecodeError) as error:
        raise RunError(f"{path} is not a checkpoint of this version ({error}); remove it to start again.") from None
    return position, sections


def restore_optimizer(optimizer: torch.optim.Optimizer, tensors: dict[str, Tensor]) -> None:
    """Put saved moments back."""
    state: dict[int, dict[str, Tensor]] = {}
    for key, value in tensors.items():
        index, name = key.split("/")
        state.setdefault(int(index), {})[name] = value
    whole = optimizer.state_dict()
    whole["state"] = state
    optimizer.load_state_dict(whole)


class Journal:
    """What happened, one JSON object a line; without a path it keeps nothing."""

    def __init__(self, path: Path | None) -> None:
        self._path = path

    @property
    def size(self) -> int:
        """Bytes written so far, which a checkpoint remembers."""
        return self._path.stat().st_size if self._path is not None and self._path.exists() else 0

    def truncate(self, size: int) -> None:
        """Forget what was written after a checkpoint: it will be written again."""
        if self._path is not None:
            with self._path.open("ab") as file:
                file.truncate(size)

    def write(self, **entry: Any) -> None:
        """Append one entry."""
        if self._path is not None:
            with self._path.open("a") as file:
                file.write(json.dumps(entry) + "\n")
