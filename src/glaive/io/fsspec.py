"""Objects of any file system that fsspec supports, with the contract of the other stores.

For schemes of other stores (``sftp://``, ``hdfs://``, ``hf://``, …), and for any URI written
as ``fsspec+scheme://``. Storage options are passed to the file system unchanged.

Archives, FTP servers and file systems with a cache are read-only here. glaive
trusts what a file system reports about its files. Decision: ``docs/adr/0005-stores.md``.

Few of these file systems have an atomic put-if-absent: concurrent writers need a commit lock or
a manifest store (``docs/guide/stores.md``).
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from importlib.util import find_spec
from inspect import signature
from itertools import groupby
from stat import S_ISLNK
from threading import get_ident
from typing import Any, Final, TypeVar
from urllib.parse import unquote

import pyarrow as pa

from glaive.config import settings
from glaive.errors import (
    MissingDependencyError,
    ObjectExistsError,
    ObjectNotFoundError,
    OptionError,
    StoreError,
)
from glaive.io.checksums import VERIFY, WRITE
from glaive.io.failures import (
    check_ranges,
    credentials_in,
    from_object_store,
    from_system,
    had_no_answer,
    without_named_secrets,
    without_values,
)
from glaive.io.local_sink import is_temporary, temporary_path
from glaive.io.location import check_object_path, split_secret, with_secret
from glaive.io.pool import side_by_side
from glaive.io.remote import (
    RemoteReader,
    RemoteSink,
    RequestLimit,
    aligned,
    coalesce,
    described,
    is_transient,
    repeating,
    split,
)
from glaive.io.storage_options import DOWNLOAD_RETRIES
from glaive.io.store import BytesLike, IoCounters, ObjectMeta, ObjectStore, PutMode, byte_views
from glaive.process import Origin
from glaive.types import ByteRange

# --- A file system of fsspec for each thread and process --------------------------------
# Some file systems have one connection, or one open file. If two threads use it at once, one reads
# the data of the other. So fsspec itself makes a file system for each thread and each process,
# except for file systems that send requests in the background.

T = TypeVar("T")


_MAX_FILE_SYSTEMS: Final = 100
"""Maximum file systems of a chain to inspect: some have a new one on every access."""


def chain_of(system: Any) -> list[Any]:
    """Return a file system, and the file systems that it uses."""
    found = [system]
    for one in found:
        several = getattr(one, "fss", None)  # of references: file systems by scheme
        below = [getattr(one, name, None) for name in ("fs", "sync_fs")]
        below += several.values() if isinstance(several, Mapping) else ()
        if len(found) < _MAX_FILE_SYSTEMS:
            found += [one for one in below if not any(one is known for known in (None, *found))]
    return found


def unwrapped(system: Any, key: str) -> tuple[Any, str]:
    """Return the file system of a folder's file system, and its name of a file."""
    from fsspec.implementations.dirfs import DirFileSystem

    while isinstance(system, DirFileSystem):
        system, key = system.fs, f"{system.path}/{key.lstrip('/')}"
    return getattr(system, "sync_fs", system), key


def _read_only(system: Any) -> str | None:
    """Return what makes a file system read-only for glaive, or ``None``."""
    from fsspec.archive import AbstractArchiveFileSystem
    from fsspec.implementations.cached import CachingFileSystem
    from fsspec.implementations.ftp import FTPFileSystem

    kinds = {
        AbstractArchiveFileSystem: "archives",
        CachingFileSystem: "places behind a cache",
        FTPFileSystem: "FTP servers",
    }
    chain = chain_of(system)
    names = (name for kind, name in kinds.items() if any(isinstance(one, kind) for one in chain))
    return next(names, None)


class Systems:
    """The file system of each thread and process, opened on first use."""

    __slots__ = ("_connect", "_opened")

    def __init__(self, connect: Callable[[], Any]) -> None:
        self._connect = connect
        self._opened: dict[tuple[int, int], Any] = {}

    def of_thread(self) -> Any:
        """Return the file system of this thread. Errors are fsspec's."""
        user = os.getpid(), get_ident()
        if user not in self._opened:
            self._opened[user] = self._connect()
        return self._opened[user]

    def using(self, work: Callable[[], T]) -> T:
        """Return the result of ``work``, which uses the file system of this thread.

        Some servers close connections after some minutes. If a connection was closed, this thread
        opens another file system at the next use.
        """
        try:
            return work()
        except Exception as error:
            system = self._opened.get((os.getpid(), get_ident()))
            if system is not None and not system.async_impl and is_transient(error):
                del self._opened[os.getpid(), get_ident()]
                for one in chain_of(system):
                    if hasattr(one, "clear_instance_cache"):  # Arrow's lack it
                        one.clear_instance_cache()
            raise


# --- Write objects through fsspec, atomically if the file system can do that ------------
# Buckets show an object once it is complete. Some other file systems show it under its name at
# once. Then readers see half of it, and an interrupted writer leaves half of it. Other file systems
# move it from a common folder for temporary files, from one disk to another. For all of these,
# glaive writes the object under a temporary name in its own folder, and then moves it.


def _rename(system: Any, old: str, new: str, *, replaces: bool) -> None:
    """Rename an object.

    Avoid fsspec's fallback for file systems that lack a rename: it treats ``*``, ``?`` and ``[`` in
    names as patterns.
    """
    from fsspec.spec import AbstractFileSystem

    inner, inner_old = unwrapped(system, old)
    move = getattr(getattr(inner, "client", None), "move", None)
    if move is not None:
        # WebDAV: its ``mv`` copies. MOVE renames at once, or answers 412 if the name is taken.
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
    """Return whether the file system and its inner file systems have a put-if-absent.

    The base class checks first and then writes in place, so readers see half of the object.
    A method of a subclass that lacks ``mode`` (WebDAV) overwrites.
    """
    from fsspec.spec import AbstractFileSystem

    inherited = AbstractFileSystem.pipe_file
    chain = chain_of(system)
    writes = [getattr(type(one), "pipe_file", inherited) for one in chain]
    takes_mode = "mode" in signature(writes[-1]).parameters
    return takes_mode and all(write is not inherited for write in writes)


def _is_bucket(system: Any) -> bool:
    """Return whether files are objects of a bucket: their clients are asynchronous and copy to
    rename.
    """
    from fsspec.spec import AbstractFileSystem

    inherited = AbstractFileSystem.mv
    return all(
        getattr(one, "async_impl", False) and getattr(type(one), "mv", inherited) is inherited
        for one in chain_of(system)
    )


def make_folder(system: Any, folder: str) -> None:
    """Make a folder and its parents, again if it fails because others make one of them."""
    for _ in range(folder.count("/")):
        with suppress(Exception):  # the last error is raised
            system.makedirs(folder, exist_ok=True)
            return
    system.makedirs(folder, exist_ok=True)


class FsspecSink(RemoteSink):
    """An object being written; visible when finished.

    ``replaces`` is whether to replace an object of the same name, if the file system has a choice.
    """

    __slots__ = ("_key", "_origin", "_replaces", "_store", "_system", "_temporary")

    def __init__(self, store: FsspecStore, path: str, *, replaces: bool = True) -> None:
        self._store, self._replaces = store, replaces
        self._system, self._key, full = store.writing(path)
        self._temporary = temporary_path(self._key)
        try:
            file = store.in_folder(self._key, self._open)
        except Exception as error:
            raise store.failed(error, full, "write") from None
        super().__init__(file, full)
        self._origin = Origin()

    def _open(self) -> Any:
        if _is_bucket(self._system):
            self._temporary = ""
            return self._system.open(self._key, "wb", autocommit=False)
        return self._system.open(self._temporary, "wb")

    def finish(self) -> int:
        """Make the object visible; return its size in bytes."""
        file, self._file = self._opened(), None
        try:
            self._store.in_folder(self._key, file.close)  # clients of WebDAV write only here
            self._store.in_folder(self._key, partial(self._commit, file))
        except Exception as error:
            raise self._store.failed(error, self._full, "write") from None
        self._store.counters.add_write(1, self.position)
        return self.position

    def _commit(self, file: Any) -> None:
        """Give the object its name, if it has all its bytes.

        Clients of SFTP ignore that a server ran out of space when it closed the file.
        """
        if not self._temporary:
            file.commit()
            return
        there = look_up(self._system, self._temporary).get("size")
        if there is not None and int(there) != self.position:
            self._discard(file)
            raise OSError(f"the server kept {there} of {self.position} bytes; its disk may be full")
        _rename(self._system, self._temporary, self._key, replaces=self._replaces)

    def _discard(self, file: Any) -> None:
        with suppress(Exception):
            if self._temporary:
                self._system.rm_file(self._temporary)
            else:
                file.discard()

    def abort(self) -> None:
        """Discard the object, if the file system can."""
        file, self._file = self._file, None
        if file is not None and not self._origin.is_this_process:
            self._origin.leave(file)
        elif file is not None:
            with suppress(Exception):
                file.close()
            self._discard(file)

    def failed(self, error: BaseException, path: str, doing: str) -> StoreError:
        """Translate an error that a file system raised."""
        return self._store.failed(error, path, doing)


def failed(
    error: BaseException, path: str, doing: str, options: Mapping[str, str] | None = None
) -> StoreError:
    """Translate an error of a file system; remove the credentials of its options."""
    if isinstance(error, StoreError):
        return error
    translate = from_system if isinstance(error, OSError) else from_object_store
    translated: StoreError = translate(error, path, doing, options)  # type: ignore[arg-type]  # checked
    translated.args = (without_values(str(translated), credentials_in(options or {})),)
    translated.is_unanswered = had_no_answer(error)
    return translated


_THROUGH_LINKS = "delete_through_links"
"""glaive's only storage option: whether to delete files in folders reached through symlinks."""


def is_known(scheme: str) -> bool:
    """Return whether fsspec is installed and has a file system for this scheme."""
    try:
        import fsspec
    except ImportError:
        return False
    return scheme in fsspec.available_protocols()


def connect_fsspec(uri: str, options: Mapping[str, str]) -> FsspecStore:
    """Open a location through fsspec; ``uri`` begins after ``fsspec+``.

    Raises
    ------
    MissingDependencyError
        fsspec, or the package for the scheme, is missing.
    OptionError
        The scheme is unknown to fsspec, or the file system rejects the options or reads files of
        this machine.
    """
    if find_spec("fsspec") is None:
        raise MissingDependencyError(
            f"{uri} is opened through fsspec, which is not installed: pip install 'glaive[fsspec]'"
        )
    own = (_THROUGH_LINKS, WRITE, VERIFY)
    passed = {key: value for key, value in options.items() if key.lower() not in own}
    systems = Systems(lambda: _opened(uri, passed)[0])
    try:
        root = _opened(uri, passed)[1]
    except ImportError as error:
        raise MissingDependencyError(f"{uri} needs another package: {error}") from None
    except OptionError:
        raise
    except Exception as error:
        reason, (_, secret) = str(error), split_secret(uri)
        if secret:  # in a path, where only this code recognises it
            reason = reason.replace(secret, "***")
        known = credentials_in(with_other_secrets(passed, uri, secret))
        reason = without_named_secrets(without_values(reason, known))
        raise OptionError(f"fsspec cannot open {uri}: {reason}. Check storage_options.") from None
    return FsspecStore(systems, uri.rstrip("/"), str(root).rstrip("/"), options)


def _opened(uri: str, options: Mapping[str, str]) -> tuple[Any, str]:
    """Return fsspec's file system for this thread, and its name of the root."""
    import fsspec
    from fsspec.generic import GenericFileSystem
    from fsspec.implementations.cached import CachingFileSystem
    from fsspec.implementations.local import LocalFileSystem

    if "reference://" in uri and not (uri.startswith("ref") and options.get("remote_protocol")):
        raise OptionError(
            f"{uri} leads where a file of references says. Name what may be opened for them in "
            "storage_options={'remote_protocol': 's3'}, and reference:// first in the URI."
        )
    system, root = fsspec.core.url_to_fs(uri, **options)
    if system.async_impl and not all(one.async_impl for one in chain_of(system)):
        # fsspec gives it to all threads, because it ignores the inner file systems.
        system, root = fsspec.core.url_to_fs(uri, **options, skip_instance_cache=True)
    # Only LocalStore stays in a directory in spite of symlinks, pipes and devices.
    if any(isinstance(one, LocalFileSystem | GenericFileSystem) for one in chain_of(system)):
        raise OptionError(
            f"{uri} leads to files of this machine, which fsspec does not open here. Give their "
            "path itself; there is nothing to cache on a disk."
        )
    while isinstance(system, CachingFileSystem):  # it shows stale tags and versions
        system = system.fs
    return system, root


def with_other_secrets(options: Mapping[str, str], uri: str, secret: str) -> dict[str, str]:
    """Return options, and under other names all other strings that may be credentials.

    These are passwords of the URI, because each part of a chain may have a password, and fsspec's
    own settings. ``secret`` is the password of the URI's first part, as written there.
    """
    import fsspec

    others = {"password of the URI": secret, "password that is sent": unquote(secret)}
    others |= {f"part {at} of the URI": one for at, one in enumerate(uri.split("::"))}
    return {**options, **others, **dict(_texts_in(fsspec.config.conf, "setting"))}


def _texts_in(value: Any, name: str) -> Iterator[tuple[str, str]]:
    """Yield strings at any depth of settings, each with the path of names that leads to it."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _texts_in(inner, f"{name}.{key}")
    elif isinstance(value, list | tuple):  # such as user and password
        for at, inner in enumerate(value):
            yield from _texts_in(inner, f"{at}.{name}")
    elif isinstance(value, str):
        yield name, value


# --- Ask a file system for its objects: some hide that a server refused to answer --------
# If a listing lacked the refused entries, a clean-up would delete files that a tag keeps.

_MISSING: Final = (404, 410)
"""Status codes of HTTP servers for a missing object."""

_OVER_SSH: Final = re.compile(r"\b(?:ssh|sftp)://")


_MAX_KEY_CHARACTERS: Final = 4096
"""Maximum characters of the path of a folder to search for files."""


def unmask_refusal(ask: Callable[[], T]) -> T:
    """Return the result of ``ask``. Raise the cause if a client took it for a missing file."""
    try:
        return ask()
    except FileNotFoundError as error:
        cause = error.__cause__
        status = getattr(cause, "status", None)
        is_missing = not isinstance(cause, OSError) or isinstance(
            cause, FileNotFoundError | NotADirectoryError
        )
        if cause is None or (is_missing if status is None else status in _MISSING):
            raise
        raise cause from None


def is_there(system: Any, key: str) -> bool:
    """Return whether an object exists now, even if it was made after its folder was listed."""
    try:
        look_up(system, key)
    except FileNotFoundError:
        return False
    return True


def look_up(system: Any, key: str) -> Any:
    """Return the current metadata of an object; ``FileNotFoundError`` only if it is missing."""
    return unmask_refusal(lambda: _fresh(system, key.rpartition("/")[0]).info(key))


def list_folder(system: Any, key: str) -> Sequence[Any]:
    """Return a folder's current entries; ``FileNotFoundError`` only if it is missing."""
    return unmask_refusal(lambda: _fresh(system, key).ls(key, detail=True))


def _fresh(system: Any, folder: str) -> Any:
    """Return the same file system; its cached listing of a folder is removed."""
    system.invalidate_cache(folder)
    if not folder:
        system.invalidate_cache("/")
    return system


def walk_entries(system: Any, key: str) -> list[Any]:
    """Return the entries at any depth below a folder, except below symlinks.

    ``find`` of fsspec's base classes omits folders that a server refuses to list.
    """
    from fsspec.asyn import AsyncFileSystem
    from fsspec.spec import AbstractFileSystem

    kind = type(unwrapped(system, key)[0])
    methods = (kind.find, getattr(kind, "_find", None))
    inherited = (AbstractFileSystem.find, AsyncFileSystem._find, None)  # noqa: SLF001  # documented for subclasses; there is no public name
    if any(method not in inherited for method in methods):
        system.invalidate_cache(key)
        return [*system.find(key, detail=True).values()]
    entries: list[Any] = []
    folders, seen = [key], {"", key}
    for folder in folders:
        try:
            found = list_folder(system, folder)
        except FileNotFoundError:
            if folder == key:
                raise
            continue  # deleted after its name was listed
        entries += found
        for entry in found:
            name = entry["name"].rstrip("/")
            if len(name) > _MAX_KEY_CHARACTERS:  # symlinks may lead in circles
                raise StoreError(f"cannot list {folder}: its folders are too deep.")
            if entry.get("type") == "directory" and name not in seen:
                seen.add(name)
                folders.append(name)
    return entries


def is_link(system: Any, key: str, full: str) -> bool:
    """Return whether a name is a symlink, if the file system reports it. One request.

    Over SSH, ``info`` describes the target of a symlink. So glaive asks the client for the name
    itself, or lists the folder.
    """
    system, key = unwrapped(system, key)
    lstat = getattr(getattr(system, "ftp", None), "lstat", None)
    try:
        if lstat is not None:
            return S_ISLNK(lstat(key).st_mode or 0)
        if _OVER_SSH.search(full):
            listed = list_folder(system, key.rpartition("/")[0] or "/")
            name = key.rstrip("/")
            entry: Any = next((one for one in listed if one["name"].rstrip("/") == name), {})
        else:
            entry = system.info(key)
    except FileNotFoundError:
        return False
    return bool(entry.get("islink")) or "link" in f"{entry.get('type')}".lower()


class UnsizedFile(ObjectMeta):
    """A file in a listing that omits sizes, as of web servers; its size is requested on access."""

    __slots__ = ("_ask", "_size")

    _ask: Callable[[str], ObjectMeta]
    _size: int | None

    def __init__(
        self, path: str, modified: datetime | None, ask: Callable[[str], ObjectMeta]
    ) -> None:
        given = {"path": path, "modified": modified, "etag": None, "_ask": ask, "_size": None}
        for name, part in given.items():
            object.__setattr__(self, name, part)  # a frozen class

    def __reduce__(self) -> tuple[Any, ...]:
        return (ObjectMeta, (self.path, self.size, self.modified))

    @property
    def size(self) -> int:
        """Bytes; 0 if the file was deleted meanwhile. The first access costs one request."""
        if self._size is None:
            size = 0
            with suppress(ObjectNotFoundError):
                size = self._ask(self.path).size
            object.__setattr__(self, "_size", size)
            return size
        return self._size

    @property
    def stated_size(self) -> int | None:
        """The size, if it was requested before."""
        return self._size


def _time(entry: Mapping[str, Any]) -> datetime | None:
    for key in ("mtime", "LastModified", "last_modified", "modified", "created"):
        time = entry.get(key)
        if isinstance(time, datetime):
            return time if time.tzinfo else time.replace(tzinfo=UTC)
        if isinstance(time, int | float):
            with suppress(OverflowError, ValueError, OSError):  # an archive may have any number
                return datetime.fromtimestamp(time, UTC)
    return None


class FsspecStore(ObjectStore):
    """A directory of an fsspec file system."""

    __slots__ = (
        "_named", "_root", "_systems", "_uri", "counters", "options", "request_limit", "secret",
    )  # fmt: skip

    counters: IoCounters
    options: Mapping[str, str]
    secret: str

    def __init__(self, systems: Systems, uri: str, root: str, options: Mapping[str, str]) -> None:
        self._systems, self._root, self.options = systems, root, options
        self._uri, self.secret = split_secret(uri)
        self._named = len(self._root)
        """Characters of the caller's part of the root; the rest is a folder below it."""
        self.counters = IoCounters()
        self.request_limit = RequestLimit(settings.io_concurrency)

    def __repr__(self) -> str:
        return f"FsspecStore({self.public_uri!r})"

    def __reduce__(self) -> tuple[object, ...]:
        if self._uri.startswith("memory:"):
            raise StoreError(
                f"{self.uri} is in the memory of this process and cannot be sent to another. "
                "Use a directory or a bucket."
            )
        folder = self._root[self._named + 1 :]
        uri = self._uri[: -len(folder) - 1] if folder else self._uri
        return (_reopened, (with_secret(uri, self.secret), dict(self.options), folder))

    @property
    def uri(self) -> str:
        """``fsspec+`` and the URI for fsspec; its password is removed."""
        return f"fsspec+{self._uri}"

    @property
    def system(self) -> Any:
        """The file system of this thread."""
        try:
            return self._systems.of_thread()
        except Exception as error:
            raise self.failed(error, self.uri, "open") from None

    def full(self, path: str) -> str:
        """Return the URI of an object."""
        return f"{self.uri}/{path}" if path else self.uri

    def failed(self, error: BaseException, full: str, doing: str) -> StoreError:
        """Translate an error of a file system; remove credentials that servers repeat."""
        known = with_other_secrets(self.options, self._uri, self.secret)
        return failed(error, full, doing, known)

    def _key(self, path: str) -> str:
        check_object_path(path, self.uri, in_url=True)
        return f"{self._root}/{path}" if path else self._root

    def reading(self, path: str, doing: str, read: Callable[[], T]) -> T:
        """Return the result of ``read``, repeated after transient failures."""
        try:
            with self.request_limit.acquire(1):
                once = partial(self._systems.using, read)
                return repeating(once, DOWNLOAD_RETRIES, refusals=(Exception,))
        except Exception as error:
            raise self.failed(error, self.full(path), doing) from None

    def reading_object(self, path: str, ask: Callable[[], T]) -> T:
        """Return the result of ``ask``, which must raise for a missing object only if it is
        missing.
        """
        return self.reading(path, "read", lambda: unmask_refusal(ask))

    def open(self, path: str, *, size: int | None = None) -> FsspecReader:
        """Make a reader; its first read makes the first request."""
        return FsspecReader(self, self._key(path), path, size)

    def get(self, path: str) -> pa.Buffer:
        """Return a whole object. One request."""
        key = self._key(path)
        data = self.reading_object(path, lambda: self.system.cat_file(key))
        self.counters.add_read(1, len(data))
        return pa.py_buffer(data)

    def writing(self, path: str) -> tuple[Any, str, str]:
        """Return the file system, its name of an object to write, and the caller's name."""
        system, full = self.system, self.full(path)
        what = _read_only(system)
        if what is not None:
            raise StoreError(
                f"cannot write {full}: glaive does not write to {what} through fsspec. Copy the "
                "dataset to a directory or a bucket and write there."
            )
        return system, self._key(path), full

    def put(self, path: str, data: Sequence[BytesLike], *, mode: PutMode = "overwrite") -> None:
        """Write a whole object; ``create`` is as exclusive as the file system can be."""
        system, key, full = self.writing(path)
        empty = False
        if mode == "create" and self.reading(path, "look up", lambda: is_there(system, key)):
            empty = not self.head(path).size
            if not empty:
                raise ObjectExistsError(f"cannot write {full}: it exists already.")
        if mode == "overwrite" or empty or not creates(system):
            replaces = mode == "overwrite" or empty
            sink = FsspecSink(self, path, replaces=replaces)
            try:
                sink.write(data)
                sink.finish()
            except BaseException:
                sink.abort()
                raise
            return
        body = b"".join(byte_views(data))
        try:
            self.in_folder(key, lambda: system.pipe_file(key, body, mode="create"))
        except Exception as error:
            raise self.failed(error, full, "write") from None
        self.counters.add_write(1, len(body))

    def create(self, path: str) -> FsspecSink:
        """Start writing an object; its directory is created if the file system needs one."""
        return FsspecSink(self, path)

    def in_folder(self, key: str, write: Callable[[], T]) -> T:
        """Write. Create the directory first if it is missing."""

        def once() -> T:
            try:
                return write()
            except Exception as error:
                # WebDAV answers 409 if a folder is missing (RFC 4918, section 9.7.1).
                if (
                    not isinstance(error, FileNotFoundError)
                    and getattr(error, "status_code", 0) != 409
                ):
                    raise
            make_folder(self.system, key.rpartition("/")[0])
            return write()

        return self._systems.using(once)

    def list(self, prefix: str) -> Iterator[ObjectMeta]:
        """Yield the files directly in a directory, in name order."""
        yield from self._listed(prefix, lambda key: list_folder(self.system, key))

    def walk(self, prefix: str) -> Iterator[ObjectMeta]:
        """Yield the files at any depth below a directory, in name order."""
        yield from self._listed(prefix, lambda key: walk_entries(self.system, key))

    def unfinished(self, prefix: str) -> Iterator[ObjectMeta]:
        """Yield the temporary files at any depth below a directory."""
        yield from self._listed(prefix, lambda key: walk_entries(self.system, key), unfinished=True)

    def _listed(
        self, prefix: str, list_key: Callable[[str], Any], *, unfinished: bool = False
    ) -> Iterator[ObjectMeta]:
        key = self._key(prefix)

        def read() -> Any:
            try:
                return list_key(key)
            except FileNotFoundError:
                return []

        entries = self.reading(prefix, "list", read)
        self.counters.add_read(1, 0)
        strip, cut = self.system._strip_protocol, len(self._root) + 1  # noqa: SLF001  # documented for subclasses; there is no public name
        files = {strip(one["name"]): one for one in entries if one.get("type") != "directory"}
        for name in sorted(files):
            if name != key and is_temporary(name.rpartition("/")[2]) == unfinished:
                entry = files[name]
                if entry.get("size") is None:
                    yield UnsizedFile(name[cut:], _time(entry), self.head)
                else:
                    yield self._meta(name[cut:], entry)

    def _meta(self, path: str, entry: Mapping[str, Any]) -> ObjectMeta:
        size = entry.get("size")
        if size is None:  # not 0: interrupted writers leave empty files
            raise StoreError(
                f"cannot look up {self.full(path)}: the file system does not say how many bytes it "
                "has. Copy it to a store that does."
            )
        return described(self, path, int(size), _time(entry))

    def head(self, path: str) -> ObjectMeta:
        """Return the size and time of an object. One request."""
        key = self._key(path)
        entry = self.reading(path, "look up", lambda: look_up(self.system, key))
        self.counters.add_read(1, 0)
        if entry.get("type") == "directory":
            refused = StoreError(f"cannot look up {self.full(path)}: it is a directory.")
            refused.errno = errno.EISDIR
            raise refused
        return self._meta(path, entry)

    def delete(self, paths: Sequence[str]) -> None:
        """Delete objects one by one; missing objects are ignored.

        Objects in a folder that a symlink leads to are deleted only with ``delete_through_links``.
        """
        self._delete(paths, self.link_out)

    def delete_written(self, paths: Sequence[str]) -> None:
        """Delete objects that this process has written, also if a symlink leads to the root.

        Below the root, a symlink in the place of a folder that this process made is foreign.
        """
        self._delete(paths, lambda folder: self._link_in(folder, self._root.count("/") + 1))

    def _delete(self, paths: Sequence[str], link_to: Callable[[str], str | None]) -> None:
        for path in paths:
            self.writing(path)  # check all paths before the first is deleted
        for folder, group in groupby(paths, lambda path: path.rpartition("/")[0]):
            reason = link_to(folder)
            if reason is not None:
                raise StoreError(f"cannot delete objects in {self.full(folder)}: {reason}")
            for path in group:
                key = self._key(path)
                try:
                    with suppress(FileNotFoundError):
                        self._systems.using(partial(self.system.rm_file, key))
                except Exception as error:
                    raise self.failed(error, self.full(path), "delete") from None

    def below(self, path: str) -> FsspecStore:
        """Return a store of a folder; its deletions raise if a symlink leads to the folder."""
        inner = FsspecStore(self._systems, f"{self._uri}/{path}", self._key(path), self.options)
        inner.secret, inner._named = self.secret, self._named
        return inner

    def link_out(self, folder: str) -> str | None:
        """Return why objects in a folder are kept: a symlink leads there.

        The target of a symlink is unknown here, so every symlink counts. This includes symlinks
        above the root if the root is a folder of a location that the caller specified.
        """
        return self._link_in(folder, self._root.count("/", 0, self._named))

    def _link_in(self, folder: str, known: int) -> str | None:
        """Return the reason if a symlink is after the first ``known`` slashes of a folder's
        path.
        """
        allowed = {key.lower(): value for key, value in self.options.items()}.get(_THROUGH_LINKS)
        if allowed is not None and allowed.lower() in ("1", "true", "on"):
            return None
        parts = self._key(folder).split("/")
        for depth in range(known + 1, len(parts)):
            at = "/".join(parts[: depth + 1])
            if self._is_link(at, folder):
                return (
                    f"{at[self._named + 1 :]} is a link. Files there may belong to somebody else; "
                    f"storage_options={{'{_THROUGH_LINKS}': 'true'}} allows reading and deleting "
                    "them."
                )
        return None

    def is_link(self, path: str) -> bool:
        """Return whether a name is a symlink, on file systems that report it."""
        return self._is_link(self._key(path), path)

    def _is_link(self, key: str, path: str) -> bool:
        return self.reading(path, "look up", lambda: is_link(self.system, key, self.full(path)))


def _reopened(uri: str, options: Mapping[str, str], folder: str) -> FsspecStore:
    store = connect_fsspec(uri, options)
    return store.below(folder) if folder else store


class FsspecReader(RemoteReader):
    """An object read range by range; adjacent ranges share a request."""

    __slots__ = ("_key", "_relative", "_size", "_store", "path")

    def __init__(self, store: FsspecStore, key: str, path: str, size: int | None) -> None:
        self._store, self._key = store, key
        self._relative, self._size = path, size
        self.path = store.full(path)

    @property
    def size(self) -> int:
        """Bytes in the object; one request unless the size was given."""
        if self._size is None:
            self._size = self._store.head(self._relative).size
        return self._size

    def tail(self, size: int) -> pa.Buffer:
        """Return the last ``size`` bytes, or all bytes if there are fewer."""
        total = self.size
        start = max(0, total - size)
        return self.read([ByteRange(start, total - start)])[0]

    def read(self, ranges: Sequence[ByteRange]) -> list[pa.Buffer]:
        """Return one buffer per range, in order."""
        check_ranges(self.path, ranges, self.size)
        joined = coalesce(ranges)
        responses = side_by_side(self._fetch, joined.requests)
        pairs = zip(responses, joined.requests, strict=True)
        # A server that ignores ranges sends the whole file, even for a request of its first bytes.
        more = [data.size - one.size for data, one in pairs if data.size < one.size or one.offset]
        if any(more):
            self._size = None
            check_ranges(self.path, ranges, self.size)
            much = "fewer" if min(more) < 0 else "more"
            raise StoreError(
                f"cannot read {self.path}: the store returned {much} bytes than were requested. "
                "Try again, or copy the dataset to a store that reads ranges."
            )
        self._store.counters.add_read(len(responses), joined.size)
        return split(ranges, joined, responses)

    def _fetch(self, request: ByteRange) -> pa.Buffer:
        data = self._store.reading_object(
            self._relative,
            lambda: self._store.system.cat_file(self._key, start=request.offset, end=request.end),
        )
        return aligned(data, request.offset)
