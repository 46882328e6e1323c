"""Fragments and data files in manifests, as both libraries write them."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.file_messages import BOTH, descriptor_of

import glaive
from glaive.errors import GlaiveError
from glaive.file.open import open_reader
from glaive.format.pb import table_pb2
from glaive.io.access import open_store

ROWS = pa.table({"a": range(100), "b": [f"text {at}" for at in range(100)]})


def library_of(name: str) -> Any:
    if name == "glaive":
        return glaive
    return pytest.importorskip("lance", reason="install the 'interop' group")


def newest(place: Path) -> tuple[Path, Any]:
    """The newest manifest: its file, and the message in it."""
    path = min((place / "_versions").glob("*.manifest"))
    raw = path.read_bytes()
    (position,) = struct.unpack_from("<Q", raw, len(raw) - 16)
    return path, table_pb2.Manifest.FromString(raw[position + 4 : -16])


def put(path: Path, message: Any) -> None:
    """Write a manifest with this message, and no sections beside it."""
    for section in ("transaction_section", "index_section", "has_checksums"):
        message.ClearField(section)
    body = message.SerializeToString()
    path.write_bytes(struct.pack("<I", len(body)) + body + struct.pack("<QHH4s", 0, 0, 2, b"LANC"))


def changed(library: str, place: Path) -> Any:
    """Two fragments with deleted rows and a file for another column, and one without both."""
    writer = library_of(library)
    writer.write_dataset(ROWS, str(place), max_rows_per_file=60)
    writer.dataset(str(place)).delete("a % 7 = 1")
    writer.dataset(str(place)).add_columns({"c": "a + 1"})
    writer.write_dataset(ROWS.select(["a"]).slice(0, 3), str(place), mode="append")
    return newest(place)[1]


@pytest.mark.spec("frag-1", "frag-3", "file-1")
@BOTH
def test_all_files_of_a_fragment_have_its_rows(tmp_path: Path, library: str) -> None:
    message = changed(library, tmp_path / "t")
    assert [one.physical_rows for one in message.fragments] == [60, 40, 3]
    assert [one.deletion_file.num_deleted_rows for one in message.fragments] == [9, 6, 0]
    for fragment in message.fragments:
        for file in fragment.files:
            raw = (tmp_path / "t" / "data" / file.path).read_bytes()
            assert descriptor_of(raw).length == fragment.physical_rows
    files = [[list(file.fields) for file in one.files] for one in message.fragments]
    columns = [[list(file.column_indices) for file in one.files] for one in message.fragments]
    assert files == [[[0, 1], [2]], [[0, 1], [2]], [[0]]]
    assert columns == [[[0, 1], [0]], [[0, 1], [0]], [[0]]]


@pytest.mark.spec("frag-3")
def test_a_file_with_other_rows_is_damage(tmp_path: Path) -> None:
    message = changed("glaive", tmp_path / "t")
    first, second = (one.files[1].path for one in list(message.fragments)[:2])
    data = tmp_path / "t" / "data"
    (data / first).write_bytes((data / second).read_bytes())
    for file in message.fragments[0].files:
        file.file_size_bytes = 0
    put(newest(tmp_path / "t")[0], message)
    assert glaive.dataset(tmp_path / "t").to_table(columns=["a"]).num_rows == 88
    with pytest.raises(GlaiveError, match=r"60.*40"):
        glaive.dataset(tmp_path / "t").to_table()


@pytest.mark.spec("frag-2", "frag-4")
@BOTH
def test_addresses_count_deleted_rows_and_missing_columns_are_null(
    tmp_path: Path, library: str
) -> None:
    changed(library, tmp_path / "t")
    table = glaive.dataset(tmp_path / "t").to_table(columns=["a", "b", "c", "_rowaddr"])
    kept = np.flatnonzero(np.arange(100) % 7 != 1)
    places = [at if at < 60 else (1 << 32) + at - 60 for at in kept.tolist()]
    assert table["_rowaddr"].to_pylist() == places + [(2 << 32) + at for at in range(3)]
    assert table["a"].to_pylist() == [*kept.tolist(), 0, 1, 2]
    assert table["b"].to_pylist() == [*ROWS["b"].take(kept).to_pylist(), None, None, None]
    assert table["c"].to_pylist() == [*(kept + 1).tolist(), None, None, None]


@pytest.mark.spec("file-1")
def test_a_field_that_is_marked_is_read_from_the_other_file(tmp_path: Path) -> None:
    glaive.write_dataset(ROWS, tmp_path / "t")
    other = pa.table({"b": [f"other {at}" for at in range(100)]})
    glaive.write_dataset(other, tmp_path / "o")
    path, message = newest(tmp_path / "t")
    added = newest(tmp_path / "o")[1].fragments[0].files[0]
    (tmp_path / "o" / "data" / added.path).rename(tmp_path / "t" / "data" / added.path)
    added.fields[:] = [1]
    message.fragments[0].files[0].fields[1] = -2
    message.fragments[0].files.append(added)
    put(path, message)
    found = glaive.dataset(tmp_path / "t").to_table()
    assert found == ROWS.set_column(1, "b", other["b"])


@pytest.mark.spec("file-2")
@pytest.mark.parametrize("version", ["2.1", "2.2"])
@BOTH
def test_versions_of_files_are_those_of_their_footers(
    tmp_path: Path, library: str, version: str
) -> None:
    place = tmp_path / "t"
    library_of(library).write_dataset(ROWS, str(place), data_storage_version=version)
    (file,) = newest(place)[1].fragments[0].files
    stated = file.file_major_version, file.file_minor_version
    assert stated == struct.unpack("<HH", (place / "data" / file.path).read_bytes()[-8:-4])
    assert stated == tuple(map(int, version.split(".")))


@pytest.mark.spec("file-3")
@BOTH
def test_the_size_of_a_file_is_right_or_0(tmp_path: Path, library: str) -> None:
    place = tmp_path / "t"
    library_of(library).write_dataset(ROWS, str(place))
    path, message = newest(place)
    (file,) = message.fragments[0].files
    size = (place / "data" / file.path).stat().st_size
    assert file.file_size_bytes == size
    for stated in (0, size - 1, size + 1):
        file.file_size_bytes = stated
        put(path, message)
        assert glaive.dataset(place).to_table() == ROWS
        if library == "pylance" and stated:
            with pytest.raises(pa.ArrowInvalid):
                library_of(library).dataset(str(place)).to_table()
        elif library == "pylance":
            assert library_of(library).dataset(str(place)).to_table() == ROWS


@pytest.mark.spec("file-3")
@pytest.mark.parametrize("more", [-1, 1])
def test_a_size_is_trusted_where_a_request_would_tell_it(tmp_path: Path, more: int) -> None:
    place = f"memory://{tmp_path.name}{more}"
    store = open_store(place)
    dataset = glaive.write_dataset(ROWS, place)
    (file,) = dataset.get_fragments()[0].data_files()
    path, size = f"data/{file.path}", file.file_size_bytes
    assert size is not None
    assert open_reader(store, path, size=size).num_rows == 100
    with pytest.raises(GlaiveError, match=file.path):
        open_reader(store, path, size=size + more)


@pytest.mark.spec("rowid-9")
@BOTH
def test_rows_without_versions_were_made_in_version_1(tmp_path: Path, library: str) -> None:
    place = tmp_path / "t"
    writer = library_of(library)
    writer.write_dataset(ROWS, str(place), enable_stable_row_ids=True)
    writer.write_dataset(ROWS, str(place), enable_stable_row_ids=True, mode="append")
    path, message = newest(place)
    names = ["_row_created_at_version", "_row_last_updated_at_version"]
    for expected in (2, 1):
        found = glaive.dataset(place).to_table(columns=names)
        for name in names:
            assert found[name].to_pylist() == [1] * 100 + [expected] * 100
        for field in ("inline_created_at_versions", "inline_last_updated_at_versions"):
            message.fragments[1].ClearField(field)
        put(path, message)
