"""Write a 2.0 file: structs and lists are columns of their own, pages are array encodings.

Specification: ``docs/format/arrays.md``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, cast

import numpy as np
import pyarrow as pa

from glaive.arrow.buffers import pack_flags
from glaive.arrow.build import validity_flags
from glaive.encodings.array_protocol import ArrayEncoding, Outlet
from glaive.encodings.arrays.list import List, write_ends
from glaive.encodings.arrays.struct import SimpleStruct
from glaive.encodings.protocol import EncodedPage
from glaive.encodings.writing.array20 import encode_values
from glaive.errors import GlaiveError, SchemaError
from glaive.file.v2.reading.array_blobs import BLOB_COLUMN, pending_array_page
from glaive.file.v2.reading.array_columns import array_tree, number_array_columns
from glaive.file.v2.reading.columns import Node
from glaive.file.v2.writing.page_queue import Symbols
from glaive.file.v2.writing.writer import COLUMN_URL, FileV2Writer
from glaive.format.blobs import is_blob
from glaive.format.fields import LanceSchema
from glaive.format.wire import seal
from glaive.kernels.end_offsets import NullableOffsets
from glaive.memory import as_buffer

__all__ = ["ArraysWriter"]

Pages = list[tuple[int, EncodedPage]]


class ArraysWriter(FileV2Writer):
    """A 2.0 file being written (a ``FileWriter``)."""

    page_url: ClassVar[str] = "/lance.encodings.ArrayEncoding"
    keeps_dictionaries: ClassVar[bool] = False
    writes_small_pages: ClassVar[bool] = False
    packs_windows: ClassVar[bool] = False

    _structs: dict[int, int]
    """Rows of each struct column."""

    _blob_columns: list[int]

    def _trees(self, schema: LanceSchema) -> tuple[Mapping[int, int], Sequence[Node]]:
        column_of = number_array_columns(schema.fields)
        nodes = [array_tree(field, column_of) for field in schema.fields]
        self._structs, self._blob_columns = {}, []
        for node in nodes:
            self._blob_columns.extend(_blob_columns(node))
            self._structs.update(dict.fromkeys(_struct_columns(node), 0))
        return column_of, nodes

    def _encode_rows(self, node: Node, array: pa.Array, symbols: Symbols) -> Iterator[Pages]:
        """One page per column; a page of items belongs to the page of their lists.

        2.0 files have no FSST symbols.
        """
        pages: Pages = []
        self._encode_node(node, array, pages, node.name)
        yield pages

    def _encode_node(self, node: Node, array: Any, pages: Pages, path: str) -> None:
        out = Outlet()
        if node.kind == "struct":
            if array.null_count:
                newer = any(leaf.kind != "struct" for leaf in node.leaves())
                remedy = "use data_storage_version 2.1 or newer, or " if newer else ""
                raise SchemaError(
                    f"column {path!r} of type {array.type} has {array.null_count} null structs (in "
                    f"{self._where}), which format {self._profile.version} cannot hold; "
                    f"{remedy}make the members null instead"
                )
            self._put(node, SimpleStruct(), out, len(array), pages)
            for number, child in enumerate(node.children):
                self._encode_node(child, array.field(number), pages, f"{path}.{child.name}")
        elif node.kind == "list":
            ends, items = _ends(array)
            encoding, adjustment = write_ends(ends, out)
            shape = List(encoding, adjustment, len(items), ends.bits)
            self._put(node, shape, out, len(array), pages)
            child = node.children[0]
            self._encode_node(child, items, pages, f"{path}.{child.name}")
        elif is_blob(node.field) and node.column is not None:
            pages.append((node.column, pending_array_page(array)))
        else:
            if node.field.is_packed and array.null_count:
                raise SchemaError(
                    f"column {path!r} (in {self._where}) has {array.null_count} null structs; "
                    "packed structs cannot be null. Fill them, or remove 'packed' from its metadata"
                )
            wanted = self._wanted[node.field.id]
            values = encode_values(array, out, wanted.scheme, wanted.compression_level)
            self._put(node, values, out, len(array), pages)

    def _append(self, column: int, page: EncodedPage, first_row: int) -> None:
        if column in self._structs:
            # Readers expect a single page per struct column: it is written last, with all rows.
            self._structs[column] += page.rows
        else:
            super()._append(column, page, first_row)

    def _write_footer(self) -> int:
        for column, rows in self._structs.items():
            if self._rows:
                layout: Any = SimpleStruct().to_wire()
                super()._append(column, EncodedPage(layout, [], rows), 0)
        for column in self._blob_columns:
            self._columns[column].encoding.direct.encoding = seal(COLUMN_URL, BLOB_COLUMN)
        return super()._write_footer()

    def _put(
        self, node: Node, encoding: ArrayEncoding, out: Outlet, rows: int, pages: Pages
    ) -> None:
        if node.column is None:
            raise GlaiveError(f"field {node.name!r} of {self._where} has no column")
        layout: Any = encoding.to_wire()
        pages.append((node.column, EncodedPage(cast("Any", layout), out.buffers, rows)))


def _struct_columns(node: Node) -> Iterator[int]:
    """Columns of all structs at or below a node."""
    if node.kind == "struct" and node.column is not None:
        yield node.column
    for child in node.children:
        yield from _struct_columns(child)


def _blob_columns(node: Node) -> Iterator[int]:
    """Columns of all blobs at or below a node."""
    if node.kind == "leaf" and node.column is not None and is_blob(node.field):
        yield node.column
    for child in node.children:
        yield from _blob_columns(child)


def _ends(array: Any) -> tuple[NullableOffsets, Any]:
    """Offsets of the valid lists with validity, and their items; null lists become empty."""
    offsets = np.asarray(array.offsets).astype(np.int64)
    first, last = int(offsets[0]), int(offsets[-1])
    items = array.values.slice(first, last - first)
    valid = validity_flags(array)
    if valid is None:
        return NullableOffsets(as_buffer(offsets), 64, None, 0, first, last), items
    lengths = np.diff(offsets)
    if lengths[~valid].any():
        items = items.filter(pa.array(np.repeat(valid, lengths)))
        lengths[~valid] = 0
    ends = np.concatenate((np.zeros(1, np.int64), np.cumsum(lengths)))
    nulls = len(valid) - int(np.count_nonzero(valid))
    return NullableOffsets(as_buffer(ends), 64, pack_flags(valid), nulls, 0, len(items)), items
