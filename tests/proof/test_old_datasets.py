"""Datasets of old releases are changed as pylance changes them, and read by both afterwards."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.historical import EXPECTED, FURTHER, copied, needs_further, rows_of

import glaive
from glaive.errors import GlaiveError

os.environ.setdefault("LANCE_LOG", "error")
lance: Any = pytest.importorskip("lance", reason="install the 'interop' group")


pytestmark = pytest.mark.interop

Change = Callable[[Any, str, str, pa.Table], object]
"""Library, place, name of a column with plain values, and rows of the dataset."""

REPAIRED = {"v0.10.5/corrupt_schema": ["append", "delete", "update", "merge", "compact", "config"]}
"""Where pylance repairs a defect when it writes, and reads other values than before."""
LEFT = {"v0.16.0/wrong_data_version_can_fix.lance": ["config"]}
"""Where pylance repairs a defect when it writes, without which it reads nothing."""


def text_of(value: Any) -> str:
    return f"'{value}'" if isinstance(value, str) else str(value)


def value_in(rows: pa.Table, column: str) -> str:
    values = rows[column].drop_null().to_pylist()
    return text_of(values[len(values) // 2]) if values else "NULL"


def merge(lib: Any, at: str, column: str, rows: pa.Table) -> object:
    builder = lib.dataset(at).merge_insert(column)
    once = rows.group_by(column).aggregate([]).slice(0, 1)
    source = rows.slice(0, 1) if once.num_rows else rows
    return builder.when_matched_update_all().when_not_matched_insert_all().execute(source)


def append(lib: Any, at: str, _: str, rows: pa.Table) -> object:
    return lib.write_dataset(rows.slice(0, 2), at, mode="append")


def delete(lib: Any, at: str, column: str, rows: pa.Table) -> object:
    return lib.dataset(at).delete(f"{column} = {value_in(rows, column)}")


def update(lib: Any, at: str, column: str, rows: pa.Table) -> object:
    where = f"{column} = {value_in(rows, column)}"
    return lib.dataset(at).update({column: column}, where)


def overwrite(lib: Any, at: str, *_: object) -> object:
    return lib.write_dataset(pa.table({"a": [1, 2]}), at, mode="overwrite")


def compact(lib: Any, at: str, *_: object) -> object:
    return lib.dataset(at).optimize.compact_files(materialize_deletions_threshold=0.0)


CHANGES: dict[str, Change] = {
    "nothing": lambda *_: None,
    "append": append,
    "overwrite": overwrite,
    "delete": delete,
    "delete all": lambda lib, at, *_: lib.dataset(at).delete("true"),
    "update": update,
    "merge": merge,
    "compact": compact,
    "restore": lambda lib, at, *_: lib.dataset(at, version=1).restore(),
    "config": lambda lib, at, *_: lib.dataset(at).update_config({"a": "b"}),
    "tag": lambda lib, at, *_: lib.dataset(at).tags.create("first", 1),
    "branch": lambda lib, at, *_: lib.dataset(at).create_branch("side"),
    "rename manifests": lambda lib, at, *_: lib.dataset(at).migrate_manifest_paths_v2(),
}


def seen(library: Any, place: str, column: str) -> dict[str, Any]:
    """What a library reads of the newest version; or that it cannot."""
    opened = library.dataset(place)
    table = opened.to_table(with_row_id=True)
    found = {
        "version": opened.version,
        "schema": opened.schema,
        "rows": table.to_pylist(),
        "count": opened.count_rows(),
        "fragments": [
            (one.fragment_id, one.physical_rows, one.num_deletions)
            for one in opened.get_fragments()
        ],
        "config": opened.config(),
        "tags": {name: one["version"] for name, one in opened.tags.list().items()},
        "branches": sorted(opened.branches.list()),
    }
    if column in table.schema.names:
        value = value_in(table, column)
        for filter in (f"{column} = {value}", f"{column} IS NOT NULL", f"{column} < {value}"):
            found[filter] = opened.to_table(filter=filter).to_pylist()
    return found


def plain_column(table: pa.Table) -> str:
    for field in table.schema:
        if pa.types.is_integer(field.type) or pa.types.is_string(field.type):
            return field.name
    return table.schema.names[0]


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("name", EXPECTED)
def test_both_change_it_alike(name: str, change: str, tmp_path: Path) -> None:
    newest = max(EXPECTED[name], key=int)
    rows = rows_of(name, newest)
    column = plain_column(rows)
    outcomes: list[Exception | None] = []
    for library, refused in ((lance, Exception), (glaive, GlaiveError)):
        place = str(copied(name, tmp_path / library.__name__))
        try:
            CHANGES[change](library, place, column, rows)
        except refused as error:
            outcomes.append(error)
        else:
            outcomes.append(None)
    theirs, ours = str(tmp_path / "lance"), str(tmp_path / "glaive")
    try:
        expected = seen(lance, theirs, column)
    except Exception as error:
        # Pylance cannot change it, or not read it afterwards.
        outcomes[0] = outcomes[0] or error
    if change in REPAIRED.get(name, ()):
        assert outcomes[1] is None
        assert seen(lance, ours, column) == seen(glaive, ours, column)
    elif outcomes[0] is None and change not in LEFT.get(name, ()):
        assert outcomes[1] is None
        assert seen(glaive, theirs, column) == expected
        assert seen(glaive, ours, column) == expected
        assert seen(lance, ours, column) == expected
    # No version that was there before has changed.
    for version in EXPECTED[name]:
        assert glaive.dataset(ours, version=int(version)).to_table() == rows_of(name, version)


@needs_further
@pytest.mark.parametrize("place", FURTHER, ids=str)
def test_both_read_further_datasets_alike(place: Path, tmp_path: Path) -> None:
    at = tmp_path / "t"
    shutil.copytree(place, at)
    versions = [one["version"] for one in lance.dataset(at).versions()]
    assert [one["version"] for one in glaive.dataset(at).versions()] == versions
    for version in versions:
        try:
            expected = lance.dataset(at, version=version).to_table(with_row_id=True)
        except OSError:  # its files are not here
            with pytest.raises(OSError, match=str(at)):
                glaive.dataset(at, version=version).to_table(with_row_id=True)
        else:
            found = glaive.dataset(at, version=version)
            assert found.to_table(with_row_id=True) == expected
            assert found.count_rows() == expected.num_rows
