"""The recurrence without gradients: its states do not depend on how the rows were cut into chunks, bit for bit.

The sequential kernels already treat every event alike. What varies with the length of a chunk is the matrix product
before them, whose rounding a BLAS picks by shape; here each row is summed in one fixed order instead.
"""

from __future__ import annotations

from typing import Any

import torch
from numba import njit
from numpy.typing import NDArray
from torch import Tensor, nn

from tsnn.config import ModelConfig
from tsnn.engine import fused, kernels
from tsnn.engine.fused import Logs, Parameters, Updater
from tsnn.plan.chunk import UpdatePlan


@torch.no_grad()
def frozen_update(
    updater: Updater, plan: UpdatePlan, context: Tensor, h0: Tensor, F0: Tensor, cfg: ModelConfig, eta: float
) -> Logs:
    """`fused_update` without its autograd node: serving and every replay run this."""
    p = Parameters(*(weight.detach().cpu() for weight in Parameters.of(updater)))
    dims = fused._dims(plan, cfg, float(eta), p.msg_in.dtype)
    rows = context.detach().reshape(2 * dims.n, -1).contiguous()
    shares = (
        _context_share(dims, p.frame_in, p.frame_in_bias, rows),
        _context_share(dims, p.msg_in, p.msg_in_bias, rows),
    )
    tape = fused._tape(dims, plan, h0.to(rows), F0.to(rows), *shares)
    kernels.forward(dims, fused._plan_arrays(plan), fused._forward_weights(dims, p), tape)
    h, F, energy, smooth = map(torch.from_numpy, (tape.h, tape.F, tape.energy, tape.smooth))
    return h, F, energy, smooth


def _context_share(dims: kernels.Dims, weight: Tensor, bias: Tensor, rows: Tensor) -> NDArray[Any]:
    """bias + W_context context for every endpoint row, padded to whole vectors."""
    pad = dims.wp - dims.w
    columns = nn.functional.pad(weight[:, 2 * dims.d :].t(), (0, pad)).contiguous()
    out = fused._empty(rows.dtype, len(rows), dims.wp)
    _fill(rows.numpy(), columns.numpy(), nn.functional.pad(bias, (0, pad)).numpy(), out)
    return out


@njit(cache=True, nogil=True, fastmath={"contract"})
def _fill(rows: Any, columns: Any, bias: Any, out: Any) -> None:
    """out = bias + rows columns, each row by itself and in the order of the columns' rows."""
    for r in range(len(rows)):
        out[r] = bias
        for c in range(len(columns)):
            x = rows[r, c]
            for j in range(columns.shape[1]):
                out[r, j] += x * columns[c, j]
