"""Branches, each with a JSON file below ``_refs/branches``.

The first version of a branch refers to the files of its parent version.

Specification: "Branches" in ``docs/format/refs.md``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from glaive.dataclass import dataclass
from glaive.errors import OptionError, RefExistsError
from glaive.io.create_own import create_own
from glaive.io.store import ObjectStore
from glaive.table.refs import (
    BRANCHES,
    MAIN,
    branch_file,
    damaged,
    dump_json,
    is_branch_name,
    is_unfinished,
    load_json,
    metadata_of,
    read_refs,
    required_integer,
    wrong_in_branch,
)

__all__ = [
    "Branch",
    "branch_exists",
    "check_branch_name",
    "create_branch_file",
    "delete_branch_file",
    "is_branch_begun",
    "list_branches",
    "read_branch",
    "replace_branch",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Branch:
    """A branch.

    Parameters
    ----------
    parent_branch
        The branch it starts from; ``None`` for the main branch.
    parent_version
        The version it starts from; its own first version has the same number.
    identifier
        For each branch from the root to this one: parent version, 32 hex digits.
    create_at
        Seconds since 1970 UTC.
    manifest_size
        Bytes of the manifest of the parent version.
    metadata
        String entries.
    """

    parent_branch: str | None
    parent_version: int
    identifier: tuple[tuple[int, str], ...] = ()
    create_at: int = 0
    manifest_size: int = 0
    metadata: Mapping[str, str] = field(default_factory=dict, hash=False)

    def to_json(self) -> bytes:
        """Contents of the branch's file."""
        content = {
            "parentBranch": self.parent_branch,
            "identifier": {"version_mapping": [list(step) for step in self.identifier]},
            "parentVersion": self.parent_version,
            "createAt": self.create_at,
            "manifestSize": self.manifest_size,
            "metadata": dict(self.metadata),
        }
        return dump_json(content)


def list_branches(
    root: ObjectStore, *, complete: bool = False, without: str | None = None
) -> dict[str, Branch]:
    """All branches by name, except the main one. One listing and one request per branch.

    One that is deleted meanwhile is left out; not with ``complete``, for those who then delete what
    no branch needs: a deletion puts the branch back if a tag or another one was made of it. The one
    ``without`` is not looked at: listings may still show one that the caller has just deleted.

    Raises
    ------
    CorruptFileError
        A file is damaged or has an invalid name.
    CommitContentionError
        A branch was deleted meanwhile, and ``complete`` is set.
    """
    return read_refs(
        root, BRANCHES, is_branch_name, read_branch, complete=complete, without=without
    )


def read_branch(root: ObjectStore, name: str) -> Branch:
    """Read a branch.

    Raises
    ------
    RefNotFoundError
        There is no such branch; the message suggests similar names.
    CorruptFileError
        Its file is damaged.
    """
    path = _branch_path(name)
    content = load_json(root, path, "branch", name, BRANCHES)
    where = root.full(path)
    parent = content.get("parentBranch")
    if parent is not None and parent != MAIN and not is_branch_name(parent):
        raise damaged("parent of a branch", "the name of a branch, or null", parent, where)
    return Branch(
        parent_branch=None if parent == MAIN else parent,
        parent_version=required_integer(content, "parentVersion", where),
        identifier=_identifier(content.get("identifier"), where),
        create_at=required_integer(content, "createAt", where),
        manifest_size=required_integer(content, "manifestSize", where),
        metadata=metadata_of(content, where),
    )


def check_branch_name(name: object) -> str:
    """The name, if it is a valid branch name.

    Raises
    ------
    OptionError
        It is invalid.
    """
    wrong = wrong_in_branch(name)
    if wrong is not None:
        raise OptionError(f"Ref is invalid: {wrong}: {name!r} is not a valid branch name")
    return str(name)


def create_branch_file(root: ObjectStore, name: str, branch: Branch) -> None:
    """Write the file of a new branch, whose directory exists already.

    One request, and another one if there is a branch with this name.

    Raises
    ------
    RefExistsError
        There is a branch with this name.
    """
    if not create_own(root, _branch_path(name), branch.to_json()):
        raise branch_exists(root, name)


def branch_exists(root: ObjectStore, name: str) -> RefExistsError:
    """The error for a new branch whose name is taken."""
    return RefExistsError(
        f"branch {name} already exists: {root.uri} has it. Check it out, delete it, or choose "
        "another name."
    )


def replace_branch(root: ObjectStore, name: str, branch: Branch) -> None:
    """Overwrite the file of a branch."""
    root.put(_branch_path(name), [branch.to_json()])


def is_branch_begun(root: ObjectStore, name: str) -> bool:
    """Whether a branch has an empty file, left by an interrupted writer. One request."""
    return is_unfinished(root, _branch_path(name))


def delete_branch_file(root: ObjectStore, name: str) -> None:
    """Delete the file of a branch, which makes its directory inaccessible as a branch."""
    root.delete([_branch_path(name)])


def _branch_path(name: object) -> str:
    return branch_file(check_branch_name(name))


def _identifier(value: object, where: str) -> tuple[tuple[int, str], ...]:
    if value is None:
        return ()
    pairs = value.get("version_mapping") if isinstance(value, dict) else None
    if not isinstance(pairs, list) or not all(
        isinstance(pair, list) and len(pair) == 2 and isinstance(pair[0], int) for pair in pairs
    ):
        raise damaged("identifier of a branch", "pairs of a version and a string", value, where)
    return tuple((pair[0], str(pair[1])) for pair in pairs)
