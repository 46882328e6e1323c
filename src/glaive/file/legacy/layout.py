"""The layout of a 0.1 file: pages by the page table, statistics, schema, metadata.

The page table gives positions and lengths, and types the bytes. Of strings only the ends are
read, two offsets per page, for it does not say how many bytes they have.

Specification: ``docs/format/legacy.md``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from glaive.errors import CorruptFileError
from glaive.file.layout_values import BufferPlace, ColumnLayout, FileLayout, PagePlace
from glaive.file.legacy.nodes import offset_bits, plain_bits
from glaive.file.legacy.reader import LegacyFile, number_ids
from glaive.format.describe import EncodingNode
from glaive.format.fields import Field
from glaive.memory import as_array
from glaive.types import ByteRange, Where

__all__ = ["legacy_layout"]

_ENTRY = 16
"""Bytes of a (position, length) pair in a page table."""

_OFFSET = 8
"""Bytes of an offset of a string."""

Int64s = NDArray[np.int64]


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
        column_metadata=BufferPlace("page table", reader.page_table_position, table_bytes),
        footer=BufferPlace("metadata and footer", end, size - end),
        others=tuple(_others(reader, end)),
    )


def _paths(fields: tuple[Field, ...], prefix: str) -> Iterator[tuple[str, Field]]:
    for field in fields:
        yield f"{prefix}{field.name}", field
        yield from _paths(field.children, f"{prefix}{field.name}.")


def _others(reader: LegacyFile, end: int) -> Iterator[BufferPlace]:
    """The schema, and statistics with their page table."""
    at = reader.schema_position
    yield BufferPlace("schema", at, end - at)
    found = reader.statistics_table()
    if found is None:
        return
    position, entries = found
    yield BufferPlace("page table of statistics", position, _ENTRY * entries)
    (raw,) = reader.reader.read([ByteRange(position, _ENTRY * entries)])
    pages = as_array(raw, "<i8").reshape(-1, 2)
    first = int(pages[pages[:, 1] > 0, 0].min(initial=position))
    if 0 <= first < position:
        yield BufferPlace("statistics", first, position - first)


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
        index=number,
        path=path,
        type=field.logical_type,
        pages=tuple(pages),
        buffers=tuple(items),
    )


def _pages(
    reader: LegacyFile, field: Field, table: Int64s, rows: Int64s, where: Where
) -> list[PagePlace]:
    kind: Any = field.arrow_type
    positions, lengths = table[:, 0], table[:, 1]
    _check(reader, positions, lengths, where)
    if field.logical_type.startswith(("list", "large_list")):
        node = EncodingNode("list")
        width = 8 if field.logical_type.startswith("large") else 4
        return [
            _page(node, int(count), int(count), [BufferPlace("offsets", at, width * length)])
            for at, length, count in zip(
                positions.tolist(), lengths.tolist(), rows.tolist(), strict=True
            )
        ]
    if offset_bits(kind) is not None:
        texts = _texts(reader, positions, lengths, where)
        node = EncodingNode("var_binary")
        return [
            _page(node, length, length, list(places))
            for places, length in zip(_in_turns(texts), lengths.tolist(), strict=True)
        ]
    keys = pa.types.is_dictionary(kind)
    bits = int(kind.index_type.bit_width) if keys else plain_bits(kind)[0]
    node = EncodingNode("dictionary" if keys else "plain", {"bits_per_value": bits})
    name = "indices" if keys else "values"
    pages = []
    for at, length in zip(positions.tolist(), lengths.tolist(), strict=True):
        size = (length * bits + 7) // 8
        pages.append(_page(node, length, length, [BufferPlace(name, at, size)], size))
    return pages


def _page(
    node: EncodingNode, rows: int, values: int, buffers: list[BufferPlace], raw: int | None = None
) -> PagePlace:
    return PagePlace(rows=rows, values=values, buffers=tuple(buffers), encoding=node, raw_bytes=raw)


def _in_turns(places: list[BufferPlace]) -> Iterator[tuple[BufferPlace, BufferPlace]]:
    """Offsets and bytes of each page, which stand in turns."""
    return zip(places[::2], places[1::2], strict=True)


def _texts(
    reader: LegacyFile, positions: Int64s, lengths: Int64s, where: Where
) -> list[BufferPlace]:
    """Offsets and bytes of each page of strings."""
    ends = [
        ByteRange(place, _OFFSET)
        for at, length in zip(positions.tolist(), lengths.tolist(), strict=True)
        for place in (at, at + _OFFSET * length)
    ]
    found = [as_array(one, "<i8").item(0) for one in reader.reader.read(ends)]
    places = []
    for page, length in enumerate(lengths.tolist()):
        first, last = found[2 * page], found[2 * page + 1]
        if not 0 <= first <= last <= reader.reader.size:
            raise CorruptFileError(
                "string offsets",
                expected=f"ascending, within 0..{reader.reader.size}",
                found=f"{first} to {last}",
                where=where,
            )
        places.append(BufferPlace("offsets", int(positions[page]), _OFFSET * (length + 1)))
        places.append(BufferPlace("bytes", first, last - first))
    return places


def _items(reader: LegacyFile, field: Field, where: Where) -> list[BufferPlace]:
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
        return [BufferPlace("dictionary", int(positions[0]), size)]
    texts = _texts(reader, positions, lengths, where)
    return [BufferPlace("dictionary", text.position, text.size) for text in texts]


def _check(reader: LegacyFile, positions: Int64s, lengths: Int64s, where: Where) -> None:
    size = reader.reader.size
    # A value takes a bit at least. Bounded first, so that products cannot wrap.
    if ((positions < 0) | (positions > size) | (lengths < 0) | (lengths > 8 * size)).any():
        raise CorruptFileError(
            "page table",
            expected=f"positions within 0..{size} and as many values as fit",
            found=f"positions {positions.min()}..{positions.max()}, up to {lengths.max()} values",
            where=where,
        )
