"""Objects of any file system that fsspec supports, with the contract of the other stores.

For schemes without a store here (``sftp://``, ``hdfs://``, ``hf://``, …), and for any URI written
as ``fsspec+scheme://``. Storage options are passed to the file system unchanged.

Files of this machine are not opened here. Decision: ``docs/adr/0005-stores.md``.

Few of these file systems have an atomic put-if-absent: concurrent writers need a commit lock or
a manifest store (``docs/guide/stores.md``).
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import groupby
from typing import Any, TypeVar

import pyarrow as pa

from glaive.config import settings
from glaive.errors import (
    MissingDependencyError,
    ObjectExistsError,
    OptionError,
    StoreError,
)
from glaive.hdfs import check_hdfs_client
from glaive.io.checksums import VERIFY, WRITE
from glaive.io.failures import check_ranges, credentials_in, without_named_secrets, without_values
from glaive.io.fsspec_archives import check_chain, refuse_unpacked
from glaive.io.fsspec_asking import asked, is_there, list_folder, look_up
from glaive.io.fsspec_chain import refuse_this_machine, with_other_secrets, without_cache
from glaive.io.fsspec_entries import checked, listed_of, meta_of, named_files
from glaive.io.fsspec_links import is_link, walked
from glaive.io.fsspec_sink import FsspecSink, begin_writing, creates, failed, make_folder
from glaive.io.fsspec_systems import Systems
from glaive.io.location import split_secret, with_secret
from glaive.io.object_path import check_object_path
from glaive.io.ranges import aligned, coalesce, split
from glaive.io.remote import RemoteReader
from glaive.io.request_limit import RequestLimit
from glaive.io.retry import repeating
from glaive.io.side_by_side import side_by_side
from glaive.io.stats import IoCounters
from glaive.io.storage_options import DOWNLOAD_RETRIES
from glaive.io.store import BytesLike, ObjectMeta, ObjectStore, PutMode, byte_views
from glaive.io.temporary import is_temporary
from glaive.types import ByteRange

__all__ = ["FsspecReader", "FsspecStore", "connect_fsspec", "is_known"]

T = TypeVar("T")

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
