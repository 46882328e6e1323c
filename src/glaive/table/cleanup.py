"""Remove old versions, and the files that nothing needs any more.

A version that goes takes the files with it that no other version has. Files that no version
has, of writers that failed or are still at work, go only when they are a week old, or when
the caller knows that nobody is at work.

Manifests are deleted first: whatever happens then, no version is left without its files.

Specification: "Cleaning up" in ``docs/format/refs.md``.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from glaive.errors import CleanupError, ObjectNotFoundError, OptionError
from glaive.format.manifest import Manifest
from glaive.format.paths import VERSIONS, parse_manifest_name
from glaive.io.pool import ordered_map
from glaive.io.store import ObjectMeta, ObjectStore
from glaive.table.branches import list_branches
from glaive.table.load import load_manifest
from glaive.table.references import FOLDERS, FileKind, FileSet, kind_of
from glaive.table.root import plain_store
from glaive.table.tags import list_tags
from glaive.table.versions import ManifestLocation, list_versions

__all__ = ["CleanupFile", "CleanupPlan", "CleanupPolicy", "delete_planned", "plan_cleanup"]

DEFAULT_AGE: Final = timedelta(days=14)
UNVERIFIED_AGE: Final = timedelta(days=7)
"""A file that no version has may belong to a writer at work until it is this old."""

_PORTION: Final = 1000
"""Files deleted by one call of the store."""


@dataclass(frozen=True, slots=True)
class CleanupPolicy:
    """Which versions may go.

    Parameters
    ----------
    older_than
        Only versions made longer ago; two weeks unless something else is said.
    retain_versions
        Keep as many of the newest versions.
    versions
        Only these.
    delete_unverified
        Delete files that no version has whatever their age: right only if nobody writes.
    error_if_tagged
        Fail if a tag names a version that would go; otherwise it is kept.
    """

    older_than: timedelta | None = None
    retain_versions: int | None = None
    versions: Sequence[int] | None = None
    delete_unverified: bool = False
    error_if_tagged: bool = True

    def __post_init__(self) -> None:
        if self.retain_versions is not None and self.retain_versions < 1:
            raise OptionError(
                f"retain_versions: expected a number ≥ 1, found {self.retain_versions}"
            )
        if self.versions is not None and not self.versions:
            raise OptionError("versions: expected at least one version, found none")
        if self.older_than is not None and not isinstance(self.older_than, timedelta):
            raise OptionError(f"older_than: expected a timedelta, found {self.older_than!r}")

    @property
    def age(self) -> timedelta:
        """Age from which versions go."""
        if self.older_than is not None:
            return self.older_than
        told = self.retain_versions is not None or self.versions is not None
        return timedelta(0) if told else DEFAULT_AGE


@dataclass(frozen=True, slots=True)
class CleanupFile:
    """A file to be deleted; ``unverified`` when no version ever had it, as far as is known."""

    path: str
    kind: FileKind
    size: int
    unverified: bool


@dataclass(frozen=True, slots=True)
class CleanupPlan:
    """What would be deleted, manifests first, and which versions that are."""

    read_version: int
    versions: tuple[int, ...]
    files: tuple[CleanupFile, ...]

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(file.size for file in self.files)

    def count(self, kind: FileKind) -> int:
        """Files of a kind."""
        return sum(file.kind == kind for file in self.files)


def plan_cleanup(
    store: ObjectStore, root: ObjectStore, current: Manifest, policy: CleanupPolicy
) -> CleanupPlan:
    """Work out what may be deleted; deletes nothing.

    Parameters
    ----------
    store, root
        The branch to clean up, and the root where tags and branches are.
    current
        The version at hand: it and newer ones stay.

    Raises
    ------
    CleanupError
        A tag names a version that would go, and ``error_if_tagged`` is set.
    CorruptFileError
        A manifest is damaged: then nothing can be told of the files.

    Notes
    -----
    Requests: a listing per folder, one per version, one per tag and branch.
    """
    locations = list_versions(store)
    branch = current.wire.branch or None
    wanted = _candidates(locations, current, policy)
    tagged = {tag.version: name for name, tag in list_tags(root).items() if tag.branch == branch}
    parents = {
        one.parent_version for one in list_branches(root).values() if one.parent_branch == branch
    }
    manifests = _load(store, locations)
    before = datetime.now(UTC) - policy.age
    old = {
        version
        for version in wanted & manifests.keys()
        if version not in parents and manifests[version].timestamp < before
    }
    named = sorted(old & tagged.keys())
    if named and policy.error_if_tagged:
        shown = ", ".join(f"{tagged[version]!r} (version {version})" for version in named)
        raise CleanupError(
            f"{store.uri}: tags name versions that would be removed: {shown}. Delete or move "
            "them, or pass error_if_tagged_old_versions=False to keep these versions."
        )
    old -= tagged.keys()
    kept = FileSet.of(one for version, one in manifests.items() if version not in old)
    for manifest in _load(store, list(_detached(store))).values():
        kept.add(manifest)
    gone = FileSet.of(manifests[version] for version in old)
    files = list(_manifests(store, [one for one in locations if one.version in old]))
    files.extend(_unused(store, kept, gone, policy))
    # A version made meanwhile may have taken up files again, as a restore does.
    known = manifests.keys()
    made = [one for one in list_versions(store) if one.version not in known]
    fresh = FileSet.of(_load(store, made).values())
    files = [file for file in files if file.path not in fresh]
    return CleanupPlan(current.version, tuple(sorted(old)), tuple(files))


def delete_planned(store: ObjectStore, plan: CleanupPlan, *, rate: int | None = None) -> None:
    """Delete the files of a plan, manifests first, at most ``rate`` per second."""
    portion = _PORTION if rate is None else min(_PORTION, max(1, rate))
    paths = [file.path for file in plan.files]
    for start in range(0, len(paths), portion):
        began = time.monotonic()
        store.delete(paths[start : start + portion])
        if rate is not None and start + portion < len(paths):
            time.sleep(max(0.0, portion / rate - (time.monotonic() - began)))


def _candidates(
    locations: Sequence[ManifestLocation], current: Manifest, policy: CleanupPolicy
) -> set[int]:
    """Versions that may go by their numbers alone."""
    keep = policy.retain_versions or 1
    older = locations[: max(0, len(locations) - keep)]
    found = {one.version for one in older if one.version < current.version}
    return found if policy.versions is None else found & set(policy.versions)


def _load(store: ObjectStore, locations: Sequence[ManifestLocation]) -> dict[int, Manifest]:
    """Manifests by version; those that another cleanup has removed meanwhile are left out."""

    def load(location: ManifestLocation) -> Manifest | None:
        try:
            return load_manifest(store, location)
        except ObjectNotFoundError:
            if not _is_gone(store, location.path):
                raise  # something else is missing, and what the version has is not known
            return None

    loaded = zip(locations, ordered_map(load, locations), strict=True)
    return {one.version: manifest for one, manifest in loaded if manifest is not None}


def _is_gone(store: ObjectStore, path: str) -> bool:
    try:
        store.head(path)
    except ObjectNotFoundError:
        return True
    return False


def _manifests(store: ObjectStore, locations: Iterable[ManifestLocation]) -> Iterator[CleanupFile]:
    """The files of versions that go, and are not gone yet."""
    for one in locations:
        with suppress(ObjectNotFoundError):
            size = store.head(one.path).size
            yield CleanupFile(one.path, "manifest", size, unverified=False)


def _detached(store: ObjectStore) -> Iterator[ManifestLocation]:
    """Versions that are no part of the history: what they consist of stays."""
    for meta in store.list(VERSIONS):
        name = parse_manifest_name(meta.path.rpartition("/")[2])
        if name is not None and name.is_detached:
            yield ManifestLocation(name.version, meta.path, name.scheme)


def _unused(
    store: ObjectStore, kept: FileSet, gone: FileSet, policy: CleanupPolicy
) -> Iterator[CleanupFile]:
    """Files that no version that stays has."""
    youngest = datetime.now(UTC) - UNVERIFIED_AGE
    for folder in FOLDERS:
        for meta in _all_files(store, folder):
            kind = kind_of(meta.path)
            if kind is None or meta.path in kept:
                continue
            verified = meta.path in gone
            if not (verified or policy.delete_unverified) and (
                meta.modified is None or meta.modified > youngest
            ):
                continue
            yield CleanupFile(meta.path, kind, meta.size, unverified=not verified)


def _all_files(store: ObjectStore, folder: str) -> Iterator[ObjectMeta]:
    yield from store.walk(folder)
    unfinished = getattr(plain_store(store), "unfinished", None)
    if unfinished is not None:
        yield from unfinished(folder)
