"""Values of deleted rows are in no file, once the steps of the guide are done."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import glaive

_SECRET = b"zqsecretxv"
_KINDS = ["BTREE", "BITMAP", "NGRAM", "ZONEMAP", "BLOOMFILTER", "INVERTED", "LABEL_LIST", "FM"]


def files_with_it(root: Path) -> list[str]:
    """Files of a dataset that have the secret."""
    files = [path for path in root.rglob("*") if path.is_file()]
    return [path.relative_to(root).parts[0] for path in files if _SECRET in path.read_bytes()]


def made(root: Path, column: Any) -> glaive.LanceDataset:
    """A dataset of two fragments, the first of which has the secret."""
    rows = pa.table({"id": range(len(column)), "value": column})
    return glaive.write_dataset(rows, root, max_rows_per_file=len(column) // 2)


def erase(dataset: glaive.LanceDataset) -> None:
    """Rewrite the fragment with the deleted row only."""
    rows = dataset.count_rows() // 3
    dataset.optimize.compact_files(materialize_deletions_threshold=0, target_rows_per_fragment=rows)
    assert 1 in [fragment.fragment_id for fragment in dataset.get_fragments()]


def texts() -> list[str]:
    """Texts, one of them the secret."""
    return [_SECRET.decode() if row == 7 else f"common{row % 3} text" for row in range(400)]


@pytest.mark.sampled(every=2)
@pytest.mark.parametrize("kind", [None, *_KINDS])
def test_no_file_has_a_value_of_a_deleted_row(tmp_path: Path, kind: str | None) -> None:
    values: list[Any] = texts()
    dataset = made(tmp_path, [[text] for text in values] if kind == "LABEL_LIST" else values)
    if kind is not None:
        dataset.create_scalar_index("value", kind)
    assert files_with_it(tmp_path)
    dataset.delete("id = 7")
    erase(dataset)
    if kind is not None:
        dataset.create_scalar_index("value", kind, replace=True)
    dataset.cleanup_old_versions(timedelta(0), delete_unverified=True)
    assert files_with_it(tmp_path) == []
    assert dataset.count_rows() == 399


def test_items_of_a_dictionary_stay_until_plain_values_are_written_over_it(tmp_path: Path) -> None:
    dataset = made(tmp_path, pa.array(texts()).dictionary_encode())
    dataset.delete("id = 7")
    erase(dataset)
    dataset.cleanup_old_versions(timedelta(0), delete_unverified=True)
    assert set(files_with_it(tmp_path)) == {"data"}
    rows = dataset.to_table()
    plain = rows.set_column(1, "value", rows["value"].cast(pa.string()))
    dataset = glaive.write_dataset(plain, tmp_path, mode="overwrite")
    dataset.cleanup_old_versions(timedelta(0), delete_unverified=True)
    assert files_with_it(tmp_path) == []
    assert dataset.count_rows() == 399


def test_a_dropped_column_stays_until_the_rows_are_written_over_it(tmp_path: Path) -> None:
    dataset = made(tmp_path, texts())
    dataset.drop_columns(["value"])
    erase(dataset)
    dataset.cleanup_old_versions(timedelta(0), delete_unverified=True)
    assert set(files_with_it(tmp_path)) == {"data"}
    dataset = glaive.write_dataset(dataset.to_table(), tmp_path, mode="overwrite")
    dataset.cleanup_old_versions(timedelta(0), delete_unverified=True)
    assert files_with_it(tmp_path) == []
