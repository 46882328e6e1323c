"""Blob columns: values as files and bytes, what reading them costs, and what damage does."""

from __future__ import annotations

import io
import pickle
import struct
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import glaive
from glaive import Blob, BlobFile, blob_array, blob_field
from glaive.dataset.dataset import LanceDataset
from glaive.dataset.writing.fragments import discard_fragments, write_fragments
from glaive.dataset.writing.plan import WriteOptions, plan_write
from glaive.errors import (
    ColumnNotFoundError,
    CorruptFileError,
    DataFileMissingError,
    OptionError,
    RowIndexError,
    SchemaError,
    StoreError,
    UnsupportedFeatureError,
)
from glaive.format.manifest import encode_manifest
from glaive.format.pb import table_pb2
from glaive.io.access import open_store
from glaive.table.load import open_latest
from glaive.testing import CountingStore, Fault

from .forged_blobs import forged_descriptions

BIG = bytes(range(256)) * 400
VALUES = [b"abc", None, b"", BIG, BIG[::-1] * 50, b"0123456789"]
"""In the data file; null; empty; in a file with others; in one of its own; in the data file."""

FIRST: Any = {"lance-encoding:blob": "true"}


def rows(values: list[Any], version: str = "2.2") -> pa.Table:
    if version < "2.2":
        field = pa.field("b", pa.large_binary(), metadata=FIRST)
        return pa.table([pa.array(values, pa.large_binary())], schema=pa.schema([field]))
    return pa.table([blob_array(values)], schema=pa.schema([blob_field("b")]))


def write(
    place: Path | str, values: list[Any], version: str = "2.2", **options: Any
) -> LanceDataset:
    return glaive.write_dataset(
        rows(values, version), str(place), data_storage_version=version, **options
    )


def counted(
    place: Path, values: list[Any], version: str = "2.2"
) -> tuple[LanceDataset, CountingStore]:
    """A dataset behind a counting store, with the metadata of its file already read."""
    write(place, values, version)
    store = CountingStore(open_store(place))
    opened = LanceDataset.of(store, open_latest(store))
    opened.take_blobs("b", indices=[0])
    store.reset()
    return opened, store


def one(dataset: LanceDataset, row: int, **options: Any) -> BlobFile:
    (file,) = dataset.take_blobs("b", indices=[row], **options)
    assert file is not None
    return file


# ---------------------------------------------------------------------- files


@pytest.mark.parametrize("version", ["2.0", "2.1", "2.2"])
def test_a_value_is_a_file(tmp_path: Path, version: str) -> None:
    file = one(write(tmp_path, VALUES, version), 3)
    assert isinstance(file, io.RawIOBase)
    assert (file.size(), file.tell(), file.readable(), file.seekable()) == (len(BIG), 0, True, True)
    assert file.read(5) == BIG[:5]
    assert file.tell() == 5
    assert file.seek(-3, io.SEEK_END) == len(BIG) - 3
    assert file.read(100) == BIG[-3:]
    assert file.read() == b""
    assert file.seek(10) == 10
    assert file.seek(5, io.SEEK_CUR) == 15
    buffer = bytearray(4)
    assert file.readinto(buffer) == 4
    assert bytes(buffer) == BIG[15:19]
    assert file.readinto(memoryview(bytearray(0))) == 0
    assert file.read1(3) == BIG[19:22]
    assert file.seek(len(BIG) + 7) == len(BIG) + 7
    assert (file.read(), file.readinto(bytearray(3))) == (b"", 0)
    file.seek(0)
    assert file.readall() == BIG
    assert repr(file) == f"<BlobFile size={len(BIG)}>"


def test_reading_ranges_leaves_the_position(tmp_path: Path) -> None:
    file = one(write(tmp_path, VALUES), 5)
    file.seek(2)
    assert file.read_range(3, 4) == b"3456"
    assert file.read_ranges([(9, 1), (0, 2), (5, 0)]) == [b"9", b"01", b""]
    assert bytes(file.view(4)) == b"456789"
    assert file.tell() == 2
    for offset, length in ((8, 3), (-1, 1), (0, -1)):
        with pytest.raises(OptionError, match=r"within 0\.\.10"):
            file.read_range(offset, length)
        with pytest.raises(OptionError, match=r"within 0\.\.10"):
            file.view(offset, length)
    with pytest.raises(ValueError, match="negative seek value -1"):
        file.seek(-1)
    with pytest.raises(ValueError, match="whence"):
        file.seek(0, 7)


def test_a_view_of_a_local_file_outlives_it(tmp_path: Path) -> None:
    file = one(write(tmp_path, VALUES), 4)
    view = file.view(0, 1000)
    file.close()
    assert bytes(view) == (BIG[::-1] * 50)[:1000]


def test_a_closed_file_reads_no_more(tmp_path: Path) -> None:
    with one(write(tmp_path, VALUES), 5) as file:
        assert file.read(1) == b"0"
    assert file.closed
    file.close()
    calls: list[Any] = [file.read, file.tell, lambda: file.seek(0), lambda: file.read_range(0, 1)]
    for call in [*calls, lambda: file.readinto(bytearray(1)), file.view]:
        with pytest.raises(ValueError, match="closed"):
            call()
    assert file.size() == 10


def test_other_libraries_read_from_it(tmp_path: Path) -> None:
    parquet, archive = io.BytesIO(), io.BytesIO()
    table = pa.table({"a": range(1000)})
    pq.write_table(table, parquet)
    with zipfile.ZipFile(archive, "w") as written:
        written.writestr("a.txt", "hello" * 1000)
    dataset = write(tmp_path, [parquet.getvalue(), archive.getvalue()])
    assert pq.read_table(one(dataset, 0)).equals(table)
    with zipfile.ZipFile(one(dataset, 1)) as read:  # type: ignore[arg-type]  # a binary file
        assert read.read("a.txt") == b"hello" * 1000
    lines = io.TextIOWrapper(io.BufferedReader(one(write(tmp_path / "t", [b"a\nb\n"]), 0)))
    assert list(lines) == ["a\n", "b\n"]


@pytest.mark.parametrize("row", [0, 3, 4])
def test_a_file_can_be_pickled(tmp_path: Path, row: int) -> None:
    file = one(write(tmp_path, VALUES), row)
    file.seek(2)
    again = pickle.loads(pickle.dumps(file))
    expected = (VALUES[row] or b"")[2:]
    assert (again.tell(), again.read(), again.uri) == (2, expected, file.uri)
    file.close()
    assert pickle.loads(pickle.dumps(file)).closed


# ---------------------------------------------------------------------- rows


@pytest.mark.parametrize("version", ["2.0", "2.1", "2.2"])
def test_rows_by_position_id_and_address(tmp_path: Path, version: str) -> None:
    dataset = write(tmp_path, VALUES, version, max_rows_per_file=4)
    chosen = [5, 1, 0, 5, 2]
    addresses = [(1 << 32) + 1, 1, 0, (1 << 32) + 1, 2]
    wanted = [VALUES[row] for row in chosen]
    selections: list[dict[str, Any]] = [
        {"indices": chosen},
        {"indices": np.array(chosen, np.uint32)},
        {"addresses": pa.array(addresses, pa.uint64())},
        {"ids": addresses},
    ]
    for selection in selections:
        files = dataset.take_blobs("b", **selection)
        assert [file and file.read() for file in files] == wanted
        assert dataset.read_blobs("b", **selection) == list(zip(addresses, wanted, strict=True))
    assert dataset.take_blobs("b", indices=[]) == []
    assert dataset.read_blobs("b", indices=[]) == []
    found = dataset.read_blobs("b", indices=chosen, preserve_order=False)
    assert sorted(found, key=lambda pair: pair[0]) == found
    assert dict(found) == dict(zip(addresses, wanted, strict=True))


def test_what_can_not_be_taken(tmp_path: Path) -> None:
    table = rows(VALUES).append_column("i", pa.array(range(6)))
    dataset = glaive.write_dataset(table, str(tmp_path))
    for wrong in ({}, {"ids": [0], "indices": [0]}):
        with pytest.raises(OptionError, match="Exactly one of ids, indices, or addresses"):
            dataset.take_blobs("b", **wrong)
    with pytest.raises(RowIndexError, match=r"position 6 .* 6 rows"):
        dataset.take_blobs("b", indices=[0, 6])
    with pytest.raises(RowIndexError, match="position -1"):
        dataset.read_blobs("b", indices=[-1])
    with pytest.raises(RowIndexError, match=r"address 99: its fragment has 6 rows"):
        dataset.take_blobs("b", addresses=[99])
    with pytest.raises(RowIndexError, match="fragment does not exist"):
        dataset.take_blobs("b", ids=[7 << 32])
    with pytest.raises(SchemaError, match="'i' is not a blob column: its type is int64"):
        dataset.take_blobs("i", indices=[0])
    with pytest.raises(ColumnNotFoundError, match="did you mean"):
        dataset.take_blobs("bb", indices=[0])
    with pytest.raises(OptionError, match="buffer_size"):
        dataset.take_blobs("b", indices=[0], buffer_size=-1)
    with pytest.raises(ColumnNotFoundError, match="within the blob column 'b'"):
        dataset.to_table(["b.data"])
    with pytest.raises(OptionError, match="Expected one of: all_binary"):
        dataset.to_table(blob_handling="bytes")
    with pytest.raises(OptionError, match=r"range of 9 bytes at 0: expected bytes within 0\.\.3"):
        dataset.read_blob_ranges("b", [(0, 0, 9)], selector="indices")
    with pytest.raises(OptionError, match="selector"):
        dataset.read_blob_ranges("b", [(0, 0, 1)], selector="rows")


def test_ids_that_stay(tmp_path: Path) -> None:
    dataset = write(tmp_path, VALUES, max_rows_per_file=2, enable_stable_row_ids=True)
    assert dataset.read_blobs("b", ids=[5, 0]) == [((2 << 32) + 1, VALUES[5]), (0, VALUES[0])]
    with pytest.raises(RowIndexError, match="id 6: no live row"):
        dataset.read_blobs("b", ids=[6])


# ---------------------------------------------------------------------- requests


@pytest.mark.parametrize("version", ["2.0", "2.1", "2.2"])
def test_files_fetch_what_is_asked_for(tmp_path: Path, version: str) -> None:
    dataset, store = counted(tmp_path, VALUES, version)
    file = one(dataset, 3)
    store.reset()
    file.seek(1000)
    assert file.read(10) == BIG[1000:1010]
    (request,) = store.log
    assert (request.method, request.size) == ("read", 10)
    assert file.readinto(bytearray(20)) == 20
    assert file.read_ranges([(0, 5), (50, 5)]) == [BIG[:5], BIG[50:55]]
    assert [request.size for request in store.log] == [10, 20, 55]
    assert (file.read(0), file.size(), file.seek(0, io.SEEK_END)) == (b"", len(BIG), len(BIG))
    assert file.read() == b""
    assert store.requests == 3


def test_taking_files_reads_descriptions_only(tmp_path: Path) -> None:
    dataset, store = counted(tmp_path, VALUES)
    files = dataset.take_blobs("b", indices=[3, 4, 0])
    assert all(request.path.endswith(".lance") for request in store.log)
    assert store.bytes_read < 4096
    store.reset()
    assert [file and file.read() for file in files] == [VALUES[3], VALUES[4], VALUES[0]]
    assert [request.size for request in store.log] == [len(BIG), 50 * len(BIG), 3]


def test_reading_on_can_read_ahead(tmp_path: Path) -> None:
    dataset, store = counted(tmp_path, VALUES)
    file = one(dataset, 3, buffer_size=1000)
    store.reset()
    assert b"".join(file.read(100) for _ in range(15)) == BIG[:1500]
    assert [request.size for request in store.log] == [1000, 1000]
    file.seek(5000)
    assert file.read(3000) == BIG[5000:8000]
    assert store.log[-1].size == 3000


@pytest.mark.parametrize("version", ["2.0", "2.1", "2.2"])
def test_near_values_come_with_one_request(tmp_path: Path, version: str) -> None:
    values = [bytes([at]) * 1000 for at in range(50)]
    dataset, store = counted(tmp_path, values, version)
    assert [value for _, value in dataset.read_blobs("b", indices=range(50))] == values
    assert len([request for request in store.log if request.size >= 50_000]) == 1
    store.reset()
    table = dataset.to_table(blob_handling="all_binary")
    assert table["b"].to_pylist() == values
    assert len([request for request in store.log if request.size >= 50_000]) == 1


def test_empty_values_and_nulls_cost_nothing(tmp_path: Path) -> None:
    dataset, store = counted(tmp_path, [b"x", None, b""])
    files = dataset.take_blobs("b", indices=[1, 2])
    store.reset()
    assert files[0] is None
    assert files[1] is not None
    assert files[1].read() == b""
    assert store.requests == 0


# ---------------------------------------------------------------------- damage


def replace(file: Path, old: bytes, new: bytes) -> None:
    data = file.read_bytes()
    assert data.count(old) == 1
    file.write_bytes(data.replace(old, new))


def everything(place: Path) -> None:
    dataset = glaive.dataset(str(place))
    dataset.to_table(blob_handling="all_binary")


@pytest.mark.spec("blob-check-1")
@pytest.mark.parametrize("version", ["2.0", "2.1", "2.2"])
@pytest.mark.parametrize(
    ("position", "size"),
    [(0, 1 << 40), (1 << 63, 777), (2**64 - 1, 777), (0, 2**64 - 1), (2**64 - 700, 777)],
)
def test_a_description_that_leads_out_of_the_file(
    tmp_path: Path, version: str, position: int, size: int
) -> None:
    write(tmp_path, [b"-" * 64, b"x" * 777], version)
    (file,) = tmp_path.glob("data/*.lance")
    replace(file, struct.pack("<QQ", 64, 777), struct.pack("<QQ", position, size))
    dataset = glaive.dataset(str(tmp_path))
    with pytest.raises(CorruptFileError, match="blob: expected bytes within"):
        dataset.take_blobs("b", indices=[1])
    with pytest.raises(CorruptFileError, match="blob: expected bytes within"):
        everything(tmp_path)


@pytest.mark.spec("blob-check-1")
@pytest.mark.parametrize("version", ["2.0", "2.1", "2.2"])
def test_values_that_overlap_are_damage(tmp_path: Path, version: str) -> None:
    write(tmp_path, [b"-" * 640, b"x" * 777], version)
    (file,) = tmp_path.glob("data/*.lance")
    replace(file, struct.pack("<QQ", 640, 777), struct.pack("<QQ", 0, 1400))
    if version == "2.2":
        with pytest.raises(CorruptFileError, match="blobs of one file: expected no value before"):
            everything(tmp_path)
        return
    for _ in range(2):
        # Two values of almost the whole file: more bytes than there are.
        replaced = struct.pack("<QQ", 0, 640), struct.pack("<QQ", 0, 1400)
        if replaced[0] in file.read_bytes():
            replace(file, *replaced)
    with pytest.raises(CorruptFileError, match="blobs: expected at most"):
        everything(tmp_path)


@pytest.mark.spec("blob-check-1", "rel-24")
@pytest.mark.parametrize("version", ["2.0", "2.1", "2.2"])
def test_different_rows_of_the_same_bytes_are_damage(tmp_path: Path, version: str) -> None:
    """Beside a null, or with a row that is asked for twice, they passed for one row."""
    dataset = write(tmp_path, [b"-" * 640, b"x" * 777, None], version)
    for read in (dataset.take, lambda rows: dataset.read_blobs("b", indices=rows)):
        assert len(read([0, 0, 1])) == 3
    (file,) = tmp_path.glob("data/*.lance")
    for old in ((640, 777), (0, 640)):
        replace(file, struct.pack("<QQ", *old), struct.pack("<QQ", 0, 1400))
    dataset = glaive.dataset(str(tmp_path))
    with pytest.raises(CorruptFileError, match="blobs"):
        everything(tmp_path)
    with pytest.raises(CorruptFileError, match="blobs"):
        dataset.read_blobs("b", indices=[0, 0, 1])


@pytest.mark.spec("blob-page-4")
@pytest.mark.parametrize("position", [2 << 16, 1, (1 << 16) + 1, 1 << 60])
def test_a_null_at_a_level_that_is_not(tmp_path: Path, position: int) -> None:
    write(tmp_path, [b"-" * 640, None], "2.1")
    (file,) = tmp_path.glob("data/*.lance")
    replace(file, struct.pack("<QQ", 1 << 16, 0), struct.pack("<QQ", position, 0))
    for handling in ("all_binary", "blobs_descriptions"):
        with pytest.raises(CorruptFileError, match="nulls of a blob page: expected levels from 1"):
            glaive.dataset(str(tmp_path)).to_table(blob_handling=handling)


@pytest.mark.spec("blob-check-2")
@pytest.mark.parametrize(("row", "name"), [(3, "1" + "0" * 31), (4, "01" + "0" * 30)])
def test_a_missing_file_is_named(tmp_path: Path, row: int, name: str) -> None:
    write(tmp_path, VALUES)
    (file,) = tmp_path.rglob(f"{name}.blob")
    file.unlink()
    dataset = glaive.dataset(str(tmp_path))
    for call in (
        lambda: one(dataset, row).read(),
        lambda: dataset.read_blobs("b", indices=[row]),
        lambda: dataset.to_table(blob_handling="all_binary"),
    ):
        with pytest.raises(DataFileMissingError, match=str(file)):
            call()
    assert one(dataset, 0).read() == VALUES[0]


@pytest.mark.spec("blob-check-1")
@pytest.mark.parametrize(("row", "name"), [(3, "1" + "0" * 31), (4, "01" + "0" * 30)])
def test_a_file_that_ends_too_soon(tmp_path: Path, row: int, name: str) -> None:
    write(tmp_path, VALUES)
    (file,) = tmp_path.rglob(f"{name}.blob")
    file.write_bytes(file.read_bytes()[:-1])
    dataset = glaive.dataset(str(tmp_path))
    with pytest.raises(CorruptFileError, match=str(file)):
        one(dataset, row).read()
    with pytest.raises(CorruptFileError, match=str(file)):
        dataset.read_blobs("b", indices=[row])
    assert one(dataset, row).read(100) == (VALUES[row] or b"")[:100]


@pytest.mark.spec("blob-check-1")
def test_a_value_that_begins_behind_the_end_of_its_object(tmp_path: Path) -> None:
    place, media = tmp_path / "place", tmp_path / "place" / "media.bin"
    value = Blob.from_uri(media.as_uri(), 123_456_789, 987_654_321)
    write(place, [value], allow_external_blob_outside_bases=True)
    media.write_bytes(b"media")
    (path,) = place.glob("data/*.lance")
    # Without a size it is all that follows.
    replace(path, struct.pack("<QQ", 123_456_789, 987_654_321), struct.pack("<QQ", 6, 0))
    dataset = glaive.dataset(str(place))
    file = one(dataset, 0)
    for read in (file.size, file.read, file.view, lambda: file.seek(0, io.SEEK_END)):
        with pytest.raises(CorruptFileError, match=r"within 0\.\.5, found one at 6 .*media\.bin"):
            read()
    with pytest.raises(CorruptFileError, match=r"media\.bin"):
        dataset.read_blobs("b", indices=[0])


@pytest.mark.parametrize("uri", [b"\xff" * 10, b"a/path/abc"])
def test_a_uri_that_is_none(tmp_path: Path, uri: bytes) -> None:
    write(tmp_path, ["file:///ab"], allow_external_blob_outside_bases=True)
    (file,) = tmp_path.glob("data/*.lance")
    replace(file, b"file:///ab", uri)
    with pytest.raises(CorruptFileError, match="URI of a blob: expected an absolute URI"):
        glaive.dataset(str(tmp_path)).take_blobs("b", indices=[0])


def test_an_object_that_is_not_there(tmp_path: Path) -> None:
    uri = (tmp_path / "gone.bin").as_uri()
    dataset = write(tmp_path / "d", [uri], allow_external_blob_outside_bases=True)
    file = one(dataset, 0)
    with pytest.raises(DataFileMissingError, match=r"gone\.bin"):
        file.size()
    with pytest.raises(DataFileMissingError, match=r"gone\.bin"):
        dataset.read_blobs("b", indices=[0])


# ---------------------------------------------------------------------- writing


@pytest.mark.parametrize("version", ["2.1", "2.2"])
def test_a_dataset_in_memory(version: str) -> None:
    uri = f"memory://blobs-{version}"
    dataset = glaive.write_dataset(
        rows(VALUES, version), uri, data_storage_version=version, mode="overwrite"
    )
    files = dataset.take_blobs("b", indices=range(6))
    assert [file and file.read() for file in files] == VALUES
    assert [value for _, value in dataset.read_blobs("b", indices=range(6))] == VALUES
    assert dataset.to_table(blob_handling="all_binary")["b"].to_pylist() == VALUES


@pytest.mark.spec("blob-check-1", "rel-42")
@pytest.mark.parametrize("scheme", ["memory", "local"])
@pytest.mark.parametrize(("position", "size"), [(2**64 - 1, 9), (9, 2**64 - 1), (2**63, 2**63)])
def test_a_value_that_ends_behind_all_files_is_damage(
    scheme: str, position: int, size: int, tmp_path: Path
) -> None:
    place = f"{scheme}://{tmp_path}" if scheme == "memory" else str(tmp_path)
    claims = {"position": position, "size": size}
    with forged_descriptions("b", lambda described: [{**row, **claims} for row in described]):
        write(place, [VALUES[3]])  # in a file with others
    reads: list[Any] = [BlobFile.read, BlobFile.view, lambda file: file.read_range(size - 1, 1)]
    for read in reads:  # of files whose size is not known yet
        with pytest.raises(CorruptFileError, match=r"\.blob"):
            read(one(glaive.dataset(place), 0))
    with pytest.raises(CorruptFileError, match=r"\.blob"):
        glaive.dataset(place).read_blobs("b", indices=[0])


@pytest.mark.spec("blob-file-3")
@pytest.mark.parametrize(
    ("method", "at"),
    [*((method, at) for method in ("create", "write", "finish") for at in (1, 2, 3)), ("put", 1)],
)
def test_a_write_that_fails_leaves_no_version(tmp_path: Path, method: str, at: int) -> None:
    write(tmp_path, [b"before"])
    store = CountingStore(open_store(tmp_path))
    dataset = LanceDataset.of(store, open_latest(store))
    store.inject(Fault(at=at, method=method, forever=True))
    table = rows([*VALUES, *VALUES])
    with pytest.raises(StoreError):
        glaive.write_dataset(table, dataset, mode="append", max_rows_per_file=6)
    store.reset()
    assert glaive.dataset(str(tmp_path)).version == 1
    if method != "put":  # the files of a commit that failed are for a clean-up to find
        assert not list(tmp_path.rglob("*.blob"))
        assert len(list(tmp_path.glob("data/*.lance"))) == 1
    assert not list(tmp_path.rglob("*.tmp"))


@pytest.mark.spec("blob-file-3")
def test_files_beside_a_data_file_come_first(tmp_path: Path) -> None:
    store = CountingStore(open_store(tmp_path))
    write(tmp_path, [b"before"])
    dataset = LanceDataset.of(store, open_latest(store))
    store.reset()
    glaive.write_dataset(rows(VALUES), dataset, mode="append")
    finished = [request.path for request in store.log if request.method == "finish"]
    assert [path.rsplit(".", 1)[1] for path in finished] == ["blob", "blob", "lance"]


@pytest.mark.spec("blob-second-2")
def test_values_that_are_neither_here_nor_there(tmp_path: Path) -> None:
    kind: Any = blob_field("b").type
    for data, uri, what in ((b"x", "file:///x", "both"), (None, None, "neither")):
        value = {"data": data, "uri": uri, "position": None, "size": None}
        storage = pa.array([{"data": b"fine"}, value], kind.storage_type)
        table = pa.table([pa.ExtensionArray.from_storage(kind, storage)], names=["b"])
        with pytest.raises(SchemaError, match=f"'b', row 1 of a batch: .* found {what}"):
            glaive.write_dataset(table, str(tmp_path))
    assert not list(tmp_path.rglob("*.lance"))


def test_blobs_of_the_second_kind_need_2_2(tmp_path: Path) -> None:
    for version in ("2.0", "2.1", "legacy"):
        with pytest.raises(SchemaError, match=r"2\.2"):
            glaive.write_dataset(rows([b"x"]), str(tmp_path), data_storage_version=version)


@pytest.mark.parametrize("kind", [pa.string(), pa.int64(), pa.struct([("position", pa.uint64())])])
def test_other_types_are_no_blobs(tmp_path: Path, kind: pa.DataType) -> None:
    schema = pa.schema([pa.field("b", kind, metadata=FIRST)])
    table = pa.table({"b": pa.nulls(1, kind)}, schema=schema)
    for version in ("2.1", "2.2"):
        with pytest.raises(SchemaError, match="no blobs of other types"):
            glaive.write_dataset(table, str(tmp_path), data_storage_version=version)


def test_files_of_0_1_hold_no_blobs(tmp_path: Path) -> None:
    """The manifest says that they do; nothing in them tells where values lie."""
    bytes_only = pa.table({"b": pa.array([b"one"], pa.large_binary())})
    dataset = glaive.write_dataset(bytes_only, tmp_path / "t", data_storage_version="0.1")
    manifest = dataset.manifest
    wire = table_pb2.ManifestOutline()
    wire.CopyFrom(manifest.wire)
    wire.fields[0].metadata["lance-encoding:blob"] = b"true"
    pieces = encode_manifest(
        wire, transaction=manifest.transaction or b"", index_section=manifest.index_section
    )
    Path(manifest.where).write_bytes(b"".join(map(bytes, map(memoryview, pieces))))
    opened = glaive.LanceDataset(tmp_path / "t", session=glaive.Session())
    for read in (opened.take_blobs, opened.read_blobs):
        with pytest.raises(CorruptFileError, match="blobs of column 'b': expected descriptions"):
            read("b", indices=[0])


@pytest.mark.parametrize("place", ["b", "within.b"])
def test_files_of_0_1_hold_no_blobs_of_the_second_kind(tmp_path: Path, place: str) -> None:
    """Members of the values were taken for those of descriptions: a ``KeyError`` in scans."""
    value = {"data": b"one", "uri": None}
    kind = pa.struct([("data", pa.large_binary()), ("uri", pa.string())])
    values = pa.array([value], kind)
    if place != "b":
        values = pa.StructArray.from_arrays([values], ["b"])
    dataset = glaive.write_dataset(
        pa.table({place.split(".", maxsplit=1)[0]: values}),
        tmp_path / "t",
        data_storage_version="0.1",
    )
    manifest = dataset.manifest
    wire = table_pb2.ManifestOutline()
    wire.CopyFrom(manifest.wire)
    (field,) = [field for field in wire.fields if field.name == "b"]
    field.metadata["ARROW:extension:name"] = b"lance.blob.v2"
    pieces = encode_manifest(
        wire, transaction=manifest.transaction or b"", index_section=manifest.index_section
    )
    Path(manifest.where).write_bytes(b"".join(map(bytes, map(memoryview, pieces))))
    opened = glaive.LanceDataset(tmp_path / "t", session=glaive.Session())
    reads: list[Any] = [
        opened.to_table,
        lambda: opened.take([0]),
        lambda: opened.to_table(blob_handling="all_binary"),
        lambda: opened.to_table(filter=f"{place} is not null"),
    ]
    if place == "b":
        reads += [lambda: opened.take_blobs("b", indices=[0])]
    for read in reads:
        with pytest.raises(UnsupportedFeatureError, match="column 'b' has blobs"):
            read()


def test_a_column_of_bytes_may_bear_the_name_of_blobs(tmp_path: Path) -> None:
    named: Any = {"ARROW:extension:name": "lance.blob.v2"}
    schema = pa.schema([pa.field("b", pa.binary(), metadata=named)])
    dataset = glaive.write_dataset(pa.table([[b"one"]], schema=schema), tmp_path / "t")
    dataset.insert(pa.table({"b": pa.array([b"two"], pa.large_binary())}))
    assert dataset.to_table()["b"].to_pylist() == [b"one", b"two"]


def test_single_values() -> None:
    assert Blob.empty() == Blob(data=b"")
    assert Blob.from_bytes(bytearray(b"ab")).data == b"ab"
    assert Blob.from_uri("s3://a/b", 1, 2) == Blob(uri="s3://a/b", position=1, size=2)
    wrong: list[dict[str, Any]] = [
        {},
        {"data": b"", "uri": "x"},
        {"uri": ""},
        {"uri": "x", "position": 1},
        {"data": b"", "position": 1, "size": 1},
        {"uri": "x", "position": 0, "size": 0},
        {"uri": "x", "position": -1, "size": 1},
    ]
    for one_wrong in wrong:
        with pytest.raises(OptionError):
            Blob(**one_wrong)
    with pytest.raises(OptionError, match=r"value 1 of a blob array: .* got .*int"):
        blob_array([b"a", 3])
    with pytest.raises(OptionError, match=r"value 0 of a blob array: .* got .*ndarray"):
        blob_array([Blob(data=np.zeros(2))])  # type: ignore[arg-type]  # as untyped callers may
    made = blob_array([b"a", "s3://b", None, Blob.empty(), memoryview(b"c")])
    assert made.type == blob_field("b").type
    assert [row and row["data"] for row in made.storage.to_pylist()] == [
        b"a",
        None,
        None,
        b"",
        b"c",
    ]


def test_thresholds_of_fields() -> None:
    field = blob_field("b", inline_size_threshold=0, dedicated_size_threshold=5, nullable=False)
    assert not field.nullable
    assert field.metadata == {
        b"lance-encoding:blob-inline-size-threshold": b"0",
        b"lance-encoding:blob-dedicated-size-threshold": b"5",
    }
    for wrong in (-1, 0, 1.5, True, 2**63):
        limit: Any = wrong
        with pytest.raises(OptionError, match="pack_file_size_threshold"):
            blob_field("b", pack_file_size_threshold=limit)


def test_a_threshold_that_is_no_number(tmp_path: Path) -> None:
    metadata: Any = {"lance-encoding:blob-inline-size-threshold": "many"}
    table = pa.table(
        [blob_array([b"x"])], schema=pa.schema([blob_field("b").with_metadata(metadata)])
    )
    with pytest.raises(SchemaError, match=r"'b': lance-encoding:blob-inline.* found 'many'"):
        glaive.write_dataset(table, str(tmp_path))


def test_data_files_are_discarded_though_files_of_blobs_cannot_be_listed(tmp_path: Path) -> None:
    store = CountingStore(open_store(str(tmp_path)))
    table = rows(VALUES)
    plan = plan_write(store, table.schema, WriteOptions(data_storage_version="2.2"))
    written = write_fragments(plan, table.to_batches())
    blobs = {path for path in tmp_path.rglob("*") if path.suffix == ".blob"}
    assert blobs
    store.inject(Fault(at=1, method="list", path="data/", forever=True))
    discard_fragments(plan, written)
    assert {path for path in tmp_path.rglob("*") if path.is_file()} == blobs  # for a clean-up


@pytest.mark.spec("rel-16")
def test_files_of_others_in_a_folder_of_blobs_are_not_discarded(tmp_path: Path) -> None:
    """A task that was said to have written a file may have written none of these."""
    store, mine = open_store(str(tmp_path / "d")), tmp_path / "home" / "deep"
    table = rows(VALUES)
    options = WriteOptions(data_storage_version="2.2", max_rows_per_file=len(VALUES))
    plan = plan_write(store, table.schema, options)
    written = write_fragments(plan, [*table.to_batches(), *table.to_batches()])
    mine.mkdir(parents=True)
    for folder in (mine, mine.parent):
        (folder / "thesis.odt").write_bytes(b"mine")
        (folder / f"{1:032b}.blob").write_bytes(b"of another dataset")
    files = [tmp_path / "d" / "data" / file.path for one in written for file in one.files]
    blobs, others = (path.with_suffix("") for path in files)
    (others / "thesis.odt").write_bytes(b"mine")
    blobs.rename(tmp_path / "moved")
    blobs.symlink_to(mine.parent, target_is_directory=True)
    discard_fragments(plan, written)
    assert len([path for path in (tmp_path / "home").rglob("*") if path.is_file()]) == 4
    assert {*(tmp_path / "d" / "data").iterdir()} == {blobs, others}
    assert [path.name for path in others.iterdir()] == ["thesis.odt"]


@pytest.mark.spec("arr-blob-3")
def test_an_empty_value_of_format_2_0_is_one_wherever_it_is_said_to_lie(tmp_path: Path) -> None:
    """Scans had it, and files of values took it for a null."""
    values = [b"abc", b"", None]
    made = write(tmp_path / "t.lance", values, "2.0")
    path = tmp_path / "t.lance" / "data" / made.get_fragments()[0].data_files()[0].path
    table, changed = struct.pack("<5Q", 3, 0, 0, 1, 0), struct.pack("<5Q", 3, 64, 0, 1, 0)
    raw = path.read_bytes()
    assert raw.count(table) == 1
    path.write_bytes(raw.replace(table, changed))
    dataset = glaive.dataset(tmp_path / "t.lance")
    scanned = dataset.to_table(columns=["b"], blob_handling="all_binary")
    assert scanned["b"].to_pylist() == values
    files = dataset.take_blobs("b", indices=[0, 1, 2])
    assert [file and file.readall() for file in files] == [b"abc", b"", None]
