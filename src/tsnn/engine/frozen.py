"""The recurrence without gradients: its states do not depend on how the rows were cut into chunks, bit for bit.

The sequential kernels already treat every event alike. What varies with the length of a chunk is the matrix product
before them, whose rounding a BLAS picks by shape; here each row is summed in one fixed order instead.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from tsnn.config import ModelConfig
from tsnn.engine.buffers import carve
from tsnn.engine.fused import Logs, dims_of, logs, of_chunk, pack_weights, plan_arrays, run
from tsnn.engine.layout import Parameters
from tsnn.kernel_cache import kernel
from tsnn.plan.chunk import UpdatePlan


class Frozen:
    """`fused_update` without its autograd node, for weights that stay as they are: they are laid out once."""

    @torch.no_grad()
    def __init__(self, updater: nn.Module, cfg: ModelConfig, eta: float) -> None:
        p = Parameters(*(weight.detach().cpu() for weight in Parameters.of(updater)))
        self._dims = dims_of(cfg, eta, p.msg_in.dtype)
        self._weights = pack_weights(self._dims, p)
        pad = (0, self._dims.wp - self._dims.w)
        self._layers = []  # the context's part of both first layers, transposed and padded to whole vectors
        for weight, bias in ((p.frame_in, p.frame_in_bias), (p.msg_in, p.msg_in_bias)):
            columns = nn.functional.pad(weight[:, 2 * self._dims.d :].t(), pad).contiguous()
            self._layers.append((columns.numpy(), nn.functional.pad(bias, pad).numpy()))

    @torch.no_grad()
    def update(self, plan: UpdatePlan, context: Tensor, h0: Tensor, F0: Tensor) -> Logs:
        """The logs of a chunk."""
        dims = of_chunk(self._dims, plan)
        rows = context.detach().reshape(2 * dims.n, -1).contiguous()
        shares = carve(rows.dtype, {"hid_frame": (len(rows), dims.wp), "hid_msg": (len(rows), dims.wp)})
        for (columns, bias), share in zip(self._layers, shares.values(), strict=True):
            _fill(rows.numpy(), columns, bias, share)
        return logs(run(dims, plan_arrays(plan), self._weights, h0.to(rows), F0.to(rows), **shares))


@kernel(fastmath={"contract"})
def _fill(rows: Any, columns: Any, bias: Any, out: Any) -> None:
    """out = bias + rows columns, each row by itself and in the order of the columns' rows."""
    for r in range(len(rows)):
        out[r] = bias
        for c in range(len(columns)):
            x = rows[r, c]
            for j in range(columns.shape[1]):
                out[r, j] += x * columns[c, j]
