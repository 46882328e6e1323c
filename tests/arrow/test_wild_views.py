"""Views that are null, and have no length that a view can have."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from glaive.arrow.validation import wild_length


def views(lengths: list[int], data: bytes) -> Any:
    """Null views with these lengths, and one of 10 bytes at the end."""
    words = np.zeros((len(lengths) + 1, 4), np.int32)
    words[:, 0] = [*lengths, 10]
    valid = pa.py_buffer(np.packbits([0] * len(lengths) + [1], bitorder="little"))
    buffers = [valid, pa.py_buffer(words), pa.py_buffer(data)]
    make: Any = pa.Array.from_buffers
    return make(pa.binary_view(), len(words), buffers)


@pytest.mark.parametrize(
    ("length", "size", "is_wild"),
    [(0, 0, False), (4096, 0, False), (4097, 0, True), (9000, 9000, False), (9001, 9000, True)],
)
def test_a_null_view_is_no_longer_than_the_longest_buffer(
    length: int, size: int, is_wild: bool
) -> None:
    array = views([length, 0], bytes(size))
    assert (wild_length(array) is not None) == is_wild
    assert wild_length(array[1:]) is None, "what is cut off is not looked at"
    assert wild_length(pa.array([], pa.string_view())) is None


def test_a_buffer_that_is_missing_has_no_bytes() -> None:
    """Arrays of older pyarrow may lack one; newer ones refuse such."""
    views = np.zeros((3, 4), np.int32)
    views[0, :2] = 1, ord("a")
    parts: list[pa.Buffer | None] = [None, pa.py_buffer(views), None]
    try:
        array = pa.Array.from_buffers(pa.string_view(), 3, parts)
    except pa.ArrowInvalid:
        pytest.skip("this pyarrow makes no array without it")
    assert array.to_pylist() == ["a", "", ""]
    assert wild_length(array) is None
