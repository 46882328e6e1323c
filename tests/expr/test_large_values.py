"""Expressions that make many bytes of few: rows are cut, so that memory stays bounded.

Arrow wraps around in some places where the offsets of a text count more than 31 bits, and
ends in a wrong text or in a crash.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import glaive
from glaive.dataset.dataset import LanceDataset
from glaive.errors import CapacityError, FilterError
from glaive.expr.compare import compare
from glaive.expr.filters import bind_filter, bind_value
from glaive.expr.functions.nested import ListParts
from glaive.expr.rows import MAX_BATCH_BYTES, MAX_LIST_ITEMS
from glaive.format.fields import LanceSchema

ROWS = 60
BIG = "x" * 1_200_000
"""Of as many rows as there are, more than is made at a time."""

TABLE = pa.table(
    {
        "id": np.arange(ROWS),
        "s": [f"v{i}" for i in range(ROWS)],
        "n": [None if i % 2 else f"w{i}" for i in range(ROWS)],
        "l": [[f"a{i}", "b", "c"] for i in range(ROWS)],
        "d": pa.array(["k"] * ROWS).dictionary_encode(),
    }
)

EXPRESSIONS: dict[str, Callable[[int], Any]] = {
    f"'{BIG}'": lambda _: BIG,
    f"concat('{BIG}', s)": lambda i: f"{BIG}v{i}",
    f"concat_ws('{BIG}', s, d)": lambda i: f"v{i}{BIG}k",
    f"s || '{BIG}'": lambda i: f"v{i}{BIG}",
    f"replace(s, 'v', '{BIG}')": lambda i: f"{BIG}{i}",
    f"replace(s, substr(s, 1, 1), '{BIG}')": lambda i: f"{BIG}{i}",
    f"regexp_replace(s, '[v]', '{BIG}', 'g')": lambda i: f"{BIG}{i}",
    f"coalesce(n, '{BIG}')": lambda i: BIG if i % 2 else f"w{i}",
    f"nvl2(n, s, '{BIG}')": lambda i: BIG if i % 2 else f"v{i}",
    f"greatest(s, '{BIG}')": lambda _: BIG,
    "lpad(s, 1200000, 'q')": lambda i: f"v{i}".rjust(1_200_000, "q"),
    "rpad(s, 1200000, 'qr')": lambda i: (f"v{i}" + "qr" * 600_000)[:1_200_000],
    "repeat(s, 400000)": lambda i: f"v{i}" * 400_000,
    f"overlay(s, '{BIG}', 1)": lambda _: BIG,
    f"make_array(s, '{BIG}')": lambda i: [f"v{i}", BIG],
    f"array_append(l, '{BIG}')": lambda i: [f"a{i}", "b", "c", BIG],
    f"array_repeat('{BIG}', 2)": lambda _: [BIG, BIG],
    f"array_resize(l, 5, '{BIG}')": lambda i: [f"a{i}", "b", "c", BIG, BIG],
    f"array_replace_all(l, 'b', '{BIG}')": lambda i: [f"a{i}", BIG, "c"],
    f"array_to_string(l, '{BIG}')": lambda i: f"a{i}{BIG}b{BIG}c",
    f"named_struct('x', '{BIG}', 'y', s)": lambda i: {"x": BIG, "y": f"v{i}"},
    f"map(s, '{BIG}')": lambda i: [(f"v{i}", BIG)],
    "range(0, 150000)": lambda _: list(range(150_000)),
    f"length(concat('{BIG}', s))": lambda i: len(BIG) + len(f"v{i}"),
}


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> LanceDataset:
    return glaive.write_dataset(TABLE, str(tmp_path_factory.mktemp("large") / "data"))


def _name(text: str) -> str:
    return text.replace(BIG, "…")


@pytest.mark.sampled(every=4)
@pytest.mark.parametrize("text", EXPRESSIONS, ids=_name)
def test_batches_of_large_values_are_small_and_right(dataset: LanceDataset, text: str) -> None:
    value, start = EXPRESSIONS[text], 0
    for batch in dataset.to_batches(columns={"x": text}):
        batch.validate()
        assert batch.nbytes <= MAX_BATCH_BYTES
        at = batch.num_rows - 1
        assert batch.column(0)[at].as_py() == value(start + at)
        start += batch.num_rows
    assert start == ROWS


@pytest.mark.parametrize("text", list(EXPRESSIONS)[:6], ids=_name)
def test_filters_see_large_values_of_all_rows(dataset: LanceDataset, text: str) -> None:
    assert dataset.count_rows(filter=f"({text}) IS NOT NULL AND id % 2 = 0") == ROWS // 2


def test_one_array_is_not_promised_where_it_would_be_too_large() -> None:
    schema, (batch,) = LanceSchema.from_arrow(TABLE.schema), TABLE.to_batches()
    with pytest.raises(CapacityError, match="at a time") as error:
        bind_value(f"concat('{BIG}', s)", schema).evaluate(batch)
    assert error.value.parts > 1
    lengths = bind_value(f"length(concat('{BIG}', s))", schema).evaluate(batch)
    assert lengths[ROWS - 1].as_py() == len(BIG) + 3
    mask = bind_filter(f"concat('{BIG}', s) = '{BIG}v7'", schema).mask(batch)
    assert np.flatnonzero(mask.to_numpy(zero_copy_only=False)).tolist() == [7]


def test_a_value_that_no_array_holds_names_the_expression_and_the_remedy() -> None:
    batch = pa.record_batch({"s": ["x" * 2**26]})
    schema = LanceSchema.from_arrow(batch.schema)
    joined = f"concat({', '.join(['s'] * 33)})"
    with pytest.raises(FilterError, match=r"concat\(s, s.*LargeUtf8"):
        bind_value(joined, schema).evaluate(batch)
    with pytest.raises(FilterError, match=r"concat\(s, s.*LargeUtf8"):
        bind_filter(f"{joined} = 'x'", schema).mask(batch)


def test_what_a_test_before_decides_needs_no_room() -> None:
    batch = pa.record_batch({"s": ["x" * 2**26], "n": [1]})
    schema = LanceSchema.from_arrow(batch.schema)
    joined = f"concat({', '.join(['s'] * 33)}) = 'x'"
    assert bind_filter(f"{joined} AND n > 1", schema).mask(batch).to_pylist() == [False]
    assert bind_filter(f"n = 1 OR {joined}", schema).mask(batch).to_pylist() == [True]


def test_calculated_constants_may_be_large() -> None:
    text = "length(concat(s, repeat('x', 20000000))) > 20000000"
    schema = LanceSchema.from_arrow(pa.schema([("s", pa.string())]))
    mask = bind_filter(text, schema).mask(pa.record_batch({"s": ["", "a", None]}))
    assert mask.to_pylist() == [False, True, False]


def nulls_in_lists(ends: list[int], *, in_structs: bool) -> tuple[pa.RecordBatch, LanceSchema]:
    items: Any = pa.Array.from_buffers(pa.null(), ends[-1], [None], ends[-1])
    if in_structs:
        items = pa.Array.from_buffers(
            pa.struct([("x", pa.null())]), ends[-1], [None], children=[items]
        )
    batch = pa.record_batch({"l": pa.LargeListArray.from_arrays(pa.array([0, *ends]), items)})
    return batch, LanceSchema.from_arrow(batch.schema)


@pytest.mark.parametrize("in_structs", [False, True])
@pytest.mark.parametrize("call", ["array_distinct(l)", "array_slice(l, 1, 2)", "array_dims(l)"])
def test_items_that_take_no_memory_do_not_become_objects_of_python_without_limit(
    call: str, in_structs: bool
) -> None:
    many = 1 << 26
    batch, schema = nulls_in_lists([many], in_structs=in_structs)
    with pytest.raises(FilterError, match="for one row; at most"):
        bind_value(call, schema).evaluate(batch)
    batch, schema = nulls_in_lists([many // 2, many], in_structs=in_structs)
    with pytest.raises(CapacityError) as error:
        bind_value(call, schema).evaluate(batch)
    assert error.value.parts == 2


@pytest.mark.parametrize(
    "text", ["array_max(l)", "array_append(l, NULL)", "array_concat(l, l)", "l = m"]
)
def test_items_of_a_row_that_take_no_memory_have_no_positions_without_limit(text: str) -> None:
    batch, _ = nulls_in_lists([1 << 26], in_structs=False)
    batch = pa.record_batch({"l": batch.column(0), "m": batch.column(0)})
    with pytest.raises(FilterError, match=r"of lists .*for one row; at most"):
        bind_value(text, LanceSchema.from_arrow(batch.schema)).evaluate(batch)


@pytest.mark.sampled(every=2)
@pytest.mark.parametrize(
    "look", [ListParts.of, lambda lists: compare("=", lists, lists)], ids=["split", "compared"]
)
def test_items_of_several_rows_have_positions_some_at_a_time(look: Callable[[Any], Any]) -> None:
    half = MAX_LIST_ITEMS // 2
    batch, _ = nulls_in_lists([half, 2 * half], in_structs=False)
    look(batch.column(0))
    batch, _ = nulls_in_lists([half, 2 * half + 1], in_structs=False)
    with pytest.raises(CapacityError, match="items of lists for 2 rows") as error:
        look(batch.column(0))
    assert error.value.parts == 2


@pytest.mark.nightly(reason="compares long lists")
def test_rows_of_many_items_are_compared_some_at_a_time() -> None:
    rows = 5
    items = pa.array(np.repeat(np.arange(rows, dtype=np.int8), MAX_LIST_ITEMS // 4))
    ends = pa.array(np.arange(rows + 1, dtype=np.int32) * (MAX_LIST_ITEMS // 4))
    batch = pa.record_batch({"l": pa.ListArray.from_arrays(ends, items)})
    schema = LanceSchema.from_arrow(batch.schema)
    for text, expected in {
        "array_has(l, CAST(3 AS TINYINT))": [False, False, False, True, False],
        "l = l": [True] * rows,
        "l < l": [False] * rows,
    }.items():
        assert bind_filter(text, schema).mask(batch).to_pylist() == expected


SCRIPT = """
import resource, sys
import glaive

resource.setrlimit(resource.RLIMIT_AS, (6 << 30, 6 << 30))
dataset, big = glaive.dataset(sys.argv[1]), "x" * 3_000_000
assert dataset.count_rows(filter=f"concat('{big}', s) = '{big}v7'") == 1
ends, rows = [], 0
for batch in dataset.to_batches(columns={"x": f"concat('{big}', s)"}):
    rows += batch.num_rows
    ends.append(batch.column(0)[-1].as_py()[len(big):])
assert rows == 800 and ends[-1] == "v799"
grown = dataset.add_columns({"length": f"length(concat('{big}', s))"})
print("done")
"""


@pytest.mark.nightly(reason="makes more text than an array holds")
@pytest.mark.slow
def test_more_text_than_an_array_holds_takes_little_memory(tmp_path: Path) -> None:
    place = str(tmp_path / "data")
    glaive.write_dataset(pa.table({"s": [f"v{i}" for i in range(800)]}), place)
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, place], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr[-2000:]
    lengths = glaive.dataset(place).to_table(columns=["length"])["length"]
    assert lengths[799].as_py() == 3_000_004


VECTORS = pa.table({"v": pa.FixedSizeListArray.from_arrays(np.zeros(8 * 512, np.float32), 512)})


@pytest.mark.spec("rel-25")
@pytest.mark.parametrize(
    "expression",
    [
        "array_repeat(v, 200000)",
        "array_resize(make_array(v), 200000)",
        "array_resize(make_array(v), 200000, v)",
        "array_repeat(repeat('a', 1000), 1000000)",
        # A text may have 256 MiB; these wait for each other.
        pytest.param(
            f"{'concat(repeat(chr(97), 268435456), ' * 40}'x'{')' * 40}",
            marks=pytest.mark.nightly(reason="makes a gigabyte of text"),
        ),
    ],
)
def test_a_short_expression_does_not_take_any_amount_of_memory(
    expression: str, tmp_path: Path
) -> None:
    table = VECTORS.slice(0, 1)
    dataset = glaive.write_dataset(table, tmp_path / "t")
    before = pa.total_allocated_bytes()
    refused = "for one row; at most|constants that the filter computes take more than"
    with pytest.raises(FilterError, match=refused):
        dataset.to_table({"made": expression})
    assert pa.total_allocated_bytes() < before + 2**28
