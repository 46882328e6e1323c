"""Ids of tables and namespaces: paths of names, and which names can become folders."""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping, Sequence
from typing import Any

from glaive.namespace.errors import InvalidInputError

__all__ = ["DELIMITER", "LONGEST_NAME", "check_name", "id_of", "mode_of", "text_of", "value"]

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
