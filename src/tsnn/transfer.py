"""From the host's memory to a device, past the work that is under way there."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor


def send(array: NDArray[Any], device: torch.device) -> Tensor:
    """The array there; on the host it is not copied.

    On a GPU a plain copy takes its turn behind every kernel already started, and the host would wait with it instead of
    starting the next ones. So copies have a stream of their own, and only what comes after waits for them.
    """
    tensor = torch.from_numpy(array)
    if device.type != "cuda":
        return tensor
    lane = _lane(device)
    with torch.cuda.stream(lane):
        sent = tensor.to(device)
    now = torch.cuda.current_stream(device)
    now.wait_stream(lane)
    sent.record_stream(now)
    return sent


@cache
def _lane(device: torch.device) -> torch.cuda.Stream:
    return torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
