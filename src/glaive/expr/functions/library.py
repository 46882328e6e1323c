"""Functions that the package ``datafusion`` types and computes.

pylance runs the same engine, so that types and values are equal. The first call loads the package.
To add a function, add its name to a table below.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any, Final
from uuid import uuid4

from glaive.errors import FilterError, MissingDependencyError
from glaive.expr.functions.registry import Call, Types, function
from glaive.expr.rows import (
    MAX_VALUE_BYTES,
    broadcast,
    check_bytes,
    check_values,
    count_rows,
    largest,
    pa,
    pc,
    values_within,
)

_NAMES: Final = """
    ascii chr concat_ws decode digest encode find_in_set initcap levenshtein lpad md5 overlay
    regexp_count regexp_instr regexp_match regexp_replace repeat right rpad sha224 sha256 sha384
    sha512 split_part string_to_array/string_to_list strpos/instr/position
    substr_index/substring_index to_hex translate
    atan2 atanh cbrt cot degrees factorial gcd iszero lcm log nanvl radians signum trunc
    date_bin from_unixtime make_date make_time to_char/date_format to_date to_local_time to_time
    to_timestamp to_timestamp_micros to_timestamp_millis to_timestamp_nanos to_timestamp_seconds
    to_unixtime
    array_any_value/list_any_value array_append/list_append/array_push_back/list_push_back
    array_compact/list_compact array_concat/array_cat/list_concat/list_cat array_dims/list_dims
    array_distance/list_distance array_distinct/list_distinct
    array_element/array_extract/list_element/list_extract array_except/list_except
    array_intersect/list_intersect array_max/list_max array_min array_ndims/list_ndims
    array_normalize/list_normalize array_pop_back/list_pop_back array_pop_front/list_pop_front
    array_position/array_indexof/list_position/list_indexof array_positions/list_positions
    array_prepend/list_prepend/array_push_front/list_push_front array_remove/list_remove
    array_remove_all/list_remove_all array_remove_n/list_remove_n array_repeat/list_repeat
    array_replace/list_replace array_replace_all/list_replace_all array_replace_n/list_replace_n
    array_resize/list_resize array_reverse/list_reverse array_slice/list_slice
    array_sort/list_sort array_to_string/array_join/list_to_string/list_join
    array_union/list_union arrays_zip/list_zip cardinality cosine_distance flatten
    generate_series inner_product/dot_product range
    arrow_metadata arrow_typeof greatest least
    map_entries map_extract/element_at map_keys map_values nullif
    with_metadata
"""
"""Functions of strings, numbers, times, lists and any values; aliases follow a slash."""


_GROWING: Final = frozenset({"array_repeat", "array_resize", "lpad", "repeat", "rpad"})
"""Functions that repeat a value as often as an argument says."""


@cache
def _engine() -> Any:
    """Return the module, and a session that computes each batch as a whole, in one partition."""
    try:
        import datafusion
    except ImportError:
        return None
    config = datafusion.SessionConfig().with_target_partitions(1).with_batch_size(1 << 30)
    session = datafusion.SessionContext(config)
    # The rule turns regular expressions into LIKE, where a backslash has another meaning.
    session.remove_optimizer_rule("simplify_expressions")
    return datafusion, session


@contextmanager
def _called(
    name: str, columns: Sequence[Any], make: Callable[..., Any] | None = None
) -> Iterator[Any]:
    """Yield the data frame of a call; ``columns`` are arrays, and scalars for constants.

    ``make`` makes the expression from the columns; default: a call of the function.
    """
    engine = _engine()
    if engine is None:
        raise MissingDependencyError(
            f'{name} is computed by the package datafusion: pip install "glaive[functions]"'
        )
    datafusion, session = engine
    arrays = {f"a{n}": one for n, one in enumerate(columns) if isinstance(one, pa.Array)}
    given = [
        datafusion.col(f"a{n}") if isinstance(one, pa.Array) else datafusion.lit(one)
        for n, one in enumerate(columns)
    ]
    batch = pa.record_batch(arrays)
    batch.validate(full=True)  # the engine trusts strings to be UTF-8
    table = uuid4().hex  # threads share the session
    try:
        frame = session.create_dataframe([[batch]], name=table)
        yield frame.select((make or session.udf(name))(*given).alias("x"))
    except BaseException as error:
        # A panic of the engine is only a BaseException.
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        raise FilterError(f"{name} cannot be computed: {error!s:.300}") from None
    finally:
        session.deregister_table(table)  # else the session keeps the batch


def engine_cast(values: Any, kind: Any, *, attempt: bool) -> Any:
    """Cast values with DataFusion; with ``attempt``, return null where the cast fails.

    Raises
    ------
    FilterError
        The cast of a value fails.
    MissingDependencyError
        The package ``datafusion`` is missing, and ``attempt`` is False.
    """
    if attempt and _engine() is None:
        return pa.nulls(len(values), kind)

    def made(one: Any) -> Any:
        return one.try_cast(kind) if attempt else one.cast(kind)

    with _called(f"a cast to {kind}", [values], made) as frame:
        return frame.to_arrow_table()["x"].combine_chunks()


_OPERATIONS: Final = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv,
    "%": operator.mod, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip


def engine_operation(op: str, left: Any, right: Any) -> Any:
    """Return the values of an operation on decimals or lists; errors as for a function."""
    with _called(op, [left, right], _OPERATIONS[op]) as frame:
        return frame.to_arrow_table()["x"].combine_chunks()


def engine_types(call: Call) -> Types:
    """Return DataFusion's types of a call.

    Raises
    ------
    FilterError
        DataFusion refuses these arguments.
    MissingDependencyError
        The package ``datafusion`` is missing.
    """
    kinds = [
        kind.storage_type if isinstance(kind, pa.BaseExtensionType) else kind for kind in call.types
    ]
    columns = [
        pa.nulls(0, kind) if literal is None else literal
        for kind, literal in zip(kinds, call.literals, strict=True)
    ]
    with _called(call.name, columns) as frame:
        return tuple(kinds), frame.schema().field("x").type


def compute(name: str, *arguments: Any) -> Any:
    """Return the values of a function of DataFusion for all rows of its arguments.

    Raises
    ------
    CapacityError
        Lists have too many items: process fewer rows at a time.
    FilterError
        The function is undefined for a value, or one row has too many items.
    MissingDependencyError
        The package ``datafusion`` is missing.
    """
    rows = count_rows(arguments)
    nested = pa.types.is_nested  # the package refuses constant lists
    columns = [broadcast(one, rows) if nested(one.type) else one for one in arguments]
    arrays = [one for one in columns if isinstance(one, pa.Array)]
    check_values(sum(map(values_within, arrays)), rows)
    if name in _GROWING:
        times = pc.max(broadcast(columns[1], 1)).as_py() or 0
        size = max(largest(one) for at, one in enumerate(columns) if at != 1) * times
        if size > MAX_VALUE_BYTES:
            raise FilterError(
                f"{name} would make {size} bytes for one row; at most {MAX_VALUE_BYTES} fit"
            )
        check_bytes(name, size * rows, rows)
    with _called(name, columns) as frame:
        return frame.to_arrow_table()["x"].combine_chunks()


def _register(names: str) -> None:
    name, *others = names.split("/")

    def computed(*arguments: Any) -> Any:
        return compute(name, *arguments)

    # In ``date_bin``, a constant interval comes before the column.
    function(name, *others, takes=engine_types, column=int(name == "date_bin"))(computed)


for _names in _NAMES.split():
    _register(_names)
