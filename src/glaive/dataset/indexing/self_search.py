"""Check a vector index: every vector is nearest to itself.

Specification: "Searching" in ``docs/format/indices.md``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from glaive.arrow.chunked import one_array
from glaive.errors import OptionError, TrainingError

if TYPE_CHECKING:
    from glaive.dataset.dataset import LanceDataset

__all__ = ["validate_vector_index"]

_NEAR = 1e-6


def validate_vector_index(
    dataset: LanceDataset,
    column: str,
    refine_factor: int = 5,
    sample_size: int | None = None,
    pass_threshold: float = 1.0,
) -> None:
    """Search for vectors of a dataset, each in the partition it should be in.

    Parameters
    ----------
    dataset, column
        What is indexed.
    refine_factor
        Candidates whose distance is computed again.
    sample_size
        Vectors to search for; None for all. One search for each.
    pass_threshold
        Share of them that must be found.

    Raises
    ------
    TrainingError
        Fewer were found.
    OptionError
        The column has no vectors.
    """
    count = dataset.count_rows() if sample_size is None else sample_size
    rows = dataset.sample(count, columns=[column])
    lists: Any = one_array(rows[column]).drop_null()
    if not pa.types.is_fixed_size_list(lists.type):
        raise OptionError(f"column: expected a column of vectors, found {lists.type} {column!r}")
    flat = lists.flatten().to_numpy(zero_copy_only=False)
    vectors = flat.reshape(-1, lists.type.list_size)
    vectors = vectors[np.isfinite(vectors).all(axis=1)]
    found = 0
    for vector in vectors:
        search = {
            "column": column, "q": vector, "k": 1, "nprobes": 1, "refine_factor": refine_factor,
        }  # fmt: skip
        distances = dataset.to_table(columns=["_distance"], nearest=search)["_distance"]
        found += len(distances) > 0 and abs(distances[0].as_py()) < _NEAR
    if len(vectors) and found / len(vectors) < pass_threshold:
        raise TrainingError(
            f"Vector index failed sanity check, only {found}/{len(vectors)} passed: build the "
            f"index of column {column!r} again"
        )
