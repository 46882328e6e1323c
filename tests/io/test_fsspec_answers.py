"""What file systems of fsspec answer, some of it as a server said it, is looked at."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pytest

import glaive
from glaive.errors import StoreError
from glaive.io.access import open_store
from glaive.types import ByteRange

fsspec = pytest.importorskip("fsspec", reason="install the extra 'fsspec'")
from tests.distant import Distant  # noqa: E402  # once fsspec is known to be there


class Whole(Distant):
    """A server that may answer with the whole file where it was asked for a part of it."""

    protocol = "whole"
    sends_ranges: ClassVar[bool] = False

    def cat_file(self, path: str, start: Any = None, end: Any = None, **_: Any) -> bytes:
        content = Path(path).read_bytes()
        return content[start:end] if self.sends_ranges else content

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return path.removeprefix("whole://")


class Saying(Distant):
    """A file system that says of every file what its server says of it."""

    protocol = "saying"
    said: ClassVar[Any] = {}

    def info(self, path: str, **_: Any) -> Any:
        return self.said

    def ls(self, path: str, detail: bool = True, **_: Any) -> list[Any]:
        return [self.said]


class Asked:
    """The client of SFTP, which is asked for what a name is itself."""

    def lstat(self, path: str) -> os.stat_result:
        return os.lstat(path)


class Following(Distant):
    """A file system that says of links what they lead to, but to its client, as that of SFTP."""

    protocol = "following"
    ftp: ClassVar[Any] = Asked()

    def info(self, path: str, **_: Any) -> dict[str, Any]:
        return super().info(f"{Path(self._strip_protocol(path)).resolve(strict=True)}")


class Listing(Following):
    """The same without such a client, as that of the package sshfs: its listings tell links."""

    protocol = "ssh"
    ftp: ClassVar[Any] = None

    def ls(self, path: str, detail: bool = True, **_: Any) -> list[Any]:
        paths = [f"{one}" for one in Path(self._strip_protocol(path)).iterdir()]
        return [Distant.info(self, one) for one in paths] if detail else paths


class Worded(Distant):
    """A file system that has other words for links."""

    protocol = "worded"
    words: ClassVar[dict[str, str]] = {}

    def info(self, path: str, **_: Any) -> dict[str, Any]:
        found = super().info(path)
        return found | self.words if found["type"] == "link" else found


class Unsized(Distant):
    """A file system whose listings have no sizes, as those of web servers."""

    protocol = "unsized"

    def ls(self, path: str, detail: bool = True, **_: Any) -> list[Any]:
        listed = super().ls(path, detail)
        return [one | {"size": None} for one in listed] if detail else listed


@pytest.fixture(autouse=True)
def _known() -> Iterator[None]:
    for system in (Whole, Saying, Following, Listing, Worded, Unsized):
        fsspec.register_implementation(system.protocol, system, clobber=True)
    yield
    known = "fsspec.implementations.sftp.SFTPFileSystem"
    fsspec.register_implementation(Listing.protocol, known, clobber=True)


@pytest.mark.spec("rel-23")
@pytest.mark.parametrize("version", ["2.0", "2.1"])
def test_a_whole_file_is_not_read_as_a_part_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: Any
) -> None:
    values = pa.table({"it": np.random.default_rng(0).integers(0, 1 << 60, 200_000)})
    written = glaive.write_dataset(values, tmp_path / "t", data_storage_version=version)
    monkeypatch.setattr(Whole, "sends_ranges", True)
    rows = glaive.dataset(f"fsspec+whole://{tmp_path}/t").get_fragments()[0]
    assert rows.take([100_000]) == written.take([100_000])  # the end of the file was read
    monkeypatch.setattr(Whole, "sends_ranges", False)
    with pytest.raises(StoreError, match="returned more bytes than were requested"):
        rows.take([150_000])


def test_the_first_bytes_may_come_with_all_others(tmp_path: Path) -> None:
    (tmp_path / "it").write_bytes(b"0123456789")
    reader = open_store(f"fsspec+whole://{tmp_path}").open("it")
    (first,) = reader.read([ByteRange(0, 4)])
    assert first.to_pybytes() == b"0123"


@pytest.mark.spec("rel-42")
@pytest.mark.parametrize("said", [{"size": 1 << 63}, {"size": None}, {}])
@pytest.mark.parametrize("ask", ["head", "list", "size"])
def test_what_is_no_answer_about_a_file_is_an_error(
    monkeypatch: pytest.MonkeyPatch, said: Any, ask: str
) -> None:
    monkeypatch.setattr(Saying, "said", {"name": "/t/x"} | said)
    store = open_store("fsspec+saying:///t")
    asked: dict[str, Callable[[], Any]] = {
        "head": lambda: store.head("x"),
        "list": lambda: [one.size for one in store.list("")],
        "size": lambda: store.open("x").tail(1),
    }
    with pytest.raises(StoreError, match="cannot"):
        asked[ask]()


@pytest.mark.spec("rel-14")
def test_files_of_a_listing_without_sizes_are_not_empty(tmp_path: Path) -> None:
    written = glaive.write_dataset(pa.table({"a": [1]}), tmp_path / "t")
    written.tags.create("first", 1)
    glaive.write_dataset(pa.table({"a": [2]}), written.uri, mode="append")
    seen = glaive.dataset(f"fsspec+unsized://{tmp_path}/t")
    assert [one["version"] for one in seen.versions()] == [1, 2]
    assert [*seen.tags.list()] == ["first"]
    kept = seen.cleanup_old_versions(timedelta(0), error_if_tagged_old_versions=False)
    assert (kept.old_versions, kept.warnings) == (0, ())
    assert seen.checkout_version("first").count_rows() == 1


def test_files_of_a_listing_without_sizes_are_ingested(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("a\n1\n2\n")
    source = f"fsspec+unsized://{tmp_path}/*.csv"
    assert glaive.ingest(source, tmp_path / "t", schema="a bigint").rows == 2


def test_a_size_that_a_listing_lacks_is_asked_for_once_and_where_it_is_needed(
    tmp_path: Path,
) -> None:
    for name, content in {"kept": b"12", "deleted": b"123"}.items():
        (tmp_path / name).write_bytes(content)
    store = open_store(f"fsspec+unsized://{tmp_path}")
    deleted, kept = store.list("")
    requests = store.counters.snapshot().read_iops
    assert (kept.stated_size, kept.size, kept.size, kept.stated_size) == (None, 2, 2, 2)
    assert store.counters.snapshot().read_iops == requests + 1
    assert pickle.loads(pickle.dumps(kept)).size == 2
    (tmp_path / "deleted").unlink()
    assert deleted.size == 0


LINKS: dict[str, dict[str, str]] = {
    "fsspec+following://{}/theirs": {},
    "dir://theirs::following://{}": {},
    "ssh://{}/theirs": {},
    "dir://theirs::ssh://{}": {},
    "fsspec+asyncwrapper::following://{}/theirs": {},
    "fsspec+worded://{}/theirs": {"type": "OS.unix=slink:/elsewhere"},
    "fsspec+asyncwrapper::worded://{}/theirs": {"type": "OS.unix=symlink"},
}
"""Places, and what their servers call links."""


@pytest.mark.spec("rel-16", "sec-5")
@pytest.mark.parametrize("place", LINKS)
def test_links_are_known_however_a_server_tells_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    monkeypatch.setattr(Worded, "words", LINKS[place])
    mine, theirs = tmp_path / "mine", tmp_path / "theirs"
    mine.mkdir()
    (mine / "x.lance").write_bytes(b"mine")
    (theirs / "own").mkdir(parents=True)
    (theirs / "own" / "x.lance").write_bytes(b"theirs")
    (theirs / "data").symlink_to(mine)
    (theirs / "own" / "y").symlink_to(mine / "x.lance")
    (theirs / "own" / "nowhere").symlink_to(mine / "nothing")
    store = open_store(place.format(tmp_path))
    with pytest.raises(StoreError, match="data is a link"):
        store.delete(["data/x.lance"])
    assert (mine / "x.lance").read_bytes() == b"mine"
    assert "is a link" in (store.file_link_out("own/y") or "")
    assert store.is_link("own/nowhere") is True
    assert [store.is_link(path) for path in ("own", "own/x.lance", "own/none")] == [False] * 3
    store.delete(["own/x.lance"])
    assert not (theirs / "own" / "x.lance").exists()
