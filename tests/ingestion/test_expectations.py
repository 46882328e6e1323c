"""Rows that are not as expected: an error, left out, or put aside."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import glaive
from glaive.errors import DatasetNotFoundError, ExpectationError, FilterError, OptionError
from glaive.ingestion import IngestResult, ingest

CSV = "id,price\n1,2.5\n2,-1\n3,\n4,7\n"


@pytest.fixture
def source(tmp_path: Path) -> Path:
    (tmp_path / "a.csv").write_text(CSV)
    return tmp_path / "a.csv"


def test_a_row_that_violates_an_expectation_is_an_error(source: Path, tmp_path: Path) -> None:
    with pytest.raises(ExpectationError, match=r'a\.csv: .*expect: price > 0: \{"id": 2, "price"'):
        ingest(source, tmp_path / "t.lance", expect="price > 0")
    with pytest.raises(DatasetNotFoundError):
        glaive.dataset(tmp_path / "t.lance")


def test_rows_that_violate_an_expectation_are_dropped_and_counted(
    source: Path, tmp_path: Path
) -> None:
    conditions = {"positive": "price > 0", "early": "id < 4"}
    done = ingest(source, tmp_path / "t.lance", expect=conditions, on_violation="drop")
    assert (done.rows, done.dropped, done.bad_records) == (1, 3, 0)
    assert glaive.dataset(tmp_path / "t.lance").to_table()["id"].to_pylist() == [1]


def test_a_row_with_a_time_that_python_does_not_have_is_shown_all_the_same(tmp_path: Path) -> None:
    times = pa.array([2**62], pa.timestamp("us"))  # in the year 148,000
    pq.write_table(pa.table({"x": [-1], "at": times}), tmp_path / "a.parquet")
    with pytest.raises(ExpectationError, match='"x": -1, "at": "<value out of range: 4611686018'):
        ingest(tmp_path / "a.parquet", tmp_path / "t.lance", expect="x > 0")


@pytest.mark.parametrize("mode", ["create", "merge"])
def test_rows_that_violate_an_expectation_become_bad_records(
    source: Path, tmp_path: Path, mode: str
) -> None:
    done = ingest(
        source,
        tmp_path / "t.lance",
        mode=mode,  # type: ignore[arg-type]  # one of the names
        merge_keys="id" if mode == "merge" else None,
        expect="price > 0",
        on_violation="quarantine",
        bad_records=tmp_path / "bad.lance",
    )
    assert (done.rows, done.bad_records) == (2, 2)
    bad = glaive.dataset(tmp_path / "bad.lance").to_table().to_pylist()
    assert [json.loads(row["record"]) for row in bad] == [
        {"id": 2, "price": -1.0},
        {"id": 3, "price": None},
    ]
    assert {row["reason"] for row in bad} == {"expectation expect: price > 0"}


def test_a_task_that_is_not_repeated_still_counts_what_it_dropped(tmp_path: Path) -> None:
    for number in range(2):
        pq.write_table(pa.table({"n": [number, -1]}), tmp_path / f"{number}.parquet")

    def stop(finished: int, tasks: int) -> None:
        raise InterruptedError(f"after {finished} of {tasks}")

    def run(progress: Callable[[int, int], None] | None) -> IngestResult:
        return ingest(
            tmp_path / "*.parquet",
            tmp_path / "t.lance",
            job_id="job",
            task_bytes=1,
            expect="n >= 0",
            on_violation="drop",
            progress=progress,
        )

    with pytest.raises(InterruptedError, match="after 1 of 2"):
        run(stop)
    assert run(None).dropped == 2


@pytest.mark.parametrize(
    ("keywords", "error"),
    [
        ({"expect": "cost > 0"}, FilterError),
        ({"expect": ""}, OptionError),
        ({"expect": {"a": 1}}, OptionError),
        ({"expect": "price > 0", "on_violation": "quarantine"}, OptionError),
        ({"expect": "price > 0", "on_violation": "ignore"}, OptionError),
    ],
)
def test_expectations_that_cannot_be_tested_are_refused(
    source: Path, tmp_path: Path, keywords: dict[str, object], error: type[Exception]
) -> None:
    with pytest.raises(error):
        ingest(source, tmp_path / "t.lance", **keywords)
