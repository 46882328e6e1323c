"""Jobs that were named by their callers: which of them have made a version.

The commit of one has its name as a property, and the number of the version is entered in the table
metadata of this version. All writers keep the table metadata, so the newest manifest says which
version each of the last jobs made, whatever was committed or cleaned up since. Names are used once:
so the oldest entries are removed, and only a job that a longer time ago was stopped while it
committed is looked for in the versions that were made then.

Specification: "Transaction" in ``docs/format``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, Self

from glaive.dataclass import dataclass
from glaive.errors import CorruptFileError, OptionError
from glaive.format.manifest import Manifest
from glaive.format.pb import table_pb2
from glaive.io.store import ObjectStore
from glaive.table.load import find_transaction

# --- Transactions of applications: which of them a dataset has applied ------------------
# An application, such as a stream, numbers its transactions. The commit of one has its application
# and its number as properties, and the number is entered in the table metadata of the version that
# the commit makes. All writers keep the table metadata, so the newest manifest says which number
# of each application was applied last, whatever was committed or cleaned up since.
#
# Specification: "Transaction" in ``docs/format``.

_APP_ID: Final = "glaive.txn.app"
_VERSION: Final = "glaive.txn.version"
LAST: Final = "glaive.txn.last:"
"""Prefix of the entries of the table metadata; the application follows."""

_HIGHEST: Final = 2**63 - 1


@dataclass(frozen=True, slots=True)
class AppTransaction:
    """One transaction of an application: it is applied at most once.

    Parameters
    ----------
    app_id
        The application, unique for all writers of the dataset.
    version
        Number of the transaction, ≥ 0; each one is higher than those before.

    Raises
    ------
    OptionError
        There is no name, or the number is none.
    """

    app_id: str
    version: int

    def __post_init__(self) -> None:
        name: object = self.app_id
        number: object = self.version
        if not (isinstance(name, str) and name):
            raise OptionError(f"txn: expected the name of an application, found {name!r}")
        if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number <= _HIGHEST:
            raise OptionError(
                f"txn: expected a number from 0 to 2^63 - 1 for {self.app_id!r}, found {number!r}"
            )

    @property
    def properties(self) -> dict[str, str]:
        """Properties of the transaction that is committed."""
        return {_APP_ID: self.app_id, _VERSION: str(self.version)}

    @classmethod
    def of(cls, properties: Mapping[str, str]) -> Self | None:
        """The transaction of an application that has these properties, if any."""
        app_id, version = properties.get(_APP_ID), properties.get(_VERSION, "")
        if not app_id or not (version.isascii() and version.isdecimal() and len(version) < 20):
            return None
        return cls(app_id, int(version))

    def is_applied(self, manifest: Manifest) -> bool:
        """Whether a version has this transaction, or a later one of the application."""
        last = last_applied(manifest, self.app_id)
        return last is not None and last >= self.version

    def record(self, wire: table_pb2.ManifestOutline) -> None:
        """Enter the number in a version that is being made."""
        wire.table_metadata[LAST + self.app_id] = str(self.version)


def last_applied(manifest: Manifest, app_id: str) -> int | None:
    """Number of the last transaction of an application; ``None`` if there is none.

    Raises
    ------
    CorruptFileError
        The entry is no number.
    """
    text = manifest.wire.table_metadata.get(LAST + app_id)
    if text is None:
        return None
    if not (text.isascii() and text.isdecimal() and len(text) < 20):
        raise CorruptFileError(
            f"last transaction of {app_id!r} in the table metadata",
            expected="a number",
            found=f"{text!r:.60}",
            where=manifest.where,
        )
    return int(text)


_NAME: Final = "glaive.job.named"
_MADE: Final = "glaive.job.made:"
"""Prefix of the entries of the table metadata; the name follows."""

MOST: Final = 16
"""Jobs that a manifest knows."""


@dataclass(frozen=True, slots=True)
class NamedJob:
    """A job that makes one version, however often it runs.

    Parameters
    ----------
    name
        Unique for all jobs of the dataset.
    """

    name: str

    @property
    def properties(self) -> dict[str, str]:
        """Properties of the transaction that is committed."""
        return {_NAME: self.name}

    @classmethod
    def of(cls, properties: Mapping[str, str]) -> Self | None:
        """The job that has these properties, if any."""
        name = properties.get(_NAME)
        return cls(name) if name else None

    def is_applied(self, manifest: Manifest) -> bool:
        """Whether this version, or one before, is that of the job."""
        return made_version(manifest, self.name) is not None

    def record(self, wire: table_pb2.ManifestOutline) -> None:
        """Enter the version that is being made, and remove the oldest entries."""
        wire.table_metadata[_MADE + self.name] = str(wire.version)
        entries = _entries(wire.table_metadata)
        for name in sorted(entries, key=entries.__getitem__)[:-MOST]:
            del wire.table_metadata[name]


@dataclass(frozen=True, slots=True)
class CommitMarks:
    """What a commit enters in the table metadata, so that it is made once."""

    marks: tuple[AppTransaction | NamedJob, ...]

    @classmethod
    def of(cls, properties: Mapping[str, str]) -> Self:
        """Those of a transaction with these properties."""
        found = AppTransaction.of(properties), NamedJob.of(properties)
        return cls(tuple(mark for mark in found if mark is not None))

    def are_applied(self, manifest: Manifest) -> bool:
        """Whether a version has one of them."""
        return any(mark.is_applied(manifest) for mark in self.marks)

    def record(self, wire: table_pb2.ManifestOutline) -> None:
        """Enter all in a version that is being made."""
        for mark in self.marks:
            mark.record(wire)


def is_mark(key: str) -> bool:
    """Whether commits enter this key in the table metadata, so that they are made once."""
    return key.startswith((LAST, _MADE))


def made_version(manifest: Manifest, job: str) -> int | None:
    """The version that a job made, if it is one of the last that did; no request."""
    return _number(manifest.wire.table_metadata.get(_MADE + job, ""))


def forgotten_until(manifest: Manifest) -> int:
    """The last version whose job, if it had one, may not be in the manifest; 0 if all are."""
    entries = _entries(manifest.wire.table_metadata)
    return min(entries.values()) - 1 if len(entries) >= MOST else 0


def renumber(wire: table_pb2.ManifestOutline, counterpart: Callable[[int], int]) -> None:
    """Give the versions of jobs the numbers that they have where a version is published."""
    for name, number in _entries(wire.table_metadata).items():
        wire.table_metadata[name] = str(counterpart(number))


def search_forgotten(
    store: ObjectStore, newest: Manifest, key: str, job: str, begun: Callable[[], int | None]
) -> tuple[int | None, range]:
    """The version of a job, also if it is none of the last.

    Parameters
    ----------
    key
        The property of transactions that names jobs.
    begun
        The version after which a run of the job began to commit; ``None`` if none did. Called only
        if the manifest does not tell.

    Returns
    -------
    tuple
        The version, if it was found; and the versions that were searched one by one.

    Notes
    -----
    No request where the manifest tells; else one for each of these versions.
    """
    made, until = made_version(newest, job), forgotten_until(newest)
    since = begun() if made is None and until else None
    if since is None or since >= until:
        return made, range(0)
    found = find_transaction(store, since, key, job, until=until, known=newest.version)
    return None if found is None else found.version, range(since + 1, until + 1)


def _entries(metadata: Mapping[str, str]) -> dict[str, int]:
    """The entries of jobs, with their versions."""
    return {
        name: number
        for name, text in metadata.items()
        if name.startswith(_MADE) and (number := _number(text)) is not None
    }


def _number(text: str) -> int | None:
    """A version; what is none was not written by a commit."""
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 20 else None
