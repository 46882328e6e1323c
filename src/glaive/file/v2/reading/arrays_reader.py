"""Read a 2.0 file: the container of all 2.x versions, pages of array encodings.

Specification: ``docs/format/arrays.md``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from weakref import WeakValueDictionary

import numpy as np
import pyarrow as pa

from glaive.arrow.build import offset_bits
from glaive.encodings.array_protocol import Source, wrong_type
from glaive.encodings.fetch import Fetch
from glaive.encodings.kept import Latest
from glaive.encodings.memory import PAGE_BYTES
from glaive.encodings.predicate import PagePredicate
from glaive.encodings.registry import read_array
from glaive.errors import CorruptFileError, RowIndexError, UnsupportedFeatureError
from glaive.file.bound import BoundField
from glaive.file.profile import FormatProfile
from glaive.file.v2.reading.array_blobs import BlobReader
from glaive.file.v2.reading.array_columns import array_tree, number_array_columns
from glaive.file.v2.reading.array_fields import (
    ArrayColumn,
    ArrayPage,
    LeafReader,
    ListReader,
    MissingReader,
    NodeReader,
    StructReader,
    TextReader,
)
from glaive.file.v2.reading.columns import Node
from glaive.file.v2.reading.container import Container
from glaive.file.v2.reading.reader import FileV2
from glaive.format.blobs import DESCRIPTION
from glaive.format.fields import Field
from glaive.format.pb import encodings20_pb2
from glaive.format.wire import DecodeError, parse, unseal
from glaive.io.store import RangeReader
from glaive.types import Int64s, Where

__all__ = ["ArrayField", "ArraysFile"]

_ARRAY_ENCODING = "lance.encodings.ArrayEncoding"


class ArrayField(BoundField):
    """A top-level field with all physical columns below it (a ``BoundColumn``)."""

    __slots__ = ("_node",)

    def __init__(self, field: pa.Field, node: NodeReader, rows: int, reader: RangeReader) -> None:
        super().__init__(field, rows, reader, Where(reader.path, None, field.name))
        self._node = node

    @property
    def nbytes(self) -> int:
        """Bytes of memory held; an estimate from the pages."""
        return PAGE_BYTES * len(self._node.cuts())

    def cuts(self) -> Int64s:
        """Row numbers at which pages begin, ascending, both ends included."""
        return np.array(sorted(self._node.cuts()), np.int64)

    def _search(self, predicate: PagePredicate, start: int, stop: int) -> Int64s | None:
        self._check_range(start, stop)
        node = self._node
        return node.find(predicate, start, stop) if isinstance(node, LeafReader) else None

    def plan_read(self, start: int, stop: int) -> Fetch[pa.Array] | pa.Array:
        """``read`` as a value."""
        self._check_range(start, stop)
        return self._node.read(start, stop)

    def plan_take(self, rows: Int64s) -> Fetch[pa.Array] | pa.Array:
        """``take`` as a value."""
        if len(rows) and not 0 <= int(rows.min()) <= int(rows.max()) < self.num_rows:
            raise RowIndexError(
                f"row {rows.min()} or {rows.max()} of a file with {self.num_rows} rows "
                f"(in {self._where})"
            )
        return self._node.take(rows)


class ArraysFile(FileV2):
    """An opened data file of version 2.0 (a ``FileReader``)."""

    def __init__(self, container: Container, profile: FormatProfile) -> None:
        super().__init__(container, profile)
        # Not by the text of a type: names of members may have in them what separates members.
        self._arrays: WeakValueDictionary[tuple[int, pa.DataType], ArrayColumn]
        self._arrays = WeakValueDictionary()

    def column_numbers(self) -> dict[int, int]:
        """Column index by field id, in the numbering of the file's own schema."""
        return number_array_columns(self.schema.fields, self._columns_of_leaf)

    def _bound(
        self, fields: Sequence[Field], column_of: Mapping[int, int], rows: int
    ) -> list[BoundField]:
        self._prepare(column for column in _columns_of(fields, column_of))
        return [
            ArrayField(
                field.to_arrow(), self._node(array_tree(field, column_of), rows), rows, self.reader
            )
            for field in fields
        ]

    def _columns_of_leaf(self, field: Field, column: int) -> int:
        """The number of columns of a field without children: strings as lists own two."""
        if field.children or field.logical_type == "struct":
            return 1
        if offset_bits(field.arrow_type) is None:
            return 1
        pages = self.container.column(column).pages
        if not pages:
            return 1
        where = Where(self.path, column, field.name, 0)
        message = self._encoding(pages[0], where)
        return 2 if message.WhichOneof("array_encoding") == "list" else 1

    # ------------------------------------------------------------------ nodes

    def _node(self, node: Node, rows: int | None) -> NodeReader:
        """The reader of a node; ``rows`` is None below lists, where columns determine it."""
        reader = self._any_node(node, rows)
        if rows is not None and reader.rows != rows:
            raise CorruptFileError(
                "page rows",
                expected=f"{rows} in all (the rows of the file)",
                found=f"{reader.rows}",
                where=Where(self.path, node.column, node.name),
            )
        return reader

    def _any_node(self, node: Node, rows: int | None) -> NodeReader:
        if node.kind == "struct":
            return self._struct(node, rows)
        if node.column is None:
            if rows is None:
                raise self._lacks_column(node)
            return MissingReader(node.type, rows)
        if node.kind == "leaf" and self._holds_blobs(node):
            descriptors = self._column(node.column, DESCRIPTION, node.name)
            if node.type != pa.large_binary():
                raise wrong_type(node.type, "blobs, which are large_binary", descriptors.where)
            end = self.container.footer.metadata_start
            inner = _leaf(descriptors, DESCRIPTION)
            return BlobReader(inner, end, descriptors.where)
        column = self._column(node.column, node.type, node.name)
        if node.kind == "list":
            return ListReader(column, self._node(node.children[0], None), node.type)
        if column.pages and column.pages[0].encoding.structural:
            if offset_bits(node.type) is None:
                raise wrong_type(node.type, column.pages[0].encoding.wire_name, column.where)
            items = self._column(node.column + 1, pa.uint8(), node.name)
            return TextReader(column, _leaf(items, pa.uint8()), node.type)
        return _leaf(column, node.type)

    def _lacks_column(self, node: Node) -> CorruptFileError:
        where, expected = Where(self.path, None, node.name), "one for every part of a list"
        return CorruptFileError("columns", expected=expected, found="none", where=where)

    def _holds_blobs(self, node: Node) -> bool:
        """Whether the values of a column are outside of its pages, by its metadata."""
        if node.column is None or offset_bits(node.type) is None:
            return False
        encoding = self.container.column(node.column).encoding
        where = Where(self.path, node.column, node.name)
        raw = self.container.page_encoding(encoding, where)
        message = parse(
            encodings20_pb2.ColumnEncoding(),
            pa.py_buffer(_message(raw, where)[1]),
            "column encoding",
            where,
        )
        return message.WhichOneof("column_encoding") == "blob"

    def _struct(self, node: Node, rows: int | None) -> NodeReader:
        if rows is None:
            # The header column of a struct within lists has the number of items.
            if node.column is None:
                raise self._lacks_column(node)
            rows = self._column(node.column, node.type, node.name).rows
        children = [self._node(child, rows) for child in node.children]
        return StructReader(children, node.type, rows)

    # ------------------------------------------------------------------ columns

    def _column(self, index: int, kind: pa.DataType, name: str) -> ArrayColumn:
        """A physical column with its pages, parsed on first use."""
        key = index, kind
        with self._lock:
            column = self._arrays.get(key)
            if column is None:
                column = self._arrays[key] = self._open_arrays(index, kind, name)
            return column

    def _open_arrays(self, index: int, kind: pa.DataType, name: str) -> ArrayColumn:
        pages, latest = [], Latest()
        for number, message in enumerate(self.container.column(index, name).pages):
            where = Where(self.path, index, name, number)
            page = self.page_bytes(message, where)
            encoding = read_array(self._encoding(message, where), kind, page.rows, page, top=True)
            pages.append(ArrayPage(encoding, Source(page, latest)))
        return ArrayColumn(pages, Where(self.path, index, name), self.reader.size)

    def _encoding(self, page: Any, where: Where) -> Any:
        """The array encoding message of a page."""
        name, raw = _message(self.container.page_encoding(page.encoding, where), where)
        if name == _ARRAY_ENCODING:
            message = encodings20_pb2.ArrayEncoding()
            return parse(message, pa.py_buffer(raw), "page encoding", where)
        raise UnsupportedFeatureError(
            f"unknown page encoding {name!r} (in {where}); in a file of format {self.version} "
            f"this reader knows {_ARRAY_ENCODING}"
        )


def _columns_of(fields: Sequence[Field], column_of: Mapping[int, int]) -> Iterator[int]:
    """Columns of the fields and all fields below."""
    for field in fields:
        for below in field.walk():
            if below.id in column_of:
                yield column_of[below.id]


def _message(raw: bytes, where: Where) -> tuple[str, bytes]:
    """Name and bytes of the message in an envelope."""
    try:
        return unseal(raw)
    except DecodeError as error:
        raise CorruptFileError(
            "encoding", expected="a protobuf message", found=str(error), where=where
        ) from None


def _leaf(column: ArrayColumn, kind: pa.DataType) -> LeafReader:
    """The reader of a column all of whose pages must have values, not ends of lists."""
    for page in column.pages:
        if page.encoding.structural:
            raise wrong_type(kind, page.encoding.wire_name, page.source.where)
    return LeafReader(column, kind)
