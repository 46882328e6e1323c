"""Write objects through fsspec, atomically if the file system can do that.

Some file systems hide an object until it is committed. Others write it under its name at once,
where readers see half of it, and a writer that is stopped leaves half of it; or they move it from a
common folder for temporary files, from one disk to another. There it is written under a temporary
name beside its own and then moved.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from inspect import signature
from typing import Any, Protocol, TypeVar

from glaive.errors import StoreError
from glaive.forks import Origin
from glaive.io.failures import (
    credentials_in,
    from_object_store,
    from_system,
    had_no_answer,
    without_values,
)
from glaive.io.fsspec_asking import is_there, look_up
from glaive.io.fsspec_chain import chain_of, unwrapped
from glaive.io.remote import RemoteSink
from glaive.io.stats import IoCounters
from glaive.io.temporary import temporary_path

__all__ = ["FsspecSink", "begin_writing", "creates", "failed", "make_folder"]

T = TypeVar("T")

_commits: dict[tuple[type, ...], bool] = {}
"""Whether files of a type of file system, and of those that it works through, stay hidden until
they are committed, if known."""


_COMMON = ("temppath", "tempdir")
"""How file systems of SFTP and FTP call the common folder of a server where their files wait. One
that shows users only their own files has none."""


class _SinkStore(Protocol):
    """The part of a store that a sink needs."""

    counters: IoCounters

    def failed(self, error: BaseException, full: str, doing: str) -> StoreError:
        """Translate an error that a file system raised."""

    def in_folder(self, key: str, write: Callable[[], T]) -> T:
        """Write, making the directory when there is none."""


def begin_writing(
    store: _SinkStore, system: Any, key: str, full: str, *, replaces: bool = True
) -> FsspecSink:
    """Start writing an object; its directory is created if the file system needs one.

    ``replaces`` is whether an object of the name is replaced, where the file system has a choice.
    """
    temporary = temporary_path(key)
    try:
        if store.in_folder(temporary, lambda: _has_commit(system, temporary)):
            file = store.in_folder(key, lambda: system.open(key, "wb", autocommit=False))
            return FsspecSink(store, file, key, full, lambda _: file.commit(), file.discard)
        file = store.in_folder(temporary, lambda: system.open(temporary, "wb"))
    except Exception as error:
        raise store.failed(error, full, "write") from None
    return FsspecSink(
        store,
        file,
        key,
        full,
        lambda size: _move(system, temporary, key, size, replaces=replaces),
        lambda: system.rm_file(temporary),
    )


def _move(system: Any, temporary: str, key: str, size: int, *, replaces: bool) -> None:
    """Give an object its name, if it has all its bytes.

    Clients of SFTP say nothing where a server could not write them as it closed the file, for want
    of space; to a server of FTP the end of a connection is that of a file.
    """
    there = look_up(system, temporary).get("size")
    if there is not None and int(there) != size:
        with suppress(Exception):
            system.rm_file(temporary)
        raise OSError(f"the server kept {there} of {size} bytes; its disk may be full")
    _rename(system, temporary, key, replaces=replaces)


def _rename(system: Any, old: str, new: str, *, replaces: bool) -> None:
    """Give an object another name.

    What fsspec has for file systems that cannot takes ``*``, ``?`` and ``[`` in names for patterns.
    """
    from fsspec.spec import AbstractFileSystem

    inner, inner_old = unwrapped(system, old)
    move = getattr(getattr(inner, "client", None), "move", None)
    if move is not None:
        # WebDAV: its ``mv`` copies; MOVE takes a name at once, or answers 412 if it is taken.
        try:
            move(inner_old, unwrapped(system, new)[1], overwrite=replaces)
        except Exception as error:
            if getattr(error, "status_code", 0) != 412:
                raise
            with suppress(Exception):
                system.rm_file(old)
            raise FileExistsError(new) from error
    elif getattr(type(inner), "mv", None) is AbstractFileSystem.mv:
        system.cp_file(old, new)
        system.rm_file(old)
    else:
        system.mv(old, new)


def creates(system: Any) -> bool:
    """Whether the file system itself, and what it works through, has a put-if-absent.

    The base class checks first and then writes in place, where readers see half of the object.
    A method of its own that takes no ``mode`` (WebDAV) overwrites.
    """
    from fsspec.spec import AbstractFileSystem

    inherited = AbstractFileSystem.pipe_file
    chain = chain_of(system)
    writes = [getattr(type(one), "pipe_file", inherited) for one in chain]
    takes_mode = "mode" in signature(writes[-1]).parameters
    return takes_mode and all(write is not inherited for write in writes)


def _has_commit(system: Any, temporary: str) -> bool:
    """Whether files stay hidden until committed: some systems accept the option and ignore it."""
    chain = chain_of(system)
    types = tuple(map(type, chain))
    if any(hasattr(one, name) for one in chain for name in _COMMON):
        return False
    if types not in _commits:
        try:
            file = system.open(temporary, "wb", autocommit=False)
        except (NotImplementedError, TypeError):
            _commits[types] = False
            return False
        own = _commits_itself(file)
        try:
            file.close()
        except Exception:
            if own:
                file.discard()  # else it is written when it is collected
            raise
        # Of some the file has both, and is there as soon as it is closed.
        visible = own and is_there(system, temporary)
        _commits[types] = own and not visible
        if own:
            with suppress(FileNotFoundError):  # what is there already waits nowhere
                file.discard()
        with suppress(Exception):  # the file exists only if the option was ignored
            system.rm_file(temporary)
    return _commits[types]


def make_folder(system: Any, folder: str) -> None:
    """Make a folder and those above it; others may be making one of them, where some fail."""
    for _ in range(folder.count("/")):
        with suppress(Exception):  # the last error is raised
            system.makedirs(folder, exist_ok=True)
            return
    system.makedirs(folder, exist_ok=True)


def _commits_itself(file: Any) -> bool:
    """Whether a file can be committed: the method that it inherits of fsspec's does nothing."""
    from fsspec.spec import AbstractBufferedFile

    commit = getattr(file, "commit", None)
    own = getattr(commit, "__func__", commit)
    return own not in (None, AbstractBufferedFile.commit) and hasattr(file, "discard")


class FsspecSink(RemoteSink):
    """An object being written; visible when finished."""

    __slots__ = ("_commit", "_discard", "_key", "_origin", "_store")

    def __init__(
        self,
        store: _SinkStore,
        file: Any,
        key: str,
        full: str,
        commit: Callable[[int], object],
        discard: Callable[[], object],
    ) -> None:
        super().__init__(file, full)
        self._store, self._key = store, key
        self._commit, self._discard = commit, discard
        self._origin = Origin()

    def finish(self) -> int:
        """Make the object visible; returns its size in bytes."""
        file, self._file = self._opened(), None
        try:
            self._store.in_folder(self._key, file.close)  # clients of WebDAV write only here
            self._store.in_folder(self._key, lambda: self._commit(self.position))
        except Exception as error:
            raise self._store.failed(error, self._full, "write") from None
        self._store.counters.add_write(1, self.position)
        return self.position

    def abort(self) -> None:
        """Leave nothing behind if the file system can discard the object."""
        file, self._file = self._file, None
        if file is not None and not self._origin.is_here:
            self._origin.leave(file)
        elif file is not None:
            with suppress(Exception):
                file.close()
            with suppress(Exception):
                self._discard()

    def failed(self, error: BaseException, path: str, doing: str) -> StoreError:
        """Translate an error that a file system raised."""
        return self._store.failed(error, path, doing)


def failed(
    error: BaseException, path: str, doing: str, options: Mapping[str, str] | None = None
) -> StoreError:
    """Translate an error that a file system raised, without credentials in its options."""
    if isinstance(error, StoreError):
        return error
    translate = from_system if isinstance(error, OSError) else from_object_store
    translated: StoreError = translate(error, path, doing, options)  # type: ignore[arg-type]  # checked
    translated.args = (without_values(str(translated), credentials_in(options or {})),)
    translated.is_unanswered = had_no_answer(error)
    return translated
