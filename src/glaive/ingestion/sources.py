"""The files that an ingest reads: listed once, opened by the tasks."""

from __future__ import annotations

import errno
import os
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from datetime import datetime
from difflib import get_close_matches
from io import RawIOBase
from operator import attrgetter
from pathlib import Path, PurePosixPath
from types import MappingProxyType, SimpleNamespace
from typing import Any, ClassVar, Final, Literal, TypeAlias

import pyarrow as pa

from glaive.dataclass import dataclass
from glaive.errors import FormatError, GlaiveError, ObjectNotFoundError, OptionError, StoreError
from glaive.io.access import open_object, open_store
from glaive.io.failures import MAX_OBJECT_BYTES, as_store_errors, from_system, not_a_file, too_large
from glaive.io.location import with_secret
from glaive.io.store import ObjectMeta, ObjectStore, RangeReader
from glaive.options import SWITCH, Kind
from glaive.types import ByteRange

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
    """A file to read; can be pickled.

    Parameters
    ----------
    folder
        The part of the URI before ``path``: one string for all files of a folder, because a folder
        may have a million files.
    path
        Path relative to the given folder, or the name of the file.
    size
        Number of bytes, as stored.
    modified
        Time of the last change, if the store reports it.
    options
        Options of its store.
    secret
        The password in the URI of the given folder, which ``folder`` lacks.
    etag
        The ETag, if the listing of the store reports it.
    """

    folder: str
    path: str
    size: int
    modified: datetime | None
    options: Mapping[str, str] = field(default_factory=dict, hash=False, repr=False)
    secret: str = field(default="", repr=False)
    etag: str | None = None

    @property
    def uri(self) -> str:
        """The URI of the file."""
        return self.folder + self.path

    def __repr__(self) -> str:
        return f"SourceFile({self.named[0]!r})"

    @property
    def named(self) -> tuple[str, str]:
        """URI and path. The key of a signed URL is removed, and invalid UTF-8 is escaped."""
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
        """The suffix of the name in lower case, before the suffix of a compression."""
        name = PurePosixPath(self.path.lower())
        return (name if self.compression is None else name.with_suffix("")).suffix


def source_names(given: object) -> list[str]:
    """Return the sources that a caller names: one, or several.

    Raises
    ------
    OptionError
        A source has another type than a path or URI, or ``given`` is empty.
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
    """List files below folders, matching patterns, or given one by one, in order of their names.

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
        The files of a source are missing, or it is both a file name and a pattern for other names.
    StoreError
        A folder has a pipe or a device.
    """
    options = dict(storage_options or {})
    files: list[SourceFile] = []
    for source in sources:
        # All of these have the same folder: this is the order of URIs, without a string for each.
        found = sorted(_files_of(source, options), key=attrgetter("path"))
        if not found:
            raise OptionError(f"{source}: no such file, folder or pattern. Check the path.")
        files += found
    if len(sources) < 2:
        return files
    return list({file.uri: file for file in files}.values())


def file_at(uri: str, options: Mapping[str, str] | None = None) -> SourceFile:
    """Return a file by its path or URI, whatever its name looks like.

    Raises
    ------
    ObjectNotFoundError
        The file is missing.
    """
    store, name = open_object(uri, options)
    return _described(store, store.head(name), options or {})


def _files_of(source: str, options: Mapping[str, str]) -> Iterator[SourceFile]:
    wildcard = _WILDCARD.search(source)
    if wildcard is None:
        file = _file(source, options)
        yield from files_in(source, options) if file is None else [file]
        return
    folder = source[: wildcard.start()].rpartition("/")[0] or ("/" if source[:1] == "/" else ".")
    pattern = source.removeprefix(folder).lstrip("/") if folder != "." else source
    try:
        matches = re.compile(_expression(pattern)).fullmatch
    except re.error as error:
        raise OptionError(f"{source}: no pattern of names: {error}") from None
    # The pattern ``a[1].csv`` matches ``a1.csv``, which is not the file called ``a[1].csv``.
    if not matches(pattern) and _file(source, options) is not None:
        name = _WILDCARD.sub(r"[\g<0>]", source)
        raise OptionError(
            f"{source}: a file has this name, a pattern of other names; {name!r} is the file"
        )
    yield from files_in(folder, options, matches)


def _file(source: str, options: Mapping[str, str]) -> SourceFile | None:
    """Return the source, if it is a file."""
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


def files_in(
    folder: str, options: Mapping[str, str], matches: Callable[[str], object] | None = None
) -> Iterator[SourceFile]:
    """Yield the files below a folder; skip hidden files and symlinks to folders.

    ``matches`` tests their paths; default: all files.
    """
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
    """Refuse pipes and devices, which may block forever, unless the caller names them."""
    with as_store_errors(path, "look up"):
        at = Path(path)
        if not at.is_file() and at.exists():
            raise not_a_file(path, at.stat().st_mode)


def folder_of(store: ObjectStore) -> str:
    """Return the part of URIs before the paths of a store."""
    return store.full("x").removesuffix("x")


def _described(
    store: ObjectStore, meta: ObjectMeta, options: Mapping[str, str], folder: str | None = None
) -> SourceFile:
    """Return a file of a store; ``folder`` is its :func:`folder_of`, given for many files."""
    folder = folder_of(store) if folder is None else folder
    if meta.size > MAX_OBJECT_BYTES:  # also possible for a local file, which may have holes
        raise too_large(f"{folder}{meta.path}", meta.size)
    return SourceFile(folder, meta.path, meta.size, meta.modified, options, store.secret, meta.etag)


def _expression(pattern: str) -> str:
    """Return a pattern of names as a regular expression."""
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
    """Open a file for reading; a file of a store is fetched range by range.

    The path stays apart from the URI: untrusted names may have characters that end a path in a URI.

    Parameters
    ----------
    decompress
        Decompress the file; the result can only be read from the beginning.
    """
    folder = with_secret(file.folder.rstrip("/") or "/", file.secret)
    store = open_store(folder, file.options)
    opened: pa.NativeFile
    if store.is_local:
        try:
            # Names of files are bytes in any encoding.
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
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return True."""
        return True

    def tell(self) -> int:
        """Return the position of the next read."""
        return self._at

    def seek(self, offset: int, whence: int = 0) -> int:
        """Set the position of the next read; this costs no request."""
        self._at = offset + (0, self._at, self._reader.size)[whence]
        return self._at

    def read(self, size: int = -1) -> Any:
        """Read ``size`` bytes, fewer at the end, in one request."""
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


# --- Records that cannot be read: the job fails at the first, or they are put aside -----

_FIELDS: list[pa.Field[Any]] = [
    pa.field("file", pa.string(), nullable=False),
    pa.field("line", pa.int64()),
    pa.field("reason", pa.string(), nullable=False),
    pa.field("record", pa.binary()),
    pa.field("job_id", pa.string()),
]

BAD_RECORDS: Final = pa.schema(_FIELDS)
"""Columns of a dataset of bad records; ``line`` is null for files that lack lines."""

_MAX_RECORD: Final = 1 << 20
"""Largest number of bytes stored of a bad record."""

_MAX_REASON: Final = 4 << 10
"""Largest number of characters stored of a reason; Arrow's reasons repeat the value."""

_NULL_WORD: Final = re.compile(r"invalid value '([^'\d]{1,9})'")
"""A short word in a column of numbers: perhaps a null, such as NA."""

_BATCH_ROWS: Final = 10_000
_BATCH_BYTES: Final = 64 << 20
"""Largest size of the records in a batch: a column of Arrow has 2 GiB at most."""


_PYTHON_DETAIL: Final = " Detail: Python exception: "
"""Part of Arrow's errors whose cause is a source that Python reads."""


def refuse_failure(file: SourceFile, error: Exception) -> None:
    """Raise an error if a store or the system failed, as opposed to bytes of a file.

    Raises
    ------
    StoreError
        A store, or the system, failed.
    """
    if isinstance(error, GlaiveError):
        raise error
    if isinstance(error, OSError) and error.errno is not None:
        raise from_system(error, file.uri, "read") from error
    message, called, _ = str(error).partition(_PYTHON_DETAIL)
    if called:
        raise StoreError(f"{file.uri}: {message}") from error


class Rejects:
    """Collects the bad records of a task.

    Parameters
    ----------
    keep
        Put bad records aside; otherwise the first is an error.
    job_id
        Id of the job, for each record.
    """

    def __init__(self, *, keep: bool, job_id: str | None = None) -> None:
        self._keep = keep
        self._job_id = job_id
        self.dropped = 0
        self._rows: list[tuple[str, int | None, str, bytes | None]] = []
        self._bytes = 0  # total size of the records in these rows
        self._batches: list[pa.RecordBatch] = []

    def __len__(self) -> int:
        return sum(batch.num_rows for batch in self._batches) + len(self._rows)

    def add(self, file: SourceFile, line: int | None, reason: str, record: bytes | None) -> None:
        """Put a record aside.

        Raises
        ------
        FormatError
            The job lacks a dataset of bad records; the message names file, line and reason.
        """
        reason = reason[:_MAX_REASON]
        if not self._keep:
            place = file.uri if line is None else f"{file.uri}, line {line}"
            word = _NULL_WORD.search(reason)
            null = f"reader_options={{'null': '{word[1]}'}} if that means null, " if word else ""
            raise FormatError(
                f"{place}: {reason}. Pass {null}bad_records='…' to put such records into a dataset "
                "of their own, or schema= with types that fit."
            )
        kept = None if record is None else record[:_MAX_RECORD]
        self._rows.append((file.named[0], line, reason, kept))
        self._bytes += len(kept or b"")
        if len(self._rows) >= _BATCH_ROWS or self._bytes >= _BATCH_BYTES:
            self._pack()

    def add_damaged(self, file: SourceFile, part: str, error: Exception) -> None:
        """Put aside the rest of a part of a file whose bytes are damaged.

        Raises
        ------
        FormatError
            The job lacks a dataset of bad records. Or memory is too small for rows that may be
            sound.
        GlaiveError
            The store caused the error.
        """
        refuse_failure(file, error)
        # Other errors than Arrow's and the system's need the names of their types to be understood.
        message = f"{error}" if isinstance(error, pa.ArrowException | OSError) else repr(error)
        reason = f"{part} is damaged, from some row on: {message}"
        if isinstance(error, MemoryError):
            raise FormatError(f"{file.uri}: {reason}. Or there is too little memory") from error
        self.add(file, None, reason, None)

    def drop(self, rows: int) -> None:
        """Count rows that are left out."""
        self.dropped += rows

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the records, as rows of :data:`BAD_RECORDS`."""
        if self._rows:
            self._pack()
        yield from self._batches

    def _pack(self) -> None:
        """Convert the rows to a batch: as Python objects they take several times as much memory."""
        files, lines, reasons, records = zip(*self._rows, strict=True)
        columns = [files, lines, reasons, records, [self._job_id] * len(files)]
        arrays = [
            pa.array(values, field.type) for values, field in zip(columns, BAD_RECORDS, strict=True)
        ]
        self._batches.append(pa.RecordBatch.from_arrays(arrays, schema=BAD_RECORDS))
        self._rows, self._bytes = [], 0


# --- Formats of source files: they find columns, cut files into pieces, and read pieces --

Rows: TypeAlias = pa.RecordBatch | pa.Table


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a file that is read separately; can be pickled.

    Parameters
    ----------
    file
        The file.
    start, stop
        The range, in the format's own units: bytes, row groups, stripes. ``stop`` is ``None`` for
        the end of the file.
    size
        Approximate number of bytes of the piece in the file.
    """

    file: SourceFile
    start: int
    stop: int | None
    size: int


def in_groups(sizes: Sequence[int], limit: int) -> Iterator[slice]:
    """Divide consecutive items by size; a group exceeds the limit only if it is a single item."""
    start, held = 0, 0
    for at, size in enumerate(sizes):
        if at > start and held + size > limit:
            yield slice(start, at)
            start, held = at, 0
        held += size
    if sizes:
        yield slice(start, len(sizes))


class Configured:
    """An object with options by name; can be pickled.

    Parameters
    ----------
    options
        The values of the options.

    Raises
    ------
    OptionError
        An option is unknown, or has an invalid value.
    """

    name: ClassVar[str]
    options: ClassVar[Mapping[str, tuple[Kind, Any]]] = {}
    """The kind of each option, and its default."""

    def __init__(self, options: Mapping[str, object]) -> None:
        known_options(self.name, options, tuple(self.options))
        self.given: Any = SimpleNamespace()
        for name, (kind, default) in self.options.items():
            value = options.get(name, default)
            if kind is SWITCH and isinstance(value, str):  # of a command line
                value = kind.parse(name, value)
            setattr(self.given, name, value if value is default else kind.check(name, value))


class SourceFormat(Configured, ABC):
    """A format of source files with the options of its reader; can be pickled."""

    suffixes: ClassVar[tuple[str, ...]] = ()
    typed: ClassVar[bool] = True
    """Whether files state the types of columns; otherwise types are inferred from samples."""

    named: ClassVar[bool] = True
    """Whether files state their columns; otherwise a column that a file lacks is null."""

    folders: ClassVar[bool] = True
    """Whether names of folders, such as ``day=3``, give values of columns."""

    def described(self) -> tuple[str, dict[str, object]]:
        """Return name and settings; they are equal for readers with the same result."""
        return self.name, vars(self)

    @abstractmethod
    def schema(self, file: SourceFile) -> pa.Schema:
        """Return the columns of a file; for untyped formats, infer them from a sample."""

    properties: Mapping[str, str] = MappingProxyType({})
    """Entries for the transaction that commits the rows."""

    def files(self, sources: Sequence[str], options: Mapping[str, str]) -> list[SourceFile]:
        """Return the files that sources name; see :func:`list_sources`."""
        return list_sources(sources, options)

    def check(self, schema: pa.Schema) -> None:  # right for formats with types
        """Refuse types that the reader lacks."""

    def pieces(self, file: SourceFile, target_bytes: int) -> list[Piece]:
        """Cut a file into pieces of about ``target_bytes``; by default it is one piece."""
        return [Piece(file, 0, None, file.size)]

    def for_task(self, pieces: Sequence[Piece]) -> SourceFormat:
        """Return a format with only what a task needs to read these pieces."""
        return self

    @abstractmethod
    def read(self, piece: Piece, schema: pa.Schema, rejects: Rejects) -> Iterator[Rows]:
        """Yield the rows of a piece, in bounded memory.

        Parameters
        ----------
        piece
            A piece from :meth:`pieces`.
        schema
            Names and types; columns that the file lacks are left out.
        rejects
            Collects the malformed records.
        """


# --- Options of readers, checked by name and type --------------------------------------

_OTHER_NAMES = {
    "charset": "encoding",
    "dateformat": "timestamp_format",
    "delimiter": "sep",
    "escapechar": "escape",
    "navalues": "null",
    "nullvalue": "null",
    "quotechar": "quote",
    "separator": "sep",
    "timestampformat": "timestamp_format",
}
"""Names that readers of pandas and Spark have for options; underlines are removed."""


def known_options(format_name: str, given: Mapping[str, object], names: tuple[str, ...]) -> None:
    """Refuse options that a format lacks."""
    for name in given:
        if name not in names:
            lower = f"{name}".lower()
            elsewhere = _OTHER_NAMES.get(lower.replace("_", ""))
            close = [elsewhere] if elsewhere in names else get_close_matches(lower, names, 1)
            hint = f"; did you mean {close[0]}?" if close else "."
            known = ", ".join(names) or "none"
            raise OptionError(f"{format_name}: no option {name!r}{hint} Known: {known}")
