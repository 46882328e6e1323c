"""Read the codes of a partition, and compare them with a query, for every kind of codes.

Specification: "Codes" in ``docs/format/vector-codes.md``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from functools import cached_property
from math import isfinite, nan
from typing import Any, ClassVar, Final, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from glaive.arrow.chunked import one_array
from glaive.dataclass import NamedTuple
from glaive.errors import CorruptFileError, UnsupportedFeatureError
from glaive.index.row_sets import RowNumbers
from glaive.index.vector.storage import (
    ADDRESSES,
    PLAIN,
    PRODUCT,
    SCALAR,
    SIGNS,
    Storage,
    read_bounds,
    read_codebook,
    read_rotation,
    row_major,
    stored_integer,
    unpacked,
)
from glaive.kernels.distances import ELEMENTS, Element, Metric, Queries, VectorBlock, measure
from glaive.kernels.graph_search import (
    CodeQuery,
    CodeRows,
    Comparison,
    code_blocks,
    encode_numbers,
    join_tables,
    part_products,
    sum_tables,
)
from glaive.types import Float32s, UInt8s, items_of

PreparedQuery: TypeAlias = Any
"""Query prepared for a kind of codes: tables, codes, or the query itself."""


class Codes(ABC):
    """Reader of the codes of an index. Immutable; threads may share it."""

    nbytes: int = 0
    """Bytes of memory."""

    are_vectors: ClassVar[bool] = False
    """The codes are the vectors themselves: distances are exact."""

    are_residuals: ClassVar[bool] = False
    """Comparisons need the distances of the centroids."""

    @abstractmethod
    def load(self, number: int, at: slice) -> tuple[RowNumbers, Any, int]:
        """Read a partition: row numbers, codes, and bytes of memory of the codes.

        Parameters
        ----------
        number
            Number of the partition.
        at
            Rows of the partition in the file.

        Raises
        ------
        CorruptFileError
            The partition is damaged.
        """

    @abstractmethod
    def prepare(self, queries: NDArray[Any]) -> PreparedQuery:
        """Prepare queries for comparing them with the codes of all partitions."""

    @abstractmethod
    def decoded(self, number: int, codes: Any, at: slice) -> VectorBlock:
        """Decode some rows of a partition to vectors; RaBitQ vectors stay rotated.

        Parameters
        ----------
        number, codes
            Number of the partition, and its codes as read by :meth:`load`.
        at
            Rows within the partition.
        """

    def scanned(self, codes: Any, *, has_graph: bool = False) -> CodeRows | None:
        """Return the codes of a partition for its graph, and for a scan of several partitions.

        ``None`` if only :meth:`distances` compares the codes. A partition with a graph is rarely
        scanned: its codes stay in memory once.
        """
        return None

    def code_query(self, prepared: PreparedQuery) -> CodeQuery | None:
        """Return the queries for :meth:`scanned`, or ``None`` as :meth:`scanned`."""
        return None

    def starts(self, prepared: PreparedQuery, centroid_distances: Float32s) -> Float32s:
        """Return the offset of each partition in a scan, by the distances of their centroids.

        Shape: ``(queries, partitions)``.
        """
        return _alike(0, centroid_distances)

    def weights(self, centroid_distances: Float32s) -> Float32s:
        """Return the weight of each partition in a scan."""
        return _alike(1, centroid_distances)


def _alike(number: float, numbers: Float32s) -> Float32s:
    """Return a number for each of some numbers."""
    made = np.empty(numbers.shape, np.float32)
    made.fill(number)
    return made


def row_numbers(rows: pa.Table, storage: Storage) -> RowNumbers:
    """Return the row numbers that the segment stores."""
    storage.file.check_present(rows[ADDRESSES])
    array: Any = one_array(rows[ADDRESSES])
    numbers: RowNumbers = items_of(array.buffers()[1], np.uint64, len(array), 8 * array.offset)
    return numbers.copy()


def list_values(rows: pa.Table, name: str, dtype: Any, storage: Storage) -> NDArray[Any]:
    """Return fixed-size lists as an array of shape ``(rows, size)``.

    Raises
    ------
    CorruptFileError
        Lists or items are null.
    """
    array: Any = one_array(rows[name])
    size: int = array.type.list_size
    items = array.values.slice(array.offset * size, len(array) * size)
    if array.null_count or items.null_count:
        raise storage.file.corrupt_column(name, "values", f"{array.null_count} nulls")
    dtype = np.dtype(dtype)
    flat = items_of(items.buffers()[1], dtype, len(items), items.offset * dtype.itemsize)
    return flat.reshape(len(array), size)


def float_column(rows: pa.Table, name: str, storage: Storage) -> Float32s:
    """Return a column of ``float32``."""
    storage.file.check_present(rows[name])
    array: Any = one_array(rows[name])
    return items_of(array.buffers()[1], np.float32, len(array), 4 * array.offset)


# --- Plain vectors as codes, and vectors of one byte per element ------------------------
# Specification: "Codes" in ``docs/format/vector-codes.md``.

_LEVELS = 255
_LARGEST = float(np.finfo(np.float32).max)

_ELEMENTS: dict[pa.DataType, Element] = {
    pa.float16(): "float16",
    pa.float32(): "float32",
    pa.float64(): "float64",
    pa.uint8(): "uint8",
}


class PlainCodes(Codes):
    """The vectors themselves, of length 1 for the cosine distance.

    Raises
    ------
    CorruptFileError
        The metric is undefined for their type, or their dimension is wrong.
    """

    are_vectors: ClassVar[bool] = True

    def __init__(self, storage: Storage, metric: Metric, dimension: int) -> None:
        self._storage = storage
        self._metric: Metric = "dot" if metric == "cosine" else metric
        kind = storage.type_of(PLAIN)
        element = _ELEMENTS.get(kind.value_type)
        bits = (metric == "hamming") == (element == "uint8")
        if element is None or kind.list_size != dimension or not bits:
            expected = f"vectors of {dimension} elements for {metric}"
            raise storage.file.corrupt_column(PLAIN, expected, f"{kind}")
        self._element: Element = element

    def load(self, number: int, at: slice) -> tuple[RowNumbers, Any, int]:
        """Read the vectors of a partition."""
        rows = self._storage.file.read([ADDRESSES, PLAIN], at.start, at.stop)
        vectors = list_values(rows, PLAIN, ELEMENTS[self._element], self._storage)
        # Count the bytes of vectors in memory and of views of mapped files: both look alike here.
        block = VectorBlock(vectors.reshape(-1), vectors.shape[1], self._element)
        return row_numbers(rows, self._storage), block, vectors.nbytes

    def prepare(self, queries: NDArray[Any]) -> Queries:
        """Convert the queries to the type that distances are computed in."""
        return Queries.of(queries, self._element)

    def distances(self, prepared: Queries, codes: VectorBlock) -> Float32s:
        """Return the distance of each row of a partition from the first query."""
        return measure(codes, prepared, self._metric)

    def decoded(self, number: int, codes: VectorBlock, at: slice) -> VectorBlock:
        """See :meth:`Codes.decoded`; returns views of the vectors read."""
        width = codes.dimension
        values = codes.values[at.start * width : at.stop * width]
        return VectorBlock(values, width, codes.element)

    def scanned(self, codes: VectorBlock, *, has_graph: bool = False) -> CodeRows | None:
        """See :meth:`Codes.scanned`; only for vectors of ``float32``."""
        return CodeRows(codes.matrix) if codes.element == "float32" else None

    def code_query(self, prepared: Queries) -> CodeQuery | None:
        """See :meth:`Codes.code_query`."""
        if self._element != "float32":
            return None
        if self._metric == "l2":
            return CodeQuery("squared", prepared.matrix)
        return CodeQuery("product", prepared.matrix, factor=-1)

    def starts(self, prepared: Queries, centroid_distances: Float32s) -> Float32s:
        """See :meth:`Codes.starts`."""
        return _alike(0 if self._metric == "l2" else 1, centroid_distances)


class _ScalarQuery(NamedTuple):
    """Queries as bytes for squared distances, and as floats with their sums for dot products."""

    octets: UInt8s
    numbers: Float32s
    totals: list[float]


class ScalarCodes(Codes):
    """One byte per element: its position between the bounds of the index.

    Raises
    ------
    CorruptFileError
        The bounds are missing, or the codes have a wrong dimension.
    """

    def __init__(self, storage: Storage, metric: Metric, dimension: int) -> None:
        self._storage = storage
        self._dot = metric == "dot"
        self._start, self._step = read_bounds(storage)
        # Keep the factor finite, so that equal codes have distance 0.
        self._factor = min(self._step * self._step, _LARGEST)
        kind = storage.type_of(SCALAR)
        if kind.list_size != dimension:
            raise storage.file.corrupt_column(SCALAR, f"codes of {dimension} bytes", f"{kind}")

    def load(self, number: int, at: slice) -> tuple[RowNumbers, Any, int]:
        """Read the codes of a partition."""
        rows = self._storage.file.read([ADDRESSES, SCALAR], at.start, at.stop)
        codes = list_values(rows, SCALAR, np.uint8, self._storage)
        return row_numbers(rows, self._storage), codes, codes.nbytes

    def prepare(self, queries: NDArray[Any]) -> _ScalarQuery:
        """Encode the queries."""
        numbers = np.ascontiguousarray(queries, np.float32)
        octets, totals = encode_numbers(numbers, self._start, self._step or 1)
        return _ScalarQuery(octets, numbers, totals.tolist())

    def decoded(self, number: int, codes: UInt8s, at: slice) -> VectorBlock:
        """See :meth:`Codes.decoded`."""
        with np.errstate(over="ignore"):
            vectors = codes[at] * np.float32(self._step) + np.float32(self._start)
        if self._step * _LEVELS > _LARGEST:  # the span exceeds float32
            vectors = (codes[at] * float(self._step) + self._start).astype(np.float32)
        return VectorBlock(vectors.reshape(-1), codes.shape[1], "float32")

    def scanned(self, codes: UInt8s, *, has_graph: bool = False) -> CodeRows:
        """See :meth:`Codes.scanned`."""
        return CodeRows(np.ascontiguousarray(codes))

    def code_query(self, prepared: _ScalarQuery) -> CodeQuery:
        """See :meth:`Codes.code_query`."""
        if self._dot:
            return CodeQuery("bytes", prepared.numbers, -self._step)
        return CodeQuery("gap", prepared.octets, self._factor)

    def starts(self, prepared: _ScalarQuery, centroid_distances: Float32s) -> Float32s:
        """See :meth:`Codes.starts`."""
        made = _alike(0, centroid_distances)
        if self._dot or not all(map(isfinite, prepared.totals)):
            slope, start = (-self._start, 1.0) if self._dot else (0.0, 0.0)
            totals = [total if isfinite(total) else nan for total in prepared.totals]
            with np.errstate(over="ignore"):
                made.T[:] = [start + slope * total for total in totals]
        return made


# --- Product codes: the nearest codebook entry for each part of a vector ----------------
#
# The distance from a query is a sum over the parts; a table holds the summand of each entry. Codes
# of residuals would need a table per partition. glaive uses
# ``|q - c - r|² = |q - c|² - 2 q·r + (2 c·r + |r|²)`` instead: only ``q·r`` depends on both query
# and row, and the last term is kept with the row. ``q`` and ``c`` are measured from the mean of all
# centroids, so that numbers stay small and exact.
#
# Specification: "Codes" in ``docs/format/vector-codes.md``.

_HALF: Final = 16
"""Entries of a codebook for 4-bit codes."""

PartitionRows: TypeAlias = Callable[[int, slice], tuple[RowNumbers, UInt8s]]


def product_codes(storage: Storage, metric: Metric, centroids: Float32s) -> ProductCodes:
    """Return the product codes of an auxiliary file.

    Raises
    ------
    CorruptFileError
        The codebook is damaged, or has a wrong dimension.
    """

    def read(_number: int, at: slice) -> tuple[RowNumbers, UInt8s]:
        rows = storage.file.read([ADDRESSES, PRODUCT], at.start, at.stop)
        codes = list_values(rows, PRODUCT, np.uint8, storage)
        if storage.details.get("transposed"):
            codes = row_major(codes)
        return row_numbers(rows, storage), codes

    return ProductCodes(read, metric, centroids, read_codebook(storage), storage.file.path)


class ProductRows(NamedTuple):
    """Codes of a partition row by row, and the term of each row that is equal for all queries."""

    codes: UInt8s
    terms: Float32s


class ProductCodes(Codes):
    """Codes of residuals, or of vectors for the dot product.

    Parameters
    ----------
    rows
        Function that reads row numbers and codes (row by row) of a partition.
    metric
        Kind of distance.
    centroids
        Centroids of all partitions.
    book
        ``float32`` of shape ``(parts, entries, width)``.
    where
        Path for errors.

    Raises
    ------
    CorruptFileError
        The codebook is damaged, or has a wrong dimension.
    """

    are_residuals: ClassVar[bool] = True

    def __init__(
        self, rows: PartitionRows, metric: Metric, centroids: Float32s, book: Float32s, where: str
    ) -> None:
        self._rows = rows
        self._dot = metric == "dot"
        parts, entries, width = book.shape
        self._bits = 4 if entries == _HALF else 8
        if parts * width != centroids.shape[1]:
            expected = f"{centroids.shape[1]} dimensions, as centroids have"
            raise CorruptFileError(
                "codebook of an index", expected=expected, found=f"{parts * width}", where=where
            )
        self._entries = np.ascontiguousarray(book.transpose(0, 2, 1), np.float32)
        with np.errstate(all="ignore"):
            self._center = centroids.mean(axis=0, dtype=float).astype(np.float32)
            self._centroids = centroids - self._center
            self._squares = np.square(book).sum(axis=2)
        self.nbytes = int(self._entries.nbytes + self._centroids.nbytes + self._squares.nbytes)

    def load(self, number: int, at: slice) -> tuple[RowNumbers, Any, int]:
        """Read the codes of a partition, and compute the terms of its rows."""
        numbers, codes = self._rows(number, at)
        kept = self.rows_of(codes, number)
        return numbers, kept, codes.nbytes + kept.terms.nbytes

    def rows_of(self, codes: UInt8s, number: int) -> ProductRows:
        """Return codes of a partition, given row by row, with their terms."""
        codes = np.ascontiguousarray(codes)
        terms = np.zeros(len(codes), np.float32)
        if not self._dot:
            with np.errstate(all="ignore"):
                products = part_products(self._entries, self._centroids[number], 2)
                tables = np.ascontiguousarray(products + self._squares, np.float32)
                terms = sum_tables(codes, self._by_byte(tables), terms)
        return ProductRows(codes, terms)

    def prepare(self, queries: NDArray[Any]) -> Float32s:
        """Return tables with the summand of each codebook entry."""
        if self._dot:
            return self._by_byte(part_products(self._entries, queries, -1))
        return self._by_byte(part_products(self._entries, queries, -2, self._center))

    def decoded(self, number: int, codes: ProductRows, at: slice) -> VectorBlock:
        """See :meth:`Codes.decoded`."""
        entries = codes.codes[at]
        if self._entries.shape[2] == _HALF:
            entries = np.stack([entries & 15, entries >> 4], axis=2).reshape(len(entries), -1)
        parts = np.arange(len(self._entries))
        vectors: Float32s = self._entries.transpose(0, 2, 1)[parts, entries]
        vectors = vectors.reshape(len(entries), -1)
        if not self._dot:
            vectors += self._centroids[number] + self._center
        return VectorBlock(vectors.reshape(-1), vectors.shape[1], "float32")

    def scanned(self, codes: ProductRows, *, has_graph: bool = False) -> CodeRows:
        """See :meth:`Codes.scanned`."""
        blocks = None if has_graph else code_blocks(codes.codes, self._bits)
        return CodeRows(codes.codes, codes.terms, blocks=blocks)

    def code_query(self, prepared: Float32s) -> CodeQuery:
        """See :meth:`Codes.code_query`."""
        return CodeQuery("tables", prepared, bits=self._bits)

    def starts(self, prepared: Float32s, centroid_distances: Float32s) -> Float32s:
        """See :meth:`Codes.starts`."""
        return _alike(1, centroid_distances) if self._dot else centroid_distances

    def _by_byte(self, tables: Float32s) -> Float32s:
        """Return tables with 256 entries; for 4-bit codes, with all sums of two codes in a byte."""
        return join_tables(tables) if self._bits == 4 else tables


# --- RaBitQ: signs of a rotated residual and, with more bits, sizes ----------------------
# glaive decodes codes to one number per element when it reads a partition. Comparing a row is then
# one product with the rotated query, whatever the number of bits.
#
# Specification: "Distances" in ``docs/format/rabitq.md``.

EXTENDED: Final = "__blocked_ex_codes"
_ADD, _SCALE = "__add_factors", "__scale_factors"
_BLOCK: Final = 64
_MAX_BITS: Final = 9


class _RabitRows(NamedTuple):
    """Numbers of all elements of a partition, and two factors per row."""

    numbers: NDArray[Any]
    add: Float32s
    scale: Float32s


class _RabitQuery(NamedTuple):
    """The rotated queries, and the sums of their elements."""

    rotated: Float32s
    totals: Float32s


class RabitCodes(Codes):
    """Signs and sizes of rotated residuals.

    Raises
    ------
    UnsupportedFeatureError
        The layout of the codes is unknown.
    CorruptFileError
        The description, the rotation and the columns contradict each other.
    """

    are_residuals: ClassVar[bool] = True

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
        """Read and decode the codes of a partition."""
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
                numbers = bits.astype(np.float32) * np.float32(256) + sizes
        add, scale = (float_column(rows, name, storage).copy() for name in self._columns[-2:])
        kept = _RabitRows(np.ascontiguousarray(numbers), add, scale)
        nbytes = kept.numbers.nbytes + add.nbytes + scale.nbytes
        return row_numbers(rows, storage), kept, nbytes

    def prepare(self, queries: NDArray[Any]) -> _RabitQuery:
        """Rotate the queries."""
        with np.errstate(all="ignore"):
            rotated = np.ascontiguousarray(self._rotation.apply(queries.astype(np.float32)))
            return _RabitQuery(rotated, rotated.sum(axis=1, dtype=np.float32))

    def decoded(self, number: int, codes: _RabitRows, at: slice) -> VectorBlock:
        """See :meth:`Codes.decoded`; vectors stay rotated, which preserves distances."""
        middle = np.float32((1 << self._extra) - 0.5)
        factor = codes.scale[at] * np.float32(-1 if self._dot else -0.5)
        vectors = (codes.numbers[at].astype(np.float32) - middle) * factor[:, None]
        vectors += self._rotated_centroids[number]
        return VectorBlock(vectors.reshape(-1), self._dimension, "float32")

    @cached_property
    def _rotated_centroids(self) -> Float32s:
        return self._rotation.apply(self._centroids)

    def scanned(self, codes: _RabitRows, *, has_graph: bool = False) -> CodeRows:
        """See :meth:`Codes.scanned`."""
        return CodeRows(codes.numbers, codes.add, codes.scale)

    def code_query(self, prepared: _RabitQuery) -> CodeQuery:
        """See :meth:`Codes.code_query`."""
        middle = np.float32((1 << self._extra) - 0.5)
        comparison: Comparison = "bytes" if self._extra < 8 else "product"
        with np.errstate(all="ignore"):
            shift = (middle * prepared.totals).tolist()
            return CodeQuery(comparison, prepared.rotated, shift=shift, bits=self._extra + 1)

    def starts(self, prepared: _RabitQuery, centroid_distances: Float32s) -> Float32s:
        """See :meth:`Codes.starts`."""
        if not self._dot:
            return centroid_distances
        return 1 - 2 * self.weights(centroid_distances)

    def weights(self, centroid_distances: Float32s) -> Float32s:
        """Return the product of the query and each centroid for the dot product."""
        if not self._dot:
            return super().weights(centroid_distances)
        return 1 - centroid_distances


def _sizes(codes: UInt8s, bits: int, dimension: int) -> NDArray[Any]:
    """Decode blocked codes of ``bits`` bits to numbers of shape ``(rows, dimension)``."""
    rows, width = codes.shape  # a partition may have no rows
    blocks = codes.reshape(rows, width // (8 * bits), 8 * bits)
    made: NDArray[Any] = _DECODERS[bits](blocks)
    return made.reshape(rows, blocks.shape[1] * _BLOCK)[:, :dimension]


def _unpack_1(blocks: UInt8s) -> UInt8s:
    return np.unpackbits(blocks, axis=2, bitorder="little")


def _unpack_2(blocks: UInt8s) -> UInt8s:
    parts = [(blocks >> np.uint8(shift)) & np.uint8(3) for shift in (0, 2, 4, 6)]
    return np.concatenate(parts, axis=2)


def _unpack_4(blocks: UInt8s) -> UInt8s:
    pairs = blocks.reshape(*blocks.shape[:2], 4, 8)
    return np.stack([pairs & np.uint8(15), pairs >> np.uint8(4)], axis=3).reshape(
        *blocks.shape[:2], _BLOCK
    )


def _low_nibbles(blocks: UInt8s) -> UInt8s:
    """Return the low four bits of 5-bit codes; each nibble plane holds 16 dimensions."""
    first, second = blocks[:, :, :16], blocks[:, :, 16:32]
    parts = [
        first & np.uint8(15),
        first >> np.uint8(4),
        second & np.uint8(15),
        second >> np.uint8(4),
    ]
    return np.concatenate(parts, axis=2)


def _unpack_6(blocks: UInt8s) -> UInt8s:
    words = blocks.reshape(*blocks.shape[:2], 3, 16)
    last = sum(((words[:, :, k] >> np.uint8(6)) << np.uint8(2 * k)) for k in range(3))
    low = (words & np.uint8(63)).reshape(*blocks.shape[:2], 48)
    return np.concatenate([low, np.asarray(last, np.uint8)], axis=2)


def _with_top(low: UInt8s, plane: UInt8s, bits: int) -> UInt8s:
    """Add the top bit of each number; dimension 16k+b has bit 8(b mod 8) + 2k + b div 8."""
    top = np.unpackbits(plane, axis=2, bitorder="little")
    b = np.arange(_BLOCK) % 16
    order = 8 * (b % 8) + 2 * (np.arange(_BLOCK) // 16) + b // 8
    return low | (top[:, :, order] << np.uint8(bits - 1))


_DECODERS: Final[Mapping[int, Callable[[UInt8s], UInt8s]]] = {
    1: _unpack_1,
    2: _unpack_2,
    3: lambda blocks: _with_top(_unpack_2(blocks[:, :, :16]), blocks[:, :, 16:], 3),
    4: _unpack_4,
    5: lambda blocks: _with_top(_low_nibbles(blocks), blocks[:, :, 32:], 5),
    6: _unpack_6,
    7: lambda blocks: _with_top(_unpack_6(blocks[:, :, :48]), blocks[:, :, 48:], 7),
    8: lambda blocks: blocks,
}
"""Functions that decode the 64 numbers of each block, by bits per number."""
