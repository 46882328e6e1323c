"""The files that an ingest reads: listed once, opened by the tasks."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from datetime import datetime
from io import RawIOBase
from operator import attrgetter
from pathlib import Path, PurePosixPath
from typing import Any, Final, Literal, TypeAlias

import pyarrow as pa

from glaive.dataclass import dataclass
from glaive.errors import GlaiveError, ObjectNotFoundError, OptionError, StoreError
from glaive.io.failures import LARGEST, as_store_errors, from_system, not_a_file, too_large
from glaive.io.location import with_secret
from glaive.io.store import ObjectMeta, ObjectStore, RangeReader
from glaive.io.uri import open_object, open_store
from glaive.types import ByteRange

__all__ = [
    "COMPRESSIONS",
    "RangeFile",
    "SourceFile",
    "folder_of",
    "list_sources",
    "local_file",
    "open_source",
    "source_names",
]

Codec: TypeAlias = Literal["bz2", "gzip", "lz4", "zstd"]

COMPRESSIONS: Final[dict[str, Codec]] = {
    ".gz": "gzip",
    ".bz2": "bz2",
    ".zst": "zstd",
    ".lz4": "lz4",
}
"""Codecs of Arrow by the last suffix of a name."""

_WILDCARD = re.compile(r"[*?\[]")


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A file to be read; can be pickled.

    Parameters
    ----------
    folder
        What stands before ``path`` in its URI: one text for the files of a folder, of which there
        may be a million.
    path
        Relative to the folder that was given, or its name.
    size
        Bytes, as stored.
    modified
        Time of the last change, if the store tells it.
    options
        Options of its store.
    secret
        The password in the URI of the folder that was given, which ``folder`` lacks.
    """

    folder: str
    path: str
    size: int
    modified: datetime | None
    options: Mapping[str, str] = field(default_factory=dict, hash=False, repr=False)
    secret: str = field(default="", repr=False)

    @property
    def uri(self) -> str:
        """Where it is."""
        return self.folder + self.path

    def __repr__(self) -> str:
        return f"SourceFile({self.named[0]!r})"

    @property
    def named(self) -> tuple[str, str]:
        """URI and path as texts, without the key of a signed URL; bytes that are none are written
        out.
        """
        uri, path = GlaiveError.without_secrets(self.uri), self.path
        if uri != self.uri:
            path = uri.removeprefix(self.folder) if uri.startswith(self.folder) else "***"
        uri, path = (text.encode(errors="backslashreplace").decode() for text in (uri, path))
        return uri, path

    @property
    def compression(self) -> Codec | None:
        """Codec of the whole file, from its name."""
        return COMPRESSIONS.get(PurePosixPath(self.path).suffix.lower())

    @property
    def suffix(self) -> str:
        """The suffix of the name in lower case, without that of a compression."""
        name = PurePosixPath(self.path.lower())
        return (name if self.compression is None else name.with_suffix("")).suffix


def source_names(given: object) -> list[str]:
    """The sources that a caller names: one, or several.

    Raises
    ------
    OptionError
        It is no path or URI, or there is none.
    """
    names: Any = given
    if not isinstance(given, Iterable) or isinstance(given, str | bytes | os.PathLike):
        names = [given]
    try:
        texts = [os.fspath(name) for name in names]
    except TypeError:
        texts = []
    if not texts or not all(isinstance(text, str) and text for text in texts):
        raise OptionError(f"source: expected a path or a URI, or several, found {given!r:.200}")
    return texts


def list_sources(
    sources: Sequence[str], storage_options: Mapping[str, str] | None = None
) -> list[SourceFile]:
    """The files below folders, matching patterns, or given one by one; in order of their names.

    Parameters
    ----------
    sources
        Paths or URIs of files or folders, or patterns: ``*`` matches within a name, ``**`` across
        folders. Names that begin with ``_`` or ``.`` are left out, as by Spark, unless a source
        is that file.
    storage_options
        Options of the stores.

    Raises
    ------
    OptionError
        A source matches no file, or is the name of a file and a pattern that does not match it.
    StoreError
        There is a pipe or a device in a folder.
    """
    options = dict(storage_options or {})
    files: list[SourceFile] = []
    for source in sources:
        # All of them have the same folder: this is the order of URIs, without a text for each.
        found = sorted(_files_of(source, options), key=attrgetter("path"))
        if not found:
            raise OptionError(f"{source}: no such file, and no folder or pattern with files")
        files += found
    if len(sources) < 2:
        return files
    return list({file.uri: file for file in files}.values())


def local_file(path: str) -> SourceFile:
    """A file by its path, whatever its name looks like.

    Raises
    ------
    ObjectNotFoundError
        It does not exist.
    """
    store, name = open_object(path, {})
    return _described(store, store.head(name), {})


def _files_of(source: str, options: Mapping[str, str]) -> Iterator[SourceFile]:
    wildcard = _WILDCARD.search(source)
    if wildcard is None:
        file = _file(source, options)
        yield from _below(source, options) if file is None else [file]
        return
    folder = source[: wildcard.start()].rpartition("/")[0] or ("/" if source[:1] == "/" else ".")
    pattern = source.removeprefix(folder).lstrip("/") if folder != "." else source
    try:
        matches = re.compile(_expression(pattern)).fullmatch
    except re.error as error:
        raise OptionError(f"{source}: no pattern of names: {error}") from None
    # ``a[1].csv`` matches ``a1.csv``; whoever named the file of that name would read another one.
    if not matches(pattern) and _file(source, options) is not None:
        name = _WILDCARD.sub(r"[\g<0>]", source)
        raise OptionError(
            f"{source}: a file has this name, a pattern of other names; {name!r} is the file"
        )
    yield from _below(folder, options, matches)


def _file(source: str, options: Mapping[str, str]) -> SourceFile | None:
    """The source, if it is a file."""
    _, mark, rest = source.partition("://")
    if source.endswith("/") or (mark and "/" not in rest):  # a folder, or a bucket
        return None
    store, name = open_object(source, options)
    if store.is_local and _is_folder(store.full(name)):
        return None
    try:
        return _described(store, store.head(name), options)
    except ObjectNotFoundError:
        return None
    except StoreError as error:
        if error.errno != errno.EISDIR:
            raise
        return None


def _below(
    folder: str, options: Mapping[str, str], matches: Callable[[str], object] | None = None
) -> Iterator[SourceFile]:
    store = open_store(folder, options)
    if store.is_local and not _is_folder(store.full("")):
        return
    below = folder_of(store)
    for meta in store.walk(""):
        if any(part[:1] in ("_", ".") for part in meta.path.split("/")):
            continue
        if matches is not None and not matches(meta.path):
            continue
        if store.is_local:
            _refuse_pipe(store.full(meta.path))
        yield _described(store, meta, options, below)


def _is_folder(path: str) -> bool:
    with as_store_errors(path, "look up"):
        return Path(path).is_dir()


def _refuse_pipe(path: str) -> None:
    """Refuse what waits for a writer, or never ends; one that the caller names is read."""
    with as_store_errors(path, "look up"):
        at = Path(path)
        if not at.is_file() and at.exists():
            raise not_a_file(path, at.stat().st_mode)


def folder_of(store: ObjectStore) -> str:
    """What stands before the paths of a store in their URIs."""
    return store.full("x").removesuffix("x")


def _described(
    store: ObjectStore, meta: ObjectMeta, options: Mapping[str, str], folder: str | None = None
) -> SourceFile:
    """A file of a store; ``folder`` is :func:`folder_of` of it, if there are many."""
    folder = folder_of(store) if folder is None else folder
    if meta.size > LARGEST:  # of a file of this machine, too: it may have holes
        raise too_large(f"{folder}{meta.path}", meta.size)
    return SourceFile(folder, meta.path, meta.size, meta.modified, options, store.secret)


def _expression(pattern: str) -> str:
    """A pattern of names as a regular expression."""
    parts = []
    for token in re.findall(r"\*\*/|\*\*|\*|\?|\[(?![!^]\])[^\]]+\]|.", pattern, re.DOTALL):
        known = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
        if token in known:
            parts.append(known[token])
        elif token[0] == "[" and len(token) > 1:
            negated = token[1] in "!^"
            inside = re.sub(r"([\\\[&|~])", r"\\\1", token[1 + negated : -1])
            parts.append(f"[{'^' * negated}{inside}]")
        else:
            parts.append(re.escape(token))
    return "".join(parts)


def open_source(file: SourceFile, *, decompress: bool = False) -> pa.NativeFile:
    """Open a file for reading; that of a store is fetched range by range.

    Its path is no part of a URI that is read: names of strangers may have marks that end it there.

    Parameters
    ----------
    decompress
        Read what a compressed file holds, from its beginning only.
    """
    folder = with_secret(file.folder.rstrip("/") or "/", file.secret)
    store = open_store(folder, file.options)
    opened: pa.NativeFile
    if store.is_local:
        try:
            # Names of files are bytes, of any encoding.
            path: Any = os.fsencode(store.full(file.path))
            opened = pa.OSFile(path, "r")
        except FileNotFoundError as error:
            raise ObjectNotFoundError(f"{file.uri} was removed since it was listed") from error
        except OSError as error:
            raise from_system(error, file.uri, "read") from error
    else:
        opened = pa.PythonFile(RangeFile(store.open(file.path, size=file.size)), "r")
    if decompress and file.compression is not None:
        return pa.CompressedInputStream(opened, file.compression)
    return opened


class RangeFile(RawIOBase):
    """The file interface over ranges of an object."""

    def __init__(self, reader: RangeReader) -> None:
        self._reader = reader
        self._at = 0

    def readable(self) -> bool:
        """It is."""
        return True

    def seekable(self) -> bool:
        """It is."""
        return True

    def tell(self) -> int:
        """Where the next read begins."""
        return self._at

    def seek(self, offset: int, whence: int = 0) -> int:
        """Begin the next read elsewhere; no request."""
        self._at = offset + (0, self._at, self._reader.size)[whence]
        return self._at

    def read(self, size: int = -1) -> Any:
        """So many bytes, fewer at the end; one request."""
        rest = max(self._reader.size - self._at, 0)
        size = rest if size < 0 else min(size, rest)
        if not size:
            return b""
        [data] = self._reader.read([ByteRange(self._at, size)])
        self._at += size
        return data

    def close(self) -> None:
        """Close the reader."""
        if not self.closed:
            self._reader.close()
        super().close()
