"""Tables opened through catalogues that give out versions, and credentials that expire."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor, wait
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import fsspec
import lance_namespace as interface
import pytest
from fsspec.implementations.memory import MemoryFileSystem
from tests.kit.replaced import replaced_clock
from tests.namespace.calls import ROWS, call

import glaive
from glaive.errors import (
    CommitError,
    CorruptFileError,
    DatasetNotFoundError,
    GlaiveError,
    OptionError,
    StoreError,
    UnsupportedFeatureError,
)
from glaive.format.paths import VERSIONS
from glaive.io.access import ExpiringOptions, RenewedStore, ask_for_table, open_named
from glaive.io.store import ObjectMeta, ObjectStore
from glaive.io.wrapped import WrappedStore
from glaive.namespace import DirectoryNamespace, connect, manifest_table
from glaive.namespace import errors as failures
from glaive.process import Clock
from glaive.table.manifest_registers import CatalogueManifestStore, find_table
from glaive.table.put_manifest import forget_dataset
from glaive.table.root import open_other_root

TABLE = ["t"]


@pytest.fixture
def catalogue(tmp_path: Path) -> DirectoryNamespace:
    return DirectoryNamespace(root=str(tmp_path), table_version_tracking_enabled="true")


def place(catalogue: Any) -> Any:
    return {"namespace_client": catalogue, "table_id": TABLE}


# --- versions -----------------------------------------------------------------------------


def test_each_commit_asks_the_catalogue_for_its_number(catalogue: DirectoryNamespace) -> None:
    glaive.write_dataset(ROWS, **place(catalogue))
    dataset = glaive.write_dataset(ROWS, mode="append", **place(catalogue))
    dataset.delete("a = 1")
    versions = call(catalogue, "list_table_versions", TABLE, descending=True).versions
    assert [one.version for one in versions] == [3, 2, 1]
    assert glaive.dataset(version=1, **place(catalogue)).count_rows() == 3
    assert pickle.loads(pickle.dumps(dataset)).count_rows() == 4
    page = call(catalogue, "list_table_versions", TABLE, limit=2)
    assert ([one.version for one in page.versions], page.page_token) == ([1, 2], "2")
    rest = call(catalogue, "list_table_versions", TABLE, limit=2, page_token="2")
    assert ([one.version for one in rest.versions], rest.page_token) == ([3], None)


class Unsteady:
    """A client of a catalogue that fails once it has given a number, or instead of it."""

    def __init__(self, catalogue: DirectoryNamespace, failure: Exception, *, made: bool) -> None:
        self.catalogue, self.failure, self.made = catalogue, failure, made

    def __getattr__(self, name: str) -> Any:
        return getattr(self.catalogue, name)

    def create_table_version(self, request: Any) -> Any:
        """Fail."""
        if self.made:
            self.catalogue.create_table_version(request)
        raise self.failure


class Repeated:
    """A client of a catalogue whose requests for a number a proxy repeats."""

    def __init__(self, catalogue: DirectoryNamespace) -> None:
        self.catalogue = catalogue

    def __getattr__(self, name: str) -> Any:
        return getattr(self.catalogue, name)

    def create_table_version(self, request: Any) -> Any:
        """Ask twice."""
        self.catalogue.create_table_version(request)
        return self.catalogue.create_table_version(request)


@pytest.mark.spec("rel-6")
def test_a_number_that_was_asked_for_twice_makes_one_version(catalogue: DirectoryNamespace) -> None:
    glaive.write_dataset(ROWS, **place(catalogue))
    made = glaive.write_dataset(ROWS, mode="append", **place(Repeated(catalogue)))
    assert (made.version, made.count_rows()) == (2, 6)
    assert glaive.dataset(**place(catalogue)).version == 2


class Before(WrappedStore):
    """A store whose listings show no versions yet."""

    def below(self, path: str) -> ObjectStore | None:
        inner = self.inner.below(path)
        return None if inner is None else Before(inner)

    def list(self, prefix: str) -> Iterator[ObjectMeta]:
        return iter(()) if prefix == VERSIONS else self.inner.list(prefix)


@pytest.mark.spec("rel-8")
def test_a_number_that_was_asked_for_twice_is_looked_for_by_its_name(
    catalogue: DirectoryNamespace,
) -> None:
    opened = glaive.write_dataset(ROWS, **place(Repeated(catalogue)))
    catalogue.store = Before(catalogue.store)  # from now on its listings are stale
    opened.insert(ROWS)
    assert (opened.version, opened.count_rows()) == (2, 6)
    assert call(catalogue, "describe_table_version", TABLE, version=2).version.version == 2


@pytest.mark.spec("sec-18")
def test_no_table_is_dropped_whose_folder_was_registered_just_now(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalogue = DirectoryNamespace(root=str(tmp_path))
    call(catalogue, "create_namespace", ["of_others"])
    glaive.write_dataset(ROWS, tmp_path / "t.lance")
    before = glaive.dataset(catalogue.manifest.uri)
    call(catalogue, "register_table", ["of_others", "same"], location="t.lance")

    def stale(*_: object, **__: object) -> glaive.LanceDataset:
        return glaive.LanceDataset.of(before.store, before.manifest)

    monkeypatch.setattr(manifest_table, "dataset", stale)
    with pytest.raises(failures.InvalidTableStateError, match="of_others"):
        call(catalogue, "drop_table", ["t"])
    assert glaive.dataset(tmp_path / "t.lance").count_rows() == ROWS.num_rows


NO_ANSWERS = [failures.InternalError("500"), interface.InternalError("500"), TimeoutError("slow")]


@pytest.mark.spec("rel-8")
@pytest.mark.parametrize("failure", NO_ANSWERS, ids=["ours", "theirs", "none"])
def test_a_commit_whose_catalogue_gave_no_answer_is_looked_for(
    catalogue: DirectoryNamespace, failure: Exception
) -> None:
    glaive.write_dataset(ROWS, **place(catalogue))
    opened = place(Unsteady(catalogue, failure, made=True))
    assert glaive.write_dataset(ROWS, mode="append", **opened).version == 2
    opened = place(Unsteady(catalogue, failure, made=False))
    with pytest.raises(CommitError, match=r"version 3 .* may or may not have been committed"):
        glaive.write_dataset(ROWS, mode="append", **opened)
    assert glaive.dataset(**place(catalogue)).version == 2


@pytest.mark.spec("rel-8")
@pytest.mark.parametrize("failure", NO_ANSWERS, ids=["ours", "theirs", "none"])
def test_a_commit_that_cannot_be_looked_for_may_have_been_made(
    catalogue: DirectoryNamespace, failure: Exception
) -> None:
    class Silent(Unsteady):
        """A client whose catalogue answers nothing from the request for a number on."""

        def create_table_version(self, request: Any) -> Any:
            """Fail, and what comes later, too."""
            self.describe_table_version = partial(self._fail, request)
            return super().create_table_version(request)

        def _fail(self, *_: Any) -> Any:
            raise self.failure

    glaive.write_dataset(ROWS, **place(catalogue))
    opened = place(Silent(catalogue, failure, made=True))
    with pytest.raises(CommitError, match=r"version 2 .* may or may not have been committed"):
        glaive.write_dataset(ROWS, mode="append", **opened)
    assert glaive.dataset(**place(catalogue)).version == 2


@pytest.mark.parametrize(
    "kind",
    [failures.PermissionDeniedError, interface.PermissionDeniedError],
    ids=["ours", "theirs"],
)
def test_a_commit_that_the_catalogue_refuses_has_failed(
    catalogue: DirectoryNamespace, kind: type[Exception]
) -> None:
    glaive.write_dataset(ROWS, **place(catalogue))
    opened = place(Unsteady(catalogue, kind("not yours"), made=False))
    with pytest.raises(GlaiveError, match="not yours") as caught:
        glaive.write_dataset(ROWS, mode="append", **opened)
    assert not isinstance(caught.value, CommitError)
    assert glaive.dataset(**place(catalogue)).version == 1


def test_a_catalogue_forgets_the_versions_of_a_table_that_is_dropped(
    catalogue: DirectoryNamespace,
) -> None:
    dataset = glaive.write_dataset(ROWS, **place(catalogue))
    dataset.delete("a = 1")
    forget_dataset(dataset.store)
    assert call(catalogue, "list_table_versions", TABLE).versions == []


@pytest.mark.spec("ns-7")
@pytest.mark.interop
@pytest.mark.parametrize("writer", ["glaive", "pylance"])
def test_either_library_commits_through_the_catalogue_of_the_other(
    tmp_path: Path, writer: str
) -> None:
    lance = pytest.importorskip("lance")
    properties = {"root": str(tmp_path), "table_version_tracking_enabled": "true"}
    mine, theirs = connect("dir", properties), interface.connect("dir", properties)
    library, client = (glaive, theirs) if writer == "glaive" else (lance, mine)
    library.write_dataset(ROWS, **place(client))
    library.write_dataset(ROWS, mode="append", **place(client))
    library.dataset(**place(client)).delete("a = 1")
    for reader, catalogue in ((glaive, mine), (lance, theirs), (lance, mine), (glaive, theirs)):
        assert reader.dataset(**place(catalogue)).count_rows() == 4
        assert reader.dataset(version=2, **place(catalogue)).count_rows() == 6
    assert not list(tmp_path.rglob("*.manifest-*"))


def test_writers_at_the_same_time_all_commit(catalogue: DirectoryNamespace) -> None:
    glaive.write_dataset(ROWS, **place(catalogue))

    def append() -> None:
        glaive.write_dataset(ROWS, mode="append", **place(catalogue))

    threads = [threading.Thread(target=append) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    dataset = glaive.dataset(**place(catalogue))
    assert (dataset.version, dataset.count_rows()) == (5, 15)


@pytest.mark.spec("ns-7")
def test_a_taken_number_is_a_conflict_and_a_foreign_manifest_is_refused(
    catalogue: DirectoryNamespace, tmp_path: Path
) -> None:
    glaive.write_dataset(ROWS, **place(catalogue))
    versions = tmp_path / "t.lance" / "_versions"
    (manifest,) = versions.glob("*.manifest")
    uuid = "-1b671a64-40d5-491e-99b0-da01ff1f3341"
    staged = versions / f"{manifest.name}{uuid}"
    staged.write_bytes(manifest.read_bytes())
    with pytest.raises(failures.ConcurrentModificationError, match="version 1"):
        call(catalogue, "create_table_version", TABLE, version=1, manifest_path=str(staged))
    for wrong in ("/etc/passwd", f"../{manifest.name}{uuid}", str(manifest), "_versions/x"):
        with pytest.raises(failures.InvalidInputError, match="staged manifest"):
            call(catalogue, "create_table_version", TABLE, version=2, manifest_path=wrong)
    with pytest.raises(failures.InvalidInputError, match="Write it first"):
        call(catalogue, "create_table_version", TABLE, version=2, manifest_path=str(staged))
    key = tmp_path / "id_rsa"
    key.write_bytes(b"-----BEGIN PRIVATE KEY-----" * 9)
    for target in (key, manifest):  # no manifest, and one of another version
        staged.symlink_to(target)
        with pytest.raises(failures.InvalidInputError, match="no manifest of version 2"):
            call(catalogue, "create_table_version", TABLE, version=2, manifest_path=str(staged))
        staged.unlink()
        assert list(versions.glob("*.manifest")) == [manifest]


@pytest.mark.spec("sec-6")
def test_a_staged_manifest_behind_a_link_stays(
    catalogue: DirectoryNamespace, tmp_path: Path
) -> None:
    glaive.write_dataset(ROWS, **place(catalogue))
    versions, other = tmp_path / "t.lance" / "_versions", tmp_path / "other.lance" / "_versions"
    (manifest,) = versions.glob("*.manifest")
    staged = versions / f"{manifest.name}-1b671a64-40d5-491e-99b0-da01ff1f3341"
    staged.write_bytes(manifest.read_bytes())
    other.parent.mkdir()
    versions.rename(other)
    versions.symlink_to(other)
    with pytest.raises(failures.ConcurrentModificationError, match="version 1"):
        call(catalogue, "create_table_version", TABLE, version=1, manifest_path=str(staged))
    assert (other / staged.name).exists()
    (other / manifest.name).unlink()
    call(catalogue, "create_table_version", TABLE, version=1, manifest_path=str(staged))
    assert (other / staged.name).exists()
    assert (other / manifest.name).exists()


@pytest.mark.interop
@pytest.mark.parametrize("server", ["glaive", "pylance"])
def test_versions_of_branches_are_given_out_by_the_catalogue(tmp_path: Path, server: str) -> None:
    lance = pytest.importorskip("lance")
    properties = {"root": str(tmp_path), "table_version_tracking_enabled": "true"}
    catalogue = (connect if server == "glaive" else interface.connect)("dir", properties)
    for library in (glaive, lance):
        table = {"namespace_client": catalogue, "table_id": [library.__name__]}
        dataset = library.write_dataset(ROWS, **table)
        branch = dataset.create_branch("deep/one")
        branch.insert(ROWS)
        request: Any = {"id": table["table_id"], "branch": "deep/one"}
        answer: Any = catalogue.list_table_versions(interface.ListTableVersionsRequest(**request))
        assert [one.version for one in answer.versions] == [1, 2]
        for reader in (glaive, lance):
            opened = reader.dataset(**table)
            assert opened.count_rows() == 3
            assert opened.checkout_version(("deep/one", None)).count_rows() == 6
        with pytest.raises(Exception, match="ranch"):
            call(catalogue, "list_table_versions", table["table_id"], branch="../x")


def test_versions_of_other_places_are_not_those_of_the_catalogue(
    catalogue: DirectoryNamespace, tmp_path: Path
) -> None:
    register = CatalogueManifestStore(catalogue, tuple(TABLE), str(tmp_path / "t"))
    for other in (tmp_path / "other", tmp_path / "t2", tmp_path):
        with pytest.raises(UnsupportedFeatureError, match="not the versions of"):
            register.latest(str(other))


def test_a_table_has_one_register(catalogue: DirectoryNamespace) -> None:
    glaive.write_dataset(ROWS, **place(catalogue))
    with pytest.raises(OptionError, match="manages the versions"):
        glaive.dataset(manifest_store="sqlite", **place(catalogue))


class Answering:
    """A catalogue with given answers."""

    def __init__(self, **answers: Any) -> None:
        self.answers = answers

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)

        def answer(_request: Any) -> Any:
            given = self.answers[name]
            if isinstance(given, Exception):
                raise given
            return given

        return answer


@pytest.mark.parametrize(
    ("version", "message"),
    [
        ({"version": 1, "manifest_path": "/etc/passwd"}, "a manifest below _versions/"),
        ({"version": -1, "manifest_path": "_versions/1.manifest"}, "a version"),
        ({"version": "1", "manifest_path": "_versions/1.manifest"}, "a version"),
        ({"version": 1, "manifest_path": None}, "a manifest below _versions/"),
        ({"version": 7, "manifest_path": "_versions/1.manifest"}, "a manifest of that version"),
    ],
)
def test_versions_that_cannot_be_are_refused(
    tmp_path: Path, version: Mapping[str, Any], message: str
) -> None:
    glaive.write_dataset(ROWS, tmp_path / "t")
    described = {"location": str(tmp_path / "t"), "managed_versioning": True}
    client = Answering(describe_table=described, list_table_versions={"versions": [version]})
    with pytest.raises(CorruptFileError, match=message):
        glaive.dataset(**place(client))


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (interface.TableNotFoundError("x"), DatasetNotFoundError),
        (RuntimeError("broken"), StoreError),
        ({"location": 5}, StoreError),
        ({"location": "x", "storage_options": "no"}, StoreError),
        (SimpleNamespace(location=None), DatasetNotFoundError),
    ],
)
def test_what_a_catalogue_answers_is_checked(answer: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match=r"t'\]"):
        glaive.dataset(**place(Answering(describe_table=answer)))


# --- credentials --------------------------------------------------------------------------


class Stopped(Clock):
    """A clock that a test sets forward."""

    millis = 1_700_000_000_000

    def now_ns(self) -> int:
        """The time it was set to."""
        return self.millis * 1_000_000


@pytest.fixture
def clock() -> Iterator[Stopped]:
    with replaced_clock(clock := Stopped()):
        yield clock


def expiring(clock: Stopped, millis_left: int) -> dict[str, str]:
    return {"expires_at_millis": str(clock.millis + millis_left)}


@pytest.mark.spec("rel-27")
def test_no_representation_has_the_key_in_a_location_of_a_catalogue(clock: Stopped) -> None:
    location = "https://host/t?sig=MARKED"
    options = {"expires_at_millis": str(clock.millis + 90_000), "aws_session_token": "MARKED"}
    described = {"location": location, "storage_options": options, "managed_versioning": True}
    client = Answering(describe_table=described)
    answer = ask_for_table(client, ["t"], None)
    assert answer.location == location
    renewing = answer.storage_options
    assert isinstance(renewing, ExpiringOptions)
    found = find_table(client, ["t"], None, None)
    shown = repr((answer, renewing.renew, found, found.manifest_store))
    assert "CatalogueManifestStore" in shown
    assert "MARKED" not in shown


def test_a_catalogue_is_asked_again_before_credentials_expire(clock: Stopped) -> None:
    catalogue = DirectoryNamespace(
        root="memory://catalogue-renewed",
        vend_input_storage_options="true",
        vend_input_storage_options_refresh_interval_millis="61000",
    )
    asked = []

    class Counting(interface.LanceNamespace):
        def namespace_id(self) -> str:
            return "counting"

        def describe_table(self, request: Any) -> Any:
            asked.append("describe")
            return catalogue.describe_table(request)

    call(catalogue, "declare_table", TABLE)
    glaive.write_dataset(ROWS, mode="append", **place(Counting()))
    dataset = glaive.dataset(**place(Counting()))
    assert dataset.to_table().num_rows == 3
    assert len(asked) == 2
    clock.millis += 999
    assert dataset.to_table().num_rows == 3
    assert len(asked) == 2
    clock.millis += 1
    assert dataset.to_table().num_rows == 3
    assert len(asked) > 2
    assert dataset.checkout_version(1).take([2]).num_rows == 1


def test_a_catalogue_that_fails_is_no_harm_before_credentials_expire(clock: Stopped) -> None:
    def fail() -> Mapping[str, str]:
        raise StoreError("down")

    store = RenewedStore("memory://renewed-1", ExpiringOptions(expiring(clock, 20_000), fail))
    store.put("x", [b"1"])
    assert store.get("x").to_pybytes() == b"1"
    late = RenewedStore("memory://renewed-1", ExpiringOptions(expiring(clock, -1), fail))
    with pytest.raises(StoreError, match=r"have expired, and asking .* down"):
        late.get("x")
    useless = ExpiringOptions(expiring(clock, -1), lambda: expiring(clock, -5))
    with pytest.raises(StoreError, match="expired already"):
        RenewedStore("memory://renewed-1", useless).get("x")


def test_who_has_no_newer_credentials_yet_is_not_asked_at_each_request(clock: Stopped) -> None:
    asked = []
    given = expiring(clock, 20_000)

    def renew() -> Mapping[str, str]:
        asked.append("renew")
        if len(asked) > 2:
            raise StoreError("down")
        return given

    store = RenewedStore("memory://renewed-6", ExpiringOptions(given, renew))
    store.put("x", [b"1"])
    for _ in range(10):
        assert store.get("x").to_pybytes() == b"1"
    assert len(asked) == 1
    for seconds in range(1, 20):
        clock.millis += 1_000
        store.get("x")
        assert len(asked) <= 1 + seconds
    assert len(asked) > 5
    clock.millis += 1_000
    for _ in range(2):  # they are not valid any more
        with pytest.raises(StoreError, match="have expired"):
            store.get("x")


def test_options_that_open_no_store_are_asked_for_again(clock: Stopped) -> None:
    asked = []

    def renew() -> Mapping[str, str]:
        asked.append("renew")
        wrong = {"aws_endpoint": "no address"} if len(asked) < 3 else {}
        return expiring(clock, 3_600_000) | wrong

    early = RenewedStore("s3://b/t", ExpiringOptions(expiring(clock, 20_000), renew))
    assert early.options == expiring(clock, 20_000)
    late = RenewedStore("s3://b/t", ExpiringOptions(expiring(clock, -1), renew))
    with pytest.raises(StoreError, match=r"have expired, and asking .* 'aws_endpoint'"):
        late.open("x")
    assert late.options == expiring(clock, 3_600_000)
    assert len(asked) == 3


class _Slow(MemoryFileSystem):  # type: ignore[misc]  # fsspec has no types
    """A file system that takes its time to connect again."""

    protocol = "slow"
    cachable = False
    begun, may_go_on = threading.Event(), threading.Event()

    def __init__(self, again: str = "", **_: Any) -> None:
        super().__init__()
        if again:
            self.begun.set()
            self.may_go_on.wait(60)


def test_no_thread_uses_what_has_expired_while_another_one_opens_the_store(clock: Stopped) -> None:
    fsspec.register_implementation("slow", _Slow, clobber=True)

    def renew() -> Mapping[str, str]:
        return expiring(clock, 3_600_000) | {"again": "yes"}

    store = RenewedStore("fsspec+slow://x/t", ExpiringOptions(expiring(clock, -1), renew))
    with ThreadPoolExecutor(2) as threads:
        first = threads.submit(store.current)
        assert _Slow.begun.wait(60)
        second = threads.submit(store.current)
        wait([second], 0.2)
        _Slow.may_go_on.set()
        assert first.result() == second.result() == store.current()
    assert "again" in first.result()[0].options


def test_open_readers_go_on_with_new_credentials(clock: Stopped) -> None:
    asked = []

    def renew() -> Mapping[str, str]:
        asked.append("renew")
        return expiring(clock, 3_600_000)

    options = ExpiringOptions(expiring(clock, 60_300), renew)
    store = RenewedStore("memory://renewed-2", options)
    store.put("x", [b"0123456789"])
    reader = store.open("x")
    assert reader.tail(2).to_pybytes() == b"89"
    assert not asked
    clock.millis += 400
    assert reader.tail(3).to_pybytes() == b"789"
    assert store.options == expiring(clock, 3_600_000)


def test_a_shallow_clone_reads_its_source_with_new_credentials(clock: Stopped) -> None:
    asked = []

    def renew() -> Mapping[str, str]:
        asked.append("renew")
        return expiring(clock, 3_600_000)

    glaive.write_dataset(ROWS, "memory://renewed-4/t")
    options = ExpiringOptions(expiring(clock, 60_300), renew)
    source = glaive.dataset("memory://renewed-4/t", storage_options=options)
    clone = source.shallow_clone("memory://renewed-5/clone", storage_options={})
    clock.millis += 400
    assert clone.to_table().num_rows == 3
    assert asked == ["renew"]


def test_files_below_a_base_path_are_read_with_new_credentials(clock: Stopped) -> None:
    def renew() -> Mapping[str, str]:
        return expiring(clock, 3_600_000)

    root = RenewedStore("memory://renewed-3/t", ExpiringOptions(expiring(clock, 60_300), renew))
    base = open_named(root, "memory://renewed-3/base", subject="base path 1")
    base.put("x", [b"1"])
    clock.millis += 400
    assert base.get("x").to_pybytes() == b"1"
    assert base.options == expiring(clock, 3_600_000)
    branch = root.below("tree/dev")
    assert branch is not None
    main = open_other_root(branch, root.uri)
    clock.millis += 3_600_000 - 400
    main.put("x", [b"1"])
    assert main.options == expiring(clock, 3_600_000)


@pytest.mark.spec("rel-16")
def test_links_to_a_branch_are_seen_with_credentials_that_expire(
    clock: Stopped, tmp_path: Path
) -> None:
    pytest.importorskip("fsspec")
    from tests.distant import DISTANT

    (tmp_path / "others" / "_versions").mkdir(parents=True)
    (tmp_path / "others" / "_versions" / "1.manifest").write_bytes(b"theirs")
    (tmp_path / "d" / "tree").mkdir(parents=True)
    (tmp_path / "d" / "tree" / "dev").symlink_to("../../others", target_is_directory=True)
    options = ExpiringOptions(expiring(clock, 60_300), partial(expiring, clock, 3_600_000))
    root = RenewedStore(f"{DISTANT.format(tmp_path)}/d", options)
    trees: list[Any] = [root.below("tree"), pickle.loads(pickle.dumps(root.below("tree")))]
    for tree in trees:
        branch = tree.below("dev")
        assert branch.uri == f"{root.uri}/tree/dev"
        for _ in range(2):
            assert "dev is a link" in branch.link_out("_versions")
            with pytest.raises(StoreError, match="dev is a link"):
                branch.delete(["_versions/1.manifest"])
            clock.millis += 400  # and once more with other credentials
    assert (tmp_path / "others" / "_versions" / "1.manifest").exists()


# --- rows written elsewhere, one commit ----------------------------------------------------


@pytest.mark.interop
@pytest.mark.parametrize("tracked", ["true", "false"])
def test_fragments_are_written_and_committed_through_a_catalogue(
    tmp_path: Path, tracked: str
) -> None:
    lance = pytest.importorskip("lance")
    properties = {"root": str(tmp_path), "table_version_tracking_enabled": tracked}
    catalogues = {
        "glaive": connect("dir", properties),
        "pylance": interface.connect("dir", properties),
    }
    for name, catalogue in catalogues.items():
        for library in (glaive, lance):
            table = {"namespace_client": catalogue, "table_id": [f"{name}_{library.__name__}"]}
            uri = library.write_dataset(ROWS, **table).uri
            made = library.fragment.write_fragments(ROWS, uri, **table)
            append = library.LanceOperation.Append(made)
            dataset = library.LanceDataset.commit(uri, append, read_version=1, **table)
            assert (dataset.version, dataset.count_rows()) == (2, 6)
            assert library.dataset(**table).count_rows() == 6
            file = f"{uri}/data/{made[0].files[0].path}"
            assert library.file.LanceFileReader(file, **table).num_rows() == 3
            session = library.file.LanceFileSession(f"{uri}/data", **table)
            assert session.contains(str(made[0].files[0].path))
            with library.file.LanceFileWriter(f"{uri}/data/x.lance", **table) as writer:
                writer.write_batch(ROWS)
            assert session.open_reader("x.lance").num_rows() == 3


def test_files_of_a_table_are_those_of_both_names(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="must be provided together"):
        glaive.file.LanceFileReader(f"{tmp_path}/x.lance", table_id=TABLE)
    missing = Answering(describe_table=interface.TableNotFoundError("t"))
    with pytest.raises(DatasetNotFoundError, match="TableNotFoundError"):
        glaive.file.LanceFileReader(f"{tmp_path}/x.lance", **place(missing))
