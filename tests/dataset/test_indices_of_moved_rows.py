"""Indices of rows that a compaction moved, whatever is done to the indices meanwhile."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from glaive.optimize import Compaction

import glaive
from glaive.table import index_coverage

REUSE = "__lance_frag_reuse"


def rows(start: int, stop: int) -> pa.Table:
    ids = range(start, stop)
    vectors = np.random.default_rng(start).random((len(ids), 4), np.float32)
    return pa.table(
        {
            "id": ids,
            "a": pa.array([number % 7 for number in ids], pa.int32()),
            "text": [f"word{number % 7}" for number in ids],
            "vector": pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), 4),
        }
    )


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Three fragments of ten rows, some of them deleted."""
    dataset = glaive.write_dataset(rows(0, 30), tmp_path / "t", max_rows_per_file=10)
    dataset.delete("id % 5 = 1")
    return tmp_path / "t"


def found(path: Path, column: str) -> list[int]:
    """Rows that the index on a column finds; with vectors, all that it has."""
    dataset = glaive.dataset(path)
    if column == "text":
        table = dataset.to_table(["id"], full_text_query="word3", limit=1000)
    elif column == "vector":
        nearest = {"column": "vector", "q": np.zeros(4, np.float32), "k": 1000, "nprobes": 50}
        table = dataset.to_table(["id"], nearest=nearest)
    else:
        table = dataset.to_table(["id"], filter="a = 3")
    return sorted(table["id"].to_pylist())


def there(path: Path, column: str) -> list[int]:
    """The same without an index."""
    every = glaive.dataset(path).to_table(["id", "a"]).to_pylist()
    return sorted(row["id"] for row in every if column == "vector" or row["a"] == 3)


@pytest.mark.sampled(every=6)
@pytest.mark.spec("rel-12", "reuse-6")
@pytest.mark.parametrize(
    ("column", "kind"),
    [
        *(("a", kind) for kind in ("BTREE", "BITMAP", "ZONEMAP", "BLOOMFILTER")),
        ("text", "INVERTED"),
        ("vector", "IVF_FLAT"),
        ("vector", "IVF_HNSW_SQ"),
    ],
)
@pytest.mark.parametrize("first", ["optimize", "drop", "optimize of an old version"])
def test_an_index_needs_no_map_of_moved_rows_once_it_is_up_to_date(
    path: Path, column: str, kind: str, first: str
) -> None:
    dataset = glaive.dataset(path)
    if column == "vector":
        dataset.create_index(column, kind, num_partitions=2)
    else:
        dataset.create_scalar_index(column, kind)
    dataset.optimize.compact_files(defer_index_remap=True)
    read = glaive.write_dataset(rows(100, 108), path, mode="append")
    if first == "optimize":
        read.optimize.optimize_indices()
    glaive.dataset(path).drop_index(REUSE)
    if first == "optimize of an old version":
        read.optimize.optimize_indices()
    assert found(path, column) == there(path, column)
    glaive.dataset(path).optimize.optimize_indices()
    assert found(path, column) == there(path, column)


@pytest.mark.spec("rel-12", "reuse-6")
def test_an_index_of_which_a_compaction_rebuilt_parts_is_right_without_the_map(path: Path) -> None:
    dataset = glaive.dataset(path)
    dataset.create_scalar_index("a", "BTREE")
    dataset.optimize.compact_files(defer_index_remap=True)
    for start in (100, 200):  # new fragments, which a compaction joins
        glaive.write_dataset(rows(start, start + 8), path, mode="append")
        glaive.dataset(path).optimize.compact_files(target_rows_per_fragment=16)
    glaive.dataset(path).drop_index(REUSE)
    assert found(path, "a") == there(path, "a")


@pytest.mark.spec("rel-12")
@pytest.mark.parametrize("limit", ["MAX_RELOCATED_ROWS", "_MAX_ROWS_IN_ALL"])
def test_a_compaction_of_more_rows_than_a_map_may_have_rebuilds_indices(
    path: Path, limit: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset = glaive.dataset(path)
    dataset.create_scalar_index("a", "BTREE")
    monkeypatch.setattr(index_coverage, limit, 20)
    dataset.optimize.compact_files(defer_index_remap=True)
    dataset = glaive.dataset(path)
    assert [index.name for index in dataset.describe_indices()] == ["a_idx"]
    assert "ScalarIndexQuery" in dataset.scanner(filter="a = 3").explain_plan()
    assert found(path, "a") == there(path, "a")
    dataset.optimize.optimize_indices()


@pytest.mark.spec("rel-3")
def test_an_index_that_is_dropped_while_a_compaction_rebuilds_it_stays_dropped(path: Path) -> None:
    dataset = glaive.dataset(path)
    dataset.create_scalar_index("a", "BTREE")
    dataset.create_scalar_index("id", "BTREE")
    plan = Compaction.plan(dataset, {})
    rewrites = [task.execute(dataset) for task in plan.tasks]
    read = glaive.dataset(path)
    Compaction.commit(dataset, rewrites)
    read.drop_index("a_idx")
    assert [index.name for index in glaive.dataset(path).describe_indices()] == ["id_idx"]
    assert found(path, "a") == there(path, "a")
