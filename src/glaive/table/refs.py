"""Common functions for the files of tags and branches ("refs").

All refs are below the root, the directory of the main branch. Other branches are directories below
``tree/``.

Specification: "Tags" and "Branches" in ``docs/format/refs.md``.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import field
from datetime import UTC, datetime
from difflib import get_close_matches
from functools import partial
from typing import Any, Final, TypeVar

from glaive.arrow.validation import refuse_half_characters
from glaive.dataclass import dataclass
from glaive.errors import (
    CommitContentionError,
    CorruptFileError,
    DatasetNotFoundError,
    GlaiveError,
    ObjectNotFoundError,
    OptionError,
    RefExistsError,
    RefNotFoundError,
)
from glaive.format.manifest import Manifest
from glaive.format.paths import VERSIONS
from glaive.io.location import Location
from glaive.io.store import ObjectMeta, ObjectStore, find_object
from glaive.io.wrapped import create_own
from glaive.table.load import is_same, open_latest, open_version, replaced
from glaive.table.root import open_other_root
from glaive.types import integer_of

BRANCHES: Final = "_refs/branches"
TREE: Final = "tree"
MAIN: Final = "main"
"""The main branch, which is the root itself."""

NAME: Final = re.compile(r"[\w.-]+")
"""Tag names, and parts of branch names."""

_HALF: Final = re.compile(r"[\ud800-\udfff]+")
"""Halves of surrogate pairs."""

R = TypeVar("R")

_logger = logging.getLogger(__name__)


# ------------------------------------------------------------------------- locations


def root_store(store: ObjectStore, branch: str | None) -> ObjectStore:
    """Return the root of the dataset, which has the refs; ``store`` may belong to a branch.

    A copied branch is its own root. The folders above it may be foreign, whatever branch its
    manifest names: a user may have copied ``tree/dev`` into a home directory.

    Notes
    -----
    One listing for a branch. If the listing lacks versions, it may be stale, which costs one more
    request. A web server gets only this request.
    """
    uri = store.uri.removesuffix(f"/{TREE}/{branch}") if branch else store.uri
    place = uri.rpartition("://")[2]
    if branch is None or uri == store.uri or not place or place.endswith(":/"):
        return store  # of a bucket with the name "tree", or a folder at the top of a disk
    above = open_other_root(store, uri)
    return above if _has_branch(above, branch) else store


def _has_branch(root: ObjectStore, branch: str) -> bool:
    """Return whether there is a dataset. Few web servers list files, so ask them for one file."""
    listed = not Location.parse(root.uri).is_http
    if listed and next(iter(root.list(VERSIONS)), None) is not None:
        return True
    return find_object(root, branch_file(branch)) is not None


def name_in(root: ObjectStore, store: ObjectStore, branch: str | None) -> str | None:
    """Return the name of a branch in the refs of a root; a copied branch is its own main branch."""
    return None if store.uri == root.uri else branch


def branch_file(branch: str) -> str:
    """Return the path of the file of a branch."""
    return f"{BRANCHES}/{branch.replace('/', '%2F')}.json"


def branch_store(root: ObjectStore, branch: str | None) -> ObjectStore:
    """Return the directory of a branch."""
    if branch is None:
        return root
    return open_other_root(root, f"{root.uri}/{TREE}/{branch}")


# -------------------------------------------------------------------------- names


def is_branch_name(name: object) -> bool:
    """Return whether this is a valid name for a branch other than the main branch."""
    return branch_name_error(name) is None


def branch_name_error(name: object) -> str | None:
    """Return the rule for branch names that a name breaks, in pylance's words."""
    if not isinstance(name, str):
        return "the name of a branch must be a string"
    parts = name.split("/")
    segment = next((one for one in parts if not NAME.fullmatch(one) or one == "."), "")
    rules = {
        "Branch name cannot be empty": not name,
        f'"{MAIN}" is reserved for the default branch; use a different branch name': name == MAIN,
        "Branch name cannot start or end with a '/'": not (parts[0] and parts[-1]),
        "Branch name cannot contain consecutive '/'": "" in parts,
        "Branch name cannot contain '..' or '\\'": ".." in name or "\\" in name,
        "Branch name cannot end with '.lock'": name.endswith(".lock"),
        f"Branch segment {segment!r} contains invalid characters. Only alphanumeric, '.', '-', '_' "
        "are allowed, and no segment is '.'": bool(segment),
    }
    return next((rule for rule, broken in rules.items() if broken), None)


def ref_files(root: ObjectStore, folder: str) -> dict[str, ObjectMeta]:
    """Return the files of all tags or branches by name, in order. Cost: one listing.

    Interrupted writers leave empty files.
    """
    files = [meta for meta in root.list(folder) if meta.path.endswith(".json")]
    named = {stem(meta.path).replace("%2F", "/"): meta for meta in files}
    return {name: named[name] for name in sorted(named)}


def read_refs(
    root: ObjectStore,
    folder: str,
    is_valid_name: Callable[[str], bool],
    read: Callable[[ObjectStore, str], R],
    *,
    complete: bool = False,
    without: str | None = None,
) -> dict[str, R]:
    """Read all refs of a folder, by name; empty files are skipped and logged.

    A ref that is deleted during the call is left out. So is the ref of the name ``without``.

    Raises
    ------
    CommitContentionError
        A ref was deleted meanwhile, and ``complete`` is set: the ref might be put back.
    """
    files = ref_files(root, folder)
    for name, meta in files.items():
        if not is_valid_name(name):
            where = root.full(meta.path if root.can_name(meta.path) else folder)
            raise CorruptFileError(
                f"name of a file in {folder}",
                expected="a valid name",
                found=f"{name!r:.80}",
                where=where,
            )
        if not meta.size:
            where = GlaiveError.without_secrets(root.full(meta.path))
            _logger.warning("%s", _unfinished(where))
    from glaive.io.pool import map_requests

    names = [name for name, meta in files.items() if meta.size and name != without]
    read_all = zip(names, map_requests(root, partial(_read_listed, root, read), names), strict=True)
    found = {name: ref for name, ref in read_all if ref is not None}
    if complete and len(found) < len(names):
        deleted = next(name for name in names if name not in found)
        raise CommitContentionError(
            f"{root.full(folder)}: {deleted!r} was deleted while it was read. Nothing was changed: "
            "try again"
        )
    return found


def _read_listed(root: ObjectStore, read: Callable[[ObjectStore, str], R], name: str) -> R | None:
    """Read a listed ref; ``None`` if it was deleted since."""
    try:
        return read(root, name)
    except RefNotFoundError:
        return None


def is_unfinished(root: ObjectStore, path: str) -> bool:
    """Return whether a ref has an empty file. Cost: one request."""
    there = find_object(root, path)
    return there is not None and not there.size


def _unfinished(where: str) -> str:
    return (
        f"{where} is empty: its writer is still active, or was interrupted. Create the tag or "
        "branch again, or delete it"
    )


def can_be_deleted(store: ObjectStore, path: str) -> bool:
    """Return whether a store can name a file; log a file that stays."""
    known = store.can_name(path)
    if not known:
        _logger.warning("a file was kept: no object can be called %.200r", path)
    return known


# --------------------------------------------------------------------------- JSON


def dump_json(content: Mapping[str, Any]) -> bytes:
    """Encode the contents of a ref."""
    with refuse_half_characters("metadata"):
        return json.dumps(content, indent=2, ensure_ascii=False).encode()


def load_json(root: ObjectStore, path: str, kind: str, name: str, folder: str) -> dict[str, Any]:
    """Read the file of a tag or branch (``kind``). One request.

    Raises
    ------
    RefNotFoundError
        The file is missing in ``folder``, or it is empty; the message suggests similar names.
    CorruptFileError
        It is invalid JSON, or another value than an object.
    """
    try:
        data = root.get(path).to_pybytes()
    except ObjectNotFoundError:
        known = [stem(meta.path).replace("%2F", "/") for meta in root.list(folder)]
        close = get_close_matches(name, known, n=3)
        hint = f"; did you mean {' or '.join(map(repr, close))}?" if close else "."
        names = ", ".join(sorted(known)[:20]) or "none"
        number = " Pass numbers of versions as integers." if name.isdecimal() else ""
        raise RefNotFoundError(
            f"{kind} {name} does not exist in {root.uri}{hint}{number} Known: {names}"
        ) from None
    where = root.full(path)
    if not data:
        raise RefNotFoundError(f"no {kind} {name!r} of {root.uri} yet: {_unfinished(where)}.")
    content: Any = None
    with suppress(ValueError, RecursionError):  # an error of JSON has the whole text
        content = json.loads(data)
    if not isinstance(content, dict):
        # Without the bytes of another file: a symlink may lead to secrets.
        found = f"{len(data)} bytes of something else"
        what = f"file of a {kind}"
        raise CorruptFileError(what, expected="a JSON object", found=found, where=where)
    if rb"\u" in data:  # may be an unpaired surrogate
        halves = _HALF.search(json.dumps(content, ensure_ascii=False))
        if halves is not None:
            raise CorruptFileError(
                f"file of a {kind}",
                expected="Unicode strings",
                found=f"{halves[0]!r:.80}",
                where=where,
            )
    return content


def required_integer(content: Mapping[str, Any], key: str, where: str) -> int:
    """Return a required integer below 2^64."""
    value = content.get(key)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 2**64:
        raise damaged(f"{key} of a reference", "an integer below 2^64", value, where)
    return value


def metadata_of(content: Mapping[str, Any], where: str) -> dict[str, str]:
    """Return the metadata entries; empty if missing."""
    metadata = content.get("metadata") or {}
    if not isinstance(metadata, dict) or not all(isinstance(v, str) for v in metadata.values()):
        raise damaged("metadata of a reference", "an object of strings", metadata, where)
    return metadata


def damaged(subject: str, expected: str, found: object, where: str) -> CorruptFileError:
    """Return the error for a damaged ref, without its values: a symlink may lead to secrets."""
    return CorruptFileError(subject, expected=expected, found=_kind_of(found), where=where)


def _kind_of(value: object) -> str:
    """Describe the kind of a JSON value, in words that hide the value."""
    match value:
        case None:
            return "null, or nothing"
        case bool():
            return "true or false"
        case str():
            return f"a string of {len(value)} characters"
        case int() | float():
            return "another number"
        case list():
            return f"a list of {len(value)}"
        case _:
            return "an object"


def stem(path: str) -> str:
    """Return the name of a file before ``.json``."""
    return path.rpartition("/")[2].removesuffix(".json")


# --------------------------------------------------------------------------- time


def time_text(moment: int | None) -> str | None:
    """Format a time as RFC 3339 with nanoseconds, UTC."""
    if moment is None:
        return None
    seconds, nanos = divmod(moment, 1_000_000_000)
    return f"{datetime.fromtimestamp(seconds, UTC).replace(tzinfo=None).isoformat()}.{nanos:09d}Z"


def time_of(text: object, where: str) -> int | None:
    """Return an RFC 3339 time as nanoseconds since 1970 UTC; ``None`` if it is missing."""
    if text is None:
        return None
    match = re.fullmatch(r"([^.]+?)(?:\.(\d{1,9}))?(Z|[+-]\d\d:\d\d)", str(text))
    try:
        if match is None:
            raise ValueError(text)
        seconds = datetime.fromisoformat(match[1] + match[3].replace("Z", "+00:00"))
        timestamp = int(seconds.astimezone(UTC).timestamp())
    except (ValueError, OverflowError):  # OverflowError: outside of years 1 to 9999 in UTC
        raise damaged("time of a reference", "RFC 3339", text, where) from None
    return timestamp * 1_000_000_000 + int((match[2] or "0").ljust(9, "0"))


# --- Tags: names for versions, each a JSON file below ``_refs/tags`` --------------------
# Specification: "Tags" in ``docs/format/refs.md``.

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
        """Return the contents of the tag's file."""
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
    """Return all tags by name. Cost: one listing and one request per tag.

    Raises
    ------
    CorruptFileError
        A file is damaged or has an invalid name.
    """
    return read_refs(root, TAGS, lambda name: _tag_name_error(name) is None, read_tag)


def read_tag(root: ObjectStore, name: str) -> Tag:
    """Read a tag.

    Raises
    ------
    RefNotFoundError
        The tag is missing; the message suggests similar names.
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
    """Write a new tag. Cost: one request, and one more if the name is taken.

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
        The tag does not exist.
    """
    path = _tag_path(name)
    if not is_unfinished(root, path):
        read_tag(root, name)
    root.delete([path])


def _tag_path(name: object) -> str:
    wrong = _tag_name_error(name)
    if wrong is not None:
        raise OptionError(f"Ref is invalid: {wrong}: {name!r} is not a valid tag name")
    return f"{TAGS}/{name}.json"


def _tag_name_error(name: object) -> str | None:
    """Return the rule for tag names that a name breaks, in pylance's words."""
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


# --- Branches, each with a JSON file below ``_refs/branches`` ---------------------------
# The first version of a branch refers to the files of its parent version.
#
# Specification: "Branches" in ``docs/format/refs.md``.


@dataclass(frozen=True, slots=True, kw_only=True)
class Branch:
    """A branch.

    Parameters
    ----------
    parent_branch
        The branch that it starts from; ``None`` for the main branch.
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
        """Return the contents of the branch's file."""
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
    """Return all branches by name, except the main branch.

    Cost: one listing and one request per branch. A branch that is deleted meanwhile is left out.
    ``complete`` raises an error instead. Use it before you delete unneeded files: deleting a branch
    puts it back if a tag or a branch was made from it meanwhile. The branch ``without``
    is skipped, because listings may still show a branch that the caller has just deleted.

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
        The branch is missing; the message suggests similar names.
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
    """Return the name, if it is a valid branch name.

    Raises
    ------
    OptionError
        The name is invalid.
    """
    wrong = branch_name_error(name)
    if wrong is not None:
        raise OptionError(f"Ref is invalid: {wrong}: {name!r} is not a valid branch name")
    return str(name)


def create_branch_file(root: ObjectStore, name: str, branch: Branch) -> None:
    """Write the file of a new branch, whose directory exists already.

    Cost: one request, and one more if the name is taken.

    Raises
    ------
    RefExistsError
        There is a branch with this name.
    """
    if not create_own(root, _branch_path(name), branch.to_json()):
        raise branch_exists(root, name)


def branch_exists(root: ObjectStore, name: str) -> RefExistsError:
    """Return the error for a new branch whose name is taken."""
    return RefExistsError(
        f"branch {name} already exists: {root.uri} has it. Check it out, delete it, or choose "
        "another name."
    )


def replace_branch(root: ObjectStore, name: str, branch: Branch) -> None:
    """Overwrite the file of a branch."""
    root.put(_branch_path(name), [branch.to_json()])


def is_branch_begun(root: ObjectStore, name: str) -> bool:
    """Return whether an interrupted writer left the file of a branch empty. One request."""
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


# --- Resolve a reference to a version, such as a number, a tag or a branch, to its manifest
# ==================== =============================================================
# reference            meaning
# ==================== =============================================================
# ``7``                version 7 of the current branch
# ``"v1"``             the version with this tag, on whichever branch
# ``("dev", 7)``       version 7 of branch ``dev``
# ``("dev", None)``    the newest version of branch ``dev``
# ``("main", 7)``      version 7 of the main branch, same as ``(None, 7)``
# ==================== =============================================================


@dataclass(frozen=True, slots=True)
class Referenced:
    """The target of a reference: branch, root of the branch, and manifest."""

    branch: str | None
    store: ObjectStore
    manifest: Manifest


def branch_of(manifest: Manifest) -> str | None:
    """Return the branch of a version; ``None`` for the main branch."""
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
        The version, tag or branch does not exist.
    OptionError
        The argument is invalid.
    CorruptFileError
        The version in the directory of a branch is of another branch.
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
    """Resolve a reference that others will rely on to a version that still exists.

    As :func:`resolve`, with one more request for the opened version.

    Raises
    ------
    VersionNotFoundError
        Clean-up removed the opened version.
    CommitConflictError
        Another dataset replaced the dataset of the opened version.
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
            read_branch(root, branch)  # raises if it is missing
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
