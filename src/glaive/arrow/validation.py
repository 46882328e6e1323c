"""Checks of rows and schemas that callers hand over, before glaive reads their memory."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from itertools import chain
from operator import is_
from typing import Any, Final

import pyarrow as pa

from glaive.arrow.chunked import concat_arrays
from glaive.errors import OptionError, SchemaError


def damaged_text(array: Any) -> str | None:
    """Return Arrow's message for a text, at any depth, of invalid UTF-8, or ``None``."""
    if isinstance(array, pa.ExtensionArray):
        return damaged_text(array.storage)
    kind, types = array.type, pa.types
    if types.is_dictionary(kind):
        return damaged_text(array.dictionary)
    if types.is_map(kind):
        array = array.cast(pa.list_(pa.struct([kind.key_field, kind.item_field])))
        kind = array.type
    if types.is_struct(kind):
        return next(filter(None, map(damaged_text, array.flatten())), None)
    if hasattr(kind, "value_field"):
        return damaged_text(array.flatten())
    if types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind):
        try:
            array.validate(full=True)
        except pa.ArrowInvalid as error:
            return str(error)
    return None


# --- Rows of callers in glaive's own memory ---------------------------------------------
#
# Arrays of Arrow share the memory of NumPy's. A generator, or a function, may fill an array again
# for its next rows, while a file being written still holds the rows before.

_COPY_BYTES: Final = 16 << 20
"""Bytes of rows per copy."""


def in_own_memory(rows: Iterable[Any]) -> Iterator[Any]:
    """Yield each batch or table of a stream as :func:`own_rows`, before asking for the next one.

    Large ones come in parts: the written part of the first makes room for the next.
    """
    return map(own_rows, chain.from_iterable(map(_parts, rows)))


def _parts(rows: Any) -> Iterable[Any]:
    size = rows.nbytes
    if size <= _COPY_BYTES:
        return (rows,)
    step = max(1, rows.num_rows * _COPY_BYTES // size)
    return (rows.slice(first, step) for first in range(0, rows.num_rows, step))


def own_rows(rows: Any) -> Any:
    """Return a record batch or table of the same rows, with copies of columns that may be changed.

    Share mapped memory, and memory that was read from a message: both are immutable. Share the
    items of dictionaries, too.
    """
    columns = rows.columns
    owned = list(map(_own_column, columns))
    if all(map(is_, columns, owned)):
        return rows
    return type(rows).from_arrays(owned, schema=rows.schema)


def _own_column(column: Any) -> Any:
    if not isinstance(column, pa.ChunkedArray):
        return _own_array(column)
    chunks = column.chunks
    owned = list(map(_own_array, chunks))
    return column if all(map(is_, chunks, owned)) else pa.chunked_array(owned, column.type)


def _own_array(array: Any) -> Any:
    if any(buffer is not None and buffer.is_mutable for buffer in array.buffers()):
        return concat_arrays([array, array.slice(0, 0)])  # Arrow hands on one array as it is
    return array


# --- Checks of a schema before anything walks it: few levels, and names that are texts
#
# Code that walks types, also in Arrow, recurses; and parsers of Arrow skip names.

MAX_NESTING: Final = 64
"""Maximum levels of a type, the column included. Data need far fewer; Python and the stack of a
thread can take far more."""


def check_schema(schema: pa.Schema) -> None:
    """Refuse types that are nested too deeply, and texts of invalid UTF-8.

    Raises
    ------
    SchemaError
        A column has more than :data:`MAX_NESTING` levels, or a name or metadata is invalid UTF-8.
    """
    try:
        _check_metadata(schema.metadata, "the schema")
        for field in schema:
            _check_metadata(field.metadata, field.name)
        for at, kind in enumerate(schema.types):
            if type(kind) is not pa.DataType:  # numbers, texts: most columns, which have no parts
                _check_parts(schema, at, kind)
    except UnicodeDecodeError as error:
        raise SchemaError(
            f"the name of a column or of a member is not UTF-8: {error}. Rename it before writing"
        ) from None


def _check_metadata(metadata: Mapping[bytes, bytes] | None, name: str) -> None:
    for key, value in metadata.items() if metadata else ():
        if key.endswith(b":extension:metadata"):  # any bytes, as Arrow says
            continue
        try:
            _ = key.decode(), value.decode()
        except UnicodeDecodeError:
            raise SchemaError(
                f"metadata of {name!r}: the value of {key!r} is not UTF-8. Encode bytes as Base64"
            ) from None


def _check_parts(schema: pa.Schema, at: int, kind: Any) -> None:
    level = _parts_of_type(kind)
    for _ in range(MAX_NESTING - 1):
        if not level:
            return
        level = [part for data_type in level for part in _parts_of_type(data_type)]
    if level:
        name = schema.field(at).name
        raise SchemaError(f"column {name!r}: nested deeper than {MAX_NESTING} levels. Flatten it.")


def _parts_of_type(kind: Any) -> list[Any]:
    if isinstance(kind, pa.BaseExtensionType):
        return [kind.storage_type]
    if isinstance(kind, pa.DictionaryType):
        return [kind.value_type]
    fields = [kind.field(at) for at in range(kind.num_fields)]
    for field in fields:
        _check_metadata(field.metadata, field.name)
    return [field.type for field in fields]


# --- Texts of invalid UTF-8. Readers of columns skip the check: it takes as long as the reading


@contextmanager
def refuse_half_characters(what: str) -> Iterator[None]:
    """Name what a caller gave if it turns out to be a text that UTF-8 lacks.

    Raises
    ------
    OptionError
        A text has half of a surrogate pair, as Python decodes invalid bytes.
    """
    try:
        yield
    except UnicodeEncodeError as error:
        if error.encoding != "utf-8":  # of the caller's own code, such as an iterator of rows
            raise
        part = str(error.object)[max(error.start - 20, 0) : error.start + 20]
        raise OptionError(
            f"{what}: {part!r} has half of a surrogate pair, which no text in UTF-8 has. Check how "
            "it was decoded."
        ) from None


# --- Metadata as Arrow's C data interface has it; pyarrow shows it nowhere else ---------
#
# These are the parameters of built-in extension types, and keys that occur more than once.


class _ArrowSchema(ctypes.Structure):
    """Head of ``ArrowSchema``."""

    _fields_ = (
        ("format", ctypes.c_char_p),
        ("name", ctypes.c_char_p),
        ("metadata", ctypes.c_void_p),
    )


@cache
def _pointer() -> Any:
    """Return ``PyCapsule_GetPointer`` with types of its own; other users of it keep theirs."""
    kind = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)
    return kind(("PyCapsule_GetPointer", ctypes.pythonapi))


def exported_metadata(exporter: pa.Field[Any] | pa.Schema) -> list[tuple[bytes, bytes]]:
    """Return the metadata of a field or a schema, in order, with keys that repeat."""
    capsule = exporter.__arrow_c_schema__()  # which releases what it holds
    at = _ArrowSchema.from_address(_pointer()(capsule, b"arrow_schema")).metadata

    def number() -> int:
        nonlocal at
        value = ctypes.c_int32.from_address(at).value
        at += 4
        return value

    def text() -> bytes:
        nonlocal at
        size = number()
        value = ctypes.string_at(at, size)
        at += size
        return value

    return [(text(), text()) for _ in range(number())] if at else []


# --- Structs within structs of a slice, for importers of Arrow's C data -----------------
#
# A slice of a struct in Arrow is an offset above members that stay whole. DuckDB refuses such an
# offset above a struct, and other importers overlook it. Here such columns are copied instead.


def nests_structs(schema: pa.Schema) -> bool:
    """Return whether a column is a struct with a struct for a member."""
    return any(_nests(field.type) for field in schema)


def cut_members(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the same rows, with columns of structs in structs copied to have their offset at 0."""
    columns = [
        concat_arrays([column, column.slice(0, 0)]) if _nests(column.type) else column
        for column in batch.columns
    ]
    return pa.RecordBatch.from_arrays(columns, schema=batch.schema)


def _nests(kind: Any) -> bool:
    kind = _stored(kind)
    return pa.types.is_struct(kind) and any(
        pa.types.is_struct(_stored(member.type)) for member in kind
    )


def _stored(kind: Any) -> Any:
    return kind.storage_type if isinstance(kind, pa.BaseExtensionType) else kind
