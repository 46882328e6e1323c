"""Registers of versions in SQLite files."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pyarrow as pa
import pytest

import glaive
from glaive.errors import StoreError

ROWS = pa.table({"id": range(10)})


def register(place: Path) -> Path:
    """The register of a dataset that has one."""
    glaive.write_dataset(ROWS, place, manifest_store="sqlite")
    return place / "_manifests.sqlite"


def read(place: Path) -> int:
    return glaive.dataset(place, manifest_store="sqlite").count_rows()


def change(file: Path, *statements: str) -> None:
    connection = sqlite3.connect(file)
    for statement in statements:
        connection.execute(statement)
    connection.commit()
    connection.close()


@pytest.mark.parametrize("wrong", ["path = x'ff'", "version = 'newest'"])
def test_an_entry_of_other_types_is_an_error_that_shows_it(tmp_path: Path, wrong: str) -> None:
    change(register(tmp_path / "t"), f"UPDATE manifests SET {wrong}")
    with pytest.raises(StoreError, match=r"expected a version and a path, found \(.*\)"):
        read(tmp_path / "t")


def test_a_register_may_be_in_a_file_with_other_tables(tmp_path: Path) -> None:
    change(tmp_path / "m.sqlite", "CREATE TABLE mine (a)", "CREATE VIEW all_mine AS SELECT 1")
    place = f"sqlite://{tmp_path}/m.sqlite"
    for mode in ("create", "append"):
        glaive.write_dataset(ROWS, tmp_path / "t", mode=mode, manifest_store=place)
    assert glaive.dataset(tmp_path / "t", manifest_store=place).count_rows() == 20
