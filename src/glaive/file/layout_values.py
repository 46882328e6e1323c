"""The layout of a data file as plain values: columns, pages, buffers and what lies between.

Positions and sizes are in bytes. :func:`glaive.file.layout.file_layout` makes these values.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from glaive.format.describe import EncodingNode
from glaive.format.fields import LanceSchema
from glaive.types import FormatVersion

__all__ = ["MOST_PADDING", "BufferPlace", "ColumnLayout", "FileLayout", "PagePlace"]

MOST_PADDING = 4096
"""Bytes between two buffers that are taken for padding; no writer aligns to more."""


@dataclass(frozen=True, slots=True)
class BufferPlace:
    """One buffer: what it holds and where it lies."""

    kind: str
    position: int
    size: int

    @property
    def end(self) -> int:
        """Position of the first byte behind it."""
        return self.position + self.size

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return {"kind": self.kind, "position": self.position, "size": self.size}


@dataclass(frozen=True, slots=True, kw_only=True)
class PagePlace:
    """One page of a column.

    ``rows`` is what the page says of itself; ``values`` are its items where it tells them
    apart from rows, else as many. ``raw_bytes`` is the size of the values as Arrow keeps
    them, None where that takes decoding (strings) or the column holds no values of its own.
    """

    rows: int
    values: int
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

    ``blobs`` says that its values lie outside of all buffers, wherever pages point.
    """

    index: int
    path: str
    type: str
    pages: tuple[PagePlace, ...]
    buffers: tuple[BufferPlace, ...] = ()
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
        """Bytes in memory per byte in the file, None where some page does not tell."""
        raw = [page.raw_bytes for page in self.pages]
        if any(one is None for one in raw):
            return None
        return _ratio(sum(one or 0 for one in raw), self.size)

    @property
    def bytes_per_value(self) -> float | None:
        """Bytes of the file per value."""
        return _ratio(self.size, self.values)

    @property
    def encodings(self) -> tuple[str, ...]:
        """Different encodings of the pages in a few words, in order of appearance."""
        return tuple(dict.fromkeys(page.encoding.brief for page in self.pages))

    def places(self) -> Iterator[BufferPlace]:
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

    ``column_metadata`` is the section that says where pages are (in 0.1 the page table);
    ``footer`` covers what stands behind it to the end of the file, but for ``others``.
    """

    path: str
    size: int
    version: FormatVersion
    num_rows: int
    schema: LanceSchema
    columns: tuple[ColumnLayout, ...]
    global_buffers: tuple[BufferPlace, ...]
    column_metadata: BufferPlace
    footer: BufferPlace
    others: tuple[BufferPlace, ...] = ()

    @property
    def num_pages(self) -> int:
        """Pages of all columns."""
        return sum(column.num_pages for column in self.columns)

    @property
    def sections(self) -> tuple[BufferPlace, ...]:
        """All that belongs to no column, in order of position."""
        parts = [*self.global_buffers, *self.others, self.column_metadata, self.footer]
        return tuple(sorted(parts, key=lambda place: place.position))

    def gaps(self) -> tuple[BufferPlace, ...]:
        """Bytes that nothing in the metadata covers, in order of position.

        Most are ``padding``. Longer ones hold ``blobs`` in a file that has such columns, and
        are ``unlisted`` else.
        """
        every = [place for column in self.columns for place in column.places()]
        every += self.sections
        longer = "blobs" if any(column.blobs for column in self.columns) else "unlisted"
        found = []
        for start, size in _between(every, self.size):
            found.append(BufferPlace("padding" if size < MOST_PADDING else longer, start, size))
        return tuple(found)

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
            "others": [place.to_dict() for place in self.others],
            "gaps": [place.to_dict() for place in self.gaps()],
            "columns": [column.to_dict() for column in self.columns],
        }


def _ratio(part: float | None, whole: float) -> float | None:
    return None if part is None or not whole else part / whole


def _between(places: Iterable[BufferPlace], size: int) -> Iterator[tuple[int, int]]:
    """Start and size of what lies between places, which may overlap."""
    end = 0
    for place in sorted(places, key=lambda one: one.position):
        if place.size and place.position > end:
            yield end, place.position - end
        end = max(end, place.end) if place.size else end
    if size > end:
        yield end, size - end
