"""Orders of rows by one or several columns: ranges, the Z-order curve and the Hilbert curve.

Values become ranks among a sample, so that columns of any distribution count alike; ranks become
one number, along which neighbours have similar values in all columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Literal, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from glaive.arrow.chunked import one_array
from glaive.arrow.dictionaries import decode_dictionary
from glaive.dataclass import dataclass
from glaive.errors import OptionError

__all__ = ["Curve", "CurveKind", "hilbert_numbers", "ordinals", "z_order_numbers"]

CurveKind = Literal["hilbert", "zorder"]

UInt64s = NDArray[np.uint64]

_MAX_BITS: Final = 16
"""Bits of a rank, at most."""

_CURVE_BITS: Final = 63
"""Bits of a number along the curve, at most."""

_PREFIX: Final = 8
"""Bytes of a text that count."""


@dataclass(frozen=True, slots=True)
class Curve:
    """The order of rows by some columns; can be pickled.

    Parameters
    ----------
    columns
        Their names.
    kind
        The curve for several columns.
    bounds
        Of each column, ordinals of a sample at equal distances; ascending.
    """

    columns: tuple[str, ...]
    kind: CurveKind
    bounds: tuple[NDArray[np.float64], ...]

    @classmethod
    def of(cls, sample: pa.Table, kind: CurveKind) -> Self:
        """The curve through a sample of the columns.

        Raises
        ------
        OptionError
            Rows cannot be ordered by the type of a column.
        """
        names = tuple(sample.column_names)
        steps = 2 ** min(_MAX_BITS, _CURVE_BITS // len(names)) - 1
        bounds = []
        for name in names:
            numbers = ordinals(one_array(sample.column(name)), name)
            known = np.sort(numbers[~np.isnan(numbers)])
            if len(known) > steps:
                known = known[np.linspace(0, len(known) - 1, steps).astype(np.int64)]
            bounds.append(known)
        return cls(names, kind, tuple(bounds))

    def numbers(self, rows: pa.RecordBatch | pa.Table) -> UInt64s:
        """The number of each row along the curve; nulls come first."""
        ranks: list[UInt64s] = []
        bits = min(_MAX_BITS, _CURVE_BITS // len(self.columns))
        for name, bounds in zip(self.columns, self.bounds, strict=True):
            column: Any = rows.column(name)
            array = one_array(column) if isinstance(column, pa.ChunkedArray) else column
            values = ordinals(array, name)
            rank: Any = np.searchsorted(bounds, values, side="right")
            rank[np.isnan(values)] = 0
            # Columns with few values count as much as others.
            ranks.append((rank * (2**bits - 1) // max(1, len(bounds))).astype(np.uint64))
        if len(ranks) == 1:
            return ranks[0]
        made = hilbert_numbers if self.kind == "hilbert" else z_order_numbers
        return made(ranks, bits)


def ordinals(values: Any, name: str) -> NDArray[np.float64]:
    """Numbers in the order of the values; NaN for null. Texts count by their first bytes.

    Parameters
    ----------
    values
        Shape ``(n,)``; numbers, booleans, decimals, dates, times, texts or binary.

    Raises
    ------
    OptionError
        Values of this type have no order.
    """
    kind = values.type
    if isinstance(values, pa.ExtensionArray):
        values, kind = values.storage, values.storage.type
    if pa.types.is_dictionary(kind):
        values = decode_dictionary(values)
        kind = values.type
    types = pa.types
    if types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind):
        values = values.cast(pa.large_string()).cast(pa.large_binary())
        kind = values.type
    if types.is_binary(kind) or types.is_large_binary(kind) or types.is_fixed_size_binary(kind):
        return _of_prefixes(values)
    if types.is_temporal(kind) and not types.is_interval(kind):
        width = pa.int32() if kind.bit_width == 32 else pa.int64()
        values = values.view(width)
    elif types.is_boolean(kind):
        values = values.cast(pa.int8())
    elif not (types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind)):
        raise OptionError(f"column {name!r}: rows cannot be clustered by values of type {kind}")
    numbers: Any = pc.cast(values, pa.float64(), safe=False)
    return np.asarray(numbers.to_numpy(zero_copy_only=False), np.float64)


def _of_prefixes(values: Any) -> NDArray[np.float64]:
    """Numbers made of the first bytes, the first one counting most."""
    sliced: Any = pc.binary_slice(values.cast(pa.large_binary()), 0, _PREFIX)
    padded = pc.fill_null(sliced, b"").to_numpy(zero_copy_only=False).astype(f"S{_PREFIX}")
    numbers: NDArray[np.float64] = padded.view(">u8").astype(np.float64)
    numbers[np.asarray(values.is_null().to_numpy(zero_copy_only=False))] = np.nan
    return numbers


def z_order_numbers(ranks: Sequence[UInt64s], bits: int) -> UInt64s:
    """Bits of ranks, interleaved.

    Parameters
    ----------
    ranks
        One array for each column, of values below ``2 ** bits``.
    """
    numbers = np.zeros(len(ranks[0]), np.uint64)
    one = np.uint64(1)
    for bit in range(bits - 1, -1, -1):
        for rank in ranks:
            numbers = (numbers << one) | ((rank >> np.uint64(bit)) & one)
    return numbers


def hilbert_numbers(ranks: Sequence[UInt64s], bits: int) -> UInt64s:
    """Numbers along the Hilbert curve: consecutive ones differ by one step in one column.

    Parameters are those of :func:`z_order_numbers`.
    """
    axes = [rank.copy() for rank in ranks]
    for bit in range(bits - 1, 0, -1):
        mask, low = np.uint64(1 << bit), np.uint64((1 << bit) - 1)
        for at in range(len(axes)):
            is_set = (axes[at] & mask) != 0
            swapped = np.where(is_set, np.uint64(0), (axes[0] ^ axes[at]) & low)
            axes[0] ^= np.where(is_set, low, swapped)
            if at:
                axes[at] ^= swapped
    for at in range(1, len(axes)):
        axes[at] ^= axes[at - 1]
    flips = np.zeros_like(axes[0])
    for bit in range(bits - 1, 0, -1):
        is_set = (axes[-1] & np.uint64(1 << bit)) != 0
        flips ^= np.where(is_set, np.uint64((1 << bit) - 1), np.uint64(0))
    return z_order_numbers([axis ^ flips for axis in axes], bits)
