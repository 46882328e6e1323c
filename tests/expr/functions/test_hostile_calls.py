"""Calls that a stranger's filter may have: short texts that ask for much time or memory."""

from __future__ import annotations

import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.expr.functions.calls import evaluate

import glaive
from glaive.arrow.jsonb import encode_jsonb
from glaive.errors import FilterError
from glaive.expr.compare import same
from glaive.expr.filters import bind_filter
from glaive.expr.parse import parse
from glaive.format.fields import LanceSchema

_LIST = pa.list_(pa.int64())
_SCHEMA = pa.schema({"a": pa.int64(), "l": _LIST, "s": pa.string(), "t": pa.timestamp("ns", "UTC")})


def extracted(document: str, path: str) -> Any:
    """What a path selects of a document."""
    column = pa.table({"j": encode_jsonb(pa.array([document]))})
    return evaluate(f"json_extract(j, '{path}')", column)[0].as_py()


@pytest.mark.spec("rel-25")
@pytest.mark.parametrize(
    ("path", "problem"),
    [
        ("$" + "[0]" * 129, "more than 128 steps"),
        ("$" + "[0]" * 1_000_000, "has 3000001 characters, at most 10000"),
        ("$[" + "0," * 1000 + "0]", "1001 positions and ranges, at most 1000"),
        ("$." + "?" * 9000, "is not a step"),
        ("$[" + "x" * 9000 + "]", "is not a list of indices"),
    ],
)
def test_a_json_path_has_few_steps_and_an_error_shows_its_beginning(
    path: str, problem: str
) -> None:
    with pytest.raises(FilterError, match=problem) as refused:
        extracted("[1]", path)
    assert len(str(refused.value)) < 400


@pytest.mark.spec("rel-24")
def test_all_elements_of_an_array_take_memory_by_their_number_and_not_its_square() -> None:
    document = "[" + ",".join(["1"] * 30_000) + "]"
    extracted("[1]", "$[0 to last]")
    tracemalloc.start()
    found = extracted(document, "$[0 to last]")
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert found == document
    assert most < 48 << 20


@pytest.mark.spec("rel-24")
@pytest.mark.parametrize(
    ("document", "path"),
    [
        ("[" + ",".join(["1"] * 30_000) + "]", "$[" + ",".join(["0 to last"] * 900) + "]"),
        ("[[[[[1]]]]]", "$" + ("[" + ",".join(["0"] * 900) + "]") * 5),
        ('["{}",1]'.format("x" * 100_000), "$[" + ",".join(["0"] * 900) + "]"),
    ],
)
def test_a_json_path_repeats_elements_up_to_a_limit(document: str, path: str) -> None:
    with pytest.raises(FilterError, match="a JSON path would make"):
        extracted(document, path)


def test_elements_of_json_arrays_may_be_selected_more_than_once() -> None:
    assert extracted("[[1,2],[3,4],[5]]", "$[0 to 1, 1][last, 0]") == "[2,1,4,3,4,3]"
    assert extracted("[[1,2],[3,4],[5]]", "$[last, 0, 7]") == "[[5],[1,2]]"


@pytest.mark.spec("rel-25")
def test_a_call_has_few_arguments_where_a_list_may_have_many_items() -> None:
    items = ",".join(["1"] * 10_001)
    with pytest.raises(FilterError, match="a call has 10001 arguments, at most 10000"):
        parse(f"coalesce({items}) = 1")
    parse(f"array_has([{items}], 1)")


def test_half_of_a_pair_of_utf16_in_a_filter_is_an_error_that_can_be_printed() -> None:
    with pytest.raises(FilterError, match="character 6 of the filter") as refused:
        parse("s = '\ud800'")
    assert str(refused.value).encode()


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("arrow_try_cast() = 1", "does not support zero arguments"),
        ("ceil(decimal(5, 2) '1.5', 2) = 1", "ceil: the number of arguments must be 1, not 2"),
        ("floor(decimal(5, 2) '1.5', 2, 3) = 1", "floor: the number of arguments must be 1, not 3"),
        ("cast_to_type(interval '1 day', a) = 1", "month_day_nano_interval cannot be cast"),
        ("cast_to_type(a, interval '1 day') is null", "cannot be cast to month_day_nano_interval"),
        ("map(l, s) is null", "map key cannot be null"),
        ("try_cast_to_type(map(['a'], [1]), l) is null", "map.* cannot be cast to list"),
        (
            "date_bin(interval '0.{} days', t) = t".format("9" * 5000),
            "Invalid input syntax for type interval",
        ),
    ],
)
def test_calls_without_an_answer_are_errors_of_filters(text: str, problem: str) -> None:
    least = pa.array([-(2**63)]).view(pa.timestamp("ns", "UTC"))
    batch = pa.record_batch({"a": [1], "l": [None], "s": ["b"], "t": least}, schema=_SCHEMA)
    with pytest.raises(FilterError, match=problem):
        bind_filter(text, LanceSchema.from_arrow(_SCHEMA)).mask(batch)


def test_lists_may_be_keys_of_texts() -> None:
    table = pa.table({"a": [1], "l": [[7]], "s": ["b"], "t": [0]}, schema=_SCHEMA)
    assert evaluate("map(l, s)", table).to_pylist() == [[([7], "b")]]


@pytest.mark.nightly(reason="makes large constants")
@pytest.mark.sampled(every=2)
@pytest.mark.spec("rel-25")
@pytest.mark.parametrize("term", ["s = repeat('x', {})", "s = concat('{}', repeat('x', {}))"])
def test_constants_of_a_filter_take_few_bytes_together(
    term: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("glaive.expr.filters.MAX_HELD_BYTES", 100_000)
    schema = LanceSchema.from_arrow(_SCHEMA)
    few, many = (" OR ".join(term.format(n, n) for n in range(count)) for count in (100, 1000))
    bind_filter(few, schema)
    for _ in range(20):
        bind_filter(few, schema)  # each has its own
    with pytest.raises(FilterError, match="constants that the filter computes"):
        bind_filter(many, schema)


@pytest.mark.spec("rel-42")
@pytest.mark.parametrize("kind", [pa.string(), pa.large_string()], ids=str)
@pytest.mark.parametrize("name", ["to_timestamp", "to_timestamp_millis", "to_unixtime"])
def test_the_engine_gets_no_text_that_is_no_utf8(name: str, kind: Any) -> None:
    texts = pa.array([b"\xff\xfe"]).cast(pa.large_binary()).view(pa.large_string())
    table = pa.table({"s": texts.cast(kind)})
    with pytest.raises(pa.ArrowInvalid, match="Invalid UTF8"):
        evaluate(f"{name}(s)", table)


def ends_within_a_letter(behind: bytes, kind: Any) -> pa.Table:
    """Texts of which the last one is cut off, in memory that goes on with other bytes."""
    ends = np.array([0, 3, 8], np.int64 if kind == pa.large_string() else np.int32)
    memory = pa.py_buffer(b"oneabcd\xf0" + behind)
    column = pa.Array.from_buffers(kind, 2, [None, pa.py_buffer(ends), memory])  # type: ignore[arg-type]  # any buffer will do
    return pa.table({"s": column})


@pytest.mark.spec("rel-23")
@pytest.mark.parametrize("kind", [pa.string(), pa.large_string()])
@pytest.mark.parametrize(
    "text",
    [
        "upper(s)", "lower(s)", "trim(s)", "ltrim(s, 'abcd')", "rtrim(s, 'x')", "lpad(s, 9)",
        "rpad(s, 9)", "ascii(s)", "left(s, 9)", "substr(s, 2)", "substr(s, 2, 9)",
        "regexp_count(s, '.', 2)",
    ],
)  # fmt: skip
def test_no_function_takes_the_rest_of_a_letter_from_the_bytes_behind(text: str, kind: Any) -> None:
    """Arrow's do: ``upper`` returned up to three bytes of other memory."""
    for behind in (b"\x9f\x98\x80", b"text"):
        table = ends_within_a_letter(behind, kind)
        with pytest.raises(pa.ArrowInvalid, match="Invalid UTF8 sequence"):
            evaluate(text, table)
        whole = table.slice(0, 1)
        assert len(evaluate(text, whole)) == 1


@pytest.mark.spec("rel-25")
@pytest.mark.parametrize(
    ("group", "made"), [("0001", "ab"), ("2", "b"), ("9" * 5000, "b"), ("0" * 5000, "ab")]
)
def test_a_group_that_a_pattern_does_not_have_is_no_text(group: str, made: str) -> None:
    """Python makes no number of thousands of digits."""
    column = pa.table({"s": ["a"]})
    for reference in (f"${{{group}}}b", f"\\{group}b"):
        assert evaluate(f"regexp_replace(s, '(a)', '{reference}')", column)[0].as_py() == made


def test_a_group_may_have_any_number_of_zeros_before_its_number() -> None:
    column = pa.table({"s": ["ba"]})
    for reference in ("${" + "0" * 12 + "1}", "\\" + "0" * 12 + "1"):
        assert evaluate(f"regexp_replace(s, 'b(a)', '{reference}')", column)[0].as_py() == "a"


def one_row(items: Any, other: Any) -> pa.Table:
    """A row with a list of these items, and another value."""
    ends = pa.array([0, len(items)], pa.int32())
    return pa.table({"l": pa.ListArray.from_arrays(ends, items), "x": pa.array([other])})


_MANY_LISTS = pa.array([[]] * 20_000, pa.list_(pa.int64()))
_LONG_LIST = list(range(20_000))


@pytest.mark.spec("rel-24")
@pytest.mark.parametrize(
    ("call", "table"),
    [
        ("array_has(l, x)", one_row(pa.array([""] * 20_000), "x" * 20_000)),
        ("array_has(l, x)", one_row(_MANY_LISTS, _LONG_LIST)),
        ("array_has(l, x)", one_row(pa.array([[""]] * 20_000), ["x" * 20_000])),
    ],
)
def test_a_long_value_is_not_copied_for_each_item_that_it_is_compared_with(
    call: str, table: pa.Table
) -> None:
    before = pa.total_allocated_bytes()
    pool = pa.default_memory_pool()
    most = pool.max_memory() or 0
    assert evaluate(call, table).to_pylist() == [False]
    assert (pool.max_memory() or 0) <= max(most, before + (32 << 20))


def test_items_are_equal_by_all_their_values_however_these_are_nested() -> None:
    rows: list[Any] = [None, [], [None], [""], ["a"], ["b"], ["aa"], ["a", None], [None, "a"]]
    for kind in (pa.list_(pa.string()), pa.large_list(pa.large_binary())):
        items = pa.array(rows, pa.list_(pa.string())).cast(kind)
        for wanted, row in enumerate(rows):
            found = same(items, items, np.full(len(rows), wanted))
            assert found.tolist() == [other == row for other in rows]


@pytest.mark.spec("rel-25")
def test_a_long_pattern_is_not_compared_at_each_place_of_a_long_text(tmp_path: Path) -> None:
    columns = {"s": ["a" * 200_000], "p": ["%" + "a" * 100_000 + "b%"], "word": ["A" * 200_000]}
    dataset = glaive.write_dataset(pa.table(columns), tmp_path / "t")
    with pytest.raises(FilterError, match="has 100003 characters, and a text 200000 bytes"):
        dataset.count_rows("s ILIKE p")
    assert dataset.count_rows("s LIKE p") == 0
    assert dataset.count_rows("s ILIKE word") == 1
