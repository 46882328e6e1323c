"""What searches tell of themselves, and merges that look keys up in indices."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import glaive
from glaive import ScanStatistics


def test_searches_tell_what_they_did(tmp_path: Path) -> None:
    vectors = np.random.default_rng(0).normal(size=(400, 8)).astype(np.float32)
    column = pa.FixedSizeListArray.from_arrays(pa.array(vectors.reshape(-1)), 8)
    table = pa.table({"v": column, "t": ["some words"] * 400})
    dataset = glaive.write_dataset(table, tmp_path / "d")
    dataset.create_index("v", "IVF_FLAT", num_partitions=4)
    dataset.create_scalar_index("t", "INVERTED")
    told: list[ScanStatistics] = []
    nearest = {"column": "v", "q": vectors[0], "k": 3, "nprobes": 2}
    dataset.to_table(nearest=nearest, scan_stats_callback=told.append)
    dataset.to_table(full_text_query="words", limit=5, scan_stats_callback=told.append)
    list(dataset.scanner(full_text_query="words", scan_stats_callback=told.append).to_batches())
    assert [one.all_counts["output_rows"] for one in told] == [3, 5, 400]
    assert told[0].parts_loaded == 2
    assert 0 < told[0].index_comparisons < 400
    assert all(one.bytes_read > 0 for one in told)


@pytest.mark.sampled(every=2)
@pytest.mark.parametrize("key", ["id", "name"])
@pytest.mark.parametrize("use_index", [True, False])
def test_merges_find_the_same_rows_with_and_without_indices(
    tmp_path: Path, key: str, use_index: bool
) -> None:
    count = 300_000
    ids = np.random.default_rng(0).permutation(count)
    names = pa.array([f"name {at:08d}" for at in ids])
    table = pa.table({"id": ids, "name": names, "x": np.zeros(count, np.int64)})
    dataset = glaive.write_dataset(table, tmp_path / "d", max_rows_per_file=200_000)
    dataset.create_scalar_index(key, "BTREE")
    more = pa.table({"id": [count], "name": [f"name {count:08d}"], "x": [0]})
    dataset = glaive.write_dataset(more, dataset, mode="append")
    wanted = [5, 77, 1234, count, count + 1]
    keys = wanted if key == "id" else [f"name {at:08d}" for at in wanted]
    builder = dataset.merge_insert(key).when_matched_update_all().use_index(use_index)
    changed = builder.execute(pa.table({key: keys, "x": range(5)}))
    assert changed["num_updated_rows"] == 4
    rows = glaive.dataset(tmp_path / "d").to_table(["id", "x"], "x > 0")
    assert sorted(rows.to_pylist(), key=lambda row: row["x"]) == [
        {"id": 77, "x": 1}, {"id": 1234, "x": 2}, {"id": count, "x": 3}
    ]  # fmt: skip
