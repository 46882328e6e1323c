"""Computed columns: of which rows they are computed, and what types come out."""

from __future__ import annotations

import re
from dataclasses import replace
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.interop.function_cases import CASES, edges

import glaive
from glaive.errors import ColumnNotFoundError, FilterError
from glaive.expr.functions.registry import functions
from glaive.format.fields import LanceSchema

ROWS = 12
DIVISORS = [0, 2, 3, 4] * 3


@pytest.fixture(params=[ROWS, 4, 1], ids=lambda rows: f"{rows}-a-fragment")
def dataset(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    table = pa.table(
        {
            "n": range(ROWS),
            "by": DIVISORS,
            "s": [f"x{row}" if row % 5 else None for row in range(ROWS)],
            "code": pa.array(["u", "v", None] * 4).dictionary_encode(),
            "price": pa.array([Decimal(row * 7 % 5) for row in range(ROWS)], pa.decimal128(10, 2)),
            "j": pa.array([f'{{"k":{row}}}' for row in range(ROWS)], pa.json_()),
        }
    )
    return glaive.write_dataset(
        table, tmp_path, max_rows_per_file=request.param, data_storage_version="2.2"
    )


def test_only_rows_that_pass_are_computed(dataset: Any) -> None:
    found = dataset.to_table(columns={"r": "12 / by"}, filter="by != 0")
    assert found["r"].to_pylist() == [6, 4, 3] * 3
    with pytest.raises(FilterError, match="division by zero"):
        dataset.to_table(columns={"r": "12 / by"})


def test_nothing_is_computed_of_deleted_rows(dataset: Any) -> None:
    dataset.delete("by = 0")
    assert dataset.to_table(columns={"r": "12 / by"})["r"].to_pylist() == [6, 4, 3] * 3
    batches = list(dataset.to_batches(columns={"r": "12 / by", "id": "_rowid"}))
    assert [row for batch in batches for row in batch["r"].to_pylist()] == [6, 4, 3] * 3


@pytest.mark.sampled(every=6)
@pytest.mark.parametrize(
    "text", ["left(s, 1)", "regexp_match(s, '[0-9]')", "struct(left(s, 1), n)"]
)
@pytest.mark.parametrize(
    "options",
    [
        {"filter": "n > 3"},
        {"filter": "n > 3", "limit": 3, "offset": 2},
        {"order_by": ["price"]},
        {"filter": "by > 2", "order_by": ["n"], "offset": 1},
        {"order_by": ["n"], "limit": 5},
    ],
    ids=str,
)
def test_views_come_out_of_every_scan(dataset: Any, text: str, options: dict[str, Any]) -> None:
    columns = {"r": text, "n": "n"}
    whole = dataset.to_table(columns=columns)
    expected = dict(zip(whole["n"].to_pylist(), whole["r"].to_pylist(), strict=True))
    found = dataset.to_table(columns=columns, **options)
    assert found.schema == whole.schema
    assert found.num_rows > 0
    assert found["r"].to_pylist() == [expected[n] for n in found["n"].to_pylist()]


def test_an_element_of_a_list_of_views_is_one(dataset: Any) -> None:
    found = dataset.to_table(columns={"r": "regexp_match(arrow_cast(s, 'LargeUtf8'), 'x(.)')[1]"})
    assert found["r"].to_pylist()[:3] == [None, "1", "2"]


@pytest.mark.sampled(every=2)
@pytest.mark.parametrize("name", ["code", "j", "price", "s"])
def test_a_column_under_another_name_stays_what_it_is(dataset: Any, name: str) -> None:
    plain = dataset.to_table(columns=[name])
    for options in ({}, {"filter": "n >= 0"}, {"order_by": ["n"]}, {"limit": ROWS}):
        found = dataset.to_table(columns={"other": name, "again": name}, **options)
        assert found.schema.field("other").type == plain.schema.field(name).type
        assert found["other"].to_pylist() == plain[name].to_pylist()
        assert found["again"].to_pylist() == plain[name].to_pylist()
    taken = dataset.take([3, 1], columns={"other": name})
    assert taken["other"].to_pylist() == [plain[name][3].as_py(), plain[name][1].as_py()]


@pytest.mark.parametrize(
    "kind", [pa.decimal128(10, 2), pa.decimal128(38, 38), pa.decimal256(76, 76)], ids=str
)
def test_decimals_are_sorted(tmp_path: Path, kind: pa.DataType) -> None:
    values = [None if row == 3 else Decimal(row * 7 % 5).scaleb(-kind.scale) for row in range(10)]
    dataset = glaive.write_dataset(pa.table({"v": pa.array(values, kind)}), tmp_path)
    wanted = [*sorted(value for value in values if value is not None), None]
    assert dataset.to_table(order_by=["v"])["v"].to_pylist() == wanted
    assert dataset.to_table(order_by=["v"], limit=4)["v"].to_pylist() == wanted[:4]


@pytest.mark.parametrize("kind", [pa.decimal128(10, -5), pa.decimal256(10, -5)], ids=str)
def test_decimals_of_more_digits_than_their_type_says_are_sorted(
    tmp_path: Path, kind: pa.DataType
) -> None:
    numbers = [row * 10**17 * (-1) ** row for row in range(10)]
    raw = b"".join(
        number.to_bytes(kind.bit_width // 8, "little", signed=True) for number in numbers
    )
    values = pa.Array.from_buffers(kind, 10, [pa.py_buffer(bytes([0xF7, 3])), pa.py_buffer(raw)])
    dataset = glaive.write_dataset(pa.table({"row": range(10), "v": values}), tmp_path)
    rows = dataset.to_table(columns=["row"], order_by=["v"])["row"]
    assert rows.to_pylist() == [9, 7, 5, 1, 0, 2, 4, 6, 8, 3]


@pytest.mark.parametrize("name", ["", "n.", "."])
def test_an_empty_name_is_no_column(dataset: Any, name: str) -> None:
    with pytest.raises(ColumnNotFoundError, match=f"No field named {name}"):
        dataset.to_table(columns=[name])


def test_a_value_that_is_not_needed_is_not_computed(dataset: Any) -> None:
    found = dataset.to_table(columns={"r": "coalesce(n, 12 / by)"})
    assert found["r"].to_pylist() == list(range(ROWS))
    with pytest.raises(FilterError, match="division by zero"):
        dataset.to_table(columns={"r": "coalesce(s, CAST(12 / by AS string))"})


@cache
def cases_of_functions() -> dict[str, list[str]]:
    """Calls of each function on the columns of edge cases."""
    volatile = {"now", "current_date", "current_time", "random", "uuid", "version"}
    found: dict[str, list[str]] = {}
    for text in CASES:
        name = text.partition("(")[0]
        if name in functions() and name not in volatile:
            call = re.sub(r"interval\(('[^']*')\)", r"interval \1", text)
            found.setdefault(name, []).append(call)
    return found


def computed(dataset: Any, texts: list[str]) -> tuple[str, pa.Table]:
    """The first of these that has values for all rows, and they."""
    for text in texts:
        try:
            return text, dataset.to_table(columns={"r": text, "n": "n"})
        except FilterError:
            continue
    raise AssertionError(f"all are refused: {texts}")


@pytest.fixture(scope="module")
def edge_cases(tmp_path_factory: pytest.TempPathFactory) -> Any:
    place = tmp_path_factory.mktemp("edges")
    return glaive.write_dataset(edges(), place, data_storage_version="2.2")


@pytest.mark.sampled(every=8)
@pytest.mark.parametrize("name", cases_of_functions())
def test_every_function_comes_out_of_every_scan(edge_cases: Any, name: str) -> None:
    text, whole = computed(edge_cases, cases_of_functions()[name])
    columns = {"r": text, "n": "n"}
    rows = whole["n"].to_pylist()
    for options in (
        {"filter": "n IS NOT NULL"},
        {"filter": "n > 0", "limit": 2, "offset": 1},
        {"order_by": ["n"]},
        {"order_by": ["n"], "filter": "n > 0", "limit": 3},
    ):
        found = edge_cases.to_table(columns=columns, **options)
        assert found.schema.types == whole.schema.types
        for row, value in zip(found["n"].to_pylist(), found["r"], strict=True):
            if rows.count(row) == 1:
                assert repr(value) == repr(whole["r"][rows.index(row)]), options


def test_nulls_are_nullable_whatever_the_schema_says(tmp_path: Path) -> None:
    """Arrow has no such type otherwise, but files and manifests may say so."""
    dataset = glaive.write_dataset(pa.table({"n": pa.nulls(3)}), tmp_path)
    (fragment,) = dataset.get_fragments()
    (field,) = dataset.lance_schema.fields
    strict = LanceSchema((replace(field, nullable=False),))
    change = glaive.LanceOperation.Overwrite(strict, [fragment.metadata])
    dataset = glaive.LanceDataset.commit(tmp_path, change)
    assert not dataset.lance_schema.fields[0].nullable
    found = dataset.to_table(columns={"r": "coalesce(n, n)", "n": "n"})
    assert found.schema.types == [pa.null(), pa.null()]
    dataset.add_columns({"more": "n"})
    assert dataset.to_table().to_pylist() == [{"n": None, "more": None}] * 3
