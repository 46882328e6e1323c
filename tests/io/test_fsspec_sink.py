"""Through fsspec, too, an object is there as a whole or not at all."""

from __future__ import annotations

import gc
import os
import shutil
import tarfile
import tempfile
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.fs
import pytest
from cheroot.wsgi import Server
from webdav4.fsspec import WebdavFileSystem
from wsgidav.wsgidav_app import WsgiDAVApp

import glaive
from glaive.errors import ObjectExistsError, ObjectNotFoundError, StoreError
from glaive.io.access import open_store
from glaive.io.fsspec import _read_only, creates, failed

fsspec = pytest.importorskip("fsspec", reason="install the extra 'fsspec'")
from fsspec.implementations.arrow import ArrowFSWrapper  # noqa: E402  # once fsspec is known to be there
from fsspec.implementations.ftp import FTPFileSystem  # noqa: E402  # as above
from tests.distant import DISTANT, Distant  # noqa: E402  # as above


class InPlace(ArrowFSWrapper):  # type: ignore[misc]  # fsspec has no types
    """Files of this machine as ``hdfs://`` shows its own: written in place, whatever is asked."""

    protocol = "inplace"

    def __init__(self, **_: Any) -> None:
        super().__init__(pyarrow.fs.LocalFileSystem())

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return path.removeprefix("inplace://")


class Refusing(Distant):
    """Files of a server, by a file system that says that it cannot wait."""

    protocol = "refusing"

    def open(self, path: str, mode: str = "rb", **options: Any) -> Any:
        if not options.pop("autocommit", True):
            raise NotImplementedError
        return super().open(path, mode, **options)

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return path.removeprefix("refusing://")


@pytest.fixture(params=[InPlace, Refusing], ids=lambda system: system.protocol)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    system_type = request.param
    fsspec.register_implementation(system_type.protocol, system_type, clobber=True)
    return f"fsspec+{system_type.protocol}://{tmp_path}/t"


def files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.rglob("*") if path.is_file())


def test_what_is_being_written_is_not_there_yet(place: str, tmp_path: Path) -> None:
    store = open_store(place)
    store.put("x", [b"old"])
    sink = store.create("x")
    sink.write([b"new " * 1000])
    assert store.get("x").to_pybytes() == b"old"
    assert sink.finish() == 4000
    assert store.get("x").to_pybytes() == b"new " * 1000
    assert files(tmp_path) == ["x"]


def test_what_is_given_up_leaves_nothing(place: str, tmp_path: Path) -> None:
    store = open_store(place)
    store.put("x", [b"old"])
    for name in ("x", "y"):
        sink = store.create(name)
        sink.write([b"new"])
        sink.abort()
        with pytest.raises(StoreError, match="writing has ended"):
            sink.write([b"more"])
    assert files(tmp_path) == ["x"]
    assert store.get("x").to_pybytes() == b"old"


def test_an_object_is_made_where_there_is_none_or_an_empty_one(place: str, tmp_path: Path) -> None:
    store = open_store(place)
    store.put("v/1", [])
    for content in (b"first", b"second"):
        try:
            store.put("v/1", [content], mode="create")
        except ObjectExistsError:
            assert content == b"second"
    assert store.get("v/1").to_pybytes() == b"first"
    assert files(tmp_path) == ["1"]


def test_a_dataset_is_written_and_read(place: str, tmp_path: Path) -> None:
    glaive.write_dataset(pa.table({"a": [1, 2]}), place)
    glaive.write_dataset(pa.table({"a": [3]}), place, mode="append")
    assert glaive.dataset(tmp_path / "t").to_table()["a"].to_pylist() == [1, 2, 3]
    assert not [name for name in files(tmp_path) if name.startswith(".")]


@pytest.mark.spec("sec-6")
@pytest.mark.parametrize("place", [DISTANT, "fsspec+file://{}", "local://{}"])
def test_an_object_takes_the_place_of_a_link_also_where_temporary_files_are_on_another_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    """What waits on one disk is copied to another one: into the target of the link."""
    memory = Path("/dev/shm")
    if not memory.is_dir() or memory.stat().st_dev == tmp_path.stat().st_dev:
        pytest.skip("this system has one disk")
    monkeypatch.setattr(tempfile, "tempdir", str(memory))
    (tmp_path / "mine").write_bytes(b"precious")
    (tmp_path / "t").mkdir()
    for name in ("mine", "none"):
        (tmp_path / "t" / name).symlink_to(tmp_path / name)
    before = set(memory.iterdir())
    store = open_store(place.format(tmp_path / "t"))
    store.put("mine", [b"new"])
    if place == DISTANT:
        store.put("none", [b"new"], mode="create")
    else:  # a directory has the name
        with pytest.raises(ObjectExistsError):
            store.put("none", [b"new"], mode="create")
        store.put("none", [b"new"])
    for name in ("mine", "none"):
        assert store.get(name).to_pybytes() == b"new"
    assert (tmp_path / "mine").read_bytes() == b"precious"
    assert not (tmp_path / "none").exists()
    assert files(tmp_path / "t") == ["mine", "none"]
    others = set(memory.iterdir()) - before
    assert not [path for path in others if path.is_file() and path.stat().st_size == 0]


@pytest.mark.spec("sec-6")
@pytest.mark.parametrize("place", [DISTANT, "fsspec+file://{}", "local://{}"])
def test_an_object_takes_the_place_of_a_link_to_a_folder(tmp_path: Path, place: str) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "t").mkdir()
    (tmp_path / "t" / "name").symlink_to(tmp_path / "outside")
    store = open_store(place.format(tmp_path / "t"))
    store.put("name", [b"new"])
    assert store.get("name").to_pybytes() == b"new"
    assert files(tmp_path) == ["name"]


CHAINS = ("simplecache", "filecache", "blockcache")


@pytest.mark.spec("sec-6")
@pytest.mark.parametrize("chain", CHAINS)
def test_an_object_takes_the_place_of_a_link_through_what_works_through_another_system(
    chain: str, tmp_path: Path
) -> None:
    """A cache says that its files wait to be committed, and writes them over as they are closed."""
    (tmp_path / "outside" / "folder").mkdir(parents=True)
    (tmp_path / "outside" / "mine").write_bytes(b"precious")
    (tmp_path / "t").mkdir()
    for name in ("mine", "none", "made", "folder"):
        (tmp_path / "t" / name).symlink_to(tmp_path / "outside" / name)
    store = open_store(f"fsspec+{chain}::distant://{tmp_path}/t")
    store.put("mine", [b"new"])
    store.put("none", [b"new"])
    store.put("folder", [b"new"])
    store.put("made", [b"new"], mode="create")
    for name in ("mine", "none", "made", "folder"):
        written = tmp_path / "t" / name
        assert written.read_bytes() == b"new"
        assert not written.is_symlink()
    assert files(tmp_path / "outside") == ["mine"]
    assert (tmp_path / "outside" / "mine").read_bytes() == b"precious"


@pytest.mark.parametrize("chain", ["memory://", "dir::memory://"])
@pytest.mark.parametrize("name", ["a[1]", "b*", "c?", "d[0-9]"])
def test_a_name_with_signs_of_a_pattern_is_that_of_its_files(name: str, chain: str) -> None:
    system = fsspec.filesystem("memory")
    uri = f"fsspec+{chain}patterns/{name}/t"
    try:
        glaive.write_dataset(pa.table({"a": [1, 2, 3]}), uri)
        glaive.dataset(uri).delete("a = 2")
        assert glaive.dataset(uri).to_table().to_pydict() == {"a": [1, 3]}
        assert not [path for path in system.store if path.endswith(".tmp")]
    finally:
        system.rm("/patterns", recursive=True)


@pytest.mark.parametrize(
    ("uri", "own"),
    [
        ("memory://t", True),
        ("simplecache::memory://t", True),
        (DISTANT.format("/t"), False),
        (f"simplecache::{DISTANT.format('/t')}", False),
    ],
)
def test_what_works_through_another_system_has_a_put_if_absent_if_that_has(
    uri: str, *, own: bool
) -> None:
    """Else it writes in place, where readers see half of an object."""
    assert creates(fsspec.core.url_to_fs(uri)[0]) == own


def test_what_writes_nothing_says_so(tmp_path: Path) -> None:
    """The wrapper opens files of fsspec's base class, which keep nothing."""
    with pytest.raises(StoreError, match="cannot write"):
        glaive.write_dataset(pa.table({"a": [1]}), f"fsspec+async_wrapper::distant://{tmp_path}/t")


@pytest.mark.parametrize("chain", CHAINS)
def test_what_is_given_up_is_not_written_by_what_works_through_another_system(
    chain: str, tmp_path: Path
) -> None:
    store = open_store(f"fsspec+{chain}::distant://{tmp_path}")
    store.put("x", [b"old"])
    sink = store.create("x")
    sink.write([b"new"])
    sink.abort()
    assert (tmp_path / "x").read_bytes() == b"old"
    assert files(tmp_path) == ["x"]


class DisconnectedError(Exception):
    """As aiohttp has it."""


class RefusedError(Exception):
    """As clients of Google's and Azure's stores have it."""

    status_code = 403


class GatewayError(Exception):
    """The same where a proxy did not get an answer."""

    code = 504


class ResponseError(OSError):
    """As requests has it, whose error has the response."""

    def __init__(self, status: int) -> None:
        super().__init__(f"HTTP {status}")
        self.response = SimpleNamespace(status_code=status)


class WaitedError(OSError):
    """As requests has it: no TimeoutError of Python."""

    response = None


@pytest.mark.spec("rel-8")
@pytest.mark.parametrize(
    ("error", "is_unanswered"),
    [
        (TimeoutError("no answer"), True),
        (ConnectionResetError(), True),
        (DisconnectedError(), True),
        (WaitedError(), True),
        (GatewayError(), True),
        (ResponseError(502), True),
        (ResponseError(503), False),
        (PermissionError(), False),
        (OSError("Failure"), False),
        (RefusedError(), False),
    ],
)
def test_a_request_that_had_no_answer_may_still_have_its_effect(
    error: Exception, *, is_unanswered: bool
) -> None:
    assert failed(error, "sftp://host/t", "write").is_unanswered == is_unanswered


@pytest.mark.parametrize("kind", ["tar", "zip"])
def test_an_archive_is_read_and_not_written(kind: str, tmp_path: Path) -> None:
    rows = pa.table({"id": [1, 2, 3]})
    glaive.write_dataset(rows, tmp_path / "t").delete("id = 2")
    packed = shutil.make_archive(str(tmp_path / "x"), kind, tmp_path, "t")
    for uri in (f"fsspec+{kind}://t::{packed}", f"fsspec+dir://t::{kind}://::{packed}"):
        assert glaive.dataset(uri).to_table().to_pydict() == {"id": [1, 3]}
        with pytest.raises(StoreError, match="does not write to archives"):
            glaive.dataset(uri).delete("id = 1")
        with pytest.raises(ObjectNotFoundError):
            open_store(uri).get("none")


def test_ftp_and_places_behind_a_cache_are_not_written() -> None:
    cached = open_store("fsspec+dir://t::simplecache::memory://t")
    changes: list[Callable[[], object]] = [
        lambda: cached.put("x", [b"x"]),
        lambda: cached.delete(["x"]),
    ]
    for change in changes:
        with pytest.raises(StoreError, match="does not write to places behind a cache"):
            change()

    class Ftp(FTPFileSystem):  # type: ignore[misc]  # fsspec has no types
        """A client that has not connected."""

        def __init__(self) -> None: ...

        def __del__(self) -> None: ...

    made: Any = Ftp
    assert _read_only(made()) == "FTP servers"


@pytest.mark.spec("rel-42")
@pytest.mark.parametrize("time", [10.0**18, -(10.0**18), 10.0**300])
def test_a_time_in_an_archive_that_no_day_has_is_unknown(time: float, tmp_path: Path) -> None:
    rows = pa.table({"id": [1, 2, 3]})
    glaive.write_dataset(rows, tmp_path / "t")
    with tarfile.open(tmp_path / "t.tar", "w", format=tarfile.PAX_FORMAT) as archive:
        for path in files_below(tmp_path / "t"):
            entry = archive.gettarinfo(path, str(path.relative_to(tmp_path)))
            entry.mtime = time
            with path.open("rb") as content:
                archive.addfile(entry, content)
    uri = f"fsspec+tar://t::{tmp_path}/t.tar"
    assert glaive.dataset(uri).to_table() == rows
    assert {meta.modified for meta in open_store(uri).walk("")} == {None}


def files_below(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


@pytest.mark.spec("rel-20")
def test_an_object_of_which_a_server_lost_the_end_gets_no_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Over SFTP the client is silent where a disk was full only when the server closed a file."""
    opened = Distant._open  # noqa: SLF001  # what fsspec has for subclasses

    def lose(close: Callable[[], None], path: str) -> None:
        close()
        os.truncate(path, 100)

    def open_and_lose(system: Distant, path: str, mode: str = "rb", *_: Any, **options: Any) -> Any:
        file = opened(system, path, mode, **options)
        if mode == "wb" and "/data/" in path:
            file.close = partial(lose, file.close, path)
        return file

    glaive.write_dataset(pa.table({"a": [1]}), tmp_path / "t")
    with monkeypatch.context() as patched:
        patched.setattr(Distant, "_open", open_and_lose)
        with pytest.raises(StoreError, match=r"cannot write .*kept 100 of \d+ bytes"):
            glaive.write_dataset(
                pa.table({"a": [2]}), f"fsspec+distant://{tmp_path}/t", mode="append"
            )
    assert len(list((tmp_path / "t" / "data").iterdir())) == 1
    assert glaive.dataset(tmp_path / "t").to_table().to_pydict() == {"a": [1]}


@pytest.fixture
def webdav(tmp_path: Path) -> Iterator[dict[str, str]]:
    """Options that lead to a WebDAV server in this process, which shows ``tmp_path``."""
    app = WsgiDAVApp(
        {
            "provider_mapping": {"/": str(tmp_path)},
            "simple_dc": {"user_mapping": {"*": True}},
            "logging": {"enable": False},
        }
    )
    fsspec.register_implementation("webdav", WebdavFileSystem, clobber=True)
    server = Server(("127.0.0.1", 0), app)
    server.prepare()
    thread = threading.Thread(target=server.serve)
    thread.start()
    yield {"base_url": f"http://127.0.0.1:{server.bind_addr[1]}"}
    # Collected in a later test, the connections would fail that test.
    WebdavFileSystem.clear_instance_cache()
    gc.collect()
    server.stop()
    thread.join()


# webdav4 leaves connections and finished uploads to the garbage collector.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_dataset_lives_on_a_webdav_server(webdav: dict[str, str], tmp_path: Path) -> None:
    rows = pa.table({"a": range(100)})
    for mode in ("create", "append"):
        glaive.write_dataset(rows, "fsspec+webdav://t", mode=mode, storage_options=webdav)
    dataset = glaive.dataset("fsspec+webdav://t", storage_options=webdav)
    dataset.tags.create("best", 1)
    dataset.tags.update("best", 2)
    dataset.delete("a < 10")
    dataset.optimize.compact_files()
    dataset.cleanup_old_versions(timedelta(0), error_if_tagged_old_versions=False)
    assert not creates(fsspec.filesystem("webdav", **webdav))
    read = glaive.dataset("fsspec+webdav://t", storage_options=webdav)
    assert (read.count_rows(), read.tags.get_version("best")) == (180, 2)
    assert not [name for name in files(tmp_path) if ".tmp" in name]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_writers_on_a_webdav_server_lose_no_commit(webdav: dict[str, str]) -> None:
    uri = "fsspec+webdav://t"
    glaive.write_dataset(pa.table({"a": [0]}), uri, storage_options=webdav)

    def append(number: int) -> None:
        rows = pa.table({"a": [number]})
        glaive.write_dataset(rows, uri, mode="append", storage_options=webdav)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(append, range(1, 9)))
    found = glaive.dataset(uri, storage_options=webdav).to_table()["a"].to_pylist()
    assert sorted(found) == list(range(9))
