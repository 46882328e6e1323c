"""Constant: all values of a block are equal; the value is stored in the message.

The blocks themselves are empty.

Specification: "Constant" in ``docs/format/encodings.md``; message ``Constant``.
"""

from __future__ import annotations

from typing import Any, ClassVar, Self

import numpy as np
import pyarrow as pa

from glaive.arrow import blocks
from glaive.arrow.blocks import Block, FixedWidth
from glaive.dataclass import dataclass
from glaive.encodings.protocol import EncodedBlocks, ValueEncoding
from glaive.encodings.registry import value_encoding
from glaive.encodings.writing.fixed_stats import FixedStats, fixed_width
from glaive.errors import CorruptFileError, SchemaError
from glaive.format.pb import encodings21_pb2 as pb
from glaive.types import Int64s, Where


@value_encoding
@dataclass(frozen=True, slots=True)
class Constant(ValueEncoding):
    """``value`` holds the bytes of the value; empty where there are no values."""

    wire_name: ClassVar[str] = "constant"

    value: bytes

    @classmethod
    def from_wire(cls, message: Any, where: Where) -> Self:
        """Parse a ``Constant``; the value is missing only where there are no values."""
        if message.HasField("value") and not message.value:
            raise CorruptFileError(
                "constant", expected="the bytes of its value", found="none", where=where
            )
        return cls(message.value)

    def to_wire(self) -> pb.CompressiveEncoding:
        """Write a ``Constant``."""
        return pb.CompressiveEncoding(constant=pb.Constant(value=self.value or None))

    @property
    def has_payload(self) -> bool:
        """Nothing is stored."""
        return False

    @property
    def number_bits(self) -> int:
        """Width of the value."""
        return len(self.value) * 8

    def decode_blocks(
        self, data: pa.Buffer, starts: Int64s, sizes: Int64s, counts: Int64s, where: Where
    ) -> blocks.Constant:
        """Return the value and its count; nothing is repeated in memory."""
        count = int(counts.sum())
        if count and not self.value:
            raise CorruptFileError(
                "constant",
                expected=f"the bytes of the value, for {count} values",
                found="none",
                where=where,
            )
        value = FixedWidth(pa.py_buffer(self.value), len(self.value) * 8, 1)
        return blocks.Constant(value, count)

    def encode_blocks(self, block: Block, counts: Int64s) -> EncodedBlocks:
        """Check that the values are the constant, and write nothing.

        Raises
        ------
        SchemaError
            There are other values.
        """
        if isinstance(block, blocks.Constant):
            block = block.value
        fixed = fixed_width(block, len(self.value) * 8, self.wire_name)
        if fixed.count and not (
            FixedStats(fixed).all_equal
            and fixed.values.slice(0, len(self.value)).to_pybytes() == self.value
        ):
            raise SchemaError(f"values other than the constant {self.value.hex()}")
        return EncodedBlocks(np.empty(0, np.uint8), np.zeros(len(counts), np.int64))
