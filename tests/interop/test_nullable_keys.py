"""Columns of a declared primary key are not null: pylance refuses a table where they may be."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.table.places import change_newest

import glaive
from glaive.errors import SchemaError
from glaive.io.access import open_store

lance = pytest.importorskip("lance", reason="install the 'interop' group")

pytestmark = pytest.mark.interop

KEY = {"lance-schema:unenforced-primary-key": "true"}
PLACED = {"lance-schema:unenforced-primary-key:position": "1"}


def table(*, nullable: bool, metadata: Any = KEY) -> pa.Table:
    field = pa.field("id", pa.int64(), nullable, metadata)
    return pa.table({"id": [1, 2], "v": [0.5, 1.0]}, pa.schema([field, pa.field("v", "double")]))


@pytest.mark.parametrize("metadata", [KEY, PLACED], ids=["declared", "with a place"])
@pytest.mark.parametrize("mode", ["create", "overwrite"])
def test_neither_library_writes_a_key_that_may_be_null(
    tmp_path: Path, mode: str, metadata: Any
) -> None:
    for library, refusal in ((lance, OSError), (glaive, SchemaError)):
        place = tmp_path / library.__name__
        if mode == "overwrite":
            lance.write_dataset(table(nullable=False), place)
        with pytest.raises(refusal, match=r"(?i)primary key"):
            library.write_dataset(table(nullable=True, metadata=metadata), place, mode=mode)
        files = [path for path in place.rglob("*.lance") if path.is_file()]
        assert len(files) == (1 if mode == "overwrite" else 0)


@pytest.mark.parametrize(("outer", "inner"), [(True, False), (False, True)])
def test_nor_one_in_a_struct_where_either_may_be_null(
    tmp_path: Path, *, outer: bool, inner: bool
) -> None:
    key = pa.field("id", pa.int64(), inner, KEY)
    schema = pa.schema([pa.field("s", pa.struct([key]), outer)])
    for library, refusal in ((lance, OSError), (glaive, SchemaError)):
        with pytest.raises(refusal, match=r"(?i)primary key"):
            library.write_dataset(pa.table({"s": [{"id": 1}]}, schema), tmp_path / "t")


def test_nor_does_a_commit_by_hand(tmp_path: Path) -> None:
    for library, refusal in ((lance, RuntimeError), (glaive, SchemaError)):
        operation = library.LanceOperation.Overwrite(table(nullable=True).schema, [])
        with pytest.raises(refusal, match=r"(?i)primary key"):
            library.LanceDataset.commit(tmp_path / "t", operation)
        assert not list(tmp_path.rglob("*.manifest"))


@pytest.mark.parametrize("path", ["id", "s", "s.id"])
def test_neither_library_lets_a_key_become_null(tmp_path: Path, path: str) -> None:
    key = pa.field("id", pa.int64(), nullable=False, metadata=KEY)
    fields = [key, pa.field("s", pa.struct([key]), nullable=False)]
    rows = pa.table({"id": [1], "s": [{"id": 1}]}, pa.schema(fields))
    lance.write_dataset(rows, tmp_path / "t")
    for library, refusal in ((lance, OSError), (glaive, SchemaError)):
        with pytest.raises(refusal, match=r"(?i)primary key"):
            library.dataset(tmp_path / "t").alter_columns({"path": path, "nullable": True})
    assert lance.dataset(tmp_path / "t").version == 1


def test_nor_a_column_that_may_be_null_become_a_key(tmp_path: Path) -> None:
    plain = table(nullable=True, metadata=None)
    for library, refusal in ((lance, OSError), (glaive, SchemaError)):
        place = tmp_path / library.__name__
        lance.write_dataset(plain, place)
        with pytest.raises(refusal, match=r"(?i)primary key"):
            library.dataset(place).update_field_metadata({"id": KEY})
        assert lance.dataset(place).to_table() == plain


def test_a_column_becomes_a_key_once_it_is_not_null(tmp_path: Path) -> None:
    glaive.write_dataset(table(nullable=True, metadata=None), tmp_path / "t")
    made = glaive.dataset(tmp_path / "t")
    made.alter_columns({"path": "id", "nullable": False})
    made.update_field_metadata({"id": KEY})
    assert lance.dataset(tmp_path / "t").count_rows() == 2


def test_values_are_not_computed_for_a_table_whose_key_may_be_null_already(tmp_path: Path) -> None:
    """An earlier glaive has made some; once the key is not null, pylance opens them."""
    glaive.write_dataset(table(nullable=False), tmp_path / "t")
    change_newest(open_store(tmp_path / "t"), nullable=True)
    made = glaive.dataset(tmp_path / "t")
    assert made.count_rows("v > 0.7") == 1

    given: list[int] = []

    def compute(rows: pa.RecordBatch) -> pa.RecordBatch:
        given.append(rows.num_rows)
        return rows.rename_columns(["w"])

    with pytest.raises(SchemaError, match="'id' is of the primary key"):
        made.add_columns(compute, read_columns=["v"])
    assert given == [1]  # for the type of its values
    with pytest.raises(SchemaError, match="'id' is of the primary key"):
        made.add_columns({"w": "v + 1"})
    made.alter_columns({"path": "id", "nullable": False})
    made.add_columns({"w": "v + 1"})
    assert lance.dataset(tmp_path / "t").to_table()["w"].to_pylist() == [1.5, 2.0]
