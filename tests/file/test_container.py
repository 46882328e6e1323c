"""The container of 2.x files, in the bytes that both libraries write."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.damage import rewritten
from tests.file_messages import BOTH, column_messages, descriptor_of, layout_of, write_with

from glaive.errors import CorruptFileError
from glaive.file import LanceFileReader, LanceFileWriter
from glaive.file.open import open_reader
from glaive.io.access import open_store
from glaive.testing import CountingStore

VERSIONS = pytest.mark.parametrize("version", ["2.0", "2.1", "2.2", "2.3"])
NUMBERS = pa.table({"c": range(3000)})
SIX_PAGES: dict[str, Any] = {"data_cache_bytes": 4000}


def six_batches() -> list[pa.Table]:
    """Batches that share no memory: of slices, pylance counts the memory of the whole."""
    return [pa.table({"c": np.arange(at, at + 500)}) for at in range(0, 3000, 500)]


@pytest.mark.spec("column-4", "column-5")
@VERSIONS
@BOTH
def test_pages_of_a_column_have_the_rows_of_the_file(
    tmp_path: Path, library: str, version: str
) -> None:
    path = tmp_path / "a.lance"
    raw = write_with(library, path, version, six_batches(), **SIX_PAGES)
    (column,) = column_messages(raw)
    assert column.encoding.direct.encoding.endswith(b"/lance.encodings.ColumnEncoding\x12\2\x0a\0")
    assert [page.length for page in column.pages] == [500] * 6
    assert descriptor_of(raw).length == 3000
    assert LanceFileReader(path).read_all().to_table() == NUMBERS

    def shorten(_: Any, columns: list[Any]) -> None:
        del columns[0].pages[5]

    path.write_bytes(rewritten(raw, shorten))
    with pytest.raises(CorruptFileError, match=r"3000.*found 2500"):
        LanceFileReader(path).read_all().to_table()


@pytest.mark.spec("own-2")
@pytest.mark.parametrize("version", ["2.1", "2.2", "2.3"])
@BOTH
def test_all_columns_have_the_rows_of_the_file(tmp_path: Path, library: str, version: str) -> None:
    values = [{"a": [at] * (at % 3), "b": {"x": at}, "c": str(at)} for at in range(900)]
    path = tmp_path / "a.lance"
    raw = write_with(library, path, version, [pa.Table.from_pylist(values)])
    columns = column_messages(raw)
    assert [sum(page.length for page in column.pages) for column in columns] == [900] * 3
    assert LanceFileReader(path).read_all().to_table().to_pylist() == values
    for wrong in range(3):

        def lengthen(_: Any, messages: list[Any], at: int = wrong) -> None:
            messages[at].pages[0].length += 1

        path.write_bytes(rewritten(raw, lengthen))
        with pytest.raises(CorruptFileError, match=r"90[01].*90[01]"):
            LanceFileReader(path).read_all().to_table()


@pytest.mark.spec("column-6", "owner-6")
@VERSIONS
@BOTH
def test_priorities_are_first_rows_and_readers_do_not_depend_on_them(
    tmp_path: Path, library: str, version: str
) -> None:
    path = tmp_path / "a.lance"
    raw = write_with(library, path, version, six_batches(), **SIX_PAGES)
    if (library, version) != ("glaive", "2.0"):
        step = 0 if version == "2.0" else 500
        found = [page.priority for page in column_messages(raw)[0].pages]
        assert found == [step * at for at in range(6)]

    def mix(_: Any, columns: list[Any]) -> None:
        for page, priority in zip(columns[0].pages, (2500, 7, 2**63, 0, 0, 1), strict=True):
            page.priority = priority

    path.write_bytes(rewritten(raw, mix))
    reader = LanceFileReader(path)
    assert reader.read_all().to_table() == NUMBERS
    assert reader.take_rows([2999, 0, 1200]).to_table()["c"].to_pylist() == [2999, 0, 1200]


@pytest.mark.spec("column-7")
@VERSIONS
@BOTH
def test_without_rows_there_are_no_pages(tmp_path: Path, library: str, version: str) -> None:
    raw = write_with(library, tmp_path / "a.lance", version, [NUMBERS.slice(0, 0)])
    assert [len(column.pages) for column in column_messages(raw)] == [0]
    reader = LanceFileReader(tmp_path / "a.lance")
    assert reader.read_all().to_table() == NUMBERS.slice(0, 0)


@pytest.mark.spec("column-8", "page-2")
@pytest.mark.parametrize("version", ["2.1", "2.2"])
@BOTH
def test_a_page_has_all_items_of_its_rows(tmp_path: Path, library: str, version: str) -> None:
    sizes = np.arange(600) % 7 + 1
    sizes[250] = 5000  # more than a page
    ends = np.concatenate(([0], np.cumsum(sizes))).astype(np.int32)
    items = pa.array(np.random.default_rng(0).integers(0, 2**62, ends[-1]))
    rows = pa.table({"c": pa.ListArray.from_arrays(pa.array(ends), items)})
    batches = rows.to_batches(max_chunksize=100)
    tables = [pa.Table.from_batches([batch]) for batch in batches]
    raw = write_with(library, tmp_path / "a.lance", version, tables, data_cache_bytes=4000)
    (column,) = column_messages(raw)
    assert len(column.pages) >= 6
    first = 0
    for page in column.pages:
        stop = first + page.length
        assert layout_of(page).mini_block_layout.num_items == ends[stop] - ends[first]
        first = stop
    assert first == 600
    assert LanceFileReader(tmp_path / "a.lance").read_all().to_table() == rows


@pytest.mark.spec("page-3")
@pytest.mark.parametrize("version", ["2.0", "2.2"])
@BOTH
def test_a_page_ends_where_8_mib_were_collected(tmp_path: Path, library: str, version: str) -> None:
    rng = np.random.default_rng(0)
    batches = [pa.table({"c": rng.integers(0, 2**62, 2**17)}) for _ in range(18)]
    raw = write_with(library, tmp_path / "a.lance", version, batches)
    pages = column_messages(raw)[0].pages
    assert [page.length >> 17 for page in pages] == [8, 8, 2]


@pytest.mark.spec("align-4", "const-5")
@BOTH
def test_a_buffer_without_bytes_has_an_entry(tmp_path: Path, library: str) -> None:
    rows = pa.table({"c": [5, None, 5] * 400, "d": [7, None, 7] * 400})
    raw = write_with(library, tmp_path / "a.lance", "2.2", [rows])
    pages = [column.pages[0] for column in column_messages(raw)]
    assert [list(page.buffer_sizes) for page in pages] == [[0, 2400]] * 2
    assert [list(page.buffer_offsets) for page in pages] == [[0, 0], [2432, 2432]]
    assert LanceFileReader(tmp_path / "a.lance").read_all().to_table() == rows


@pytest.mark.spec("global-2")
@VERSIONS
def test_further_global_buffers_change_no_rows(tmp_path: Path, version: str) -> None:
    with LanceFileWriter(tmp_path / "a.lance", version=version) as writer:
        writer.add_global_buffer((tmp_path / "a.lance").name.encode())
        writer.write_batch(NUMBERS)
        writer.add_global_buffer(b"\xff" * 100)
        writer.add_global_buffer(b"")
    assert LanceFileReader(tmp_path / "a.lance").read_all().to_table() == NUMBERS


@pytest.mark.spec("read-1")
@pytest.mark.parametrize(("columns", "requests"), [(3, {"tail": 1}), (900, {"tail": 1, "read": 1})])
def test_all_metadata_takes_two_requests_at_most(
    tmp_path: Path, columns: int, requests: dict[str, int]
) -> None:
    rows = pa.table({f"c{at}": pa.array([at], pa.int64()) for at in range(columns)})
    raw = write_with("glaive", tmp_path / "a.lance", "2.1", [rows])
    assert (len(raw) > 64 * 1024) == (columns == 900)
    store = CountingStore(open_store(tmp_path))
    reader = open_reader(store, "a.lance")
    reader.bind(reader.schema.fields)
    assert store.by_method == requests
