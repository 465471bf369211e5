"""The compiled tail is `tsnn.model.head.scalars` and `tsnn.model.losses.chunk_losses`: values and gradients."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from tests.model.test_head import geometry, make
from tsnn.engine.tail import fused_losses, fused_scalars
from tsnn.model.geometry import Geometry
from tsnn.model.head import scalars
from tsnn.model.losses import chunk_losses

TOLERANCE = {torch.float64: {"rtol": 1e-12, "atol": 1e-14}, torch.float32: {"rtol": 1e-4, "atol": 1e-6}}
PRECISIONS = pytest.mark.parametrize("dtype", TOLERANCE, ids=str)


def check(plain: Callable[..., Tensor], compiled: Callable[..., Tensor], *inputs: Tensor) -> None:
    """The same values, and the same gradients of a random sum of them."""
    results = []
    for function in (plain, compiled):
        leaves = [part.clone().requires_grad_() for part in inputs]
        values = function(*leaves)
        slopes = torch.rand(values.shape, generator=torch.Generator().manual_seed(1), dtype=values.dtype)
        (values * slopes).sum().backward()
        results.append([values.detach(), *(leaf.grad for leaf in leaves)])
    for expected, found in zip(*results, strict=True):
        torch.testing.assert_close(found, expected, **TOLERANCE[inputs[0].dtype])


@PRECISIONS
def test_scalars(dtype):
    """eq:sgeo, eq:score_features."""
    cfg, head = make()
    rows = torch.stack(list(geometry(9)), dim=1).to(dtype)
    check(
        lambda columns, rho: scalars(Geometry(*columns.unbind(1)), rho, cfg),
        fused_scalars,
        rows,
        head.rho_kappa.detach().to(dtype),
    )


@PRECISIONS
@pytest.mark.parametrize("events", [0, 7])
def test_losses(dtype, events):
    """Scores are so large that a careless exponential would overflow."""
    torch.manual_seed(0)
    terms = [*(200 * torch.randn(3, 12, dtype=dtype)), *torch.rand(2, events, dtype=dtype)]
    check(
        lambda *own: chunk_losses(*own, width=4, temperature=0.5),
        lambda *own: fused_losses(*own, width=4, temperature=0.5),
        *terms,
    )
