"""The layout of a 0.1 file: pages by the page table, statistics, schema, metadata.

The page table has positions and lengths; sizes follow from the types. For strings two offsets
per page are read, because the page table has no sizes of their bytes.

Specification: ``docs/format/legacy.md``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from glaive.arrow.build import offset_bits
from glaive.errors import CorruptFileError
from glaive.file.layout_values import BufferLocation, ColumnLayout, FileLayout, PageInfo
from glaive.file.legacy.nodes import plain_bits
from glaive.file.legacy.reader import LegacyFile, number_ids
from glaive.format.describe import EncodingNode
from glaive.format.fields import Field
from glaive.memory import as_array
from glaive.types import ByteRange, Int64s, Where

__all__ = ["legacy_layout"]

_ENTRY = 16
"""Bytes of a (position, length) pair in a page table."""

_OFFSET = 8
"""Bytes of an offset of a string."""


def legacy_layout(reader: LegacyFile) -> FileLayout:
    """Describe an opened file of format 0.1."""
    numbers = number_ids(reader.schema.field_ids())
    table = reader.page_table(numbers.values())
    columns = []
    for path, field in _paths(reader.schema.fields, ""):
        number = numbers.get(field.id)
        if number is not None:
            columns.append(_column(reader, number, path, field, table[number]))
    end, size = reader.metadata_position, reader.reader.size
    table_bytes = _ENTRY * reader.num_columns * (len(reader.batches) - 1)
    return FileLayout(
        path=reader.path,
        size=size,
        version=reader.version,
        num_rows=reader.num_rows,
        schema=reader.schema,
        columns=tuple(columns),
        global_buffers=(),
        column_metadata=BufferLocation("page table", reader.page_table_position, table_bytes),
        footer=BufferLocation("metadata and footer", end, size - end),
        others=tuple(_others(reader, end)),
    )


def _paths(fields: tuple[Field, ...], prefix: str) -> Iterator[tuple[str, Field]]:
    for field in fields:
        yield f"{prefix}{field.name}", field
        yield from _paths(field.children, f"{prefix}{field.name}.")


def _others(reader: LegacyFile, end: int) -> Iterator[BufferLocation]:
    """The schema, and statistics with their page table."""
    at = reader.schema_position
    yield BufferLocation("schema", at, end - at)
    statistics = reader.statistics_table()
    if statistics is None:
        return
    position, entries = statistics
    yield BufferLocation("page table of statistics", position, _ENTRY * entries)
    (raw,) = reader.reader.read([ByteRange(position, _ENTRY * entries)])
    pages = as_array(raw, "<i8").reshape(-1, 2)
    first = int(pages[pages[:, 1] > 0, 0].min(initial=position))
    if 0 <= first < position:
        yield BufferLocation("statistics", first, position - first)


# ------------------------------------------------------------------ columns


def _column(
    reader: LegacyFile, number: int, path: str, field: Field, table: Int64s
) -> ColumnLayout:
    where = Where(reader.path, number, path)
    rows = np.diff(reader.batches)
    items = _items(reader, field, where)
    if field.logical_type == "struct" or pa.types.is_null(field.arrow_type):
        pages = [_page(EncodingNode("none"), int(row), int(row), []) for row in rows]
    else:
        pages = _pages(reader, field, table, rows, where)
    return ColumnLayout(
        index=number, path=path, type=field.logical_type, pages=tuple(pages), buffers=tuple(items)
    )


def _pages(
    reader: LegacyFile, field: Field, table: Int64s, rows: Int64s, where: Where
) -> list[PageInfo]:
    kind: Any = field.arrow_type
    positions, lengths = table[:, 0], table[:, 1]
    _check(reader, positions, lengths, where)
    if field.logical_type.startswith(("list", "large_list")):
        node = EncodingNode("list")
        width = 8 if field.logical_type.startswith("large") else 4
        return [
            _page(node, int(count), int(count), [BufferLocation("offsets", at, width * length)])
            for at, length, count in zip(
                positions.tolist(), lengths.tolist(), rows.tolist(), strict=True
            )
        ]
    if offset_bits(kind) is not None:
        strings = _strings(reader, positions, lengths, where)
        node = EncodingNode("var_binary")
        return [
            _page(node, length, length, strings[2 * page : 2 * page + 2])
            for page, length in enumerate(lengths.tolist())
        ]
    keys = pa.types.is_dictionary(kind)
    bits = int(kind.index_type.bit_width) if keys else plain_bits(kind)[0]
    node = EncodingNode("dictionary" if keys else "plain", {"bits_per_value": bits})
    name = "indices" if keys else "values"
    pages = []
    for at, length in zip(positions.tolist(), lengths.tolist(), strict=True):
        size = (length * bits + 7) // 8
        pages.append(_page(node, length, length, [BufferLocation(name, at, size)], size))
    return pages


def _page(
    node: EncodingNode,
    rows: int,
    values: int,
    buffers: list[BufferLocation],
    raw: int | None = None,
) -> PageInfo:
    return PageInfo(rows=rows, values=values, buffers=tuple(buffers), encoding=node, raw_bytes=raw)


def _strings(
    reader: LegacyFile, positions: Int64s, lengths: Int64s, where: Where
) -> list[BufferLocation]:
    """Offsets and bytes of each page of strings, alternating."""
    ends = [
        ByteRange(position, _OFFSET)
        for first, length in zip(positions.tolist(), lengths.tolist(), strict=True)
        for position in (first, first + _OFFSET * length)
    ]
    offsets = [as_array(raw, "<i8").item(0) for raw in reader.reader.read(ends)]
    buffers = []
    for page, length in enumerate(lengths.tolist()):
        first, last = offsets[2 * page], offsets[2 * page + 1]
        if not 0 <= first <= last <= reader.reader.size:
            raise CorruptFileError(
                "string offsets",
                expected=f"ascending, within 0..{reader.reader.size}",
                found=f"{first} to {last}",
                where=where,
            )
        buffers.append(BufferLocation("offsets", int(positions[page]), _OFFSET * (length + 1)))
        buffers.append(BufferLocation("bytes", first, last - first))
    return buffers


def _items(reader: LegacyFile, field: Field, where: Where) -> list[BufferLocation]:
    """The items of a dictionary column."""
    if field.dictionary is None or not pa.types.is_dictionary(field.arrow_type):
        return []
    kind: Any = field.arrow_type
    kind = kind.value_type
    entry = np.array([field.dictionary], np.int64)
    positions, lengths = entry[:, 0], entry[:, 1]
    _check(reader, positions, lengths, where)
    if offset_bits(kind) is None:
        size = (int(lengths[0]) * plain_bits(kind)[0] + 7) // 8
        return [BufferLocation("dictionary", int(positions[0]), size)]
    strings = _strings(reader, positions, lengths, where)
    return [BufferLocation("dictionary", buffer.position, buffer.size) for buffer in strings]


def _check(reader: LegacyFile, positions: Int64s, lengths: Int64s, where: Where) -> None:
    size = reader.reader.size
    # A value takes a bit at least. Checked first, so that products cannot wrap around.
    if ((positions < 0) | (positions > size) | (lengths < 0) | (lengths > 8 * size)).any():
        raise CorruptFileError(
            "page table",
            expected=f"positions within 0..{size} and as many values as fit",
            found=f"positions {positions.min()}..{positions.max()}, up to {lengths.max()} values",
            where=where,
        )
