"""Parts of texts of any length: found in blocks, and never as a list of all parts or letters."""

from __future__ import annotations

import tracemalloc
from typing import Any

import pyarrow as pa
import pytest
from tests.expr.functions.calls import evaluate

_BLOCK = 1 << 21
"""Bytes whose letters have positions at a time; texts of the tests are longer."""


def texts_around_blocks() -> list[str | None]:
    """Short and long texts, of letters of one to four bytes, that begin and end anywhere."""
    word = "a\u00e9\u20ac\U0001f600"
    return [
        *["abc", None, "", word],
        "x" * (_BLOCK - 14),
        word * (_BLOCK // 4),
        *["\u20ac", "", "xy\u00e9"],
        "\U0001f600" + "z" * (3 * _BLOCK + 1) + word,
        *[word, None, "end"],
    ]


def test_letters_are_counted_over_texts_longer_than_a_block() -> None:
    texts = texts_around_blocks()
    numbers = [2, 3, 1, -2, _BLOCK - 15, -_BLOCK, 1, 5, -3, 2 * _BLOCK, 9, 1, -4]
    table = pa.table({"s": texts, "n": numbers})

    def expected(cut: Any) -> list[str | None]:
        pairs = zip(texts, numbers, strict=True)
        return [None if text is None else cut(text, number) for text, number in pairs]

    left = expected(lambda text, n: text[:n])
    right = expected(lambda text, n: text[-n:])
    behind = expected(lambda text, n: text[max(n - 1, 0) :])
    assert evaluate("left(s, n)", table).to_pylist() == left
    assert evaluate("right(s, n)", table).to_pylist() == right
    assert evaluate("substr(s, n)", table).to_pylist() == behind
    position = expected(lambda text, _: text.rfind("\u20ac", 0, 2 * _BLOCK) + 1)
    table = pa.table({"s": [None if text is None else text[: 2 * _BLOCK] for text in texts]})
    assert evaluate("regexp_instr(s, '€[^€]*$')", table).to_pylist() == position


@pytest.mark.spec("rel-24")
@pytest.mark.parametrize(
    ("call", "expected"),
    [
        ("left(s, n)", ","),
        ("right(s, n)", ","),
        ("length(substr(s, second))", 12 * _BLOCK - 1),
        ("regexp_instr(s, ',', 5)", 5),
        ("split_part(s, ',', 3)", ""),
        ("split_part(s, p, n)", ""),
        ("substr_index(s, p, 3)", ",,"),
    ],
)
def test_a_part_of_a_long_text_takes_as_much_memory_as_the_text(call: str, expected: Any) -> None:
    table = pa.table({"s": ["," * (12 * _BLOCK)], "n": [1], "second": [2], "p": [","]})
    evaluate(call, table.slice(0, 0))
    pool = pa.default_memory_pool()
    before, most_before = pa.total_allocated_bytes(), pool.max_memory() or 0
    tracemalloc.start()
    try:
        (found,) = evaluate(call, table).to_pylist()
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert found == expected
    assert most < 5 * 12 * _BLOCK
    assert (pool.max_memory() or 0) <= max(most_before, before + 5 * 12 * _BLOCK)


@pytest.mark.spec("rel-24")
def test_a_long_text_beside_a_short_one_is_copied_as_a_whole() -> None:
    table = pa.table({"s": ["ab", "," * (12 * _BLOCK), "cd"], "n": [2, 2, 1]})
    tracemalloc.start()
    try:
        found = evaluate("substr(s, n)", table).to_pylist()
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert found == ["b", "," * (12 * _BLOCK - 1), "cd"]
    assert most < 5 * 12 * _BLOCK


@pytest.mark.parametrize(
    ("text", "separator", "count", "expected"),
    [
        ("a,b,c", ",", 1, "a"),
        ("a,b,c", ",", 2, "a,b"),
        ("a,b,c", ",", 3, "a,b,c"),
        ("a,b,c", ",", -1, "c"),
        ("a,b,c", ",", -2, "b,c"),
        ("a,b,c", ",", -3, "a,b,c"),
        ("a,b,c", ",", 0, ""),
        ("a,b,c", "", 1, ""),
        ("aaa", "aa", -1, ""),  # behind the last one, from the end
        ("aaab", "aa", -1, "b"),
        ("aaa", "aa", 1, ""),
        ("", ",", 1, ""),
    ],
)
def test_the_parts_before_or_behind_a_separator(
    text: str, separator: str, count: int, expected: str
) -> None:
    table = pa.table({"s": [text], "p": [separator], "n": [count]})
    assert evaluate("substr_index(s, p, n)", table).to_pylist() == [expected]


def test_parts_are_counted_from_the_end_where_separators_overlap() -> None:
    table = pa.table({"s": ["aaa", "aaab", "baaa", "a", ""], "p": ["aa"] * 5})
    last, first = ["", "b", "", "a", ""], ["a", "a", "ba", "", ""]
    for separator in ("p", "'aa'"):
        assert evaluate(f"split_part(s, {separator}, -1)", table).to_pylist() == last
        assert evaluate(f"split_part(s, {separator}, -2)", table).to_pylist() == first
        assert evaluate(f"split_part(s, {separator}, -3)", table).to_pylist() == [""] * 5
