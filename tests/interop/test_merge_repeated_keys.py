"""Merges with several source rows of one key: the condition may choose one, in both libraries."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import glaive
from glaive.errors import SchemaError

lance = pytest.importorskip("lance", reason="install the 'interop' group")

pytestmark = pytest.mark.interop

SOURCES = {
    "one of two": [(2, 25), (2, 5)],
    "one of two, the last": [(2, 5), (2, 25)],
    "none": [(2, 5), (2, 6)],
    "one of three, and others": [(2, 5), (2, 25), (2, 6), (3, 1), (3, 99), (9, 9)],
    "one of two, beside a null": [(2, None), (2, 25), (None, 25), (None, 26)],
    "two": [(2, 25), (2, 26)],
    "the same row twice": [(2, 25), (2, 25)],
    "two of three, only for one row": [(2, 25), (2, 29), (2, 1)],
}
REFUSED = {"two", "the same row twice", "two of three, only for one row"}


def outcome(library: Any, place: Path, rows: list[Any], columns: list[str], kind: str) -> Any:
    target = {"id": [1, 2, 2, 3], "v": [10, 20, 28, 30], "w": [0, 0, 0, 0]}
    library.write_dataset(pa.table(target), str(place))
    dataset = library.dataset(str(place))
    builder = dataset.merge_insert("id").when_matched_update_all("source.v > target.v")
    if kind != "update":
        builder = builder.when_not_matched_insert_all()
    if kind == "replace":
        builder = builder.when_not_matched_by_source_delete("v > 5")
    source = pa.table({"id": [row[0] for row in rows], "v": [row[1] for row in rows]})
    source = source.append_column("w", pa.array([7] * len(rows))).select(columns)
    try:
        counts = builder.execute(source)
    except (SchemaError, OSError) as error:
        return "refused" if "Ambiguous merge inserts are prohibited" in str(error) else str(error)
    after = library.dataset(str(place)).to_table().to_pylist()
    return counts, sorted(after, key=repr)


@pytest.mark.sampled(every=4)
@pytest.mark.parametrize("kind", ["update", "upsert", "replace"])
@pytest.mark.parametrize("columns", [["id", "v", "w"], ["id", "v"]], ids=len)
@pytest.mark.parametrize("name", SOURCES)
def test_the_condition_chooses_one_of_the_rows_of_a_key(
    name: str, columns: list[str], kind: str, tmp_path: Path
) -> None:
    ours, theirs = (
        outcome(library, tmp_path / library.__name__, SOURCES[name], columns, kind)
        for library in (glaive, lance)
    )
    assert ours == theirs
    assert (ours == "refused") is (name in REFUSED)
