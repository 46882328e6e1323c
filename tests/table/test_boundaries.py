"""Numbers at the edge of what is allowed, and messages that say the same in two ways."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest

from glaive.errors import CorruptFileError, UnsupportedFeatureError
from glaive.format.manifest import Manifest
from glaive.format.paths import DETACHED
from glaive.format.pb import table_pb2
from glaive.format.rowids import encode_row_ids, encode_versions
from glaive.format.transaction import WireOperation
from glaive.table.cleanup import Selection
from glaive.table.commit import draft_of
from glaive.table.deletions import add_deletions
from glaive.table.fragment_ids import drop_dead_files, mark_changed
from glaive.table.index_coverage import (
    REUSE_INDEX,
    after_remapping,
    append_remapping,
    covered_fragments,
)
from glaive.table.operations.create_index import CreateIndex, after_merge
from glaive.table.operations.merge import DataReplacement
from glaive.table.operations.update import Update
from glaive.table.protocol import (
    CommitOptions,
    changed_fragments,
    changes_columns,
    removed_fragments,
    replaced_fields,
)

from .native import data_file
from .places import create, make_store, names

UPDATE = table_pb2.Transaction.Update


def test_a_version_of_the_very_time_that_is_asked_for_stays() -> None:
    limit = datetime(2026, 5, 1, tzinfo=UTC)
    nothing: frozenset[int] = frozenset()
    selection = Selection(frozenset([1]), nothing, nothing, nothing, limit)
    assert selection.decide(1, limit) == "keep"
    assert selection.decide(1, limit - timedelta(microseconds=1)) == "delete"


def test_a_changed_row_behind_the_last_one_is_damage() -> None:
    fragment = table_pb2.DataFragment(id=0, physical_rows=3)
    fragment.inline_row_ids = encode_row_ids(range(3))
    fragment.inline_last_updated_at_versions = encode_versions([(3, 1)])
    mark_changed(fragment, 2, np.array([2], np.uint32))
    with pytest.raises(CorruptFileError, match="expected offsets below 3, found 3"):
        mark_changed(fragment, 2, np.array([0, 3], np.uint32))


def test_a_row_behind_the_last_one_is_not_deleted(tmp_path: Path) -> None:
    store = make_store("local", tmp_path)
    base = create(store, rows=3)
    with pytest.raises(CorruptFileError, match="expected offsets below 3, found 0 to 3"):
        add_deletions(store, base, base.fragment(0), np.array([0, 3]))
    assert list(names(store, "_deletions")) == []


def test_files_of_row_lineage_are_no_dead_files() -> None:
    """Their fields are in no schema, and never were."""
    fragment = table_pb2.DataFragment(id=0)
    for fields in ([0, 1], [-3, -4], [-2, -2], [7], [-2, 0]):
        fragment.files.add(path="x.lance", fields=fields)
    drop_dead_files(fragment)
    assert [[*file.fields] for file in fragment.files] == [[0, 1], [-3, -4], [7], [-2, 0]]
    drop_dead_files(fragment, {0})
    assert [[*file.fields] for file in fragment.files] == [[0, 1], [-3, -4], [-2, 0]]


@pytest.mark.spec("conflict-3")
def test_a_rewrite_may_list_its_fragments_with_groups_and_without() -> None:
    """Old writers have one list, new ones groups: those of both were replaced."""
    message = table_pb2.Transaction.Rewrite()
    message.old_fragments.add(id=1)
    message.groups.add().old_fragments.add(id=2)
    operation = WireOperation("rewrite", message)
    assert changed_fragments(operation) == removed_fragments(operation) == {1, 2}


def test_an_update_that_lists_replaced_fields_changes_columns_whatever_its_mode() -> None:
    assert changes_columns(WireOperation("update", UPDATE(fields_modified=[3])))
    assert changes_columns(WireOperation("update", UPDATE(update_mode=UPDATE.REWRITE_COLUMNS)))
    assert not changes_columns(WireOperation("update", UPDATE()))


def test_rows_inserted_by_key_do_not_follow_an_append_which_may_have_the_keys() -> None:
    keys = UPDATE.KeyExistenceFilter(field_ids=[0], exact=UPDATE.ExactKeys(key_hashes=[1]))
    append = WireOperation("append", table_pb2.Transaction.Append())
    found = Update(inserted_rows=keys).conflict(append)
    assert found is not None
    assert "append may have added keys" in found.reason
    assert Update().conflict(append) is None


def test_columns_are_not_replaced_in_a_fragment_that_another_removed() -> None:
    """Also where the other replaced columns as well, of other fields."""
    mine = DataReplacement(((0, data_file("new", 1)),))
    theirs = UPDATE(fields_modified=[2], update_mode=UPDATE.REWRITE_COLUMNS)
    assert mine.conflict(WireOperation("update", theirs)) is None
    theirs.removed_fragment_ids.append(0)
    assert mine.conflict(WireOperation("update", theirs)) is not None


@pytest.mark.spec("rel-9", "conflict-5")
def test_columns_are_not_replaced_over_those_of_an_update_that_does_not_say_which() -> None:
    """As pylance commits it. It may have replaced any column of the fragments that it changed."""
    theirs = UPDATE(update_mode=UPDATE.REWRITE_COLUMNS)
    theirs.updated_fragments.add(id=0).files.add(path="a.lance", fields=[1, -2])
    update = WireOperation("update", theirs)
    assert replaced_fields(update) == {1}
    assert DataReplacement(((0, data_file("new", 1)),)).conflict(update) is not None
    assert DataReplacement(((0, data_file("new", 2)),)).conflict(update) is None


def test_a_remapping_table_of_a_later_version_is_neither_followed_nor_appended_to() -> None:
    def entry(version: int) -> table_pb2.IndexMetadata:
        made = table_pb2.IndexMetadata(name=REUSE_INDEX, index_version=version)
        details = table_pb2.FragmentReuseIndexDetails()
        group = details.inline.versions.add(dataset_version=1).groups.add()
        group.old_fragments.add(id=0, physical_rows=3)
        group.new_fragments.add(id=4, physical_rows=2)
        made.index_details.value = details.SerializeToString()
        return made

    index = table_pb2.IndexMetadata(name="of rows", fields=[0])
    index.fragment_bitmap = b":0\0\0\1\0\0\0\0\0\0\0\x10\0\0\0\0\0"  # fragment 0
    assert after_remapping([index, entry(0)])[0] != index
    assert after_remapping([index, entry(1)]) == [index, entry(1)]
    assert append_remapping(entry(0), [entry(0)]) is not None
    assert append_remapping(entry(0), [entry(1)]) is None


@pytest.mark.spec("rel-12")
def test_a_new_index_covers_nothing_after_a_merge_where_nobody_knows_the_files_of_before(
    tmp_path: Path,
) -> None:
    store = make_store("local", tmp_path)
    merged = create(store)  # the version before was cleaned up
    index = table_pb2.IndexMetadata(name="of rows", fields=[0])
    index.fragment_bitmap = b":0\0\0\1\0\0\0\0\0\0\0\x10\0\0\0\0\0"  # fragment 0
    changed = after_merge(store, CreateIndex(new=(index,)), None, merged)
    assert isinstance(changed, CreateIndex)
    assert covered_fragments(changed.new[0]) == frozenset()


@pytest.mark.spec("rel-1")
def test_no_version_follows_the_one_with_the_highest_number(tmp_path: Path) -> None:
    store = make_store("local", tmp_path)
    wire = table_pb2.ManifestOutline()
    wire.CopyFrom(create(store).wire)
    wire.version = DETACHED - 1
    base = Manifest(wire, where="m")
    operation = WireOperation("append", table_pb2.Transaction.Append())
    with pytest.raises(UnsupportedFeatureError, match="the highest number"):
        draft_of(store, base, operation, CommitOptions())
    draft, _ = draft_of(store, base, operation, CommitOptions(detached=True))
    assert draft.wire.version & DETACHED
