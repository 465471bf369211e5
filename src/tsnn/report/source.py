"""The data behind a run: found by the name its card holds, checked by its fingerprint."""

from __future__ import annotations

from tsnn.data.split import Split
from tsnn.errors import InputError
from tsnn.evaluation.catalog import default_split, load, suite_of
from tsnn.training.run import Run


def run_split(run: Run, *data: str) -> Split:
    """The split the run was trained on, from its own card or from whichever of these addresses is the same data."""
    card = run.metrics["card"]["data"]
    if not data and not suite_of(card["name"]).name:
        raise InputError(
            f"{run.folder} was trained on {card['name']}, which has no address; name its file with --data."
        )
    addresses = data or (card["name"],)
    for address in addresses:
        stream = load(address, run.description)
        if stream.fingerprint() == card["fingerprint"]:
            return default_split(stream)
    raise InputError(f"{' or '.join(addresses)} is not the data {run.folder} was trained on; name that with --data.")
