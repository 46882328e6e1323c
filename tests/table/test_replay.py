"""What the other library committed, applied again by our operations, gives the same versions."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from glaive.format.manifest import Manifest
from glaive.io.local import LocalStore
from glaive.table.load import open_version, read_transaction
from glaive.table.protocol import BuildContext, read_operation

from .compare import content

lance = pytest.importorskip("lance", reason="install the 'interop' group")
pytestmark = pytest.mark.interop

TABLE = pa.table(
    {
        "a": pa.array(range(40), pa.int64()),
        "b": pa.array(range(40), pa.int64()),
        "c": [f"row {i}" for i in range(40)],
    },
    schema=pa.schema(
        [("a", pa.int64()), ("b", pa.int64()), ("c", pa.string())], metadata={"owner": "me"}
    ),
)


def upsert(dataset: Any, rows: pa.Table) -> None:
    merge = dataset.merge_insert("a").when_matched_update_all().when_not_matched_insert_all()
    merge.execute(rows)


def rows(first: int, count: int) -> pa.Table:
    return pa.table(
        {
            "a": pa.array(range(first, first + count), pa.int64()),
            "b": pa.array([7] * count, pa.int64()),
            "c": ["new"] * count,
        }
    )


def column_update(dataset: Any) -> None:
    changed = pa.table({"a": pa.array([1, 2], pa.int64()), "b": pa.array([5, 6], pa.int64())})
    dataset.merge_insert("a").when_matched_update_all().execute(changed)


def remove_field_metadata(dataset: Any) -> None:
    dataset.update_field_metadata({"a": {"unit": None, "x": "y"}})


STEPS: dict[str, Callable[[Any], Any]] = {
    "append": lambda ds: lance.write_dataset(rows(100, 5), ds, mode="append"),
    "index a": lambda ds: ds.create_scalar_index("a", "BTREE"),
    "index b": lambda ds: ds.create_scalar_index("b", "BITMAP"),
    "delete": lambda ds: ds.delete("a in (3, 13, 14, 101)"),
    "update": lambda ds: ds.update({"b": "b + 1"}, where="a in (4, 5, 15)"),
    "upsert": lambda ds: upsert(ds, rows(6, 2).slice(0, 1)),
    "upsert and insert": lambda ds: upsert(ds, rows(102, 20)),
    "update a fragment": lambda ds: ds.update({"b": "b + 1"}, where="a >= 20 and a < 30"),
    "columns": column_update,
    "nothing": lambda ds: ds.delete("a < 0"),
    "config": lambda ds: ds.update_config({"k": "v", "x": "y"}),
    "config off": lambda ds: ds.delete_config_keys(["k"]),
    "schema metadata": lambda ds: ds.update_schema_metadata({"s": "1"}),
    "field metadata": lambda ds: ds.update_field_metadata({"a": {"unit": "m", "z": "1"}}),
    "field metadata off": remove_field_metadata,
    "compact": lambda ds: ds.optimize.compact_files(target_rows_per_fragment=30),
    "add": lambda ds: ds.add_columns({"d": "a + 1"}),
    "add nulls": lambda ds: ds.add_columns(pa.field("e", pa.int32())),
    "rename": lambda ds: ds.alter_columns({"path": "d", "name": "dd"}),
    "cast": lambda ds: ds.alter_columns({"path": "dd", "data_type": pa.int32()}),
    "tighten": lambda ds: ds.alter_columns({"path": "a", "nullable": False}),
    "drop": lambda ds: ds.drop_columns(["b"]),
    "drop index": lambda ds: ds.drop_index("a_idx"),
    "restore": lambda ds: lance.dataset(ds.uri, version=7).restore(),
    "overwrite": lambda ds: lance.write_dataset(rows(0, 9), ds.uri, mode="overwrite"),
    "delete all": lambda ds: ds.delete("true"),
    "append again": lambda ds: lance.write_dataset(rows(0, 9), ds.uri, mode="append"),
}


@pytest.mark.sampled(every=2)
@pytest.mark.spec("build-6", "build-8", "build-9", "build-10", "build-11")
@pytest.mark.spec("delete-1", "delete-2", "create-index-1", "rewrite-1", "rewrite-2", "rewrite-3")
@pytest.mark.spec("merge-1", "restore-1", "reserve-1", "update-1", "update-2", "project-1")
@pytest.mark.parametrize("stable", [False, True])
@pytest.mark.parametrize("version", ["2.0", "2.2"])
def test_each_version_follows_from_the_one_before(
    tmp_path: Path, version: str, *, stable: bool
) -> None:
    place = str(tmp_path / "t")
    lance.write_dataset(
        TABLE,
        place,
        max_rows_per_file=10,
        data_storage_version=version,
        enable_stable_row_ids=stable,
    )
    store = LocalStore(place)
    done = 1
    for name, step in STEPS.items():
        step(lance.dataset(place))
        newest = lance.dataset(place).version
        assert newest > done, name
        for number in range(done + 1, newest + 1):
            made = open_version(store, number)
            assert replayed(store, made) == content(made), f"{name}, version {number}"
        done = newest


def replayed(store: LocalStore, made: Manifest) -> dict[str, Any]:
    """The content of a version as our operation makes it of the version before."""
    transaction = read_transaction(store, made)
    assert transaction is not None
    operation = read_operation(transaction.operation)
    base = open_version(store, made.version - 1)
    older = None if operation.restored is None else open_version(store, operation.restored)
    draft = operation.apply(base, BuildContext(made.version, older=older))
    draft.wire.version = made.version
    ours = Manifest(draft.wire, where="ours", index_section=draft.index_section)
    # Flags are set by the commit.
    draft.wire.reader_feature_flags = made.wire.reader_feature_flags
    draft.wire.writer_feature_flags = made.wire.writer_feature_flags
    return content(ours)
