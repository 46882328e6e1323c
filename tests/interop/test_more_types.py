"""The rarer types in both directions, and what a version does not take."""

from __future__ import annotations

import re
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.interop.more_cases import MORE, more_table
from tests.interop.type_examples import EXAMPLES, example

import glaive
import glaive.file
from glaive.errors import SchemaError
from glaive.file.versions import PROFILES

lance = pytest.importorskip("lance", reason="install the 'interop' group")
lance_file = pytest.importorskip("lance.file")

pytestmark = pytest.mark.interop

READERS = [(glaive, (lance, glaive)), (lance, (glaive,))]
NAMES = ["written-by-glaive", "written-by-pylance"]
CELLS = [(name, version) for name, case in MORE.items() for version in case.versions]


def same(found: pa.Table, expected: list[dict[str, Any]], schema: pa.Schema) -> None:
    """Equal values, and the schema that the reference has for them: types, nulls, metadata."""
    assert found.schema.equals(schema, check_metadata=True), f"{found.schema} is not {schema}"
    found.validate(full=True)
    assert found.to_pylist() == expected


def as_pylance_has_it(source: pa.Table, folder: Path, version: str) -> pa.Schema:
    lance.write_dataset(source.slice(0, 1), folder, data_storage_version=version)
    schema: pa.Schema = lance.dataset(str(folder)).schema
    return schema


@pytest.mark.sampled(every=93)
@pytest.mark.spec("type-1", "type-4", "type-5", "type-6", "layer-3", "multiply-1", "multiply-2")
@pytest.mark.parametrize(("writer", "readers"), READERS, ids=NAMES)
@pytest.mark.parametrize(("name", "version"), CELLS)
def test_every_type_survives(
    tmp_path: Path, name: str, version: str, writer: ModuleType, readers: tuple[ModuleType, ...]
) -> None:
    """Scan, projection, nested projection, slice and take with duplicates."""
    schema = as_pylance_has_it(more_table(name, 1), tmp_path / "like", version)
    for rows in (0, 1, 1025):
        if not rows and writer is lance and name == "empty_struct":
            continue  # it does not write such a file
        written = more_table(name, rows)
        uri = str(tmp_path / f"{rows}")
        writer.write_dataset(written, uri, data_storage_version=version)
        for reader in readers:
            check_dataset(reader.dataset(uri), written.to_pylist(), schema)


def check_dataset(dataset: Any, values: list[dict[str, Any]], schema: pa.Schema) -> None:
    assert dataset.schema.equals(schema, check_metadata=True)
    same(dataset.to_table(), values, schema)
    same(dataset.to_table(columns=["c"]), values, schema)
    rows = len(values)
    if not rows:
        return
    wanted = np.random.default_rng(rows).integers(0, rows, 30).tolist()
    wanted += [0, rows - 1, wanted[0], wanted[0]]
    for some in (wanted, [rows // 2]):
        same(dataset.take(some), [values[row] for row in some], schema)
    offset, limit = rows // 3, max(1, rows // 2)
    part = dataset.to_table(offset=offset, limit=limit)
    same(part, values[offset : offset + limit], schema)


@pytest.mark.sampled(every=4)
@pytest.mark.spec("def-5")
@pytest.mark.parametrize("version", ["2.1", "2.2", "2.3"])
@pytest.mark.parametrize("name", [name for name in MORE if name.startswith("struct_")])
def test_members_are_projected(tmp_path: Path, name: str, version: str) -> None:
    """One member of a struct, as pylance gives it."""
    if version not in MORE[name].versions:
        return
    written = more_table(name, 2000)
    glaive.write_dataset(written, str(tmp_path / "d"), data_storage_version=version)
    path = f"c.{written.schema.field('c').type.field(0).name}"
    ours, theirs = glaive.dataset(str(tmp_path / "d")), lance.dataset(str(tmp_path / "d"))
    expected = theirs.to_table(columns=[path])
    same(ours.to_table(columns=[path]), expected.to_pylist(), expected.schema)
    given = [None if row is None else row[path[2:]] for row in written["c"].to_pylist()]
    assert expected[path].to_pylist() == given
    taken = theirs.take([3, 3, 1999, 0], columns=[path])
    assert ours.take([3, 3, 1999, 0], columns=[path]).to_pylist() == taken.to_pylist()


@pytest.mark.spec("type-2")
@pytest.mark.parametrize("writer", [glaive, lance], ids=NAMES)
def test_items_of_vectors_are_no_fields(tmp_path: Path, writer: ModuleType) -> None:
    kind = pa.list_(pa.field("element", pa.float32(), nullable=False), 2)
    rows = pa.table({"v": pa.array([[1.0, 2.0], [3.0, 4.0]], kind), "n": [1, 2]})
    writer.write_dataset(rows, str(tmp_path / "t"))
    fields = glaive.dataset(str(tmp_path / "t")).manifest.wire.fields
    assert [(one.id, one.name, one.logical_type) for one in fields] == [
        (0, "v", "fixed_size_list:float:2"),
        (1, "n", "int64"),
    ]
    for reader in (glaive, lance):
        found = reader.dataset(str(tmp_path / "t")).to_table()
        item = found.schema.field("v").type.value_field
        assert (item.name, item.nullable, item.type) == ("item", True, pa.float32())
        assert found.to_pylist() == rows.to_pylist()


def in_pieces(source: pa.Table) -> list[pa.RecordBatch]:
    """Batches of 300 rows that share no memory: the reference cannot take all slices."""
    batches = []
    for batch in source.to_batches(max_chunksize=300):
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, batch.schema) as stream:
            stream.write_batch(batch)
        batches += list(pa.ipc.open_stream(sink.getvalue()))
    return batches


def weight(piece: pa.RecordBatch) -> int:
    array: Any = piece.column(0)
    if pa.types.is_string_view(array.type) or pa.types.is_binary_view(array.type):
        array = array.cast(pa.binary())
    return int(array.indices.nbytes if pa.types.is_dictionary(array.type) else array.nbytes)


@pytest.mark.sampled(every=44)
@pytest.mark.spec("multiply-2")
@pytest.mark.parametrize("ours_writes", [True, False], ids=["glaive", "pylance"])
@pytest.mark.parametrize(("name", "version"), CELLS)
def test_several_pages_are_read(
    tmp_path: Path, name: str, version: str, *, ours_writes: bool
) -> None:
    """Files of many small pages: whole, in windows across their borders, and taken."""
    written, path = more_table(name, 1200), str(tmp_path / "pages.lance")
    pieces = in_pieces(written)
    # Pages of one piece each: of pages with and without nulls in structs the reference reads
    # no batch that spans both.
    cache = min(map(weight, pieces)) if ours_writes else 512
    made = glaive.file if ours_writes else lance_file
    with made.LanceFileWriter(
        path, written.schema, data_cache_bytes=max(cache, 1), version=version
    ) as file:
        for piece in pieces:
            file.write_batch(piece)
    ours, theirs = glaive.file.LanceFileReader(path), lance_file.LanceFileReader(path)
    if not name.endswith("null") and "empty" not in name:
        pages = ours.layout().columns[0].num_pages
        assert pages > 1
    found = theirs.read_all().to_table()
    expected, schema = found.to_pylist(), found.schema
    if "json" not in name:  # binary in single files
        assert expected == written.to_pylist()
    same(ours.read_all().to_table(), expected, schema)
    for start, count in ((0, 1), (299, 2), (250, 700), (1199, 1)):
        part = ours.read_range(start, count).to_table()
        same(part, expected[start : start + count], schema)
    wanted = np.random.default_rng(5).integers(0, 1200, 60).tolist()
    same(ours.take_rows(wanted).to_table(), [expected[row] for row in wanted], schema)
    ordered = sorted(set(wanted))
    same(theirs.take_rows(ordered).to_table(), [expected[row] for row in ordered], schema)


def pylance_takes(source: pa.Table, folder: Path, version: str) -> bool:
    """Whether what was written can be read, and is what was written."""
    try:
        lance.write_dataset(source, folder, data_storage_version=version)
        found = lance.dataset(str(folder)).to_table()
    except BaseException:  # it panics
        return False
    return bool(found.to_pylist() == source.to_pylist())


@pytest.mark.sampled(every=4)
@pytest.mark.spec("type-3", "type-7")
@pytest.mark.parametrize("version", ["2.0", "2.1", "2.2", "2.3"])
@pytest.mark.parametrize("name", EXAMPLES)
def test_versions_take_what_they_take_there(tmp_path: Path, name: str, version: str) -> None:
    """Asked of the reference each time, so that the table of types stays true."""
    source = example(name)
    takes = pylance_takes(source, tmp_path / "reference", version)
    if takes:
        glaive.write_dataset(source, str(tmp_path / "own"), data_storage_version=version)
        found = lance.dataset(str(tmp_path / "own")).to_table()
        assert found.to_pylist() == source.to_pylist()
        own = glaive.dataset(str(tmp_path / "own")).to_table()
        assert own.to_pylist() == found.to_pylist()
        assert own.schema.equals(found.schema, check_metadata=True)
        return
    with pytest.raises(SchemaError) as refused:
        glaive.write_dataset(source, str(tmp_path / "own"), data_storage_version=version)
    assert "'c" in str(refused.value) or "member" in str(refused.value)
    for other in re.findall(r"data_storage_version ([0-9., or]+)", str(refused.value)):
        for taker in re.findall(r"[0-9]\.[0-9]", other):
            assert taker in PROFILES
            assert pylance_takes(source, tmp_path / taker, taker)


def _never_null() -> list[pa.Table]:
    """Columns with nulls that only their items show, though they are never null."""
    texts = pa.DictionaryArray.from_arrays(pa.array([0, 1], pa.int8()), pa.array(["a", None]))
    strict = pa.field("x", texts.type, nullable=False)
    pairs = pa.map_(pa.string(), pa.field("value", pa.int32(), nullable=False))
    entries = pa.StructArray.from_arrays(
        [pa.array(["k", "l"]), pa.array([1, None], pa.int32())],
        fields=[pairs.key_field, pairs.item_field],
    )
    ends = pa.py_buffer(np.array([0, 1, 2], np.int32))
    deep = pa.map_(pa.string(), pa.struct([strict]))
    deep_entries = pa.StructArray.from_arrays(
        [entries.field(0), pa.StructArray.from_arrays([texts], fields=[strict])],
        fields=[deep.key_field, deep.item_field],
    )
    return [
        pa.table([texts], schema=pa.schema([strict])),
        pa.table({"s": pa.StructArray.from_arrays([texts], fields=[strict])}),
        pa.table({"m": pa.Array.from_buffers(pairs, 2, [None, ends], children=[entries])}),
        pa.table({"m": pa.Array.from_buffers(deep, 2, [None, ends], children=[deep_entries])}),
    ]


@pytest.mark.parametrize(
    "at", range(4), ids=["dictionary", "member", "value of a map", "member in a map"]
)
def test_nulls_of_what_is_never_null_are_refused_by_both(tmp_path: Path, at: int) -> None:
    rows = _never_null()[at]
    with pytest.raises(OSError, match="contained null values even though"):
        lance.write_dataset(rows, tmp_path / "pylance")
    with pytest.raises(SchemaError, match="expected no nulls, found 1"):
        glaive.write_dataset(rows, tmp_path / "glaive")
    written = glaive.write_dataset(rows.slice(0, 1), tmp_path / "glaive")
    assert written.to_table().to_pylist() == rows.slice(0, 1).to_pylist()
