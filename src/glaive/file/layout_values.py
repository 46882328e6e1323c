"""The layout of a data file as plain values: columns, pages, buffers and gaps.

Positions and sizes are in bytes. :func:`glaive.file.layout.file_layout` returns these values.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from glaive.dataclass import dataclass
from glaive.format.describe import EncodingNode
from glaive.format.fields import LanceSchema
from glaive.types import FormatVersion

__all__ = ["MAX_PADDING", "BufferLocation", "ColumnLayout", "FileLayout", "PageInfo"]

MAX_PADDING = 4096
"""Fewer bytes between two buffers count as padding; no writer aligns to more."""


@dataclass(frozen=True, slots=True)
class BufferLocation:
    """One buffer: its content and its position."""

    kind: str
    position: int
    size: int

    @property
    def end(self) -> int:
        """Position of the first byte after it."""
        return self.position + self.size

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return {"kind": self.kind, "position": self.position, "size": self.size}


@dataclass(frozen=True, slots=True, kw_only=True)
class PageInfo:
    """One page of a column.

    ``rows`` is the number in the metadata; ``values`` is the number of items where it is stored,
    else that of rows. ``raw_bytes`` is the size of the values in Arrow, None where that takes
    decoding (strings) or the column has no values of its own.
    """

    rows: int
    values: int
    buffers: tuple[BufferLocation, ...]
    encoding: EncodingNode
    raw_bytes: int | None

    @property
    def size(self) -> int:
        """Bytes of all buffers."""
        return sum(buffer.size for buffer in self.buffers)

    @property
    def ratio(self) -> float | None:
        """Bytes in memory per byte in the file."""
        return _ratio(self.raw_bytes, self.size)

    @property
    def bytes_per_value(self) -> float | None:
        """Bytes of the file per value."""
        return _ratio(self.size, self.values)

    def to_dict(self) -> dict[str, Any]:
        """Nested plain values, ready for JSON."""
        return {
            "rows": self.rows,
            "values": self.values,
            "size": self.size,
            "ratio": self.ratio,
            "bytes_per_row": _ratio(self.size, self.rows),
            "bytes_per_value": self.bytes_per_value,
            "encoding": self.encoding.to_dict(),
            "buffers": [buffer.to_dict() for buffer in self.buffers],
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnLayout:
    """One physical column: the path of its field, its pages, and buffers outside of pages.

    ``blobs``: its values are outside of all buffers, where the pages point to.
    """

    index: int
    path: str
    type: str
    pages: tuple[PageInfo, ...]
    buffers: tuple[BufferLocation, ...] = ()
    blobs: bool = False

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
    def values(self) -> int:
        """Values of all pages."""
        return sum(page.values for page in self.pages)

    @property
    def ratio(self) -> float | None:
        """Bytes in memory per byte in the file, None where it is unknown for some page."""
        raw = [page.raw_bytes for page in self.pages]
        if any(size is None for size in raw):
            return None
        return _ratio(sum(size or 0 for size in raw), self.size)

    @property
    def bytes_per_value(self) -> float | None:
        """Bytes of the file per value."""
        return _ratio(self.size, self.values)

    @property
    def encodings(self) -> tuple[str, ...]:
        """Short names of the distinct encodings of the pages, in order of appearance."""
        return tuple(dict.fromkeys(page.encoding.brief for page in self.pages))

    def all_buffers(self) -> Iterator[BufferLocation]:
        """All buffers."""
        for page in self.pages:
            yield from page.buffers
        yield from self.buffers

    def to_dict(self) -> dict[str, Any]:
        """Nested plain values, ready for JSON."""
        return {
            "index": self.index,
            "path": self.path,
            "type": self.type,
            "size": self.size,
            "ratio": self.ratio,
            "bytes_per_value": self.bytes_per_value,
            "buffers": [buffer.to_dict() for buffer in self.buffers],
            "pages": [page.to_dict() for page in self.pages],
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class FileLayout:
    """A whole file.

    ``column_metadata`` is the section with the positions of pages (in 0.1 the page table);
    ``footer`` is the rest of the file after it, except for ``others``.
    """

    path: str
    size: int
    version: FormatVersion
    num_rows: int
    schema: LanceSchema
    columns: tuple[ColumnLayout, ...]
    global_buffers: tuple[BufferLocation, ...]
    column_metadata: BufferLocation
    footer: BufferLocation
    others: tuple[BufferLocation, ...] = ()

    @property
    def num_pages(self) -> int:
        """Pages of all columns."""
        return sum(column.num_pages for column in self.columns)

    @property
    def sections(self) -> tuple[BufferLocation, ...]:
        """All sections that belong to no column, in order of position."""
        parts = [*self.global_buffers, *self.others, self.column_metadata, self.footer]
        return tuple(sorted(parts, key=lambda buffer: buffer.position))

    def gaps(self) -> tuple[BufferLocation, ...]:
        """Ranges that no metadata refers to, in order of position.

        Most are ``padding``. Longer ones are ``blobs`` in a file with blob columns, else
        ``unlisted``.
        """
        every = [buffer for column in self.columns for buffer in column.all_buffers()]
        every += self.sections
        longer = "blobs" if any(column.blobs for column in self.columns) else "unlisted"
        gaps = []
        for start, size in _between(every, self.size):
            gaps.append(BufferLocation("padding" if size < MAX_PADDING else longer, start, size))
        return tuple(gaps)

    def to_dict(self) -> dict[str, Any]:
        """Nested plain values, ready for JSON."""
        return {
            "path": self.path,
            "size": self.size,
            "version": str(self.version),
            "rows": self.num_rows,
            "global_buffers": [buffer.to_dict() for buffer in self.global_buffers],
            "column_metadata": self.column_metadata.to_dict(),
            "footer": self.footer.to_dict(),
            "others": [buffer.to_dict() for buffer in self.others],
            "gaps": [gap.to_dict() for gap in self.gaps()],
            "columns": [column.to_dict() for column in self.columns],
        }


def _ratio(part: float | None, whole: float) -> float | None:
    return None if part is None or not whole else part / whole


def _between(buffers: Iterable[BufferLocation], size: int) -> Iterator[tuple[int, int]]:
    """Start and size of the gaps between buffers, which may overlap."""
    end = 0
    for buffer in sorted(buffers, key=lambda buffer: buffer.position):
        if buffer.size and buffer.position > end:
            yield end, buffer.position - end
        end = max(end, buffer.end) if buffer.size else end
    if size > end:
        yield end, size - end
