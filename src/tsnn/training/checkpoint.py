"""All that an interrupted training run needs to go on as if nothing had happened: a checkpoint and the journal.

The checkpoint is one safetensors file, written whole or not at all; the journal is cut back to where it was then.
"""

from __future__ import annotations

import hashlib
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


_KEY = "tsnn"


def write_tensors(path: Path, tensors: dict[str, Tensor], metadata: dict[str, str]) -> None:
    """Write a safetensors file so that a reader sees either the old one or the whole new one."""
    whole = {name: tensor.contiguous() for name, tensor in tensors.items()}
    told = {_KEY: json.dumps(metadata, sort_keys=True)}  # one entry: several would stand in an order of chance
    write_whole(path, lambda partial: save_file(whole, partial, told))


def metadata_of(file: Any) -> dict[str, str]:
    """What `write_tensors` was told, of an open file; earlier versions wrote each entry by itself."""
    told: dict[str, str] = dict(file.metadata() or {})
    if _KEY not in told:
        return told
    found = json.loads(told[_KEY])
    return {str(name): str(value) for name, value in found.items()}


def _digest_of(tensors: dict[str, Tensor], position: str) -> str:
    """Of everything in a checkpoint."""
    digest = hashlib.sha256(position.encode())
    for name, tensor in sorted(tensors.items()):
        digest.update(f"{name}:{tensor.dtype}:{tuple(tensor.shape)};".encode())
        digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def save_checkpoint(
    path: Path, position: Position, sections: dict[str, dict[str, Tensor]], optimizer: torch.optim.Optimizer
) -> None:
    """Sections are named groups of tensors: weights, best weights, the store."""
    tensors = {f"{section}/{name}": value for section, group in sections.items() for name, value in group.items()}
    for index, state in optimizer.state_dict()["state"].items():
        tensors |= {f"optimizer/{index}/{name}": torch.as_tensor(value) for name, value in state.items()}
    told = json.dumps(asdict(position))
    write_tensors(path, tensors, {"position": told, "digest": _digest_of(tensors, told)})


def load_checkpoint(path: Path) -> tuple[Position, dict[str, dict[str, Tensor]]]:
    """The position and the sections; optimizer tensors stand in section `optimizer`."""
    try:
        with safe_open(path, framework="pt") as file:
            metadata = metadata_of(file)
            tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118 - safe_open is not a dict
        saved = json.loads(metadata["position"])
        position = Position(**saved | {"course": Course(**saved["course"])})
    except (SafetensorError, OSError, KeyError, TypeError, ValueError, AttributeError) as error:
        raise RunError(f"{path} is not a checkpoint of this version ({error}); remove it to start again.") from None
    if metadata.get("digest", "") not in ("", _digest_of(tensors, metadata["position"])):  # of an earlier version: none
        raise RunError(f"{path} is not as it was written; remove it to start again.")
    sections: dict[str, dict[str, Tensor]] = {}
    for key, tensor in tensors.items():
        section, _, name = key.partition("/")
        sections.setdefault(section, {})[name] = tensor
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
        """Forget what was written after a checkpoint: it will be written again. What a disk has lost stays lost."""
        if self._path is not None and self.size > size:
            with self._path.open("ab") as file:
                file.truncate(size)

    def write(self, **entry: Any) -> None:
        """Append one entry."""
        if self._path is not None:
            with self._path.open("a") as file:
                file.write(json.dumps(entry) + "\n")
