"""What pandas notes in the metadata of a schema: types and index of a frame.

Arrow makes types of pandas of it wherever a table becomes a frame, also by its own methods.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any, Final

import pyarrow as pa

from glaive.format.logical_types import EXTENSION_NAME, WITHHELD

__all__ = ["fitting", "is_unsafe"]

_WIDE: Final = re.compile(r"(?:^|\W)[aSUV]?\d")
"""A type of NumPy with a number of bytes or items: ``S300``, ``S 300``, ``3i8``, ``(3,)i8``."""

_NAMES_OF_TYPES: Final = frozenset({EXTENSION_NAME.encode(), WITHHELD[EXTENSION_NAME].encode()})

_OF_ARROW: Final = "[pyarrow]"
"""The end of a type of pandas that is one of Arrow, to which its values would be converted."""

_TEXTS: Final = re.compile(r"str(?:ing)?(?:\[\w+\])?").fullmatch
"""Types of pandas for texts, which both types of Arrow for these may have."""

_EXTENSIONS: Final = ("period[", "interval[")
"""Types of pandas that are extension types of Arrow: others would be taken for their storage."""

_KINDS: Final = {
    pa.null(): "empty",
    pa.bool_(): "bool",
    pa.int8(): "int8",
    pa.int16(): "int16",
    pa.int32(): "int32",
    pa.int64(): "int64",
    pa.uint8(): "uint8",
    pa.uint16(): "uint16",
    pa.uint32(): "uint32",
    pa.uint64(): "uint64",
    pa.float16(): "float16",
    pa.float32(): "float32",
    pa.float64(): "float64",
    pa.date32(): "date",
    pa.date64(): "date",
    pa.string(): "unicode",
    pa.large_string(): "unicode",
    pa.binary(): "bytes",
    pa.large_binary(): "bytes",
}
"""What a note calls a type of Arrow."""

_LONG: Final = 1_000
"""Characters of a name with levels, at most: each may be an item, and each item is a level."""


def is_unsafe(noted: bytes, names_of_columns: Iterable[str]) -> bool:
    """Whether a frame by a note would open files, take memory or time, or have names of its choice.

    A time zone of dateutil opens any path. The names of columns are converted to a type that the
    note names, each to so many bytes. pandas itself notes no such types: time zones have an entry
    of their own, and names are objects, texts, numbers or times. Nor does it note an index of
    several ranges, each of which takes memory for all rows, and its names have few levels. It calls
    columns as they are called, but for those of the index: values would be read under another name.
    """
    try:
        said = json.loads(noted)
        described = said.get("columns", ())
        columns = [str(one["numpy_type"]) for one in described]
        names = said.get("column_indexes", ())
        of_names = [str(one[key]) for one in names for key in ("numpy_type", "pandas_type")]
        index = said.get("index_columns", ())
        ranges = [one for one in index if isinstance(one, dict)]
        of_index = {one for one in index if isinstance(one, str)}
        renamed = any(_field(one) not in of_index and not _is_called(one) for one in described)
        with_levels: list[Any] = []
        if len(names) > 1:  # then each name is read as a tuple
            with_levels = [*names_of_columns, *(one.get("name") for one in described)]
    except ValueError:
        return False  # no JSON: nobody makes types of it
    except (AttributeError, KeyError, RecursionError, TypeError):
        return True  # damaged, so that nothing is lost without it
    return (
        renamed
        or len(ranges) > 1
        or any(len(str(name)) > _LONG for name in with_levels)
        or any("dateutil/" in kind for kind in columns + of_names)
        or any(map(_WIDE.search, of_names))
    )


def _is_called(one: dict[str, Any]) -> bool:
    """Whether a column is called in the frame as in the table; pandas has numbers as names, too."""
    name = one.get("name")
    return not isinstance(name, dict | list) and str(name) == str(_field(one))


def _field(one: dict[str, Any]) -> Any:
    """The name of a column in the table; old notes have no entry for it."""
    return one.get("field_name", one.get("name"))


def fitting(noted: bytes, fields: Iterable[pa.Field[Any]]) -> bytes:
    """A note without the types that columns had before they were changed, or made again.

    Nor with that of a column in the place of which there is something computed. Arrow and pandas
    would convert the values to what the column was: numbers to booleans or to texts, times to days.

    Parameters
    ----------
    noted
        A note that is not unsafe, or something else.
    fields
        The columns there are.
    """
    try:
        said = json.loads(noted)
    except (ValueError, RecursionError):
        return noted
    by_name = {field.name: field for field in fields}
    found = False
    for one in said.get("columns", ()):
        field = by_name.get(str(_field(one)))
        if field is not None and not _is_as_noted(one, field):
            one |= {"pandas_type": _kind(field), "numpy_type": "object", "metadata": None}
            found = True
    return json.dumps(said).encode() if found else noted


def _is_as_noted(one: dict[str, Any], field: pa.Field[Any]) -> bool:
    """Whether a column has a type that the classes which its note names can have values of."""
    kind, of_numpy = str(one.get("pandas_type")), str(one.get("numpy_type"))
    if of_numpy.endswith(_OF_ARROW) and not _TEXTS(of_numpy):
        return of_numpy == f"{field.type}{_OF_ARROW}"
    if of_numpy.startswith(_EXTENSIONS) and _NAMES_OF_TYPES.isdisjoint(field.metadata or ()):
        return False
    if kind == "object" and _TEXTS(of_numpy):
        kind = "unicode"
    return _kind(field) == ("object" if kind.startswith("list[") else kind)


def _kind(field: pa.Field[Any]) -> str:
    """What a note calls the type of a column; lists, which are noted as objects, too, as these."""
    data_type, types = field.type, pa.types
    if not _NAMES_OF_TYPES.isdisjoint(field.metadata or ()):
        return "object"
    if types.is_timestamp(data_type):
        return "datetime" if data_type.tz is None else "datetimetz"
    if types.is_decimal(data_type):
        return "decimal"
    if types.is_dictionary(data_type):
        return "categorical"
    if types.is_time(data_type):
        return "time"
    return "bytes" if types.is_fixed_size_binary(data_type) else _KINDS.get(data_type, "object")
