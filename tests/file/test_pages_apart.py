"""Fields of many leaves whose pages end at different rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.damage import rewritten

from glaive.encodings.pages.constant import ConstantPage
from glaive.errors import CorruptFileError
from glaive.file.open import create_writer, open_reader
from glaive.file.v2 import columns as column
from glaive.file.v2 import reader as bound
from glaive.format.fields import LanceSchema
from glaive.io.local import LocalStore
from glaive.types import Int64s

LEAVES = 200
ITEMS = pa.struct([("n", pa.int32()), ("texts", pa.large_list(pa.string()))])
KIND = pa.struct([("items", pa.list_(ITEMS)), ("x", pa.struct([("y", pa.float64())]))])


@pytest.mark.spec("rel-25")
def test_leaves_are_not_divided_where_pages_of_others_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each leaf was read as often as all of them have pages, in time by the square of the file."""
    kind: Any = pa.struct([(f"c{at}", pa.int64()) for at in range(LEAVES)])
    schema = LanceSchema.from_arrow(pa.schema({"s": kind}))
    store = LocalStore(tmp_path)
    writer = create_writer(store, "a.lance", schema, "2.1")
    members = dict.fromkeys(field.name for field in kind)
    writer.write(pa.table({"s": pa.array([members], kind)}))
    writer.finish()

    def divide(descriptor: Any, columns: list[Any]) -> None:
        descriptor.length = LEAVES + 1
        for at, of_leaf in enumerate(columns):
            page = of_leaf.pages[0]
            del page.buffer_offsets[:], page.buffer_sizes[:]  # all null, however many rows
            of_leaf.pages.add().CopyFrom(page)
            of_leaf.pages[0].length, of_leaf.pages[1].length = at + 1, LEAVES - at
            of_leaf.pages[1].priority = at + 1

    store.put("a.lance", [rewritten(store.get("a.lance").to_pybytes(), divide)])
    reads: list[int] = []
    read, take = ConstantPage.read, ConstantPage.take

    def counted_read(page: ConstantPage, start: int, stop: int) -> Any:
        reads.append(1)
        return read(page, start, stop)

    def counted_take(page: ConstantPage, rows: Int64s) -> Any:
        reads.append(1)
        return take(page, rows)

    monkeypatch.setattr(ConstantPage, "read", counted_read)
    monkeypatch.setattr(ConstantPage, "take", counted_take)
    reader = open_reader(store, "a.lance")
    rows = reader.num_rows
    field = reader.bind(reader.schema.fields).columns[0]
    assert len(field.read(0, rows)) == rows
    assert len(reads) <= 2 * LEAVES
    assert len(field.take(np.arange(rows)[::-1])) == rows
    assert len(reads) <= 4 * LEAVES
    assert len(field.cuts()) <= 10


@pytest.mark.spec("rel-25")
@pytest.mark.parametrize("version", ["2.1", "2.2", "2.3"])
@pytest.mark.filterwarnings("ignore:Format 2.3")
def test_leaves_read_page_by_page_are_the_same_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str
) -> None:
    """Lists, nulls and texts of several pages are joined."""
    values = [
        None
        if row % 11 == 0
        else {
            "items": None
            if row % 7 == 0
            else [
                None
                if at == 3
                else {"n": row if at else None, "texts": ["a" * at] * (row % 3) if at else None}
                for at in range(row % 5)
            ],
            "x": {"y": row / 2} if row % 2 else None,
        }
        for row in range(300)
    ]
    array = pa.array(values, KIND)
    store = LocalStore(tmp_path)
    schema = LanceSchema.from_arrow(pa.schema({"s": KIND}))
    writer = create_writer(store, "a.lance", schema, version, page_bytes=200)
    for start in range(0, 300, 50):
        writer.write(pa.table({"s": array.slice(start, 50)}))
    writer.finish()
    monkeypatch.setattr(bound, "_MAX_SEGMENTS_PER_PAGE", 0)
    reader = open_reader(store, "a.lance")
    field = reader.bind(reader.schema.fields).columns[0]
    assert isinstance(field, bound.FieldColumns)
    assert len(field.segments) > 3
    for start, stop in [(0, 300), (1, 299), (49, 151)]:
        found = field.read(start, stop)
        found.validate(full=True)
        assert found.to_pylist() == values[start:stop]
    rows = np.random.default_rng(1).integers(0, 300, 100)
    taken = field.take(rows)
    taken.validate(full=True)
    assert taken.to_pylist() == [values[row] for row in rows.tolist()]


@pytest.mark.spec("rel-25")
@pytest.mark.parametrize("deep", [False, True])
def test_pages_of_leaves_whose_items_only_agree_in_sum_are_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, deep: bool
) -> None:
    """One page has too many items and the next too few: rows between would have others' items."""
    items: Any = pa.list_(pa.struct({"a": pa.int32(), "b": pa.int32()}))
    kind: Any = pa.list_(pa.struct({"inner": items})) if deep else items
    lists = {"x": [2, 3], "y": [3, 2], "z": [2, 3]}
    table = pa.table(
        {
            name: pa.array([_nested(count, deep) for count in counts for _ in range(40)], kind)
            for name, counts in lists.items()
        }
    )
    store = LocalStore(tmp_path)
    schema = LanceSchema.from_arrow(table.schema)
    writer = create_writer(store, "a.lance", schema, "2.1", page_bytes=1)
    writer.write(table[:40])
    writer.write(table[40:])
    writer.finish()
    monkeypatch.setattr(bound, "_MAX_SEGMENTS_PER_PAGE", 0)
    monkeypatch.setattr(column, "join_mapped", list)
    reader = open_reader(store, "a.lance")
    fields: Any = dict(zip("xyz", reader.bind(reader.schema.fields).columns, strict=True))
    first = fields["x"]
    assert all(len(leaf.pages) > 1 for leaf in first.leaf_columns)

    def mixed(other: str) -> bound.FieldColumns:
        columns = [first.leaf_columns[0], fields[other].leaf_columns[1]]
        return bound.FieldColumns(first.node, columns, 80, first.reader)

    rows = np.arange(80)
    assert mixed("z").read(0, 80).equals(table["x"].combine_chunks())
    assert mixed("z").take(rows).equals(table["x"].combine_chunks())
    damage = "items before the end of a page: expected"
    with pytest.raises(CorruptFileError, match=damage):
        mixed("y").read(0, 80)
    with pytest.raises(CorruptFileError, match=damage):
        mixed("y").take(rows)


def _nested(items: int, deep: bool) -> list[Any]:
    members = [{"a": at, "b": at} for at in range(items)]
    return [{"inner": members}, {"inner": []}] if deep else members


@pytest.mark.spec("rel-25")
def test_pages_of_fixed_size_lists_and_maps_are_joined(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair: Any = pa.list_(pa.struct({"a": pa.int32(), "b": pa.int64()}), 2)
    mapped: Any = pa.struct({"map": pa.map_(pa.string(), pa.int8()), "n": pa.int16()})
    pairs = [
        None if row % 5 == 0 else [{"a": row, "b": None}, {"a": None, "b": row}]
        for row in range(200)
    ]
    maps = [
        None if row % 13 == 0 else {"map": [(str(at), at) for at in range(row % 4)], "n": row}
        for row in range(200)
    ]
    table = pa.table({"pair": pa.array(pairs, pair), "map": pa.array(maps, mapped)})
    store = LocalStore(tmp_path)
    schema = LanceSchema.from_arrow(table.schema)
    writer = create_writer(store, "a.lance", schema, "2.2", page_bytes=100)
    for start in range(0, 200, 50):
        writer.write(table[start : start + 50])
    writer.finish()
    monkeypatch.setattr(bound, "_MAX_SEGMENTS_PER_PAGE", 0)
    reader = open_reader(store, "a.lance")
    rows = np.array([199, 3, 3, 120, 51])
    fields: list[Any] = list(reader.bind(reader.schema.fields).columns)
    for field, stored in zip(fields, table.columns, strict=True):
        assert len(field.segments) > 2
        assert field.read(0, 200).equals(stored.combine_chunks())
        assert field.take(rows).equals(stored.take(pa.array(rows)).combine_chunks())
