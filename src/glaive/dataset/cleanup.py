"""Clean up old versions, and explain what a clean-up would do."""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import field
from datetime import timedelta
from functools import partial
from itertools import islice
from typing import Any, Final, Generic, TypeVar

import pyarrow as pa

from glaive.dataclass import dataclass
from glaive.dataset.monitoring import current_line
from glaive.dataset.tasks import TaskRunner
from glaive.dataset.version import OpenDataset, OpenedVersion
from glaive.errors import (
    DatasetNotFoundError,
    FormatError,
    GlaiveError,
    ObjectExistsError,
    ObjectNotFoundError,
    OptionError,
    StoreError,
)
from glaive.format.manifest import Manifest
from glaive.format.paths import (
    HINT,
    VERSIONS,
    is_staged_manifest_name,
    manifest_path,
    parse_manifest_name,
)
from glaive.io.store import ObjectMeta, ObjectStore
from glaive.options import number
from glaive.process import DATASETS, FILES, anyone_listens, emit
from glaive.table.cleanup import (
    IN_PROCESS,
    CleanupPlan,
    CleanupPolicy,
    CleanupWork,
    Division,
    Part,
    delete_planned,
    plan_cleanup,
)
from glaive.table.load import (
    check_not_replaced,
    each_manifest,
    load_manifest,
    load_numbered,
    open_latest,
    open_newest,
)
from glaive.table.manifest_steps import enter_renamed, finish_all
from glaive.table.put_manifest import forget_dataset
from glaive.table.references import files_of, index_folders, kind_of
from glaive.table.refs import (
    BRANCHES,
    branch_of,
    branch_store,
    can_be_deleted,
    is_branch_name,
    list_branches,
    name_in,
    ref_files,
    root_store,
)
from glaive.table.root import confine, open_root, register_of
from glaive.table.versions import MAX_UNLISTED, ManifestLocation, list_manifests, list_versions
from glaive.types import integer_of

# --- The files of a dataset: list all, list files of versions, delete all ---------------

_logger = logging.getLogger(__name__)

_BASES: Final = pa.dictionary(pa.int32(), pa.string())
_KINDS: Final = pa.dictionary(pa.int8(), pa.string())
_ALL: Final = pa.schema(
    [
        pa.field("base_uri", _BASES, nullable=False),
        pa.field("path", pa.string(), nullable=False),
        pa.field("size_bytes", pa.int64(), nullable=False),
        pa.field("last_modified", pa.timestamp("us", tz="UTC"), nullable=False),
    ]
)
_TRACKED: Final = pa.schema(
    [
        pa.field("version", pa.int64(), nullable=False),
        pa.field("base_uri", _BASES, nullable=False),
        pa.field("path", pa.string(), nullable=False),
        pa.field("type", _KINDS, nullable=False),
    ]
)
_FILES_PER_BATCH: Final = 8192


def all_files(dataset: OpenedVersion) -> pa.RecordBatchReader:
    """Stream the files below the root, with size in bytes and modification time (UTC).

    Base paths are left out. Makes only the requests of a listing.
    """
    store = dataset.store
    files = ((store.uri, meta.path, meta.size, meta.modified) for meta in store.walk(""))
    return _stream(_ALL, files)


def tracked_files(
    dataset: OpenedVersion,
    min_version: int | None,
    progress: Callable[[int, int | None], object] | None,
) -> pa.RecordBatchReader:
    """Stream the files that versions use: ``version``, ``base_uri``, ``path``, ``type``.

    ``progress`` is called with the number of manifests read and their total. Makes one request per
    version and one listing per index.
    """
    store = dataset.store

    def rows() -> Iterator[tuple[object, ...]]:
        wanted = [
            location for location in list_versions(store) if location.version >= (min_version or 0)
        ]
        manifests = each_manifest(store, partial(load_manifest, store), wanted)
        for done, (location, manifest) in enumerate(zip(wanted, manifests, strict=True), 1):
            yield (manifest.version, store.uri, location.path, "manifest")
            for base, path, kind in _files_of(store, manifest):
                yield (manifest.version, base, path, kind)
            if progress is not None:
                progress(done, len(wanted))

    return _stream(_TRACKED, rows())


def _stream(schema: pa.Schema, rows: Iterator[tuple[object, ...]]) -> pa.RecordBatchReader:
    def batches() -> Iterator[pa.RecordBatch]:
        while batch := list(islice(rows, _FILES_PER_BATCH)):
            columns: list[Any] = [
                _array(values, field.type)
                for values, field in zip(zip(*batch, strict=True), schema, strict=True)
            ]
            yield pa.RecordBatch.from_arrays(columns, schema=schema)

    return pa.RecordBatchReader.from_batches(schema, batches())


def _array(values: Sequence[object], kind: pa.DataType) -> pa.Array[Any]:
    try:
        return pa.array(values, kind)
    except UnicodeEncodeError:  # names of files are any bytes: escape invalid UTF-8
        texts = [f"{value}".encode(errors="backslashreplace").decode() for value in values]
        return pa.array(texts, kind)


def _files_of(store: ObjectStore, manifest: Manifest) -> Iterator[tuple[str, str, str]]:
    """Yield base URI, path and kind of the files of a version, except its manifest."""
    bases = {
        number: GlaiveError.without_secrets(base.path)
        for number, base in manifest.base_paths.items()
    }
    for file in files_of(manifest):
        base = store.uri if file.base_id is None else bases.get(file.base_id, "")
        if not file.is_folder:
            yield base, file.path, f"{file.kind} file"
        elif file.kind == "index" and file.base_id is None:
            for meta in store.list(file.path):
                yield base, meta.path, "index file"


def drop_dataset(
    uri: str | os.PathLike[str],
    storage_options: Mapping[str, str] | None,
    *,
    ignore_not_found: bool,
    above: ObjectStore | None = None,
) -> None:
    """Delete a dataset and everything below its root.

    Files in symlinked folders that lead out of ``above``, or by default out of the root, stay.
    """
    store = open_root(uri, storage_options)
    if above is not None:
        confine(store, above)
    newest: Manifest | None = None
    try:
        newest = open_newest(store) if store.is_remote else open_latest(store)
    except DatasetNotFoundError:
        _refuse_files(store)
        if ignore_not_found:
            return
        raise
    except ObjectNotFoundError:  # the manifest store has a version that a stopped drop deleted
        _refuse_files(store, besides=f"{VERSIONS}/")
    except FormatError as error:
        raise OptionError(
            f"{store.uri} is not dropped: its newest manifest cannot be read ({error}). Delete "
            "the files themselves if they are no longer needed."
        ) from error
    paths = [meta.path for meta in store.walk("")]
    paths += [meta.path for meta in store.unfinished("")]
    paths = [path for path in paths if can_be_deleted(store, path)]
    links = dict.fromkeys(link for link in store.links("") if can_be_deleted(store, link))
    for link in links:
        paths += _linked_files(store, link)
    if newest is not None and store.is_remote:
        paths += _unlisted_files(store, newest, paths)
    if register_of(store) is not None:
        for branch in filter(is_branch_name, ref_files(store, BRANCHES)):
            forget_dataset(branch_store(store, branch))
    files = [path for path in dict.fromkeys(paths) if path not in links]  # without duplicates
    # Manifests last, so that you can repeat an interrupted drop: a store may delete in any order.
    last = {path for path in files if _is_manifest(path) or _is_staged(path)}
    store.delete([path for path in files if path not in last])
    store.delete(sorted(last))
    store.delete(list(links))
    forget_dataset(store)
    store.remove_folders()


def _unlisted_files(store: ObjectStore, newest: Manifest, listed: Sequence[str]) -> list[str]:
    """Return the hint, and files of versions that a stale listing may lack.

    These files make the folder a dataset. Blobs and files with other names may stay unlisted. Makes
    one request for each of these versions.
    """
    names = (parse_manifest_name(path.removeprefix(f"{VERSIONS}/")) for path in listed)
    last = max((name.version for name in names if name and not name.is_detached), default=0)
    paths = [HINT]
    for version in range(max(last, newest.version - MAX_UNLISTED) + 1, newest.version + 1):
        with suppress(ObjectNotFoundError):
            manifest = load_numbered(store, version, newest.scheme)
            paths.append(manifest_path(version, newest.scheme))
            folders = zip(index_folders(manifest), manifest.indices, strict=True)
            own = [(f.path, f.base_id) for f in files_of(manifest) if not f.is_folder]
            own += [(f"{at.path}/{f.path}", at.base_id) for at, one in folders for f in one.files]
            paths += [path for path, base in own if base is None and kind_of(path) is not None]
    return paths


def _refuse_files(store: ObjectStore, besides: str | None = None) -> None:
    """Refuse a folder with files: it lacks a manifest, so they may be the caller's own.

    Files below ``besides`` are allowed: a drop deletes them last and may have left them.

    Raises
    ------
    OptionError
        The folder has files.
    """
    for meta in store.walk(""):
        if besides is None or not meta.path.startswith(besides):
            raise OptionError(
                f"Refusing to drop {store.uri}: it has files, and no readable Lance manifest was "
                "found, so this is not a dataset. Check the path."
            )


def _linked_files(store: ObjectStore, link: str) -> list[str]:
    """Return files of the dataset in a symlinked folder that may be deleted."""
    reason = store.link_out(link)
    if reason is not None:
        _logger.warning("%s is deleted, not followed: %s", store.full(link), reason)
        return []
    try:
        return [meta.path for meta in store.walk(link) if _is_own(meta.path)]
    except StoreError as error:
        if error.errno != errno.ENOTDIR:  # then it is a file, which is listed by its own name
            raise
        return []


def _is_own(path: str) -> bool:
    if kind_of(path, named=True) is not None:
        return True
    return path == HINT or _is_manifest(path)


def _is_manifest(path: str) -> bool:
    folder, _, name = path.rpartition("/")
    return folder == VERSIONS and parse_manifest_name(name) is not None


def _is_staged(path: str) -> bool:
    folder, _, name = path.rpartition("/")
    return folder == VERSIONS and is_staged_manifest_name(name)


def migrate_manifest_names(store: ObjectStore) -> int:
    """Rename all manifests so that listings have the newest first; return their number.

    Stop other writers meanwhile. You can repeat the call after an interruption: glaive
    renames the newest manifest first, so readers find it. Makes three requests per manifest, and
    two more per manifest for a register of manifests. A stale listing adds one request per missing
    manifest and one for the version after them.

    Raises
    ------
    OptionError
        A manifest, or their folder, is a symlink that leads out of the root. All names stay.
    UnsupportedFeatureError
        A catalogue names the manifests. All names stay.
    """
    renamed = 0
    _refuse_link(store, store.link_out(VERSIONS))
    register = register_of(store)
    if register is not None:
        finish_all(store, register)
    listed = list(list_manifests(store))
    old = [one for one in listed if one[0].scheme == "V1"]
    last = max((at.version for at, _ in listed if not at.is_detached), default=0)
    old += _later_with_old_names(store, last)
    for location, _ in old:  # a symlink's target would be copied into the dataset
        _refuse_link(store, store.file_link_out(location.path))
    for location, meta in sorted(old, key=lambda one: one[0].version, reverse=True):
        if not meta.size:  # left by an interrupted writer
            store.delete([meta.path])
            continue
        target = manifest_path(location.version, "V2")
        content = store.get(meta.path)
        try:
            store.put(target, [content], mode="create")
        except ObjectExistsError:
            if store.get(target) != content:
                raise
        if register is not None:
            enter_renamed(store, register, location.version, target)
        store.delete([meta.path])
        renamed += 1
    return renamed


def _later_with_old_names(
    store: ObjectStore, last: int
) -> Iterator[tuple[ManifestLocation, ObjectMeta]]:
    """Yield manifests after the last listed one, by their names: a listing may be stale.

    If the newest kept its old name, readers would miss it after a thousand new names.
    """
    with suppress(ObjectNotFoundError):
        for version in range(last + 1, last + 1 + MAX_UNLISTED):
            path = manifest_path(version, "V1")
            yield ManifestLocation(version, path, "V1"), store.head(path)


def _refuse_link(store: ObjectStore, reason: str | None) -> None:
    if reason is not None:
        raise OptionError(f"the manifests of {store.uri} are not renamed: {reason}")


@dataclass(frozen=True, slots=True)
class CleanupStats:
    """Deleted bytes, versions and files by kind, and warnings.

    ``warnings`` list symlinks that lead out of the root, and files that an active writer may own.
    glaive kept these files and logs the warnings.
    """

    bytes_removed: int
    old_versions: int
    data_files_removed: int
    transaction_files_removed: int
    index_files_removed: int
    deletion_files_removed: int
    failed_deletes: int = 0
    warnings: tuple[str, ...] = ()

    @classmethod
    def of(cls, plan: CleanupPlan) -> CleanupStats:
        """Return the statistics of a plan."""
        return cls(
            bytes_removed=plan.size,
            old_versions=len(plan.versions),
            data_files_removed=plan.count("data"),
            transaction_files_removed=plan.count("transaction"),
            index_files_removed=plan.count("index"),
            deletion_files_removed=plan.count("deletion"),
            warnings=plan.warnings,
        )


@dataclass(frozen=True, slots=True)
class CleanupCandidateFile:
    """A file that a clean-up would delete; ``unverified`` if versions have never used it."""

    path: str
    kind: str
    unverified: bool
    size_bytes: int


@dataclass(frozen=True, slots=True)
class CleanupReferencedBranch:
    """A branch, and the version that is kept because it, or an ancestor, starts there.

    ``cleanup_candidate`` is False, as a clean-up leaves other branches unchanged.
    """

    name: str
    referenced_version: int
    cleanup_candidate: bool = False


@dataclass(frozen=True, slots=True)
class CleanupExplanation:
    """The files that a clean-up would delete; ``warnings`` list files it would keep, and why."""

    read_version: int
    stats: CleanupStats
    candidate_files: list[CleanupCandidateFile]
    candidate_files_truncated: bool
    candidate_file_limit: int
    referenced_branches: list[CleanupReferencedBranch] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


def clean_up(
    dataset: OpenedVersion,
    policy: CleanupPolicy,
    delete_rate_limit: int | None,
    delete_concurrency: int | None = None,
    work: CleanupWork = IN_PROCESS,
) -> CleanupStats:
    """Delete what the policy allows; ``work`` reads manifests and deletes files."""
    for name, limit in (
        ("delete_rate_limit", delete_rate_limit),
        ("delete_concurrency", delete_concurrency),
    ):
        if limit is not None and (integer_of(limit) or 0) < 1:
            raise OptionError(f"{name} must be greater than 0, got {limit}; an integer is expected")
    emit(DATASETS, event="cleaning", uri=dataset.uri)
    plan = planned_cleanup(dataset, policy, work)
    line = current_line()

    if line is not None:
        line.move_to(0, len(plan.files))
    note = None if line is None else line.advance
    done = delete_planned(dataset.store, plan, rate=delete_rate_limit, note=note, work=work)
    for file in done.files if anyone_listens() else ():
        emit(FILES, mode="delete", type=file.kind, path=file.path)
    return CleanupStats.of(done)


def explain(
    dataset: OpenedVersion, policy: CleanupPolicy, *, include_files: bool, max_files: int
) -> CleanupExplanation:
    """Return what :func:`clean_up` would delete."""
    plan = planned_cleanup(dataset, policy)
    listed = plan.files[:max_files] if include_files else ()
    return CleanupExplanation(
        read_version=plan.read_version,
        stats=CleanupStats.of(plan),
        candidate_files=[
            CleanupCandidateFile(file.path, file.kind, file.unverified, file.size)
            for file in listed
        ],
        candidate_files_truncated=include_files and len(listed) < len(plan.files),
        candidate_file_limit=max_files,
        referenced_branches=_referenced_branches(dataset, policy),
        warnings=list(plan.warnings),
    )


def _referenced_branches(
    dataset: OpenedVersion, policy: CleanupPolicy
) -> list[CleanupReferencedBranch]:
    """Return branches that start at versions selected by the policy, newest version first."""
    root = root_store(dataset.store, branch_of(dataset.manifest))
    own, branches = name_in(root, dataset.store, branch_of(dataset.manifest)), list_branches(root)
    mine = None if own is None else branches.get(own)
    chain = () if mine is None else mine.identifier
    versions = [location.version for location in list_versions(dataset.store)]
    kept = set(versions[len(versions) - (policy.retain_versions or 0) :])
    before = policy.before
    referenced = []
    for name, branch in branches.items():
        steps = branch.identifier[len(chain) :]
        if not steps or branch.identifier[: len(chain)] != chain:
            continue
        version = steps[0][0]
        selected = policy.versions is None or version in policy.versions
        if not selected or version in kept or version not in versions:
            continue
        if dataset.at(version).manifest.timestamp < before:
            referenced.append(CleanupReferencedBranch(name, version))
    return sorted(referenced, key=lambda branch: (-branch.referenced_version, branch.name))


def planned_cleanup(
    dataset: OpenedVersion, policy: CleanupPolicy, work: CleanupWork = IN_PROCESS
) -> CleanupPlan:
    """Return the files that :func:`clean_up` would delete.

    Raises
    ------
    CommitConflictError
        Another dataset has replaced this one.
    """
    check_not_replaced(dataset.store, dataset.manifest)
    root = root_store(dataset.store, branch_of(dataset.manifest))
    return plan_cleanup(dataset.store, root, dataset.manifest, policy, work)


def age_of(option: str, given: object, unit: timedelta) -> timedelta:
    """Return the age that an option gives as a number of units, such as hours or days.

    Raises
    ------
    OptionError
        The age is negative, too long, or not a number.
    """
    return unit * float(number(0, timedelta.max // unit).check(option, given))


# --- Parts of a clean-up as tasks, in this process or on a cluster ----------------------

R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class CleanupTask(Generic[R]):
    """A part of a clean-up; can be pickled."""

    part: Part[R]

    def execute(self, dataset: OpenDataset) -> R:
        """Run the part in the branch that the dataset is at."""
        return self.part.run(dataset.opened.store)


@dataclass(frozen=True, slots=True)
class CleanupTasks:
    """Runs parts of a clean-up as tasks; a single part in this process, where it costs less.

    Parameters
    ----------
    dataset
        The version that the clean-up keeps.
    runner
        Runs the tasks.
    division
        How to divide the work into tasks.
    """

    dataset: OpenedVersion
    runner: TaskRunner
    division: Division | None = field(default_factory=Division)

    def run(self, store: ObjectStore, parts: Sequence[Part[R]]) -> list[R]:
        """Run parts in any order; return results in the order of the parts."""
        if len(parts) < 2:
            return [part.run(store) for part in parts]
        return self.runner.run(self.dataset, [CleanupTask(part) for part in parts])
