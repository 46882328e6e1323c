"""Records of JSON that are null: Arrow's parser ends the process where one comes first."""

from __future__ import annotations

import re
from typing import Final

import pyarrow as pa

from glaive.arrow.nesting import without_json_strings

__all__ = ["refuse_null_records", "without_first_null"]

_FIRST: Final = re.compile(rb"(?:\xef\xbb\xbf)?[ \t\r\n]*+null")
_RECORD: Final = re.compile(rb"(?:\A(?:\xef\xbb\xbf)?|\})[ \t\r\n]*+null")
"""At the start, or behind an object: within objects there is a comma or a colon before it."""

_EMPTY: Final = b"{}  "


def without_first_null(data: pa.Buffer) -> pa.Buffer:
    """The same records, of which a first one that is null has become an object without members.

    Both are a row of nulls, as records that are null elsewhere.
    """
    found = _FIRST.match(memoryview(data))
    if found is None:
        return data
    text, end = data.to_pybytes(), found.end()
    return pa.py_buffer(text[: end - len(_EMPTY)] + _EMPTY + text[end:])


def refuse_null_records(lines: bytes) -> None:
    """Refuse lines of a file that Arrow cuts into blocks, any of which may come first.

    Raises
    ------
    pyarrow.ArrowInvalid
        A record is null.
    """
    if _RECORD.search(lines) and _RECORD.search(without_json_strings(lines)):
        raise pa.ArrowInvalid("a record is null, not an object. Remove it, or write {}")
