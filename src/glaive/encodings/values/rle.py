"""Run-length encoding: one value and one length per run of equal values.

====== ============ ============================================================
buffer item         meaning
====== ============ ============================================================
0      value        the run's value, in the block's own width
1      ``u8``       the run's length, 1 to 255; longer runs are split
====== ============ ============================================================

Runs end with their chunk. As a block: ``u64`` size of the values in bytes, the values, the
lengths. From format 2.3 on lengths may be wider, and both may be encoded themselves: see
``glaive.encodings.values.nested_runs``.

Specification: "Run-length encoding" in ``docs/format/encodings.md``; message ``Rle``.
"""

from __future__ import annotations

from typing import Any, ClassVar, Self

import numpy as np
import pyarrow as pa

from glaive.arrow.blocks import Block, FixedWidth
from glaive.dataclass import dataclass
from glaive.encodings.protocol import EncodedBlocks, EncodedChunks, MiniChunks, ValueEncoding
from glaive.encodings.registry import read_encoding, value_encoding
from glaive.encodings.values.flat import Flat
from glaive.encodings.values.nested_runs import NestedRuns, block_parts, cut_runs
from glaive.encodings.writing.fixed_stats import WORD_BITS, FixedStats, fixed_width
from glaive.errors import CorruptFileError
from glaive.format.pb import encodings21_pb2 as pb
from glaive.kernels.full_zip import gather_ranges
from glaive.kernels.runs import collapse_runs, count_pairs, expand_runs, take_runs
from glaive.memory import as_array, as_buffer
from glaive.types import Int64s, Where

__all__ = ["RunLength"]

LENGTH_BITS = 8
HEADER = 8
_LENGTHS = Flat(LENGTH_BITS)


@value_encoding
@dataclass(frozen=True, slots=True)
class RunLength(ValueEncoding):
    """Good for sorted or slowly changing columns; gains nothing with runs of less than 2."""

    wire_name: ClassVar[str] = "rle"

    bits: int

    @classmethod
    def from_wire(cls, message: Any, where: Where) -> ValueEncoding:
        """Parse an ``Rle``: this class if both parts are flat and lengths have 8 bits."""
        values = read_encoding(message.values, where)
        lengths = read_encoding(message.run_lengths, where)
        if lengths == _LENGTHS and isinstance(values, Flat) and values.bits in WORD_BITS:
            return cls(values.bits)
        return NestedRuns.of(values, lengths, where)

    def to_wire(self) -> pb.CompressiveEncoding:
        """Write an ``Rle``."""
        values = pb.CompressiveEncoding(flat=pb.Flat(bits_per_value=self.bits))
        lengths = pb.CompressiveEncoding(flat=pb.Flat(bits_per_value=LENGTH_BITS))
        return pb.CompressiveEncoding(rle=pb.Rle(values=values, run_lengths=lengths))

    @classmethod
    def propose(cls, stats: Any) -> tuple[int, Self] | None:
        """Words, when runs are smaller than plain and not larger than bit-packed values."""
        if not isinstance(stats, FixedStats) or stats.word_bits is None:
            return None
        if stats.runs is None or stats.run_bytes is None:
            return None
        return stats.run_bytes + stats.overhead(len(stats.runs.counts)), cls(stats.word_bits)

    @property
    def num_buffers(self) -> int:
        """Values and lengths."""
        return 2

    def decode_mini(self, chunks: MiniChunks) -> FixedWidth:
        """Expand the runs of all chunks."""
        pairs = self._pairs(chunks)
        values = expand_runs(chunks.data, *pairs, chunks.counts, self.bits, chunks.where)
        return FixedWidth(values, self.bits, int(chunks.counts.sum()))

    def take_mini(self, chunks: MiniChunks, chunk: Int64s, index: Int64s) -> FixedWidth:
        """Sum the lengths before each wanted value; nothing is expanded."""
        pairs = self._pairs(chunks)
        values = take_runs(chunks.data, *pairs, chunk, index, self.bits, chunks.where)
        return FixedWidth(values, self.bits, len(chunk))

    def _pairs(self, chunks: MiniChunks) -> tuple[Int64s, Int64s, Int64s]:
        """Start of the values and of the lengths of each chunk, and its number of runs."""
        (values, lengths), sizes = chunks.starts, chunks.sizes
        return values, lengths, self._runs(sizes[0], sizes[1], chunks.where)

    def encode_mini(self, block: Block) -> EncodedChunks:
        """Divide into chunks of up to 4,096 values and 8,186 bytes."""
        return cut_runs(fixed_width(block, self.bits, self.wire_name))

    def decode_blocks(
        self, data: pa.Buffer, starts: Int64s, sizes: Int64s, counts: Int64s, where: Where
    ) -> FixedWidth:
        """Expand the runs of all blocks."""
        first, lengths, runs = self.block_runs(data, starts, sizes, where)
        values = expand_runs(data, first, lengths, runs, counts, self.bits, where)
        return FixedWidth(values, self.bits, int(counts.sum()))

    def block_runs(
        self, data: pa.Buffer, starts: Int64s, sizes: Int64s, where: Where
    ) -> tuple[Int64s, Int64s, Int64s]:
        """Start of the values and of the lengths of each block, and its number of runs."""
        heads = block_parts(data, starts, sizes, where)
        runs = self._runs(heads, sizes - HEADER - heads, where)
        first = starts + HEADER
        return first, first + heads, runs

    def encode_blocks(self, block: Block, counts: Int64s) -> EncodedBlocks:
        """Collapse each block into its header, values and lengths."""
        fixed = fixed_width(block, self.bits, self.wire_name)
        pairs = count_pairs(fixed.values, counts, self.bits)
        values, lengths = collapse_runs(fixed.values, counts, pairs, self.bits)
        heads = pairs * (self.bits // 8)
        parts = as_buffer(np.concatenate([heads.view(np.uint8), values, lengths]))
        # Header, values and lengths of each block in turn, from the three arrays.
        sizes = np.stack([np.full(len(pairs), HEADER), heads, pairs], axis=1)
        ends = np.cumsum(sizes, axis=0)
        bases = np.array([0, len(pairs) * HEADER, len(pairs) * HEADER + len(values)])
        starts = ends - sizes + bases
        data = gather_ranges(parts, starts.reshape(-1), sizes.reshape(-1), "run-length blocks")
        return EncodedBlocks(as_array(data), sizes.sum(axis=1))

    def _runs(self, value_sizes: Int64s, length_sizes: Int64s, where: Where) -> Int64s:
        wrong = value_sizes != length_sizes * (self.bits // 8)
        if wrong.any():
            i = int(np.argmax(wrong))
            raise CorruptFileError(
                "runs of a chunk",
                expected=f"one value of {self.bits} bits for each of {length_sizes[i]} lengths",
                found=f"{value_sizes[i]} bytes of values",
                where=where,
            )
        return length_sizes
