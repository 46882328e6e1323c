"""Changes are what fragments say, where a transaction in the same manifest says that none were."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import glaive
from glaive.format.manifest import Manifest, encode_manifest

ROWS = pa.table({"a": range(8)})
OTHERS: dict[str, Callable[[glaive.LanceDataset], Any]] = {
    "settings": lambda at: at.update_config({"a": "b"}),
    "an index": lambda at: at.create_scalar_index("a", "BTREE"),
    "a compaction": lambda at: at.optimize.compact_files(),
    "the schema": lambda at: at.alter_columns({"path": "a", "name": "b"}),
}


def put(manifest: Manifest, transaction: bytes | None) -> None:
    pieces = encode_manifest(
        manifest.wire, transaction=transaction or b"", index_section=manifest.index_section
    )
    Path(manifest.where).write_bytes(b"".join(map(bytes, map(memoryview, pieces))))


def kinds(dataset: glaive.LanceDataset, version: int) -> list[tuple[str, int]]:
    table = dataset.changes(version, version).to_table()
    return list(zip(table["_change_type"].to_pylist(), table[0].to_pylist(), strict=True))


@pytest.mark.spec("rel-42")
@pytest.mark.parametrize("stable", [False, True])
@pytest.mark.parametrize("other", OTHERS)
def test_rows_are_in_the_feed_whatever_the_transaction_says(
    tmp_path: Path, other: str, stable: bool
) -> None:
    made = glaive.write_dataset(
        ROWS, tmp_path / "t", max_rows_per_file=4, enable_stable_row_ids=stable
    )
    made.insert(pa.table({"a": [100, 101]}))
    inserted = made.manifest
    made.delete("a = 3")
    deleted = made.manifest
    OTHERS[other](made)
    assert kinds(made, made.version) == []
    assert inserted.transaction != made.manifest.transaction
    for manifest in (inserted, deleted):
        put(manifest, made.manifest.transaction)
    assert kinds(made, inserted.version) == [("insert", 100), ("insert", 101)]
    assert kinds(made, deleted.version) == [("delete", 3)]


@pytest.mark.parametrize("later", ["an index", "a compaction"])
def test_a_deletion_file_whose_rows_are_counted_later_deletes_none(
    tmp_path: Path, later: str
) -> None:
    made = glaive.write_dataset(ROWS, tmp_path / "t", max_rows_per_file=4)
    made.delete("a = 3")
    OTHERS[later](made)
    before = made.checkout_version(made.version - 1).manifest
    fragment = before.fragment_wire(0)
    fragment.deletion_file.num_deleted_rows = 0
    before.wire.fragments[0] = fragment.SerializeToString()
    put(before, before.transaction)
    assert kinds(glaive.dataset(tmp_path / "t"), made.version) == []
