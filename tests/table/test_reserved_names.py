"""Columns that other writers gave names which are reserved for what is known of each row."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import glaive
from glaive.errors import OptionError, SchemaError

ROWS = pa.table({"id": [1, 2, 3, 4], "other": [3, 2, 1, 0]})


def _deleted(dataset: glaive.LanceDataset) -> list[glaive.fragment.FragmentMetadata]:
    (fragment,) = dataset.get_fragments()
    changed = fragment.delete("id = 1")
    assert changed is not None
    return [changed]


CHANGES: dict[str, Callable[[glaive.LanceDataset], object]] = {
    "merge": lambda at: at.merge_insert("id").when_matched_delete().execute(pa.table({"id": [1]})),
    "update": lambda at: at.update({"id": "9"}, where="id = 1"),
    "delete": lambda at: at.delete("id = 1"),
    "delete in a fragment": lambda at: glaive.LanceDataset.commit(
        at.uri, glaive.LanceOperation.Delete(_deleted(at), [], "id = 1"), read_version=1
    ),
    "index": lambda at: at.create_scalar_index("id", "BTREE"),
    "expression": lambda at: at.add_columns({"twice": "id * 2"}),
}


@pytest.fixture(params=["_rowid", "_rowaddr", "_row_created_at_version"])
def place(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """Return a dataset with numbers of rows, but not its own, under a reserved name."""
    name: str = request.param
    as_written = f"x{name[1:]}"
    rows = ROWS.rename_columns({"other": as_written})
    glaive.write_dataset(rows, tmp_path / "t", enable_stable_row_ids=True)
    (manifest,) = (tmp_path / "t" / "_versions").glob("*.manifest")
    manifest.write_bytes(manifest.read_bytes().replace(as_written.encode(), name.encode()))
    return tmp_path / "t"


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_no_change_takes_values_of_a_column_for_addresses_of_rows(
    place: Path, change: Callable[[Any], object]
) -> None:
    with pytest.raises((SchemaError, OptionError)):
        change(glaive.dataset(place))

    assert glaive.dataset(place).to_table().columns == ROWS.columns


def test_the_column_is_readable_and_can_be_renamed(place: Path) -> None:
    dataset = glaive.dataset(place)
    name = dataset.schema.names[1]
    dataset.alter_columns({"path": name, "name": "other"})
    assert dataset.to_table() == ROWS

    merge = glaive.dataset(place).merge_insert("id").when_matched_delete()
    merge.execute(pa.table({"id": [1]}))
    assert glaive.dataset(place).to_table()["id"].to_pylist() == [2, 3, 4]


def test_a_commit_with_such_a_column_makes_no_version(tmp_path: Path) -> None:
    glaive.write_dataset(ROWS, tmp_path)
    schema = pa.schema([("id", pa.int64()), ("_rowaddr", pa.int64())])
    with pytest.raises(SchemaError, match=r"'_rowaddr'.*Nothing was changed"):
        glaive.LanceDataset.commit(
            str(tmp_path), glaive.LanceOperation.Overwrite(schema, []), read_version=1
        )
    assert glaive.dataset(tmp_path).version == 1


READS: dict[str, Callable[[Any], object]] = {
    "row ids": lambda at: at.to_table(with_row_id=True),
    "row addresses": lambda at: at.to_table(with_row_address=True),
    "deleted ids": lambda at: at.delta(begin_version=1, end_version=1).get_deleted_row_ids(),
    "new rows": lambda at: at.delta(compared_against=0).get_inserted_rows(),
    "text search": lambda at: at.to_table(full_text_query={"columns": ["text"], "query": "a"}),
    "merge": CHANGES["merge"],
    "update": CHANGES["update"],
    "delete in a fragment": _deleted,
    "index": lambda at: at.create_index_uncommitted("id", "BTREE"),
    "set of keys": lambda at: at.create_scalar_index("id", "BITMAP"),
}


@pytest.mark.parametrize("name", ["_rowid", "_rowaddr"])
@pytest.mark.parametrize(
    "other",
    [
        pa.array([True, False, True, None]),
        pa.array(["a", "b", "c", "d"]),
        pa.array([[1], [2], None, []], pa.list_(pa.int32())),
        pa.array([{"a": 1}, {"a": 2}, None, {"a": 3}]),
        pa.array([1, 2, 3, 4], pa.timestamp("us")),
    ],
    ids=lambda array: str(array.type),
)
def test_values_of_any_type_are_not_taken_for_numbers_of_rows(
    tmp_path: Path, name: str, other: pa.Array
) -> None:
    rows = pa.table({"id": [1, 2, 3, 4], "text": ["a", "b", "a", "b"], f"x{name[1:]}": other})
    glaive.write_dataset(rows, tmp_path / "t", enable_stable_row_ids=True)
    (manifest,) = (tmp_path / "t" / "_versions").glob("*.manifest")
    written = manifest.read_bytes().replace(f"x{name[1:]}".encode(), name.encode())
    manifest.write_bytes(written)

    refused = []
    for what, read in READS.items():
        try:
            read(glaive.dataset(tmp_path / "t"))
        except (SchemaError, OptionError):
            refused.append(what)
    assert {"merge", "set of keys", "row ids" if name == "_rowid" else "row addresses"} <= {
        *refused
    }
    assert glaive.dataset(tmp_path / "t").to_table().column(2).combine_chunks() == other
