"""Delta: a first number, and the distance from each number to the next.

A block of ``n`` numbers has ``n - 1`` deltas, in an encoding of their own; the first number
is in the message and is the same for all blocks. Sums wrap around.

Specification: "Delta" in ``docs/format/encodings.md``; message ``Delta``.
"""

from __future__ import annotations

from typing import Any, ClassVar, Self

import numpy as np
import pyarrow as pa

from glaive.arrow.blocks import Block, FixedWidth
from glaive.dataclass import dataclass
from glaive.encodings.integer_sequence import numbers_of
from glaive.encodings.protocol import EncodedBlocks, ValueEncoding
from glaive.encodings.registry import read_encoding, value_encoding
from glaive.encodings.writing.fixed_stats import fixed_width
from glaive.errors import CorruptFileError, SchemaError
from glaive.format.pb import encodings21_pb2 as pb
from glaive.types import Int64s, Where, as_array, as_buffer

# --- Range: numbers at equal distances --------------------------------------------------
# Value ``i`` of every block is ``start + step * i``. The blocks themselves are empty.
#
# Specification: "Range" in ``docs/format/encodings.md``; message ``Range``.

_BITS = (32, 64)


@value_encoding
@dataclass(frozen=True, slots=True)
class Range(ValueEncoding):
    """Numbers of ``bits`` bits (32 or 64) from ``start`` on; sums wrap around."""

    wire_name: ClassVar[str] = "range"

    bits: int
    start: int
    step: int

    @classmethod
    def from_wire(cls, message: Any, where: Where) -> Self:
        """Parse a ``Range`` of numbers of 32 or 64 bits."""
        bits = check_number_bits(message.uncompressed_bits_per_value, cls.wire_name, where)
        if not message.step or max(message.start, message.step) >> bits:
            raise CorruptFileError(
                "range",
                expected=f"a start and a step above 0 of {bits} bits",
                found=f"start {message.start}, step {message.step}",
                where=where,
            )
        return cls(bits, message.start, message.step)

    def to_wire(self) -> pb.CompressiveEncoding:
        """Write a ``Range``."""
        numbers = pb.Range(uncompressed_bits_per_value=self.bits, start=self.start, step=self.step)
        return pb.CompressiveEncoding(range=numbers)

    @property
    def has_payload(self) -> bool:
        """Nothing is stored."""
        return False

    def decode_blocks(
        self, data: pa.Buffer, starts: Int64s, sizes: Int64s, counts: Int64s, where: Where
    ) -> FixedWidth:
        """Count up; every block begins at ``start`` again."""
        total = int(counts.sum())
        dtype = np.dtype(f"<u{self.bits // 8}")
        numbers = np.arange(total, dtype=np.uint64)
        if len(counts) > 1:
            numbers -= np.repeat(np.cumsum(counts) - counts, counts).astype(np.uint64)
        numbers *= np.uint64(self.step)
        numbers += np.uint64(self.start)
        return FixedWidth(as_buffer(numbers.astype(dtype, copy=False)), self.bits, total)

    def encode_blocks(self, block: Block, counts: Int64s) -> EncodedBlocks:
        """Check that the values are the range, and write nothing.

        Raises
        ------
        SchemaError
            There are other values.
        """
        fixed = fixed_width(block, self.bits, self.wire_name)
        zeros = np.zeros(len(counts), np.int64)
        wanted = self.decode_blocks(fixed.values, zeros, zeros, counts, Where("range"))
        size = wanted.count * self.bits // 8
        if not np.array_equal(as_array(wanted.values)[:size], as_array(fixed.values)[:size]):
            raise SchemaError(f"values other than {self.start}, + {self.step}, + {self.step}, …")
        return EncodedBlocks(np.empty(0, np.uint8), zeros)


def check_number_bits(bits: int, name: str, where: Where) -> int:
    """Return ``bits`` if numbers of an encoding may have this width."""
    if bits not in _BITS:
        raise CorruptFileError(
            f"width of numbers in a {name!r} encoding",
            expected="32 or 64 bits",
            found=f"{bits} bits",
            where=where,
        )
    return bits


@value_encoding
@dataclass(frozen=True, slots=True)
class Delta(ValueEncoding):
    """Numbers of ``bits`` bits (32 or 64) from ``base`` on, ``deltas`` apart."""

    wire_name: ClassVar[str] = "delta"

    bits: int
    base: int
    deltas: ValueEncoding

    @classmethod
    def from_wire(cls, message: Any, where: Where) -> Self:
        """Parse a ``Delta`` of numbers of 32 or 64 bits."""
        bits = check_number_bits(message.uncompressed_bits_per_value, cls.wire_name, where)
        if message.base >> bits:
            raise CorruptFileError(
                "base of deltas",
                expected=f"a number of {bits} bits",
                found=str(message.base),
                where=where,
            )
        return cls(bits, message.base, read_encoding(message.deltas, where))

    def to_wire(self) -> pb.CompressiveEncoding:
        """Write a ``Delta`` around the encoding of the deltas."""
        delta = pb.Delta(
            uncompressed_bits_per_value=self.bits, base=self.base, deltas=self.deltas.to_wire()
        )
        return pb.CompressiveEncoding(delta=delta)

    @property
    def parts(self) -> tuple[ValueEncoding, ...]:
        """See the contract."""
        return (self.deltas,)

    @property
    def has_payload(self) -> bool:
        """Whether the deltas have one."""
        return self.deltas.has_payload

    def decode_blocks(
        self, data: pa.Buffer, starts: Int64s, sizes: Int64s, counts: Int64s, where: Where
    ) -> FixedWidth:
        """Add up the deltas of every block."""
        inner = np.maximum(counts - 1, 0)
        total, steps = int(counts.sum()), int(inner.sum())
        sums = np.zeros(total, f"<u{self.bits // 8}")
        if steps:
            block = self.deltas.decode_blocks(data, starts, sizes, inner, where)
            deltas = numbers_of(block, self.bits, steps, "deltas", where)
            if len(counts) == 1:
                np.cumsum(deltas, out=sums[1:])
            else:
                filled = counts > 0
                first = (np.cumsum(counts) - counts)[filled]
                later = np.ones(total, np.bool_)
                later[first] = False
                sums[later] = deltas
                np.cumsum(sums, out=sums)
                # Blocks restart at 0: subtract the sum of the blocks before.
                sums -= np.repeat(sums[first], counts[filled])
        sums += np.array(self.base, sums.dtype)
        return FixedWidth(as_buffer(sums), self.bits, total)

    def encode_blocks(self, block: Block, counts: Int64s) -> EncodedBlocks:
        """Encode the deltas of every block.

        Raises
        ------
        SchemaError
            A block does not begin with ``base``.
        """
        fixed = fixed_width(block, self.bits, self.wire_name)
        total = int(counts.sum())
        values = as_array(fixed.values, f"<u{self.bits // 8}")[:total]
        first = (np.cumsum(counts) - counts)[counts > 0]
        if (values[first] != self.base).any():
            raise SchemaError(f"blocks that do not begin with the base {self.base}")
        later = np.ones(total, np.bool_)
        later[first] = False
        deltas = np.diff(values, prepend=values[:1])[later]
        inner = FixedWidth(as_buffer(np.ascontiguousarray(deltas)), self.bits, len(deltas))
        return self.deltas.encode_blocks(inner, np.maximum(counts - 1, 0))
