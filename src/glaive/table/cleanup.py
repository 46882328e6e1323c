"""Delete old versions, and the files that only these versions use.

Unused files belong to failed or active writers. They are only deleted when they are a week old, or
when the caller knows that nobody is writing.

Manifests are deleted first, so that each version always has its files.

glaive keeps files whose names no Lance writer uses. It keeps files in symlinked folders that lead
out of the root, unless the caller allows to delete there. Versions with manifests in such a folder
keep their files. glaive deletes empty manifests of interrupted writers.

Specification: "Cleaning up" in ``docs/format/refs.md``.

A plan reads manifests for the names of files that versions have. Then it lists the folders and
selects the unused files. Both steps can be divided: versions among readers, names among listings,
by cuts in the order of paths. Each listing gets exactly the names between its cuts, so it selects
the same files as an undivided listing. :class:`Selection` decides which versions to delete,
:class:`ListUnused` which files, wherever they run.
"""

from __future__ import annotations

import logging
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import islice, pairwise
from typing import Any, Final, Literal, Protocol, TypeVar

import pyarrow as pa

from glaive.arrow.conditions import constants
from glaive.dataclass import dataclass
from glaive.errors import CleanupError, GlaiveError, ObjectNotFoundError, OptionError, StoreError
from glaive.format.manifest import Manifest
from glaive.format.paths import (
    DATA,
    DELETIONS,
    INDICES,
    REFS,
    TRANSACTIONS,
    VERSIONS,
    is_staged_manifest_name,
)
from glaive.io.confined import LinkTargets
from glaive.io.local_sink import final_name, is_others_temporary
from glaive.io.store import ObjectMeta, ObjectStore, find_object
from glaive.options import SWITCH, Kind, check_fields, integer, option
from glaive.process import monotonic, now, sleep
from glaive.table.configuration import INTERVAL, OLDER_THAN, duration
from glaive.table.load import each_manifest, load_manifest
from glaive.table.references import (
    FOLDERS,
    UNVERIFIED_AGE,
    CleanupFile,
    FileKind,
    FileSet,
    FoundFiles,
    files_of,
    is_own_folder,
    kind_of,
)
from glaive.table.refs import (
    BRANCHES,
    TAGS,
    TREE,
    list_branches,
    list_tags,
    name_in,
    ref_files,
    root_store,
)
from glaive.table.versions import ManifestLocation, advance_hint, list_manifests, list_versions_past

# --- How a clean-up is divided: versions among readers, paths among listings, files to delete

BATCH: Final = 1000
"""Files deleted per call of the store."""

_MAX_BITS: Final = 10
"""Maximum bits of the digits that divide the names of data files."""


@dataclass(frozen=True, slots=True)
class Division:
    """The size of one part of a clean-up.

    Parameters
    ----------
    versions
        Manifests that one part reads.
    fragments
        Fragments of them up to which there are as many groups.
    files
        Data files that one part lists.
    deletions
        Files that one part deletes.
    groups
        Maximum number of groups of versions. Each group reports the files that all groups share.
    """

    versions: int = 16
    fragments: int = 1 << 16
    files: int = 1 << 13
    deletions: int = 4 * BATCH
    groups: int = 16

    def cuts(self, files: int) -> tuple[str, ...]:
        """Return the cuts between paths for listings of so many data files, in order.

        Names of data files begin with random digits, which are binary or belong to a UUID. Cuts
        lack characters before ``0``. Such cuts keep a data file and the folder of its blobs, which
        differ in ``.`` and ``/``, together.
        """
        parts = -(-files // self.files)
        if parts < 2:
            return ()
        bits = min((parts - 1).bit_length(), _MAX_BITS)
        cuts = {f"{folder}/" for folder in (DATA, INDICES, TRANSACTIONS, VERSIONS)}
        cuts |= {f"{DATA}/{number:0{bits}b}" for number in range(1, 1 << bits)}
        cuts |= {f"{DATA}/{digit}" for digit in "23456789abcdef"}
        cuts |= {f"{DELETIONS}/{number}" for number in range(1, min(parts, 100))}
        return tuple(sorted(cuts))

    def readers(
        self, locations: Sequence[ManifestLocation], files: int
    ) -> list[Sequence[ManifestLocation]]:
        """Return the versions for each part that reads manifests.

        Parts repeat most files, so many files make fewer parts.
        """
        max_groups = max(1, self.groups * self.fragments // max(files, self.fragments))
        groups = max(1, min(-(-len(locations) // self.versions), max_groups))
        cuts = [len(locations) * at // groups for at in range(groups + 1)]
        return [locations[start:stop] for start, stop in pairwise(cuts)]


@dataclass(frozen=True, slots=True)
class Span:
    """Paths from ``start`` on, before ``stop``; ``None`` for no limit."""

    start: str | None = None
    stop: str | None = None

    def __contains__(self, path: str) -> bool:
        return (self.start is None or self.start <= path) and (
            self.stop is None or path < self.stop
        )

    def overlaps(self, folder: str) -> bool:
        """Return whether the span may have paths below a folder."""
        return (self.stop is None or f"{folder}/" < self.stop) and (
            self.start is None or self.start < f"{folder}0"  # the character after "/"
        )

    def listed(self, store: ObjectStore, folder: str) -> Iterator[ObjectMeta]:
        """List the files below a folder, finished or unfinished."""
        if self.start is None and self.stop is None:
            yield from store.walk(folder)
        else:
            yield from store.walk_between(folder, self.start, self.stop)
        yield from (meta for meta in store.unfinished(folder) if meta.path in self)


def spans_of(cuts: Sequence[str]) -> list[Span]:
    """Return the spans between cuts: one more than there are cuts."""
    return [Span(*pair) for pair in zip([None, *cuts], [*cuts, None], strict=True)]


R_co = TypeVar("R_co", covariant=True)
R = TypeVar("R")


class Part(Protocol[R_co]):
    """Part of a clean-up; can be pickled."""

    def run(self, store: ObjectStore) -> R_co:
        """Run the part in the branch to clean up."""


class CleanupWork(Protocol):
    """The runner of parts of a clean-up, and its division; ``None`` leaves it undivided."""

    @property
    def division(self) -> Division | None:
        """The size of one part."""

    def run(self, store: ObjectStore, parts: Sequence[Part[R]]) -> list[R]:
        """Run parts in any order, and return their results in the order of the parts."""


class _InProcess:
    """Parts run in this process, one after the other."""

    division = None

    def run(self, store: ObjectStore, parts: Sequence[Part[R]]) -> list[R]:
        return [part.run(store) for part in parts]


IN_PROCESS: Final = _InProcess()
"""A clean-up in this process, undivided."""


@dataclass(frozen=True, slots=True)
class Selection:
    """The versions to delete.

    Parameters
    ----------
    wanted
        Versions that may go judging by their numbers.
    parents, tagged, linked
        Versions that branches start from; versions with tags; versions whose manifests are links.
    before
        Only versions created before this time go.
    unknown
        Times of empty tags and branches, which may name any version that existed then.
    """

    wanted: frozenset[int]
    parents: frozenset[int]
    tagged: frozenset[int]
    linked: frozenset[int]
    before: datetime
    unknown: tuple[datetime | None, ...] = ()

    def decide(self, version: int, time: datetime) -> Literal["keep", "tagged", "link", "delete"]:
        """Decide about a version that was created at a time."""
        if version not in self.wanted or version in self.parents or time >= self.before:
            return "keep"
        if version in self.tagged:
            return "tagged"
        if any(until is None or time <= until for until in self.unknown):
            return "keep"
        return "link" if version in self.linked else "delete"


@dataclass(frozen=True, slots=True)
class VersionFiles:
    """Facts of manifests: times of versions, and files by span, of kept and of deleted versions.

    Files below base paths stay with the versions that have them: the base path may be this root.
    """

    times: dict[int, datetime]
    kept: tuple[pa.Array[Any], ...]
    deleted: tuple[pa.Array[Any], ...]


@dataclass(frozen=True, slots=True)
class ReadVersions:
    """Read manifests for their files."""

    locations: Sequence[ManifestLocation]
    selection: Selection
    cuts: tuple[str, ...]

    def run(self, store: ObjectStore) -> VersionFiles:
        """Return the files of the versions that still exist.

        Raises
        ------
        CorruptFileError
            A manifest is damaged, so the files in use are unknown.
        """
        times: dict[int, datetime] = {}
        kept, deleted = FileSet(), FileSet()
        for location, manifest in _loaded(store, self.locations):
            times[location.version] = time = manifest.timestamp
            if self.selection.decide(location.version, time) == "delete":
                deleted.add(files_of(manifest), bases=False)
            else:
                kept.add(files_of(manifest))
        # A deleted version shares most files with others; only its own files are needed here.
        deleted.paths -= kept.paths
        return VersionFiles(times, self._divided(kept), self._divided(deleted))

    def _divided(self, files: FileSet) -> tuple[pa.Array[Any], ...]:
        names = sorted(files.paths)
        cuts = [0, *(bisect_left(names, cut) for cut in self.cuts), len(names)]
        return tuple(constants(names[start:stop], pa.string()) for start, stop in pairwise(cuts))


@dataclass(frozen=True, slots=True)
class Unused:
    """Files that no kept version uses, links and their targets that stay, and empty folders."""

    files: FoundFiles
    links: list[str]
    folders: list[str]


@dataclass(frozen=True, slots=True)
class ListUnused:
    """List the unused files of a span.

    Parameters
    ----------
    span
        The paths.
    folders
        Folders where the clean-up may delete files.
    kept, deleted
        All files in the span that belong to kept versions, and to deleted versions.
    youngest
        Files changed after it may belong to an active writer unless a version has had them;
        ``None`` if nobody writes.
    targets
        Targets of links, which stay.
    max_groups
        Maximum number of files of one deletion; ``None`` for all.
    """

    span: Span
    folders: tuple[str, ...]
    kept: tuple[pa.Array[Any], ...]
    deleted: tuple[pa.Array[Any], ...]
    youngest: datetime | None
    targets: LinkTargets

    def run(self, store: ObjectStore) -> Unused:
        """Return files, links and empty folders."""
        kept, deleted = _united(self.kept), _united(self.deleted)
        files: list[CleanupFile] = []
        links: list[str] = []
        folders: list[str] = []
        for folder in filter(self.span.overlaps, self.folders):
            for meta in self.span.listed(store, folder):
                verified = meta.path in deleted
                kind = kind_of(meta.path, named=verified)
                if kind is None or _is_used(meta.path, kept):
                    continue
                if not (verified or self._is_old(meta)):
                    continue
                if store.is_link(meta.path) or store.full(meta.path) in self.targets:
                    links.append(meta.path)
                    continue
                drawn = kind != "manifest" and kind_of(meta.path) is not None
                unverified = not verified
                file = CleanupFile(meta.path, kind, meta.size, unverified, drawn=drawn)
                files.append(file)
            links.extend(path for path in store.links(folder) if self._is_unused_folder(path, kept))
            # Young folders may belong to an active writer, as unused files may.
            folders.extend(
                meta.path
                for meta in store.empty_folders(folder)
                if self._is_unused_folder(meta.path, kept) and self._is_old(meta)
            )
        return Unused(FoundFiles.of(files), links, folders)

    def _is_old(self, meta: ObjectMeta) -> bool:
        if self.youngest is None:
            return True
        return meta.modified is not None and meta.modified <= self.youngest

    def _is_unused_folder(self, path: str, kept: FileSet) -> bool:
        return path in self.span and is_own_folder(path) and not kept.has_folder(path)


def _is_used(path: str, kept: FileSet) -> bool:
    """Return whether a version needs a file; a stopped copy may leave unneeded files in folders."""
    name = path.rpartition("/")[2]
    if final_name(name) is not None or is_others_temporary(name):
        return path in kept.paths
    return path in kept


def manifest_files(store: ObjectStore, paths: Sequence[str]) -> list[CleanupFile]:
    """Return the existing manifest files; look up files that a listing lacks."""
    sizes = {meta.path: meta.size for meta in store.list(VERSIONS)} if paths else {}
    files = []
    for path in paths:
        there = None if path in sizes else find_object(store, path)
        size = sizes.get(path) if there is None else there.size
        if size is not None:
            files.append(CleanupFile(path, "manifest", size, unverified=False))
    return files


@dataclass(frozen=True, slots=True)
class DeleteFiles:
    """Delete files of a plan, ignoring missing files, so that it may run twice."""

    paths: list[str]

    def run(self, store: ObjectStore) -> None:
        """Delete the files, as many per call as stores take, then folders that became empty."""
        for at in range(0, len(self.paths), BATCH):
            store.delete(self.paths[at : at + BATCH])
        # Folders of blobs or index segments, which nobody else uses.
        folders = {path.rpartition("/")[0] for path in self.paths}
        store.remove_empty(sorted(filter(is_own_folder, folders)))


def _loaded(
    store: ObjectStore, locations: Sequence[ManifestLocation]
) -> Iterator[tuple[ManifestLocation, Manifest]]:
    """Yield manifests, a few at a time, except manifests that another clean-up deleted."""

    def load(location: ManifestLocation) -> Manifest | None:
        try:
            return load_manifest(store, location)
        except ObjectNotFoundError:
            if find_object(store, location.path) is not None:
                raise  # another file is missing, so the files of the version are unknown
            return None

    manifests = each_manifest(store, load, locations)
    for location, manifest in zip(locations, manifests, strict=True):
        if manifest is not None:
            yield location, manifest


def made_meanwhile(
    store: ObjectStore, listed: Sequence[ManifestLocation], read: Collection[int]
) -> list[Manifest]:
    """Return the manifests of listed versions that are still unread.

    Raises
    ------
    CleanupError
        Another clean-up removed the newest listed version, so later versions have unknown files.
    """
    new = [location for location in listed if location.version not in read]
    found = dict(_loaded(store, new))
    if new and new[-1] == listed[-1] and new[-1] not in found:
        raise CleanupError(
            f"another process cleaned up version {new[-1].version}, the newest one listed in "
            f"{store.full(VERSIONS)}: later ones are not listed yet. Try again later"
        )
    return list(found.values())


def manifests_since(store: ObjectStore, newest: int) -> list[Manifest]:
    """Return the manifests of versions after a version, and of all detached versions.

    Two listings, a request for each manifest, and three for versions that listings may show late.
    Errors as for :func:`made_meanwhile`.
    """
    manifests = list_manifests(store)
    detached = [location for location, meta in manifests if meta.size and location.is_detached]
    listed = [*detached, *list_versions_past(store, newest)]
    return made_meanwhile(store, listed, range(newest + 1))


def _united(parts: Iterable[pa.Array[Any]]) -> FileSet:
    names: Any = (name for part in parts for name in part.to_pylist())
    return FileSet(set(names))


# --- Files kept beyond the policy: symlinks, and versions that empty refs may name ------


def refuse_staged(store: ObjectStore, locations: Sequence[ManifestLocation]) -> None:
    """Refuse staged versions: their only manifest has the name of an unneeded manifest.

    Raises
    ------
    CleanupError
        A version is staged: writing its manifest under its final name fails.
    """
    for location in locations:
        if is_staged_manifest_name(location.path.rpartition("/")[2]):
            raise CleanupError(
                f"version {location.version} of {store.uri} is registered, and its manifest "
                f"{location.path} could not be written under its final name. Clean up again when "
                "the store and the manifest store take writes"
            )


def targets_of_others(root: ObjectStore, own: Collection[str]) -> LinkTargets:
    """Return the targets of links of a dataset, except the links of a deleted branch.

    ``own`` are the paths of that branch below the root.
    """
    return _link_targets([(root, folder) for folder in (TREE, *FOLDERS)], own)


class Protection:
    """The files that a clean-up keeps beyond the policy, with warnings."""

    def __init__(self, store: ObjectStore, root: ObjectStore) -> None:
        self._store, self._root = store, root
        self._branch_reason = None
        if store.uri.startswith(f"{root.uri}/"):  # a branch is below the root
            self._branch_reason = root.link_out(store.uri[len(root.uri) + 1 :])
        self.warnings: list[str] = []

    def reason(self, folder: str) -> str | None:
        """Return why files in a folder are kept; ``None`` if they may be deleted."""
        return self._branch_reason or self._store.link_out(folder)

    def is_reachable(self, folder: str) -> bool:
        """Return whether files in a folder may be deleted; otherwise add a warning."""
        reason = self.reason(folder)
        if reason is not None:
            self.warnings.append(f"nothing in {self._store.full(folder)} was deleted: {reason}")
        return reason is None

    def is_link(self, path: str) -> bool:
        """Return whether the path is a link, which writers never create; then add a warning."""
        if not self._store.is_link(path):
            return False
        self.warnings.append(f"{self._store.full(path)} is a link, which no Lance writer created")
        return True

    def targets(self) -> LinkTargets:
        """Return the targets of links of this branch and of the other branches.

        A target may be a file that a version needs, under another name.
        """
        folders = [(self._root, TREE)]
        for store in {one.uri: one for one in (self._root, self._store)}.values():
            folders += [(store, folder) for folder in FOLDERS]
        return _link_targets(folders)

    def keep(self, path: str) -> None:
        """Add the reason why a link or its target stays."""
        if not self.is_link(path):
            self.warnings.append(f"{self._store.full(path)} was kept: a link leads to it")

    def unknown_refs(self, root: ObjectStore) -> list[datetime | None]:
        """Return times of empty refs; each may have been meant for any version of its time."""
        times: list[datetime | None] = []
        for folder in (TAGS, BRANCHES):
            for meta in ref_files(root, folder).values():
                if meta.size:
                    continue
                times.append(meta.modified)
                self.warnings.append(
                    f"{root.full(meta.path)} is empty, so its version is unknown: older versions "
                    "were kept. Create or delete the tag or branch"
                )
        return times


def _link_targets(
    folders: Iterable[tuple[ObjectStore, str]], own: Collection[str] = ()
) -> LinkTargets:
    links = []
    for store, folder in folders:
        for path in store.links(folder):
            with suppress(StoreError):  # no version can name a link of such a name
                if path not in own:
                    links.append(store.full(path))
    return LinkTargets(links)


_FILE_BYTES: Final = 128
"""Approximate bytes of a manifest per data file."""

_logger = logging.getLogger(__name__)

DEFAULT_AGE: Final = timedelta(days=14)


@dataclass(frozen=True, slots=True)
class CleanupPolicy:
    """The versions to delete, as a policy.

    Parameters
    ----------
    older_than
        Minimum age, from 0; two weeks if all options that select versions are omitted.
    retain_versions
        Number of newest versions to keep.
    versions
        Delete only these versions.
    delete_unverified
        Delete files of any age that no version uses. Use it only while nobody writes.
    error_if_tagged
        Fail if a version to be deleted has a tag; otherwise it is kept.
    """

    older_than: timedelta | None = option(
        Kind("a timedelta ≥ 0, as timedelta(days=7)", lambda age: integer().of(age // DEFAULT_AGE))
    )
    retain_versions: int | None = option(
        integer(1, range_message="retain_versions must be greater than 0, got {}. ")
    )
    versions: Sequence[int] | None = option(Kind("at least one version", max))
    delete_unverified: bool = option(SWITCH, default=False)
    error_if_tagged: bool = option(SWITCH, default=True)

    def __post_init__(self) -> None:
        check_fields(self)

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
class CleanupPlan:
    """The versions and files to delete, manifests first, and warnings about what is kept.

    ``folders`` of indices and blobs are already empty. The clean-up removes them, and folders that
    become empty. ``newest`` is the last version whose files are known to stay.
    """

    read_version: int
    versions: tuple[int, ...]
    files: FoundFiles
    warnings: tuple[str, ...] = ()
    folders: tuple[str, ...] = ()
    newest: int = 0

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return self.files.size

    def count(self, kind: FileKind) -> int:
        """Count the files of a kind."""
        return self.files.count_of(kind)


def plan_cleanup(
    store: ObjectStore,
    root: ObjectStore,
    current: Manifest,
    policy: CleanupPolicy,
    work: CleanupWork = IN_PROCESS,
) -> CleanupPlan:
    """Plan a clean-up, without deleting anything.

    Parameters
    ----------
    store, root
        The branch to clean up, and the root of the dataset with tags and branches.
    current
        The current version; the clean-up keeps it and newer versions.
    work
        The work that reads manifests and lists folders.

    Raises
    ------
    CleanupError
        A version to be deleted has a tag, and ``error_if_tagged`` is set. Or a listing is too stale
        to show the existing versions.
    CorruptFileError
        A manifest is damaged, so the files in use are unknown.
    CommitContentionError
        A branch was deleted meanwhile.

    Notes
    -----
    Requests: a listing per folder, one per version, one per tag and branch, and four for versions
    that listings may show late. Memory: the names of all files of the versions, and a few
    manifests. Divided work makes these requests elsewhere, and this process packs the names.
    """
    protection = Protection(store, root)
    locations = list_versions_past(store, current.version)
    refuse_staged(store, locations)
    branch = name_in(root, store, current.wire.branch or None)
    reachable = protection.reason(VERSIONS) is None  # the warning is added with its files
    tags = [(name, tag.version) for name, tag in list_tags(root).items() if tag.branch == branch]
    parents = {
        entry.parent_version
        for entry in list_branches(root, complete=True).values()
        if entry.parent_branch == branch
    }
    wanted = _candidates(locations, current, policy) if reachable else set()
    selection = Selection(
        frozenset(wanted),
        frozenset(parents),
        frozenset(version for _, version in tags),
        frozenset(
            location.version
            for location in locations
            if location.version in wanted and store.is_link(location.path)
        ),
        policy.before,
        tuple(protection.unknown_refs(root)),
    )
    manifests = list(list_manifests(store))
    unfinished = [
        CleanupFile(meta.path, "manifest", 0, unverified=True, unfinished=True)
        for _, meta in manifests
        if not meta.size
    ]
    # The files of detached versions are kept.
    detached = [location for location, meta in manifests if meta.size and location.is_detached]
    largest = max((meta.size for _, meta in manifests), default=0)
    cuts, read = _read(store, [*locations, *detached], selection, (current, largest), work)
    times = {version: time for part in read for version, time in part.times.items()}
    judged = {
        location: selection.decide(location.version, times[location.version])
        for location in locations
        if location.version in times
    }
    if policy.error_if_tagged:
        named = {location.version for location, verdict in judged.items() if verdict == "tagged"}
        _refuse_tagged(store, [(name, at) for name, at in tags if at in named])
    for location, verdict in judged.items():
        if verdict == "link":
            protection.is_link(location.path)  # adds a warning
    old = [location for location, verdict in judged.items() if verdict == "delete"]
    files_of_old = manifest_files(store, [location.path for location in old])
    files_of_old.extend(unfinished if reachable else ())
    unused = _unused(store, cuts, read, policy, protection, work)
    files = FoundFiles.joined([FoundFiles.of(files_of_old), *(listing.files for listing in unused)])
    # A version created concurrently may use old files again, for example after a restore.
    newest = max((location.version for location in locations), default=current.version)
    listed = list_versions_past(store, newest)
    made = made_meanwhile(store, listed, times)
    if made:
        files = files.without(FileSet.of(made))
    folders = tuple(sorted(path for listing in unused for path in listing.folders))
    versions = tuple(sorted(location.version for location in old))
    newest = max((location.version for location in listed), default=newest)
    warnings = tuple(protection.warnings)
    return CleanupPlan(current.version, versions, files, warnings, folders, newest)


def _refuse_tagged(store: ObjectStore, tags: Sequence[tuple[str, int]]) -> None:
    """Fail if versions to be deleted have tags."""
    if not tags:
        return
    names = ", ".join(f"{name!r} (version {at})" for name, at in sorted(tags))
    raise CleanupError(
        f"Cleanup error: {len(tags)} tagged version(s) have been marked for cleanup. Either set "
        "`error_if_tagged_old_versions=false` or delete the following tag(s) to enable cleanup of "
        f"{store.uri}: {names}"
    )


def delete_planned(
    store: ObjectStore,
    plan: CleanupPlan,
    rate: int | None = None,
    note: Callable[[int], object] | None = None,
    work: CleanupWork = IN_PROCESS,
) -> CleanupPlan:
    """Delete the files of a plan, manifests first, at most ``rate`` per second; log the warnings.

    ``note`` gets the number of files of each call, unless the work is divided. This process deletes
    manifests; the work deletes other files. Return the plan without kept files. Files of versions
    made since are kept, too, because such a version may have restored an old version.
    """
    batch = BATCH if rate is None else min(BATCH, max(1, rate))
    warnings = list(plan.warnings)
    kept: set[str] = set()
    here = [file for file in plan.files if file.kind == "manifest" and not file.drawn]
    for file in here:
        if file.unfinished and not store.remove_unfinished(file.path):
            kept.add(file.path)
            warnings.append(
                f"{store.full(file.path)} is empty, as left by an interrupted writer, and cannot "
                "be deleted safely now; the next commit replaces it"
            )
    manifests = [file for file in here if not file.unfinished]
    left = len(plan.files) - sum(file.unfinished for file in here)

    def delete(files: Iterable[CleanupFile]) -> None:
        nonlocal left
        rest = (file.path for file in files)
        while part := list(islice(rest, batch)):
            began = monotonic()
            DeleteFiles(part).run(store)
            left -= len(part)
            if note is not None:
                note(len(part))
            if rate is not None and left:
                sleep(max(0.0, len(part) / rate - (monotonic() - began)))

    files = plan.files
    if manifests:
        advance_hint(store, plan.read_version)
        # A store may delete the files of one call in any order, and stop at any of them.
        delete(manifests)
        # Nobody can restore these versions any more; somebody may have, after the plan.
        made = manifests_since(store, plan.newest)
        files = files.without(FileSet.of(made)) if made else files
    division = work.division
    if rate is None and division is not None:
        # A part that a cluster gave up may run later, when a new file has a name that is not drawn.
        delete(file for file in files if file.kind != "manifest" and not file.drawn)
        drawn = (file.path for file in files if file.drawn)
        parts = iter(lambda: list(islice(drawn, division.deletions)), [])
        work.run(store, list(map(DeleteFiles, parts)))
    else:
        delete(file for file in files if file.kind != "manifest")
    store.remove_empty(plan.folders)
    for warning in warnings:
        _logger.warning("clean-up of %s: %s", store.public_uri, warning)
    files = files.without(kept) if kept else files
    return replace(plan, files=files, warnings=tuple(warnings))


def _candidates(
    locations: Sequence[ManifestLocation], current: Manifest, policy: CleanupPolicy
) -> set[int]:
    """Return versions that may be deleted judging by their numbers."""
    keep = policy.retain_versions or 1
    older = locations[: max(0, len(locations) - keep)]
    versions = {location.version for location in older if location.version < current.version}
    return versions if policy.versions is None else versions & set(policy.versions)


def _read(
    store: ObjectStore,
    locations: Sequence[ManifestLocation],
    selection: Selection,
    size: tuple[Manifest, int],
    work: CleanupWork,
) -> tuple[tuple[str, ...], list[VersionFiles]]:
    """Return the files of versions, and the cuts between names.

    ``size`` is the current version and the bytes of the largest manifest. They divide the work,
    because older versions may have more files.
    """
    division = work.division
    if division is None:
        return (), work.run(store, [ReadVersions(locations, selection, ())])
    current, largest = size
    files = max(current.stated.file_count, largest // _FILE_BYTES)
    cuts = division.cuts(files)
    readers = division.readers(locations, files)
    return cuts, work.run(store, [ReadVersions(part, selection, cuts) for part in readers])


def _unused(
    store: ObjectStore,
    cuts: Sequence[str],
    read: Sequence[VersionFiles],
    policy: CleanupPolicy,
    protection: Protection,
    work: CleanupWork,
) -> list[Unused]:
    """Return the files that no kept version uses."""
    # Writers leave rests of tags and branches on file systems only, so glaive lists them only
    # there.
    present = (folder for folder in FOLDERS if folder != REFS or store.is_local)
    folders = tuple(folder for folder in present if protection.is_reachable(folder))
    youngest = None if policy.delete_unverified else now() - UNVERIFIED_AGE
    targets = protection.targets()
    parts = [
        ListUnused(
            span,
            folders,
            tuple(part.kept[number] for part in read),
            tuple(part.deleted[number] for part in read),
            youngest,
            targets,
        )
        for number, span in enumerate(spans_of(cuts))
    ]
    unused = work.run(store, parts)
    for listing in unused:
        for path in listing.links:
            protection.keep(path)
    return unused


# --- Clean up old versions every few commits, if the table's configuration enables it ---
# ``lance.auto_cleanup.interval``: versions between clean-ups. ``….older_than``: the least age, such
# as ``14d`` or ``1h 30m``. ``….retain_versions``: newest versions to keep. ``….delete_rate_limit``:
# the most files per second. A failure is logged and leaves the commit intact; the next clean-up
# tries again.

_RETAIN: Final = "lance.auto_cleanup.retain_versions"
_RATE: Final = "lance.auto_cleanup.delete_rate_limit"

_MAX_SECONDS: Final = 60
"""Maximum time for deletions because of a limit: a commit waits for it, and the limit may come from
an untrusted configuration.
"""


def clean_up_if_due(store: ObjectStore, before: Manifest, made: Manifest) -> None:
    """Clean up if it is due, given the new version and the previous one.

    The clean-up keeps the previous version, too, as it may be in use.
    """
    config: Mapping[str, str] = made.config
    try:
        interval = int(config[INTERVAL])
        if interval > 0 and made.version % interval:  # as pylance: 0 is every version
            return
        retain = config.get(_RETAIN)
        policy = CleanupPolicy(
            older_than=duration(config.get(OLDER_THAN, "0s")),
            retain_versions=None if retain is None else int(retain),
            error_if_tagged=False,
        )
        root = root_store(store, before.wire.branch or None)
        rate = int(config[_RATE]) if _RATE in config else None
        if rate is not None and rate < 1:
            raise OptionError(f"{_RATE} must be greater than 0, got {rate}")
        plan = plan_cleanup(store, root, before, policy)
        if rate is not None:
            rate = max(rate, len(plan.files) // _MAX_SECONDS)
        delete_planned(store, plan, rate=rate)
    except (GlaiveError, ValueError) as error:
        _logger.warning("old versions of %s were not cleaned up: %s", store.public_uri, error)
