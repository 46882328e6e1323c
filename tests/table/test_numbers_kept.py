"""Numbers that a commit keeps or compares: ids given out before, names of indices, hidden nulls."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from glaive.fragment import write_fragments

import glaive
from glaive.dataset.dataset import LanceDataset
from glaive.errors import CorruptFileError
from glaive.file.open import create_writer
from glaive.format.field import Field
from glaive.format.fields import LanceSchema
from glaive.format.fragment import DataFile, Fragment
from glaive.format.manifest import Feature, Manifest
from glaive.format.transaction import Transaction
from glaive.io.local import LocalStore
from glaive.io.store import ObjectStore
from glaive.table.commit import commit_transaction
from glaive.table.load import open_latest
from glaive.table.operations.create_index import CreateIndex
from glaive.table.operations.rewrite import Rewrite, RewriteGroup
from glaive.table.operations.update_config import ReserveFragments
from glaive.table.protocol import TableOperation
from glaive.table.rowids import load_lineage

from .native import as_read, index
from .places import V2_2, append, change_newest, create, fragment, make_store, overwrite

ROWS = pa.table({"id": [1, 2, 3]})


def committed(store: ObjectStore, operation: TableOperation) -> Manifest:
    read = open_latest(store).version
    return commit_transaction(store, Transaction(read_version=read, operation=operation))


def test_a_detached_commit_deletes_no_old_versions(tmp_path: Path) -> None:
    dataset = glaive.write_dataset(ROWS, tmp_path / "t")
    dataset.insert(ROWS)
    dataset.update_config(
        {"lance.auto_cleanup.interval": "1", "lance.auto_cleanup.older_than": "0s"}
    )
    before = [version["version"] for version in dataset.versions()]
    assert len(before) > 1
    new = glaive.LanceOperation.Append(write_fragments(ROWS, dataset))
    LanceDataset.commit(dataset, new, read_version=dataset.version, detached=True)
    assert [version["version"] for version in dataset.versions()] == before
    dataset.insert(ROWS)
    assert before[0] not in [version["version"] for version in dataset.versions()]


def test_the_highest_field_id_stays_where_rows_of_lower_ones_replace_all(tmp_path: Path) -> None:
    store = make_store("local", tmp_path)
    create(store)
    flags = int(Feature.UNIQUE_FIELD_IDS)
    change_newest(store, writer_feature_flags=flags, max_allocated_field_id=7)
    assert commit_transaction(store, overwrite(open_latest(store))).wire.max_allocated_field_id == 7


def test_ids_of_fragments_are_not_given_out_again_where_reserved_ones_come_in_any_order(
    tmp_path: Path,
) -> None:
    store = make_store("local", tmp_path)
    commit_transaction(store, append(create(store)))
    base = committed(store, ReserveFragments(2))
    for old, new_id in ((0, 3), (1, 2)):
        new = replace(fragment(), id=new_id)
        base = committed(store, Rewrite(groups=(RewriteGroup((base.fragment(0),), (new,)),)))
        assert old not in [one.id for one in base.fragments()]
    base = commit_transaction(store, append(base))
    assert sorted(one.id for one in base.fragments()) == [2, 3, 4]


def test_an_index_that_is_removed_conflicts_with_a_new_one_of_its_name() -> None:
    new, other = index("i", 0, {0}, 1), index("j", 0, {0}, 2)
    removal = CreateIndex(removed=index("i", 0, {0}, 3).new)
    for mine, theirs in ((removal, new), (new, removal)):
        found = mine.conflict(as_read(theirs))
        assert found is not None
        assert "both change index i" in found.reason
    assert removal.conflict(as_read(other)) is None
    assert other.conflict(as_read(removal)) is None


def test_one_null_among_row_ids_in_a_data_file_is_damage(tmp_path: Path) -> None:
    store = make_store("local", tmp_path)
    base = create(store)
    schema = LanceSchema((Field(id=-3, name="_rowid", logical_type="uint64"),))
    for values in ([5, 9], [5, None]):
        writer = create_writer(store, "data/ids.lance", schema)
        writer.write(pa.table({"_rowid": pa.array(values, pa.uint64())}))
        writer.finish()
        size = store.get("data/ids.lance").size
        file = DataFile(
            path="ids.lance", fields=(-3,), column_indices=(0,), version=V2_2, size=size
        )
        held = Fragment(files=(file,), physical_rows=2, row_ids_in_column=True)
        if None not in values:
            read = load_lineage(store, base, held, "row_ids").all("here")
            np.testing.assert_array_equal(read, values)
    with pytest.raises(CorruptFileError, match="column _rowid: expected no nulls, found 1"):
        load_lineage(store, base, held, "row_ids").all("here")


def test_row_ids_that_a_target_gave_out_are_not_given_again_by_what_is_published(
    tmp_path: Path,
) -> None:
    main = glaive.write_dataset(ROWS, tmp_path / "t", enable_stable_row_ids=True)
    main.create_branch("dev").insert(ROWS)
    change_newest(LocalStore(tmp_path / "t"), next_row_id=900)
    main.branches.publish("dev")
    main.insert(ROWS)
    ids = main.to_table(with_row_id=True)["_rowid"].to_pylist()
    assert len(set(ids)) == 9
    assert max(ids) == 902
