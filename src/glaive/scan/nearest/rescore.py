"""True distances of rows that an index found."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from glaive.arrow.buffers import distinct
from glaive.arrow.chunked import join_large
from glaive.encodings.pages.full_zip import FullZipPage
from glaive.encodings.plain_run import PlainRun
from glaive.encodings.protocol import PageReader
from glaive.kernels.distances import ELEMENTS, measure_pairs, measure_places
from glaive.scan.metrics import Meter
from glaive.scan.nearest.top import Found, TopRows
from glaive.scan.nearest.vector_query import VectorQuery
from glaive.scan.nearest.vectors import row_vectors
from glaive.scan.take import take_physical
from glaive.scan.views import BoundProjection
from glaive.types import Float32s, Int64s

__all__ = ["rescore"]


def rescore(
    source: BoundProjection,
    query: VectorQuery,
    found: Found,
    top: TopRows,
    meter: Meter,
    *,
    finite: bool = False,
) -> None:
    """Add rows with their true distances, which takes reading their vectors.

    Parameters
    ----------
    source
        The column with the vectors, alone.
    finite
        Leave out rows whose distance is not finite: no index has their vectors.
    """
    if not found.size:
        return
    meter.count("vectors_compared", found.size)
    distances = _measured_in_place(source, query, found)
    if distances is None:
        distances = _measured(source, query, found, meter)
    if finite and not query.kind.several:
        distances[~np.isfinite(distances)] = np.nan
    near = distances <= top.limits[found.query]
    rescored = found._replace(distance=distances)
    top.add(rescored if near.all() else rescored.take(near))


def _measured(source: BoundProjection, query: VectorQuery, found: Found, meter: Meter) -> Float32s:
    """True distances of rows, whose vectors are taken."""
    table = take_physical(source, found.fragment, found.row, meter=meter)
    array: Any = join_large(table.column(0).chunks)
    vectors = row_vectors(array, query.kind)
    if query.answers == 1:
        return query.distances(vectors, 0)
    rows = np.arange(found.size)
    distances = measure_pairs(vectors.block, query.queries, query.metric, rows, found.query)
    if vectors.valid is not None:
        distances[~vectors.valid] = np.nan
    return query.in_range(distances)


def _measured_in_place(
    source: BoundProjection, query: VectorQuery, found: Found
) -> Float32s | None:
    """True distances of rows whose vectors lie plain in mapped files, without a copy of these.

    None where that is not so, or takes have not joined the fragments yet. One alone is joined here.
    """
    if query.kind.several:
        return None
    positions = distinct(found.fragment)
    joined = source.joined_before()
    if joined is None and len(positions) == 1:
        joined = source.joined(positions.tolist())
    if joined is None or len(joined.columns) != 1 or not joined.holds(positions):
        return None
    column = joined.columns[0]
    parts = [] if column is None else column.physical_pages()
    pages = parts[0][1] if len(parts) == 1 else ()
    numbers = joined.numbers(found.fragment, found.row) if len(pages) == 1 else None
    places = None if numbers is None else _places(pages[0], numbers)
    if numbers is None or places is None or not joined.prepare(positions, numbers):
        return None
    memory, starts, size = places
    if size != query.kind.dimension * ELEMENTS[query.kind.element].itemsize:
        return None  # nulls among the numbers lie before them
    distances = measure_places(
        memory, starts, query.kind.element, query.queries, query.metric, found.query
    )
    return query.in_range(distances)


def _places(page: PageReader, rows: Int64s) -> tuple[pa.Buffer, Int64s, int] | None:
    """Memory of plain values, where those of some rows begin in it, and the bytes of each."""
    if isinstance(page, PlainRun):
        return page.places(rows)
    if isinstance(page, FullZipPage) and page.page.at_hand and page.page_signature() is not None:
        return page.page.at_hand[0], page.entry.width * rows, page.entry.width
    return None
