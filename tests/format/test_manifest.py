"""Manifest files come back, old forms are understood, and damage is reported."""

from __future__ import annotations

import struct
from dataclasses import replace
from datetime import UTC, datetime

import hypothesis.strategies as st
import pyarrow as pa
import pytest
from hypothesis import given

from glaive.dataset.writing.plan import DatasetBasePath
from glaive.errors import (
    CorruptFileError,
    FormatError,
    FragmentNotFoundError,
    NotLanceError,
    OptionError,
    UnsupportedFeatureError,
)
from glaive.format.fields import LanceSchema
from glaive.format.fragment import DataFile, DeletionFile, Fragment
from glaive.format.manifest import Manifest, decode_manifest, encode_manifest
from glaive.format.pb import table_pb2
from glaive.types import FormatVersion

SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string())], {"k": "v"})


def fragment(number: int, rows: int, deleted: int | None = 0) -> Fragment:
    file = DataFile(
        path=f"{number}.lance",
        fields=(0, 1),
        column_indices=(0, 1),
        version=FormatVersion(2, 2),
        size=400,
    )
    deletion = DeletionFile(bitmap=False, read_version=1, number=9, rows=deleted)
    return Fragment(
        id=number,
        files=(file,),
        physical_rows=rows,
        deletion_file=None if deleted == 0 else deletion,
    )


def message(*fragments: Fragment) -> table_pb2.Manifest:
    lance = LanceSchema.from_arrow(SCHEMA)
    wire = table_pb2.Manifest(
        version=3,
        fields=lance.to_wire(),
        schema_metadata=lance.metadata,
        fragments=[one.to_wire() for one in fragments],
    )
    wire.timestamp.seconds, wire.timestamp.nanos = 1_700_000_000, 123_456_789
    wire.data_format.file_format, wire.data_format.version = "lance", "2.2"
    return wire


def encoded(wire: table_pb2.Manifest, index_section: bytes | None = None) -> bytes:
    return b"".join(encode_manifest(wire, transaction=b"\x08\x02", index_section=index_section))


def decode(data: bytes) -> Manifest:
    return decode_manifest(pa.py_buffer(data), where="t/3.manifest")


@pytest.mark.spec("man-2", "man-3")
def test_a_manifest_comes_back() -> None:
    parts = (fragment(0, 10), fragment(4, 20, 3))
    manifest = decode(encoded(message(*parts), index_section=b""))
    assert manifest.version == 3
    assert manifest.schema.to_arrow().equals(SCHEMA, check_metadata=True)
    assert tuple(manifest.fragments()) == parts
    assert manifest.fragment(1) == parts[1]
    assert manifest.num_fragments == 2
    assert manifest.physical_rows.tolist() == [10, 20]
    assert manifest.count_rows() == 27
    assert manifest.data_format == FormatVersion(2, 2)
    assert manifest.timestamp == datetime(2023, 11, 14, 22, 13, 20, 123456, UTC)
    assert manifest.transaction == b"\x08\x02"
    assert manifest.index_section == b""
    assert manifest.indices == []


@pytest.mark.spec("base-3", "rel-25")
def test_base_paths_are_no_longer_than_a_system_allows() -> None:
    # A report with the path of each file below one would be as large as both together.
    wire = message(fragment(0, 10))
    base = wire.base_paths.add(id=7, path="/" + "x" * 4095)
    assert decode(encoded(wire)).wire.base_paths[0].path == base.path
    DatasetBasePath(base.path)
    base.path += "x"
    told = r"base path 7: .* at most 4096 characters, found 4097 \('/xxx.* \(in t/3\.manifest\)"
    with pytest.raises(CorruptFileError, match=told):
        decode(encoded(wire))
    with pytest.raises(OptionError, match="at most 4096 characters, found 4097"):
        DatasetBasePath(base.path)


def test_fragments_are_found_by_id() -> None:
    manifest = decode(encoded(message(fragment(0, 10), fragment(4, 20))))
    assert manifest.position_of(4) == 1
    with pytest.raises(FragmentNotFoundError, match="version 3 has no fragment 1"):
        manifest.position_of(1)


def test_versions_share_parsed_fragments_of_short_messages() -> None:
    small = fragment(0, 10)
    long = replace(small, files=(replace(small.files[0], path="a" * 600),))
    for one, is_shared in ((small, True), (long, False)):
        first, second = (decode(encoded(message(one))).fragment(0) for _ in range(2))
        assert first == second == one
        assert (first is second) == is_shared


def test_old_deletion_files_leave_the_count_open() -> None:
    assert decode(encoded(message(fragment(0, 10, None)))).count_rows() is None


def test_fragments_that_do_not_tell_their_rows_leave_the_count_open() -> None:
    assert decode(encoded(message(fragment(0, 10), fragment(1, 0)))).count_rows() is None


def test_a_version_without_fragments_has_no_rows() -> None:
    manifest = decode(encoded(message()))
    assert manifest.count_rows() == 0
    assert manifest.max_fragment_id == -1


@pytest.mark.spec("man-4")
def test_the_place_of_the_transaction_may_be_the_older_one() -> None:
    wire = message()
    data = b"\x02\x00\x00\x00\x08\x05"
    wire.transaction_section_deprecated = 0
    body = wire.SerializeToString()
    footer = struct.pack("<QHH4s", len(data), 0, 2, b"LANC")
    manifest = decode(data + struct.pack("<I", len(body)) + body + footer)
    assert manifest.transaction == b"\x08\x05"


def test_a_missing_data_format_is_inferred() -> None:
    wire = message(fragment(0, 1))
    wire.ClearField("data_format")
    assert decode(encoded(wire)).data_format == FormatVersion(2, 2)
    bare = table_pb2.Manifest(version=1)
    assert decode(encoded(bare)).data_format == FormatVersion(0, 1)
    bare.writer_feature_flags = 4
    assert decode(encoded(bare)).data_format == FormatVersion(2, 2)


def test_an_unknown_data_format_is_refused() -> None:
    wire = message()
    wire.data_format.version = "2.9"
    with pytest.raises(UnsupportedFeatureError, match=r"'2\.9'.*t/3\.manifest"):
        _ = decode(encoded(wire)).data_format


def test_unknown_flags_are_refused_when_opening() -> None:
    wire = message()
    wire.reader_feature_flags = 1 << 40
    with pytest.raises(UnsupportedFeatureError, match=r"flag 40.*t/3\.manifest"):
        decode(encoded(wire))


def test_a_manifest_cut_anywhere_is_reported() -> None:
    data = encoded(message(fragment(0, 10)), index_section=b"\n\x00")
    for size in range(len(data)):
        with pytest.raises((NotLanceError, CorruptFileError), match=r"t/3\.manifest"):
            decode(data[:size])


@given(st.data())
def test_a_changed_byte_never_ends_in_another_error(data: st.DataObject) -> None:
    good = bytearray(encoded(message(fragment(0, 10), fragment(1, 3, 2)), index_section=b""))
    for _ in range(3):
        good[data.draw(st.integers(0, len(good) - 1))] = data.draw(st.integers(0, 255))
    try:
        manifest = decode(bytes(good))
        _ = manifest.schema.to_arrow(), manifest.count_rows(), manifest.data_format
        _ = manifest.timestamp, list(manifest.fragments())
    except FormatError:
        pass


def test_sections_outside_the_file_are_reported() -> None:
    wire = message()
    data = encoded(wire)
    far = message()
    far.transaction_section = 10_000
    body = far.SerializeToString()
    footer = struct.pack("<QHH4s", 0, 0, 2, b"LANC")
    with pytest.raises(CorruptFileError, match="position of the transaction"):
        decode(struct.pack("<I", len(body)) + body + footer)
    with pytest.raises(CorruptFileError, match="length of the manifest"):
        decode(b"\xff\xff\xff\x7f" + footer)
    assert decode(data).version == 3


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"id": 2**32}, "id below 2\\^32, and at most 2\\^32 rows, found id 4294967296, 5 rows"),
        ({"id": 2**48}, "found id 281474976710656"),
        ({"physical_rows": 2**32 + 1}, "found id 3, 4294967297 rows"),
    ],
)
def test_a_fragment_that_no_row_address_reaches_is_damage(
    change: dict[str, int], message: str
) -> None:
    wire = table_pb2.DataFragment(**{"id": 3, "physical_rows": 5, **change})
    outline = table_pb2.ManifestOutline(fragments=[wire.SerializeToString()])
    manifest = Manifest(outline, where="t/3.manifest")
    for read in (manifest.fragment, manifest.fragment_wire):
        with pytest.raises(CorruptFileError, match=rf"{message}.*t/3\.manifest"):
            read(0)


def test_a_fragment_with_more_deleted_rows_than_rows_is_damage() -> None:
    wire = fragment(0, 10, 11).to_wire()
    with pytest.raises(CorruptFileError, match="deleted rows of fragment 0: expected at most 10"):
        Fragment.from_wire(wire)
    old = fragment(0, 0, 11).to_wire()  # releases up to 0.7 left out the rows
    assert Fragment.from_wire(old).num_deletions == 11


@pytest.mark.parametrize("path", ["", "../x.lance", "/etc/x", "a\0b", "a\nb", "x/../../y"])
def test_a_data_file_that_lies_elsewhere_is_damage(path: str) -> None:
    wire = fragment(0, 10).to_wire()
    wire.files[0].path = path
    manifest = Manifest(
        table_pb2.ManifestOutline(fragments=[wire.SerializeToString()]), where="t/3.manifest"
    )
    for read in (manifest.fragment, manifest.fragment_wire):
        with pytest.raises(CorruptFileError, match=r"path of a data file.*t/3\.manifest"):
            read(0)


def test_a_transaction_file_that_lies_elsewhere_is_damage() -> None:
    wire = message()
    wire.transaction_file = "../../x.txn"
    with pytest.raises(CorruptFileError, match="name of the transaction's file"):
        decode(encoded(wire))


def test_columns_of_a_file_are_as_many_as_its_fields() -> None:
    file = DataFile(path="a", fields=(0, -3), column_indices=(4,), version=FormatVersion(2, 2))
    for read in (file.columns, lambda: file.column_of(-3)):
        with pytest.raises(CorruptFileError, match="columns of a data file: expected 2"):
            read()
    assert file.column_of(7) is None
