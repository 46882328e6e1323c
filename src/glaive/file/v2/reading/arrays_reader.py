"""Read a 2.0 file: the container of all 2.x versions, pages of array encodings.

Specification: ``docs/format/arrays.md``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast
from weakref import WeakValueDictionary

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from glaive.arrow.conditions import Condition
from glaive.encodings.array_protocol import Source
from glaive.encodings.arrays.binary import offset_bits
from glaive.encodings.memory import PAGE_BYTES
from glaive.encodings.predicate import Probe, probe_entries, probe_for
from glaive.encodings.protocol import Fetch
from glaive.encodings.registry import read_array
from glaive.errors import CorruptFileError, RowIndexError, UnsupportedFeatureError
from glaive.file.drive import drive
from glaive.file.profile import FormatProfile
from glaive.file.protocol import Entries, Searchable
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
from glaive.file.v2.reading.bound import FileColumns
from glaive.file.v2.reading.columns import Node
from glaive.file.v2.reading.container import Container
from glaive.file.v2.reading.reader import FileV2
from glaive.format.blobs import DESCRIPTION
from glaive.format.fields import Field
from glaive.format.pb import encodings20_pb2
from glaive.format.wire import DecodeError, parse, unseal
from glaive.io.store import RangeReader
from glaive.types import Where

__all__ = ["ArrayField", "ArraysFile"]

_ARRAY_ENCODING = "lance.encodings.ArrayEncoding"


class ArrayField(Searchable):
    """A top-level field with all physical columns below it (a ``BoundColumn``)."""

    __slots__ = ("_node", "_reader", "_where", "field", "num_rows")

    def __init__(self, field: pa.Field, node: NodeReader, rows: int, reader: RangeReader) -> None:
        self.field = field
        self.num_rows = rows
        self._node = node
        self._reader = reader
        self._where = Where(reader.path, None, field.name)

    @property
    def nbytes(self) -> int:
        """Bytes of memory held; an estimate from the pages."""
        return PAGE_BYTES * len(self._node.cuts())

    def cuts(self) -> NDArray[np.int64]:
        """Row numbers at which pages begin, ascending, both ends included."""
        return np.array(sorted(self._node.cuts()), np.int64)

    def read(self, start: int, stop: int) -> pa.Array:
        """Rows ``start`` to ``stop`` as one array."""
        return drive(self._reader, self.plan_read(start, stop))

    def take(self, rows: NDArray[np.int64]) -> pa.Array:
        """The rows at these positions, in this order."""
        return drive(self._reader, self.plan_take(rows))

    def find(self, condition: Condition, start: int, stop: int) -> NDArray[np.int64] | None:
        """The rows among ``start`` to ``stop`` that pass; see ``Searchable``."""
        return self._search(probe_for(condition, self.field.type), start, stop)

    def find_entries(self, passing: Entries, start: int, stop: int) -> NDArray[np.int64] | None:
        """``find`` by a test that is to be made once per distinct value."""
        return self._search(probe_entries(passing, self.field.type), start, stop)

    def _search(self, probe: Probe, start: int, stop: int) -> NDArray[np.int64] | None:
        self._check_range(start, stop)
        node = self._node
        return node.find(probe, start, stop) if isinstance(node, LeafReader) else None

    def _check_range(self, start: int, stop: int) -> None:
        if not 0 <= start <= stop <= self.num_rows:
            raise RowIndexError(
                f"rows {start}..{stop} of a file with {self.num_rows} rows (in {self._where})"
            )

    def plan_read(self, start: int, stop: int) -> Fetch[pa.Array] | pa.Array:
        """``read`` as a value."""
        self._check_range(start, stop)
        return self._node.read(start, stop)

    def plan_take(self, rows: NDArray[np.int64]) -> Fetch[pa.Array] | pa.Array:
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
        self._arrays: WeakValueDictionary[tuple[int, str], ArrayColumn] = WeakValueDictionary()

    def column_numbers(self) -> dict[int, int]:
        """Column index by field id, as the file numbers the fields of its own schema."""
        return number_array_columns(self.schema.fields, self._columns_of_leaf)

    def bind(
        self,
        fields: Sequence[Field],
        column_of: Mapping[int, int] | None = None,
        rows: int | None = None,
    ) -> FileColumns:
        """Tie columns to fields; see :class:`glaive.file.protocol.FileReader`."""
        if column_of is None:
            column_of = self.column_numbers()
        count = self.num_rows if rows is None else rows
        self._prepare(column for column in _columns_of(fields, column_of))
        bound = []
        for field in fields:
            node = self._node(array_tree(field, column_of), count)
            bound.append(ArrayField(field.to_arrow(), node, count, self.reader))
        schema = pa.schema([one.field for one in bound])
        return FileColumns(cast("Sequence[Any]", bound), count, schema, self.reader)

    def _columns_of_leaf(self, field: Field, column: int) -> int:
        """How many columns a field without children owns: strings as lists own two."""
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
        """The reader of a node; ``rows`` is None below lists, where columns tell."""
        made = self._any_node(node, rows)
        if rows is not None and made.rows != rows:
            raise CorruptFileError(
                "page rows",
                expected=f"{rows} in all (the rows of the file)",
                found=f"{made.rows}",
                where=Where(self.path, node.column, node.name),
            )
        return made

    def _any_node(self, node: Node, rows: int | None) -> NodeReader:
        if node.kind == "struct":
            return self._struct(node, rows)
        if node.column is None:
            if rows is None:
                raise CorruptFileError(
                    "columns", expected="one for every part of a list", found="none",
                    where=Where(self.path, None, node.name),
                )  # fmt: skip
            return MissingReader(node.type, rows)
        if node.kind == "leaf" and self._holds_blobs(node):
            descriptions = self._column(node.column, DESCRIPTION, node.name)
            end = self.container.footer.metadata_start
            inner = LeafReader(descriptions, DESCRIPTION)
            return BlobReader(inner, node.type, end, descriptions.where)
        column = self._column(node.column, node.type, node.name)
        if node.kind == "list":
            return ListReader(column, self._node(node.children[0], None), node.type)
        if column.pages and column.pages[0].encoding.structural:
            if offset_bits(node.type) is None:
                raise CorruptFileError(
                    "array encoding",
                    expected=f"values of type {node.type}",
                    found=column.pages[0].encoding.wire_name,
                    where=column.where,
                )
            items = self._column(node.column + 1, pa.uint8(), node.name)
            return TextReader(column, LeafReader(items, pa.uint8()), node.type)
        for page in column.pages:
            if page.encoding.structural:
                raise CorruptFileError(
                    "array encoding",
                    expected=f"values of type {node.type}",
                    found=page.encoding.wire_name,
                    where=page.source.where,
                )
        return LeafReader(column, node.type)

    def _holds_blobs(self, node: Node) -> bool:
        """Whether a column says that its values lie outside of its pages."""
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
            # The header column of a struct within lists says how many items there are.
            if node.column is None:
                raise CorruptFileError(
                    "columns", expected="one for every part of a list", found="none",
                    where=Where(self.path, None, node.name),
                )  # fmt: skip
            rows = self._column(node.column, node.type, node.name).rows
        children = [self._node(child, rows) for child in node.children]
        return StructReader(children, node.type, rows)

    # ------------------------------------------------------------------ columns

    def _column(self, index: int, kind: pa.DataType, name: str) -> ArrayColumn:
        """A physical column with its pages, parsed on first use."""
        key = index, str(kind)
        with self._lock:
            found = self._arrays.get(key)
            if found is None:
                found = self._arrays[key] = self._open_arrays(index, kind, name)
            return found

    def _open_arrays(self, index: int, kind: pa.DataType, name: str) -> ArrayColumn:
        pages = []
        for number, message in enumerate(self.container.column(index).pages):
            where = Where(self.path, index, name, number)
            page = self.page_bytes(message, where)
            encoding = read_array(self._encoding(message, where), kind, page.rows, page, top=True)
            pages.append(ArrayPage(encoding, Source(page)))
        return ArrayColumn(pages, Where(self.path, index, name))

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
    """Columns of these fields and those below."""
    for field in fields:
        for one in field.walk():
            if one.id in column_of:
                yield column_of[one.id]


def _message(raw: bytes, where: Where) -> tuple[str, bytes]:
    """Name and bytes of the message in an envelope."""
    try:
        return unseal(raw)
    except DecodeError as error:
        raise CorruptFileError(
            "encoding", expected="a protobuf message", found=str(error), where=where
        ) from None
