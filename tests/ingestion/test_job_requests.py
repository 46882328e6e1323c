"""What it costs to find out whether a job was done: as many requests, however many versions."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.kit.crashes import left_by_kills

import glaive
from glaive.ingestion import IngestResult, ingest, job
from glaive.ingestion.sources import BAD_RECORDS
from glaive.io.access import open_store
from glaive.table.named_jobs import MAX_JOBS, NamedJob
from glaive.testing import CountingStore


def commit_jobs(uri: Path, count: int) -> None:
    """Commit so many versions more, each of another job."""
    none = glaive.dataset(uri).schema.empty_table()
    for number in range(count):
        other = NamedJob(f"other {number}").properties
        glaive.write_dataset(none, uri, mode="append", transaction_properties=other)


@pytest.fixture
def counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Ingests a file with a bad record as a job; how many manifests were read for it."""
    source = tmp_path / "in.csv"
    source.write_text("n\n7\nx\n")

    def run(uri: Path, aside: Path, *, mode: Any = "append") -> tuple[IngestResult, int]:
        stores = {path: CountingStore(open_store(str(path))) for path in (uri, aside)}
        monkeypatch.setattr(job, "open_root", lambda path, _: stores[path])
        typed = {"schema": "n bigint"} if mode == "overwrite" else {}
        done = ingest(source, uri, mode=mode, job_id="j", bad_records=aside, **typed)
        log = [request for store in stores.values() for request in store.log]
        assert log
        manifests = [entry for entry in log if entry.path.endswith(".manifest")]
        return done, sum(entry.method == "get" for entry in manifests)

    return run


@pytest.mark.parametrize("mode", ["append", "overwrite"])
def test_a_job_reads_no_more_manifests_if_there_are_many_versions(
    tmp_path: Path, counted: Any, mode: str
) -> None:
    found = []
    for versions in (1, 3 * MAX_JOBS):
        uri, aside = tmp_path / f"{versions}.lance", tmp_path / f"{versions}.bad"
        glaive.write_dataset(pa.table({"n": [1]}), uri)
        glaive.write_dataset(BAD_RECORDS.empty_table(), aside)
        commit_jobs(uri, versions)
        commit_jobs(aside, versions)

        done, manifests = counted(uri, aside, mode=mode)

        assert (done.rows, done.bad_records, done.repeated) == (1, 1, False)
        found.append(manifests)
    assert found[0] == found[1] <= 6


def test_a_job_that_ran_reads_the_newest_manifest(tmp_path: Path, counted: Any) -> None:
    """Also if it was stopped before its end was noted."""
    uri, aside = tmp_path / "t.lance", tmp_path / "t.bad"
    glaive.write_dataset(pa.table({"n": [1]}), uri)
    glaive.write_dataset(BAD_RECORDS.empty_table(), aside)
    first, _ = counted(uri, aside)
    for number in range(30):
        glaive.dataset(uri).update_config({"number": f"{number}"})
    (uri / "_glaive" / "jobs" / "j" / "committed.json").unlink()

    for _ in range(2):
        done, manifests = counted(uri, aside)
        assert (done.version, done.repeated, manifests) == (first.version, True, 1)


def test_a_job_that_was_forgotten_is_looked_for_since_it_was_stopped(
    tmp_path: Path, counted: Any
) -> None:
    """In the versions of which the newest manifest does not tell whose they are, and no others."""
    begun, costs = tmp_path / "begun", set()
    glaive.write_dataset(pa.table({"n": [1]}), begun / "t.lance")
    glaive.write_dataset(BAD_RECORDS.empty_table(), begun / "t.bad")
    for number in range(30):
        glaive.dataset(begun / "t.lance").update_config({"number": f"{number}"})
    run = partial(counted, begun / "t.lance", begun / "t.bad")
    left = left_by_kills(begun, run, tmp_path / "left")
    for folder in [*left[::4], left[-1]]:
        copy, beside = folder / "t.lance", folder / "t.bad"
        for place in (copy, beside):
            commit_jobs(place, MAX_JOBS)
            glaive.dataset(place).update_config({"more": "versions"})

        _, manifests = counted(copy, beside)

        costs.add(manifests)
        assert sorted(glaive.dataset(copy).to_table()["n"].to_pylist()) == [1, 7], folder
        assert glaive.dataset(beside).count_rows() == 1, folder
    assert max(costs) <= 9
