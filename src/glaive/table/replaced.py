"""Notice that a dataset was deleted and another one made in its place since a version was read.

A commit that builds on that version would refer to files which were deleted, and may leave a hole
before its own version.

The usual commit pays no request for this: the versions that the hint knows, and on a local disk the
transaction file of the version, whose name no other dataset has, tell whether to look closer.
"""

from __future__ import annotations

from contextlib import suppress

from glaive.errors import CommitConflictError, ObjectNotFoundError, VersionNotFoundError
from glaive.format.manifest import Manifest
from glaive.format.paths import transaction_path
from glaive.io.store import ObjectStore
from glaive.table.load import load_manifest, load_numbered, open_version
from glaive.table.versions import latest
from glaive.types import VersionIdentity

__all__ = ["check_not_replaced", "check_same", "is_same", "open_same", "replaced"]


def check_not_replaced(store: ObjectStore, base: Manifest, reach: int = 0) -> None:
    """Check that a version read earlier is one of the dataset that is there now.

    One request without ``reach``, and up to four if the version is missing. With it none if it is
    the version itself, the newest one believed to exist, whose transaction file is not known to be
    missing; nor for earlier versions on a local disk, if that file is there.

    A version that is missing, but has later ones, was cleaned up: that is no error here.

    Raises
    ------
    CommitConflictError
        Another dataset is there.
    """
    name = base.wire.transaction_file
    removed = bool(name) and store.is_free(transaction_path(name))
    is_there = bool(name) and not removed and store.is_local
    if not removed and (reach == base.version or (reach > base.version and is_there)):
        return
    try:
        there = load_numbered(store, base.version, base.scheme)
    except ObjectNotFoundError:
        if reach > base.version or _is_of_history(store, base):
            return
    else:
        if is_same(there, base):
            return
    raise replaced(store, base.version)


def is_same(there: Manifest, known: Manifest) -> bool:
    """Whether a version that is read again is the one that was read before."""
    return there.identity == known.identity


def open_same(store: ObjectStore, identity: VersionIdentity) -> Manifest:
    """A version that was opened before, maybe by another process. As many requests as for a number.

    Raises
    ------
    VersionNotFoundError
        It was cleaned up, or another dataset is there.
    """
    there = open_version(store, identity[0])
    check_same(there, identity)
    return there


def check_same(there: Manifest, identity: VersionIdentity) -> None:
    """Check that a version is the one that was opened before.

    Raises
    ------
    VersionNotFoundError
        Another dataset is there.
    """
    if there.identity != identity:
        raise VersionNotFoundError(
            f"version {identity[0]} of {there.where} is not the one that was opened before: the "
            "dataset was deleted, and another one made in its place. Open the dataset again."
        )


def _is_of_history(store: ObjectStore, base: Manifest) -> bool:
    """Whether a version without a manifest by its name was cleaned up, or has another name by now.

    Up to three requests, as a listing may be stale.
    """
    newest = latest(store)
    if newest.version > base.version:
        return True
    with suppress(ObjectNotFoundError):
        if newest.version == base.version and newest.scheme != base.scheme:  # it was renamed
            return is_same(load_manifest(store, newest), base)
        load_numbered(store, base.version + 1, newest.scheme)
        return True
    return False


def replaced(store: ObjectStore, version: int) -> CommitConflictError:
    """The error for a version that the dataset which is there now does not have."""
    return CommitConflictError(
        f"version {version} of {store.uri}, which this change was made for, is no version of the "
        "dataset that is there now: the dataset was deleted, and another one made in its place. "
        "Nothing was committed. Open the dataset again, and repeat the change.",
        retryable=False,
        version=version,
    )
