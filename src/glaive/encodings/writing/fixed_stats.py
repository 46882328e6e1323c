"""Statistics of fixed-width values, for choosing their encoding.

Each is computed on first use and kept: cheap statistics rule out proposals before others need a
pass over the values.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from glaive.arrow.blocks import Block, FixedWidth
from glaive.errors import SchemaError
from glaive.kernels._bitpack import BLOCK, WORD_BITS
from glaive.kernels.bitpack import chunk_widths
from glaive.types import Int64s, UInt8s, as_array

if TYPE_CHECKING:
    from glaive.encodings.protocol import ValueEncoding
    from glaive.kernels.runs import RunPlan


CHUNK_OVERHEAD = 12
"""Bytes of a mini-block chunk besides its values: chunk word, header, half of the padding."""

SAMPLE_VALUES = 4096
"""Values sampled before runs or a dictionary are tried."""


def spread_rows(count: int) -> Int64s:
    """Return the rows of the sample, out of ``count``."""
    taken = min(count, SAMPLE_VALUES)
    rows = np.arange(taken, dtype=np.int64) * count // taken
    # Even steps would hit the same position of every period; the shifts are the same each run.
    if count > SAMPLE_VALUES:
        rows += np.arange(taken) * 7919 % (count // taken)
    return rows


def chunk_counts(count: int, each: int) -> Int64s:
    """Return the values of each chunk of ``count`` values: the last one has the rest."""
    counts = np.full(-(-count // each), each, np.int64)
    if count % each:
        counts[-1] = count % each
    return counts


def fixed_width(block: Block, bits: int, encoding: str) -> FixedWidth:
    """Return ``block`` if its values have ``bits`` bits each.

    Raises
    ------
    SchemaError
        The block is of another class or width.
    """
    if isinstance(block, FixedWidth) and block.bits == bits:
        return block
    width = f"{block.bits} bits" if isinstance(block, FixedWidth) else type(block).__name__
    raise SchemaError(f"encoding {encoding!r} was given {width}; it holds values of {bits} bits")


class FixedStats:
    """Statistics of a block, each computed on first use.

    Parameters
    ----------
    block
        The values; they must stay the same while the statistics are in use.

    Attributes
    ----------
    cheapest
        Estimated bytes and encoding, once they were chosen for the options of the page.
    """

    def __init__(self, block: FixedWidth) -> None:
        self.block = block
        self.cheapest: tuple[int, ValueEncoding] | None = None

    @property
    def word_bits(self) -> int | None:
        """Width of the values if they are machine words (8 to 64 bits), else ``None``."""
        return self.block.bits if self.block.bits in WORD_BITS else None

    @property
    def raw_bytes(self) -> int:
        """Bytes of the plain values."""
        return (self.block.count * self.block.bits + 7) // 8

    def overhead(self, chunks: int) -> int:
        """Return the bytes of ``chunks`` chunks besides their values."""
        return chunks * CHUNK_OVERHEAD

    @cached_property
    def chunk_widths(self) -> UInt8s:
        """Bits that the largest value of every 1,024 needs; words only."""
        return chunk_widths(self.block.values, self.block.count, self._words())

    @cached_property
    def packed_bytes(self) -> int:
        """Bytes of all inline bit-packed chunks, widths included; words only."""
        widths = int(self.chunk_widths.sum(dtype=np.int64))
        return widths * (BLOCK // 8) + len(self.chunk_widths) * self._words() // 8

    @cached_property
    def runs(self) -> RunPlan | None:
        """Chunks of runs; ``None`` when they take as much as plain, or more than packed values.

        glaive counts runs of large blocks only if sampled values repeat.
        """
        from glaive.kernels.runs import plan_runs

        block, bits = self.block, self._words()
        if block.count > 64 * SAMPLE_VALUES:
            words, rows = as_array(block.values, f"<u{bits // 8}"), spread_rows(block.count - 1)
            # Runs of 64-bit values are larger than the values if fewer than a ninth repeat.
            if (words[rows] == words[rows + 1]).mean() < 0.03:
                return None
        return plan_runs(
            block.values, block.count, bits, min(self.raw_bytes - 1, self.packed_bytes)
        )

    @cached_property
    def byte_entropy(self) -> float:
        """Bits per byte, from 0 (always the same) to 8, averaged over the bytes of a value.

        Computed from up to 4,096 evenly spaced values.
        """
        count, width = self.block.count, self.block.bits // 8
        rows = as_array(self.block.values)[: count * width].reshape(count, width)
        rows = rows[:: max(1, count // SAMPLE_VALUES)][:SAMPLE_VALUES]
        if not rows.size:
            return 0.0
        total = 0.0
        for column in rows.T:
            shares = np.bincount(column, minlength=1) / len(column)
            shares = shares[shares > 0]
            total -= float((shares * np.log2(shares)).sum())
        return total / width

    def _words(self) -> int:
        if self.word_bits is None:
            raise SchemaError(
                f"values of {self.block.bits} bits are not words of {WORD_BITS} bits: "
                "they can only be stored flat"
            )
        return self.word_bits
