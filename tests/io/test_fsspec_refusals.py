"""What a server of fsspec refuses is an error, never nothing: nothing may be deleted for it."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pytest

import glaive
from glaive.errors import ObjectNotFoundError, StoreError
from glaive.io.access import open_store

fsspec = pytest.importorskip("fsspec", reason="install the extra 'fsspec'")
from tests.distant import Distant  # noqa: E402  # once fsspec is known to be there


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
    """Files of a user of SFTP, by a server that shows nothing else: no temporary ones."""

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
def _known() -> None:
    for system in (Failing, Chrooted, Racing):
        fsspec.register_implementation(system.protocol, system, clobber=True)


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
