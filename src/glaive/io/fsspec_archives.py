"""Files in archives that fsspec opens: a few bytes there may stand for any number of others.

They may be compressed, or have holes. Who reads a file as a whole, or as far as it says, takes
memory for all that it unpacks to.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from glaive.config import USUAL_RATIO, settings
from glaive.errors import LimitError
from glaive.io.fsspec_chain import archives_of, unwrapped

__all__ = ["refuse_unpacked"]


class _PackedStore(Protocol):
    """The part of a store of fsspec that is asked for sizes."""

    @property
    def system(self) -> Any:
        """The file system of this thread."""

    def full(self, path: str) -> str:
        """URI of an object."""

    def reading(self, path: str, doing: str, read: Callable[[], int]) -> int:
        """Return what is read, or raise a ``StoreError``."""


def refuse_unpacked(store: _PackedStore, key: str, path: str) -> None:
    """Refuse a file of an archive that unpacks to much more than the archive has; no other one.

    Requests only for one larger than the limit: the size of the archive.

    Parameters
    ----------
    store
        The store.
    key, path
        What its file system and the store call the file.

    Raises
    ------
    LimitError
        It has more bytes than ``max_decoded_bytes_per_page``, and than ``USUAL_RATIO`` times those
        of the archive.
    StoreError
        The archive cannot be read.
    """
    if not archives_of(store.system):
        return
    most = settings.max_decoded_bytes_per_page
    size = store.reading(path, "look up", lambda: _size(store.system, key))
    if size <= most:
        return
    packed = store.reading(path, "look up", lambda: _packed(store.system))
    if size > USUAL_RATIO * packed:
        raise LimitError(
            f"{store.full(path)} would unpack to {size} bytes, out of an archive of {packed}; at "
            f"most {most} are allowed. If the archive is trusted, allow more: set "
            "GLAIVE_MAX_DECODED_BYTES_PER_PAGE, or unpack it."
        )


def _size(system: Any, key: str) -> int:
    """Bytes that a file claims to unpack to; 0 if there is none, which reading it tells."""
    archive, name = unwrapped(system, key)
    try:
        return int(archive.info(name)["size"])
    except FileNotFoundError:
        return 0


def _packed(system: Any) -> int:
    """Bytes of the archive; of one in another, those of the smallest of them."""
    files = [archive.of for archive in archives_of(system)]
    return min(int(file.fs.info(file.path)["size"]) for file in files)
