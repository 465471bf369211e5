"""The geometric-residual decoder, piece by piece."""

from __future__ import annotations

import math

import pytest
import torch

from tests.engine.streams import config_of
from tsnn.model.decoder import KAPPA_MIN, Decoder, Geometry


def make(psi: int = 7, relations: int = 0, **switches: object) -> Decoder:
    torch.manual_seed(0)
    return Decoder(config_of(**switches).model, psi, relations).double()


def geometry(n: int = 4) -> Geometry:
    u, v = torch.randn(n, 6, dtype=torch.float64), torch.randn(n, 6, dtype=torch.float64)
    return Geometry((u - v).square().sum(1), (u * v).sum(1), u.square().sum(1), v.square().sum(1))


def score(decoder: Decoder, relation=None, count=None):
    g = geometry()
    psi = torch.cat([decoder.scalars(g), torch.randn(4, 2, dtype=torch.float64)], dim=1)
    counts = torch.zeros(4, dtype=torch.float64) if count is None else count
    return g, psi, decoder(psi, counts, relation)


def test_geometric_branch_is_minus_the_distance_over_kappa():
    """eq:dsq, eq:sgeo; kappa starts where the configuration says."""
    decoder = make(model__kappa=2.0)
    g, _, parts = score(decoder)
    kappa = KAPPA_MIN + math.log1p(math.exp(float(decoder.rho_kappa.detach())))
    assert kappa == pytest.approx(2.0, rel=1e-6)
    torch.testing.assert_close(parts.geometric, torch.sigmoid(decoder.gate[0]) * -g.d2 / kappa)


def test_residual_branch_is_the_mlp_and_can_be_removed():
    """eq:sres."""
    decoder = make(model__edgebank=False)
    _, psi, parts = score(decoder)
    torch.testing.assert_close(parts.residual, decoder.mlp(psi).squeeze(1))
    assert score(make(model__residual=False))[2].raw_residual.abs().max() == 0


@pytest.mark.parametrize("scalars", ["bounded", "raw"])
def test_scalars_are_functions_of_the_invariants(scalars):
    """eq:score_features: five columns; bounded ones stay bounded when the states grow."""
    decoder = make(model__scalars=scalars)
    g = geometry()
    big = Geometry(*(1e6 * value for value in g))
    columns, grown = decoder.scalars(g), decoder.scalars(big)
    assert columns.shape == (4, 5)
    torch.testing.assert_close(columns[:, 4], torch.log1p(g.d2))
    assert bool((grown[:, 1].abs() <= 1).all()) == (scalars == "bounded")


def test_mixture_weighs_memory_against_the_neural_score():
    """eq:edgebank_mixture: one gate per relation, log(1 + count), and parts that add up to the score."""
    decoder = make(relations=2)
    with torch.no_grad():
        decoder.gate.copy_(torch.tensor([0.0, 3.0]))
        decoder.beta.fill_(2.0)
    relation, count = torch.tensor([0, 1, 0, 1]), torch.tensor([0.0, 1.0, 5.0, 9.0], dtype=torch.float64)
    _, _, parts = score(decoder, relation, count)
    alpha = torch.sigmoid(decoder.gate)[relation]
    torch.testing.assert_close(parts.edgebank, (1 - alpha) * 2.0 * torch.log1p(count))
    torch.testing.assert_close(parts.total, parts.geometric + parts.residual + parts.edgebank)


def test_without_edgebank_nothing_is_mixed_in():
    _, _, parts = score(make(model__edgebank=False), count=torch.full((4,), 9.0, dtype=torch.float64))
    assert parts.edgebank.abs().max() == 0
    torch.testing.assert_close(parts.total, parts.geometric + parts.residual)
