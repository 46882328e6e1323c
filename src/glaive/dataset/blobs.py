"""Write and read blob columns."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import IO, Any

import pyarrow as pa

from glaive.arrow.validation import refuse_half_characters
from glaive.errors import OptionError, SchemaError
from glaive.expr.coerce import is_list
from glaive.format.blobs import LOGICAL, BlobArray, BlobType
from glaive.format.field import BLOB, BLOB_V2
from glaive.format.logical_types import EXTENSION_NAME
from glaive.scan.blob_files import BlobFile, locate_blobs, read_blob_ranges, select_rows
from glaive.scan.blob_values import read_locations
from glaive.scan.views import Views

# --- Blob columns as users write them: the extension type, its arrays and single values -
# The extension names are ``lance``'s. One process can load both libraries, and each writes
# arrays that the other made.


def blob_array(values: Iterable[object]) -> BlobArray:
    """Make an array of blobs.

    Parameters
    ----------
    values
        Bytes, URIs as strings, :class:`Blob` objects, or ``None`` for nulls.

    Raises
    ------
    OptionError
        A value has another type.
    """
    return BlobArray.from_pylist(values)


def blob_field(
    name: str,
    *,
    nullable: bool = True,
    inline_size_threshold: int | None = None,
    dedicated_size_threshold: int | None = None,
    pack_file_size_threshold: int | None = None,
) -> pa.Field[Any]:
    """Make the field of a blob column.

    Parameters
    ----------
    name
        Name of the column.
    nullable
        Whether values may be null.
    inline_size_threshold
        Store values of up to this many bytes in the data file; default: 64 KiB.
    dedicated_size_threshold
        Store larger values in a file each; checked first; default: 4 MiB.
    pack_file_size_threshold
        Maximum bytes of a file that holds several values; default: 1 GiB.

    Raises
    ------
    OptionError
        A threshold is outside of the allowed range of bytes.
    """
    limits = {
        "inline": (inline_size_threshold, 0),
        "dedicated": (dedicated_size_threshold, 1),
        "pack-file": (pack_file_size_threshold, 1),
    }
    metadata: Any = {}
    for what, (size, minimum) in limits.items():
        given: object = size
        if size is None:
            continue
        if not isinstance(given, int) or isinstance(given, bool) or not minimum <= size < 2**63:
            raise OptionError(
                f"{what.replace('-', '_')}_size_threshold: expected a number of bytes ≥ {minimum}, "
                f"found {size!r}"
            )
        metadata[f"lance-encoding:blob-{what}-size-threshold"] = str(size)
    with refuse_half_characters("name"):
        return pa.field(name, BlobType(), nullable, metadata or None)


# --- Convert rows for blob columns: binary to blobs, with missing storage members.
# From format 2.2 on a binary column with ``lance-encoding:blob`` becomes a column of type
# ``lance.blob.v2``. Later formats have no pages for the first kind of blobs.

_FIRST, _NAME = BLOB.encode(), EXTENSION_NAME.encode()
_REQUIRED = 2
"""Members that every blob storage has: data and uri."""


def with_blob_type(schema: pa.Schema) -> pa.Schema:
    """Return the schema with blob columns of the first kind, at any depth, as the second kind."""
    fields = [_with_blob_type(field) for field in schema]
    if all(storage is other for storage, other in zip(fields, schema, strict=True)):
        return schema
    metadata: Any = schema.metadata
    return pa.schema(fields, metadata)


def _with_blob_type(field: pa.Field[Any]) -> pa.Field[Any]:
    metadata: dict[bytes, bytes] = dict(field.metadata or {})
    data_type: Any = field.type
    if metadata.get(_FIRST) == b"true" and _is_bytes(data_type):
        del metadata[_FIRST]
        metadata[_NAME] = BLOB_V2.encode()
        return pa.field(field.name, pa.struct(list(LOGICAL)[:_REQUIRED]), field.nullable, metadata)
    if pa.types.is_struct(data_type) and not isinstance(data_type, pa.BaseExtensionType):
        members = [_with_blob_type(member) for member in data_type]
        if any(member is not other for member, other in zip(members, data_type, strict=True)):
            return field.with_type(pa.struct(members))
    elif is_list(data_type):
        item = _with_blob_type(data_type.value_field)
        if not item.equals(data_type.value_field, check_metadata=True):
            make: Any = pa.list_ if pa.types.is_list(data_type) else pa.large_list
            return field.with_type(make(item))
    return field


def can_become_blobs(data_type: Any) -> bool:
    """Return whether values of a type can go into a blob column of the second kind."""
    if isinstance(data_type, pa.BaseExtensionType):
        data_type = data_type.storage_type
    if _is_bytes(data_type) or pa.types.is_null(data_type):
        return True
    names = [field.name for field in LOGICAL]
    if not pa.types.is_struct(data_type):
        return False
    return [field.name for field in data_type] in (names, names[:_REQUIRED])


def as_blobs(array: Any, field: pa.Field[Any]) -> Any:
    """Return the array with the storage of blobs wherever ``field`` holds blobs, at any depth.

    Binary becomes inline blob values; other columns are unchanged.

    Raises
    ------
    SchemaError
        A value is a part of an object, but the column lacks members for parts.
    """
    if not _has_blob_type(field):
        return array
    if isinstance(array, pa.ChunkedArray):
        chunks: list[Any] = [as_blobs(chunk, field) for chunk in array.chunks]
        return pa.chunked_array(chunks, chunks[0].type) if chunks else array
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    data_type: Any = field.type
    mask = array.is_null() if array.null_count else None
    if _is_blob_type(field):
        return _storage(array, field, mask)
    if pa.types.is_struct(array.type) and pa.types.is_struct(data_type):
        fields = {field.name: field for field in data_type}
        members = [
            as_blobs(member, fields[field.name]) if field.name in fields else member
            for member, field in zip(array.flatten(), array.type, strict=True)
        ]
        inner = [
            pa.field(field.name, member.type, field.nullable)
            for member, field in zip(members, array.type, strict=True)
        ]
        return pa.StructArray.from_arrays(members, fields=inner, mask=mask)
    if isinstance(array, pa.ListArray | pa.LargeListArray):
        items = as_blobs(array.values, data_type.value_field)
        make: Any = pa.list_ if isinstance(array, pa.ListArray) else pa.large_list
        made = make(pa.field(array.type.value_field.name, items.type))
        buffers = array.buffers()[:2]
        return pa.Array.from_buffers(
            made, len(array), buffers, array.null_count, array.offset, children=[items]
        )
    return array


def _storage(array: Any, field: pa.Field[Any], mask: Any) -> Any:
    data_type: Any = field.type
    if _is_bytes(array.type):
        given = {"data": array.cast(pa.large_binary())}
    elif pa.types.is_struct(array.type):
        members = zip(array.type, array.flatten(), strict=True)
        given = {field.name: member for field, member in members}
    else:
        return array
    extra = [
        name for name, member in given.items()
        if data_type.get_field_index(name) < 0 and member.null_count < len(member)
    ]  # fmt: skip
    if extra:
        raise SchemaError(
            f"column {field.name!r}: the dataset stores no {' and '.join(extra)} of blobs, so "
            "parts of objects cannot be written. Write whole objects."
        )
    columns = [
        given[field.name].cast(field.type)
        if field.name in given
        else pa.nulls(len(array), field.type)
        for field in data_type
    ]
    return pa.StructArray.from_arrays(columns, fields=list(data_type), mask=mask)


def _is_blob_type(field: pa.Field[Any]) -> bool:
    """Return whether values are stored as blobs; columns of other types may have the name."""
    return pa.types.is_struct(field.type) and (field.metadata or {}).get(_NAME) == BLOB_V2.encode()


def _has_blob_type(field: pa.Field[Any]) -> bool:
    data_type: Any = field.type
    if _is_blob_type(field):
        return True
    if pa.types.is_struct(data_type):
        return any(map(_has_blob_type, data_type))
    if is_list(data_type):
        return _has_blob_type(data_type.value_field)
    return False


def _is_bytes(data_type: Any) -> bool:
    types = pa.types
    return (
        types.is_binary(data_type)
        or types.is_large_binary(data_type)
        or types.is_binary_view(data_type)
    )


# --- ``BlobColumn``: the values of a binary column as files -----------------------------


class BlobIterator(Iterator["IO[bytes] | None"]):
    """Files over the values of a binary column; None for nulls."""

    def __init__(self, binary_iter: Iterator[pa.Scalar]) -> None:
        self.binary_iter = binary_iter

    def __next__(self) -> IO[bytes] | None:
        value = next(self.binary_iter)
        if not value.is_valid:
            return None
        return io.BytesIO(value.as_py())


class BlobColumn:
    """A binary column whose values are read as files: iterate over it.

    The values are in memory. For large values use a blob column and ``take_blobs``.

    Parameters
    ----------
    blob_column
        Array or chunked array of binary or large_binary.

    Raises
    ------
    SchemaError
        The array is not binary.
    """

    def __init__(self, blob_column: pa.Array | pa.ChunkedArray) -> None:
        if not isinstance(blob_column, pa.Array | pa.ChunkedArray):
            raise SchemaError(
                "Expected a pyarrow.Array or pyarrow.ChunkedArray, "
                f"got {type(blob_column).__name__}"
            )
        kind = blob_column.type
        if not pa.types.is_binary(kind) and not pa.types.is_large_binary(kind):
            raise SchemaError(f"Expected a binary array, got {kind}")
        self.blob_column = blob_column

    def __iter__(self) -> BlobIterator:
        return BlobIterator(iter(self.blob_column))


# --- Values of blob columns for users: as files, as bytes, in parts ---------------------

Rows = Mapping[str, object]
"""``ids``, ``addresses`` and ``indices``; exactly one has values."""

_RANGE_PARTS = 3


def take_blobs(views: Views, column: str, rows: Rows, *, buffer_size: int) -> list[BlobFile | None]:
    """Return values as files; None for nulls.

    Raises
    ------
    SchemaError, ColumnNotFoundError
        The column is unknown, or is not a blob column.
    OptionError
        The selection is missing or ambiguous, or its values are invalid.
    RowIndexError
        A row is missing.
    CorruptFileError, DataFileMissingError
        A blob descriptor points beyond the end of a file, or to a missing file.
    """
    selected = select_rows(views, **rows)
    return [
        None if location is None else BlobFile(location, buffer_size)
        for location in locate_blobs(views, column, selected)
    ]


def read_blobs(
    views: Views, column: str, rows: Rows, *, in_order: bool
) -> list[tuple[int, bytes | None]]:
    """Return row addresses and bytes of values; :func:`take_blobs` lists the errors."""
    selected = select_rows(views, **rows)
    addresses = selected.addresses.tolist()
    located = dict(zip(addresses, locate_blobs(views, column, selected), strict=True))
    buffers = read_locations(list(located.values()))
    values = {
        address: None if buffer is None else buffer.to_pybytes()
        for address, buffer in zip(located, buffers, strict=True)
    }
    pairs = [(address, values[address]) for address in addresses]
    return pairs if in_order else sorted(pairs, key=lambda pair: pair[0])


def read_ranges(
    views: Views, column: str, requests: Sequence[tuple[int, int, int]], selector: str
) -> list[tuple[int, int, bytes | None]]:
    """Return parts of values. Raises as :func:`take_blobs` does, and for parts out of range."""
    if selector not in ("ids", "addresses", "indices"):
        raise OptionError(f"selector: expected ids, addresses or indices, found {selector!r}")
    wrong = next((request for request in requests if len(request) != _RANGE_PARTS), None)
    if wrong is not None:
        raise OptionError(f"requests: expected (row, offset, length), found {wrong!r}")
    selected = select_rows(views, **{selector: [row for row, _, _ in requests]})
    locations = locate_blobs(views, column, selected)
    buffers = read_blob_ranges(locations, [(offset, length) for _, offset, length in requests])
    addresses = selected.addresses.tolist()
    return [
        (number, address, None if buffer is None else buffer.to_pybytes())
        for number, (address, buffer) in enumerate(zip(addresses, buffers, strict=True))
    ]
