"""What reads, change feeds and streams of a million fragments send to their tasks, and hold.

Plans only: no data file is there. ``make test`` makes those for a small part of the fragments, and
compares the same part of the limits; ``make nightly`` makes all.
"""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable
from tests.spark.many_fragments import many_fragments
from tests.spark.test_scale import FRAGMENTS, MAX_BYTES
from tests.spark.test_scale_commits import KINDS, Returning, cuts, new_file
from tests.spark.test_scale_files import LONG, bounded

import glaive
from glaive.dataset.change_plan import Commit, plan_commit
from glaive.format.fragment import Fragment, FragmentList
from glaive.format.transaction import Transaction
from glaive.spark.frame import MAX_PARTS
from glaive.spark.lance_table.reading import SearchedVectors, files_table, search_function
from glaive.spark.options import Options
from glaive.spark.runner import dump_results, dumps, pickled_dataset
from glaive.spark.source import LanceDataSource
from glaive.spark.stream_reader import MAX_PARTITIONS, partitions_of, tasks_in
from glaive.spark.writer import RELEASE
from glaive.table.commit import commit_transaction
from glaive.table.load import read_transaction
from glaive.table.operations.overwrite import Append

COUNTS = [5_000, pytest.param(FRAGMENTS, marks=LONG)]

FILE_BYTES = 8 << 20

pytestmark = pytest.mark.parametrize("count", COUNTS)


def appended(uri: str, count: int, rows: int = 1 << 20) -> None:
    """Make a second version, which has so many more fragments of 8 MiB."""
    dataset = glaive.write_dataset(pa.table({"id": range(1000)}), uri)
    new = FragmentList.of(
        Fragment(files=(replace(new_file(number), size=FILE_BYTES),), physical_rows=rows)
        for number in range(count)
    )
    # Where all claim very much, the first one is asked for its size.
    with (Path(uri) / "data" / new_file(0).path).open("wb") as file:
        file.truncate(FILE_BYTES)
    base = dataset.manifest
    transaction = Transaction(read_version=base.version, operation=Append(new))
    commit_transaction(dataset.store, transaction, base=base)


def check(parts: Sequence[Any], count: int, most: int) -> None:
    """Compare partitions with the limits; there are not more than ``most`` of a million."""
    assert 0 < len(parts) <= most
    sizes = [len(pickle.dumps(part)) for part in parts]
    without_fragments = min(sizes)
    of_fragments = sum(sizes) - len(parts) * without_fragments
    scale = FRAGMENTS / count
    assert of_fragments * scale + min(len(parts) * scale, most) * without_fragments < MAX_BYTES


@pytest.mark.parametrize("rows", [1000, 1 << 20], ids=["small", "large"])
def test_the_partitions_of_a_read_are_few_and_small(rows: int, count: int, tmp_path: Path) -> None:
    uri = str(tmp_path / "t.lance")
    appended(uri, count, rows)
    source = LanceDataSource({"path": uri})
    reader = source.reader(source.schema())
    with bounded(count):
        parts = reader.partitions()
    check(parts, count, MAX_PARTS)
    assert sum(part.value[-1] for part in parts) == count * rows + 1000


@pytest.mark.parametrize("start", [{}, {"startingVersion": "1"}, {"readChangeFeed": "true"}])
def test_the_batches_of_a_stream_are_few_and_small(
    start: dict[str, str], count: int, tmp_path: Path
) -> None:
    uri = str(tmp_path / "t.lance")
    appended(uri, count)
    source = LanceDataSource({"path": uri, **start})
    reader: Any = source.streamReader(source.schema())
    with bounded(count):
        first = reader.initialOffset()
        last = reader.latestOffset(first, ReadAllAvailable())
        parts = reader.partitions(first, last)
    check(parts, count, MAX_PARTITIONS)


def test_a_batch_of_a_limited_stream_has_as_many_fragments(count: int, tmp_path: Path) -> None:
    uri = str(tmp_path / "t.lance")
    appended(uri, count)
    source = LanceDataSource({"path": uri, "maxFilesPerTrigger": "1000"})
    reader: Any = source.streamReader(source.schema())
    with bounded(count):
        first = reader.initialOffset()
        last = reader.latestOffset(first, reader.getDefaultReadLimit())
        parts = reader.partitions(first, last)
    assert len({task.fragment_id for part in parts for task in tasks_in(part)}) == 1000


@pytest.mark.parametrize("net", [False, True])
def test_the_partitions_of_a_change_feed_are_few_and_small(
    net: bool, count: int, tmp_path: Path
) -> None:
    uri = str(tmp_path / "t.lance")
    appended(uri, count)
    options = {"path": uri, "readChangeFeed": "true", "startingVersion": "2"}
    if net:
        options["deduplicationMode"] = "netChanges"
    source = LanceDataSource(options)
    reader = source.reader(source.schema())
    with bounded(count):
        parts = reader.partitions()
    check(parts, count, MAX_PARTITIONS)


@pytest.mark.sampled(every=8)
@pytest.mark.parametrize("kind", ["delete", "update", "updateColumnsFrom", "compaction"])
def test_changes_of_every_fragment_are_few_and_small_partitions(
    kind: str, count: int, tmp_path: Path
) -> None:
    opened = many_fragments(str(tmp_path / "t.lance"), count, own_names=True)
    work, commit, _ = KINDS[kind]
    made = commit(opened, Returning([dump_results([work(opened, *cut)]) for cut in cuts(count)]))
    transaction = read_transaction(opened.store, made)
    sides = 2 if kind == "updateColumnsFrom" else 1  # tasks read the rows before and after
    with bounded(sides * count):
        tasks = plan_commit(Commit(opened.manifest, made, transaction))
        parts = partitions_of(tasks, made.schema, Options(uri=opened.uri))
    if kind == "compaction":
        assert not parts
        return
    check(parts, count, MAX_PARTITIONS)
    assert len({task.fragment_id for task in tasks if not task.side.after}) == count


def test_the_files_of_a_table_are_described_a_few_at_a_time(count: int, tmp_path: Path) -> None:
    opened = many_fragments(str(tmp_path / "t.lance"), count, own_names=True)
    with bounded(count):
        table = files_table(opened.manifest)
    assert table.num_rows == count
    assert table["fragment_id"].to_pylist()[-1] == count - 1
    assert table.nbytes * (FRAGMENTS / count) < 2 * MAX_BYTES


def test_searches_do_not_name_the_fragments(count: int, tmp_path: Path) -> None:
    opened = many_fragments(str(tmp_path / "t.lance"), count)
    with bounded(count):
        work = dumps(SearchedVectors("q", "id", 10, ("id",)))
        function = search_function(RELEASE, pickled_dataset(opened), work, pa.schema([]))
    assert len(dumps(function)) < 1 << 14
