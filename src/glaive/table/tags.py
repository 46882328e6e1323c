"""Tags: names for versions, each a JSON file below ``_refs/tags``.

Specification: "Tags" in ``docs/format/refs.md``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Final

from glaive.dataclass import dataclass
from glaive.errors import OptionError, RefExistsError
from glaive.io.create_own import create_own
from glaive.io.store import ObjectStore
from glaive.table.refs import (
    MAIN,
    NAME,
    damaged,
    dump_json,
    is_branch_name,
    is_unfinished,
    load_json,
    metadata_of,
    read_refs,
    required_integer,
    time_of,
    time_text,
)

__all__ = ["TAGS", "Tag", "create_tag", "delete_tag", "list_tags", "read_tag", "replace_tag"]

TAGS: Final = "_refs/tags"


@dataclass(frozen=True, slots=True, kw_only=True)
class Tag:
    """A name for a version.

    Parameters
    ----------
    version
        The version.
    branch
        The branch of the version; ``None`` for the main branch.
    manifest_size
        Bytes of the manifest of the version.
    created_at, updated_at
        Nanoseconds since 1970 UTC; ``None`` if missing in the file.
    metadata
        String entries.
    """

    version: int
    branch: str | None = None
    manifest_size: int = 0
    created_at: int | None = None
    updated_at: int | None = None
    metadata: Mapping[str, str] = field(default_factory=dict, hash=False)

    def to_json(self) -> bytes:
        """Contents of the tag's file."""
        content = {
            "branch": self.branch,
            "version": self.version,
            "createdAt": time_text(self.created_at),
            "updatedAt": time_text(self.updated_at),
            "manifestSize": self.manifest_size,
            "metadata": dict(self.metadata),
        }
        return dump_json(content)


def list_tags(root: ObjectStore) -> dict[str, Tag]:
    """All tags by name. One listing and one request per tag.

    Raises
    ------
    CorruptFileError
        A file is damaged or has an invalid name.
    """
    return read_refs(root, TAGS, _is_tag_name, read_tag)


def read_tag(root: ObjectStore, name: str) -> Tag:
    """Read a tag.

    Raises
    ------
    RefNotFoundError
        There is no such tag; the message suggests similar names.
    CorruptFileError
        Its file is damaged.
    """
    path = _tag_path(name)
    content = load_json(root, path, "tag", name, TAGS)
    where = root.full(path)
    branch = content.get("branch")
    if branch not in (None, MAIN) and not is_branch_name(branch):
        raise damaged("branch of a tag", "the name of a branch, or null", branch, where)
    return Tag(
        version=required_integer(content, "version", where),
        branch=None if branch == MAIN else branch,
        manifest_size=required_integer(content, "manifestSize", where),
        created_at=time_of(content.get("createdAt"), where),
        updated_at=time_of(content.get("updatedAt"), where),
        metadata=metadata_of(content, where),
    )


def create_tag(root: ObjectStore, name: str, tag: Tag) -> None:
    """Write a new tag. One request, and another one if there is a tag with this name.

    Raises
    ------
    RefExistsError
        There is a tag with this name.
    OptionError
        The name is invalid.
    """
    if not create_own(root, _tag_path(name), tag.to_json()):
        raise RefExistsError(
            f"tag {name} already exists: {root.uri} has it. Move it with update, or choose "
            "another name."
        )


def replace_tag(root: ObjectStore, name: str, tag: Tag) -> None:
    """Overwrite a tag."""
    root.put(_tag_path(name), [tag.to_json()])


def delete_tag(root: ObjectStore, name: str) -> None:
    """Delete a tag; its version remains.

    Raises
    ------
    RefNotFoundError
        There is no such tag.
    """
    path = _tag_path(name)
    if not is_unfinished(root, path):
        read_tag(root, name)
    root.delete([path])


def _tag_path(name: object) -> str:
    wrong = _wrong_in(name)
    if wrong is not None:
        raise OptionError(f"Ref is invalid: {wrong}: {name!r} is not a valid tag name")
    return f"{TAGS}/{name}.json"


def _is_tag_name(name: object) -> bool:
    return _wrong_in(name) is None


def _wrong_in(name: object) -> str | None:
    """What a name breaks of the rules for tags, in pylance's words."""
    if name == "":
        return "Ref cannot be empty"
    if not isinstance(name, str) or not NAME.fullmatch(name):
        return "Ref characters must be either alphanumeric, '.', '-' or '_'"
    rules = {
        "Ref cannot begin with a dot": name.startswith("."),
        "Ref cannot end with a dot": name.endswith("."),
        "Ref cannot have two consecutive dots": ".." in name,
        "Ref cannot end with .lock": name.endswith(".lock"),
    }
    return next((rule for rule, broken in rules.items() if broken), None)
