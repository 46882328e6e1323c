"""Describe versions, and find them by number or time."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from glaive.errors import OptionError, VersionNotFoundError
from glaive.format.manifest import Manifest
from glaive.format.paths import NamingScheme
from glaive.io.store import ObjectStore
from glaive.table.load import VersionInfo, describe_versions, open_version
from glaive.types import integer_of

# --- Points in time and durations as users write them -----------------------------------


def sanitize_ts(ts: object) -> datetime:
    """A point in time as a ``datetime``.

    Parameters
    ----------
    ts
        A ``datetime`` (also pandas' ``Timestamp``), or a text in ISO format.

    Raises
    ------
    OptionError
        It is no point in time.
    """
    if isinstance(ts, str):
        try:
            return datetime.fromisoformat(ts)
        except ValueError as error:
            raise OptionError(f"Failed to parse timestamp string {ts}: {error}") from error
    if hasattr(ts, "to_pydatetime"):
        ts = ts.to_pydatetime()
    if not isinstance(ts, datetime):
        raise OptionError(f"Unrecognized version timestamp {ts} of type {type(ts).__name__}")
    return ts


def td_to_micros(td: timedelta) -> int:
    """Microseconds of a duration."""
    return td // timedelta(microseconds=1)


def describe(manifest: Manifest) -> dict[str, Any]:
    """One version: ``version``, ``timestamp`` (local, naive), ``metadata``."""
    return _described(VersionInfo.of(manifest))


def describe_all(store: ObjectStore) -> list[dict[str, Any]]:
    """All versions, oldest first, each as from :func:`describe`."""
    return [_described(version) for version in describe_versions(store)]


def _described(version: VersionInfo) -> dict[str, Any]:
    return {
        "version": version.version,
        "timestamp": version.timestamp.astimezone().replace(tzinfo=None),
        "metadata": version.metadata,
    }


def find_version(
    store: ObjectStore, version: object, scheme: NamingScheme | None = None
) -> Manifest:
    """The manifest of a version by number.

    Raises
    ------
    VersionNotFoundError
        There is no such version.
    OptionError
        It is not an integer.
    """
    number = integer_of(version)
    if number is None:
        raise OptionError(f"version must be an integer or a string, found {version!r:.80}")
    return open_version(store, number, scheme=scheme)


def version_as_of(store: ObjectStore, asof: object) -> int:
    """Number of the newest version created before a point in time.

    Parameters
    ----------
    asof
        ``datetime`` (local time unless it has a time zone) or a string in ISO format.

    Raises
    ------
    VersionNotFoundError
        There is no older version.
    OptionError
        The argument is no point in time.
    """
    try:
        moment = sanitize_ts(asof).astimezone()
    except (OptionError, ValueError, OverflowError):  # times near the years 1 and 9999
        raise OptionError(
            f"asof: expected a datetime or a string like 2026-05-01, found {asof!r}"
        ) from None
    versions = describe_versions(store)
    before = [version.version for version in versions if version.timestamp < moment]
    if not before:
        first = f"; the first one was created at {versions[0].timestamp}" if versions else ""
        raise VersionNotFoundError(
            f"no version of {store.uri} before {moment}, which is earlier than the first version "
            f"of this dataset{first}"
        )
    return before[-1]
