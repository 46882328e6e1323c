"""Pick whether the values of runs are packed, where the format version has that.

Specification: "Writer choices" in ``docs/format/planes.md``.
"""

from __future__ import annotations

from glaive.arrow.blocks import FixedWidth
from glaive.encodings.protocol import ValueEncoding
from glaive.encodings.values.bitpack_out_of_line import OutOfLineBitpacking
from glaive.encodings.values.flat import Flat
from glaive.encodings.values.nested_runs import NestedRuns
from glaive.encodings.values.rle import RunLength
from glaive.kernels.bitpack import out_of_line_sizes
from glaive.memory import as_array

__all__ = ["with_packed_runs"]

MIN_GAIN = 0.03
"""Share of the bytes of all runs that packing must save: reading them takes longer."""


def with_packed_runs(block: FixedWidth, encoding: ValueEncoding) -> ValueEncoding:
    """Return ``encoding``, or runs with packed values if it is runs, and these are smaller."""
    if not isinstance(encoding, RunLength) or not block.count:
        return encoding
    values = as_array(block.values, f"<u{encoding.bits // 8}")
    width = max(int(values[: block.count].max()).bit_length(), 1)
    if width == encoding.bits:
        return encoding
    chunks = encoding.encode_mini(block)
    runs = chunks.sizes[1]
    plain = int(chunks.sizes[0].sum())
    packed = int(out_of_line_sizes(runs, encoding.bits, width).sum())
    if plain - packed < MIN_GAIN * (plain + int(runs.sum())):
        return encoding
    return NestedRuns(OutOfLineBitpacking(encoding.bits, width), Flat(8))
