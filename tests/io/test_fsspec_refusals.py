"""What a server of fsspec refuses is an error, never nothing: nothing may be deleted for it."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from datetime import timedelta
from ftplib import Error, error_perm, error_temp
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pytest

import glaive
from glaive.errors import ObjectNotFoundError, StoreError
from glaive.io.uri import open_store

fsspec = pytest.importorskip("fsspec", reason="install the extra 'fsspec'")
from tests.distant import Distant  # noqa: E402  # once fsspec is known to be there


class Client:
    """The client of a server of FTP, and the names that it refuses to show."""

    refused: ClassVar[dict[str, Error]] = {}
    times: ClassVar[int] = 1 << 30
    """Requests that it refuses; the others it answers."""

    def check(self, path: str) -> None:
        refusals = [error for name, error in self.refused.items() if path.endswith(name)]
        if refusals and type(self).times > 0:
            type(self).times -= 1
            raise refusals[0]

    def dir(self, folder: str, show: Callable[[str], object]) -> None:
        self.check(folder)
        if not Path(folder).is_dir():
            raise error_perm("550 No such directory")
        show("total 5")
        for path in Path(folder).iterdir():
            mode = stat.filemode(path.lstat().st_mode)
            leads = f" -> {path.readlink()}" if path.is_symlink() else ""
            show(f"{mode} 1 me 5 Nov 27 07:28 {path.name}{leads}")  # without a group


class Ftp(Distant):
    """A file system over it: as that of fsspec, it takes what is refused for what is not there."""

    protocol = "likeftp"
    ftp: ClassVar[Any] = Client()

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return path.removeprefix("likeftp://").rstrip("/")

    def ls(self, path: str, detail: bool = True, **_: Any) -> list[Any]:
        path = self._strip_protocol(path)
        try:
            self.ftp.check(path)
            names = sorted(os.listdir(path))  # noqa: PTH208  # names, as a server has them
        except (Error, OSError):
            self.info(path)
            return []
        known = [f"{path}/{name}" for name in names if Path(path, name).exists()]
        return [super(Ftp, self).info(os.path.realpath(one)) | {"name": one} for one in known]

    def info(self, path: str, **_: Any) -> dict[str, Any]:
        path = self._strip_protocol(path)
        folder = path.rpartition("/")[0]
        if not folder:
            return {"name": path, "size": 0, "type": "directory"}
        for entry in self.ls(folder):
            if entry["name"] == path:
                return dict(entry)
        raise FileNotFoundError(path)

    def cat_file(self, path: str, start: Any = None, end: Any = None, **_: Any) -> bytes:
        try:
            self.ftp.check(path)
            return Path(path).read_bytes()[start:end]
        except (Error, OSError) as error:
            raise FileNotFoundError(path) from error


class Failing(Distant):
    """A file system that cannot look at some names."""

    protocol = "failing"
    names: ClassVar[str] = "nothing"
    error: ClassVar[Exception] = PermissionError("no")

    def info(self, path: str, **_: Any) -> dict[str, Any]:
        if self.names in path:
            raise self.error
        return super().info(path)

    def ls(self, path: str, detail: bool = True, **_: Any) -> list[Any]:
        if path.endswith(self.names):
            raise self.error
        return super().ls(path, detail)


class Chrooted(Distant):
    """Files of a user of SFTP or FTP, by a server that shows nothing else: no temporary ones."""

    protocol = "chrooted"

    def open(self, path: str, mode: str = "rb", **options: Any) -> Any:
        if not options.pop("autocommit", True):
            raise FileNotFoundError(path)
        return Path(self._strip_protocol(path)).open(mode)


class Racing(Chrooted):
    """A file system that does not make folders that another thread is making."""

    protocol = "racing"

    def makedirs(self, path: str, exist_ok: bool = False) -> None:
        for folder in reversed([Path(path), *Path(path).parents]):
            if not folder.exists():
                folder.mkdir()
                raise OSError("Failure")


@pytest.fixture(autouse=True)
def _known(monkeypatch: pytest.MonkeyPatch) -> None:
    for system in (Ftp, Failing, Chrooted, Racing):
        fsspec.register_implementation(system.protocol, system, clobber=True)
    monkeypatch.setattr(Client, "times", 1 << 30)


TAGS = "_refs/tags"


@pytest.mark.spec("rel-14")
@pytest.mark.parametrize("error", [error_temp("450 Busy"), error_perm("550 Permission denied")])
@pytest.mark.parametrize("name", [TAGS, "_refs", f"{TAGS}/first.json"])
def test_a_version_stays_whose_tag_a_server_of_ftp_does_not_show(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, error: Error
) -> None:
    written = glaive.write_dataset(pa.table({"a": [1]}), tmp_path / "t")
    written.tags.create("first", 1)
    glaive.write_dataset(pa.table({"a": [2]}), written.uri, mode="overwrite")
    refused = {name: error} | ({TAGS: error} if name == "_refs" else {})
    monkeypatch.setattr(Client, "refused", refused)
    seen = glaive.dataset(f"fsspec+likeftp://{tmp_path}/t")
    with pytest.raises(StoreError, match=r"450|550"):
        seen.cleanup_old_versions(timedelta(0), error_if_tagged_old_versions=False)
    assert written.checkout_version("first").count_rows() == 1


def test_a_listing_that_ftp_refuses_once_is_asked_for_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "x").write_bytes(b"x")
    monkeypatch.setattr(Client, "refused", {f"{tmp_path}": error_temp("450 Busy")})
    monkeypatch.setattr(Client, "times", 1)
    assert [one.path for one in open_store(f"fsspec+likeftp://{tmp_path}").list("")] == ["x"]


def test_what_is_missing_over_ftp_is_missing(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    store = open_store(f"fsspec+likeftp://{tmp_path}")
    assert [list(store.list(folder)) for folder in ("empty", "none", "none/below")] == [[], [], []]
    for ask in (store.get, store.head):
        with pytest.raises(ObjectNotFoundError):
            ask("none/x")


def test_links_of_ftp_are_not_followed_in_circles(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"x")
    for name in "ab":
        (tmp_path / name).symlink_to(".")
    store = open_store(f"fsspec+likeftp://{tmp_path}")
    assert [one.path for one in store.walk("")] == ["x"]
    assert store.is_link("a") is True


@pytest.mark.spec("rel-3")
def test_what_a_server_does_not_let_look_at_is_not_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "x").write_bytes(b"old")
    monkeypatch.setattr(Failing, "names", "x")
    with pytest.raises(StoreError, match="look up"):
        open_store(f"fsspec+failing://{tmp_path}").put("x", [b"new"], mode="create")
    assert (tmp_path / "x").read_bytes() == b"old"


def test_a_folder_that_a_server_does_not_list_is_missed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "own" / "theirs").mkdir(parents=True)
    (tmp_path / "own" / "x").write_bytes(b"x")
    monkeypatch.setattr(Failing, "names", "theirs")
    with pytest.raises(StoreError, match="no"):
        list(open_store(f"fsspec+failing://{tmp_path}").walk(""))


@pytest.mark.parametrize("name", ["temppath", "tempdir"])
@pytest.mark.parametrize("system", [Chrooted, Racing])
def test_files_are_written_where_others_make_folders_and_none_is_for_temporary_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, system: type[Chrooted], name: str
) -> None:
    monkeypatch.delattr(Distant, "temppath")
    monkeypatch.setattr(Chrooted, name, "/nowhere", raising=False)
    place = f"fsspec+{system.protocol}://{tmp_path}/a/b/t"
    assert glaive.write_dataset(pa.table({"a": [1]}), place).count_rows() == 1
    assert not list(tmp_path.rglob("*.tmp*"))


@pytest.mark.spec("rel-27")
def test_a_password_that_a_server_repeats_is_hidden(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Failing, "names", "x")
    monkeypatch.setattr(Failing, "error", OSError("no user with cdefgh@j or cdefgh%40j"))
    store = open_store(f"fsspec+failing://me:cdefgh%40j@host{tmp_path}")
    with pytest.raises(StoreError, match=r"no user with \*\*\* or \*\*\*\."):
        store.head("x")


class AnswerError(Exception):
    """What a client of HTTP has of an answer that it cannot use."""

    status: ClassVar[int] = 503


@pytest.mark.parametrize(
    ("status", "missing"), [(503, False), (403, False), (404, True), (410, True)]
)
@pytest.mark.parametrize("ask", ["head", "list"])
def test_only_what_a_server_says_is_missing_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ask: str, status: int, missing: bool
) -> None:
    monkeypatch.setattr(AnswerError, "status", status)
    error = FileNotFoundError("x")
    error.__cause__ = AnswerError("said")  # as of a client that says so of each answer
    monkeypatch.setattr(Failing, "names", "x")
    monkeypatch.setattr(Failing, "error", error)
    store = open_store(f"fsspec+failing://{tmp_path}")
    if ask == "list" and missing:
        assert list(store.list("x")) == []
        return
    with pytest.raises(StoreError) as raised:
        _ = store.head("x") if ask == "head" else list(store.list("x"))
    assert isinstance(raised.value, ObjectNotFoundError) is missing
