"""Arrays said once: what a class's annotations tell."""

from __future__ import annotations

from types import GenericAlias
from typing import Annotated, Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tsnn.plan.layout import columns, shaped

UP_TO_NUMPY_2_4 = np.ndarray[Any, np.dtype[np.int32]]
FROM_NUMPY_2_5 = GenericAlias(np.ndarray, (np.int32,))  # as `typing` sees an alias that keeps its argument


@pytest.mark.parametrize("array", [NDArray[np.int32], UP_TO_NUMPY_2_4, FROM_NUMPY_2_5])
def test_an_annotation_tells_dtype_and_shape_under_every_numpy(array: Any) -> None:
    table = type("Table", (), {"__annotations__": {"ring": Annotated[array, shaped("node", 3, fill=-1)]}})
    made = columns(table)["ring"].make({"node": 2})
    assert made.dtype == np.int32
    np.testing.assert_array_equal(made, np.full((2, 3), -1))
