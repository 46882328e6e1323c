"""Operations with fragments in wire format commit the bytes that those with values do."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest

from glaive.dataset.columns.add_columns import AddedFiles
from glaive.errors import CorruptFileError
from glaive.format.bitmaps import bitmap_of
from glaive.format.fragment import DataFile, Fragment, FragmentList, file_versions, ids_of
from glaive.format.manifest import Feature, Manifest
from glaive.format.pb import table_pb2
from glaive.format.transaction import Transaction
from glaive.table.operations.merge import Merge
from glaive.table.operations.overwrite import Append, Overwrite
from glaive.table.operations.rewrite import Rewrite, RewriteGroup
from glaive.table.operations.update import Delete, Update, encode_offsets, joined_offsets
from glaive.table.protocol import BuildContext, TableOperation

from .native import OLD, SCHEMA, data_file, deleted, fragment


def base(*, stable: bool) -> Manifest:
    """A version with three fragments."""
    wire = table_pb2.ManifestOutline()
    if stable:
        wire.reader_feature_flags = wire.writer_feature_flags = int(Feature.STABLE_ROW_IDS)
    empty = Manifest(wire, where="m")
    draft = Overwrite(fragments=OLD, schema=SCHEMA).apply(empty, BuildContext(1))
    return Manifest(draft.wire, where="m")


def longer(number: int) -> Fragment:
    old = OLD[number]
    return replace(old, files=(*old.files, data_file(f"more{number}", 3)))


NEW = (fragment(name="a"), fragment(name="b"))
CHANGED = {0: bitmap_of(np.array([1], np.uint32))}

OPERATIONS: dict[str, TableOperation] = {
    "append": Append(NEW),
    "append with an id": Append((fragment(9), fragment(5))),
    "delete": Delete(updated=(deleted(2), deleted(0)), removed=(1,), predicate="a"),
    "merge": Merge(fragments=(longer(0), OLD[1], longer(2)), schema=SCHEMA),
    "merge with one more": Merge(fragments=(*OLD, fragment(7)), schema=SCHEMA),
    "overwrite": Overwrite(fragments=NEW, schema=SCHEMA, config={"a": "b"}),
    "replaced columns": Update(
        updated=(longer(0), longer(1)), fields_modified=(3,), columns=True, changed_offsets=CHANGED
    ),
    "update": Update(updated=(deleted(0),), removed=(2,), new=NEW, fields_touched=(0,)),
}
REWRITE = Rewrite(groups=(RewriteGroup(OLD[:2], NEW[:1]), RewriteGroup(OLD[2:], NEW[1:])))


def in_lists(operation: Any) -> Any:
    """The operation with its fragments in wire format, as they come from another process."""
    changed: dict[str, Any] = {}
    for field in fields(operation):
        value = getattr(operation, field.name)
        if value and isinstance(value, tuple) and isinstance(value[0], Fragment):
            changed[field.name] = pickle.loads(pickle.dumps(FragmentList.of(value)))
        if field.name == "groups":
            changed["groups"] = tuple(map(in_lists, value))
    assert changed
    return replace(operation, **changed)


def committed(operation: TableOperation, before: Manifest) -> tuple[bytes, bytes, int]:
    """The bytes of the transaction and of the manifest, and how many fragments were kept."""
    made = Transaction(read_version=1, operation=operation, uuid="u", properties={"a": "b"})
    draft = operation.apply(before, BuildContext(2))
    return made.encode(), draft.wire.SerializeToString(deterministic=True), draft.kept


@pytest.mark.parametrize("stable", [False, True])
@pytest.mark.parametrize("name", [*OPERATIONS, "rewrite"])
def test_lists_in_wire_format_commit_what_values_do(name: str, *, stable: bool) -> None:
    before = base(stable=stable)
    operation: Any = REWRITE if name == "rewrite" else OPERATIONS[name]
    if name == "rewrite" and stable:
        given = tuple(replace(new, row_ids_in_column=True) for new in NEW)
        operation = Rewrite(groups=(RewriteGroup(OLD[:2], given[:1]),))
    assert committed(in_lists(operation), before) == committed(operation, before)


@pytest.mark.parametrize("name", [*OPERATIONS, "rewrite"])
def test_a_transaction_is_the_message_of_its_parts(name: str) -> None:
    operation: Any = REWRITE if name == "rewrite" else OPERATIONS[name]
    made = Transaction(read_version=1, operation=operation, uuid="u", properties={"a": "b"})
    message = table_pb2.Transaction(
        read_version=1,
        uuid="u",
        transaction_properties={"a": "b"},
        **{operation.wire_name: operation.to_wire()},
    )
    assert made.encode() == message.SerializeToString()
    assert type(operation).from_wire(operation.to_wire()) == operation


def test_a_list_of_fragments_is_a_sequence_of_its_values() -> None:
    made = FragmentList.joined([OLD[:1], FragmentList.of(OLD[1:])])
    assert (tuple(made), made[1], made[-1], len(made)) == (OLD, OLD[1], OLD[2], 3)
    assert tuple(made[1:]) == OLD[1:]
    assert made.ids.tolist() == ids_of(OLD) == [0, 1, 2]
    assert file_versions(made) == file_versions(OLD) == {OLD[0].files[0].version}


def test_a_damaged_fragment_of_a_list_is_damage() -> None:
    for packed in (b"\xff", replace(OLD[0], files=(data_file("../x", 0),))):
        given = FragmentList([packed]) if isinstance(packed, bytes) else FragmentList.of([packed])
        with pytest.raises(CorruptFileError, match="in the transaction"):
            list(given)


@pytest.mark.parametrize("parts", [1, 2])
def test_files_are_added_to_the_fragments_at_their_positions(parts: int) -> None:
    before = base(stable=True)
    files = {position: data_file(f"more{position}", 3) for position in (2, 0)}
    tasks: Sequence[dict[int, DataFile]] = [files]
    if parts == 2:
        tasks = [{position: file} for position, file in files.items()]
    sent = [pickle.loads(pickle.dumps(AddedFiles.of(task))) for task in tasks]
    added = AddedFiles.joined(sent)
    old = list(before.fragments())
    expected = [replace(old[at], files=(*old[at].files, files[at])) for at in (0, 2)]
    assert list(added.added_to(before)) == [expected[0], old[1], expected[1]]
    assert (list(added.files()), len(added)) == (list(files.values()), 2)


def test_changed_rows_of_several_tasks_are_joined() -> None:
    parts = [encode_offsets({1: b"a"}), encode_offsets({}), encode_offsets({7: b"b", 0: b"c"})]
    assert dict(joined_offsets(parts)) == {1: b"a", 7: b"b", 0: b"c"}


@pytest.mark.parametrize("path", ["../other.lance", "/etc/passwd"])
def test_a_list_whose_fragment_leads_out_of_its_folder_is_refused_when_it_is_read(
    path: str,
) -> None:
    message = NEW[0].to_wire()
    message.files[0].path = path
    listed = FragmentList([message.SerializeToString()])
    with pytest.raises(CorruptFileError, match="path of a data file"):
        list(listed)
    with pytest.raises(CorruptFileError, match="path of a data file"):
        list(listed.messages())
    with pytest.raises(CorruptFileError, match="path of a data file"):
        listed[0]
