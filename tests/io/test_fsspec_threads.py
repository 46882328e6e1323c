"""Threads and forked children read through fsspec at once, each by a file system of its own."""

from __future__ import annotations

import os
import tarfile
from pathlib import Path
from threading import Thread, get_ident
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pytest

import glaive
from glaive.errors import ObjectExistsError, StoreError
from glaive.io.access import open_store
from glaive.types import ByteRange

fsspec = pytest.importorskip("fsspec", reason="install the extra 'fsspec'")
from tests.distant import Distant  # noqa: E402  # once fsspec is known to be there


class OfOneThread(Distant):
    """A file system that only the thread uses which opened it."""

    protocol = "ofonethread"
    refused: ClassVar[list[str]] = []
    """Errors of the next ones that are opened."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.user = os.getpid(), get_ident()
        if self.refused:
            raise OSError(self.refused.pop())

    def cat_file(self, path: str, *args: Any, **options: Any) -> Any:
        assert self.user == (os.getpid(), get_ident())
        return super().cat_file(path, *args, **options)

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return path.removeprefix("ofonethread://")


@pytest.fixture
def place(tmp_path: Path) -> str:
    fsspec.register_implementation("ofonethread", OfOneThread, clobber=True)
    with (tmp_path / "x").open("wb") as file:
        file.truncate(64 << 20)  # far apart, so that each range is a request
    return f"fsspec+ofonethread://{tmp_path}"


class Remembering(OfOneThread):
    """One that remembers what was not there."""

    protocol = "remembering"

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.missing: set[str] = set()

    def exists(self, path: str, **options: Any) -> bool:
        if path not in self.missing and not super().exists(path, **options):
            self.missing.add(path)
        return path not in self.missing

    def invalidate_cache(self, path: str | None = None) -> None:
        self.missing.clear()

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return path.removeprefix("remembering://")


class Connected(Distant):
    """One with a connection, which a server can end."""

    protocol = "connected"
    ended: ClassVar[Exception] = OSError()
    """What those report whose connection has ended."""
    connections = 0
    lost = 0
    """The connections up to this one have ended."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        Connected.connections += 1
        self.connection = Connected.connections

    @classmethod
    def end_all(cls) -> None:
        cls.lost = cls.connections

    def use(self) -> None:
        if self.connection <= self.lost:
            raise self.ended

    def info(self, path: str, **options: Any) -> dict[str, Any]:
        self.use()
        return super().info(path, **options)

    def ls(self, path: str, detail: bool = True, **options: Any) -> list[Any]:
        self.use()
        return super().ls(path, detail, **options)

    def _open(self, *args: Any, **options: Any) -> Any:
        self.use()
        return super()._open(*args, **options)

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return path.removeprefix("connected://")


def is_read(store: Any) -> bool:
    ranges = [ByteRange(at << 24, 4) for at in range(4)]
    return all(part.to_pybytes() == bytes(4) for part in store.open("x").read(ranges))


def test_threads_of_one_read_have_their_own(place: str) -> None:
    assert is_read(open_store(place))


def test_what_another_thread_has_made_is_not_replaced(tmp_path: Path) -> None:
    fsspec.register_implementation("remembering", Remembering, clobber=True)
    store: Any = open_store(f"fsspec+remembering://{tmp_path}")
    assert not store.system.exists(f"{tmp_path}/x")
    other = Thread(target=store.put, args=("x", [b"theirs"]), kwargs={"mode": "create"})
    other.start()
    other.join()
    with pytest.raises(ObjectExistsError):
        store.put("x", [b"mine"], mode="create")
    assert store.get("x").to_pybytes() == b"theirs"


def test_one_that_a_busy_server_drops_is_opened_again(place: str) -> None:
    store = open_store(place)
    OfOneThread.clear_instance_cache()  # threads of other tests may have one
    OfOneThread.refused[:] = ["Error reading SSH protocol banner"] * 2
    assert is_read(store)
    assert not OfOneThread.refused


@pytest.mark.parametrize(
    "ended",
    [
        BrokenPipeError("Broken pipe"),
        OSError("Socket is closed"),
        OSError("Server connection dropped: "),
        EOFError(),
    ],
    ids=["pipe", "socket", "dropped", "end"],
)
def test_one_whose_connection_a_server_has_ended_is_opened_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ended: Exception
) -> None:
    fsspec.register_implementation("connected", Connected, clobber=True)
    place = f"fsspec+connected://{tmp_path}/t"
    dataset = glaive.write_dataset(pa.table({"id": range(10)}), place)
    monkeypatch.setattr(Connected, "ended", ended)
    Connected.end_all()
    assert dataset.to_table().num_rows == 10
    Connected.end_all()
    assert len(dataset.versions()) == 1
    Connected.end_all()
    said = f"cannot write .*{str(ended) or 'EOFError'}"
    with pytest.raises(StoreError, match=said):  # writes are not repeated
        open_store(place).put("x", [b"new"])
    open_store(place).put("x", [b"new"])
    assert open_store(place).get("x").to_pybytes() == b"new"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork processes")
@pytest.mark.spec("rel-4")
def test_a_forked_child_has_its_own(place: str) -> None:
    store = open_store(place)
    assert is_read(store)
    child = os.fork()
    if not child:
        read = False
        try:
            read = is_read(store)
        finally:
            os._exit(not read)
    assert os.waitpid(child, 0)[1] == 0
    assert is_read(store)


@pytest.mark.sampled(every=2)
@pytest.mark.spec("rel-4")
@pytest.mark.parametrize(
    "uri",
    ["tar://t::", "dir://t::tar://::", "asyncwrapper::tar://t::"],
    ids=["itself", "a folder", "wrapped"],
)
def test_rows_of_an_archive_are_those_that_were_written(tmp_path: Path, uri: str) -> None:
    rows = pa.table({"id": np.arange(100_000), "v": np.random.default_rng(0).random(100_000)})
    glaive.write_dataset(rows, tmp_path / "t", max_rows_per_file=10_000)
    with tarfile.open(tmp_path / "t.tar", "w") as archive:
        archive.add(tmp_path / "t", "t")
    dataset = glaive.dataset(f"fsspec+{uri}{tmp_path}/t.tar")
    for _ in range(10):
        assert dataset.to_table() == rows
