from pathlib import Path

import pytest

from tsnn.evaluation import catalog, suite


@pytest.fixture(scope="session")
def data_root() -> Path:
    root = suite.data_root()
    if not root.is_dir():
        pytest.skip(f"real data is absent: there is no folder {root}; set TSNN_DATA")
    return root


@pytest.fixture(scope="session")
def real(data_root):
    """Load a real stream by address, or skip where its files are absent."""
    loaded = {}

    def load(address: str):
        if address not in loaded:
            present = {entry.address: entry.present for entry in catalog.list_data()}
            if not present.get(address):
                pytest.skip(f"real data is absent: {address} is not under {data_root}")
            loaded[address] = catalog.load(address)
        return loaded[address]

    return load
