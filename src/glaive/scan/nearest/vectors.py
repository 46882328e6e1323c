"""Columns of vectors: their type, queries for them, and their values as NumPy arrays.

A row has one vector (a fixed-size list), or several (a list of fixed-size lists). Values are
views of Arrow's memory, which for mapped pages is the file.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from glaive.arrow.buffers import flags_of
from glaive.dataclass import dataclass
from glaive.errors import OptionError
from glaive.format.logical_types import BFLOAT16, EXTENSION_NAME
from glaive.kernels.distances import ELEMENTS, Element, Metric, Queries, VectorBlock
from glaive.memory import items_of
from glaive.named_tuple import NamedTuple
from glaive.types import Flags, Int64s

__all__ = ["RowVectors", "VectorType", "row_vectors", "vector_type"]

_ELEMENTS: Final[dict[pa.DataType, Element]] = {
    pa.float16(): "float16",
    pa.float32(): "float32",
    pa.float64(): "float64",
    pa.uint8(): "uint8",
}


@dataclass(frozen=True, slots=True)
class VectorType:
    """The type of a column of vectors.

    Parameters
    ----------
    element
        Type of the elements.
    dimension
        Elements of a vector.
    several
        A row has a list of vectors.
    """

    element: Element
    dimension: int
    several: bool = False

    @property
    def default_metric(self) -> Metric:
        """The distance where none is given."""
        return "hamming" if self.element == "uint8" else "l2"

    def check_metric(self, metric: Metric, column: str) -> None:
        """Raise an ``OptionError`` if vectors of this type have no such distance."""
        if self.several and self.element == "uint8":
            raise OptionError(
                f"nearest: metric: column {column!r} has several vectors of uint8 in a row, which "
                "have no distance"
            )
        if (metric == "hamming") != (self.element == "uint8"):
            possible = "hamming" if self.element == "uint8" else "l2, cosine or dot"
            raise OptionError(
                f"nearest: metric: column {column!r} has vectors of {self.element}, whose distance "
                f"is {possible}, not {metric}"
            )

    def queries(self, given: NDArray[Any], column: str) -> Queries:
        """Query vectors of this type.

        Raises
        ------
        OptionError
            They have another dimension.
        """
        if given.shape[-1] != self.dimension:
            raise OptionError(
                f"Query vector size {given.shape[-1]} does not match index column size "
                f"{self.dimension}: nearest: q: column {column!r} has vectors of {self.dimension} "
                f"numbers, the query has {given.shape[-1]}"
            )
        matrix = given if given.ndim == 2 else given[None]
        if self.element == "uint8" and matrix.dtype != np.uint8:
            matrix = np.clip(np.nan_to_num(matrix), 0, 255)
        elif self.element == "float16":  # rounded to what vectors are, as pylance does
            matrix = matrix.astype(np.float16)
        return Queries.of(matrix, self.element)


def vector_type(field: pa.Field[Any], column: str) -> VectorType:
    """The type of the vectors of a field, as it is stored.

    Raises
    ------
    OptionError
        It has no vectors, or vectors that have no distance.
    """
    kind: Any = _storage(field.type)
    several = pa.types.is_list(kind) or pa.types.is_large_list(kind)
    inner = _storage(kind.value_type) if several else kind
    if not pa.types.is_fixed_size_list(inner):
        raise OptionError(
            f"Query column {column} must be a vector. Got {field.type}: nearest: expected a "
            "fixed-size list of numbers, or a list of such lists"
        )
    element = _ELEMENTS.get(inner.value_type) or _brain_float(inner.value_field)
    if element is None:
        names = ", ".join(ELEMENTS)
        raise OptionError(
            f"nearest: column {column!r} has vectors of {inner.value_type}, which have no "
            f"distance; those of {names} have"
        )
    if inner.list_size == 0:
        raise OptionError(f"nearest: column {column!r} has vectors without elements")
    return VectorType(element, inner.list_size, several)


def _storage(kind: Any) -> Any:
    return kind.storage_type if isinstance(kind, pa.BaseExtensionType) else kind


def _brain_float(field: pa.Field[Any]) -> Element | None:
    named = (field.metadata or {}).get(EXTENSION_NAME.encode()) == BFLOAT16.encode()
    return "bfloat16" if named and field.type == pa.binary(2) else None


class RowVectors(NamedTuple):
    """The vectors of some rows.

    Parameters
    ----------
    block
        All vectors.
    valid
        Which rows have a vector; None: all.
    bounds
        Where the vectors of each row begin, and the end of the last; None: one for each row.
    """

    block: VectorBlock
    valid: Flags | None
    bounds: Int64s | None


def row_vectors(array: Any, kind: VectorType) -> RowVectors:
    """The vectors of an array, which is of a type that :func:`vector_type` accepted."""
    array = array.storage if isinstance(array, pa.ExtensionArray) else array
    rows = len(array)
    valid = flags_of(array.buffers()[0], rows, array.offset) if array.null_count else None
    if not kind.several:
        vectors, inner_valid = _block(array, kind)
        return RowVectors(vectors, _both(valid, inner_valid), None)
    width = 8 if pa.types.is_large_list(array.type) else 4
    bounds = items_of(array.buffers()[1], f"<i{width}", rows + 1, array.offset * width)
    bounds = bounds.astype(np.int64)
    inner = array.values.slice(int(bounds[0]), int(bounds[-1] - bounds[0]))
    inner = inner.storage if isinstance(inner, pa.ExtensionArray) else inner
    vectors, inner_valid = _block(inner, kind)
    if inner.null_count or inner_valid is not None:
        flags = flags_of(inner.buffers()[0], len(inner), inner.offset) if inner.null_count else None
        return _without(vectors, valid, bounds - bounds[0], _both(flags, inner_valid))
    return RowVectors(vectors, valid, bounds - bounds[0])


def _block(lists: Any, kind: VectorType) -> tuple[VectorBlock, Flags | None]:
    """The vectors of fixed-size lists, and which have no null among their elements."""
    dtype, size = ELEMENTS[kind.element], kind.dimension
    items = lists.values.slice(lists.offset * size, len(lists) * size)
    items = items.storage if isinstance(items, pa.ExtensionArray) else items
    values = items_of(items.buffers()[1], dtype, len(items), items.offset * dtype.itemsize)
    valid: Flags | None = None
    if items.null_count:
        flags = flags_of(items.buffers()[0], len(items), items.offset)
        valid = np.all(flags.reshape(-1, size), axis=1)
    return VectorBlock(values, size, kind.element), valid


def _both(first: Flags | None, second: Flags | None) -> Flags | None:
    if first is None or second is None:
        return second if first is None else first
    both: Flags = first & second
    return both


def _without(
    vectors: VectorBlock, valid: Flags | None, bounds: Int64s, kept: Flags | None
) -> RowVectors:
    """The vectors of rows without those that are null."""
    if kept is None:
        return RowVectors(vectors, valid, bounds)
    values = vectors.matrix[kept].reshape(-1)
    before = np.concatenate(([0], np.cumsum(kept)))
    return RowVectors(replace(vectors, values=values), valid, before[bounds])
