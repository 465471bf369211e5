"""What every test shares: one thread, a repeatable Hypothesis, and the real data where it is present."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")  # read when torch is first imported, so it stands before that import

import pytest
import torch
from hypothesis import HealthCheck, settings

ROOT = Path(__file__).resolve().parents[1]

torch.set_num_threads(1)

settings.register_profile(
    "tsnn", deadline=None, derandomize=True, max_examples=15, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("tsnn")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "slow: takes more than about two seconds; left out of `make check`")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if {"data_root", "need_data"} & set(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.slow)


@pytest.fixture(scope="session")
def data_root() -> Path:
    """The folder with the real event streams; it need not exist."""
    return Path(os.environ.get("TSNN_DATA") or ROOT.parent / "shared" / "data")


@pytest.fixture(scope="session")
def need_data(data_root: Path) -> Callable[[str], Path]:
    """`need_data("dgb/uci")` is that dataset's folder, or skips the test and says why."""

    def folder(name: str) -> Path:
        path = data_root / name
        if not path.is_dir():
            pytest.skip(f"needs the dataset {name}, absent here; set TSNN_DATA to the folder that holds it")
        return path

    return folder
