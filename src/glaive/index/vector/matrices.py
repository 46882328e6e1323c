"""Matrices of numbers that users pass: as arrays of NumPy, Arrow or torch, or in a file.

Specification: "Training" in ``docs/format/vector-indices.md``.
"""

from __future__ import annotations

from io import BytesIO
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from glaive.errors import OptionError
from glaive.io.uri import open_store

__all__ = ["check_finite", "load_matrix", "matrix_of"]


def matrix_of(numbers: Any, name: str) -> NDArray[Any]:
    """Numbers of an array of NumPy, Arrow or torch.

    Raises
    ------
    OptionError
        They are not floats or bytes, or some are null.
    """
    if isinstance(numbers, pa.ChunkedArray):
        numbers = numbers.combine_chunks()
    if isinstance(numbers, pa.ExtensionArray):
        numbers = numbers.storage
    if isinstance(numbers, pa.FixedSizeListArray):
        if numbers.null_count or numbers.flatten().null_count:
            raise OptionError(f"{name}: has nulls")
        size = numbers.type.list_size
        return numbers.flatten().to_numpy(zero_copy_only=False).reshape(-1, size)
    if hasattr(numbers, "detach"):
        numbers = numbers.detach().cpu().numpy()
    array = np.asarray(numbers)
    if array.dtype.kind not in "fu" or (array.dtype.kind == "u" and array.dtype != np.uint8):
        raise OptionError(f"{name}: expected floats, found {array.dtype}")
    return array


def load_matrix(uri: object, name: str) -> NDArray[Any]:
    """The array in a file of NumPy, ``.npy``.

    Raises
    ------
    OptionError
        It holds something else.
    ObjectNotFoundError, StoreError
        There is no such file.
    """
    from tokenize import TokenError  # of a header, which NumPy reads as Python's literals

    folder, _, file = str(uri).rpartition("/")
    data = open_store(folder or ".").get(file).to_pybytes()
    if data[:2] == b"PK":
        raise OptionError(f"{name}: {uri} holds several arrays, expected one (.npy)")
    wrong = (ValueError, TypeError, OverflowError, SyntaxError, TokenError, RecursionError)
    try:
        array: Any = np.load(BytesIO(data), allow_pickle=False)
    except (*wrong, OSError, EOFError, MemoryError) as error:
        raise OptionError(f"{name}: {uri} is not an array of NumPy: {error}") from error
    numbers: NDArray[Any] = array
    return numbers


def check_finite(matrix: NDArray[Any], name: str) -> None:
    """Raise an ``OptionError`` for numbers that are not finite."""
    if matrix.dtype.kind == "f" and not np.isfinite(matrix).all():
        raise OptionError(f"{name}: expected finite numbers, found NaN or infinity")
