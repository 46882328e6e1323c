"""Describe an opened file: the positions and encodings of its columns, pages and buffers.

Nothing is decoded: all of it comes from the metadata at the end of the file. In format 0.1 the
metadata has no sizes of strings; their first and last offsets are read instead.
"""

from __future__ import annotations

import pyarrow as pa

from glaive.arrow.build import leaf_bits
from glaive.errors import UnsupportedFeatureError
from glaive.file.layout_values import BufferLocation, ColumnLayout, FileLayout, PageInfo
from glaive.file.legacy.layout import legacy_layout
from glaive.file.legacy.reader import LegacyFile
from glaive.file.protocol import FileReader
from glaive.file.v2.buffer_kinds import buffer_kinds, count_values
from glaive.file.v2.reading.reader import FileV2
from glaive.format.describe import describe_encoding
from glaive.format.fields import Field
from glaive.types import ByteRange, Where

__all__ = ["BufferLocation", "ColumnLayout", "FileLayout", "PageInfo", "file_layout"]


def file_layout(reader: FileReader) -> FileLayout:
    """Describe an opened file of any version.

    Raises
    ------
    CorruptFileError
        The metadata is damaged.
    UnsupportedFeatureError
        The file has no schema of its own.
    """
    if isinstance(reader, LegacyFile):
        return legacy_layout(reader)
    if not isinstance(reader, FileV2):
        raise UnsupportedFeatureError(
            f"the layout of a file of format {reader.version} cannot be displayed"
        )
    container, footer = reader.container, reader.container.footer
    size = container.reader.size
    owners = _owners(reader)
    return FileLayout(
        path=reader.path,
        size=size,
        version=reader.version,
        num_rows=reader.num_rows,
        schema=reader.schema,
        columns=tuple(_column(reader, index, *owner) for index, owner in enumerate(owners)),
        global_buffers=tuple(
            BufferLocation("schema" if number == 0 else "global buffer", *pair)
            for number, pair in enumerate(container.global_ranges())
        ),
        column_metadata=BufferLocation(
            "column metadata", footer.metadata_start, footer.column_table - footer.metadata_start
        ),
        footer=BufferLocation("tables and footer", footer.column_table, size - footer.column_table),
    )


def _owners(reader: FileV2) -> list[tuple[str, Field | None]]:
    """Path and field of every physical column, in order.

    The second column of a string in old files of 2.0 has a path only, that of its bytes.
    """
    numbers = reader.column_numbers()
    by_column: dict[int, tuple[str, Field]] = {}

    def visit(field: Field, prefix: str) -> None:
        path = f"{prefix}{field.name}"
        if field.id in numbers:
            by_column[numbers[field.id]] = (path, field)
        for child in field.children:
            visit(child, f"{path}.")

    for field in reader.schema.fields:
        visit(field, "")
    owners: list[tuple[str, Field | None]] = []
    for column in range(reader.num_columns):
        if column in by_column:
            owners.append(by_column[column])
        else:
            before = owners[-1][0] if owners else ""
            owners.append((f"{before} (bytes)" if before else f"column {column}", None))
    return owners


def _column(reader: FileV2, index: int, path: str, field: Field | None) -> ColumnLayout:
    container, where = reader.container, Where(reader.path, index, path)
    message = container.column(index)
    kind = None if field is None or field.children else field.arrow_type
    pages = []
    blobs = False
    for page in message.pages:
        node = describe_encoding(container.page_encoding(page.encoding, where), where)
        ranges = list(map(ByteRange, page.buffer_offsets, page.buffer_sizes))
        kinds = buffer_kinds(node, len(ranges))
        values = count_values(node, page.length)
        blobs = blobs or node.name == "blob_layout"
        pages.append(
            PageInfo(
                rows=page.length,
                values=values,
                buffers=tuple(
                    BufferLocation(name, *pair) for name, pair in zip(kinds, ranges, strict=True)
                ),
                encoding=node,
                raw_bytes=_raw_bytes(kind, values),
            )
        )
    if message.HasField("encoding"):
        own = describe_encoding(container.page_encoding(message.encoding, where), where)
        blobs = blobs or own.name == "blob"
    own_ranges = map(ByteRange, message.buffer_offsets, message.buffer_sizes)
    return ColumnLayout(
        index=index,
        path=path,
        type="" if field is None else field.logical_type,
        pages=tuple(pages),
        buffers=tuple(BufferLocation("column buffer", *pair) for pair in own_ranges),
        blobs=blobs,
    )


def _raw_bytes(kind: pa.DataType | None, values: int) -> int | None:
    bits = None if kind is None or pa.types.is_dictionary(kind) else leaf_bits(kind)
    return (values * bits + 7) // 8 if bits else None
