"""Branches: lines of versions of their own, each with a JSON file below ``_refs/branches``.

Its first version refers to the files of the version it was made from.

Specification: "Branches" in ``docs/format/refs.md``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from glaive.errors import ObjectExistsError, OptionError, RefExistsError
from glaive.io.store import ObjectStore
from glaive.table.refs import (
    MAIN,
    damaged,
    dump_json,
    finished,
    is_branch_name,
    is_unfinished,
    load_json,
    metadata_of,
    ref_files,
    whole_number,
)

__all__ = [
    "BRANCHES",
    "Branch",
    "check_branch_name",
    "create_branch_file",
    "delete_branch_file",
    "is_branch_begun",
    "list_branches",
    "read_branch",
    "replace_branch",
]

BRANCHES: Final = "_refs/branches"


@dataclass(frozen=True, slots=True, kw_only=True)
class Branch:
    """A line of versions.

    Parameters
    ----------
    parent_branch
        The branch it was made from; ``None`` for the main branch.
    parent_version
        The version it was made from; its own first version has the same number.
    identifier
        For each branch on the way from the root: version of its parent, 32 hex digits.
    create_at
        Seconds since 1970 UTC.
    manifest_size
        Bytes of the manifest of the parent's version.
    metadata
        Free text entries.
    """

    parent_branch: str | None
    parent_version: int
    identifier: tuple[tuple[int, str], ...] = ()
    create_at: int = 0
    manifest_size: int = 0
    metadata: Mapping[str, str] = field(default_factory=dict, hash=False)

    def to_json(self) -> bytes:
        """Content of the branch's file."""
        content = {
            "parentBranch": self.parent_branch,
            "identifier": {"version_mapping": [list(one) for one in self.identifier]},
            "parentVersion": self.parent_version,
            "createAt": self.create_at,
            "manifestSize": self.manifest_size,
            "metadata": dict(self.metadata),
        }
        return dump_json(content)


def list_branches(root: ObjectStore) -> dict[str, Branch]:
    """All branches by name, without the main one. One listing and one request per branch.

    Raises
    ------
    CorruptFileError
        A file is damaged, or no branch can have its name.
    """
    files = ref_files(root, BRANCHES)
    for name, meta in files.items():
        if not is_branch_name(name):
            what = "name of a file of branches"
            raise damaged(what, "that of a branch", name, root.full(meta.path))
    return {name: read_branch(root, name) for name in finished(root, files)}


def read_branch(root: ObjectStore, name: str) -> Branch:
    """One branch.

    Raises
    ------
    RefNotFoundError
        There is no such branch; the message names the closest ones.
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
        parent_branch=parent,
        parent_version=whole_number(content, "parentVersion", where),
        identifier=_identifier(content.get("identifier"), where),
        create_at=whole_number(content, "createAt", where),
        manifest_size=whole_number(content, "manifestSize", where),
        metadata=metadata_of(content, where),
    )


def check_branch_name(name: object) -> str:
    """The name, if a branch may have it.

    Raises
    ------
    OptionError
        It may not; the message says what names are made of.
    """
    if not is_branch_name(name):
        raise OptionError(
            f"branch: {name!r} is no name for a branch. It has parts of letters, digits, '.', '-' "
            f"and '_', separated by '/'; it is not {MAIN!r}, has no '..', no '.lock' at the end "
            "and no part that is '.'."
        )
    return str(name)


def create_branch_file(root: ObjectStore, name: str, branch: Branch) -> None:
    """Write the file of a branch that has none yet; its directory comes first. One request.

    Raises
    ------
    RefExistsError
        There is a branch of this name.
    """
    try:
        root.put(_branch_path(name), [branch.to_json()], mode="create")
    except ObjectExistsError:
        raise RefExistsError(
            f"branch {name!r} of {root.uri} exists already. Check it out, delete it, or choose "
            "another name."
        ) from None


def replace_branch(root: ObjectStore, name: str, branch: Branch) -> None:
    """Write the file of a branch that has one."""
    root.put(_branch_path(name), [branch.to_json()])


def is_branch_begun(root: ObjectStore, name: str) -> bool:
    """Whether a branch has an empty file: its writer was stopped. One request."""
    return is_unfinished(root, _branch_path(name))


def delete_branch_file(root: ObjectStore, name: str) -> None:
    """Remove the file of a branch; its directory is then no branch any more."""
    root.delete([_branch_path(name)])


def _branch_path(name: object) -> str:
    return f"{BRANCHES}/{check_branch_name(name).replace('/', '%2F')}.json"


def _identifier(found: object, where: str) -> tuple[tuple[int, str], ...]:
    if found is None:
        return ()
    pairs = found.get("version_mapping") if isinstance(found, dict) else None
    if not isinstance(pairs, list) or not all(
        isinstance(pair, list) and len(pair) == 2 and isinstance(pair[0], int) for pair in pairs
    ):
        raise damaged("identifier of a branch", "pairs of a version and a text", found, where)
    return tuple((pair[0], str(pair[1])) for pair in pairs)
