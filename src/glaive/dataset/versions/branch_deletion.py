"""Delete a branch, and nothing that other branches use."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from itertools import chain

from glaive.dataset.versions.files import can_be_deleted
from glaive.dataset.versions.references import branch_of
from glaive.errors import (
    CommitError,
    DatasetNotFoundError,
    ObjectNotFoundError,
    RefExistsError,
    RefNotFoundError,
)
from glaive.format.paths import VERSIONS, manifest_path, parse_manifest_name
from glaive.io.store import ObjectStore
from glaive.table import branches, tags
from glaive.table.branches import Branch
from glaive.table.cleanup.protection import targets_of_others
from glaive.table.load import open_latest
from glaive.table.put_manifest import forget_dataset
from glaive.table.references import FOLDERS, kind_of
from glaive.table.refs import BRANCHES, TREE, branch_file, branch_store, ref_files

__all__ = ["delete_branch"]

_logger = logging.getLogger(__name__)


def delete_branch(root: ObjectStore, branch: str) -> None:
    """Delete a branch: first its ref, then its files, its manifests last.

    One without a ref, as a process leaves that was stopped in between, is deleted as well. Files of
    branches below it stay, also of one that somebody is about to make; so do those of a branch of
    this name which was made again, after somebody else deleted this one at the same time.
    """
    known: Branch | None = None
    if not branches.is_branch_begun(root, branch):
        try:
            known = branches.read_branch(root, branch)
        except RefNotFoundError:
            if not _has_rest(root, branch):
                raise
    _refuse_used(root, branch)
    branches.delete_branch_file(root, branch)
    try:
        _refuse_used(root, branch)  # by a tag or a branch that was made meanwhile
    except CommitError:
        if known is not None:
            with suppress(RefExistsError):
                branches.create_branch_file(root, branch, known)
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
        branches.delete_branch_file(root, branch)


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
    named = [name for name, tag in tags.list_tags(root).items() if tag.branch == branch]
    if named:
        raise CommitError(
            f"Branch {branch} is referenced by tags, can not delete: the tags {', '.join(named)} "
            f"refer to versions of branch {branch!r} of {root.uri}. Delete or move them first."
        )
    others = branches.list_branches(root, complete=True, without=branch)
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
        store.head(manifest_path(branches.read_branch(root, branch).parent_version))
    except (RefNotFoundError, ObjectNotFoundError):
        return False
    return True
