"""What file systems of fsspec answer, some of it as a server said it, is looked at."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pytest

import glaive
from glaive.errors import StoreError
from glaive.io.uri import open_store
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


@pytest.fixture(autouse=True)
def _known() -> None:
    for system in (Whole, Saying):
        fsspec.register_implementation(system.protocol, system, clobber=True)


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
@pytest.mark.parametrize(
    "said",
    [
        None,
        "/t/x",
        {"name": "/t/x", "size": "much"},
        {"name": "/t/x", "size": "9" * 5000},
        {"name": "/t/x", "size": [1]},
        {"name": "/t/x", "size": float("inf")},
        {"name": "/t/x", "size": 1 << 63},
    ],
    ids=lambda said: str(said)[:40],
)
@pytest.mark.parametrize("ask", ["head", "list", "size"])
def test_what_is_no_answer_about_a_file_is_an_error(
    monkeypatch: pytest.MonkeyPatch, said: Any, ask: str
) -> None:
    monkeypatch.setattr(Saying, "said", said)
    store = open_store("fsspec+saying:///t")
    asked: dict[str, Callable[[], Any]] = {
        "head": lambda: store.head("x"),
        "list": lambda: list(store.list("")),
        "size": lambda: store.open("x").tail(1),
    }
    with pytest.raises(StoreError, match="cannot"):
        asked[ask]()


@pytest.mark.spec("rel-42")
@pytest.mark.parametrize("name", [None, 5, ["/t/x"]])
def test_a_name_that_is_no_text_is_an_error(monkeypatch: pytest.MonkeyPatch, name: Any) -> None:
    monkeypatch.setattr(Saying, "said", {"name": name, "size": 1})
    with pytest.raises(StoreError, match="no name or size"):
        list(open_store("fsspec+saying:///t").list(""))
