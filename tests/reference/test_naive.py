"""The oracle against cases worked out by hand, and against the statements the paper proves about it."""

from __future__ import annotations

import math
from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
import torch

from tests.reference import naive
from tests.reference.naive import EdgeBank, Entry, NaiveConfig, NaiveEvents, Query

SMALL = {
    "stalk_dim": 4,
    "num_reflectors": 2,
    "hidden_dim": 5,
    "time_dim": 4,
    "relation_dim": 3,
    "type_dim": 2,
    "num_neighbors": 3,
    "score_dim": 6,
    "attention_heads": 2,
    "step_size": 0.5,
}


def world(model=None, features=None, rows=14, nodes=5, seed=0, relations=0, types=0, msg_dim=2):
    """A random stream with ties, repeats and self-loops, and everything a run needs."""
    rng = np.random.default_rng(seed)
    config = NaiveConfig.build(SMALL | (model or {}), {"cn_neighbors": 4} | (features or {}))
    events = NaiveEvents(
        src=rng.integers(0, nodes, rows),
        dst=rng.integers(0, nodes, rows),
        t=np.sort(rng.integers(0, rows // 2, rows)),
        msg=rng.normal(size=(rows, msg_dim)) if msg_dim else None,
        edge_type=rng.integers(0, relations, rows) if relations else None,
        node_type=rng.integers(0, types, nodes) if types else None,
        num_nodes=nodes,
        num_relations=relations,
        num_types=types,
    )
    params = naive.random_parameters(naive.parameter_shapes(config, relations, types, msg_dim), seed)
    frames = rng.normal(0, 2**-0.5, (nodes, SMALL["num_reflectors"], SMALL["stalk_dim"]))
    return config, params, events, frames, naive.mean_gap(events.t)


def asked(events, seed=0, width=3):
    """One query per row, as `arrival` visibility would ask it."""
    rng = np.random.default_rng(seed)
    negatives = rng.integers(0, events.num_nodes, (len(events), width - 1)).tolist()
    rows = [events.row(i) for i in range(len(events))]
    return [Query(i, u, t, r, [v, *negatives[i]]) for i, (u, v, t, r) in enumerate(rows)]


# 0 -> 2 at 1, 0 -> 3 at 2, 1 -> 2 at 4; mean gap 1.5
def by_hand(model=None):
    config = NaiveConfig.build(SMALL | {"time_dim": 2} | (model or {}))
    events = NaiveEvents(src=[0, 0, 1], dst=[2, 3, 2], t=[1, 2, 4], num_nodes=4)
    params = naive.random_parameters(naive.parameter_shapes(config))
    frames = np.random.default_rng(1).normal(size=(4, 2, 4))
    queries = [Query(3, 1, 5, 0, [3, 2, 0]), Query(3, 0, 5, 0, [2, 3]), Query(0, 0, 1, 0, [2])]
    return naive.run(config, params, events, frames, naive.mean_gap(events.t), queries), config


def test_buffers_by_hand():
    result, _ = by_hand()
    assert result.state.buffers == {
        0: [Entry(2, 1, 0), Entry(3, 2, 0)],
        1: [Entry(2, 4, 0)],
        2: [Entry(0, 1, 0), Entry(1, 4, 0)],
        3: [Entry(0, 2, 0)],
    }
    assert result.state.last == {0: 2, 1: 4, 2: 4, 3: 2}
    assert result.state.rows == 3


def test_facts_of_an_unseen_pair_by_hand():
    result, _ = by_hand()
    assert result.facts[0][0] == {  # 1 -> 3 ?
        "src_gap": 1,
        "dst_gap": 3,
        "dst_in_age": 2,
        "src_count": 1,
        "dst_count": 1,
        "dst_in_count": 1,
        "dst_in_gap": 3,
        "src_recent": pytest.approx(math.exp(-1 / 15_000)),
        "src_in_share": 0,
        "src_strength": 0,
        "dst_recent": pytest.approx(math.exp(-3 / 15_000)),
        "dst_in_share": 1,
        "dst_strength": 0,
        "pair_count": 0,
        "pair_gap": -1,
        "pair_strength": 0,
        "reverse_count": 0,
        "bank_count": 0,
        "bank_gap": -1,
        "cn_count": 0,
        "cn_decayed": 0,
        "cn_adamic_adar": 0,
        "cn_jaccard": 0,
        "two_hop_count": 1,  # 1 - 2 - 0 - 3
        "two_hop_share": 1,
        "succ_count_1": 1,  # node 0 went from 2 to 3, and 1 has just been at 2
        "succ_count_2": 0,
        "succ_count_3": 0,
        "succ_share_1": 1,
        "succ_share_2": 0,
        "succ_share_3": 0,
        "succ_pair_count": 0,
        "succ_pair_share": 0,
    } | {name: 0 for name in result.facts[0][0] if name.startswith("walk_")}


def test_common_neighbors_and_repeats_by_hand():
    result, _ = by_hand()
    again, common = result.facts[0][1], result.facts[0][2]
    assert (again["pair_count"], again["pair_gap"], again["bank_count"], again["bank_gap"]) == (1, 1, 1, 1)
    assert (again["dst_count"], again["dst_in_count"], again["succ_count_1"]) == (2, 2, 0)
    assert common["cn_count"] == 1  # node 2, last met by 1 at 4 and by 0 at 1
    assert common["cn_decayed"] == pytest.approx(math.exp(-1 / 1500))
    assert common["cn_adamic_adar"] == pytest.approx(1 / math.log(4))
    assert common["cn_jaccard"] == 0.5
    assert (common["dst_in_count"], common["dst_in_age"], common["dst_count"]) == (0, -1, 2)
    assert common["two_hop_count"] == 0


def test_nothing_is_known_at_cut_zero():
    result, config = by_hand()
    facts = result.facts[2][0]
    assert {name for name, value in facts.items() if value} == {
        "src_gap", "dst_gap", "dst_in_age", "dst_in_gap", "pair_gap", "bank_gap", "src_in_share", "dst_in_share"
    }  # fmt: skip
    plain = naive.features(facts, config, 1.5)
    assert sorted(set(plain)) == [0, 0.5, 1]
    assert (plain.count(1), plain.count(0.5)) == (5, 2)  # never: source, candidate, pair, bank, as destination
    assert result.num_pairs[2] == 0


def test_features_by_hand():
    result, config = by_hand()
    one = math.log1p(1 / 1.5)
    two = math.log(2)
    recent = [math.log1p(math.exp(-1 / 15_000)), math.log1p(math.exp(-1 / 15_000) + math.exp(-4 / 15_000))]
    lgs = [one] * 5  # source, candidate, pair, bank, as destination
    logs = [two, 0, two, 0, two, 0, 0, 0, 0, two, math.log(3), math.log(3), *recent, 0, 0, 0]
    raws = [0, 0, 0, 1, 0, 0, 0, 0, 0, 1]
    expected = [*lgs, *logs, *[0] * 12, *[0] * 5, *raws, *[0] * 8]  # between them walks that were not taken
    assert naive.features(result.facts[0][1], config, 1.5) == pytest.approx(expected)
    raw = NaiveConfig.build({"gaps": "raw"})
    assert naive.features(result.facts[0][0], raw, 1.5)[:4] == [1, 3, 0, 0]


def test_edgebank_window_by_hand():
    result, _ = by_hand({"edgebank_window": 2.0})  # a window of 3
    outside, edge = result.facts[1]
    assert (outside["bank_count"], outside["bank_gap"], outside["pair_count"]) == (0, -1, 1)
    assert (edge["bank_count"], edge["bank_gap"]) == (1, 3)


def test_edgebank_score_is_pure_and_observe_expires():
    bank = EdgeBank(window=3.0)
    key, other = (0, 1, 0), (0, 2, 0)
    for t in (1.0, 2.0, 4.0):
        bank.observe(key, t)
    before = (Counter(bank.C), dict(bank.T), list(bank.queue))
    assert [bank.count(key, t) for t in (4.0, 5.0, 7.0, 7.5)] == [3, 2, 1, 0]
    assert bank.gap(key, 7.5) == -1
    assert bank.score(key, 5.0) == pytest.approx(math.log(3))
    assert (bank.C, bank.T, list(bank.queue)) == before
    bank.observe(other, 7.5)
    assert dict(bank.C) == {other: 1}
    assert dict(bank.T) == {other: 7.5}


def test_number_of_pairs():
    config, params, events, frames, gap = world(rows=4)
    events = NaiveEvents(src=[0, 0, 0, 1], dst=[1, 1, 1, 0], t=[0, 1, 5, 6], msg=events.msg, num_nodes=5)
    result = naive.run(config, params, events, frames, gap, [Query(4, 0, 7, 0, [1])])
    assert result.num_pairs == [2]


def test_facts_match_a_count_over_the_raw_rows():
    config, params, events, frames, gap = world(rows=40, relations=2)
    queries = asked(events)
    result = naive.run(config, params, events, frames, gap, queries)
    rows = [events.row(i) for i in range(len(events))]
    for query, answered in zip(queries, result.facts, strict=True):
        seen = rows[: query.cut]
        for c, facts in zip(query.candidates, answered, strict=True):
            touching = [t for u, v, t, _ in seen if c in (u, v)]
            banked = [t for u, v, t, r in seen if (u, v, r) == (query.src, c, query.edge_type)]
            assert facts["dst_count"] == len(touching)
            assert facts["dst_gap"] == (query.t - touching[-1] if touching else -1)
            assert facts["reverse_count"] == sum((u, v) == (c, query.src) for u, v, _, _ in seen)
            assert facts["bank_count"] == len(banked)
            assert facts["succ_count_1"] == brute_successors(seen, query.src, c)


def brute_successors(seen, src, c):
    visits = {u: [v for a, v, _, _ in seen if a == u] for u, _, _, _ in seen}
    if src not in visits:
        return 0
    last = visits[src][-1]
    return sum((a, b) == (last, c) for path in visits.values() for a, b in pairwise(path))


def test_frames_are_orthogonal_and_reflector_one_acts_first():
    F = torch.tensor(np.random.default_rng(0).normal(size=(3, 5)))
    U = naive.orthogonal_map(F, 1e-6)
    torch.testing.assert_close(U.T @ U, torch.eye(5, dtype=torch.float64))
    y = x = torch.arange(5, dtype=torch.float64)
    for f in F:
        y = y - 2 * (f @ y) / (f @ f) * f
    torch.testing.assert_close(U @ x, y)
    assert torch.equal(naive.reflector(torch.full((3,), 1e-9, dtype=torch.float64), 1e-6), torch.eye(3).double())


def test_carry_over_keeps_the_represented_vector():
    config, params, events, frames, gap = world()
    model = naive.Model(config, params, events, gap)
    pre, post = torch.tensor(frames[0]), torch.tensor(frames[1])
    h = torch.arange(4, dtype=torch.float64)
    torch.testing.assert_close(model.U(post) @ model.carry_over(h, pre, post), model.U(pre) @ h)


def test_time_encoding_by_hand():
    config, params, events, _, _ = world()
    phi = naive.Model(config, params, events, 2.0).phi(6.0, 4)
    s = math.log(4)
    expected = [math.sin(s), math.cos(s), math.sin(s / 100), math.cos(s / 100)]
    assert phi.tolist() == pytest.approx(expected)


def test_gru_is_torch_s():
    config, params, events, _, gap = world()
    cell = torch.nn.GRUCell(4, 4, dtype=torch.float64)
    cell.load_state_dict({name[12:]: value.detach() for name, value in params.items() if "gru" in name})
    h, m = torch.randn(2, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(naive.Model(config, params, events, gap).gru(h, m), cell(m[None], h[None])[0])


def test_active_graph_by_hand():
    """0 has met 1 twice and itself once, 1 has met 0 twice and 2: four parallel edges 0 - 1."""
    edges = naive.active_edges(0, 1, [1, 0, 1], [0, 0, 2])
    assert Counter(map(frozenset, edges)) == {frozenset({0, 1}): 4, frozenset({0}): 1, frozenset({1, 2}): 1}
    assert naive.degrees([0, 1, 2, 3], edges) == [5, 5, 1, 1]
    assert naive.active_edges(0, 0, [1, 0], [1, 0]) == [(0, 1), (0, 0)]


def state_with(config, frames, gap, buffers):
    state = naive.State.initial(config, frames, gap)
    rng = np.random.default_rng(3)
    state.h = [torch.tensor(rng.normal(size=4)) for _ in state.h]
    state.buffers = {a: [Entry(b, 0.0, 0) for b in partners] for a, partners in buffers.items()}
    return state


def test_dense_diffusion_is_the_local_rule():
    """eq:diffusion_global against eq:diffusion_local, node by node."""
    config, params, events, frames, gap = world()
    state = state_with(config, frames, gap, {0: [1, 0, 2], 1: [0, 2, 3]})
    model, h, U = naive.Model(config, params, events, gap), list(state.h), None
    model.diffuse(state, 0, 1)
    U = [model.U(F) for F in state.F]
    neighbors = {0: [1, 0, 2, 1], 1: [0, 2, 3, 0], 2: [0, 1], 3: [1], 4: []}
    for a, active in neighbors.items():
        pull = sum((h[a] - U[a].T @ U[b] @ h[b] for b in active), torch.zeros(4, dtype=torch.float64))
        expected = h[a] - model.eta() / max(len(active), 1) * model.gain() * pull
        torch.testing.assert_close(state.h[a], expected)


def test_energy_decreases_and_eta_is_capped():
    """thm:feature_scaled, with a step size far above the cap."""
    config, params, events, frames, gap = world({"step_size": 1e3})
    state = state_with(config, frames, gap, {0: [1, 1, 2], 1: [0, 2, 3]})
    model = naive.Model(config, params, events, gap)
    assert model.eta() == pytest.approx(1 / float(model.gain().detach().max()))
    edges, nodes = naive.active_edges(0, 1, [1, 1, 2], [0, 2, 3]), [0, 1, 2, 3]
    L = naive.sheaf_laplacian(nodes, edges, {a: model.U(state.F[a]) for a in nodes})
    torch.testing.assert_close(L, L.T)
    energies = []
    for _ in range(4):
        z = torch.cat([state.h[a] for a in nodes])
        energies.append(float((z @ L @ z).detach()))
        model.diffuse(state, 0, 1)
    assert all(b < a for a, b in pairwise(energies))


def test_without_diffusion_only_endpoints_move():
    config, params, events, frames, gap = world({"diffusion_steps": 0})
    before = naive.run(config, params, events, frames, gap, [], stop=13).state
    after = naive.run(config, params, events, frames, gap, [], start=13, state=before).state
    u, v, _, _ = events.row(13)
    moved = {w for w in range(5) if not torch.equal(before.h[w], after.h[w])}
    assert moved == {u, v}
    no_step = world({"step_size": 0.0})
    still = naive.run(*no_step, []).state
    for a, b in zip(still.h, naive.run(config, params, events, frames, gap, []).state.h, strict=True):
        torch.testing.assert_close(a, b)


def test_self_loop_is_one_endpoint():
    config, params, _, frames, gap = world(msg_dim=0)
    events = NaiveEvents(src=[2, 2], dst=[2, 2], t=[0, 3], num_nodes=5)
    result = naive.run(config, params, events, frames, gap, [])
    assert result.state.buffers == {2: [Entry(2, 0, 0), Entry(2, 3, 0)]}
    assert (result.state.count[2], result.state.count_in[2]) == (2, 2)
    assert [float(x) for x in result.losses["energy"]] == [0, 0]
    first = naive.run(config, params, events, frames, gap, [], stop=1)
    delta = first.state.F[2] - torch.tensor(frames[2])
    torch.testing.assert_close(first.losses["smooth"][0], (delta**2).sum())
    # its own entries are parallel to nothing: diffusion leaves the stalk as the GRU made it
    still = naive.run(*world({"diffusion_steps": 0}, msg_dim=0)[:2], events, frames, gap, [])
    torch.testing.assert_close(result.state.h[2], still.state.h[2])


def test_first_event_by_hand():
    """Both endpoints fresh: zero stalks, no neighbors, gap zero. The stalk is the GRU of the message alone."""
    config, params, events, frames, gap = world(seed=1)
    u, v, _, _ = events.row(0)
    assert u != v
    result = naive.run(config, params, events, frames, gap, [], stop=1)
    x = torch.cat([torch.zeros(8).double(), events.msg[0], torch.tensor([0.0, 1, 0, 1]).double()])
    hidden = torch.relu(params["updater.frame_in.weight"] @ x + params["updater.frame_in.bias"])
    delta = (params["updater.frame_out.weight"] @ hidden + params["updater.frame_out.bias"]).reshape(2, 4)
    torch.testing.assert_close(result.state.F[u], torch.tensor(frames[u]) + delta)
    torch.testing.assert_close(result.losses["smooth"][0], 2 * (delta**2).sum())
    torch.testing.assert_close(result.state.h[u], result.state.h[v])  # same input, no diffusion yet


def sheaf_transport(F_from, F_to, h):
    """alg:transport, reflection by reflection."""
    for f in [*F_from, *F_to.flip(0)]:
        h = h - 2 * (f @ h) / (f @ f) * f
    return h


def test_a_later_event_by_hand():
    """eq:frame_update to eq:gru_update for both endpoints, written with alg:transport and torch's own modules."""
    config, params, _, frames, _ = world({"diffusion_steps": 0}, relations=2)
    events = NaiveEvents([0, 1, 0], [1, 2, 2], [0, 1, 5], np.eye(3, 2), [0, 1, 1], num_nodes=5, num_relations=2)
    before = naive.run(config, params, events, frames, 2.5, [], stop=2).state.detached()
    after = naive.run(config, params, events, frames, 2.5, [], start=2, state=before).state
    p = {name: value.detach() for name, value in params.items()}

    def mlp(name, *x):
        hidden = torch.relu(torch.nn.functional.linear(torch.cat(x), p[f"{name}_in.weight"], p[f"{name}_in.bias"]))
        return torch.nn.functional.linear(hidden, p[f"{name}_out.weight"], p[f"{name}_out.bias"])

    h, F, hbar, tail = before.h, dict(enumerate(before.F)), {}, {}
    model = naive.Model(config, params, events, 2.5)
    for w, other, gap in ((0, 2, 5.0), (2, 0, 4.0)):
        tail[w] = [events.msg[2], model.phi(gap, 4), p["relation.weight"][1]]
        aligned = sheaf_transport(before.F[other], before.F[w], h[other])
        F[w] = before.F[w] + mlp("updater.frame", h[w], aligned, *tail[w]).reshape(2, 4)
        hbar[w] = sheaf_transport(before.F[w], F[w], h[w])
        torch.testing.assert_close(after.F[w].detach(), F[w])
    cell = torch.nn.GRUCell(4, 4, dtype=torch.float64)
    cell.load_state_dict({name[12:]: value for name, value in p.items() if "gru" in name})
    for w, other in ((0, 2), (2, 0)):
        m = mlp("updater.msg", hbar[w], sheaf_transport(F[other], F[w], hbar[other]), *tail[w])
        torch.testing.assert_close(after.h[w].detach(), cell(m, hbar[w]).detach())


ALL_ON = {"encoded_gaps": True, "transported_difference": True}
VARIANTS = [
    {},
    {"attention": True},
    {"transport": False},
    {"frame_update": False},
    {"carry_over": False},
    {"residual": False},
    {"edgebank": False},
    {"relation_bias": False},
    {"scalars": "raw", "gaps": "raw"},
    {"edgebank_window": 2.0, "diffusion_steps": 3},
]


@pytest.mark.parametrize("model", VARIANTS, ids=str)
@pytest.mark.parametrize("kinds", [0, 2])
def test_every_switch_runs_and_differentiates(model, kinds):
    config, params, events, frames, gap = world(model, ALL_ON, relations=kinds, types=kinds, msg_dim=kinds)
    result = naive.run(config, params, events, frames, gap, asked(events))
    result.loss(config).backward()
    width = naive.psi_dim(config, kinds, kinds)
    assert all(parts["psi"].shape == (3, width) for parts in result.parts)
    used = {name for name, value in params.items() if value.grad is not None and value.grad.abs().sum() > 0}
    assert {"updater.msg_in.weight", "updater.gru.weight_hh", "head.rho_kappa"} <= used
    assert ("updater.frame_in.weight" in used) == model.get("frame_update", True)
    assert ("head.gate" in used) == model.get("edgebank", True)
    assert all(torch.isfinite(value.grad).all() for name, value in params.items() if name in used)


@pytest.mark.parametrize("model", [{}, {"attention": True}], ids=str)
def test_gradients_against_finite_differences(model):
    config, params, events, frames, gap = world(model, ALL_ON, rows=6, relations=2)
    queries = asked(events)

    def loss():  # negatives attached: a detached part has no finite difference
        return naive.run(config, params, events, frames, gap, queries, negatives_detached=False).loss(config)

    names = ["updater.frame_in.weight", "updater.msg_out.weight", "head.mlp.0.weight", "relation.weight"]
    if not model:  # attention detaches the neighbors, so only the head's gradient is a full derivative there
        names += ["updater.theta", "updater.gru.weight_ih"]
    else:
        names = ["attention.query.weight", "attention.time.weight", "attention.norm.weight", "head.mlp.0.weight"]
    grads = torch.autograd.grad(loss(), [params[name] for name in names])
    for name, grad in zip(names, grads, strict=True):
        flat = params[name].detach().view(-1)
        i = int(grad.abs().argmax())
        step, kept = 1e-6, float(flat[i])
        flat[i] = kept + step
        up = float(loss().detach())
        flat[i] = kept - step
        down = float(loss().detach())
        flat[i] = kept
        assert (up - down) / (2 * step) == pytest.approx(float(grad.view(-1)[i]), rel=1e-5, abs=1e-9)


def test_chunks_give_the_values_of_one_run_and_truncate_its_gradient():
    config, params, events, frames, gap = world({"attention": True}, relations=2)
    queries = asked(events)
    whole = naive.run(config, params, events, frames, gap, queries)
    first = naive.run(config, params, events, frames, gap, [q for q in queries if q.cut <= 7], stop=7)
    rest = [q for q in queries if q.cut > 7]
    second = naive.run(config, params, events, frames, gap, rest, start=7, state=first.state)
    for a, b in zip(whole.scores, first.scores + second.scores, strict=True):
        assert torch.equal(a, b)
    replayed = naive.run(config, params, events, frames, gap, rest, start=7)
    assert torch.equal(replayed.scores[-1], second.scores[-1])
    assert first.state.rows == 7  # going on from a state leaves it as it was
    alone = naive.run(config, params, events, frames, gap, [queries[7]], start=7, stop=7, state=first.state)
    grad = torch.autograd.grad(alone.scores[0].sum(), params["updater.msg_in.weight"], allow_unused=True)
    assert grad == (None,)


def test_a_run_starts_where_its_state_ends():
    config, params, events, frames, gap = world()
    state = naive.run(config, params, events, frames, gap, [], stop=3).state
    with pytest.raises(ValueError, match="has seen 3 rows"):
        naive.run(config, params, events, frames, gap, [], start=4, state=state)
    with pytest.raises(ValueError, match="outside"):
        naive.run(config, params, events, frames, gap, [Query(2, 0, 0, 0, [1])], start=3, state=state)


def test_negatives_carry_no_gradient():
    config, params, events, frames, gap = world({"residual": False, "edgebank": False})
    state = naive.run(config, params, events, frames, gap, [], stop=10).state
    state = state.detached()
    for h in state.h:
        h.requires_grad_()
    model = naive.Model(config, params, events, gap)
    query = Query(10, 0, 9, 0, [1, 2])
    model.answer(state, query, negatives_detached=True)["score"].sum().backward()
    assert [h.grad is not None for h in state.h] == [True, True, False, False, False]


def test_what_a_query_may_not_see_cannot_change_it():
    config, params, events, frames, gap = world({"attention": True}, rows=12)
    query = Query(8, events.src[8], events.t[8], 0, [events.dst[8], 0, 1])
    before = naive.run(config, params, events, frames, gap, [query]).scores[0]
    events.src[8:], events.dst[8:] = events.dst[8:], [0, 1, 2, 3]
    assert torch.equal(before, naive.run(config, params, events, frames, gap, [query]).scores[0])


def test_score_in_synchronized_coordinates():
    """prop:sync_equiv: d^2 = |q - g|^2 and the inner product <q, g>."""
    config, params, events, frames, gap = world(relations=2)
    query = asked(events)[-1]
    result = naive.run(config, params, events, frames, gap, [query], stop=query.cut)
    model, state = naive.Model(config, params, events, gap), result.state
    q = model.U(model.biased_frame(state.F[query.src], query.edge_type)) @ state.h[query.src]
    g = torch.stack([model.U(state.F[c]) @ state.h[c] for c in query.candidates])
    torch.testing.assert_close(result.parts[0]["d2"], ((q - g) ** 2).sum(1))
    torch.testing.assert_close(result.parts[0]["inner"], g @ q)


def test_attention_without_neighbors_reads_the_null_token():
    config, params, events, frames, gap = world({"attention": True})
    model = naive.Model(config, params, events, gap)
    state = naive.State.initial(config, frames, gap)
    refined = model.attend(state, Query(0, 3, 0, 0, [1]))
    x = params["attention.out.weight"] @ params["attention.value.weight"] @ params["attention.null"]
    norm, bias = params["attention.norm.weight"], params["attention.norm.bias"]
    torch.testing.assert_close(refined, torch.nn.functional.layer_norm(x, (4,), norm, bias))


def test_attention_is_torch_s_on_aligned_neighbors():
    config, params, events, frames, gap = world({"attention": True})
    state = state_with(config, frames, gap, {0: [1, 2, 1, 3]})  # the oldest is beyond num_neighbors
    model = naive.Model(config, params, events, gap)
    refined = model.attend(state, Query(0, 0, 5.0, 0, [1]))
    U = [model.U(F) for F in state.F]
    time = params["attention.time.weight"] @ model.phi(5.0, 2)
    rows = torch.stack([U[0].T @ U[w] @ state.h[w] + time for w in (3, 1, 2)])
    q, k, v = (params[f"attention.{name}.weight"] for name in ("query", "key", "value"))
    heads = [(x @ w.T).view(-1, 2, 2).transpose(0, 1) for x, w in ((state.h[0][None], q), (rows, k), (rows, v))]
    mixed = torch.nn.functional.scaled_dot_product_attention(*heads).transpose(0, 1).reshape(4)
    x = state.h[0] + params["attention.out.weight"] @ mixed
    norm, bias = params["attention.norm.weight"], params["attention.norm.bias"]
    torch.testing.assert_close(refined, torch.nn.functional.layer_norm(x, (4,), norm, bias))


def test_losses_by_hand():
    logits = torch.tensor([1.0, 0.0], dtype=torch.float64)
    assert float(naive.ranking_loss(logits)) == pytest.approx(math.log(1 + math.exp(-1)))
    config, params, events, frames, gap = world()
    result = naive.run(config, params, events, frames, gap, asked(events))
    mean = {name: float(torch.stack(values).detach().mean()) for name, values in result.losses.items()}
    w = config.loss
    total = w.ce * mean["ce"] + w.binary * mean["binary"] + w.geo * mean["geo"] + w.bias * mean["bias"]
    total += w.smooth * mean["smooth"] + w.energy * mean["energy"]
    assert float(result.loss(config).detach()) == pytest.approx(total)
    parts = result.parts[5]
    alpha = torch.sigmoid(params["head.gate"][0])
    torch.testing.assert_close(result.scores[5], alpha * (parts["s_geo"] + parts["s_res"]) + parts["bank"])
