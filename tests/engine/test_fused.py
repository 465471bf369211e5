"""The compiled kernels against a plain per-event torch implementation: values and every gradient."""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass, field

import numpy as np
import pytest
import torch
from numba import njit
from torch import Tensor, nn

from tsnn.config import ModelConfig
from tsnn.engine import buffers, gates
from tsnn.engine.fused import fused_update
from tsnn.engine.geometry import fused_geometry
from tsnn.plan.chunk import UpdatePlan

TOLERANCE = {torch.float64: 1e-9, torch.float32: 1e-4}
CONTEXT = 3


# --- a chunk of random events ---------------------------------------------------------------------------------------


@dataclass
class PlanBuilder:
    """Replays events and notes which version each of them reads and writes."""

    num_nodes: int
    num_neighbors: int
    events: list[tuple[int, int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.recent = [deque(maxlen=self.num_neighbors) for _ in range(self.num_nodes)]
        self.row_h, self.row_F = np.arange(self.num_nodes), np.arange(self.num_nodes)
        self.reads: list[tuple[int, int, int, int]] = []
        self.sizes: list[int] = []
        self.entries: list[tuple[int, int, float, float]] = []

    def remember(self, u: int, v: int) -> None:
        self.recent[u].append(v)
        if u != v:
            self.recent[v].append(u)

    def add(self, u: int, v: int) -> None:
        ends = [u] if u == v else [u, v]
        mult_src, mult_dst = Counter(self.recent[u]), Counter() if u == v else Counter(self.recent[v])
        leaves = [w for w in dict.fromkeys([*self.recent[u], *(self.recent[v] if u != v else [])]) if w not in ends]
        e, first = len(self.events), len(self.entries)
        self.reads.append((self.row_h[u], self.row_h[v], self.row_F[u], self.row_F[v]))
        active = [*ends, *leaves]
        start = self.row_h[active]
        self.row_F[u], self.row_F[v] = self.num_nodes + 2 * e, self.num_nodes + 2 * e + (u != v)
        for a, h in zip(active, start, strict=True):
            self.entries.append((h, self.row_F[a], mult_src[a], mult_dst[a]))
        self.row_h[active] = self.num_nodes + first + np.arange(len(active))
        self.sizes.append(len(active))
        self.events.append((u, v))
        self.remember(u, v)

    def build(self) -> UpdatePlan:
        reads, entries = np.array(self.reads).T.astype(np.int32), list(zip(*self.entries, strict=True))
        n = len(self.events)
        return UpdatePlan(
            start=0, stop=n, nodes=np.arange(self.num_nodes),
            src_h=reads[0], dst_h=reads[1], src_F=reads[2], dst_F=reads[3],
            gap_src=np.zeros(n), gap_dst=np.zeros(n), is_loop=np.array([u == v for u, v in self.events]),
            act_ptr=np.concatenate([[0], np.cumsum(self.sizes)]).astype(np.int64),
            act_h=np.array(entries[0], np.int32), act_F=np.array(entries[1], np.int32),
            mult_src=np.array(entries[2], np.float32), mult_dst=np.array(entries[3], np.float32),
            final_h=self.row_h.astype(np.int32), final_F=self.row_F.astype(np.int32),
        )  # fmt: skip


def random_plan(seed: int, n: int = 14, num_nodes: int = 7, num_neighbors: int = 4, warm: int = 12) -> UpdatePlan:
    """Few nodes, so that self-loops, repeats, shared neighbors and endpoints in buffers all occur."""
    rng = np.random.default_rng(seed)
    builder = PlanBuilder(num_nodes, num_neighbors)
    for u, v in rng.integers(num_nodes - 2, size=(warm, 2)):
        builder.remember(u, v)
    for u, v in rng.integers(num_nodes - 1, size=(n, 2)):  # the last node is never touched
        builder.add(int(u), int(v))
    return builder.build()


# --- the yardstick --------------------------------------------------------------------------------------------------


class Updater(nn.Module):
    def __init__(self, cfg: ModelConfig, dtype: torch.dtype, seed: int = 0) -> None:
        super().__init__()
        torch.manual_seed(seed)
        d, k, w = cfg.stalk_dim, cfg.num_reflectors, cfg.hidden_dim
        self.frame_in, self.frame_out = nn.Linear(2 * d + CONTEXT, w), nn.Linear(w, k * d)
        self.msg_in, self.msg_out = nn.Linear(2 * d + CONTEXT, w), nn.Linear(w, d)
        self.gru = nn.GRUCell(d, d)
        self.theta = nn.Parameter(torch.randn(d))
        self.to(dtype)


def reflect(F: Tensor, x: Tensor, cfg: ModelConfig, inverse: bool = False) -> Tensor:
    if not cfg.transport:
        return x
    for f in F.flip(0) if inverse else F:
        if f.norm() > cfg.reflector_eps:
            x = x - 2 * (f @ x) / (f @ f) * f
    return x


def transported(F_to: Tensor, F_from: Tensor, x: Tensor, cfg: ModelConfig) -> Tensor:
    return reflect(F_to, reflect(F_from, x, cfg), cfg, inverse=True)


def mlp(first: nn.Linear, second: nn.Linear, x: Tensor) -> Tensor:
    return second(torch.relu(first(x)))


def diffuse(
    h: list[Tensor], F: list[Tensor], ms: np.ndarray, md: np.ndarray, ends: int, D: Tensor, cfg, eta
) -> list[Tensor]:
    """Dense: an explicit weight matrix, every ordered pair."""
    m = len(h)
    weight, degree = np.zeros((m, m)), np.zeros(m)
    for j in range(m):
        for center, mult in ((0, ms[j]), (1, md[j] if ends == 2 else 0.0)):
            if mult and j == center:
                degree[j] += mult
            elif mult:
                weight[center, j] += mult
                weight[j, center] += mult
    degree = np.maximum(degree + weight.sum(1), 1)
    for _ in range(cfg.diffusion_steps):
        pulls = [[weight[a, b] * (h[a] - transported(F[a], F[b], h[b], cfg)) for b in range(m)] for a in range(m)]
        lap = [sum(pull) for pull in pulls]
        h = [h[a] - eta / degree[a] * D * lap[a] for a in range(m)]
    return h


def plain_update(updater, plan: UpdatePlan, context: Tensor, h0: Tensor, F0: Tensor, cfg: ModelConfig, eta: float):
    h, F, energy, smooth = list(h0), list(F0), [], []
    D = nn.functional.softplus(updater.theta)
    for e in range(plan.num_events):
        ends = 1 if plan.is_loop[e] else 2
        hp = [h[plan.src_h[e]], h[plan.dst_h[e]]][:ends]
        Fp = [F[plan.src_F[e]], F[plan.dst_F[e]]][:ends]
        other = [ends - 1, 0]
        step = [torch.zeros_like(Fp[0])] * ends
        if cfg.frame_update:
            inputs = [
                torch.cat([hp[s], transported(Fp[s], Fp[other[s]], hp[other[s]], cfg), context[e, s]])
                for s in range(ends)
            ]
            step = [mlp(updater.frame_in, updater.frame_out, x).view_as(Fp[0]) for x in inputs]
        Fn = [f + df for f, df in zip(Fp, step, strict=True)]
        hb = [transported(Fn[s], Fp[s], hp[s], cfg) if cfg.carry_over else hp[s] for s in range(ends)]
        inputs = [
            torch.cat([hb[s], transported(Fn[s], Fn[other[s]], hb[other[s]], cfg), context[e, s]]) for s in range(ends)
        ]
        hn = [
            updater.gru(mlp(updater.msg_in, updater.msg_out, x)[None], b[None])[0]
            for x, b in zip(inputs, hb, strict=True)
        ]
        F += [Fn[0], Fn[-1]]
        rows = range(plan.act_ptr[e], plan.act_ptr[e + 1])
        active = [*hn, *(h[plan.act_h[j]] for j in rows[ends:])]
        frames = [F[plan.act_F[j]] for j in rows]
        active = diffuse(active, frames, plan.mult_src[rows], plan.mult_dst[rows], ends, D, cfg, eta)
        h += active
        zero = 0 * hn[0].sum()
        energy.append((active[0] - transported(Fn[0], Fn[1], active[1], cfg)).square().sum() if ends == 2 else zero)
        smooth.append(sum(df.square().sum() for df in step))
    return torch.stack(h), torch.stack(F), torch.stack(energy), torch.stack(smooth)


def plain_geometry(h, F, bias, reads, cfg) -> Tensor:
    src_h, src_F, cand_ptr, cand_h, cand_F, mask = reads
    rows = []
    for q in range(len(src_h)):
        x = h[src_h[q]]
        source = reflect(F[src_F[q]] if bias is None else F[src_F[q]] + bias[q], x, cfg)
        for c in range(cand_ptr[q], cand_ptr[q + 1]):
            z, f = h[cand_h[c]], F[cand_F[c]]
            if not mask[c]:
                z, f = z.detach(), f.detach()
            g = reflect(f, z, cfg)
            rows.append(torch.stack([(source - g).square().sum(), source @ g, x @ x, z @ z]))
    return torch.stack(rows)


# --- comparison -----------------------------------------------------------------------------------------------------


def config(**changes: object) -> ModelConfig:
    return ModelConfig(**{"stalk_dim": 6, "num_reflectors": 2, "hidden_dim": 5, **changes})


def make_case(cfg: ModelConfig, dtype: torch.dtype, seed: int = 0, **plan_options: int):
    plan, updater = random_plan(seed, **plan_options), Updater(cfg, dtype, seed)
    n0, d, k = len(plan.nodes), cfg.stalk_dim, cfg.num_reflectors
    context = torch.randn(plan.num_events, 2, CONTEXT, dtype=dtype)
    return plan, updater, context, torch.randn(n0, d, dtype=dtype), torch.randn(n0, k, d, dtype=dtype) / k**0.5


def assert_close(name: str, ours: Tensor | None, theirs: Tensor | None, tolerance: float) -> None:
    if ours is None or theirs is None:
        assert all(x is None or not x.any() for x in (ours, theirs)), name
        return
    scale = theirs.abs().max().item() or 1.0
    worst = (ours - theirs).abs().max().item()
    assert worst <= tolerance * scale, f"{name}: off by {worst:.3g} at scale {scale:.3g}"


def run_update(function, case, cfg, eta, initial_grad: bool):
    plan, updater, context, h0, F0 = case
    leaves = [
        context.clone().requires_grad_(),
        h0.clone().requires_grad_(initial_grad),
        F0.clone().requires_grad_(initial_grad),
    ]
    updater.zero_grad()
    logs = function(updater, plan, *leaves, cfg, eta)
    generator = torch.Generator().manual_seed(7)
    sum((log * torch.randn(log.shape, generator=generator, dtype=log.dtype)).sum() for log in logs).backward()
    values = dict(zip(("h", "F", "energy", "smooth"), logs, strict=True))
    grads = dict(zip(("context", "h0", "F0"), (x.grad for x in leaves), strict=True))
    grads |= {name: None if p.grad is None else p.grad.clone() for name, p in updater.named_parameters()}
    return values | {f"d {name}": g for name, g in grads.items()}


def check_update(
    cfg: ModelConfig,
    dtype: torch.dtype,
    seed: int = 0,
    initial_grad: bool = True,
    eta: float = 0.3,
    **plan_options: int,
):
    case = make_case(cfg, dtype, seed, **plan_options)
    theirs = run_update(plain_update, case, cfg, eta, initial_grad)
    ours = run_update(fused_update, case, cfg, eta, initial_grad)
    for name, value in theirs.items():
        assert_close(name, ours[name], value, TOLERANCE[dtype])


SWITCHES = [
    {},
    {"diffusion_steps": 0},
    {"diffusion_steps": 3},
    {"transport": False},
    {"frame_update": False},
    {"carry_over": False},
    {"carry_over": False, "frame_update": False, "diffusion_steps": 2},
    {"transport": False, "carry_over": False, "diffusion_steps": 2},
    {"num_reflectors": 1},
    {"num_reflectors": 3, "diffusion_steps": 2},
    {"num_reflectors": 4},
    {"num_reflectors": 7, "stalk_dim": 3},
    {"stalk_dim": 17, "hidden_dim": 37},
]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("switches", SWITCHES, ids=lambda s: ",".join(f"{k}={v}" for k, v in s.items()) or "default")
def test_update_equals_autograd(switches: dict, dtype: torch.dtype) -> None:
    check_update(config(**switches), dtype)


@pytest.mark.parametrize("seed", range(4))
def test_update_on_other_streams_with_constant_initial_states(seed: int) -> None:
    check_update(config(diffusion_steps=2), torch.float64, seed=seed + 1, initial_grad=False)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_update_at_working_sizes(dtype: torch.dtype) -> None:
    cfg = config(stalk_dim=64, hidden_dim=100)
    check_update(cfg, dtype, initial_grad=False, n=25, num_nodes=12, num_neighbors=10, warm=40)


def test_first_contacts_without_neighbors() -> None:
    check_update(config(diffusion_steps=2), torch.float64, n=5, num_nodes=9, warm=0)


def test_short_reflectors_are_the_identity() -> None:
    cfg = config(frame_update=False, reflector_eps=0.5, diffusion_steps=2)
    plan, updater, context, h0, F0 = make_case(cfg, torch.float64)
    F0[::2, 0] *= 1e-3
    F0[1] = 0
    case = plan, updater, context, h0, F0
    theirs, ours = run_update(plain_update, case, cfg, 0.3, True), run_update(fused_update, case, cfg, 0.3, True)
    for name, value in theirs.items():
        assert_close(name, ours[name], value, 1e-9)


def test_gradcheck_of_the_update() -> None:
    cfg = config(stalk_dim=3, hidden_dim=4, diffusion_steps=2)
    plan, updater, context, h0, F0 = make_case(cfg, torch.float64, n=4, num_nodes=4)
    leaves = [x.requires_grad_() for x in (context, h0, F0)]
    assert torch.autograd.gradcheck(lambda c, h, F: fused_update(updater, plan, c, h, F, cfg, 0.3), leaves)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_update_is_bit_identical_from_run_to_run(dtype: torch.dtype) -> None:
    cfg = config(stalk_dim=24, num_reflectors=4, diffusion_steps=2)
    case = make_case(cfg, dtype)
    first, again = (run_update(fused_update, case, cfg, 0.3, True) for _ in range(2))
    assert all(torch.equal(value, again[name]) for name, value in first.items())


@pytest.mark.parametrize("switches", [{}, {"diffusion_steps": 3}, {"frame_update": False, "carry_over": False}])
def test_no_buffer_is_read_before_it_is_written(switches: dict, monkeypatch: pytest.MonkeyPatch) -> None:
    """Buffers come with whatever stood in them; here with NaN."""
    plain = buffers.carve

    def poisoned(*arguments: object) -> dict[str, np.ndarray]:
        arrays = plain(*arguments)
        for array in arrays.values():
            array.fill(np.nan)
        return arrays

    monkeypatch.setattr(buffers, "carve", poisoned)
    check_update(config(**switches), torch.float64)


def test_evaluation_needs_no_graph() -> None:
    cfg = config()
    plan, updater, context, h0, F0 = make_case(cfg, torch.float32)
    with torch.no_grad():
        logs = fused_update(updater, plan, context, h0, F0, cfg, 0.3)
    assert not any(log.requires_grad for log in logs)
    assert torch.equal(logs[0][: len(h0)], h0)


@njit
def apply_gates(x, sigmoid, tanh):
    for i in range(len(x)):
        sigmoid[i] = gates.sigmoid(x[i])
        tanh[i] = gates.tanh(x[i])


@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float32, 4e-7), (np.float64, 1e-14)])
def test_gates_to_the_precision_of_their_type(dtype: type, tolerance: float) -> None:
    x = np.concatenate([np.linspace(-30, 30, 40_001), np.geomspace(1e-6, 1, 1000), [-500.0, 500.0]]).astype(dtype)
    sigmoid, tanh = np.empty_like(x), np.empty_like(x)
    apply_gates(x, sigmoid, tanh)
    wide = torch.from_numpy(x.astype(np.float64))
    np.testing.assert_allclose(sigmoid, wide.sigmoid(), rtol=tolerance, atol=tolerance * 1e-20 + 1e-37)
    np.testing.assert_allclose(tanh, wide.tanh(), rtol=tolerance)


def test_a_nan_is_not_hidden() -> None:
    cfg = config()
    plan, updater, context, h0, F0 = make_case(cfg, torch.float32)
    context[0] = torch.nan
    h, *_ = fused_update(updater, plan, context, h0, F0, cfg, 0.3)
    assert h[len(h0)].isnan().all()


# --- geometry -------------------------------------------------------------------------------------------------------


def make_reads(rng: np.random.Generator, num_queries: int, most: int, rows: int, frame_of: np.ndarray):
    sizes = rng.integers(1, most + 1, num_queries)
    cand_ptr = np.concatenate([[0], np.cumsum(sizes)])
    src_h, cand_h = (
        rng.integers(rows, size=num_queries).astype(np.int32),
        rng.integers(rows, size=sizes.sum()).astype(np.int32),
    )
    mask = rng.random(len(cand_h)) < 0.5
    return src_h, frame_of[src_h], cand_ptr, cand_h, frame_of[cand_h], mask


def run_geometry(function, h, F, bias, reads, cfg):
    leaves = [x.clone().requires_grad_() for x in (h, F)]
    bent = None if bias is None else bias.clone().requires_grad_()
    out = function(*leaves, bent, reads, cfg)
    weights = torch.randn(out.shape, generator=torch.Generator().manual_seed(3), dtype=out.dtype)
    (out * weights).sum().backward()
    return [out, leaves[0].grad, leaves[1].grad, None if bent is None else bent.grad]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("bent", [False, True])
@pytest.mark.parametrize("transport", [False, True])
def test_geometry_equals_autograd(transport: bool, bent: bool, dtype: torch.dtype) -> None:
    cfg, rng = config(transport=transport, num_reflectors=3), np.random.default_rng(1)
    torch.manual_seed(0)
    h, F = torch.randn(20, 6, dtype=dtype), torch.randn(9, 3, 6, dtype=dtype)
    reads = make_reads(rng, 15, 6, len(h), rng.integers(9, size=20).astype(np.int32))
    bias = torch.randn(15, 3, 6, dtype=dtype) if bent else None
    ours, theirs = (run_geometry(f, h, F, bias, reads, cfg) for f in (fused_geometry, plain_geometry))
    for name, x, y in zip(("scalars", "h", "F", "bias"), ours, theirs, strict=True):
        assert_close(name, x, y, TOLERANCE[dtype])


def test_geometry_tells_apart_one_stalk_under_two_frames() -> None:
    cfg, rng = config(num_reflectors=1), np.random.default_rng(2)
    torch.manual_seed(0)
    h, F = torch.randn(5, 6, dtype=torch.float64), torch.randn(4, 1, 6, dtype=torch.float64)
    src_h, _, cand_ptr, cand_h, _, mask = make_reads(rng, 8, 4, 5, np.zeros(5, np.int32))
    reads = (
        src_h,
        rng.integers(4, size=8).astype(np.int32),
        cand_ptr,
        cand_h,
        rng.integers(4, size=len(cand_h)).astype(np.int32),
        mask,
    )
    ours, theirs = (run_geometry(f, h, F, None, reads, cfg) for f in (fused_geometry, plain_geometry))
    for x, y in zip(ours[:3], theirs[:3], strict=True):
        assert_close("geometry", x, y, 1e-9)


def test_gradient_flows_from_scores_through_the_recurrence() -> None:
    cfg = config(diffusion_steps=2)
    case = make_case(cfg, torch.float64)
    plan, rng, results = case[0], np.random.default_rng(0), []
    frame_of = np.concatenate([np.arange(len(plan.nodes), dtype=np.int32), plan.act_F])
    reads = make_reads(rng, 10, 3, len(frame_of), frame_of)
    for update, geometry in ((fused_update, fused_geometry), (plain_update, plain_geometry)):
        case[1].zero_grad()
        h, F, energy, _ = update(*case[1::-1], *case[2:], cfg, 0.3)
        (geometry(h, F, None, reads, cfg).tanh().sum() + energy.sum()).backward()
        results.append([p.grad.clone() for p in case[1].parameters()])
    for ours, theirs in zip(*results, strict=True):
        assert_close("weight", ours, theirs, 1e-9)
