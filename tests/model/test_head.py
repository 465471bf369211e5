"""The geometric-residual decoder, piece by piece, and the same for a stack of models at once."""

from __future__ import annotations

import math

import pytest
import torch

from tests.engine.streams import config_of
from tsnn.model.geometry import Geometry
from tsnn.model.head import KAPPA_MIN, Head, HeadWeights, ScoreParts, mlp_score, scalars, score

PSI = 7  # five scalars and two data features


def make(relations: int = 0, seed: int = 0, **switches: object):
    """A configuration and a head for it."""
    torch.manual_seed(seed)
    cfg = config_of(**switches).model
    return cfg, Head(cfg, PSI, relations).double()


def geometry(n: int = 4) -> Geometry:
    u, v = torch.randn(n, 6, dtype=torch.float64), torch.randn(n, 6, dtype=torch.float64)
    return Geometry((u - v).square().sum(1), (u * v).sum(1), u.square().sum(1), v.square().sum(1))


def scored(cfg, head: Head, relation=None, count=None) -> tuple[Geometry, torch.Tensor, ScoreParts]:
    g = geometry()
    psi = torch.cat([scalars(g, head.rho_kappa, cfg), torch.randn(4, 2, dtype=torch.float64)], dim=1)
    counts = torch.zeros(4, dtype=torch.float64) if count is None else count
    return g, psi, score(psi, counts, head.weights(), cfg, relation)


def test_geometric_branch_is_minus_the_distance_over_kappa():
    """eq:dsq, eq:sgeo; kappa starts where the configuration says."""
    cfg, head = make(model__kappa=2.0)
    g, _, parts = scored(cfg, head)
    kappa = KAPPA_MIN + math.log1p(math.exp(float(head.rho_kappa.detach())))
    assert kappa == pytest.approx(2.0, rel=1e-6)
    torch.testing.assert_close(parts.geometric, torch.sigmoid(head.gate[0]) * -g.d2 / kappa)


def test_a_step_moves_kappa_or_its_logarithm():
    """eq:sgeo, D-25: kappa begins alike, and a step of 0.1 takes 50 to 50.1 or to 50 e^0.1."""
    for scale, after in (("softplus", 50.1), ("log", 50 * math.exp(0.1))):
        cfg, head = make(model__kappa=50.0, model__kappa_scale=scale)
        g = geometry()
        for step, kappa in ((0.0, 50.0), (0.1, after)):
            with torch.no_grad():
                head.rho_kappa += step
                torch.testing.assert_close(scalars(g, head.weights().rho_kappa, cfg)[:, 0], -g.d2 / kappa)


def test_a_head_begins_as_it_is_told():
    """eq:edgebank_mixture, D-19: alpha is 1/2 and the geometric scalars have their weight, or neither."""
    _, quiet = make()
    _, plain = make(model__gate=0.0, model__quiet_geometry=False)
    alpha = [head.gate.detach().sigmoid().item() for head in (quiet, plain)]
    assert alpha == [pytest.approx(0.88, abs=1e-3), 0.5]
    first, told = (head.weights().layers[0][0] for head in (quiet, plain))
    assert not first[:, :5].any()
    assert told[:, :5].abs().min() > 0
    assert torch.equal(first[:, 5:], told[:, 5:])


def test_residual_branch_is_the_mlp_and_can_be_removed():
    """eq:sres."""
    cfg, head = make(model__edgebank=False)
    _, psi, parts = scored(cfg, head)
    torch.testing.assert_close(parts.residual, head.mlp(psi).squeeze(1))
    assert scored(*make(model__residual=False))[2].raw_residual.abs().max() == 0


def test_blocks_without_gradients_are_the_same_network():
    """eq:sres; the last block is a small one."""
    _, head = make()
    psi = torch.randn(5000, PSI, dtype=torch.float64)
    with torch.no_grad():
        torch.testing.assert_close(mlp_score(psi, head.weights().layers), head.mlp(psi).squeeze(1))


@pytest.mark.parametrize("kind", ["bounded", "raw"])
def test_scalars_are_functions_of_the_invariants(kind):
    """eq:score_features: five columns; bounded ones stay bounded when the states grow."""
    cfg, head = make(model__scalars=kind)
    g = geometry()
    columns = scalars(g, head.rho_kappa, cfg)
    grown = scalars(Geometry(*(1e6 * value for value in g)), head.rho_kappa, cfg)
    assert columns.shape == (4, 5)
    torch.testing.assert_close(columns[:, 4], torch.log1p(g.d2))
    assert bool((grown[:, 1].abs() <= 1).all()) == (kind == "bounded")


def test_mixture_weighs_memory_against_the_neural_score():
    """eq:edgebank_mixture: one gate per relation, log(1 + count), and parts that add up to the score."""
    cfg, head = make(relations=2)
    with torch.no_grad():
        head.gate.copy_(torch.tensor([0.0, 3.0]))
        head.beta.fill_(2.0)
    relation, count = torch.tensor([0, 1, 0, 1]), torch.tensor([0.0, 1.0, 5.0, 9.0], dtype=torch.float64)
    _, _, parts = scored(cfg, head, relation, count)
    alpha = torch.sigmoid(head.gate)[relation]
    torch.testing.assert_close(parts.edgebank, (1 - alpha) * 2.0 * torch.log1p(count))
    torch.testing.assert_close(parts.total, parts.geometric + parts.residual + parts.edgebank)


def test_without_edgebank_nothing_is_mixed_in():
    _, _, parts = scored(*make(model__edgebank=False), count=torch.full((4,), 9.0, dtype=torch.float64))
    assert parts.edgebank.abs().max() == 0
    torch.testing.assert_close(parts.total, parts.geometric + parts.residual)


SWITCHES = [{}, {"model__edgebank": False}, {"model__residual": False}, {"model__scalars": "raw"}]


@pytest.mark.parametrize("switch", SWITCHES)
def test_a_stack_of_heads_scores_as_each_of_them(switch):
    """eq:score_features, eq:edgebank_mixture with a leading dimension."""
    cfg, _ = make(**switch)
    heads = [make(seed=seed, **switch)[1].weights() for seed in range(3)]
    numbers = [torch.stack([head[i].reshape(-1) for head in heads]) for i in range(4)]
    layers = zip(*(head.layers for head in heads), strict=True)
    pairs = tuple(tuple(torch.stack(part) for part in zip(*layer, strict=True)) for layer in layers)
    stacked = HeadWeights(*numbers, pairs)
    rows, data = [geometry() for _ in heads], torch.randn(3, 4, 2, dtype=torch.float64)
    together = Geometry(*map(torch.stack, zip(*rows, strict=True)))
    count = torch.rand(3, 4, dtype=torch.float64)
    psi = torch.cat([scalars(together, stacked.rho_kappa, cfg), data], dim=2)
    found = score(psi, count, stacked, cfg)
    for i, head in enumerate(heads):
        own = score(torch.cat([scalars(rows[i], head.rho_kappa, cfg), data[i]], dim=1), count[i], head, cfg)
        for name in ("total", "geometric", "residual", "edgebank", "raw_residual"):
            torch.testing.assert_close(getattr(found, name)[i], getattr(own, name))
