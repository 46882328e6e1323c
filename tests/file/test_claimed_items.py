"""Lists may claim more items than there are bytes for: sums of such claims do not wrap around."""

from __future__ import annotations

import struct
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.damage import page_message, rewritten

from glaive.errors import CapacityError, CorruptFileError
from glaive.file.open import create_writer, open_reader
from glaive.file.protocol import BoundColumn, Proportion
from glaive.format.fields import LanceSchema
from glaive.format.pb import encodings21_pb2 as pb
from glaive.format.pb import encodings23_pb2 as pb23
from glaive.io.local import LocalStore
from glaive.types import Where

MANY = 2**47
"""Items of a list, all of them null."""


def written(folder: Path, array: pa.Array, version: str) -> bytes:
    store = LocalStore(folder)
    schema = LanceSchema.from_arrow(pa.schema([pa.field("c", array.type)]))
    writer = create_writer(store, "a.lance", schema, version)
    writer.write(pa.table({"c": array}))
    writer.finish()
    return store.get("a.lance").to_pybytes()


def opened(folder: Path, raw: bytes, *, lacks_items: bool = False) -> BoundColumn:
    store = LocalStore(folder)
    store.put("b.lance", [raw])
    file = open_reader(store, "b.lance")
    fields = file.schema.fields
    return file.bind(fields, {fields[0].id: 0} if lacks_items else None).columns[0]


def endless_list_of_2_0(folder: Path, kind: pa.DataType) -> BoundColumn:
    """Three lists, the second and the third of ``MANY`` nulls."""
    raw = written(folder, pa.array([[None] * 3, [None] * 4, [None]], kind), "2.0")
    at = raw.index(struct.pack("<QQQ", 3, 7, 8))
    ends = struct.pack("<QQQ", 0, MANY, 2 * MANY)

    def lists(message: Any) -> None:
        message.list.num_items = 2 * MANY
        message.list.null_offset_adjustment = 2 * MANY + 1

    def claim(_: Any, columns: list[Any]) -> None:
        page_message(columns[0].pages[0], lists)
        (items,) = columns[1].pages
        items.length = MANY
        columns[1].pages.add().CopyFrom(items)

    return opened(folder, rewritten(raw[:at] + ends + raw[at + 24 :], claim))


@pytest.mark.spec("arr-list-4")
@pytest.mark.parametrize("kind", [pa.list_(pa.int64()), pa.large_list(pa.int64())], ids=str)
def test_pages_of_2_0_with_items_behind_their_last_list_are_not_read_as_one(
    tmp_path: Path, kind: pa.DataType
) -> None:
    """The items of the next page would be others than where it is read alone."""
    raw = written(tmp_path, pa.array([[0, 1], [2, 3], [4], [5]], kind), "2.0")
    at = raw.index(struct.pack("<QQQQ", 2, 4, 5, 6))

    def count(number: int) -> Any:
        return lambda message: setattr(message.list, "num_items", number)

    def split(_: Any, columns: list[Any]) -> None:
        (first,) = columns[0].pages
        second = columns[0].pages.add()
        second.CopyFrom(first)
        second.buffer_offsets[0] += 16
        for page, items in ((first, 4), (second, 2)):
            page.length, page.buffer_sizes[0] = 2, 16
            page_message(page, count(items))

    def column(*ends: int) -> BoundColumn:
        changed = raw[:at] + struct.pack("<QQQQ", *ends) + raw[at + 32 :]
        return opened(tmp_path, rewritten(changed, split))

    assert column(2, 4, 1, 2).read(0, 4).to_pylist() == [[0, 1], [2, 3], [4], [5]]
    lacking = column(2, 3, 1, 2)
    alone = [lacking.read(start, start + 2).to_pylist() for start in (0, 2)]
    assert alone == [[[0, 1], [2]], [[4], [5]]]
    with pytest.raises(CorruptFileError, match="items of the lists of several pages"):
        lacking.read(0, 4)
    assert lacking.take(np.array([3, 1, 2])).to_pylist() == [[5], [2], [4]]


@pytest.mark.spec("rel-23", "rel-24")
@pytest.mark.parametrize("kind", [pa.list_(pa.null()), pa.large_list(pa.null())], ids=str)
@pytest.mark.parametrize("rows", [np.full(2**17, 1), np.array([1, 0, 2]), np.array([2, 1])])
def test_lists_of_more_nulls_than_can_be_counted_are_not_taken_together(
    tmp_path: Path, kind: pa.DataType, rows: Any
) -> None:
    column = endless_list_of_2_0(tmp_path, kind)
    tracemalloc.start()
    with pytest.raises(CapacityError):
        column.take(rows)
    assert tracemalloc.get_traced_memory()[1] < 2**26
    tracemalloc.stop()


def test_one_list_of_more_nulls_than_there_is_room_for_positions_is_not_read(
    tmp_path: Path,
) -> None:
    column = endless_list_of_2_0(tmp_path, pa.large_list(pa.null()))
    with pytest.raises(CapacityError):
        column.take(np.array([1]))
    assert column.take(np.array([0])).to_pylist() == [[]]


def wild_lists_of_0_1(
    folder: Path, array: pa.Array, last: int, *, lacks_items: bool = False
) -> BoundColumn:
    """One list of a file of 0.1, which ends at item ``last``."""
    raw = written(folder, array, "0.1")
    at = raw.index(struct.pack("<qq", 0, 117))
    found = raw[:at] + struct.pack("<qq", 0, last) + raw[at + 16 :]
    return opened(folder, found, lacks_items=lacks_items)


@pytest.mark.spec("rel-23")
@pytest.mark.parametrize("item", [None, 7], ids=["nulls", "items that the file lacks"])
def test_claims_of_lists_without_bytes_do_not_add_up_to_nothing(
    tmp_path: Path, item: int | None
) -> None:
    kind = pa.large_list(pa.null() if item is None else pa.int64())
    array = pa.array([[item] * 117], kind)
    column = wild_lists_of_0_1(tmp_path, array, 2**62, lacks_items=True)
    with pytest.raises(CapacityError):
        column.take(np.zeros(4, np.int64))  # 2^64 items, of which 64 bits show none


@pytest.mark.spec("rel-23")
@pytest.mark.parametrize("last", [2**63 - 1, 2**63 - 2, 2**62])
@pytest.mark.parametrize("item", ["text", [5]], ids=["texts", "lists"])
def test_a_list_that_ends_at_the_last_number_is_beyond_its_page(
    tmp_path: Path, item: Any, last: int
) -> None:
    inner = pa.large_string() if item == "text" else pa.large_list(pa.int64())
    array = pa.array([[item] * 117], pa.large_list(inner))
    with pytest.raises((CapacityError, CorruptFileError)):
        wild_lists_of_0_1(tmp_path, array, last).read(0, 1)


def endless_list_of_2_3(folder: Path) -> BoundColumn:
    """Two lists of half as many nulls as a page may have slots."""
    raw = written(folder, pa.array([[None], [None]], pa.large_list(pa.null())), "2.3")
    half = 2**31 - 1

    def lists(message: Any) -> None:
        message.Clear()
        layers = message.structure.sparse.layers
        one = pb.CompressiveEncoding(constant=pb.Constant(value=(1).to_bytes(8, "little")))
        nulls = pb23.SparseValiditySet(
            meaning=pb23.SPARSE_VALIDITY_NULL_POSITIONS, positions=one, num_positions=0
        )
        numbers = pb.Range(uncompressed_bits_per_value=64, start=0, step=1)
        sizes = pb.Constant(value=half.to_bytes(8, "little"))
        lists = pb23.SparseListLayer(
            num_child_slots=2 * half,
            non_empty_positions=pb.CompressiveEncoding(range=numbers),
            num_non_empty_positions=2,
            counts=pb.CompressiveEncoding(constant=sizes),
            validity=nulls,
        )
        layers.add().list.CopyFrom(lists)
        layers.add().validity.CopyFrom(nulls)
        layers[1].validity.meaning = pb23.SPARSE_VALIDITY_VALID_POSITIONS
        message.values.no_values.SetInParent()

    def claim(_: Any, columns: list[Any]) -> None:
        page = columns[0].pages[0]
        del page.buffer_offsets[:], page.buffer_sizes[:]
        page_message(page, lists)

    return opened(folder, rewritten(raw, claim))


@pytest.mark.spec("rel-24")
def test_positions_of_nulls_in_sparse_lists_take_no_memory_by_their_number(tmp_path: Path) -> None:
    column = endless_list_of_2_3(tmp_path)
    with pytest.raises(CapacityError):
        column.take(np.array([1, 0]))


def endless_fixed_lists(folder: Path) -> BoundColumn:
    """4,096 lists of a fixed size of 1,048,576 structs each, of which a file of 2.2 has two."""
    size, rows = 2**20, 2**12
    kind = pa.list_(pa.struct([("a", pa.int32())]), size)
    raw = written(folder, pa.nulls(2, kind), "2.2")

    def nulls(message: Any) -> None:
        layers = list(message.constant_layout.layers)
        message.Clear()
        message.constant_layout.layers.extend(layers)

    def claim(descriptor: Any, columns: list[Any]) -> None:
        descriptor.length = rows
        (page,) = columns[0].pages
        page.length = size * rows
        del page.buffer_offsets[:], page.buffer_sizes[:]
        page_message(page, nulls)

    return opened(folder, rewritten(raw, claim))


@pytest.mark.spec("rel-24")
def test_positions_of_items_of_fixed_lists_take_no_memory_by_their_number(tmp_path: Path) -> None:
    column = endless_fixed_lists(tmp_path)
    tracemalloc.start()
    with pytest.raises(CapacityError):
        column.take(np.arange(0, 1024, 2))
    assert tracemalloc.get_traced_memory()[1] < 2**26
    tracemalloc.stop()
    for rows in ([4095], [7, 3]):
        assert len(column.take(np.array(rows))) == len(rows)


@pytest.mark.spec("rel-24")
def test_values_of_many_pages_are_limited_where_a_file_has_few_bytes_for_them() -> None:
    where, page = Where("x.lance", 0, "v"), pa.array(np.zeros(2**30 + 1, np.int8))  # not touched
    check = Proportion(10 * len(page), 1000, where).array
    assert check(page) is page
    with pytest.raises(CapacityError) as raised:
        check(page)
    assert raised.value.parts == 6
    of_large_file = Proportion(10 * len(page), 2**30, where).array
    all_of_it = Proportion(2 * len(page), 1000, where).array
    for _ in range(2):
        of_large_file(page)
        all_of_it(page)
