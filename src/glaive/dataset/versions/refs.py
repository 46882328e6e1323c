"""``dataset.tags`` and ``dataset.branches``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from glaive.clock import now_ns
from glaive.dataset.versions.branch_deletion import delete_branch
from glaive.dataset.versions.references import branch_of, resolve_again
from glaive.errors import OptionError, RefNotFoundError
from glaive.format.paths import manifest_path
from glaive.io.store import ObjectStore
from glaive.table import branches, tags
from glaive.table.branches import Branch
from glaive.table.configuration import string_map
from glaive.table.refs import name_in, root_store
from glaive.table.tags import Tag

if TYPE_CHECKING:
    from glaive.dataset.version import OpenDataset

__all__ = ["Branches", "Tags"]

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
        return {name: _describe_tag(tag) for name, tag in tags.list_tags(self._root).items()}

    def list_ordered(self, order: str | None = None) -> Named:
        """All tags by version, the newest first unless ``order`` is ``"asc"``."""
        by_name = tags.list_tags(self._root)
        names = _ordered(by_name, lambda tag: tag.version, order)
        return [(name, _describe_tag(by_name[name])) for name in names]

    def get_version(self, tag: str) -> int:
        """Number of the version of a tag.

        Raises
        ------
        RefNotFoundError
            There is no such tag.
        """
        return tags.read_tag(self._root, tag).version

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
        tags.create_tag(root, tag, new)
        try:
            _check_not_deleted(root, new, branch)
        except RefNotFoundError:
            tags.delete_tag(root, tag)
            raise

    def update(self, tag: str, reference: object = None) -> None:
        """Move a tag to another version; references as for :meth:`create`."""
        root = self._root
        old = tags.read_tag(root, tag)
        new, branch = self._tag(root, reference)
        new = replace(new, created_at=old.created_at, metadata=old.metadata)
        tags.replace_tag(root, tag, new)
        try:
            _check_not_deleted(root, new, branch)
        except RefNotFoundError:
            tags.replace_tag(root, tag, old)
            raise

    def replace_metadata(self, tag: str, metadata: Mapping[str, str]) -> None:
        """Replace the metadata of a tag."""
        old = tags.read_tag(self._root, tag)
        tags.replace_tag(self._root, tag, replace(old, metadata=string_map("metadata", metadata)))

    def delete(self, tag: str) -> None:
        """Delete a tag; its version remains, but can be cleaned up from now on."""
        tags.delete_tag(self._root, tag)

    def _tag(self, root: ObjectStore, reference: object) -> tuple[Tag, Branch | None]:
        """A tag for a version, and the branch that had the version."""
        opened = self._dataset.opened
        target = resolve_again(opened.store, opened.manifest, reference)
        manifest = target.manifest
        path = manifest_path(manifest.version, manifest.scheme)
        name = name_in(root, target.store, target.branch)
        branch = None if name is None else branches.read_branch(root, name)
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
            for name, branch in branches.list_branches(self._root).items()
        }

    def list_ordered(self, order: str | None = None) -> Named:
        """All branches by parent version, the newest first unless ``order`` is ``"asc"``."""
        by_name = branches.list_branches(self._root)
        names = _ordered(by_name, lambda branch: branch.parent_version, order)
        return [(name, _describe_branch(by_name[name])) for name in names]

    def replace_metadata(self, branch: str, metadata: Mapping[str, str]) -> None:
        """Replace the metadata of a branch."""
        old = branches.read_branch(self._root, branch)
        branches.replace_branch(
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
        from glaive.dataset.versions.publish import publish_branch

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
        there: Branch | None = branches.read_branch(root, tag.branch)
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
