"""Read a 2.x file: schema and columns, each on first use.

Opening parses the footer. The schema, each column's metadata and each page's layout are
parsed on first use, so reading two of 10,000 columns parses the metadata of two.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from threading import RLock
from typing import Any
from weakref import WeakValueDictionary

import pyarrow as pa

from glaive.encodings.protocol import PageBytes, PageReader
from glaive.encodings.registry import open_page
from glaive.errors import CorruptFileError
from glaive.file.protocol import BoundField, FormatProfile
from glaive.file.v2.bound import FieldColumns, PagedColumns
from glaive.file.v2.columns import Column, Node, column_tree, number_columns
from glaive.file.v2.container import MAX_ROWS, Container
from glaive.format.blobs import DESCRIPTOR, stored
from glaive.format.field import Field
from glaive.format.fields import LanceSchema
from glaive.io.store import RangeReader
from glaive.process import patiently, renewed
from glaive.types import ByteRange, FormatVersion, Where

FILE_BYTES = 4 * 1024
"""Bytes of memory of an opened file besides its metadata."""

SCHEMA_FACTOR = 16
"""Approximate bytes of memory of a parsed schema per byte on disk."""


class FileV2:
    """An opened data file of version 2.1 or newer (a ``FileReader``)."""

    def __init__(self, container: Container, profile: FormatProfile) -> None:
        self.reader: RangeReader = container.reader
        self.path = container.path
        self.container = container
        self.profile = profile
        self.version: FormatVersion = profile.version
        self.num_columns = container.footer.columns
        # Weak: columns are kept only while they are in use.
        self._columns: WeakValueDictionary[int, Column] = WeakValueDictionary()
        self._counted: dict[int, object] = {}
        self._page_bytes = 0
        self._descriptor: Any = None
        self._schema: LanceSchema | None = None
        self._lock = renewed(RLock())

    @property
    def nbytes(self) -> int:
        """Bytes of memory held, without bound columns; an estimate."""
        schema = 0 if self._descriptor is None else self._descriptor.ByteSize()
        return FILE_BYTES + self.container.nbytes + SCHEMA_FACTOR * schema

    @property
    def _description(self) -> Any:
        if self._descriptor is None:
            self._descriptor = self.container.descriptor()
        return self._descriptor

    @property
    def num_rows(self) -> int:
        """Rows in the file."""
        return int(self._description.length)

    @property
    def schema(self) -> LanceSchema:
        """The schema stored in the file."""
        if self._schema is None:
            wire = self._description.schema
            self._schema = LanceSchema.from_wire(wire.fields, dict(wire.metadata), where=self.path)
        return self._schema

    def column_numbers(self) -> dict[int, int]:
        """Column index by field id, in the numbering of the file's own schema."""
        return number_columns(self.schema.fields)

    def bind(
        self,
        fields: Sequence[Field],
        column_of: Mapping[int, int] | None = None,
        rows: int | None = None,
    ) -> PagedColumns:
        """Bind columns to fields; see :class:`glaive.file.protocol.FileReader`.

        With ``rows``, the number of rows, the schema is not read.
        """
        if column_of is None:
            column_of = self.column_numbers()
        count = self.num_rows if rows is None else rows
        return PagedColumns(self._bound(fields, column_of, count), count, self.reader)

    def _bound(
        self, fields: Sequence[Field], column_of: Mapping[int, int], rows: int
    ) -> Sequence[BoundField]:
        nodes = [column_tree(stored(field), column_of, self._stored) for field in fields]
        self._prepare(leaf.column for node in nodes for leaf in node.leaves())
        return [self._bind(node, rows) for node in nodes]

    def _stored(self, field_id: int) -> Field:
        return self.schema.field_by_id(field_id)

    def _prepare(self, columns: Iterable[int | None]) -> None:
        """Fetch the metadata of unknown columns in one batch."""
        known = self._columns
        self.container.prepare(
            [column for column in columns if column is not None and column not in known]
        )

    def _bind(self, node: Node, rows: int) -> FieldColumns:
        columns: list[Column | None] = []
        for leaf in node.leaves():
            if leaf.column is None:
                columns.append(None)
                continue
            column = self.column(leaf.column, leaf.name)
            if pa.types.is_large_binary(leaf.type):
                column = column.with_values(self.container.footer.metadata_start)
            elif leaf.type == DESCRIPTOR:
                column = column.with_inline_descriptors()
            column = column.grouped(leaf.entries_per_row)
            if column.rows != rows:
                raise CorruptFileError(
                    "page rows",
                    expected=f"{rows} in all (the rows of the file)",
                    found=f"{column.rows}",
                    where=column.where,
                )
            columns.append(column)
        return FieldColumns(node, columns, rows, self.reader)

    def column(self, index: int, name: str | None = None) -> Column:
        """A physical column with its pages, parsed on first use."""
        column = self._columns.get(index)
        if column is None:
            with patiently(self._lock):
                column = self._columns.get(index)
                if column is None:
                    column = self._columns[index] = self._open_column(index, name)
        return column

    def _open_column(self, index: int, name: str | None) -> Column:
        message = self.container.column(index, name)
        pages = [
            self._open_page(page, Where(self.path, index, name, number))
            for number, page in enumerate(message.pages)
        ]
        column = Column(pages, Where(self.path, index, name))
        self._count_bytes(index, message, column.where)
        return column

    def _count_bytes(self, index: int, message: Any, where: Where) -> None:
        """Refuse bytes that several pages share: what all keep is in proportion to their bytes.

        Each column counts once, also where two calls open it at a time.
        """
        size, mine = sum(sum(page.buffer_sizes) for page in message.pages), object()
        if self._counted.setdefault(index, mine) is not mine:
            return
        end = self.container.footer.metadata_start
        total = self._page_bytes = self._page_bytes + size
        if total > end:
            self._page_bytes -= size
            del self._counted[index]
            raise CorruptFileError(
                "page buffers",
                expected=f"at most {end} bytes in all columns, those of the file",
                found=f"{total} up to this column",
                where=where,
            )

    def _open_page(self, page: Any, where: Where) -> PageReader:
        layout = self.container.page_layout(page.encoding, where)
        return open_page(layout, self.page_bytes(page, where))

    def page_bytes(self, page: Any, where: Where) -> PageBytes:
        """The buffers of a page, checked to be within the file."""
        end = self.container.footer.metadata_start
        if page.length > MAX_ROWS:
            raise CorruptFileError(
                "page rows", expected=f"at most {MAX_ROWS}", found=str(page.length), where=where
            )
        offsets, sizes = list(page.buffer_offsets), list(page.buffer_sizes)
        if len(offsets) != len(sizes):
            raise CorruptFileError(
                "page buffers",
                expected=f"as many sizes as offsets ({len(offsets)})",
                found=f"{len(sizes)}",
                where=where,
            )
        ranges = tuple(map(ByteRange, offsets, sizes))
        for at, (offset, size) in enumerate(ranges):
            if offset + size > end:
                raise CorruptFileError(
                    f"page buffer {at}",
                    expected=f"bytes within 0..{end}",
                    found=f"{size} bytes at {offset}",
                    where=where,
                )
        read = self.reader.read if self.reader.mapped else None
        return PageBytes(ranges, None, int(page.length), where, read)

    def close(self) -> None:
        """Close the file; arrays read from it stay valid."""
        self.reader.close()
