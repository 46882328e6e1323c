"""Bits of rotated residuals (RaBitQ): a sign for each element and, with more bits, its size.

Codes are decoded to one number per element when a partition is read, so that comparing a row is
one product with the rotated query, whatever the number of bits.

Specification: "Bits of rotated vectors" in ``docs/format/vector-indices.md``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from glaive.errors import UnsupportedFeatureError
from glaive.index.row_set import RowNumbers
from glaive.index.vector.codes import Codes, float_column, list_values, row_numbers
from glaive.index.vector.layouts import unpacked
from glaive.index.vector.rotation import read_rotation
from glaive.index.vector.storage import ADDRESSES, SIGNS, Storage
from glaive.index.vector.vectors import stored_integer
from glaive.kernels.code_scan import CodeQuery, CodeRows
from glaive.kernels.codes import dot_bytes
from glaive.kernels.distances import Metric, VectorBlock
from glaive.named_tuple import NamedTuple
from glaive.types import Float32s, UInt8s

__all__ = ["RabitCodes"]

EXTENDED: Final = "__blocked_ex_codes"
_ADD, _SCALE = "__add_factors", "__scale_factors"
_BLOCK: Final = 64
_MAX_BITS: Final = 9


class _RabitRows(NamedTuple):
    """Numbers of all elements of a partition, and two factors for each row."""

    numbers: NDArray[Any]
    add: Float32s
    scale: Float32s


class _RabitQuery(NamedTuple):
    """The rotated query, and the sum of its elements."""

    rotated: Float32s
    total: np.float32


class RabitCodes(Codes):
    """Signs and sizes of rotated residuals.

    Raises
    ------
    UnsupportedFeatureError
        The codes are of a layout that is not known.
    CorruptFileError
        The description, the rotation or the columns do not fit each other.
    """

    def __init__(self, storage: Storage, metric: Metric, centroids: Float32s) -> None:
        self._storage = storage
        self._dot = metric == "dot"
        self._centroids = centroids
        details = storage.details
        dimension = centroids.shape[1]
        if details.get("layered") or details.get("query_estimator") != "raw_query":
            raise UnsupportedFeatureError(
                f"{storage.file.path}: codes with the estimator "
                f"{details.get('query_estimator')!r:.40} are not read. Build the index again."
            )
        bits = stored_integer(storage, "num_bits")
        width = storage.type_of(SIGNS).list_size
        if not 1 <= bits <= _MAX_BITS or dimension % 8 or width != dimension // 8:
            expected = f"1 to {_MAX_BITS} bits of {dimension} dimensions, divisible by 8"
            raise storage.file.corrupt("codes of an index", expected, f"{bits} bits, {width} bytes")
        self._extra = bits - 1
        self._dimension = dimension
        self._rotation = read_rotation(storage, dimension)
        self._columns = [ADDRESSES, SIGNS, _ADD, _SCALE]
        if self._extra:
            self._columns = [ADDRESSES, SIGNS, EXTENDED, f"{_ADD}_ex", f"{_SCALE}_ex"]
            blocks = -(-dimension // _BLOCK)
            stored = storage.file.schema.field(EXTENDED).type if self._has(EXTENDED) else None
            if stored is None and self._has("__ex_codes"):
                raise UnsupportedFeatureError(
                    f"{storage.file.path}: codes of an old layout are not read. Build the index "
                    "again."
                )
            size = _BLOCK * blocks * self._extra // 8
            if stored is None or getattr(stored, "list_size", None) != size:
                raise storage.file.corrupt_column(EXTENDED, f"codes of {size} bytes", f"{stored}")
            if stored.value_type != pa.uint8():
                raise storage.file.corrupt_column(EXTENDED, "codes of bytes", f"{stored}")
        storage.file.check(**dict.fromkeys(self._columns[-2:], pa.float32()))
        self.nbytes = 5 * dimension

    def _has(self, name: str) -> bool:
        return name in self._storage.file.schema.names

    def load(self, number: int, at: slice) -> tuple[RowNumbers, Any, int]:
        """Read the codes of a partition, and decode them."""
        storage = self._storage
        rows = storage.file.read(self._columns, at.start, at.stop)
        signs = list_values(rows, SIGNS, np.uint8, storage)
        if storage.details.get("packed"):
            signs = unpacked(signs)
        bits = np.unpackbits(signs, axis=1, bitorder="little")
        numbers: NDArray[Any] = bits
        if self._extra:
            extended = list_values(rows, EXTENDED, np.uint8, storage)
            sizes = _sizes(extended, self._extra, self._dimension)
            if self._extra < 8:
                numbers = (bits << np.uint8(self._extra)) | sizes.astype(np.uint8)
            else:
                numbers = (bits.astype(np.uint16) << np.uint16(8)) | sizes
        add, scale = (float_column(rows, name, storage).copy() for name in self._columns[-2:])
        kept = _RabitRows(np.ascontiguousarray(numbers), add, scale)
        nbytes = kept.numbers.nbytes + add.nbytes + scale.nbytes
        return row_numbers(rows, storage), kept, nbytes

    def prepare(self, query: NDArray[Any]) -> _RabitQuery:
        """The rotated query."""
        with np.errstate(all="ignore"):
            rotated = self._rotation.apply(query.astype(np.float32)[None])[0]
            return _RabitQuery(np.ascontiguousarray(rotated), rotated.sum(dtype=np.float32))

    def distances(
        self, prepared: _RabitQuery, number: int, codes: _RabitRows, centroid_distance: float
    ) -> Float32s:
        """Estimated distances."""
        middle = np.float32((1 << self._extra) - 0.5)
        with np.errstate(all="ignore"):
            if codes.numbers.dtype == np.uint8:
                product = dot_bytes(codes.numbers, prepared.rotated)
            else:
                product = codes.numbers.astype(np.float32) @ prepared.rotated
            product -= middle * prepared.total
            product *= codes.scale
            if not self._dot:
                return product + (codes.add + np.float32(centroid_distance))
            near = np.float32(1 - centroid_distance)  # the product of query and centroid
            distances: Float32s = product + (near * codes.add + (1 - 2 * near))
            return distances

    def decoded(self, number: int, codes: _RabitRows, at: slice) -> VectorBlock:
        """See :meth:`Codes.decoded`: in the rotated space, where distances are the same."""
        middle = np.float32((1 << self._extra) - 0.5)
        factor = codes.scale[at] * np.float32(-1 if self._dot else -0.5)
        vectors = (codes.numbers[at].astype(np.float32) - middle) * factor[:, None]
        vectors += self._rotated_centroids[number]
        return VectorBlock(vectors.reshape(-1), self._dimension, "float32")

    @cached_property
    def _rotated_centroids(self) -> Float32s:
        return self._rotation.apply(self._centroids)

    def scanned(self, codes: _RabitRows, *, has_graph: bool = False) -> CodeRows | None:
        """See :meth:`Codes.scanned`; for numbers that fit a byte."""
        if codes.numbers.dtype != np.uint8:
            return None
        return CodeRows(codes.numbers, codes.add, codes.scale)

    def code_query(self, prepared: _RabitQuery) -> CodeQuery | None:
        """See :meth:`Codes.code_query`."""
        if self._extra >= 8:
            return None
        middle = np.float32((1 << self._extra) - 0.5)
        with np.errstate(all="ignore"):
            return CodeQuery("bytes", prepared.rotated, shift=float(middle * prepared.total))

    def start(self, prepared: _RabitQuery, centroid_distance: float) -> tuple[float, float]:
        """See :meth:`Codes.start`."""
        if not self._dot:
            return centroid_distance, 1.0
        near = 1 - centroid_distance  # the product of query and centroid
        return 1 - 2 * near, near


def _sizes(codes: UInt8s, bits: int, dimension: int) -> NDArray[Any]:
    """The numbers of so many bits each of blocked codes, as (rows, dimension)."""
    rows, width = codes.shape  # a partition may have no rows
    blocks = codes.reshape(rows, width // (8 * bits), 8 * bits)
    made: NDArray[Any] = _DECODERS[bits](blocks)
    return made.reshape(rows, blocks.shape[1] * _BLOCK)[:, :dimension]


def _one(blocks: UInt8s) -> UInt8s:
    return np.unpackbits(blocks, axis=2, bitorder="little")


def _two(blocks: UInt8s) -> UInt8s:
    parts = [(blocks >> np.uint8(shift)) & np.uint8(3) for shift in (0, 2, 4, 6)]
    return np.concatenate(parts, axis=2)


def _four(blocks: UInt8s) -> UInt8s:
    pairs = blocks.reshape(*blocks.shape[:2], 4, 8)
    return np.stack([pairs & np.uint8(15), pairs >> np.uint8(4)], axis=3).reshape(
        *blocks.shape[:2], _BLOCK
    )


def _low_nibbles(blocks: UInt8s) -> UInt8s:
    """The low four bits of codes of five: dimensions in sixteens."""
    first, second = blocks[:, :, :16], blocks[:, :, 16:32]
    parts = [
        first & np.uint8(15),
        first >> np.uint8(4),
        second & np.uint8(15),
        second >> np.uint8(4),
    ]
    return np.concatenate(parts, axis=2)


def _six(blocks: UInt8s) -> UInt8s:
    words = blocks.reshape(*blocks.shape[:2], 3, 16)
    last = sum(((words[:, :, k] >> np.uint8(6)) << np.uint8(2 * k)) for k in range(3))
    low = (words & np.uint8(63)).reshape(*blocks.shape[:2], 48)
    return np.concatenate([low, np.asarray(last, np.uint8)], axis=2)


def _with_top(low: UInt8s, plane: UInt8s, bits: int) -> UInt8s:
    """Add the top bit of each number, of dimension 16k+b at bit 8(b mod 8) + 2k + b div 8."""
    top = np.unpackbits(plane, axis=2, bitorder="little")
    b = np.arange(_BLOCK) % 16
    order = 8 * (b % 8) + 2 * (np.arange(_BLOCK) // 16) + b // 8
    return low | (top[:, :, order] << np.uint8(bits - 1))


_DECODERS: Final[Mapping[int, Callable[[UInt8s], UInt8s]]] = {
    1: _one,
    2: _two,
    3: lambda blocks: _with_top(_two(blocks[:, :, :16]), blocks[:, :, 16:], 3),
    4: _four,
    5: lambda blocks: _with_top(_low_nibbles(blocks), blocks[:, :, 32:], 5),
    6: _six,
    7: lambda blocks: _with_top(_six(blocks[:, :, :48]), blocks[:, :, 48:], 7),
    8: lambda blocks: blocks,
}
"""Reads the 64 numbers of each block, by their bits."""
