"""Jobs with a name from their caller, and the versions that they made.

The commit of such a job has its name as a property. The table metadata of the new version records
the number of this version. All writers keep the table metadata. So the newest manifest shows the
version of each of the last jobs, whatever was committed or cleaned up since. Names are used once,
so the oldest entries are removed. glaive searches older versions only for a job that was stopped
during its commit a longer time ago.

Specification: "Numbered transactions and named jobs" in ``docs/format/commits.md``.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Final, Self

from glaive.dataclass import dataclass
from glaive.errors import CommitConflictError, CorruptFileError, OptionError
from glaive.format.manifest import Manifest
from glaive.format.pb import table_pb2
from glaive.io.store import ObjectStore
from glaive.table.configuration import NEXT_NUMBER, next_number
from glaive.table.load import find_transaction

# --- Transactions of applications that a dataset has applied ----------------------------
# An application, such as a stream, numbers its transactions. The commit of a transaction has its
# application and number as properties. The table metadata of the new version records the number.
# All writers keep the table metadata. So the newest manifest shows the last number of each
# application, whatever was committed or cleaned up since.
#
# Specification: "Numbered transactions and named jobs" in ``docs/format/commits.md``.

_APP_ID: Final = "glaive.txn.app"
_VERSION: Final = "glaive.txn.version"
LAST: Final = "glaive.txn.last:"
"""Prefix of entries of the table metadata, before the application."""

_MAX_INT64: Final = 2**63 - 1


@dataclass(frozen=True, slots=True)
class AppTransaction:
    """One transaction of an application: it is applied at most once.

    Parameters
    ----------
    app_id
        The application, unique among all writers of the dataset.
    version
        Number of the transaction, ≥ 0 and higher than all earlier numbers.

    Raises
    ------
    OptionError
        The name is missing, or the number is invalid.
    """

    app_id: str
    version: int

    def __post_init__(self) -> None:
        name: object = self.app_id
        number: object = self.version
        if not (isinstance(name, str) and name):
            raise OptionError(f"txn: expected the name of an application, found {name!r}")
        if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number <= _MAX_INT64:
            raise OptionError(
                f"txn: expected a number from 0 to 2^63 - 1 for {self.app_id!r}, found {number!r}"
            )

    @property
    def properties(self) -> dict[str, str]:
        """Properties of the transaction to commit."""
        return {_APP_ID: self.app_id, _VERSION: str(self.version)}

    @classmethod
    def of(cls, properties: Mapping[str, str]) -> Self | None:
        """Return the transaction of an application with these properties, if any."""
        app_id, version = properties.get(_APP_ID), properties.get(_VERSION, "")
        if not app_id or not (version.isascii() and version.isdecimal() and len(version) < 20):
            return None
        return cls(app_id, int(version))

    def is_applied(self, manifest: Manifest) -> bool:
        """Return whether a version has this transaction, or a later one of the application."""
        last = last_applied(manifest, self.app_id)
        return last is not None and last >= self.version

    def record(self, wire: table_pb2.ManifestOutline) -> None:
        """Record the number in a version that is being made."""
        wire.table_metadata[LAST + self.app_id] = str(self.version)


def last_applied(manifest: Manifest, app_id: str) -> int | None:
    """Return the number of the last transaction of an application, or ``None``.

    Raises
    ------
    CorruptFileError
        The entry is invalid.
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
"""Prefix of entries of the table metadata, before the name."""

MAX_JOBS: Final = 16
"""Number of jobs that a manifest records."""


@dataclass(frozen=True, slots=True)
class NamedJob:
    """A job that makes one version, however often it runs.

    Parameters
    ----------
    name
        Name of the job, unique among all jobs of the dataset.
    """

    name: str

    @property
    def properties(self) -> dict[str, str]:
        """Properties of the transaction to commit."""
        return {_NAME: self.name}

    @classmethod
    def of(cls, properties: Mapping[str, str]) -> Self | None:
        """Return the job with these properties, if any."""
        name = properties.get(_NAME)
        return cls(name) if name else None

    def is_applied(self, manifest: Manifest) -> bool:
        """Return whether the job made this version or an earlier one."""
        return made_version(manifest, self.name) is not None

    def record(self, wire: table_pb2.ManifestOutline) -> None:
        """Record the version that is being made, and remove the oldest entries."""
        wire.table_metadata[_MADE + self.name] = str(wire.version)
        entries = _entries(wire.table_metadata)
        for name in sorted(entries, key=entries.__getitem__)[:-MAX_JOBS]:
            del wire.table_metadata[name]


_LOAD: Final = "glaive.load"
_AFTER: Final = "glaive.load.after"
_LAST_LOAD: Final = "glaive.load.last"
"""Entry of the table metadata."""


@dataclass(frozen=True, slots=True)
class Load:
    """A load of files that no earlier load has, committed only directly after the load it knows.

    Parameters
    ----------
    id
        Id of the load, unique among all loads of the dataset.
    after
        Id of the last load that was committed before; empty for the first.
    """

    id: str
    after: str

    @property
    def properties(self) -> dict[str, str]:
        """Properties of the transaction to commit."""
        return {_LOAD: self.id, _AFTER: self.after}

    @classmethod
    def of(cls, properties: Mapping[str, str]) -> Self | None:
        """Return the load with these properties, if any."""
        name = properties.get(_LOAD)
        return cls(name, properties.get(_AFTER, "")) if name else None

    def is_applied(self, manifest: Manifest) -> bool:
        """Return whether this load, or another one since ``after``, was committed."""
        return last_load(manifest) != self.after

    def record(self, wire: table_pb2.ManifestOutline) -> None:
        """Record the load in a version that is being made."""
        wire.table_metadata[_LAST_LOAD] = self.id


def last_load(manifest: Manifest | None) -> str:
    """Return the id of the last load of a version; empty before the first load."""
    return "" if manifest is None else str(manifest.wire.table_metadata.get(_LAST_LOAD, ""))


_NUMBERED: Final = "glaive.identity"


@dataclass(frozen=True, slots=True)
class Numbered:
    """The rows that a commit numbers, for each identity column: the next row before and after.

    Two commits that began with the same row gave it the same value, so one of them fails.
    """

    rows: Mapping[str, tuple[int, int]]

    @property
    def properties(self) -> dict[str, str]:
        """Properties of the transaction to commit."""
        return {_NUMBERED: json.dumps(self.rows)} if self.rows else {}

    @classmethod
    def of(cls, properties: Mapping[str, str]) -> Self | None:
        """Return the numbered rows of a transaction with these properties, if any."""
        text = properties.get(_NUMBERED)
        return None if text is None else cls(json.loads(text))

    def is_applied(self, manifest: Manifest) -> bool:  # as of other marks
        """Return False: the same rows can be numbered again."""
        return False

    def record(self, wire: table_pb2.ManifestOutline) -> None:
        """Record the next rows in a version that is being made.

        Raises
        ------
        CommitConflictError
            Another commit has numbered rows since.
        """
        for key, (first, following) in self.rows.items():
            found = next_number(wire.table_metadata, key)
            if found != first:
                raise CommitConflictError(
                    f"another writer has committed values of the identity column since: the next "
                    f"row is number {found}, and these rows begin with {first}. Nothing was "
                    "committed; read the newest version and write the rows again.",
                    version=wire.version - 1,
                )
            wire.table_metadata[NEXT_NUMBER + key] = str(following)


def keep_numbers(wire: table_pb2.ManifestOutline, newest: Manifest) -> None:
    """Number rows of an older version, or of a branch, after all rows of the newest version."""
    for key in newest.wire.table_metadata:
        if key.startswith(NEXT_NUMBER):
            token = key.removeprefix(NEXT_NUMBER)
            both = wire.table_metadata, newest.wire.table_metadata
            wire.table_metadata[key] = str(max(next_number(one, token) for one in both))


@dataclass(frozen=True, slots=True)
class CommitMarks:
    """The marks that a commit records in the table metadata, so that it is made once."""

    marks: tuple[AppTransaction | NamedJob | Load | Numbered, ...]

    @classmethod
    def of(cls, properties: Mapping[str, str]) -> Self:
        """Return the marks of a transaction with these properties."""
        found = (kind.of(properties) for kind in (AppTransaction, NamedJob, Load, Numbered))
        return cls(tuple(mark for mark in found if mark is not None))

    def are_applied(self, manifest: Manifest) -> bool:
        """Return whether a version has one of the marks."""
        return any(mark.is_applied(manifest) for mark in self.marks)

    def record(self, wire: table_pb2.ManifestOutline) -> None:
        """Record all marks in a version that is being made."""
        for mark in self.marks:
            mark.record(wire)


def is_mark(key: str) -> bool:
    """Return whether a key of the table metadata is such a mark."""
    return key == _LAST_LOAD or key.startswith((LAST, _MADE, NEXT_NUMBER))


def made_version(manifest: Manifest, job: str) -> int | None:
    """Return the version that a job made, if it is one of the last jobs; use the manifest only."""
    return _number(manifest.wire.table_metadata.get(_MADE + job, ""))


def forgotten_until(manifest: Manifest) -> int:
    """Return the last version whose job the manifest may have forgotten; 0 if it has all."""
    entries = _entries(manifest.wire.table_metadata)
    return min(entries.values()) - 1 if len(entries) >= MAX_JOBS else 0


def renumber(wire: table_pb2.ManifestOutline, counterpart: Callable[[int], int]) -> None:
    """Renumber the versions of jobs to the branch where a version is published."""
    for name, number in _entries(wire.table_metadata).items():
        wire.table_metadata[name] = str(counterpart(number))


def search_forgotten(
    store: ObjectStore, newest: Manifest, key: str, job: str, begun: Callable[[], int | None]
) -> tuple[int | None, range]:
    """Return the version of a job, also of an older job.

    Parameters
    ----------
    key
        The property of transactions that names jobs.
    begun
        Returns the newest version when a run of the job began to commit, if one did. Called only if
        the manifest lacks the answer.

    Returns
    -------
    tuple
        The version, if found; and the versions that were searched one by one.

    Notes
    -----
    Makes one request per searched version.
    """
    made, until = made_version(newest, job), forgotten_until(newest)
    since = begun() if made is None and until else None
    if since is None or since >= until:
        return made, range(0)
    found = find_transaction(store, since, key, job, until=until, known=newest.version)
    return None if found is None else found.version, range(since + 1, until + 1)


def _entries(metadata: Mapping[str, str]) -> dict[str, int]:
    """Return the entries of jobs, with their versions."""
    return {
        name: number
        for name, text in metadata.items()
        if name.startswith(_MADE) and (number := _number(text)) is not None
    }


def _number(text: str) -> int | None:
    """Return a version; ``None`` for foreign text."""
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 20 else None
