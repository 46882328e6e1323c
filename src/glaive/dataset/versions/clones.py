"""``create_branch``, ``shallow_clone`` and ``deep_clone``."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from glaive.clock import now_ns
from glaive.dataset.versions.refs import delete_branch
from glaive.dataset.writing.plan import DatasetBasePath
from glaive.dataset.writing.rows import allowing
from glaive.entropy import random_bytes
from glaive.errors import (
    DatasetExistsError,
    DatasetNotFoundError,
    GlaiveError,
    ObjectNotFoundError,
    OptionError,
    RefExistsError,
    RefNotFoundError,
)
from glaive.format.manifest import Manifest
from glaive.format.paths import DETACHED, manifest_path
from glaive.io.store import ObjectStore
from glaive.table.copying import begin_clone, copy_files, refuse_dataset
from glaive.table.load import is_same, load_numbered, open_latest, read_transaction
from glaive.table.operations.overwrite import Clone
from glaive.table.protocol import BuildContext, read_operation
from glaive.table.refs import (
    Branch,
    Referenced,
    branch_exists,
    branch_of,
    branch_store,
    check_branch_name,
    create_branch_file,
    name_in,
    read_branch,
    resolve_again,
    root_store,
)
from glaive.table.root import access_of, open_root

if TYPE_CHECKING:
    from glaive.dataset.version import OpenedVersion


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
    manifest = _unfinished(source, target, clone) or _begun_branch(root, source, target, clone)
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
    try:
        target.head(manifest_path(version, manifest.scheme))
    except ObjectNotFoundError:  # deleted by one who found no ref of the branch yet
        manifest = _begun_branch(root, source, target, clone)
    return Referenced(name, target, manifest)


def _begun_branch(
    root: ObjectStore, source: Referenced, target: ObjectStore, clone: Clone
) -> Manifest:
    """Commit the first version of a branch.

    Raises
    ------
    RefExistsError
        There are versions of a branch of this name, with a ref or, while it is made, without one.
    """
    try:
        return _begun(source, target, clone)
    except DatasetExistsError as error:
        name = clone.branch_name
        raise RefExistsError(
            f"branch {name} already exists: {root.uri} has versions of it, maybe of one that is "
            "being made, or whose making or deletion was stopped. Check it out, delete it, or "
            "choose another name."
        ) from error


def _check_parent(root: ObjectStore, parent: str, source: Referenced, name: str) -> None:
    """Check that the branch from which another one was made was not deleted, nor made again.

    Its deletion looks for branches made from it after its ref is deleted: either it finds this one,
    or this one finds no ref, or, where it was made again, another version of this number.

    Raises
    ------
    RefNotFoundError
        It was; the new one is deleted, too.
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
    """The manifest of an equal branch whose creation stopped before its ref was written.

    Its parent may have been deleted, and made again, since then: the files tell.

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
    manifest = _begun(source, target, _clone(source, shallow=True))
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
    return target, _begun(source, target, _clone(source, shallow=False))


def _source(dataset: OpenedVersion, reference: object) -> Referenced:
    """The version to clone. One request, if it is the opened one.

    Raises
    ------
    OptionError
        It is detached.
    VersionNotFoundError, CommitConflictError
        It was cleaned up since it was opened, or another dataset was made in the place of its own.
    """
    source = resolve_again(dataset.store, dataset.manifest, reference)
    number = source.manifest.version
    if number & DETACHED:
        raise OptionError(
            f"version {number} of {source.store.uri} is detached: the first version of a clone or "
            "branch has the number of its source, so it would have no newest version. Write the "
            "rows to another place, or make them a version of the history first."
        )
    return source


def _clone(source: Referenced, *, shallow: bool, branch: str | None = None) -> Clone:
    """The operation, which names the source.

    Raises
    ------
    OptionError
        All who read a shallow clone or a branch would see the password or the key in its URL.
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


def _begun(source: Referenced, target: ObjectStore, clone: Clone) -> Manifest:
    return begin_clone(source.store, source.manifest, target, clone)
