"""Scalar functions: what each topic does at its edges, and what it refuses."""

from __future__ import annotations

import os
import re
from concurrent.futures import ThreadPoolExecutor
from datetime import date
from hashlib import md5
from pathlib import Path
from time import process_time
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.expr.functions.calls import evaluate

import glaive
from glaive.arrow.jsonb import encode_jsonb
from glaive.errors import CorruptFileError, FilterError, MissingDependencyError
from glaive.expr.functions import library
from glaive.expr.functions.registry import find, functions

LONG = pytest.mark.nightly(reason="searches eight billion characters")

GUIDE = Path(__file__).parents[3] / "docs" / "guide" / "functions.md"


def values(text: str, **columns: Any) -> list[Any]:
    """The values of a call over columns."""
    results: list[Any] = evaluate(text, pa.table(columns)).to_pylist()
    return results


def test_the_guide_names_every_function() -> None:
    text = GUIDE.read_text("utf-8")
    missing = {
        function.name
        for name, function in functions().items()
        if not any(other in text for other, same in functions().items() if same is function)
    }
    for prefix in ("to_timestamp_",):
        missing = {name for name in missing if not name.startswith(prefix)}
    assert missing == set()


def test_the_guide_names_the_functions_that_need_a_package() -> None:
    text = GUIDE.read_text("utf-8")
    section = text.split("## Functions of the package")[1].split("Some calls")[0]
    named = {name for name in re.findall("`([a-z_0-9]+)`", section) if name in functions()}
    by_package = {f.name for f in functions().values() if f.compute.__module__ == library.__name__}
    typed = {"map", "nvl", "nvl2", "arrow_cast", "arrow_try_cast", "cast_to_type"}
    assert named == {*by_package, *typed, "regexp_like", "try_cast_to_type"}


def test_an_unknown_part_of_a_date_is_named() -> None:
    with pytest.raises(FilterError, match=r"'era' not supported"):
        values("date_part('era', d)", d=pa.array([date(2026, 1, 2)]))


def test_the_guide_says_how_many_functions_there_are() -> None:
    counted = len(set(map(id, functions().values())))
    assert f"{counted} [functions](functions.md)" in GUIDE.with_name("api.md").read_text("utf-8")


@given(st.lists(st.text(max_size=12)), st.integers(-15, 15), st.integers(0, 15))
def test_parts_of_text_are_those_of_python(texts: list[str], start: int, count: int) -> None:
    texts = [text for text in texts if text.isprintable()]
    column = pa.array(texts, pa.string())
    rows = pa.array([start] * len(texts), pa.int64())
    expected = [text[max(start - 1, 0) : max(start - 1 + count, 0)] for text in texts]
    assert values(f"substr(s, {start}, {count})", s=column) == expected
    assert values(f"substr(s, n, {count})", s=column, n=rows) == expected


def test_arguments_name_both_sides_of_what_is_wrong() -> None:
    with pytest.raises(FilterError, match="upper: argument 1 must be text, found int64"):
        find("upper").resolve([pa.int64()])
    with pytest.raises(FilterError, match="no common type of int64, list"):
        find("coalesce").resolve([pa.int64(), pa.list_(pa.int64())])


@pytest.mark.parametrize(
    "text",
    [
        "repeat(s, 9223372036854775807)",
        "lpad(s, 2147483648)",
        "array_repeat(s, 9223372036854775807)",
        "range(0, 9223372036854775807)",
        "array_resize(make_array(1), 9223372036854775807)",
    ],
)
def test_nothing_without_bounds_is_allocated(text: str) -> None:
    with pytest.raises(FilterError):
        values(text, s=["some text"])


@pytest.mark.spec("rel-25")
@pytest.mark.parametrize(
    ("call", "expected"),
    [("replace({}, {}, 'x')", "a" * 100_000 + "x"), ("split_part({}, {}, 2)", "")],
)
def test_a_long_pattern_is_not_compared_at_each_place_of_a_text(call: str, expected: str) -> None:
    # Arrow compares 100,000 characters at 200,000 places: half a minute, and an hour for 1 MB.
    text, pattern = "concat(repeat('a', 200000), s)", "concat(repeat('a', 100000), 'b')"
    started = process_time()
    assert values(call.format(text, pattern), s=["b", "b"]) == [expected] * 2
    assert process_time() - started < 1


@pytest.mark.parametrize(
    "call",
    [
        "named_struct({})".format(", ".join(["'a', n"] * 4000)),
        "to_timestamp(s, {})".format(", ".join(["'%Y-%m-%d'"] * 9000)),
        f"to_timestamp(s, '{'x' * 900}')",
        f"date_part('{'x' * 100_000}', t)",
        f"date_trunc('{'x' * 100_000}', t)",
        f"encode(s, '{'x' * 100_000}')",
        f"digest(s, '{'x' * 100_000}')",
        f"{'x' * 100_000}(n)",
        f"st_{'x' * 100_000}(n)",
    ],
    ids=range(9),
)
def test_an_error_of_a_call_shows_the_first_of_many_and_the_beginning_of_long_texts(
    call: str,
) -> None:
    times = pa.array([0], pa.timestamp("s"))
    with pytest.raises(FilterError) as refused:
        values(call, s=["a"], n=[1], t=times)
    assert len(str(refused.value)) < 1000


@pytest.mark.spec("rel-25")
def test_words_that_are_looked_for_are_limited_as_each_takes_a_pass_over_a_text() -> None:
    many = "contains_tokens(s, '{}')".format(" ".join(f"w{n}" for n in range(1001)))
    with pytest.raises(FilterError, match=r"contains_tokens: 1001 different words, at most 1000"):
        values(many, s=["a"])
    started = process_time()
    assert values("contains_tokens(s, repeat('a ', 100000))", s=["a", "b"]) == [True, False]
    assert process_time() - started < 1


@pytest.mark.parametrize(
    "pattern",
    [
        r"^.{1,1000}$",
        r"^[^@\s]{1,255}@[^@\s]{1,255}\.[a-z]{2,63}$",
        r"^[\d.]{1,300}-[0-9a-fA-F]{1,500}$",
    ],
)
def test_regular_expressions_that_check_lengths_of_texts_are_supported(pattern: str) -> None:
    assert values(f"regexp_like(s, '{pattern}')", s=["\n", "\n"]) == [False, False]


@pytest.mark.spec("rel-25")
def test_a_list_of_words_may_be_long_as_few_of_them_are_followed_at_once() -> None:
    words = "|".join(f"word{n}x" for n in range(5000))
    for pattern in (words, rf"\b(?:{words})\b", f"(?i)^(?:{words})$"):
        assert values(f"regexp_like(s, '{pattern}')", s=["word77x", "word"]) == [True, False]


@pytest.mark.spec("rel-25")
def test_an_error_of_a_long_regular_expression_shows_its_beginning() -> None:
    for wrong in ("(" * 5000, "\\q" * 5000, "(?=a)" * 5000):
        with pytest.raises(FilterError, match="regexp_like cannot be computed") as refused:
            values(f"regexp_like(s, '{wrong}')", s=["ab"])
        assert len(str(refused.value)) < 600


@pytest.mark.parametrize(
    ("pattern", "passing"),
    [
        ("^[a-z&&[^b]]+$", [True, False, False]),
        (r"\bé\b", [False, False, True]),
        ("(?x) a  c # both", [True, False, False]),
        (r"^\p{L}b?$", [False, False, True]),
    ],
)
def test_patterns_are_those_of_the_engine_that_pylance_runs(
    pattern: str, passing: list[bool]
) -> None:
    assert values(f"regexp_like(s, '{pattern}')", s=["ac", "b1b", "é"]) == passing


def test_a_function_of_the_engine_says_which_package_it_needs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(library, "_engine", lambda: None)
    with pytest.raises(MissingDependencyError, match=r'pip install "glaive\[functions\]"'):
        values("array_sort(l)", l=[[2, 1]])
    assert values("upper(s)", s=["a"]) == ["A"]


def test_a_forked_process_computes_as_its_parent_does() -> None:
    assert values("array_sort(l)", l=[[2, 1]]) == [[1, 2]]
    child = os.fork()
    if not child:
        os._exit(0 if values("array_sort(l)", l=[[2, 1]]) == [[1, 2]] else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_ranges_in_json_paths_are_clipped() -> None:
    documents = pa.array(['{"b":[1,2,3]}', '{"b":[]}', '{"b":[7]}', None])
    stored = encode_jsonb(documents)
    assert values("json_extract(j, '$.b[0 to 1]')", j=stored) == ["[1,2]", None, "7", None]
    assert values("json_extract(j, '$.b[1 to last]')", j=stored) == ["[2,3]", None, None, None]


def test_damaged_jsonb_is_reported() -> None:
    whole = encode_jsonb(pa.array(['{"a":[1,2],"b":"text"}']))[0].as_py()
    outcomes = set()
    for place in range(len(whole)):
        for byte in (0x00, 0x7F, 0xFF):
            raw = whole[:place] + bytes([byte]) + whole[place + 1 :]
            column = pa.array([raw], pa.large_binary())
            for text in ("json_get(j, 'a')", "json_exists(j, '$.a[1]')", "json_get(j, 'b')"):
                try:
                    outcomes.add(str(values(text, j=column)))
                except CorruptFileError:
                    outcomes.add("reported")
    assert "reported" in outcomes


@pytest.mark.parametrize(
    ("size", "digest"),
    [
        (0, "af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262"),
        (1, "2d3adedff11b61f14c886e35afa036736dcd87a74d27b5c1510225d0f592e213"),
        (1025, "d00278ae47eb27b34faecf67b4fe263f82d5412916c1ffd97c8cb7fb814b8444"),
        (31_744, "62b6960e1a44bcc1eb1a611a8d6235b6b4b78f32e7abc4fb4c6cdcce94895c47"),
        (102_400, "bc3e3d41a1146b069abffad3c0d44860cf664390afce4d9661f7902e7943e085"),
    ],
)
def test_blake3_gives_the_published_digests(size: int, digest: str) -> None:
    text = bytes(place % 251 for place in range(size))
    assert values("digest(x, 'blake3')", x=pa.array([text]))[0].hex() == digest


def test_random_values_differ_by_row_and_call() -> None:
    first, second = find("random").evaluate([], 100), find("random").evaluate([], 100)
    assert len(set(first.to_pylist())) == 100
    assert first != second
    uuids = find("uuid").evaluate([], 3).to_pylist()
    assert [len(text) for text in uuids] == [36] * 3
    assert {text[14] for text in uuids} == {"4"}


def test_slices_of_arrays_are_read_where_they_begin() -> None:
    column = pa.array(["xx", "añb", None, "cd", "yy"])[1:4]
    rows = pa.array([9, 2, 1, 1, 9])[1:4]
    lists = pa.array([[9], [1, 2], None, [3], [9]])[1:4]
    stored = encode_jsonb(pa.array(["9", '{"a":1}', None, '{"a":2}', "9"]))[1:4]
    assert find("right").evaluate([column, rows], 3).to_pylist() == ["ñb", None, "d"]
    assert find("array_has").evaluate([lists, pa.scalar(2)], 3).to_pylist() == [True, None, False]
    assert find("json_get_int").evaluate([stored, pa.scalar("a")], 3).to_pylist() == [1, None, 2]
    assert find("array_max").evaluate([lists], 3).to_pylist() == [2, None, 3]


@pytest.mark.spec("rel-42")
@pytest.mark.parametrize("number", ["7ff0000000000000", "fff0000000000000", "7ff8000000000000"])
def test_infinite_numbers_of_documents_are_too_large_for_integers(number: str) -> None:
    """Without a warning of NumPy, which is an error where warnings are."""
    object_of_one = "400000011000000120000009" + "61" + "60"
    document = bytes.fromhex(object_of_one + number)
    stored = pa.array([document], pa.large_binary())
    with pytest.raises(FilterError, match="too large for int64"):
        find("json_get_int").evaluate([stored, pa.scalar("a")], 1)


def test_halves_of_documents_are_rounded_away_from_zero() -> None:
    stored = encode_jsonb(pa.array(['{"a":-2.5}', '{"a":2.5}', '{"a":9e18}', '{"a":0.4}']))
    found = find("json_get_int").evaluate([stored, pa.scalar("a")], 4).to_pylist()
    assert found == [-3, 3, 9 * 10**18, 0]


def test_a_group_below_zero_is_the_whole_match() -> None:
    column = pa.array(["xab", "b"])
    for group in (0, -1, -100):
        assert values(f"regexp_instr(s, 'a(b)', 1, 1, '', {group})", s=column) == [2, 0]
    assert values("regexp_instr(s, 'a(b)', 1, 1, '', 1)", s=column) == [3, 0]


@pytest.mark.parametrize(
    "text",
    [
        "json_get(j, s)",
        "json_extract(j, '$.a')",
        "regexp_like(s, s)",
        "regexp_match(s, '(a)')",
        "substr(s, n)",
        "array_has(l, n)",
        "array_max(l)",
        "make_array(n, n)",
        "array_has_all(l, make_array(1, 2))",
        "array_concat(l, make_array(1))",
        "array_sort(make_array(2, 1))",
        "md5(s)",
        "date_bin(interval('1 day'), t)",
        "round(n, n)",
        "decode(encode(s, 'hex'), 'hex')",
    ],
)
def test_no_rows_give_no_rows(text: str) -> None:
    columns = {
        "j": pa.array([], pa.large_binary()),
        "s": pa.array([], pa.string()),
        "n": pa.array([], pa.int64()),
        "l": pa.array([], pa.list_(pa.int64())),
        "t": pa.array([], pa.timestamp("us")),
    }
    assert values(text, **columns) == []


def test_functions_of_the_package_keep_no_rows(tmp_path: Path) -> None:
    dataset = glaive.write_dataset({"s": [f"x{n}" for n in range(3000)]}, tmp_path / "t")
    for _ in range(3):
        assert dataset.count_rows("regexp_like(s, 'x1$')") == 1
    _, session = vars(library)["_engine"]()
    assert session.catalog().schema().names() == set()


def test_threads_compute_functions_of_the_package_side_by_side() -> None:
    def right(number: int) -> bool:
        texts, wanted = [f"x{number}"] * 50, md5(f"x{number}".encode()).hexdigest()
        return all(
            library.compute("md5", pa.array(texts)).to_pylist() == [wanted] * 50 for _ in range(40)
        )

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(right, range(8)))
