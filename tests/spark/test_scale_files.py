"""What jobs on a million files, or on a row of each of a million fragments, send and hold.

Plans only: no file is there. ``make test`` makes those for a small part of them, and compares the
same part of the limits; ``make nightly`` makes all.
"""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any
from uuid import UUID

import numpy as np
import pyarrow as pa
import pytest
from tests.spark.many_fragments import many_fragments
from tests.spark.test_scale import CORES, FRAGMENTS, MAX_BYTES, MAX_DRIVER_BYTES, parts

from glaive.dataset.rows.rows_by_fragment import RowsByFragment
from glaive.dataset.rows.selected_rows import delete_rows_tasks
from glaive.dataset.versions.publish import copy_tasks
from glaive.dataset.writing.options import WriteOptions
from glaive.ingestion.drift import Reconciled
from glaive.ingestion.formats.registry import format_named
from glaive.ingestion.plan import Sources, plan_ingest
from glaive.ingestion.sources import SourceFile
from glaive.io.uri import open_store
from glaive.spark.jobs.convert import convert_tasks
from glaive.spark.jobs.ingest import divided
from glaive.spark.jobs.runner import MAX_TASKS, divide, dump_tasks, dumps
from glaive.table.references import FileSet

LONG = [pytest.mark.slow, pytest.mark.nightly(reason="plans for a million files")]
COUNTS = [20_000, pytest.param(FRAGMENTS, marks=LONG)]

pytestmark = pytest.mark.parametrize("count", COUNTS)


def file_name(number: int) -> str:
    """As Spark names its files, but for a random part of its own in each."""
    digits = pow(3, number + 1000, 2**128 - 159)  # the order of 3 is large
    return f"part-{number:05}-{UUID(int=digits)}-c000.snappy.parquet"


@contextmanager
def bounded(count: int) -> Iterator[None]:
    """Compare the memory of a block with the limit for so many."""
    tracemalloc.start()
    try:
        yield
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak * (FRAGMENTS / count) < MAX_DRIVER_BYTES


def check(tasks: Sequence[Any], count: int) -> None:
    assert 0 < len(tasks) <= MAX_TASKS
    assert sum(len(dump_tasks([task])) for task in tasks) * (FRAGMENTS / count) < MAX_BYTES


def test_the_tasks_of_a_conversion_name_its_files_only(count: int) -> None:
    with bounded(count):
        files = [(file_name(number), 1 << 20) for number in range(count)]
        tasks = convert_tasks(files, CORES)
    check(tasks, count)
    assert [path for task in tasks for path in task.paths] == [path for path, _ in files]
    # As many tasks for all files, whatever the part of them that was planned.
    assert len(divide(np.full(FRAGMENTS, 1 << 20), FRAGMENTS << 20, CORES)) <= MAX_TASKS + 1


def test_the_tasks_of_an_ingest_name_their_pieces_only(count: int, tmp_path: Path) -> None:
    folder = "s3://bucket/tables/events/"
    start, options = datetime(2026, 1, 1, tzinfo=UTC), dict[str, str]()
    # Hundreds of columns, in each of a thousand tasks, would be more than all names of files.
    schema = pa.schema([pa.field(f"column_{number}", pa.int64()) for number in range(300)])
    with bounded(count):
        files = []
        for number in range(count):
            name, at = file_name(number), start + timedelta(milliseconds=number * 37)
            files.append(SourceFile(folder + name, name, (1 << 20) - number % 999, at, options))
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
