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
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Final

from glaive.clock import monotonic, now, sleep
from glaive.dataclass import dataclass
from glaive.errors import CleanupError, GlaiveError, OptionError, OptionRangeError, StoreError
from glaive.format.manifest import Manifest
from glaive.format.paths import REFS, VERSIONS, is_staged_manifest_name
from glaive.io.confined import LinkTargets
from glaive.io.store import ObjectStore
from glaive.table.cleanup.parts import (
    BATCH,
    HERE,
    CleanupFile,
    CleanupWork,
    DeleteFiles,
    Division,
    FoundFiles,
    ListUnused,
    PlannedFiles,
    ReadVersions,
    Selection,
    Unused,
    VersionFiles,
    in_batches,
    made_meanwhile,
    made_since,
    manifest_files,
    spans_of,
)
from glaive.table.references import ALL_IDS, FOLDERS, UNVERIFIED_AGE, FileKind, FileSet
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

# --- What a clean-up keeps beyond its policy: links, and versions that empty refs may name


def refuse_staged(store: ObjectStore, locations: Sequence[ManifestLocation]) -> None:
    """Check that no version is staged: its only manifest has the name of one that nobody needs.

    Raises
    ------
    CleanupError
        One is, as its manifest cannot be written under its final name.
    """
    for location in locations:
        if is_staged_manifest_name(location.path.rpartition("/")[2]):
            raise CleanupError(
                f"version {location.version} of {store.uri} is registered, and its manifest "
                f"{location.path} could not be written under its final name. Clean up again when "
                "the store and the manifest store take writes"
            )


def targets_of_others(root: ObjectStore, own: Collection[str]) -> LinkTargets:
    """What links of a dataset lead to, but for those of a branch that is deleted.

    ``own`` are the paths of the latter below the root.
    """
    return _link_targets([(root, folder) for folder in (TREE, *FOLDERS)], own)


class Protection:
    """What a clean-up keeps beyond the policy, with warnings."""

    def __init__(self, store: ObjectStore, root: ObjectStore) -> None:
        self._store, self._root = store, root
        self._branch_reason = None
        if store.uri.startswith(f"{root.uri}/"):  # a branch is below the root
            self._branch_reason = root.link_out(store.uri[len(root.uri) + 1 :])
        self.warnings: list[str] = []

    def reason(self, folder: str) -> str | None:
        """Why files in a folder are kept; ``None`` if they may be deleted."""
        return self._branch_reason or self._store.link_out(folder)

    def is_reachable(self, folder: str) -> bool:
        """Whether files in a folder may be deleted; otherwise adds a warning."""
        reason = self.reason(folder)
        if reason is not None:
            self.warnings.append(f"nothing in {self._store.full(folder)} was deleted: {reason}")
        return reason is None

    def is_link(self, path: str) -> bool:
        """Whether the path is a link, which writers never create; adds a warning."""
        if not self._store.is_link(path):
            return False
        self.warnings.append(f"{self._store.full(path)} is a link, which no Lance writer created")
        return True

    def targets(self) -> LinkTargets:
        """What links of this branch and of the others lead to.

        What a version needs may lie there, under a name that no version has.
        """
        folders = [(self._root, TREE)]
        for store in {one.uri: one for one in (self._root, self._store)}.values():
            folders += [(store, folder) for folder in FOLDERS]
        return _link_targets(folders)

    def keep(self, path: str) -> None:
        """Add why a link stays, or what a link leads to."""
        if not self.is_link(path):
            self.warnings.append(f"{self._store.full(path)} was kept: a link leads to it")

    def unknown_refs(self, root: ObjectStore) -> list[datetime | None]:
        """Times of empty refs; each may have been meant for any version that existed then."""
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
"""Of a manifest for each data file, about."""

_logger = logging.getLogger(__name__)

DEFAULT_AGE: Final = timedelta(days=14)


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
            said = f"retain_versions must be greater than 0, got {self.retain_versions}"
            raise OptionRangeError(said)
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
class CleanupPlan:
    """The versions and files to delete, manifests first, and warnings about what is kept.

    ``folders`` of indices and blobs are empty already: they are removed, too, as are those that
    become empty. ``newest`` is the last version whose files are known to stay.
    """

    read_version: int
    versions: tuple[int, ...]
    files: PlannedFiles
    warnings: tuple[str, ...] = ()
    folders: tuple[str, ...] = ()
    newest: int = 0

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return self.files.size

    def count(self, kind: FileKind) -> int:
        """Files of a kind."""
        return self.files.count_of(kind)


def plan_cleanup(
    store: ObjectStore,
    root: ObjectStore,
    current: Manifest,
    policy: CleanupPolicy,
    work: CleanupWork = HERE,
) -> CleanupPlan:
    """Plan a clean-up; deletes nothing.

    Parameters
    ----------
    store, root
        The branch to clean up, and the root of the dataset with tags and branches.
    current
        The current version: it and newer ones are kept.
    work
        Where manifests are read and folders listed.

    Raises
    ------
    CleanupError
        A version to be deleted has a tag, and ``error_if_tagged`` is set; or a listing is too stale
        to tell which versions there are.
    CorruptFileError
        A manifest is damaged, so the files in use are unknown.
    CommitContentionError
        A branch was deleted meanwhile.

    Notes
    -----
    Requests: a listing per folder, one per version, one per tag and branch, and four for versions
    that listings may not show yet. Memory: the names of all files that versions have, and a few
    manifests. Where work is divided, others make these requests; this process holds names packed.
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
        location: selection.judge(location.version, times[location.version])
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
    files_of_old = manifest_files(store, [location.path for location in old], work)
    files_of_old.extend(unfinished if reachable else ())
    unused = _unused(store, cuts, read, policy, protection, work)
    runs = [
        FoundFiles.of(files_of_old, drawn=False),
        *(run for listing in unused for run in listing.files),
    ]
    files = PlannedFiles(runs)
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
    """Fail if there are tags, each with its version, of versions to be deleted."""
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
    work: CleanupWork = HERE,
) -> CleanupPlan:
    """Delete the files of a plan, manifests first, at most ``rate`` per second; log the warnings.

    ``note`` gets the number of files of each call, unless the work is divided. Manifests are
    deleted by this process, other files where the work runs. Returns the plan without files that
    were kept: also those of versions made since, as one may have restored an old version.
    """
    batch = BATCH if rate is None else min(BATCH, max(1, rate))
    warnings = list(plan.warnings)
    kept: set[str] = set()
    here = [file for run in plan.files.runs if not run.drawn for file in run.files]
    for file in here:
        if file.unfinished and not store.remove_unfinished(file.path):
            kept.add(file.path)
            warnings.append(
                f"{store.full(file.path)} is empty, as left by an interrupted writer, and cannot "
                "be deleted safely now; the next commit replaces it"
            )
    manifests = [file for file in here if file.kind == "manifest" and not file.unfinished]
    left = len(plan.files) - sum(file.unfinished for file in here)

    def delete(files: Iterable[CleanupFile]) -> None:
        nonlocal left
        for part in in_batches(files, batch):
            began = monotonic()
            DeleteFiles((FoundFiles.of(part, drawn=False),)).run(store)
            left -= len(part)
            if note is not None:
                note(len(part))
            if rate is not None and left:
                sleep(max(0.0, len(part) / rate - (monotonic() - began)))

    files = plan.files
    if manifests:
        advance_hint(store, plan.read_version)
        # A store may delete those of one call in any order, and stop at any of them.
        delete(manifests)
        # Nobody can restore these versions any more; somebody may have, after the plan.
        made = made_since(store, plan.newest)
        files = files.without(FileSet.of(made)) if made else files
    if rate is None and work.division is not None:
        _delete_in_parts(store, files, work, work.division)
    else:
        delete(file for file in files if file.kind != "manifest")
    store.remove_empty(plan.folders)
    for warning in warnings:
        _logger.warning("clean-up of %s: %s", store.public_uri, warning)
    files = files.without(kept) if kept else files
    return replace(plan, files=files, warnings=tuple(warnings))


def _delete_in_parts(
    store: ObjectStore, files: PlannedFiles, work: CleanupWork, division: Division
) -> None:
    """Delete files where the work runs, but for manifests.

    A part that a cluster has given up may still run, at any time. What it deletes was reachable
    from no version when it was planned, and nobody writes a file of that name again, because the
    name is random. Where it is not, for manifests and for names that users chose, a new file may
    have it by then: these are deleted here.
    """
    for run in files.runs:
        if not run.drawn:
            chosen = [file for file in run.files if file.kind != "manifest"]
            DeleteFiles((FoundFiles.of(chosen, drawn=False),)).run(store)
    parts: list[list[FoundFiles]] = []
    count = division.deletions
    for run in files.runs:
        if run.drawn:
            if count + len(run) > division.deletions:
                parts.append([])
                count = 0
            parts[-1].append(run)
            count += len(run)
    work.run(store, [DeleteFiles(tuple(part)) for part in parts])


def _candidates(
    locations: Sequence[ManifestLocation], current: Manifest, policy: CleanupPolicy
) -> set[int]:
    """Versions that may be deleted judging by their numbers."""
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
    """What versions have, and where the names are cut.

    ``size`` is the current version and the bytes of the largest manifest, by which the work is
    divided: older versions may have more files.
    """
    division = work.division
    if division is None:
        return (), work.run(store, [ReadVersions(locations, selection, ALL_IDS, ())])
    current, largest = size
    files = max(current.stated.file_count, largest // _FILE_BYTES)
    cuts = division.cuts(files)
    readers = division.readers(locations, files, current.max_fragment_id)
    return cuts, work.run(
        store, [ReadVersions(part, selection, ids, cuts) for part, ids in readers]
    )


def _unused(
    store: ObjectStore,
    cuts: Sequence[str],
    read: Sequence[VersionFiles],
    policy: CleanupPolicy,
    protection: Protection,
    work: CleanupWork,
) -> list[Unused]:
    """Files that no kept version uses."""
    # Writers leave nothing of tags and branches in a bucket, which need not be asked.
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
            None if work.division is None else work.division.deletions,
        )
        for number, span in enumerate(spans_of(cuts))
    ]
    unused = work.run(store, parts)
    for listing in unused:
        for path in listing.links:
            protection.keep(path)
    return unused


# --- Clean up old versions every few commits, if the table's configuration enables it ---
# =============================== ========================================================= key
# meaning =============================== =========================================================
# ``lance.auto_cleanup.interval``  number of versions between clean-ups ``….older_than``
# minimum age: ``14d``, ``1h 30m``; default: none ``….retain_versions``            number of newest
# versions to keep ``….delete_rate_limit``          maximum files per second, as far as a minute is
# enough =============================== =========================================================
#
# A failure is logged and does not affect the commit; the next clean-up tries again.

INTERVAL: Final = "lance.auto_cleanup.interval"
OLDER_THAN: Final = "lance.auto_cleanup.older_than"
_RETAIN: Final = "lance.auto_cleanup.retain_versions"
_RATE: Final = "lance.auto_cleanup.delete_rate_limit"

_MOST_SECONDS: Final = 60
"""Time that deleting takes at most because of a limit: a commit waits for it, and whoever made the
dataset may have written any limit into its configuration.
"""


_PART: Final = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-zµ]*)\s*")
_DAY: Final = 86_400.0
_SECONDS: Final = {
    **dict.fromkeys(("nsec", "ns", "nanos"), 1e-9),
    **dict.fromkeys(("usec", "us", "µs", "micros"), 1e-6),
    **dict.fromkeys(("ms", "msec", "millis"), 1e-3),
    **dict.fromkeys(("", "s", "sec", "secs", "second", "seconds"), 1.0),
    **dict.fromkeys(("m", "min", "mins", "minute", "minutes"), 60.0),
    **dict.fromkeys(("h", "hr", "hrs", "hour", "hours"), 3600.0),
    **dict.fromkeys(("d", "day", "days"), _DAY),
    **dict.fromkeys(("w", "week", "weeks"), 7 * _DAY),
    **dict.fromkeys(("M", "month", "months"), 30.44 * _DAY),
    **dict.fromkeys(("y", "year", "years"), 365.25 * _DAY),
}


_UNITS: Final = (
    ("year", "years", 31_557_600), ("month", "months", 2_630_016), ("day", "days", 86_400),
    ("h", "h", 3_600), ("m", "m", 60), ("s", "s", 1),
)  # fmt: skip


def duration(text: str) -> timedelta:
    """A time span such as ``14d`` or ``1h 30m``; a number alone is seconds.

    Raises
    ------
    OptionError
        The text is no time span.
    """
    at, seconds = 0, 0.0
    while at < len(text):
        part = _PART.match(text, at)
        if part is None or part[2] not in _SECONDS:
            raise OptionError(f"expected a time span such as 14d or 1h 30m, found {text!r:.80}")
        seconds += float(part[1]) * _SECONDS[part[2]]
        at = part.end()
    if not text.strip():
        raise OptionError("expected a time span such as 14d or 1h 30m, found an empty string")
    try:
        return timedelta(seconds=seconds)
    except OverflowError:
        raise OptionError(f"the time span {text!r:.80} is too long") from None


def span_text(seconds: int) -> str:
    """A time span as pylance writes it: the whole units, the largest first; ``1h 30m``."""
    parts = []
    for name, plural, size in _UNITS:
        count, seconds = divmod(seconds, size)
        if count:
            parts.append(f"{count}{plural if count > 1 else name}")
    return " ".join(parts) or "0s"


def clean_after(store: ObjectStore, before: Manifest, made: Manifest) -> None:
    """Clean up if it is due, given the new version and the previous one.

    The previous version is kept, too, as it may be in use.
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
            rate = max(rate, len(plan.files) // _MOST_SECONDS)
        delete_planned(store, plan, rate=rate)
    except (GlaiveError, ValueError) as error:
        _logger.warning("old versions of %s were not cleaned up: %s", store.public_uri, error)
