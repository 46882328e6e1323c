"""Tables of a directory namespace as folders: ``NAME.lance``, and markers in them.

Specification: "Directory namespaces" in ``docs/format``.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping, Sequence
from typing import Any, Final
from uuid import uuid4

from glaive.dataset.cleanup import drop_dataset
from glaive.errors import ObjectExistsError, StoreError
from glaive.format.paths import VERSIONS
from glaive.format.wire import is_file_name
from glaive.io.access import open_store
from glaive.io.location import Location
from glaive.io.store import ObjectStore, find_object
from glaive.namespace.errors import (
    InternalError,
    InvalidInputError,
    PermissionDeniedError,
    TableAlreadyExistsError,
)
from glaive.table.versions import unlisted

# --- Ids of tables and namespaces: paths of names, and which names can become folders ---

DELIMITER = "$"
"""Between the names of an id, in the manifest table and in paths of the REST interface."""

LONGEST_NAME = 200
"""Characters of a name; file systems permit 255 bytes, of which the table's folder takes some."""


def value(request: object, name: str, default: Any = None) -> Any:
    """A field of a request: of a model of the interface, or of a mapping, as pylance sends."""
    given = request.get(name) if isinstance(request, Mapping) else getattr(request, name, None)
    return default if given is None else given


def id_of(request: object, *, of_table: bool = False) -> tuple[str, ...]:
    """The id of a request.

    Raises
    ------
    InvalidInputError
        There is none, it is no list of names, or it is empty and that of a table.
    """
    given = value(request, "id")
    what = "table" if of_table else "namespace"
    if given is None:
        raise InvalidInputError(f"id: a request needs the id of a {what}, a list of names")
    if isinstance(given, str) or not isinstance(given, Sequence):
        raise InvalidInputError(f"id: expected a list of names, found {given!r:.100}")
    if not all(isinstance(name, str) for name in given):
        raise InvalidInputError(f"id: expected a list of names, found {given!r:.100}")
    if of_table and not given:
        raise InvalidInputError("id: a table has at least one name; [] is the root namespace")
    return tuple(given)


def check_name(name: str) -> str:
    """Refuse names of new tables and namespaces that could not be folders everywhere.

    Raises
    ------
    InvalidInputError
        Says which character is not possible.
    """
    if not name or len(name) > LONGEST_NAME:
        raise InvalidInputError(f"name {name!r:.60}: expected 1 to {LONGEST_NAME} characters")
    if name.startswith((".", "__")) or name.endswith((".", " ")):
        raise InvalidInputError(
            f"name {name!r}: names neither begin with '.' or '__' nor end with '.' or a space"
        )
    for character in name:
        if character in '/\\:*?"<>|%#$' or unicodedata.category(character).startswith("C"):
            raise InvalidInputError(
                f"name {name!r}: the character {character!r} is not possible in the name of a "
                "table or namespace. Use letters, digits, '_', '-' and '.'"
            )
    return name


def mode_of(request: object, default: str, *known: str) -> str:
    """The mode of a request in lower case without underscores: ``exist_ok`` is ``existok``.

    Raises
    ------
    InvalidInputError
        It is none of those.
    """
    given = value(request, "mode", default)
    mode = str(given).lower().replace("_", "")
    if mode not in (default, *known):
        raise InvalidInputError(
            f"mode: expected one of {', '.join((default, *known))}, found {given!r:.60}"
        )
    return mode


def text_of(path: Sequence[str]) -> str:
    """An id as text: its names with ``$`` between them."""
    return DELIMITER.join(path)


# --- Pages of a listing: ``limit`` names after the name in ``page_token`` ---------------


def page_of(names: Sequence[str], request: object) -> tuple[list[str], str | None]:
    """The page of names that a request asks for, and the token of the next one.

    They are sorted, or the last name of the page before is among them.

    Raises
    ------
    InvalidInputError
        The limit is below 1.
    """
    after, limit = str(value(request, "page_token", "")), value(request, "limit")
    rest = [name for name in names if name > after] if after else list(names)
    if after in names:
        rest = list(names[names.index(after) + 1 :])
    if limit is None:
        return rest, None
    if not isinstance(limit, int) or limit < 1:
        raise InvalidInputError(f"limit: expected a number above 0, found {limit!r:.60}")
    page = rest[:limit]
    return page, page[-1] if len(rest) > limit else None


SUFFIX = ".lance"
"""End of the folder of a table that is found by listing."""

MANIFEST = "__manifest"
"""Folder of the manifest table."""

DECLARED = ".lance-reserved"
"""Object in the folder of a table that was declared."""

DEREGISTERED = ".lance-deregistered"
"""Object in the folder of a table that is no longer of the namespace; its data stay."""

_CONTENT = b"reserved"
_LONGEST_ID = 200
"""Bytes of an id in the name of a folder."""

_ENDS_OF_PATHS: Final = re.compile(r"::|[?#]")
"""What ends a path in URIs that fsspec opens."""


def new_folder(path: Sequence[str], *, listed: bool) -> str:
    """The folder of a new table: ``NAME.lance`` where tables are listed, else a unique one."""
    if listed:
        return f"{path[-1]}{SUFFIX}"
    # File systems permit 255 bytes.
    name = text_of(path).encode()[:_LONGEST_ID].decode(errors="ignore").rstrip(". ")
    return f"{uuid4().hex[:8]}_{name}"


def checked_location(store: ObjectStore, location: str | None, where: str) -> str:
    """The folder that a row of the manifest table names; it lies below the root.

    Raises
    ------
    InternalError
        It is absolute, a URI, or leads out of the root; or its URI would open another folder.
    """
    if location is None or leads_out(store, location):
        raise InternalError(
            f"{where}: its location is {location!r:.200}, expected a folder below the root of the "
            "namespace. Register it again, or open the table by its URI"
        )
    return location


def _has_uri(store: ObjectStore, folder: str) -> bool:
    """Whether the URI of a folder opens it: fsspec would open one whose name ends earlier."""
    return not (_ENDS_OF_PATHS.search(folder) and Location.parse(store.uri).is_fsspec)


def leads_out(store: ObjectStore, location: str) -> bool:
    """Whether it is no path of a folder below the root: absolute, a URI, or with ``..``."""
    if not _has_uri(store, location):
        return True
    if any(0xD800 <= ord(mark) < 0xE000 for mark in location):  # half of a surrogate pair
        return True
    first = location.partition("/")[0]
    return first == MANIFEST or ":" in first or not is_file_name(location)


def listed_folder(store: ObjectStore, path: Sequence[str]) -> str | None:
    """The folder where a listing finds the table of an id; ``None`` if it finds no such table."""
    if len(path) != 1 or not 0 < len(path[0]) <= LONGEST_NAME or path[0] in (".", ".."):
        return None
    if any(mark in "/\\" or ord(mark) < 32 for mark in path[0]) or not _has_uri(store, path[0]):
        return None
    return f"{path[0]}{SUFFIX}"


def table_listed_in(store: ObjectStore, folder: str) -> str | None:
    """The table that a listing finds in a folder; ``None`` if it finds none."""
    name = folder.removesuffix(SUFFIX)
    if listed_folder(store, [name]) != folder or is_deregistered(store, folder):
        return None
    return name if is_there(store, folder) else None


def listed_tables(store: ObjectStore) -> list[str]:
    """Names of the tables that a listing of the root finds, in order.

    One listing of a local folder, and one lookup for each table; other stores list all objects
    below the root.
    """
    names = store.names("")
    if names is not None:
        found = {name for name in names if name.endswith(SUFFIX) and name != SUFFIX}
        removed = {name for name in found if _is_hidden(store, name)}
        return _tables(store, found - removed)
    found, removed = set(), set()
    for entry in store.walk(""):
        folder, mark, rest = entry.path.partition("/")
        if mark and folder.endswith(SUFFIX) and folder != SUFFIX:
            found.add(folder)
            if rest == DEREGISTERED:
                removed.add(folder)
    return _tables(store, found - removed)


def _tables(store: ObjectStore, found: set[str]) -> list[str]:
    """Names of the tables in folders; not those that no request can name."""
    names = (folder.removesuffix(SUFFIX) for folder in found)
    return sorted(name for name in names if listed_folder(store, [name]) is not None)


def _is_hidden(store: ObjectStore, folder: str) -> bool:
    """Whether it is no table: a file, deregistered, or what a stopped drop has left."""
    try:
        inside = store.names(folder)
    except StoreError:  # a file, or a folder that may not be read
        return True
    if inside is None or DEREGISTERED in inside:
        return inside is not None
    try:
        return DECLARED not in inside and not is_written(store, folder)
    except StoreError:  # a table that may not be read
        return False


def is_written(store: ObjectStore, folder: str) -> bool:
    """Whether a folder has a version.

    Over a network also one that the listing does not show yet: one request more if it shows none.
    """
    names = store.names(f"{folder}/{VERSIONS}")
    if names is not None:
        return any(name.endswith(".manifest") for name in names)
    entries = store.list(f"{folder}/{VERSIONS}")
    if any(entry.path.endswith(".manifest") for entry in entries):
        return True
    return store.is_remote and unlisted(open_folder(store, folder)) is not None


def is_there(store: ObjectStore, folder: str) -> bool:
    """Whether a folder is declared, or has a version."""
    return find_object(store, f"{folder}/{DECLARED}") is not None or is_written(store, folder)


def is_deregistered(store: ObjectStore, folder: str) -> bool:
    """Whether a folder has the marker of a table that was taken out."""
    return find_object(store, f"{folder}/{DEREGISTERED}") is not None


def mark_declared(store: ObjectStore, folder: str) -> None:
    """Take the folder for a table.

    Raises
    ------
    TableAlreadyExistsError
        Another writer has taken it.
    """
    try:
        store.put(f"{folder}/{DECLARED}", [_CONTENT], mode="create")
    except ObjectExistsError:
        raise TableAlreadyExistsError(
            f"table already exists: {store.full(folder)} is declared. Choose another name"
        ) from None


def mark_deregistered(store: ObjectStore, folder: str) -> None:
    """Hide a folder from listings; its data stay.

    Raises
    ------
    PermissionDeniedError
        A link leads to it: the mark would hide the table that lies there, too.
    StoreError
        One does since this was looked at, or the store failed.
    """
    reason = _link_to(store, folder)
    if reason is not None:
        raise PermissionDeniedError(
            f"nothing in {store.full(folder)} is marked as deregistered: {reason} The table that "
            "lies there would be taken out as well. Delete the link to take out this one"
        )
    open_folder(store, folder).mark(DEREGISTERED, _CONTENT)


def remove_markers(store: ObjectStore, folder: str) -> None:
    """Remove the markers of a folder, and the folder if nothing else is in it."""
    store.delete([f"{folder}/{name}" for name in (DECLARED, DEREGISTERED)])
    inner = store.below(folder)
    if inner is not None:
        inner.remove_folders()


def refuse_links(store: ObjectStore, folder: str) -> None:
    """Refuse a folder that a link leads to: what lies there may be of somebody else.

    Raises
    ------
    PermissionDeniedError
        A link in its path leads anywhere, such as out of the root, or to another table there.
    """
    reason = _link_to(store, folder)
    if reason is not None:
        raise PermissionDeniedError(
            f"nothing in {store.full(folder)} is deleted: {reason} Here it is a property of the "
            "namespace, storage.delete_through_links. Or take the table out: delete the link; a "
            "table that was registered at this location, by deregister_table"
        )


def refuse_foreign_catalogue(store: ObjectStore) -> None:
    """Refuse to change the manifest table where a link leads to that of somebody else.

    Raises
    ------
    PermissionDeniedError
        A link in the path of its versions leads out of the root, or to another table there.
    """
    reason = store.link_out(f"{MANIFEST}/{VERSIONS}")
    if reason is not None:
        raise PermissionDeniedError(
            f"the catalogue in {store.full(MANIFEST)} is not changed: {reason} Here it is a "
            "property of the namespace, storage.delete_through_links. Tables that another "
            "catalogue has would be taken out there, or added"
        )


def _link_to(store: ObjectStore, folder: str) -> str | None:
    """Why nothing is done to a folder that a link leads to; None where none does."""
    return store.link_out(folder) or open_folder(store, folder).link_out("")


def drop(store: ObjectStore, folder: str, options: Mapping[str, str] | None) -> None:
    """Delete the dataset in a folder, and its markers; nothing behind links out of the root."""
    if is_written(store, folder):
        drop_dataset(store.full(folder), options, ignore_not_found=False, above=store)
    remove_markers(store, folder)


def open_folder(store: ObjectStore, folder: str) -> ObjectStore:
    """The store of a folder."""
    inner = store.below(folder)
    return open_store(store.full(folder), store.options) if inner is None else inner
