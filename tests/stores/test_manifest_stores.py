"""Versions registered outside the dataset: every crash leaves what the next reader completes."""

from __future__ import annotations

import pickle
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pytest

import glaive
from glaive.errors import (
    CommitError,
    CorruptFileError,
    MissingDependencyError,
    OptionError,
    StoreError,
)
from glaive.format.paths import manifest_path
from glaive.io.store import ObjectStore
from glaive.table.load import open_latest, open_version
from glaive.table.manifest_registers import DynamoManifestStore, SqliteManifestStore
from glaive.table.manifest_store import ManifestEntry, ManifestStore
from glaive.table.put_manifest import forget_dataset
from glaive.table.root import RootStore, open_root
from glaive.table.versions import latest, list_versions
from glaive.testing import CountingStore, Fault

from .registers import Crash, Faulty
from .server import Failing, Server

ROWS = pa.table({"id": range(10)})
KINDS = ["sqlite", "dynamodb"]


@dataclass
class Place:
    """A dataset and its register."""

    uri: str
    register: ManifestStore
    options: dict[str, str] = field(default_factory=dict)

    def root(self) -> ObjectStore:
        """The root as a reader opens it."""
        return open_root(self.uri, self.options, manifest_store=self.register)

    def write(self, mode: str = "append") -> glaive.LanceDataset:
        """Write ten rows."""
        return glaive.write_dataset(
            ROWS, self.uri, mode=mode, storage_options=self.options, manifest_store=self.register
        )

    def open(self, version: int | None = None) -> glaive.LanceDataset:
        """Open as a reader."""
        return glaive.dataset(
            self.uri, version, storage_options=self.options, manifest_store=self.register
        )

    def staged(self) -> list[str]:
        """Manifests under another name than the final one."""
        plain = open_root(self.uri, self.options)
        return [meta.path for meta in plain.list("_versions") if ".manifest-" in meta.path]

    def plain_version(self) -> int:
        """The newest version for who knows of no register."""
        return latest(open_root(self.uri, self.options)).version


@pytest.fixture(params=KINDS)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    if request.param == "sqlite":
        return Place(str(tmp_path / "t"), SqliteManifestStore(tmp_path / "m.sqlite"))
    server: Server = request.getfixturevalue("server")
    uri = f"s3://{server.bucket()}/deep/t"
    return Place(uri, DynamoManifestStore(server.table(), server.options), server.options)


class TestRegisters:
    @pytest.fixture
    def register(self, place: Place) -> ManifestStore:
        return place.register

    def test_it_keeps_its_promises(self, register: ManifestStore) -> None:
        root, other = "s3://bucket/a/t", "s3://bucket/a/t2"
        first = ManifestEntry(version=1, path="_versions/1.manifest-x", size=5)
        assert isinstance(register, ManifestStore)
        assert register.get(root, 1) is None
        assert register.latest(root) is None
        assert register.put_if_absent(root, first)
        assert not register.put_if_absent(root, ManifestEntry(version=1, path="_versions/other"))
        assert register.get(root, 1) == first
        assert register.latest(root) == first
        assert register.latest(other) is None
        final = ManifestEntry(version=1, path="_versions/1.manifest", size=5, e_tag="tag")
        register.put_if_exists(root, final)
        assert register.get(root, 1) == final
        with pytest.raises(StoreError, match="no version 2"):
            register.put_if_exists(root, ManifestEntry(version=2, path="_versions/2.manifest"))
        for version in (2, 10, 9):
            assert register.put_if_absent(root, ManifestEntry(version=version, path="_versions/p"))
        newest = register.latest(root)
        assert newest is not None
        assert newest.version == 10
        register.drop(root)
        register.drop(root)
        assert register.latest(root) is None

    def test_of_many_one_wins(self, register: ManifestStore) -> None:
        def put(number: int) -> bool:
            entry = ManifestEntry(version=3, path=f"_versions/{number}")
            return register.put_if_absent("s3://bucket/t", entry)

        with ThreadPoolExecutor(8) as pool:
            assert sum(pool.map(put, range(16))) == 1

    def test_it_can_be_sent_to_another_process(self, register: ManifestStore) -> None:
        register.put_if_absent("s3://b/t", ManifestEntry(version=1, path="_versions/p"))
        assert pickle.loads(pickle.dumps(register)).latest("s3://b/t").version == 1


class TestDatasets:
    def test_a_dataset_is_written_and_read(self, place: Place) -> None:
        place.write("create")
        for version in (2, 3):
            assert place.write().version == version
            # Readers without the register see a finished dataset.
            assert place.staged() == []
            assert place.plain_version() == version
        assert place.open().count_rows() == 30
        assert place.open(2).count_rows() == 20
        assert [version["version"] for version in place.open().versions()] == [1, 2, 3]

    @pytest.mark.spec("external-3")
    def test_a_dataset_made_without_it_is_taken_over(self, place: Place) -> None:
        glaive.write_dataset(ROWS, place.uri, storage_options=place.options)
        assert place.open().version == 1
        assert place.write().version == 2
        root = open_root(place.uri, place.options).uri
        newest = place.register.latest(root)
        assert newest is not None
        assert newest.version == 2

    def test_a_version_that_nobody_registered_is_not_overwritten(self, place: Place) -> None:
        place.write("create")
        glaive.write_dataset(ROWS, place.uri, mode="append", storage_options=place.options)
        assert place.write().version == 3
        assert place.open().count_rows() == 30

    def test_writers_at_once_lose_nothing(self, place: Place) -> None:
        place.write("create")
        with ThreadPoolExecutor(4) as pool:
            made = list(pool.map(lambda _: place.write().version, range(8)))
        assert sorted(made) == list(range(2, 10))
        assert place.open().count_rows() == 90

    def test_the_entries_of_a_dataset_are_forgotten_with_it(self, place: Place) -> None:
        place.write("create")
        root = place.root()
        forget_dataset(root)
        assert place.register.latest(root.uri) is None

    @pytest.mark.sampled(every=4)
    @pytest.mark.parametrize(
        "path",
        [
            "_versions/../../x.manifest-1",
            "_versions/18446744073709551613.manifest-1/../../data/x",
            "_versions/18446744073709551613.manifest-x/y",
            "_versions/18446744073709551613.manifest-x",
            "_versions/18446744073709551612.manifest",
            "data/18446744073709551613.manifest",
            "/etc/18446744073709551613.manifest",
            "_versions/18446744073709551613.manifest\n",
            "x.manifest",
            "",
        ],
    )
    def test_an_entry_that_leads_elsewhere_is_refused(self, place: Place, path: str) -> None:
        place.write("create")
        entry = ManifestEntry(version=2, path=path)
        place.register.put_if_absent(place.root().uri, entry)
        with pytest.raises(CorruptFileError, match="entry of version 2"):
            place.open()


def test_an_empty_manifest_that_no_register_knows_is_no_version(place: Place) -> None:
    place.write("create")
    open_root(place.uri, place.options).put(manifest_path(2), [b""])
    assert place.write().version == 2
    assert place.open().count_rows() == 20


def test_a_staged_manifest_that_somebody_deleted_may_have_its_final_name(place: Place) -> None:
    place.write("create")
    root = place.root().uri
    entry = place.register.get(root, 1)
    assert entry is not None
    staged = ManifestEntry(version=1, path=f"{entry.path}-{uuid4()}", size=entry.size)
    place.register.put_if_exists(root, staged)
    assert place.open().count_rows() == 10


def test_dynamodb_is_where_the_environment_says_unless_the_options_do(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = ManifestEntry(version=1, path="_versions/1.manifest", size=3, e_tag=None)
    elsewhere = {k: v for k, v in server.options.items() if k != "dynamodb_endpoint"}
    table = server.table()
    monkeypatch.setenv("DYNAMODB_ENDPOINT", server.url)
    assert DynamoManifestStore(table, elsewhere).put_if_absent("t", entry)
    monkeypatch.setenv("DYNAMODB_ENDPOINT", "http://127.0.0.1:1")
    assert DynamoManifestStore(table, server.options).latest("t") == entry


def test_dynamodb_without_its_library_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "boto3", None)
    register = DynamoManifestStore("manifests", {"aws_region": "without boto3"})
    with pytest.raises(MissingDependencyError, match=r"pip install 'glaive\[aws-dynamodb\]'"):
        register.latest("t")


@pytest.mark.parametrize(
    "change",
    [{"path": {"N": "3"}}, {"size": {"N": "1.5"}}, {"e_tag": {"N": "1"}}],
    ids=["path", "size", "e_tag"],
)
def test_an_entry_of_dynamodb_with_other_types_is_refused(
    server: Server, change: dict[str, Any]
) -> None:
    register = DynamoManifestStore(server.table(), server.options)
    item = {
        "base_uri": {"S": "t"},
        "version": {"N": "1"},
        "path": {"S": "t/_versions/1.manifest"},
        **change,
    }
    server.client("dynamodb").put_item(TableName=register.table, Item=item)
    with pytest.raises(StoreError, match=f"{register.table} has an invalid entry of t: "):
        register.get("s3://bucket/t", 1)


STEPS = {
    "1, before": (Fault(at=1, method="put", path="_versions/1", error=Crash()), {}, {}),
    "1, after": (Fault(at=1, kind="lie", method="put", path="_versions/1", error=Crash()), {}, {}),
    "2, before": (None, {"put_if_absent": Crash()}, {}),
    "2, after": (None, {}, {"put_if_absent": Crash()}),
    "3, before": (Fault(at=2, method="put", path="_versions/1", error=Crash()), {}, {}),
    "3, after": (Fault(at=2, kind="lie", method="put", path="_versions/1", error=Crash()), {}, {}),
    "4, before": (None, {"put_if_exists": Crash()}, {}),
    "4, after": (None, {}, {"put_if_exists": Crash()}),
    "4, before the staged one is deleted": (Fault(at=1, method="delete", error=Crash()), {}, {}),
}
MADE = ("2, after", "3, before", "3, after", "4")


class TestCrashes:
    @pytest.mark.sampled(every=24)
    @pytest.mark.spec("rel-22")
    @pytest.mark.spec("external-1", "external-2")
    @pytest.mark.parametrize("step", list(STEPS))
    @pytest.mark.parametrize("reader", ["latest", "numbered", "listing", "writer"])
    def test_the_next_one_completes_the_version(self, place: Place, step: str, reader: str) -> None:
        place.write("create")
        fault, before, after = STEPS[step]
        register = Faulty(place.register)
        register.before, register.after = before, after
        counting = CountingStore(open_root(place.uri, place.options))
        store = RootStore(counting, register=register)
        if fault is not None:
            counting.inject(fault)
        dataset = glaive.LanceDataset.of(store, open_latest(store))
        with pytest.raises(Crash):
            glaive.write_dataset(ROWS, dataset, mode="append")
        made = step.startswith(MADE)

        root = place.root()
        if reader == "latest":
            assert open_latest(root).version == (2 if made else 1)
        elif reader == "numbered" and made:
            assert open_version(root, 2).version == 2
        elif reader == "listing":
            assert len(list_versions(root)) == (2 if made else 1)
        elif reader == "writer":
            assert place.write().version == (3 if made else 2)
        rows = 10 + 10 * made + 10 * (reader == "writer")
        assert place.open().count_rows() == rows
        if made:
            # Finished: whoever knows of no register sees it as well.
            assert place.plain_version() == place.open().version
            newest = place.register.latest(root.uri)
            assert newest is not None
            assert newest.is_final
            if "deleted" not in step and step != "4, after":
                assert place.staged() == []

    @pytest.mark.sampled(every=2)
    @pytest.mark.parametrize("step", ["before", "after"])
    def test_a_register_that_fails_once_does_not_make_a_version_twice(
        self, place: Place, step: str
    ) -> None:
        place.write("create")
        register = Faulty(place.register)
        failure: dict[str, Exception] = {"put_if_absent": StoreError("no answer")}
        setattr(register, step, failure)
        store = RootStore(open_root(place.uri, place.options), register=register)
        dataset = glaive.LanceDataset.of(store, open_latest(store))
        if step == "before":
            with pytest.raises(StoreError, match="no answer"):
                glaive.write_dataset(ROWS, dataset, mode="append")
            assert place.open().count_rows() == 10
            (staged,) = place.staged()
            # The request that failed arrives late: what it registers can be read.
            entry = ManifestEntry(version=2, path=staged, size=0)
            assert place.register.put_if_absent(place.root().uri, entry)
            assert place.open().count_rows() == 20
            assert place.staged() == []
        else:
            assert glaive.write_dataset(ROWS, dataset, mode="append").version == 2
            assert place.open().count_rows() == 20

    @pytest.mark.spec("rel-8")
    def test_a_version_that_may_yet_be_registered_is_not_said_to_have_failed(
        self, place: Place
    ) -> None:
        place.write("create")
        register, lost = Faulty(place.register), StoreError("no answer")
        lost.is_unanswered = True
        register.before = {"put_if_absent": lost}
        store = RootStore(open_root(place.uri, place.options), register=register)
        dataset = glaive.LanceDataset.of(store, open_latest(store))
        with pytest.raises(CommitError, match=r"version 2 .* may or may not have been committed"):
            glaive.write_dataset(ROWS, dataset, mode="append")

    def test_an_outcome_that_cannot_be_learned_is_said_so(self, place: Place) -> None:
        place.write("create")
        register = Faulty(place.register)
        store = RootStore(open_root(place.uri, place.options), register=register)
        dataset = glaive.LanceDataset.of(store, open_latest(store))
        register.after = {"put_if_absent": StoreError("no answer")}
        register.before = {"get": StoreError("none either")}
        with pytest.raises((CommitError, StoreError)):
            glaive.write_dataset(ROWS, dataset, mode="append")
        assert place.open().count_rows() == 20  # it was made: the staged manifest was kept

    def test_a_version_that_cannot_be_finished_is_made_and_readable(self, place: Place) -> None:
        place.write("create")
        counting = CountingStore(open_root(place.uri, place.options))
        store = RootStore(counting, register=place.register)
        dataset = glaive.LanceDataset.of(store, open_latest(store))
        counting.inject(Fault(at=2, method="put", path="_versions/1", forever=True))
        assert glaive.write_dataset(ROWS, dataset, mode="append").version == 2
        assert open_latest(store).version == 2  # read from where it is staged
        counting.reset()
        assert open_latest(store).version == 2
        assert place.plain_version() == 2

    def test_a_loser_commits_again_though_it_cannot_remove_what_it_staged(
        self, place: Place, caplog: pytest.LogCaptureFixture
    ) -> None:
        place.write("create")
        counting = CountingStore(open_root(place.uri, place.options))
        store = RootStore(counting, register=place.register)
        dataset = glaive.LanceDataset.of(store, open_latest(store))
        place.write()  # the other writer
        counting.inject(Fault(at=1, method="delete", path=".manifest-", forever=True))
        with caplog.at_level("DEBUG", logger="glaive.io.store"):
            assert glaive.write_dataset(ROWS, dataset, mode="append").version == 3
        assert "files that nothing needs stay" in caplog.text
        assert place.staged() != []
        assert place.open().count_rows() == 30


@pytest.mark.spec("sec-6")
def test_what_another_process_staged_stays_behind_a_link(tmp_path: Path) -> None:
    place = Place(str(tmp_path / "t"), SqliteManifestStore(tmp_path / "m.sqlite"))
    place.write("create")
    register = Faulty(place.register)
    register.before = {"put_if_exists": StoreError("killed")}
    dataset = glaive.LanceDataset.of(
        store := RootStore(open_root(place.uri), register=register), open_latest(store)
    )
    glaive.write_dataset(ROWS, dataset, mode="append")
    (staged,) = place.staged()
    versions, other = tmp_path / "t" / "_versions", tmp_path / "other" / "_versions"
    other.parent.mkdir()
    versions.rename(other)
    versions.symlink_to(other)
    assert place.open().count_rows() == 20
    assert (other / Path(staged).name).exists()


class TestDynamo:
    @pytest.mark.spec("external-4")
    def test_the_uri_of_lance_is_understood(self, server: Server) -> None:
        bucket, table = server.bucket(), server.table()
        uri = f"s3+ddb://{bucket}/deep/t?ddbTableName={table}"
        for mode in ("create", "append"):
            glaive.write_dataset(ROWS, uri, mode=mode, storage_options=server.options)
        dataset = glaive.dataset(uri, storage_options=server.options)
        assert (dataset.version, dataset.uri) == (2, uri)
        items = server.client("dynamodb").scan(TableName=table)["Items"]
        assert sorted(item["path"]["S"] for item in items) == [
            f"deep/t/_versions/{2**64 - 1 - version}.manifest" for version in (2, 1)
        ]
        assert {item["base_uri"]["S"] for item in items} == {"deep/t"}
        assert {item["committer"]["S"] for item in items} == {"lancedb"}
        assert all(int(item["size"]["N"]) > 0 for item in items)

    @pytest.mark.parametrize(
        "uri", ["s3+ddb://b/t", "s3+ddb://b/t?ddbTableName=", "s3+ddb://b/t?table=T"]
    )
    def test_a_uri_without_a_table_is_refused(self, uri: str) -> None:
        with pytest.raises(OptionError, match="expected the name of a DynamoDB table"):
            open_root(uri)

    def test_a_missing_table_is_named(self, server: Server) -> None:
        uri = f"s3+ddb://{server.bucket()}/t?ddbTableName=Nowhere"
        with pytest.raises(StoreError, match="DynamoDB table Nowhere") as refused:
            glaive.write_dataset(ROWS, uri, storage_options=server.options)
        assert not refused.value.is_unanswered

    def test_a_table_that_does_not_answer_may_yet_do_what_it_was_asked(
        self, server: Server
    ) -> None:
        options = server.options | {"dynamodb_endpoint": "http://127.0.0.1:9"}
        register = DynamoManifestStore("T", options)
        with pytest.raises(StoreError, match="DynamoDB table T failed") as failed:
            register.put_if_absent("s3://b/t", ManifestEntry(version=1, path="_versions/p"))
        assert failed.value.is_unanswered

    @pytest.mark.spec("rel-8")
    def test_a_request_before_one_that_the_table_refused_may_be_under_way(
        self, server: Server
    ) -> None:
        uri = f"s3+ddb://{server.bucket()}/t?ddbTableName={server.table()}"
        dataset = glaive.write_dataset(ROWS, uri, storage_options=server.options)
        for kind, times in (("late", 1), ("throttle", 9)):
            server.failing.append(Failing(kind, lambda _, name: name.endswith("PutItem"), 0, times))
        with pytest.raises(CommitError, match=r"version 2 .* may or may not have been committed"):
            dataset.insert(ROWS)
        server.arrive()
        assert glaive.dataset(uri, storage_options=server.options).version == 2

    def test_a_table_that_deletes_nothing_ends_in_an_error(self, server: Server) -> None:
        register = DynamoManifestStore(server.table(), server.options)
        register.put_if_absent("t", ManifestEntry(version=1, path="_versions/1.manifest"))
        server.ignored = "DeleteItem"
        with pytest.raises(StoreError, match="has version 1 of t after it was deleted"):
            register.drop("t")
        server.ignored = None
        register.drop("t")
        assert register.latest("t") is None

    @pytest.mark.interop
    def test_pylance_and_we_take_turns(self, server: Server) -> None:
        import lance

        bucket, table = server.bucket(), server.table()
        uri = f"s3+ddb://{bucket}/deep/t?ddbTableName={table}"
        for number in range(6):
            library: Any = (lance, glaive)[number % 2]
            mode = "append" if number else "create"
            library.write_dataset(ROWS, uri, mode=mode, storage_options=server.options)
        for library in (lance, glaive):
            dataset = library.dataset(uri, storage_options=server.options)
            assert (dataset.version, dataset.count_rows()) == (6, 60)

    @pytest.mark.sampled(every=2)
    @pytest.mark.interop
    @pytest.mark.parametrize("step", ["2, after", "3, before", "3, after", "4, before"])
    def test_pylance_completes_what_we_left(self, server: Server, step: str) -> None:
        import lance

        bucket, table = server.bucket(), server.table()
        uri = f"s3+ddb://{bucket}/deep/t?ddbTableName={table}"
        glaive.write_dataset(ROWS, uri, storage_options=server.options)
        fault, before, after = STEPS[step]
        register = Faulty(DynamoManifestStore(table, server.options))
        register.before, register.after = before, after
        counting = CountingStore(open_root(f"s3://{bucket}/deep/t", server.options))
        if fault is not None:
            counting.inject(fault)
        store = RootStore(counting, register=register)
        with pytest.raises(Crash):
            glaive.write_dataset(
                ROWS, glaive.LanceDataset.of(store, open_latest(store)), mode="append"
            )
        opened = lance.dataset(uri, storage_options=server.options)
        assert (opened.version, opened.count_rows()) == (2, 20)


class TestSqlite:
    def test_the_option_means_a_file_in_the_root(self, tmp_path: Path) -> None:
        for mode in ("create", "append"):
            glaive.write_dataset(ROWS, tmp_path / "t", mode=mode, manifest_store="sqlite")
        assert (tmp_path / "t/_manifests.sqlite").is_file()
        (tmp_path / "t").rename(tmp_path / "moved")  # entries are relative to the file
        options = {"Manifest_Store": "sqlite"}
        dataset = glaive.dataset(tmp_path / "moved", storage_options=options)
        assert (dataset.version, dataset.count_rows()) == (2, 20)
        register = dataset.store.register
        assert register.latest(dataset.store.uri).version == 2
        assert pickle.loads(pickle.dumps(dataset)).count_rows() == 20

    def test_a_link_in_the_root_is_not_written_through(self, tmp_path: Path) -> None:
        glaive.write_dataset(ROWS, tmp_path / "t")
        glaive.write_dataset(ROWS, tmp_path / "other", manifest_store="sqlite")
        target = (tmp_path / "t/_manifests.sqlite").parent.parent / "other/_manifests.sqlite"
        (tmp_path / "t/_manifests.sqlite").symlink_to(target)
        before = target.read_bytes()
        with pytest.raises(OptionError, match="is a link"):
            glaive.write_dataset(ROWS, tmp_path / "t", mode="append", manifest_store="sqlite")
        assert target.read_bytes() == before
        by_name = f"sqlite://{tmp_path}/t/_manifests.sqlite"
        assert glaive.dataset(tmp_path / "t", manifest_store=by_name).count_rows() == 10

    def test_a_file_may_serve_a_store_in_memory(self, tmp_path: Path) -> None:
        place = f"sqlite://{tmp_path}/m.sqlite"
        uri = f"memory://{tmp_path.name}-sqlite/t"
        glaive.write_dataset(ROWS, uri, manifest_store=place)
        assert glaive.dataset(uri, manifest_store=place).version == 1
        with pytest.raises(OptionError, match="specify a file"):
            open_root(uri, manifest_store="sqlite")

    @pytest.mark.parametrize("given", ["oracle", "dynamodb://", 5])
    def test_other_registers_are_refused(self, tmp_path: Path, given: Any) -> None:
        with pytest.raises(OptionError, match="manifest_store"):
            open_root(tmp_path, manifest_store=given)

    def test_a_file_that_is_no_database_is_named(self, tmp_path: Path) -> None:
        (tmp_path / "m.sqlite").write_bytes(b"no database" * 100)
        with pytest.raises(StoreError, match=r"m\.sqlite failed: file is not a database"):
            glaive.write_dataset(
                ROWS, tmp_path / "t", manifest_store=f"sqlite://{tmp_path}/m.sqlite"
            )
        assert list(tmp_path.glob("t/_versions/*.manifest")) == []

    def test_the_folder_of_a_database_is_made_by_the_first_commit(self, tmp_path: Path) -> None:
        register = f"sqlite://{tmp_path}/not/yet/m.sqlite"
        glaive.write_dataset(ROWS, tmp_path / "t", manifest_store=register)
        assert glaive.dataset(tmp_path / "t", manifest_store=register).count_rows() == 10

    def test_a_database_without_the_table_is_empty(self, tmp_path: Path) -> None:
        (tmp_path / "m.sqlite").touch()
        assert SqliteManifestStore(tmp_path / "m.sqlite").latest("/t") is None

    def test_processes_at_once_lose_nothing(self, tmp_path: Path) -> None:
        place, register = tmp_path / "t", f"sqlite://{tmp_path}/m.sqlite"
        glaive.write_dataset(ROWS, place, manifest_store=register)
        code = (
            "import sys, glaive\n"
            "for _ in range(5):\n"
            "    glaive.write_dataset({'id': [1]}, sys.argv[1], mode='append',\n"
            "                         manifest_store=sys.argv[2])\n"
        )
        command = [sys.executable, "-c", code, str(place), register]
        running = [subprocess.Popen(command) for _ in range(3)]
        assert [process.wait() for process in running] == [0, 0, 0]
        dataset = glaive.dataset(place, manifest_store=register)
        assert (dataset.version, dataset.count_rows()) == (16, 25)


def test_a_register_that_the_system_refuses_to_look_up_is_named(tmp_path: Path) -> None:
    register = SqliteManifestStore(tmp_path / ("x" * 300))
    with pytest.raises(StoreError, match=r"cannot look up .*xxx.*too long"):
        register.latest("/t")
    with pytest.raises(StoreError, match=r"cannot look up .*xxx.*too long"):
        register.drop("/t")


def test_a_folder_whose_name_sqlite_cannot_keep_is_refused_before_anything_is_written(
    tmp_path: Path,
) -> None:
    place = tmp_path / "t\udcff"
    with pytest.raises(StoreError, match="names that are not UTF-8"):
        glaive.write_dataset(ROWS, place, manifest_store=f"sqlite://{tmp_path}/m.sqlite")
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


@pytest.mark.spec("rel-2")
@pytest.mark.parametrize("folder", ["folder", "link"])
@pytest.mark.parametrize("file", ["m.sqlite", "link/m.sqlite", "folder/m.sqlite"])
def test_writers_that_reach_a_dataset_by_different_links_have_one_register(
    tmp_path: Path, file: str, folder: str
) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to("folder")
    other = {"m.sqlite": "link/../m.sqlite", "link/m.sqlite": "folder/m.sqlite"}.get(file, file)
    glaive.write_dataset(
        ROWS, tmp_path / folder / "t", manifest_store=f"sqlite://{tmp_path}/{file}"
    )

    class Second(SqliteManifestStore):
        """Another writer commits once this one has registered its version."""

        def put_if_absent(self, root: str, entry: ManifestEntry) -> bool:
            first = super().put_if_absent(root, entry)
            register = f"sqlite://{tmp_path}/{other}"
            path = tmp_path / "link" / "t"
            glaive.write_dataset(ROWS, path, mode="append", manifest_store=register)
            return first

    register = Second(tmp_path / file)
    glaive.write_dataset(ROWS, tmp_path / "folder" / "t", mode="append", manifest_store=register)
    opened = glaive.dataset(tmp_path / "folder" / "t", manifest_store=f"sqlite://{tmp_path}/{file}")
    assert (opened.version, opened.count_rows()) == (3, 30)
