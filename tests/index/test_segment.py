"""Files of segments: written into a new folder, listed, read back, and checked."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import UUID

import numpy as np
import pyarrow as pa
import pytest
from tests.damage import rewritten

import glaive
from glaive.errors import CorruptFileError, DataFileMissingError, GlaiveError, LimitError
from glaive.format.pb import table_pb2
from glaive.index.segment import IndexFile, Segment, SegmentWriter, file_version_of
from glaive.io.access import open_store
from glaive.io.store import ObjectStore
from glaive.types import FormatVersion

V2 = FormatVersion(2, 1)
ROWS = pa.table(
    {"ids": pa.array([1, 2], pa.uint64()), "values": ["a", None]},
    schema=pa.schema(
        [
            pa.field("ids", pa.uint64(), nullable=False),
            pa.field("values", pa.string(), metadata={"key": "of the field"}),
        ],
        metadata={"own": "kept"},
    ),
)


@pytest.fixture
def store(tmp_path: Path) -> ObjectStore:
    return open_store(str(tmp_path))


def segment_of(writer: SegmentWriter, *, listed: bool = True) -> Segment:
    entry = table_pb2.IndexMetadata(name="i", files=writer.finish() if listed else ())
    entry.uuid.uuid = writer.id.bytes
    return Segment(writer.store, entry)


@pytest.mark.spec("segment-1")
@pytest.mark.spec("segment-3")
@pytest.mark.parametrize("version", ["0.1", "2.0", "2.1", "2.2", "2.3"])
def test_files_come_back_with_metadata_and_buffers(store: ObjectStore, version: str) -> None:
    writer = SegmentWriter(store, FormatVersion(*map(int, version.split("."))))
    writer.write("a.lance", ROWS, metadata={"more": "text"}, buffers={"nulls": b"some bytes"})
    segment = segment_of(writer)
    assert segment.folder == f"_indices/{writer.id}"
    file = segment.open("a.lance")
    assert file.read().to_pydict() == ROWS.to_pydict()
    assert file.read(["values"], 1, 9).to_pydict() == {"values": [None]}
    assert file.schema.field("values").metadata == {b"key": b"of the field"}
    assert file.metadata == {"own": "kept", "more": "text", "nulls": "1"}
    assert file.buffer(file.number("nulls")).to_pybytes() == b"some bytes"
    assert file.num_rows == 2


def test_a_file_of_far_more_rows_than_bytes_is_refused_before_it_is_read(
    tmp_path: Path, store: ObjectStore
) -> None:
    writer = SegmentWriter(store, FormatVersion(2, 2))
    writer.write("a.lance", pa.table({"ids": pa.array([7] * 100, pa.uint64())}))
    segment = segment_of(writer)
    assert segment.open("a.lance").num_rows == 100

    def change(descriptor: Any, columns: list[Any]) -> None:
        descriptor.length = columns[0].pages[0].length = 2**28

    path = tmp_path / segment.folder / "a.lance"
    path.write_bytes(rewritten(path.read_bytes(), change))
    with pytest.raises(CorruptFileError, match=r"rows of an index file.*268435456"):
        segment.open("a.lance")


@pytest.mark.spec("rel-42")
def test_columns_of_one_name_are_damage(tmp_path: Path, store: ObjectStore) -> None:
    out = SegmentWriter(store, V2)
    out.write("a.lance", pa.table({"ids": [1], "more": [2], "same": [3]}))

    def change(descriptor: Any, _: list[Any]) -> None:
        descriptor.schema.fields[2].name = "more"

    path = tmp_path / out.folder / "a.lance"
    path.write_bytes(rewritten(path.read_bytes(), change))
    with pytest.raises(CorruptFileError, match=r"a name for each, found ids, more, more.*a\.lance"):
        IndexFile(store, f"{out.folder}/a.lance").read()


@pytest.mark.spec("segment-2")
@pytest.mark.spec("rel-24")
def test_rows_that_would_take_far_more_than_the_file_are_refused_before_they_are_read(
    store: ObjectStore,
) -> None:
    out = SegmentWriter(store, FormatVersion(2, 1))
    kind = pa.list_(pa.float32(), 1 << 20)  # 4 MB each, and nothing in the file
    writer = out.create("codes", pa.schema([("codes", kind)]))
    for _ in range(40):
        writer.write(pa.table({"codes": pa.nulls(8, kind)}))
    writer.finish()
    file = IndexFile(store, f"{out.folder}/codes")
    assert len(file.read(stop=2)) == 2
    reads: list[Callable[[], object]] = [
        file.read,
        lambda: file.read_ranges([(["codes"], [(0, 200), (200, 320)])]),
        lambda: file.take(["codes"], np.arange(320)),
    ]
    for read in reads:
        with pytest.raises(LimitError, match="set GLAIVE_MAX_DECODED_BYTES_PER_PAGE"):
            read()


READ_OF_FEW_BYTES = """
import sys, numpy
from glaive.errors import UnsupportedFeatureError
from glaive.index.segment import IndexFile
from glaive.io.access import open_store

file = IndexFile(open_store(sys.argv[1]), sys.argv[2])
assert len(file.read(stop=2)) == 2
for read in (
    lambda: file.read(),
    lambda: file.read_ranges([(["keys"], [(0, 40_000)])]),
    lambda: file.take(["keys"], numpy.arange(40_000)),
):
    try:
        read()
    except UnsupportedFeatureError as error:
        assert "set GLAIVE_MAX_DECODED_BYTES_PER_PAGE" in str(error)
        assert sys.argv[2] in str(error)
        print("refused")
"""


@pytest.mark.spec("rel-24")
@pytest.mark.parametrize(("limit", "refused"), [("1MiB", 3), ("1GiB", 0)])
def test_texts_of_few_bytes_have_the_limit_that_is_set(
    tmp_path: Path, store: ObjectStore, limit: str, refused: int
) -> None:
    out = SegmentWriter(store, FormatVersion(2, 1))
    texts = pa.array(["x" * 1_000]).take(pa.array([0] * 40_000))
    out.write("keys", pa.table({"keys": texts}))
    result = subprocess.run(
        [sys.executable, "-c", READ_OF_FEW_BYTES, str(tmp_path), f"{out.folder}/keys"],
        env={**os.environ, "GLAIVE_MAX_DECODED_BYTES_PER_PAGE": limit},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.stdout.count("refused") == refused, result.stderr
    assert result.returncode == 0


def test_files_are_of_the_version_of_the_data_but_never_0_1() -> None:
    assert file_version_of(FormatVersion(0, 1)) == "2.0"
    assert file_version_of(FormatVersion(2, 2)) == "2.2"


def test_files_and_sizes_are_listed_as_they_were_finished(
    tmp_path: Path, store: ObjectStore
) -> None:
    writer = SegmentWriter(store, V2)
    writer.write("b.lance", ROWS)
    writer.write("a.lance", ROWS.slice(0, 0))
    for listed in (True, False):
        segment = segment_of(writer, listed=listed)
        sizes = segment.sizes()
        assert set(sizes) == {"a.lance", "b.lance"}
        assert {name: (tmp_path / segment.folder / name).stat().st_size for name in sizes} == sizes
    assert [file.path for file in writer.finish()] == ["b.lance", "a.lance"]
    assert segment.has("a.lance")
    assert not segment.has("c.lance")


@pytest.mark.spec("rel-25")
def test_a_link_in_the_place_of_a_segment_does_not_have_a_whole_disk_listed(tmp_path: Path) -> None:
    dataset = glaive.write_dataset(ROWS, tmp_path / "t")
    dataset.create_scalar_index("values", "BTREE", name="i")
    disk, (folder,) = tmp_path / "disk", (tmp_path / "t/_indices").iterdir()
    folder.rename(disk)
    (disk / "deep/er").mkdir(parents=True)
    (disk / "deep/er/b.lance").write_bytes(b"of somebody else")
    folder.symlink_to(disk)
    entry = table_pb2.IndexMetadata(name="i")
    entry.uuid.uuid = UUID(folder.name).bytes
    files = {path.name for path in disk.glob("*.lance")}
    assert set(Segment(dataset.store, entry).sizes()) == files
    tracked = dataset.tracked_files().read_all()["path"].to_pylist()
    assert {path for path in map(str, tracked) if folder.name in path} == {
        f"_indices/{folder.name}/{name}" for name in files
    }


def test_files_are_taken_over_as_they_are(store: ObjectStore) -> None:
    first, second = SegmentWriter(store, V2), SegmentWriter(store, V2)
    first.write("a.lance", ROWS)
    segment = segment_of(first)
    second.copy(segment, "a.lance")
    assert second.finish() == first.finish()
    assert segment_of(second).open("a.lance").read().equals(segment.open("a.lance").read())


def test_unfinished_files_are_no_segment(tmp_path: Path, store: ObjectStore) -> None:
    writer = SegmentWriter(store, V2)
    writer.write("a.lance", ROWS)
    writer.create("b.lance", ROWS.schema).write(ROWS)
    with pytest.raises(GlaiveError, match=r"not finished: \['b.lance'\]"):
        writer.finish()
    writer.abort()
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []
    assert writer.finish() == []


class TestDamage:
    @pytest.fixture
    def file(self, store: ObjectStore) -> IndexFile:
        writer = SegmentWriter(store, V2)
        writer.write("a.lance", ROWS, metadata={"n": "-1", "big": "9" * 30, "two": "2"})
        return segment_of(writer).open("a.lance")

    def test_columns_of_other_types(self, file: IndexFile) -> None:
        file.check(ids=pa.uint64(), values=None)
        with pytest.raises(CorruptFileError, match=r"'ids'.*expected type int64, found uint64"):
            file.check(ids=pa.int64())
        with pytest.raises(CorruptFileError, match=r"'other'.*no such column"):
            file.read(["other"])

    def test_numbers_that_are_none(self, file: IndexFile) -> None:
        assert file.number("absent", 7) == 7
        assert file.number("two", minimum=2) == 2
        with pytest.raises(CorruptFileError, match=r"'two'.*from 3 on, found '2'"):
            file.number("two", minimum=3)
        for key in ("absent", "n", "big", "own"):
            with pytest.raises(CorruptFileError, match=key):
                file.number(key)

    def test_nulls(self, file: IndexFile) -> None:
        file.check_present(ROWS["ids"])
        with pytest.raises(CorruptFileError, match="1 nulls"):
            file.check_present(ROWS["values"])

    def test_buffers_that_are_not_there(self, file: IndexFile) -> None:
        with pytest.raises(CorruptFileError, match="buffer"):
            file.buffer(5)

    def test_files_that_are_not_there(self, store: ObjectStore) -> None:
        segment = segment_of(SegmentWriter(store, V2))
        with pytest.raises(DataFileMissingError, match=r"a\.lance"):
            segment.open("a.lance")

    def test_an_entry_below_a_base_path_that_is_not_there(self, tmp_path: Path) -> None:
        glaive.write_dataset(ROWS, tmp_path / "d")
        dataset = glaive.dataset(tmp_path / "d")
        entry = table_pb2.IndexMetadata(name="i", base_id=9)
        entry.uuid.uuid = bytes(16)
        with pytest.raises(CorruptFileError, match="base path of a file"):
            Segment.of(dataset.store, dataset.manifest, entry)
