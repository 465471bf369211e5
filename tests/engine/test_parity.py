"""The law: engines equal the oracle, in values and gradients, for every switch and visibility (alg:tsnn, alg:train)."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tests.engine.streams import config_of, every_row, oracle_config, oracle_events, oracle_queries, tricky_stream
from tests.reference import naive
from tsnn.config import Config
from tsnn.data.events import EventStream
from tsnn.engine.cuda import has_cupy
from tsnn.engine.engine import CudaEngine, Engine, FusedEngine, commit, run_update, score
from tsnn.memory.store import StateStore, initial_frames
from tsnn.model.losses import contrasted, total_loss
from tsnn.model.tsnn import TSNN, StreamShape
from tsnn.plan.counters import signatures
from tsnn.plan.facts import COLUMN, FACTS
from tsnn.plan.planner import Planner, mean_gap

ENGINES = {"reference": Engine, "fused": FusedEngine, "cuda": CudaEngine}
NEEDS_GPU = pytest.mark.skipif(not has_cupy(), reason="no GPU with CuPy is at hand")
NAMES = ("reference", "fused", pytest.param("cuda", marks=NEEDS_GPU))
CHUNK = 13
CANDIDATES = 3

SWITCHES = {
    "default": {},
    "no transport": {"model__transport": False},
    "fixed frames": {"model__frame_update": False},
    "no carry-over": {"model__carry_over": False},
    "no diffusion": {"model__diffusion_steps": 0},
    "three rounds": {"model__diffusion_steps": 3},
    "capped step": {"model__step_size": 5.0},
    "no residual": {"model__residual": False},
    "no edgebank": {"model__edgebank": False},
    "window": {"model__edgebank_window": 3.0},
    "attention": {"model__attention": True},
    "keyed stalks": {"model__stalks": "keyed"},
    "partners": {"model__partners": True},
    "roles": {"model__role": True},
    "kept lengths": {"model__frame_length": "kept"},
    "kept lengths, fixed frames": {"model__frame_length": "kept", "model__frame_update": False},
    "log kappa": {"model__kappa_scale": "log"},
    "bounded products": {"train__loss__geo_products": "bounded", "train__loss__geo_temperature": 0.3},
    "no indicators": {"features__never": False},
    "raw inputs": {"model__scalars": "raw", "model__gaps": "raw"},
    "encoded gaps": {"features__encoded_gaps": True},
    "difference": {"features__transported_difference": True},
    "difference without transport": {"features__transported_difference": True, "model__transport": False},
    "bare features": {
        f"features__{name}": False for name in ("pairs", "common_neighbors", "two_hop", "successor", "edgebank_recency")
    },
    "one reflector": {"model__num_reflectors": 1},
    "short memory": {"model__num_neighbors": 1, "features__cn_neighbors": 2},
}
STREAMS = {
    "plain": {"msg": False},
    "typed": {"relations": True, "types": True},
    "undirected": {"relations": True, "undirected": True},
}
CASES = (
    [(name, "plain", "arrival") for name in SWITCHES]
    + [(name, "typed", "strict") for name in SWITCHES]
    + [
        (name, "undirected", "strict")
        for name in ("default", "window", "attention", "partners", "short memory", "roles")
    ]
    + [("default", "typed", "batch:5"), ("no relation bias", "typed", "arrival"), ("attention", "plain", "batch:5")]
)
SWITCHES["no relation bias"] = {"model__relation_bias": False}


class Pair:
    """The package and the oracle with the same weights on the same stream."""

    def __init__(self, config: Config, stream: EventStream, engine: str, seed: int = 3) -> None:
        gap = mean_gap(stream.t)
        self.config, self.stream, self.engine = config, stream, ENGINES[engine]()
        torch.manual_seed(seed)
        shape = (stream.msg_dim, stream.num_relations, stream.num_types, gap, stream.undirected, stream.num_nodes)
        self.model = TSNN(config, StreamShape(*shape)).to(getattr(torch, config.train.dtype))
        self.met = np.arange(stream.num_nodes) % 4 != 0
        if config.model.partners:
            self.model.partners.met[1:] = torch.from_numpy(self.met)
            self.model.partners.on.fill_(1.0)
            self.model.partners.requires_grad_(True)
        with torch.no_grad():  # away from the special values of initialization
            for parameter in self.model.parameters():
                parameter.add_(0.3 * torch.randn_like(parameter))
        m = config.model
        self.store = StateStore(stream.ids.keys, seed, m, self.model.dtype)
        self.planner = Planner(stream, self.model.plan_spec)
        self.frames0 = initial_frames(seed, stream.ids.keys, m.num_reflectors, m.stalk_dim)
        self.signatures = signatures(stream.ids.keys, config.features.walk_dim)
        self.stalks0 = self.store.h.clone()
        self.gap, self.oracle_state = gap, None

    def package_chunk(self, queries):
        plan = self.planner.plan(min(self.planner.position + CHUNK, self.stream.num_events), queries)
        self.model.zero_grad()
        versions = run_update(self.model, self.engine, self.store, plan.update, self.stream)
        trainable = np.arange(len(plan.score.cand)) % CANDIDATES == 0
        scored = score(self.model, self.engine, versions, plan.score, self.stream, trainable)
        parts, geometry = scored
        weights = self.config.train.loss
        terms = (parts.total, contrasted(geometry, weights), parts.raw_residual, versions.smooth, versions.energy)
        loss = total_loss(self.engine.losses(*terms, width=CANDIDATES, temperature=weights.geo_temperature), weights)
        loss.backward()
        commit(self.store, plan.update, versions)
        gradients = {
            name: torch.zeros_like(p) if p.grad is None else p.grad.clone() for name, p in self.model.named_parameters()
        }
        return plan, scored, loss, gradients

    def oracle_chunk(self, queries, start, stop):
        params = {n: p.detach().double().clone().requires_grad_() for n, p in self.model.named_parameters()}
        config = oracle_config(self.config)
        result = naive.run(
            config, params, oracle_events(self.stream), self.frames0, self.gap, queries, start, stop, self.oracle_state,
            signatures=self.signatures, stalks0=self.stalks0, met=self.met,
        )  # fmt: skip
        self.oracle_state = result.state
        loss = result.loss(config)
        loss.backward()
        return result, loss, {n: torch.zeros_like(p) if p.grad is None else p.grad for n, p in params.items()}


def chunks(queries, stream):
    """(start, stop, first, last): queries cut in (start, stop], the first chunk also at its start."""
    for start in range(0, stream.num_events, CHUNK):
        stop = min(start + CHUNK, stream.num_events)
        first = 0 if start == 0 else int(np.searchsorted(queries.cut, start, side="right"))
        yield start, stop, first, int(np.searchsorted(queries.cut, stop, side="right"))


def assert_close(ours, theirs, tolerance, what):
    ours, theirs = torch.as_tensor(ours).double(), torch.as_tensor(theirs).double()
    scale = max(1.0, float(theirs.abs().max())) if theirs.numel() else 1.0
    worst = float((ours - theirs).abs().max()) if theirs.numel() else 0.0
    assert worst <= tolerance * scale, f"{what}: off by {worst:.2e} on a scale of {scale:.2e}"


def check_parity(config: Config, stream: EventStream, visibility: str, engine: str, tolerance: float) -> None:
    queries = every_row(stream, visibility, CANDIDATES)
    pair = Pair(config, stream, engine)
    for start, stop, first, last in chunks(queries, stream):
        plan, scored, loss, gradients = pair.package_chunk(queries.slice(first, last))
        result, oracle_loss, oracle_gradients = pair.oracle_chunk(oracle_queries(queries, first, last), start, stop)
        check_facts(plan.score, result, config)
        assert_close(scored.parts.total.detach(), torch.cat(result.scores).detach(), tolerance, "scores")
        assert_close(loss.detach(), oracle_loss.detach(), tolerance, "loss")
        for name, gradient in oracle_gradients.items():
            assert_close(gradients[name], gradient, tolerance, f"gradient of {name}")
    for node in range(stream.num_nodes):
        assert_close(pair.store.h[node], pair.oracle_state.h[node].detach(), tolerance, f"stalk of {node}")
        assert_close(pair.store.F[node], pair.oracle_state.F[node].detach(), tolerance, f"frame of {node}")


def check_facts(plan, result, config: Config) -> None:
    on_demand = ("common_neighbors", "two_hop", "successor", "walks")
    off = [block for block in on_demand if not getattr(config.features, block)]
    skipped = {fact.name for fact in FACTS if fact.block in off}
    rows = [facts for query in result.facts for facts in query]
    for name, column in COLUMN.items():
        if name not in skipped:
            tolerance = 1e-5 if name.startswith("walk_") else 1e-12  # walks are summed in float32
            np.testing.assert_allclose(
                plan.facts[:, column], [row[name] for row in rows], rtol=tolerance, atol=tolerance, err_msg=name
            )
    assert plan.num_pairs.tolist() == result.num_pairs


@pytest.mark.parametrize("engine", NAMES)
@pytest.mark.parametrize(("switch", "kind", "visibility"), CASES)
def test_engine_equals_oracle(switch: str, kind: str, visibility: str, engine: str) -> None:
    """alg:tsnn whole: eq:frame_update, eq:message, eq:gru_update, eq:rel_frame_bias and the score, with gradients."""
    check_parity(config_of(**SWITCHES[switch]), tricky_stream(**STREAMS[kind]), visibility, engine, 1e-9)


@pytest.mark.parametrize("engine", NAMES)
@pytest.mark.parametrize("seed", range(3))
def test_engine_equals_oracle_on_other_streams(seed: int, engine: str) -> None:
    check_parity(config_of(), tricky_stream(seed + 10, relations=True), "strict", engine, 1e-9)


@pytest.mark.parametrize("kind", STREAMS)
def test_walks_equal_the_oracle(kind: str) -> None:
    check_parity(config_of(features__walks=True), tricky_stream(**STREAMS[kind]), "strict", "fused", 1e-5)


@pytest.mark.parametrize("engine", NAMES)
@pytest.mark.parametrize("switch", SWITCHES)
def test_float32_stays_close(switch: str, engine: str) -> None:
    settings = {**SWITCHES[switch], "train__dtype": "float32"}
    check_parity(config_of(**settings), tricky_stream(relations=True), "arrival", engine, 1e-4)
