"""Mini-block pages inside files that pylance wrote, one page at a time."""

from __future__ import annotations

import struct
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from google.protobuf import any_pb2

import glaive
from glaive.arrow.blocks import Block, Dictionary, FixedWidth, Variable
from glaive.encodings.levels import Leaf, Slots
from glaive.encodings.protocol import PageBytes, PageReader
from glaive.encodings.registry import open_page
from glaive.format.pb import encodings21_pb2 as pb
from glaive.format.pb import file2_pb2
from glaive.types import ByteRange, Where

lance = pytest.importorskip("lance", reason="install the 'interop' group")

pytestmark = pytest.mark.interop

ROWS = 5000
COLUMNS: dict[str, pa.Array] = {}


def columns() -> dict[str, pa.Array]:
    """Columns that pylance stores in mini-block pages of different kinds."""
    if not COLUMNS:
        rng = np.random.default_rng(11)
        null = rng.random(ROWS) < 0.1
        lengths = rng.integers(0, 9, ROWS)
        offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
        items = pa.array(rng.integers(0, 500, offsets[-1]), mask=rng.random(offsets[-1]) < 0.2)
        COLUMNS.update(
            packed=pa.array(rng.integers(0, 1000, ROWS)),
            nullable=pa.array(rng.integers(0, 2**40, ROWS), mask=null),
            rarely_null=pa.array(rng.integers(0, 2**40, ROWS), mask=np.arange(ROWS) == ROWS // 2),
            runs=pa.array(np.repeat(np.arange(ROWS // 100), 100).astype(np.int16)),
            words=pa.array([f"word {number}" for number in rng.integers(0, 20, ROWS)]),
            texts=pa.array([f"text {number:x}" for number in rng.integers(0, 2**62, ROWS)]),
            lists=pa.ListArray.from_arrays(pa.array(offsets), items, mask=pa.array(null)),
        )
    return COLUMNS


def pages_of(path: Path) -> list[PageReader]:
    data = path.read_bytes()
    table = struct.unpack_from("<Q", data, len(data) - 32)[0]
    position, size = struct.unpack_from("<QQ", data, table)
    meta = file2_pb2.ColumnMetadata.FromString(data[position : position + size])
    readers = []
    for number, page in enumerate(meta.pages):
        wrapped = any_pb2.Any.FromString(page.encoding.direct.encoding)
        layout = pb.PageLayout.FromString(wrapped.value)
        assert layout.WhichOneof("layout") == "mini_block_layout"
        ranges = [
            ByteRange(*pair) for pair in zip(page.buffer_offsets, page.buffer_sizes, strict=True)
        ]
        at_hand = [pa.py_buffer(data[part.offset : part.end]) for part in ranges]
        where = Where(str(path), 0, None, number)
        readers.append(open_page(layout, PageBytes(tuple(ranges), at_hand, page.length, where)))
    return readers


def values_of(block: Block | None) -> list[Any]:
    if block is None:
        return []
    if isinstance(block, Dictionary):
        items = values_of(block.items)
        return [items[index] for index in values_of(block.indices)]
    if isinstance(block, Variable):
        offsets = np.frombuffer(block.offsets, f"<i{block.offset_bits // 8}", block.count + 1)
        data = block.data.to_pybytes()
        return [
            data[start:stop].decode()
            for start, stop in zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True)
        ]
    assert isinstance(block, FixedWidth)
    return np.frombuffer(block.values, f"<i{block.bits // 8}", block.count).tolist()


def valid_of(slots: Slots) -> list[bool]:
    if slots.validity is None:
        return [True] * slots.count
    bits = np.unpackbits(np.frombuffer(slots.validity, np.uint8), bitorder="little")
    valid = bits[: slots.count].astype(bool)
    assert slots.null_count == slots.count - valid.sum()
    return valid.tolist()


def rows_of(leaf: Leaf) -> list[Any]:
    """Rebuild rows by hand: levels of a nullable item, or of a list of those, or its shape."""
    if leaf.shape is not None:
        items, lists = leaf.shape
        assert lists.offsets is not None
        assert len(lists.offsets) == leaf.rows + 1
        found = [
            value if valid else None
            for value, valid in zip(values_of(leaf.values), valid_of(items), strict=True)
        ]
        return [
            found[first:end] if valid else None
            for (first, end), valid in zip(
                pairwise(lists.offsets.tolist()), valid_of(lists), strict=True
            )
        ]
    definition = leaf.definition
    if leaf.validity is not None:
        bits = np.unpackbits(np.frombuffer(leaf.validity, np.uint8), bitorder="little")
        definition = 1 - bits[: leaf.entries].astype(np.uint16)
    levels = [0] * leaf.entries if definition is None else definition.tolist()
    values = values_of(leaf.values)
    if leaf.rep is None:
        return [None if level else value for level, value in zip(levels, values, strict=True)]
    rows: list[Any] = []
    taken = iter(values)
    for rep, level in zip(leaf.rep.tolist(), levels, strict=True):
        if rep:
            rows.append(None if level == 2 else [])
        if level <= 1:
            value = next(taken)
            rows[-1].append(None if level else value)
    return rows


@pytest.mark.parametrize("version", ["2.1", "2.2"])
@pytest.mark.parametrize(
    "name", ["packed", "nullable", "rarely_null", "runs", "words", "texts", "lists"]
)
def test_a_page_that_pylance_wrote_is_read_in_ranges_and_taken_from(
    tmp_path: Path, name: str, version: str
) -> None:
    column = columns()[name]
    uri = str(tmp_path / "t")
    lance.write_dataset(pa.table({"c": column}), uri, data_storage_version=version)
    (path,) = (tmp_path / "t" / "data").glob("*.lance")
    pages = pages_of(path)
    rng = np.random.default_rng(3)
    first = 0
    for page in pages:
        expected = column[first : first + page.rows].to_pylist()
        first += page.rows
        whole = page.read(0, page.rows)
        assert isinstance(whole, Leaf)
        assert rows_of(whole) == expected
        start, stop = page.rows // 3 + 1, page.rows - 7
        part = page.read(start, stop)
        assert isinstance(part, Leaf)
        assert rows_of(part) == expected[start:stop]
        for count in (1, 50, 700):
            picked = rng.integers(0, page.rows, count)
            taken = page.take(picked)
            assert isinstance(taken, Leaf)
            assert rows_of(taken) == [expected[row] for row in picked.tolist()]
    assert first == ROWS


FEW = {
    "lists": pa.array([[1, 2], None, [], [None, 5]] * 20),
    "lists without nulls": pa.array([[1, 2]] * 10),
    "lists of one value": pa.array([[7], [7, 7]] * 3),
    "lists of flags": pa.array([[True, None], [], [False]] * 5),
    "lists of texts": pa.array([["a", None, ""], None, ["long" * 20]] * 4),
    "lists of lists": pa.array([[[1], []], None, [None, [2, None]], []] * 6),
    "vectors": pa.array([[1.0, 2.0], None, [3.0, 4.0]] * 4, pa.list_(pa.float32(), 2)),
    "vectors without nulls": pa.array([[n / 7, 2.0] for n in range(9)], pa.list_(pa.float32(), 2)),
    "lists of vectors": pa.array([[[1.0, 2.0]], [], None], pa.list_(pa.list_(pa.float32(), 2))),
    "dictionary": pa.array(["a", "b", None, ""] * 9).dictionary_encode(),
    "dictionary of numbers": pa.array([5, None, 7] * 30).dictionary_encode(),
    "dictionary with a null item": pa.DictionaryArray.from_arrays(
        pa.array([0, 1, None, 2], pa.int8()), pa.array(["a", None, "a"])
    ),
    "dictionaries in lists": pa.array([["x"], None, ["y", "x"]], pa.list_(pa.string())),
    "structs of lists": pa.array([{"a": [1], "b": "x"}, None, {"a": None, "b": None}] * 7),
    "numbers": pa.array([None if n % 2 else n * 2**40 for n in range(120)]),
    "large texts": pa.array([f"s{n % 7}" for n in range(90)], pa.large_string()),
}


@pytest.mark.parametrize("version", ["2.1", "2.2", "2.3"])
def test_pages_of_a_few_values_are_those_of_pylance(tmp_path: Path, version: str) -> None:
    for name, column in FEW.items():
        rows = pa.table({"n": range(len(column)), "it": column})
        place = str(tmp_path / name)
        mine = glaive.write_dataset(rows, place, data_storage_version=version)
        theirs = lance.dataset(place)
        some = [len(rows) - 1, 0, len(rows) // 2, 1]
        for dataset in (mine, theirs):
            assert dataset.to_table().to_pydict() == rows.to_pydict(), name
            assert dataset.take(some).to_pydict() == rows.take(some).to_pydict(), name
            found = dataset.to_table(filter="n % 3 = 1")
            assert found.to_pydict() == rows.filter(np.arange(len(rows)) % 3 == 1).to_pydict(), name
