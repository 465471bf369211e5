"""The five losses."""

from __future__ import annotations

import pytest
import torch

from tsnn.config import LossConfig
from tsnn.engine.tail import fused_losses
from tsnn.model.losses import chunk_losses, ranking_loss


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
    torch.testing.assert_close(losses["geo"], ranking_loss(inner.view(3, 4) / 0.5))
    torch.testing.assert_close(losses["bias"], (residual**2).mean())
    torch.testing.assert_close(losses["smooth"], smooth.mean())
    torch.testing.assert_close(losses["energy"], energy.mean())
    rows = total.view(3, 4)
    labels = torch.tensor([1.0, 0.0, 0.0, 0.0], dtype=torch.float64).expand(3, 4)
    one = torch.nn.functional.binary_cross_entropy_with_logits(rows, labels, reduction="none")
    torch.testing.assert_close(losses["binary"], 0.5 * (one[:, 0] + one[:, 1:].mean(dim=1)).mean())
    weights = LossConfig(ce=11.0, binary=13.0, geo=2.0, bias=3.0, smooth=5.0, energy=7.0)
    expected = 11 * losses["ce"] + 13 * losses["binary"] + 2 * losses["geo"] + 3 * losses["bias"]
    expected = expected + 5 * losses["smooth"] + 7 * losses["energy"]
    torch.testing.assert_close(losses.total(weights), expected)


def test_a_chunk_without_events_has_no_state_losses():
    losses = chunk_losses(*torch.randn(3, 4), torch.zeros(0), torch.zeros(0), width=2, temperature=1.0)
    assert losses["smooth"] == 0
    assert losses["energy"] == 0


@pytest.mark.parametrize("events", [0, 7])
def test_compiled_losses_equal_these(events):
    """Values and gradients, with scores so large that a careless exponential would overflow."""
    torch.manual_seed(0)
    terms = [*(200 * torch.randn(3, 12, dtype=torch.float64)), *torch.rand(2, events, dtype=torch.float64)]
    slopes = torch.rand(6, dtype=torch.float64)
    gradients = []
    for losses in (chunk_losses, fused_losses):
        leaves = [term.clone().requires_grad_() for term in terms]
        values = losses(*leaves, width=4, temperature=0.5).values
        (values @ slopes).backward()
        gradients.append([values.detach(), *(leaf.grad for leaf in leaves)])
    for plain, compiled in zip(*gradients, strict=True):
        torch.testing.assert_close(compiled, plain)
