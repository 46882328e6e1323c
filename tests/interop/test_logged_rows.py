"""Rows that pylance keeps in a log beside a table (MemWAL) stay whole, whatever glaive changes."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pytest

import glaive
from glaive.errors import SchemaError

lance = pytest.importorskip("lance", reason="install the 'interop' group")

pytestmark = pytest.mark.interop

SHARD = str(uuid4())
KEY = {"lance-schema:unenforced-primary-key": "true"}
SCHEMA = pa.schema(
    [pa.field("id", pa.int64(), nullable=False, metadata=KEY), pa.field("v", pa.float32())]
)


def rows(*ids: int) -> pa.Table:
    return pa.table({"id": ids, "v": [one / 2 for one in ids]}, schema=SCHEMA)


@pytest.fixture
def place(tmp_path: Path) -> str:
    """A table of two rows, with two more in its log, one of them with a key that is there."""
    place = str(tmp_path / "t")
    table = lance.write_dataset(rows(1, 2), place)
    table.initialize_mem_wal()
    with table.mem_wal_writer(SHARD) as writer:
        writer.put(rows(2, 3))
    return place


def all_rows(place: str) -> pa.Table:
    with lance.dataset(place).mem_wal_writer(SHARD) as writer:
        return writer.lsm_scanner().to_table().sort_by("id")


@pytest.mark.sampled(every=2)
@pytest.mark.spec("rel-13")
@pytest.mark.parametrize(
    "change",
    [
        lambda table: table.add_columns({"w": "v + 1"}),
        lambda table: table.add_columns(lambda batch: batch.rename_columns(["a", "b"])),
        lambda table: table.alter_columns({"path": "v", "data_type": pa.float64()}),
        lambda table: table.alter_columns({"path": "v", "nullable": False}),
        lambda table: table.alter_columns({"path": "id", "name": "key"}),
        lambda table: table.update_field_metadata({"id": dict.fromkeys(KEY)}),
        lambda table: table.update_field_metadata({"id": {"a": "b"}}, replace=True),
    ],
    ids=["expression", "function", "type", "no nulls", "name of the key", "no key", "all new"],
)
def test_columns_are_not_changed_where_logged_rows_would_lose_values(
    place: str, change: Callable[[Any], object]
) -> None:
    for library, refusal in ((lance, OSError), (glaive, SchemaError)):
        with pytest.raises(refusal, match=r"MemWAL|primary key"):
            change(library.dataset(place))
    assert all_rows(place).to_pydict() == rows(1, 2, 3).to_pydict()


@pytest.mark.sampled(every=2)
@pytest.mark.spec("rel-14")
@pytest.mark.parametrize(
    "change",
    [
        lambda table: table.optimize.compact_files(),
        lambda table: table.update({"v": "v"}, where="id = 1"),
        lambda table: table.create_scalar_index("v", "BTREE"),
        lambda table: table.add_columns(pa.schema([pa.field("w", pa.int32())])),
        lambda table: table.alter_columns({"path": "v", "name": "other"}),
        lambda table: table.cleanup_old_versions(timedelta(0), delete_unverified=True),
    ],
    ids=["compaction", "update", "index", "column without values", "name", "clean-up"],
)
def test_logged_rows_stay_whatever_else_is_done(
    place: str, change: Callable[[Any], object]
) -> None:
    change(glaive.dataset(place))
    glaive.dataset(place).cleanup_old_versions(timedelta(0), delete_unverified=True)
    found = all_rows(place)
    assert found["id"].to_pylist() == [1, 2, 3]
    assert found.column(1).to_pylist() == [0.5, 1, 1.5]
