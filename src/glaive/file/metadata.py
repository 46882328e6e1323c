"""Metadata of a data file with pylance's names: :meth:`LanceFileReader.metadata`.

:meth:`LanceFileReader.layout` has more: encodings as trees, ratios, gaps.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from glaive.dataclass import dataclass
from glaive.file.layout_values import BufferLocation, ColumnLayout, FileLayout, PageInfo
from glaive.file.versions import profile_of

if TYPE_CHECKING:
    from glaive.format.describe import EncodingNode

__all__ = [
    "LanceBufferDescriptor",
    "LanceColumnMetadata",
    "LanceColumnStatistics",
    "LanceFileMetadata",
    "LanceFileStatistics",
    "LancePageMetadata",
    "file_metadata",
    "file_statistics",
]

_TABLE_ENTRY = 16
"""Bytes per column of the table of column metadata: a position and a size."""


@dataclass(frozen=True, slots=True)
class LanceBufferDescriptor:
    """Where a buffer is, in bytes."""

    position: int
    size: int


@dataclass(frozen=True, slots=True)
class LancePageMetadata:
    """One page: its buffers, and its encoding as text."""

    buffers: list[LanceBufferDescriptor]
    encoding: str


@dataclass(frozen=True, slots=True)
class LanceColumnMetadata:
    """One physical column: its own buffers, and its pages."""

    column_buffers: list[LanceBufferDescriptor]
    pages: list[LancePageMetadata]


@dataclass(frozen=True, slots=True)
class LanceFileMetadata:
    """What the end of a file says of it.

    Parameters
    ----------
    schema
        The columns.
    num_rows
        Rows.
    num_data_bytes
        Bytes of pages, and of padding between them and the global buffers.
    num_column_metadata_bytes
        Bytes of the metadata of all columns, with the table of where each is.
    num_global_buffer_bytes
        Bytes of the global buffers.
    global_buffers
        The schema, then those that were added.
    columns
        The physical columns.
    major_version, minor_version
        Format version, as the footer has it: 0.3 in files of 2.0.
    """

    schema: pa.Schema
    num_rows: int
    num_data_bytes: int
    num_column_metadata_bytes: int
    num_global_buffer_bytes: int
    global_buffers: list[LanceBufferDescriptor]
    columns: list[LanceColumnMetadata]
    major_version: int
    minor_version: int


@dataclass(frozen=True, slots=True)
class LanceColumnStatistics:
    """Pages of one physical column and their size in bytes."""

    num_pages: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class LanceFileStatistics:
    """One entry per physical column."""

    columns: list[LanceColumnStatistics]


def file_metadata(layout: FileLayout) -> LanceFileMetadata:
    """The metadata of a file out of its layout."""
    buffers = [_descriptor(one) for one in layout.global_buffers]
    buffers_size = sum(one.size for one in buffers)
    major, minor = profile_of(layout.version).footer
    return LanceFileMetadata(
        schema=layout.schema.logical_schema(),
        num_rows=layout.num_rows,
        num_data_bytes=layout.column_metadata.position - buffers_size,
        num_column_metadata_bytes=layout.column_metadata.size + _TABLE_ENTRY * len(layout.columns),
        num_global_buffer_bytes=buffers_size,
        global_buffers=buffers,
        columns=[_column(one) for one in layout.columns],
        major_version=major,
        minor_version=minor,
    )


def file_statistics(layout: FileLayout) -> LanceFileStatistics:
    """Pages and bytes per physical column out of the layout of a file."""
    return LanceFileStatistics(
        [LanceColumnStatistics(column.num_pages, column.size) for column in layout.columns]
    )


def _descriptor(buffer: BufferLocation) -> LanceBufferDescriptor:
    return LanceBufferDescriptor(buffer.position, buffer.size)


def _column(column: ColumnLayout) -> LanceColumnMetadata:
    own = [_descriptor(one) for one in column.buffers]
    return LanceColumnMetadata(own, [_page(one) for one in column.pages])


def _page(page: PageInfo) -> LancePageMetadata:
    return LancePageMetadata([_descriptor(one) for one in page.buffers], _text(page.encoding, 0))


def _text(node: EncodingNode, depth: int) -> str:
    """A tree of encodings, one line each."""
    indent = "    " * depth
    settings = ", ".join(f"{name}={value}" for name, value in node.settings.items())
    lines = [f"{node.name}({settings})" if settings else node.name]
    for role, child in node.children:
        lines.append(f"{indent}    {role}: {_text(child, depth + 1)}")
    return "\n".join(lines)
