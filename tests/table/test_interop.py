"""Versions made by one library are read, and built upon, by the other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from glaive.format.fields import LanceSchema
from glaive.format.fragment import DataFile, Fragment
from glaive.format.manifest import Feature, Manifest
from glaive.format.rowids import decode_row_ids, decode_versions
from glaive.format.transaction import Transaction
from glaive.io.local import LocalStore
from glaive.table.commit import commit_transaction
from glaive.table.deletions import load_deletions
from glaive.table.load import describe_versions, open_latest, open_version, read_transaction
from glaive.table.operations.overwrite import Append, Overwrite
from glaive.table.protocol import CommitOptions
from glaive.types import FormatVersion

lance = pytest.importorskip("lance", reason="install the 'interop' group")
pytestmark = pytest.mark.interop

TABLE = pa.table({"id": range(10), "name": [f"row {i}" for i in range(10)]})
NESTED = pa.schema(
    [
        pa.field(
            "s", pa.struct([("a", pa.int8()), ("b", pa.list_(pa.struct([("c", pa.int8())])))])
        ),
        pa.field("vector", pa.list_(pa.float16(), 8), metadata={"dimension": "8"}),
        pa.field("when", pa.timestamp("us", "+01:00"), nullable=False),
        pa.field("price", pa.decimal128(12, 2)),
        pa.field("kind", pa.dictionary(pa.int8(), pa.string())),
        pa.field("m", pa.map_(pa.string(), pa.int64())),
        pa.field("fs", pa.list_(pa.struct([("x", pa.int8())]), 2)),
        pa.field("empty", pa.struct([])),
    ],
    metadata={"owner": "me"},
)


def written(table: pa.Table, place: Path, version: str = "2.2") -> tuple[Fragment, ...]:
    """Data files of the other library, as fragments for a commit of ours."""
    made = lance.fragment.write_fragments(
        table, str(place), mode="append", data_storage_version=version
    )
    return tuple(map(as_fragment, made))


def as_fragment(metadata: Any) -> Fragment:
    return Fragment(
        files=tuple(
            DataFile(
                path=file.path,
                fields=tuple(file.fields),
                column_indices=tuple(file.column_indices),
                version=FormatVersion(file.file_major_version, file.file_minor_version),
                size=file.file_size_bytes,
            )
            for file in metadata.files
        ),
        physical_rows=metadata.physical_rows,
    )


def create(
    place: Path, table: pa.Table, options: CommitOptions | None = None, version: str = "2.2"
) -> Manifest:
    # The other library writes files beside a dataset only if there is one.
    elsewhere = place.with_name("elsewhere")
    lance.write_dataset(table, str(elsewhere), data_storage_version=version)
    fragments = tuple(
        as_fragment(one.metadata) for one in lance.dataset(str(elsewhere)).get_fragments()
    )
    (place / "data").parent.mkdir(exist_ok=True)
    (elsewhere / "data").rename(place / "data")
    operation = Overwrite(fragments=fragments, schema=LanceSchema.from_arrow(table.schema))
    transaction = Transaction(read_version=0, operation=operation)
    return commit_transaction(LocalStore(place), transaction, options=options)


# ------------------------------------------------------------ theirs, read by us


@pytest.mark.parametrize("v2_names", [True, False])
def test_their_versions_are_read(tmp_path: Path, *, v2_names: bool) -> None:
    place = str(tmp_path / "t")
    lance.write_dataset(TABLE, place, enable_v2_manifest_paths=v2_names)
    for _ in range(10):
        lance.write_dataset(TABLE, place, mode="append")
    store = LocalStore(place)
    manifest = open_latest(store)
    theirs = lance.dataset(place)
    assert manifest.version == theirs.version == 11
    assert manifest.scheme == ("V2" if v2_names else "V1")
    assert manifest.count_rows() == theirs.count_rows()
    assert open_version(store, 4).count_rows() == 40
    transaction = read_transaction(store, manifest)
    assert transaction is not None
    assert (transaction.read_version, transaction.operation.wire_name) == (10, "append")
    for mine, other in zip(describe_versions(store), theirs.versions(), strict=True):
        assert (mine.version, mine.metadata) == (other["version"], other["metadata"])
        # They round to microseconds on the way through a float.
        assert abs(mine.timestamp.timestamp() - other["timestamp"].timestamp()) < 1e-5


@pytest.mark.parametrize("version", ["2.0", "2.1", "2.2"])
def test_their_schemas_are_read(tmp_path: Path, version: str) -> None:
    schema = NESTED
    if version != "2.2":
        schema = pa.schema([one for one in NESTED if one.name not in ("m", "fs")])
    place = str(tmp_path / "t")
    lance.write_dataset(schema.empty_table(), place, data_storage_version=version)
    manifest = open_latest(LocalStore(place))
    assert manifest.schema.to_arrow().equals(lance.dataset(place).schema, check_metadata=True)
    assert str(manifest.data_format) == version
    mine = LanceSchema.from_arrow(schema).to_wire()
    for one in mine:
        # They write this empty message only when there are rows.
        one.ClearField("dictionary")
    assert mine == list(manifest.wire.fields)


@pytest.mark.spec("own-1", "own-3")
def test_their_columns_are_our_leaf_columns(tmp_path: Path) -> None:
    place = str(tmp_path / "t")
    row: dict[str, Any] = {
        "s": None,
        "when": 0,
        "price": None,
        "kind": None,
        "m": None,
        "empty": {},
    }
    table = pa.Table.from_pylist([row | {"vector": None, "fs": None}], schema=NESTED)
    lance.write_dataset(table, place, data_storage_version="2.2")
    manifest = open_latest(LocalStore(place))
    (file,) = manifest.fragment(0).files
    assert list(file.fields) == [one.id for one in manifest.schema.leaf_columns()]


@pytest.mark.spec("del-3")
@pytest.mark.parametrize("gone", [3, 6000])
def test_their_deletions_are_read(tmp_path: Path, gone: int) -> None:
    place = str(tmp_path / "t")
    lance.write_dataset(pa.table({"id": range(20_000)}), place)
    lance.dataset(place).delete(f"id % 3 = 0 AND id < {3 * gone}")
    store = LocalStore(place)
    manifest = open_latest(store)
    assert manifest.count_rows() == 20_000 - gone
    assert manifest.uses(Feature.DELETION_FILES)
    fragment = manifest.fragment(0)
    assert fragment.deletion_file is not None
    assert fragment.deletion_file.bitmap == (gone >= 5000)
    offsets = load_deletions(store, manifest, fragment)
    np.testing.assert_array_equal(offsets, np.arange(0, 3 * gone, 3))


def test_their_stable_row_ids_are_read(tmp_path: Path) -> None:
    place = str(tmp_path / "t")
    lance.write_dataset(TABLE, place, enable_stable_row_ids=True, max_rows_per_file=5)
    lance.dataset(place).update({"name": "'x'"}, where="id IN (1, 7, 8)")
    lance.dataset(place).optimize.compact_files()
    manifest = open_latest(LocalStore(place))
    columns = ["_rowid", "_row_created_at_version", "_row_last_updated_at_version"]
    theirs = lance.dataset(place).to_table(columns=columns)
    ids, created, updated = [], [], []
    for one in manifest.fragments():
        rows = one.physical_rows
        ids += decode_row_ids(one.row_ids or b"", rows, where="t").tolist()
        created += decode_versions(one.created_at or b"", rows, where="t").tolist()
        updated += decode_versions(one.updated_at or b"", rows, where="t").tolist()
    assert [ids, created, updated] == [theirs[name].to_pylist() for name in columns]


# ------------------------------------------------------------ ours, read by them


@pytest.mark.parametrize("version", ["2.0", "2.1", "2.2"])
@pytest.mark.parametrize("v2_names", [True, False])
def test_our_versions_are_read_by_them(tmp_path: Path, version: str, *, v2_names: bool) -> None:
    place = tmp_path / "t"
    base = create(place, TABLE, CommitOptions(enable_v2_manifest_paths=v2_names), version)
    more = Append(written(TABLE, place, version))
    transaction = Transaction(
        read_version=1, operation=more, properties={"__lance_commit_message": "more"}
    )
    commit_transaction(LocalStore(place), transaction, base=base)
    dataset = lance.dataset(str(place))
    assert dataset.version == 2
    assert dataset.data_storage_version == version
    assert dataset.to_table() == pa.concat_tables([TABLE, TABLE])
    assert lance.dataset(str(place), version=1).to_table() == TABLE
    assert [one.fragment_id for one in dataset.get_fragments()] == [0, 1]
    found = dataset.get_transactions()[0]
    assert found.transaction_properties == {"__lance_commit_message": "more"}
    assert found.uuid == transaction.uuid


def test_they_go_on_from_our_versions_and_we_from_theirs(tmp_path: Path) -> None:
    place = tmp_path / "t"
    base = create(place, TABLE)
    stale = lance.dataset(str(place))
    store = LocalStore(place)
    commit_transaction(
        store, Transaction(read_version=1, operation=Append(written(TABLE, place))), base=base
    )
    stale.delete("id = 3")
    lance.write_dataset(TABLE, str(place), mode="append")
    late = commit_transaction(
        store, Transaction(read_version=1, operation=Append(written(TABLE, place))), base=base
    )
    assert late.version == 5
    assert late.fragment_ids.tolist() == [0, 1, 2, 3]
    assert late.uses(Feature.DELETION_FILES)
    dataset = lance.dataset(str(place))
    assert dataset.count_rows() == late.count_rows() == 39
    dataset.optimize.compact_files()
    assert open_latest(store).count_rows() == 39


def test_our_stable_row_ids_are_read_by_them(tmp_path: Path) -> None:
    place = tmp_path / "t"
    base = create(place, TABLE, CommitOptions(enable_stable_row_ids=True))
    commit_transaction(
        LocalStore(place),
        Transaction(read_version=1, operation=Append(written(TABLE, place))),
        base=base,
    )
    dataset = lance.dataset(str(place))
    assert dataset.has_stable_row_ids
    columns = ["_rowid", "_row_created_at_version", "_row_last_updated_at_version"]
    assert dataset.to_table(columns=columns).to_pydict() == {
        "_rowid": list(range(20)),
        "_row_created_at_version": [1] * 10 + [2] * 10,
        "_row_last_updated_at_version": [1] * 10 + [2] * 10,
    }
    dataset.update({"name": "'x'"}, where="id = 4")
    assert lance.dataset(str(place)).count_rows("name = 'x'") == 2


def test_indices_and_configuration_survive_our_commits(tmp_path: Path) -> None:
    place = tmp_path / "t"
    lance.write_dataset(TABLE, str(place))
    dataset = lance.dataset(str(place))
    dataset.create_scalar_index("id", "BTREE")
    dataset.update_config({"a": "b"})
    store = LocalStore(place)
    base = open_latest(store)
    more = Append(written(TABLE, place))
    made = commit_transaction(store, Transaction(read_version=base.version, operation=more))
    assert [one.name for one in made.indices] == ["id_idx"]
    again = lance.dataset(str(place))
    assert [one.name for one in again.describe_indices()] == ["id_idx"]
    assert again.config() == {"a": "b"}
    assert again.to_table(filter="id = 4").num_rows == 2
    replaced = Overwrite(
        fragments=written(TABLE, place), schema=LanceSchema.from_arrow(TABLE.schema)
    )
    commit_transaction(store, Transaction(read_version=made.version, operation=replaced))
    after = lance.dataset(str(place))
    assert after.describe_indices() == []
    assert after.config() == {"a": "b"}
    assert after.to_table() == TABLE


def test_our_schemas_are_read_by_them(tmp_path: Path) -> None:
    place = tmp_path / "t"
    operation = Overwrite(fragments=(), schema=LanceSchema.from_arrow(NESTED))
    commit_transaction(LocalStore(place), Transaction(read_version=0, operation=operation))
    assert lance.dataset(str(place)).schema.equals(NESTED, check_metadata=True)
