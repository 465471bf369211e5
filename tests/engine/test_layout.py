"""The table of layouts: all that is derived from it agrees, and a new row reaches everything."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, NamedTuple

import pytest
import torch

from tests.engine.test_fused import Updater, config
from tsnn.config import ModelConfig
from tsnn.engine import buffers, cuda, layout
from tsnn.engine.layout import Dims, Grads, Parameters, Plan, Row, Tape, rows, shapes

TABLES = (Dims, Plan, layout.Order, Tape, Grads, layout.Scratch, layout.BackScratch)


def struct(text: str, name: str) -> list[str]:
    """The fields of a struct of the CUDA source, in order."""
    body = re.search(rf"^struct {name} \{{\n(.*?)^\}};", text, re.M | re.S)
    return re.findall(r"^    [\w\s]+\*? (\w+)", body.group(1), re.M)


@pytest.mark.parametrize("table", TABLES)
def test_every_row_has_a_shape_in_known_symbols_and_a_writer(table):
    symbols = {**Dims.of(ModelConfig())._asdict(), "base": 0, "most": 3, "gain_rows": 1}
    for name, row in rows(table).items():
        assert isinstance(row, layout.Size if table is Dims else Row), name
        if table is not Dims:
            assert row.writer in {"plan", "host", "forward", "backward"}, name
    if table is not Dims:
        assert set(shapes(table, "both", symbols)) <= set(table._fields)


def test_the_structs_of_the_cuda_source_come_from_the_tables():
    text = cuda.source(cuda.Shape.of(ModelConfig(), torch.float32))
    assert struct(text, "Plan") == [*Plan._fields, *layout.Order._fields]
    assert struct(text, "Tape") == list(rows(Tape, "cuda"))
    assert struct(text, "Grads") == list(rows(Grads, "cuda"))
    assert struct(text, "Sizes") == list(cuda._SIZES_TYPE.names)
    own = Path(cuda.__file__).with_name("recurrence.cu").read_text()
    assert not re.search(r"struct (Plan|Tape|Grads|Weights|Sizes) ", own)


def test_a_switch_is_a_constant_of_the_cuda_source_and_a_size_of_the_fused_kernels():
    cfg = ModelConfig(carry_over=False, transport=False, num_reflectors=3)
    text = cuda.source(cuda.Shape.of(cfg, torch.float32))
    for line in ("#define CARRY_OVER 0", "#define FRAME_UPDATE 1", "#define K 3", "#define KR 0"):
        assert f"{line}\n" in text
    dims = Dims.of(cfg, lanes=8)
    assert (dims.carry_over, dims.frame_update, dims.k, dims.kr, dims.wp) == (False, True, 3, 0, 104)


def test_parameters_are_those_of_the_updater_each_with_its_gradient():
    updater = Updater(config(), torch.float64)
    found = dict(zip(rows(Parameters).values(), Parameters.of(updater), strict=True))
    assert found.keys() == dict(updater.named_parameters()).keys()
    assert all(parameter is found[name] for name, parameter in updater.named_parameters())
    pairs = [name for layer in layout.LAYERS for name in (layer, f"{layer}_bias")]
    assert [*pairs, "theta"] == list(Parameters._fields)


class Made(NamedTuple):
    numbers: Annotated[layout.Array, Row("n, wp", "forward", "")]
    marks: Annotated[layout.Array, Row("n", "forward", "", kind="uint8")]
    given: Annotated[layout.Array, Row("extra", "host", "")]
    elsewhere: Annotated[layout.Array, Row("n", "forward", "", engine="cuda")] = None


def test_arrays_are_made_as_their_rows_say():
    dims = Dims.of(ModelConfig(hidden_dim=5), lanes=8)._replace(n=3)
    made = buffers.make(Made, torch.float32, dims, {"given": "as it is"}, extra=2)
    assert made.numbers.shape == (3, 8)
    assert made.numbers.ctypes.data % 64 == 0
    assert made.marks.tolist() == [0, 0, 0]
    assert (made.given, made.elsewhere) == ("as it is", None)
