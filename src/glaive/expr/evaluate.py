"""Evaluate bound trees on batches with three-valued logic, all rows in one call."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

from glaive.arrow import compute as pc
from glaive.arrow.blocks import NUMPY_TYPES, number_array
from glaive.arrow.chunked import (
    as_numpy,
    concat_arrays,
    decode_dictionary,
    too_large,
    without_views,
)
from glaive.arrow.conditions import FALSE, TRUE, constants, filled
from glaive.arrow.extensions import to_type
from glaive.errors import CapacityError, FilterError
from glaive.expr import tree
from glaive.expr.casts import cast
from glaive.expr.coerce import plain
from glaive.expr.compare import among, compare, distinct, like, list_spans
from glaive.expr.constants import ConstantList
from glaive.expr.functions import registry
from glaive.expr.rows import (
    broadcast,
    bytes_of,
    check_bytes,
    check_held,
    repeat,
    scalar_bytes,
    varies,
)
from glaive.expr.tree import Node
from glaive.format.field import split_path

# --- Arithmetic on arrays of one type ---------------------------------------------------
# As in Lance, integers wrap around. Integer division by zero and integer quotients outside the
# range of the type raise; float division by zero yields infinity or NaN. Quotients are truncated
# towards zero. DataFusion computes decimals with more digits than Arrow supports.

_PLAIN = {"+": "add", "-": "subtract", "*": "multiply", "/": "divide"}
_WITH_NUMPY: dict[str, Any] = {
    "+": np.add,
    "-": np.subtract,
    "*": np.multiply,
    "/": np.divide,
    "%": np.fmod,
}
_DAY_MS = 86_400_000
_MAX_DIGITS = 38


def combine(op: str, left: Any, right: Any, rows: int) -> Any:
    """Compute ``left op right`` for arrays or scalars; return an array of ``rows`` values.

    Raises
    ------
    FilterError
        An integer or a decimal is divided by zero, or a decimal or time exceeds its range.
    """
    types = pa.types
    if types.is_interval(left.type):
        left, right = right, left
    left = broadcast(left, rows)
    kind = left.type
    if types.is_interval(right.type):
        return _by_datafusion(op, left, right)
    if isinstance(right, pa.Scalar):
        result = _by_constant(op, left, right)
        if result is not None:
            return result
    right = broadcast(right, rows)
    if types.is_null(kind) or types.is_null(right.type):
        return pa.nulls(rows, right.type if types.is_null(kind) else kind)
    try:
        if op == "||":
            return _joined(left, right)
        if op in {"<<", ">>"}:
            by = _numbers(right)
            by = by & by.dtype.type(left.type.bit_width - 1)
            shift = np.left_shift if op == "<<" else np.right_shift
            return _array(shift(_numbers(left), by), left.type, _nulls(left, right))
        if types.is_decimal(kind):
            return _decimals(op, left, right)
        if types.is_integer(kind) and types.is_integer(right.type):
            return _integers(op, left, right)
        if types.is_floating(kind):
            return _floats(op, left, right)
        return _times(op, left, right)
    except pa.ArrowInvalid as error:
        if too_large(error):
            raise
        raise FilterError(f"{op} cannot be computed: {error}") from None


def _by_datafusion(op: str, left: Any, right: Any) -> Any:
    from glaive.expr.functions.library import engine_operation

    return engine_operation(op, left, right)


def negative(array: Any) -> Any:
    """Negate an array; the most negative integer stays the same."""
    kind = array.type
    if pa.types.is_floating(kind) and kind.bit_width == 16:
        return _array(-_numbers(array), kind, _nulls(array))
    if pa.types.is_null(kind):
        return array
    return pc.negate(array)


def _array(numbers: Any, kind: pa.DataType, nulls: Any) -> Any:
    if kind in NUMPY_TYPES:
        return number_array(numbers, kind, nulls=nulls)
    return pa.array(numbers, kind, mask=nulls)


def _numbers(array: Any) -> Any:
    """Return values as a NumPy array, with nulls as zero."""
    return as_numpy(filled(array, 0))


def _nulls(*arrays: Any) -> Any:
    nulls = None
    for array in arrays:
        if array.null_count:
            mask = as_numpy(array.is_null())
            nulls = mask if nulls is None else nulls | mask
    return nulls


def _integers(op: str, left: Any, right: Any) -> Any:
    if op in "+-*":
        return getattr(pc, _PLAIN[op])(left, right)
    nulls = _nulls(left, right)
    over, by = _numbers(left), _numbers(right)
    zero = by == 0
    if np.any(zero if nulls is None else zero & ~nulls):
        raise FilterError(
            f"division by zero: {op} on {left.type}; divide by nullif(x, 0) to get null"
        )
    if by.dtype.kind == "i":
        # The most negative integer divided by -1 overflows; the remainder is 0.
        outside = (by == -1) & (over == np.iinfo(over.dtype).min)
        if op == "/" and np.any(outside):
            raise FilterError(f"a quotient does not fit {left.type}: {left.type} / -1")
        zero = zero | outside
    by = np.where(zero, by.dtype.type(1), by)
    result = np.fmod(over, by) if op == "%" else _truncated(over, by)
    return _array(result, left.type, nulls)


def _by_constant(op: str, left: Any, right: Any) -> Any:
    """Compute with a valid number on the right, for operations where Arrow accepts a scalar."""
    kind = left.type
    if kind != right.type or not right.is_valid or not pa.types.is_primitive(kind):
        return None
    integers = pa.types.is_integer(kind)
    floating = pa.types.is_floating(kind) and kind.bit_width > 16
    if (integers and op in {"+", "-", "*"}) or (floating and op in {"+", "-", "*", "/"}):
        return getattr(pc, _PLAIN[op])(left, right)
    if integers and op in {"/", "%"} and right.as_py() > 0:
        if op == "/":
            return pc.divide(left, right)
        numbers = _numbers(left)
        return _array(_remainder(numbers, numbers.dtype.type(right.as_py())), kind, _nulls(left))
    return None


def _remainder(numbers: Any, by: Any) -> Any:
    """Return remainders with the sign of the numbers; twice as fast as ``numpy.fmod``."""
    rest = numbers // by
    rest *= by
    np.subtract(numbers, rest, out=rest)
    if numbers.dtype.kind == "i":
        rest[(numbers < 0) & (rest != 0)] -= by
    return rest


def _truncated(over: Any, by: Any) -> Any:
    """Divide, and truncate towards zero; NumPy rounds down."""
    down = over // by
    return down + ((down < 0) & (down * by != over)) if over.dtype.kind == "i" else down


def _floats(op: str, left: Any, right: Any) -> Any:
    if op != "%" and left.type.bit_width > 16:
        return getattr(pc, _PLAIN[op])(left, right)
    with np.errstate(all="ignore"):
        result = _WITH_NUMPY[op](_numbers(left), _numbers(right))
    return _array(result, left.type, _nulls(left, right))


def _joined(left: Any, right: Any) -> Any:
    kind, rows = left.type, len(left)
    check_bytes("||", bytes_of(left, rows) + bytes_of(right, rows), rows, kind)
    large = {pa.string_view(): pa.large_string(), pa.binary_view(): pa.large_binary()}.get(kind)
    if large is None:
        return pc.binary_join_element_wise(left, right, _empty(kind))
    return pc.binary_join_element_wise(left.cast(large), right.cast(large), _empty(large)).cast(
        kind
    )


def _empty(kind: Any) -> Any:
    text = pa.types.is_string(kind) or pa.types.is_large_string(kind)
    return pa.scalar("" if text else b"", kind)


def _times(op: str, left: Any, right: Any) -> Any:
    types = pa.types
    if types.is_integer(left.type) or types.is_time(left.type):
        left, right = right, left
    kind = left.type
    if types.is_date(kind) and right.type == kind:
        raw = pc.subtract(_raw(left), _raw(right))
        return pc.divide(raw, _DAY_MS) if types.is_date64(kind) else raw
    if types.is_date(kind):
        # As in Lance, days wrap to 32 bits; a date out of range raises.
        days = right.cast(pa.int32(), safe=False).cast(pa.int64())
        if types.is_date64(kind):
            days = pc.multiply(days, _DAY_MS)
        shifted = (pc.add if op == "+" else pc.subtract)(_raw(left), days)
        if types.is_date32(kind):
            return shifted.cast(pa.int32()).cast(kind)
        return shifted.cast(kind)
    if types.is_time(right.type):
        right = right.cast(pa.int64()).cast(pa.duration("ns"))
    return (pc.add_checked if op == "+" else pc.subtract_checked)(left, right)


def _raw(array: Any) -> Any:
    if pa.types.is_date32(array.type):
        return array.cast(pa.int32()).cast(pa.int64())
    return array.cast(pa.int64())


def _decimals(op: str, left: Any, right: Any) -> Any:
    from glaive.expr.coerce import arithmetic

    rule = arithmetic(op, left.type, right.type)
    kind = rule[2] if rule else left.type
    if op in "+-*" and pa.types.is_decimal128(kind):
        if kind.precision < _MAX_DIGITS:
            result = getattr(pc, _PLAIN[op])(left, right)  # all digits fit
            if result.type == kind:
                return result
        elif (narrow := _by_digits(op, left, right, kind)) is not None:
            return narrow
    exact = {"/": _quotients, "%": _remainders}.get(op)
    result = None if exact is None else exact(left, right, kind)
    if result is not None:
        return result
    return _by_datafusion(op, left, right)


def _quotients(left: Any, right: Any, kind: Any) -> Any:
    """Return truncated quotients of decimals; ``None`` if Arrow has too few digits."""
    first, second = left.type, right.type
    scale = max(first.scale, kind.scale)
    whole = first.precision - first.scale + scale
    fits = whole + second.precision + 1 <= 76 and min(first.scale, second.scale) >= 0
    if not (pa.types.is_decimal128(kind) and fits):
        return None
    by = right.cast(pa.decimal256(second.precision, second.scale))
    exact = pc.divide(left.cast(pa.decimal256(whole, scale)), by)
    return pc.round(exact, ndigits=kind.scale, round_mode="towards_zero").cast(kind)


def _remainders(left: Any, right: Any, kind: Any) -> Any:
    """Return remainders of decimals whose digits fit 64 bits; ``None`` for other decimals.

    For example, an unsigned column and a constant are such decimals.
    """
    if not pa.types.is_decimal128(kind):
        return None
    scale = max(left.type.scale, right.type.scale)
    try:
        over, by = (
            _as_type(side.cast(pa.decimal128(38, scale)), pa.decimal128(38, 0)).cast(pa.int64())
            for side in (left, right)
        )
    except pa.ArrowInvalid:  # a value exceeds 64 bits
        return None
    return _as_type(_integers("%", over, by).cast(pa.decimal128(19, 0)), kind)


def _by_digits(op: str, left: Any, right: Any, kind: Any) -> Any:
    """Compute with Arrow if values have fewer digits than their types; otherwise return ``None``.

    Arrow adds up the digits of the types, and refuses results that may exceed 38 digits.
    """
    if not (pa.types.is_decimal128(left.type) and pa.types.is_decimal128(right.type)):
        return None
    first, second = _digits(left), _digits(right)
    scales = left.type.scale, right.type.scale
    scale = sum(scales) if op == "*" else max(scales)
    whole = max(first - scales[0], second - scales[1])
    needed = first + second + 1 if op == "*" else whole + scale + 1
    if max(first, second, needed) > _MAX_DIGITS or scale != kind.scale:
        return None
    narrow = [
        _as_type(each, pa.decimal128(digits, each.type.scale))
        for each, digits in ((left, first), (right, second))
    ]
    return _as_type(getattr(pc, _PLAIN[op])(*narrow), kind)


def _digits(array: Any) -> int:
    """Return the digits of the largest value of a column of decimals, at least its scale."""
    scale = array.type.scale
    ends: Any = pc.min_max(array)
    known = (end.scaleb(scale) for end in ends.as_py().values() if end is not None)
    digits = max((len(str(abs(int(end)))) for end in known), default=0)
    return max(digits, int(scale), 1)


def _as_type(array: Any, kind: Any) -> Any:
    """Return the same integers as decimals with another precision and scale."""
    return pa.Array.from_buffers(kind, len(array), array.buffers(), array.null_count, array.offset)


def values(node: Node, batch: pa.RecordBatch) -> Any:
    """Return the values of a bound expression, one per row of the batch.

    Parameters
    ----------
    batch
        Batch whose column names are the paths of the tree's columns.

    Raises
    ------
    FilterError
        Computing a value fails: a division by zero, an invalid cast.
    CapacityError
        The values, or intermediate values, exceed one array.
    """
    return broadcast(evaluate(node, batch), batch.num_rows)


def evaluate(node: Node, batch: pa.RecordBatch) -> Any:
    """Evaluate like :func:`values`; return a ``pa.Scalar`` if all rows have one value."""
    try:
        return _EVALUATORS[type(node)](node, batch)
    except _REFUSALS as error:
        raise _failure(type(node).__name__, error) from None


def _column(node: tree.Column, batch: pa.RecordBatch) -> Any:
    index = batch.schema.get_field_index(node.path)
    array: Any = batch.column(index) if index >= 0 else _nested_member(node, batch)
    if isinstance(array.type, pa.BaseExtensionType):
        array = to_type(array, node.type, node.path)
    return _without_dictionary(array)


def _without_dictionary(array: Any) -> Any:
    return decode_dictionary(array) if pa.types.is_dictionary(array.type) else array


def _member(node: tree.Member, batch: pa.RecordBatch) -> Any:
    return _without_dictionary(pc.struct_field(values(node.operand, batch), node.name))


def _nested_member(node: tree.Column, batch: pa.RecordBatch) -> Any:
    """Return a struct member, from the column that contains it."""
    names = split_path(node.path)
    for cut in range(len(names) - 1, 0, -1):
        index = batch.schema.get_field_index(".".join(names[:cut]))
        if index >= 0:
            array: Any = batch.column(index)
            for name in names[cut:]:
                array = pc.struct_field(array, [name])
            return array
    raise FilterError(f"the batch has no column {node.path!r}, only {batch.schema.names}")


def _operands(node: tree.Compare | tree.Arithmetic, batch: pa.RecordBatch) -> tuple[Any, Any]:
    return evaluate(node.left, batch), evaluate(node.right, batch)


def _compare(node: tree.Compare, batch: pa.RecordBatch) -> Any:
    left, right = _operands(node, batch)
    if all(isinstance(side, pa.Scalar) for side in (left, right)):
        left = repeat(left, batch.num_rows)
    if node.op.startswith("IS"):
        unequal = distinct(left, right)
        return unequal if node.op == "IS DISTINCT FROM" else pc.invert(unequal)
    return compare(node.op, left, right)


def _arithmetic(node: tree.Arithmetic, batch: pa.RecordBatch) -> Any:
    left, right = _operands(node, batch)
    return combine(node.op, left, right, batch.num_rows)


def _logical(node: tree.And | tree.Or, batch: pa.RecordBatch) -> Any:
    decisive = isinstance(node, tree.Or)  # operand value that decides the result
    join: Any = pc.or_kleene if decisive else pc.and_kleene
    result: Any = repeat(FALSE if decisive else TRUE, batch.num_rows)
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
            # Other operands may exclude the rows for which this operand fails.
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
    """Return flags of rows whose result further operands can change."""
    return filled(pc.invert(result) if decisive else result, True)


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
        passing = filled(operand if node.truth else pc.invert(operand), False)
    return pc.invert(passing) if node.negated else passing


def _in_list(node: tree.InList, batch: pa.RecordBatch) -> Any:
    array = values(node.operand, batch)
    if isinstance(node.items, ConstantList):
        passing = among(array, cast(node.items.array(), array.type))
        return pc.invert(passing) if node.negated else passing
    literals = [item for item in node.items if isinstance(item, tree.Literal)]
    known = [literal.value for literal in literals if not literal.is_null]
    result: Any = None
    if known:
        result = among(array, constants(known, array.type))
    if len(known) < len(literals):
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
        return _evaluate_call(node, batch)
    except CapacityError:
        raise
    except FilterError:
        if node.name not in tree.FIRST_VALUE:
            raise
        return _first_value(node, batch)


class _ArgumentBytes(threading.local):
    """Bytes of computed arguments of the calls that this thread is evaluating."""

    size = 0


_ARGUMENT_BYTES = _ArgumentBytes()
_STORED = (tree.Column, tree.Literal, tree.Member, tree.Subscript)


def _evaluate_call(node: tree.Call, batch: pa.RecordBatch) -> Any:
    before = _ARGUMENT_BYTES.size
    try:
        return _computed(node, batch)
    finally:
        _ARGUMENT_BYTES.size = before


def _computed(node: tree.Call, batch: pa.RecordBatch) -> Any:
    function = registry.find(node.name)
    arguments = []
    for argument in node.arguments:
        value = _without_string_view(evaluate(argument, batch))
        arguments.append(value)
        if not isinstance(argument, _STORED) and varies(value.type):
            _ARGUMENT_BYTES.size += bytes_of(value, 1)
            check_held(node.name, _ARGUMENT_BYTES.size, batch.num_rows)
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
    """Evaluate ``coalesce`` on rows that are still null: an argument may fail on other rows."""
    result = values(node.arguments[0], batch)
    for argument in node.arguments[1:]:
        missing = pc.is_null(result)
        if not missing.true_count:
            break
        rest = values(argument, batch.filter(missing))
        rows = np.arange(len(result), dtype=np.int64)
        rows[as_numpy(missing)] = np.arange(len(rest)) + len(result)
        result = concat_arrays([result, rest]).take(number_array(rows))
    return result


_REFUSALS = (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowCapacityError)


def _failure(step: str, error: Exception) -> FilterError | CapacityError:
    if too_large(error):
        return CapacityError(f"the result of {step} does not fit one array: {error}")
    return FilterError(f"{step} cannot be computed: {error}")


def _without_string_view(argument: Any) -> Any:
    """Cast string views to large strings: Arrow has few functions for views."""
    return argument.cast(pa.large_string()) if argument.type == pa.string_view() else argument


def _subscript(node: tree.Subscript, batch: pa.RecordBatch) -> Any:
    """Return item ``index`` of each list, or from the end if negative; null if out of range."""
    lists, index = values(node.operand, batch), evaluate(node.index, batch)
    starts, sizes = list_spans(lists)
    valid = as_numpy(lists.is_valid())
    if isinstance(index, pa.Scalar):
        wanted: Any = np.int64(index.as_py() or 0)
    else:
        wanted = as_numpy(filled(index, 0))
    inside = valid & (wanted != 0) & (wanted <= sizes) & (wanted >= -sizes)
    positions = np.where(wanted > 0, starts + wanted - 1, starts + sizes + wanted)
    items: Any = lists.values
    items = items.cast(without_views(items.type))
    elements: Any = items.take(number_array(positions, nulls=~inside))
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
