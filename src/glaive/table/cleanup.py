"""Remove old versions, and the files that nothing needs any more.

A version that goes takes the files with it that no other version has. Files that no version
has, of writers that failed or are still at work, go only when they are a week old, or when
the caller knows that nobody is at work.

Manifests are deleted first: whatever happens then, no version is left without its files.

What no writer of datasets would have called so is left alone, and so is what lies behind a link
that leads out of the root, unless the caller allowed to delete there. Versions whose manifests are
left keep their files. An empty manifest, whose writer was stopped, is removed.

Specification: "Cleaning up" in ``docs/format/refs.md``.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Final

from glaive.errors import CleanupError, ObjectNotFoundError, OptionError
from glaive.format.manifest import Manifest
from glaive.format.paths import VERSIONS
from glaive.io.pool import ordered_map
from glaive.io.store import ObjectMeta, ObjectStore
from glaive.table.branches import BRANCHES, list_branches
from glaive.table.load import load_manifest
from glaive.table.references import FOLDERS, FileKind, FileSet, is_own_folder, kind_of
from glaive.table.refs import ref_files
from glaive.table.tags import TAGS, list_tags
from glaive.table.versions import ManifestLocation, list_manifests, list_versions

__all__ = ["CleanupFile", "CleanupPlan", "CleanupPolicy", "delete_planned", "plan_cleanup"]

_logger = logging.getLogger(__name__)

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

    @property
    def before(self) -> datetime:
        """Only versions made before this moment go."""
        try:
            return datetime.now(UTC) - self.age
        except OverflowError:  # before the year 1
            return datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class CleanupFile:
    """A file to be deleted; ``unverified`` when no version ever had it, as far as is known.

    ``unfinished`` is an empty manifest: it is removed only if it is still empty then.
    """

    path: str
    kind: FileKind
    size: int
    unverified: bool
    unfinished: bool = False


@dataclass(frozen=True, slots=True)
class CleanupPlan:
    """What would be deleted, manifests first, which versions that are, and what is left and why."""

    read_version: int
    versions: tuple[int, ...]
    files: tuple[CleanupFile, ...]
    left: tuple[str, ...] = ()

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
    left = _Left(store, root)
    locations = list_versions(store)
    branch = current.wire.branch or None
    reachable = left.why(VERSIONS) is None  # noted when its files are looked at
    wanted = _candidates(locations, current, policy) if reachable else set()
    tagged = {tag.version: name for name, tag in list_tags(root).items() if tag.branch == branch}
    parents = {
        entry.parent_version
        for entry in list_branches(root).values()
        if entry.parent_branch == branch
    }
    manifests = _load(store, locations)
    before = policy.before
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
    old -= left.protected(root, {version: manifests[version].timestamp for version in old})
    old -= {
        location.version
        for location in locations
        if location.version in old and left.is_link(location.path)
    }
    kept = FileSet.of(manifest for version, manifest in manifests.items() if version not in old)
    unfinished, detached = _others(store)
    for manifest in _load(store, detached).values():
        kept.add(manifest)
    gone = FileSet.of(manifests[version] for version in old)
    files = list(_manifests(store, [location for location in locations if location.version in old]))
    files.extend(unfinished if reachable else ())
    files.extend(_unused(store, kept, gone, policy, left))
    # A version made meanwhile may have taken up files again, as a restore does.
    known = manifests.keys()
    made = [location for location in list_versions(store) if location.version not in known]
    fresh = FileSet.of(_load(store, made).values())
    files = [file for file in files if file.path not in fresh]
    return CleanupPlan(current.version, tuple(sorted(old)), tuple(files), tuple(left.reasons))


def delete_planned(
    store: ObjectStore, plan: CleanupPlan, *, rate: int | None = None
) -> CleanupPlan:
    """Delete the files of a plan, manifests first, at most ``rate`` per second.

    Returns the plan as it was carried out: what could not be removed is left. That is logged.
    """
    portion = _PORTION if rate is None else min(_PORTION, max(1, rate))
    left = list(plan.left)
    kept: set[str] = set()
    for file in plan.files:
        if file.unfinished and not store.remove_unfinished(file.path):
            kept.add(file.path)
            left.append(
                f"{store.full(file.path)} is empty, as of a writer that was stopped, and cannot be "
                "removed safely now; the next commit takes its place"
            )
    paths = [file.path for file in plan.files if not file.unfinished]
    for start in range(0, len(paths), portion):
        began = time.monotonic()
        store.delete(paths[start : start + portion])
        if rate is not None and start + portion < len(paths):
            time.sleep(max(0.0, portion / rate - (time.monotonic() - began)))
    for reason in left:
        _logger.warning("clean-up of %s: %s", store.uri, reason)
    files = tuple(file for file in plan.files if file.path not in kept)
    return replace(plan, files=files, left=tuple(left))


class _Left:
    """What a clean-up leaves, and why, beside what the policy keeps."""

    def __init__(self, store: ObjectStore, root: ObjectStore) -> None:
        self._store = store
        self._way = None
        if store.uri.startswith(f"{root.uri}/"):  # a branch lies below the root
            self._way = root.link_out(store.uri[len(root.uri) + 1 :])
        self.reasons: list[str] = []

    def why(self, folder: str) -> str | None:
        """Why files in a folder are left; ``None`` if they may be deleted."""
        return self._way or self._store.link_out(folder)

    def is_reachable(self, folder: str) -> bool:
        """Whether files in a folder may be deleted; why not is noted."""
        reason = self.why(folder)
        if reason is not None:
            self.reasons.append(f"nothing in {self._store.full(folder)} was deleted: {reason}")
        return reason is None

    def is_link(self, path: str) -> bool:
        """Whether it is a link, which no writer makes; noted if so."""
        if not self._store.is_link(path):
            return False
        self.reasons.append(f"{self._store.full(path)} is a link, which no writer of datasets made")
        return True

    def note_folders(self, folder: str, kept: FileSet) -> None:
        """Note links in the place of folders that only versions that go had, or none."""
        for path in self._store.links(folder):
            if is_own_folder(path) and path not in kept.folders:
                self.is_link(path)

    def protected(self, root: ObjectStore, times: Mapping[int, datetime]) -> set[int]:
        """Versions that a tag or branch may name whose file is empty: all that were there then."""
        found: set[int] = set()
        for folder in (TAGS, BRANCHES):
            for meta in ref_files(root, folder).values():
                if meta.size:
                    continue
                until = meta.modified
                found |= {version for version, at in times.items() if until is None or at <= until}
                self.reasons.append(
                    f"{root.full(meta.path)} is empty, so which version it was to name is not "
                    "known: versions from before were kept. Create or delete the tag or branch"
                )
        return found


def _candidates(
    locations: Sequence[ManifestLocation], current: Manifest, policy: CleanupPolicy
) -> set[int]:
    """Versions that may go by their numbers alone."""
    keep = policy.retain_versions or 1
    older = locations[: max(0, len(locations) - keep)]
    found = {location.version for location in older if location.version < current.version}
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
    return {location.version: manifest for location, manifest in loaded if manifest is not None}


def _is_gone(store: ObjectStore, path: str) -> bool:
    try:
        store.head(path)
    except ObjectNotFoundError:
        return True
    return False


def _manifests(store: ObjectStore, locations: Iterable[ManifestLocation]) -> Iterator[CleanupFile]:
    """The files of versions that go, and are not gone yet."""
    for location in locations:
        with suppress(ObjectNotFoundError):
            size = store.head(location.path).size
            yield CleanupFile(location.path, "manifest", size, unverified=False)


def _others(store: ObjectStore) -> tuple[list[CleanupFile], list[ManifestLocation]]:
    """Empty manifests; and versions that are no part of the history: what those have stays."""
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
    store: ObjectStore, kept: FileSet, gone: FileSet, policy: CleanupPolicy, left: _Left
) -> Iterator[CleanupFile]:
    """Files that no version that stays has."""
    youngest = datetime.now(UTC) - UNVERIFIED_AGE
    for folder in FOLDERS:
        if not left.is_reachable(folder):
            continue
        for meta in _all_files(store, folder):
            verified = meta.path in gone
            kind = kind_of(meta.path, named=verified)
            if kind is None or meta.path in kept:
                continue
            if not (verified or policy.delete_unverified) and (
                meta.modified is None or meta.modified > youngest
            ):
                continue
            if not left.is_link(meta.path):
                yield CleanupFile(meta.path, kind, meta.size, unverified=not verified)
        left.note_folders(folder, kept)


def _all_files(store: ObjectStore, folder: str) -> Iterator[ObjectMeta]:
    yield from store.walk(folder)
    yield from store.unfinished(folder)
