"""The data behind a run: found by the name its card holds, checked by its fingerprint."""

from __future__ import annotations

from tsnn.data.catalog import SCHEMES, default_split, load
from tsnn.data.split import Split
from tsnn.errors import InputError
from tsnn.training.run import Run


def run_split(run: Run, data: str | None = None) -> Split:
    """The split the run was trained on, from its own card or from the address of the same data."""
    card = run.metrics["card"]["data"]
    address = data or card["name"]
    if data is None and address.partition(":")[0] not in SCHEMES:
        raise InputError(f"{run.folder} was trained on {address}, which has no address; name its file with --data.")
    split = default_split(load(address))
    if split.stream.fingerprint() != card["fingerprint"]:
        raise InputError(f"{address} is not the data {run.folder} was trained on; name that with --data.")
    return split
