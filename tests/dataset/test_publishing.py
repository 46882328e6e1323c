"""Publishing a branch: its contents become the next version of the branch it was made from."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.kit.simulated_bucket import Bucket
from tests.kit.simulated_store import SimulatedStore
from tests.kit.simulation import Actor, Faults, Simulation

import glaive
from glaive.dataset.dataset import LanceDataset
from glaive.dataset.refs import publish_branch
from glaive.dataset.tasks import InProcess, Job, SharingTask, Task
from glaive.dataset.version import OpenedVersion
from glaive.errors import (
    CommitConflictError,
    CorruptFileError,
    OptionError,
    RefNotFoundError,
    VersionNotFoundError,
)
from glaive.table.load import open_latest
from glaive.table.named_jobs import MAX_JOBS, NamedJob, forgotten_until, made_version

lance = pytest.importorskip("lance", reason="install the 'interop' group")

ROWS = pa.table({"id": list(range(20)), "x": [1] * 20})
ADDED = pa.table({"id": [50], "x": [5]})


@pytest.fixture(params=[False, True], ids=["addresses", "stable ids"])
def main(tmp_path: Path, request: pytest.FixtureRequest) -> LanceDataset:
    """A dataset of four fragments with an index."""
    stable = request.param
    made = glaive.write_dataset(
        ROWS, tmp_path / "t.lance", max_rows_per_file=5, enable_stable_row_ids=stable
    )
    made.create_scalar_index("id", "BTREE")
    return made


def changed_branch(main: LanceDataset, name: str = "dev") -> LanceDataset:
    """A branch with changes of all kinds: rows, columns, an index."""
    branch = main.create_branch(name)
    branch.delete("id = 3")
    branch.update({"x": "7"}, "id = 8")
    branch.insert(pa.table({"id": [100], "x": [2]}))
    branch.optimize.optimize_indices()
    branch.add_columns({"y": "x * 2"})
    branch.update_config({"checked": "yes"})
    return branch


def changes_of(dataset: LanceDataset, version: int) -> list[tuple[str, int, int]]:
    rows = dataset.changes(version).to_table().to_pylist()
    return sorted((row["_change_type"], row["id"], row["x"]) for row in rows)


@pytest.mark.spec("publish-2")
def test_all_that_a_branch_changed_becomes_one_version(main: LanceDataset) -> None:
    before = main.version
    branch = changed_branch(main)

    assert main.branches.publish("dev") == before + 1

    assert main.to_table() == branch.to_table()
    assert main.config()["checked"] == "yes"
    transaction = main.read_transaction(before + 1)
    assert transaction is not None
    operation: Any = transaction.operation
    stated = [fragment.to_json() for fragment in operation.fragments]
    found = [one.metadata.to_json() for one in main.get_fragments()]
    for part in ("id", "files", "deletion_file"):
        assert [one[part] for one in stated] == [one[part] for one in found]
    seen = lance.dataset(main.uri)
    assert seen.version == before + 1
    assert seen.to_table().to_pylist() == branch.to_table().to_pylist()
    assert "ScalarIndexQuery" in seen.scanner(filter="id = 100").explain_plan()
    assert seen.to_table(filter="id in (3, 8, 100)").num_rows == 2
    main.validate()


def test_what_a_branch_got_after_the_version_that_was_looked_at_is_not_published(
    main: LanceDataset,
) -> None:
    branch = changed_branch(main)
    checked, expected = branch.version, branch.to_table()
    branch.insert(pa.table({"id": [101], "x": [2], "y": [4]}))
    assert publish_branch(main.opened, "dev", version=checked)[0].version == main.version + 1
    main.checkout_latest()
    assert main.to_table() == expected

    before = main.version
    assert publish_branch(main.opened, "dev", version=checked)[1] == 0
    assert main.branches.publish("dev") == before + 1
    assert main.to_table() == branch.to_table()
    assert publish_branch(main.opened, "dev", version=checked)[0].version == before + 1
    with pytest.raises(VersionNotFoundError):
        publish_branch(main.opened, "dev", version=branch.version + 1)


@pytest.mark.spec("publish-1")
def test_what_was_published_stays_when_the_branch_is_deleted(main: LanceDataset) -> None:
    expected = changed_branch(main).to_table()
    main.branches.publish("dev")
    main.branches.delete("dev")
    assert glaive.dataset(main.uri).to_table() == expected
    assert lance.dataset(main.uri).to_table().num_rows == len(expected)
    assert not main.base_paths()
    main.validate()


def test_a_branch_that_goes_on_is_published_again(main: LanceDataset) -> None:
    branch = changed_branch(main)
    first = main.branches.publish("dev")
    assert main.branches.publish("dev") == first  # nothing new, no version
    ids = main.to_table(with_row_id=True)
    branch.insert(pa.table({"id": [101], "x": [2], "y": [4]}))
    branch.delete("id = 100")

    second = main.branches.publish("dev")

    assert second == first + 1
    assert main.to_table() == branch.to_table()
    if main.has_stable_row_ids:
        assert main.to_table(with_row_id=True)["_rowid"].to_pylist()[:-1] == [
            row["_rowid"] for row in ids.to_pylist() if row["id"] != 100
        ]
    assert changes_of(main, second) == [("delete", 100, 2), ("insert", 101, 2)]


def aged(folder: Path) -> dict[Path, int]:
    """The files of a folder, which were written six days ago, with their times."""
    old = time.time_ns() // 10**9 * 10**9 - 6 * 86_400 * 10**9
    files = [path for path in folder.rglob("*") if path.is_file()]
    for path in files:
        os.utime(path, ns=(old, old))
    return dict.fromkeys(files, old)


@pytest.mark.spec("rel-15")
def test_old_copies_of_a_publication_that_was_stopped_are_made_again(main: LanceDataset) -> None:
    branch = changed_branch(main)
    root = Path(main.uri)
    stopped = root / "tree/dev"
    for folder in ("data", "_deletions", "_indices"):
        shutil.copytree(stopped / folder, root / folder, dirs_exist_ok=True)
    copies = [
        root / path.relative_to(stopped)
        for folder in ("data", "_deletions", "_indices")
        for path in (stopped / folder).rglob("*")
        if path.is_file()
    ]
    times = aged(root)
    main.branches.publish("dev")
    used = {
        root / str(path)
        for path in main.tracked_files(min_version=main.version).read_all()["path"].to_pylist()
    }
    needed = [path for path in copies if path in used]
    assert needed
    assert not [path for path in needed if path.stat().st_mtime_ns == times[path]]
    assert main.to_table() == branch.to_table()


def test_files_that_were_published_are_not_copied_again_however_old(main: LanceDataset) -> None:
    branch = changed_branch(main)
    main.branches.publish("dev")
    times = aged(Path(main.uri))
    branch.insert(pa.table({"id": [101], "x": [2], "y": [4]}))
    main.branches.publish("dev")
    assert main.to_table() == branch.to_table()
    folders = [Path(main.uri, name) for name in ("data", "_deletions", "_indices")]
    old = [path for path in times if any(path.is_relative_to(folder) for folder in folders)]
    assert not [path for path in old if path.stat().st_mtime_ns != times[path]]


def test_the_change_feed_has_what_the_branch_changed(main: LanceDataset) -> None:
    changed_branch(main)
    version = main.branches.publish("dev")
    update = (
        ("update_preimage", "update_postimage") if main.has_stable_row_ids else ("delete", "insert")
    )
    assert changes_of(main, version) == sorted(
        [("delete", 3, 1), (update[0], 8, 1), (update[1], 8, 7), ("insert", 100, 2)]
    )
    net = main.changes(version, net=True).to_table()
    assert net.num_rows == 4


@pytest.mark.spec("publish-2")
def test_versions_in_the_lineage_are_those_of_the_target(tmp_path: Path) -> None:
    main = glaive.write_dataset(ROWS, tmp_path / "t.lance", enable_stable_row_ids=True)
    branch = main.create_branch("dev")
    for number in (100, 101):  # versions 2 and 3 of the branch are version 2 of the target
        branch.insert(pa.table({"id": [number], "x": [2]}))
    main.branches.publish("dev")
    branch.insert(pa.table({"id": [102], "x": [2]}))
    main.branches.publish("dev")

    columns = ["id", "_row_created_at_version"]
    for dataset in (main, lance.dataset(main.uri)):
        rows = dataset.to_table(columns=columns, filter="id > 90").to_pylist()
        assert [tuple(row.values()) for row in rows] == [(100, 2), (101, 2), (102, 3)]


@pytest.mark.spec("publish-3")
def test_a_branch_that_lacks_a_version_is_not_published(main: LanceDataset) -> None:
    branch = changed_branch(main)
    main.insert(ADDED)
    version, rows = main.version, main.to_table()
    with pytest.raises(
        CommitConflictError, match="Create a branch of the newest version"
    ) as failed:
        main.branches.publish("dev")
    assert (failed.value.version, failed.value.retryable) == (version, False)
    assert glaive.dataset(main.uri).to_table() == rows
    assert branch.count_rows() == 20


class Meanwhile(InProcess):
    """Runs tasks after another writer has committed."""

    def __init__(self, write: Any) -> None:
        self.write = write

    def run(
        self,
        dataset: OpenedVersion,
        tasks: Sequence[Task[Any] | SharingTask[Any]],
        shared: Any = None,
    ) -> list[Any]:
        """Commit something, then execute the tasks."""
        self.write()
        return super().run(dataset, tasks, shared)


WRITERS: dict[str, Callable[[str], Any]] = {
    "glaive appends": lambda uri: glaive.dataset(uri).insert(ADDED),
    "pylance appends": lambda uri: lance.write_dataset(ADDED, uri, mode="append"),
    "a setting changes": lambda uri: glaive.dataset(uri).update_config({"a": "b"}),
}


@pytest.mark.sampled(every=2)
@pytest.mark.parametrize("writer", WRITERS)
def test_a_commit_while_files_are_copied_is_a_conflict(main: LanceDataset, writer: str) -> None:
    changed_branch(main)
    before = main.version
    meanwhile = Meanwhile(lambda: WRITERS[writer](main.uri))
    with pytest.raises(CommitConflictError):
        publish_branch(main.opened, "dev", Job(runner=meanwhile))
    newest = glaive.dataset(main.uri)
    assert newest.version == before + 1
    assert 7 not in newest.to_table()["x"].to_pylist()


def test_others_conflict_with_a_publication(main: LanceDataset) -> None:
    changed_branch(main)
    late, pylance = glaive.dataset(main.uri), lance.dataset(main.uri)
    expected = main.branches.publish("dev")
    with pytest.raises(CommitConflictError):
        late.insert(ADDED)
    with pytest.raises(OSError, match="conflict"):
        lance.LanceDataset.commit(
            pylance.uri,
            lance.LanceOperation.Append(lance.fragment.write_fragments(ADDED, pylance.uri)),
            read_version=pylance.version,
        )
    assert glaive.dataset(main.uri).version == expected


def test_a_branch_is_published_to_the_one_it_was_made_from(main: LanceDataset) -> None:
    dev = main.create_branch("dev")
    below = changed_branch(dev, "below")
    with pytest.raises(OptionError, match="made from branch 'dev'"):
        main.branches.publish("below")
    with pytest.raises(RefNotFoundError):
        main.branches.publish("other")

    dev.branches.publish("below")
    main.branches.publish("dev")

    expected = below.to_table()
    assert (dev.to_table(), main.to_table()) == (expected, expected)
    main.branches.delete("below")
    main.branches.delete("dev")
    assert lance.dataset(main.uri).to_table().num_rows == len(expected)


def test_blobs_of_a_branch_are_published(tmp_path: Path) -> None:
    values = [b"small", b"m" * 100_000, bytes(range(256)) * 100_000]
    column = glaive.blob_array(values[:1])
    schema = pa.schema([glaive.blob_field("blob")])
    main = glaive.write_dataset(
        pa.Table.from_arrays([column], schema=schema),
        tmp_path / "t.lance",
        data_storage_version="2.2",
    )
    branch = main.create_branch("dev")
    branch.insert(pa.Table.from_arrays([glaive.blob_array(values[1:])], schema=schema))
    main.branches.publish("dev")
    main.branches.delete("dev")
    files = glaive.dataset(main.uri).take_blobs("blob", indices=[0, 1, 2])
    assert [file.read() for file in files] == values


@pytest.mark.spec("rel-10")
def test_jobs_of_a_branch_are_known_by_the_version_that_published_them(main: LanceDataset) -> None:
    """And are forgotten before jobs that the target had since."""

    def run(place: LanceDataset, job: str) -> None:
        glaive.write_dataset(
            ADDED, place, mode="append", transaction_properties=NamedJob(job).properties
        )

    branch = main.create_branch("dev")
    for number in range(MAX_JOBS):
        run(branch, f"job {number}")
    published = main.branches.publish("dev")
    assert made_version(open_latest(main.store), f"job {MAX_JOBS - 1}") == published
    run(main, f"job {MAX_JOBS - 1}")
    assert main.count_rows() == 20 + MAX_JOBS
    for _ in range(2):
        run(main, "another job")
    newest = open_latest(main.store)
    assert newest.count_rows() == 20 + MAX_JOBS + 1
    assert made_version(newest, "another job") == newest.version
    assert forgotten_until(newest) < newest.version


def test_a_branch_that_pylance_made_is_published(main: LanceDataset) -> None:
    branch = lance.dataset(main.uri).create_branch("theirs")
    branch.insert(ADDED)
    main.branches.publish("theirs")
    assert not main.base_paths()
    assert main.count_rows() == 21
    main.branches.delete("theirs")
    assert lance.dataset(main.uri).count_rows() == 21


def published_in_a_simulation(faults: Faults) -> tuple[LanceDataset, SimulatedStore]:
    """A dataset with a branch of two commits that an actor made and published; and its store."""
    root = "memory://published-in-a-simulation"
    made = glaive.write_dataset(ROWS, root, max_rows_per_file=5)
    made.create_branch("dev")
    bucket = Bucket.of(made.store)
    simulation = Simulation(1, bucket, faults)

    def act(actor: Actor) -> None:
        store = SimulatedStore(actor)
        main = LanceDataset.of(store, open_latest(store))
        branch = main.checkout_version(("dev", None))
        branch.insert(ADDED)
        branch.delete("id = 3")
        main.branches.publish("dev")

    simulation.add("publisher", act)
    simulation.run()
    made.drop(root)
    store = SimulatedStore(simulation.observer())
    return LanceDataset.of(store, open_latest(store)), store


def test_files_are_copied_within_the_store_in_which_the_dataset_was_opened() -> None:
    main, store = published_in_a_simulation(Faults(wait=0.0))
    copied = {meta.path.removeprefix("tree/dev/") for meta in store.walk("tree/dev/data")}
    assert len(copied) == 1
    assert copied <= {meta.path for meta in store.walk("data")}
    assert main.count_rows() == 20


def test_commits_that_a_stale_listing_of_the_branch_lacks_are_published() -> None:
    main, _ = published_in_a_simulation(Faults(wait=1.0, stale=1.0, stale_seconds=60.0))
    assert main.count_rows() == 20
    assert 3 not in main.to_table()["id"].to_pylist()


@pytest.mark.spec("sec-6", "rel-16")
@pytest.mark.parametrize("rows", [3, 3000], ids=["of its size", "of another size"])
def test_the_files_of_a_branch_replace_none_that_a_link_leads_to(tmp_path: Path, rows: int) -> None:
    """Their names are in a manifest, which may be a stranger's."""
    other = glaive.write_dataset(pa.table({"id": [1, 2, 3]}), tmp_path / "other")
    branch = glaive.write_dataset(pa.table({"id": [9]}), tmp_path / "t").create_branch("dev")
    branch.insert(pa.table({"id": range(4, 4 + rows)}))
    (theirs,) = (tmp_path / "other/data").iterdir()
    (own,) = (tmp_path / "t/tree/dev/data").iterdir()
    manifest = Path(open_latest(branch.store).where)
    name, new = own.name.encode(), theirs.name.encode()
    manifest.write_bytes(manifest.read_bytes().replace(name, new))
    own.rename(own.with_name(theirs.name))
    shutil.rmtree(tmp_path / "t/data")
    (tmp_path / "t/data").symlink_to(tmp_path / "other/data")
    old = time.time() - 5 * 24 * 3600
    os.utime(theirs, (old, old))
    before = theirs.read_bytes()
    with pytest.raises(CorruptFileError, match="found another one, which stays"):
        glaive.dataset(tmp_path / "t").branches.publish("dev")
    assert theirs.read_bytes() == before
    assert other.to_table()["id"].to_pylist() == [1, 2, 3]
