"""All errors that glaive raises on purpose.

GlaiveError
├── FormatError(ValueError)              the bytes violate the format
│   ├── CorruptFileError                 a length, offset or checksum is wrong
│   ├── NotLanceError(OSError)           the bytes are not a Lance file or manifest
│   └── UnsupportedFeatureError(NotImplementedError, OSError)   well-formed, but unsupported
│       └── LimitError                   more than a limit of this process allows
├── SchemaError(ValueError, TypeError, OSError)   types or columns differ from the dataset
│   └── CapacityError                    values exceed one array; take fewer rows
├── OptionError(ValueError, TypeError, OSError)   an option or its value is invalid
│   ├── OptionRangeError(OverflowError)  a number is below the range of an option
│   ├── PartitionIndexError(IndexError)  a partition of a vector index is missing
│   ├── IndexExistsError(RuntimeError)   an index of this name exists already
│   ├── IndexKindError(UnsupportedFeatureError)   the kind is unknown, or refuses the column
│   └── TrainingError(RuntimeError)      clusters are untrained, or vectors too few
├── CommitError(OSError)                 a write did not become a version
│   ├── CommitConflictError              another writer changed the same thing
│   ├── CommitContentionError            all retries lost to other writers; try again
│   ├── DatasetExistsError(FileExistsError)   create was requested, but the dataset exists already
│   └── RefExistsError(FileExistsError, ValueError)   a tag or branch of this name exists already
├── CleanupError(OSError)                old versions cannot be removed
├── NotFoundError(LookupError)           a version, column, index or fragment is missing
│   ├── DatasetNotFoundError(ValueError, FileNotFoundError)   the dataset is missing
│   │   └── UnfinishedDatasetError(NotLanceError)   the writer that created it was stopped
│   ├── VersionNotFoundError(OSError, ValueError)    the version is missing
│   ├── RefNotFoundError(OSError, ValueError)    the tag or branch is missing
│   ├── DataFileMissingError(ValueError, FileNotFoundError)   a file of a manifest is missing
│   ├── FragmentNotFoundError(ValueError)    the fragment is missing
│   ├── IndexNotFoundError(KeyError, RuntimeError)   the index is missing
│   └── ColumnNotFoundError(KeyError, ValueError, OSError)    the column is unknown
├── ExpectationError(ValueError)         rows violate an expectation of a job
├── JobError(RuntimeError)               a cluster lost processes of a job
├── FilterError(ValueError, OSError)     an expression is invalid, or cannot be computed
│   └── FilterColumnError(ColumnNotFoundError)   an expression has an unknown column
├── RowIndexError(IndexError, OverflowError, ValueError, OSError)   a row position out of range
│   └── DeletedRowError(NotImplementedError)      the address of a deleted row
├── StoreError(OSError)                  the file system or object store refused or failed
│   ├── UnreachableError(ValueError)     opening a dataset failed, because its store failed
│   ├── AccessError(PermissionError)     a dataset has a location that the caller has not allowed
│   ├── NotForcedError                   written and visible, but perhaps still in memory
│   ├── ObjectNotFoundError(FileNotFoundError)    the object is missing
│   └── ObjectExistsError(FileExistsError)        put with mode "create" found an object
└── MissingDependencyError(ImportError)  a package that the task needs is missing

Errors also derive from the built-in exceptions that pylance raises in the same situation. So
``except`` clauses written for pylance still catch them. pylance raises ``OSError`` for invalid
input.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from functools import partial
from typing import Final

__all__ = [
    "AccessError",
    "CapacityError",
    "CleanupError",
    "ColumnNotFoundError",
    "CommitConflictError",
    "CommitContentionError",
    "CommitError",
    "CorruptFileError",
    "DataFileMissingError",
    "DatasetExistsError",
    "DatasetNotFoundError",
    "DeletedRowError",
    "ExpectationError",
    "FilterColumnError",
    "FilterError",
    "FormatError",
    "FragmentNotFoundError",
    "GlaiveError",
    "IndexExistsError",
    "IndexKindError",
    "IndexNotFoundError",
    "JobError",
    "LimitError",
    "MissingDependencyError",
    "NotForcedError",
    "NotFoundError",
    "NotLanceError",
    "ObjectExistsError",
    "ObjectNotFoundError",
    "OptionError",
    "OptionRangeError",
    "PartitionIndexError",
    "RefExistsError",
    "RefNotFoundError",
    "RowIndexError",
    "SchemaError",
    "StoreError",
    "TrainingError",
    "UnfinishedDatasetError",
    "UnreachableError",
    "UnsupportedFeatureError",
    "VersionNotFoundError",
]


_MAX_CHARACTERS: Final = 10_000  # characters of a message

SECRETS: Final = (
    r"(?i:(?:(?<=://)|(?<=[a-z]:/))([^/\s:]*):(?:[^/\s]+|(?<!\[:)(?!\d+/)[^\s\"']{1,512})(?=@)"
    r"|(?:(?<=http://)|(?<=https://))[^/\s@:]+(?=@)|((?:[?&#;]|%3F|%26|%23|%3B)(?:[\w.-]*?"
    r"(?:sig|signature|token|secret|passw(?:or)?d|pwd|passphrase|auth|authorization|jwt|key|credential"
    r"|delegation|sessionid)|x-amz-[a-z-]+)(?:=|%3D))[^&\s'\")]+?(?=[&\s'\")]|/_|/data/|/tree/|$)"
    r"|(?<=://)([^/\s:@]*):(?<!\[:)(?!\$\{|\d+\\)(?=\d*[^\d/\s:@?#,;\"'])[^/\s:@?#,;\"']{8,}+)"
)
"""Passwords, tokens and keys in a URL, also where a message cuts it off; for Java, too."""


class GlaiveError(Exception):
    """Base class: ``except GlaiveError`` catches all errors of this library.

    Messages may be written to logs. So they omit keys and passwords in URLs, and the middle of a
    long message.
    """

    def __init__(self, *args: object) -> None:
        super().__init__(*(_for_logs(arg) if isinstance(arg, str) else arg for arg in args))

    def __str__(self) -> str:
        # OSError and KeyError bases would otherwise display an errno tuple or a quoted string.
        return str(self.args[0]) if self.args else type(self).__name__

    @staticmethod
    def did_you_mean(
        name: str, known: Collection[str], what: str = "Known", *, limit: int = 1000
    ) -> str:
        """Return the end of a message about an unknown name: the closest names, and all."""
        from difflib import get_close_matches

        close = get_close_matches(name[:100], known, n=3)
        hint = f"; did you mean {' or '.join(map(repr, close))}?" if close else "."
        names = ", ".join(list(known)[:limit]) or "none"
        return f"{hint} {what}: {names}{', …' * (len(known) > limit)}"

    @staticmethod
    def without_secrets(text: str) -> str:
        """Hide passwords and keys in the URLs of a text, for logs and ``repr``."""
        return re.sub(SECRETS, _starred, text) if ":/" in text else text


def _for_logs(message: str) -> str:
    text = GlaiveError.without_secrets(message)
    middle = f" … ({len(text):,} characters) … "
    return text if len(text) <= _MAX_CHARACTERS else f"{text[:8_000]}{middle}{text[-1_900:]}"


def _starred(one: re.Match[str]) -> str:
    return f"{one[one.lastindex]}{':' * (one.lastindex != 2)}***" if one.lastindex else "***"


class FormatError(GlaiveError, ValueError):
    """The bytes violate the format."""


class CorruptFileError(FormatError):
    """A length, an offset or a checksum is wrong.

    Parameters
    ----------
    what
        The damaged structure, in the terms of the specification.
    expected, found
        The two sides of the violated rule, formatted with units.
    where
        Path, then column, page and byte range as far as known.
    """

    def __init__(self, what: str, *, expected: str, found: str, where: object) -> None:
        super().__init__(
            f"{what}: expected {expected}, found {found} (in {where}). "
            "The file is damaged; restore it from a copy or read an earlier version."
        )
        self.what, self.expected, self.found, self.where = what, expected, found, str(where)

    def __reduce__(self) -> tuple[object, ...]:
        rule = {"expected": self.expected, "found": self.found, "where": self.where}
        return (partial(CorruptFileError, **rule), (self.what,))


class NotLanceError(FormatError, OSError):
    """The bytes are not a Lance file or manifest."""


class UnsupportedFeatureError(FormatError, NotImplementedError, OSError):
    """Well-formed, but unsupported by this reader or this format version."""


class LimitError(UnsupportedFeatureError):
    """Well-formed, but more than a limit of this process allows; the message has the remedy."""


class SchemaError(GlaiveError, ValueError, TypeError, OSError):
    """Types or columns do not match the dataset or are unsupported by the format version."""


class CapacityError(SchemaError):
    """More bytes or items than one Arrow array holds: offsets of 32 bits count 2^31 - 1.

    Scans and takes handle it: they split the rows. Users see it only if that fails.

    Parameters
    ----------
    message
        Number of bytes or items, and where they are.
    parts
        Number of parts of equal size that the rows probably need.
    """

    def __init__(self, message: str = "", *, parts: int = 2) -> None:
        super().__init__(message)
        self.parts = parts

    @classmethod
    def of(cls, count: int, unit: str, *, where: object, instead: object = "") -> CapacityError:
        """Make the error for ``count`` units, such as bytes; ``instead`` is a larger type."""
        from glaive.types import MAX_OFFSET

        advice = f", or make the column {instead}" if instead else ""
        return cls(
            f"{count} {unit} in one array, at most {MAX_OFFSET} fit (in {where}); read or take "
            f"fewer rows at a time{advice}",
            parts=-(-count // MAX_OFFSET),
        )

    def __reduce__(self) -> tuple[object, ...]:
        return (partial(type(self), parts=self.parts), (str(self),))


class OptionError(GlaiveError, ValueError, TypeError, OSError):
    """An option is unknown or has an invalid value."""


class OptionRangeError(OptionError, OverflowError):
    """A number is below the range of an option."""


class PartitionIndexError(OptionError, IndexError):
    """A vector index lacks a partition of this number."""


class IndexExistsError(OptionError, RuntimeError):
    """An index cannot be created, because an index of this name exists already."""


class IndexKindError(UnsupportedFeatureError, OptionError):
    """The kind of index is unknown, or refuses values of the column's type."""


class TrainingError(OptionError, RuntimeError):
    """Clusters are untrained, or there are too few vectors to train them from."""


class CommitError(GlaiveError, OSError):
    """A write did not become a version; readers see the dataset as before."""


class CommitConflictError(CommitError):
    """Another writer changed the same data after the version that was read.

    Parameters
    ----------
    message
        The cause, and what to do.
    retryable
        Whether the same change may succeed on the newest version. Otherwise the data that it
        refers to is gone.
    version
        The version that conflicts.
    operation
        The operation of that version; ``None`` if it is unknown.
    fragments
        Ids of the fragments that both writers change, ascending.
    """

    def __init__(
        self,
        message: str = "",
        retryable: bool = True,  # noqa: FBT001, FBT002  # by position in pylance's class
        *,
        version: int = 0,
        operation: str | None = None,
        fragments: Iterable[int] = (),
    ) -> None:
        super().__init__(message)
        self.retryable, self.version, self.operation = retryable, version, operation
        self.fragments = tuple(sorted(fragments))

    def __reduce__(self) -> tuple[object, ...]:
        names = ("retryable", "version", "operation", "fragments")
        return (partial(type(self), **{name: getattr(self, name) for name in names}), (str(self),))


class CommitContentionError(CommitError):
    """Other writers were first at every retry. The changes are compatible; try again."""


class DatasetExistsError(CommitError, FileExistsError):
    """A dataset cannot be created, because it exists already."""


class RefExistsError(CommitError, FileExistsError, ValueError):
    """A tag or branch cannot be created, because its name exists already."""


class CleanupError(GlaiveError, OSError):
    """Old versions cannot be removed as requested. All versions stay."""


class NotFoundError(GlaiveError, LookupError):
    """A version, column, index or fragment is missing."""


class DatasetNotFoundError(NotFoundError, ValueError, FileNotFoundError):
    """The dataset at this location is missing."""


class UnfinishedDatasetError(DatasetNotFoundError, NotLanceError):
    """The only manifest is empty: the writer that creates the dataset is active, or was stopped."""


class VersionNotFoundError(NotFoundError, OSError, ValueError):
    """The version of the dataset is missing; the message lists the existing versions."""


class RefNotFoundError(NotFoundError, OSError, ValueError):
    """The tag or branch is missing; the message lists the closest names."""


class DataFileMissingError(NotFoundError, ValueError, FileNotFoundError):
    """A file of a manifest is missing."""


class FragmentNotFoundError(NotFoundError, ValueError):
    """The fragment is missing in a version."""


class IndexNotFoundError(NotFoundError, KeyError, RuntimeError, ValueError):
    """The index is missing; the message lists the existing indices."""


class ColumnNotFoundError(NotFoundError, KeyError, ValueError, OSError):
    """The column is unknown; the message lists the closest names."""

    @classmethod
    def among(
        cls,
        name: str,
        known: Iterable[str],
        *,
        where: object,
        words: str = "Column {name} does not exist in {where}",
    ) -> ColumnNotFoundError:
        """Make the error from the requested name and the known names.

        ``words`` is pylance's message in this place.
        """
        message = GlaiveError.did_you_mean(name, list(known), "Columns", limit=20)
        return cls(f"{words.format(name=name, where=where)}{message}")


class ExpectationError(GlaiveError, ValueError):
    """Rows violate a condition of a job or of a step of a pipeline. The dataset is unchanged."""


class JobError(GlaiveError, RuntimeError):
    """A cluster lost processes of a job, or stopped it. The dataset is unchanged."""


class FilterError(GlaiveError, ValueError, OSError):
    """A filter or a computed column is invalid, or cannot be computed.

    The message begins with ``Invalid user input``, which programs search for in pylance's errors.
    """

    def __str__(self) -> str:
        text, prefix = super().__str__(), "Invalid user input: "
        return text if prefix in text else prefix + text


class FilterColumnError(FilterError, ColumnNotFoundError):
    """An expression has an unknown column; the message lists the closest names."""


class RowIndexError(GlaiveError, IndexError, OverflowError, ValueError, OSError):
    """A row position, id or address is out of range."""


class DeletedRowError(RowIndexError, NotImplementedError):
    """The row at an address is deleted."""


class StoreError(GlaiveError, OSError):
    """The file system or object store refused or failed."""

    is_unanswered: bool = False
    """Whether a request to the store had no answer, and may still take effect."""
    is_unsupported: bool = False
    """Whether this kind of store lacks the request."""


class UnreachableError(StoreError, ValueError):
    """Opening a dataset failed, because its store refused or failed."""


class AccessError(StoreError, PermissionError):
    """A dataset has a location outside of itself that the caller has not allowed."""


class NotForcedError(StoreError):
    """With ``fsync``: a file is visible, but a power failure may remove its name."""


class ObjectNotFoundError(StoreError, FileNotFoundError):
    """The object is missing."""


class ObjectExistsError(StoreError, FileExistsError):
    """``put`` with mode ``"create"`` found that the object exists."""


class MissingDependencyError(GlaiveError, ImportError):
    """A package or program the task needs is missing; the message says how to get it."""
