"""The compiled ends of the score."""

from __future__ import annotations

import torch

from tests.model.test_decoder import geometry, make
from tsnn.engine.tail import fused_scalars
from tsnn.model.decoder import KAPPA_MIN


def test_compiled_scalars_equal_those_of_the_decoder():
    """eq:score_features, values and gradients."""
    decoder, rows = make(), torch.stack(list(geometry(9)), dim=1)
    slopes = torch.randn(9, 5, dtype=torch.float64)
    results = []
    for compiled in (False, True):
        leaf = rows.clone().requires_grad_()
        decoder.zero_grad()
        rho = decoder.rho_kappa
        columns = (
            fused_scalars(leaf, rho, KAPPA_MIN) if compiled else decoder.scalars(type(geometry())(*leaf.unbind(1)))
        )
        (columns * slopes).sum().backward()
        results.append((columns.detach(), leaf.grad, rho.grad.clone()))
    for plain, fast in zip(*results, strict=True):
        torch.testing.assert_close(fast, plain)
