"""What the files of tags and branches have in common: where they lie, and their JSON.

All of them are files of the root, the directory of the main branch. A branch is a dataset of
its own below ``tree/``.

Specification: "Tags" and "Branches" in ``docs/format/refs.md``.
"""

from __future__ import annotations

import json
import logging
import re
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from difflib import get_close_matches
from typing import Any, Final

from glaive.errors import CorruptFileError, ObjectNotFoundError, RefNotFoundError
from glaive.io.store import ObjectMeta, ObjectStore
from glaive.table.root import open_beside

__all__ = [
    "MAIN",
    "NAME",
    "TREE",
    "branch_store",
    "damaged",
    "dump_json",
    "finished",
    "is_branch_name",
    "is_unfinished",
    "load_json",
    "metadata_of",
    "now",
    "ref_files",
    "root_of_branch",
    "root_store",
    "stem",
    "time_of",
    "time_text",
    "whole_number",
]

TREE: Final = "tree"
MAIN: Final = "main"
"""The branch that has no file: the root itself."""

NAME: Final = re.compile(r"[\w.-]+")
"""Characters of a tag's name, and of each part of a branch's."""

_logger = logging.getLogger(__name__)


# ------------------------------------------------------------------------- places


def root_of_branch(uri: str, branch: str | None) -> str:
    """The root of the dataset whose branch lies at a URI; a copy of one stands for itself."""
    return uri.removesuffix(f"/{TREE}/{branch}") if branch else uri


def root_store(store: ObjectStore, branch: str | None) -> ObjectStore:
    """The root of the dataset whose branch ``store`` holds; tags and branches lie there."""
    if branch is None:
        return store
    root = root_of_branch(store.uri, branch)
    return store if root == store.uri else open_beside(store, root)


def branch_store(root: ObjectStore, branch: str | None) -> ObjectStore:
    """The directory of a branch."""
    if branch is None:
        return root
    return open_beside(root, f"{root.uri}/{TREE}/{branch}")


# -------------------------------------------------------------------------- names


def is_branch_name(name: object) -> bool:
    """Whether a branch other than the main one may have this name, as part of paths too."""
    if not isinstance(name, str) or name == MAIN or ".." in name or name.endswith(".lock"):
        return False
    return all(NAME.fullmatch(part) and part != "." for part in name.split("/"))


def ref_files(root: ObjectStore, folder: str) -> dict[str, ObjectMeta]:
    """The files of all tags or branches by name, in order. One listing.

    An empty one is the file of a tag or branch that was never made, for its writer was stopped.
    """
    files = [meta for meta in root.list(folder) if meta.path.endswith(".json")]
    named = {stem(meta.path).replace("%2F", "/"): meta for meta in files}
    return {name: named[name] for name in sorted(named)}


def finished(root: ObjectStore, files: Mapping[str, ObjectMeta]) -> list[str]:
    """The names of files that are not empty; others are logged."""
    for meta in files.values():
        if not meta.size:
            _logger.warning("%s", _unfinished(root.full(meta.path)))
    return [name for name, meta in files.items() if meta.size]


def is_unfinished(root: ObjectStore, path: str) -> bool:
    """Whether the file of a tag or branch is there, and empty. One request."""
    try:
        return not root.head(path).size
    except ObjectNotFoundError:
        return False


def _unfinished(where: str) -> str:
    return (
        f"{where} is empty: whoever wrote it is at work, or was stopped. Create the tag or branch "
        "once more, or delete it"
    )


# --------------------------------------------------------------------------- JSON


def dump_json(content: Mapping[str, Any]) -> bytes:
    """Content of a file of a tag or branch."""
    return json.dumps(content, indent=2, ensure_ascii=False).encode()


def load_json(root: ObjectStore, path: str, kind: str, name: str, folder: str) -> dict[str, Any]:
    """Read the file of a tag or branch (``kind``). One request.

    Raises
    ------
    RefNotFoundError
        There is none of this name in ``folder``, or its file is empty; the message names the
        closest ones.
    CorruptFileError
        It is no JSON object.
    """
    try:
        data = root.get(path).to_pybytes()
    except ObjectNotFoundError:
        known = [stem(meta.path).replace("%2F", "/") for meta in root.list(folder)]
        close = get_close_matches(name, known, n=3)
        hint = f"; did you mean {' or '.join(map(repr, close))}?" if close else "."
        shown = ", ".join(sorted(known)[:20]) or "none"
        raise RefNotFoundError(
            f"no {kind} {name!r} of {root.uri}{hint} There are: {shown}"
        ) from None
    where = root.full(path)
    if not data:
        raise RefNotFoundError(f"no {kind} {name!r} of {root.uri} yet: {_unfinished(where)}.")
    try:
        content = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise damaged(f"file of a {kind}", "JSON", f"{data[:60]!r}", where) from error
    if not isinstance(content, dict):
        raise damaged(f"file of a {kind}", "a JSON object", f"{data[:60]!r}", where)
    if rb"\u" in data:  # may be half of a pair, which no text of a file has
        try:
            dump_json(content)
        except UnicodeEncodeError as error:
            found = error.object[error.start : error.end]
            raise damaged(f"file of a {kind}", "texts in Unicode", found, where) from None
    return content


def whole_number(content: Mapping[str, Any], key: str, where: str) -> int:
    """A number below 2^64 that has to be there."""
    found = content.get(key)
    if not isinstance(found, int) or isinstance(found, bool) or not 0 <= found < 2**64:
        raise damaged(f"{key} of a reference", "an integer below 2^64", found, where)
    return found


def metadata_of(content: Mapping[str, Any], where: str) -> dict[str, str]:
    """The free text entries; none if they are left out."""
    found = content.get("metadata") or {}
    if not isinstance(found, dict) or not all(isinstance(one, str) for one in found.values()):
        raise damaged("metadata of a reference", "an object of texts", found, where)
    return found


def damaged(what: str, expected: str, found: object, where: str) -> CorruptFileError:
    """The error for a file that is not what it should be."""
    return CorruptFileError(what, expected=expected, found=f"{found!r:.80}", where=where)


def stem(path: str) -> str:
    """Name of a file without its directory and ``.json``."""
    return path.rpartition("/")[2].removesuffix(".json")


# --------------------------------------------------------------------------- time


def now() -> int:
    """Nanoseconds since 1970 UTC."""
    return time.time_ns()


def time_text(moment: int | None) -> str | None:
    """RFC 3339 with nanoseconds, UTC."""
    if moment is None:
        return None
    seconds, nanos = divmod(moment, 1_000_000_000)
    whole = datetime.fromtimestamp(seconds, UTC).replace(tzinfo=None)
    return f"{whole.isoformat()}.{nanos:09d}Z"


def time_of(text: object, where: str) -> int | None:
    """Nanoseconds since 1970 UTC of a time as it is written; ``None`` if it is left out."""
    if text is None:
        return None
    found = re.fullmatch(r"([^.]+?)(?:\.(\d{1,9}))?(Z|[+-]\d\d:\d\d)", str(text))
    try:
        if found is None:
            raise ValueError(text)
        zoned = datetime.fromisoformat(found[1] + found[3].replace("Z", "+00:00"))
        whole = zoned.astimezone(UTC)
    except (ValueError, OverflowError):  # the latter: another year than 1 to 9999 in UTC
        raise damaged("time of a reference", "RFC 3339", text, where) from None
    return int(whole.timestamp()) * 1_000_000_000 + int((found[2] or "0").ljust(9, "0"))
