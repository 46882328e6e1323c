"""Find the versions of a dataset by listing.

With V2 names the newest manifest is the first one in the listing, so finding it costs one request
for any number of versions; with V1 names all are read.

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
# It is not needed to open a dataset. A commit reads it to find versions newer than its read
# version, and updates it at the end; so does a clean-up before it deletes versions.
#
# Specification: "Finding the latest version" in ``docs/format``.

_PLAIN_HINT: Final = rb'\{"version":([1-9][0-9]{0,17})\}'
"""Hints as written by glaive and pylance."""


def read_hint(store: ObjectStore) -> int | None:
    """The version in the hint; ``None`` if it is missing or says nothing. One request.

    Raises
    ------
    StoreError
        The store failed. It may be the hint alone that knows the newest version: a listing may be
        stale, and versions before the newest one may have been cleaned up.
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
    return version if 0 < version < DETACHED else None  # a detached version is never the newest


def write_hint(store: ObjectStore, version: int) -> None:
    """Update the hint after a commit. One request; failures are logged: the version exists."""
    try:
        _put_hint(store, version)
    except StoreError as error:
        import logging

        logging.getLogger(__name__).debug(
            "version hint of %s not written: %s", store.public_uri, error
        )


def _put_hint(store: ObjectStore, version: int) -> None:
    """Write the hint.

    In a local directory it is overwritten in place if its length is unchanged: replacing a file
    costs as much as the rest of the commit, and misreading the hint does no harm there.
    """
    content = b'{"version":%d}' % version
    if not store.rewrite(HINT, content):
        store.put(HINT, [content])


def advance_hint(store: ObjectStore, version: int) -> None:
    """Have the hint name a version or a later one. One or two requests.

    Before versions are deleted: their writers may have ended before they updated it, and a commit
    that is made for an old version looks for those after it only if the hint is later.

    Raises
    ------
    StoreError
        The store failed, so no version may be deleted.
    """
    if (read_hint(store) or 0) < version:
        _put_hint(store, version)


MOST_UNLISTED: Final = 10_000
"""Versions, or files of a folder, that may be made while a listing is stale: some seconds."""

_PAGE: Final = 990
"""Manifests that the first page of a listing has, which may have other names, too."""

_LATE_SECONDS: Final = 60
"""Age of a version from which on others may have been made and cleaned up since."""


@dataclass(frozen=True, slots=True)
class ManifestLocation:
    """A version and the path of its manifest; ``size`` is its bytes, if known."""

    version: int
    path: str
    scheme: NamingScheme
    size: int | None = field(default=None, compare=False)

    @property
    def is_detached(self) -> bool:
        """Whether the version is outside of the history."""
        return bool(self.version & DETACHED)


def latest(store: ObjectStore) -> ManifestLocation:
    """The newest complete version. A listing, and one request for the file.

    Empty manifests of active or interrupted writers are skipped and logged. Errors as for
    :func:`newest_name`.
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
    """Whether a manifest is not empty; True if it is missing. One request unless its size is known.

    Registered manifests are always complete.
    """
    if location.size is not None or register_of(store) is not None:
        return location.size != 0
    there = find_object(store, location.path)
    return there is None or there.size > 0  # reading what is missing will fail


def newest_name(store: ObjectStore) -> ManifestLocation:
    """The newest version by the names of manifests; its manifest may be empty.

    One listing, or one query of the register of manifests if there is one; of a listing in order
    the first page will do. Web servers have no listings: there the search starts at the hint, as it
    does over a network where a listing shows no version, since it may be stale.

    Raises
    ------
    DatasetNotFoundError
        There is no manifest.
    CorruptFileError
        Both naming schemes are used, V1 for the newest version.
    """
    is_http = store.uri.startswith(("http://", "https://"))
    found = _registered(store) or _first_name(store) or (unlisted(store) if is_http else None)
    if found is not None:
        return found
    last: dict[NamingScheme, ManifestLocation] = {}
    # Renaming begins with the newest; others begin elsewhere.
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
    """Location of the manifest of a version, which may not exist.

    No request without a register of manifests, which may know a name of another scheme.
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
    """Whether a missing version was made and deleted since. One or two requests, no listing.

    False is no answer: it may have been.

    Parameters
    ----------
    hint
        A version that is believed to exist, ``version`` or a later one.
    last
        The newest version that is known to have been made.
    """
    if _exists(store, hint, scheme):
        return True
    # The newest version is never deleted: if the one before was, this one was made.
    return last is not None and (last > version or not _exists(store, last, scheme))


def _exists(store: ObjectStore, version: int, scheme: NamingScheme) -> bool:
    """Whether there is a manifest of a version. One request."""
    return is_filled(store, locate(store, version, scheme).path)


def has_its_name(store: ObjectStore, manifest: Manifest) -> bool:
    """Whether a manifest has the name by which it was read, and was not renamed since.

    No request for V2 names, which stay; one for V1.
    """
    if manifest.scheme == "V2":
        return True
    if locate(store, manifest.version, "V1").scheme == "V2":  # a register of manifests knows
        return False
    return is_filled(store, manifest_path(manifest.version, "V1"))


def _registered(store: ObjectStore) -> ManifestLocation | None:
    """The newest version in the register of manifests."""
    register = register_of(store)
    if register is None:
        return None
    from glaive.table.manifest_steps import newest

    if (found := newest(store, register)) is None:
        return None
    version, path = found
    return ManifestLocation(version, path, _scheme_of(version, path))


def _scheme_of(version: int, path: str) -> NamingScheme:
    """The naming scheme of a path, which may be that of a staged manifest."""
    return "V2" if path.startswith(manifest_path(version, "V2")) else "V1"


def unlisted(store: ObjectStore) -> ManifestLocation | None:
    """The newest version without a listing: that of the hint, or a later one.

    Later ones are searched in steps that double, then halve: at most 128 requests, even if a
    server responds to every name.
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
    """Whether there is a file that is not empty. One request."""
    there = find_object(store, path)
    return there is not None and there.size > 0


def _first_name(store: ObjectStore) -> ManifestLocation | None:
    """The newest version of a local directory with V2 names, without sorting or file sizes."""
    # With a register, the listing needs sizes to detect incomplete manifests.
    names = store.names(VERSIONS) if register_of(store) is None else None
    if names is None:
        return None
    first = min(names, default="")
    if (name := parse_manifest_name(first)) is None or name.scheme == "V1" or name.is_detached:
        return None
    usual = {len(first), len(HINT) - len(VERSIONS) - 1}  # no step for each of many V2 names
    others = () if usual.issuperset(map(len, names)) else map(parse_manifest_name, names)
    if any(other is not None and other.scheme == "V1" for other in others):
        return None  # renaming was stopped
    return ManifestLocation(name.version, f"{VERSIONS}/{first}", "V2")


def list_versions(store: ObjectStore) -> list[ManifestLocation]:
    """All complete versions, oldest first. One listing.

    With a register of manifests it finishes versions whose writers ended before they did, and asks
    once for the newest, and once for each manifest that was left staged.
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
    """The newest version that the hint knows; that of a listing where the hint may be late.

    One request. One more if the hint names no version after ``base``, and may be late.
    """
    hint = read_hint(store)
    if hint is None or (hint <= base.version and may_have_later(base)):
        return max(hint or 0, latest(store).version)
    return hint


def may_have_later(last: Manifest) -> bool:
    """Whether there may be later versions than the last one of which a hint tells.

    They may if it is older than a minute: a request to write the hint may have taken effect late,
    when the versions after its own were cleaned up already, so that their numbers are free.
    """
    return now_ns() / 1e9 - last.wire.timestamp.seconds > _LATE_SECONDS


def list_versions_past(store: ObjectStore, known: int) -> list[ManifestLocation]:
    """All complete versions, oldest first, also those that a stale listing does not show.

    A listing that is some seconds old lacks the newest versions. So each number after the newest
    that is listed is asked for by name: up to ``known``, and further until one is missing. That one
    may have been made, and cleaned up since: a clean-up has the hint name a later version before.
    One listing, one request for each of these numbers, and the hint: three requests in all where
    nothing is stale.

    Parameters
    ----------
    known
        A version that is known to have been made; one outside of the history says nothing.

    Raises
    ------
    CleanupError
        The listing lacks ``known``, which is not there by its name either, so that it says nothing
        about later versions; or so many versions that it cannot be some seconds old.
    """
    locations = list_versions(store)
    newest = locations[-1].version if locations else 0
    known = 0 if known & DETACHED else known
    scheme: NamingScheme = locations[-1].scheme if locations else "V2"
    if known > newest and not _exists(store, known, scheme):
        raise _is_stale(store, newest, known)
    number, before = newest + 1, 0
    while True:
        if known - newest > MOST_UNLISTED:
            raise _is_stale(store, newest, known)
        while (there := _exists(store, number, scheme)) or number <= known:
            if there:
                locations.append(locate(store, number, scheme))
            number += 1
        hint = read_hint(store) or 0
        if hint < number or hint == before:
            return locations
        # One that is missing was cleaned up just now, so the hint has changed; or it was wrong.
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
    """All manifests, including detached and empty ones, sorted by name. One listing."""
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
