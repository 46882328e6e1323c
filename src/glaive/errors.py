"""Every error glaive raises on purpose.

GlaiveError
├── FormatError(ValueError)              the bytes do not follow the format
│   ├── CorruptFileError                 a length, offset or checksum cannot be right
│   ├── NotLanceError(OSError)           the bytes are not a Lance file or manifest at all
│   └── UnsupportedFeatureError(NotImplementedError, OSError)   well-formed, but not supported
│       └── LimitError                   more than a limit of this process allows
├── SchemaError(ValueError, TypeError, OSError)   types or columns do not fit the dataset
│   └── CapacityError                    values do not fit one array; fewer rows would
├── OptionError(ValueError, TypeError, OSError)   an option, or its value, does not exist
│   ├── OptionRangeError(OverflowError)  a number is below those that an option takes
│   ├── PartitionIndexError(IndexError)  a vector index has no partition of this number
│   ├── IndexExistsError(RuntimeError)   there is an index of this name already
│   ├── IndexKindError(UnsupportedFeatureError)   no such kind of index, or not of this type
│   └── TrainingError(RuntimeError)      clusters were not trained, or cannot be from so few vectors
├── CommitError(OSError)                 a write did not become a version
│   ├── CommitConflictError              another writer changed the same thing
│   ├── CommitContentionError            retries used up; nothing is wrong, try again
│   ├── DatasetExistsError(FileExistsError)   create was requested, but there is a dataset already
│   └── RefExistsError(FileExistsError, ValueError)   there is a tag or branch of this name
├── CleanupError(OSError)                old versions cannot be removed as requested; nothing was
├── NotFoundError(LookupError)           no such version, column, index or fragment
│   ├── DatasetNotFoundError(ValueError, FileNotFoundError)   no dataset at this location
│   │   └── UnfinishedDatasetError(NotLanceError)   the writer that created it was stopped
│   ├── VersionNotFoundError(OSError, ValueError)    no such version of the dataset
│   ├── RefNotFoundError(OSError, ValueError)    no such tag or branch; names the closest ones
│   ├── DataFileMissingError(ValueError, FileNotFoundError)   a file of a manifest is not there
│   ├── FragmentNotFoundError(ValueError)    no such fragment
│   ├── IndexNotFoundError(KeyError, RuntimeError)   no such index; names those there are
│   └── ColumnNotFoundError(KeyError, ValueError, OSError)    no such column; names close ones
├── ExpectationError(ValueError)         rows are not as a job expects them to be
├── JobError(RuntimeError)               a cluster lost processes of a job; nothing of it is visible
├── FilterError(ValueError, OSError)     an expression cannot be understood, or not be computed
│   └── FilterColumnError(ColumnNotFoundError)   it names a column that is not there
├── RowIndexError(IndexError, OverflowError, ValueError, OSError)   a row position beyond all
│   └── DeletedRowError(NotImplementedError)      an address of a deleted row
├── StoreError(OSError)                  the file system or object store refused or failed
│   ├── UnreachableError(ValueError)     a dataset was not opened, because its store failed
│   ├── AccessError(PermissionError)     a dataset names a location that the caller did not allow
│   ├── NotForcedError                   written and visible, but perhaps not on disk yet
│   ├── ObjectNotFoundError(FileNotFoundError)    no object under this path
│   └── ObjectExistsError(FileExistsError)        put with mode "create" found one there
└── MissingDependencyError(ImportError)  something the task needs is not installed

Errors also derive from the built-in exceptions that pylance raises in the same situation, so that
``except`` clauses written for it still catch them; pylance raises ``OSError`` for invalid input.
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


_LONGEST: Final = 10_000  # characters of a message
_MAX_OFFSET: Final = 2**31 - 1  # bytes or items that 32-bit offsets can count in one Arrow array

SECRETS: Final = (
    r"(?i:(?:(?<=://)|(?<=[a-z]:/))([^/\s:]*):(?:[^/\s]+|(?<!\[:)(?!\d+/)[^\s\"']{1,512})(?=@)"
    r"|(?:(?<=http://)|(?<=https://))[^/\s@:]+(?=@)|((?:[?&#;]|%3F|%26|%23|%3B)(?:[\w.-]*?"
    r"(?:sig|signature|token|secret|passw(?:or)?d|pwd|passphrase|auth|authorization|jwt|key|credential"
    r"|delegation|sessionid)|x-amz-[a-z-]+)(?:=|%3D))[^&\s'\")]+?(?=[&\s'\")]|/_|/data/|/tree/|$)"
    r"|(?<=://)([^/\s:@]*):(?<!\[:)(?!\$\{|\d+\\)(?=\d*[^\d/\s:@?#,;\"'])[^/\s:@?#,;\"']{8,}+)"
)
"""Passwords or tokens in a URL, also where a message ends within one, and keys; in Java, too."""


class GlaiveError(Exception):
    """Base class: ``except GlaiveError`` catches whatever this library reports.

    Messages end up in logs: keys and passwords in URLs, and the middle of long ones, are left out.
    """

    def __init__(self, *args: object) -> None:
        super().__init__(*(_for_logs(arg) if isinstance(arg, str) else arg for arg in args))

    def __str__(self) -> str:
        # OSError and KeyError bases would otherwise display an errno tuple or a quoted text.
        return str(self.args[0]) if self.args else type(self).__name__

    @staticmethod
    def did_you_mean(
        name: str, known: Collection[str], what: str = "Known", *, most: int = 1000
    ) -> str:
        """The end of a message about an unknown name: the closest ones, and all."""
        from difflib import get_close_matches

        close = get_close_matches(name[:100], known, n=3)
        hint = f"; did you mean {' or '.join(map(repr, close))}?" if close else "."
        names = ", ".join(list(known)[:most]) or "none"
        return f"{hint} {what}: {names}{', …' * (len(known) > most)}"

    @staticmethod
    def without_secrets(text: str) -> str:
        """The text without passwords and keys in its URLs: for logs, and for ``repr``."""
        return re.sub(SECRETS, _starred, text) if ":/" in text else text


def _for_logs(message: str) -> str:
    text = GlaiveError.without_secrets(message)
    middle = f" … ({len(text):,} characters) … "
    return text if len(text) <= _LONGEST else f"{text[:8_000]}{middle}{text[-1_900:]}"


def _starred(one: re.Match[str]) -> str:
    return f"{one[one.lastindex]}{':' * (one.lastindex != 2)}***" if one.lastindex else "***"


class FormatError(GlaiveError, ValueError):
    """The bytes do not follow the format."""


class CorruptFileError(FormatError):
    """A length, an offset or a checksum cannot be right.

    Parameters
    ----------
    what
        The damaged structure, in the terms of the specification.
    expected, found
        The two sides of the broken rule, formatted with units.
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
    """The bytes are not a Lance file or manifest at all."""


class UnsupportedFeatureError(FormatError, NotImplementedError, OSError):
    """Well-formed, but not supported by this reader or this format version."""


class LimitError(UnsupportedFeatureError):
    """Well-formed, but more than a limit of this process allows; the message has the remedy."""


class SchemaError(GlaiveError, ValueError, TypeError, OSError):
    """Types or columns do not match the dataset or are not supported by the format version."""


class CapacityError(SchemaError):
    """More bytes or items than one Arrow array holds: offsets of 32 bits count 2^31 - 1.

    Scans and takes handle it by splitting the rows; users see it only where that does not help.

    Parameters
    ----------
    message
        How many bytes or items there are, and where.
    parts
        Number of parts of equal size in which the rows are likely to fit.
    """

    def __init__(self, message: str = "", *, parts: int = 2) -> None:
        super().__init__(message)
        self.parts = parts

    @classmethod
    def of(cls, count: int, unit: str, *, where: object, instead: object = "") -> CapacityError:
        """There are ``count`` of a unit, such as bytes; ``instead`` is a larger type."""
        advice = f", or make the column {instead}" if instead else ""
        return cls(
            f"{count} {unit} in one array, at most {_MAX_OFFSET} fit (in {where}); read or take "
            f"fewer rows at a time{advice}",
            parts=-(-count // _MAX_OFFSET),
        )

    def __reduce__(self) -> tuple[object, ...]:
        return (partial(type(self), parts=self.parts), (str(self),))


class OptionError(GlaiveError, ValueError, TypeError, OSError):
    """An option does not exist or has an invalid value."""


class OptionRangeError(OptionError, OverflowError):
    """A number is below those that an option takes."""


class PartitionIndexError(OptionError, IndexError):
    """A vector index has no partition of this number."""


class IndexExistsError(OptionError, RuntimeError):
    """An index cannot be created, because there is one of this name."""


class IndexKindError(UnsupportedFeatureError, OptionError):
    """There is no such kind of index, or it does not index values of the column's type."""


class TrainingError(OptionError, RuntimeError):
    """Clusters were not trained yet, or there are too few vectors to train them from."""


class CommitError(GlaiveError, OSError):
    """A write did not become a version; nothing of it is visible."""


class CommitConflictError(CommitError):
    """Another writer changed the same thing since the version that was read.

    Parameters
    ----------
    message
        What happened, and what to do.
    retryable
        Whether the same change may succeed on the newest version; otherwise the data it referred
        to no longer exists.
    version
        The version that conflicts.
    operation
        The operation of that version; ``None`` if it is not known.
    fragments
        Ids of the fragments that both change, ascending.
    """

    def __init__(
        self,
        message: str = "",
        retryable: bool = True,  # noqa: FBT001, FBT002  # pylance's own takes it by position
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
    """Every retry lost the race against other writers. There is no conflict; try again."""


class DatasetExistsError(CommitError, FileExistsError):
    """A dataset cannot be created, because there is one already."""


class RefExistsError(CommitError, FileExistsError, ValueError):
    """A tag or branch cannot be created, because there is one of this name."""


class CleanupError(GlaiveError, OSError):
    """Old versions cannot be removed as requested; nothing was removed."""


class NotFoundError(GlaiveError, LookupError):
    """No such version, column, index or fragment."""


class DatasetNotFoundError(NotFoundError, ValueError, FileNotFoundError):
    """No dataset at this location."""


class UnfinishedDatasetError(DatasetNotFoundError, NotLanceError):
    """The only manifest is empty: the writer that creates the dataset is active, or was stopped."""


class VersionNotFoundError(NotFoundError, OSError, ValueError):
    """No such version of the dataset; the message names the existing ones."""


class RefNotFoundError(NotFoundError, OSError, ValueError):
    """No such tag or branch; the message names the closest ones."""


class DataFileMissingError(NotFoundError, ValueError, FileNotFoundError):
    """A manifest names a file that does not exist."""


class FragmentNotFoundError(NotFoundError, ValueError):
    """No such fragment in a version."""


class IndexNotFoundError(NotFoundError, KeyError, RuntimeError, ValueError):
    """No such index; the message names the existing ones."""


class ColumnNotFoundError(NotFoundError, KeyError, ValueError, OSError):
    """No such column; the message names the closest ones."""

    @classmethod
    def among(
        cls,
        name: str,
        known: Iterable[str],
        *,
        where: object,
        words: str = "Column {name} does not exist in {where}",
    ) -> ColumnNotFoundError:
        """Build the message from the requested name and the known ones.

        ``words``: what pylance says in this place.
        """
        said = GlaiveError.did_you_mean(name, list(known), "Columns", most=20)
        return cls(f"{words.format(name=name, where=where)}{said}")


class ExpectationError(GlaiveError, ValueError):
    """Rows violate a condition that a job or a step of a pipeline states; nothing was committed."""


class JobError(GlaiveError, RuntimeError):
    """A cluster lost processes of a job, or stopped it; nothing was committed."""


class FilterError(GlaiveError, ValueError, OSError):
    """A filter or a computed column cannot be understood, or not be computed.

    The message begins with ``Invalid user input``, for which programs look in pylance's errors.
    """

    def __str__(self) -> str:
        text, prefix = super().__str__(), "Invalid user input: "
        return text if prefix in text else prefix + text


class FilterColumnError(FilterError, ColumnNotFoundError):
    """An expression names a column that does not exist; the message names the closest ones."""


class RowIndexError(GlaiveError, IndexError, OverflowError, ValueError, OSError):
    """A row position, id or address is beyond the rows of the dataset."""


class DeletedRowError(RowIndexError, NotImplementedError):
    """The row at an address is deleted."""


class StoreError(GlaiveError, OSError):
    """The file system or object store refused or failed."""

    is_unanswered: bool = False
    """Whether a request to it had no answer, and may still have its effect."""
    is_unsupported: bool = False
    """Whether this kind of store cannot do what it was asked."""


class UnreachableError(StoreError, ValueError):
    """A dataset was not opened, because its store refused or failed."""


class AccessError(StoreError, PermissionError):
    """A dataset names a location outside of its own, and the caller did not allow it."""


class NotForcedError(StoreError):
    """With ``fsync``: others see a file whose name a power failure may undo."""


class ObjectNotFoundError(StoreError, FileNotFoundError):
    """No object under this path."""


class ObjectExistsError(StoreError, FileExistsError):
    """``put`` with mode ``"create"``, but the object exists."""


class MissingDependencyError(GlaiveError, ImportError):
    """A package or program the task needs is not installed; the message says how to get it."""
