"""NumPy references of ``glaive.kernels.compact``."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from glaive.kernels.compact import DeletionMask
from glaive.types import as_array, as_buffer


def compact_fixed(values: pa.Buffer, width: int, deleted: DeletionMask) -> pa.Buffer:
    """The live values, each of ``width`` bytes."""
    deleted.check()
    if width < 1 or values.size < deleted.rows * width:
        raise ValueError(f"{deleted.rows} values of {width} bytes in {values.size} bytes")
    rows = as_array(values)[: deleted.rows * width].reshape(deleted.rows, width)
    return as_buffer(np.ascontiguousarray(rows[deleted.mask()]).reshape(-1))


def compact_bits(bits: pa.Buffer, begin: int, deleted: DeletionMask) -> pa.Buffer:
    """The live bits, where the first row is bit ``begin``."""
    deleted.check()
    if begin < 0 or begin + deleted.rows > 8 * bits.size:
        raise ValueError(f"{deleted.rows} bits from bit {begin} on of {bits.size} bytes")
    first, skip = divmod(begin, 8)
    part = as_array(bits)[first : (begin + deleted.rows + 7) // 8]
    flags = np.unpackbits(part, count=skip + deleted.rows, bitorder="little")[skip:]
    return as_buffer(np.packbits(flags[deleted.mask()], bitorder="little"))
