"""Evaluate bound trees on batches, with three-valued logic."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

from glaive.arrow import compute as pc
from glaive.arrow.capacity import too_large
from glaive.arrow.chunked import without_views
from glaive.arrow.dictionaries import concat_arrays, decode_dictionary
from glaive.arrow.extensions import to_type
from glaive.errors import CapacityError, FilterError
from glaive.expr import tree
from glaive.expr.arithmetic import combine, negative
from glaive.expr.blocks import compare_numbers, compute_numbers
from glaive.expr.casts import cast
from glaive.expr.coerce import plain
from glaive.expr.compare import among, compare, distinct, list_spans
from glaive.expr.constant_list import ConstantList
from glaive.expr.functions import registry
from glaive.expr.patterns import like
from glaive.expr.rows import broadcast, repeat
from glaive.expr.sizes import bytes_of, check_bytes, check_held, scalar_bytes, varies
from glaive.expr.tree import Node
from glaive.format.column_path import split_path

__all__ = ["evaluate", "values"]


def values(node: Node, batch: pa.RecordBatch) -> Any:
    """The values of a bound expression, one for each row of the batch.

    Parameters
    ----------
    batch
        Its columns are named by the paths of the tree's columns.

    Raises
    ------
    FilterError
        A value cannot be computed: a division by zero, an invalid cast.
    CapacityError
        The values, or intermediate ones, do not fit one array.
    """
    return broadcast(evaluate(node, batch), batch.num_rows)


def evaluate(node: Node, batch: pa.RecordBatch) -> Any:
    """Like :func:`values`; a ``pa.Scalar`` where all rows have one value."""
    try:
        return _EVALUATORS[type(node)](node, batch)
    except _REFUSALS as error:
        raise _failure(type(node).__name__, error) from None


def _column(node: tree.Column, batch: pa.RecordBatch) -> Any:
    index = batch.schema.get_field_index(node.path)
    array: Any = batch.column(index) if index >= 0 else _inside(node, batch)
    if isinstance(array.type, pa.BaseExtensionType):
        array = to_type(array, node.type, node.path)
    return _without_dictionary(array)


def _without_dictionary(array: Any) -> Any:
    return decode_dictionary(array) if pa.types.is_dictionary(array.type) else array


def _member(node: tree.Member, batch: pa.RecordBatch) -> Any:
    return _without_dictionary(pc.struct_field(values(node.operand, batch), node.name))


def _inside(node: tree.Column, batch: pa.RecordBatch) -> Any:
    """A struct member, from the column that contains it."""
    names = split_path(node.path)
    for cut in range(len(names) - 1, 0, -1):
        index = batch.schema.get_field_index(".".join(names[:cut]))
        if index >= 0:
            array: Any = batch.column(index)
            for name in names[cut:]:
                array = pc.struct_field(array, [name])
            return array
    raise FilterError(f"the batch has no column {node.path!r}, only {batch.schema.names}")


def _sides(node: tree.Compare | tree.Arithmetic, batch: pa.RecordBatch) -> tuple[Any, Any]:
    return evaluate(node.left, batch), evaluate(node.right, batch)


def _compare(node: tree.Compare, batch: pa.RecordBatch) -> Any:
    numbers = compare_numbers(node, batch.num_rows, lambda part: evaluate(part, batch))
    if numbers is not None:
        return numbers
    left, right = _sides(node, batch)
    if all(isinstance(side, pa.Scalar) for side in (left, right)):
        left = repeat(left, batch.num_rows)
    if node.op.startswith("IS"):
        unequal = distinct(left, right)
        return unequal if node.op == "IS DISTINCT FROM" else pc.invert(unequal)
    return compare(node.op, left, right)


def _arithmetic(node: tree.Arithmetic, batch: pa.RecordBatch) -> Any:
    numbers = compute_numbers(node, batch.num_rows, lambda part: evaluate(part, batch))
    if numbers is not None:
        return numbers
    left, right = _sides(node, batch)
    return combine(node.op, left, right, batch.num_rows)


def _logical(node: tree.And | tree.Or, batch: pa.RecordBatch) -> Any:
    decisive = isinstance(node, tree.Or)  # the value of an operand that decides the result
    join: Any = pc.or_kleene if decisive else pc.and_kleene
    result: Any = repeat(not decisive, batch.num_rows)
    failed: list[Node] = []
    for operand in node.operands:
        if _all_decided(result, decisive=decisive):
            return result
        try:
            result = join(result, values(operand, batch))
        except CapacityError:
            if batch.num_rows > 1:
                raise
            failed.append(operand)
        except FilterError:
            # Other operands may exclude the rows for which it cannot be computed.
            failed.append(operand)
    for operand in failed:
        if _all_decided(result, decisive=decisive):
            return result
        undecided = _undecided(result, decisive=decisive)
        remaining = values(operand, batch.filter(undecided))
        nulls = pa.nulls(batch.num_rows, pa.bool_())
        result = join(result, pc.replace_with_mask(nulls, undecided, remaining))
    return result


def _undecided(result: Any, *, decisive: bool) -> Any:
    """The rows whose result further operands can still change."""
    return pc.fill_null(pc.invert(result) if decisive else result, True)


def _all_decided(result: Any, *, decisive: bool) -> bool:
    undecided = _undecided(result, decisive=decisive)
    return len(result) > 0 and not pc.any(undecided, min_count=0).as_py()


def _is_null(node: tree.IsNull, batch: pa.RecordBatch) -> Any:
    operand = values(node.operand, batch)
    return pc.is_valid(operand) if node.negated else pc.is_null(operand)


def _is_truth(node: tree.IsTruth, batch: pa.RecordBatch) -> Any:
    operand = values(node.operand, batch)
    if node.truth is None:
        passing = pc.is_null(operand)
    else:
        passing = pc.fill_null(operand if node.truth else pc.invert(operand), False)
    return pc.invert(passing) if node.negated else passing


def _in_list(node: tree.InList, batch: pa.RecordBatch) -> Any:
    array = values(node.operand, batch)
    if isinstance(node.items, ConstantList):
        passing = among(array, cast(node.items.array(), array.type))
        return pc.invert(passing) if node.negated else passing
    constants = [item for item in node.items if isinstance(item, tree.Literal)]
    known = [constant.value for constant in constants if not constant.is_null]
    result: Any = None
    if known:
        result = among(array, pa.array(known, array.type))
    if len(known) < len(constants):
        nothing = pa.nulls(len(array), pa.bool_())
        result = nothing if result is None else pc.or_kleene(result, nothing)
    for item in node.items:
        if not isinstance(item, tree.Literal):
            same = compare("=", array, evaluate(item, batch))
            result = same if result is None else pc.or_kleene(result, same)
    return pc.invert(result) if node.negated else result


def _like(node: tree.Like, batch: pa.RecordBatch) -> Any:
    result = like(
        values(node.operand, batch),
        evaluate(node.pattern, batch),
        node.escape,
        ignore_case=node.ignore_case,
    )
    return pc.invert(result) if node.negated else result


def _cast(node: tree.Cast, batch: pa.RecordBatch) -> Any:
    operand = evaluate(node.operand, batch)
    result = cast(broadcast(operand, 1), node.type, attempt=node.attempt)
    return result[0] if isinstance(operand, pa.Scalar) else result


def _call(node: tree.Call, batch: pa.RecordBatch) -> Any:
    try:
        return _called(node, batch)
    except CapacityError:
        raise
    except FilterError:
        if node.name not in tree.FIRST_VALUE:
            raise
        return _first_value(node, batch)


class _Held(threading.local):
    """Bytes of the computed arguments of the calls that this thread is evaluating."""

    size = 0


_HELD = _Held()
_GIVEN = (tree.Column, tree.Literal, tree.Member, tree.Subscript)


def _called(node: tree.Call, batch: pa.RecordBatch) -> Any:
    before = _HELD.size
    try:
        return _computed(node, batch)
    finally:
        _HELD.size = before


def _computed(node: tree.Call, batch: pa.RecordBatch) -> Any:
    function = registry.find(node.name)
    arguments = []
    for argument in node.arguments:
        value = _without_string_view(evaluate(argument, batch))
        arguments.append(value)
        if not isinstance(argument, _GIVEN) and varies(value.type):
            _HELD.size += bytes_of(value, 1)
            check_held(node.name, _HELD.size, batch.num_rows)
    constants = sum(
        scalar_bytes(argument) for argument in arguments if isinstance(argument, pa.Scalar)
    )
    if constants and varies(node.type):
        check_bytes(node.name, constants * batch.num_rows, batch.num_rows, node.type)
    try:
        return function.evaluate(arguments, batch.num_rows, plain(node.type))
    except _REFUSALS as error:
        raise _failure(node.name, error) from None


def _first_value(node: tree.Call, batch: pa.RecordBatch) -> Any:
    """``coalesce`` on rows without a value so far: others may make an argument fail."""
    result = values(node.arguments[0], batch)
    for argument in node.arguments[1:]:
        missing = pc.is_null(result)
        if not missing.true_count:
            break
        rest = values(argument, batch.filter(missing))
        rows = np.arange(len(result), dtype=np.int64)
        rows[missing.to_numpy(zero_copy_only=False)] = np.arange(len(rest)) + len(result)
        result = concat_arrays([result, rest]).take(pa.array(rows))
    return result


_REFUSALS = (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowCapacityError)


def _failure(step: str, error: Exception) -> FilterError | CapacityError:
    if too_large(error):
        return CapacityError(f"the result of {step} does not fit one array: {error}")
    return FilterError(f"{step} cannot be computed: {error}")


def _without_string_view(argument: Any) -> Any:
    """String views as large strings: Arrow has few functions for views."""
    return argument.cast(pa.large_string()) if argument.type == pa.string_view() else argument


def _subscript(node: tree.Subscript, batch: pa.RecordBatch) -> Any:
    """The ``index``-th item of each list, from the end if negative; null if there is none."""
    lists, index = values(node.operand, batch), evaluate(node.index, batch)
    starts, sizes = list_spans(lists)
    valid = lists.is_valid().to_numpy(zero_copy_only=False)
    if isinstance(index, pa.Scalar):
        wanted: Any = np.int64(index.as_py() or 0)
    else:
        wanted = index.fill_null(0).to_numpy(zero_copy_only=False)
    inside = valid & (wanted != 0) & (wanted <= sizes) & (wanted >= -sizes)
    positions = np.where(wanted > 0, starts + wanted - 1, starts + sizes + wanted)
    items: Any = lists.values
    items = items.cast(without_views(items.type))
    elements: Any = items.take(pa.array(positions, pa.int64(), mask=~inside))
    return _without_dictionary(elements)


_EVALUATORS: dict[type, Callable[[Any, pa.RecordBatch], Any]] = {
    tree.Column: _column,
    tree.Literal: lambda node, _batch: node.scalar(),
    tree.Compare: _compare,
    tree.Arithmetic: _arithmetic,
    tree.Negative: lambda node, batch: negative(values(node.operand, batch)),
    tree.And: _logical,
    tree.Or: _logical,
    tree.Not: lambda node, batch: pc.invert(values(node.operand, batch)),
    tree.IsNull: _is_null,
    tree.IsTruth: _is_truth,
    tree.InList: _in_list,
    tree.Like: _like,
    tree.Cast: _cast,
    tree.Call: _call,
    tree.Member: _member,
    tree.Subscript: _subscript,
}
