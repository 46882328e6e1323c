"""Add the encoding ``xor``: integers of 32 bits, each byte combined with a mask."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
import pyarrow as pa

from glaive.arrow.blocks import Block, FixedWidth
from glaive.encodings.protocol import EncodedChunks, MiniChunks
from glaive.encodings.values.extension import Extension
from glaive.encodings.values.flat import Flat
from glaive.types import Where

MASK = 0x5A


class Xor(Extension):
    """An encoding that stores values of 32 bits with each byte masked."""

    name = "xor"

    @classmethod
    def from_wire(cls, message: Any, where: Where) -> Self:
        """Return the encoding; it has no configuration, as the mask is constant."""
        return cls()

    @classmethod
    def propose(cls, stats: Any) -> tuple[int, Self] | None:
        """Accept values of 32 bits only."""
        return (stats.raw_bytes, cls()) if stats.block.bits == 32 else None

    def encode_mini(self, block: Block) -> EncodedChunks:
        """Mask the bytes of plain chunks."""
        plain = Flat(32).encode_mini(block)
        return EncodedChunks((plain.buffers[0] ^ np.uint8(MASK),), plain.sizes, plain.counts)

    def decode_mini(self, chunks: MiniChunks) -> FixedWidth:
        """Remove the mask; ``Flat`` checks the sizes."""
        masked = Flat(32).decode_mini(chunks)
        values = np.frombuffer(masked.values, np.uint8) ^ np.uint8(MASK)
        return FixedWidth(pa.py_buffer(values), 32, masked.count)
