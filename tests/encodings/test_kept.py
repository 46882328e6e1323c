"""What pages decoded is kept where it is in proportion to their bytes, and the last of the rest."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from weakref import ref

import numpy as np
import pyarrow as pa
import pytest
from tests.damage import data_size, rewritten

import glaive
from glaive.encodings.protocol import Kept, Latest
from glaive.errors import CapacityError
from glaive.file.open import create_writer, open_reader
from glaive.file.protocol import BoundColumns
from glaive.format.fields import LanceSchema
from glaive.io.local import LocalStore

MEBIBYTE = 1 << 20


def fill(count: int = 1100) -> list[Kept[object]]:
    """Others keep a mebibyte each, for which no byte is in a file."""
    others = [Kept[object]() for _ in range(count)]
    for one in others:
        one.keep(one, MEBIBYTE, 0)
    return others


@pytest.mark.spec("rel-24")
def test_of_values_that_few_bytes_stand_for_the_last_are_kept() -> None:
    others = fill()
    assert others[-1].get() is others[-1]
    assert others[0].get() is None
    assert 900 < sum(one.get() is not None for one in others) < 1100


@pytest.mark.parametrize(("size", "stored"), [(1000, 0), (MEBIBYTE, MEBIBYTE // 64)])
def test_values_in_proportion_to_their_bytes_stay(size: int, stored: int) -> None:
    kept = Kept[str]()
    assert kept.get() is None
    assert kept.keep("value", size, stored) == "value"
    fill()
    assert kept.get() == kept.own == "value"


def test_a_value_larger_than_all_others_may_be_stays_until_the_next() -> None:
    kept = Kept[str]()
    kept.keep("value", 2000 * MEBIBYTE, 0)
    assert kept.get() == "value"
    fill(1)
    assert kept.get() is None


def test_values_are_let_go_with_their_page() -> None:
    kept, value = Kept[np.ndarray](), np.zeros(10)
    kept.keep(value, MEBIBYTE, 0)
    left = ref(value)
    del kept, value
    assert left() is None


def test_a_column_keeps_values_of_the_page_that_was_read_last() -> None:
    latest, pages = Latest(), ["first", "second"]
    kept = {page: [Kept[str](), Kept[str]()] for page in pages}
    for page in pages:
        for one in kept[page]:
            one.keep_latest(page, MEBIBYTE, MEBIBYTE // 2, latest, page)
    few_bytes = Kept[str]()
    few_bytes.keep_latest("second", MEBIBYTE, 0, latest, "second")
    fill()
    assert [one.get() for page in pages for one in kept[page]] == [None, None, "second", "second"]
    assert few_bytes.get() is None


TEXTS = pa.array([f"{at % 9}" * 9000 for at in range(400)])
EMPTY = pa.array([[], None] * 30_000, pa.list_(pa.int32()))
COMPRESSED = {
    "lance-encoding:compression": "zstd",
    "lance-encoding:dict-divisor": "2",
    "lance-encoding:dict-values-compression": "zstd",
}


@pytest.mark.filterwarnings("ignore:Format 2.3")
@pytest.mark.parametrize("version", ["2.0", "2.1", "2.2", "2.3"])
@pytest.mark.parametrize("array", [TEXTS, EMPTY], ids=["texts", "lists"])
def test_pages_are_read_again_after_others_took_the_place(
    tmp_path: Path, array: pa.Array, version: str
) -> None:
    field = pa.field("c", array.type, metadata=COMPRESSED if array is TEXTS else None)
    table = pa.Table.from_arrays([array], schema=pa.schema([field]))
    dataset = glaive.write_dataset(table, tmp_path / "t", data_storage_version=version)
    for _ in range(2):
        assert dataset.take([300, 7])["c"].to_pylist() == [array[300].as_py(), array[7].as_py()]
        assert dataset.to_table()["c"].combine_chunks() == array
        fill()


def same_pages(folder: Path, pages: int, texts: pa.Array = TEXTS) -> BoundColumns:
    """A file of so many pages, each with a copy of the same bytes."""
    store = LocalStore(folder)
    field = pa.field("c", pa.large_string(), metadata=COMPRESSED)
    writer = create_writer(store, "a.lance", LanceSchema.from_arrow(pa.schema([field])), "2.2")
    writer.write(pa.Table.from_arrays([texts.cast(field.type)], schema=pa.schema([field])))
    writer.finish()

    raw = store.get("a.lance").to_pybytes()

    def repeated(descriptor: Any, columns: list[Any]) -> None:
        (page,) = columns[0].pages
        offsets = list(page.buffer_offsets)
        columns[0].pages.extend([page] * (pages - 1))
        for at, one in enumerate(columns[0].pages):
            one.buffer_offsets[:] = [at * data_size(raw) + offset for offset in offsets]
        descriptor.length = pages * len(texts)

    store.put("a.lance", [rewritten(raw, repeated, copies=pages)])
    file = open_reader(store, "a.lance")
    return file.bind(file.schema.fields)


@pytest.mark.nightly(reason="makes large dictionaries")
@pytest.mark.slow
@pytest.mark.spec("rel-24")
def test_a_dictionary_of_few_bytes_on_every_page_does_not_fill_memory(tmp_path: Path) -> None:
    """Each is decoded when its page is read; two thousand take 1.6 GB."""
    texts = pa.array([f"{at % 9}" * 90_000 for at in range(40)])
    columns = same_pages(tmp_path, 2000, texts)
    before = pa.total_allocated_bytes()
    for page in range(2000):
        columns.read(page * len(texts) + 5, page * len(texts) + 6)
    assert pa.total_allocated_bytes() - before < 1100 * MEBIBYTE


@pytest.mark.nightly(reason="makes rows of many pages")
@pytest.mark.slow
@pytest.mark.spec("rel-24")
def test_rows_of_many_pages_of_few_bytes_are_made_in_parts(tmp_path: Path) -> None:
    """Each page is within its limit; all of them take 3.6 GB, of less than a megabyte."""
    columns = same_pages(tmp_path, 1000)
    with pytest.raises(CapacityError, match=r"bytes of values .* column 0 'c'") as full:
        columns.read(0, columns.num_rows)
    assert full.value.parts == 2
