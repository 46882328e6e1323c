"""Row ids and versions in hidden columns of data files: read, looked up, carried over."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from glaive.errors import CorruptFileError
from glaive.format.fragment import Fragment
from glaive.format.manifest import Feature, Manifest
from glaive.format.transaction import Transaction
from glaive.io.local import LocalStore
from glaive.table.commit import commit_transaction
from glaive.table.load import open_latest, read_transaction
from glaive.table.rowids import RowIdIndex, load_lineage

from .compare import content

lance = pytest.importorskip("lance", reason="install the 'interop' group")
pytestmark = pytest.mark.interop

ROWS = 4000


def lineage(store: LocalStore, manifest: Manifest, what: Any) -> list[int]:
    live = []
    for one in manifest.fragments():
        values = load_lineage(store, manifest, one, what).all(store.uri)
        assert len(values) == one.physical_rows
        live.append(values)
    return np.concatenate(live).tolist()


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Shuffled row ids in a fragment that keeps them in its file."""
    target = tmp_path / "t"
    table = pa.table(
        {"a": pa.array(range(ROWS), pa.int64()), "b": pa.array([0] * ROWS, pa.int64())}
    )
    dataset = lance.write_dataset(table, str(target), enable_stable_row_ids=True)
    dataset.update_config(
        {"lance.row_lineage.spill": "true", "lance.row_lineage.inline_max_bytes": "16"}
    )
    dataset = lance.dataset(str(target))
    dataset.update({"b": "1"}, where="a % 7 = 3")
    dataset = lance.dataset(str(target))
    dataset.optimize.compact_files(materialize_deletions_threshold=0.0)
    return target


@pytest.mark.spec("rowid-10", "rowid-8")
def test_hidden_columns_hold_ids_and_versions(place: Path) -> None:
    store = LocalStore(place)
    manifest = open_latest(store)
    assert manifest.uses(Feature.SPILLED_ROW_LINEAGE)
    assert manifest.columns.any_lineage_in_files
    theirs = lance.dataset(str(place)).to_table(
        columns=["_row_created_at_version", "_row_last_updated_at_version"], with_row_id=True
    )
    assert lineage(store, manifest, "row_ids") == theirs["_rowid"].to_pylist()
    created = theirs["_row_created_at_version"].to_pylist()
    assert lineage(store, manifest, "created_at") == created
    updated = theirs["_row_last_updated_at_version"].to_pylist()
    assert lineage(store, manifest, "updated_at") == updated


def test_rows_are_found_by_hidden_ids(place: Path) -> None:
    store = LocalStore(place)
    manifest = open_latest(store)
    index = RowIdIndex(
        manifest,
        lambda at: load_lineage(store, manifest, manifest.fragment(at), "row_ids").all(store.uri),
    )
    ids = np.array([3, 10, 0, 3999, 10, 77_777], np.uint64)
    fragment, row = index.locate(ids, lambda _at, _rows: None)
    values = lance.dataset(str(place)).to_table()["a"].to_pylist()
    assert (fragment >= 0).tolist() == [True] * 5 + [False]
    assert [values[at] for at in row[:5].tolist()] == [3, 10, 0, 3999, 10]


def test_rows_that_move_out_of_such_a_fragment_keep_their_versions(place: Path) -> None:
    copy = place.with_name("copy")
    shutil.copytree(place, copy)
    lance.dataset(str(place)).update({"b": "2"}, where="a % 500 = 3")
    made = open_latest(LocalStore(place))
    transaction = read_transaction(LocalStore(place), made)
    assert transaction is not None
    for folder in ("data", "_deletions"):
        shutil.copytree(place / folder, copy / folder, dirs_exist_ok=True)
    read = made.version - 1
    mine = commit_transaction(
        LocalStore(copy), Transaction(read_version=read, operation=transaction.operation)
    )
    ours, theirs = content(mine), content(made)
    created = lineage(LocalStore(copy), mine, "created_at")
    assert created == lineage(LocalStore(place), made, "created_at")
    for one in (*ours["fragments"], *theirs["fragments"]):
        # Where they are kept is the writer's choice.
        for name in ("CreatedAtVersions", "LastUpdatedAtVersions"):
            one.pop(f"inline{name}", None)
            one.pop(f"column{name}", None)
    assert ours == theirs


def test_a_hidden_column_that_is_not_there_is_damage(place: Path) -> None:
    store = LocalStore(place)
    manifest = open_latest(store)
    wire = manifest.fragment_wire(0)
    del wire.files[:]
    with pytest.raises(CorruptFileError, match="field -3 in a data file"):
        load_lineage(store, manifest, Fragment.from_wire(wire), "row_ids")
