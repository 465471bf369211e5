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

from tsnn.engine import cuda, stack
from tsnn.engine.engine import CudaEngine
from tsnn.training import stacked

HERE = Path(__file__).parent
ENTRIES = """
template <class Kernel>
static void run(Kernel kernel, int teams, const Sizes& z) {
    const int blocks = z.teams * CLUSTER;
    for (int first = 0; first < teams * CLUSTER; first += blocks)
        emulator::run_blocks(first, blocks, CLUSTER, THREADS, kernel);
}

#define ENTRY(kernel, ...) \\
    extern "C" void run_##kernel(int teams, Plan* plan, Sizes* z, Weights* w, Tape* tape, Grads* g) { \\
        WATCH \\
        run([&] { kernel(*plan, *z, *w, *tape __VA_OPT__(, ) __VA_ARGS__); }, teams, *z); \\
    }
ENTRY(open_rows)
ENTRY(forward)
ENTRY(measure_events)
ENTRY(backward, *g)
ENTRY(close_rows, *g)
"""
WATCH = """
#define WATCH \\
    const size_t bytes = teams / z->teams * sizeof(real); \\
    emulator::order = &race::checked; \\
    race::arrays = {{tape->h, bytes * z->tape}}; \\
    if (g) race::arrays.push_back({g->up_energy, bytes * z->grads});
"""


class EmulatedEngine(CudaEngine):
    """The engine with its tensors on the host; `launch` has to stand in for the GPU's."""

    device = torch.device("cpu")


@cache
def build(shape: cuda.Shape, racecheck: bool) -> Any:
    """A shared library of the kernels of this shape."""
    folder = Path(mkdtemp())
    source, built, library = (folder / f"recurrence.{end}" for end in ("cpp", "o", "so"))
    watch = f'#include "{HERE / "racecheck.h"}"\n{WATCH}' if racecheck else "#define WATCH\n"
    source.write_text(f'#include "{HERE / "emulator.h"}"\n{cuda.source(shape)}\n{watch}{ENTRIES}')
    reported = ["-fsanitize=thread"] if racecheck else []
    compiler = ["g++", "-std=c++20", "-O1", "-w", "-fPIC"]
    subprocess.run([*compiler, *reported, "-c", str(source), "-o", str(built)], check=True)
    subprocess.run([*compiler, "-shared", str(built), "-o", str(library)], check=True)  # without the sanitizer's own
    return ctypes.CDLL(str(library))


def launch(shape: cuda.Shape, name: str, teams: int, *structs: Any, racecheck: bool = False) -> None:
    """In the place of `tsnn.engine.cuda.launch`."""
    pointers = [ctypes.c_void_p(struct.ctypes.data) for struct in structs]
    pointers += [ctypes.c_void_p()] * (5 - len(pointers))  # forward has no gradients
    getattr(build(shape, racecheck), f"run_{name}")(teams, *pointers)


def races(shape: cuda.Shape) -> int:
    """Accesses without an order in all that was run of this shape with `racecheck`."""
    count: int = build(shape, True).races()
    return count


def small_stacks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stacks on the host, in groups of two; of a block fewer threads, since they run one by one here."""
    if shutil.which("g++") is None:
        pytest.skip("no C++ compiler is at hand")
    monkeypatch.setattr(cuda, "launch", launch)
    monkeypatch.setattr(cuda.Shape, "threads", property(lambda shape: 128))
    for module in (cuda, stack, stacked):
        monkeypatch.setattr(module, "GROUP", 2)
