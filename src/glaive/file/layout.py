"""The layout of a data file as data: columns, pages, buffers, encodings, and what they take.

Nothing is decoded: all of it comes from the metadata at the end of the file.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from glaive.arrow.build import leaf_bits
from glaive.errors import UnsupportedFeatureError
from glaive.file.protocol import FileReader
from glaive.file.v2.reader import FileV2
from glaive.format.describe import EncodingNode, describe_encoding
from glaive.format.fields import Field, LanceSchema
from glaive.types import ByteRange, FormatVersion, Where

__all__ = ["BufferPlace", "ColumnLayout", "FileLayout", "PagePlace", "file_layout"]


@dataclass(frozen=True, slots=True)
class BufferPlace:
    """One buffer: what it holds and where it lies, in bytes."""

    kind: str
    position: int
    size: int


@dataclass(frozen=True, slots=True)
class PagePlace:
    """One page of a column.

    ``rows`` is what the page says of itself; ``raw_bytes`` the size of its values as Arrow
    keeps them, None where that takes decoding (strings, lists).
    """

    rows: int
    buffers: tuple[BufferPlace, ...]
    encoding: EncodingNode
    raw_bytes: int | None

    @property
    def size(self) -> int:
        """Bytes of all buffers."""
        return sum(buffer.size for buffer in self.buffers)

    @property
    def ratio(self) -> float | None:
        """Bytes in memory per byte in the file."""
        if self.raw_bytes is None or not self.size:
            return None
        return self.raw_bytes / self.size


@dataclass(frozen=True, slots=True)
class ColumnLayout:
    """One physical column: the path of its field, and its pages."""

    index: int
    path: str
    type: str
    pages: tuple[PagePlace, ...]
    buffers: tuple[BufferPlace, ...]

    @property
    def size(self) -> int:
        """Bytes of all pages and column buffers."""
        own = sum(buffer.size for buffer in self.buffers)
        return own + sum(page.size for page in self.pages)

    @property
    def num_pages(self) -> int:
        """Pages of the column."""
        return len(self.pages)

    @property
    def rows(self) -> int:
        """Rows of all pages."""
        return sum(page.rows for page in self.pages)

    @property
    def ratio(self) -> float | None:
        """Bytes in memory per byte in the file, None where some page does not tell."""
        raw = [page.raw_bytes for page in self.pages]
        if not self.size or any(one is None for one in raw):
            return None
        return sum(one or 0 for one in raw) / self.size


@dataclass(frozen=True, slots=True, kw_only=True)
class FileLayout:
    """A whole file. Sizes are in bytes; ``footer`` covers the offset tables too."""

    path: str
    size: int
    version: FormatVersion
    num_rows: int
    schema: LanceSchema
    columns: tuple[ColumnLayout, ...]
    global_buffers: tuple[BufferPlace, ...]
    column_metadata: BufferPlace
    footer: BufferPlace

    def to_dict(self) -> dict[str, Any]:
        """Nested plain values, ready for JSON."""
        return {
            "path": self.path,
            "size": self.size,
            "version": str(self.version),
            "rows": self.num_rows,
            "global_buffers": [_place(buffer) for buffer in self.global_buffers],
            "column_metadata": _place(self.column_metadata),
            "footer": _place(self.footer),
            "columns": [
                {
                    "index": column.index,
                    "path": column.path,
                    "type": column.type,
                    "size": column.size,
                    "ratio": column.ratio,
                    "buffers": [_place(buffer) for buffer in column.buffers],
                    "pages": [
                        {
                            "rows": page.rows,
                            "size": page.size,
                            "ratio": page.ratio,
                            "bytes_per_row": page.size / page.rows if page.rows else None,
                            "encoding": page.encoding.to_dict(),
                            "buffers": [_place(buffer) for buffer in page.buffers],
                        }
                        for page in column.pages
                    ],
                }
                for column in self.columns
            ],
        }


def _place(buffer: BufferPlace) -> dict[str, Any]:
    return {"kind": buffer.kind, "position": buffer.position, "size": buffer.size}


def file_layout(reader: FileReader) -> FileLayout:
    """Describe an opened file.

    Raises
    ------
    UnsupportedFeatureError
        The file is of format 0.1, whose pages have no encodings to describe.
    """
    if not isinstance(reader, FileV2):
        raise UnsupportedFeatureError(
            f"the layout of a file of format {reader.version} cannot be shown; "
            "files of format 2.0 and newer can"
        )
    container, footer = reader.container, reader.container.footer
    size = container.reader.size
    owners = list(_owners(reader))
    columns = []
    for index in range(footer.columns):
        path, field = owners[index] if index < len(owners) else (f"column {index}", None)
        columns.append(_column(reader, index, path, field))
    return FileLayout(
        path=reader.path,
        size=size,
        version=reader.version,
        num_rows=reader.num_rows,
        schema=reader.schema,
        columns=tuple(columns),
        global_buffers=tuple(
            BufferPlace("schema" if number == 0 else "global buffer", *place)
            for number, place in enumerate(container.global_places())
        ),
        column_metadata=BufferPlace(
            "column metadata", footer.metadata_start, footer.column_table - footer.metadata_start
        ),
        footer=BufferPlace("tables and footer", footer.column_table, size - footer.column_table),
    )


def _owners(reader: FileV2) -> Iterator[tuple[str, Field]]:
    """Path and field of every physical column, in order."""
    by_column = {column: field_id for field_id, column in reader.column_numbers().items()}
    paths: dict[int, tuple[str, Field]] = {}

    def visit(field: Field, prefix: str) -> None:
        path = f"{prefix}{field.name}"
        paths[field.id] = (path, field)
        for child in field.children:
            visit(child, f"{path}.")

    for field in reader.schema.fields:
        visit(field, "")
    for column in range(len(by_column)):
        yield paths[by_column[column]]


def _column(reader: FileV2, index: int, path: str, field: Field | None) -> ColumnLayout:
    where = Where(reader.path, index, path)
    message = reader.container.column(index)
    kind = None if field is None or field.children else field.arrow_type
    pages = []
    for page in message.pages:
        raw = reader.container.page_encoding(page.encoding, where)
        node = describe_encoding(raw, where)
        sizes = list(map(ByteRange, page.buffer_offsets, page.buffer_sizes))
        kinds = _kinds(node, len(sizes))
        buffers = tuple(BufferPlace(name, *place) for name, place in zip(kinds, sizes, strict=True))
        pages.append(PagePlace(page.length, buffers, node, _raw_bytes(kind, page.length)))
    own = map(ByteRange, message.buffer_offsets, message.buffer_sizes)
    return ColumnLayout(
        index,
        path,
        "" if field is None else field.logical_type,
        tuple(pages),
        tuple(BufferPlace("column buffer", *place) for place in own),
    )


def _raw_bytes(kind: pa.DataType | None, rows: int) -> int | None:
    bits = None if kind is None else leaf_bits(kind)
    return None if bits is None else (rows * bits + 7) // 8


def _kinds(node: EncodingNode, count: int) -> list[str]:
    """What the buffers of a page hold, as far as its layout tells."""
    roles = [role for role, _ in node.children]
    names: list[str] = []
    if node.name == "mini_block_layout":
        names = ["chunk table", "chunks"]
        names += ["dictionary"] if "dictionary" in roles else []
        names += ["repetition index"] if node.settings.get("repetition_index_depth") else []
    elif node.name == "full_zip_layout":
        names = ["values", "row index"]
    elif node.name == "constant_layout":
        levels = ["repetition levels", "definition levels"]
        names = levels if count in (0, len(levels)) else ["value", *levels]
    names = names[:count]
    return names + [f"buffer {at}" for at in range(len(names), count)]
