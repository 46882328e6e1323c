"""Detached versions: whether one can still become a version of the history.

A detached version gives ids from where the version that it was made from ends, and the history
gives the same ones to other rows and columns. Where both did, going back to the detached version
would have ids mean others than before.

Specification: "Restore" in ``docs/format``.
"""

from __future__ import annotations

from glaive.errors import UnsupportedFeatureError, VersionNotFoundError
from glaive.format.flags import Feature
from glaive.format.manifest import Manifest
from glaive.format.paths import DETACHED
from glaive.io.store import ObjectStore
from glaive.table.load import open_version, read_transaction

__all__ = ["check_ids_not_given"]


def check_ids_not_given(store: ObjectStore, newest: Manifest, restored: Manifest) -> None:
    """Check that a version that is restored gave no ids which the history gave to others.

    Raises
    ------
    UnsupportedFeatureError
        It is detached, and did; or the version that it was made from is not there any more.

    Notes
    -----
    No request unless it is detached and its ids are permanent; else one for the version that it
    was made from, and one for each detached one in between.
    """
    mine, theirs = _given(restored), _given(newest)
    if not restored.version & DETACHED or not any(mine):
        return
    for start, here, there in zip(_given_before(store, restored), mine, theirs, strict=True):
        if start < min(here, there):
            raise UnsupportedFeatureError(
                f"version {restored.version} of {store.uri} is detached, and cannot be restored: "
                "rows or columns of it have ids that the history may have given to others since. "
                "Read it, and overwrite the dataset with its rows instead."
            )


def _given(version: Manifest) -> tuple[int, int]:
    """How many permanent ids of rows and of fields were given, up to a version."""
    rows = version.wire.next_row_id if version.uses(Feature.STABLE_ROW_IDS) else 0
    return rows, version.first_field_id


def _given_before(store: ObjectStore, version: Manifest) -> tuple[int, int]:
    """Ids given up to the version of the history that a detached one was made from.

    None if that is not there any more: then all may be its own.
    """
    seen: set[int] = set()
    while version.version & DETACHED:
        made_by = read_transaction(store, version)
        if made_by is None or version.version in seen:
            return 0, 0
        seen.add(version.version)
        try:
            version = open_version(store, made_by.read_version)
        except VersionNotFoundError:
            return 0, 0
    return _given(version)
