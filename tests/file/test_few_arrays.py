"""Few bytes of a page of 2.0 can stand for many values: what is made of them has a limit."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.counted_calls import counted_calls
from tests.damage import page_message, rewritten

import glaive
from glaive.arrow.chunked import has_known_width, value_bytes
from glaive.errors import UnsupportedFeatureError
from glaive.file.open import create_writer, open_reader
from glaive.file.protocol import BoundColumns
from glaive.format.fields import LanceSchema
from glaive.io.local import LocalStore

MANY = 2**27
MOST_MEMORY = 64 * 1024 * 1024


@contextmanager
def little_memory(most: int = MOST_MEMORY) -> Iterator[None]:
    pool = pa.default_memory_pool()
    watched = pa.proxy_memory_pool(pool)
    pa.set_memory_pool(watched)
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] + (watched.max_memory() or 0) < most
    finally:
        tracemalloc.stop()
        pa.set_memory_pool(pool)


def columns_of(
    folder: Path, array: pa.Array, change: Callable[[Any], object], *, rows: int | None = None
) -> BoundColumns:
    """A file of 2.0 with the message of its page changed; the buffers stay."""
    store = LocalStore(folder)
    schema = LanceSchema.from_arrow(pa.schema([pa.field("c", array.type)]))
    writer = create_writer(store, "a.lance", schema, "2.0")
    writer.write(pa.table({"c": array}))
    writer.finish()

    def change_page(descriptor: Any, columns: list[Any]) -> None:
        descriptor.length = columns[0].pages[0].length = rows or len(array)
        page_message(columns[0].pages[0], change)

    store.put("a.lance", [rewritten(store.get("a.lance").to_pybytes(), change_page)])
    file = open_reader(store, "a.lance")
    return file.bind(file.schema.fields)


def equal_texts(message: Any) -> None:
    message.dictionary.items.constant.value = b"one"


def null_texts(message: Any) -> None:
    message.dictionary.items.nullable.all_nulls.SetInParent()


def texts_of_equal_sizes(message: Any) -> None:
    items = message.dictionary.items
    items.fixed_size_binary.byte_width = 16
    items.fixed_size_binary.bytes.constant.value = b"x" * 16


@pytest.mark.spec("rel-24")
@pytest.mark.parametrize("change", [equal_texts, null_texts, texts_of_equal_sizes])
def test_items_of_a_dictionary_that_take_no_bytes_are_limited(
    tmp_path: Path, change: Callable[[Any], None]
) -> None:
    def many(message: Any) -> None:
        change(message)
        message.dictionary.num_dictionary_items = MANY

    columns = columns_of(tmp_path, pa.array(["a", "b"] * 50).dictionary_encode(), many)
    with little_memory():
        with pytest.raises(UnsupportedFeatureError, match="GLAIVE_MAX_DECODED_BYTES_PER_PAGE"):
            columns.take(np.array([0]))
        with pytest.raises(UnsupportedFeatureError, match="GLAIVE_MAX_DECODED_BYTES_PER_PAGE"):
            columns.read(0, 2)


@pytest.mark.spec("rel-24")
@pytest.mark.parametrize("nulls", [False, True])
def test_bytes_of_texts_that_are_none_of_the_page_are_limited(
    tmp_path: Path, *, nulls: bool
) -> None:
    """One text had any number of bytes, and so had the items of a dictionary."""

    def equal_bytes(message: Any) -> None:
        message.binary.indices.constant.value = (2**31 - 1).to_bytes(8, "little")
        message.binary.null_adjustment = 2**31
        inner = message.binary.bytes
        if nulls:
            inner.nullable.all_nulls.SetInParent()
        else:
            inner.constant.value = b"x"

    texts = pa.array([f"text {at}" for at in range(200)])
    columns = columns_of(tmp_path, texts, equal_bytes)
    with little_memory():
        assert columns.take(np.array([1]))[0].to_pylist() == [""]
        with pytest.raises(UnsupportedFeatureError, match="GLAIVE_MAX_DECODED_BYTES_PER_PAGE"):
            columns.take(np.array([0]))


@pytest.mark.spec("rel-24")
def test_equal_flags_are_repeated_without_their_positions(tmp_path: Path) -> None:
    def equal(message: Any) -> None:
        items = message.nullable.no_nulls.values.fixed_size_list.items
        items.Clear()
        items.constant.value = b"\1"

    size = 2**21
    lists = pa.FixedSizeListArray.from_arrays(pa.array(np.zeros(8 * size, np.bool_)), size)
    columns = columns_of(tmp_path, lists, equal)
    with little_memory():
        (rows,) = columns.read(0, 8)
        assert rows.flatten().true_count == 8 * size
        del rows  # before the pool that they came from


@pytest.mark.spec("rel-24")
@pytest.mark.parametrize("nulls", [False, True])
def test_items_between_rows_that_are_taken_are_not_made(tmp_path: Path, *, nulls: bool) -> None:
    """Rows far apart of an honest file were refused: all between did not fit one array."""
    size, rows = 2**10, 2**21

    def equal(message: Any) -> None:
        items = message.nullable.no_nulls.values.fixed_size_list.items
        items.Clear()
        if nulls:
            items.nullable.all_nulls.SetInParent()
        else:
            items.constant.value = bytes(4)

    lists = pa.FixedSizeListArray.from_arrays(pa.array(np.zeros(size, np.float32)), size)
    columns = columns_of(tmp_path, lists, equal, rows=rows)
    with little_memory():
        (taken,) = columns.take(np.array([rows - 1, 0, rows // 2, 0]))
        assert taken.to_pylist() == [[None if nulls else 0.0] * size] * 4
        del taken  # before the pool that they came from


@pytest.mark.parametrize("some_null", [False, True])
def test_lists_of_equal_items_are_taken_without_a_step_per_row(
    tmp_path: Path, *, some_null: bool
) -> None:
    size, count = 128, 60_000
    null = np.arange(count) % 7 == 0 if some_null else np.zeros(count, bool)
    items = pa.nulls(size * count, pa.float32())
    lists = pa.FixedSizeListArray.from_arrays(items, size, mask=pa.array(null))
    written = pa.table({"v": lists})
    dataset = glaive.write_dataset(written, tmp_path / "t.lance", data_storage_version="2.0")
    rows = list(range(0, count, 9))[::-1]
    dataset.take(rows[:2])
    with counted_calls() as calls:
        taken = dataset.take(rows)
    assert taken.equals(written.take(pa.array(rows)))
    assert calls.total() - calls["C"] < len(rows)


@pytest.mark.spec("rel-24")
def test_filters_decode_a_part_of_very_wide_rows_at_a_time(tmp_path: Path) -> None:
    """4,096 rows at least took a gigabyte, also of an honest file."""
    size, rows = 2**18, 2000

    def equal(message: Any) -> None:
        items = message.nullable.no_nulls.values.fixed_size_list.items
        items.Clear()
        items.constant.value = b"x"

    lists = pa.FixedSizeListArray.from_arrays(pa.array(np.zeros(size, np.uint8)), size)
    empty = glaive.write_dataset(
        pa.table({"c": lists.slice(0, 0)}), tmp_path, data_storage_version="2.0"
    )
    columns_of(tmp_path / "data", lists, equal, rows=rows)
    found = glaive.LanceFragment.create(
        tmp_path, pa.table({"c": lists}), data_storage_version="2.0"
    )
    described = found.to_json()
    described["physical_rows"] = rows
    described["files"][0] |= {"path": "a.lance", "file_size_bytes": None}
    fragment = glaive.FragmentMetadata.from_json(json.dumps(described))
    operation = glaive.LanceOperation.Overwrite(empty.schema, [fragment])
    dataset = glaive.LanceDataset.commit(tmp_path, operation)
    with little_memory(4 * MOST_MEMORY):
        assert dataset.count_rows("c is not null") == rows
        assert dataset.to_table(filter="c is null").num_rows == 0


@pytest.mark.spec("rel-24")
def test_vectors_of_nulls_take_a_bit_each(tmp_path: Path) -> None:
    """Arrow makes a bitmap of all their items: a filter of 221 bytes took 2 GB."""
    size, rows = 2**18, 100_000

    def nulls(message: Any) -> None:
        message.Clear()
        message.nullable.all_nulls.SetInParent()

    columns = columns_of(tmp_path, pa.nulls(2, pa.list_(pa.null(), size)), nulls, rows=rows)
    with little_memory():
        for lists in (*columns.read(0, rows), *columns.take(np.array([rows - 1, 0]))):
            lists.validate(full=True)
            assert lists.null_count == len(lists)
            assert len(lists.values) == size * len(lists)
        del lists  # before the pool that they came from


def test_vectors_of_structs_that_are_null_have_a_width() -> None:
    kind = pa.list_(pa.struct([("x", pa.null())]), 2**18)
    assert value_bytes(kind) == 8 * 2**18  # of the numbers that Arrow gives items it chooses
    assert has_known_width(kind)
