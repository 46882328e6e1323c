"""Features that a manifest has in one of its two words of flags only are used all the same."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import glaive
from glaive.format.manifest import Feature, encode_manifest

MORE = pa.table({"id": [3, 100], "x": [0, 0]})
CHANGES: dict[str, Callable[[glaive.LanceDataset], Any]] = {
    "append": lambda at: at.insert(MORE),
    "update": lambda at: at.update({"x": "1"}, where="id < 5"),
    "merge": lambda at: (
        at.merge_insert("id").when_matched_update_all().when_not_matched_insert_all().execute(MORE)
    ),
    "delete": lambda at: at.delete("id = 7"),
    "compaction": lambda at: at.optimize.compact_files(),
    "overwrite": lambda at: at.insert(MORE, mode="overwrite"),
}


@pytest.mark.parametrize("word", ["reader_feature_flags", "writer_feature_flags"])
@pytest.mark.parametrize("change", CHANGES)
def test_rows_get_ids_where_one_word_of_flags_says_that_they_have_some(
    tmp_path: Path, change: str, word: str
) -> None:
    rows = pa.table({"id": range(20), "x": range(20)})
    place = tmp_path / "t"
    dataset = glaive.write_dataset(rows, place, max_rows_per_file=10, enable_stable_row_ids=True)
    dataset.delete("id = 1")
    manifest = dataset.manifest
    setattr(manifest.wire, word, 0)
    pieces = encode_manifest(
        manifest.wire, transaction=manifest.transaction or b"", index_section=None
    )
    Path(manifest.where).write_bytes(b"".join(map(bytes, map(memoryview, pieces))))
    before = glaive.dataset(place).to_table(["_rowid"])["_rowid"].to_pylist()

    CHANGES[change](glaive.dataset(place))
    changed = glaive.dataset(place)
    changed.validate()
    ids = changed.to_table(["_rowid"])["_rowid"].to_pylist()
    assert len(set(ids)) == changed.count_rows()
    if change in ("append", "merge", "update"):
        assert set(before) <= set(ids)
    if change in ("append", "merge", "update", "delete"):
        flags = changed.manifest.wire
        both = flags.reader_feature_flags & flags.writer_feature_flags
        assert both & Feature.DELETION_FILES
        assert both & Feature.STABLE_ROW_IDS
