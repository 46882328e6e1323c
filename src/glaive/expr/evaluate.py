"""Bound trees and batches to values: three-valued, in bulk."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from glaive.arrow.capacity import too_large
from glaive.arrow.dictionaries import concat_arrays, decoded
from glaive.arrow.extensions import to_type
from glaive.errors import CapacityError, FilterError
from glaive.expr import tree
from glaive.expr.arithmetic import combine, negative
from glaive.expr.blocks import compare_numbers, compute_numbers
from glaive.expr.casts import cast
from glaive.expr.coerce import plain
from glaive.expr.compare import among, compare, distinct
from glaive.expr.constant_list import ConstantList
from glaive.expr.functions import registry
from glaive.expr.list_element import element
from glaive.expr.patterns import like
from glaive.expr.rows import repeat
from glaive.expr.sizes import reserve, scalar_bytes, varies
from glaive.expr.tree import Node
from glaive.format.fields import split_path

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
        A value cannot be computed: a division by zero, a cast that does not go.
    CapacityError
        One array does not hold the values, or those that it takes to compute them.
    """
    found = evaluate(node, batch)
    constant = isinstance(found, pa.Scalar)
    return repeat(found, batch.num_rows) if constant else found


def evaluate(node: Node, batch: pa.RecordBatch) -> Any:
    """Like :func:`values`; a ``pa.Scalar`` where all rows have one value."""
    try:
        return _STEPS[type(node)](node, batch)
    except _REFUSALS as error:
        raise _failure(type(node).__name__, error) from None


def _column(node: tree.Column, batch: pa.RecordBatch) -> Any:
    index = batch.schema.get_field_index(node.path)
    if index < 0:
        return _inside(node, batch)
    array: Any = batch.column(index)
    if isinstance(array.type, pa.BaseExtensionType):
        array = to_type(array, node.type, node.path)
    return decoded(array) if pa.types.is_dictionary(array.type) else array


def _inside(node: tree.Column, batch: pa.RecordBatch) -> Any:
    """A member from the struct that holds it."""
    names = split_path(node.path)
    for cut in range(len(names) - 1, 0, -1):
        index = batch.schema.get_field_index(".".join(names[:cut]))
        if index >= 0:
            array: Any = batch.column(index)
            for name in names[cut:]:
                array = pc.struct_field(array, [name])
            return array
    raise FilterError(f"the batch has no column {node.path!r}, only {batch.schema.names}")


def _literal(node: tree.Literal, _batch: pa.RecordBatch) -> Any:
    return node.scalar()


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
        unlike = distinct(left, right)
        return unlike if node.op == "IS DISTINCT FROM" else pc.invert(unlike)
    return compare(node.op, left, right)


def _arithmetic(node: tree.Arithmetic, batch: pa.RecordBatch) -> Any:
    numbers = compute_numbers(node, batch.num_rows, lambda part: evaluate(part, batch))
    if numbers is not None:
        return numbers
    left, right = _sides(node, batch)
    return combine(node.op, left, right, batch.num_rows)


def _negative(node: tree.Negative, batch: pa.RecordBatch) -> Any:
    return negative(values(node.operand, batch))


def _and(node: tree.And, batch: pa.RecordBatch) -> Any:
    return _joined(node.operands, batch, pc.and_kleene, decisive=False)


def _or(node: tree.Or, batch: pa.RecordBatch) -> Any:
    return _joined(node.operands, batch, pc.or_kleene, decisive=True)


def _joined(
    operands: tuple[Node, ...], batch: pa.RecordBatch, join: Callable[..., Any], *, decisive: bool
) -> Any:
    found: Any = repeat(not decisive, batch.num_rows)
    failed: list[Node] = []
    for operand in operands:
        if _all_decided(found, decisive=decisive):
            return found
        try:
            found = join(found, values(operand, batch))
        except CapacityError:
            if batch.num_rows > 1:
                raise
            failed.append(operand)
        except FilterError:
            # The others may be there to keep it from the rows where it cannot be computed.
            failed.append(operand)
    for operand in failed:
        if _all_decided(found, decisive=decisive):
            return found
        open_rows = _open(found, decisive=decisive)
        some = values(operand, batch.filter(open_rows))
        nothing = pa.nulls(batch.num_rows, pa.bool_())
        found = join(found, pc.replace_with_mask(nothing, open_rows, some))
    return found


def _open(found: Any, *, decisive: bool) -> Any:
    """The rows that more operands can still change."""
    return pc.fill_null(pc.invert(found) if decisive else found, True)


def _all_decided(found: Any, *, decisive: bool) -> bool:
    return len(found) > 0 and not pc.any(_open(found, decisive=decisive), min_count=0).as_py()


def _not(node: tree.Not, batch: pa.RecordBatch) -> Any:
    return pc.invert(values(node.operand, batch))


def _is_null(node: tree.IsNull, batch: pa.RecordBatch) -> Any:
    found = values(node.operand, batch)
    return pc.is_valid(found) if node.negated else pc.is_null(found)


def _is_truth(node: tree.IsTruth, batch: pa.RecordBatch) -> Any:
    found = values(node.operand, batch)
    if node.truth is None:
        passing = pc.is_null(found)
    else:
        passing = pc.fill_null(found if node.truth else pc.invert(found), False)
    return pc.invert(passing) if node.negated else passing


def _in_list(node: tree.InList, batch: pa.RecordBatch) -> Any:
    array = values(node.operand, batch)
    if isinstance(node.items, ConstantList):
        passing = among(array, cast(node.items.array(), array.type))
        return pc.invert(passing) if node.negated else passing
    constants = [item for item in node.items if isinstance(item, tree.Literal)]
    known = [constant.value for constant in constants if not constant.is_null]
    found: Any = None
    if known:
        found = among(array, pa.array(known, array.type))
    if len(known) < len(constants):
        nothing = pa.nulls(len(array), pa.bool_())
        found = nothing if found is None else pc.or_kleene(found, nothing)
    for item in node.items:
        if not isinstance(item, tree.Literal):
            same = compare("=", array, evaluate(item, batch))
            found = same if found is None else pc.or_kleene(found, same)
    return pc.invert(found) if node.negated else found


def _like(node: tree.Like, batch: pa.RecordBatch) -> Any:
    found = like(
        values(node.operand, batch),
        evaluate(node.pattern, batch),
        node.escape,
        ignore_case=node.ignore_case,
    )
    return pc.invert(found) if node.negated else found


def _cast(node: tree.Cast, batch: pa.RecordBatch) -> Any:
    found = evaluate(node.operand, batch)
    constant = isinstance(found, pa.Scalar)
    if constant:
        return cast(repeat(found, 1), node.type, attempt=node.attempt)[0]
    return cast(found, node.type, attempt=node.attempt)


def _call(node: tree.Call, batch: pa.RecordBatch) -> Any:
    try:
        return _called(node, batch)
    except CapacityError:
        raise
    except FilterError:
        if node.name not in tree.FIRST_VALUE:
            raise
        return _first_value(node, batch)


def _called(node: tree.Call, batch: pa.RecordBatch) -> Any:
    function = registry.find(node.name)
    arguments = [_not_viewed(evaluate(argument, batch)) for argument in node.arguments]
    constants = sum(
        scalar_bytes(argument) for argument in arguments if isinstance(argument, pa.Scalar)
    )
    if constants and varies(node.type):
        reserve(node.name, constants * batch.num_rows, batch.num_rows, node.type)
    try:
        return function.evaluate(arguments, batch.num_rows, plain(node.type))
    except _REFUSALS as error:
        raise _failure(node.name, error) from None


def _first_value(node: tree.Call, batch: pa.RecordBatch) -> Any:
    """``coalesce`` where a value cannot be computed: it may be that of a row with one before."""
    found = values(node.arguments[0], batch)
    for argument in node.arguments[1:]:
        missing = pc.is_null(found)
        if not missing.true_count:
            break
        rest = values(argument, batch.filter(missing))
        rows = np.arange(len(found), dtype=np.int64)
        rows[missing.to_numpy(zero_copy_only=False)] = np.arange(len(rest)) + len(found)
        found = concat_arrays([found, rest]).take(pa.array(rows))
    return found


_REFUSALS = (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowCapacityError)


def _failure(what: str, error: Exception) -> FilterError | CapacityError:
    if too_large(error):
        return CapacityError(f"{what} makes more than one array holds: {error}")
    return FilterError(f"{what} cannot be computed: {error}")


def _not_viewed(argument: Any) -> Any:
    """Arrow computes nothing on views of texts."""
    return argument.cast(pa.large_string()) if argument.type == pa.string_view() else argument


def _member(node: tree.Member, batch: pa.RecordBatch) -> Any:
    return pc.struct_field(values(node.operand, batch), node.name)


def _subscript(node: tree.Subscript, batch: pa.RecordBatch) -> Any:
    return element(values(node.operand, batch), evaluate(node.index, batch))


_STEPS: dict[type, Callable[[Any, pa.RecordBatch], Any]] = {
    tree.Column: _column,
    tree.Literal: _literal,
    tree.Compare: _compare,
    tree.Arithmetic: _arithmetic,
    tree.Negative: _negative,
    tree.And: _and,
    tree.Or: _or,
    tree.Not: _not,
    tree.IsNull: _is_null,
    tree.IsTruth: _is_truth,
    tree.InList: _in_list,
    tree.Like: _like,
    tree.Cast: _cast,
    tree.Call: _call,
    tree.Member: _member,
    tree.Subscript: _subscript,
}
