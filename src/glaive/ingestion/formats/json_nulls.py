"""Nulls of JSON that Arrow's parser stumbles over.

It ends the process where the first record is null, and makes too few items of lists of nulls.
"""

from __future__ import annotations

import re
from typing import Any, Final

import pyarrow as pa

from glaive.arrow.nesting import without_json_strings

__all__ = ["all_nulls", "refuse_null_records", "with_all_nulls", "without_first_null"]

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


def all_nulls(table: pa.Table) -> pa.Table:
    """What the parser made, with as many items of lists of nulls as these lists have."""
    if not _may_lack_nulls(table.schema):
        return table
    return pa.Table.from_batches(map(with_all_nulls, table.to_batches()), table.schema)


def with_all_nulls(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The same of a batch."""
    if not _may_lack_nulls(batch.schema):
        return batch
    columns: Any = [_with_all_nulls(column) for column in batch.columns]
    return pa.RecordBatch.from_arrays(columns, schema=batch.schema)


def _may_lack_nulls(schema: pa.Schema) -> bool:
    return any(": null>" in f"{kind}" for kind in schema.types)


def _with_all_nulls(values: Any) -> Any:
    kind = values.type
    if pa.types.is_struct(kind):
        own, children = 1, [values.field(at) for at in range(kind.num_fields)]
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
        own, children = 2, [values.values]
        if pa.types.is_null(kind.value_type):
            children = [pa.nulls(values.offsets[-1].as_py())]
    else:
        return values
    made = [_with_all_nulls(child) for child in children]
    return pa.Array.from_buffers(kind, len(values), values.buffers()[:own], children=made)
