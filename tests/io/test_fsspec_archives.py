"""Archives that fsspec opens hold what they say, and not what a few bytes of them stand for."""

from __future__ import annotations

import bz2
import gzip
import io
import os
import tarfile
import tracemalloc
import zipfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pytest

import glaive
from glaive.config import settings
from glaive.errors import LimitError
from glaive.io.uri import open_store
from glaive.types import ByteRange

pytest.importorskip("fsspec", reason="install the extra 'fsspec'")

pytestmark = pytest.mark.spec("rel-24")

MOST = settings.max_decoded_bytes_per_page
LAST = b"the end"
KINDS = ("_versions", "_deletions", "_refs", "data")
USES: dict[str, Callable[[str], object]] = {
    "_versions": glaive.dataset,
    "_deletions": lambda uri: glaive.dataset(uri).to_table(),
    "_refs": lambda uri: glaive.dataset(uri).tags.list(),
    "data": lambda uri: glaive.dataset(uri).to_table(),
}


@pytest.fixture
def place(tmp_path: Path) -> Path:
    dataset = glaive.write_dataset(pa.table({"id": range(9)}), tmp_path / "t")
    dataset.delete("id = 3")
    dataset.tags.create("first", 1)
    return tmp_path / "t"


def files_of(place: Path) -> list[Path]:
    return sorted(path for path in place.rglob("*") if path.is_file())


def first_of(place: Path, kind: str) -> str:
    """The name of a file of a kind, for manifests that of the newest one."""
    return next(path.name for path in files_of(place / kind) if path.name.count(".") == 1)


def sparse(name: str, size: int) -> tuple[tarfile.TarInfo, io.BytesIO]:
    """A file of zeros with some last bytes, of which an archive has only these."""
    where = f"1\n{size - len(LAST)}\n{len(LAST)}\n".encode().ljust(512, b"\0")
    entry = tarfile.TarInfo(name)
    entry.size = len(where) + len(LAST)
    entry.pax_headers = {
        "GNU.sparse.major": "1",
        "GNU.sparse.minor": "0",
        "GNU.sparse.name": name,
        "GNU.sparse.realsize": f"{size}",
    }
    return entry, io.BytesIO(where + LAST)


def archive(place: Path, name: str, size: int) -> str:
    """The URI of a dataset in an archive, in which a file of some name has a hole of that size."""
    target = place.with_suffix(".tar")
    with tarfile.open(target, "w", format=tarfile.PAX_FORMAT) as tar:
        for path in files_of(place):
            inside = f"t/{path.relative_to(place)}"
            if path.name == name:
                tar.addfile(*sparse(inside, size))
            else:
                tar.add(path, inside)
    return f"fsspec+tar://t::{target}"


@pytest.mark.parametrize("kind", KINDS)
def test_a_file_of_holes_in_an_archive_is_refused(kind: str, place: Path) -> None:
    name, size = first_of(place, kind), 1 << 40
    with pytest.raises(LimitError, match=rf"{name} would unpack to {size} bytes, out of an archi"):
        USES[kind](archive(place, name, size))


def test_a_range_of_it_is_refused_too(place: Path) -> None:
    (place / "0.lance").touch()
    store = open_store(archive(place, "0.lance", 1 << 40))
    for read in (
        lambda: store.open("0.lance", size=1 << 40).read([ByteRange(0, 1 << 39)]),
        lambda: store.open("0.lance").tail(100),
    ):
        with pytest.raises(LimitError, match=r"0\.lance would unpack to"):
            read()


@pytest.mark.parametrize("around", ["zip://t", "dir://t::zip://", "zip://t::zip://inner.zip"])
def test_a_file_that_an_archive_has_packed_is_refused(around: str, tmp_path: Path) -> None:
    """Out of some bytes, also where these are in another archive, and shown as a folder."""
    inner, outer = tmp_path / "inner.zip", tmp_path / "outer.zip"
    with zipfile.ZipFile(inner, "w", zipfile.ZIP_DEFLATED) as packed:
        packed.writestr("t/zeros", bytes(1 << 20))
        packed.getinfo("t/zeros").file_size = size = MOST + 1  # a gigabyte takes a minute to pack
        packed.writestr("t/noise", os.urandom(10_000))
    with zipfile.ZipFile(outer, "w") as packed:
        packed.write(inner, "inner.zip")
    store = open_store(f"fsspec+{around}::{outer if 'inner' in around else inner}")
    with pytest.raises(LimitError, match=rf"zeros would unpack to {size} bytes, out of an archive"):
        store.get("zeros")
    assert len(store.get("noise")) == 10_000


@pytest.mark.parametrize("way", ["zip://t::{}.zip", "tar://t::{}.tar", "dir://t::tar://::{}.tar"])
def test_other_archives_are_read(way: str, place: Path) -> None:
    with zipfile.ZipFile(place.with_suffix(".zip"), "w", zipfile.ZIP_DEFLATED) as packed:
        for path in files_of(place):
            packed.write(path, f"t/{path.relative_to(place)}")
    archive(place, "none", 0)
    uri = f"fsspec+{way.format(place)}"
    assert glaive.dataset(uri).to_table() == glaive.dataset(place).to_table()
    assert glaive.dataset(uri).tags.list().keys() == {"first"}
    store = open_store(archive(place, "none", 0))
    with pytest.raises(glaive.errors.ObjectNotFoundError):
        store.get("none")


def test_no_file_is_read_as_an_empty_one(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As by libarchive, which looks for it in the whole archive, and finds no bytes."""
    from fsspec.implementations.tar import TarFileSystem

    monkeypatch.setattr(TarFileSystem, "cat_file", lambda *_, **__: b"")
    store = open_store(archive(place, "none", 0))
    for read in (store.get, lambda name: store.open(name, size=0).read([ByteRange(0, 0)])):
        with pytest.raises(glaive.errors.ObjectNotFoundError):
            read("none")


def zip_of(path: Path, way: int, data: bytes, claimed: int) -> str:
    """A dataset in an archive, with one file that says how many bytes it has."""
    with zipfile.ZipFile(path, "w", way) as packed:
        packed.writestr("t/file", data)
        packed.getinfo("t/file").file_size = claimed
    return f"fsspec+zip://t::{path}"


def test_a_file_that_unpacks_to_more_than_it_says_takes_no_memory_for_it(tmp_path: Path) -> None:
    store = open_store(zip_of(tmp_path / "t.zip", zipfile.ZIP_DEFLATED, bytes(1 << 26), 1000))
    tracemalloc.start()
    try:
        with suppress(glaive.errors.StoreError):  # its checksum is that of all bytes
            store.get("file")
        assert tracemalloc.get_traced_memory()[1] < 1 << 23
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("way", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_a_file_that_is_not_unpacked_in_parts_is_refused(way: int, tmp_path: Path) -> None:
    store = open_store(zip_of(tmp_path / "t.zip", way, b"short", 5))
    with pytest.raises(LimitError, match=r"t\.zip/file is packed in a way"):
        store.get("file")
    with pytest.raises(LimitError, match=r"t\.zip/file is packed in a way"):
        store.open("file").tail(1)


def test_an_archive_that_another_one_has_packed_is_refused(tmp_path: Path) -> None:
    """Before it is opened: a list of all its files is read then."""
    outer = tmp_path / "outer.zip"
    zip_of(outer, zipfile.ZIP_DEFLATED, b"some", MOST + 1)
    with pytest.raises(LimitError, match=rf"would unpack to {MOST + 1} bytes"):
        open_store(f"fsspec+zip://t::zip://t/file::{outer}")
    zip_of(outer, zipfile.ZIP_BZIP2, b"some", 4)
    with pytest.raises(LimitError, match="is packed in a way"):
        open_store(f"fsspec+tar://t::zip://t/file::{outer}")


def header(name: str, size: int = 0, kind: bytes = tarfile.REGTYPE) -> bytes:
    """The header of a file, or of what else an archive has."""
    entry = tarfile.TarInfo(name)
    entry.size, entry.type = size, kind
    return entry.tobuf(tarfile.USTAR_FORMAT)


@pytest.mark.parametrize("kind", [tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.GNUTYPE_LONGNAME])
@pytest.mark.parametrize("ending", ["tar", "tar.bz2"])
def test_a_header_that_is_read_as_a_whole_is_not_long(
    kind: bytes, ending: str, tmp_path: Path
) -> None:
    data = header("t/file", 1 << 29, kind)
    (tmp_path / f"t.{ending}").write_bytes(data if ending == "tar" else bz2.compress(data))
    with pytest.raises(LimitError, match=f"has a header of {1 << 29} bytes"):
        glaive.dataset(f"fsspec+tar://t::{tmp_path}/t.{ending}")


HEADERS = {
    "would unpack to": header("t/zeros", MOST + 1),
    "too many headers for": header("t/file") * ((1 << 13) + 1),
    "too many headers": bytes(sparse("t/file", 1 << 24)[0].tobuf(tarfile.PAX_FORMAT))
    + b"9999999\n"
    + b"0\n" * (1 << 22),
    "in more than 64 folders": header("t/" * 65 + "file"),
}


@pytest.mark.parametrize("reason", HEADERS)
@pytest.mark.parametrize("way", ["tar://t::{}", "dir://t::tar://::{}", "tar://t"])
def test_an_archive_is_refused_before_its_headers_take_memory(
    reason: str, way: str, tmp_path: Path
) -> None:
    place = tmp_path / "t.tar.gz"
    place.write_bytes(gzip.compress(HEADERS[reason], 1))
    options = {} if "::" in way else {"fo": str(place)}
    with pytest.raises(LimitError, match=reason):
        open_store(f"fsspec+{way.format(place)}", options)


def test_a_file_in_many_folders_of_an_archive_is_refused(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "t.zip", "w") as packed:
        packed.writestr("t/" * 65 + "file", b"")
    with pytest.raises(LimitError, match="in more than 64 folders"):
        open_store(f"fsspec+zip://t::{tmp_path}/t.zip")


@pytest.mark.parametrize(("zeros", "noise"), [(1 << 20, 1), (MOST + 1, MOST // 64 + 1)])
def test_a_small_file_and_one_that_packs_as_files_do_are_not_refused(
    zeros: int, noise: int, tmp_path: Path
) -> None:
    place = tmp_path / "t.zip"
    with zipfile.ZipFile(place, "w", zipfile.ZIP_DEFLATED) as packed:
        packed.writestr("t/zeros", bytes(1 << 20))
        packed.getinfo("t/zeros").file_size = zeros  # a gigabyte takes seconds to pack
        packed.writestr("t/noise", os.urandom(noise))
    store = open_store(f"fsspec+zip://t::{place}")
    assert store.open("zeros", size=zeros).read([ByteRange(0, 9)]) == [pa.py_buffer(bytes(9))]
