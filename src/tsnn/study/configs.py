"""The configuration of a data set: one TOML file each, chosen on validation rows by `tsnn tune`.

`uci.toml` is used for every visibility, unless there is a more special file such as `uci.arrival.toml`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tsnn.config import Config

FOLDER = Path(__file__).resolve().parents[1] / "configs"  # shipped with the package


def config_path(data: str, visibility: str, folder: Path = FOLDER) -> Path | None:
    """The file of a data set under a visibility, if there is one."""
    name, kind = data.rpartition(":")[2], visibility.partition(":")[0]
    paths = (folder / f"{name}.{kind}.toml", folder / f"{name}.toml")
    return next((path for path in paths if path.is_file()), None)


def config_for(
    data: str, visibility: str, overrides: dict[str, Any] | None = None, *, tuned: bool = True, folder: Path = FOLDER
) -> Config:
    """The data set's configuration under a visibility; the defaults where it has none, or where `tuned` is false."""
    path = config_path(data, visibility, folder) if tuned else None
    return Config.build(path, {**(overrides or {}), "train.visibility": visibility})
