"""What a merge reads and writes, as an object store would count it."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import glaive
from glaive.dataset.dataset import LanceDataset
from glaive.io.access import open_store
from glaive.table.load import open_latest
from glaive.testing import CountingStore

ROWS, FILES = 40_000, 4


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rng = np.random.default_rng(0)
    columns: dict[str, Any] = {"k": rng.permutation(ROWS).astype(np.uint32)}
    columns |= {f"c{at}": rng.integers(0, 2**62, ROWS) for at in range(20)}
    columns["text"] = [f"{number:030d}" for number in rng.permutation(ROWS)]
    found = tmp_path_factory.mktemp("merge") / "d"
    glaive.write_dataset(pa.table(columns), found, max_rows_per_file=ROWS // FILES)
    return found


def merged(place: Path, tmp_path: Path, on: str, clauses: Callable[[Any], Any], *left: str) -> Any:
    """The requests of a merge of 40 rows, of which 30 are there, but for columns ``left`` out."""
    shutil.copytree(place, tmp_path / "d")
    rows = glaive.dataset(place).take(list(range(0, ROWS, ROWS // 40)))
    more: Any = pa.array(range(ROWS, ROWS + 10), pa.uint32())
    texts = pa.array([f"x{at}" for at in range(10)])
    keys = {"k": pa.concat_arrays([rows["k"].combine_chunks()[:30], more])}
    keys["text"] = pa.concat_arrays([rows["text"].combine_chunks()[:30], texts])
    for name, column in keys.items():
        rows = rows.set_column(rows.schema.get_field_index(name), name, column)
    store = CountingStore(open_store(tmp_path / "d"))
    opened = LanceDataset.of(store, open_latest(store))
    store.reset()
    counts = clauses(opened.merge_insert(on)).execute(rows.drop_columns(list(left)))
    return counts, store


def read_bytes(store: CountingStore) -> int:
    return sum(one.size for one in store.log if one.method == "read")


UPSERT: Callable[[Any], Any] = lambda b: (  # noqa: E731  # short
    b.when_matched_update_all().when_not_matched_insert_all()
)


@pytest.mark.parametrize(("on", "width"), [("k", 4), ("text", 34)])
def test_an_upsert_reads_the_key_column_alone(
    place: Path, tmp_path: Path, on: str, width: int
) -> None:
    counts, store = merged(place, tmp_path, on, UPSERT)
    assert counts == {"num_inserted_rows": 10, "num_updated_rows": 30, "num_deleted_rows": 0}
    assert read_bytes(store) <= ROWS * width * 1.3
    reads = [one for one in store.log if one.method == "read"]
    assert len(reads) <= 3 * FILES
    # One new file, a deletion file for each that lost rows, a manifest and a transaction.
    written = {one.path for one in store.log if one.method not in ("read", "get", "list", "tail")}
    assert sum(path.startswith("data/") for path in written) == 1
    assert sum(path.startswith("_deletions/") for path in written) <= FILES
    assert len(written) <= FILES + 4, written


def test_old_values_are_read_of_matched_rows_alone(place: Path, tmp_path: Path) -> None:
    def update(builder: Any) -> Any:
        return builder.when_matched_update_all("source.c1 >= target.c1")

    counts, store = merged(place, tmp_path, "k", update, "c2", "text")
    assert counts["num_updated_rows"] == 30
    # Keys, and single values of c1, c2 and text: their chunks, not their columns.
    assert read_bytes(store) < ROWS * 4 * 1.3 + 30 * 3 * 40_000
    assert read_bytes(store) < ROWS * 8 * 3


def test_an_insert_of_known_rows_writes_nothing(place: Path) -> None:
    opened = glaive.dataset(place)
    store = CountingStore(open_store(place))
    counting = LanceDataset.of(store, open_latest(store))
    store.reset()
    merge = counting.merge_insert("k").when_not_matched_insert_all()
    transaction, counts = merge.execute_uncommitted(opened.to_table(limit=50))
    assert counts == {"num_inserted_rows": 0, "num_updated_rows": 0, "num_deleted_rows": 0}
    assert {one.method for one in store.log} <= {"read", "get", "tail", "list"}
    assert transaction.read_version == opened.version
