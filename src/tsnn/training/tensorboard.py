"""TensorBoard beside the journal, where the extra `tensorboard` is installed and the run asks for it."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import Any

from tsnn.errors import ConfigError

FOLDER = "tensorboard"
_ROWS = 2000  # training rows between two points of the running loss


class TensorBoard:
    """Writes the running loss as training goes, and every number of a journal entry once an epoch is over."""

    def __init__(self, folder: Path) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            raise ConfigError(
                "TensorBoard logging needs the package tensorboard; install it with pip install 'tsnn[tensorboard]'."
            ) from None
        self._writer: Any = SummaryWriter(str(folder))
        self._next = 0

    def running_loss(self, rows: int, loss: float) -> None:
        """The epoch's mean loss so far, once so many rows are trained on; most of these are left out."""
        if rows >= self._next:
            self._writer.add_scalar("loss/running", loss, rows)
            self._next = rows + _ROWS

    def entry(self, **entry: Any) -> None:
        """What `Journal.write` takes: numbers by their name, those in a group as group/name."""
        step = int(entry.get("epoch", 0)) + 1
        for name, value in entry.items():
            group = value if isinstance(value, dict) else {"": value}
            for part, number in group.items():
                if name not in ("epoch", "step") and isinstance(number, int | float):
                    self._writer.add_scalar(f"{name}/{part}".rstrip("/"), number, step)
        self._writer.flush()

    def close(self) -> None:
        """Write what is left."""
        self._writer.close()

    def __enter__(self) -> TensorBoard:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
