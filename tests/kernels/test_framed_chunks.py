"""Chunks packed in one pass are those that packing and assembling make."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.kernels.tiers import force_tier

from glaive.kernels.bitpack import chunk_widths, pack_inline
from glaive.kernels.chunks import assemble_chunks, frame_inline
from glaive.types import as_buffer


def words(count: int, bits: int) -> NDArray[Any]:
    """Words whose width differs from chunk to chunk, 0 and all bits among them."""
    rng = np.random.default_rng(count + bits)
    values = rng.integers(0, (1 << bits) - 1, count, f"u{bits // 8}", endpoint=True)
    widths = rng.integers(0, bits + 1, -(-count // 1024)).repeat(1024)[:count]
    widths[:1024] = bits
    widths[1024:2048] = 0
    return values & ((1 << widths.astype(object)) - 1).astype(values.dtype)


@pytest.mark.spec("mb-4")
@pytest.mark.parametrize("value_width", [2, 4])
@pytest.mark.parametrize("bits", [8, 16, 32, 64])
@pytest.mark.parametrize("count", [0, 1, 1023, 1024, 1025, 5000])
@pytest.mark.parametrize("tier", ["numpy", "numba"])
def test_values_are_packed_into_chunks_in_one_pass(
    count: int, bits: int, value_width: int, tier: Any
) -> None:
    values = as_buffer(words(count, bits))
    with force_tier("numpy"):
        packed, sizes = pack_inline(values, count, bits)
        expected, chunk_sizes = assemble_chunks(
            np.zeros(len(sizes), np.int64), [], [(packed, sizes)], value_width=value_width
        )
        widths = chunk_widths(values, count, bits)
    with force_tier(tier):
        framed = frame_inline(values, count, bits, value_width)
    data = framed.data
    assert data.equals(expected)
    assert framed.sizes.tolist() == chunk_sizes.tolist()
    assert framed.widths.tolist() == widths.tolist()


@pytest.mark.parametrize(
    ("count", "bits", "value_width", "said"),
    [(3, 32, 4, "3 values of 32 bits"), (2, 24, 4, "24"), (2, 32, 3, "sizes of 3 bytes")],
)
def test_wrong_arguments_are_refused(count: int, bits: int, value_width: int, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        frame_inline(as_buffer(np.zeros(2, np.uint32)), count, bits, value_width)
