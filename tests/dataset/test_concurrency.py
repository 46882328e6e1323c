"""Many writers and readers at once: no rows are lost, every version is what its commits made."""

from __future__ import annotations

import multiprocessing
import os
import random
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import glaive
from glaive.dataset.dataset import LanceDataset
from glaive.errors import CommitConflictError
from glaive.io.local import LocalStore
from glaive.io.wrapped import WrappedStore
from glaive.table.load import open_latest

os.environ.setdefault("LANCE_LOG", "error")

EMPTY = pa.table({"writer": pa.array([], pa.int64()), "number": pa.array([], pa.int64())})


def rows_of(dataset: Any) -> list[tuple[int, int]]:
    return [(row["writer"], row["number"]) for row in dataset.to_table().to_pylist()]


def write(library: Any, place: str, writer: int) -> list[tuple[int, str, tuple[int, int]]]:
    """Commit some versions, doing again what conflicted; returns each with its mode and row."""
    chance = random.Random(writer)
    made = []
    for number in range(8):
        mode = "overwrite" if chance.random() < 0.15 else "append"
        row = pa.table({"writer": [writer], "number": [number]})
        while True:
            try:
                version = library.write_dataset(row, place, mode=mode).version
            except CommitConflictError:
                continue
            except OSError as error:
                if "onflict" in str(error) or "ncompatible" in str(error):
                    continue
                raise
            made.append((version, mode, (writer, number)))
            break
    return made


@pytest.mark.sampled(every=3)
@pytest.mark.interop
@pytest.mark.parametrize(
    "options", [{}, {"enable_stable_row_ids": True}, {"enable_v2_manifest_paths": False}], ids=str
)
def test_both_libraries_write_at_once(tmp_path: Path, options: dict[str, bool]) -> None:
    lance: Any = pytest.importorskip("lance", reason="install the 'interop' group")
    place = str(tmp_path / "t")
    glaive.write_dataset(EMPTY, place, **options)
    with ThreadPoolExecutor(4) as pool:
        jobs = [pool.submit(write, one, place, i) for i, one in enumerate([glaive, lance] * 2)]
        made = sorted(commit for job in jobs for commit in job.result())
    assert [version for version, _, _ in made] == list(range(2, 34))
    expected: list[tuple[int, int]] = []
    for version, mode, row in made:
        expected = [*(expected if mode == "append" else []), row]
        assert rows_of(glaive.dataset(place, version=version)) == expected
    lance.dataset(place).validate()
    found = glaive.dataset(place).to_table(with_row_id=True)
    assert found.equals(lance.dataset(place).to_table(with_row_id=True))
    assert len(set(found["_rowid"].to_pylist())) == found.num_rows


@pytest.mark.parametrize("kind", ["directory", "memory"])
def test_readers_see_whole_versions_while_one_writes(tmp_path: Path, kind: str) -> None:
    place = str(tmp_path / "t") if kind == "directory" else f"memory://{tmp_path.name}/t"
    glaive.write_dataset(EMPTY, place)

    def read(_: int) -> bool:
        opened = glaive.dataset(place)
        rows = rows_of(opened)
        in_order = [number for _, number in rows] == list(range(len(rows)))
        return in_order and len(rows) == opened.version - 1 == opened.count_rows()

    def append() -> None:
        for number in range(20):
            row = pa.table({"writer": [0], "number": [number]})
            glaive.write_dataset(row, place, mode="append")

    with ThreadPoolExecutor(3) as pool:
        writing = pool.submit(append)
        while not writing.done():
            assert all(pool.map(read, range(4)))
        writing.result()
    assert read(0)


def _read_in_child(dataset: LanceDataset, rows: list[int], answers: Any) -> None:
    batches = [batch.num_rows for batch in dataset.to_batches(batch_size=5000)]
    answers.put((dataset.take(rows)["id"].to_pylist(), sum(batches), dataset.to_table().num_rows))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_child_reads_what_its_parent_has_open(tmp_path: Path) -> None:
    count = 300_000
    table = pa.table({"id": np.arange(count), "f": np.random.default_rng(0).random(count)})
    opened = glaive.write_dataset(table, tmp_path / "t", max_rows_per_file=count // 3)
    opened.to_table()
    streaming = opened.to_batches()
    next(streaming)
    context: Any = multiprocessing.get_context("fork")
    answers = context.Queue()
    rows = np.random.default_rng(1).integers(0, count, 3000).tolist()
    child = context.Process(target=_read_in_child, args=(opened, rows, answers))
    child.start()
    assert answers.get(timeout=60) == (rows, count, count)
    child.join(60)
    assert child.exitcode == 0
    assert sum(batch.num_rows for batch in streaming) > 0


@pytest.mark.spec("conflict-7")
def test_rows_with_values_of_a_column_that_is_cast_meanwhile_are_a_conflict(tmp_path: Path) -> None:
    place, rows = tmp_path / "t", pa.table({"id": [1], "x": [10]})
    late = glaive.write_dataset(rows, place)
    glaive.dataset(place).alter_columns({"path": "x", "data_type": pa.int32()})
    with pytest.raises(
        CommitConflictError, match="replaced field 1, of which the new rows"
    ) as told:
        late.insert(rows)
    assert told.value.retryable
    assert glaive.dataset(place).count_rows() == 1


class AtManifests(WrappedStore):
    """A store that does something before each of the first attempts to put a manifest."""

    def __init__(self, inner: LocalStore, work: Sequence[Callable[[], object]]) -> None:
        super().__init__(inner)
        self.work = list(work)

    def put(self, path: str, *given: Any, **options: Any) -> None:
        if path.endswith(".manifest") and self.work:
            self.work.pop(0)()
        self.inner.put(path, *given, **options)


@pytest.mark.spec("conflict-7")
@pytest.mark.parametrize("before", [0, 1, 2], ids=["both late", "one late", "none late"])
def test_rows_with_values_of_a_dropped_column_are_not_those_of_a_new_one_of_its_id(
    tmp_path: Path, before: int
) -> None:
    place, rows = tmp_path / "t", pa.table({"id": [1], "x": [10]})
    glaive.write_dataset(rows.select(["id"]), place).add_columns({"x": "id * 10"})
    changes: list[Callable[[], object]] = [
        lambda: glaive.dataset(place).drop_columns(["x"]),
        lambda: glaive.dataset(place).add_columns({"y": "id + 1"}),
    ]
    store = AtManifests(LocalStore(place), changes[before:])
    late = glaive.LanceDataset.of(store, open_latest(LocalStore(place)))
    for change in changes[:before]:
        change()
    with pytest.raises(CommitConflictError, match="the id 1 of a dropped column") as told:
        late.insert(rows)
    assert told.value.retryable
    late.insert(rows.select(["id"]))
    assert glaive.dataset(place).to_table()["y"].to_pylist() == [2, None]


@pytest.mark.parametrize(
    "change",
    [
        lambda dataset: dataset.drop_columns(["x"]),
        lambda dataset: dataset.alter_columns({"path": "x", "name": "y"}),
        lambda dataset: dataset.add_columns({"y": "x + 1"}),
        lambda dataset: (dataset.drop_columns(["x"]), dataset.add_columns({"y": "id + 1"})),
    ],
    ids=["drop", "rename", "add", "drop and add"],
)
def test_rows_are_appended_whatever_other_columns_become_meanwhile(
    tmp_path: Path, change: Callable[[LanceDataset], object]
) -> None:
    rows = pa.table({"id": [1], "x": [10]})
    late = glaive.write_dataset(rows, tmp_path / "t")
    change(glaive.dataset(tmp_path / "t"))
    late.insert(rows)
    assert late.to_table()["id"].to_pylist() == [1, 1]


@pytest.mark.spec("conflict-8")
@pytest.mark.parametrize(
    "change",
    [
        lambda dataset: dataset.drop_columns(["x"]),
        lambda dataset: dataset.alter_columns({"path": "x", "data_type": pa.int32()}),
    ],
    ids=["drop", "cast"],
)
def test_no_index_is_left_of_a_column_that_is_removed_while_it_is_built(
    tmp_path: Path, change: Callable[[LanceDataset], object]
) -> None:
    place = tmp_path / "t"
    late = glaive.write_dataset(pa.table({"id": [1, 2], "x": [10, 20]}), place)
    change(glaive.dataset(place))
    with pytest.raises(CommitConflictError, match="removed field 1 of an index") as told:
        late.create_scalar_index("x", "BTREE")
    assert told.value.retryable
    late.create_scalar_index("id", "BTREE")
    found = glaive.dataset(place)
    assert [entry.name for entry in found.describe_indices()] == ["id_idx"]
    found.validate()
