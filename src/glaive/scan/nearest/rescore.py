"""True distances of rows that an index found."""

from __future__ import annotations

from typing import Any

import numpy as np

from glaive.arrow.chunked import join_large
from glaive.kernels.distances import measure_pairs
from glaive.scan.metrics import Meter
from glaive.scan.nearest.top import Found, TopRows
from glaive.scan.nearest.vector_query import VectorQuery
from glaive.scan.nearest.vectors import row_vectors
from glaive.scan.take import take_physical
from glaive.scan.views import BoundProjection

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
    table = take_physical(source, found.fragment, found.row, meter=meter)
    meter.count("vectors_compared", found.size)
    array: Any = join_large(table.column(0).chunks)
    vectors = row_vectors(array, query.kind)
    if query.answers == 1:
        distances = query.distances(vectors, 0)
    else:
        rows = np.arange(found.size)
        distances = measure_pairs(vectors.block, query.queries, query.metric, rows, found.query)
        if vectors.valid is not None:
            distances[~vectors.valid] = np.nan
        distances = query.in_range(distances)
    if finite and not query.kind.several:
        distances[~np.isfinite(distances)] = np.nan
    near = distances <= top.limits[found.query]
    rescored = found._replace(distance=distances)
    top.add(rescored if near.all() else rescored.take(near))
