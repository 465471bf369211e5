"""TensorBoard beside the journal, where the extra `tensorboard` is installed and the run asks for it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tsnn.errors import ConfigError

_ROWS = 2000  # training rows between two points of the running loss


class TensorBoard:
    """Writes the running loss as training goes, and an epoch's losses and validation figure once it is over."""

    def __init__(self, folder: Path) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            raise ConfigError("TensorBoard is missing; install it with pip install 'tsnn[tensorboard]'.") from None
        self._writer: Any = SummaryWriter(str(folder))
        self._next = 0

    def running_loss(self, rows: int, loss: float) -> None:
        """The epoch's mean loss after so many rows; most of these are left out."""
        if rows >= self._next:
            self._writer.add_scalar("loss/running", loss, rows)
            self._next = rows + _ROWS

    def epoch(self, epoch: int, losses: dict[str, float], validation: float, states: dict[str, float]) -> None:
        """The means of an epoch's losses, its validation figure, and what its states were like then."""
        for group, values in (("losses", losses), ("states", states)):
            for name, value in values.items():
                self._writer.add_scalar(f"{group}/{name}", value, epoch + 1)
        self._writer.add_scalar("validation", validation, epoch + 1)
        self._writer.flush()

    def close(self) -> None:
        """Write what is left."""
        self._writer.close()
