"""Encoded chunks as readers of pages see them."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from glaive.encodings.protocol import EncodedChunks, MiniChunks
from glaive.types import Where

__all__ = ["laid_out"]


def laid_out(encoded: EncodedChunks, where: Where) -> MiniChunks:
    """The buffers of a kind behind each other, one kind after the other."""
    starts, before = [], 0
    for sizes in encoded.sizes:
        starts.append(before + np.cumsum(sizes) - sizes)
        before += int(sizes.sum())
    data = pa.py_buffer(b"".join(buffer.tobytes() for buffer in encoded.buffers))
    return MiniChunks(data, tuple(starts), encoded.sizes, encoded.counts, where)
