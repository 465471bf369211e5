"""Steps recorded as CUDA graphs: to start a kernel from Python takes longer than most of them run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import torch
from torch import Tensor

_UNRECORDED = 2  # calls of a shape before it is worth a recording; they also warm up what a recording must not
Shapes = tuple[tuple[int, ...], ...]


class Recorded:
    """A step that reads its tensors and writes in place only; on a GPU a recording for every shape that comes often."""

    def __init__(self, step: Callable[..., None]) -> None:
        self._step = step
        self._calls: Counter[Shapes] = Counter()
        self._recordings: dict[Shapes, tuple[torch.cuda.CUDAGraph, tuple[Tensor, ...]]] = {}

    def __call__(self, *tensors: Tensor) -> None:
        """Run the step on these."""
        shapes = tuple(tuple(tensor.shape) for tensor in tensors)
        self._calls[shapes] += 1
        if tensors[0].device.type != "cuda" or self._calls[shapes] <= _UNRECORDED:
            self._step(*tensors)
            return
        if shapes not in self._recordings:
            self._recordings[shapes] = self._record(tensors)
        graph, inputs = self._recordings[shapes]
        for own, given in zip(inputs, tensors, strict=True):
            own.copy_(given, non_blocking=True)
        graph.replay()

    def _record(self, tensors: tuple[Tensor, ...]) -> tuple[torch.cuda.CUDAGraph, tuple[Tensor, ...]]:
        inputs = tuple(tensor.clone() for tensor in tensors)
        graph = torch.cuda.CUDAGraph()
        others = next(iter(self._recordings.values()), None)  # never at once, so they share their memory
        with torch.cuda.graph(graph, pool=None if others is None else others[0].pool()):
            self._step(*inputs)
        return graph, inputs
