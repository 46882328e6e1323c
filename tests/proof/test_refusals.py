"""What cannot be done is refused with a clear error, and nothing has changed."""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyroaring import BitMap
from tests.kit.model import made_rows, sorted_rows

import glaive
from glaive.dataset.dataset import LanceDataset
from glaive.errors import (
    ColumnNotFoundError,
    CommitConflictError,
    CorruptFileError,
    DataFileMissingError,
    FilterError,
    GlaiveError,
    RefExistsError,
    RefNotFoundError,
    SchemaError,
    UnsupportedFeatureError,
    VersionNotFoundError,
)
from glaive.format.manifest import encode_manifest
from glaive.format.paths import manifest_path
from glaive.format.pb import table_pb2

os.environ.setdefault("LANCE_LOG", "error")

KEYED = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("number", pa.int64())])
ROWS = made_rows(range(30), 1)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    dataset = glaive.write_dataset(ROWS, tmp_path / "t", max_rows_per_file=10)
    dataset.delete("id % 10 = 3")
    dataset.tags.create("first", 1)
    return tmp_path / "t"


def contents(place: Path) -> dict[str, bytes]:
    return {str(one): one.read_bytes() for one in place.rglob("*") if one.is_file()}


def merged(dataset: LanceDataset, rows: pa.Table, on: str = "id") -> object:
    builder = dataset.merge_insert(on)
    return builder.when_matched_update_all().when_not_matched_insert_all().execute(rows)


def with_column(name: str, values: pa.Array) -> pa.Table:
    rows = made_rows(range(30, 33), 1)
    at = rows.schema.names.index(name)
    return rows.set_column(at, name, values)


NULL_IDS = pa.array([30, None, 32], pa.int64())
TWICE = made_rows([3, 4, 4, 99], 2)

REFUSED: dict[str, tuple[Callable[[LanceDataset], object], type[GlaiveError], str]] = {
    "delete by a column that is not there": (
        lambda at: at.delete("numbr = 1"), FilterError, "numbr.*number"),
    "delete by a wrong type": (
        lambda at: at.delete("words = 5"), FilterError, "words"),
    "delete by what is no test": (
        lambda at: at.delete("number + 1"), FilterError, "number"),
    "delete by no expression": (
        lambda at: at.delete("number ="), FilterError, "number"),
    "update of a column that is not there": (
        lambda at: at.update({"txt": "'a'"}), ColumnNotFoundError, "txt.*text"),
    "update with a column that is not there": (
        lambda at: at.update({"text": "txt"}), GlaiveError, "txt"),
    "update with a wrong type": (
        lambda at: at.update({"number": "words"}), GlaiveError, "number"),
    "update with text that is no number": (
        lambda at: at.update({"number": "'many'"}), GlaiveError, "number|many"),
    "update with null where none may be": (
        lambda at: at.update({"id": "NULL"}, "id = 5"), SchemaError, "id"),
    "append of a column that is not there": (
        lambda at: at.insert(ROWS.append_column("more", pa.array(range(30)))), SchemaError, "more"),
    "append of a wrong type": (
        lambda at: at.insert(with_column("number", pa.array(["a", "b", "c"]))),
        SchemaError, "number"),
    "append of nulls where none may be": (
        lambda at: at.insert(with_column("id", NULL_IDS)), SchemaError, "id"),
    "append without a column that takes no nulls": (
        lambda at: at.insert(ROWS.drop_columns(["id"])), SchemaError, "id"),
    "merge by a column that is not there": (
        lambda at: merged(at, ROWS, "key"), ColumnNotFoundError, "key"),
    "merge of rows without the key": (
        lambda at: merged(at, ROWS.drop_columns(["id"])), GlaiveError, "id"),
    "merge of a wrong type": (
        lambda at: merged(at, with_column("text", pa.array([[1], [2], [3]]))),
        GlaiveError, "text"),
    "merge of the same key twice": (
        lambda at: merged(at, TWICE), GlaiveError, "(?i)twice|more than one|several|ambiguous"),
    "merge of nulls where none may be": (
        lambda at: merged(at, with_column("id", NULL_IDS)), GlaiveError, "id"),
    "merge with a condition that is wrong": (
        lambda at: at.merge_insert("id").when_matched_update_all("source.numbr > 1").execute(ROWS),
        GlaiveError, "numbr"),
    "a version that is not there": (
        lambda at: at.checkout_version(99), VersionNotFoundError, r"99"),
    "a tag that is not there": (
        lambda at: at.checkout_version("frist"), RefNotFoundError, "frist.*first"),
    "a branch that is not there": (
        lambda at: at.checkout_version(("side", None)), RefNotFoundError, "side"),
    "a tag of a version that is not there": (
        lambda at: at.tags.create("new", 99), GlaiveError, "99"),
    "a tag that is there": (
        lambda at: at.tags.create("first", 2), RefExistsError, "first"),
    "update of a tag that is not there": (
        lambda at: at.tags.update("second", 1), RefNotFoundError, "second"),
    "deletion of a tag that is not there": (
        lambda at: at.tags.delete("second"), RefNotFoundError, "second"),
    "deletion of a branch that is not there": (
        lambda at: at.branches.delete("side"), RefNotFoundError, "side"),
    "a branch of a version that is not there": (
        lambda at: at.create_branch("side", 99), VersionNotFoundError, "99"),
    "a clean-up of what a tag names": (
        lambda at: at.cleanup_old_versions(timedelta(0)), GlaiveError, "first"),
    "metadata of a field that is not there": (
        lambda at: at.update_field_metadata({"numbr": {"a": "b"}}), ColumnNotFoundError, "numbr"),
}  # fmt: skip


@pytest.mark.sampled(every=5)
@pytest.mark.parametrize("what", REFUSED)
def test_it_is_said_what_is_wrong_and_nothing_is_changed(place: Path, what: str) -> None:
    change, kind, message = REFUSED[what]
    before, dataset = contents(place), glaive.dataset(place)
    with pytest.raises(kind, match=message):
        change(dataset)
    assert contents(place) == before
    assert dataset.version == 2
    # It can be used as before.
    assert dataset.delete("id = 0") == {"num_deleted_rows": 1}


# ------------------------------------------------------------------- conflicts


CONFLICTS: dict[str, tuple[Callable[[Any], object], Callable[[Any], object], str, bool, tuple]] = {
    "append after overwrite": (
        lambda at: at.insert(ROWS, mode="overwrite"),
        lambda at: at.insert(ROWS),
        "overwrite", False, ()),
    "compaction after delete": (
        lambda at: at.delete("id = 5"),
        lambda at: at.optimize.compact_files(),
        "delete", True, (0,)),
    "compaction after update": (
        lambda at: at.update({"text": "'x'"}, "id = 15"),
        lambda at: at.optimize.compact_files(),
        "update", True, (1,)),
    "compaction after compaction": (
        lambda at: at.optimize.compact_files(),
        lambda at: at.optimize.compact_files(),
        "rewrite", True, (0, 1, 2)),
    "configuration after the same": (
        lambda at: at.update_config({"a": "1"}),
        lambda at: at.update_config({"a": "2"}),
        "update_config", False, ()),
    "delete after overwrite": (
        lambda at: at.insert(ROWS, mode="overwrite"),
        lambda at: at.delete("id = 1"),
        "overwrite", False, ()),
    "update after restore": (
        lambda at: at.checkout_version(1).restore(),
        lambda at: at.update({"text": "'x'"}, "id = 15"),
        "restore", False, ()),
}  # fmt: skip


@pytest.mark.sampled(every=2)
@pytest.mark.parametrize("what", CONFLICTS)
def test_a_conflict_says_with_what_and_whether_to_try_again(place: Path, what: str) -> None:
    theirs, ours, operation, retryable, fragments = CONFLICTS[what]
    stale = glaive.dataset(place)
    theirs(glaive.dataset(place))
    newest = glaive.dataset(place)
    versions, rows = newest.version, sorted_rows(newest.to_table())
    with pytest.raises(CommitConflictError) as caught:
        ours(stale)
    error = caught.value
    assert error.operation == operation
    assert error.retryable is retryable
    assert error.fragments == fragments
    assert 2 < error.version <= versions + 1
    told = str(error)
    assert f"version {error.version}" in told
    assert f"concurrent transaction {operation.title().replace('_', '')}" in told
    assert str(place) in told
    assert all(str(one) in told for one in fragments)
    after = glaive.dataset(place)
    assert sorted_rows(after.to_table()) == rows
    assert stale.version == 2
    if retryable:
        stale.checkout_latest()
        ours(stale)


# ------------------------------------------------------------------- damage


def rewritten(place: Path, change: Callable[[Any], object]) -> None:
    """Write the newest manifest with a change."""
    manifest = glaive.dataset(place).manifest
    change(manifest.wire)
    pieces = encode_manifest(manifest.wire, transaction=b"", index_section=None)
    path = place / manifest_path(manifest.version, manifest.scheme)
    path.write_bytes(b"".join(bytes(memoryview(piece)) for piece in pieces))


CHANGES: dict[str, Callable[[LanceDataset], object]] = {
    "append": lambda at: at.insert(made_rows([500], 1)),
    "delete": lambda at: at.delete("id = 1"),
    "update": lambda at: at.update({"text": "'x'"}, "id = 1"),
    "merge": lambda at: merged(at, made_rows([1, 500], 3)),
    "compact": lambda at: at.optimize.compact_files(),
    "config": lambda at: at.update_config({"a": "b"}),
    "restore": lambda at: at.restore(),
    "tag": lambda at: at.tags.create("new", 2),
}


@pytest.mark.parametrize("change", [name for name in CHANGES if name != "tag"])
def test_a_feature_that_is_not_known_forbids_writing(place: Path, change: str) -> None:
    def mark(wire: Any) -> None:
        wire.writer_feature_flags |= 1 << 40

    rewritten(place, mark)
    before, dataset = contents(place), glaive.dataset(place)
    assert dataset.count_rows() == 27
    with pytest.raises(UnsupportedFeatureError, match=r"40|1099511627776"):
        CHANGES[change](dataset)
    assert contents(place) == before


@pytest.mark.parametrize("change", ["delete", "update", "merge", "compact"])
def test_a_data_file_that_is_gone_is_named(place: Path, change: str) -> None:
    (gone, *_) = glaive.dataset(place).get_fragments()[0].data_files()
    (place / "data" / gone.path).unlink()
    before, dataset = contents(place), glaive.dataset(place)
    with pytest.raises(DataFileMissingError, match=gone.path):
        CHANGES[change](dataset)
    assert contents(place) == before
    assert glaive.dataset(place).version == 2


@pytest.mark.parametrize("kind", ["arrow", "bitmap"])
@pytest.mark.parametrize("change", ["delete", "update", "merge", "compact"])
def test_deletions_beyond_the_rows_are_damage(place: Path, change: str, kind: str) -> None:
    dataset = glaive.dataset(place)
    (path,) = (place / "_deletions").glob("0-*")
    if kind == "arrow":
        rows = pa.array(np.array([10], np.uint32))
        schema = pa.schema([pa.field("row_id", pa.uint32(), nullable=False)])
        with pa.ipc.new_file(path, schema) as file:
            file.write_batch(pa.record_batch([rows], schema=schema))
    else:
        path.with_suffix(".bin").write_bytes(BitMap([10]).serialize())

        def mark(wire: Any) -> None:
            first = dataset.manifest.fragment_wire(0)
            first.deletion_file.file_type = table_pb2.DeletionFile.BITMAP
            wire.fragments[0] = first.SerializeToString()

        rewritten(place, mark)
    before, dataset = contents(place), glaive.dataset(place)
    with pytest.raises(CorruptFileError, match="offsets below 10, found 10") as caught:
        CHANGES[change](dataset)
    assert path.stem in str(caught.value)
    assert contents(place) == before
