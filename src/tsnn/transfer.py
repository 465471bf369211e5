"""Copies from the host's memory to a device that do not wait for the kernels running there."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor


def send(array: NDArray[Any], device: torch.device) -> Tensor:
    """The array as a tensor on the device; on the host it is not copied.

    On a GPU, a plain copy waits until every kernel started before it has ended, and the host waits with it. So copies
    run on a CUDA stream of their own; only kernels started later wait for the copy.
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
