"""Objects of any file system that fsspec supports, with the contract of the other stores.

For schemes without a store here (``sftp://``, ``hdfs://``, ``hf://``, …), and for any URI written
as ``fsspec+scheme://``. Storage options are passed to the file system unchanged.

Files of this machine are not opened here. Decision: ``docs/adr/0005-stores.md``.

Few of these file systems have an atomic put-if-absent: concurrent writers need a commit lock or
a manifest store (``docs/guide/stores.md``).
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from copy import copy
from functools import partial
from inspect import signature
from itertools import groupby
from threading import get_ident
from typing import Any, Protocol, TypeVar

import pyarrow as pa

from glaive.config import settings
from glaive.errors import MissingDependencyError, ObjectExistsError, OptionError, StoreError
from glaive.forks import Origin
from glaive.hdfs import check_hdfs_client
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
from glaive.io.fsspec_chain import (
    asked,
    chain_of,
    check_chain,
    checked,
    is_link,
    is_there,
    list_folder,
    listed_of,
    look_up,
    meta_of,
    named_files,
    refuse_this_machine,
    refuse_unpacked,
    unwrapped,
    walked,
    with_other_secrets,
    without_cache,
)
from glaive.io.local_sink import is_temporary, temporary_path
from glaive.io.location import check_object_path, split_secret, with_secret
from glaive.io.pool import side_by_side
from glaive.io.ranges import aligned, coalesce, split
from glaive.io.remote import RemoteReader, RemoteSink, RequestLimit, is_transient, repeating
from glaive.io.storage_options import DOWNLOAD_RETRIES
from glaive.io.store import BytesLike, IoCounters, ObjectMeta, ObjectStore, PutMode, byte_views
from glaive.types import ByteRange

# --- A file system of fsspec for each thread: several of them, or processes, must not share one
# Some have one connection, or one open file: of two that use it at once, one reads what the other
# asked for. So fsspec itself makes one for each thread and each process. Those that make requests
# in the background (``async_impl``) serve all threads of a process, if those below them do as
# well.

T = TypeVar("T")


class Systems:
    """Equal file systems, opened when they are needed."""

    __slots__ = ("_first", "_opened", "_serves_all")

    def __init__(self, first: Any) -> None:
        self._first = first
        self._serves_all = all(one.async_impl for one in chain_of(first))
        self._opened: dict[tuple[int, int], Any] = (
            {} if self._is_shared() else {self._user(): first}
        )

    def mine(self) -> Any:
        """The one of this thread; errors are those of fsspec."""
        user = self._user()
        if user not in self._opened:
            self._opened[user] = self._another()
        return self._opened[user]

    def using(self, work: Callable[[], T]) -> T:
        """Return what ``work`` returns, which uses the one of this thread.

        Where its connection has ended, as servers do after some minutes, this thread gets another
        one when it needs it next.
        """
        try:
            return work()
        except Exception as error:
            if is_transient(error) and not self._serves_all:
                self._opened.pop(self._user(), None)
                self._forget()
            raise

    def _forget(self) -> None:
        """Have fsspec make others: it would give the same ones."""
        for one in chain_of(self._first):
            forget = getattr(one, "clear_instance_cache", None)
            if forget is not None:  # others are of Arrow
                forget()

    def _another(self) -> Any:
        first = self._first
        if not self._is_shared():
            return copy(first)
        options = {**first.storage_options, "skip_instance_cache": True}
        return type(first)(*first.storage_args, **options)

    def _is_shared(self) -> bool:
        """Whether all threads have it from fsspec, which does not look at what is below it."""
        return self._first.async_impl and not self._serves_all

    def _user(self) -> tuple[int, int]:
        return os.getpid(), 0 if self._serves_all else get_ident()


# --- Write objects through fsspec, atomically if the file system can do that ------------
# Some file systems hide an object until it is committed. Others write it under its name at once,
# where readers see half of it, and a writer that is stopped leaves half of it; or they move it
# from a common folder for temporary files, from one disk to another. There it is written under a
# temporary name beside its own and then moved.

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


_THROUGH_LINKS = "delete_through_links"
"""The only storage option of glaive: whether files are deleted in folders behind links."""


def is_known(scheme: str) -> bool:
    """Whether fsspec is installed and has a file system for this scheme."""
    try:
        import fsspec
    except ImportError:
        return False
    return scheme in fsspec.available_protocols()


def connect_fsspec(uri: str, options: Mapping[str, str]) -> FsspecStore:
    """Open a location through fsspec; ``uri`` without the leading ``fsspec+``.

    Raises
    ------
    MissingDependencyError
        fsspec, or the package behind the scheme, is not installed.
    OptionError
        fsspec does not know the scheme, or the file system rejects the options, or works on files
        of this machine, or through a cache that cannot be left out.
    StoreError
        A file of the working directory would be run.
    """
    try:
        import fsspec
    except ImportError:
        raise MissingDependencyError(
            f"{uri} is opened through fsspec, which is not installed: pip install 'glaive[fsspec]'"
        ) from None
    own = (_THROUGH_LINKS, WRITE, VERIFY)
    passed = {key: value for key, value in options.items() if key.lower() not in own}
    check_hdfs_client(f"{uri} {passed}")
    check_chain(uri, passed)
    try:
        system, root = fsspec.core.url_to_fs(uri, **passed)
    except ImportError as error:
        raise MissingDependencyError(f"{uri} needs another package: {error}") from None
    except Exception as error:
        reason, (_, secret) = str(error), split_secret(uri)
        if secret:  # as a part of a path, where nothing else shows what it is
            reason = reason.replace(secret, "***")
        known = credentials_in(with_other_secrets(passed, uri, secret))
        reason = without_named_secrets(without_values(reason, known))
        raise OptionError(f"fsspec cannot open {uri}: {reason}. Check storage_options.") from None
    refuse_this_machine(system, uri)
    return FsspecStore(without_cache(system, uri), uri.rstrip("/"), str(root).rstrip("/"), options)


class FsspecStore(ObjectStore):
    """A directory of an fsspec file system."""

    __slots__ = (
        "_named", "_root", "_systems", "_uri", "counters", "options", "request_limit", "secret",
    )  # fmt: skip

    counters: IoCounters
    options: Mapping[str, str]
    secret: str

    def __init__(self, system: Any, uri: str, root: str, options: Mapping[str, str]) -> None:
        self._systems, self._root, self.options = Systems(system), root, options
        self._uri, self.secret = split_secret(uri)
        self._named = len(self._root)
        """Characters of the root that the caller named; the others are a folder below it."""
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
        """``fsspec+`` and the URI for fsspec, without its password."""
        return f"fsspec+{self._uri}"

    @property
    def system(self) -> Any:
        """The file system of this thread."""
        try:
            return self._systems.mine()
        except Exception as error:
            raise self.failed(error, self.uri, "open") from None

    def full(self, path: str) -> str:
        """URI of an object."""
        return f"{self.uri}/{path}" if path else self.uri

    def failed(self, error: BaseException, full: str, doing: str) -> StoreError:
        """Translate an error that a file system raised, without credentials that servers repeat."""
        known = with_other_secrets(self.options, self._uri, self.secret)
        return failed(error, full, doing, known)

    def _key(self, path: str) -> str:
        check_object_path(path, self.uri, in_url=True)
        return f"{self._root}/{path}" if path else self._root

    def reading(self, path: str, doing: str, read: Callable[[], T]) -> T:
        """Return what ``read`` returns, repeated after transient failures."""
        try:
            with self.request_limit.acquire(1):
                once = partial(self._systems.using, read)
                return repeating(once, DOWNLOAD_RETRIES, refusals=(Exception,))
        except Exception as error:
            raise self.failed(error, self.full(path), doing) from None

    def asked(self, path: str, doing: str, ask: Callable[[], T]) -> T:
        """The same of one object, which is missing only if it is."""
        key = self._key(path)
        return self.reading(path, doing, lambda: asked(self.system, key, ask))

    def open(self, path: str, *, size: int | None = None) -> FsspecReader:
        """Make a reader; no request yet."""
        return FsspecReader(self, self._key(path), path, size)

    def get(self, path: str) -> pa.Buffer:
        """Return a whole object. One request."""
        key = self._key(path)
        end = refuse_unpacked(self, key, path)
        data = self.asked(path, "read", lambda: self.system.cat_file(key, end=end))
        self.counters.add_read(1, len(data))
        return pa.py_buffer(data)

    def put(self, path: str, data: Sequence[BytesLike], *, mode: PutMode = "overwrite") -> None:
        """Write a whole object; ``create`` is as exclusive as the file system can be."""
        key, full = self._key(path), self.full(path)
        empty = False
        if mode == "create" and self.reading(path, "look up", lambda: is_there(self.system, key)):
            empty = not self.head(path).size
            if not empty:
                raise ObjectExistsError(f"cannot write {full}: it exists already.")
        if mode == "overwrite" or empty or not creates(self.system):
            replaces = mode == "overwrite" or empty
            sink = begin_writing(self, self.system, key, full, replaces=replaces)
            try:
                sink.write(data)
                sink.finish()
            except BaseException:
                sink.abort()
                raise
            return
        body = b"".join(byte_views(data))
        try:
            self.in_folder(key, lambda: self.system.pipe_file(key, body, mode="create"))
        except Exception as error:
            raise self.failed(error, full, "write") from None
        self.counters.add_write(1, len(body))

    def create(self, path: str) -> FsspecSink:
        """Start writing an object; its directory is created if the file system needs one."""
        return begin_writing(self, self.system, self._key(path), self.full(path))

    def in_folder(self, key: str, write: Callable[[], T]) -> T:
        """Write, creating the directory if there is none."""

        def once() -> T:
            try:
                return write()
            except Exception as error:
                # WebDAV answers 409 where a folder is missing (RFC 4918, section 9.7.1).
                if (
                    not isinstance(error, FileNotFoundError)
                    and getattr(error, "status_code", 0) != 409
                ):
                    raise
            make_folder(self.system, key.rpartition("/")[0])
            return write()

        return self._systems.using(once)

    def list(self, prefix: str) -> Iterator[ObjectMeta]:
        """Files directly in a directory, in name order."""
        yield from self._listed(prefix, lambda key: list_folder(self.system, key))

    def walk(self, prefix: str) -> Iterator[ObjectMeta]:
        """Files at any depth below a directory, in name order."""
        yield from self._listed(prefix, self._found)

    def unfinished(self, prefix: str) -> Iterator[ObjectMeta]:
        """Temporary files at any depth below a directory."""
        yield from self._listed(prefix, self._found, unfinished=True)

    def _found(self, key: str) -> Sequence[Any]:
        return walked(self.system, key, self.uri)

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
        cut = len(self._root) + 1
        for name, entry in named_files(self.system, entries, self.full(prefix)):
            if name != key and is_temporary(name.rpartition("/")[2]) == unfinished:
                yield listed_of(self, name[cut:], entry)

    def head(self, path: str) -> ObjectMeta:
        """Size and time of an object. One request."""
        key = self._key(path)

        entry = self.reading(path, "look up", lambda: look_up(self.system, key))
        self.counters.add_read(1, 0)
        with checked(self.full(path)):
            is_folder = entry.get("type") == "directory"
        if is_folder:
            refused = StoreError(f"cannot look up {self.full(path)}: it is a directory.")
            refused.errno = errno.EISDIR
            raise refused
        return meta_of(self, path, entry)

    def delete(self, paths: Sequence[str]) -> None:
        """Delete objects one by one; missing ones are no error.

        Objects in a folder behind a link are deleted only with ``delete_through_links``.
        """
        self._delete(paths, self.link_out)

    def delete_written(self, paths: Sequence[str]) -> None:
        """Delete objects that this process has written, also behind a link in the root.

        Below that, a link in the place of a folder that this process made is somebody else's.
        """
        self._delete(paths, lambda folder: self._link_in(folder, self._root.count("/") + 1))

    def _delete(self, paths: Sequence[str], link_to: Callable[[str], str | None]) -> None:
        for path in paths:
            self._key(path)  # nothing is deleted if one of the paths is invalid
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
        """A store of a folder of this one, which deletes nothing if a link leads to the folder."""
        inner = FsspecStore(self.system, f"{self._uri}/{path}", self._key(path), self.options)
        inner.secret, inner._named = self.secret, self._named
        return inner

    def link_out(self, folder: str) -> str | None:
        """Why objects in a folder are not deleted: a link leads there.

        The target of a link is not known here, so any link counts, also one above the root where
        that is a folder of a place that the caller named.
        """
        return self._link_in(folder, self._root.count("/", 0, self._named))

    def _link_in(self, folder: str, known: int) -> str | None:
        """The same for a link behind so many slashes of its path."""
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
        """Whether a name is a link, on file systems that report it."""
        return self._is_link(self._key(path), path)

    def _is_link(self, key: str, path: str) -> bool:
        return self.reading(path, "look up", lambda: is_link(self.system, key, self.full(path)))


def _reopened(uri: str, options: Mapping[str, str], folder: str) -> FsspecStore:
    store = connect_fsspec(uri, options)
    return store.below(folder) if folder else store


class FsspecReader(RemoteReader):
    """An object read range by range; near ranges share one request."""

    __slots__ = ("_key", "_relative", "_size", "_store", "path")

    def __init__(self, store: FsspecStore, key: str, path: str, size: int | None) -> None:
        self._store, self._key = store, key
        self._relative, self._size = path, size
        self.path = store.full(path)

    @property
    def size(self) -> int:
        """Bytes in the object; one request unless it was given."""
        if self._size is None:
            self._size = self._store.head(self._relative).size
        return self._size

    def tail(self, size: int) -> pa.Buffer:
        """Return the last ``size`` bytes, or all if there are fewer."""
        total = self.size
        start = max(0, total - size)
        return self.read([ByteRange(start, total - start)])[0]

    def read(self, ranges: Sequence[ByteRange]) -> list[pa.Buffer]:
        """Return one buffer per range, in order."""
        refuse_unpacked(self._store, self._key, self._relative)
        check_ranges(self.path, ranges, self.size)
        joined = coalesce(ranges)
        responses = side_by_side(self._fetch, joined.requests)
        pairs = zip(responses, joined.requests, strict=True)
        # A server without ranges sends the whole file, which begins with what the first bytes are.
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
        data = self._store.asked(
            self._relative,
            "read",
            lambda: self._store.system.cat_file(self._key, start=request.offset, end=request.end),
        )
        return aligned(data, request.offset)
