"""Choose the encoding of the levels of a mini-block page: the smallest that the version allows.

All chunks of a page share one description, and each is encoded on its own:

* inline bit-packing when the whole page has at most 1,024 levels;
* out-of-line bit-packing, as wide as the page's highest level, when it has more;
* run-length encoding, where the version has it, for levels that rarely change;
* flat 16-bit levels when nothing is smaller.

Specification: "Levels" in ``docs/format/pages.md``.
"""

from __future__ import annotations

from glaive.encodings.protocol import ValueEncoding
from glaive.encodings.registry import read_encoding
from glaive.format.pb import encodings21_pb2 as pb
from glaive.kernels.bitpack import BLOCK, out_of_line_sizes
from glaive.kernels.runs import count_pairs
from glaive.memory import as_buffer
from glaive.types import Int64s, UInt16s, Where

__all__ = ["choose_level_encoding"]

LEVEL_BITS = 16
LEVEL_BYTES = LEVEL_BITS // 8
RUN_BYTES = LEVEL_BYTES + 1
RUN_HEADER = 8

_WHERE = Where("levels to be written")


def choose_level_encoding(levels: UInt16s, counts: Int64s, *, runs: bool) -> ValueEncoding:
    """Choose the encoding with the fewest bytes.

    Parameters
    ----------
    levels
        All levels of the page.
    counts
        Levels per chunk.
    runs
        Whether the version allows run-length encoding of levels.
    """
    flat = pb.CompressiveEncoding(flat=pb.Flat(bits_per_value=LEVEL_BITS))
    width = max(int(levels.max(initial=0)).bit_length(), 1)
    best, smallest = flat, LEVEL_BYTES * len(levels)
    if len(levels) <= BLOCK:
        inline = len(counts) * (LEVEL_BYTES + width * BLOCK // 8)
        if inline < smallest:
            best, smallest = _inline(), inline
    elif width < LEVEL_BITS:
        packed = int(out_of_line_sizes(counts, LEVEL_BITS, width).sum())
        if packed < smallest:
            best, smallest = _out_of_line(width), packed
    if runs:
        pairs = count_pairs(as_buffer(levels), counts, LEVEL_BITS)
        if RUN_HEADER * len(counts) + RUN_BYTES * int(pairs.sum()) < smallest:
            lengths = pb.CompressiveEncoding(flat=pb.Flat(bits_per_value=8))
            best = pb.CompressiveEncoding(rle=pb.Rle(values=flat, run_lengths=lengths))
    return read_encoding(best, _WHERE)


def _inline() -> pb.CompressiveEncoding:
    return pb.CompressiveEncoding(
        inline_bitpacking=pb.InlineBitpacking(uncompressed_bits_per_value=LEVEL_BITS)
    )


def _out_of_line(width: int) -> pb.CompressiveEncoding:
    packed = pb.CompressiveEncoding(flat=pb.Flat(bits_per_value=width))
    return pb.CompressiveEncoding(
        out_of_line_bitpacking=pb.OutOfLineBitpacking(
            uncompressed_bits_per_value=LEVEL_BITS, values=packed
        )
    )
