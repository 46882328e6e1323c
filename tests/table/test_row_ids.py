"""Rows by stable row id: the live copy counts, and updates keep what a row was given."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from glaive.errors import CorruptFileError
from glaive.format.manifest import Manifest
from glaive.format.pb import table_pb2
from glaive.format.rowids import decode_row_ids, decode_versions, encode_row_ids, encode_versions
from glaive.format.transaction import Transaction
from glaive.io.store import ObjectStore
from glaive.table.commit import commit_transaction
from glaive.table.deletions import add_deletions, load_deletions
from glaive.table.operations.overwrite import Overwrite
from glaive.table.operations.rewrite import Rewrite, RewriteGroup
from glaive.table.operations.update import Update
from glaive.table.protocol import CommitOptions
from glaive.table.rowids import RowIdIndex, created_at
from glaive.types import Flags, Int64s

from .native import SCHEMA, fragment
from .places import make_store

STABLE = CommitOptions(enable_stable_row_ids=True)


@pytest.fixture
def store(tmp_path: Path) -> ObjectStore:
    return make_store("memory", tmp_path)


@pytest.fixture
def base(store: ObjectStore) -> Manifest:
    fragments = tuple(fragment(name=f"f{number}", rows=10) for number in range(3))
    operation = Overwrite(fragments=fragments, schema=SCHEMA)
    return commit_transaction(
        store, Transaction(read_version=0, operation=operation), options=STABLE
    )


def moved(store: ObjectStore, base: Manifest, position: int, rows: list[int], more: int) -> Update:
    """An update that moves rows of a fragment and inserts others behind them."""
    one = base.fragment(position)
    ids = decode_row_ids(one.row_ids or b"", one.physical_rows, where="t")[rows]
    changed, added, _ = add_deletions(store, base, one, np.array(rows))
    new = replace(fragment(name="moved", rows=len(rows) + more), row_ids=encode_row_ids(ids))
    return Update(
        updated=() if changed is None else (changed,),
        removed=(one.id,) if changed is None else (),
        new=(new,),
        affected={one.id: added},
    )


def commit(store: ObjectStore, base: Manifest, operation: Update | Rewrite) -> Manifest:
    transaction = Transaction(read_version=base.version, operation=operation)
    return commit_transaction(store, transaction, base=base)


def ids_of(manifest: Manifest, position: int) -> list[int]:
    one = manifest.fragment(position)
    return decode_row_ids(one.row_ids or b"", one.physical_rows, where="t").tolist()


def versions_of(manifest: Manifest, position: int) -> tuple[list[int], list[int]]:
    one = manifest.fragment(position)
    created, updated = (
        decode_versions(data or b"", one.physical_rows, where="t").tolist()
        for data in (one.created_at, one.updated_at)
    )
    return created, updated


def located(store: ObjectStore, manifest: Manifest, *ids: int, keep: bool = False) -> list[object]:
    def is_deleted(position: int, rows: Int64s) -> Flags:
        return np.isin(rows, load_deletions(store, manifest, manifest.fragment(position)))

    index = RowIdIndex(manifest)
    found = index.locate(np.array(ids, np.uint64), is_deleted, keep_deleted=keep)
    return list(zip(*(one.tolist() for one in found), strict=True))


@pytest.mark.spec("build-6", "build-8", "update-1")
def test_moved_rows_keep_their_ids_and_inserted_ones_get_new_ones(
    store: ObjectStore, base: Manifest
) -> None:
    made = commit(store, base, moved(store, base, 1, [2, 7], more=2))
    assert ids_of(made, 3) == [12, 17, 30, 31]
    assert versions_of(made, 3) == ([1, 1, 2, 2], [2, 2, 2, 2])
    assert ids_of(made, 1) == list(range(10, 20))
    assert made.wire.next_row_id == 32
    again = commit(store, made, moved(store, made, 3, [1, 2], more=0))
    assert ids_of(again, 4) == [17, 30]
    assert versions_of(again, 4) == ([1, 2], [3, 3])


@pytest.mark.spec("rowid-5")
def test_the_live_row_of_an_id_is_found(store: ObjectStore, base: Manifest) -> None:
    made = commit(store, base, moved(store, base, 1, [2, 7], more=1))
    assert located(store, base, 12, 0, 29, 12) == [(1, 2), (0, 0), (2, 9), (1, 2)]
    assert located(store, made, 12, 17, 13, 30) == [(3, 0), (3, 1), (1, 3), (3, 2)]
    assert located(store, made, 99) == [(-1, 0)]


def test_a_deleted_row_is_found_where_no_other_has_its_id(
    store: ObjectStore, base: Manifest
) -> None:
    made = commit(store, base, moved(store, base, 0, [4], more=0))
    changed, added, _ = add_deletions(store, made, made.fragment(0), np.array([6]))
    assert changed is not None
    gone = commit(store, made, Update(updated=(changed,), affected={0: added}))
    assert located(store, gone, 4, 6) == [(3, 0), (-1, 0)]
    assert located(store, gone, 4, 6, keep=True) == [(3, 0), (0, 6)]


def test_live_rows_are_found_whatever_deleted_ones_follow() -> None:
    rows = 2**21
    wire = table_pb2.ManifestOutline()
    for number in range(3):
        one = table_pb2.DataFragment(id=number, physical_rows=rows)
        one.inline_row_ids = encode_row_ids(range(rows))
        one.deletion_file.num_deleted_rows = rows if number != 1 else 1
        wire.fragments.append(one.SerializeToString())

    def is_deleted(position: int, offsets: Int64s) -> Flags:
        return np.logical_or(position != 1, offsets == 7)

    ids = np.arange(rows, dtype=np.uint64)
    index = RowIdIndex(Manifest(wire, where="m"))
    for keep, there in ((False, -1), (True, 2)):
        fragments, offsets = index.locate(ids, is_deleted, keep_deleted=keep)
        assert fragments[7] == there
        assert (np.delete(fragments, 7) == 1).all()
        assert np.array_equal(np.delete(offsets, 7), np.delete(ids, 7))


def test_an_id_that_never_was_cannot_move(store: ObjectStore, base: Manifest) -> None:
    operation = moved(store, base, 0, [1], more=0)
    wrong = replace(operation.new[0], row_ids=encode_row_ids(np.array([500], np.uint64)))
    with pytest.raises(CorruptFileError, match="ids of existing rows, found 500"):
        commit(store, base, replace(operation, new=(wrong,)))


def test_more_ids_than_rows_are_refused(store: ObjectStore, base: Manifest) -> None:
    operation = moved(store, base, 0, [1, 2], more=0)
    wrong = replace(operation.new[0], physical_rows=1)
    with pytest.raises(CorruptFileError, match="at most 1, one per row, found 2"):
        commit(store, base, replace(operation, new=(wrong,)))


@pytest.mark.spec("rewrite-2")
def test_rewritten_fragments_bring_their_row_ids(store: ObjectStore, base: Manifest) -> None:
    old = (base.fragment(0), base.fragment(1))
    new = fragment(40, "together", rows=20)
    with pytest.raises(CorruptFileError, match="the stable row ids of its rows"):
        commit(store, base, Rewrite(groups=(RewriteGroup(old, (new,)),)))
    ids = encode_row_ids(range(20))
    with_ids = replace(new, row_ids=ids, created_at=old[0].created_at, updated_at=b"")
    made = commit(store, base, Rewrite(groups=(RewriteGroup(old, (with_ids,)),)))
    assert made.fragment_ids.tolist() == [2, 40]
    assert made.max_fragment_id == 40
    assert located(store, made, 15, 25) == [(1, 15), (0, 5)]


def test_versions_of_rows_are_found_by_ids_in_hidden_columns_and_in_the_manifest() -> None:
    wire = table_pb2.ManifestOutline()
    hidden = table_pb2.DataFragment(id=4, physical_rows=3)
    hidden.column_row_ids.SetInParent()
    hidden.column_created_at_versions.SetInParent()
    plain = table_pb2.DataFragment(
        id=6,
        physical_rows=2,
        inline_row_ids=encode_row_ids(range(2)),
        inline_created_at_versions=encode_versions([(2, 8)]),
    )
    spare = table_pb2.DataFragment(id=9)
    spare.column_row_ids.SetInParent()
    wire.fragments.extend(one.SerializeToString() for one in (hidden, plain, spare))
    manifest = Manifest(wire, where="m")
    known = {4: (np.array([9, 5, 7], np.uint64), np.array([1, 2, 3], np.uint64))}
    found = created_at(manifest, known, np.array([7, 1, 5, 7], np.uint64))
    assert found.tolist() == [3, 8, 2, 3]
    with pytest.raises(CorruptFileError, match="found 6"):
        created_at(manifest, known, np.array([6], np.uint64))
