"""What single operations make of a version: ids, counters, files, indices, entries."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pyroaring import BitMap

from glaive.errors import (
    CommitConflictError,
    CorruptFileError,
    DatasetExistsError,
    DatasetNotFoundError,
    NotFoundError,
    OptionError,
    UnsupportedFeatureError,
)
from glaive.format.bitmaps import offsets_of
from glaive.format.fragment import LEGACY
from glaive.format.manifest import Feature, Manifest, encode_manifest
from glaive.format.pb import table_pb2
from glaive.format.rowids import decode_row_ids
from glaive.format.transaction import Transaction
from glaive.format.wire import MAX_FRAGMENT_ID
from glaive.io.store import ObjectStore
from glaive.table.commit import commit_transaction
from glaive.table.copying import begin_clone
from glaive.table.deletions import add_deletions, load_deletions
from glaive.table.fragment_ids import new_fragments
from glaive.table.index_coverage import covered_fragments, prune, remap
from glaive.table.operations.create_index import CreateIndex
from glaive.table.operations.merge import DataReplacement, Merge, Project
from glaive.table.operations.overwrite import Append, Clone, Overwrite, Restore
from glaive.table.operations.update_config import ReserveFragments, UpdateConfig
from glaive.table.protocol import BuildContext, CommitOptions, Conflict, TableOperation
from glaive.table.put_manifest import made_by, put_manifest
from glaive.types import FormatVersion

from .native import SCHEMA, as_read, data_file, fragment, index, operations
from .places import make_store


@pytest.fixture
def store(tmp_path: Path) -> ObjectStore:
    return make_store("memory", tmp_path)


@pytest.fixture
def base(store: ObjectStore) -> Manifest:
    fragments = tuple(fragment(name=f"f{number}") for number in range(3))
    return commit(store, 0, Overwrite(fragments=fragments, schema=SCHEMA))


def commit(store: ObjectStore, read: int, operation: TableOperation) -> Manifest:
    return commit_transaction(store, Transaction(read_version=read, operation=operation))


@pytest.mark.spec("build-7")
@pytest.mark.usefixtures("base")
def test_an_id_that_was_given_stays(store: ObjectStore) -> None:
    made = commit(store, 1, Append((fragment(77), fragment())))
    assert made.fragment_ids.tolist() == [0, 1, 2, 3, 77]
    assert made.max_fragment_id == 77
    with pytest.raises(OptionError, match="id 2, which another fragment has"):
        commit(store, 2, Append((fragment(2),)))
    with pytest.raises(OptionError, match="id 78, which another fragment has"):
        commit(store, 2, Append((fragment(78), fragment(78))))


@pytest.mark.usefixtures("base")
def test_fragments_have_ids_up_to_the_highest_of_32_bits(store: ObjectStore) -> None:
    made = commit(store, 1, Append((fragment(MAX_FRAGMENT_ID),)))
    assert made.max_fragment_id == MAX_FRAGMENT_ID
    with pytest.raises(CorruptFileError, match=r"id of a new fragment: expected below 2\^32"):
        commit(store, 2, Append((fragment(),)))


@pytest.mark.spec("reserve-1")
@pytest.mark.usefixtures("base")
def test_reserved_ids_are_never_given(store: ObjectStore) -> None:
    assert commit(store, 1, ReserveFragments(5)).max_fragment_id == 7
    assert commit(store, 2, Append((fragment(),))).fragment_ids.tolist() == [0, 1, 2, 8]
    with pytest.raises(OptionError, match="below 2"):
        commit(store, 3, ReserveFragments(2**32 - 1))


def test_an_overwrite_without_retries_replaces_what_it_was_made_for(
    store: ObjectStore, base: Manifest
) -> None:
    strict = CommitOptions(max_retries=0)
    commit(store, 1, Append((fragment(),)))
    whole = Overwrite(fragments=(fragment(),), schema=SCHEMA)
    stale = Transaction(read_version=base.version, operation=whole)
    with pytest.raises(
        CommitConflictError, match="every concurrent commit is a conflict"
    ) as caught:
        commit_transaction(store, stale, options=strict)
    assert caught.value.retryable
    fresh = Transaction(read_version=2, operation=whole)
    assert commit_transaction(store, fresh, options=strict).version == 3
    # An append is built on top of what came in between.
    append = Transaction(read_version=3, operation=Append((fragment(),)))
    commit(store, 3, ReserveFragments(1))
    assert commit_transaction(store, append, options=strict).version == 5


@pytest.mark.parametrize("name", [name for name in operations() if name != "overwrite"])
def test_without_a_dataset_there_is_nothing_to_change(name: str) -> None:
    operation = operations()[name]
    with pytest.raises(DatasetNotFoundError, match="Create it first"):
        operation.apply(None, BuildContext(1))


@pytest.mark.usefixtures("base")
def test_configuration_is_set_and_removed(store: ObjectStore) -> None:
    first = UpdateConfig.of(config={"a": "1", "b": "2"}, table_metadata={"t": "x"})
    made = commit(store, 1, first)
    assert (dict(made.config), dict(made.table_metadata)) == ({"a": "1", "b": "2"}, {"t": "x"})
    assert made.uses(Feature.TABLE_CONFIG)
    made = commit(store, 2, UpdateConfig.of(config={"a": None, "c": "3", "none": None}))
    assert dict(made.config) == {"b": "2", "c": "3"}
    made = commit(store, 3, UpdateConfig.of(config={"d": "4"}, replace=True))
    assert dict(made.config) == {"d": "4"}
    made = commit(store, 4, UpdateConfig.of(config={}, replace=True))
    assert not made.uses(Feature.TABLE_CONFIG)


@pytest.mark.spec("config-1", "config-2")
@pytest.mark.usefixtures("base")
def test_metadata_of_schema_and_fields_is_set(store: ObjectStore) -> None:
    operation = UpdateConfig.of(
        schema_metadata={"s": "1"}, field_metadata={1: {"unit": "m"}, 2: {"x": "y"}}
    )
    made = commit(store, 1, operation)
    assert dict(made.schema.metadata) == {"s": b"1"}
    assert [dict(one.metadata) for one in made.schema.walk()] == [{}, {"unit": b"m"}, {"x": b"y"}]
    old = table_pb2.Transaction.UpdateConfig(
        upsert_values={"k": "v"}, delete_keys=["q"], schema_metadata={"n": "2"}
    )
    old.field_metadata[1].metadata["other"] = "z"
    made = commit(store, 2, UpdateConfig(old))
    assert dict(made.config) == {"k": "v"}
    assert dict(made.schema.metadata) == {"n": b"2"}
    assert dict(made.schema.field_by_id(1).metadata) == {"other": b"z"}
    with pytest.raises(NotFoundError, match=r"metadata of field 9.*\[0, 1, 2\]"):
        commit(store, 3, UpdateConfig.of(field_metadata={9: {"a": "b"}}))


@pytest.mark.spec("rel-3", "project-1")
@pytest.mark.usefixtures("base")
def test_metadata_of_fields_that_others_set_is_kept_where_columns_change(
    store: ObjectStore,
) -> None:
    commit(store, 1, UpdateConfig.of(field_metadata={0: {"k": "old"}, 1: {"unit": "m"}}))
    commit(store, 2, UpdateConfig.of(field_metadata={0: {"k": "new", "more": "1"}, 2: {"x": "y"}}))
    commit(store, 3, UpdateConfig.of(field_metadata={1: {}}, replace=True))

    made = commit(store, 1, Project(schema=SCHEMA.project(["a", "b"]), preserves_nullability=True))

    assert [dict(one.metadata) for one in made.schema.walk()] == [{"k": b"new", "more": b"1"}, {}]


@pytest.mark.spec("build-11", "restore-1")
@pytest.mark.usefixtures("base")
def test_a_restored_version_keeps_the_counters(store: ObjectStore) -> None:
    commit(store, 1, ReserveFragments(5))
    commit(store, 2, UpdateConfig.of(config={"a": "1"}))
    made = commit(store, 3, Restore(1))
    assert made.version == 4
    assert made.max_fragment_id == 7
    assert made.fragment_ids.tolist() == [0, 1, 2]
    assert not dict(made.config)


def test_a_version_whose_schema_is_damaged_does_not_become_the_newest(base: Manifest) -> None:
    wire = type(base.wire)()
    wire.CopyFrom(base.wire)
    wire.fields[0].parent_id = 77
    older = Manifest(wire, where="older")
    with pytest.raises(CorruptFileError, match=r"parent of field .* \(in older\)"):
        Restore(1).apply(base, BuildContext(2, older=older))


@pytest.mark.spec("build-11")
def test_what_is_for_ever_is_not_given_up(base: Manifest) -> None:
    wire = type(base.wire)()
    wire.CopyFrom(base.wire)
    wire.reader_feature_flags = wire.writer_feature_flags = int(Feature.STABLE_ROW_IDS)
    newest = Manifest(wire, where="newest")
    with pytest.raises(UnsupportedFeatureError, match="has stable_row_ids since then"):
        Restore(1).apply(newest, BuildContext(2, older=base))
    mixed = int(Feature.MIXED_FILE_VERSIONS)
    wire.reader_feature_flags = wire.writer_feature_flags = mixed
    draft = Restore(1).apply(newest, BuildContext(2, older=base))
    assert draft.wire.reader_feature_flags == mixed
    wire.reader_feature_flags = int(Feature.DELETION_FILES)
    draft = Restore(1).apply(newest, BuildContext(2, older=base))
    assert draft.wire.reader_feature_flags == base.wire.reader_feature_flags


def test_no_transaction_files_are_written_where_the_dataset_has_none(
    store: ObjectStore, base: Manifest
) -> None:
    wire = type(base.wire)()
    wire.CopyFrom(base.wire)
    wire.version, wire.transaction_file = 2, ""
    wire.writer_feature_flags |= int(Feature.NO_TRANSACTION_FILES)
    nothing = Transaction(read_version=1, operation=ReserveFragments(1))
    parts = encode_manifest(wire, transaction=nothing.encode(), index_section=None)
    assert put_manifest(store, 2, base.scheme, parts, nothing.uuid)
    before = sorted(entry.path for entry in store.list("_transactions"))

    made = commit(store, 2, ReserveFragments(1))

    assert made.version == 3
    assert len(before) == 1
    assert sorted(entry.path for entry in store.list("_transactions")) == before


@pytest.mark.parametrize("left", [3, 2])
def test_row_ids_are_given_up_to_the_last_one(base: Manifest, left: int) -> None:
    wire = type(base.wire)()
    wire.CopyFrom(base.wire)
    wire.reader_feature_flags |= int(Feature.STABLE_ROW_IDS)
    wire.next_row_id = 2**64 - 1 - left
    added = [fragment(rows=3)]
    if left < 3:
        with pytest.raises(CorruptFileError, match="next row id: expected at most"):
            new_fragments(wire, added, 2)
    else:
        (made,) = new_fragments(wire, added, 2)
        assert made.row_ids is not None
        ids = decode_row_ids(made.row_ids, 3, where="m")
        assert ids.tolist() == [2**64 - 4, 2**64 - 3, 2**64 - 2]


def test_a_clone_does_not_touch_a_dataset_that_is_there(
    store: ObjectStore, base: Manifest, tmp_path: Path
) -> None:
    target = make_store("memory", tmp_path / "other")
    commit(target, 0, Overwrite(fragments=(fragment(name="own"),), schema=SCHEMA))
    before = sorted(entry.path for entry in target.walk(""))

    with pytest.raises(DatasetExistsError):
        begin_clone(store, base, target, Clone(shallow=True, ref_version=1, ref_path=store.uri))

    assert sorted(entry.path for entry in target.walk("")) == before


def test_a_version_is_known_by_the_transaction_that_made_it(
    store: ObjectStore, base: Manifest
) -> None:
    transaction = Transaction(read_version=1, operation=ReserveFragments(1))
    made = commit_transaction(store, transaction)
    assert made_by(store, made, transaction.uuid)
    assert not made_by(store, base, transaction.uuid)


def test_a_set_of_many_numbers_is_refused() -> None:
    numbers = BitMap([1, 5, 9]).serialize()
    assert offsets_of(numbers, "m").tolist() == [1, 5, 9]
    everything = BitMap(range(2**27 + 1)).serialize()
    with pytest.raises(CorruptFileError, match="set of numbers: expected at most 134217728"):
        offsets_of(everything, "m")


@pytest.mark.parametrize("offsets", [[1, 1, 3], [3, 1, 1]])
def test_rows_to_delete_may_be_repeated(
    store: ObjectStore, base: Manifest, offsets: list[int]
) -> None:
    changed, added, _ = add_deletions(store, base, base.fragment(0), np.array(offsets))

    assert added.tolist() == [1, 3]
    assert changed is not None
    assert changed.num_deletions == 2
    assert load_deletions(store, base, changed).tolist() == [1, 3]


@pytest.mark.spec("build-9")
@pytest.mark.usefixtures("base")
def test_files_without_a_live_column_leave(store: ObjectStore) -> None:
    wide = fragment(name="two")
    both = replace(wide, files=(data_file("ab", 0, 1), data_file("c", 2)))
    made = commit(store, 1, Append((both,)))
    project = Project(schema=SCHEMA.project(["a", "b"]), preserves_nullability=True)
    made = commit(store, 2, project)
    assert [len(one.files) for one in made.fragments()] == [1, 1, 1, 1]
    assert made.fragment(3).files == (data_file("ab", 0, 1),)


@pytest.mark.spec("replace-1", "update-2")
def test_columns_are_replaced_in_place(store: ObjectStore, base: Manifest) -> None:
    replaced = commit(store, 1, DataReplacement(((1, data_file("b1", 1)),)))
    files = replaced.fragment(1).files
    assert [one.fields for one in files] == [(0, -2, 2), (1,)]
    # A file of the same columns is exchanged.
    again = commit(store, 2, DataReplacement(((1, data_file("b2", 1)),)))
    assert [one.path for one in again.fragment(1).files] == ["f1.lance", "b2.lance"]
    # A file of which nothing is left leaves.
    whole = commit(store, 3, DataReplacement(((1, data_file("all", 0, 1, 2)),)))
    assert [one.path for one in whole.fragment(1).files] == ["all.lance"]
    assert whole.fragment(0) == base.fragment(0)
    with pytest.raises(NotFoundError, match="no fragment 9"):
        commit(store, 4, DataReplacement(((9, data_file("x", 1)),)))


@pytest.mark.usefixtures("base")
def test_replaced_columns_in_files_of_another_version_are_flagged(store: ObjectStore) -> None:
    other = replace(data_file("b1", 1), version=FormatVersion(2, 1))
    made = commit(store, 1, DataReplacement(((1, other),)))
    assert made.wire.reader_feature_flags == made.wire.writer_feature_flags
    assert made.uses(Feature.MIXED_FILE_VERSIONS)
    old = replace(other, version=LEGACY, column_indices=())
    with pytest.raises(UnsupportedFeatureError, match=r"0\.1 and 2\.x cannot be mixed"):
        commit(store, 2, DataReplacement(((1, old),)))


def test_columns_of_0_1_files_are_not_split(store: ObjectStore) -> None:
    old = replace(data_file("old", 0, 1, 2), version=LEGACY, column_indices=())
    fragments = (replace(fragment(), files=(old,)),)
    commit(store, 0, Overwrite(fragments=fragments, schema=SCHEMA))
    new = replace(data_file("b", 1), version=LEGACY, column_indices=())
    with pytest.raises(OptionError, match=r"0\.1: replace all of them"):
        commit(store, 1, DataReplacement(((0, new),)))


@pytest.mark.usefixtures("base")
def test_a_merge_lists_all_fragments(store: ObjectStore) -> None:
    merge = operations()["merge"]
    assert isinstance(merge, Merge)
    made = commit(store, 1, merge)
    assert made.schema == merge.schema
    assert [len(one.files) for one in made.fragments()] == [2, 2, 2]


@pytest.mark.spec("build-7")
@pytest.mark.usefixtures("base")
def test_ids_that_a_merge_brings_along_are_not_given_again(store: ObjectStore) -> None:
    merge = operations()["merge"]
    assert isinstance(merge, Merge)
    more = replace(merge, fragments=(*merge.fragments, replace(merge.fragments[0], id=9)))
    assert commit(store, 1, more).max_fragment_id == 9
    assert commit(store, 2, Append((fragment(),))).fragment_ids.tolist() == [0, 1, 2, 9, 10]


# ----------------------------------------------------------------------- indices


def covers(entries: list[table_pb2.IndexMetadata]) -> list[list[int]]:
    return [sorted(covered_fragments(one) or ()) for one in entries]


@pytest.mark.spec("build-10", "create-index-1", "conflict-5")
@pytest.mark.usefixtures("base")
def test_indices_follow_what_they_cover(store: ObjectStore) -> None:
    commit(store, 1, index("a_idx", 0, {0, 1}, 1))
    made = commit(store, 2, index("b_idx", 1, {0, 1, 2}, 2))
    assert [one.name for one in made.indices] == ["a_idx", "b_idx"]
    made = commit(store, 3, DataReplacement(((1, data_file("b1", 1)),)))
    assert covers(made.indices) == [[0, 1], [0, 2]]
    made = commit(store, 4, Append((fragment(),)))
    assert covers(made.indices) == [[0, 1], [0, 2]]
    made = commit(store, 5, Project(schema=SCHEMA.project(["a"]), preserves_nullability=True))
    assert [one.name for one in made.indices] == ["a_idx"]
    gone = replace(index("a_idx", 0, set(), 1), new=(), removed=tuple(made.indices))
    assert commit(store, 6, gone).index_section is None


def test_a_new_index_leaves_out_what_was_changed_since() -> None:
    mine = index("b_idx", 1, {0, 1}, 1)
    base = Manifest(table_pb2.ManifestOutline(), where="m")
    found = mine.rebase([as_read(operations()["columns 0 b"])], base, {})
    assert isinstance(found, CreateIndex)
    assert covers(list(found.new)) == [[1]]
    assert mine.rebase([as_read(operations()["columns 0 c"])], base, {}) == mine


def test_a_rewrite_moves_coverage_where_all_was_covered() -> None:
    (entry,) = index("a_idx", 0, {0, 1, 5}, 1).new
    groups = [(frozenset({0, 1}), frozenset({8})), (frozenset({5, 6}), frozenset({9}))]
    assert covers(remap([entry], groups, [], keeps_all=True)) == [[5, 8]]
    assert covers(remap([entry], groups, [], keeps_all=False)) == [[0, 1, 5]]
    rewritten = table_pb2.Transaction.Rewrite.RewrittenIndex(new_index_version=3)
    rewritten.old_id.uuid, rewritten.new_id.uuid = entry.uuid.uuid, b"n" * 16
    (moved,) = remap([entry], groups, [rewritten], keeps_all=False)
    assert covers([moved]) == [[5, 8]]
    assert (moved.uuid.uuid, moved.index_version, moved.name) == (b"n" * 16, 3, "a_idx")


def test_a_damaged_bitmap_is_reported() -> None:
    (entry,) = index("a_idx", 0, {0}, 1).new
    entry.fragment_bitmap = b"\x01\x02"
    with pytest.raises(CorruptFileError, match="fragments of index 'a_idx'"):
        prune([entry], {0}, {0})


def test_a_bitmap_of_more_fragments_than_there_can_be_is_damage() -> None:
    runs = BitMap(range(2**31))
    runs.run_optimize()
    entry = table_pb2.IndexMetadata(name="i", fragment_bitmap=runs.serialize())
    with pytest.raises(CorruptFileError, match=r"fragments of index 'i'.*at most"):
        covered_fragments(entry)


@pytest.mark.spec("rel-24")
def test_entries_of_a_transaction_cover_no_more_fragments_than_those_of_a_version() -> None:
    runs = BitMap(range(2**20))
    runs.run_optimize()
    message = table_pb2.Transaction.CreateIndex()
    for number in range(5):
        entry = message.new_indices.add(name="i", fragment_bitmap=runs.serialize())
        entry.uuid.uuid = bytes([number]) * 16
    with pytest.raises(CorruptFileError, match=r"covered by all segments.*at most 4194304"):
        CreateIndex.from_wire(message)
    message.removed_indices.append(message.new_indices.pop())
    assert len(CreateIndex.from_wire(message).new) == 4


@pytest.mark.parametrize("base_id", [None, 0, 1])
def test_files_of_one_name_in_two_places_are_other_rows(base_id: int | None) -> None:
    known = fragment()
    here = replace(known, files=tuple(replace(file, base_id=base_id) for file in known.files))
    anything: Any = None
    rebased = Append((here,), once=True).rebase([Append((known,))], anything, {})
    assert isinstance(rebased, Conflict) == (base_id is None)
