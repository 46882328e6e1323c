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
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from glaive.errors import (
    CorruptFileError,
    DatasetNotFoundError,
    ObjectNotFoundError,
    StoreError,
    UnfinishedDatasetError,
)
from glaive.format.paths import (
    DETACHED,
    HINT,
    VERSIONS,
    NamingScheme,
    manifest_path,
    parse_manifest_name,
)
from glaive.io.store import ObjectMeta, ObjectStore
from glaive.table.manifest_store.steps import find
from glaive.table.manifest_store.steps import newest as newest_registered
from glaive.table.root import register_of

__all__ = [
    "ManifestLocation",
    "is_finished",
    "latest",
    "list_manifests",
    "list_versions",
    "locate",
    "newest_name",
    "read_hint",
    "write_hint",
]

_PLAIN_HINT: Final = re.compile(rb'\{"version":([1-9][0-9]{0,18})\}')
"""As hints are written by this and the other library."""

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ManifestLocation:
    """A version and the file that holds its manifest, and its bytes where they are known."""

    version: int
    path: str
    scheme: NamingScheme
    size: int | None = field(default=None, compare=False)

    @property
    def is_detached(self) -> bool:
        """Whether the version is no part of the history."""
        return bool(self.version & DETACHED)


def latest(store: ObjectStore) -> ManifestLocation:
    """The newest version that is finished. A listing, and one look at the file it names.

    Empty manifests are passed over and logged: their writers are at work, or were stopped.

    Raises
    ------
    DatasetNotFoundError, CorruptFileError
        As :func:`newest_name`.
    """
    newest = newest_name(store)
    if is_finished(store, newest):
        return newest
    finished = list_versions(store)
    if not finished:
        raise UnfinishedDatasetError(
            f"no dataset at {store.uri} yet: its only manifest {store.full(newest.path)} is empty. "
            "Its writer is at work, or was stopped; create the dataset once more."
        )
    _logger.warning(
        "version %d of %s is not finished: its manifest %s is empty. Its writer is at work, or was "
        "stopped; version %d is the newest. The next commit takes the place of the empty file.",
        newest.version,
        store.uri,
        store.full(newest.path),
        finished[-1].version,
    )
    return finished[-1]


def is_finished(store: ObjectStore, location: ManifestLocation) -> bool:
    """Whether a manifest has content, if it is there at all. One request unless its size is known.

    One that is registered elsewhere has: what is registered was complete before.
    """
    if location.size is not None or register_of(store) is not None:
        return location.size != 0
    try:
        return store.head(location.path).size > 0
    except ObjectNotFoundError:
        return True  # whoever reads it is told


def newest_name(store: ObjectStore) -> ManifestLocation:
    """The newest version by the names of manifests, of which it may be empty.

    One listing, or one look at the register of manifests if there is one. Web servers list
    nothing: there the hint is where the search begins.

    Raises
    ------
    DatasetNotFoundError
        There is no manifest below the root.
    CorruptFileError
        Manifests are named in both ways.
    """
    newest = _registered(store) or _first_name(store) or _unlisted(store)
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


def locate(store: ObjectStore, version: int, scheme: NamingScheme) -> ManifestLocation:
    """Where the manifest of a version is to be read; whether it is there shows then.

    No request unless manifests are registered elsewhere.
    """
    path = manifest_path(version, scheme)
    register = register_of(store)
    if register is not None and not version & DETACHED:
        path = find(store, register, version, path)
    return ManifestLocation(version, path, scheme)


def _registered(store: ObjectStore) -> ManifestLocation | None:
    """The newest version in the register of manifests."""
    register = register_of(store)
    found = None if register is None else newest_registered(store, register)
    if found is None:
        return None
    version, path = found
    v2 = path.startswith(manifest_path(version, "V2"))  # a staged name goes on behind it
    return ManifestLocation(version, path, "V2" if v2 else "V1")


def _unlisted(store: ObjectStore) -> ManifestLocation | None:
    """The newest version on a web server: the one that the hint names, or a later one.

    Later ones are looked for in steps that double, then halve: 128 requests at most, also where a
    server has an answer for every name.
    """
    if not store.uri.startswith(("http://", "https://")):
        return None
    version = read_hint(store)
    if version is None:
        return None
    schemes: tuple[NamingScheme, ...] = ("V2", "V1")
    scheme = next((naming for naming in schemes if _is_there(store, version, naming)), None)
    if scheme is None:
        return None
    step, ahead = 1, True
    while step:
        later = version + step
        if later < DETACHED and _is_there(store, later, scheme):
            version = later
        else:
            ahead = False
        step = step * 2 if ahead else step // 2
    return ManifestLocation(version, manifest_path(version, scheme), scheme)


def _is_there(store: ObjectStore, version: int, scheme: NamingScheme) -> bool:
    """Whether a version has a manifest that is finished. One request."""
    try:
        return store.head(manifest_path(version, scheme)).size > 0
    except ObjectNotFoundError:
        return False


def _first_name(store: ObjectStore) -> ManifestLocation | None:
    """The newest version of a directory with V2 names: neither sorted nor looked at."""
    # Beside a register a directory is listed with sizes: nothing else tells what is unfinished.
    names = store.names(VERSIONS) if register_of(store) is None else None
    if names is None:
        return None
    first = min(names, default="")
    found = parse_manifest_name(first)
    if found is None or found.scheme == "V1" or found.is_detached:
        return None
    return ManifestLocation(found.version, f"{VERSIONS}/{first}", "V2")


def list_versions(store: ObjectStore) -> list[ManifestLocation]:
    """All versions that are finished, oldest first. One listing; none is an empty list."""
    _registered(store)  # finishes the newest, so that it is listed
    found = [
        location
        for location, meta in list_manifests(store)
        if meta.size and not location.is_detached
    ]
    for location in found:
        if location.scheme != found[0].scheme:
            raise _mixed(store, found[0], location)
    return sorted(found, key=lambda location: location.version)


def list_manifests(store: ObjectStore) -> Iterator[tuple[ManifestLocation, ObjectMeta]]:
    """All manifests, detached and empty ones too, in the order of their names. One listing."""
    for meta in store.list(VERSIONS):
        name = parse_manifest_name(meta.path.rpartition("/")[2])
        if name is not None:
            yield ManifestLocation(name.version, meta.path, name.scheme, meta.size), meta


def _locations(store: ObjectStore) -> Iterator[ManifestLocation]:
    return (location for location, _ in list_manifests(store) if not location.is_detached)


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
        content = store.get(HINT).to_pybytes()
        plain = _PLAIN_HINT.fullmatch(content)
        if plain is not None:
            return int(plain[1])
        found = json.loads(content)
    except ObjectNotFoundError:
        return None
    except (StoreError, ValueError, RecursionError) as error:
        _logger.debug("version hint not read: %s", error)
        return None
    version = found.get("version") if isinstance(found, dict) else None
    return version if isinstance(version, int) and version > 0 else None


def write_hint(store: ObjectStore, version: int) -> None:
    """Name the newest version. One request; a failure is logged, nothing depends on it.

    A directory rewrites the hint in place while its length stays the same: replacing a file
    costs as much as the rest of the commit, and a hint that is misread does no harm.
    """
    content = b'{"version":%d}' % version
    try:
        if not store.rewrite(HINT, content):
            store.put(HINT, [content])
    except StoreError as error:
        _logger.debug("version hint of %s not written: %s", store.uri, error)
