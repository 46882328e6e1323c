"""Jobs that were named make one version, which the newest manifest tells."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest

import glaive
from glaive.io.access import open_store
from glaive.table.load import open_latest
from glaive.table.named_jobs import MAX_JOBS, NamedJob, forgotten_until, made_version
from glaive.testing import CountingStore


def append(uri: Path, job: str, *, mode: str = "append") -> None:
    """Append one row as a job."""
    properties = NamedJob(job).properties
    glaive.write_dataset(
        pa.table({"id": [7]}), str(uri), mode=mode, transaction_properties=properties
    )


def made(uri: Path, job: str) -> int | None:
    return made_version(open_latest(open_store(str(uri))), job)


@pytest.fixture
def uri(tmp_path: Path) -> Path:
    place = tmp_path / "t.lance"
    glaive.write_dataset(pa.table({"id": [1]}), str(place))
    append(place, "a")
    return place


def test_a_job_makes_one_version(uri: Path) -> None:
    append(uri, "b")
    append(uri, "a")
    append(uri, "b")

    assert glaive.dataset(str(uri)).version == 3
    assert [made(uri, job) for job in ("a", "b", "c")] == [2, 3, None]


def test_its_version_is_known_after_changes_of_any_kind_and_a_clean_up(uri: Path) -> None:
    dataset = glaive.dataset(str(uri))
    dataset.update({"id": "8"}, where="id = 7")
    dataset.delete("id = 1")
    dataset.create_scalar_index("id", "BTREE")
    dataset.optimize.compact_files()
    glaive.write_dataset(pa.table({"id": [9]}), str(uri), mode="overwrite")
    dataset.cleanup_old_versions(older_than=timedelta(0), delete_unverified=True)

    append(uri, "a")
    append(uri, "a", mode="overwrite")

    assert made(uri, "a") == 2
    assert glaive.dataset(str(uri)).to_table()["id"].to_pylist() == [9]


@pytest.mark.interop
def test_its_version_is_known_after_commits_of_pylance(uri: Path) -> None:
    lance = pytest.importorskip("lance")
    dataset = lance.write_dataset(pa.table({"id": [5]}), str(uri), mode="append")
    dataset.delete("id = 5")
    dataset.optimize.compact_files()
    dataset.cleanup_old_versions(older_than=timedelta(0))

    append(uri, "a")

    assert made(uri, "a") == 2
    assert sorted(lance.dataset(str(uri)).to_table()["id"].to_pylist()) == [1, 7]


def test_a_restore_takes_back_what_a_job_made_since(uri: Path) -> None:
    glaive.dataset(str(uri), version=1).restore()

    append(uri, "a")

    assert made(uri, "a") == 4
    assert sorted(glaive.dataset(str(uri)).to_table()["id"].to_pylist()) == [1, 7]


def test_the_oldest_entries_are_removed_and_the_manifest_says_up_to_which_version(
    uri: Path,
) -> None:
    assert forgotten_until(open_latest(open_store(str(uri)))) == 0
    for number in range(MAX_JOBS):
        append(uri, f"other {number}")

    newest = open_latest(open_store(str(uri)))

    assert made_version(newest, "a") is None
    assert made_version(newest, "other 0") == 3
    assert forgotten_until(newest) == 2
    assert len(newest.table_metadata) == MAX_JOBS


def test_the_version_is_found_with_the_newest_manifest(uri: Path) -> None:
    for number in range(20):
        glaive.dataset(str(uri)).insert(pa.table({"id": [100 + number]}))
    store = CountingStore(open_store(str(uri)))

    assert made_version(open_latest(store), "a") == 2
    assert store.requests <= 2
