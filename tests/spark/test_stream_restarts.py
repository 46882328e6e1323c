"""Queries that were stopped in their first batch, and start again when the source has more rows.

Spark asks such a query again where it starts; the batch that it began has to keep its rows.
"""

from __future__ import annotations

import json
import shutil
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from tests.spark.test_stream_source import Stream, table
from tests.spark.test_streams import ids, read, write

import glaive
from glaive.errors import OptionError, VersionNotFoundError

pytestmark = pytest.mark.spark


def offset(found: dict[str, Any]) -> Any:
    """An offset as Spark hands it on."""
    return json.loads(json.dumps(found))


@pytest.fixture
def dataset(uri: str) -> glaive.LanceDataset:
    """Two versions, of three rows each."""
    glaive.write_dataset(table(1, 2, 3), uri)
    return glaive.write_dataset(table(4, 5, 6), uri, mode="append")


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, [1, 2, 3, 4, 5, 6, 7]),
        ({"maxRowsPerTrigger": "4"}, [1, 2, 3, 4]),
        ({"startingVersion": "2"}, [4, 5, 6, 7]),
        ({"startingVersion": "latest"}, [7]),
        ({"readChangeFeed": "true", "startingVersion": "latest"}, [("insert", 7)]),
    ],
)
def test_a_first_batch_that_is_repeated_keeps_its_rows_when_others_came_since(
    uri: str, dataset: glaive.LanceDataset, options: dict[str, str], expected: list[Any]
) -> None:
    stream = Stream(uri, **options)
    start = offset(stream.reader.initialOffset())
    dataset.insert(table(7))
    end = offset(stream.reader.latestOffset(start, stream.reader.getDefaultReadLimit()))
    assert stream.rows(start, end) == expected
    dataset.insert(table(8))

    stream.start()
    again = offset(stream.reader.initialOffset())
    assert stream.rows(again, end) == expected

    stream.offset = end
    found: list[Any] = []
    while batch := stream.batch():
        found += batch
    rows: list[Any] = [*range(1, 9)]
    if "readChangeFeed" in options:
        rows = [("insert", number) for number in rows]
    assert [*expected, *found] == rows[-len(expected) - len(found) :]
    assert found


def test_a_first_batch_whose_version_was_cleaned_up_is_an_error(
    uri: str, dataset: glaive.LanceDataset
) -> None:
    stream = Stream(uri)
    start = offset(stream.reader.initialOffset())
    end = offset(stream.reader.latestOffset(start, stream.reader.getDefaultReadLimit()))
    dataset.insert(table(7))
    dataset.cleanup_old_versions(older_than=timedelta(0))

    stream.start()
    again = offset(stream.reader.initialOffset())
    with pytest.raises(VersionNotFoundError, match="oldest version left is 3"):
        stream.rows(again, end)


def test_checkpoints_of_earlier_releases_are_read(uri: str, dataset: glaive.LanceDataset) -> None:
    stream = Stream(uri)
    earlier = {"version": 2, "index": 0, "row": 0, "snapshot": False}
    stream.offset = earlier
    assert stream.batch() == [4, 5, 6]

    start = offset(stream.reader.initialOffset())
    assert stream.rows(start, {**earlier, "version": 3}) == [1, 2, 3, 4, 5, 6]
    assert dataset.version == 2


@pytest.mark.parametrize("end", [[], [1], "x", 7, None, True])
def test_an_offset_that_is_no_object_is_refused(
    uri: str, dataset: glaive.LanceDataset, end: Any
) -> None:
    stream = Stream(uri)
    first = offset(stream.reader.initialOffset())
    with pytest.raises(OptionError, match="none of the lance source"):
        stream.rows(first, end)
    assert dataset.version == 2


@pytest.mark.parametrize("start", [None, 7, {"version": 1}])
def test_a_first_batch_with_a_start_of_another_source_is_refused(
    uri: str, dataset: glaive.LanceDataset, start: object
) -> None:
    stream = Stream(uri)
    first = offset(stream.reader.initialOffset())
    end = {"version": 3, "index": 0, "row": 0, "snapshot": False, "start": start}

    with pytest.raises(OptionError, match="none of the lance source"):
        stream.rows(first, end)
    assert dataset.version == 2


@pytest.mark.nightly(reason="starts one more Java")
@pytest.mark.sampled(every=2)
@pytest.mark.parametrize("options", [{}, {"maxFilesPerTrigger": 1}])
def test_a_query_that_was_killed_in_its_first_batch_loses_no_rows(
    spark: SparkSession, tmp_path: Path, options: dict[str, Any]
) -> None:
    source = str(tmp_path / "source.lance")
    target, checkpoint = tmp_path / "target.lance", tmp_path / "checkpoint"
    dataset = glaive.write_dataset(pa.table({"id": [1, 2, 3, 4]}), source, max_rows_per_file=2)
    write(read(spark, source, **options), target, checkpoint)
    # As if all processes had been killed before the sink's first commit.
    shutil.rmtree(target)
    for folder in ("offsets", "commits"):
        for path in (checkpoint / folder).iterdir():
            if folder == "commits" or path.name.lstrip(".").split(".")[0] != "0":
                path.unlink()
    dataset.insert(pa.table({"id": [5]}))

    write(read(spark, source, **options), target, checkpoint)

    assert ids(target) == [1, 2, 3, 4, 5]
