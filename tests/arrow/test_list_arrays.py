"""Lists over resolved offsets: none ends behind the items."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from glaive.arrow.build import list_array
from glaive.errors import CorruptFileError
from glaive.types import Where, as_buffer


@pytest.mark.spec("rel-23")
@pytest.mark.parametrize(
    ("kind", "width"), [(pa.list_(pa.int64()), 4), (pa.large_list(pa.int64()), 8)], ids=str
)
@pytest.mark.parametrize("last", [-1, 4, 2**31 - 1])
def test_lists_that_end_behind_their_items_are_refused(kind: Any, width: int, last: int) -> None:
    items = pa.array([1, 2, 3])

    def made(end: int) -> Any:
        offsets = as_buffer(np.array([0, 1, end], f"<i{width}"))
        return list_array(kind, 2, None, 0, offsets, items, Where("a.lance"))

    assert made(3).to_pylist() == [[1], [2, 3]]
    with pytest.raises(CorruptFileError, match="items of lists"):
        made(last)
