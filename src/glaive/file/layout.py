"""Describe an opened file: the positions and encodings of its columns, pages and buffers.

All of it comes from the metadata at the end of the file. In format 0.1 the metadata lacks sizes of
strings; their first and last offsets are read instead.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from glaive.arrow.build import leaf_bits, offset_bits
from glaive.dataclass import dataclass
from glaive.encodings.legacy import plain_bits
from glaive.errors import CorruptFileError, UnsupportedFeatureError
from glaive.file.legacy import LegacyFile, number_ids
from glaive.file.protocol import FileReader
from glaive.file.v2.reader import FileV2
from glaive.format.field import Field
from glaive.format.fields import LanceSchema
from glaive.format.pb import encodings20_pb2, encodings21_pb2, encodings23_pb2
from glaive.format.wire import DecodeError, FieldDescriptor, unseal
from glaive.types import ByteRange, FormatVersion, Int64s, Where, as_array

# --- Encoding messages as a tree of plain values, for display and JSON ------------------
#
# Wrapper messages that only select one of several messages are omitted. Bytes are represented by
# their length, short ones in hexadecimal.

_ROOTS: dict[str, Any] = {
    "lance.encodings.ArrayEncoding": encodings20_pb2.ArrayEncoding,
    "lance.encodings.ColumnEncoding": encodings20_pb2.ColumnEncoding,
    "lance.encodings21.PageLayout": encodings21_pb2.PageLayout,
    "lance.encodings23.PlanarLayout": encodings23_pb2.PlanarLayout,
}

_SHOWN_BYTES = 32

_VALUE_ROLES = ("value_compression", "values", "inner_layout", "binary", "inner")
"""Roles of the encodings that encode values, from the page down."""


@dataclass(frozen=True, slots=True)
class EncodingNode:
    """One encoding: its name, its settings, and the encodings inside it by role."""

    name: str
    settings: dict[str, Any] = dataclasses.field(default_factory=dict)
    children: tuple[tuple[str, EncodingNode], ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Convert to values that JSON can represent."""
        children = [{"role": role, **node.to_dict()} for role, node in self.children]
        return {"encoding": self.name, **self.settings, "inside": children}

    @property
    def brief(self) -> str:
        """The layout and the value encodings; levels are left out."""
        names, node = [self.name.removesuffix("_layout")], self
        dictionary = False
        while True:
            dictionary = dictionary or any(role == "dictionary" for role, _ in node.children)
            inner = [child for role, child in node.children if role in _VALUE_ROLES]
            if not inner:
                break
            node = inner[0]
            names.append(node.name)
        if names[0] == "PlanarLayout":
            names.pop(0)
        return " > ".join(names) + (" + dictionary" if dictionary else "")

    def __str__(self) -> str:
        inside = ", ".join(f"{role}: {node}" for role, node in self.children)
        return f"{self.name}({inside})" if inside else self.name


def describe_encoding(raw: bytes, where: object) -> EncodingNode:
    """Describe the encoding of a page from its envelope.

    An unknown encoding is described by its name alone.
    """
    try:
        name, message = unseal(raw)
        root = _ROOTS.get(name)
        if root is None:
            return EncodingNode(name.rsplit(".", 1)[-1])
        return _node(root.FromString(message), name.rsplit(".", 1)[-1])
    except DecodeError as error:
        raise CorruptFileError(
            "page encoding", expected="a protobuf message", found=str(error), where=where
        ) from None


def _node(message: Any, name: str) -> EncodingNode:
    descriptor = message.DESCRIPTOR
    if len(descriptor.oneofs) == 1 and len(descriptor.fields) == len(descriptor.oneofs[0].fields):
        chosen = message.WhichOneof(descriptor.oneofs[0].name)
        if chosen is None:
            return EncodingNode("none")
        inner = getattr(message, chosen)
        if hasattr(inner, "DESCRIPTOR"):
            return _node(inner, chosen)
        return EncodingNode(chosen, {chosen: _plain(inner)})
    settings: dict[str, Any] = {}
    children: list[tuple[str, EncodingNode]] = []
    for entry, value in message.ListFields():
        if entry.type == FieldDescriptor.TYPE_MESSAGE:
            many = list(value) if entry.is_repeated else [value]
            children.extend((entry.name, _node(child, entry.name)) for child in many)
        elif entry.type == FieldDescriptor.TYPE_ENUM:
            names = entry.enum_type.values_by_number
            many = list(value) if entry.is_repeated else [value]
            displayed = [
                _short(names[number].name) if number in names else str(number) for number in many
            ]
            settings[entry.name] = displayed if entry.is_repeated else displayed[0]
        else:
            settings[entry.name] = (
                [_plain(item) for item in value] if entry.is_repeated else _plain(value)
            )
    return EncodingNode(name, settings, tuple(children))


def _short(name: str) -> str:
    """Shorten names: ``REPDEF_NULLABLE_ITEM`` → ``nullable_item``."""
    return name.removeprefix("REPDEF_").removeprefix("COMPRESSION_ALGORITHM_").lower()


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.hex() if len(value) <= _SHOWN_BYTES else f"{len(value)} bytes"
    return value


# --- The layout of a data file as plain values: columns, pages, buffers and gaps --------
#
# Positions and sizes are in bytes. :func:`glaive.file.layout.file_layout` returns these values.

MAX_PADDING = 4096
"""Fewer bytes between two buffers count as padding: writers align to at most so many."""


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
        """Return plain values, ready for JSON."""
        return {"kind": self.kind, "position": self.position, "size": self.size}


@dataclass(frozen=True, slots=True, kw_only=True)
class PageInfo:
    """One page of a column.

    ``rows`` is the number in the metadata. ``values`` is the number of items where it is stored,
    else the number of rows. ``raw_bytes`` is the size of the values in Arrow. It is ``None`` where
    it takes decoding (strings) or the column only has structure.
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
        """Return nested plain values, ready for JSON."""
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
        """Bytes in memory per byte in the file; ``None`` where it is unknown for some page."""
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
        """Yield all buffers."""
        for page in self.pages:
            yield from page.buffers
        yield from self.buffers

    def to_dict(self) -> dict[str, Any]:
        """Return nested plain values, ready for JSON."""
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
        """All sections outside of columns, in order of position."""
        parts = [*self.global_buffers, *self.others, self.column_metadata, self.footer]
        return tuple(sorted(parts, key=lambda buffer: buffer.position))

    def gaps(self) -> tuple[BufferLocation, ...]:
        """Return the ranges that no metadata refers to, in order of position.

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
        """Return nested plain values, ready for JSON."""
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


# --- The layout of a 0.1 file: pages by the page table, statistics, schema, metadata ----
#
# The page table has positions and lengths; sizes follow from the types. For strings two offsets
# per page are read, because the page table lacks sizes of their bytes.
#
# Specification: ``docs/format/legacy.md``.

_ENTRY = 16
"""Bytes of a (position, length) pair in a page table."""

_OFFSET = 8
"""Bytes of an offset of a string."""


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
        column_metadata=BufferLocation("page table", reader.page_table_position, table_bytes),
        footer=BufferLocation("metadata and footer", end, size - end),
        others=tuple(_others(reader, end)),
    )


def _paths(fields: tuple[Field, ...], prefix: str) -> Iterator[tuple[str, Field]]:
    for field in fields:
        yield f"{prefix}{field.name}", field
        yield from _paths(field.children, f"{prefix}{field.name}.")


def _others(reader: LegacyFile, end: int) -> Iterator[BufferLocation]:
    """Yield the schema, and statistics with their page table."""
    at = reader.schema_position
    yield BufferLocation("schema", at, end - at)
    statistics = reader.statistics_table()
    if statistics is None:
        return
    position, entries = statistics
    yield BufferLocation("page table of statistics", position, _ENTRY * entries)
    (raw,) = reader.reader.read([ByteRange(position, _ENTRY * entries)])
    pages = as_array(raw, "<i8").reshape(-1, 2)
    first = int(pages[pages[:, 1] > 0, 0].min(initial=position))
    if 0 <= first < position:
        yield BufferLocation("statistics", first, position - first)


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
        index=number, path=path, type=field.logical_type, pages=tuple(pages), buffers=tuple(items)
    )


def _pages(
    reader: LegacyFile, field: Field, table: Int64s, rows: Int64s, where: Where
) -> list[PageInfo]:
    kind: Any = field.arrow_type
    positions, lengths = table[:, 0], table[:, 1]
    _check(reader, positions, lengths, where)
    if field.logical_type.startswith(("list", "large_list")):
        node = EncodingNode("list")
        width = 8 if field.logical_type.startswith("large") else 4
        return [
            _page(node, int(count), int(count), [BufferLocation("offsets", at, width * length)])
            for at, length, count in zip(
                positions.tolist(), lengths.tolist(), rows.tolist(), strict=True
            )
        ]
    if offset_bits(kind) is not None:
        strings = _strings(reader, positions, lengths, where)
        node = EncodingNode("var_binary")
        return [
            _page(node, length, length, strings[2 * page : 2 * page + 2])
            for page, length in enumerate(lengths.tolist())
        ]
    keys = pa.types.is_dictionary(kind)
    bits = int(kind.index_type.bit_width) if keys else plain_bits(kind)[0]
    node = EncodingNode("dictionary" if keys else "plain", {"bits_per_value": bits})
    name = "indices" if keys else "values"
    pages = []
    for at, length in zip(positions.tolist(), lengths.tolist(), strict=True):
        size = (length * bits + 7) // 8
        pages.append(_page(node, length, length, [BufferLocation(name, at, size)], size))
    return pages


def _page(
    node: EncodingNode,
    rows: int,
    values: int,
    buffers: list[BufferLocation],
    raw: int | None = None,
) -> PageInfo:
    return PageInfo(rows=rows, values=values, buffers=tuple(buffers), encoding=node, raw_bytes=raw)


def _strings(
    reader: LegacyFile, positions: Int64s, lengths: Int64s, where: Where
) -> list[BufferLocation]:
    """Return the offsets and bytes of each page of strings, alternating."""
    ends = [
        ByteRange(position, _OFFSET)
        for first, length in zip(positions.tolist(), lengths.tolist(), strict=True)
        for position in (first, first + _OFFSET * length)
    ]
    offsets = [as_array(raw, "<i8").item(0) for raw in reader.reader.read(ends)]
    buffers = []
    for page, length in enumerate(lengths.tolist()):
        first, last = offsets[2 * page], offsets[2 * page + 1]
        if not 0 <= first <= last <= reader.reader.size:
            raise CorruptFileError(
                "string offsets",
                expected=f"ascending, within 0..{reader.reader.size}",
                found=f"{first} to {last}",
                where=where,
            )
        buffers.append(BufferLocation("offsets", int(positions[page]), _OFFSET * (length + 1)))
        buffers.append(BufferLocation("bytes", first, last - first))
    return buffers


def _items(reader: LegacyFile, field: Field, where: Where) -> list[BufferLocation]:
    """Return the items of a dictionary column."""
    if field.dictionary is None or not pa.types.is_dictionary(field.arrow_type):
        return []
    kind: Any = field.arrow_type
    kind = kind.value_type
    entry = np.array([field.dictionary], np.int64)
    positions, lengths = entry[:, 0], entry[:, 1]
    _check(reader, positions, lengths, where)
    if offset_bits(kind) is None:
        size = (int(lengths[0]) * plain_bits(kind)[0] + 7) // 8
        return [BufferLocation("dictionary", int(positions[0]), size)]
    strings = _strings(reader, positions, lengths, where)
    return [BufferLocation("dictionary", buffer.position, buffer.size) for buffer in strings]


def _check(reader: LegacyFile, positions: Int64s, lengths: Int64s, where: Where) -> None:
    size = reader.reader.size
    # A value takes a bit at least. Checked first, to keep products from wrapping around.
    if ((positions < 0) | (positions > size) | (lengths < 0) | (lengths > 8 * size)).any():
        raise CorruptFileError(
            "page table",
            expected=f"positions within 0..{size} and as many values as fit",
            found=f"positions {positions.min()}..{positions.max()}, up to {lengths.max()} values",
            where=where,
        )


# --- The content of each buffer of a page, by its encoding ------------------------------
#
# Specification: the buffers of each layout in ``docs/format/pages.md``, ``docs/format/planes.md``
# and ``docs/format/arrays.md``.

_COUNTED = ("mini_block_layout", "full_zip_layout", "chunked", "zipped")
"""Layouts that count items apart from rows; the count may be 0."""


def count_values(node: EncodingNode, rows: int) -> int:
    """Return how many values a page has: its items where they are counted, else its rows."""
    if node.name == "PlanarLayout":
        return count_values(_inside(node, "values"), rows)
    if node.name == "blob_layout":
        return count_values(_inside(node, "inner_layout"), rows)
    if node.name in _COUNTED:
        return int(node.settings.get("num_items", 0))
    return rows


def buffer_kinds(node: EncodingNode, count: int) -> list[str]:
    """Return the content of each of ``count`` buffers of a page.

    Buffers that the encoding omits are named by their number.
    """
    kinds = _of_layout(node, count)
    if kinds is None:
        named: dict[int, str] = {}
        _of_arrays(node, "values", named)
        kinds = [named.get(at, f"buffer {at}") for at in range(count)]
    kinds = kinds[:count]
    return kinds + [f"buffer {at}" for at in range(len(kinds), count)]


def _inside(node: EncodingNode, role: str) -> EncodingNode:
    return next((child for name, child in node.children if name == role), EncodingNode("none"))


# --------------------------------------------------------------- 2.1 and newer


def _of_layout(node: EncodingNode, count: int) -> list[str] | None:
    if node.name == "blob_layout":
        return _of_layout(_inside(node, "inner_layout"), count)
    if node.name == "PlanarLayout":
        kinds = _of_value_plane(_inside(node, "values"))
        rest = "structure" if _inside(node, "structure").name == "sparse" else "repetition index"
        return kinds + [rest] * (count - len(kinds))
    if node.name == "constant_layout":
        levels = ["repetition levels", "definition levels"]
        return levels if count in (0, len(levels)) else ["value", *levels]
    if node.name == "full_zip_layout":
        return ["values", "row index"]
    if node.name == "mini_block_layout":
        index = ["repetition index"] if node.settings.get("repetition_index_depth") else []
        return _chunked(node) + index
    return None


def _of_value_plane(values: EncodingNode) -> list[str]:
    if values.name == "chunked":
        return _chunked(values)
    if values.name == "zipped":
        return ["values", *(["row index"] if "bits_per_offset" in values.settings else [])]
    if values.name == "indexed":
        return ["indices", *["dictionary" for _ in _of_value_plane(_inside(values, "items"))]]
    return []


def _chunked(node: EncodingNode) -> list[str]:
    dictionary = any(role == "dictionary" for role, _ in node.children)
    return ["chunk table", "chunks", *(["dictionary"] if dictionary else [])]


# --------------------------------------------------------------- 2.0

_ROLES = {
    ("binary", "indices"): "offsets",
    ("list", "offsets"): "offsets",
    ("dictionary", "indices"): "indices",
    ("dictionary", "items"): "dictionary",
    ("some_nulls", "validity"): "validity",
}
"""The content of the buffers below, by the encoding and the role in it."""


def _of_arrays(node: EncodingNode, kind: str, named: dict[int, str]) -> None:
    """Name the buffers of an array encoding and of the encodings inside it."""
    if node.name == "buffer":
        named.setdefault(int(node.settings.get("buffer_index", 0)), kind)
    for role, child in node.children:
        own = _ROLES.get((node.name, role), kind)
        # All buffers of a dictionary have this name, including its offsets.
        _of_arrays(child, kind if kind == "dictionary" else own, named)


def file_layout(reader: FileReader) -> FileLayout:
    """Describe an opened file of any version.

    Raises
    ------
    CorruptFileError
        The metadata is damaged.
    UnsupportedFeatureError
        The file lacks a schema.
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
        columns=tuple(_column_layout(reader, index, *owner) for index, owner in enumerate(owners)),
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
    """Return the path and field of every physical column, in order.

    The second column of a string in old files of 2.0 has only a path: the path of its bytes.
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


def _column_layout(reader: FileV2, index: int, path: str, field: Field | None) -> ColumnLayout:
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
