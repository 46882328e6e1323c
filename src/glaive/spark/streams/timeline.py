"""The versions of a dataset as a stream sees them: rows of each, and where it starts."""

from __future__ import annotations

from datetime import datetime

from glaive.dataset.changes.commits import Commit, load_for_changes
from glaive.dataset.changes.plan import plan_commit, plan_snapshot
from glaive.dataset.changes.task_list import ChangeTasks
from glaive.errors import ObjectNotFoundError, OptionError
from glaive.format.manifest import Manifest
from glaive.io.store import ObjectStore
from glaive.spark.streams.offsets import Position
from glaive.spark.streams.options import StreamOptions
from glaive.table.load import (
    describe_versions,
    load_numbered,
    open_latest_since,
    read_transaction,
)
from glaive.types import VersionIdentity

__all__ = ["Timeline", "end_version", "first_since"]

_KEPT_PLANS = 16
"""Versions whose tasks are kept between planning a batch and reading it."""


class Timeline:
    """Plans the tasks of each version; keeps the plans of the last ones.

    Parameters
    ----------
    store
        Root of the dataset.
    options
        Options of the stream.
    """

    def __init__(self, store: ObjectStore, options: StreamOptions) -> None:
        self._store = store
        self._options = options
        self._newest: Manifest | None = None
        self._before: Manifest | None = None
        self._plans: dict[tuple[int, bool], ChangeTasks] = {}

    def newest(self, known: int = 0) -> int:
        """Number of the newest version, none before ``known``. One or two requests."""
        return self._look(known).version

    def _look(self, known: int) -> Manifest:
        self._newest = None  # let go of before the next is read: each lists all fragments
        self._newest = open_latest_since(self._store, known)
        return self._newest

    def identity(self, number: int) -> VersionIdentity | None:
        """What a version that was planned is recognised by; at most one request.

        ``None`` if there is no such version, or none any more.
        """
        for known in (self._newest, self._before):
            if known is not None and known.version == number:
                return known.identity
        return self.identity_there(number)

    def identity_there(self, number: int) -> VersionIdentity | None:
        """The same of the version of this number that is there now.

        One request, or none for the newest, which was looked at before each batch.
        """
        newest = self._newest or self._look(number)
        if newest.version == number:
            return newest.identity
        try:
            return load_numbered(self._store, number, newest.scheme).identity
        except ObjectNotFoundError:
            return None

    def tasks(self, position: Position) -> ChangeTasks:
        """The tasks of the version of a position.

        Raises
        ------
        VersionNotFoundError
            It was cleaned up, or the version before it.
        OptionError
            It updates or deletes rows, and no option says what to do.
        """
        key = (position.version, position.snapshot)
        found = self._plans.get(key)
        if found is None:
            found = self._snapshot(key[0]) if position.snapshot else self._changes(key[0])
            # Whether columns were replaced since is not known without reading more versions.
            found = found.knowing_fields(None)
            while len(self._plans) >= _KEPT_PLANS:
                del self._plans[next(iter(self._plans))]
            self._plans[key] = found
        return found

    def _snapshot(self, version: int) -> ChangeTasks:
        self._before = self._load(version)
        return plan_snapshot(self._before)

    def _changes(self, version: int) -> ChangeTasks:
        before = self._before
        if version > 1 and (before is None or before.version != version - 1):
            before = self._load(version - 1)
        after = self._load(version)
        transaction = read_transaction(self._store, after)
        commit = Commit(before if version > 1 else None, after, transaction)
        self._before = after
        return self._selected(commit, plan_commit(commit))

    def _selected(self, commit: Commit, tasks: ChangeTasks) -> ChangeTasks:
        """The tasks of a commit that belong to the stream."""
        options = self._options
        sides = {group.template.after for group in tasks.groups}
        if options.read_change_feed or False not in sides:
            return tasks
        if options.skip_change_commits:
            return ChangeTasks()
        if True not in sides:
            if options.ignore_deletes:
                return ChangeTasks()
            what, remedy = (
                "deletes",
                "ignoreDeletes or skipChangeCommits to leave them out",
            )
        else:
            what, remedy = "updates or deletes", "skipChangeCommits to leave them out"
        raise OptionError(
            f"version {commit.version} of {self._store.uri} {what} rows ({commit.operation}), and "
            f"the stream reads new rows only. Set the option {remedy}, or readChangeFeed for a "
            "stream of changes, which needs a new checkpoint"
        )

    def _load(self, version: int) -> Manifest:
        newest = self._newest
        if newest is None or newest.version < version:
            newest = self._newest = open_latest_since(self._store, version)
        return load_for_changes(self._store, newest, version)


def first_since(store: ObjectStore, text: str) -> int:
    """Number of the first version created at or after a point in time. One request per version.

    Raises
    ------
    OptionError
        There is none, or ``text`` is no point in time.
    """
    moment = _moment("startingTimestamp", text)
    versions = describe_versions(store)
    for version in versions:
        if version.timestamp >= moment:
            return version.version
    raise OptionError(
        f"startingTimestamp: no version of {store.uri} was created at or after {moment}; the "
        f"newest one was at {versions[-1].timestamp}. Use startingVersion=latest for later ones"
    )


def end_version(store: ObjectStore, options: StreamOptions, newest: int) -> int:
    """Number of the last version of a change feed that is no stream.

    Raises
    ------
    OptionError
        No version was created up to that time.
    """
    if options.ending_version is not None:
        return options.ending_version
    if options.ending_timestamp is None:
        return newest
    moment = _moment("endingTimestamp", options.ending_timestamp)
    until = [one.version for one in describe_versions(store) if one.timestamp <= moment]
    if not until:
        raise OptionError(f"endingTimestamp: no version of {store.uri} is as old as {moment}")
    return until[-1]


def _moment(name: str, text: str) -> datetime:
    try:
        return datetime.fromisoformat(text).astimezone()
    except ValueError:
        raise OptionError(
            f"option {name}: expected a time such as 2026-05-01T12:00:00Z, found {text!r}"
        ) from None
