"""Objects being written through fsspec, whole or not at all where the file system can do that.

Some file systems keep an object to themselves until it is committed. Others write it under its
name at once, where others see half of it, and a writer that is stopped leaves half of it: there it
is written under a temporary name and then moved.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Protocol, TypeVar

from glaive.errors import StoreError
from glaive.io.failures import from_object_store, from_system
from glaive.io.stats import IoCounters
from glaive.io.store import BytesLike
from glaive.io.temporary import temporary_path

__all__ = ["FsspecSink", "begin_writing", "failed"]

T = TypeVar("T")

_waiting: dict[type, bool] = {}
"""Whether files of a kind of file system wait to be committed, as far as it was found out."""


class _Place(Protocol):
    """What a sink needs of its store."""

    counters: IoCounters

    def in_folder(self, key: str, write: Callable[[], T]) -> T:
        """Write, making the directory when there is none."""


def begin_writing(place: _Place, system: Any, key: str, full: str) -> FsspecSink:
    """Start writing an object; its directory is made where the file system needs one."""
    temporary = temporary_path(key)
    try:
        if place.in_folder(temporary, lambda: _waits(system, temporary)):
            file = place.in_folder(key, lambda: system.open(key, "wb", autocommit=False))
            return FsspecSink(place, file, key, full, file.commit, file.discard)
        file = place.in_folder(temporary, lambda: system.open(temporary, "wb"))
    except Exception as error:
        raise failed(error, full, "write") from None
    return FsspecSink(
        place, file, key, full, lambda: system.mv(temporary, key), lambda: system.rm_file(temporary)
    )


def _waits(system: Any, temporary: str) -> bool:
    """Whether files wait to be committed: some systems take the option and pay no heed to it."""
    kind = type(system)
    if kind not in _waiting:
        try:
            file = system.open(temporary, "wb", autocommit=False)
        except (NotImplementedError, TypeError):
            _waiting[kind] = False
            return False
        _waiting[kind] = hasattr(file, "commit") and hasattr(file, "discard")
        if _waiting[kind]:
            file.discard()
        file.close()
        with suppress(Exception):  # there is none unless the option was not heeded
            system.rm_file(temporary)
    return _waiting[kind]


class FsspecSink:
    """An object being written; visible when finished."""

    __slots__ = ("_commit", "_discard", "_file", "_full", "_key", "_place", "position")

    def __init__(
        self,
        place: _Place,
        file: Any,
        key: str,
        full: str,
        commit: Callable[[], object],
        discard: Callable[[], object],
    ) -> None:
        self._place, self._file, self._key, self._full = place, file, key, full
        self._commit, self._discard = commit, discard
        self.position = 0

    def write(self, data: Sequence[BytesLike]) -> None:
        """Append pieces."""
        file = self._opened()
        for piece in data:
            view = memoryview(piece)
            if view.nbytes == 0:
                continue
            try:
                file.write(view.cast("B") if view.format != "B" or view.ndim != 1 else view)
            except Exception as error:
                raise failed(error, self._full, "write") from None
            self.position += view.nbytes

    def finish(self) -> int:
        """Make the object visible; returns its size in bytes."""
        file, self._file = self._opened(), None
        try:
            file.close()
            self._place.in_folder(self._key, self._commit)
        except Exception as error:
            raise failed(error, self._full, "write") from None
        self._place.counters.add_write(1, self.position)
        return self.position

    def abort(self) -> None:
        """Leave nothing behind where the file system can take it back."""
        file, self._file = self._file, None
        if file is not None:
            with suppress(Exception):
                file.close()
            with suppress(Exception):
                self._discard()

    def _opened(self) -> Any:
        if self._file is None:
            raise StoreError(f"cannot write {self._full}: writing has ended. Start a new object.")
        return self._file


def failed(error: Exception, path: str, doing: str) -> StoreError:
    """What a file system raised, in our words."""
    if isinstance(error, StoreError):
        return error
    if isinstance(error, OSError):
        return from_system(error, path, doing)
    return from_object_store(error, path, doing)
