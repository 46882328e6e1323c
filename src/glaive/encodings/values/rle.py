"""Run-length encoding: one value and one length per run of equal values.

====== ============ ============================================================
buffer item         meaning
====== ============ ============================================================
0      value        the run's value, in the block's own width
1      ``u8``       the run's length, 1 to 255; longer runs are split
====== ============ ============================================================

Runs end with their chunk. As a block: ``u64`` size of the values in bytes, the values, the
lengths. From format 2.3 on lengths may be wider, and both may be encoded themselves: see
``glaive.encodings.values.rle``.

Specification: "Run-length encoding" in ``docs/format/encodings.md``; message ``Rle``.
"""

from __future__ import annotations

from typing import Any, ClassVar, Self

import numpy as np
import pyarrow as pa

from glaive.arrow.blocks import Block, FixedWidth
from glaive.dataclass import NamedTuple, dataclass
from glaive.encodings.compression import check_decoded, decompress
from glaive.encodings.protocol import (
    EncodedBlocks,
    EncodedChunks,
    MiniChunks,
    ValueEncoding,
    newer_lance,
)
from glaive.encodings.registry import read_encoding, value_encoding
from glaive.encodings.values.flat import Flat
from glaive.encodings.values.general import General
from glaive.encodings.values.sequences import Constant, Numbers, numbers_of
from glaive.encodings.writing.fixed_stats import FixedStats, fixed_width
from glaive.errors import CorruptFileError, SchemaError
from glaive.format.pb import encodings21_pb2 as pb
from glaive.kernels._bitpack import WORD_BITS
from glaive.kernels.full_zip import gather_ranges
from glaive.kernels.runs import (
    HEADER_BYTES,
    collapse_runs,
    count_pairs,
    expand_runs,
    plan_runs,
    take_runs,
)
from glaive.types import Int64s, Where, as_array, as_buffer

# --- Run-length encoding whose values and lengths have encodings of their own; from 2.3 on
#
# Buffer 0 has the values of the runs, as a block. Buffer 1 has their lengths, as a block: numbers
# of 8, 16 or 32 bits.
#
# Blocks omit their number of runs. It follows from the size of the part that is ``Flat``,
# or ``Flat`` under general compression. Else it follows from lengths described by the message, as
# their sum is known. If the message describes both parts, the block has 0 bytes.
#
# Specification: "Run-length encoding" in ``docs/format/encodings.md``; message ``Rle``.

LENGTH_BITS = (8, 16, 32)

_RUN_BYTES = 32
"""Bytes that expanding a run takes in addition to its values."""

_FIRST_RUNS = 64
"""Lengths that are summed first where their number is unknown."""


class _Part(NamedTuple):
    """Location of the values or the lengths of all chunks, and their number if it is known."""

    encoding: ValueEncoding
    bits: int
    data: pa.Buffer
    starts: Int64s
    sizes: Int64s
    runs: Int64s | None


@dataclass(frozen=True, slots=True)
class NestedRuns(ValueEncoding):
    """Runs of ``values`` that are ``lengths`` long."""

    wire_name: ClassVar[str] = "rle"

    values: ValueEncoding
    lengths: ValueEncoding

    @classmethod
    def of(cls, values: ValueEncoding, lengths: ValueEncoding, where: Where) -> Self:
        """Check the encodings of both parts."""
        widths = (values.number_bits, lengths.number_bits)
        if widths[0] not in WORD_BITS or widths[1] not in LENGTH_BITS:
            raise CorruptFileError(
                "widths of run-length encoding",
                expected="values of 8, 16, 32 or 64 bits, lengths of 8, 16 or 32",
                found=f"values of {widths[0]} bits, lengths of {widths[1]}",
                where=where,
            )
        known = any(isinstance(_inner(part), Flat) for part in (values, lengths))
        if not known and lengths.has_payload:
            raise newer_lance("an 'rle' encoding without a number of runs", where)
        return cls(values, lengths)

    @classmethod
    def from_wire(cls, message: Any, where: Where) -> ValueEncoding:
        """Parse an ``Rle`` with any encodings."""
        values = read_encoding(message.values, where)
        return cls.of(values, read_encoding(message.run_lengths, where), where)

    def to_wire(self) -> pb.CompressiveEncoding:
        """Write an ``Rle``."""
        runs = pb.Rle(values=self.values.to_wire(), run_lengths=self.lengths.to_wire())
        return pb.CompressiveEncoding(rle=runs)

    @property
    def parts(self) -> tuple[ValueEncoding, ...]:
        """See the contract."""
        return (self.values, self.lengths)

    @property
    def num_buffers(self) -> int:
        """Values and lengths."""
        return 2

    @property
    def has_payload(self) -> bool:
        """Whether the values or the lengths have one."""
        return self.values.has_payload or self.lengths.has_payload

    @property
    def number_bits(self) -> int | None:
        """Width of the values."""
        return self.values.number_bits

    def decode_mini(self, chunks: MiniChunks) -> FixedWidth:
        """Decode both parts of all chunks, and repeat the values."""
        return self._expand(
            chunks.data,
            (chunks.starts[0], chunks.sizes[0]),
            (chunks.starts[1], chunks.sizes[1]),
            chunks.counts,
            chunks.where,
        )

    def decode_blocks(
        self, data: pa.Buffer, starts: Int64s, sizes: Int64s, counts: Int64s, where: Where
    ) -> FixedWidth:
        """Decode both parts of all blocks, and repeat the values."""
        if not self.has_payload:
            return self._expand(data, (starts, sizes), (starts, sizes), counts, where)
        heads = block_parts(data, starts, sizes, where)
        first = starts + HEADER_BYTES
        lengths = (first + heads, sizes - HEADER_BYTES - heads)
        return self._expand(data, (first, heads), lengths, counts, where)

    def _expand(
        self,
        data: pa.Buffer,
        values: tuple[Int64s, Int64s],
        lengths: tuple[Int64s, Int64s],
        counts: Int64s,
        where: Where,
    ) -> FixedWidth:
        parts = (
            _part(self.values, data, *values, where),
            _part(self.lengths, data, *lengths, where),
        )
        runs = parts[0].runs if parts[0].runs is not None else parts[1].runs
        if runs is None:
            runs = _count_runs(self.lengths, counts, where)
        wrong = runs > counts
        for part in parts:
            if part.runs is not None:
                wrong |= part.runs != runs
        if not wrong.any():
            stored = int(values[1].sum() + lengths[1].sum())
            check_decoded(_RUN_BYTES * int(runs.sum()), stored, where)
            words = _decode(parts[0], runs, "values of runs", where)
            repeats = _decode(parts[1], runs, "lengths of runs", where).astype(np.int64)
            sums = np.append(0, repeats.cumsum())
            ends = runs.cumsum()
            wrong = sums[ends] - sums[ends - runs] != counts
            if not wrong.any():
                bits = parts[0].bits
                expanded = words.repeat(repeats)
                return FixedWidth(as_buffer(expanded), bits, len(expanded))
        at = int(np.argmax(wrong))
        raise CorruptFileError(
            "runs of a chunk",
            expected=f"as many values as lengths, which add up to {counts[at]}",
            found=f"{runs[at]} runs that do not add up",
            where=where,
        )

    def encode_mini(self, block: Block) -> EncodedChunks:
        """Divide into chunks like plain run-length encoding, then encode the values of the runs.

        Raises
        ------
        SchemaError
            ``lengths`` is another encoding than plain bytes.
        """
        if self.lengths != Flat(8):
            raise SchemaError("lengths of runs in chunks are written as bytes")
        bits = self.number_bits or 0
        plain = cut_runs(fixed_width(block, bits, self.wire_name))
        runs = plain.sizes[1]
        values = FixedWidth(as_buffer(plain.buffers[0]), bits, int(runs.sum()))
        encoded = self.values.encode_blocks(values, runs)
        return EncodedChunks((encoded.data, plain.buffers[1]), (encoded.sizes, runs), plain.counts)

    def encode_blocks(self, block: Block, counts: Int64s) -> EncodedBlocks:
        """Encode one block of values.

        Raises
        ------
        SchemaError
            The parts are for other runs, or there are several blocks.
        """
        bits = self.number_bits or 0
        fixed = fixed_width(block, bits, self.wire_name)
        if len(counts) != 1:
            raise SchemaError(f"{len(counts)} blocks of runs; one at a time is written")
        words, lengths = runs_of(as_array(fixed.values, f"<u{bits // 8}")[: fixed.count])
        parts = []
        for encoding, numbers in ((self.values, words), (self.lengths, lengths)):
            width = encoding.number_bits or 0
            cast = np.ascontiguousarray(numbers.astype(f"<u{width // 8}", copy=False))
            part = FixedWidth(as_buffer(cast), width, len(cast))
            encoded = encoding.encode_blocks(part, np.array([len(cast)], np.int64))
            parts.append(as_array(as_buffer(encoded.data)))
        if not self.has_payload:
            return EncodedBlocks(np.empty(0, np.uint8), np.zeros(1, np.int64))
        head = np.frombuffer(len(parts[0]).to_bytes(HEADER_BYTES, "little"), np.uint8)
        data = np.concatenate((head, *parts))
        return EncodedBlocks(data, np.array([len(data)], np.int64))


def cut_runs(fixed: FixedWidth) -> EncodedChunks:
    """Return the values and lengths of runs in chunks of up to 4,096 values and 8,186 bytes."""
    no_limit = (fixed.count + 1) * (fixed.bits // 8 + 1)
    plan = plan_runs(fixed.values, fixed.count, fixed.bits, no_limit)
    if plan is None:
        raise ValueError("more runs than values")
    values, lengths = collapse_runs(fixed.values, plan.counts, plan.pairs, fixed.bits)
    sizes = (plan.pairs * (fixed.bits // 8), plan.pairs)
    return EncodedChunks((values, lengths), sizes, plan.counts)


def runs_of(words: Numbers) -> tuple[Numbers, Numbers]:
    """Return the value and the length of each run of equal numbers."""
    first = np.concatenate(([True], words[1:] != words[:-1])).nonzero()[0][: len(words)]
    return words[first], np.diff(first, append=len(words)).astype(np.uint64)


def _count_runs(lengths: ValueEncoding, counts: Int64s, where: Where) -> Int64s:
    """Return the runs per block if the message describes all lengths: as many as add up to it."""
    run_counts = {}
    none = np.zeros(1, np.int64)
    for count in np.unique(counts).tolist():
        runs = min(count, _FIRST_RUNS)
        if isinstance(lengths, Constant):  # as many as there are, which avoids listing them
            run_counts[count] = -(-count // max(1, int.from_bytes(lengths.value, "little")))
            continue
        while True:
            check_decoded(_RUN_BYTES * runs, 0, where)
            wanted = np.array([runs], np.int64)
            block = lengths.decode_blocks(pa.py_buffer(b""), none, none, wanted, where)
            numbers = numbers_of(block, lengths.number_bits or 0, runs, "lengths of runs", where)
            ends = numbers.astype(np.int64).cumsum()
            if runs == count or ends[-1] >= count:
                break
            runs = min(4 * runs, count)
        run_counts[count] = min(int(ends.searchsorted(count)) + 1, runs)
    return np.array([run_counts[count] for count in counts.tolist()], np.int64)


def block_parts(data: pa.Buffer, starts: Int64s, sizes: Int64s, where: Where) -> Int64s:
    """Return the bytes of the values in blocks of runs: the ``u64`` that each begins with."""
    short = sizes < HEADER_BYTES
    heads = np.zeros(len(starts), np.int64)
    if not short.any():
        at = starts[:, None] + np.arange(HEADER_BYTES)
        heads = as_array(data)[at].view("<i8")[:, 0] if len(starts) else heads
        short = (heads < 0) | (heads > sizes - HEADER_BYTES)
    if short.any():
        i = int(np.argmax(short))
        raise CorruptFileError(
            "run-length block",
            expected=f"{HEADER_BYTES} bytes, then {heads[i]} bytes of values",
            found=f"{sizes[i]} bytes",
            where=where,
        )
    return heads


def _inner(encoding: ValueEncoding) -> ValueEncoding:
    return encoding.values if isinstance(encoding, General) else encoding


def _part(
    encoding: ValueEncoding, data: pa.Buffer, starts: Int64s, sizes: Int64s, where: Where
) -> _Part:
    bits = encoding.number_bits or 0
    if isinstance(encoding, General):
        data, sizes = decompress(encoding.scheme, data, starts, sizes, where)
        starts = sizes.cumsum() - sizes
        encoding = encoding.values
    # The decoder checks the exact size, so a remainder is refused there.
    runs = sizes // (bits // 8) if isinstance(encoding, Flat) else None
    return _Part(encoding, bits, data, starts, sizes, runs)


def _decode(part: _Part, runs: Int64s, name: str, where: Where) -> Numbers:
    block = part.encoding.decode_blocks(part.data, part.starts, part.sizes, runs, where)
    return numbers_of(block, part.bits, int(runs.sum()), name, where)


LENGTH_WIDTHS = 8
_LENGTHS = Flat(LENGTH_WIDTHS)


@value_encoding
@dataclass(frozen=True, slots=True)
class RunLength(ValueEncoding):
    """Good for sorted or slowly changing columns, with runs of 2 values or more."""

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
        lengths = pb.CompressiveEncoding(flat=pb.Flat(bits_per_value=LENGTH_WIDTHS))
        return pb.CompressiveEncoding(rle=pb.Rle(values=values, run_lengths=lengths))

    @classmethod
    def propose(cls, stats: Any) -> tuple[int, Self] | None:
        """Propose runs for words, when smaller than plain and at most as large as bit-packed."""
        if not isinstance(stats, FixedStats) or stats.word_bits is None or stats.runs is None:
            return None
        size = stats.runs.bytes_of(stats.word_bits) + stats.overhead(len(stats.runs.counts))
        return size, cls(stats.word_bits)

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
        """Sum the lengths before each wanted value; expand only wanted values."""
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
        heads = block_parts(data, starts, sizes, where)
        runs = self._runs(heads, sizes - HEADER_BYTES - heads, where)
        first = starts + HEADER_BYTES
        values = expand_runs(data, first, first + heads, runs, counts, self.bits, where)
        return FixedWidth(values, self.bits, int(counts.sum()))

    def encode_blocks(self, block: Block, counts: Int64s) -> EncodedBlocks:
        """Collapse each block into its header, values and lengths."""
        fixed = fixed_width(block, self.bits, self.wire_name)
        pairs = count_pairs(fixed.values, counts, self.bits)
        values, lengths = collapse_runs(fixed.values, counts, pairs, self.bits)
        heads = pairs * (self.bits // 8)
        parts = as_buffer(np.concatenate([heads.view(np.uint8), values, lengths]))
        # Header, values and lengths of each block in turn, from the three arrays.
        sizes = np.stack([np.full(len(pairs), HEADER_BYTES), heads, pairs], axis=1)
        ends = sizes.cumsum(axis=0)
        bases = np.array([0, len(pairs) * HEADER_BYTES, len(pairs) * HEADER_BYTES + len(values)])
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
