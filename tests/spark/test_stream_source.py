"""The source of streams, called as Spark's processes call it, without Spark."""

from __future__ import annotations

import json
import pickle
import shutil
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxFiles, ReadMaxRows
from pyspark.sql.types import LongType, StructField, StructType

import glaive
from glaive.errors import GlaiveError, OptionError, SchemaError, VersionNotFoundError
from glaive.spark.source import LanceDataSource

Change = tuple[str, int]


def table(*numbers: int) -> pa.Table:
    return pa.table({"id": pa.array(numbers, pa.int64())})


class Stream:
    """A query over the source: its batches, and its checkpoint."""

    def __init__(self, uri: str, **options: str) -> None:
        self.options = {"path": uri, **options}
        self.offset: dict[str, Any] | None = None
        self.start()

    def start(self) -> None:
        """Start, or start again with the checkpoint."""
        source = LanceDataSource(dict(self.options))
        self.schema = source.schema()
        self.reader: Any = pickle.loads(pickle.dumps(source)).streamReader(self.schema)

    def batch(self, *, all_available: bool = False) -> list[Any]:
        """Plan and read one batch."""
        offset = self.reader.initialOffset() if self.offset is None else self.offset
        limit = ReadAllAvailable() if all_available else self.reader.getDefaultReadLimit()
        start = json.loads(json.dumps(offset))
        end = json.loads(json.dumps(self.reader.latestOffset(start, limit)))
        found = self.rows(start, end)
        self.offset = end
        return found

    def rows(self, start: dict[str, Any], end: dict[str, Any]) -> list[Any]:
        worker = pickle.loads(pickle.dumps(self.reader))
        parts = pickle.loads(pickle.dumps(list(self.reader.partitions(start, end))))
        read = [batch for part in parts for batch in worker.read(part)]
        found = pa.Table.from_batches(read) if read else table()
        if "_change_type" in found.column_names:
            return sorted(
                zip(found["_change_type"].to_pylist(), found["id"].to_pylist(), strict=True)
            )
        return sorted(found["id"].to_pylist())


@pytest.fixture
def dataset(uri: str) -> glaive.LanceDataset:
    """Two versions, of three rows each."""
    glaive.write_dataset(table(1, 2, 3), uri, enable_stable_row_ids=True)
    return glaive.write_dataset(table(4, 5, 6), uri, mode="append")


def test_a_stream_starts_with_all_rows_and_goes_on_with_new_ones(
    uri: str, dataset: glaive.LanceDataset
) -> None:
    stream = Stream(uri)
    assert stream.batch() == [1, 2, 3, 4, 5, 6]
    assert stream.batch() == []

    dataset.insert(table(7))
    dataset.insert(table(8))

    assert stream.batch() == [7, 8]
    assert stream.batch() == []


def test_a_stream_without_news_stays_where_it_is(uri: str, dataset: glaive.LanceDataset) -> None:
    stream = Stream(uri)
    stream.batch()
    before = stream.offset

    stream.batch()

    start = {"version": 2, "index": 0, "row": 0, "snapshot": True}
    position = {"version": 3, "index": 0, "row": 0, "snapshot": False}
    wire = glaive.dataset(uri).opened.manifest.wire
    moment = wire.timestamp.seconds, wire.timestamp.nanos
    identity = [2, *moment, wire.transaction_file]
    assert stream.offset == before == {**position, "identity": identity, "start": start}
    assert stream.reader.reportLatestOffset() == position
    assert dataset.version == 2


@pytest.mark.parametrize(
    ("start", "expected"), [("1", [1, 2, 3, 4, 5, 6]), ("2", [4, 5, 6]), ("latest", [])]
)
def test_a_stream_starts_at_a_version(
    uri: str, dataset: glaive.LanceDataset, start: str, expected: list[int]
) -> None:
    stream = Stream(uri, startingVersion=start)

    assert stream.batch() == expected
    dataset.insert(table(7))
    assert stream.batch() == [7]


def test_a_stream_starts_at_a_time(uri: str, dataset: glaive.LanceDataset) -> None:
    second = dataset.manifest.timestamp
    assert Stream(uri, startingTimestamp=second.isoformat()).batch() == [4, 5, 6]
    early = (second - timedelta(days=1)).isoformat()
    assert Stream(uri, startingTimestamp=early).batch() == [1, 2, 3, 4, 5, 6]

    late = (second + timedelta(days=1)).isoformat()
    with pytest.raises(OptionError, match="startingVersion=latest"):
        Stream(uri, startingTimestamp=late).batch()


def test_changes_of_no_row_are_passed_over(uri: str, dataset: glaive.LanceDataset) -> None:
    stream = Stream(uri)
    stream.batch()
    dataset.optimize.compact_files()
    dataset.create_scalar_index("id", "BTREE")
    dataset.update_config({"a": "b"})
    assert stream.batch() == []
    dataset.insert(table(7))

    assert stream.batch() == [7]


def test_updates_and_deletes_need_an_option(uri: str, dataset: glaive.LanceDataset) -> None:
    def after_first_batch(change: Callable[[], object], **options: str) -> list[Any]:
        stream = Stream(uri, startingVersion=str(dataset.latest_version + 1), **options)
        change()
        dataset.checkout_latest()
        dataset.insert(table(7))
        return stream.batch()

    def delete() -> None:
        dataset.delete("id = 7")

    def update() -> None:
        dataset.update({"id": "id + 100"}, where="id = 7")

    def overwrite() -> None:
        glaive.write_dataset(table(9), uri, mode="overwrite")

    dataset.insert(table(7))
    with pytest.raises(OptionError, match=r"deletes rows \(delete\).*ignoreDeletes"):
        after_first_batch(delete)
    assert after_first_batch(delete, ignoreDeletes="true") == [7]
    assert after_first_batch(delete, skipChangeCommits="true") == [7]
    with pytest.raises(OptionError, match=r"updates or deletes rows \(update\).*skipChangeCommits"):
        after_first_batch(update, ignoreDeletes="true")
    assert after_first_batch(update, skipChangeCommits="true") == [7]
    with pytest.raises(OptionError, match=r"rows \(overwrite\)"):
        after_first_batch(overwrite)
    assert after_first_batch(overwrite, skipChangeCommits="true") == [7]


def test_a_change_feed_streams_every_change(uri: str, dataset: glaive.LanceDataset) -> None:
    stream = Stream(uri, readChangeFeed="true")
    assert stream.schema.names == ["id", "_change_type", "_commit_version", "_commit_timestamp"]
    assert stream.batch() == [("insert", number) for number in range(1, 7)]
    dataset.update({"id": "id + 100"}, where="id = 1")
    dataset.delete("id = 2")

    assert stream.batch() == [("delete", 2), ("update_postimage", 101), ("update_preimage", 1)]


def test_old_values_can_be_left_out_of_a_stream(uri: str, dataset: glaive.LanceDataset) -> None:
    stream = Stream(uri, readChangeFeed="true", startingVersion="latest", preimages="false")
    stream.batch()
    dataset.update({"id": "id + 100"}, where="id = 1")

    assert stream.batch() == [("update_postimage", 101)]


# --- limits -------------------------------------------------------------------------------------


def batches(stream: Stream, *, start_again: bool = False) -> list[list[Any]]:
    """All batches up to the first one that stays where it is."""
    found = []
    while True:
        before = stream.offset
        rows = stream.batch()
        if stream.offset == before:
            return found
        found.append(rows)
        if start_again:
            stream.start()


@pytest.mark.sampled(every=2)
@pytest.mark.parametrize("start_again", [False, True])
@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"maxFilesPerTrigger": "1"}, [[1, 2, 3], [4, 5, 6]]),
        ({"maxFilesPerTrigger": "2"}, [[1, 2, 3, 4, 5, 6]]),
        ({"maxRowsPerTrigger": "2"}, [[1, 2], [3, 4], [5, 6]]),
        ({"maxRowsPerTrigger": "4"}, [[1, 2, 3, 4], [5, 6]]),
        ({"maxBytesPerTrigger": "1"}, [[number] for number in range(1, 7)]),
        ({"maxRowsPerTrigger": "5", "maxFilesPerTrigger": "1"}, [[1, 2, 3], [4, 5, 6]]),
    ],
)
def test_batches_keep_to_limits(
    uri: str,
    dataset: glaive.LanceDataset,
    options: dict[str, str],
    expected: list[list[int]],
    start_again: bool,
) -> None:
    for start in ({}, {"startingVersion": "1"}):
        found = batches(Stream(uri, **options, **start), start_again=start_again)
        assert [batch for batch in found if batch] == expected
    assert dataset.version == 2


def test_changes_keep_to_limits_as_far_as_they_can_be_cut(
    uri: str, dataset: glaive.LanceDataset
) -> None:
    dataset.delete("id in (1, 2, 4)")
    stream = Stream(uri, readChangeFeed="true", startingVersion="3", maxRowsPerTrigger="1")

    assert batches(stream) == [[("delete", 1), ("delete", 2)], [("delete", 4)]]


def test_a_query_for_all_there_is_ignores_limits(uri: str, dataset: glaive.LanceDataset) -> None:
    stream = Stream(uri, maxRowsPerTrigger="1")

    assert stream.batch(all_available=True) == [1, 2, 3, 4, 5, 6]
    assert isinstance(stream.reader.getDefaultReadLimit(), ReadMaxRows)
    assert isinstance(
        Stream(uri, maxFilesPerTrigger="3").reader.getDefaultReadLimit(), ReadMaxFiles
    )
    assert dataset.version == 2


def test_available_now_stops_at_what_is_there(uri: str, dataset: glaive.LanceDataset) -> None:
    stream = Stream(uri, maxFilesPerTrigger="1")
    stream.reader.prepareForTriggerAvailableNow()
    dataset.insert(table(7))

    assert batches(stream) == [[1, 2, 3], [4, 5, 6]]
    stream.start()
    assert batches(stream) == [[7]]


def test_a_batch_that_is_repeated_has_the_same_rows(uri: str, dataset: glaive.LanceDataset) -> None:
    stream = Stream(uri, maxRowsPerTrigger="2", readChangeFeed="true", startingVersion="1")
    start = stream.reader.initialOffset()
    rows = stream.batch()
    end = stream.offset
    assert end is not None
    dataset.optimize.compact_files()
    dataset.delete("id < 3")
    stream.start()

    assert stream.rows(start, end) == rows


def test_large_fragments_are_cut_for_tasks(uri: str) -> None:
    glaive.write_dataset(table(*range(20_000)), uri)
    stream = Stream(uri, split_bytes="8000")
    start = stream.reader.initialOffset()
    end = stream.reader.latestOffset(start, ReadAllAvailable())

    assert len(stream.reader.partitions(start, end)) > 2
    assert stream.batch() == list(range(20_000))


def test_partitions_of_many_fragments_are_small(uri: str) -> None:
    glaive.write_dataset(table(*range(2_000)), uri, max_rows_per_file=1)
    stream = Stream(uri)
    start = stream.reader.initialOffset()
    end = stream.reader.latestOffset(start, ReadAllAvailable())

    parts = stream.reader.partitions(start, end)

    assert sum(len(pickle.dumps(part)) for part in parts) < 2_000 * 32


# --- what goes wrong ----------------------------------------------------------------------------


def test_a_version_that_was_cleaned_up_stops_the_stream(
    uri: str, dataset: glaive.LanceDataset
) -> None:
    stream = Stream(uri)
    stream.batch()
    for number in range(3):
        dataset.insert(table(10 + number))
    dataset.cleanup_old_versions(older_than=timedelta(0))
    stream.start()

    with pytest.raises(VersionNotFoundError, match="oldest version left is 5"):
        stream.batch()


def test_columns_are_those_the_stream_started_with(uri: str, dataset: glaive.LanceDataset) -> None:
    stream = Stream(uri, startingVersion="latest")
    stream.batch()
    dataset.add_columns({"twice": "id * 2"})
    dataset.insert(pa.table({"id": [7], "twice": pa.array([14], pa.int64())}))
    assert stream.batch() == [7]

    dataset.alter_columns({"path": "id", "name": "number"})
    dataset.insert(pa.table({"number": [8], "twice": pa.array([16], pa.int64())}))
    with pytest.raises(SchemaError, match=r"'id' does not exist in .*'number' may be the same"):
        stream.batch()


def make_again(uri: str, versions: int) -> None:
    glaive.LanceDataset.drop(uri)
    for number in range(versions):
        glaive.write_dataset(table(100 + number), uri, mode="append")


@pytest.mark.parametrize("versions", [1, 2, 4])
@pytest.mark.parametrize("is_restarted", [True, False], ids=["restarted", "running"])
def test_a_dataset_that_was_made_again_is_recognised(
    uri: str, dataset: glaive.LanceDataset, versions: int, *, is_restarted: bool
) -> None:
    """Rows of its first versions would be left out."""
    assert dataset.version == 2
    stream = Stream(uri)
    stream.batch()
    make_again(uri, versions)
    if is_restarted:
        stream.start()

    with pytest.raises(OptionError, match="it is another dataset"):
        stream.batch()


@pytest.mark.parametrize("has_identity", [True, False], ids=["known", "number-alone"])
def test_so_is_one_with_fewer_versions_where_a_query_stops_at_what_is_there(
    uri: str, dataset: glaive.LanceDataset, *, has_identity: bool
) -> None:
    """It read nothing, run after run, until the source had as many versions."""
    assert dataset.version == 2
    stream = Stream(uri)
    stream.batch()
    if not has_identity and stream.offset is not None:
        del stream.offset["identity"]
    make_again(uri, 1)
    stream.start()
    stream.reader.prepareForTriggerAvailableNow()

    with pytest.raises(OptionError, match="it is another dataset"):
        stream.batch()


@pytest.mark.parametrize("versions", [1, 3])
def test_so_is_one_of_which_a_stream_has_read_a_part(
    uri: str, dataset: glaive.LanceDataset, versions: int
) -> None:
    stream = Stream(uri, maxRowsPerTrigger="2")
    assert stream.batch() == [1, 2]
    dataset.insert(table(7))
    make_again(uri, versions)
    stream.start()

    with pytest.raises(OptionError, match="it is another dataset"):
        stream.batch()


def test_so_is_one_made_again_after_a_batch_was_planned(
    uri: str, dataset: glaive.LanceDataset
) -> None:
    stream = Stream(uri)
    stream.batch()
    dataset.insert(table(7))
    start = stream.offset
    end = stream.reader.latestOffset(start, stream.reader.getDefaultReadLimit())
    make_again(uri, 4)
    stream.start()

    with pytest.raises(OptionError, match="it is another dataset"):
        stream.rows(start or {}, end)


def test_checkpoints_without_what_a_version_is_recognised_by_are_read(
    uri: str, dataset: glaive.LanceDataset
) -> None:
    stream = Stream(uri)
    stream.batch()
    dataset.insert(table(7))
    assert stream.offset is not None
    del stream.offset["identity"]
    stream.start()
    assert stream.batch() == [7]


def test_a_stream_goes_on_with_a_copy_of_the_dataset(
    uri: str, dataset: glaive.LanceDataset, tmp_path: Path
) -> None:
    stream = Stream(uri)
    stream.batch()
    dataset.insert(table(7))
    moved = shutil.copytree(uri, tmp_path / "copy")
    stream.options["path"] = str(moved)
    stream.start()
    assert stream.batch() == [7]


@pytest.mark.parametrize("offset", [{}, {"version": 1}, {"a": 1}])
def test_offsets_of_other_sources_are_refused(
    uri: str, dataset: glaive.LanceDataset, offset: dict[str, Any]
) -> None:
    stream = Stream(uri)
    stream.offset = offset

    with pytest.raises(OptionError, match="none of the lance source"):
        stream.batch()
    assert dataset.version == 2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"filter": "id > 1"}, "option filter: streams and change feeds have whole rows"),
        ({"columns": '{"a": "id"}'}, "columns with expressions"),
        ({"blobs": "bytes"}, "option blobs: streams and change feeds say where values"),
        ({"endingVersion": "2"}, "a stream has no end"),
        ({"deduplicationMode": "netChanges"}, "net changes need an end"),
        ({"startingVersion": "9"}, "the newest version of .* is 2, found 9"),
    ],
)
def test_options_that_a_stream_cannot_keep_are_refused(
    uri: str, dataset: glaive.LanceDataset, options: dict[str, str], message: str
) -> None:
    with pytest.raises(OptionError, match=message):
        Stream(uri, **options).batch()
    assert dataset.version == 2


def test_nothing_is_opened_by_the_constructor(uri: str) -> None:
    # Spark replaces its errors by one of its own.
    schema = StructType([StructField("id", LongType())])
    reader = LanceDataSource({"path": uri, "startingVersion": "x"}).streamReader(schema)

    with pytest.raises(GlaiveError, match="startingVersion"):
        reader.initialOffset()


# --- change feeds that end ----------------------------------------------------------------------


def changes(uri: str, **options: str) -> list[Any]:
    source = LanceDataSource({"path": uri, "readChangeFeed": "true", **options})
    schema = source.schema()
    reader = pickle.loads(pickle.dumps(source)).reader(schema)
    parts = reader.partitions()
    found = [batch for part in parts for batch in pickle.loads(pickle.dumps(reader)).read(part)]
    rows = pa.Table.from_batches(found)
    return sorted(zip(rows["_change_type"].to_pylist(), rows["id"].to_pylist(), strict=True))


def test_a_change_feed_can_end(uri: str, dataset: glaive.LanceDataset) -> None:
    dataset.delete("id = 1")
    time = dataset.checkout_version(2).manifest.timestamp.isoformat()

    assert changes(uri, startingVersion="3") == [("delete", 1)]
    second = [("insert", number) for number in (4, 5, 6)]
    assert changes(uri, startingVersion="2", endingVersion="2") == second
    assert changes(uri, startingTimestamp=time, endingTimestamp=time) == second
    net = changes(uri, startingVersion="1", deduplicationMode="netChanges")
    assert net == [("insert", number) for number in (2, 3, 4, 5, 6)]


def test_a_change_feed_needs_a_start(uri: str, dataset: glaive.LanceDataset) -> None:
    with pytest.raises(OptionError, match="readChangeFeed needs startingVersion"):
        changes(uri)
    source = LanceDataSource({"path": uri, "startingVersion": "1"})
    schema = source.schema()
    with pytest.raises(OptionError, match="need readChangeFeed=true in a batch read"):
        source.reader(schema)
    assert dataset.version == 2
