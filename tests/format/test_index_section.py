"""Entries of the index section are checked when a manifest is asked for them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pyroaring import BitMap

from glaive.errors import CorruptFileError
from glaive.format.manifest import Manifest
from glaive.format.pb import table_pb2
from glaive.format.transaction import WireOperation, decode_transaction
from glaive.table.protocol import read_operation


def entry() -> table_pb2.IndexMetadata:
    found = table_pb2.IndexMetadata(name="i", fields=[0], created_at=1)
    found.uuid.uuid = bytes(16)
    found.files.add(path="page.lance", size_bytes=5)
    return found


def manifest(*entries: table_pb2.IndexMetadata) -> Manifest:
    section = table_pb2.IndexSection(indices=entries).SerializeToString()
    return Manifest(table_pb2.ManifestOutline(), where="t/1.manifest", index_section=section)


def test_entries_come_in_order() -> None:
    other = entry()
    other.name = "other"
    assert manifest(entry(), other).indices == [entry(), other]


def test_an_index_may_have_been_built_in_the_last_moment_of_the_year_9999() -> None:
    late = entry()
    late.created_at = 253_402_300_799_999
    assert manifest(late).indices == [late]


WRONG: dict[str, tuple[Callable[[Any], object], str]] = {
    "no uuid": (lambda one: one.ClearField("uuid"), "uuid of index 'i': expected 16 bytes"),
    "a short uuid": (lambda one: setattr(one.uuid, "uuid", b"abc"), "16 bytes, found 3"),
    "a long uuid": (lambda one: setattr(one.uuid, "uuid", bytes(17)), "16 bytes, found 17"),
    "a version below 0": (
        lambda one: setattr(one, "index_version", -2), "version of index 'i': expected 0 or more"),
    "a time after the year 9999": (
        lambda one: setattr(one, "created_at", 253_402_300_800_000), "time at which index 'i'"),
    "a file elsewhere": (
        lambda one: setattr(one.files[0], "path", "../../x"), "path of a file of index 'i'"),
}  # fmt: skip


@pytest.mark.parametrize("what", WRONG)
def test_an_entry_that_cannot_be_is_named_with_its_manifest(what: str) -> None:
    change, message = WRONG[what]
    wrong = entry()
    change(wrong)
    with pytest.raises(CorruptFileError, match=rf"{message}.*in t/1\.manifest"):
        _ = manifest(entry(), wrong).indices


@pytest.mark.spec("segment-4")
def test_segments_that_cover_more_than_can_be_listed_are_damage() -> None:
    wide = entry()
    wide.fragment_bitmap = BitMap(range(1 << 20)).serialize()
    assert len(manifest(*[wide] * 4).indices) == 4
    with pytest.raises(CorruptFileError, match=r"covered by all segments.*found 5242880.*t/1"):
        _ = manifest(*[wide] * 5).indices


def test_a_bitmap_of_fragments_that_cannot_be_read_is_named_with_its_manifest() -> None:
    wrong = entry()
    wrong.fragment_bitmap = b"abc"
    with pytest.raises(CorruptFileError, match=r"fragments of index 'i'.*roaring.*t/1\.manifest"):
        _ = manifest(wrong).indices


@pytest.mark.parametrize("list_name", ["new_indices", "removed_indices"])
def test_entries_of_a_transaction_are_checked_too(list_name: str) -> None:
    wrong = entry()
    wrong.ClearField("uuid")
    message = table_pb2.Transaction.CreateIndex(**{list_name: [wrong]})
    with pytest.raises(CorruptFileError, match=r"uuid of index 'i'.*in the transaction"):
        read_operation(WireOperation("create_index", message))


def test_damage_of_a_transaction_is_named_with_the_file_it_was_read_from() -> None:
    message = table_pb2.Transaction.Rewrite()
    message.rewritten_indices.add().old_id.uuid = bytes(3)
    data = table_pb2.Transaction(read_version=1, rewrite=message).SerializeToString()
    found = decode_transaction(data, where="t/_transactions/1-a.txn")
    with pytest.raises(CorruptFileError, match=r"in t/_transactions/1-a\.txn, the transaction"):
        read_operation(found.operation)


def test_uuids_of_rewritten_indices_are_checked() -> None:
    message = table_pb2.Transaction.Rewrite()
    message.rewritten_indices.add().old_id.uuid = bytes(16)
    with pytest.raises(CorruptFileError, match="uuid of a rewritten index: expected 16 bytes"):
        read_operation(WireOperation("rewrite", message))


def test_a_section_that_is_no_message_is_damage() -> None:
    found = Manifest(table_pb2.ManifestOutline(), where="m", index_section=b"\x0a\xff\xff")
    with pytest.raises(CorruptFileError, match="index section: expected a protobuf message"):
        _ = found.indices
