"""Format 2.3 in both directions: every type, dense and sparse structure, several pages."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.interop.cases import COLUMNS, SIZES, assert_reads_same, assert_same, table
from tests.interop.more_cases import MORE, more_table
from tests.planes import large_items, nested, planes_of, sparse_lists

import glaive
from glaive.file.open import create_writer, open_reader
from glaive.file.v2.planes_writer import PlanesWriter
from glaive.file.versions import PROFILES
from glaive.format.fields import LanceSchema
from glaive.io.access import open_store
from glaive.io.local import LocalStore

lance = pytest.importorskip("lance", reason="install the 'interop' group")

pytestmark = pytest.mark.interop

READERS = [(glaive, (lance, glaive)), (lance, (glaive,))]
NAMES = ["written-by-glaive", "written-by-pylance"]
SPARSE = {"lance-encoding:structural-encoding": "sparse"}
WAYS: dict[str, dict[str, str]] = {
    "dense": {},
    "sparse": SPARSE,
    "fullzip": {"lance-encoding:structural-encoding": "fullzip"},
    "zstd": {"lance-encoding:compression": "zstd"},
    "sparse lz4 bss": {**SPARSE, "lance-encoding:compression": "lz4", "lance-encoding:bss": "on"},
    "lz4 rle": {"lance-encoding:compression": "lz4", "lance-encoding:rle-threshold": "1.0"},
}


def sizes(name: str, way: str) -> tuple[int, ...]:
    """One row, a chunk and a bit, several chunks; long lists are costly."""
    if name == "list_long":
        return (1, 300)
    return (1, 1025, 5000) if way in ("dense", "sparse") else (1025,)


def asked(source: pa.Table, way: str) -> pa.Table:
    """The table with wishes in the metadata of its fields."""
    schema = pa.schema([field.with_metadata(WAYS[way]) for field in source.schema])
    return source.cast(schema).combine_chunks()


def plain(found: pa.Table) -> pa.Table:
    return found.cast(pa.schema([field.remove_metadata() for field in found.schema]))


def write_with_pylance(path: Path, source: pa.Table, **options: Any) -> None:
    from lance.file import LanceFileWriter

    with LanceFileWriter(str(path), source.schema, version="2.3", **options) as file:
        for batch in source.to_batches():
            file.write_batch(batch)


def check_with_glaive(store: Any, name: str, expected: pa.Table) -> None:
    """Whole, a window, several rows, one row."""
    reader = open_reader(store, name)
    columns = reader.bind(reader.schema.fields)
    rows = expected.num_rows
    assert_same(plain(pa.table(columns.read(0, rows), schema=columns.schema)), expected)
    start, stop = rows // 3, rows * 2 // 3 + 1
    part = pa.table(columns.read(start, stop), schema=columns.schema)
    assert_same(plain(part), expected.slice(start, stop - start))
    for wanted in (np.random.default_rng(1).integers(0, rows, 40), np.array([rows // 2])):
        taken = pa.table(columns.take(wanted), schema=columns.schema)
        assert_same(plain(taken), expected.take(pa.array(wanted)))


def check_with_pylance(path: Path, expected: pa.Table) -> None:
    from lance.file import LanceFileReader

    rows = expected.num_rows
    reader = LanceFileReader(str(path))
    assert_same(plain(reader.read_all().to_table()), expected)
    start, count = rows // 3, rows // 3 + 1
    part = reader.read_range(start, count).to_table()
    assert_same(plain(part), expected.slice(start, count))
    wanted = sorted(set(np.random.default_rng(1).integers(0, rows, 40).tolist()))
    assert_same(plain(reader.take_rows(wanted).to_table()), expected.take(pa.array(wanted)))


@pytest.mark.sampled(every=50)
@pytest.mark.parametrize(("writer", "readers"), READERS, ids=NAMES)
@pytest.mark.parametrize("name", COLUMNS)
def test_every_type_survives(
    tmp_path: Path, name: str, writer: ModuleType, readers: tuple[ModuleType, ...]
) -> None:
    """Datasets: scan, projection, slice and take at sizes around the borders of chunks."""
    for rows in SIZES if "long" not in name else SIZES[:5]:
        written = table(name, rows)
        uri = str(tmp_path / f"{rows}")
        writer.write_dataset(written, uri, data_storage_version="2.3")
        for reader in readers:
            dataset = reader.dataset(uri)
            assert dataset.data_storage_version == "2.3"
            assert_reads_same(dataset, written)


@pytest.mark.sampled(every=35)
@pytest.mark.spec("plane-1", "dense-1", "chunked-1", "zipped-1", "same-1", "none-1")
@pytest.mark.spec("sparse-1", "sparse-2", "sparse-3", "sparse-4", "chunked-2", "numbers-1")
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", COLUMNS)
def test_pages_of_pylance_are_read(tmp_path: Path, name: str, way: str) -> None:
    for rows in sizes(name, way):
        written = table(name, rows)
        write_with_pylance(tmp_path / f"{rows}.lance", asked(written, way))
        check_with_glaive(LocalStore(str(tmp_path)), f"{rows}.lance", written)


@pytest.mark.sampled(every=65)
@pytest.mark.spec("plane-1", "plane-2", "choice-1", "choice-2", "choice-3")
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", COLUMNS)
def test_pages_of_glaive_are_read_by_pylance(tmp_path: Path, name: str, way: str) -> None:
    store = LocalStore(str(tmp_path))
    for rows in sizes(name, way):
        written = table(name, rows)
        source = asked(written, way)
        writer = create_writer(store, f"{rows}.lance", LanceSchema.from_arrow(source.schema), "2.3")
        writer.write(source)
        writer.finish()
        check_with_pylance(tmp_path / f"{rows}.lance", written)
        check_with_glaive(store, f"{rows}.lance", written)


@pytest.mark.sampled(every=38)
@pytest.mark.parametrize("way", ["dense", "sparse"])
@pytest.mark.parametrize("name", COLUMNS)
def test_several_pages_of_pylance_are_read(tmp_path: Path, name: str, way: str) -> None:
    """Pages cut small, read over their borders, from a store without a map too."""
    written = table(name, 5000 if name != "list_long" else 800)
    firsts = range(0, written.num_rows, 700)
    pieces = [asked(written.slice(first, 700), way) for first in firsts]
    # Copies: this writer cannot take slices of nested structs.
    copies = [piece.take(pa.array(range(piece.num_rows))).combine_chunks() for piece in pieces]
    source = pa.concat_tables(copies)
    write_with_pylance(tmp_path / "pages.lance", source, data_cache_bytes=512)
    check_with_glaive(LocalStore(str(tmp_path)), "pages.lance", written)
    memory = open_store(f"memory://{way}-{name}")
    memory.put("pages.lance", [(tmp_path / "pages.lance").read_bytes()])
    check_with_glaive(memory, "pages.lance", written)


@pytest.mark.sampled(every=75)
@pytest.mark.parametrize("way", ["dense", "sparse"])
@pytest.mark.parametrize("name", COLUMNS)
def test_several_pages_of_glaive_are_read_by_pylance(tmp_path: Path, name: str, way: str) -> None:
    written = table(name, 5000 if name != "list_long" else 800)
    source = asked(written, way)
    writer = PlanesWriter(
        LocalStore(str(tmp_path)),
        "pages.lance",
        LanceSchema.from_arrow(source.schema),
        PROFILES["2.3"],
        page_bytes=4096,
    )
    for batch in source.to_batches(max_chunksize=700):
        writer.write(batch)
    writer.finish()
    check_with_pylance(tmp_path / "pages.lance", written)


@pytest.mark.sampled(every=9)
@pytest.mark.spec(
    "indexed-1", "zipped-2", "sparse-6", "range-1", "delta-1", "var-6", "var-7", "rle-5"
)
@pytest.mark.parametrize(
    ("name", "way"),
    # Pages of lists without items that are to be zipped are written by pylance in a way that
    # it cannot read itself.
    [
        *((name, way) for name in (*large_items(), *nested()) for way in WAYS),
        *((name, way) for name in sparse_lists() for way in WAYS if way != "fullzip"),
    ],
)
def test_planes_that_only_some_columns_get(tmp_path: Path, name: str, way: str) -> None:
    """Large dictionaries, nearly empty lists, values all equally long, long runs, maps."""
    written = pa.table({"c": {**large_items(), **sparse_lists(), **nested()}[name]})
    path = tmp_path / "one.lance"
    write_with_pylance(path, asked(written, way))
    check_with_glaive(LocalStore(str(tmp_path)), "one.lance", written)
    store = LocalStore(str(tmp_path / "own"))
    source = asked(written, way)
    writer = create_writer(store, "one.lance", LanceSchema.from_arrow(source.schema), "2.3")
    writer.write(source)
    writer.finish()
    check_with_pylance(tmp_path / "own" / "one.lance", written)


@pytest.mark.sampled(every=2)
@pytest.mark.spec("sparse-7")
@pytest.mark.parametrize(("writer", "readers"), READERS, ids=NAMES)
@pytest.mark.parametrize("name", [name for name in MORE if name.startswith("struct_")])
def test_members_below_null_structs_are_null(
    tmp_path: Path, name: str, writer: ModuleType, readers: tuple[ModuleType, ...]
) -> None:
    """Sparse structure; a member without nulls of its own, among others."""
    source = asked(more_table(name, 600), "sparse")
    writer.write_dataset(source, str(tmp_path / "d"), data_storage_version="2.3")
    member = source.schema.field("c").type.field(0).name
    rows = source["c"].to_pylist()
    for reader in readers:
        found = reader.dataset(str(tmp_path / "d")).to_table(columns=[f"c.{member}"])
        assert found.column(0).to_pylist() == [None if row is None else row[member] for row in rows]


def test_pylance_writes_every_pair_of_planes(tmp_path: Path) -> None:
    """What the tests above are about is really there."""
    found = set()
    for name, array in {**large_items(), **sparse_lists()}.items():
        for way in ("dense", "sparse"):
            path = tmp_path / f"{name} {way}.lance"
            write_with_pylance(path, asked(pa.table({"c": array}), way))
            found |= planes_of(path)
    assert {
        ("dense", "chunked"),
        ("dense", "zipped"),
        ("dense", "constant"),
        ("sparse", "chunked"),
        ("sparse", "zipped"),
        ("sparse", "constant"),
        ("sparse", "no_values"),
        ("sparse", "indexed"),
    } <= found
