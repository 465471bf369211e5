"""Runs that nobody trained, to look back with."""

from __future__ import annotations

from pathlib import Path

import torch

from tests.engine.streams import config_of
from tsnn.data.events import EventStream
from tsnn.data.split import split_by_time
from tsnn.training.run import Run
from tsnn.training.trainer import build_model


def run_on(stream: EventStream) -> Run:
    """One whose states matter all the same."""
    model = build_model(config_of(features__walks=True), split_by_time(stream))
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn(parameter.shape, generator=generator))
    return Run(Path("nowhere"), model.eval(), stream.ids, {}, stream.description)
