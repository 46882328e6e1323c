"""Texts are parsed to trees, trees render as texts, and other texts are refused."""

from __future__ import annotations

import contextlib
import time
import tracemalloc

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from glaive.errors import FilterError
from glaive.expr import tree
from glaive.expr.parse import parse, render
from glaive.expr.tree import MAX_DEPTH, MAX_JOINED, MAX_TEXT, Literal, Name, Node

A, B, C = (Name((letter,)) for letter in "abc")
ONE = Literal(1, pa.int64())


@pytest.mark.parametrize(
    ("text", "meaning"),
    [
        ("a = 1 or b = 1 and c = 1", "a = 1 or (b = 1 and c = 1)"),
        ("not a = 1", "not (a = 1)"),
        ("not a is null", "not (a is null)"),
        ("a = b is null", "(a = b) is null"),
        ("a + b * c = 1", "(a + (b * c)) = 1"),
        ("a - b - c = 1", "((a - b) - c) = 1"),
        ("-a * b = 1", "(-a) * b = 1"),
        ("a || b = c", "(a || b) = c"),
        ("a << 1 + 1 = 4", "(a << (1 + 1)) = 4"),
        ("a = b = true", "(a = b) = true"),
        ("a between 1 and 2 and b", "(a between 1 and 2) and b"),
        ("a is distinct from b and c", "a is distinct from (b and c)"),
        ("a::int = 1", "(cast(a as int)) = 1"),
        ("-a::int = 1", "(-(a::int)) = 1"),
        ("a like b || '%'", "a like (b || '%')"),
        ("a == 1", "a = 1"),
        ("a <> 1", "a != 1"),
        ("date '2020-01-01' = a", "cast('2020-01-01' as date) = a"),
        ("extract(year from a) = 1", "date_part('year', a) = 1"),
        ("a = 1 -- and b\n and c", "a = 1 and c"),
        ("a /* x /* y */ */ = 1", "a = 1"),
        ('a = "it"', "a = 'it'"),
        ("ARRAY[1, 2] = a", "[1, 2] = a"),
        ("a not null", "a is not null"),
        ("not a not null and b", "(not (a is not null)) and b"),
        ("a = 1 ;; ", "a = 1"),
        ("`f`(a) = 1", "f(a) = 1"),
        ("f(interval '2' day) = 1", "f(interval '2 days') = 1"),
    ],
)
def test_operators_bind_as_in_pylance(text: str, meaning: str) -> None:
    assert parse(text) == parse(meaning)


def test_names_keep_quotes_and_members() -> None:
    assert parse("`My Col`.b.`c.d`") == Name(("My Col", "b", "c.d"), exact=True)
    assert parse("a[1].b") == tree.Member(tree.Subscript(A, ONE), "b")


@pytest.mark.parametrize(
    ("text", "value", "kind"),
    [
        ("9223372036854775807", 2**63 - 1, pa.int64()),
        ("-9223372036854775808", -(2**63), pa.int64()),
        ("9223372036854775808", 2**63, pa.uint64()),
        ("18446744073709551616", 2.0**64, pa.float64()),
        ("1e0", 1.0, pa.float64()),
        (".5", 0.5, pa.float64()),
        ("-0.0", -0.0, pa.float64()),
        ("x'0aFF'", b"\x0a\xff", pa.binary()),
        ("0x1", b"\x01", pa.binary()),
        ("x'0'", b"\x00", pa.binary()),
        ("X'abc'", b"\x0a\xbc", pa.binary()),
        ("'it''s'", "it's", pa.string()),
        ("NULL", None, pa.null()),
    ],
)
def test_constants_have_the_types_of_pylance(text: str, value: object, kind: pa.DataType) -> None:
    assert parse(text) == Literal(value, kind)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "the filter is empty"),
        ("a = ", r"ends where a value is expected \(character 5\)\n  a = \n      \^"),
        ("a = 1)", r"found '\)' \(character 6\)"),
        ("a = 1; b = 2", "the end, found 'b' "),
        ("Order Date > 1", "found 'Date'; .* a name with spaces as `Order Date`"),
        ("a = 'x", "a string is not closed: end it with '"),
        ("a = 1 /* x", "comment is not closed"),
        ("a in ()", "IN needs a value"),
        ("a in (select 1)", "subquery is not a filter"),
        ("exists (select 1)", "subquery is not a filter"),
        ("case when a then b end", "CASE is not a filter"),
        ("count(*) > 1", "is an aggregate; compute it in SQL"),
        ("row_number() over () = 1", "window function"),
        ("a ~ 'x'", "call regexp_like"),
        ("a <=> 1", "write IS NOT DISTINCT FROM"),
        ("a notnull", "write IS NOT NULL"),
        ("a = ?", "no parameters"),
        ("(a, b) = (1, 2)", "a tuple is not a filter"),
        ("cast(a as foo)", "unknown type 'foo'. Types: boolean"),
        ("cast(a as decimal)", r"decimal needs digits and scale: decimal\(10, 2\)"),
        ("cast(a as timestamp(4))", "0, 3, 6 or 9 digits"),
        ("cast(a as timestamp with time zone)", "no timestamps with a time zone"),
        ("interval '1 day' = a", "interval can only be an argument of a function"),
        ("f(interval '1 dog')", "Invalid input syntax for type interval"),
        ("a and and b", "in back-ticks"),
        ("a like 'x' escape 'yy'", "ESCAPE takes one character"),
        ("a[1:2] = b", "array_slice"),
        ("a = 1\n  and b = =", r"line 2, 11"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(text: str, says: str) -> None:
    with pytest.raises(FilterError, match=says):
        parse(text)


@pytest.mark.parametrize(
    "text",
    [
        "(" * 20_000 + "a",
        "not " * 20_000 + "a",
        "- " * 20_000 + "a",
        "a" + "[1]" * 20_000,
        "a" + " + a" * 20_000,
        "a" + "::int" * 20_000,
        "f(" * 20_000,
        "[" * 20_000,
        "a." * 20_000 + "a",
        "a is distinct from " * 20_000 + "a",
        "a like " * 20_000 + "a",
        "a between " * 10_000,
        "a = 1" + " is null" * 10_000,
        "/*" * 20_000,
        "'" * 19_999,
        "9" * 20_000 + "." + "9" * 20_000,
    ],
    ids=lambda text: text[:12],
)
def test_the_deepest_texts_end_soon(text: str) -> None:
    started = time.process_time()
    with contextlib.suppress(FilterError):
        parse(text)
    assert time.process_time() - started < 5


def test_limits_are_said() -> None:
    with pytest.raises(FilterError, match=f"nested deeper than {MAX_DEPTH} levels"):
        parse("(" * (MAX_DEPTH + 1) + "a" + ")" * (MAX_DEPTH + 1))
    with pytest.raises(FilterError, match=f"at most {MAX_TEXT}"):
        parse(" " * (MAX_TEXT + 1))
    with pytest.raises(FilterError, match="more than 250000 names"):
        parse("a in (" + "1," * 250_001 + "1)")


def test_long_chains_are_no_deep_ones() -> None:
    whole = parse(" and ".join(f"a != {i}" for i in range(20_000)))
    assert isinstance(whole, tree.And)
    assert len(whole.operands) == 20_000
    nested = "(" * (MAX_DEPTH - 1) + "a" + ")" * (MAX_DEPTH - 1)
    assert parse(nested) == A


@given(text=st.text(max_size=60))
def test_any_text_is_a_tree_or_an_error(text: str) -> None:
    with contextlib.suppress(FilterError):
        parse(text)


WORDS = st.sampled_from(
    [
        "a",
        "b",
        "`x",
        "y`",
        "1",
        "2.5",
        "'it'",
        "x'00'",
        "(",
        ")",
        "[",
        "]",
        ",",
        ".",
        "::",
        "=",
        "<",
        ">=",
        "<>",
        "+",
        "-",
        "*",
        "/",
        "%",
        "||",
        "<<",
        "and",
        "or",
        "not",
        "in",
        "is",
        "null",
        "true",
        "between",
        "like",
        "ilike",
        "escape",
        "cast",
        "try_cast",
        "as",
        "int",
        "decimal(5,2)",
        "date",
        "timestamp",
        "array",
        "distinct",
        "from",
        "extract",
        "case",
        "select",
        "f(",
        "'",
        '"',
        "`",
        "/*",
        "--",
        ";",
        "~",
        "?",
        "e1",
        "ä",
        "\n",
        "\x00",
    ]
)


@given(words=st.lists(WORDS, max_size=30), space=st.sampled_from(["", " "]))
def test_any_words_are_a_tree_or_an_error(words: list[str], space: str) -> None:
    text = space.join(words)
    try:
        parsed = parse(text)
    except FilterError:
        return
    assert parse(render(parsed)) == parsed


# ------------------------------------------------------------------------- there and back

NAMES = st.one_of(
    st.sampled_from(["a", "B", "my col", "not", "select", "ä", "a.b", "tick`ed", "1x", "array"])
)
LITERALS = st.one_of(
    st.integers(-(2**63), 2**64 - 1).map(
        lambda n: Literal(n, pa.int64() if n < 2**63 else pa.uint64())
    ),
    st.floats(allow_nan=False, allow_infinity=False).map(lambda x: Literal(x, pa.float64())),
    st.text(max_size=8).map(lambda s: Literal(s, pa.string())),
    st.binary(max_size=4).map(lambda y: Literal(y, pa.binary())),
    st.sampled_from([Literal(None, pa.null()), Literal(True, pa.bool_())]),
)
TYPES = st.sampled_from(
    [pa.int8(), pa.uint64(), pa.float32(), pa.string(), pa.date32(), pa.timestamp("ns"),
     pa.timestamp("s"), pa.decimal128(10, 2), pa.decimal256(50, -3)]
)  # fmt: skip


def _name(parts: list[str], exact: bool) -> Name:
    return Name(tuple(parts), exact or not parts[0].isidentifier() or parts[0] in RESERVED)


RESERVED = {"not", "select", "array"}


def _grown(inner: st.SearchStrategy[Node]) -> st.SearchStrategy[Node]:
    flag = st.booleans()
    many = st.lists(inner, min_size=2, max_size=3)
    return st.one_of(
        st.builds(tree.Compare, st.sampled_from(["=", "<", "IS DISTINCT FROM"]), inner, inner),
        st.builds(tree.Arithmetic, st.sampled_from(["+", "-", "*", "||", "<<"]), inner, inner),
        st.builds(tree.Negative, inner),
        many.map(lambda some: tree.both(*some)),
        many.map(lambda some: tree.either(*some)),
        st.builds(tree.Not, inner),
        st.builds(tree.IsNull, inner, flag),
        st.builds(tree.IsTruth, inner, st.sampled_from([True, False, None]), flag),
        st.builds(tree.InList, inner, many.map(tuple), flag),
        st.builds(tree.Between, inner, inner, inner, flag),
        st.builds(tree.Like, inner, inner, st.sampled_from(["\\", "!", "'"]), flag, flag),
        st.builds(tree.Cast, inner, TYPES, flag),
        st.builds(tree.Call, st.sampled_from(["abs", "my_f"]), many.map(tuple)),
        st.builds(tree.Subscript, inner, inner),
        st.builds(tree.Member, inner.filter(lambda node: not isinstance(node, Name)), NAMES),
        st.builds(tree.ListOf, many.map(tuple)),
    )


TREES = st.recursive(
    st.one_of(LITERALS, st.builds(_name, st.lists(NAMES, min_size=1, max_size=3), st.booleans())),
    _grown,
    max_leaves=8,
)


@given(node=TREES)
def test_what_is_written_reads_as_the_same(node: Node) -> None:
    text = render(node)
    assert parse(text) == node, text
    assert render(parse(text)) == text


@pytest.mark.spec("rel-25", "sec-13")
@pytest.mark.parametrize("opening", ["(", "[", "not ", "a = - ", "abs(", "a = 1 and (", "a."])
def test_a_text_that_is_nested_too_deeply_is_refused(opening: str) -> None:
    with pytest.raises(FilterError, match=r"more than (128 parts|20000 words)|deeper than"):
        parse(opening * 25_000)


@pytest.mark.spec("rel-25")
@pytest.mark.parametrize("word", [" and ", " OR "])
def test_a_text_that_joins_too_many_tests_is_refused(word: str) -> None:
    with pytest.raises(FilterError, match=f"more than {MAX_JOINED} words AND and OR"):
        parse(word.join(["a = 1"] * 25_000))
    assert isinstance(parse(f"a in ('{word}', '{word * MAX_JOINED}')"), tree.InList)
    assert parse(f"`{word * MAX_JOINED}` -- {word * MAX_JOINED}") == Name(
        (word * MAX_JOINED,), exact=True
    )


@pytest.mark.spec("rel-25")
@pytest.mark.parametrize("part", ["x", "''"])
def test_a_long_constant_takes_a_few_times_its_own_memory(part: str) -> None:
    text = "a = '" + part * 1_000_000 + "'"
    parse("a = 'x'")  # what is imported once
    tracemalloc.start()
    try:
        parse(text)
        assert tracemalloc.get_traced_memory()[1] < 8 * len(text)
    finally:
        tracemalloc.stop()


def test_a_long_text_has_the_tree_of_its_tokens_wherever_they_were_split_off() -> None:
    terms = [f"key = {number}" for number in range(2000)]
    for before in range(4):
        text = "(" * before + " or ".join(terms) + ")" * before
        assert parse(text) == parse(" or ".join(terms) + "  ")
        with pytest.raises(FilterError, match="ends where a value is expected"):
            parse(text + " or")
