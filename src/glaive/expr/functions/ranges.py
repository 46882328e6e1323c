"""Lists of consecutive integers, for all rows at once."""

from __future__ import annotations

from functools import partial, reduce
from typing import Any

import numpy as np

from glaive.errors import FilterError
from glaive.expr.functions.coercion import check_count, refuse
from glaive.expr.functions.list_parts import lists_of
from glaive.expr.functions.list_rules import item_field
from glaive.expr.functions.registry import Call, Types, function
from glaive.expr.functions.untyped import pa, pc
from glaive.expr.functions.values import check_size
from glaive.expr.rows import broadcast, count_rows

__all__: list[str] = []

is_kind = pa.types


def _range_types(call: Call) -> Types:
    check_count(call, 1, 3)
    if not all(is_kind.is_integer(kind) or is_kind.is_null(kind) for kind in call.types):
        wrong = next(n for n, kind in enumerate(call.types) if not is_kind.is_integer(kind))
        raise refuse(call, wrong, "an integer")
    return (pa.int64(),) * len(call.types), pa.list_(item_field(pa.int64()))


def _ranges(name: str, inclusive: int, *arguments: Any) -> Any:
    if len(arguments) == 1:
        arguments = (pa.scalar(0, pa.int64()), arguments[0])
    step = arguments[2] if len(arguments) == 3 else pa.scalar(1, pa.int64())
    rows = count_rows(arguments)
    columns = [broadcast(argument, rows) for argument in (*arguments[:2], step)]
    valid = reduce(pc.and_, [column.is_valid() for column in columns])
    begin, end, stride = [
        pc.fill_null(column, 1).to_numpy(zero_copy_only=False) for column in columns
    ]
    if (stride == 0).any():
        raise FilterError(f"{name}: the step must not be 0")
    last = end.astype(object) - (0 if inclusive else np.sign(stride).astype(object))
    sizes = np.maximum((last - begin.astype(object)) // stride.astype(object) + 1, 0)
    sizes = np.where(valid.to_numpy(zero_copy_only=False), sizes, 0)
    check_size(name, pa.array(sizes.astype(np.float64)), unit="numbers", unit_bytes=8)
    sizes = sizes.astype(np.int64)
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    inside = np.arange(offsets[-1]) - np.repeat(offsets[:-1], sizes)
    items = np.repeat(begin, sizes) + inside * np.repeat(stride, sizes)
    kind = pa.list_(item_field(pa.int64()))
    result = lists_of(pa.array(items), offsets, kind)
    return pc.if_else(valid, result, pa.scalar(None, kind))


function("range", takes=_range_types)(partial(_ranges, "range", 0))
function("generate_series", takes=_range_types)(partial(_ranges, "generate_series", 1))
