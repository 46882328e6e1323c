"""The vectors of a column: which types can be indexed, and arrays of them without nulls.

Specification: "Files" in ``docs/format/vector-indices.md``.
"""

from __future__ import annotations

from collections.abc import Iterator
from io import BytesIO
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from glaive.arrow.blocks import NUMPY_TYPES
from glaive.dataclass import dataclass
from glaive.errors import OptionError
from glaive.index.protocol import IndexSource
from glaive.index.row_set import RowNumbers
from glaive.io.uri import open_store
from glaive.kernels.distances import LEAST_LENGTH, METRICS, MOST_LENGTH, Metric
from glaive.named_tuple import NamedTuple
from glaive.types import Float32s

# --- Distances that vector indices are built for: their names, and vectors as they compare them
# Specification: "Files" in ``docs/format/vector-indices.md``.

_OTHER_NAMES = {"euclidean": "l2"}


def metric_named(name: object) -> Metric:
    """The distance of this name, in any case; ``euclidean`` is ``l2``.

    Raises
    ------
    OptionError
        There is none.
    """
    text = name.lower() if isinstance(name, str) else ""
    text = _OTHER_NAMES.get(text, text)
    if text not in METRICS:
        raise OptionError(
            f"Metric {name} not supported. metric: expected one of {', '.join(METRICS)}, found "
            f"{name!r}"
        )
    return text


def normalized(vectors: NDArray[np.floating]) -> NDArray[np.floating]:
    """Vectors of length one, in their own type; NaN for those without a direction.

    Parameters
    ----------
    vectors
        Of shape ``(n, dimension)``.
    """
    wide = vectors if vectors.dtype == np.float64 else vectors.astype(np.float32, copy=False)
    with np.errstate(all="ignore"):
        lengths = np.sqrt(np.einsum("ij,ij->i", wide, wide))
        unit: NDArray[np.floating] = wide / lengths[:, None]
        odd = np.flatnonzero(~((lengths > LEAST_LENGTH) & (lengths < MOST_LENGTH)))
        if len(odd):  # their squares may be 0, inexact or infinite
            rows = wide[odd] / np.abs(wide[odd]).max(axis=1, keepdims=True)
            unit[odd] = rows / np.sqrt(np.einsum("ij,ij->i", rows, rows))[:, None]
        return unit.astype(vectors.dtype, copy=False)


# --- Matrices of numbers that users pass: as arrays of NumPy, Arrow or torch, or in a file
# Specification: "Training" in ``docs/format/vector-indices.md``.


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


_BLOCK_BYTES = 8 << 20
_MIN_BLOCK_ROWS = 1024


class VectorBlock(NamedTuple):
    """Vectors of some rows.

    Parameters
    ----------
    stored
        ``(n, dimension)``, in the type of the column; of length one for the cosine distance.
    vectors
        The same as ``float32``; for the hamming distance one number, 0 or 1, for each bit.
    rows
        Number of the row of each vector; repeated where rows have several vectors.
    """

    stored: NDArray[Any]
    vectors: Float32s
    rows: RowNumbers


@dataclass(frozen=True, slots=True)
class VectorColumn:
    """A column of vectors that is indexed for a metric.

    Parameters
    ----------
    name
        Of the column.
    dimension
        Numbers in a vector.
    kind
        Arrow type of a number: ``halffloat``, ``float``, ``double`` or ``uint8``.
    metric
        The distance.
    several
        Whether a row has a list of vectors.
    """

    name: str
    dimension: int
    kind: pa.DataType
    metric: Metric
    several: bool

    @classmethod
    def of(cls, field: pa.Field[Any], metric: Metric) -> VectorColumn:
        """Look at the type of a column.

        Raises
        ------
        OptionError
            It does not hold vectors, or not those that the metric compares.
        """
        kind: Any = field.type
        several = pa.types.is_list(kind) or pa.types.is_large_list(kind)
        if several:
            kind = kind.value_type
        if not pa.types.is_fixed_size_list(kind) or kind.list_size < 1:
            raise OptionError(
                f"Vector column {field.name} must be FixedSizeListArray or a list of these, got "
                f"{field.type}: column {field.name!r} is of type {field.type}: vector indices need "
                "fixed-size lists of numbers, or lists of these"
            )
        number, dimension = kind.value_type, int(kind.list_size)
        if metric == "hamming":
            if number != pa.uint8():
                raise OptionError(
                    f"metric: hamming compares uint8, column {field.name!r} has {number}"
                )
        elif not pa.types.is_floating(number):
            raise OptionError(
                f"metric: {metric} compares floats, column {field.name!r} has {number}"
            )
        if several and metric != "cosine":
            raise OptionError(
                f"metric: column {field.name!r} has several vectors in a row, which only cosine"
                f" compares, found {metric!r}"
            )
        return cls(field.name, dimension, number, metric, several)

    @property
    def dtype(self) -> np.dtype[Any]:
        """NumPy type of a number."""
        return NUMPY_TYPES[self.kind]

    @property
    def trained_dimension(self) -> int:
        """Numbers in a vector that models are trained on: bits for the hamming distance."""
        return self.dimension * 8 if self.metric == "hamming" else self.dimension

    def blocks(self, source: IndexSource) -> Iterator[VectorBlock]:
        """All vectors of a source, in bounded blocks."""
        size = self.dimension * (8 if self.metric == "hamming" else 4)
        limit = max(_MIN_BLOCK_ROWS, _BLOCK_BYTES // max(1, size))
        for values, rows in source.batches():
            for start in range(0, len(values), limit):
                yield self.block(values.slice(start, limit), rows[start : start + limit])

    def block(self, values: pa.Array[Any], rows: RowNumbers) -> VectorBlock:
        """Vectors of an array: those that are not null and finite."""
        stored, owners = self._numbers(values)
        rows = rows[owners]
        if self.metric == "hamming":
            bits = np.unpackbits(stored, axis=1, bitorder="little")
            return VectorBlock(stored, bits.astype(np.float32), rows)
        if self.metric == "cosine":
            stored = normalized(stored)
        # A sum is finite if all numbers are, or overflows; then they are looked at one by one.
        with np.errstate(over="ignore", invalid="ignore"):
            vectors = stored.astype(np.float32, copy=False)
            finite = np.isfinite(vectors.sum(axis=1, dtype=np.float64))
        if not finite.all():
            finite |= np.isfinite(vectors).all(axis=1)
            stored, vectors, rows = stored[finite], vectors[finite], rows[finite]
        return VectorBlock(stored, vectors, rows)

    def _numbers(self, values: pa.Array[Any]) -> tuple[NDArray[Any], NDArray[np.int64]]:
        """Vectors of an array without nulls, and the position of each in the array."""
        lists: Any = values
        owners = np.arange(len(values), dtype=np.int64)
        if self.several:
            lengths = lists.value_lengths().fill_null(0).to_numpy(zero_copy_only=False)
            owners = np.repeat(owners, lengths)
            lists = lists.flatten()
        elif lists.null_count:
            owners = owners[lists.is_valid().to_numpy(zero_copy_only=False)]
            lists = lists.drop_null()
        if self.several and lists.null_count:
            owners = owners[lists.is_valid().to_numpy(zero_copy_only=False)]
            lists = lists.drop_null()
        numbers = lists.flatten()
        if numbers.null_count:
            absent = numbers.is_null().to_numpy(zero_copy_only=False).reshape(-1, self.dimension)
            complete = ~absent.any(axis=1)
            flat = numbers.fill_null(0).to_numpy(zero_copy_only=False)
            return flat.reshape(-1, self.dimension)[complete], owners[complete]
        flat = numbers.to_numpy(zero_copy_only=False)
        return flat.astype(self.dtype, copy=False).reshape(-1, self.dimension), owners
