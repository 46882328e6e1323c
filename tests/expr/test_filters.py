"""Filters bound to a schema: names, types, terms, rows and errors."""

from __future__ import annotations

import contextlib
import pickle
import subprocess
import sys
import time
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from glaive.arrow.conditions import InRange, IsNull, IsOneOf
from glaive.errors import ColumnNotFoundError, FilterColumnError, FilterError, OptionError
from glaive.expr import tree
from glaive.expr.filters import Filter, bind_filter, bind_value, merged
from glaive.format.fields import LanceSchema

BATCH = pa.record_batch(
    {
        "a": pa.array([1, 2, 3, None], pa.int32()),
        "x": pa.array([-0.0, 0.0, float("nan"), None]),
        "s": ["apple", "b%", "Äpfel", None],
        "b": [True, False, None, True],
        "Mixed": pa.array([1, 2, 3, 4], pa.int8()),
        "my col": pa.array([1, 2, 3, 4]),
        "p.q": pa.array([1, 2, 3, 4]),
        "m": [{"x": 1, "y": {"z": "q"}}, None, {"x": None, "y": None}, {"x": 4, "y": {"z": "r"}}],
        "l": [[1, 2], [], None, [None, 5]],
        "dic": pa.array(["u", "v", None, "u"]).dictionary_encode(),
        "p": pa.array(
            [Decimal("1.50"), Decimal("-2.25"), None, Decimal("0.00")], pa.decimal128(10, 2)
        ),
        "ts": pa.array([0, 10**15, None, -1], pa.timestamp("us")),
    }
)
SCHEMA = LanceSchema.from_arrow(BATCH.schema)
SYSTEM: dict[str, pa.DataType] = {"_rowid": pa.uint64()}


def bound(text: Any) -> Filter:
    return bind_filter(text, SCHEMA, system=SYSTEM)


def rows(text: Any) -> list[int]:
    return [row for row, passes in enumerate(bound(text).mask(BATCH).to_pylist()) if passes]


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("a > 1", [1, 2]),
        ("mixed = 2", [1]),
        ("`my col` = 2", [1]),
        ("`p.q` = 3", [2]),
        ("m.x = 1", [0]),
        ("m['y'].z = 'q'", [0]),
        ("m is null", [1]),
        ("l[1] = 1", [0]),
        ("l[-1] = 5", [3]),
        ("l[0] is null", [0, 1, 2, 3]),
        ("l = [1, 2]", [0]),
        ("dic = 'u'", [0, 3]),
        ("dic in ('v', 'w')", [1]),
        ("x < 0.0", []),
        ("x = 0.0", [0, 1]),
        ("x >= 0", [0, 1, 2]),
        ("x > 1e300", [2]),
        ("x + 0.0 != 0.0", [2]),
        ("s like '%p%'", [0, 2]),
        ("s like '_pfel'", [2]),
        ("s like 'b!%' escape '!'", [1]),
        ("s ilike 'äPFEL'", [2]),
        ("s || 'x' = 'applex'", [0]),
        ("b", [0, 3]),
        ("not b", [1]),
        ("b is not true", [1, 2]),
        ("b is unknown", [2]),
        ("a in (1, null)", [0]),
        ("a not in (1, null)", []),
        ("not (a = 1 and b)", [1, 2]),
        ("a between 2 and 3", [1, 2]),
        ("a is distinct from 1", [1, 2, 3]),
        ("p = cast(1.5 as decimal(5, 1))", [0]),
        ("p > 0", [0]),
        ("ts = timestamp '1970-01-01 00:00:00'", [0]),
        ("ts < date '1970-01-01'", [3]),
        ("a / 2 = 1", [1, 2]),
        ("-a % 2 = -1", [0, 2]),
        ("a != 2 and 10 / (a - 2) > 0", [2]),
        ("10 / (a - 2) > 0 and a != 2", [2]),
        ("null", None),
        ("true", [0, 1, 2, 3]),
    ],
)
def test_rows_that_pass(text: str, kept: list[int] | None) -> None:
    if kept is None:
        assert bound(f"{text} and a = 1").never
    else:
        assert rows(text) == kept


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("aa = 1", r"No field named aa; did you mean 'a'\? Columns: a, x, .* \(character 1\)"),
        ("b and m.u = 1", r"No field named u. Members: x, y \(character 7\)"),
        ("uper(s) = 'A'", r"unknown function 'uper'; did you mean 'upper'"),
        ("`mixed` = 1", "No field named mixed; did you mean 'Mixed'"),
        (
            "a > 2.5",
            r"constant 2.5 of type double does not fit the column's type int.*\n.*\n {6}\^",
        ),
        ("s > 1", "constant 1 of type bigint does not fit the column's type string"),
        ("ts < '2024-06-01'", "timestamp.*; write timestamp '2024-06-01'"),
        ("mixed > 200", "does not fit the column's type tinyint"),
        ("b = a", "boolean and int cannot be compared"),
        ("s + 1 = 2", r"\+ is not defined for string and bigint"),
        ("a and b", "expected a boolean, found int"),
        ("a", "does not return a boolean: its value is int"),
        ("sum(a) > 1", "sum is an aggregate; compute it in SQL"),
        ("a like 'x'", "LIKE compares strings, not int and string"),
        ("a[1] = 1", "int has no elements"),
        ("s.x = 1", "string has no members"),
        ("l['x'] = 1", "subscripted by an integer, not string"),
        ("-s = 's'", "minus needs a signed number"),
        ("a = cast('x' as int)", "cast to int: 'x' is not of type int32$"),
        ("date '2025-13-01' > date '2025-01-01'", "'2025-13-01' is not of type date32.day.$"),
        ("a > 1 && b", "found '&'; write AND"),
        ("a > 1 | b", "found '|'; write OR"),
        ("a > 1 || b", "bigint and boolean; it joins strings; write OR"),
        ("!b", "found '!'; write NOT"),
        ("[1, 'a'] = l", "a list cannot hold both bigint and string"),
        ("[a] = l", "list items must be constants"),
    ],
)
def test_what_does_not_fit_is_said(text: str, says: str) -> None:
    with pytest.raises(FilterError, match=says):
        bound(text)


def test_an_unknown_column_is_also_a_missing_one() -> None:
    with pytest.raises(FilterColumnError, match="did you mean 'a'") as caught:
        bound("aa = 1")
    assert isinstance(caught.value, ColumnNotFoundError)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("10 / (a - 2) > 0", "division by zero"),
        ("cast(s as int) = 1", "'apple' is not of type int32"),
        ("cast(x as int) = 1", "nan is not of type int32"),
    ],
)
def test_what_cannot_be_computed_is_said(text: str, says: str) -> None:
    with pytest.raises(FilterError, match=says):
        rows(text)


@pytest.mark.parametrize(
    ("text", "conditions"),
    [
        ("a = 1", [("a", IsOneOf)]),
        ("a > 1 and a <= 3", [("a", InRange)]),
        ("a between 1 and 3 and x < 0.0", [("a", InRange), ("x", InRange)]),
        ("not a > 200000", [("a", InRange)]),
        ("a = 1 or a in (2, 3)", [("a", IsOneOf)]),
        ("not (a = 1 or s is null)", [("a", IsOneOf), ("s", IsNull)]),
        ("m.x is not null and not b", [("m.x", IsNull), ("b", IsOneOf)]),
        ("dic = 'u'", [("dic", IsOneOf)]),
        ("p > 1", [("p", InRange)]),
        ("cast(a as bigint) < 5", [("a", InRange)]),
        ("1 < a", [("a", InRange)]),
        ("_rowid in (1, 2)", [("_rowid", IsOneOf)]),
        ("a = 1 or b", [None]),
        ("a + 1 = 2", [None]),
        ("l = [1]", [None]),
        ("1 + 1 = 2", []),
    ],
)
def test_tests_on_one_column_are_recognised(text: str, conditions: list[Any]) -> None:
    conditions_found = [term.condition for term in bound(text).terms]
    assert [
        condition and (condition[0], type(condition[1])) for condition in conditions_found
    ] == conditions


def test_a_range_has_both_bounds() -> None:
    (term,) = bound("a >= 1 and a < 3").terms
    assert term.condition is not None
    assert term.condition[1] == InRange(
        low=pa.scalar(1, pa.int32()), high=pa.scalar(3, pa.int32()), high_included=False
    )


def test_bounds_are_paired_in_the_order_of_the_text() -> None:
    text = "a > 1 and x < 5.0 and a > 2 and a < 9 and x > 1.0 and a < 8 and a < 7"
    conditions: list[Any] = [term.condition for term in bound(text).terms]
    ranges = [(path, _value(one.low), _value(one.high)) for path, one in conditions]
    assert ranges == [("a", 1, 9), ("x", 1.0, 5.0), ("a", 2, 8), ("a", None, 7)]


def _value(bound: Any) -> Any:
    return None if bound is None else bound.as_py()


@pytest.mark.spec("rel-25")
def test_many_bounds_of_one_column_take_little_time() -> None:
    least = InRange(low=pa.scalar(1, pa.int32()))
    tests = [(tree.Literal(True, pa.bool_()), ("a", least))] * 20_000
    started = time.process_time()
    assert merged(tests) == tests
    assert time.process_time() - started < 5, "minutes, were they compared with each other"


def test_tests_without_a_condition_come_last() -> None:
    conditions = [term.condition for term in bound("10 / a > 1 and a != 0").terms]
    assert conditions[0] is not None
    assert conditions[1] is None


def test_columns_are_named_once_in_order() -> None:
    assert bound("m.x = 1 and a = 1 and m.x < 5").columns == ("m.x", "a")


def test_members_are_taken_from_their_own_column_too() -> None:
    batch = pa.record_batch({"m.x": pa.array([1, 2], pa.int64())})
    assert bound("m.x = 2").mask(batch).to_pylist() == [False, True]


def test_an_empty_batch_has_no_rows() -> None:
    for text in ("a = 1", "a + 1 = 2 and l[1] = 1", "s like 'a%' or 1 / a = 1"):
        assert len(bound(text).mask(BATCH.slice(0, 0))) == 0


def test_slices_are_read_where_they_stand() -> None:
    for text in ("x = 0.0", "l[1] = 1 or l = [null, 5]", "b or dic = 'v'", "p / 2 > 0"):
        whole = bound(text).mask(BATCH).to_pylist()
        assert bound(text).mask(BATCH.slice(1, 2)).to_pylist() == whole[1:3]


def test_text_binds_to_the_same() -> None:
    bound_filter = bound("`my col`=1 AND NOT(s LIKE 'a!_%' ESCAPE '!')")
    assert bound_filter.text == "`my col` = 1 AND NOT s LIKE 'a!_%' ESCAPE '!'"
    assert bound(bound_filter.text).expression == bound_filter.expression


def test_filters_travel() -> None:
    bound_filter = bound("a between 1 and 2 and p > 1 and s like 'a%' and l = [1]")
    again = pickle.loads(pickle.dumps(bound_filter))
    assert again == bound_filter
    assert again.mask(BATCH).equals(bound_filter.mask(BATCH))


def test_values_of_any_type() -> None:
    doubled = bind_value("a * 2 + 1", SCHEMA)
    assert (doubled.type, doubled.columns) == (pa.int64(), ("a",))
    assert doubled.evaluate(BATCH).to_pylist() == [3, 5, 7, None]
    assert bind_value("'k'", SCHEMA).evaluate(BATCH).to_pylist() == ["k"] * 4
    above = bind_value("CAST(a AS double) > 2.5", SCHEMA)
    assert above.evaluate(BATCH).to_pylist() == [False, False, True, None]
    assert bind_value("array_length([a, 1])", SCHEMA).evaluate(BATCH).to_pylist() == [2] * 4
    assert bind_value("dic", SCHEMA).evaluate(BATCH).to_pylist() == ["u", "v", None, "u"]


def test_decimals_are_exact() -> None:
    value = bind_value("p * p - p / 3", SCHEMA)
    assert value.evaluate(BATCH).to_pylist()[0] == Decimal("1.750000")


def test_whole_numbers_wrap_around() -> None:
    batch = pa.record_batch({"k": pa.array([2**63 - 1], pa.int64())})
    schema = LanceSchema.from_arrow(batch.schema)
    assert bind_value("k + 1", schema).evaluate(batch).to_pylist() == [-(2**63)]


def test_floats_are_in_total_order() -> None:
    batch = pa.record_batch({"y": np.array([1.0, np.nan, -0.0, np.inf])})
    schema = LanceSchema.from_arrow(batch.schema)
    assert bind_value("y = y", schema).evaluate(batch).to_pylist() == [True] * 4
    assert bind_value("y > 1e308", schema).evaluate(batch).to_pylist() == [False, True, False, True]


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("v = 'a'", [0]),
        ("v in ('b', 'c')", [1]),
        ("v || 'x' like 'ax'", [0]),
        ("upper(v) = 'B'", [1]),
        ("y > x'61'", [2]),
        ("h + h > 3", [2]),
        ("h in (1.5, 3)", [0]),
        ("cast(h as string) = '1.5'", [0]),
        ("w[2] = 4", [2]),
        ("w = [1, 2]", [0]),
        ("not w = [1.0, 2.0]", [2]),
        ("w < [2.0, 0.0]", [0]),
    ],
)
def test_views_halves_and_vectors(text: str, kept: list[int]) -> None:
    batch = pa.record_batch(
        {
            "v": pa.array(["a", "b", None], pa.string_view()),
            "y": pa.array([b"a", None, b"c"], pa.binary_view()),
            "h": pa.array([1.5, None, 2.5], pa.float16()),
            "w": pa.array([[1.0, 2.0], None, [3.0, 4.0]], pa.list_(pa.float32(), 2)),
        }
    )
    bound_filter = bind_filter(text, LanceSchema.from_arrow(batch.schema))
    assert [
        row for row, passes in enumerate(bound_filter.mask(batch).to_pylist()) if passes
    ] == kept
    assert bound_filter.mask(batch.slice(1)).to_pylist() == bound_filter.mask(batch).to_pylist()[1:]
    assert len(bound_filter.mask(batch.slice(0, 0))) == 0


def test_halves_are_compared_with_infinity_and_nan() -> None:
    values = [1.0, np.inf, None, np.nan, -np.inf]
    batch = pa.record_batch({"h": pa.array(values, pa.float16())})
    schema, half = LanceSchema.from_arrow(batch.schema), pc.field("h")
    for expression, kept in (
        (half == pa.scalar(np.inf, pa.float16()), [1]),
        (half == pa.scalar(np.nan, pa.float16()), [3]),
        (half < np.inf, [0, 4]),
        (half.isin(pa.array([-np.inf, np.nan], pa.float16())), [3, 4]),
        (pc.is_inf(half), [1, 4]),
        (pc.is_finite(half), [0]),
    ):
        mask = bind_filter(expression, schema).mask(batch)
        assert [row for row, passes in enumerate(mask.to_pylist()) if passes] == kept
    with pytest.raises(FilterError, match="does not fit"):
        bind_filter("h < 65520.0", schema)


# ------------------------------------------------------------------------ pyarrow, Substrait


@pytest.mark.parametrize(
    ("expression", "kept"),
    [
        (pc.field("a") > 1, [1, 2]),
        ((pc.field("a") == 1) | ~(pc.field("b") == False), [0, 3]),  # noqa: E712  # an expression
        (pc.field("a").isin([1, 3]), [0, 2]),
        (~pc.field("a").isin([1, 3]), [1]),
        (pc.field("a").is_null(), [3]),
        (pc.Expression._call("is_null", [pc.field("a")]), [3]),  # noqa: SLF001  # without options
        (pc.field("x").is_null(nan_is_null=True), [2, 3]),
        (pc.field("m", "x") == 4, [3]),
        (pc.field("a").cast("float64") > 1.5, [1, 2]),
        (pc.match_like(pc.field("s"), "%p%"), [0, 2]),
        (pc.starts_with(pc.field("s"), "b%"), [1]),
        (pc.match_substring(pc.field("s"), "%"), [1]),
        (pc.if_else(pc.field("b"), pc.field("a") == 1, pc.field("a") == 2), [0, 1]),
        (pc.list_element(pc.field("l"), 0) == 1, [0]),
        (pc.field("p") > pa.scalar(Decimal("1.2")), [0]),
        (pc.field("ts") > pa.scalar(0, pa.timestamp("ms")), [1]),
        (pc.scalar(True), [0, 1, 2, 3]),  # a value
    ],
    ids=str,
)
def test_expressions_of_pyarrow(expression: pc.Expression, kept: list[int]) -> None:
    assert rows(expression) == kept


@pytest.mark.parametrize(
    "expression",
    [
        pc.field("a").isin([True, None]),
        ~pc.field("a").isin([True, None]),
        pc.field("s").isin(pa.array([None], pa.string())),
        ~pc.field("s").isin(pa.array([None], pa.string())),
        pc.field("s").isin([None, "A", None]) | pc.field("a"),
        pc.is_in(pc.field("a"), pa.array([True, None]), skip_nulls=True),
        pc.xor(pc.field("a"), pc.field("b")),
        ~pc.xor(pc.field("a"), pc.field("b")),
        pc.ascii_lower(pc.field("s")) == "éa",
        pc.ascii_upper(pc.field("s")) == "ÉA",
        pc.utf8_lower(pc.field("s")) == "éa",
        pc.utf8_trim_whitespace(pc.field("t")) == "a b",
        pc.utf8_ltrim_whitespace(pc.field("t")) == "a b\n",
        pc.utf8_rtrim_whitespace(pc.field("t")) == "\u2003a b",
    ],
    ids=str,
)
def test_expressions_select_the_rows_that_arrow_selects(expression: pc.Expression) -> None:
    truths = [True, False, None]
    table = pa.table(
        {
            "a": truths * 3,
            "b": [truth for truth in truths for _ in truths],
            "s": ["ÉA", "éa", "Éa", "éA", None, "", "A", "é", "ÉÀ"],
            "t": [
                "a b",
                " a b",
                "\ta b\n",
                "\u2003a b\x1f",
                None,
                "",
                "ab",
                "\u3000a b\n",
                "\u200ba b",
            ],
            "row": range(9),
        }
    )
    (batch,) = table.to_batches()
    mask = bind_filter(expression, LanceSchema.from_arrow(batch.schema)).mask(batch)
    assert table.filter(mask).equals(table.filter(expression))


def test_spaces_are_those_of_arrow() -> None:
    letters = [chr(code) for code in range(0x10000) if not 0xD800 <= code < 0xE000]
    (batch,) = pa.table({"s": [f"a{letter}" for letter in letters]}).to_batches()
    expression = pc.utf8_rtrim_whitespace(pc.field("s")) == "a"
    mask = bind_filter(expression, LanceSchema.from_arrow(batch.schema)).mask(batch)
    assert batch.filter(mask).equals(
        pa.Table.from_batches([batch]).filter(expression).to_batches()[0]
    )


@pytest.mark.parametrize(
    "constant",
    [
        pa.scalar(b"0123456789abcdef", pa.uuid()),
        pa.array(["a"]).dictionary_encode()[0],
        pa.scalar([("a", 1)], pa.map_(pa.string(), pa.int64())),
        pa.scalar({"x": 1}),
    ],
    ids=lambda constant: str(constant.type)[:6],
)
def test_what_is_no_list_is_not_compared_with_lists(constant: pa.Scalar) -> None:
    schema = LanceSchema.from_arrow(pa.schema([("l", pa.list_(pa.int64()))]))
    for expression in (pc.field("l") == constant, pc.scalar(constant) < pc.field("l")):
        with pytest.raises(FilterError, match=r"does not fit the column's type|cannot be compared"):
            bind_filter(expression, schema)


@pytest.mark.parametrize("index", [-1, -2, pa.scalar(2**64 - 1, pa.uint64()), True])
def test_items_of_lists_have_numbers_from_0(index: Any) -> None:
    schema = LanceSchema.from_arrow(pa.schema([("l", pa.list_(pa.int64()))]))
    first = bind_filter(pc.list_element(pc.field("l"), 0) == 7, schema)
    assert first.mask(pa.record_batch({"l": [[7, 1], [1, 7], [], None]})).to_pylist() == [
        True, False, False, False,
    ]  # fmt: skip
    with pytest.raises(FilterError, match="list_element: expected the number of an item, from 0"):
        bind_filter(pc.list_element(pc.field("l"), pc.scalar(index)) == 7, schema)


def test_long_expressions_of_pyarrow_are_quick() -> None:
    long = pc.field("a") != -1
    for i in range(2000):
        long &= pc.field("a") != -i
    assert rows(long) == [0, 1, 2]


def test_deep_expressions_of_pyarrow_are_refused() -> None:
    deep = pc.field("a")
    for _ in range(500):
        deep += 1
    with pytest.raises(FilterError, match="nested deeper than 128"):
        bound(deep > 1)


def test_functions_that_are_none_of_filters_are_named() -> None:
    with pytest.raises(FilterError, match="'round' with RoundOptions"):
        bound(pc.round(pc.field("x"), ndigits=1) == 1.0)


def test_substrait_bytes() -> None:
    schema = pa.schema(
        [("a", pa.int32()), ("m", pa.struct([("x", pa.int64())])), ("s", pa.string())]
    )
    wanted = (pc.field("a") > pa.scalar(1, pa.int32())) & (pc.field("s") != "Äpfel")
    assert rows(bytes(wanted.to_substrait(schema))) == [1]
    assert rows(bytes((pc.field("m", "x") == 4).to_substrait(schema))) == [3]
    assert rows(bytes(pc.field("s").isin(["b%"]).to_substrait(schema))) == [1]


def test_damaged_substrait_is_an_error() -> None:
    schema = pa.schema([("a", pa.int32())])
    good = bytes((pc.field("a") == pa.scalar(1, pa.int32())).to_substrait(schema))
    for at in range(len(good)):
        for damaged in (good[:at], good[:at] + bytes([good[at] ^ 0x55]) + good[at + 1 :]):
            with contextlib.suppress(FilterError):
                rows(damaged)


def test_other_things_are_no_filters() -> None:
    with pytest.raises(OptionError, match=r"filter: expected a string, .* found 5"):
        bound(5)


def test_text_filters_load_neither_numba_nor_a_parser() -> None:
    code = (
        "import sys, pyarrow as pa\n"
        "from glaive.expr.filters import bind_filter\n"
        "from glaive.format.fields import LanceSchema\n"
        "schema = LanceSchema.from_arrow(pa.schema([('a', pa.int64())]))\n"
        "bind_filter('a > 1', schema).mask(pa.record_batch({'a': [1, 2]}))\n"
        "assert not {'numba', 'sqlglot', 'pyspark'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
