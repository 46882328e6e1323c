"""Single files through the public reader and writer, side by side with pylance's."""

from __future__ import annotations

import errno
import json
from contextlib import suppress
from itertools import count, pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.interop.cases import COLUMNS, table
from tests.kit.system_errors import failing_from

from glaive.errors import (
    ColumnNotFoundError,
    CorruptFileError,
    ObjectNotFoundError,
    OptionError,
    RowIndexError,
    SchemaError,
    StoreError,
)
from glaive.file import LanceFileReader, LanceFileSession, LanceFileWriter

ROWS = pa.table(
    {"id": range(5000), "name": [f"name {i % 700}" for i in range(5000)], "f": [0.5] * 5000}
)


def _write(path: Path, rows: pa.Table = ROWS, **options: object) -> Path:
    with LanceFileWriter(path, rows.schema, **options) as writer:  # type: ignore[arg-type]  # any
        writer.write_batch(rows)
    return path


def test_all_rows_a_range_and_single_rows_are_read(tmp_path: Path) -> None:
    reader = LanceFileReader(_write(tmp_path / "a.lance"))
    assert reader.num_rows() == 5000
    assert reader.read_all().to_table().equals(ROWS)
    assert reader.read_range(10, 20).to_table().equals(ROWS.slice(10, 20))
    assert reader.take_rows([7, 3, 7]).to_table().equals(ROWS.take(pa.array([7, 3, 7])))


def test_batches_have_the_requested_size(tmp_path: Path) -> None:
    reader = LanceFileReader(_write(tmp_path / "a.lance"))
    sizes = [batch.num_rows for batch in reader.read_all(batch_size=2048).to_batches()]
    assert sizes == [2048, 2048, 904]


def test_columns_can_be_left_out(tmp_path: Path) -> None:
    reader = LanceFileReader(_write(tmp_path / "a.lance"), columns=["name"])
    assert reader.read_all().to_table().equals(ROWS.select(["name"]))
    with pytest.raises(ColumnNotFoundError, match="did you mean 'name'"):
        LanceFileReader(tmp_path / "a.lance", columns=["nmae"])


@pytest.mark.parametrize(
    "rows",
    [[1.5], [True], ["1"], [None], [[1]], [1j], 5, pa.array([1.0]), pa.array([1, None])],
    ids=str,
)
def test_positions_that_are_no_integers_are_refused(tmp_path: Path, rows: Any) -> None:
    """NumPy makes integers of most of them, and another row than was asked for would be read."""
    reader = LanceFileReader(_write(tmp_path / "a.lance"))
    with pytest.raises(OptionError, match="row positions: expected"):
        reader.take_rows(rows)


def test_positions_beyond_64_bits_are_named_as_they_are_given(tmp_path: Path) -> None:
    reader = LanceFileReader(_write(tmp_path / "a.lance"))
    for row in (2**63, 2**64 - 1):
        with pytest.raises(RowIndexError, match=f"row position {row} is out of range"):
            reader.take_rows([row])
    assert reader.take_rows(pa.array([3, 1], pa.uint64())).to_table().num_rows == 2


def test_rows_beyond_the_file_are_refused(tmp_path: Path) -> None:
    reader = LanceFileReader(_write(tmp_path / "a.lance"))
    with pytest.raises(RowIndexError, match="has 5000 rows"):
        reader.read_range(4990, 11)
    with pytest.raises(RowIndexError, match="row 5000"):
        reader.take_rows([0, 5000])


def test_global_buffers_and_metadata_come_back(tmp_path: Path) -> None:
    path = tmp_path / "a.lance"
    with LanceFileWriter(path) as writer:
        assert writer.add_global_buffer(b"before the schema") == 1
        writer.write_batch(ROWS)
        assert writer.add_global_buffer(b"after it") == 2
        writer.add_schema_metadata("made by", "a test")
    reader = LanceFileReader(path)
    assert reader.read_global_buffer(1) == b"before the schema"
    assert reader.read_global_buffer(2) == b"after it"
    assert reader.schema.metadata == {b"made by": b"a test"}


def test_an_error_in_the_block_leaves_no_file(tmp_path: Path) -> None:
    path = tmp_path / "a.lance"
    with pytest.raises(KeyError), LanceFileWriter(path, ROWS.schema) as writer:  # noqa: PT012  # the block is what is tested
        writer.write_batch(ROWS)
        raise KeyError
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(OptionError, match="is closed"):
        writer.write_batch(ROWS)


@pytest.mark.parametrize("version", ["0.1", "2.0", "2.1", "2.2"])
def test_a_batch_that_is_refused_adds_to_no_column(tmp_path: Path, version: str) -> None:
    strict = pa.schema([("a", pa.int64()), pa.field("b", pa.int64(), nullable=False)])
    rows = pa.table([[1, 2], [3, 4]], schema=strict)
    with LanceFileWriter(tmp_path / "a.lance", strict, version=version) as writer:
        writer.write_batch(rows)
        with pytest.raises(SchemaError, match=r"'b'.*: expected no nulls, found 1"):
            writer.write_batch(pa.table([[5, 6], [7, None]], schema=strict))
        writer.write_batch(rows)
    assert LanceFileReader(tmp_path / "a.lance").read_all().to_table() == pa.concat_tables(
        [rows] * 2
    )


def test_a_file_that_lacks_rows_of_some_columns_is_not_finished(tmp_path: Path) -> None:
    rows = pa.table({"a": [1, 2], "b": [{"c": 1}, None]})
    writer = LanceFileWriter(tmp_path / "a.lance", version="2.0", data_cache_bytes=1)
    with pytest.raises(SchemaError, match="null structs"):
        writer.write_batch(rows)
    with pytest.raises(OptionError, match="is not finished: writing some of its rows ended in an"):
        writer.close()
    assert list(tmp_path.iterdir()) == []


def test_a_writer_without_schema_and_rows_writes_nothing(tmp_path: Path) -> None:
    writer = LanceFileWriter(tmp_path / "a.lance")
    with pytest.raises(SchemaError, match="Schema is unknown and file cannot be created"):
        writer.close()
    assert writer.closed
    assert list(tmp_path.iterdir()) == []


def test_a_small_cache_makes_small_pages(tmp_path: Path) -> None:
    path = tmp_path / "a.lance"
    with LanceFileWriter(path, ROWS.schema, data_cache_bytes=3 * 4096) as writer:
        for batch in ROWS.to_batches(max_chunksize=500):
            writer.write_batch(batch)
    layout = LanceFileReader(path).layout()
    assert layout.columns[0].num_pages == 10
    assert sum(page.rows for page in layout.columns[0].pages) == 5000


@pytest.mark.parametrize("version", ["2.0", "2.1", "2.2"])
def test_the_layout_accounts_for_every_byte_but_padding(tmp_path: Path, version: str) -> None:
    path = _write(tmp_path / "a.lance", version=version)
    layout = LanceFileReader(path).layout()
    buffers = [buffer for column in layout.columns for buffer in column.all_buffers()]
    buffers += layout.sections
    buffers.sort(key=lambda buffer: buffer.position)
    between = [(a.end, b.position - a.end) for a, b in pairwise(buffers)]
    assert all(0 <= size < 64 for _, size in between)
    assert [(gap.position, gap.size) for gap in layout.gaps()] == [gap for gap in between if gap[1]]
    assert {gap.kind for gap in layout.gaps()} == {"padding"}
    assert buffers[-1].end == path.stat().st_size == layout.size
    assert [column.path for column in layout.columns] == ["id", "name", "f"]
    assert json.loads(json.dumps(layout.to_dict()))["rows"] == 5000


@pytest.mark.parametrize("version", ["2.0", "2.1", "2.2", "legacy"])
def test_the_layout_knows_what_buffers_hold(tmp_path: Path, version: str) -> None:
    layout = LanceFileReader(_write(tmp_path / "a.lance", version=version)).layout()
    kinds = {buffer.kind for column in layout.columns for buffer in column.all_buffers()}
    assert kinds <= {
        "chunk table", "chunks", "dictionary", "values", "offsets", "bytes", "indices",
    }  # fmt: skip
    assert all(page.bytes_per_value for column in layout.columns[:1] for page in column.pages)


@pytest.mark.parametrize("version", ["2.0", "2.1", "2.2"])
@pytest.mark.parametrize("name", COLUMNS)
def test_every_file_can_be_described(tmp_path: Path, name: str, version: str) -> None:
    rows = table(name, 300)
    path = tmp_path / "a.lance"
    if version == "2.0" and "struct" in name:
        with pytest.raises(SchemaError, match="null structs"):
            _write(path, rows, version=version)
        return
    _write(path, rows, version=version)
    reader = LanceFileReader(path)
    layout = reader.layout()
    json.dumps(layout.to_dict())
    assert len(reader.file_statistics().columns) == len(layout.columns) > 0
    for column in layout.columns:
        for page in column.pages:
            assert page.encoding.name not in ("none", "")


def test_ratio_is_bytes_in_memory_per_byte_in_the_file(tmp_path: Path) -> None:
    layout = LanceFileReader(_write(tmp_path / "a.lance")).layout()
    number = layout.columns[0]
    assert number.ratio == pytest.approx(5000 * 8 / number.size)
    assert layout.columns[1].ratio is None


def test_sessions_open_files_below_one_place(tmp_path: Path) -> None:
    session = LanceFileSession(tmp_path)
    with session.open_writer("deep/a.lance", schema=ROWS.schema) as writer:
        writer.write_batch(ROWS)
    assert session.contains("deep/a.lance")
    assert not session.contains("deep/b.lance")
    assert session.list() == ["deep/a.lance"]
    assert session.open_reader("deep/a.lance", ["id"]).num_rows() == 5000
    with session.open_writer(Path("by") / "a path.lance", schema=ROWS.schema) as writer:
        writer.write_batch(ROWS)
    assert session.open_reader(Path("by") / "a path.lance").num_rows() == 5000
    (tmp_path / "by" / "a path.lance").unlink()
    assert session.read_range("deep/a.lance", 0, 4) == (tmp_path / "deep/a.lance").read_bytes()[:4]
    session.download_file("deep/a.lance", tmp_path / "copy.lance")
    session.upload_file(tmp_path / "copy.lance", "again.lance")
    with pytest.raises(ObjectNotFoundError, match=r"cannot read .*gone"):
        session.upload_file(tmp_path / "gone", "gone.lance")
    with pytest.raises(StoreError, match=r"cannot write .*deep: Is a directory"):
        session.download_file("again.lance", tmp_path / "deep")
    assert session.open_reader("again.lance").read_all().to_table().equals(ROWS)
    session.delete_file("again.lance")
    assert not session.contains("again.lance")


@pytest.mark.spec("sec-2")
@pytest.mark.parametrize(
    "path", ["../a.lance", "deep/../../a.lance", "%2e%2e/a.lance", "d?/a.lance"]
)
@pytest.mark.parametrize("as_uri", [False, True])
def test_sessions_write_no_file_outside_of_their_place(
    as_uri: bool, path: str, tmp_path: Path
) -> None:
    """Nor to another place in it than the one that it is read from."""
    place, others = tmp_path / "place", tmp_path / "a.lance"
    others.write_bytes(b"of somebody else")
    session = LanceFileSession(place.as_uri() if as_uri else place)
    if ".." in path:
        with pytest.raises(StoreError, match=r"leads out of .*place"):
            session.open_writer(path, schema=ROWS.schema)
    else:
        with session.open_writer(path, schema=ROWS.schema) as writer:
            writer.write_batch(ROWS)
        assert session.list() == [path]
        assert session.open_reader(path).num_rows() == 5000
    assert others.read_bytes() == b"of somebody else"


def test_names_of_files_are_decoded_in_file_uris(tmp_path: Path) -> None:
    path = tmp_path / "a file, 100 %" / "of ä?.lance"
    with LanceFileWriter(path.as_uri(), ROWS.schema) as writer:
        writer.write_batch(ROWS)
    for place in (path, path.as_uri(), str(path)):
        assert LanceFileReader(place).num_rows() == 5000
    assert [one.name for one in path.parent.iterdir()] == [path.name]


def test_sessions_in_memory_write_to_their_own_place() -> None:
    session = LanceFileSession("memory://")
    with pytest.raises(OptionError, match="path: 'deep/' names a directory"):
        session.open_writer("deep/", schema=ROWS.schema)
    with session.open_writer("/a.lance", schema=ROWS.schema) as writer:
        writer.write_batch(ROWS)
    assert session.list() == ["a.lance"]


def test_files_of_format_0_1_show_pages_statistics_and_sections(tmp_path: Path) -> None:
    dictionary = pa.array([f"key {i % 3}" for i in range(5000)]).dictionary_encode()
    lists = pa.array([[i] * (i % 3) for i in range(5000)])
    rows = ROWS.append_column("key", dictionary).append_column("list", lists)
    path = _write(tmp_path / "a.lance", rows, version="legacy")
    layout = LanceFileReader(path).layout()
    assert [column.path for column in layout.columns] == [
        "id", "name", "f", "key", "list", "list.item",
    ]  # fmt: skip
    by_path = {column.path: column for column in layout.columns}
    assert [page.rows for page in by_path["id"].pages] == [1024] * 4 + [904]
    assert by_path["id"].ratio == 1.0
    assert by_path["name"].encodings == ("var_binary",)
    assert [buffer.kind for buffer in by_path["key"].buffers] == ["dictionary", "dictionary"]
    assert by_path["list.item"].values == sum(i % 3 for i in range(5000))
    assert {buffer.kind for buffer in layout.sections} == {
        "schema", "page table", "statistics", "page table of statistics", "metadata and footer",
    }  # fmt: skip
    assert all(gap.kind == "padding" and gap.size < 64 for gap in layout.gaps())
    assert layout.sections[-1].end == path.stat().st_size


def test_a_damaged_page_table_of_format_0_1_is_refused(tmp_path: Path) -> None:
    path = _write(tmp_path / "a.lance", version="legacy")
    table = LanceFileReader(path).layout().column_metadata
    data = bytearray(path.read_bytes())
    data[table.position : table.position + 8] = (1 << 62).to_bytes(8, "little")
    path.write_bytes(data)
    with pytest.raises(CorruptFileError, match="page table"):
        LanceFileReader(path).layout()


def test_pylance_reads_the_same_global_buffers_and_the_other_way_round(tmp_path: Path) -> None:
    lance_file = pytest.importorskip("lance.file", reason="install the 'interop' group")
    ours, theirs = tmp_path / "ours.lance", tmp_path / "theirs.lance"
    with LanceFileWriter(ours, ROWS.schema) as writer:
        writer.write_batch(ROWS)
        number = writer.add_global_buffer(b"abc")
        writer.add_schema_metadata("k", "v")
    read = lance_file.LanceFileReader(str(ours))
    assert read.read_all().to_table().equals(ROWS)
    assert read.read_global_buffer(number) == b"abc"
    assert read.metadata().schema.metadata == {b"k": b"v"}
    with lance_file.LanceFileWriter(str(theirs), ROWS.schema) as writer:
        writer.write_batch(ROWS)
        number = writer.add_global_buffer(b"def")
    reader = LanceFileReader(theirs)
    assert reader.read_global_buffer(number) == b"def"
    assert reader.read_all().to_table().equals(ROWS)
    expected = lance_file.LanceFileReader(str(theirs)).file_statistics().columns
    columns = reader.file_statistics().columns
    assert [(c.num_pages, c.size_bytes) for c in columns] == [
        (c.num_pages, c.size_bytes) for c in expected
    ]


def test_a_writer_tells_the_size_of_its_file(tmp_path: Path) -> None:
    path = tmp_path / "a.lance"
    with LanceFileWriter(path, version="2.0") as writer:
        writer.write_batch(pa.table({"a": [1, 2, 3]}))
        unfinished = writer.size_bytes
    assert (unfinished, writer.size_bytes) == (None, path.stat().st_size)
    metadata = LanceFileReader(path).metadata()
    parts = [
        metadata.num_data_bytes,
        metadata.num_global_buffer_bytes,
        metadata.num_column_metadata_bytes,
    ]
    assert 0 < sum(parts) < path.stat().st_size
    assert (metadata.major_version, metadata.minor_version) == (0, 3)


def test_a_global_buffer_that_is_not_there_is_a_wrong_number(tmp_path: Path) -> None:
    with LanceFileWriter(tmp_path / "a.lance") as writer:
        writer.write_batch(pa.table({"a": [1]}))
    reader = LanceFileReader(tmp_path / "a.lance")
    for index in (-1, 1):
        with pytest.raises(OptionError, match=f"has 1 global buffers, not {index}"):
            reader.read_global_buffer(index)


def test_a_session_reads_and_deletes_what_there_is(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"hello")
    session = LanceFileSession(str(tmp_path))
    assert session.read_range("a.txt", 1, 3) == b"ell"
    for offset, length in ((3, 3), (9, 1), (-1, 2), (0, -1)):
        with pytest.raises(OptionError, match=r"a\.txt has 5 bytes"):
            session.read_range("a.txt", offset, length)
    session.delete_file("a.txt")
    with pytest.raises(ObjectNotFoundError, match=r"cannot delete .*a\.txt"):
        session.delete_file("a.txt")


@pytest.mark.spec("rel-20")
@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs /proc")
def test_a_file_that_cannot_be_written_to_its_end_leaves_nothing(tmp_path: Path) -> None:
    def opened() -> list[str]:
        links = [path for path in Path("/proc/self/fd").iterdir() if path.is_symlink()]
        return [str(path.readlink()) for path in links if str(tmp_path) in str(path.readlink())]

    for at in count(1):
        with failing_from(str(tmp_path), errno.ENOSPC, at) as calls, suppress(StoreError):
            _write(tmp_path / "a.lance")
        if not calls.failed:
            break
        assert list(tmp_path.iterdir()) == []
        assert opened() == []
    assert at > 3
    assert LanceFileReader(tmp_path / "a.lance").num_rows() == 5000
