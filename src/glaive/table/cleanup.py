"""Delete old versions, and the files that no other version uses.

Files that no version uses belong to failed or active writers. They are only deleted when they are
a week old, or when the caller knows that nobody is writing.

Manifests are deleted first, so that no version ever lacks files.

Files whose names no Lance writer uses are kept. So are those behind links that lead out of the
root, unless the caller allowed to delete there; versions whose manifests are there keep their
files. Empty manifests of interrupted writers are deleted.

Specification: "Cleaning up" in ``docs/format/refs.md``.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Final

from glaive.clock import monotonic, now, sleep
from glaive.dataclass import dataclass
from glaive.errors import CleanupError, ObjectNotFoundError, OptionError
from glaive.format.manifest import Manifest
from glaive.format.paths import VERSIONS
from glaive.io.pool import ordered_map
from glaive.io.store import ObjectMeta, ObjectStore
from glaive.table.branches import list_branches
from glaive.table.load import load_manifest
from glaive.table.protection import Protection
from glaive.table.references import FOLDERS, FileKind, FileSet, is_own_folder, kind_of
from glaive.table.tags import list_tags
from glaive.table.versions import ManifestLocation, advance_hint, list_manifests, list_versions

__all__ = ["CleanupFile", "CleanupPlan", "CleanupPolicy", "delete_planned", "plan_cleanup"]

_logger = logging.getLogger(__name__)

DEFAULT_AGE: Final = timedelta(days=14)
UNVERIFIED_AGE: Final = timedelta(days=7)
"""Younger files that no version uses may belong to an active writer."""

_BATCH: Final = 1000
"""Files deleted per call of the store."""

_AHEAD: Final = 8
"""Manifests in memory, about: each can be of a million fragments."""


@dataclass(frozen=True, slots=True)
class CleanupPolicy:
    """Which versions to delete.

    Parameters
    ----------
    older_than
        Minimum age; default: two weeks, if no other option selects versions.
    retain_versions
        Number of newest versions to keep.
    versions
        Delete only these versions.
    delete_unverified
        Delete files that no version uses, whatever their age: only safe if nobody is writing.
    error_if_tagged
        Fail if a version to be deleted has a tag; otherwise it is kept.
    """

    older_than: timedelta | None = None
    retain_versions: int | None = None
    versions: Sequence[int] | None = None
    delete_unverified: bool = False
    error_if_tagged: bool = True

    def __post_init__(self) -> None:
        if self.retain_versions is not None and self.retain_versions < 1:
            raise OptionError(f"retain_versions must be greater than 0, got {self.retain_versions}")
        if self.versions is not None and not self.versions:
            raise OptionError("versions: expected at least one version, found none")
        if self.older_than is not None and not isinstance(self.older_than, timedelta):
            raise OptionError(f"older_than: expected a timedelta, found {self.older_than!r}")

    @property
    def age(self) -> timedelta:
        """Minimum age of versions to delete."""
        if self.older_than is not None:
            return self.older_than
        selected = self.retain_versions is not None or self.versions is not None
        return timedelta(0) if selected else DEFAULT_AGE

    @property
    def before(self) -> datetime:
        """Only versions created before this time are deleted."""
        try:
            return now() - self.age
        except OverflowError:  # before the year 1
            return datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class CleanupFile:
    """A file to delete; ``unverified`` if no known version has used it.

    ``unfinished`` is an empty manifest, deleted only if it is still empty then.
    """

    path: str
    kind: FileKind
    size: int
    unverified: bool
    unfinished: bool = False


@dataclass(frozen=True, slots=True)
class CleanupPlan:
    """The versions and files to delete, manifests first, and warnings about what is kept.

    ``folders`` of indices and blobs are removed then if they are empty.
    """

    read_version: int
    versions: tuple[int, ...]
    files: tuple[CleanupFile, ...]
    warnings: tuple[str, ...] = ()
    folders: tuple[str, ...] = ()

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
    """Plan a clean-up; deletes nothing.

    Parameters
    ----------
    store, root
        The branch to clean up, and the root of the dataset with tags and branches.
    current
        The current version: it and newer ones are kept.

    Raises
    ------
    CleanupError
        A version to be deleted has a tag, and ``error_if_tagged`` is set.
    CorruptFileError
        A manifest is damaged, so the files in use are unknown.

    Notes
    -----
    Requests: a listing per folder, one per version, one per tag and branch. Memory: the names of
    all files that versions have, and a few manifests.
    """
    protection = Protection(store, root)
    locations = list_versions(store)
    branch = current.wire.branch or None
    reachable = protection.reason(VERSIONS) is None  # the warning is added with its files
    wanted = _candidates(locations, current, policy) if reachable else set()
    tags = [(name, tag.version) for name, tag in list_tags(root).items() if tag.branch == branch]
    tagged = {version for _, version in tags}
    parents = {
        entry.parent_version
        for entry in list_branches(root).values()
        if entry.parent_branch == branch
    }
    before, unknown = policy.before, protection.unknown_refs(root)
    kept, deleted = FileSet(), FileSet()
    known: set[int] = set()
    old: set[int] = set()
    named: set[int] = set()
    for location, manifest in _loaded(store, locations):
        version, time = location.version, manifest.timestamp
        known.add(version)
        marked = version in wanted and version not in parents and time < before
        if marked and version in tagged:
            named.add(version)
        elif (
            marked
            and not any(until is None or time <= until for until in unknown)
            and not protection.is_link(location.path)
        ):
            old.add(version)
            deleted.add(manifest)
            continue
        kept.add(manifest)
    if named and policy.error_if_tagged:
        names = ", ".join(f"{name!r} (version {at})" for name, at in sorted(tags) if at in named)
        raise CleanupError(
            f"Cleanup error: {sum(at in named for _, at in tags)} tagged version(s) have been "
            "marked for cleanup. Either set `error_if_tagged_old_versions=false` or delete the "
            f"following tag(s) to enable cleanup of {store.uri}: {names}"
        )
    unfinished, detached = _outside_history(store)
    for _, manifest in _loaded(store, detached):
        kept.add(manifest)
    files = list(_manifests(store, [location for location in locations if location.version in old]))
    files.extend(unfinished if reachable else ())
    files.extend(_unused(store, kept, deleted, policy, protection))
    # A version created concurrently may use old files again, for example after a restore.
    new = [location for location in list_versions(store) if location.version not in known]
    used_again = FileSet.of(manifest for _, manifest in _loaded(store, new))
    files = [file for file in files if file.path not in used_again]
    folders = {file.path.rpartition("/")[0] for file in files}
    folders.update(_empty_folders(store, policy, protection))
    own = sorted(path for path in folders if is_own_folder(path) and not kept.has_folder(path))
    versions, warnings = tuple(sorted(old)), tuple(protection.warnings)
    return CleanupPlan(current.version, versions, tuple(files), warnings, tuple(own))


def delete_planned(
    store: ObjectStore,
    plan: CleanupPlan,
    rate: int | None = None,
    note: Callable[[int], object] | None = None,
) -> CleanupPlan:
    """Delete the files of a plan, manifests first, at most ``rate`` per second; log the warnings.

    ``note`` gets the number of files of each call. Returns the plan without files that were kept.
    """
    batch = _BATCH if rate is None else min(_BATCH, max(1, rate))
    warnings = list(plan.warnings)
    kept: set[str] = set()
    for file in plan.files:
        if file.unfinished and not store.remove_unfinished(file.path):
            kept.add(file.path)
            warnings.append(
                f"{store.full(file.path)} is empty, as left by an interrupted writer, and cannot "
                "be deleted safely now; the next commit replaces it"
            )
    manifests = [one.path for one in plan.files if one.kind == "manifest" and not one.unfinished]
    others = [one.path for one in plan.files if one.kind != "manifest"]
    if manifests:
        advance_hint(store, plan.read_version)
    # A store may delete those of one call in any order, and stop at any of them.
    calls = [
        part[at : at + batch] for part in (manifests, others) for at in range(0, len(part), batch)
    ]
    for number, paths in enumerate(calls, 1):
        began = monotonic()
        store.delete(paths)
        if note is not None:
            note(len(paths))
        if rate is not None and number < len(calls):
            sleep(max(0.0, len(paths) / rate - (monotonic() - began)))
    store.remove_empty(plan.folders)
    for warning in warnings:
        _logger.warning("clean-up of %s: %s", store.uri, warning)
    files = tuple(file for file in plan.files if file.path not in kept)
    return replace(plan, files=files, warnings=tuple(warnings))


def _candidates(
    locations: Sequence[ManifestLocation], current: Manifest, policy: CleanupPolicy
) -> set[int]:
    """Versions that may be deleted judging by their numbers."""
    keep = policy.retain_versions or 1
    older = locations[: max(0, len(locations) - keep)]
    versions = {location.version for location in older if location.version < current.version}
    return versions if policy.versions is None else versions & set(policy.versions)


def _loaded(
    store: ObjectStore, locations: Sequence[ManifestLocation]
) -> Iterator[tuple[ManifestLocation, Manifest]]:
    """Manifests, a few at a time, without those that another clean-up has deleted concurrently."""

    def load(location: ManifestLocation) -> Manifest | None:
        try:
            return load_manifest(store, location)
        except ObjectNotFoundError:
            if not _is_missing(store, location.path):
                raise  # another file is missing, so the files of the version are unknown
            return None

    loaded = ordered_map(load, locations, ahead=_AHEAD)
    for location, manifest in zip(locations, loaded, strict=True):
        if manifest is not None:
            yield location, manifest


def _is_missing(store: ObjectStore, path: str) -> bool:
    try:
        store.head(path)
    except ObjectNotFoundError:
        return True
    return False


def _manifests(store: ObjectStore, locations: Iterable[ManifestLocation]) -> Iterator[CleanupFile]:
    """The manifest files of versions, without those already deleted."""
    for location in locations:
        with suppress(ObjectNotFoundError):
            size = store.head(location.path).size
            yield CleanupFile(location.path, "manifest", size, unverified=False)


def _outside_history(store: ObjectStore) -> tuple[list[CleanupFile], list[ManifestLocation]]:
    """Empty manifests, and detached versions, whose files are kept."""
    unfinished, detached = [], []
    for location, meta in list_manifests(store):
        if not meta.size:
            unfinished.append(
                CleanupFile(meta.path, "manifest", 0, unverified=True, unfinished=True)
            )
        elif location.is_detached:
            detached.append(location)
    return unfinished, detached


def _unused(
    store: ObjectStore,
    kept: FileSet,
    deleted: FileSet,
    policy: CleanupPolicy,
    protection: Protection,
) -> Iterator[CleanupFile]:
    """Files that no kept version uses."""
    youngest = now() - UNVERIFIED_AGE
    for folder in FOLDERS:
        if not protection.is_reachable(folder):
            continue
        for meta in _all_files(store, folder):
            verified = meta.path in deleted
            kind = kind_of(meta.path, named=verified)
            if kind is None or meta.path in kept:
                continue
            if not (verified or policy.delete_unverified) and (
                meta.modified is None or meta.modified > youngest
            ):
                continue
            if not protection.is_link(meta.path):
                yield CleanupFile(meta.path, kind, meta.size, unverified=not verified)
        protection.warn_of_linked_folders(folder, kept)


def _empty_folders(
    store: ObjectStore, policy: CleanupPolicy, protection: Protection
) -> Iterator[str]:
    """Empty folders, as files that no version uses: a writer may just have made a young one."""
    youngest = now() - UNVERIFIED_AGE
    for folder in FOLDERS:
        if protection.reason(folder) is not None:
            continue
        for meta in store.empty_folders(folder):
            if policy.delete_unverified or (meta.modified or youngest) < youngest:
                yield meta.path


def _all_files(store: ObjectStore, folder: str) -> Iterator[ObjectMeta]:
    yield from store.walk(folder)
    yield from store.unfinished(folder)
