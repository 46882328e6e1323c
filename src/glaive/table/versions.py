"""Find the versions of a dataset by listing.

With V2 names the newest manifest is the first file in the listing. Finding it costs one request for
any number of versions. With V1 names all manifests are listed.

Specification: "Finding the latest version" in ``docs/format``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import field
from typing import Final

from glaive.dataclass import dataclass
from glaive.errors import (
    CleanupError,
    CorruptFileError,
    DatasetNotFoundError,
    ObjectNotFoundError,
    StoreError,
    UnfinishedDatasetError,
)
from glaive.format.manifest import Manifest
from glaive.format.paths import (
    DETACHED,
    HINT,
    VERSIONS,
    NamingScheme,
    manifest_path,
    parse_manifest_name,
)
from glaive.io.store import ObjectMeta, ObjectStore, find_object
from glaive.process import now_ns
from glaive.table.root import register_of

# --- The version hint of a dataset: a number, at or before the newest version -----------
# It is not needed to open a dataset. A commit reads it to find versions newer than the version that
# it has read, and updates it at the end. A clean-up updates it before it deletes versions.
#
# Specification: "Finding the latest version" in ``docs/format``.

_PLAIN_HINT: Final = rb'\{"version":([1-9][0-9]{0,17})\}'
"""Hints as written by glaive and pylance."""


def read_hint(store: ObjectStore) -> int | None:
    """Return the version in the hint; ``None`` if it is missing or invalid. One request.

    Raises
    ------
    StoreError
        The store failed. Only the hint may know the newest version: a listing may be stale, and
        clean-up may have removed the versions before it.
    """
    import json

    try:
        content = store.get(HINT).to_pybytes()
        plain = re.fullmatch(_PLAIN_HINT, content)
        if plain is not None:
            return int(plain[1])
        hint = json.loads(content)
    except ObjectNotFoundError:
        return None
    except (ValueError, RecursionError) as error:
        import logging

        logging.getLogger(__name__).debug(
            "version hint of %s says nothing: %s", store.public_uri, error
        )
        return None
    version = hint.get("version") if isinstance(hint, dict) else None
    if not isinstance(version, int) or isinstance(version, bool):
        return None
    return version if 0 < version < DETACHED else None  # a detached version is outside the history


def write_hint(store: ObjectStore, version: int) -> None:
    """Update the hint after a commit, in one request. Log failures, as the version exists."""
    try:
        _put_hint(store, version)
    except StoreError as error:
        import logging

        logging.getLogger(__name__).debug(
            "version hint of %s not written: %s", store.public_uri, error
        )


def _put_hint(store: ObjectStore, version: int) -> None:
    """Write the hint.

    In a local directory, a hint of the same length is overwritten in place. Replacing the file
    would cost as much as the rest of the commit. Misreading the hint is harmless there.
    """
    content = b'{"version":%d}' % version
    if not store.rewrite(HINT, content):
        store.put(HINT, [content])


def advance_hint(store: ObjectStore, version: int) -> None:
    """Advance the hint to a version, unless it names a later version. One or two requests.

    Call it before you delete versions, because their writers may have ended before they updated
    the hint. A commit for an old version looks for newer versions only if the hint is later.

    Raises
    ------
    StoreError
        The store failed, so all versions must stay.
    """
    if (read_hint(store) or 0) < version:
        _put_hint(store, version)


MAX_UNLISTED: Final = 10_000
"""Most versions, or files of a folder, made while a listing is stale: some seconds."""

_PAGE: Final = 990
"""Manifests in the first page of a listing; other files fill the rest of the page."""

_LATE_SECONDS: Final = 60
"""Age of a version. If it is older, later versions may have been made and cleaned up."""


@dataclass(frozen=True, slots=True)
class ManifestLocation:
    """A version and the path of its manifest; ``size`` is its bytes, if known."""

    version: int
    path: str
    scheme: NamingScheme
    size: int | None = field(default=None, compare=False)

    @property
    def is_detached(self) -> bool:
        """Whether the version is outside the history."""
        return bool(self.version & DETACHED)


def latest(store: ObjectStore) -> ManifestLocation:
    """Return the newest complete version. Cost: a listing, and one request for the file.

    ``latest`` skips and logs empty manifests of active or interrupted writers. It raises the
    errors of :func:`newest_name`.
    """
    newest = newest_name(store)
    if is_finished(store, newest):
        return newest
    finished = list_versions(store)
    if not finished:
        raise UnfinishedDatasetError(
            f"no dataset at {store.uri} yet: its only manifest {store.full(newest.path)} is empty. "
            "Its writer is active or was interrupted; create the dataset again."
        )
    import logging

    logging.getLogger(__name__).warning(
        "version %d of %s is incomplete: its manifest %s is empty. Its writer is active or was "
        "interrupted; version %d is the newest. The next commit replaces the empty file.",
        newest.version,
        store.public_uri,
        newest.path,
        finished[-1].version,
    )
    return finished[-1]


def is_finished(store: ObjectStore, location: ManifestLocation) -> bool:
    """Return whether a manifest has bytes, or is missing. One request if its size is unknown.

    Registered manifests are always complete.
    """
    if location.size is not None or register_of(store) is not None:
        return location.size != 0
    there = find_object(store, location.path)
    return there is None or there.size > 0  # reading what is missing will fail


def newest_name(store: ObjectStore) -> ManifestLocation:
    """Return the newest version by the names of manifests; its manifest may be empty.

    Cost: one listing, or one query of the register of manifests if there is one. If the listing is
    sorted, its first page is enough. Web servers lack listings, so there the search starts at the
    hint. It also starts at the hint if a listing over a network is empty, because the listing may
    be stale.

    Raises
    ------
    DatasetNotFoundError
        The dataset has no manifest.
    CorruptFileError
        Both naming schemes are used, V1 for the newest version.
    """
    is_http = store.uri.startswith(("http://", "https://"))
    found = _registered(store) or _first_name(store) or (unlisted(store) if is_http else None)
    if found is not None:
        return found
    last: dict[NamingScheme, ManifestLocation] = {}
    # Renaming to V2 begins with the newest manifest; other renamings begin elsewhere.
    page_will_do = store.lists_in_order and not store.is_local
    for number, (location, _) in enumerate(list_manifests(store), 1):
        if not location.is_detached:
            known = last.setdefault(location.scheme, location)
            if location.version > known.version:
                last[location.scheme] = location
        if page_will_do and number >= _PAGE and last.keys() == {"V2"}:
            return last["V2"]
    newest, old = last.get("V2"), last.get("V1")
    if newest is not None and old is not None and old.version > newest.version:
        raise _mixed(store, newest, old)
    newest = newest or old or (unlisted(store) if store.is_remote and not is_http else None)
    if newest is None:
        raise DatasetNotFoundError(
            f"Dataset at path {store.uri} was not found: expected manifests in {VERSIONS}/, found "
            "none. Check the path, or create the dataset with write_dataset."
        )
    return newest


def locate(store: ObjectStore, version: int, scheme: NamingScheme) -> ManifestLocation:
    """Return the location of the manifest of a version, which may be missing.

    It sends a request only to a register of manifests, which may know a name of another scheme.
    """
    path = manifest_path(version, scheme)
    register = register_of(store)
    if register is not None and not version & DETACHED:
        from glaive.table.manifest_steps import find

        path = find(store, register, version, path)
        scheme = _scheme_of(version, path)
    return ManifestLocation(version, path, scheme)


def was_made(
    store: ObjectStore, version: int, scheme: NamingScheme, hint: int, last: int | None
) -> bool:
    """Return whether a missing version was made and deleted since. One or two requests.

    ``False`` leaves it open: the version may have been made.

    Parameters
    ----------
    hint
        A version that the caller believes to exist: ``version`` or a later version.
    last
        The newest version that the caller knows to have been made.
    """
    if _exists(store, hint, scheme):
        return True
    # Clean-ups keep the newest version: if the version before was deleted, this version was made.
    return last is not None and (last > version or not _exists(store, last, scheme))


def _exists(store: ObjectStore, version: int, scheme: NamingScheme) -> bool:
    """Return whether a version has a manifest. One request."""
    return is_filled(store, locate(store, version, scheme).path)


def has_its_name(store: ObjectStore, manifest: Manifest) -> bool:
    """Return whether a manifest still has the name that it was read by.

    V1 names cost one request; V2 names are final.
    """
    if manifest.scheme == "V2":
        return True
    if locate(store, manifest.version, "V1").scheme == "V2":  # a register of manifests knows
        return False
    return is_filled(store, manifest_path(manifest.version, "V1"))


def _registered(store: ObjectStore) -> ManifestLocation | None:
    """Return the newest version in the register of manifests."""
    register = register_of(store)
    if register is None:
        return None
    from glaive.table.manifest_steps import newest

    if (found := newest(store, register)) is None:
        return None
    version, path = found
    return ManifestLocation(version, path, _scheme_of(version, path))


def _scheme_of(version: int, path: str) -> NamingScheme:
    """Return the naming scheme of the path of a manifest, which may be staged."""
    return "V2" if path.startswith(manifest_path(version, "V2")) else "V1"


def unlisted(store: ObjectStore) -> ManifestLocation | None:
    """Find the newest version by single requests: the version of the hint, or a later version.

    The search takes steps that double, then halve. It sends at most 128 requests, even if a server
    responds to every name.
    """
    version = read_hint(store)
    if version is None:
        return None
    schemes: tuple[NamingScheme, ...] = ("V2", "V1")
    named = (one for one in schemes if is_filled(store, manifest_path(version, one)))
    scheme = next(named, None)
    if scheme is None:
        return None
    step, ahead = 1, True
    while step:
        later = version + step
        if later < DETACHED and is_filled(store, manifest_path(later, scheme)):
            version = later
        else:
            ahead = False
        step = step * 2 if ahead else step // 2
    return ManifestLocation(version, manifest_path(version, scheme), scheme)


def is_filled(store: ObjectStore, path: str) -> bool:
    """Return whether a file exists and has bytes. One request."""
    there = find_object(store, path)
    return there is not None and there.size > 0


def _first_name(store: ObjectStore) -> ManifestLocation | None:
    """Return the newest version of a local directory with V2 names, without sorting or sizes."""
    # With a register, the listing needs sizes to detect incomplete manifests.
    names = store.names(VERSIONS) if register_of(store) is None else None
    if names is None:
        return None
    first = min(names, default="")
    if (name := parse_manifest_name(first)) is None or name.scheme == "V1" or name.is_detached:
        return None
    usual = {len(first), len(HINT) - len(VERSIONS) - 1}  # saves a step for each of many V2 names
    others = () if usual.issuperset(map(len, names)) else map(parse_manifest_name, names)
    if any(other is not None and other.scheme == "V1" for other in others):
        return None  # renaming was stopped
    return ManifestLocation(name.version, f"{VERSIONS}/{first}", "V2")


def list_versions(store: ObjectStore) -> list[ManifestLocation]:
    """Return all complete versions, oldest first. Cost: one listing.

    With a register of manifests, it finishes versions of writers that ended too early. It then asks
    the register once for the newest version, and once for each manifest that is still staged.
    """
    register = register_of(store)
    if register is None:
        locations = _complete(store.list(VERSIONS))
    else:
        from glaive.format.paths import is_staged_manifest_name
        from glaive.table.manifest_steps import finish_staged

        _registered(store)  # finalises the newest, so that it is listed
        metas = list(store.list(VERSIONS))
        locations = _complete(metas)
        known = {location.version for location in locations}
        staged = [meta.path for meta in metas if is_staged_manifest_name(_name(meta.path))]
        for version, path in finish_staged(store, register, staged, known).items():
            locations.append(ManifestLocation(version, path, _scheme_of(version, path)))
    for location in locations:
        if location.scheme != locations[0].scheme:
            raise _mixed(store, locations[0], location)
    return sorted(locations, key=lambda location: location.version)


def _complete(metas: Iterable[ObjectMeta]) -> list[ManifestLocation]:
    return [
        location for location, meta in _manifests(metas) if meta.size and not location.is_detached
    ]


def newest_known(store: ObjectStore, base: Manifest) -> int:
    """Return the newest version of the hint, or of a listing if the hint may be late.

    Cost: one request. One more if the hint may be late and names ``base`` or an earlier version.
    """
    hint = read_hint(store)
    if hint is None or (hint <= base.version and may_have_later(base)):
        return max(hint or 0, latest(store).version)
    return hint


def may_have_later(last: Manifest) -> bool:
    """Return whether versions may exist after the version that a hint names.

    They may exist if that version is older than a minute: the write of the hint may have taken
    effect late. Clean-up may then have removed the next versions, so that their numbers are free.
    """
    return now_ns() / 1e9 - last.wire.timestamp.seconds > _LATE_SECONDS


def list_versions_past(store: ObjectStore, known: int) -> list[ManifestLocation]:
    """Return all complete versions, oldest first, including versions that a listing lacks.

    A listing that is some seconds old lacks the newest versions. This function therefore asks for
    each number after the newest listed version by name: up to ``known``, and further until a number
    is missing. Clean-up may have removed the missing version. In this case clean-up has advanced
    the hint to a later version before.

    Cost: one listing, one request for each of these numbers, and the hint. These are usually three
    requests.

    Parameters
    ----------
    known
        A version that the caller knows to have been made. A detached version is ignored.

    Raises
    ------
    CleanupError
        The listing lacks ``known``, and its file is missing, too, so later versions are unknown.
        Or the listing lacks more versions than a delay of some seconds explains.
    """
    locations = list_versions(store)
    newest = locations[-1].version if locations else 0
    known = 0 if known & DETACHED else known
    scheme: NamingScheme = locations[-1].scheme if locations else "V2"
    if known > newest and not _exists(store, known, scheme):
        raise _is_stale(store, newest, known)
    number, before = newest + 1, 0
    while True:
        if known - newest > MAX_UNLISTED:
            raise _is_stale(store, newest, known)
        while (there := _exists(store, number, scheme)) or number <= known:
            if there:
                locations.append(locate(store, number, scheme))
            number += 1
        hint = read_hint(store) or 0
        if hint < number or hint == before:
            return locations
        # If the version is missing, it was cleaned up just now, so the hint has changed, or was
        # wrong.
        before, known = hint, hint if _exists(store, hint, scheme) else 0


def _is_stale(store: ObjectStore, newest: int, known: int) -> CleanupError:
    return CleanupError(
        f"the listing of {store.full(VERSIONS)} ends at version {newest}, and version {known} "
        "was made. The listing is stale, or another process deleted later versions: try again "
        "later, with the newest version"
    )


def _name(path: str) -> str:
    return path.rpartition("/")[2]


def list_manifests(store: ObjectStore) -> Iterator[tuple[ManifestLocation, ObjectMeta]]:
    """Return all manifests, also detached and empty ones, sorted by name. One listing."""
    return _manifests(store.list(VERSIONS))


def _manifests(metas: Iterable[ObjectMeta]) -> Iterator[tuple[ManifestLocation, ObjectMeta]]:
    for meta in metas:
        name = parse_manifest_name(_name(meta.path))
        if name is not None:
            yield ManifestLocation(name.version, meta.path, name.scheme, meta.stated_size), meta


def _mixed(store: ObjectStore, one: ManifestLocation, other: ManifestLocation) -> CorruptFileError:
    wanted = "one naming scheme (if migrate_manifest_paths_v2 was stopped, call it again)"
    found = f"{one.path} and {other.path}"
    return CorruptFileError("names of manifests", expected=wanted, found=found, where=store.uri)
