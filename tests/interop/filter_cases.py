"""Tables and expressions for the comparison of filters: every type, null, and edge there is."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

NAN, INF = float("nan"), float("inf")
ROWS = 12

VALUES: dict[str, tuple[Any, list[Any]]] = {
    "i8": (pa.int8(), [0, 1, -1, 5, 127, -128]),
    "i16": (pa.int16(), [0, 1, -1, 300, 32767, -32768]),
    "i": (pa.int32(), [0, 1, -1, 7, 2**31 - 1, -(2**31)]),
    "k": (pa.int64(), [0, 1, -1, 2**53 + 1, 2**63 - 1, -(2**63)]),
    "u8": (pa.uint8(), [0, 1, 5, 200, 255]),
    "u16": (pa.uint16(), [0, 1, 65535]),
    "u32": (pa.uint32(), [0, 1, 2**32 - 1]),
    "u": (pa.uint64(), [0, 1, 2**63, 2**64 - 1]),
    "f": (pa.float32(), [0.0, -0.0, 1.5, -1.0, 1.1, NAN, INF, -INF, 3.4e38]),
    "x": (pa.float64(), [0.0, -0.0, 1.5, -1.0, 1.1, NAN, INF, -INF, 1e300, 5e-324]),
    "h": (pa.float16(), [0.0, -0.0, 1.5, -1.0, NAN, INF]),
    "s": (pa.string(), ["", "a", "A", "abc", "a%c", "a_c", "ä", "1", "zz\n", "a\\b"]),
    "ls": (pa.large_string(), ["", "a", "b", "abc"]),
    "b": (pa.bool_(), [True, False]),
    "c": (pa.bool_(), [True, False]),
    "y": (pa.binary(), [b"", b"a", b"\x00", b"\xff"]),
    "fy": (pa.binary(2), [b"ab", b"\x00\x00", b"zz"]),
    "d": (pa.date32(), [dt.date(1970, 1, 1), dt.date(2020, 2, 29), dt.date(1960, 5, 5)]),
    "d64": (pa.date64(), [dt.date(1970, 1, 1), dt.date(2020, 2, 29), dt.date(1960, 5, 5)]),
    "ts": (pa.timestamp("us"), [0, 1, -1, 1_582_934_400_000_000, 1_500_000]),
    "tm": (pa.timestamp("ms"), [0, 1, -1, 1_582_934_400_000]),
    "tn": (pa.timestamp("ns"), [0, 1, -1, 1_582_934_400_000_000_000, 1500]),
    "tz": (pa.timestamp("us", "UTC"), [0, 1, -1, 1_582_934_400_000_000]),
    "t": (pa.time64("us"), [0, 1, 43_200_000_000]),
    "p": (pa.decimal128(10, 2), [Decimal(0), Decimal("1.50"), Decimal("-2.25"), Decimal(1)]),
    "q": (pa.decimal128(5, 1), [Decimal(0), Decimal("1.5"), Decimal("-9.9")]),
    "dic": (pa.dictionary(pa.int8(), pa.string()), ["a", "b", "", "abc"]),
    "l": (pa.list_(pa.int32()), [[], [1], [1, 2], [None], [2, 1]]),
    "m": (pa.struct([("x", pa.int32()), ("s", pa.string())]), [{"x": 1, "s": "a"}, {"x": None}]),
}
"""Columns: type, and values that matter; null is among all of them."""

KINDS: dict[str, list[str]] = {
    "whole": ["i8", "i16", "i", "k", "u8", "u16", "u32", "u", "m.x", "l[1]"],
    "float": ["f", "x", "h"],
    "decimal": ["p", "q"],
    "text": ["s", "ls", "dic", "m.s", "m['s']"],
    "truth": ["b", "c"],
    "bytes": ["y", "fy"],
    "day": ["d", "d64"],
    "time": ["ts", "tm", "tn", "tz"],
}

CONSTANTS: dict[str, list[str]] = {
    "whole": ["0", "1", "-1", "5", "200", "2147483647", "9223372036854775807", "NULL"],
    "float": ["0.0", "-0.0", "1.5", "-1.0", "1.1", "1e300", "NULL"],
    "decimal": ["decimal(5, 2) '1.50'", "decimal(10, 2) '-2.25'", "1", "0", "NULL"],
    "text": ["''", "'a'", '"abc"', "'ä'", "'1'", "NULL"],
    "truth": ["true", "false", "NULL"],
    "bytes": ["x'61'", "x''", "x'6162'", "NULL"],
    "day": ["date '1970-01-01'", "date '2020-02-29'", "NULL"],
    "time": [
        "timestamp '1970-01-01'",
        "timestamp '2020-02-29 00:00:00'",
        "timestamp(3) '1970-01-01 00:00:00.001'",
        "timestamp(9) '1970-01-01 00:00:00.000001500'",
        "NULL",
    ],
}

PATTERNS = ["'a%'", "'%c'", "'%b%'", "'a_c'", "'a\\_c'", "''", "'%'", "'_'", "'A%'", "'ä'", "s"]
COMPARISONS = ["=", "!=", "<>", "<", "<=", ">", ">=", "IS DISTINCT FROM", "IS NOT DISTINCT FROM"]


def table(pick: Callable[[list[Any]], Any]) -> pa.Table:
    """A table of all columns; ``pick`` chooses among values."""
    columns = {
        name: pa.array([pick([*values, None]) for _ in range(ROWS)], kind)
        for name, (kind, values) in VALUES.items()
    }
    return pa.table(columns)


def _of(kind: str) -> st.SearchStrategy[str]:
    """A column or a constant of one kind, or something computed."""
    column = st.sampled_from(KINDS[kind])
    plain = st.one_of(column, column, st.sampled_from(CONSTANTS[kind]))
    if kind in {"whole", "float", "decimal"}:
        computed = st.builds(
            lambda a, op, b: f"({a} {op} {b})", plain, st.sampled_from("+-*/%"), plain
        )
        signed = st.sampled_from(["i8", "i16", "i", "k", "x", "f", "p"])
        return st.one_of(plain, plain, computed, st.builds("-{}".format, signed))
    if kind == "text":
        joined = st.builds(lambda a, b: f"({a} || {b})", column, plain)
        return st.one_of(plain, plain, joined)
    return plain


def _pair() -> st.SearchStrategy[tuple[str, str]]:
    """Two sides of a comparison: mostly of one kind, else of kinds that meet."""
    alike = st.sampled_from(sorted(KINDS)).flatmap(lambda kind: st.tuples(_of(kind), _of(kind)))
    mixed = st.sampled_from(
        [("whole", "float"), ("whole", "decimal"), ("day", "time"), ("decimal", "whole")]
    ).flatmap(lambda kinds: st.tuples(_of(kinds[0]), _of(kinds[1])))
    return st.one_of(alike, alike, alike, mixed)


CASTS = [
    "CAST(i AS {})", "CAST(k AS {})", "CAST(u8 AS {})", "CAST(x AS {})", "CAST(b AS {})",
    "TRY_CAST(s AS {})", "TRY_CAST(k AS {})", "TRY_CAST(x AS {})", "CAST(p AS {})", "i8::{}",
]  # fmt: skip
TYPES = ["tinyint", "int", "bigint", "bigint unsigned", "float", "double", "string"]


def _leaf() -> st.SearchStrategy[str]:
    kind = st.sampled_from(sorted(KINDS))
    compared = st.builds(
        lambda pair, op: f"{pair[0]} {op} {pair[1]}", _pair(), st.sampled_from(COMPARISONS)
    )
    negation = st.sampled_from(["", "NOT "])
    listed = kind.flatmap(
        lambda one: st.builds(
            lambda a, no, items: f"{a} {no}IN ({', '.join(items)})",
            _of(one),
            negation,
            st.lists(st.sampled_from(CONSTANTS[one]), min_size=1, max_size=5),
        )
    )
    between = kind.flatmap(
        lambda one: st.builds(
            lambda a, no, b, c: f"{a} {no}BETWEEN {b} AND {c}",
            _of(one),
            negation,
            _of(one),
            _of(one),
        )
    )
    like = st.builds(
        lambda a, no, word, b: f"{a} {no}{word} {b}",
        st.sampled_from(KINDS["text"]),
        negation,
        st.sampled_from(["LIKE", "ILIKE"]),
        st.sampled_from(PATTERNS),
    )
    null = st.builds(
        lambda a, no: f"{a} IS {no}NULL",
        st.sampled_from([*sorted(VALUES), "m.x", "l[2]"]),
        negation,
    )
    cast = st.builds(
        lambda a, kind, op, b: f"{a.format(kind)} {op} {b}",
        st.sampled_from(CASTS),
        st.sampled_from(TYPES),
        st.sampled_from(COMPARISONS[:7]),
        st.sampled_from(["1", "0", "'1'", "CAST(1 AS bigint)", "-1", "1.5"]),
    )
    truth = st.sampled_from(["b", "c", "NOT b", "true", "false", "b = c", "l = [1, 2]", "l < [2]"])
    return st.one_of(compared, compared, compared, listed, between, like, null, cast, truth)


def expressions() -> st.SearchStrategy[str]:
    """Filters: leaves, joined by AND, OR, NOT and tests of truth."""

    def joined(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
        word = st.sampled_from(["AND", "OR"])
        test = st.sampled_from(["IS TRUE", "IS NOT TRUE", "IS FALSE", "IS NOT FALSE", "IS NULL"])
        return st.one_of(
            st.builds(lambda a, op, b: f"({a}) {op} ({b})", inner, word, inner),
            st.builds("NOT ({})".format, inner),
            st.builds(lambda a, how: f"({a}) {how}", inner, test),
        )

    return st.recursive(_leaf(), joined, max_leaves=4)
