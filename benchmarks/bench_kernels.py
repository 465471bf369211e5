"""Microseconds per event of the fused kernels, stage by stage, beside the multiply-add floor.

    OMP_NUM_THREADS=1 python benchmarks/bench_kernels.py [--events 200] [--repeats 15]

The stream is synthetic: endpoints drawn with a heavy tail among 2000 nodes, buffers full before the chunk begins.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter, deque
from collections.abc import Callable

import numpy as np
import torch
from torch import nn

from tsnn.config import ModelConfig
from tsnn.engine import fused
from tsnn.engine.buffers import make
from tsnn.engine.layout import BackScratch, Grads, Parameters, Scratch, Tape
from tsnn.plan.chunk import UpdatePlan

CONTEXT = 24
PEAK = 115.0  # GFLOP/s of one core in float32, as the blocks of `layer` reach it on data in the first-level cache
SIZES = [(64, 2, 100, 1, 10), (64, 2, 100, 1, 30), (128, 4, 128, 2, 30), (256, 4, 256, 2, 30)]  # d, k, w, K, neighbors


class Updater(nn.Module):
    def __init__(self, cfg: ModelConfig) -> None:
        super().__init__()
        d, k, w = cfg.stalk_dim, cfg.num_reflectors, cfg.hidden_dim
        self.frame_in, self.frame_out = nn.Linear(2 * d + CONTEXT, w), nn.Linear(w, k * d)
        self.msg_in, self.msg_out = nn.Linear(2 * d + CONTEXT, w), nn.Linear(w, d)
        self.gru, self.theta = nn.GRUCell(d, d), nn.Parameter(torch.zeros(d))


def synthetic_plan(n: int, num_neighbors: int, num_nodes: int = 2000, warm: int = 30_000, seed: int = 0) -> UpdatePlan:
    rng = np.random.default_rng(seed)
    popularity = (1.0 + np.arange(num_nodes)) ** -0.8
    pairs = rng.choice(num_nodes, size=(warm + n, 2), p=popularity / popularity.sum())
    recent = [deque(maxlen=num_neighbors) for _ in range(num_nodes)]
    row_h, row_F = np.arange(num_nodes), np.arange(num_nodes)
    reads, ptr, entries = [], [0], []
    for i, (u, v) in enumerate(pairs):
        if i >= warm:
            e, ends = i - warm, [u] if u == v else [u, v]
            mult_src, mult_dst = Counter(recent[u]), Counter(recent[v] if u != v else [])
            active = list(dict.fromkeys([*ends, *mult_src, *mult_dst]))
            reads.append((row_h[u], row_h[v], row_F[u], row_F[v], u == v))
            start = row_h[active]
            row_F[u], row_F[v] = num_nodes + 2 * e, num_nodes + 2 * e + (u != v)
            row_h[active] = num_nodes + len(entries) + np.arange(len(active))
            entries += [(h, row_F[a], mult_src[a], mult_dst[a]) for a, h in zip(active, start, strict=True)]
            ptr.append(len(entries))
        recent[u].append(v)
        if u != v:
            recent[v].append(u)
    r, a = np.array(reads).T, np.array(entries).T
    ints = [x.astype(np.int32) for x in (r[0], r[1], r[2], r[3], a[0], a[1], row_h, row_F)]
    return UpdatePlan(
        start=0, stop=n, nodes=np.arange(num_nodes), src_h=ints[0], dst_h=ints[1], src_F=ints[2], dst_F=ints[3],
        gap_src=np.zeros(n), gap_dst=np.zeros(n), is_loop=r[4].astype(bool), act_ptr=np.array(ptr, np.int64),
        act_h=ints[4], act_F=ints[5], mult_src=a[2].astype(np.float32), mult_dst=a[3].astype(np.float32),
        final_h=ints[6], final_F=ints[7],
    )  # fmt: skip


def best(function: Callable[[], object], repeats: int) -> float:
    times = []
    for _ in range(repeats):
        start = time.thread_time()
        function()
        times.append(time.thread_time() - start)
    return min(times)


def dense_flops(d: int, k: int, w: int) -> int:
    """Multiply-adds, counted twice, of both endpoints through every weight of the sequential part."""
    return 4 * (2 * d * w + w * k * d + 2 * d * w + w * d + 6 * d * d)


def diffusion_flops(plan: UpdatePlan, d: int, k: int, rounds: int) -> float:
    """Two applications of U (project and subtract) per entry and round."""
    return len(plan.act_h) / plan.num_events * rounds * 2 * 4 * k * d


def measure(size: tuple[int, ...], n: int, repeats: int) -> list[float]:
    d, k, w, rounds, neighbors = size
    cfg = ModelConfig(stalk_dim=d, num_reflectors=k, hidden_dim=w, diffusion_steps=rounds, num_neighbors=neighbors)
    torch.manual_seed(0)
    plan, updater = synthetic_plan(n, neighbors), Updater(cfg)
    n0 = len(plan.nodes)
    context, h0, F0 = torch.randn(n, 2, CONTEXT), torch.randn(n0, d), torch.randn(n0, k, d) / k**0.5
    parameters = Parameters.of(updater)
    dims = fused.of_chunk(fused.dims_of(cfg, 0.01, torch.float32), plan)
    columns, dtype = fused.plan_arrays(plan), torch.float32
    rows = context.reshape(2 * n, -1)
    weights, back = (fused.pack_weights(dims, parameters, transposed) for transposed in (False, True))
    upstream = (torch.randn(n0 + len(plan.act_h), d), torch.randn(n0 + 2 * n, k, d), torch.ones(n), torch.ones(n))

    def tape() -> Tape:
        pairs = (("hid_frame", "frame_in"), ("hid_msg", "msg_in"))
        shares = {
            to: fused._context_share(dims, getattr(parameters, name), getattr(parameters, f"{name}_bias"), rows)
            for to, name in pairs
        }
        made = make(Tape, dtype, dims, shares)
        made.h[:n0], made.F[:n0] = h0.numpy(), F0.numpy()
        return made

    def grads() -> Grads:
        given = dict(zip(("up_h", "up_F", "up_energy", "up_smooth"), (up.numpy() for up in upstream), strict=True))
        made = make(Grads, dtype, dims, given, base=n0, gain_rows=1)
        for begins in (made.gN, made.gS, made.gD):
            begins.fill(0)
        return made

    def timed(make: Callable[[], tuple], run: Callable[..., None]) -> float:
        times = []
        for _ in range(repeats):
            arguments = make()
            start = time.thread_time()
            run(*arguments)
            times.append(time.thread_time() - start)
        return min(times)

    scratch = make(Scratch, dtype, dims)
    back_scratch = make(BackScratch, dtype, dims, most=int(np.diff(columns.act_ptr).max()))
    forward = timed(lambda: (dims, columns, weights, tape(), scratch), fused.forward)
    kept, done = tape(), grads()
    fused.forward(dims, columns, weights, kept, scratch)
    backward = timed(lambda: (dims, columns, back, kept, grads(), back_scratch, n0), fused.backward)
    fused.backward(dims, columns, back, kept, done, back_scratch, n0)
    weight_products = best(lambda: fused._weight_gradients(dims, parameters, rows, kept, done), repeats)

    def whole_forward() -> tuple:
        return fused.fused_update(updater, plan, context, h0, F0, cfg, 0.01)

    whole = timed(lambda: (), whole_forward)
    whole_back = timed(lambda: (whole_forward(), upstream), torch.autograd.backward)
    return [1e6 * t / n for t in (forward, backward, weight_products, whole, whole_back)] + [
        dense_flops(d, k, w), diffusion_flops(plan, d, k, rounds), len(plan.act_h) / n,
    ]  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--events", type=int, default=200)
    parser.add_argument("--repeats", type=int, default=15)
    options = parser.parse_args()
    torch.set_num_threads(1)
    print(f"us/event: kernels alone | node: with packing, buffers and products per chunk | floor at {PEAK:.0f} GFLOP/s")
    names = ("active", "forward", "backward", "weights", "node fwd", "node bwd", "floor", "GF/s fwd")
    print(f"{'d k w K nbr':>18} " + " ".join(f"{name:>8}" for name in names))
    for size in SIZES:
        *times, dense, diffusion, active = measure(size, options.events, options.repeats)
        flops = dense + diffusion
        figures = (active, *times, flops / PEAK / 1e3, flops / times[0] / 1e3)
        print(f"{' '.join(map(str, size)):>18} " + " ".join(f"{figure:8.1f}" for figure in figures))


if __name__ == "__main__":
    main()
