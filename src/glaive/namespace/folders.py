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
"""Separator of the names of an id, in the manifest table and in paths of the REST form."""

MAX_NAME = 200
"""Most characters of a name: file systems permit 255 bytes, and the folder adds some."""


def value(request: object, name: str, default: Any = None) -> Any:
    """Return a field of a request, which is a model of the interface, or a mapping as in
    pylance.
    """
    given = request.get(name) if isinstance(request, Mapping) else getattr(request, name, None)
    return default if given is None else given


def index_name_of(request: object) -> str:
    """Return the name of the index that a request is for."""
    name = value(request, "index_name")
    if not name:
        raise InvalidInputError("index_name: the request needs the name of an index")
    return str(name)


def id_of(request: object, *, of_table: bool = False) -> tuple[str, ...]:
    """Return the id of a request.

    Raises
    ------
    InvalidInputError
        The id is missing or differs from a list of names. Or the id of a table is empty.
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
    """Refuse names of new tables and namespaces that are invalid as folders on some system.

    Raises
    ------
    InvalidInputError
        The name has an invalid character, length or end.
    """
    if not name or len(name) > MAX_NAME:
        raise InvalidInputError(f"name {name!r:.60}: expected 1 to {MAX_NAME} characters")
    if name.startswith((".", "__")) or name.endswith((".", " ")):
        raise InvalidInputError(
            f"name {name!r}: names must not begin with '.' or '__', or end with '.' or a space"
        )
    for character in name:
        if character in '/\\:*?"<>|%#$' or unicodedata.category(character).startswith("C"):
            raise InvalidInputError(
                f"name {name!r}: the character {character!r} is not possible in the name of a "
                "table or namespace. Use letters, digits, '_', '-' and '.'"
            )
    return name


def mode_of(request: object, default: str, *known: str) -> str:
    """Return a request's mode in lower case and drop underscores: ``exist_ok`` is ``existok``.

    Raises
    ------
    InvalidInputError
        The mode is unknown.
    """
    given = value(request, "mode", default)
    mode = str(given).lower().replace("_", "")
    if mode not in (default, *known):
        raise InvalidInputError(
            f"mode: expected one of {', '.join((default, *known))}, found {given!r:.60}"
        )
    return mode


def text_of(path: Sequence[str]) -> str:
    """Return an id as a string: its names with ``$`` between them."""
    return DELIMITER.join(path)


# --- Pages of a listing: ``limit`` names after the name in ``page_token`` ---------------


def page_of(names: Sequence[str], request: object) -> tuple[list[str], str | None]:
    """Return the page of names that a request wants, and the token of the next page.

    The names must be sorted, or contain the last name of the previous page.

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
"""End of the folder of a table that listings find."""

MANIFEST = "__manifest"
"""Folder of the manifest table."""

DECLARED = ".lance-reserved"
"""Object in the folder of a declared table."""

DEREGISTERED = ".lance-deregistered"
"""Object in the folder of a deregistered table; its data stay."""

_CONTENT = b"reserved"
_MAX_ID_BYTES = 200
"""Bytes of an id in the name of a folder."""

_PATH_ENDS: Final = re.compile(r"::|[?#]")
"""Characters that end a path in URIs of fsspec."""


def new_folder(path: Sequence[str], *, listed: bool) -> str:
    """Return a new table's folder: ``NAME.lance`` for listed tables, else a unique name."""
    if listed:
        return f"{path[-1]}{SUFFIX}"
    # File systems permit 255 bytes.
    name = text_of(path).encode()[:_MAX_ID_BYTES].decode(errors="ignore").rstrip(". ")
    return f"{uuid4().hex[:8]}_{name}"


def checked_location(store: ObjectStore, location: str | None, where: str) -> str:
    """Return the folder in a row of the manifest table, which is below the root.

    Raises
    ------
    InternalError
        The folder is absolute, a URI, or leads out of the root. Or its URI would open another
        folder.
    """
    if location is None or leaves_root(store, location):
        raise InternalError(
            f"{where}: its location is {location!r:.200}, expected a folder below the root of the "
            "namespace. Register it again, or open the table by its URI"
        )
    return location


def _has_uri(store: ObjectStore, folder: str) -> bool:
    """Return whether the URI of a folder opens it: fsspec may cut the end of its name."""
    return not (_PATH_ENDS.search(folder) and Location.parse(store.uri).is_fsspec)


def leaves_root(store: ObjectStore, location: str) -> bool:
    """Return whether a location may leave the root: an absolute path, a URI, or ``..``."""
    if not _has_uri(store, location):
        return True
    if any(0xD800 <= ord(mark) < 0xE000 for mark in location):  # half of a surrogate pair
        return True
    first = location.partition("/")[0]
    return first == MANIFEST or ":" in first or not is_file_name(location)


def listed_folder(store: ObjectStore, path: Sequence[str]) -> str | None:
    """Return the folder where a listing finds a table by id, or ``None``."""
    if len(path) != 1 or not 0 < len(path[0]) <= MAX_NAME or path[0] in (".", ".."):
        return None
    if any(mark in "/\\" or ord(mark) < 32 for mark in path[0]) or not _has_uri(store, path[0]):
        return None
    return f"{path[0]}{SUFFIX}"


def table_listed_in(store: ObjectStore, folder: str) -> str | None:
    """Return the table that a listing finds in a folder, or ``None``."""
    name = folder.removesuffix(SUFFIX)
    if listed_folder(store, [name]) != folder or is_deregistered(store, folder):
        return None
    return name if is_there(store, folder) else None


def listed_tables(store: ObjectStore) -> list[str]:
    """Return the names of the tables that a listing of the root finds, in order.

    Cost: one listing of a local folder, and one lookup for each table. Other stores list all
    objects below the root.
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
    """Return the names of the tables in folders, except names that are invalid in requests."""
    names = (folder.removesuffix(SUFFIX) for folder in found)
    return sorted(name for name in names if listed_folder(store, [name]) is not None)


def _is_hidden(store: ObjectStore, folder: str) -> bool:
    """Return whether to ignore a folder: a file, deregistered, or left by a stopped drop."""
    try:
        inside = store.names(folder)
    except StoreError:  # a file, or an unreadable folder
        return True
    if inside is None or DEREGISTERED in inside:
        return inside is not None
    try:
        return DECLARED not in inside and not is_written(store, folder)
    except StoreError:  # an unreadable table
        return False


def is_written(store: ObjectStore, folder: str) -> bool:
    """Return whether a folder has a version.

    Over a network, listings may be old, so this finds versions outside the listing, too. If the
    listing is empty, this costs one more request.
    """
    names = store.names(f"{folder}/{VERSIONS}")
    if names is not None:
        return any(name.endswith(".manifest") for name in names)
    entries = store.list(f"{folder}/{VERSIONS}")
    if any(entry.path.endswith(".manifest") for entry in entries):
        return True
    return store.is_remote and unlisted(open_folder(store, folder)) is not None


def is_there(store: ObjectStore, folder: str) -> bool:
    """Return whether a folder is declared, or has a version."""
    return find_object(store, f"{folder}/{DECLARED}") is not None or is_written(store, folder)


def is_deregistered(store: ObjectStore, folder: str) -> bool:
    """Return whether a folder has the marker of a deregistered table."""
    return find_object(store, f"{folder}/{DEREGISTERED}") is not None


def mark_declared(store: ObjectStore, folder: str) -> None:
    """Reserve the folder for a table.

    Raises
    ------
    TableAlreadyExistsError
        Another writer has reserved the folder.
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
        A symlink leads to the folder: the marker would hide the table in the target, too.
    StoreError
        A symlink was put there meanwhile, or the store failed.
    """
    reason = _link_to(store, folder)
    if reason is not None:
        raise PermissionDeniedError(
            f"nothing in {store.full(folder)} is marked as deregistered: {reason} The table that "
            "lies there would be taken out as well. Delete the link to take out this one"
        )
    open_folder(store, folder).mark(DEREGISTERED, _CONTENT)


def remove_markers(store: ObjectStore, folder: str) -> None:
    """Remove the markers of a folder, and the folder if it is otherwise empty."""
    store.delete([f"{folder}/{name}" for name in (DECLARED, DEREGISTERED)])
    inner = store.below(folder)
    if inner is not None:
        inner.remove_folders()


def refuse_links(store: ObjectStore, folder: str) -> None:
    """Refuse a folder that a symlink leads to, because its files may belong to somebody else.

    Raises
    ------
    PermissionDeniedError
        A symlink is in the path, with any target: out of the root, or another table there.
    """
    reason = _link_to(store, folder)
    if reason is not None:
        raise PermissionDeniedError(
            f"nothing in {store.full(folder)} is deleted: {reason} Here it is a property of the "
            "namespace, storage.delete_through_links. Or take the table out: delete the link; a "
            "table that was registered at this location, by deregister_table"
        )


def refuse_foreign_catalogue(store: ObjectStore) -> None:
    """Refuse to change the manifest table if a symlink leads to a foreign one.

    Raises
    ------
    PermissionDeniedError
        A symlink in the path of its versions leads out of the root, or to another table there.
    """
    reason = store.link_out(f"{MANIFEST}/{VERSIONS}")
    if reason is not None:
        raise PermissionDeniedError(
            f"the catalogue in {store.full(MANIFEST)} is not changed: {reason} Here it is a "
            "property of the namespace, storage.delete_through_links. Tables that another "
            "catalogue has would be taken out there, or added"
        )


def _link_to(store: ObjectStore, folder: str) -> str | None:
    """Return why a folder is left unchanged: a symlink leads to it. Otherwise ``None``."""
    return store.link_out(folder) or open_folder(store, folder).link_out("")


def drop(store: ObjectStore, folder: str, options: Mapping[str, str] | None) -> None:
    """Delete the dataset in a folder, and its markers; leave symlinks out of the root alone."""
    if is_written(store, folder):
        drop_dataset(store.full(folder), options, ignore_not_found=False, above=store)
    remove_markers(store, folder)


def open_folder(store: ObjectStore, folder: str) -> ObjectStore:
    """Return the store of a folder."""
    inner = store.below(folder)
    return open_store(store.full(folder), store.options) if inner is None else inner
