"""Functions of DataFusion, which the package ``datafusion`` computes: one call for each batch.

pylance runs the same engine, so that results equal pylance's. The first call loads it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any
from uuid import uuid4

from glaive.errors import FilterError, MissingDependencyError
from glaive.expr.functions.registry import Resolve, function
from glaive.expr.functions.untyped import pa
from glaive.expr.rows import broadcast, count_rows
from glaive.expr.sizes import check_values, values_within


@cache
def _engine() -> Any:
    """The module, and a session that computes each batch as a whole, in one partition."""
    try:
        import datafusion
    except ImportError:
        return None
    config = datafusion.SessionConfig().with_target_partitions(1).with_batch_size(1 << 30)
    session = datafusion.SessionContext(config)
    # The rule makes LIKE of regular expressions, where a backslash means something else.
    session.remove_optimizer_rule("simplify_expressions")
    return datafusion, session


def library(
    names: str, *, takes: Resolve, check: Callable[..., object] | None = None, column: int = 0
) -> None:
    """Register a function of DataFusion.

    Parameters
    ----------
    names
        Its names with spaces between; DataFusion knows the first.
    takes
        The type rule.
    check
        Takes the arguments, and raises where the result would take much memory.
    column
        Index of the argument that is passed as an array if all are constants.
    """
    name, *others = names.split()

    def computed(*arguments: Any) -> Any:
        if check is not None:
            check(*arguments)
        return compute(name, *arguments)

    function(name, *others, takes=takes, column=column)(computed)


def compute(name: str, *arguments: Any) -> Any:
    """Return the values of a function of DataFusion for all rows of its arguments.

    Raises
    ------
    CapacityError
        There are many items in lists: process fewer rows at a time.
    FilterError
        The function is not defined for a value, or one row has too many items.
    MissingDependencyError
        The package ``datafusion`` is not installed.
    """
    engine = _engine()
    if engine is None:
        raise MissingDependencyError(
            f'{name} is computed by the package datafusion: pip install "glaive[functions]"'
        )
    datafusion, session = engine
    rows, arrays, given = count_rows(arguments), {}, []
    for number, argument in enumerate(arguments):
        column = f"a{number}"
        if isinstance(argument, pa.Array) or not _is_literal(argument):
            arrays[column] = broadcast(argument, rows)
            given.append(datafusion.col(column))
        else:
            given.append(datafusion.lit(argument))
    check_values(sum(map(values_within, arrays.values())), rows)
    batch = pa.record_batch(arrays)
    batch.validate(full=True)  # The engine trusts texts to be UTF-8.
    table = uuid4().hex  # threads share the session
    try:
        frame = session.create_dataframe([[batch]], name=table)
        found = frame.select(session.udf(name)(*given).alias("x")).to_arrow_table()
    except BaseException as error:
        # A panic of the engine is not an Exception.
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        raise FilterError(f"{name} cannot be computed: {error!s:.300}") from None
    finally:
        session.deregister_table(table)  # else the session keeps the batch
    return found["x"].combine_chunks()


def _is_literal(constant: Any) -> bool:
    """Whether the package takes a constant as it is: lists only of plain values."""
    kind = constant.type
    if not pa.types.is_nested(kind):
        return True
    plain = pa.types.is_list(kind) and not pa.types.is_nested(kind.value_type)
    return bool(plain and constant.is_valid and not constant.values.null_count)
