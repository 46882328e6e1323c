"""What glaive writes, pylance reads, and the other way round: every type, version and path."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import numpy as np
import pyarrow as pa
import pytest
from tests.interop.cases import COLUMNS, SIZES, assert_reads_same, assert_same, table

import glaive

lance = pytest.importorskip("lance", reason="install the 'interop' group")

pytestmark = pytest.mark.interop

VERSIONS = ("2.1", "2.2")
READERS = [(glaive, (lance, glaive)), (lance, (glaive,))]
NAMES = ["written-by-glaive", "written-by-pylance"]


def _take(source: pa.Table, rows: list[int]) -> pa.Table:
    return source.take(pa.array(rows, pa.int64()))


@pytest.mark.sampled(every=102)
@pytest.mark.parametrize(("writer", "readers"), READERS, ids=NAMES)
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", COLUMNS)
def test_every_type_survives(
    tmp_path: Path, name: str, version: str, writer: ModuleType, readers: tuple[ModuleType, ...]
) -> None:
    """Scan, projection, slice and take at sizes around the borders of chunks."""
    for rows in SIZES if "long" not in name else SIZES[:5]:
        written = table(name, rows)
        uri = str(tmp_path / f"{rows}")
        writer.write_dataset(written, uri, data_storage_version=version)
        for reader in readers:
            assert_reads_same(reader.dataset(uri), written)


@pytest.mark.sampled(every=17)
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", COLUMNS)
def test_several_pages_of_pylance_are_read(tmp_path: Path, name: str, version: str) -> None:
    """Pages that pylance cut small: whole, in windows across their borders, and taken."""
    from lance.file import LanceFileWriter

    from glaive.file.open import open_reader
    from glaive.io.local import LocalStore

    written = table(name, 5000)
    path = str(tmp_path / "pages.lance")
    with LanceFileWriter(path, written.schema, data_cache_bytes=512, version=version) as file:
        for first in range(0, 5000, 700):
            # Copies: this writer cannot take slices of nested structs.
            rows = list(range(first, min(first + 700, 5000)))
            file.write_batch(_take(written, rows).combine_chunks().to_batches()[0])
    reader = open_reader(LocalStore(str(tmp_path)), "pages.lance")
    columns = reader.bind(reader.schema.fields)
    if not name.startswith("all_null"):
        assert len(columns.cuts()) > 2  # several pages
    assert_same(pa.table(columns.read(0, 5000), schema=columns.schema), written)
    for start, stop in ((0, 1), (699, 701), (650, 2900), (4999, 5000), (2100, 2100)):
        found = pa.table(columns.read(start, stop), schema=columns.schema)
        assert_same(found, written.slice(start, stop - start))
    rng = np.random.default_rng(5)
    wanted = rng.integers(0, 5000, 300)
    assert_same(
        pa.table(columns.take(wanted), schema=columns.schema), _take(written, wanted.tolist())
    )


@pytest.mark.sampled(every=31)
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", COLUMNS)
def test_several_pages_of_glaive_are_read_by_pylance(
    tmp_path: Path, name: str, version: str
) -> None:
    """Pages cut small by glaive: whole, in ranges and taken."""
    from lance.file import LanceFileReader

    from glaive.file.v2.writer import FileV2Writer
    from glaive.file.versions import PROFILES
    from glaive.format.fields import LanceSchema
    from glaive.io.local import LocalStore

    # Long lists are costly.
    count, piece = (5000, 700) if name != "list_long" else (350, 50)
    written = table(name, count)
    schema = LanceSchema.from_arrow(written.schema)
    writer = FileV2Writer(
        LocalStore(str(tmp_path)), "pages.lance", schema, PROFILES[version], page_bytes=4096
    )
    for batch in written.to_batches(max_chunksize=piece):
        writer.write(batch)
    writer.finish()
    reader = LanceFileReader(str(tmp_path / "pages.lance"))
    assert_same(reader.read_all().to_table(), written)
    start, length = piece - piece // 14, 3 * piece + piece * 3 // 14
    assert_same(reader.read_range(start, length).to_table(), written.slice(start, length))
    wanted = sorted(np.random.default_rng(5).integers(0, count, 60).tolist())
    assert_same(reader.take_rows(wanted).to_table(), _take(written, wanted))
