"""Columns of every plain type, constants, and the expressions in which they meet."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pyarrow as pa

NAN = float("nan")
TIMES = [0, 1, None, 5, 20_000]
TEXTS = ["1", "a", None, "", "zz"]


def _integers(bits: int, *, signed: bool) -> pa.Array:
    last = 1 << (bits - signed)
    values = [1, 7, None, last - 1, -last if signed else 0]
    return pa.array(values, getattr(pa, f"{'' if signed else 'u'}int{bits}")())


def _decimals(precision: int, scale: int, values: tuple[str, ...]) -> pa.Array:
    found = [Decimal(values[0]), Decimal(values[1]), None, *map(Decimal, values[2:])]
    return pa.array(found, pa.decimal128(precision, scale))


COLUMNS: dict[str, Any] = {
    **{f"i{bits}": _integers(bits, signed=True) for bits in (8, 16, 32, 64)},
    **{f"u{bits}": _integers(bits, signed=False) for bits in (8, 16, 32, 64)},
    **{
        f"f{bits}": pa.array([1.0, 2.5, None, -0.0, NAN], kind)
        for bits, kind in ((16, pa.float16()), (32, pa.float32()), (64, pa.float64()))
    },
    "p": _decimals(10, 2, ("1", "2.50", "-99999999.99", "0")),
    "p0": _decimals(5, 0, ("1", "2", "-99999", "0")),
    "p38": _decimals(38, 10, ("1", "2", "-99999", "0")),
    "d": pa.array([0, 1, None, -5, 20_000], pa.int32()).cast(pa.date32()),
    "d64": pa.array([0, 1, None, -5, 20_000], pa.int32()).cast(pa.date32()).cast(pa.date64()),
    "ts": pa.array(TIMES, pa.timestamp("us")),
    "tz": pa.array([0, 1, None, -5, 20_000], pa.timestamp("ms", "UTC")),
    "dur": pa.array([0, 1, None, -5, 20_000], pa.duration("us")),
    "t": pa.array(TIMES, pa.time64("us")),
    "s": pa.array(TEXTS),
    "ls": pa.array(TEXTS, pa.large_string()),
    "dic": pa.array(TEXTS).dictionary_encode(),
    "b": pa.array([True, False, None, True, False]),
    "y": pa.array([b"1", b"a", None, b"", b"zz"]),
    "l": pa.array([[1], [2, 3], None, [], [None]], pa.list_(pa.int32())),
}

CONSTANTS = [
    "1",
    "-1",
    "300",
    "3000000000",
    "9223372036854775808",
    "1.5",
    "'1'",
    "'a'",
    "NULL",
    "true",
    "date '1970-01-02'",
    "decimal(4,1) '1.5'",
]

OPERATORS = ["+", "-", "*", "/", "%", "=", "<", "IS DISTINCT FROM", "||", "<<"]

WITH_A_CONSTANT = [
    *[f"{{c}} {op} {{k}}" for op in OPERATORS],
    *[f"{{k}} {op} {{c}}" for op in ("-", "/", "<", ">>")],
    "{c} BETWEEN {k} AND {k}",
    "{c} NOT IN ({k}, NULL)",
    *[f"{name}({{c}}, {{k}})" for name in ("coalesce", "nullif", "greatest", "nvl")],
    "coalesce({k}, {c})",
    "nvl2({c}, {k}, {c})",
]

ALONE = [
    "-{c}",
    "NOT {c}",
    "-{c} + 1",
    "abs({c})",
    "lower({c})",
    "{c} + 1 + 1",
    "1 + {c} + 1",
    "({c} + 1) * 2",
    "2 * {c} + 1",
    "{c} + (1 - 2) * 3",
    "{c} * 2 > 3",
    "NOT {c} > 2.5",
    "{c} > 1 AND {c} < 2.5",
    "({c} + 1) BETWEEN 1 AND 2",
    "{c} BETWEEN 1 AND {c} + 1",
    "{c} IN (1, {c} + 1)",
    "abs({c} + 1)",
    "{c} + CAST(1 AS bigint)",
    "coalesce({c} + 1, 2)",
    "({c} > 2.5) IS TRUE",
    "greatest({c}, 1, 2)",
    "{c} || 'a' || 'b'",
    "lower({c}) || 'x'",
    "{c} LIKE 'a%'",
    "CAST({c} AS string)",
    "{c}",
]

WITH_A_COLUMN = [
    *[f"{{c}} {op} {{k}}" for op in ("+", "-", "*", "/", "=", "<", "||", "<<")],
    *[f"{name}({{c}}, {{k}})" for name in ("coalesce", "nullif", "greatest", "nvl")],
    "nvl2({c}, {k}, {c})",
]


def table() -> pa.Table:
    """All columns, five rows each, and one that is never null."""
    return pa.table({"row": pa.array(range(5)), **COLUMNS})


def beside_constants(column: str) -> Iterator[str]:
    """Expressions of one column and constants."""
    for form in ALONE:
        yield form.format(c=column)
    for constant in CONSTANTS:
        for form in WITH_A_CONSTANT:
            yield form.format(c=column, k=constant)


def beside_columns(column: str) -> Iterator[str]:
    """Expressions of two columns."""
    for other in COLUMNS:
        for form in WITH_A_COLUMN:
            yield form.format(c=column, k=other)
