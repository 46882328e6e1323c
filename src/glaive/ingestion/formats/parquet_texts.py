"""Texts that a Parquet file has as numbers of few items, and that are read as such.

Arrow merges equal items of a dictionary, and then confuses its numbers. So the file's own count of
items is compared with that of the dictionary that was read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

from glaive.file.v2.dictionary_passthrough import can_pass_through, with_items_of

__all__ = ["has_all_items", "item_counts", "tidied"]

_DICTIONARIES: Final = frozenset({"RLE_DICTIONARY", "PLAIN_DICTIONARY"})
_HEADER_BYTES: Final = 64
_INTEGER, _STRUCT, _FIRST_INTEGER, _DICTIONARY_HEADER = 5, 12, 0x15, 7


def item_counts(
    source: Any, opened: Any, schema: pa.Schema, groups: Sequence[int]
) -> dict[str, list[int]]:
    """Columns whose texts are nearly all numbers of items; how many items each row group has.

    Such a value takes a byte or less, one without a dictionary at least four. A wrong guess, as
    for columns that are mostly null, only takes longer to read. One small read for each column
    and row group.

    Parameters
    ----------
    source
        The file, as Arrow has it.
    opened
        The ``ParquetFile`` over it.
    schema
        Columns to read, and the types they are to have.
    """
    footer, found = opened.metadata, {}
    row_groups = [footer.row_group(number) for number in groups]
    for at in range(footer.num_columns):
        leaf = footer.schema.column(at)
        index = schema.get_field_index(leaf.path)
        in_file = opened.schema_arrow.get_field_index(leaf.path)
        if min(index, in_file) < 0 or leaf.max_repetition_level:
            continue
        stored, wanted = opened.schema_arrow.field(in_file).type, schema.field(index).type
        if _is_string(stored) is None or _is_string(stored) != _is_string(wanted):
            continue
        chunks = [group.column(at) for group in row_groups]
        if all(map(_is_encoded, chunks)):
            counts = [_items(source, chunk) for chunk in chunks]
            present = [count for count in counts if count is not None]
            if counts and len(present) == len(counts):
                found[leaf.path] = present
    return found


def has_all_items(batch: pa.RecordBatch, counts: Mapping[str, int]) -> bool:
    """Whether the dictionaries of the first rows of a row group have as many items as the file."""
    columns: list[Any] = [batch.column(name) for name in counts]
    return all(
        len(column.dictionary) == count
        for column, count in zip(columns, counts.values(), strict=True)
    )


def tidied(batch: pa.RecordBatch, schema: pa.Schema, names: Mapping[str, Any]) -> pa.RecordBatch:
    """Rows whose dictionaries have items of the type of the column.

    Raises
    ------
    pyarrow.ArrowInvalid
        The file has numbers of items that do not exist.
    """
    columns: list[Any] = []
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        if name in names:
            _check(name, column)
            kind: Any = schema.field(name).type
            if not can_pass_through(kind):  # a view, which is stored as plain text
                kind = pa.string() if _is_string(kind) else pa.binary()
            columns.append(with_items_of(column, kind))
        else:
            columns.append(column)
    return pa.RecordBatch.from_arrays(columns, names=batch.schema.names)


def _check(name: str, column: Any) -> None:
    numbers = column.indices.drop_null() if column.null_count else column.indices
    found = np.asarray(numbers).view(np.uint32)
    if len(found) and int(found.max()) >= len(column.dictionary):
        raise pa.ArrowInvalid(f"column {name!r} has numbers of items that do not exist")


def _is_string(kind: Any) -> bool | None:
    """Whether texts of this type are strings, else bytes; None for other types."""
    types = pa.types
    if types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind):
        return True
    is_bytes = types.is_binary(kind) or types.is_large_binary(kind) or types.is_binary_view(kind)
    return False if is_bytes else None


def _is_encoded(chunk: Any) -> bool:
    small = chunk.total_uncompressed_size <= chunk.num_values
    return bool(small and _DICTIONARIES & {*chunk.encodings} and chunk.dictionary_page_offset)


def _items(source: Any, chunk: Any) -> int | None:
    """Items of the dictionary of a chunk, by the header of its page; None if it is another page.

    The header is a struct of Thrift's compact protocol: its members up to the header of the
    dictionary, whose first is the count, are integers.
    """
    header = iter(source.read_at(_HEADER_BYTES, chunk.dictionary_page_offset))
    member = 0
    for byte in header:
        member += byte >> 4
        if byte & 15 == _STRUCT and member == _DICTIONARY_HEADER:
            return _integer(header) if next(header, 0) == _FIRST_INTEGER else None
        if byte & 15 != _INTEGER or byte >> 4 == 0 or _integer(header) is None:
            return None
    return None


def _integer(data: Iterator[int]) -> int | None:
    """The next integer: 7 bits in each byte, the sign in the lowest one."""
    value = shift = 0
    for byte in data:
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return value >> 1 ^ -(value & 1)
    return None
