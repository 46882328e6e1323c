"""What jobs on a million files, or on a row of each of a million fragments, send and hold.

Plans only: no file is there. ``make test`` makes those for a small part of them, and compares the
same part of the limits; ``make nightly`` makes all.
"""

from __future__ import annotations

import tracemalloc
import zlib
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeVar
from uuid import UUID

import numpy as np
import pyarrow as pa
import pytest
from tests.spark.many_fragments import many_fragments
from tests.spark.test_scale import FRAGMENTS, MAX_BYTES, MAX_DRIVER_BYTES, parts
from tests.table.places import append, create, fragment, overwrite

from glaive.dataset.cleanup import CleanupTask
from glaive.dataset.refs import copy_tasks
from glaive.dataset.rows import RowsByFragment, delete_rows_tasks
from glaive.dataset.writing.plan import WriteOptions
from glaive.ingestion.formats import format_named
from glaive.ingestion.plan import Reconciled, Sources, plan_ingest
from glaive.ingestion.sources import SourceFile
from glaive.io.access import open_store
from glaive.io.local import LocalStore
from glaive.io.store import ObjectMeta, ObjectStore
from glaive.io.wrapped import WrappedStore
from glaive.spark.files import divided
from glaive.spark.runner import MAX_TASKS, dump_results, dumps, load_results
from glaive.table.cleanup import CleanupPolicy, Division, Part, delete_planned, plan_cleanup
from glaive.table.commit import commit_transaction
from glaive.table.operations.overwrite import Append
from glaive.table.references import FileSet

R = TypeVar("R")

LONG = [pytest.mark.slow, pytest.mark.nightly(reason="plans for a million files")]
COUNTS = [20_000, pytest.param(FRAGMENTS, marks=LONG)]

LONG_AGO = datetime(2026, 1, 1, tzinfo=UTC)

pytestmark = pytest.mark.parametrize("count", COUNTS)


def file_name(number: int) -> str:
    """As Spark names its files, but for a random part of its own in each."""
    digits = pow(3, number + 1000, 2**128 - 159)  # the order of 3 is large
    return f"part-{number:05}-{UUID(int=digits)}-c000.snappy.parquet"


@contextmanager
def bounded(count: int, apart: int = 0) -> Iterator[None]:
    """Compare the memory of a block with the limit for so many.

    ``apart`` are bytes that do not grow with their number.
    """
    tracemalloc.start()
    try:
        yield
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (peak - apart) * (FRAGMENTS / count) < MAX_DRIVER_BYTES - apart


def check(tasks: Sequence[Any], count: int) -> None:
    assert 0 < len(tasks) <= MAX_TASKS
    assert (
        sum(len(zlib.compress(dumps([task]), 1)) for task in tasks) * (FRAGMENTS / count)
        < MAX_BYTES
    )


@pytest.mark.sampled(every=2)
def test_the_tasks_of_an_ingest_name_their_pieces_only(count: int, tmp_path: Path) -> None:
    folder = "s3://bucket/tables/events/"
    start, options = datetime(2026, 1, 1, tzinfo=UTC), dict[str, str]()
    # Hundreds of columns, in each of a thousand tasks, would be more than all names of files.
    schema = pa.schema([pa.field(f"column_{number}", pa.int64()) for number in range(300)])
    with bounded(count):
        files = []
        for number in range(count):
            name, at = file_name(number), start + timedelta(milliseconds=number * 37)
            files.append(SourceFile(folder, name, (1 << 20) - number % 999, at, options))
        sources = Sources(tuple(files), format_named("parquet", {}), Reconciled(schema))
        write = WriteOptions(mode="create")
        plan = plan_ingest(open_store(str(tmp_path)), sources, write, job_id="j")
    own, shared = divided(plan.tasks)
    check(own, count)
    assert len(dumps(shared)) < 1 << 20
    assert [piece.file.path for task in own for piece in task.pieces] == [f.path for f in files]


def test_rows_of_many_fragments_are_deleted_by_few_tasks(count: int) -> None:
    with bounded(count):
        rows = RowsByFragment()
        rows.add(np.arange(count, dtype=np.uint64) << np.uint64(32))
        tasks = delete_rows_tasks(1, rows)
    check(tasks, count)
    assert sum(task.rows.count for task in tasks) == count


def test_the_tasks_of_a_publication_name_ranges_of_fragments(count: int, tmp_path: Path) -> None:
    opened = many_fragments(str(tmp_path / "t.lance"), count)
    with bounded(count):
        tasks = list(copy_tasks(opened, None, parts(opened)))
    check(tasks, count)
    ranges = [(task.fragments.start, task.fragments.stop) for task in tasks]
    assert (ranges[0][0], ranges[-1][1]) == (0, count)
    assert all(first[1] == second[0] for first, second in pairwise(ranges))


def test_a_clean_up_holds_the_names_of_files_that_are_used_and_unused(
    count: int, tmp_path: Path
) -> None:
    """Half of the limit: the worst case is as many that no version uses any longer."""
    opened = many_fragments(str(tmp_path / "t.lance"), count, own_names=True)
    with bounded(count // 2):
        files = FileSet.of([opened.manifest])
    assert len(files.paths) >= count


class Measured:
    """Runs parts of a clean-up here, and adds the bytes that a cluster would send."""

    division = Division()

    def __init__(self) -> None:
        self.sent = self.returned = self.tasks = 0

    def run(self, store: ObjectStore, parts: Sequence[Part[R]]) -> list[R]:
        self.tasks = max(self.tasks, len(parts))
        self.sent += sum(len(zlib.compress(dumps([CleanupTask(part)]), 1)) for part in parts)
        results = [dump_results([part.run(store)]) for part in parts]
        self.returned += sum(map(len, results))
        return [load_results(result)[0] for result in results]


class Listing(WrappedStore):
    """A store that lists data files which are not there, each of a byte, and deletes them."""

    def __init__(self, inner: ObjectStore, names: Sequence[str]) -> None:
        super().__init__(inner)
        self.listed = sorted(f"data/{name}" for name in names)
        self.deleted = 0

    def walk_between(
        self, prefix: str, start: str | None, stop: str | None
    ) -> Iterator[ObjectMeta]:
        if prefix != "data":
            yield from super().walk_between(prefix, start, stop)
            return
        first = bisect_left(self.listed, start or "")
        last = len(self.listed) if stop is None else bisect_left(self.listed, stop)
        for name in self.listed[first:last]:
            yield ObjectMeta(name, 1, LONG_AGO)

    def delete(self, paths: Sequence[str]) -> None:
        self.deleted += sum(path.startswith("data/") for path in paths)
        super().delete([path for path in paths if not path.startswith("data/")])


def test_a_clean_up_holds_the_files_that_it_deletes_in_arrow(count: int, tmp_path: Path) -> None:
    inner = LocalStore(tmp_path / "t")
    base = create(inner)
    many = tuple(fragment() for _ in range(count))
    store = Listing(inner, [one.files[0].path for one in many])
    base = commit_transaction(inner, replace(append(base), operation=Append(many)), base=base)
    del many
    newest = commit_transaction(inner, overwrite(base), base=base)
    work = Measured()
    plan = plan_cleanup(store, store, newest, CleanupPolicy(timedelta(0)), work)
    assert plan.count("data") == count
    assert plan.files.table.nbytes < 100 * count
    work.sent = 0
    delete_planned(store, plan, work=work)
    assert store.deleted == count
    assert work.sent < 40 * count < MAX_BYTES * count // FRAGMENTS


@pytest.mark.sampled(every=4)
@pytest.mark.parametrize("replaced", [False, True], ids=["in use", "not any more"])
def test_a_clean_up_of_a_million_files_sends_their_names_packed(
    count: int, replaced: bool, tmp_path: Path
) -> None:
    store = LocalStore(tmp_path / "t")
    base = create(store)
    many = tuple(fragment() for _ in range(count))
    base = commit_transaction(store, replace(append(base), operation=Append(many)), base=base)
    last = overwrite(base) if replaced else append(base)
    newest = commit_transaction(store, last, base=base)
    work = Measured()
    plan_cleanup(store, store, newest, CleanupPolicy(timedelta(0)), work)
    assert 1 < work.tasks <= MAX_TASKS
    assert 20 * count < work.returned < 30 * count < MAX_BYTES * count // FRAGMENTS
    assert 20 * count < work.sent < 30 * count
