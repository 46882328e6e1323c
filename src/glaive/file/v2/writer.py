"""The encoding options of each column of a file: from field metadata, and from the caller.

A key in the metadata of a field applies to that field's own column. One key is inherited:
``structural-encoding`` of a struct or list applies to all columns below, unless they override it.
Options of the caller apply to all columns at or below their path. A longer path overrides a shorter
one, and the caller overrides the metadata.

Specification: "Encoding keys" in ``docs/format/encodings.md``.
"""

from __future__ import annotations

import dataclasses
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import chain
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pyarrow as pa

from glaive.arrow.blocks import Dictionary, flag_array, number_array
from glaive.arrow.build import block_from_array, leaf_bits, offset_bits, validity_flags
from glaive.arrow.chunked import (
    as_numpy,
    check_column,
    concat_arrays,
    decode_dictionary,
    tidy_dictionary,
)
from glaive.arrow.validation import refuse_half_characters
from glaive.dataclass import dataclass
from glaive.encodings import levels as repdef
from glaive.encodings.options import AUTOMATIC, EncodingOptions, read_metadata, read_options
from glaive.encodings.protocol import EncodedPage
from glaive.errors import CapacityError, GlaiveError, OptionError, SchemaError
from glaive.file.blobs import BlobOptions, PendingBlobs, pending_page
from glaive.file.protocol import FormatProfile, WrittenFile, unfinished
from glaive.file.v2.columns import Node, column_tree, number_columns
from glaive.file.versions import check_types
from glaive.format.blobs import has_blobs_v2, is_blob, stored
from glaive.format.field import Field
from glaive.format.fields import LanceSchema
from glaive.format.footer import FileChecksums, FileFooter, checksums_size
from glaive.format.pb import file2_pb2, file_pb2
from glaive.format.wire import seal
from glaive.io.checksums import checksum_function
from glaive.io.pool import ordered_map
from glaive.io.store import BytesLike, ObjectStore
from glaive.io.wrapped import AlignedSink
from glaive.types import ByteRange, Flags, Int64s

if TYPE_CHECKING:
    from glaive.encodings.writing.string_stats import PageSymbols, SharedSymbols
    from glaive.file.blob_writer import BlobWriter


# --- Writing files of format 2.x --------------------------------------------------------

# --- Shredding: nested Arrow arrays become leaves with levels ---------------------------
#
# Shredding goes from the row inward and ends with one :class:`Shredded` per leaf; the reverse is
# in :mod:`glaive.file.v2.columns`.
#
# Specification: "Levels" in ``docs/format/levels.md``.


@dataclass(frozen=True, slots=True)
class Shredded:
    """One leaf of a shredded array: its visible values and their levels.

    ``rows`` counts entries where fixed-size lists of structs multiply them.
    """

    node: Node
    values: pa.Array
    levels: repdef.Levels
    rows: int


def shred(node: Node, array: pa.Array) -> list[Shredded]:
    """Shred one top-level array into its leaves, depth first.

    Raises
    ------
    SchemaError
        A struct without members is null.
    """
    leaves: list[Shredded] = []
    if node.kind == "empty":
        refuse_nulls(node, validity_flags(array))
    _shred(node, array, repdef.start(len(array)), leaves, len(array))
    return leaves


def _shred(
    node: Node, array: Any, entries: repdef.Entries, leaves: list[Shredded], rows: int
) -> None:
    if node.kind in ("leaf", "empty"):
        if pa.types.is_dictionary(array.type):
            array = tidy_dictionary(array)
        valid = validity_flags(array) if node.kind == "leaf" else None
        if node.kind == "empty" or pa.types.is_null(array.type):
            valid = np.zeros(len(array), np.bool_)
        if entries.layers:
            levels = repdef.to_levels(repdef.add_items(entries, valid))
        else:
            levels = repdef.flat_levels(valid)
        leaves.append(Shredded(node, array, levels, rows * node.entries_per_row))
        return
    inside = entries
    if node.kind in ("struct", "fixed"):
        inside = repdef.add_items(entries, validity_flags(array))
    if node.kind == "fixed":
        size = node.sizes[0]
        items = array.values.slice(array.offset * size, len(array) * size)
        _shred(node.children[0], items, repdef.multiply(inside, size), leaves, rows)
        return
    if node.kind == "struct":
        if all(leaf.kind == "empty" for leaf in node.leaves()):
            refuse_nulls(node, validity_flags(array))
        for at, child in enumerate(node.children):
            member = array.field(at)
            if child.kind == "empty":
                flags, outside = validity_flags(member), validity_flags(array)
                refuse_nulls(child, flags if flags is None or outside is None else flags | ~outside)
            _shred(child, member, inside, leaves, rows)
        return
    lengths, items = list_parts(array)
    inside, keep = repdef.add_lists(entries, lengths, validity_flags(array))
    if keep is not None:
        items = items.filter(flag_array(keep.repeat(lengths)))
    _shred(node.children[0], items, inside, leaves, rows)


def refuse_nulls(node: Node, valid: Flags | None) -> None:
    """Refuse null structs without a leaf that has values: no column stores their validity.

    Raises
    ------
    SchemaError
        Some are null.
    """
    if valid is not None and not valid.all():
        raise SchemaError(
            f"column {node.name!r} is a struct without members and has "
            f"{len(valid) - int(np.count_nonzero(valid))} nulls, which files cannot store. "
            "Drop the column, or give the struct a member."
        )


def list_parts(array: Any) -> tuple[Int64s, Any]:
    """Return the lengths of lists, and their items; of maps, their entries."""
    offsets = as_numpy(array.offsets).astype(np.int64)
    if isinstance(array, pa.MapArray):
        fields: Any = [array.type.key_field, array.type.item_field]
        items: Any = pa.StructArray.from_arrays([array.keys, array.items], fields=fields)
    else:
        items = array.values
    return np.diff(offsets), items.slice(offsets[0], offsets[-1] - offsets[0])


# --- Dictionary-encoded text that stays encoded while it is copied into other pages -----
#
# An ingest reads dictionary-encoded text of Parquet and writes it the same way. Such a column is
# passed on as an Arrow dictionary although its field is plain text. That saves decoding the text
# and finding the items again.
#
# Specification: "What writers choose" in ``docs/format/encodings.md``.


def can_pass_through(kind: pa.DataType) -> bool:
    """Return whether values of this type may be passed on dictionary-encoded."""
    return offset_bits(kind) is not None


def is_passed_through(found: pa.DataType, wanted: Any) -> bool:
    """Return whether arrays of type ``found`` are dictionary-encoded values of type ``wanted``."""
    if not pa.types.is_dictionary(found) or not can_pass_through(wanted):
        return False
    return bool(pa.dictionary(pa.int32(), wanted).equals(found))


def fits_with_dictionaries(rows: pa.RecordBatch | pa.Table, wanted: pa.Schema) -> bool:
    """Return whether rows match a schema; columns may be dictionaries of valid items."""
    schema = rows.schema
    if schema.names != wanted.names:
        return False
    return all(
        stored.equals(other) or passes_through(column, other)
        for column, stored, other in zip(rows.columns, schema.types, wanted.types, strict=True)
    )


def passes_through(column: Any, wanted: Any) -> bool:
    """Return whether a column has dictionary-encoded ``wanted`` values, with valid items."""
    if not is_passed_through(column.type, wanted):
        return False
    chunks: list[Any] = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
    return not any(chunk.dictionary.null_count for chunk in chunks)


def with_items_of(array: Any, kind: pa.DataType) -> Any:
    """Return a dictionary array of any text, with items of a type that these can be cast to."""
    items = array.dictionary
    if items.type.equals(kind):
        return array
    return pa.DictionaryArray.from_arrays(array.indices, items.cast(kind), safe=False)


def _with_items(array: Any, number: Any, items: Any) -> Any:
    """Return the same values with other items; ``number`` maps old items to new ones."""
    indices = array.indices
    old = np.frombuffer(indices.buffers()[1], np.int32)[indices.offset :][: len(array)]
    buffers = [None, pa.py_buffer(number.astype(np.int32)[old])]
    if indices.null_count:
        buffers[0] = array.is_valid().buffers()[1]
    new = pa.Array.from_buffers(pa.int32(), len(array), buffers, indices.null_count)
    return pa.DictionaryArray.from_arrays(new, items, safe=False)


def decoded_bytes(array: Any) -> int:
    """Return the approximate bytes of the plain values of a dictionary array and their offsets."""
    items = array.dictionary
    size: int = len(array) * (4 + items.nbytes // max(1, len(items)))
    return size


def decode_or_keep(array: Any, kind: pa.DataType, wanted: EncodingOptions | None) -> Any:
    """Return a dictionary array in the form to write: with its dictionary, or plain.

    Parameters
    ----------
    kind
        Type of the field.
    wanted
        The encoding options of the column; ``None`` where dictionaries are unsupported.

    Notes
    -----
    It keeps its dictionary only where a writer of the plain values would always choose one.
    This is so if it takes less than a fifth of the bytes, and no options are given.
    """
    if not is_passed_through(array.type, kind):
        return array
    from glaive.encodings.writing.page import SURE_SHARE
    from glaive.encodings.writing.string_stats import MAX_ITEMS, MIN_VALUES, dictionary_bytes

    used = _used_only(array) if wanted == AUTOMATIC and len(array) >= MIN_VALUES else None
    if used is None or not 2 <= len(used.dictionary) <= min(MAX_ITEMS, len(array) // 2):
        return array.cast(kind)
    block = block_from_array(used)
    if not isinstance(block, Dictionary):
        return array.cast(kind)
    small = dictionary_bytes(block) < SURE_SHARE * decoded_bytes(used)
    return used if small else array.cast(kind)


def _used_only(array: Any) -> Any:
    """Remove unused items."""
    indices = array.indices
    if indices.null_count:
        indices = indices.drop_null()
    times = np.bincount(as_numpy(indices), minlength=len(array.dictionary))
    if times.all():
        return array
    used = times.nonzero()[0]
    number = np.zeros(len(times), np.int32)
    number[used] = np.arange(len(used))
    return _with_items(array, number, array.dictionary.take(number_array(used)))


GivenOptions = Mapping[str, Mapping[str, object]]
"""Path of a column → options by unprefixed key."""

ALL_COLUMNS = "*"
"""Path that means all columns, unless a column has this name."""

_INHERITED = "structural_encoding"
_MAX_CHUNK = 32_768
"""Bytes of a chunk before 2.2 are below this."""


def column_options(
    schema: LanceSchema, given: GivenOptions | None, profile: FormatProfile
) -> Mapping[int, EncodingOptions]:
    """Return the options by field id, for each field that owns a column.

    Raises
    ------
    OptionError
        A key or value is unknown, or the format version lacks it.
    ColumnNotFoundError
        The caller names a missing column.
    """
    if not given:
        return _metadata_options(schema, profile)
    given_by_id: dict[int, dict[str, Any]] = {}
    every: dict[str, Any] = {}
    for path, options in given.items():
        if not isinstance(options, Mapping):
            raise OptionError(
                f"encoding_options: expected a mapping of options for column {path!r}, "
                f"found {options!r}"
            )
        if path == ALL_COLUMNS and path not in schema.names:
            every = read_options(options, path)
            continue
        field = schema.find(path)[-1]
        given_by_id.setdefault(field.id, {}).update(read_options(options, path))
    return _collect(schema, given_by_id, profile, every)


@lru_cache(maxsize=64)  # appends have the same schema again and again
def _metadata_options(schema: LanceSchema, profile: FormatProfile) -> Mapping[int, EncodingOptions]:
    return _collect(schema, {}, profile, {})


def _collect(
    schema: LanceSchema,
    given_by_id: Mapping[int, dict[str, Any]],
    profile: FormatProfile,
    every: dict[str, Any],
) -> dict[int, EncodingOptions]:
    return {
        field.id: _checked(EncodingOptions(**(every | values)), path, profile)
        for top in schema.fields
        for field, path, values in _columns(top, top.name, {}, {}, given_by_id)
    }


def _columns(
    field: Field,
    path: str,
    inherited: dict[str, Any],
    from_caller: dict[str, Any],
    given_by_id: Mapping[int, dict[str, Any]],
) -> Iterator[tuple[Field, str, dict[str, Any]]]:
    own = {**inherited, **read_metadata(field.metadata, path)}
    from_caller = {**from_caller, **given_by_id.get(field.id, {})}
    if field.is_packed:
        # One column for all members, but each is encoded by its own keys.
        members = _members(field, path, from_caller, given_by_id)
        yield field, path, {**own, **from_caller, "members": members}
        return
    if not field.children:
        yield field, path, {**own, **from_caller}
    passed = {_INHERITED: own[_INHERITED]} if _INHERITED in own else {}
    for child in field.children:
        yield from _columns(child, f"{path}.{child.name}", passed, from_caller, given_by_id)


def _members(
    field: Field, path: str, from_caller: dict[str, Any], given_by_id: Mapping[int, dict[str, Any]]
) -> tuple[EncodingOptions, ...]:
    """Return the options of the members of a packed struct, and of nested structs."""
    members = []
    for child in field.children:
        below = f"{path}.{child.name}"
        own = {**from_caller, **given_by_id.get(child.id, {})}
        values = {**read_metadata(child.metadata, below), **own}
        if child.children:
            values["members"] = _members(child, below, own, given_by_id)
        members.append(EncodingOptions(**values))
    return tuple(members)


def _checked(options: EncodingOptions, path: str, profile: FormatProfile) -> EncodingOptions:
    version = profile.version
    if options.structural_encoding == "sparse" and profile.pages != "planes":
        raise OptionError(
            f"column {path!r}: structural-encoding: format {version} has miniblock and fullzip, "
            "found 'sparse'; use format 2.3"
        )
    size = options.minichunk_size
    if size is not None and size >= _MAX_CHUNK and not profile.large_chunks:
        raise OptionError(
            f"column {path!r}: minichunk-size: chunks of format {version} have less than "
            f"{_MAX_CHUNK} bytes, found {size}; use a smaller number, or format 2.2"
        )
    return options


# --- The end of a 2.x file: column metadata, tables, footer; and the checksums before it


class ChecksumsOf:
    """The checksums of a file being written: of its global buffers but the schema, and its pages.

    Parameters
    ----------
    columns
        Number of columns.
    function
        The checksum of some bytes.
    """

    def __init__(self, columns: int, function: Callable[[BytesLike], int]) -> None:
        self.function = function
        self._global: list[int] = []
        self._columns: list[list[int]] = [[] for _ in range(columns)]

    def add_page(self, column: int, buffers: Sequence[BytesLike | tuple[BytesLike, ...]]) -> None:
        """Append the buffers of the next page of a column, some of them in parts."""
        whole = (b"".join(each) if isinstance(each, tuple) else each for each in buffers)
        self._columns[column] += map(self.function, whole)

    def add_global(self, data: BytesLike) -> None:
        """Append a global buffer that comes after the schema."""
        self._global.append(self.function(data))

    def size(self) -> int:
        """Return the bytes that they take in the file."""
        return checksums_size(
            len(self._columns), 1 + len(self._global), sum(map(len, self._columns))
        )

    def build(self, schema: bytes, metadata: bytes) -> bytes:
        """Return the bytes for the file: checksums of the schema and of all that comes after."""
        function = self.function
        every = [function(schema), *self._global]
        return FileChecksums.build(function(metadata), every, self._columns, function)


def write_metadata(
    sink: AlignedSink,
    schema: bytes,
    global_ranges: Sequence[ByteRange],
    columns: Sequence[bytes],
    version: tuple[int, int],
    checksums: ChecksumsOf | None,
) -> None:
    """Write the schema and all that comes after it.

    Parameters
    ----------
    global_ranges
        Where the other global buffers are.
    columns
        The metadata of each column.
    version
        Major and minor version in the footer.
    """
    ranges = [*sink.write_aligned([schema]), *global_ranges]
    if checksums is None:
        sink.write(_metadata(columns, ranges, sink.position, version))
        return
    own = ByteRange(sink.pad(), checksums.size())
    metadata = b"".join(_metadata(columns, [*ranges, own], own.end, version))
    sink.write([checksums.build(schema, metadata), metadata])


def _metadata(
    columns: Sequence[bytes],
    global_ranges: Sequence[ByteRange],
    start: int,
    version: tuple[int, int],
) -> list[bytes]:
    """Return all bytes from the column metadata on, which begins at ``start``."""
    table, at = [], start
    for raw in columns:
        table += [at, len(raw)]
        at += len(raw)
    column_table = _numbers(table)
    footer = FileFooter(
        metadata_start=start,
        column_table=at,
        global_table=at + len(column_table),
        global_buffers=len(global_ranges),
        columns=len(columns),
        major=version[0],
        minor=version[1],
    )
    return [*columns, column_table, _numbers([*chain(*global_ranges)]), footer.build()]


def _numbers(numbers: Sequence[int]) -> bytes:
    return struct.pack(f"<{len(numbers)}Q", *numbers)


# --- Arrays of a field, queued until they fill about a page -----------------------------
#
# Specification: "Column metadata" in ``docs/format/container.md``.

Symbols = Mapping[int, "PageSymbols"]
"""FSST symbols of a page's text, by field id."""


@dataclass(frozen=True, slots=True)
class PageJob:
    """An array that becomes a page of each column of its field.

    A context manager: encode within it. Other threads may wait for the symbols of the first
    page of a column; they continue when it ends, even with an error.
    """

    queue: PageQueue
    array: pa.Array
    symbols: Symbols

    def __enter__(self) -> None:
        return None

    def __exit__(self, *_: object) -> None:
        for symbols in self.symbols.values():
            if symbols.first:
                symbols.shared.finish()


@dataclass(slots=True)
class PageQueue:
    """Pending arrays of one top-level field.

    ``per_row`` is the number of entries of a row in the first of its columns. ``bits`` is the
    number of bits of a value (see :func:`value_bits`).
    """

    node: Node
    budget: int
    per_row: int
    bits: int | None
    arrays: list[pa.Array] = dataclasses.field(default_factory=list)
    waiting: int = 0
    written: int = 0
    _symbols: dict[int, SharedSymbols] | None = None

    def put(self, array: pa.Array) -> None:
        """Append an array."""
        self.arrays.append(array)
        self.waiting += self._weight(array)

    def jobs(self, *, last: bool) -> Iterator[PageJob]:
        """Remove arrays of about a page each; a short rest stays unless it is the last."""
        if last and len(self.arrays) == 1 and self.waiting < self.budget and not self._symbols:
            (array,), self.arrays, self.waiting = self.arrays, [], 0
            yield PageJob(self, array, {})  # a single page has its own symbols
            return
        from glaive.encodings.writing.string_stats import PageSymbols, SharedSymbols

        for array in self._pages(last=last):
            first = self._symbols is None
            if self._symbols is None:
                text_ids = [leaf.field.id for leaf in self.node.leaves() if _is_text(leaf.type)]
                self._symbols = {field_id: SharedSymbols() for field_id in text_ids}
            symbols = {
                field_id: PageSymbols(shared, first) for field_id, shared in self._symbols.items()
            }
            yield PageJob(self, array, symbols)

    def _pages(self, *, last: bool) -> Iterator[pa.Array]:
        """Divide large arrays and join small ones; an array that fills a page stays a view."""
        arrays = self.arrays
        self.arrays, self.waiting = [], 0
        from glaive.encodings.writing.page import page_count

        group: list[pa.Array] = []
        size = 0
        for array in arrays:
            weight = self._weight(array)
            if group and size + weight > self.budget * 3 // 2:
                yield from _joined(group)
                group, size = [], 0
            group.append(array)
            size += weight
            if size >= self.budget:
                for joined in _joined(group):
                    share = size if len(group) == 1 else self._weight(joined)
                    count = page_count(joined, max(1, round(share / self.budget)))
                    step = -(-len(joined) // count)
                    for first in range(0, len(joined), step):
                        yield joined.slice(first, step)
                group, size = [], 0
        if group and (last or size >= self.budget // 2):
            yield from _joined(group)
        elif group:
            self.arrays, self.waiting = group, size

    def _weight(self, array: pa.Array) -> int:
        """Return the bytes of an array, at least a bit per row: levels take memory, too."""
        kind, rows = array.type, len(array)
        wanted: Any = self.node.type
        if kind.equals(wanted):
            bits = self.bits
        elif is_passed_through(kind, wanted):
            return max(decoded_bytes(array), 1)
        else:
            bits = value_bits(kind)
        size = int(array.nbytes) if bits is None else rows * bits // 8
        return max(size, rows // 8, 1)


def value_bits(kind: pa.DataType) -> int | None:
    """Return the bits of a value of a fixed-width type; ``None`` for other types and nulls."""
    if isinstance(kind, pa.BaseExtensionType):
        kind = kind.storage_type
    return None if pa.types.is_nested(kind) or pa.types.is_null(kind) else leaf_bits(kind)


def _joined(arrays: list[pa.Array]) -> list[pa.Array]:
    """Return the joined array, or the given ones if they are too large for one."""
    if len({array.type for array in arrays}) > 1:  # text with a dictionary, and plain text
        plain: Any = next(array.type for array in arrays if not pa.types.is_dictionary(array.type))
        arrays = [
            decode_dictionary(array) if pa.types.is_dictionary(array.type) else array
            for array in arrays
        ]
        arrays = [array if array.type.equals(plain) else array.cast(plain) for array in arrays]
    try:
        return [concat_arrays(arrays)]
    except CapacityError:
        return arrays


def _is_text(kind: Any) -> bool:
    if isinstance(kind, pa.BaseExtensionType):
        kind = kind.storage_type
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


# --- Write a 2.x file: arrays are queued per field, divided into pages, encoded and appended
#
# A field's page is written when about 8 MiB of its values are queued. Pages are encoded on all
# cores (kernels release the interpreter lock) and appended in order. The footer comes last and
# makes the file visible.
#
# Specification: ``docs/format/container.md``.

PAGE_BYTES = 8 * 1024 * 1024
"""Approximate Arrow bytes per page and leaf column."""

_MIN_PARALLEL_BYTES = 1024 * 1024
"""Fewer Arrow bytes are encoded on this thread, as other threads would cost more."""

COLUMN_URL = "/lance.encodings.ColumnEncoding"
_COLUMN_VALUES = b"\x0a\x00"  # ColumnEncoding{values: Empty}
_ENCODING = file2_pb2.DirectEncoding(encoding=seal(COLUMN_URL, _COLUMN_VALUES))
_COLUMN = file2_pb2.ColumnMetadata(
    encoding=file2_pb2.Encoding(direct=_ENCODING)
).SerializeToString()

Columns = list[tuple[int, EncodedPage]]
"""Pages of the same rows, one for each column of a field."""

_MAX_SMALL_ROWS = 4096
"""Rows of a file whose descriptor is cached for other files of the same size."""

_CACHED_SCHEMAS = 64
"""Schemas whose derived values are cached, because all files of a dataset share them."""


class FileV2Writer:
    """A file being written (a ``FileWriter``)."""

    page_url: ClassVar[str] = "/lance.encodings21.PageLayout"
    """Type of the message that describes a page."""

    keeps_dictionaries: ClassVar[bool] = True
    """Whether dictionary-encoded text may stay encoded.

    See :mod:`glaive.file.v2.writer`.
    """

    def __init__(
        self,
        store: ObjectStore,
        path: str,
        schema: LanceSchema,
        profile: FormatProfile,
        *,
        page_bytes: int = PAGE_BYTES,
        encoding_options: GivenOptions | None = None,
        blobs: BlobOptions | None = None,
        checksums: bool = False,
    ) -> None:
        self._given, given = schema.fields, schema
        self._arrow = schema.to_arrow()
        schema = _stored_schema(schema, profile)
        self._wanted = column_options(schema, encoding_options, profile)
        self.path = path
        self._where = store.full(path)
        self._schema = schema
        self._profile = profile
        column_of, nodes = self._trees(schema)
        self._column_of = column_of
        self._queues = []
        for node, kind in zip(nodes, schema.to_arrow().types, strict=True):
            bits = value_bits(kind)
            if bits is None:
                leaves = list(node.leaves())
                size, per_row = page_bytes * len(leaves), leaves[0].entries_per_row
            else:
                size, per_row = page_bytes, 1
            self._queues.append(PageQueue(node, size, per_row, bits))
        self._columns: list[Any] = [file2_pb2.ColumnMetadata.FromString(_COLUMN) for _ in column_of]
        self._rows = 0
        self._is_whole = True
        self._page_options: dict[str, int] = {}
        self._global_ranges: list[ByteRange] = []
        function = checksum_function() if checksums else None
        self._checksums = None if function is None else ChecksumsOf(len(column_of), function)
        self._metadata = dict(schema.metadata)
        self._sink = AlignedSink(store.create(path))
        self._blobs: BlobWriter | None = None
        if _has_blobs(given):
            from glaive.file.blob_writer import BlobFiles, BlobWriter

            files = BlobFiles(store, path)
            self._blobs = BlobWriter(self._sink, files, blobs or BlobOptions())

    @property
    def position(self) -> int:
        """Bytes written plus bytes waiting in column buffers (estimate)."""
        return self._sink.position + sum(queue.waiting for queue in self._queues)

    @property
    def rows(self) -> int:
        """Rows taken so far."""
        return self._rows

    def write(self, batch: pa.RecordBatch | pa.Table) -> None:
        """Append rows; the columns must be the schema's, in its order."""
        same = batch.schema.equals(self._arrow, check_metadata=False)
        if not same and not fits_with_dictionaries(batch, self._arrow):
            raise SchemaError(
                f"Cannot write batch for {self._where}: expected the columns\n{self._arrow}\n"
                f"found\n{batch.schema}\nCast the batch to the schema first."
            )
        if batch.num_rows <= _MAX_SMALL_ROWS and isinstance(batch, pa.Table):
            batches = batch.to_batches()  # columns of batches cost less
            batch = batches[0] if len(batches) == 1 else batch
        columns: list[Any] = list(batch.columns)
        for field, queue, column in zip(self._given, self._queues, columns, strict=True):
            check_column(column, field.name, self._where, nullable=queue.node.nullable)
        is_whole, self._is_whole = self._is_whole, False
        for field, queue, column in zip(self._given, self._queues, columns, strict=True):
            chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
            for chunk in chunks:
                if len(chunk):
                    blobs = self._blobs
                    queue.put(blobs.describe(field, chunk, field.name) if blobs else chunk)
        self._rows += batch.num_rows
        full = [queue for queue in self._queues if queue.waiting >= queue.budget]
        if full:
            self._flush(full, last=False)
        self._is_whole = is_whole

    def finish(self) -> WrittenFile:
        """Write pending rows, the metadata and the footer; the file becomes visible."""
        if not self._is_whole:
            raise unfinished(self._where)
        self._flush([queue for queue in self._queues if queue.arrays], last=True)
        if self._blobs is not None:
            self._blobs.finish()
        size = self._write_footer()
        if self._blobs is not None:
            self._blobs.published()
        return WrittenFile(
            path=self.path,
            size=size,
            rows=self._rows,
            version=self._profile.version,
            fields=list(self._column_of),
            column_indices=list(self._column_of.values()),
        )

    def limit_cache(self, size: int) -> None:
        """Limit the pending Arrow bytes of all columns in total to about ``size``."""
        for queue in self._queues:
            queue.budget = max(1, size // len(self._queues))

    def store_plain(self, size: int) -> None:
        """Store columns of up to ``size`` bytes as in memory, without choosing an encoding.

        This applies to values of a fixed width without nulls, if the whole column is written at
        once. It is for files whose columns cost more to encode than to read.
        """
        self._page_options = {"plain_bytes": size}

    def add_global_buffer(self, data: bytes) -> int:
        """Append a global buffer; return its number."""
        self._global_ranges.extend(self._sink.write_aligned([data]))
        if self._checksums is not None:
            self._checksums.add_global(data)
        return len(self._global_ranges)

    def add_schema_metadata(self, key: str, value: str) -> None:
        """Add an entry to the schema's metadata, which is written at the end."""
        with refuse_half_characters("schema metadata"):
            key.encode()
            self._metadata[key] = value.encode()

    def abort(self) -> None:
        """Discard the file."""
        self._sink.abort()
        if self._blobs is not None:
            self._blobs.abort()

    # ------------------------------------------------------------------ columns

    def _trees(self, schema: LanceSchema) -> tuple[Mapping[int, int], Sequence[Node]]:
        """Return the column by field id, for fields that own one, and the nodes of the fields."""
        return _column_trees(schema)

    # ------------------------------------------------------------------ pages

    def _flush(self, queues: Sequence[PageQueue], *, last: bool) -> None:
        jobs = (job for queue in queues for job in queue.jobs(last=last))
        if sum([queue.waiting for queue in queues]) < _MIN_PARALLEL_BYTES:
            self._write_pages(map(self._encode, jobs))
        else:
            self._write_pages(ordered_map(self._encode, jobs))

    def _write_pages(self, encoded: Iterable[tuple[PageQueue, list[Columns]]]) -> None:
        for queue, pages in encoded:
            for columns in pages:
                for column, page in columns:
                    self._append(column, page, queue.written)
                queue.written += columns[0][1].rows // queue.per_row

    def _encode(self, job: PageJob) -> tuple[PageQueue, list[Columns]]:
        with job:
            node = job.queue.node
            wanted = self._wanted.get(node.field.id) if self.keeps_dictionaries else None
            array = decode_or_keep(job.array, node.type, wanted)
            return job.queue, list(self._encode_rows(node, array, job.symbols))

    def _encode_rows(self, node: Node, array: pa.Array, symbols: Symbols) -> Iterator[Columns]:
        """Encode an array into one page per leaf, or several where there are too many levels."""
        pages = []
        for leaf in shred(node, array):
            page = self._encode_leaf(leaf, symbols.get(leaf.node.field.id))
            if page is None:
                half = len(array) // 2
                yield from self._encode_rows(node, array.slice(0, half), symbols)
                yield from self._encode_rows(node, array.slice(half), symbols)
                return
            if leaf.node.column is None:
                raise GlaiveError(f"leaf {leaf.node.name!r} of {self._where} has no column")
            pages.append((leaf.node.column, page))
        yield pages

    def _encode_leaf(self, leaf: Shredded, symbols: PageSymbols | None) -> EncodedPage | None:
        """Encode a leaf as one page; ``None`` when it has too many levels for one page."""
        if is_blob(leaf.node.field):
            large = self._profile.large_chunks
            return pending_page(leaf.values, leaf.levels, leaf.rows, large_chunks=large)
        from glaive.encodings.writing.few import encode_few

        wanted, options = self._wanted[leaf.node.field.id], self._profile
        values, levels, rows = leaf.values, leaf.levels, leaf.rows
        few = encode_few(values, levels, rows, options, wanted, **self._page_options)
        if few is not None:
            return few
        from glaive.encodings.writing.page import encode_page

        return encode_page(values, levels, rows, options, wanted, symbols)

    def _append(self, column: int, page: EncodedPage, first_row: int) -> None:
        if isinstance(page, PendingBlobs):
            page = page.describe(page.values.write(self._sink), page.values.sizes)
        buffers = [_plain(buffer) for buffer in page.buffers]
        written = self._sink.write_aligned(buffers)
        if self._checksums is not None:
            self._checksums.add_page(column, buffers)
        message = self._columns[column].pages.add(
            buffer_offsets=[part.offset for part in written],
            buffer_sizes=[part.size for part in written],
            length=page.rows,
            priority=first_row,
        )
        message.encoding.direct.encoding = _sealed(self.page_url, page.layout.SerializeToString())

    # ------------------------------------------------------------------ metadata

    def _write_footer(self) -> int:
        columns = [column.SerializeToString() for column in self._columns]
        version = self._profile.footer
        schema, checksums = self._descriptor(), self._checksums
        write_metadata(self._sink, schema, self._global_ranges, columns, version, checksums)
        return self._sink.finish()

    def _descriptor(self) -> bytes:
        fields = _wire_fields(self._schema)
        descriptor = file_pb2.FileDescriptor(schema=fields, length=self._rows)
        for key, value in self._metadata.items():
            descriptor.schema.metadata[key] = value
        return descriptor.SerializeToString()


@lru_cache(maxsize=_CACHED_SCHEMAS)
def _stored_schema(schema: LanceSchema, profile: FormatProfile) -> LanceSchema:
    """Return the schema as stored in a file of this format.

    Raises
    ------
    SchemaError
        The format lacks a column's type.
    """
    check_types(schema, profile)
    fields = tuple(map(stored, schema.fields))
    return schema if fields == schema.fields else replace(schema, fields=fields)


@lru_cache(maxsize=_CACHED_SCHEMAS)
def _has_blobs(schema: LanceSchema) -> bool:
    return any(map(has_blobs_v2, schema.fields))


@lru_cache(maxsize=_CACHED_SCHEMAS)
def _column_trees(schema: LanceSchema) -> tuple[Mapping[int, int], Sequence[Node]]:
    column_of = number_columns(schema.fields)
    return column_of, [column_tree(field, column_of) for field in schema.fields]


@lru_cache(maxsize=_CACHED_SCHEMAS)
def _wire_fields(schema: LanceSchema) -> Any:
    """Return the schema's message without metadata; it is read-only."""
    return file_pb2.Schema(fields=schema.to_wire())


_sealed = lru_cache(maxsize=1024)(seal)


def _plain(buffer: Any) -> Any:
    return buffer if isinstance(buffer, (bytes, pa.Buffer, tuple)) else memoryview(buffer)
