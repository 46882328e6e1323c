"""Resolve a reference to a version, such as a number, a tag or a branch, to its manifest.

==================== =============================================================
reference            meaning
==================== =============================================================
``7``                version 7 of the current branch
``"v1"``             the version with this tag, on whichever branch
``("dev", 7)``       version 7 of branch ``dev``
``("dev", None)``    the newest version of branch ``dev``
``("main", 7)``      version 7 of the main branch, same as ``(None, 7)``
==================== =============================================================
"""

from __future__ import annotations

from glaive.dataclass import dataclass
from glaive.errors import CorruptFileError, DatasetNotFoundError, OptionError
from glaive.format.manifest import Manifest
from glaive.io.store import ObjectStore
from glaive.table.load import is_same, open_latest, open_version, replaced
from glaive.table.refs import MAIN, branch_store, read_branch, read_tag, root_store
from glaive.types import integer_of


@dataclass(frozen=True, slots=True)
class Referenced:
    """The target of a reference: branch, root of the branch, and manifest."""

    branch: str | None
    store: ObjectStore
    manifest: Manifest


def branch_of(manifest: Manifest) -> str | None:
    """The branch of a version; ``None`` for the main branch."""
    return manifest.wire.branch or None


def resolve(store: ObjectStore, manifest: Manifest, reference: object) -> Referenced:
    """Resolve a reference.

    Parameters
    ----------
    store, manifest
        The current branch and version; ``None`` refers to that version.

    Raises
    ------
    VersionNotFoundError, RefNotFoundError
        There is no such version, tag or branch.
    OptionError
        The argument is no reference.
    CorruptFileError
        The version in the directory of a branch is not of this branch.
    """
    current = branch_of(manifest)
    if reference is None:
        return Referenced(current, store, manifest)
    if isinstance(reference, str):
        tag = read_tag(root_store(store, current), reference)
        return _on_branch(store, manifest, tag.branch, tag.version)
    if isinstance(reference, tuple):
        branch, version = _pair(reference)
        return _on_branch(store, manifest, branch, version)
    number = _number(reference)
    if number == manifest.version:
        return Referenced(current, store, manifest)
    return Referenced(current, store, open_version(store, number, scheme=manifest.scheme))


def resolve_again(store: ObjectStore, manifest: Manifest, reference: object) -> Referenced:
    """Resolve a reference that others will rely on, and so to a version that is still there.

    As :func:`resolve`; one request more for the opened version.

    Raises
    ------
    VersionNotFoundError
        The opened version was cleaned up since.
    CommitConflictError
        Another dataset was made in the place of its own.
    """
    found = resolve(store, manifest, reference)
    if found.manifest is manifest:
        there = open_version(found.store, manifest.version, scheme=manifest.scheme)
        if not is_same(there, manifest):
            raise replaced(found.store, manifest.version)
        return Referenced(found.branch, found.store, there)
    return found


def _on_branch(
    store: ObjectStore, manifest: Manifest, branch: str | None, version: int | None
) -> Referenced:
    current = branch_of(manifest)
    if branch != current:
        root = root_store(store, current)
        if branch is not None:
            read_branch(root, branch)  # raises if it does not exist
        store = branch_store(root, branch)
    try:
        target = open_latest(store) if version is None else open_version(store, version)
    except DatasetNotFoundError as error:
        raise DatasetNotFoundError(f"branch {branch or MAIN!r} has no versions: {error}") from error
    named = branch_of(target)
    if branch is not None and named != branch:  # its tags would be looked for elsewhere
        raise CorruptFileError(
            "branch of a version",
            expected=repr(branch),
            found=f"{named or MAIN!r:.100}",
            where=target.where,
        )
    return Referenced(branch, store, target)


def _pair(reference: tuple[object, ...]) -> tuple[str | None, int | None]:
    if len(reference) != 2 or not isinstance(reference[0], str | None):
        raise OptionError(
            f"version: expected a branch (or None) and a number (or None), found {reference!r}"
        )
    branch, version = reference
    return (
        None if branch == MAIN else branch,  # type: ignore[return-value]  # a string or None: checked
        None if version is None else _number(version),
    )


def _number(given: object) -> int:
    number = integer_of(given)
    if number is None:
        raise OptionError(
            "Version must be an int, a str or a (branch, int) tuple: version: expected a number, a "
            f"tag, or a pair of branch and number, found {given!r:.80}"
        )
    return number
