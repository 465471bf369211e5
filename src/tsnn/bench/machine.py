"""What a benchmark ran on, and how fast that is at the one thing the recurrence cannot avoid."""

from __future__ import annotations

import datetime
import os
import platform
import resource
import time
from pathlib import Path
from typing import Any

import torch

from tsnn.evaluation.card import versions


def machine_card() -> dict[str, Any]:
    """Hardware, versions and date."""
    return {
        "date": datetime.date.today().isoformat(),
        "cpu": _cpu_model(),
        "cores": os.cpu_count(),
        "gpu": torch.cuda.get_device_name(0) if torch.cuda.is_available() else None,
        "versions": versions(),
    }


def _cpu_model() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()


def peak_memory_mb() -> float:
    """Largest resident size of this process so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def multiply_add_rate(size: int = 512, repeats: int = 30) -> float:
    """Float32 multiply-adds a second of one core, from a matrix product that fits its cache."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    a, b = torch.randn(size, size), torch.randn(size, size)
    times = []
    for _ in range(repeats):
        began = time.perf_counter()
        torch.mm(a, b)
        times.append(time.perf_counter() - began)
    torch.set_num_threads(threads)
    return size**3 / min(times)
