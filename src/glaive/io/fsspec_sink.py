"""Write objects through fsspec, atomically if the file system can do that.

Some file systems hide an object until it is committed. Others write it under its name at once,
where readers see half of it, and a writer that is stopped leaves half of it; or they move it from a
common folder for temporary files, which copies it from one disk to another, and into what a link
leads to. There it is written under a temporary name beside its own and then moved.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Final, Protocol, TypeVar

from glaive.errors import StoreError
from glaive.io.failures import (
    credentials_in,
    from_object_store,
    from_system,
    had_no_answer,
    without_values,
)
from glaive.io.remote import RemoteSink
from glaive.io.stats import IoCounters
from glaive.io.temporary import temporary_path

__all__ = ["FsspecSink", "begin_writing", "creates", "failed"]

T = TypeVar("T")

_MOST_THROUGH: Final = 8
"""File systems of a chained URI that are looked at."""

_commits: dict[tuple[type, ...], bool] = {}
"""Whether files of a type of file system, and of those that it works through, stay hidden until
they are committed, if known."""


class _SinkStore(Protocol):
    """The part of a store that a sink needs."""

    counters: IoCounters
    options: Mapping[str, str]

    def in_folder(self, key: str, write: Callable[[], T]) -> T:
        """Write, making the directory when there is none."""


def begin_writing(store: _SinkStore, system: Any, key: str, full: str) -> FsspecSink:
    """Start writing an object; its directory is created if the file system needs one."""
    temporary = temporary_path(key)
    try:
        if store.in_folder(temporary, lambda: _has_commit(system, temporary)):
            file = store.in_folder(key, lambda: system.open(key, "wb", autocommit=False))
            return FsspecSink(store, file, key, full, file.commit, file.discard)
        file = store.in_folder(temporary, lambda: system.open(temporary, "wb"))
    except Exception as error:
        raise failed(error, full, "write", store.options) from None
    move = _mover(system)
    return FsspecSink(
        store, file, key, full, lambda: move(temporary, key), lambda: system.rm_file(temporary)
    )


def _mover(system: Any) -> Callable[[str, str], object]:
    """How an object takes the place of another one, or of a link.

    That of local disks would go into a folder that a link leads to; that of a file system which
    works through theirs, such as a cache, may also write over what a link leads to.
    """
    from fsspec.implementations.local import LocalFileSystem

    if isinstance(system, LocalFileSystem):
        return os.replace
    mover: Callable[[str, str], object] = system.mv
    if not _is_of_this_machine(system):
        return mover

    def move(temporary: str, key: str) -> None:
        with suppress(FileNotFoundError):
            system.invalidate_cache(key.rpartition("/")[0])
            if system.info(key).get("islink"):
                system.rm_file(key)
        mover(temporary, key)

    return move


def creates(system: Any) -> bool:
    """Whether the file system itself has a put-if-absent.

    The base class checks first and then writes in place, where readers see half of it, and into
    what a link leads to; so does what works through that of local disks, such as a cache.
    """
    from fsspec.spec import AbstractFileSystem

    own = type(system).pipe_file is not AbstractFileSystem.pipe_file
    return own and not _is_of_this_machine(system)


def _is_of_this_machine(system: Any) -> bool:
    """Whether its files are those of local disks, also if it works through another file system."""
    from fsspec.implementations.local import LocalFileSystem

    return any(isinstance(one, LocalFileSystem) for one in _through(system))


def _through(system: Any) -> list[Any]:
    """A file system, and those that it works through: of a chained URI, for example."""
    found = [system]
    while len(found) < _MOST_THROUGH:
        below = getattr(found[-1], "fs", None) or getattr(found[-1], "sync_fs", None)
        if below is None:
            break
        found.append(below)
    return found


def _has_commit(system: Any, temporary: str) -> bool:
    """Whether files stay hidden until committed: some systems accept the option and ignore it."""
    types = tuple(map(type, _through(system)))
    if types not in _commits:
        try:
            file = system.open(temporary, "wb", autocommit=False)
        except (NotImplementedError, TypeError):
            _commits[types] = False
            return False
        own = _commits_itself(file)
        file.close()
        # Of some the file has both, and is there as soon as it is closed.
        visible = own and _is_there(system, temporary)
        _commits[types] = own and not visible and not _waits_elsewhere(file)
        if own:
            with suppress(FileNotFoundError):  # what is there already waits nowhere
                file.discard()
        with suppress(Exception):  # the file exists only if the option was ignored
            system.rm_file(temporary)
    return _commits[types]


def _commits_itself(file: Any) -> bool:
    """Whether a file can be committed: the method that it inherits of fsspec's does nothing."""
    from fsspec.spec import AbstractBufferedFile

    commit = getattr(type(file), "commit", None)
    return commit not in (None, AbstractBufferedFile.commit) and hasattr(file, "discard")


def _is_there(system: Any, key: str) -> bool:
    system.invalidate_cache(key.rpartition("/")[0])
    return bool(system.exists(key))


def _waits_elsewhere(file: Any) -> bool:
    """Whether a file waits in a common folder, of this machine or, by SFTP, of the server."""
    from fsspec.implementations.local import LocalFileOpener

    return isinstance(file, LocalFileOpener) or hasattr(file, "temppath")


class FsspecSink(RemoteSink):
    """An object being written; visible when finished."""

    __slots__ = ("_commit", "_discard", "_key", "_store")

    def __init__(
        self,
        store: _SinkStore,
        file: Any,
        key: str,
        full: str,
        commit: Callable[[], object],
        discard: Callable[[], object],
    ) -> None:
        super().__init__(file, full)
        self._store, self._key = store, key
        self._commit, self._discard = commit, discard

    def finish(self) -> int:
        """Make the object visible; returns its size in bytes."""
        file, self._file = self._opened(), None
        try:
            file.close()
            self._store.in_folder(self._key, self._commit)
        except Exception as error:
            raise failed(error, self._full, "write", self._store.options) from None
        self._store.counters.add_write(1, self.position)
        return self.position

    def abort(self) -> None:
        """Leave nothing behind if the file system can discard the object."""
        file, self._file = self._file, None
        if file is not None:
            with suppress(Exception):
                file.close()
            with suppress(Exception):
                self._discard()

    def failed(self, error: BaseException, path: str, doing: str) -> StoreError:
        """Translate an error that a file system raised."""
        return failed(error, path, doing, self._store.options)


def failed(
    error: BaseException, path: str, doing: str, options: Mapping[str, str] | None = None
) -> StoreError:
    """Translate an error that a file system raised, without credentials in its options."""
    if isinstance(error, StoreError):
        return error
    translate = from_system if isinstance(error, OSError) else from_object_store
    translated: StoreError = translate(error, path, doing)  # type: ignore[arg-type]  # checked
    translated.args = (without_values(str(translated), credentials_in(options or {})),)
    translated.is_unanswered = had_no_answer(error)
    return translated
