"""True distances of rows that an index found."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from glaive.arrow.buffers import distinct
from glaive.arrow.chunked import join_large
from glaive.kernels.distances import ELEMENTS, measure_pairs
from glaive.kernels.rescoring import FoundRows, PlacedVectors, rescore_rows
from glaive.scan.metrics import Meter
from glaive.scan.nearest.top import Found, TopRows
from glaive.scan.nearest.vector_query import VectorQuery
from glaive.scan.nearest.vectors import row_vectors
from glaive.scan.take import take_physical
from glaive.scan.views import BoundProjection
from glaive.types import Float32s, Int64s

__all__ = ["rescore"]

_GREATEST: Final = float(np.finfo(np.float32).max)


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
    found
        Query by query.
    finite
        Leave out rows whose distance is not finite: no index has their vectors.
    """
    if not found.size:
        return
    meter.count("vectors_compared", found.size)
    placed = None if query.kind.several else _in_place(source, found.fragment, found.row)
    if placed is not None:
        near = _nearest_in_place(placed, query, found, top, finite=finite)
        if near is not None:
            top.add(near, in_order=query.answers == 1)
            return
    distances = _measured(source, query, found, meter)
    if finite and not query.kind.several:
        distances[~np.isfinite(distances)] = np.nan
    near_enough = distances <= top.limits[found.query]
    rescored = found._replace(distance=distances)
    top.add(rescored if near_enough.all() else rescored.take(near_enough))


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


def _in_place(source: BoundProjection, fragment: Int64s, row: Int64s) -> PlacedVectors | None:
    """Where vectors lie plain in mapped files, so that they are measured without a copy.

    None where that is not so, or takes have not joined the fragments yet. One alone is joined here.
    """
    joined = source.joined_before()
    if joined is not None and joined.is_trusted(fragment):
        return joined.places
    positions = distinct(fragment)
    if joined is None and len(positions) == 1:
        joined = source.joined(positions.tolist())
    if joined is None or joined.places is None or not joined.holds(positions):
        return None
    numbers = joined.numbers(fragment, row)
    if numbers is None or not joined.prepare(positions, numbers):
        return None
    return joined.places


def _nearest_in_place(
    placed: PlacedVectors, query: VectorQuery, found: Found, top: TopRows, *, finite: bool
) -> Found | None:
    """The nearest rows by true distances; None: something is amiss, and a take says what."""
    element, queries = query.kind.element, query.queries
    if placed.width != query.kind.dimension * ELEMENTS[element].itemsize:
        return None  # nulls among the numbers lie before them
    limits, low = top.limits, -np.inf if query.low is None else query.low
    if finite:
        limits = np.minimum(limits, _GREATEST)
        low = max(low, -_GREATEST)
    several = len(limits)
    if several == 1:
        bounds = np.array([0, found.size])
    else:
        bounds = np.searchsorted(found.query, np.arange(several + 1))
    rows = FoundRows(bounds, found.key, found.fragment, found.row)
    near = rescore_rows(placed, element, rows, queries, query.metric, limits, top.count, low=low)
    return None if near is None else Found(*near)
