"""Archives that fsspec opens: a few bytes there may unpack to any number.

They may be compressed, or have holes. Who reads a file as a whole, or as far as it says, takes
memory for all that it unpacks to. So does who opens an archive, for its names and headers.
"""

from __future__ import annotations

import os
import tarfile
import zipfile
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, Protocol

from glaive.config import USUAL_RATIO, settings
from glaive.errors import LimitError, OptionError
from glaive.io.fsspec_chain import archives_of, unwrapped

__all__ = ["check_chain", "refuse_unpacked"]

_ARCHIVES: Final = ("tar", "zip", "libarchive")

_IN_PARTS: Final = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
"""Ways to pack a file of a ``.zip`` that Python unpacks as far as it is asked to."""

_LONGEST_HEADER: Final = 16 * 1024
"""Bytes of a header in a ``.tar``, such as a long name: it is read as a whole, and some releases
of Python take time by the square of it."""

_HEADERS: Final = 4 * 1024**2
_HEADER_RATIO: Final = 32
"""Bytes of all headers of a ``.tar``, or times its own bytes: Python holds some times as many."""

_DEEPEST: Final = 64
"""Folders around a file of an archive: fsspec makes the path of each of them."""

_REMEDY: Final = "If the archive is trusted, unpack it and give the folder."


class _PackedStore(Protocol):
    """The part of a store of fsspec that is asked for sizes."""

    @property
    def system(self) -> Any:
        """The file system of this thread."""

    def full(self, path: str) -> str:
        """URI of an object."""

    def reading(self, path: str, doing: str, read: Callable[[], Any]) -> Any:
        """Return what is read, or raise a ``StoreError``."""


def refuse_unpacked(store: _PackedStore, key: str, path: str) -> int | None:
    """Refuse a file of an archive that unpacks to much more than the archive has; no other one.

    Requests only for one larger than the limit: the size of the archive.

    Parameters
    ----------
    store
        The store.
    key, path
        What its file system and the store call the file.

    Returns
    -------
    int or None
        The bytes of a file of a ``.zip``: one that is read to its end may unpack to more.

    Raises
    ------
    LimitError
        It has more bytes than ``max_decoded_bytes_per_page``, and than ``USUAL_RATIO`` times those
        of the archive; or it is packed in a way that is not unpacked in parts.
    StoreError
        There is no such file, or the archive cannot be read.
    """
    if not archives_of(store.system):
        return None

    def look(ask: Callable[[], Any]) -> Any:
        return store.reading(path, "look up", ask)

    size, way = look(lambda: _size_and_way(*unwrapped(store.system, key)))
    _refuse(store.full(path), size, way, lambda: look(lambda: _packed(store.system)))
    return None if way is None else size


def _refuse(full: str, size: int, way: int | None, packed_size: Callable[[], int]) -> None:
    if way is not None and way not in _IN_PARTS:
        raise LimitError(
            f"{full} is packed in a way (number {way}) in which a few bytes unpack to any number "
            f"of them at once; only stored and deflated files are read. {_REMEDY}"
        )
    most = settings.max_decoded_bytes_per_page
    if size > most and size > USUAL_RATIO * (packed := packed_size()):
        raise LimitError(
            f"{full} would unpack to {size} bytes, out of an archive of {packed}; at "
            f"most {most} are allowed. If the archive is trusted, allow more: set "
            "GLAIVE_MAX_DECODED_BYTES_PER_PAGE, or unpack it."
        )


def _size_and_way(archive: Any, name: str) -> tuple[int, int | None]:
    """Bytes that a file claims to unpack to, and the number of the way in which a ``.zip`` has
    packed it. ``FileNotFoundError`` if there is none: libarchive would read nothing of it.
    """
    entry = archive.info(name)
    return int(entry["size"]), entry.get("compress_type")


def _packed(system: Any) -> int:
    """Bytes of the archive; of one in another, those of the smallest of them."""
    files = [archive.of for archive in archives_of(system)]
    return min(int(file.fs.info(file.path)["size"]) for file in files)


def check_chain(uri: str, options: Mapping[str, str]) -> None:
    """Refuse what fsspec must not open in a chained URI, before it does.

    These are archives, whose headers are all read then. And references where the file of them
    chooses what is opened besides: file systems of any scheme. What cannot be read is left to
    fsspec, which says why.

    Parameters
    ----------
    uri, options
        What fsspec will get.

    Raises
    ------
    OptionError
        The caller does not say to which file systems references may lead.
    LimitError
        An archive lies in another one and unpacks to much more than that has. Or it is a ``.tar``
        that does so as a whole, has more headers than it has bytes for, or one that is too long.
        Or a file of it lies too deep.
    """
    parts = uri.split("::")
    for at in reversed(range(len(parts))):  # the outermost archive is the last one
        kind, given = parts[at].partition("://")[0], {} if at else options
        if kind == "reference" and not given.get("remote_protocol"):
            raise OptionError(
                f"{uri} leads where a file of references says. Name what may be opened for them in "
                "storage_options={'remote_protocol': 's3'}, and reference:// first in the URI."
            )
        if kind in _ARCHIVES:
            try:
                _refuse_archive(kind, "::".join(parts[at + 1 :]) or given.get("fo", ""), given)
            except LimitError:
                raise
            except Exception:  # of any client or archive; fsspec meets it again
                return


def _refuse_archive(kind: str, place: str, given: Mapping[str, str]) -> None:
    import fsspec

    file = fsspec.open(place, protocol=given.get("target_protocol"))
    if archives_of(file.fs):
        size, way = _size_and_way(*unwrapped(file.fs, file.path))
        _refuse(place, size, way, lambda: _packed(file.fs))
    with file as packed:
        if kind == "zip":
            names: Iterator[str] = iter(zipfile.ZipFile(packed).namelist())
        elif kind == "tar":
            size = packed.seek(0, os.SEEK_END)
            packed.seek(0)
            unpacked = _unpacking(packed, file.path, given.get("compression"))
            headers: Any = _Bounded(unpacked, place, size)
            names = (entry.name for entry in tarfile.TarFile(fileobj=headers))
        else:
            return
        if any(name.count("/") > _DEEPEST for name in names):
            raise LimitError(f"{place} has a file in more than {_DEEPEST} folders. {_REMEDY}")


def _unpacking(packed: Any, path: str, compression: str | None) -> Any:
    """The file as it unpacks, by what fsspec makes of its name."""
    from fsspec.compression import compr
    from fsspec.utils import infer_compression

    way = compression or infer_compression(path)
    return packed if way is None else compr[way](packed)


class _Bounded:
    """A ``.tar`` that is read by its headers, and so far as it may unpack."""

    __slots__ = ("_file", "_left", "_most", "_place", "_size")

    def __init__(self, file: Any, place: str, size: int) -> None:
        self._file, self._place, self._size = file, place, size
        self._most = max(settings.max_decoded_bytes_per_page, USUAL_RATIO * size)
        self._left = max(_HEADERS, _HEADER_RATIO * size)

    def tell(self) -> int:
        """Where the file is read next."""
        return int(self._file.tell())

    def seek(self, position: int) -> int:
        """Go to a position, to which a compressed file is unpacked."""
        if position > self._most:
            _refuse(self._place, position, None, lambda: self._size)
        return int(self._file.seek(position))

    def read(self, size: int) -> bytes:
        """Read a header."""
        if size > _LONGEST_HEADER:
            raise LimitError(f"{self._place} has a header of {size} bytes. {_REMEDY}")
        self._left -= size
        if self._left < 0:
            raise LimitError(
                f"{self._place} has too many headers for {self._size} bytes. {_REMEDY}"
            )
        return bytes(self._file.read(size))
