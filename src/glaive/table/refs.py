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
from datetime import UTC, datetime
from difflib import get_close_matches
from functools import partial
from typing import Any, Final, TypeVar

from glaive.arrow.utf8 import refuse_half_characters
from glaive.errors import (
    CommitContentionError,
    CorruptFileError,
    GlaiveError,
    ObjectNotFoundError,
    RefNotFoundError,
)
from glaive.format.paths import VERSIONS
from glaive.io.location import Location
from glaive.io.store import ObjectMeta, ObjectStore
from glaive.table.root import open_beside

__all__ = [
    "BRANCHES",
    "MAIN",
    "NAME",
    "TREE",
    "branch_file",
    "branch_store",
    "damaged",
    "dump_json",
    "is_branch_name",
    "is_unfinished",
    "load_json",
    "metadata_of",
    "name_in",
    "read_refs",
    "ref_files",
    "required_integer",
    "root_store",
    "stem",
    "time_of",
    "time_text",
    "wrong_in_branch",
]

BRANCHES: Final = "_refs/branches"
TREE: Final = "tree"
MAIN: Final = "main"
"""The branch without a file: the root itself."""

NAME: Final = re.compile(r"[\w.-]+")
"""Tag names, and parts of branch names."""

_HALF: Final = re.compile(r"[\ud800-\udfff]+")
"""Halves of surrogate pairs."""

R = TypeVar("R")

_logger = logging.getLogger(__name__)


# ------------------------------------------------------------------------- locations


def root_store(store: ObjectStore, branch: str | None) -> ObjectStore:
    """The root of the dataset, which has the refs; ``store`` is that of a branch.

    A copied branch is its own root. That a manifest names a branch does not make the folders above
    it a dataset: whoever copied ``tree/dev`` into a home directory has no dataset there.

    Notes
    -----
    One listing for a branch. One request more where that shows no version, as it may be stale; that
    one alone on a web server.
    """
    uri = store.uri.removesuffix(f"/{TREE}/{branch}") if branch else store.uri
    place = uri.rpartition("://")[2]
    if branch is None or uri == store.uri or not place or place.endswith(":/"):
        return store  # of a bucket with the name "tree", or a folder at the top of a disk
    above = open_beside(store, uri)
    return above if _has_branch(above, branch) else store


def _has_branch(root: ObjectStore, branch: str) -> bool:
    """Whether there is a dataset; few web servers list anything, so they are asked for one file."""
    listed = not Location.parse(root.uri).is_http
    if listed and next(iter(root.list(VERSIONS)), None) is not None:
        return True
    try:
        root.head(branch_file(branch))
    except ObjectNotFoundError:
        return False
    return True


def name_in(root: ObjectStore, store: ObjectStore, branch: str | None) -> str | None:
    """What the refs of a root call a branch: one that was copied is the main branch of its own."""
    return None if store.uri == root.uri else branch


def branch_file(branch: str) -> str:
    """Path of the file of a branch."""
    return f"{BRANCHES}/{branch.replace('/', '%2F')}.json"


def branch_store(root: ObjectStore, branch: str | None) -> ObjectStore:
    """The directory of a branch."""
    if branch is None:
        return root
    return open_beside(root, f"{root.uri}/{TREE}/{branch}")


# -------------------------------------------------------------------------- names


def is_branch_name(name: object) -> bool:
    """Whether this is a valid name for a branch other than the main one."""
    return wrong_in_branch(name) is None


def wrong_in_branch(name: object) -> str | None:
    """What a name breaks of the rules for branches, in pylance's words."""
    if not isinstance(name, str):
        return "the name of a branch is a text"
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
    """The files of all tags or branches by name, in order. One listing.

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

    One that is deleted while they are read is left out. So is the one of the name ``without``.

    Raises
    ------
    CommitContentionError
        One was deleted meanwhile, and ``complete`` is set: it might be put back.
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
    """A ref that was listed; None if it was deleted since."""
    try:
        return read(root, name)
    except RefNotFoundError:
        return None


def is_unfinished(root: ObjectStore, path: str) -> bool:
    """Whether a ref has an empty file. One request."""
    try:
        return not root.head(path).size
    except ObjectNotFoundError:
        return False


def _unfinished(where: str) -> str:
    return (
        f"{where} is empty: its writer is still active, or was interrupted. Create the tag or "
        "branch again, or delete it"
    )


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
        There is no such file in ``folder``, or it is empty; the message suggests similar names.
    CorruptFileError
        It is not a JSON object.
    """
    try:
        data = root.get(path).to_pybytes()
    except ObjectNotFoundError:
        known = [stem(meta.path).replace("%2F", "/") for meta in root.list(folder)]
        close = get_close_matches(name, known, n=3)
        hint = f"; did you mean {' or '.join(map(repr, close))}?" if close else "."
        names = ", ".join(sorted(known)[:20]) or "none"
        raise RefNotFoundError(
            f"{kind} {name} does not exist: no {kind} {name!r} of {root.uri}{hint} Known: {names}"
        ) from None
    where = root.full(path)
    if not data:
        raise RefNotFoundError(f"no {kind} {name!r} of {root.uri} yet: {_unfinished(where)}.")
    content: Any = None
    with suppress(ValueError, RecursionError):  # an error of JSON has the whole text
        content = json.loads(data)
    if not isinstance(content, dict):
        raise _no_ref(kind, "a JSON object", data, where)
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


def _no_ref(kind: str, expected: str, data: bytes, where: str) -> CorruptFileError:
    """The error for another file; without its bytes, as it may be a link to one with secrets."""
    found = f"{len(data)} bytes of something else"
    return CorruptFileError(f"file of a {kind}", expected=expected, found=found, where=where)


def required_integer(content: Mapping[str, Any], key: str, where: str) -> int:
    """A required integer below 2^64."""
    value = content.get(key)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 2**64:
        raise damaged(f"{key} of a reference", "an integer below 2^64", value, where)
    return value


def metadata_of(content: Mapping[str, Any], where: str) -> dict[str, str]:
    """The metadata entries; empty if missing."""
    metadata = content.get("metadata") or {}
    if not isinstance(metadata, dict) or not all(isinstance(v, str) for v in metadata.values()):
        raise damaged("metadata of a reference", "an object of strings", metadata, where)
    return metadata


def damaged(subject: str, expected: str, found: object, where: str) -> CorruptFileError:
    """The error for a damaged ref; without its values, for the reason that ``_no_ref`` gives."""
    return CorruptFileError(subject, expected=expected, found=_kind_of(found), where=where)


def _kind_of(value: object) -> str:
    """What a value of JSON is, in words that do not tell the value."""
    match value:
        case None:
            return "null, or nothing"
        case bool():
            return "true or false"
        case str():
            return f"a text of {len(value)} characters"
        case int() | float():
            return "another number"
        case list():
            return f"a list of {len(value)}"
        case _:
            return "an object"


def stem(path: str) -> str:
    """Name of a file without its directory and ``.json``."""
    return path.rpartition("/")[2].removesuffix(".json")


# --------------------------------------------------------------------------- time


def time_text(moment: int | None) -> str | None:
    """RFC 3339 with nanoseconds, UTC."""
    if moment is None:
        return None
    seconds, nanos = divmod(moment, 1_000_000_000)
    return f"{datetime.fromtimestamp(seconds, UTC).replace(tzinfo=None).isoformat()}.{nanos:09d}Z"


def time_of(text: object, where: str) -> int | None:
    """Nanoseconds since 1970 UTC of an RFC 3339 time; ``None`` if it is missing."""
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
