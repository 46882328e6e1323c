"""True distances of rows that an index found, from vectors where they lie in mapped files."""

from __future__ import annotations

from dataclasses import field
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from glaive.dataclass import dataclass
from glaive.kernels._addresses import KEEPS_ADDRESSES, address
from glaive.kernels._tier import use_compiled
from glaive.kernels.distances import (
    ELEMENTS,
    METRICS,
    Element,
    Metric,
    Queries,
    VectorBlock,
    measure_pairs,
)
from glaive.kernels.native import rescoring as compiled
from glaive.kernels.vector_records import RescoreRows
from glaive.memory import as_array, as_buffer
from glaive.named_tuple import NamedTuple
from glaive.types import Float32s, Int64s, UInt64s

__all__ = ["FoundRows", "PlacedVectors", "Rescored", "exercise", "rescore_rows"]

_ELEMENT_NUMBERS: Final = {element: at for at, element in enumerate(ELEMENTS)}


@dataclass(frozen=True, eq=False)
class PlacedVectors:
    """Where the vectors of some fragments lie in memory. Checked once, here.

    Parameters
    ----------
    memory
        A file that is mapped, or several.
    starts, ends
        ``int64``: where the values of each page begin, and the number of the row behind its last.
    width
        Bytes of a vector.
    first_row, rows
        ``int64``: number of the first row of each fragment, negative where it is not among them;
        and how many it has.

    Raises
    ------
    ValueError
        They are of other types, or of different lengths.
    """

    memory: pa.Buffer
    starts: Int64s
    ends: Int64s
    width: int
    first_row: Int64s
    rows: Int64s
    _places: tuple[int, ...] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        pairs = (self.starts, self.ends), (self.first_row, self.rows)
        for numbers, others in pairs:
            plain = numbers.shape == others.shape == (len(numbers),)
            plain = plain and numbers.dtype == others.dtype == np.int64
            if not plain or not (numbers.flags.c_contiguous and others.flags.c_contiguous):
                raise ValueError(f"{len(numbers)} and {len(others)} numbers of {numbers.dtype}")
        if not len(self.ends) or not 0 < self.width <= self.memory.size:
            raise ValueError(f"vectors of {self.width} bytes in {len(self.ends)} pages")
        object.__setattr__(self, "_places", self._located() if KEEPS_ADDRESSES else ())

    @property
    def located(self) -> tuple[int, ...]:
        """Where its arrays and its memory are, for the kernel."""
        return self._places or self._located()

    def _located(self) -> tuple[int, ...]:
        arrays = self.first_row, self.rows, self.ends, self.starts
        return (*[address(numbers) for numbers in arrays], address(self.memory))


class FoundRows(NamedTuple):
    """Rows that an index found, query by query.

    Parameters
    ----------
    bounds
        ``int64``: where the rows of each query begin, and the end of the last.
    key, fragment, row
        ``uint64`` and ``int64``: row id, position of the fragment, and physical row.
    """

    bounds: Int64s
    key: UInt64s
    fragment: Int64s
    row: Int64s


class Rescored(NamedTuple):
    """The nearest rows of each query, nearest first; of equal distances the lowest key.

    ``query``: its number.
    """

    query: NDArray[np.int32]
    distance: Float32s
    key: UInt64s
    fragment: Int64s
    row: Int64s


def rescore_rows(
    vectors: PlacedVectors,
    element: Element,
    found: FoundRows,
    queries: Queries,
    metric: Metric,
    limits: Float32s,
    count: int,
    *,
    low: float = -np.inf,
) -> Rescored | None:
    """Measure rows, and keep the nearest; None where one of them has no place.

    Parameters
    ----------
    limits, low
        ``float32``: the greatest distance of rows of each query, and the least of all.
    count
        Rows wanted for each query.
    """
    _check(vectors, element, found, queries, metric, limits, count)
    total, several = len(found.key), len(limits)
    room = min(count, total)
    if not total:
        empty = np.empty(0, np.int64)
        return Rescored(
            empty.astype(np.int32), empty.astype(np.float32), empty.astype(np.uint64), empty, empty
        )
    if not use_compiled(total * queries.matrix.shape[1]):
        return _rescored(vectors, element, found, queries, metric, limits, count, low)
    dimension, line = queries.matrix.shape[1], several * room
    # Keys, places and sizes, then starts; then distances, those kept first, and a vector.
    made = np.empty(3 * line + several + total, np.uint64)
    wide = dimension if element in ("float16", "bfloat16") else 0
    far = np.empty(line + total + wide + 1, np.float32)
    far[-1] = low
    into, floats = address(made), address(far)
    norms = queries.norms if metric == "cosine" else None
    first_rows, row_counts, ends, starts, memory = vectors.located
    call = RescoreRows(
        fragments=address(found.fragment), rows=address(found.row), row_keys=address(found.key),
        bounds=address(found.bounds), query_count=several, first_rows=first_rows,
        row_counts=row_counts, fragment_count=len(vectors.rows), ends=ends, page_starts=starts,
        pages=len(vectors.ends), memory=memory, size=vectors.memory.size, width=vectors.width,
        dimension=dimension, element=_ELEMENT_NUMBERS[element], metric=METRICS.index(metric),
        queries=address(queries.matrix), query_bytes=dimension * queries.matrix.itemsize,
        norms=0 if norms is None else address(norms), limits=address(limits),
        low=floats + 4 * (len(far) - 1), capacity=room,
        widened=floats + 4 * (line + total), starts=into + 8 * (3 * line + several),
        measured=floats + 4 * line, heap=floats, keys=into, places=into + 8 * line,
        sizes=into + 24 * line,
    )  # fmt: skip
    if not compiled.rescore_rows(*call):
        return None
    places = made.view(np.int64)
    if several == 1:
        size = places.item(3 * line)
        query = np.zeros(size, np.int32)
        key, fragment, row = made[:size], places[line : line + size], places[2 * line :][:size]
        return Rescored(query, far[:size], key, fragment, row)
    sizes = places[3 * line : 3 * line + several]
    kept = (np.arange(room) < sizes[:, None]).reshape(-1)
    query = np.repeat(np.arange(several, dtype=np.int32), sizes)
    return Rescored(
        query, far[:line][kept], made[:line][kept], places[line : 2 * line][kept],
        places[2 * line : 3 * line][kept],
    )  # fmt: skip


def _rescored(
    vectors: PlacedVectors, element: Element, found: FoundRows, queries: Queries, metric: Metric,
    limits: Float32s, count: int, low: float,
) -> Rescored | None:  # fmt: skip
    """The reference implementation."""
    fragment, row, kind = found.fragment, found.row, ELEMENTS[element]
    if ((fragment < 0) | (fragment >= len(vectors.rows)) | (row < 0)).any():
        return None
    first = vectors.first_row[fragment]
    if ((row >= vectors.rows[fragment]) | (first < 0)).any():
        return None
    number, end = first + row, int(vectors.ends[-1])
    if (number < first).any() or (number >= end).any():
        return None
    page = np.searchsorted(vectors.ends, number, side="right")
    before = np.append(0, vectors.ends)[page]
    within = number - np.maximum(before, 0)
    start, last = vectors.starts[page], vectors.memory.size - vectors.width
    if ((before < 0) | (within < 0) | (start < 0) | (start > last)).any():
        return None
    if (within > (last - start) // vectors.width).any():
        return None
    octets = as_array(vectors.memory)[
        (start + within * vectors.width)[:, None] + np.arange(vectors.width)
    ]
    block = VectorBlock(octets.reshape(-1).view(kind), queries.matrix.shape[1], element)
    sizes = np.diff(found.bounds)
    query = np.repeat(np.arange(len(sizes), dtype=np.int32), sizes)
    far = measure_pairs(block, queries, metric, np.arange(len(query)), query)
    near = np.flatnonzero((far <= limits[query]) & (far >= np.float32(low)))
    order = near[np.lexsort((found.key[near], far[near], query[near]))]
    ordered = query[order]
    rank = np.arange(len(order)) - np.searchsorted(ordered, ordered)
    order = order[rank < count]
    return Rescored(query[order], far[order], found.key[order], fragment[order], row[order])


def _check(
    vectors: PlacedVectors, element: Element, found: FoundRows, queries: Queries, metric: Metric,
    limits: Float32s, count: int,
) -> None:  # fmt: skip
    matrix, total = queries.matrix, len(found.key)
    kind = ELEMENTS[element if element in ("float64", "uint8") else "float32"]
    good = matrix.ndim == 2 and matrix.dtype == kind and matrix.flags.c_contiguous
    if not good or vectors.width != matrix.shape[1] * ELEMENTS[element].itemsize:
        raise ValueError(f"vectors of {vectors.width} bytes for queries {matrix.shape}")
    if (metric == "hamming") != (element == "uint8"):
        raise ValueError(f"distance {metric} of {element}")
    for numbers, size in ((found.bounds, len(matrix) + 1), (found.fragment, total)):
        if not _is_plain(numbers, np.int64, size):
            raise ValueError(f"{numbers.dtype} of shape {numbers.shape} for {size} rows")
    if not _is_plain(found.row, np.int64, total) or not _is_plain(found.key, np.uint64, total):
        raise ValueError(f"rows {found.row.shape} of {found.row.dtype} for {total} keys")
    bounds = found.bounds
    if bounds.item(0) or bounds.item(-1) != total:
        raise ValueError(f"bounds {bounds.item(0)} to {bounds.item(-1)} of {total} rows")
    if len(bounds) > 2 and (bounds[1:] < bounds[:-1]).any():
        raise ValueError(f"{len(bounds)} bounds that descend")
    if not _is_plain(limits, np.float32, len(matrix)) or count < 1:
        raise ValueError(f"{count} rows, {len(limits)} limits of {limits.dtype}")


def _is_plain(numbers: NDArray[Any], kind: Any, count: int) -> bool:
    return numbers.shape == (count,) and numbers.dtype == kind and bool(numbers.flags.c_contiguous)


def exercise() -> None:
    """Call every wrapper once with little data."""
    number = np.zeros(1, np.int64)
    values = np.ones(2, np.float32)
    placed = PlacedVectors(as_buffer(values), number, number + 1, 8, number, number + 1)
    found = FoundRows(np.array([0, 1]), number.astype(np.uint64), number, number)
    limits = np.ones(1, np.float32)
    rescore_rows(placed, "float32", found, Queries(values[None]), "l2", limits, 1)
