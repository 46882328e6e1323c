"""Which versions of a dataset there are, found by listing.

With V2 names the newest manifest is the first name of the listing, so finding it costs one
request however many versions there are; V1 names are all looked at.

The version hint is never needed to open a dataset. A commit reads it to learn of versions
newer than the one it was made for, and rewrites it when it is done.

Specification: "Finding the latest version" in ``docs/format``.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from dataclasses import dataclass

from glaive.errors import CorruptFileError, DatasetNotFoundError, ObjectNotFoundError, StoreError
from glaive.format.paths import HINT, VERSIONS, NamingScheme, parse_manifest_name
from glaive.io.store import ObjectStore

__all__ = ["ManifestLocation", "latest", "list_versions", "read_hint", "write_hint"]

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ManifestLocation:
    """A version and the file that holds its manifest."""

    version: int
    path: str
    scheme: NamingScheme


def latest(store: ObjectStore) -> ManifestLocation:
    """The newest version. One listing.

    Raises
    ------
    DatasetNotFoundError
        There is no manifest below the root.
    CorruptFileError
        Manifests are named in both ways.
    """
    newest = _first_name(store)
    if newest is not None:
        return newest
    for location in _locations(store):
        if newest is None:
            newest = location
        elif location.scheme != newest.scheme:
            raise _mixed(store, newest, location)
        elif location.version > newest.version:
            newest = location
        if newest.scheme == "V2":
            return newest
    if newest is None:
        raise DatasetNotFoundError(
            f"no dataset at {store.uri}: expected manifests in {VERSIONS}/, found none. "
            "Check the path, or create the dataset with write_dataset."
        )
    return newest


def _first_name(store: ObjectStore) -> ManifestLocation | None:
    """The newest version of a directory with V2 names: neither sorted nor looked at."""
    names = getattr(store, "names", None)
    if names is None:
        return None
    first = min(names(VERSIONS), default="")
    found = parse_manifest_name(first)
    if found is None or found.scheme == "V1" or found.is_detached:
        return None
    return ManifestLocation(found.version, f"{VERSIONS}/{first}", "V2")


def list_versions(store: ObjectStore) -> list[ManifestLocation]:
    """All versions, oldest first. One listing; none is an empty list."""
    found = list(_locations(store))
    for location in found:
        if location.scheme != found[0].scheme:
            raise _mixed(store, found[0], location)
    return sorted(found, key=lambda location: location.version)


def _locations(store: ObjectStore) -> Iterator[ManifestLocation]:
    for meta in store.list(VERSIONS):
        name = parse_manifest_name(meta.path.rpartition("/")[2])
        if name is not None and not name.is_detached:
            yield ManifestLocation(name.version, meta.path, name.scheme)


def _mixed(store: ObjectStore, one: ManifestLocation, other: ManifestLocation) -> CorruptFileError:
    return CorruptFileError(
        "names of manifests",
        expected="one naming scheme",
        found=f"{one.path} and {other.path}",
        where=store.uri,
    )


def read_hint(store: ObjectStore) -> int | None:
    """The version the hint names; ``None`` if there is none to be read. One request.

    A failure is logged: a listing tells the same.
    """
    try:
        found = json.loads(store.get(HINT).to_pybytes())
    except ObjectNotFoundError:
        return None
    except (StoreError, ValueError) as error:
        _logger.debug("version hint of %s not read: %s", store.uri, error)
        return None
    version = found.get("version") if isinstance(found, dict) else None
    return version if isinstance(version, int) and version > 0 else None


def write_hint(store: ObjectStore, version: int) -> None:
    """Name the newest version. One request; a failure is logged, nothing depends on it.

    A directory rewrites the hint in place while its length stays the same: replacing a file
    costs as much as the rest of the commit, and a hint that is misread does no harm.
    """
    content = b'{"version":%d}' % version
    rewrite = getattr(store, "rewrite", None)
    try:
        if rewrite is None or not rewrite(HINT, content):
            store.put(HINT, [content])
    except StoreError as error:
        _logger.debug("version hint of %s not written: %s", store.uri, error)
