"""Pages that statistics rule out hold no row that passes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from glaive.arrow.conditions import Condition, InRange, IsNull, IsOneOf
from glaive.file.legacy import LegacyFileWriter
from glaive.file.open import open_reader
from glaive.file.protocol import BoundColumn
from glaive.format.fields import LanceSchema
from glaive.io.local import LocalStore

BATCH = 4
NAN = float("nan")


def column_of(folder: Path, array: pa.Array) -> BoundColumn:
    store = LocalStore(str(folder))
    schema = LanceSchema.from_arrow(pa.schema([("c", array.type)]))
    writer = LegacyFileWriter(store, "file.lance", schema, rows_per_batch=BATCH)
    writer.write(pa.table({"c": array}))
    writer.finish()
    reader = open_reader(store, "file.lance")
    (column,) = reader.bind(reader.schema.fields).columns
    return column


def pruned(column: BoundColumn, condition: Condition, start: int = 0, stop: int = 12) -> list[Any]:
    return [tuple(part) for part in column.prune(condition, start, stop)]


def test_pages_out_of_range_are_left_out(tmp_path: Path) -> None:
    column = column_of(tmp_path, pa.array(range(12)))
    scalar = pa.scalar
    assert pruned(column, InRange(low=scalar(4), high=scalar(7))) == [(4, 8)]
    assert pruned(column, InRange(low=scalar(3), low_included=False)) == [(4, 12)]
    assert pruned(column, InRange(high=scalar(4), high_included=False)) == [(0, 4)]
    assert pruned(column, IsOneOf(pa.array([1, 10, None]))) == [(0, 4), (8, 12)]
    assert pruned(column, IsOneOf(pa.array(range(4, 40)))) == [(4, 12)]
    assert pruned(column, IsOneOf(pa.array([], pa.int64()))) == []
    assert pruned(column, IsOneOf(pa.array([1]), negated=True)) == [(0, 12)]
    assert pruned(column, IsNull()) == [(0, 12)]
    assert pruned(column, InRange(low=scalar(4), high=scalar(9)), 6, 9) == [(6, 9)]
    assert pruned(column, InRange(low=scalar(4), high=scalar(9)), 2, 3) == []
    assert pruned(column, InRange(low=scalar(4)), 5, 5) == []


def test_many_durations_leave_pages_out_by_what_lies_around_them(tmp_path: Path) -> None:
    numbers = np.arange(-4, 8)
    column = column_of(tmp_path, pa.array(numbers.astype("m8[ms]")))
    among = pa.array(np.arange(1, 40).astype("m8[ms]"))
    assert pruned(column, IsOneOf(among)) == [(4, 12)]
    assert pruned(column, IsOneOf(among.slice(0, 2))) == [(4, 8)]


@pytest.mark.spec("stats-8")
def test_what_was_null_may_pass_as_the_value_of_its_slot(tmp_path: Path) -> None:
    numbers: Any = np.ma.MaskedArray(np.arange(12), np.arange(12) == 5)
    column = column_of(tmp_path, pa.array(numbers.data, mask=numbers.mask))
    assert pruned(column, IsOneOf(pa.array([9]))) == [(4, 12)]


def test_nan_is_beyond_the_bounds_of_its_page(tmp_path: Path) -> None:
    column = column_of(tmp_path, pa.array([1.0, NAN, 1.0, 1.0, *[5.0] * 4, *[NAN] * 4]))
    assert pruned(column, InRange(low=pa.scalar(6.0))) == [(0, 12)]
    assert pruned(column, InRange(low=pa.scalar(6.0), high=pa.scalar(9.0))) == [(8, 12)]
    assert pruned(column, IsOneOf(pa.array([NAN]))) == [(0, 12)]
    assert pruned(column, IsOneOf(pa.array([5.0]))) == [(4, 12)]


def test_nans_of_other_bits_are_beyond_the_bounds_of_their_page(tmp_path: Path) -> None:
    bits = np.array([0x7FF8_0000_0000_0001, 0xFFF8_0000_0000_0001], np.uint64)
    greater, smaller = bits.view("f8")
    column = column_of(tmp_path, pa.array([1.0, greater, 1.0, 1.0, *[5.0] * 4, *[smaller] * 4]))
    assert pruned(column, InRange(low=pa.scalar(NAN), low_included=False)) == [(0, 12)]
    assert pruned(column, InRange(high=pa.scalar(-NAN), high_included=False)) == [(0, 12)]
    assert pruned(column, IsOneOf(pa.array([greater]))) == [(0, 12)]


def test_zeros_are_not_distinguished(tmp_path: Path) -> None:
    column = column_of(tmp_path, pa.array([*[-0.0] * 4, *[0.0] * 4, *[1.0] * 4]))
    inf = pa.scalar(float("inf"))
    assert pruned(column, IsOneOf(pa.array([0.0]))) == [(0, 8)]
    assert pruned(column, IsOneOf(pa.array([-0.0]))) == [(0, 8)]
    over = InRange(low=pa.scalar(0.0), high=inf, low_included=False)
    assert pruned(column, over) == [(8, 12)]


def test_bounds_of_long_strings_are_cut(tmp_path: Path) -> None:
    long = "a" * 100
    strings = [long + "b", long, "b", "c", *["\U0010ffff" * 40] * 4, *["x"] * 4]
    column = column_of(tmp_path, pa.array(strings))
    for text in strings:
        at = strings.index(text)
        assert any(a <= at < b for a, b in pruned(column, IsOneOf(pa.array([text]))))
    assert pruned(column, InRange(low=pa.scalar("d"), high=pa.scalar("e"))) == []


KINDS: list[Any] = [pa.int8(), pa.uint64(), pa.float32(), pa.float64(), pa.date32(), pa.bool_()]


@pytest.mark.sampled(every=2)
@pytest.mark.parametrize("kind", KINDS, ids=str)
@given(data=st.data())
def test_no_row_that_passes_is_left_out(
    tmp_path_factory: Any, kind: Any, data: st.DataObject
) -> None:
    if pa.types.is_floating(kind):
        floats = st.sampled_from([-1.5, -0.0, 0.0, 1.0, NAN, float("inf"), float("-inf")])
        values: Any = pa.array(data.draw(st.lists(floats, min_size=12, max_size=12)), kind)
    else:
        number = st.integers(0, 1 if pa.types.is_boolean(kind) else 9)
        drawn = data.draw(st.lists(number, min_size=12, max_size=12))
        values = pa.array(drawn, pa.int32()).cast(kind)
    nulls = data.draw(st.sets(st.integers(0, 11), max_size=3))
    mask = np.array([at in nulls for at in range(12)])
    masked = pa.Array.from_buffers(
        kind, 12, [pa.py_buffer(np.packbits(~mask, bitorder="little").tobytes()),
                   values.buffers()[1]]
    )  # fmt: skip
    column = column_of(tmp_path_factory.mktemp("f"), masked)
    read: Any = column.read(0, 12)
    low, high = (data.draw(st.integers(0, 11)) for _ in range(2))
    conditions: list[Condition] = [
        InRange(low=values[low], high=values[high], low_included=data.draw(st.booleans())),
        InRange(high=values[high], high_included=False),
        IsOneOf(values.slice(low, 2)),
        IsOneOf(values.slice(low, 2), negated=True),
        IsNull(),
    ]
    for condition in conditions:
        parts = pruned(column, condition)
        for row in np.flatnonzero(np.asarray(condition.mask(read))).tolist():
            assert any(a <= row < b for a, b in parts)


@pytest.mark.spec("stats-1", "rel-42")
def test_statistics_are_of_the_pages_that_a_field_is_read_from(tmp_path: Path) -> None:
    """A damaged manifest leads one field to the pages of another: a filter missed all rows."""
    names = {"few": list(range(12)), "many": list(range(100, 112))}
    schema = LanceSchema.from_arrow(pa.schema([(name, pa.int64()) for name in names]))
    store = LocalStore(str(tmp_path))
    writer = LegacyFileWriter(store, "a.lance", schema, rows_per_batch=BATCH)
    writer.write(pa.table(names))
    writer.finish()
    file = open_reader(store, "a.lance")
    low = pa.scalar(110, pa.int64())
    usual, _ = file.bind(schema.fields).columns
    assert pruned(usual, InRange(low=low)) == []
    led, _ = file.bind(schema.fields, {0: 1, 1: 0}).columns
    assert led.read(10, 12).to_pylist() == [110, 111]
    assert pruned(led, InRange(low=low)) == [(0, 12)]
