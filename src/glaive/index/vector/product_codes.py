"""Product codes: for each part of a vector the number of the nearest entry of a codebook.

The distance from a query is a sum over the parts, each looked up in a table. Codes of residuals
would need tables for each partition; but ``|q - c - r|² = |q - c|² - 2 q·r + (2 c·r + |r|²)``,
where only ``q·r`` depends on query and row both, and the last term is kept with the row. So that
no large numbers cancel, ``q`` and ``c`` are measured from the mean of all centroids.

Specification: "Codes" in ``docs/format/vector-indices.md``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from glaive.errors import CorruptFileError
from glaive.index.row_set import RowNumbers
from glaive.index.vector.codes import Codes, list_values, row_numbers
from glaive.index.vector.layouts import row_major
from glaive.index.vector.storage import ADDRESSES, PRODUCT, Storage
from glaive.index.vector.vectors import read_codebook
from glaive.kernels.code_scan import CodeQuery, CodeRows, code_blocks
from glaive.kernels.codes import part_products, sum_tables
from glaive.kernels.distances import Metric, VectorBlock
from glaive.kernels.graph_search import NodeCodes
from glaive.named_tuple import NamedTuple
from glaive.types import Float32s, UInt8s

__all__ = ["ProductCodes", "ProductRows", "product_codes"]


_HALF: Final = 16
"""Entries of codebooks for codes of half a byte."""

PartitionRows: TypeAlias = Callable[[int, slice], tuple[RowNumbers, UInt8s]]


def product_codes(storage: Storage, metric: Metric, centroids: Float32s) -> ProductCodes:
    """The codes of an auxiliary file.

    Raises
    ------
    CorruptFileError
        The codebook is damaged, or of another dimension.
    """

    def read(_number: int, at: slice) -> tuple[RowNumbers, UInt8s]:
        rows = storage.file.read([ADDRESSES, PRODUCT], at.start, at.stop)
        codes = list_values(rows, PRODUCT, np.uint8, storage)
        if storage.details.get("transposed"):
            codes = row_major(codes)
        return row_numbers(rows, storage), codes

    return ProductCodes(read, metric, centroids, read_codebook(storage), storage.file.path)


class ProductRows(NamedTuple):
    """Codes of a partition row by row, and the term of each row that no query changes."""

    codes: UInt8s
    terms: Float32s


class ProductCodes(Codes):
    """Codes of residuals or, for the dot product, of the vectors.

    Parameters
    ----------
    rows
        Reads the rows of a partition: their numbers, and codes row by row.
    metric
        Kind of distance.
    centroids
        Of all partitions.
    book
        ``float32`` of shape ``(parts, entries, width)``.
    where
        Path, for errors.

    Raises
    ------
    CorruptFileError
        The codebook is damaged, or of another dimension.
    """

    def __init__(
        self,
        rows: PartitionRows,
        metric: Metric,
        centroids: Float32s,
        book: Float32s,
        where: str,
    ) -> None:
        self._rows = rows
        self._dot = metric == "dot"
        parts, _, width = book.shape
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
        """Read the codes of a partition, and work out the terms of its rows."""
        numbers, codes = self._rows(number, at)
        kept = self.rows_of(codes, number)
        return numbers, kept, codes.nbytes + kept.terms.nbytes

    def rows_of(self, codes: UInt8s, number: int) -> ProductRows:
        """Codes of a partition, row by row, with their terms."""
        codes = np.ascontiguousarray(codes)
        terms = np.zeros(len(codes), np.float32)
        if not self._dot:
            with np.errstate(all="ignore"):
                products = part_products(self._entries, self._centroids[number], 2)
                tables = products + self._squares
                terms = sum_tables(codes, self._by_byte(tables), terms)
        return ProductRows(codes, terms)

    def prepare(self, query: NDArray[Any]) -> Float32s:
        """Tables of what each entry of the codebook adds to the distance."""
        if self._dot:
            return self._by_byte(part_products(self._entries, query, -1))
        return self._by_byte(part_products(self._entries, query, -2, self._center))

    def distances(
        self, prepared: Float32s, number: int, codes: ProductRows, centroid_distance: float
    ) -> Float32s:
        """Distances of what the codes stand for."""
        start = np.float32(1 if self._dot else centroid_distance)
        with np.errstate(all="ignore"):
            return sum_tables(codes.codes, prepared, codes.terms + start)

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

    def nodes(self, prepared: Float32s, codes: ProductRows) -> NodeCodes | None:
        """By tables."""
        return NodeCodes("tables", codes.codes, prepared, codes.terms)

    def scanned(self, codes: ProductRows, *, has_graph: bool = False) -> CodeRows:
        """See :meth:`Codes.scanned`."""
        blocks = None if has_graph else code_blocks(codes.codes)
        return CodeRows(codes.codes, codes.terms, blocks=blocks)

    def code_query(self, prepared: Float32s) -> CodeQuery:
        """See :meth:`Codes.code_query`."""
        return CodeQuery("tables", prepared)

    def start(self, prepared: Float32s, centroid_distance: float) -> tuple[float, float]:
        """See :meth:`Codes.start`."""
        return (1.0 if self._dot else centroid_distance), 1.0

    def _by_byte(self, tables: Float32s) -> Float32s:
        """Tables with 256 entries: for two codes of 4 bits in a byte, all sums of two."""
        if tables.shape[1] == _HALF:
            low, high = tables[::2], tables[1::2]
            with np.errstate(all="ignore"):
                tables = (high[:, :, None] + low[:, None, :]).reshape(len(low), 256)
        return np.ascontiguousarray(tables, np.float32)
