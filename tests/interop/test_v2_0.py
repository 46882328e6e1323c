"""Format 2.0 both ways: every type, several pages, and pages that only old releases wrote."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.historical import EXPECTED, copied, rows_of
from tests.interop.cases import COLUMNS, NIGHTLY, SIZES, assert_same, table
from tests.interop.nested20 import SPECIAL, filled, has_null_structs

import glaive
from glaive.errors import SchemaError
from glaive.file.open import open_reader
from glaive.file.v2.arrays import ArraysWriter
from glaive.file.versions import V2_0
from glaive.format.fields import LanceSchema
from glaive.io.local import LocalStore

lance = pytest.importorskip("lance", reason="install the 'interop' group")

pytestmark = pytest.mark.interop

READERS = [(glaive, (lance, glaive)), (lance, (glaive,))]
NAMES = ["written-by-glaive", "written-by-pylance"]


def special(name: str, rows: int) -> pa.Table:
    make, metadata = SPECIAL[name]
    array = make(rows)
    field = pa.field("c", array.type, metadata=metadata)
    return pa.Table.from_arrays([array], schema=pa.schema([field]))


def without_null_structs(name: str, rows: int) -> pa.Table:
    written = table(name, rows)
    arrays = [filled(column.combine_chunks()) for column in written.columns]
    fields = [
        pa.field(field.name, array.type, field.nullable and array.null_count > 0)
        for field, array in zip(written.schema, arrays, strict=True)
    ]
    return pa.Table.from_arrays(arrays, schema=pa.schema(fields))


@lru_cache(maxsize=8)
def sample(name: str, rows: int) -> pa.Table:
    return special(name, rows) if name in SPECIAL else without_null_structs(name, rows)


def equal(found: pa.Table, expected: pa.Table) -> None:
    """Equal bit for bit; types of this file by what they stand for."""
    if expected.column_names != ["c"]:
        assert_same(found, expected)
        return
    assert found.schema.equals(expected.schema)
    found.validate(full=True)
    assert found.to_pylist() == expected.to_pylist()


def take(source: pa.Table, rows: list[int]) -> pa.Table:
    arrays = [column.combine_chunks().take(pa.array(rows, pa.int64())) for column in source.columns]
    return pa.Table.from_arrays(arrays, schema=source.schema)


@pytest.mark.sampled(every=38)
@pytest.mark.spec("owner-1", "owner-2", "owner-3", "arr-1", "arr-2")
@pytest.mark.parametrize(("writer", "readers"), READERS, ids=NAMES)
@pytest.mark.parametrize("name", [*COLUMNS, *SPECIAL])
def test_every_type_survives(
    tmp_path: Path, name: str, writer: ModuleType, readers: tuple[ModuleType, ...]
) -> None:
    """Scan, projection, slice and take."""
    many = 20_000 if NIGHTLY else 8000
    for rows in SIZES[:5] if "long" in name or name in SPECIAL else (0, 1, 1023, 1025, many):
        if rows == 0 and writer is lance and name == "empty_struct":
            continue
        written = sample(name, rows)
        uri = str(tmp_path / f"{rows}")
        writer.write_dataset(written, uri, data_storage_version="2.0")
        for reader in readers:
            check_dataset(reader.dataset(uri), written)


def check_dataset(dataset: Any, written: pa.Table) -> None:
    rows = written.num_rows
    assert dataset.count_rows() == rows
    equal(dataset.to_table(), written)
    if not rows:
        return
    first = written.column_names[:1]
    equal(dataset.to_table(columns=first), written.select(first))
    rng = np.random.default_rng(rows)
    wanted = rng.integers(0, rows, 40).tolist()
    wanted += [0, rows - 1, wanted[0], wanted[0]]
    equal(dataset.take(wanted), take(written, wanted))
    equal(dataset.take([rows // 2]), take(written, [rows // 2]))
    offset, limit = rows // 3, max(1, rows // 2)
    equal(dataset.to_table(offset=offset, limit=limit), written.slice(offset, limit))


@pytest.mark.spec("owner-4")
@pytest.mark.parametrize("name", ["struct_struct", "packed", "fsl_fsl", "list_struct_list"])
def test_manifests_list_the_same_columns(tmp_path: Path, name: str) -> None:
    written = sample(name, 10)
    lance.write_dataset(written, tmp_path / "a", data_storage_version="2.0")
    glaive.write_dataset(written, str(tmp_path / "b"), data_storage_version="0.3")
    files = [
        lance.dataset(str(tmp_path / place)).get_fragments()[0].metadata.files[0]
        for place in ("a", "b")
    ]
    of_interest = [
        (one.fields, one.column_indices, one.file_major_version, one.file_minor_version)
        for one in files
    ]
    assert of_interest[0] == of_interest[1]
    assert of_interest[0][2:] == (2, 0)


def written_by_pylance(folder: Path, written: pa.Table) -> None:
    """A file of many small pages."""
    from lance.file import LanceFileWriter

    path = str(folder / "pages.lance")
    with LanceFileWriter(path, written.schema, data_cache_bytes=512, version="2.0") as file:
        piece = written.num_rows // 7
        for first in range(0, written.num_rows, piece):
            # Copies: this writer cannot take slices of nested structs.
            rows = list(range(first, min(first + piece, written.num_rows)))
            file.write_batch(take(written, rows).combine_chunks().to_batches()[0])


def rows_of_pages(name: str) -> int:
    """Rows of several pages; long lists are costly."""
    return 5000 if name != "list_long" else 350


@pytest.mark.sampled(every=14)
@pytest.mark.spec("arr-list-1", "arr-list-2", "arr-list-3")
@pytest.mark.parametrize("name", [*COLUMNS, *SPECIAL])
def test_several_pages_of_pylance_are_read(tmp_path: Path, name: str) -> None:
    """Whole, in windows across borders of pages, and taken."""
    count = rows_of_pages(name)
    piece = count // 7
    written = sample(name, count)
    written_by_pylance(tmp_path, written)
    columns = open_reader(LocalStore(str(tmp_path)), "pages.lance")
    bound = columns.bind(columns.schema.fields)
    equal(pa.table(bound.read(0, count), schema=bound.schema), written)
    border = 3 * piece
    across = [(piece - 1, piece + 1), (piece - piece // 10, border + piece // 7)]
    for start, stop in ((0, 1), *across, (count - 1, count), (border, border)):
        found = pa.table(bound.read(start, stop), schema=bound.schema)
        equal(found, written.slice(start, stop - start))
    wanted = np.random.default_rng(5).integers(0, count, 300)
    equal(pa.table(bound.take(wanted), schema=bound.schema), take(written, wanted.tolist()))


@pytest.mark.sampled(every=19)
@pytest.mark.parametrize("name", [*COLUMNS, *SPECIAL])
def test_several_pages_of_glaive_are_read_by_pylance(tmp_path: Path, name: str) -> None:
    """Pages cut small by glaive: whole, in ranges and taken."""
    from lance.file import LanceFileReader

    count = rows_of_pages(name)
    written = sample(name, count)
    schema = LanceSchema.from_arrow(written.schema)
    writer = ArraysWriter(LocalStore(str(tmp_path)), "pages.lance", schema, V2_0, page_bytes=4096)
    for batch in written.to_batches(max_chunksize=count // 7):
        writer.write(batch)
    writer.finish()
    reader = LanceFileReader(str(tmp_path / "pages.lance"))
    equal(reader.read_all().to_table(), written)
    start, length = count // 8, count // 2
    equal(reader.read_range(start, length).to_table(), written.slice(start, length))
    wanted = sorted(np.random.default_rng(5).integers(0, count, 60).tolist())
    equal(reader.take_rows(wanted).to_table(), take(written, wanted))


def one(array: Any, metadata: dict[str, str] | None = None) -> pa.Table:
    field = pa.field("c", array.type, metadata=metadata)
    return pa.Table.from_arrays([array], schema=pa.schema([field]))


_PACKED = {"lance-encoding:packed": "true"}
REFUSED = {
    "map": (one(pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int8()))), "map.*2.0.*2.2"),
    "fixed-size list of structs": (
        one(pa.array([[{"a": 1}]], pa.list_(pa.struct([("a", pa.int8())]), 1))),
        "fixed_size_list.*2.0.*2.2",
    ),
    "null struct": (one(pa.array([{"a": 1}, None])), "struct.*2.0.*2.1"),
    "null struct in a list": (one(pa.array([[{"a": 1}, None]])), r"'c\.item'.*struct.*2.0.*2.1"),
    "packed string": (one(pa.array([{"a": "x"}]), _PACKED), "string.*2.0.*2.2"),
    "packed bool": (one(pa.array([{"a": True}]), _PACKED), "bool.*2.0"),
    "packed null": (one(pa.array([{"a": 1}, {"a": None}]), _PACKED), "int64.*2.0"),
    "fixed-size list of strings": (
        one(pa.array([["a", "b"]], pa.list_(pa.string(), 2))),
        "string.*2.0",
    ),
}


@pytest.mark.spec("arr-struct-2", "arr-packed-2")
@pytest.mark.parametrize("name", REFUSED)
def test_what_pylance_refuses_is_refused_by_name(tmp_path: Path, name: str) -> None:
    written, message = REFUSED[name]
    with pytest.raises(SchemaError, match=message):
        glaive.write_dataset(written, str(tmp_path / "a"), data_storage_version="2.0")
    assert not list(tmp_path.glob("a/data/*"))
    # Some of these are written, and the reader stops.
    with pytest.raises((OSError, pa.ArrowInvalid)):
        lance.write_dataset(written, tmp_path / "b", data_storage_version="2.0").to_table()


@pytest.mark.parametrize("name", [name for name in COLUMNS if "struct" in name])
def test_null_structs_of_any_depth_are_refused(tmp_path: Path, name: str) -> None:
    written = table(name, 1025)
    for column in written.column_names:
        if not has_null_structs(written[column].combine_chunks()):
            continue
        with pytest.raises(
            SchemaError, match=r"format 2\.0 cannot hold; use data_storage_ver.*2\.1"
        ):
            glaive.write_dataset(
                written.select([column]), str(tmp_path / column), data_storage_version="2.0"
            )


@pytest.mark.spec("arr-struct-1")
def test_structs_in_lists_that_are_all_empty(tmp_path: Path) -> None:
    kind = pa.list_(pa.struct([("b", pa.string())]))
    written = one(pa.array([[], None, []], kind))
    glaive.write_dataset(written, str(tmp_path / "t"), data_storage_version="2.0")
    for reader in (glaive, lance):
        assert reader.dataset(str(tmp_path / "t")).to_table().equals(written)


@pytest.mark.spec("arr-blob-1", "arr-blob-2", "arr-blob-3")
def test_blobs_both_ways(tmp_path: Path) -> None:
    values = pa.array([b"xyz", None, b"", b"q" * 1000] * 30, pa.large_binary())
    field = pa.field("c", values.type, metadata={"lance-encoding:blob": "true"})
    written = pa.Table.from_arrays([values], schema=pa.schema([field]))
    lance.write_dataset(written, tmp_path / "a", data_storage_version="2.0")
    glaive.write_dataset(written, str(tmp_path / "b"), data_storage_version="2.0")
    for place in ("a", "b"):
        dataset = glaive.dataset(str(tmp_path / place))
        read = dataset.to_table(blob_handling="all_binary")
        assert read["c"].to_pylist() == values.to_pylist()
        rows = [3, 1, 2, 0, 3]
        found = [value for _, value in dataset.read_blobs("c", indices=rows)]
        assert found == [values[row].as_py() for row in rows]
        blobs = lance.dataset(str(tmp_path / place)).take_blobs("c", indices=[0, 1, 2, 3])
        assert [blob and blob.read() for blob in blobs] == values[:4].to_pylist()


OLD_2_0 = [
    (name, version)
    for name, versions in EXPECTED.items()
    for version, facts in versions.items()
    if facts["data_storage_version"] == "2.0"
]


@pytest.mark.spec("arr-binary-6", "arr-flat-4")
@pytest.mark.parametrize(("name", "version"), OLD_2_0)
def test_old_datasets_read_as_pylance_reads_them(tmp_path: Path, name: str, version: str) -> None:
    dataset = glaive.dataset(copied(name, tmp_path / "t"), version=int(version))
    expected = rows_of(name, version)
    found = dataset.to_table()
    assert found.equals(expected)
    rows = [*range(found.num_rows - 1, -1, -1)]
    assert dataset.take(rows).equals(take(expected, rows))
