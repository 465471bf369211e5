"""The cuda engine without a GPU: its source compiled for the host and run thread by thread (see emulator.h)."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import pytest
import torch

from tsnn.engine import cuda
from tsnn.engine import population as stacks
from tsnn.engine.engine import CudaEngine
from tsnn.training import population

HERE = Path(__file__).parent
ENTRIES = """
extern "C" void run(int which, int streams, Plan* plan, Sizes* z, Weights* w, Tape* tape, Grads* g) {
    for (int stream = 0; stream < streams; stream++)
        emulator::run_cluster(stream * CLUSTER, CLUSTER, THREADS, [&] {
            which ? backward(*plan, *z, *w, *tape, *g) : forward(*plan, *z, *w, *tape);
        });
}
"""


class EmulatedEngine(CudaEngine):
    """The engine with its tensors on the host; `launch` has to stand in for the GPU's."""

    device = torch.device("cpu")


@cache
def build(shape: cuda.Shape) -> Any:
    """A shared library of the kernels of this shape."""
    folder = Path(mkdtemp())
    source, library = folder / "recurrence.cpp", folder / "recurrence.so"
    source.write_text(f'#include "{HERE / "emulator.h"}"\n{cuda.source(shape)}\n{ENTRIES}')
    command = ["g++", "-std=c++20", "-O1", "-w", "-shared", "-fPIC", str(source), "-o", str(library)]
    subprocess.run(command, check=True)
    return ctypes.CDLL(str(library)).run


def launch(shape: cuda.Shape, name: str, streams: int, *structs: Any) -> None:
    """In the place of `tsnn.engine.cuda.launch`."""
    pointers = [ctypes.c_void_p(struct.ctypes.data) for struct in structs]
    pointers += [ctypes.c_void_p()] * (5 - len(pointers))
    build(shape)(int(name == "backward"), streams, *pointers)


def small_populations(monkeypatch: pytest.MonkeyPatch) -> None:
    """Populations on the host, in groups of two; of a block fewer threads, since they run one by one here."""
    if shutil.which("g++") is None:
        pytest.skip("no C++ compiler is at hand")
    monkeypatch.setattr(cuda, "launch", launch)
    monkeypatch.setattr(cuda.Shape, "threads", property(lambda shape: 128))
    for module in (cuda, stacks, population):
        monkeypatch.setattr(module, "GROUP", 2)
