"""Tags and branches: ``dataset.tags`` and ``dataset.branches``."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from itertools import chain
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import numpy as np

from glaive.dataclass import dataclass
from glaive.dataset.tasks import LOCAL, FragmentRange, Job, commit_operation
from glaive.dataset.writing.plan import DatasetBasePath
from glaive.dataset.writing.rows import allowing
from glaive.errors import (
    CommitConflictError,
    CommitError,
    DatasetExistsError,
    DatasetNotFoundError,
    GlaiveError,
    ObjectNotFoundError,
    OptionError,
    RefExistsError,
    RefNotFoundError,
)
from glaive.format.manifest import Manifest
from glaive.format.paths import DETACHED, VERSIONS, manifest_path, parse_manifest_name
from glaive.io.store import ObjectStore, find_object
from glaive.process import now_ns, random_bytes
from glaive.table import refs
from glaive.table.cleanup import targets_of_others
from glaive.table.configuration import string_map
from glaive.table.copying import begin_clone, copy_files, refuse_dataset
from glaive.table.load import (
    is_same,
    load_again,
    load_numbered,
    open_latest,
    open_newest,
    open_version,
    read_transaction,
)
from glaive.table.operations.overwrite import PUBLISHED, Clone, Publish, Published, root_bases
from glaive.table.protocol import BuildContext, read_operation
from glaive.table.put_manifest import forget_dataset
from glaive.table.references import FOLDERS, FileSet, fragment_files, index_folders, kind_of
from glaive.table.refs import (
    BRANCHES,
    MAIN,
    TREE,
    Branch,
    Referenced,
    Tag,
    branch_exists,
    branch_file,
    branch_of,
    branch_store,
    can_be_deleted,
    check_branch_name,
    create_branch_file,
    name_in,
    read_branch,
    ref_files,
    resolve_again,
    root_store,
)
from glaive.table.root import access_of, open_root

if TYPE_CHECKING:
    from glaive.dataset.version import OpenDataset, OpenedVersion


# --- Delete a branch, but keep files that other branches use ----------------------------

_logger = logging.getLogger(__name__)


def delete_branch(root: ObjectStore, branch: str) -> None:
    """Delete a branch: first its ref, then its files, its manifests last.

    A branch whose ref a stopped process failed to write is deleted as well. Files of branches
    below it stay, including a branch that somebody is creating. If somebody else deleted this
    branch and created it again meanwhile, the files of the new branch stay.
    """
    known: Branch | None = None
    if not refs.is_branch_begun(root, branch):
        try:
            known = refs.read_branch(root, branch)
        except RefNotFoundError:
            if not _has_files(root, branch):
                raise
    _refuse_used(root, branch)
    refs.delete_branch_file(root, branch)
    try:
        _refuse_used(root, branch)  # by a new tag or branch
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
    # Include unfinished files of killed writers: no clean-up finds them without a ref of the
    # branch.
    listed = chain(store.walk(""), store.unfinished(""))
    files = [meta.path for meta in listed if can_be_deleted(store, meta.path)]
    names = ref_files(root, BRANCHES)  # after the files: a new branch has written some of them
    if find_object(root, branch_file(branch)) is not None:  # a listing may be stale
        return
    paths = _without_targets(root, store, branch, names, _own_files(files, branch, names))
    manifests = {path for path in paths if parse_manifest_name(path.removeprefix(f"{VERSIONS}/"))}
    store.delete([path for path in paths if path not in manifests])
    store.delete(sorted(manifests))  # last, so that a second deletion still finds the other files
    forget_dataset(store)
    # The rest of a deletion may have been a creation, which wrote the ref meanwhile. Or a creation
    # found the first version before it was deleted, and took it for a stopped creation.
    if not _has_versions(root, branch):
        refs.delete_branch_file(root, branch)


def _without_targets(
    root: ObjectStore, store: ObjectStore, branch: str, names: Collection[str], paths: Sequence[str]
) -> Sequence[str]:
    """Return the files except targets of the dataset's symlinks; log the files that stay.

    Programs that replace equal files by symlinks make such symlinks. Symlinks of the branch itself
    are deleted with it.
    """
    own = {f"{TREE}/{branch}/{path}" for path in _own_files(store.links(""), branch, names)}
    targets = targets_of_others(root, own)
    stay = {path for path in paths if store.full(path) in targets and not store.is_link(path)}
    for path in sorted(stay):
        _logger.warning("%s was kept: a link leads to it", store.full(path))
    return [path for path in paths if path not in stay]


def _refuse_used(root: ObjectStore, branch: str) -> None:
    """Refuse a branch that a tag names, or that another branch was made from.

    Raises
    ------
    CommitError
        The branch is in use.
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
    """Return those files below the directory of a branch that belong to the branch.

    A folder of a dataset, such as ``x/_versions``, belongs to ``x``, which has a ref or is about to
    get one. So the directory of branch ``dev/data`` contains data files of ``dev``.
    """
    prefix = f"{branch}/"
    below = tuple(f"{name.removeprefix(prefix)}/" for name in names if name.startswith(prefix))
    depth = branch.count("/") + 1

    def is_own(path: str) -> bool:
        parents = f"{prefix}{path}".split("/")[:-1]
        folders = [at for at, name in enumerate(parents) if at and name in FOLDERS]
        return folders[-1] == depth if folders else not path.startswith(below)

    return list(filter(is_own, files))


def _has_files(root: ObjectStore, branch: str) -> bool:
    """Return whether files of a branch exist, which may lack a ref. Two or three requests."""
    store = branch_store(root, branch)
    try:
        return branch_of(open_latest(store)) == branch
    except DatasetNotFoundError:
        # Files outside of versions are unreadable. Files with other names may be the caller's own.
        files = [meta.path for meta in store.walk("")]
        own = _own_files(files, branch, ref_files(root, BRANCHES))
        return any(kind_of(path) is not None for path in own)
    except ObjectNotFoundError:  # the manifest store has a version without its file
        return True


def _has_versions(root: ObjectStore, branch: str) -> bool:
    """Return whether versions of a branch exist. Two requests.

    Makes two more requests if a listing is empty: it may be stale, and the branch new.
    """
    store = branch_store(root, branch)
    try:
        return branch_of(open_latest(store)) == branch
    except DatasetNotFoundError:
        pass
    except ObjectNotFoundError:  # the manifest store has a version without its file
        return True
    try:
        store.head(manifest_path(refs.read_branch(root, branch).parent_version))
    except (RefNotFoundError, ObjectNotFoundError):
        return False
    return True


# --- Publish a branch: its contents become the next version of its parent branch --------
#
# Tasks copy the files that only the branch has. One commit makes them visible.


@dataclass(frozen=True, slots=True)
class CopyTask:
    """Copy files that a branch wrote to its parent branch; can be pickled.

    Parameters
    ----------
    fragments
        Fragments of the branch.
    indices
        Positions of index segments in its manifest.
    parent
        The branch to copy to; ``None`` for the main branch.
    published
        The version there with the contents published before; ``None`` if it is the first time.
    """

    fragments: FragmentRange
    indices: range
    parent: str | None
    published: int | None

    def execute(self, dataset: OpenDataset) -> int:
        """Copy files that the parent lacks; return their number.

        Makes one request for the version published before, or two if manifests have old names.
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
            with suppress(ObjectNotFoundError):  # other writers have committed: a conflict
                there = load_again(target, self.published, None)
                (same,) = np.isin(there.fragment_ids, ids).nonzero()
                kept.add(fragment_files(there, same.tolist()), bases=False)
                kept.add(index_folders(there), bases=False)
        own = [file for file in files if file.base_id is None]
        return copy_files(opened.store, manifest, target, own, kept=kept)


def publish_branch(
    opened: OpenedVersion, branch: str, job: Job = LOCAL, *, version: int | None = None
) -> tuple[Manifest, int]:
    """Commit a version of a branch, by default its newest, as the next version of its parent.

    Parameters
    ----------
    opened
        The newest version of the parent branch.
    branch
        The branch to publish.
    version
        Version of the branch; later versions stay unpublished.

    Returns
    -------
    tuple
        The version with its contents, and the number of copied files. The version is the
        present one if the branch has nothing new.

    Raises
    ------
    RefNotFoundError
        The branch is missing.
    VersionNotFoundError
        The branch lacks this version.
    OptionError
        The branch was made from another branch.
    CommitConflictError
        The parent has versions that the branch lacks. The parent is unchanged.
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
    """Return how far the opened version has the contents of the branch.

    Raises
    ------
    CommitConflictError
        The opened version has other contents as well.
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
    """Yield a task for each part with files of the branch, and for each of its index segments.

    Parameters
    ----------
    reading
        The version of the branch.
    parent
        The branch to copy to; ``None`` for the main branch.
    parts
        All of its fragments.
    published
        See :class:`CopyTask`.
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
    """The tags or branches of a dataset."""

    __slots__ = ("_dataset",)

    def __init__(self, dataset: OpenDataset) -> None:
        self._dataset = dataset

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(sorted(self.list()))})"

    def list(self) -> dict[str, dict[str, Any]]:
        """Return the entries by name."""
        raise NotImplementedError

    @property
    def _root(self) -> ObjectStore:
        opened = self._dataset.opened
        return root_store(opened.store, branch_of(opened.manifest))


class Tags(_Refs):
    """Names for versions of any branch. Returned by ``dataset.tags``."""

    __slots__ = ()

    def list(self) -> dict[str, dict[str, Any]]:
        """Return all tags by name: ``branch``, ``version``, ``created_at``, ``updated_at`` (UTC),
        ``manifest_size`` in bytes and ``metadata``. One request per tag.
        """
        return {name: _describe_tag(tag) for name, tag in refs.list_tags(self._root).items()}

    def list_ordered(self, order: str | None = None) -> Named:
        """Return all tags by version, newest first unless ``order`` is ``"asc"``."""
        by_name = refs.list_tags(self._root)
        names = _ordered(by_name, lambda tag: tag.version, order)
        return [(name, _describe_tag(by_name[name])) for name in names]

    def get_version(self, tag: str) -> int:
        """Return the number of the version of a tag.

        Raises
        ------
        RefNotFoundError
            The tag is missing.
        """
        return refs.read_tag(self._root, tag).version

    def create(self, tag: str, reference: object = None) -> None:
        """Tag a version: a number, a tag, or ``(branch, number)``; default: this version.

        Raises
        ------
        RefExistsError
            A tag of this name exists; ``update`` moves it.
        VersionNotFoundError
            The version is missing, or was cleaned up.
        CommitConflictError
            Another dataset has replaced the dataset of this version.
        RefNotFoundError
            The branch was deleted meanwhile. All tags stay.
        OptionError
            The name is invalid.

        Notes
        -----
        A tag on a branch takes two requests more than on the main branch.
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
        """Move a tag to another version; :meth:`create` explains references."""
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
        """Delete a tag. Its version remains, but a clean-up may now delete it."""
        refs.delete_tag(self._root, tag)

    def _tag(self, root: ObjectStore, reference: object) -> tuple[Tag, Branch | None]:
        """Return a tag for a version, and the branch of the version."""
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
    """All branches except the main branch. Returned by ``dataset.branches``."""

    __slots__ = ()

    def list(self) -> dict[str, dict[str, Any]]:
        """Return all branches except the main branch, with origin and time; a request per
        branch.
        """
        return {
            name: _describe_branch(branch)
            for name, branch in refs.list_branches(self._root).items()
        }

    def list_ordered(self, order: str | None = None) -> Named:
        """Return all branches by parent version, newest first unless ``order`` is ``"asc"``."""
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
            The branch is missing.
        CommitError
            A tag refers to one of its versions, or a branch starts from it. Delete those first.
        """
        delete_branch(self._root, branch)

    def publish(self, branch: str) -> int:
        """Make the contents of a branch the next version of its parent branch.

        The dataset must be on the parent branch; it moves to the new version. Only glaive has this
        method; other libraries see an overwrite.

        Returns
        -------
        int
            The number of the new version.

        Raises
        ------
        RefNotFoundError
            The branch is missing.
        OptionError
            The branch was made from another branch.
        CommitConflictError
            The parent has versions that the branch lacks. The parent is unchanged.

        Notes
        -----
        glaive copies files that the branch wrote, so you can delete the branch afterwards. Or
        continue with it: publishing it again copies and adds only new files, unless others have
        committed.
        """
        manifest, _ = publish_branch(self._dataset.opened.at_latest(), branch)
        self._dataset.move_to(manifest)
        return manifest.version


def _check_not_deleted(root: ObjectStore, tag: Tag, known: Branch | None) -> None:
    """Check that the branch of a new tag is still the same branch.

    A deletion first deletes the ref and then looks for tags. So either it finds this tag, or this
    check misses the ref. The main branch is checked from memory.

    Raises
    ------
    RefNotFoundError
        The branch was deleted.
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


# --- ``create_branch``, ``shallow_clone`` and ``deep_clone`` ----------------------------


def make_branch(dataset: OpenedVersion, name: str, reference: object) -> Referenced:
    """Create a branch from the version that ``reference`` names."""
    check_branch_name(name)
    own = branch_of(dataset.manifest)
    root = root_store(dataset.store, own)
    if name == own != name_in(root, dataset.store, own):
        raise RefExistsError(
            f"branch {name} already exists: {root.uri} itself was copied from a branch of this "
            "name. Choose another name."
        )
    try:
        read_branch(root, name)
    except RefNotFoundError:
        pass
    else:
        raise branch_exists(root, name)
    source = _source(dataset, reference)
    target = branch_store(root, name)
    clone = _clone(source, shallow=True, branch=name)
    manifest = _unfinished(source, target, clone) or _begin_branch(root, source, target, clone)
    parent = name_in(root, source.store, source.branch)
    chain = () if parent is None else read_branch(root, parent).identifier
    version = source.manifest.version
    path = manifest_path(version, source.manifest.scheme)
    create_branch_file(
        root,
        name,
        Branch(
            parent_branch=parent,
            parent_version=version,
            identifier=(*chain, (version, random_bytes(16).hex())),
            create_at=now_ns() // 1_000_000_000,
            manifest_size=source.store.head(path).size,
        ),
    )
    if parent is not None:
        _check_parent(root, parent, source, name)
    if find_object(target, manifest_path(version, manifest.scheme)) is None:
        # A deletion that found no ref of the branch yet has deleted it.
        manifest = _begin_branch(root, source, target, clone)
    return Referenced(name, target, manifest)


def _begin_branch(
    root: ObjectStore, source: Referenced, target: ObjectStore, clone: Clone
) -> Manifest:
    """Commit the first version of a branch.

    Raises
    ------
    RefExistsError
        Versions of a branch of this name exist. While the branch is created, its ref is missing.
    """
    try:
        return begin_clone(source.store, source.manifest, target, clone)
    except DatasetExistsError as error:
        name = clone.branch_name
        raise RefExistsError(
            f"branch {name} already exists: {root.uri} has versions of it. Another process may "
            "be making it, or its making or deletion was stopped. Check it out, delete it, or "
            "choose another name."
        ) from error


def _check_parent(root: ObjectStore, parent: str, source: Referenced, name: str) -> None:
    """Check that the parent of a new branch is still the same branch.

    A deletion first deletes the ref and then looks for child branches. So either it finds the new
    branch, or this check misses the ref. If the parent was created again, this check finds another
    version of this number.

    Raises
    ------
    RefNotFoundError
        The parent was deleted. The new branch is deleted as well.
    """
    known = source.manifest
    try:
        read_branch(root, parent)
        there = load_numbered(source.store, known.version, known.scheme)
        if is_same(there, known):
            return
        missing: Exception | None = None
    except (RefNotFoundError, ObjectNotFoundError) as error:
        missing = error
    delete_branch(root, name)
    raise RefNotFoundError(
        f"version {known.version} of branch {parent} of {root.uri} was deleted while branch {name} "
        "was made from it, which was not made. Make it from another version."
    ) from missing


def _unfinished(source: Referenced, target: ObjectStore, clone: Clone) -> Manifest | None:
    """Return the manifest of an equal branch whose creation stopped before its ref was written.

    Its parent may have been deleted and created again since: the files show this.

    Raises
    ------
    RefExistsError
        The manifest store has versions of a deleted branch.
    """
    try:
        manifest = open_latest(target)
    except DatasetNotFoundError:
        return None
    except ObjectNotFoundError as error:
        raise RefExistsError(
            f"the manifest store has versions of branch {clone.branch_name} at {target.uri}, whose "
            "deletion was stopped. Delete the branch once more, then create it."
        ) from error
    if (transaction := read_transaction(target, manifest)) is None:
        return None
    operation = read_operation(transaction.operation)
    if not isinstance(operation, Clone) or replace(operation, ref_path=clone.ref_path) != clone:
        return None
    draft = clone.apply(None, BuildContext(clone.ref_version, older=source.manifest))
    return manifest if list(manifest.wire.fragments) == list(draft.wire.fragments) else None


def clone_shallow(
    dataset: OpenedVersion,
    target_path: str | os.PathLike[str],
    reference: object,
    storage_options: Mapping[str, str] | None,
) -> tuple[ObjectStore, Manifest]:
    """Create a dataset that refers to the files of another."""
    source = _source(dataset, reference)
    target = open_root(target_path, storage_options, access=access_of(dataset.store))
    clone = _clone(source, shallow=True)
    manifest = begin_clone(source.store, source.manifest, target, clone)
    # Cloning a dataset implies permission to read its files.
    root = root_store(source.store, source.branch)
    base = DatasetBasePath(root.uri, is_dataset_root=True)
    return allowing(target, [base], source.store.options), manifest


def clone_deep(
    dataset: OpenedVersion,
    target_path: str | os.PathLike[str],
    reference: object,
    storage_options: Mapping[str, str] | None,
) -> tuple[ObjectStore, Manifest]:
    """Create a dataset with a copy of all files."""
    source = _source(dataset, reference)
    target = open_root(target_path, storage_options, access=access_of(dataset.store))
    refuse_dataset(target)
    copy_files(source.store, source.manifest, target)
    clone = _clone(source, shallow=False)
    return target, begin_clone(source.store, source.manifest, target, clone)


def _source(dataset: OpenedVersion, reference: object) -> Referenced:
    """Return the version to clone. One request, if it is the opened version.

    Raises
    ------
    OptionError
        The version is detached.
    VersionNotFoundError, CommitConflictError
        The version was cleaned up meanwhile, or another dataset has replaced its dataset.
    """
    source = resolve_again(dataset.store, dataset.manifest, reference)
    number = source.manifest.version
    if number & DETACHED:
        raise OptionError(
            f"version {number} of {source.store.uri} is detached. The first version of a clone or "
            "branch has the number of its source, so it would have no newest version. Write the "
            "rows to another place, or make them a version of the history first."
        )
    return source


def _clone(source: Referenced, *, shallow: bool, branch: str | None = None) -> Clone:
    """Return the operation, which names the source.

    Raises
    ------
    OptionError
        The URL has a password or a key, which all readers of the clone or branch would see.
    """
    path = source.store.uri
    public = path if source.store.is_local else GlaiveError.without_secrets(path)
    if shallow and public != path:
        raise OptionError(
            f"{public} has a password or a key, which would be written into the clone or the "
            "branch. Open the dataset by its location alone, and give credentials in "
            "storage_options."
        )
    return Clone(
        shallow=shallow,
        ref_name=source.branch,
        ref_version=source.manifest.version,
        ref_path=public,
        branch_name=branch,
    )
