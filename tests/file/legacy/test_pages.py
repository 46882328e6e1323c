"""Pages of format 0.1, decoded from the bytes that both libraries write."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.file_messages import BOTH

import glaive
from glaive.file.legacy import LegacyFileWriter
from glaive.file.open import open_reader
from glaive.format.fields import LanceSchema
from glaive.format.pb import file_pb2, table_pb2
from glaive.io.local import LocalStore

LISTS: list[Any] = [[1, 2], None, [3], [], [4, 5, 6]]
KEYS = pa.array([1, 0, 1, 0, 0], pa.int8())
ROWS = pa.table(
    {
        "number": pa.array([1, -2, 3, 4, 5], pa.int16()),
        "time": pa.array([7, 8, 9, 10, 11], pa.timestamp("us")),
        "bytes": pa.array([b"abc", b"def", b"ghi", b"jkl", b"mno"], pa.binary(3)),
        "flag": [True, False, True, False, True],
        "vector": pa.array([[at, at + 1] for at in range(5)], pa.list_(pa.int8(), 2)),
        "text": ["ab", None, "xyz", "", "q"],
        "large": pa.array(["cd", None, "uvw", "", "r"], pa.large_string()),
        "list": pa.array(LISTS, pa.list_(pa.int32())),
        "large list": pa.array(LISTS, pa.large_list(pa.int32())),
        "struct": [{"x": at} for at in range(5)],
        "key": pa.DictionaryArray.from_arrays(KEYS, pa.array(["p", "qq"])),
        "code": pa.DictionaryArray.from_arrays(KEYS, pa.array([10, 20], pa.int32())),
        "nothing": pa.nulls(5),
    }
)
"""Five rows, which tests write in a batch of three and one of two."""


def message_at(raw: bytes, position: int, kind: Any) -> Any:
    (size,) = struct.unpack_from("<I", raw, position)
    return kind.FromString(raw[position + 4 : position + 4 + size])


@dataclass
class Pages:
    """Pages in these bytes, read by nothing but their specification."""

    raw: bytes

    def plain(self, kind: str) -> Callable[[int, int], list[Any]]:
        return lambda position, count: np.frombuffer(self.raw, kind, count, position).tolist()

    def bits(self, position: int, count: int) -> list[Any]:
        packed = np.frombuffer(self.raw, np.uint8, (count + 7) // 8, position)
        return np.unpackbits(packed, count=count, bitorder="little").astype(bool).tolist()

    def strings(self, position: int, count: int) -> list[Any]:
        offsets = struct.unpack_from(f"<{count + 1}q", self.raw, position)
        return [self.raw[start:stop] for start, stop in pairwise(offsets)]


class Book(Pages):
    """A file of format 0.1, with its page table."""

    def __init__(self, raw: bytes) -> None:
        super().__init__(raw)
        (position,) = struct.unpack_from("<Q", raw, len(raw) - 16)
        self.metadata = message_at(self.raw, position, file_pb2.Metadata)
        schema = message_at(self.raw, self.metadata.manifest_position, table_pb2.Manifest)
        self.fields = {field.name: field for field in schema.fields}
        self.ids = [field.id for field in schema.fields]

    def entries(self, number: int) -> list[tuple[int, int]]:
        """Position and length of the page of a field in each batch."""
        batches = len(self.metadata.batch_offsets) - 1
        row = self.metadata.page_table_position + 16 * batches * (number - min(self.ids))
        return [struct.unpack_from("<qq", self.raw, row + 16 * at) for at in range(batches)]

    def pages(self, name: str, read: Callable[[int, int], list[Any]]) -> list[list[Any]]:
        return [read(*entry) for entry in self.entries(self.fields[name].id)]


def dataset_of(library: str, place: Path) -> Book:
    """Write the rows with either library, and find the file."""
    writer: Any = glaive
    if library == "pylance":
        writer = pytest.importorskip("lance", reason="install the 'interop' group")
    writer.write_dataset(ROWS, str(place), data_storage_version="legacy", max_rows_per_group=3)
    (path,) = (place / "data").iterdir()
    return Book(path.read_bytes())


@pytest.mark.spec("legacy-2", "legacy-3", "plain-1", "plain-2", "plain-3")
@BOTH
def test_values_lie_back_to_back(tmp_path: Path, library: str) -> None:
    book = dataset_of(library, tmp_path / "t")
    assert list(book.metadata.batch_offsets) == [0, 3, 5]
    assert book.pages("number", book.plain("<i2")) == [[1, -2, 3], [4, 5]]
    assert book.pages("time", book.plain("<i8")) == [[7, 8, 9], [10, 11]]
    assert book.pages("bytes", book.plain("S3")) == [[b"abc", b"def", b"ghi"], [b"jkl", b"mno"]]
    assert book.pages("flag", book.bits) == [[True, False, True], [False, True]]
    items = book.pages("vector", book.plain("(2,)i1"))
    assert items == [[[0, 1], [1, 2], [2, 3]], [[3, 4], [4, 5]]]
    first = [book.entries(book.fields[name].id)[0][0] for name in ("number", "vector", "list")]
    assert all(position % 64 == 0 for position in first) == (library == "glaive")
    table = glaive.dataset(tmp_path / "t").to_table(columns=ROWS.column_names[:5])
    assert table == ROWS.select(range(5))


@pytest.mark.spec("varbin-1", "varbin-3", "varbin-4")
@BOTH
def test_offsets_of_strings_count_from_the_start_of_the_file(tmp_path: Path, library: str) -> None:
    book = dataset_of(library, tmp_path / "t")
    assert book.pages("text", book.strings) == [[b"ab", b"", b"xyz"], [b"", b"q"]]
    assert book.pages("large", book.strings) == [[b"cd", b"", b"uvw"], [b"", b"r"]]
    for name in ("text", "large"):
        first, second = (position for position, _ in book.entries(book.fields[name].id))
        assert (second == first + 3 * 8) == (library == "glaive")
    found = glaive.dataset(tmp_path / "t").to_table(columns=["text", "large"])
    assert found["text"].to_pylist() == ["ab", None, "xyz", None, "q"]
    assert found["large"].to_pylist() == ["cd", None, "uvw", None, "r"]


@pytest.mark.spec("varbin-2", "varbin-3")
def test_the_bytes_of_strings_may_lie_anywhere(tmp_path: Path) -> None:
    book = dataset_of("glaive", tmp_path / "t")
    (path,) = (tmp_path / "t" / "data").iterdir()
    (text, _), (large, _) = (book.entries(book.fields[name].id)[0] for name in ("text", "large"))
    raw = bytearray(book.raw)
    raw[text : text + 48], raw[large : large + 48] = (
        book.raw[large : large + 48],
        book.raw[text : text + 48],
    )
    path.write_bytes(raw)
    found = glaive.dataset(tmp_path / "t").to_table(columns=["text", "large"])
    assert found["text"].to_pylist() == ["cd", None, "uvw", None, "r"]
    assert found["large"].to_pylist() == ["ab", None, "xyz", None, "q"]


@pytest.mark.spec("pagetable-2", "lists-1", "lists-2")
@BOTH
def test_offsets_of_lists_count_in_the_items_of_their_batch(tmp_path: Path, library: str) -> None:
    book = dataset_of(library, tmp_path / "t")
    for name, kind in (("list", "<i4"), ("large list", "<i8")):
        number = book.fields[name].id
        assert [length for _, length in book.entries(number)] == [4, 3]
        assert book.pages(name, book.plain(kind)) == [[0, 2, 2, 3], [0, 0, 3]]
        items = [book.plain("<i4")(*entry) for entry in book.entries(number + 1)]
        assert items == [[1, 2, 3], [4, 5, 6]]
        found = glaive.dataset(tmp_path / "t").to_table(columns=[name])[name]
        assert found.to_pylist() == [[1, 2], [], [3], [], [4, 5, 6]]


@pytest.mark.spec("pagetable-2", "pagetable-3", "legacy-6")
@BOTH
def test_structs_have_no_pages_and_nulls_no_bytes(tmp_path: Path, library: str) -> None:
    book = dataset_of(library, tmp_path / "t")
    assert book.entries(book.fields["struct"].id) == [(0, 0)] * 2
    assert book.pages("x", book.plain("<i8")) == [[0, 1, 2], [3, 4]]
    assert [length for _, length in book.entries(book.fields["nothing"].id)] == [3, 2]
    ends = [position for position, _ in book.entries(book.fields["nothing"].id)]
    assert max(ends) <= book.metadata.page_table_position
    found = glaive.dataset(tmp_path / "t").to_table(columns=["struct", "nothing"])
    assert found == ROWS.select(["struct", "nothing"])


@pytest.mark.spec("pagetable-3")
def test_ids_that_the_file_does_not_have_have_no_pages(tmp_path: Path) -> None:
    rows = pa.table({"a": [1, 2], "b": [3, 4]})
    first, second = LanceSchema.from_arrow(rows.schema).fields
    store = LocalStore(tmp_path)
    schema = LanceSchema((replace(first, id=3), replace(second, id=6)))
    writer = LegacyFileWriter(store, "a.lance", schema)
    writer.write(rows)
    writer.finish()
    book = Book((tmp_path / "a.lance").read_bytes())
    lengths = [book.entries(number)[0] for number in range(3, 7)]
    assert lengths[1:3] == [(0, 0)] * 2
    assert [length for _, length in (lengths[0], lengths[3])] == [2, 2]
    reader = open_reader(store, "a.lance")
    assert pa.table(reader.bind(reader.schema.fields).read(0, 2), ["a", "b"]) == rows


@pytest.mark.spec("keys-1", "keys-2", "keys-4")
@BOTH
def test_items_of_dictionaries_are_in_the_file_and_in_the_manifest(
    tmp_path: Path, library: str
) -> None:
    book = dataset_of(library, tmp_path / "t")
    (path,) = (tmp_path / "t" / "_versions").glob("*.manifest")
    raw = path.read_bytes()
    (position,) = struct.unpack_from("<Q", raw, len(raw) - 16)
    fields = message_at(raw, position, table_pb2.Manifest).fields
    places = {field.name: field.dictionary for field in fields if field.HasField("dictionary")}
    assert raw.startswith(b"pqq")
    for name, expected in (("key", [b"p", b"qq"]), ("code", [10, 20])):
        assert book.pages(name, book.plain("i1")) == [[1, 0, 1], [0, 0]]
        for source, place in ((book, book.fields[name].dictionary), (Pages(raw), places[name])):
            read = source.strings if name == "key" else source.plain("<i4")
            assert read(place.offset, place.length) == expected
        assert glaive.dataset(tmp_path / "t").to_table(columns=[name]) == ROWS.select([name])
