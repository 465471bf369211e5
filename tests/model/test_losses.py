"""The five losses."""

from __future__ import annotations

import torch

from tsnn.config import LossConfig
from tsnn.model.geometry import Geometry
from tsnn.model.losses import (
    LOSSES,
    OF_SCORES,
    chunk_losses,
    contrasted,
    data_losses,
    ranking_loss,
    score_losses,
    total_loss,
)


def test_ranking_loss_is_the_softmax_cross_entropy_of_the_first_column():
    """eq:loss_ce."""
    scores = torch.randn(5, 4, dtype=torch.float64)
    expected = torch.nn.functional.cross_entropy(scores, torch.zeros(5, dtype=torch.long))
    torch.testing.assert_close(ranking_loss(scores), expected)


def test_chunk_losses_take_their_means_over_queries_and_events():
    """eq:loss_geo with its temperature, eq:loss_bias, eq:loss_smooth, eq:loss_energy, and their weighted sum."""
    total, inner, residual = torch.randn(3, 12, dtype=torch.float64)
    smooth, energy = torch.rand(2, 7, dtype=torch.float64)
    losses = chunk_losses(total, inner, residual, smooth, energy, width=4, temperature=0.5)
    named = dict(zip(LOSSES, losses, strict=True))
    torch.testing.assert_close(named["geo"], ranking_loss(inner.view(3, 4) / 0.5))
    torch.testing.assert_close(named["bias"], (residual**2).mean())
    torch.testing.assert_close(named["smooth"], smooth.mean())
    torch.testing.assert_close(named["energy"], energy.mean())
    rows = total.view(3, 4)
    labels = torch.tensor([1.0, 0.0, 0.0, 0.0], dtype=torch.float64).expand(3, 4)
    one = torch.nn.functional.binary_cross_entropy_with_logits(rows, labels, reduction="none")
    torch.testing.assert_close(named["binary"], 0.5 * (one[:, 0] + one[:, 1:].mean(dim=1)).mean())
    weights = LossConfig(ce=11.0, binary=13.0, geo=2.0, bias=3.0, smooth=5.0, energy=7.0)
    expected = 11 * named["ce"] + 13 * named["binary"] + 2 * named["geo"] + 3 * named["bias"]
    expected = expected + 5 * named["smooth"] + 7 * named["energy"]
    torch.testing.assert_close(total_loss(losses, weights), expected)


def test_a_chunk_without_events_has_no_state_losses():
    *_, smooth, energy = chunk_losses(*torch.randn(3, 4), torch.zeros(0), torch.zeros(0), width=2, temperature=1.0)
    assert smooth == energy == 0


def test_losses_of_a_stack_are_those_of_each_model():
    """eq:loss_ce, eq:loss_geo, eq:loss_bias with a leading dimension."""
    terms = torch.randn(3, 5, 12, dtype=torch.float64)  # of five models
    together = score_losses(*terms, width=4, temperature=0.5)
    assert together.shape == (5, len(OF_SCORES))
    for i, own in enumerate(together):
        torch.testing.assert_close(own, score_losses(*terms[:, i], width=4, temperature=0.5))
    torch.testing.assert_close(data_losses(terms[0], width=4), together[:, :2])


def test_bounded_products_cannot_be_pushed_apart_by_length():
    """eq:loss_geo, D-26."""
    for length, expected in ((1.0, 0.5), (1e3, 1.0), (1e6, 1.0)):
        norm2 = torch.tensor([length**2], dtype=torch.float64)
        geometry = Geometry(torch.zeros_like(norm2), norm2, norm2, norm2)  # a stalk and itself
        assert contrasted(geometry, LossConfig()) == norm2
        bounded = contrasted(geometry, LossConfig(geo_products="bounded"))
        torch.testing.assert_close(bounded, torch.full_like(norm2, expected), atol=1e-5, rtol=0.0)
