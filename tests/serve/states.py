"""States compared bit for bit, as they would be saved."""

from __future__ import annotations

import hashlib

from tsnn.online.event import Event
from tsnn.online.predictor import Predictor


def fingerprint(predictor: Predictor) -> str:
    """Changes with any bit of what a snapshot would hold."""
    frozen = predictor.snapshot()
    digest = hashlib.sha256(repr(frozen.ids.external).encode())
    for name, tensor in sorted(frozen.tensors.items()):
        digest.update(f"{name}:{tensor.dtype}:{tuple(tensor.shape)};".encode())
        digest.update(tensor.contiguous().numpy().tobytes())
    return digest.hexdigest()


def differences(one: Predictor, other: Predictor) -> list[str]:
    """Names of what two states hold differently."""
    a, b = one.snapshot(), other.snapshot()
    names = [] if a.ids.external == b.ids.external else ["ids"]
    for name in sorted(a.tensors.keys() | b.tensors.keys()):
        x, y = a.tensors.get(name), b.tensors.get(name)
        if x is None or y is None or x.shape != y.shape or x.numpy().tobytes() != y.numpy().tobytes():
            rows = [] if x is None or y is None or x.shape != y.shape else (x != y).nonzero()[:3].tolist()
            names.append(f"{name} at {rows}")
    return names


def replay_one_by_one(run: object, events: list[Event]) -> Predictor:
    """The uninterrupted history: the run, and then every event on its own."""
    predictor = Predictor.load(run)  # type: ignore[arg-type]
    for event in events:
        predictor.observe_checked([event])
    return predictor
