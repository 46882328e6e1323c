"""Lists as vectors: distances, products, normalisation. Computed in ``float64``."""

from __future__ import annotations

from typing import Any

import numpy as np

from glaive.errors import FilterError
from glaive.expr.coerce import is_number
from glaive.expr.functions.coercion import check_count, refuse
from glaive.expr.functions.list_parts import ListParts, lists_of
from glaive.expr.functions.list_rules import list_like, list_type
from glaive.expr.functions.registry import Call, Types, function
from glaive.expr.functions.untyped import pa, pc
from glaive.expr.rows import broadcast, count_rows

__all__: list[str] = []

is_kind = pa.types

_OVERFLOW = np.errstate(all="ignore")
"""Numbers of a file may have any size: results are infinities and NaN, without a warning."""


def _vector(call: Call, number: int) -> Any:
    kind = list_type(call, number)
    inner = kind.value_type
    if not (is_number(inner) or is_kind.is_null(inner)):
        raise refuse(call, number, "a list of numbers")
    return list_like(kind, pa.float64())


def _two_vectors(call: Call) -> Types:
    check_count(call, 2, 2)
    return (_vector(call, 0), _vector(call, 1)), pa.float64()


def _pairs(name: str, left: Any, right: Any) -> tuple[ListParts, Any, Any, Any]:
    """Values of both vectors in the same order, and which rows have both without nulls."""
    rows = count_rows((left, right))
    left, right = broadcast(left, rows), broadcast(right, rows)
    valid = pc.and_(left.is_valid(), right.is_valid()).to_numpy(zero_copy_only=False)
    missing = pa.scalar(None, left.type), pa.scalar(None, right.type)
    mask = pa.array(valid)
    left, right = pc.if_else(mask, left, missing[0]), pc.if_else(mask, right, missing[1])
    first, second = ListParts.of(left), ListParts.of(right)
    if np.any(first.sizes != second.sizes):
        row = int((first.sizes != second.sizes).argmax())
        raise FilterError(
            f"{name}: a vector of {first.sizes[row]} numbers and one of {second.sizes[row]}; "
            "both must have the same length"
        )
    nulls = pc.or_(first.values.is_null(), second.values.is_null()).to_numpy(zero_copy_only=False)
    valid &= np.bincount(first.rows[nulls], minlength=rows) == 0
    return first, _plain(first.values), _plain(second.values), valid


def _plain(values: Any) -> Any:
    return pc.fill_null(values, 0.0).to_numpy(zero_copy_only=False)


def _sums(parts: ListParts, values: Any) -> Any:
    return np.bincount(parts.rows, weights=values, minlength=len(parts.sizes)).astype(np.float64)


def _valid(values: Any, valid: Any) -> Any:
    return pa.array(values, pa.float64(), mask=~valid)


@function("array_distance", "list_distance", takes=_two_vectors)
@_OVERFLOW
def _array_distance(left: Any, right: Any) -> Any:
    parts, first, second, valid = _pairs("array_distance", left, right)
    distances = np.sqrt(_sums(parts, (first - second) ** 2))
    # The distance of empty vectors is -0.0 in the reference implementation.
    distances[parts.sizes == 0] = -0.0
    return _valid(distances, valid)


@function("inner_product", "dot_product", takes=_two_vectors)
@_OVERFLOW
def _inner_product(left: Any, right: Any) -> Any:
    parts, first, second, valid = _pairs("inner_product", left, right)
    return _valid(_sums(parts, first * second), valid)


@function("cosine_distance", takes=_two_vectors)
@_OVERFLOW
def _cosine_distance(left: Any, right: Any) -> Any:
    parts, first, second, valid = _pairs("cosine_distance", left, right)
    lengths = np.sqrt(_sums(parts, first * first)) * np.sqrt(_sums(parts, second * second))
    distances = 1.0 - _sums(parts, first * second) / lengths
    return _valid(distances, valid & (lengths != 0))


def _one_vector(call: Call) -> Types:
    check_count(call, 1, 1)
    kind = _vector(call, 0)
    return (kind,), kind


@function("array_normalize", "list_normalize", takes=_one_vector)
@_OVERFLOW
def _array_normalize(values: Any) -> Any:
    parts, first, _, valid = _pairs("array_normalize", values, values)
    lengths = np.sqrt(_sums(parts, first * first))
    valid &= (lengths != 0) | (parts.sizes == 0)
    scaled = first / lengths[parts.rows]
    scaled = scaled[valid[parts.rows]]
    offsets = np.concatenate([[0], np.cumsum(np.where(valid, parts.sizes, 0))])
    lists = lists_of(pa.array(scaled), offsets, values.type)
    return pc.if_else(pa.array(valid), lists, pa.scalar(None, values.type))
