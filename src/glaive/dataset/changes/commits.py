"""The versions between which rows changed, in pairs of neighbours."""

from __future__ import annotations

from collections.abc import Iterator

from glaive.dataclass import dataclass
from glaive.errors import ObjectNotFoundError, OptionError, VersionNotFoundError
from glaive.format.manifest import Manifest
from glaive.format.transaction import Transaction
from glaive.io.store import ObjectStore
from glaive.table.load import load_again, read_transaction
from glaive.table.publishing import Published
from glaive.table.versions import list_versions

__all__ = ["Commit", "CommitSummary", "check_range", "commits", "load_for_changes"]


@dataclass(frozen=True, slots=True)
class CommitSummary:
    """What is remembered of a commit whose manifests are let go of; see :class:`Commit`."""

    version: int
    operation: str | None
    replaced_everything: bool


@dataclass(frozen=True, slots=True)
class Commit:
    """A version and the one before it: ``None`` for the first version."""

    before: Manifest | None
    after: Manifest
    transaction: Transaction | None

    @property
    def version(self) -> int:
        """The version that the commit made."""
        return self.after.version

    @property
    def operation(self) -> str | None:
        """Name of the operation; ``None`` if it is not recorded."""
        return None if self.transaction is None else self.transaction.operation.wire_name

    @property
    def replaced_everything(self) -> bool:
        """Whether no row is one of the version before: an overwrite that published no branch."""
        return self.operation == "overwrite" and Published.of(self.transaction) is None

    @property
    def summary(self) -> CommitSummary:
        """These facts alone."""
        return CommitSummary(self.version, self.operation, self.replaced_everything)


def check_range(start: object, end: object, newest: int) -> tuple[int, int]:
    """The first and last version of a feed, both included; ``end`` defaults to the newest.

    Raises
    ------
    OptionError
        They are no version numbers, or none lies between them.
    """
    first = _version("start_version", start)
    last = newest if end is None else _version("end_version", end)
    for name, number in (("start_version", first), ("end_version", last)):
        if number > newest:
            raise OptionError(f"{name}: the newest version is {newest}, found {number}")
    if first > last:
        raise OptionError(f"start_version {first} comes after end_version {last}")
    return first, last


def _version(name: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise OptionError(f"{name}: expected a version number ≥ 1, found {value!r}")
    return value


def commits(store: ObjectStore, newest: Manifest, start: int, end: int) -> Iterator[Commit]:
    """The commits from version ``start`` to ``end``, in order. One request per version.

    Raises
    ------
    VersionNotFoundError
        One of the versions, or the one before ``start``, was cleaned up; the message names the
        oldest that can be used.
    """
    before = load_for_changes(store, newest, start - 1) if start > 1 else None
    for version in range(start, end + 1):
        after = load_for_changes(store, newest, version)
        yield Commit(before, after, read_transaction(store, after))
        before = after


def load_for_changes(store: ObjectStore, newest: Manifest, version: int) -> Manifest:
    """A version that a change feed needs; errors as for :func:`commits`."""
    if version == newest.version:
        return newest
    try:
        return load_again(store, version, newest.scheme)
    except ObjectNotFoundError:
        raise _missing(store, version) from None


def _missing(store: ObjectStore, version: int) -> VersionNotFoundError:
    left = [location.version for location in list_versions(store)]
    unbroken = left[-1]
    for candidate in reversed(left[:-1]):
        if candidate != unbroken - 1:
            break
        unbroken = candidate
    return VersionNotFoundError(
        f"version {version} of {store.uri} does not exist any more, and changes are found by "
        f"comparing each version with the one before it. The oldest version left is {left[0]}; "
        f"changes can be read from version {unbroken + 1 if unbroken > 1 else 1} on. Read the "
        "rows of a version instead, or keep versions for longer before they are cleaned up"
    )
