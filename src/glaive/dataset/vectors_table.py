"""Tables with a column of vectors, out of what Python programs hold vectors in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from glaive.errors import OptionError, UnsupportedFeatureError


def vec_to_table(
    data: Mapping[Any, Any] | Sequence[Any] | np.ndarray[Any, Any],
    names: str | Sequence[str] | None = None,
    ndim: int | None = None,
    check_ndim: bool = True,  # pylance's own takes it by position
) -> pa.Table:
    """Make a table of vectors, as fixed-size lists of ``float``.

    Parameters
    ----------
    data
        Vectors, or a mapping from ids to vectors.
    names
        Of the column, by default ``vector``; of a mapping the names of two, ``id`` and
        ``vector``.
    ndim
        Numbers in a vector; default: those of the first one.
    check_ndim
        Whether to look at the length of each vector; else only their sum has to fit.

    Raises
    ------
    OptionError
        Vectors are of several lengths, there is none, or there are other names than columns.
    UnsupportedFeatureError
        The data is of another type.
    """
    keys = list(data) if isinstance(data, Mapping) else None
    vectors = list(data.values()) if isinstance(data, Mapping) else data
    if not isinstance(vectors, list | tuple | np.ndarray):
        raise UnsupportedFeatureError(
            f"data must be dict, list, or ndarray, got {type(data)} instead"
        )
    default = ["vector"] if keys is None else ["id", "vector"]
    columns = default if names is None else [names] if isinstance(names, str) else list(names)
    if len(columns) != len(default):
        raise OptionError(f"names: expected {len(default)}, found {columns!r}")
    if not len(vectors):
        raise OptionError("data: expected at least one vector")
    size = len(vectors[0]) if ndim is None else ndim
    if check_ndim:
        wrong = next((vector for vector in vectors if len(vector) != size), None)
        if wrong is not None:
            raise OptionError(
                f"data: Expected {size} dimensions but got {len(wrong)} for {wrong!r:.60}"
            )
    numbers = np.concatenate([np.asarray(vector, np.float32).reshape(-1) for vector in vectors])
    if size < 1 or len(numbers) != size * len(vectors):
        raise OptionError(f"ndim: {len(numbers)} numbers are not {len(vectors)} vectors of {size}")
    column: Any = pa.FixedSizeListArray.from_arrays(pa.array(numbers), size)
    arrays = [column] if keys is None else [pa.array(keys), column]
    return pa.Table.from_arrays(arrays, names=columns)
