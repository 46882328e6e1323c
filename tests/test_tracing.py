"""Events of datasets, files and indices, under the targets and with the fields of pylance."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest

import glaive
from glaive import tracing
from glaive.errors import DatasetNotFoundError, StoreError
from glaive.tracing import TraceEvent

ROWS = pa.table({"id": [1, 2, 3], "name": ["a", "b", "c"]})


@pytest.fixture
def events() -> Iterator[list[TraceEvent]]:
    """Events from now on."""
    found = list[TraceEvent]()
    tracing.capture_trace_events(found.append)
    yield found
    tracing.shutdown_tracing()


def fields_of(events: list[TraceEvent], target: str, *names: str) -> list[tuple[str | None, ...]]:
    """Some fields of the events of one target; they are forgotten then."""
    found = [tuple(map(one.args.get, names)) for one in events if one.target == target]
    events.clear()
    return found


def test_a_dataset_is_written_committed_and_opened(
    events: list[TraceEvent], tmp_path: Path
) -> None:
    uri = str(tmp_path / "t")
    glaive.write_dataset(ROWS, uri)
    assert [one.args["type"] for one in events if one.target == "lance::file_audit"] == [
        "data",
        "manifest",
    ]
    names = ("event", "uri", "mode", "read_version", "committed_version", "operation")
    assert fields_of(events, "lance::dataset_events", *names) == [
        ("writing", uri, "Create", None, None, None),
        ("committed", uri, None, "0", "1", "Overwrite"),
    ]
    glaive.dataset(uri, version=1)
    with pytest.raises(DatasetNotFoundError):
        glaive.dataset(f"{uri}.no")
    assert fields_of(
        events, "lance::dataset_events", "event", "status", "version", "target_ref"
    ) == [("loading", "success", "1", "1"), ("loading", "error", None, None)]


def test_files_are_created_and_deleted(events: list[TraceEvent], tmp_path: Path) -> None:
    dataset = glaive.write_dataset(ROWS, str(tmp_path / "t"))
    events.clear()
    dataset.delete("id = 1")
    names = ("mode", "type")
    assert fields_of(events, "lance::file_audit", *names) == [
        ("create", "deletion"),
        ("create", "manifest"),
    ]
    dataset.cleanup_old_versions(older_than=timedelta(0))
    assert [one.args.get("event") for one in events if "dataset" in one.target] == ["cleaning"]
    assert ("delete", "manifest") in fields_of(events, "lance::file_audit", *names)


def test_scans_report_figures_and_indices_that_they_open(
    events: list[TraceEvent], tmp_path: Path
) -> None:
    uri = str(tmp_path / "t")
    glaive.write_dataset(ROWS, uri).create_scalar_index("id", "BTREE")
    dataset = glaive.dataset(uri)
    events.clear()
    assert dataset.to_table(filter="id = 2").num_rows == 1
    opened = [one.args["type"] for one in events if one.target == "lance::io_events"]
    assert opened == ["open_scalar_index"]
    assert fields_of(events, "lance::execution", "type", "output_rows") == [("plan_run", "1")]


def test_figures_are_those_of_one_scan(events: list[TraceEvent], tmp_path: Path) -> None:
    dataset = glaive.write_dataset(ROWS, str(tmp_path / "t"))
    events.clear()
    dataset.to_table()
    dataset.to_table()
    read = fields_of(events, "lance::execution", "iops")
    assert read[0] != ("0",)
    assert read[1] == ("0",)  # the file is known


def test_what_a_listener_does_is_no_event(tmp_path: Path) -> None:
    uri = str(tmp_path / "t")
    glaive.write_dataset(ROWS, uri)
    heard = []

    def read(event: TraceEvent) -> None:
        heard.append(event.args["event"])
        assert glaive.dataset(uri).count_rows() == 3

    tracing.capture_trace_events(read)
    try:
        glaive.dataset(uri)
        glaive.dataset(uri)
    finally:
        tracing.shutdown_tracing()
    assert heard == ["loading", "loading"]


def test_events_have_no_passwords(events: list[TraceEvent]) -> None:
    options = {"client_max_retries": "0", "allow_http": "true"}
    with pytest.raises(StoreError):
        glaive.dataset(
            "s3://me:secret@bucket/t", storage_options={**options, "endpoint": "http://127.0.0.1:1"}
        )
    uris = fields_of(events, "lance::dataset_events", "uri")
    assert uris == [("s3://me:***@bucket/t",)]


def test_an_error_of_a_listener_does_not_undo_a_commit(tmp_path: Path) -> None:
    def fail(_: TraceEvent) -> None:
        raise ValueError("of the listener")

    tracing.capture_trace_events(fail)
    try:
        assert glaive.write_dataset(ROWS, str(tmp_path / "t")).version == 1
    finally:
        tracing.shutdown_tracing()


def test_the_level_of_the_logger_is_afterwards_what_it_was(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LANCE_LOG", "INFO")
    logger = logging.getLogger("glaive")
    with caplog.at_level(logging.ERROR, "glaive"):
        for _ in range(2):
            tracing.capture_trace_events(lambda _: None)
        assert logger.level == logging.INFO
        tracing.shutdown_tracing()
        assert logger.level == logging.ERROR


def test_after_the_end_there_are_no_events(events: list[TraceEvent], tmp_path: Path) -> None:
    tracing.shutdown_tracing()
    glaive.write_dataset(ROWS, str(tmp_path / "t"))
    assert events == []


def test_a_trace_file_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=rf"cannot write {tmp_path}"):
        tracing.trace_to_chrome(file=tmp_path)
    with pytest.raises(StoreError, match=r"cannot write .*missing/trace\.json"):
        tracing.trace_to_chrome(file=tmp_path / "missing" / "trace.json")


@pytest.mark.usefixtures("events")
def test_a_trace_file_that_cannot_be_ended_is_named() -> None:
    tracing.trace_to_chrome(file="/dev/full")
    with pytest.raises(StoreError, match="cannot write /dev/full: No space left on device"):
        tracing.shutdown_tracing()
