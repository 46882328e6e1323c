"""Codes of a partition without some rows, against moving them byte by byte."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from glaive.index.vector.storage import row_major, select_packed, select_transposed

ORDER = [0, 8, 1, 9, 2, 10, 3, 11, 4, 12, 5, 13, 6, 14, 7, 15]


def codes_of(rows: int, width: int) -> Any:
    return np.random.default_rng(rows * 9 + width).integers(0, 256, (rows, width), np.uint8)


def transposed(codes: Any) -> Any:
    return np.ascontiguousarray(codes.T).reshape(codes.shape)


def packed(codes: Any) -> Any:
    """Byte by byte, as the specification says."""
    rows, width = codes.shape
    content = bytearray()
    for block in range(rows // 32):
        for byte in range(width):
            column = codes[block * 32 : block * 32 + 32, byte].tolist()
            for shift in (0, 4):
                for row in ORDER:
                    low, high = column[row] >> shift & 15, column[row + 16] >> shift & 15
                    content.append(low | high << 4)
    rest = codes[rows // 32 * 32 :]
    content += np.ascontiguousarray(rest.T).tobytes()
    return np.frombuffer(bytes(content), np.uint8).reshape(rows, width)


@pytest.mark.spec("vector-7", "vector-8")
@given(rows=st.integers(0, 100), width=st.integers(1, 5), seed=st.integers(0, 99))
def test_rows_are_taken_out_of_every_layout(rows: int, width: int, seed: int) -> None:
    codes = codes_of(rows, width)
    kept = np.random.default_rng(seed).random(rows) < 0.6
    selected = codes[kept]
    assert select_transposed(transposed(codes), kept).tolist() == transposed(selected).tolist()
    assert select_packed(packed(codes), kept).tolist() == packed(selected).tolist()
    assert row_major(transposed(codes)).tolist() == codes.tolist()
