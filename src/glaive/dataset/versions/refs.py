"""``dataset.tags`` and ``dataset.branches``."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from itertools import chain
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from glaive.clock import now_ns
from glaive.dataclass import dataclass
from glaive.dataset.tasks import LOCAL, FragmentRange, Job, commit_operation
from glaive.errors import (
    CommitConflictError,
    CommitError,
    DatasetNotFoundError,
    ObjectNotFoundError,
    OptionError,
    RefExistsError,
    RefNotFoundError,
)
from glaive.format.manifest import Manifest
from glaive.format.paths import VERSIONS, manifest_path, parse_manifest_name
from glaive.io.store import ObjectStore
from glaive.table import refs
from glaive.table.cleanup import targets_of_others
from glaive.table.configuration import string_map
from glaive.table.copying import copy_files
from glaive.table.load import load_again, open_latest, open_newest, open_version, read_transaction
from glaive.table.publishing import PUBLISHED, Publish, Published, root_bases
from glaive.table.put_manifest import forget_dataset
from glaive.table.references import (
    FOLDERS,
    FileSet,
    IdRange,
    fragment_files,
    index_folders,
    kind_of,
)
from glaive.table.refs import (
    BRANCHES,
    MAIN,
    TREE,
    Branch,
    Referenced,
    Tag,
    branch_file,
    branch_of,
    branch_store,
    can_be_deleted,
    name_in,
    read_branch,
    ref_files,
    resolve_again,
    root_store,
)

if TYPE_CHECKING:
    from glaive.dataset.version import OpenDataset, OpenedVersion


# --- Delete a branch, and nothing that other branches use -------------------------------

_logger = logging.getLogger(__name__)


def delete_branch(root: ObjectStore, branch: str) -> None:
    """Delete a branch: first its ref, then its files, its manifests last.

    One without a ref, as a process leaves that was stopped in between, is deleted as well. Files of
    branches below it stay, also of one that somebody is about to make; so do those of a branch of
    this name which was made again, after somebody else deleted this one at the same time.
    """
    known: Branch | None = None
    if not refs.is_branch_begun(root, branch):
        try:
            known = refs.read_branch(root, branch)
        except RefNotFoundError:
            if not _has_rest(root, branch):
                raise
    _refuse_used(root, branch)
    refs.delete_branch_file(root, branch)
    try:
        _refuse_used(root, branch)  # by a tag or a branch that was made meanwhile
    except CommitError:
        if known is not None:
            with suppress(RefExistsError):
                refs.create_branch_file(root, branch, known)
        raise
    store = branch_store(root, branch)
    reason = root.link_out(f"{TREE}/{branch}") or store.link_out("")
    if reason is not None:
        _logger.warning(
            "the files of branch %r of %s are kept: %s", branch, root.public_uri, reason
        )
        return
    # Also what killed writers had not finished: no clean-up finds it once the branch has no ref.
    listed = chain(store.walk(""), store.unfinished(""))
    files = [meta.path for meta in listed if can_be_deleted(store, meta.path)]
    names = ref_files(root, BRANCHES)  # after the files: one made again has written some of them
    if _has_ref(root, branch):
        return
    paths = _without_targets(root, store, branch, names, _own_files(files, branch, names))
    manifests = {path for path in paths if parse_manifest_name(path.removeprefix(f"{VERSIONS}/"))}
    store.delete([path for path in paths if path not in manifests])
    store.delete(sorted(manifests))  # until then, deleting the branch again finds the others
    forget_dataset(store)
    # What looked like the rest of a deletion may have been a creation, which wrote the ref since;
    # or one found the first version before it was deleted, as if a creation had been stopped.
    if not _has_versions(root, branch):
        refs.delete_branch_file(root, branch)


def _without_targets(
    root: ObjectStore, store: ObjectStore, branch: str, names: Collection[str], paths: Sequence[str]
) -> Sequence[str]:
    """These files without those that links of the dataset lead to; logs which ones stay.

    Programs that replace equal files by links leave such links. Those of the branch go with it.
    """
    own = {f"{TREE}/{branch}/{path}" for path in _own_files(store.links(""), branch, names)}
    targets = targets_of_others(root, own)
    stay = {path for path in paths if store.full(path) in targets and not store.is_link(path)}
    for path in sorted(stay):
        _logger.warning("%s was kept: a link leads to it", store.full(path))
    return [path for path in paths if path not in stay]


def _refuse_used(root: ObjectStore, branch: str) -> None:
    """Refuse a branch that a tag names, or that another one was made from.

    Raises
    ------
    CommitError
    """
    named = [name for name, tag in refs.list_tags(root).items() if tag.branch == branch]
    if named:
        raise CommitError(
            f"Branch {branch} is referenced by tags, can not delete: the tags {', '.join(named)} "
            f"refer to versions of branch {branch!r} of {root.uri}. Delete or move them first."
        )
    others = refs.list_branches(root, complete=True, without=branch)
    children = [name for name, other in others.items() if other.parent_branch == branch]
    if children:
        raise CommitError(
            f"Branch {branch} is referenced by branches, can not delete: {', '.join(children)} "
            f"start from branch {branch!r} of {root.uri} and use its files. Delete them first."
        )


def _own_files(files: Iterable[str], branch: str, names: Iterable[str]) -> Sequence[str]:
    """Of the files below the directory of a branch, those that are its own.

    What lies in a folder of a dataset, such as ``x/_versions``, belongs to ``x``, which has a ref,
    or is about to get one. So in the directory of branch ``dev/data`` are data files of ``dev``.
    """
    prefix = f"{branch}/"
    below = tuple(f"{name.removeprefix(prefix)}/" for name in names if name.startswith(prefix))
    depth = branch.count("/") + 1

    def is_own(path: str) -> bool:
        parents = f"{prefix}{path}".split("/")[:-1]
        folders = [at for at, name in enumerate(parents) if at and name in FOLDERS]
        return folders[-1] == depth if folders else not path.startswith(below)

    return list(filter(is_own, files))


def _has_rest(root: ObjectStore, branch: str) -> bool:
    """Whether something is left of a branch, which may have no ref. Two requests, or three."""
    store = branch_store(root, branch)
    try:
        return branch_of(open_latest(store)) == branch
    except DatasetNotFoundError:
        # Nobody can read files without a version. Those with other names may be the caller's own.
        files = [meta.path for meta in store.walk("")]
        own = _own_files(files, branch, ref_files(root, BRANCHES))
        return any(kind_of(path) is not None for path in own)
    except ObjectNotFoundError:  # the manifest store has one whose file was deleted
        return True


def _has_ref(root: ObjectStore, branch: str) -> bool:
    """Whether a branch has a ref by now, by its name: a listing may be stale. One request."""
    try:
        root.head(branch_file(branch))
    except ObjectNotFoundError:
        return False
    return True


def _has_versions(root: ObjectStore, branch: str) -> bool:
    """Whether there are versions of a branch. Two requests.

    Two more where a listing shows none: it may be stale, and the branch made again just now.
    """
    store = branch_store(root, branch)
    try:
        return branch_of(open_latest(store)) == branch
    except DatasetNotFoundError:
        pass
    except ObjectNotFoundError:  # the manifest store has one whose file was deleted
        return True
    try:
        store.head(manifest_path(refs.read_branch(root, branch).parent_version))
    except (RefNotFoundError, ObjectNotFoundError):
        return False
    return True


# --- Publish a branch: what was written to it becomes the next version of the one it was made
# from
#
# Tasks copy the files that only the branch has; one commit makes them visible.


@dataclass(frozen=True, slots=True)
class CopyTask:
    """Copy files that a branch has written to the one it was made from; can be pickled.

    Parameters
    ----------
    fragments
        Fragments of the branch.
    indices
        Positions of segments of indices in its manifest.
    parent
        The branch to copy to; ``None`` for the main one.
    published
        The version there that has what was published before; ``None`` if nothing was.
    """

    fragments: FragmentRange
    indices: range
    parent: str | None
    published: int | None

    def execute(self, dataset: OpenDataset) -> int:
        """Copy what is not there yet; returns the number of files.

        One request for the version that was published before, two with old names of manifests.
        """
        opened = self.fragments.opened(dataset)
        manifest = opened.manifest
        folders = list(index_folders(manifest))
        positions = self.fragments.positions(opened)
        files = [*fragment_files(manifest, positions), *(folders[at] for at in self.indices)]
        target = branch_store(root_store(opened.store, branch_of(manifest)), self.parent)
        kept = FileSet()
        if self.published is not None:
            ids = manifest.fragment_ids[positions.start : positions.stop]
            part = IdRange(int(ids.min()), int(ids.max()) + 1) if len(ids) else IdRange(0, 0)
            with suppress(ObjectNotFoundError):  # others have committed since: a conflict
                kept.add(load_again(target, self.published, None), part, bases=False)
        own = [file for file in files if file.base_id is None]
        return copy_files(opened.store, manifest, target, own, kept=kept)


def publish_branch(
    opened: OpenedVersion, branch: str, job: Job = LOCAL, *, version: int | None = None
) -> tuple[Manifest, int]:
    """Commit a version of a branch, by default its newest, as the next version of this one.

    Parameters
    ----------
    opened
        The newest version of the branch that the other was made from.
    branch
        The other branch.
    version
        Its version: later ones are not published.

    Returns
    -------
    tuple
        The version with its contents, and how many files were copied. No version is made if all
        of the branch has been published.

    Raises
    ------
    RefNotFoundError
        There is no such branch.
    VersionNotFoundError
        The branch does not have this version.
    OptionError
        It was made from another branch.
    CommitConflictError
        There are versions that the branch does not have; nothing was changed.
    """
    newest = opened.manifest
    root = root_store(opened.store, branch_of(newest))
    here = name_in(root, opened.store, branch_of(newest))
    made_from = read_branch(root, branch)
    parent = made_from.parent_branch
    if parent != here:
        raise OptionError(
            f"branch {branch!r} of {root.uri} was made from branch {parent or MAIN!r}, not from "
            f"{here or MAIN!r}. Publish it there"
        )
    store = branch_store(root, branch)
    source = open_newest(store) if version is None else open_version(store, version)
    before = _published(opened, branch, made_from)
    if source.version <= before.version:
        return newest, 0
    reading = opened.at_reference(Referenced(branch, store, source))
    last = None if before.version == made_from.parent_version else newest.version
    tasks = list(copy_tasks(reading, here, job.runner.parts(reading), last))
    copied = sum(job.runner.run(reading, tasks))
    now = before.then(source.version, newest.version + 1)
    job = replace(job, properties={**job.properties, PUBLISHED: now.text()})
    operation = Publish.of(source, root_bases(source, opened.store), before)
    properties = job.recording(num_files_copied=copied, published_version=source.version)
    return commit_operation(opened, operation, properties=properties, once=job.once), copied


def _published(opened: OpenedVersion, branch: str, made_from: Branch) -> Published:
    """How far the opened version has the contents of the branch.

    Raises
    ------
    CommitConflictError
        It has others as well.
    """
    identity = made_from.identifier[-1][1] if made_from.identifier else str(made_from.create_at)
    start, newest = made_from.parent_version, opened.manifest.version
    if newest == start:
        return Published(branch, identity, ((start, start),))
    known = Published.of(read_transaction(opened.store, opened.manifest))
    if known is not None and (known.branch, known.identity) == (branch, identity):
        return known
    raise CommitConflictError(
        f"branch {branch!r} was made from version {start} of {opened.uri}, whose newest version is "
        f"{newest}: the branch does not have what was committed since. Create a branch of the "
        "newest version, and repeat the changes there",
        retryable=False,
        version=newest,
    )


def copy_tasks(
    reading: OpenedVersion,
    parent: str | None,
    parts: Iterable[FragmentRange],
    published: int | None = None,
) -> Iterator[CopyTask]:
    """A task for each part with files that the branch wrote, and one for each segment of its own.

    Parameters
    ----------
    reading
        The version of the branch.
    parent
        The branch to copy to; ``None`` for the main one.
    parts
        All of its fragments.
    published
        As for :class:`CopyTask`.
    """
    manifest = reading.manifest
    for part in parts:
        own = [
            at
            for at in part.positions(reading)
            if any(file.base_id is None for file in fragment_files(manifest, (at,)))
        ]
        if own:
            with_own = FragmentRange(manifest.version, own[0], own[-1] + 1)
            yield CopyTask(with_own, range(0), parent, published)
    nothing = FragmentRange(manifest.version, 0, 0)
    for at, folder in enumerate(index_folders(manifest)):
        if folder.base_id is None:
            yield CopyTask(nothing, range(at, at + 1), parent, published)


T = TypeVar("T")

Named: TypeAlias = list[tuple[str, dict[str, Any]]]
"""Names and their descriptions, in order."""


class _Refs:
    """The tags or branches of a dataset, at the version it is at."""

    __slots__ = ("_dataset",)

    def __init__(self, dataset: OpenDataset) -> None:
        self._dataset = dataset

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(sorted(self.list()))})"

    def list(self) -> dict[str, dict[str, Any]]:
        """The entries by name."""
        raise NotImplementedError

    @property
    def _root(self) -> ObjectStore:
        opened = self._dataset.opened
        return root_store(opened.store, branch_of(opened.manifest))


class Tags(_Refs):
    """Names for versions of any branch. Returned by ``dataset.tags``."""

    __slots__ = ()

    def list(self) -> dict[str, dict[str, Any]]:
        """All tags: ``branch``, ``version``, ``created_at``, ``updated_at`` (UTC),
        ``manifest_size`` in bytes and ``metadata`` by name. One request per tag.
        """
        return {name: _describe_tag(tag) for name, tag in refs.list_tags(self._root).items()}

    def list_ordered(self, order: str | None = None) -> Named:
        """All tags by version, the newest first unless ``order`` is ``"asc"``."""
        by_name = refs.list_tags(self._root)
        names = _ordered(by_name, lambda tag: tag.version, order)
        return [(name, _describe_tag(by_name[name])) for name in names]

    def get_version(self, tag: str) -> int:
        """Number of the version of a tag.

        Raises
        ------
        RefNotFoundError
            There is no such tag.
        """
        return refs.read_tag(self._root, tag).version

    def create(self, tag: str, reference: object = None) -> None:
        """Tag a version: a number, a tag, or ``(branch, number)``; default: this one.

        Raises
        ------
        RefExistsError
            There is a tag of this name; ``update`` moves it.
        VersionNotFoundError
            There is no such version, or none any more.
        CommitConflictError
            This version is of a dataset that was deleted, and another one is in its place.
        RefNotFoundError
            Its branch is deleted meanwhile; there is no tag.
        OptionError
            The name is invalid.

        Notes
        -----
        Two requests more on a branch than on the main one.
        """
        root = self._root
        new, branch = self._tag(root, reference)
        refs.create_tag(root, tag, new)
        try:
            _check_not_deleted(root, new, branch)
        except RefNotFoundError:
            refs.delete_tag(root, tag)
            raise

    def update(self, tag: str, reference: object = None) -> None:
        """Move a tag to another version; references as for :meth:`create`."""
        root = self._root
        old = refs.read_tag(root, tag)
        new, branch = self._tag(root, reference)
        new = replace(new, created_at=old.created_at, metadata=old.metadata)
        refs.replace_tag(root, tag, new)
        try:
            _check_not_deleted(root, new, branch)
        except RefNotFoundError:
            refs.replace_tag(root, tag, old)
            raise

    def replace_metadata(self, tag: str, metadata: Mapping[str, str]) -> None:
        """Replace the metadata of a tag."""
        old = refs.read_tag(self._root, tag)
        refs.replace_tag(self._root, tag, replace(old, metadata=string_map("metadata", metadata)))

    def delete(self, tag: str) -> None:
        """Delete a tag; its version remains, but can be cleaned up from now on."""
        refs.delete_tag(self._root, tag)

    def _tag(self, root: ObjectStore, reference: object) -> tuple[Tag, Branch | None]:
        """A tag for a version, and the branch that had the version."""
        opened = self._dataset.opened
        target = resolve_again(opened.store, opened.manifest, reference)
        manifest = target.manifest
        path = manifest_path(manifest.version, manifest.scheme)
        name = name_in(root, target.store, target.branch)
        branch = None if name is None else refs.read_branch(root, name)
        time = now_ns()
        tag = Tag(
            version=manifest.version,
            branch=name,
            manifest_size=target.store.head(path).size,
            created_at=time,
            updated_at=time,
        )
        return tag, branch


class Branches(_Refs):
    """The branches other than the main one. Returned by ``dataset.branches``."""

    __slots__ = ()

    def list(self) -> dict[str, dict[str, Any]]:
        """All branches except the main one, with origin and time. One request per branch."""
        return {
            name: _describe_branch(branch)
            for name, branch in refs.list_branches(self._root).items()
        }

    def list_ordered(self, order: str | None = None) -> Named:
        """All branches by parent version, the newest first unless ``order`` is ``"asc"``."""
        by_name = refs.list_branches(self._root)
        names = _ordered(by_name, lambda branch: branch.parent_version, order)
        return [(name, _describe_branch(by_name[name])) for name in names]

    def replace_metadata(self, branch: str, metadata: Mapping[str, str]) -> None:
        """Replace the metadata of a branch."""
        old = refs.read_branch(self._root, branch)
        refs.replace_branch(
            self._root, branch, replace(old, metadata=string_map("metadata", metadata))
        )

    def delete(self, branch: str) -> None:
        """Delete a branch and its files.

        Raises
        ------
        RefNotFoundError
            There is no such branch.
        CommitError
            A tag refers to one of its versions, or a branch starts from it; delete those first.
        """
        delete_branch(self._root, branch)

    def publish(self, branch: str) -> int:
        """Make what a branch has the next version of the one it was made from.

        The dataset must be on the branch that the other was made from, and moves to the new
        version. Only glaive has this method; others see an overwrite.

        Returns
        -------
        int
            The number of the version.

        Raises
        ------
        RefNotFoundError
            There is no such branch.
        OptionError
            It was made from another branch.
        CommitConflictError
            There are versions that the branch does not have; nothing was changed.

        Notes
        -----
        Files that the branch wrote are copied, so it can be deleted afterwards. Or it goes on:
        publishing it again copies and adds what it wrote since, unless others have committed.
        """
        manifest, _ = publish_branch(self._dataset.opened.at_latest(), branch)
        self._dataset.move_to(manifest)
        return manifest.version


def _check_not_deleted(root: ObjectStore, tag: Tag, known: Branch | None) -> None:
    """Check that the branch of a tag was not deleted, nor made again, before the tag was put.

    Its deletion looks for tags after its ref is deleted: either it finds this one, or this one
    finds no ref. No request on the main branch.

    Raises
    ------
    RefNotFoundError
        It was.
    """
    if known is None or tag.branch is None:
        return
    try:
        there: Branch | None = refs.read_branch(root, tag.branch)
    except RefNotFoundError:
        there = None
    if there is None or replace(there, metadata={}) != replace(known, metadata={}):
        raise RefNotFoundError(
            f"branch {tag.branch} of {root.uri} was deleted while its version {tag.version} was "
            "tagged, and no tag refers to it. Tag another version."
        )


def _ordered(by_name: Mapping[str, T], key: Callable[[T], int], order: str | None) -> list[str]:
    if order not in (None, "asc", "desc"):
        raise OptionError(f"Invalid sort order {order!r}. Valid values are: asc, desc")
    sign = 1 if order == "asc" else -1
    return sorted(by_name, key=lambda name: (sign * key(by_name[name]), name))


def _describe_tag(tag: Tag) -> dict[str, Any]:
    return {
        "branch": tag.branch,
        "version": tag.version,
        "created_at": _moment(tag.created_at),
        "updated_at": _moment(tag.updated_at),
        "manifest_size": tag.manifest_size,
        "metadata": dict(tag.metadata),
    }


def _describe_branch(branch: Branch) -> dict[str, Any]:
    return {
        "parent_branch": branch.parent_branch,
        "branch_identifier": list(branch.identifier),
        "parent_version": branch.parent_version,
        "create_at": branch.create_at,
        "manifest_size": branch.manifest_size,
        "metadata": dict(branch.metadata),
    }


def _moment(nanos: int | None) -> datetime | None:
    if nanos is None:
        return None
    return datetime.fromtimestamp(nanos // 1_000_000_000, UTC).replace(
        microsecond=nanos % 1_000_000_000 // 1000
    )
