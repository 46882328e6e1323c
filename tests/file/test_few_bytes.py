"""Few bytes of a file can stand for many values: what a page makes of them has a limit."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.damage import page_message, rewritten

import glaive
from glaive.errors import CapacityError, UnsupportedFeatureError
from glaive.file.open import create_writer, open_reader
from glaive.file.protocol import BoundColumns
from glaive.format.fields import LanceSchema
from glaive.format.pb import encodings21_pb2 as pb
from glaive.format.pb import encodings23_pb2 as pb23
from glaive.io.local import LocalStore

MANY = 2**27
"""Rows of pages that a few hundred bytes describe."""

MOST_MEMORY = 64 * 1024 * 1024
"""Bytes that refusing a file may take."""

FIXED = 16
"""Items of lists of a fixed size."""


def constant(number: int, width: int) -> pb.CompressiveEncoding:
    return pb.CompressiveEncoding(constant=pb.Constant(value=number.to_bytes(width, "little")))


def flat(bits: int) -> pb.CompressiveEncoding:
    return pb.CompressiveEncoding(flat=pb.Flat(bits_per_value=bits))


def laid_out(change: Callable[[Any], object], *, buffers: int | None = None) -> Any:
    """A change to the message of a page's layout; the page keeps some of its buffers."""

    def change_page(page: Any) -> None:
        if buffers is not None:
            del page.buffer_offsets[buffers:], page.buffer_sizes[buffers:]
        page_message(page, change)

    return change_page


ONES = constant(1, 8)
POSITIONS = pb.CompressiveEncoding(range=pb.Range(uncompressed_bits_per_value=64, start=0, step=1))
ALL_VALID = pb23.SparseValiditySet(
    meaning=pb23.SPARSE_VALIDITY_NULL_POSITIONS, positions=ONES, num_positions=0
)


def columns_of(
    folder: Path,
    array: pa.Array,
    version: str,
    change: Callable[[Any], object],
    *,
    rows: int,
    entries: int | None = None,
) -> BoundColumns:
    """A file whose first page is all there is, after ``change``; it says so many rows."""
    store = LocalStore(folder)
    schema = LanceSchema.from_arrow(pa.schema([pa.field("c", array.type)]))
    writer = create_writer(store, "a.lance", schema, version)
    writer.write(pa.table({"c": array}))
    writer.finish()

    def claim(descriptor: Any, columns: list[Any]) -> None:
        descriptor.length = rows
        for column in columns:
            del column.pages[1:]
            page = column.pages[0]
            page.length = entries or rows
            change(page)

    store.put("a.lance", [rewritten(store.get("a.lance").to_pybytes(), claim)])
    file = open_reader(store, "a.lance")
    return file.bind(file.schema.fields)


def lists_in_lists(message: Any) -> None:
    """Every list has one item, three lists deep."""
    message.Clear()
    lists = pb23.SparseListLayer(
        num_child_slots=MANY,
        non_empty_positions=POSITIONS,
        num_non_empty_positions=MANY,
        counts=ONES,
        validity=ALL_VALID,
    )
    layers = message.structure.sparse.layers
    for _ in range(3):
        layers.add().list.CopyFrom(lists)
    layers.add().validity.CopyFrom(ALL_VALID)
    message.values.constant.scalar = bytes(4)


def nulls_in_fixed_lists(message: Any) -> None:
    """Nearly all lists of a fixed size are null: so are their items."""
    message.Clear()
    nulls = pb23.SparseValiditySet(
        meaning=pb23.SPARSE_VALIDITY_NULL_POSITIONS,
        positions=POSITIONS,
        num_positions=MANY // FIXED - 1,
    )
    layers = message.structure.sparse.layers
    layers.add().fixed_size_list.CopyFrom(
        pb23.SparseFixedSizeListLayer(dimension=FIXED, validity=nulls)
    )
    for _ in range(2):
        layers.add().validity.CopyFrom(ALL_VALID)
    message.values.constant.scalar = bytes(4)


def equal_indices(message: Any) -> None:
    """All slots have the first of the items."""
    message.Clear()
    message.structure.sparse.layers.add().validity.CopyFrom(ALL_VALID)
    message.values.indexed.indices.CopyFrom(constant(0, 4))
    message.values.indexed.items.CopyFrom(
        pb23.ZippedValues(
            value_compression=flat(32), bits_per_value=32, num_items=27, num_visible_items=27
        )
    )


def empty_lists(message: Any) -> None:
    """All levels are equal."""
    levels = message.constant_layout
    levels.rep_compression.CopyFrom(constant(1, 2))
    levels.def_compression.CopyFrom(constant(1, 2))
    levels.num_rep_values = levels.num_def_values = MANY


def levels_of_runs(message: Any) -> None:
    """All levels are equal, and each is a run."""
    page = message.constant_layout
    ones = constant(1, 4)
    page.def_compression.rle.CopyFrom(pb.Rle(values=constant(1, 2), run_lengths=ones))
    page.num_def_values = MANY


def one_item(message: Any) -> None:
    """All items of a dictionary are one of another dictionary."""
    page = message.mini_block_layout
    page.dictionary.CopyFrom(
        pb.CompressiveEncoding(
            dictionary=pb.Dictionary(indices=constant(0, 4), items=flat(32), num_dictionary_items=1)
        )
    )
    page.num_dictionary_items = 2**31 - 1


def structs() -> pa.Array:
    items = pa.array([{"x": 1}] * 4 * FIXED, pa.struct([("x", pa.int32())]))
    return pa.FixedSizeListArray.from_arrays(items, FIXED)


NESTED = pa.list_(pa.list_(pa.list_(pa.int32())))
INTEGERS = pa.array([1, 2, 3] * 9, pa.int32())
EMPTY = pa.array([[], None] * 9, pa.list_(pa.int32()))
NULLS = pa.array([7, None] * 9, pa.int32())
TEXTS = pa.array([f"text {at % 3}" for at in range(900)])
CASES: dict[str, tuple[pa.Array, str, Any, dict[str, int]]] = {
    "lists": (pa.array([[[[7]]]] * 3, NESTED), "2.3", laid_out(lists_in_lists, buffers=0), {}),
    "lists of a fixed size": (
        structs(),
        "2.3",
        laid_out(nulls_in_fixed_lists, buffers=0),
        {"rows": MANY // FIXED, "entries": MANY},
    ),
    "indices": (INTEGERS, "2.3", laid_out(equal_indices, buffers=1), {"rows": 2**31}),
    "levels": (EMPTY, "2.2", laid_out(empty_lists, buffers=2), {}),
    "levels of runs": (NULLS, "2.2", laid_out(levels_of_runs, buffers=2), {}),
    "a dictionary": (TEXTS, "2.1", laid_out(one_item), {"rows": 900}),
}


@pytest.mark.spec("rel-24")
@pytest.mark.filterwarnings("ignore:Format 2.3")
@pytest.mark.parametrize("name", CASES)
def test_what_some_bytes_describe_is_not_made_for_a_single_row(tmp_path: Path, name: str) -> None:
    array, version, change, claims = CASES[name]
    columns = columns_of(tmp_path, array, version, change, **{"rows": MANY, **claims})
    pool = pa.default_memory_pool()
    watched = pa.proxy_memory_pool(pool)
    pa.set_memory_pool(watched)
    tracemalloc.start()
    try:
        with pytest.raises(UnsupportedFeatureError, match="GLAIVE_MAX_DECODED_BYTES_PER_PAGE"):
            columns.take(np.array([0]))
        with pytest.raises(UnsupportedFeatureError, match="GLAIVE_MAX_DECODED_BYTES_PER_PAGE"):
            columns.read(0, 2)
        used = tracemalloc.get_traced_memory()[1] + (watched.max_memory() or 0)
    finally:
        tracemalloc.stop()
        pa.set_memory_pool(pool)
    assert used < MOST_MEMORY


@pytest.mark.spec("rel-24")
@pytest.mark.filterwarnings("ignore:Format 2.3")
def test_items_of_long_lists_are_not_listed_to_take_some_rows(tmp_path: Path) -> None:
    def long_lists(message: Any) -> None:
        message.Clear()
        layers = message.structure.sparse.layers
        layers.add().list.CopyFrom(
            pb23.SparseListLayer(
                num_child_slots=3 * MANY,
                non_empty_positions=POSITIONS,
                num_non_empty_positions=3,
                counts=constant(MANY, 8),
                validity=ALL_VALID,
            )
        )
        layers.add().validity.CopyFrom(ALL_VALID)
        message.values.constant.scalar = bytes(4)

    array = pa.array([[7]] * 3, pa.list_(pa.int32()))
    columns = columns_of(tmp_path, array, "2.3", laid_out(long_lists, buffers=0), rows=3)
    tracemalloc.start()
    try:
        with pytest.raises(CapacityError, match=r"positions of \d+ items"):
            columns.take(np.array([0, 2, 2]))
        assert tracemalloc.get_traced_memory()[1] < MOST_MEMORY
    finally:
        tracemalloc.stop()


@pytest.mark.spec("rel-24")
@pytest.mark.filterwarnings("ignore:Format 2.3")
def test_items_of_lists_of_a_large_size_are_not_listed_to_take_some_rows(tmp_path: Path) -> None:
    """The type alone says how many items a row has."""
    store = LocalStore(tmp_path)
    array = pa.array([[{"x": True}] * 4] * 9, pa.list_(pa.struct([("x", pa.bool_())]), 4))
    schema = LanceSchema.from_arrow(pa.schema([pa.field("c", array.type)]))
    writer = create_writer(store, "a.lance", schema, "2.3")
    writer.write(pa.table({"c": array}))
    writer.finish()

    def nulls(message: Any) -> None:
        message.Clear()
        layers = message.structure.sparse.layers
        layers.add().fixed_size_list.CopyFrom(
            pb23.SparseFixedSizeListLayer(dimension=MANY, validity=ALL_VALID)
        )
        layers.add().validity.CopyFrom(ALL_VALID)
        layers.add().validity.CopyFrom(ALL_VALID)
        message.values.no_values.SetInParent()

    def large(descriptor: Any, columns: list[Any]) -> None:
        descriptor.schema.fields[0].logical_type = f"fixed_size_list:struct:{MANY}"
        columns[0].pages[0].length = 9 * MANY
        laid_out(nulls, buffers=0)(columns[0].pages[0])

    store.put("a.lance", [rewritten(store.get("a.lance").to_pybytes(), large)])
    file = open_reader(store, "a.lance")
    columns = file.bind(file.schema.fields)
    tracemalloc.start()
    try:
        (row,) = columns.take(np.array([8]))
        with pytest.raises(CapacityError, match=r"positions of \d+ items"):
            columns.take(np.array([0, 2, 4]))
        assert tracemalloc.get_traced_memory()[1] < MOST_MEMORY
    finally:
        tracemalloc.stop()
    assert len(row) == 1
    assert len(row.values) == MANY


@pytest.mark.spec("rel-24")
def test_null_items_of_a_large_list_of_2_0_are_not_listed_to_take_it(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    array = pa.array([[None] * 4] * 3, pa.list_(pa.bool_(), 4))
    writer = create_writer(
        store, "a.lance", LanceSchema.from_arrow(pa.schema([pa.field("c", array.type)])), "2.0"
    )
    writer.write(pa.table({"c": array}))
    writer.finish()

    def nulls(message: Any) -> None:
        message.Clear()
        lists = message.nullable.no_nulls.values.fixed_size_list
        lists.dimension = MANY
        lists.items.nullable.all_nulls.SetInParent()

    def large(descriptor: Any, columns: list[Any]) -> None:
        descriptor.schema.fields[0].logical_type = f"fixed_size_list:bool:{MANY}"
        laid_out(nulls, buffers=0)(columns[0].pages[0])

    store.put("a.lance", [rewritten(store.get("a.lance").to_pybytes(), large)])
    file = open_reader(store, "a.lance")
    pool = pa.default_memory_pool()
    watched = pa.proxy_memory_pool(pool)
    pa.set_memory_pool(watched)
    try:
        rows = file.bind(file.schema.fields).take(np.array([2]))
        items = [row.flatten().null_count for row in rows]
        del rows  # before the pool that it came from
        used = watched.max_memory() or 0
    finally:
        pa.set_memory_pool(pool)
    assert items == [MANY]
    assert used < MOST_MEMORY


def test_lists_that_the_message_describes_are_read(tmp_path: Path) -> None:
    """A hundred thousand rows are no reason to refuse them."""
    array = pa.array([[[[7]]]] * 100_000, NESTED)
    glaive.write_dataset({"c": array}, tmp_path / "t", data_storage_version="2.3")
    assert glaive.dataset(tmp_path / "t").to_table()["c"].combine_chunks() == array


LONG = 500_000
"""Bytes of each text of a dictionary."""


@pytest.mark.spec("rel-23", "rel-24")
@pytest.mark.parametrize("kind", [pa.string(), pa.large_string()], ids=str)
def test_texts_of_a_dictionary_of_2_0_that_fit_no_array_are_read_in_parts(
    tmp_path: Path, kind: Any
) -> None:
    """Offsets of 32 bits wrapped around, and led to memory of others."""
    texts = [letter * LONG for letter in "\0\1\2"]
    rows = 2**32 // LONG + 100

    def dictionary(message: Any) -> None:
        items = type(message).FromString(message.SerializeToString())
        message.dictionary.items.CopyFrom(items)
        message.dictionary.num_dictionary_items = len(texts)
        flat_indices = message.dictionary.indices.flat
        flat_indices.bits_per_value, flat_indices.buffer.buffer_index = 8, 2

    def indices_among_the_texts(page: Any) -> None:
        page.buffer_offsets.append(page.buffer_offsets[1] + LONG)
        page.buffer_sizes.append(rows)
        page_message(page, dictionary)

    columns = columns_of(tmp_path, pa.array(texts, kind), "2.0", indices_among_the_texts, rows=rows)
    with pytest.raises(CapacityError):
        columns.read(0, rows)
    (some,) = columns.read(rows - 3, rows)
    assert some.equals(pa.array(texts[:1] * 3, kind))  # the first number is that of null
    (taken,) = columns.take(np.array([rows - 1, 5]))
    assert taken.equals(pa.array(texts[:1] * 2, kind))


@pytest.mark.spec("rel-24")
def test_a_repeated_text_of_2_0_is_made_in_parts(tmp_path: Path) -> None:
    def one_text(message: Any) -> None:
        message.Clear()
        message.constant.value = b"x" * LONG

    rows = 2**40 // LONG
    change = laid_out(one_text, buffers=0)
    columns = columns_of(tmp_path, pa.array(["a", "b"] * 9), "2.0", change, rows=rows)
    with pytest.raises(CapacityError, match="bytes of string in one array"):
        columns.read(0, rows)
    assert columns.read(7, 9)[0].to_pylist() == ["x" * LONG] * 2
