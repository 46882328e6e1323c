"""The sink of streams, step by step as Spark's processes run it, with faults at every step."""

from __future__ import annotations

import json
import pickle
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest
from pyspark.sql.datasource import WriterCommitMessage
from pyspark.sql.types import BinaryType, LongType, StringType, StructField, StructType
from tests.kit.crashes import left_by_kills

import glaive
from glaive.errors import (
    ColumnNotFoundError,
    CommitConflictError,
    DatasetNotFoundError,
    GlaiveError,
    OptionError,
    SchemaError,
    StoreError,
    UnsupportedFeatureError,
)
from glaive.io.access import open_store
from glaive.spark.options import StreamOptions, stream_options
from glaive.spark.source import LanceDataSource
from glaive.testing import KINDS as FAULTS
from glaive.testing import FaultyStore
from glaive.testing import Kind as FaultKind

FRAME = StructType([StructField("id", LongType()), StructField("text", StringType())])

Row = tuple[int | None, str | None]
Batch = Sequence[Sequence[Row]]
"""The rows of each task."""


class Query:
    """A streaming query with a checkpoint: makes writers as Spark does."""

    def __init__(
        self, uri: str, checkpoint: Path, *, complete: bool = False, **options: str
    ) -> None:
        self.uri, self.complete = uri, complete
        self.options = {"path": uri, "checkpointLocation": str(checkpoint), **options}
        checkpoint.mkdir(exist_ok=True)
        (checkpoint / "metadata").write_text(json.dumps({"id": f"id of {checkpoint.name}"}))

    def writer(self) -> Any:
        # One writer for the tasks of a batch, another in the process that commits.
        return LanceDataSource(dict(self.options)).streamWriter(FRAME, self.complete)

    def write(self, batch: Batch) -> list[WriterCommitMessage]:
        """Run the tasks of a batch; messages travel through pickle."""
        messages = []
        for rows in batch:
            writer = pickle.loads(pickle.dumps(self.writer()))
            ids, texts = zip(*rows, strict=True) if rows else ((), ())
            data = {"id": pa.array(ids, pa.int64()), "text": pa.array(texts, pa.string())}
            message = writer.write(iter([pa.record_batch(data)]))
            messages.append(pickle.loads(pickle.dumps(message)))
        return messages

    def commit(self, messages: Sequence[WriterCommitMessage | None], number: int) -> None:
        self.writer().commit(list(messages), number)

    def abort(self, messages: Sequence[WriterCommitMessage | None], number: int) -> None:
        self.writer().abort(list(messages), number)

    def run(self, number: int, batch: Batch) -> None:
        self.commit(self.write(batch), number)


@pytest.fixture
def query(uri: str, tmp_path: Path) -> Query:
    return Query(uri, tmp_path / "checkpoint")


def rows(uri: str) -> list[Row]:
    table = glaive.dataset(uri).to_table()
    found: list[Row] = list(zip(table["id"].to_pylist(), table["text"].to_pylist(), strict=True))
    return sorted(found, key=repr)


def files(uri: str) -> int:
    return len(list(Path(uri, "data").glob("*.lance")))


def test_each_batch_is_one_version(query: Query) -> None:
    query.run(0, [[(1, "a")], [(2, "b")]])
    query.run(1, [[(3, "c")], []])

    assert rows(query.uri) == [(1, "a"), (2, "b"), (3, "c")]
    assert glaive.dataset(query.uri).version == 2


def test_a_batch_that_is_repeated_is_written_once(query: Query) -> None:
    query.run(0, [[(1, "a")]])
    query.run(0, [[(1, "a")]])
    messages = query.write([[(2, "b")]])
    query.commit(messages, 1)
    query.abort(messages, 1)  # Spark calls it if the commit was not acknowledged

    query.run(1, [[(2, "b")]])
    query.commit(messages, 1)
    query.run(2, [[(3, "c")]])

    assert rows(query.uri) == [(1, "a"), (2, "b"), (3, "c")]
    assert glaive.dataset(query.uri).version == 3


@pytest.mark.parametrize("merge_keys", [None, "id"])
def test_a_batch_of_an_older_checkpoint_is_no_repeated_one(
    uri: str, tmp_path: Path, merge_keys: str | None
) -> None:
    options = {} if merge_keys is None else {"merge_keys": merge_keys}
    query = Query(uri, tmp_path / "checkpoint", **options)
    for number in range(3):
        query.run(number, [[(number, "a")]])
    dataset = glaive.dataset(uri)
    for number in (0, 1):
        with pytest.raises(OptionError, match=rf"batch {number} of .* the dataset has batch 2"):
            query.run(number, [[(7, "b")], [(8, "c")]])
    dataset.checkout_latest()
    assert len(rows(uri)) == 3

    dataset.checkout_version(dataset.version - 1).restore()
    query.run(2, [[(7, "b")]])
    assert rows(uri)[-1] == (7, "b")


def test_a_repeated_batch_is_recognised_after_other_commits_and_a_clean_up(query: Query) -> None:
    query.run(0, [[(1, "a")]])
    dataset = glaive.dataset(query.uri)
    dataset.update({"text": "'z'"}, where="id = 1")
    dataset.optimize.compact_files()
    dataset.cleanup_old_versions(older_than=timedelta(0), delete_unverified=True)

    query.run(0, [[(1, "a")]])

    assert rows(query.uri) == [(1, "z")]


def test_a_batch_without_rows_makes_no_version(query: Query) -> None:
    query.run(0, [[], []])
    with pytest.raises(DatasetNotFoundError):
        glaive.dataset(query.uri)

    query.run(1, [[(1, "a")]])
    query.run(2, [[]])

    assert glaive.dataset(query.uri).version == 1


def test_a_new_checkpoint_is_another_application(query: Query, uri: str, tmp_path: Path) -> None:
    query.run(0, [[(1, "a")]])
    other = Query(uri, tmp_path / "second")

    other.run(0, [[(2, "b")]])

    assert rows(uri) == [(1, "a"), (2, "b")]


def test_complete_mode_replaces_all_rows(uri: str, tmp_path: Path) -> None:
    query = Query(uri, tmp_path / "checkpoint", complete=True)
    query.run(0, [[(1, "a")], [(2, "b")]])
    messages = query.write([[(3, "c")]])
    query.commit(messages, 1)
    query.commit(messages, 1)
    assert rows(uri) == [(3, "c")]

    query.run(2, [[]])

    assert rows(uri) == []
    assert glaive.dataset(uri).version == 3


def test_an_abort_after_a_failed_task_removes_what_others_wrote(query: Query) -> None:
    query.run(0, [[(1, "a")]])
    messages = query.write([[(2, "b")]])

    query.abort([*messages, None], 1)

    assert files(query.uri) == 1
    query.run(1, [[(2, "b")]])
    assert rows(query.uri) == [(1, "a"), (2, "b")]


def test_an_abort_of_a_batch_that_was_committed_deletes_nothing(query: Query) -> None:
    messages = query.write([[(1, "a")], [(2, "b")]])
    query.commit(messages, 0)

    query.abort(messages, 0)
    query.abort([*messages, None], 0)

    assert rows(query.uri) == [(1, "a"), (2, "b")]


def test_a_task_of_an_older_version_is_appended_where_columns_are_the_same(query: Query) -> None:
    query.run(0, [[(1, "a")]])
    messages = query.write([[(2, "b")]])
    glaive.dataset(query.uri).delete("id = 1")

    query.commit(messages, 1)

    assert rows(query.uri) == [(2, "b")]


def test_columns_that_changed_during_a_batch_stop_it(query: Query) -> None:
    query.run(0, [[(1, "a")]])
    messages = query.write([[(2, "b")]])
    glaive.write_dataset(
        pa.table({"text": ["z"], "id": pa.array([9], pa.int64())}), query.uri, mode="overwrite"
    )

    with pytest.raises(CommitConflictError, match="Start the query again"):
        query.commit(messages, 1)

    query.run(1, [[(2, "b")]])
    assert rows(query.uri) == [(2, "b"), (9, "z")]


@pytest.mark.parametrize("same", [True, False], ids=["same-columns", "other-columns"])
def test_so_does_a_dataset_made_in_the_place_of_the_one_that_was_read(
    query: Query, same: bool
) -> None:
    query.run(0, [[(1, "a")]])
    messages = query.write([[(2, "b")]])
    glaive.LanceDataset.drop(query.uri)
    other = pa.table({"id": pa.array([9], pa.int64()), "text": ["z"]})
    glaive.write_dataset(other if same else other.select(["text", "id"]), query.uri)

    with pytest.raises(CommitConflictError, match=r"in its place|Start the query again"):
        query.commit(messages, 1)
    assert rows(query.uri) == [(9, "z")]

    query.run(1, [[(2, "b")]])
    assert rows(query.uri) == [(2, "b"), (9, "z")]


@pytest.mark.parametrize("kind", ["append", "complete", "merge"])
def test_files_that_the_driver_does_not_see_are_not_committed(
    uri: str, tmp_path: Path, kind: str
) -> None:
    options = {"merge_keys": "id"} if kind == "merge" else {}
    query = Query(uri, tmp_path / "c", complete=kind == "complete", **options)
    query.run(0, [[(1, "a")]])
    before = set(Path(uri, "data").iterdir())
    messages = query.write([[(2, "b")], [(3, "c")]])
    (set(Path(uri, "data").iterdir()) - before).pop().unlink()

    with pytest.raises(StoreError, match=r"wrote 1 files to .* does not see"):
        query.commit(messages, 1)
    query.abort(messages, 1)
    assert rows(uri) == [(1, "a")]

    query.run(1, [[(2, "b")], [(3, "c")]])
    assert rows(uri)[-2:] == [(2, "b"), (3, "c")]


# --- upserts ----------------------------------------------------------------------------------


@pytest.fixture
def upserts(uri: str, tmp_path: Path) -> Query:
    return Query(uri, tmp_path / "checkpoint", merge_keys="id", enable_stable_row_ids="true")


def test_rows_are_updated_and_inserted_by_key(upserts: Query) -> None:
    upserts.run(0, [[(1, "a")], [(2, "b")]])
    upserts.run(1, [[(2, "bb"), (3, "c")]])
    upserts.run(1, [[(2, "lost"), (4, "lost")]])

    assert rows(upserts.uri) == [(1, "a"), (2, "bb"), (3, "c")]
    kinds = glaive.dataset(upserts.uri).changes(3).to_table()["_change_type"].to_pylist()
    assert kinds == ["update_preimage", "update_postimage", "insert"]


def test_files_of_merged_batches_are_removed(upserts: Query) -> None:
    upserts.run(0, [[(1, "a")], [(2, "b")]])
    upserts.run(1, [[(2, "bb"), (3, "c")]])
    dataset = glaive.dataset(upserts.uri)

    used = {file.path for fragment in dataset.manifest.fragments() for file in fragment.files}

    dataset.cleanup_old_versions(older_than=timedelta(0))
    assert {path.name for path in Path(upserts.uri, "data").glob("*.lance")} == used


def test_repeated_keys_in_a_batch_are_refused(upserts: Query, uri: str) -> None:
    upserts.run(0, [[(1, "a"), (2, "b")], [(None, "n"), (None, "n")]])
    assert rows(uri) == [(1, "a"), (2, "b"), (None, "n"), (None, "n")]

    with pytest.raises(SchemaError, match=r"several rows of one batch have id.*sequence_by"):
        upserts.run(1, [[(3, "a"), (2, "b")], [(3, "c")]])
    assert rows(uri) == [(1, "a"), (2, "b"), (None, "n"), (None, "n")]


def test_keys_that_are_no_columns_are_refused(uri: str, tmp_path: Path) -> None:
    with pytest.raises(ColumnNotFoundError, match="idd"):
        Query(uri, tmp_path / "c", merge_keys="idd").writer()
    with pytest.raises(OptionError, match="complete replaces all rows"):
        Query(uri, tmp_path / "c", complete=True, merge_keys="id").writer()


def test_blobs_are_not_merged(uri: str) -> None:
    blob = pa.field("blob", pa.large_binary(), metadata={"lance-encoding:blob": "true"})
    table = pa.table([[1], [b"x"]], schema=pa.schema([pa.field("id", pa.int64()), blob]))
    glaive.write_dataset(table, uri, data_storage_version="2.1")
    frame = StructType([StructField("id", LongType()), StructField("blob", BinaryType())])
    source = LanceDataSource({"path": uri, "txnAppId": "a", "merge_keys": "id"})

    with pytest.raises(UnsupportedFeatureError, match="blob column 'blob'"):
        source.streamWriter(frame, False)


# --- small files ------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{}, {"merge_keys": "id"}], ids=["append", "merge"])
def test_small_files_are_compacted_once_there_are_enough(
    uri: str, tmp_path: Path, options: dict[str, str]
) -> None:
    query = Query(uri, tmp_path / "checkpoint", **options)
    counts = []
    for number in range(6):
        query.run(number, [[(number, "x")]])
        glaive.dataset(uri).update_config({"glaive.auto_compact": "3"})
        counts.append(glaive.dataset(uri).manifest.num_fragments)

    assert counts == [1, 2, 1, 2, 3, 1]
    assert rows(uri) == [(number, "x") for number in range(6)]
    query.run(5, [[(5, "x")]])
    assert len(rows(uri)) == 6


def test_new_files_of_a_clustered_table_are_clustered(uri: str, tmp_path: Path) -> None:
    query = Query(uri, tmp_path / "checkpoint")
    query.run(0, [[(9, "x")]])
    keys = {"glaive.cluster_by": '["id"]', "glaive.auto_compact": "3"}
    glaive.dataset(uri).update_config(keys)
    for number in range(1, 6):
        query.run(number, [[(9 - number, "x")]])

    assert glaive.dataset(uri).manifest.num_fragments == 1
    assert lance.dataset(uri).to_table()["id"].to_pylist() == [4, 5, 6, 7, 8, 9]


# --- the name of the application -----------------------------------------------------------------


def test_a_sink_without_a_checkpoint_needs_a_name(uri: str, tmp_path: Path) -> None:
    def writer(**options: str) -> Any:
        return LanceDataSource({"path": uri, **options}).streamWriter(FRAME, False)

    with pytest.raises(OptionError, match="checkpointLocation"):
        writer()
    with pytest.raises(OptionError, match="txnAppId"):
        writer(checkpointLocation=str(tmp_path / "missing"))
    (tmp_path / "metadata").write_text("no json")
    with pytest.raises(OptionError, match="txnAppId"):
        writer(checkpointLocation=str(tmp_path))
    assert writer(txnAppId="mine").app_id == "mine"


def test_the_name_is_the_id_of_the_query(query: Query, tmp_path: Path) -> None:
    assert query.writer().app_id == "query id of checkpoint"
    query.options["checkpointLocation"] = f"file:{tmp_path / 'checkpoint'}"
    assert query.writer().app_id == "query id of checkpoint"


# --- crashes ------------------------------------------------------------------------------------

FIRST: Batch = [[(1, "a")], [(2, "b")]]
SECOND: Batch = [[(2, "bb")], [(3, "c")]]


@pytest.mark.sampled(every=4)
@pytest.mark.slow
@pytest.mark.parametrize("kind", ["append", "complete", "merge"])
def test_a_crash_at_any_step_neither_loses_nor_doubles_rows(
    uri: str, tmp_path: Path, kind: str
) -> None:
    options = {"merge_keys": "id"} if kind == "merge" else {}
    query = Query(uri, tmp_path / "c", complete=kind == "complete", **options)
    query.run(0, FIRST)
    version = glaive.dataset(uri).version
    expected: dict[str, list[Row]] = {
        "append": [(1, "a"), (2, "b"), (2, "bb"), (3, "c")],
        "complete": [(2, "bb"), (3, "c")],
        "merge": [(1, "a"), (2, "bb"), (3, "c")],
    }
    left = left_by_kills(Path(uri), lambda: query.run(1, SECOND), tmp_path / "left")
    for place in map(str, left):
        assert rows(place) in (rows_of(place, version), expected[kind])
        # The query starts again from its checkpoint.
        again = Query(place, tmp_path / "c", complete=kind == "complete", **options)
        again.run(1, SECOND)
        assert rows(place) == expected[kind], place
        glaive.dataset(place).cleanup_old_versions(older_than=timedelta(0), delete_unverified=True)
        dataset = glaive.dataset(place)
        used = {file.path for fragment in dataset.manifest.fragments() for file in fragment.files}
        assert {path.name for path in Path(place, "data").glob("*.lance")} == used
    assert len(left) > 6


@pytest.mark.sampled(every=8)
@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("kind", ["append", "merge"])
def test_a_request_of_the_commit_that_fails_neither_loses_nor_doubles_rows(
    uri: str, tmp_path: Path, kind: str, fault: FaultKind
) -> None:
    query = Query(uri, tmp_path / "c", **({"merge_keys": "id"} if kind == "merge" else {}))
    query.run(0, FIRST)
    merged = [(1, "a"), (2, "bb"), (3, "c")]
    expected = merged if kind == "merge" else sorted([*merged, (2, "b")])
    at = 0
    while True:
        at += 1
        messages = query.write(SECOND)
        writer = query.writer()
        store = FaultyStore(open_store(uri))
        writer.job = replace(writer.job, plan=replace(writer.job.plan, store=store, base=None))
        store.arm(at, fault)
        try:
            writer.commit(messages, 1)
        except GlaiveError:
            query.abort(messages, 1)
        query.run(1, SECOND)
        assert rows(uri) == expected, (at, fault)
        if store.requests < at:
            break
        glaive.dataset(uri, version=2 if kind == "merge" else 1).restore()
    assert at > 5


def rows_of(uri: str, version: int) -> list[Row]:
    table = glaive.dataset(uri, version=version).to_table()
    found: list[Row] = list(zip(table["id"].to_pylist(), table["text"].to_pylist(), strict=True))
    return sorted(found, key=repr)


# --- options ------------------------------------------------------------------------------------


def test_the_name_of_one_write_is_no_name_of_a_stream(uri: str, tmp_path: Path) -> None:
    with pytest.raises(OptionError, match=r"job_id: it names one write.* txnAppId"):
        Query(uri, tmp_path / "c", job_id="monday").writer()


def test_options_are_taken_out_of_the_others() -> None:
    found, others = stream_options(
        {
            "path": "p",
            "startingVersion": "LATEST",
            "maxbytespertrigger": "64MB",
            "maxRowsPerTrigger": "10",
            "skipChangeCommits": "True",
            "deduplicationMode": "netchanges",
            "merge_keys": "a, b",
            "queryName": "set by Spark",
        }
    )

    assert others == {"path": "p"}
    assert found == StreamOptions(
        starting_version="latest",
        max_bytes=64_000_000,
        max_rows=10,
        skip_change_commits=True,
        deduplication_mode="netChanges",
        merge_keys=("a", "b"),
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"startingVersion": "0"}, "startingVersion: expected an integer ≥ 1, or latest"),
        ({"readChangeFeed": "yes"}, "readChangeFeed: expected true or false"),
        ({"maxBytesPerTrigger": "many"}, "maxBytesPerTrigger: expected a number of bytes"),
        ({"merge_keys": "a,,b"}, "merge_keys: expected names"),
        ({"deduplicationMode": "x"}, "deduplicationMode: expected 'none' or 'netChanges'"),
        ({"txnAppId": " "}, "txnAppId: expected a string"),
        ({"startingVersion": "1", "startingTimestamp": "2026-01-01"}, "give only one"),
    ],
)
def test_values_that_mean_nothing_are_refused(options: dict[str, str], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        stream_options(options)
