"""Clean-ups whose tasks run in a cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.table.places import append, create, fragment, overwrite

from glaive.errors import NotLanceError
from glaive.format.paths import manifest_path
from glaive.io.local import LocalStore
from glaive.spark import LanceTable
from glaive.table.commit import commit_transaction
from glaive.table.load import open_latest
from glaive.table.operations.overwrite import Append

FILES = 9000
"""More than one task lists, or deletes."""

GONE = FILES - FILES // 10


@pytest.fixture
def store(uri: str) -> LocalStore:
    """A table of three versions; the first two have many files that the last one does not have.

    Nobody reads them, so they are of one byte.
    """
    store = LocalStore(uri)
    base = create(store)  # whose file is not there
    many = tuple(fragment() for _ in range(FILES))
    base = commit_transaction(store, replace(append(base), operation=Append(many)), base=base)
    last = commit_transaction(store, overwrite(base), base=base)
    last = commit_transaction(
        store, replace(append(last), operation=Append(many[: FILES // 10])), base=last
    )
    data = Path(uri, "data")
    data.mkdir()
    for one in (*many, last.fragment(0)):
        (data / one.files[0].path).write_bytes(b"1")
    return store


@pytest.fixture
def jobs(spark: SparkSession) -> Iterator[Callable[[], int]]:
    """The number of Spark's jobs since the test began."""
    context = spark.sparkContext
    context.setJobGroup("vacuum", "a clean-up")
    before = len(context.statusTracker().getJobIdsForGroup("vacuum"))
    yield lambda: len(context.statusTracker().getJobIdsForGroup("vacuum")) - before
    context.setLocalProperty("spark.jobGroup.id", None)


@pytest.mark.nightly(reason="cleans up many files")
def test_a_clean_up_of_many_files_lists_and_deletes_in_tasks(
    spark: SparkSession, store: LocalStore, jobs: Callable[[], int]
) -> None:
    table = LanceTable.forPath(spark, store.uri)
    rows = table.vacuum(0, dryRun=True).toArrow()
    assert rows["kind"].to_pylist().count("data") == GONE
    assert not any(rows["unverified"].to_pylist())
    planned = set(rows["path"].to_pylist())
    listing, before = jobs(), {meta.path for meta in store.walk("")}
    assert listing > 0
    counts = table.vacuum(0)
    assert jobs() >= 2 * listing  # the rows were a job, too: so are the deletions
    assert (counts["old_versions"], counts["data_files_removed"]) == (3, GONE)
    after = {meta.path for meta in store.walk("")}
    assert after == before - planned
    assert counts["bytes_removed"] == sum(rows["size_in_bytes"].to_pylist())
    last = open_latest(store)
    files = {last.fragment(at).files[0].path for at in range(last.num_fragments)}
    assert {path for path in after if path.startswith("data/")} == {f"data/{at}" for at in files}


def test_a_damaged_manifest_that_a_task_meets_is_named_and_nothing_goes(
    spark: SparkSession, store: LocalStore
) -> None:
    base = open_latest(store)
    for _ in range(20):
        base = commit_transaction(store, append(base), base=base)
    store.put(manifest_path(2), [b"damage" * 9])
    before = [meta.path for meta in store.walk("")]
    with pytest.raises(NotLanceError, match=manifest_path(2)):
        LanceTable.forPath(spark, store.uri).vacuum(0)
    assert [meta.path for meta in store.walk("")] == before
