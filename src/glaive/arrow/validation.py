"""Checks of rows and schemas that callers hand over, before glaive reads their memory."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from itertools import chain
from typing import Any, Final

import numpy as np
import pyarrow as pa

from glaive.arrow import compute as pc
from glaive.arrow.chunked import concat_arrays
from glaive.errors import CorruptFileError, OptionError, SchemaError

_VIEW_WORDS: Final = 4
"""Numbers of 32 bits in a view, of which the first is its length."""

_MOST_OF_NULLS: Final = 4096
"""What a view that is null may have for its length, whatever bytes there are."""

_DAY: Final = {
    unit: 86_400 * per_second
    for unit, per_second in {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}.items()
}
"""How long a day is. A time may be its end, 24:00, which Arrow has none for, but others do."""


def damaged_text(array: Any) -> str | None:
    """What Arrow says of a text, at any depth of the array, that is not UTF-8; None: all are."""
    return _fault(array, _text_fault)


def check_arrays(rows: pa.RecordBatch | pa.Table) -> None:
    """Refuse rows of a message of Arrow that are no arrays: its offsets are any at all.

    Raises
    ------
    pyarrow.ArrowInvalid
        Says what is wrong.
    """
    rows.validate(full=True)
    try:
        fault = next(filter(None, map(wild_length, _chunks_of(rows))), None)
    except KeyError as error:  # the number of the type
        raise pa.ArrowInvalid(
            f"pyarrow has no arrays of a type in {rows.schema.names}, such as months"
        ) from error
    if fault is not None:
        raise pa.ArrowInvalid(fault)


def _chunks_of(rows: pa.RecordBatch | pa.Table) -> Iterator[Any]:
    for column in rows.columns:
        yield from column.chunks if isinstance(column, pa.ChunkedArray) else [column]


def wild_length(array: Any) -> str | None:
    """What is wrong with a view at any depth that is null and has no length; None: all have one.

    Validating does not look at views that are null. A cast ends the process over some below 0, and
    asks for the memory of all.
    """
    kind, types = array.type, pa.types
    if isinstance(array, pa.ExtensionArray):
        return wild_length(array.storage)
    if types.is_dictionary(kind):
        return wild_length(array.dictionary)
    if types.is_string_view(kind) or types.is_binary_view(kind):
        end = array.offset + len(array)
        _, views, *data = array.buffers()
        words = np.frombuffer(views or b"", np.int32, _VIEW_WORDS * end)
        lengths = words[_VIEW_WORDS * array.offset :: _VIEW_WORDS]
        if (lengths < 0).any():
            return "a view has a length below 0"
        # Before pyarrow 26 a buffer may be missing: it has no bytes.
        longest = max([_MOST_OF_NULLS, *(buffer.size for buffer in data if buffer is not None)])
        return f"a view is longer than {longest} bytes" if (lengths > longest).any() else None
    if types.is_map(kind):
        parts = [array.keys, array.items]
    elif types.is_struct(kind) or types.is_union(kind):
        parts = [array.field(at) for at in range(kind.num_fields)]
    else:
        parts = [array.values] if kind.num_fields else []
    return next(filter(None, map(wild_length, parts)), None)


def check_numbers(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The batch, if its decimals have no more digits than their types, and its times are of a day.

    DuckDB does not look. Other decimals do not fit the numbers that it holds them in: its result
    would have what was in its memory there before. Digits of other times are looked up in a table
    of fewer, in versions before 2: the result has what lies elsewhere in memory, or the process
    ends.

    Raises
    ------
    CorruptFileError
        A decimal has more digits, or a time is of no day.
    """
    for field, column in zip(batch.schema, batch.columns, strict=True):
        for expected, fault in _NUMBERS.items():
            found = _fault(column, fault) if has_checked_numbers(field.type) else None
            if found is not None:
                raise CorruptFileError(
                    f"column {field.name!r}", expected=expected, found=found, where="a scan"
                )
    return batch


def has_checked_numbers(kind: Any) -> bool:
    """Whether there are decimals or times at any depth of a type."""
    if isinstance(kind, pa.BaseExtensionType):
        return has_checked_numbers(kind.storage_type)
    if pa.types.is_dictionary(kind):
        return has_checked_numbers(kind.value_type)
    below = (kind.field(at).type for at in range(kind.num_fields))
    own = pa.types.is_decimal(kind) or pa.types.is_time(kind)
    return bool(own) or any(map(has_checked_numbers, below))


def _text_fault(array: Any) -> str | None:
    kind, types = array.type, pa.types
    is_text = types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind)
    return _arrow_fault(array) if is_text else None


def _decimal_fault(array: Any) -> str | None:
    return _arrow_fault(array) if pa.types.is_decimal(array.type) else None


def _arrow_fault(array: Any) -> str | None:
    try:
        array.validate(full=True)
    except pa.ArrowInvalid as error:
        return str(error)
    return None


def _time_fault(array: Any) -> str | None:
    kind = array.type
    if not pa.types.is_time(kind):
        return None
    numbers = array.view(pa.int64() if kind.bit_width == 64 else pa.int32())
    ends: Any = pc.min_max(numbers).as_py()
    wrong = (end for end in ends.values() if end is not None and not 0 <= end <= _DAY[kind.unit])
    return next((f"{end} {kind.unit} since midnight" for end in wrong), None)


def _fault(array: Any, leaf_fault: Callable[[Any], str | None]) -> str | None:
    """What is wrong with a leaf at any depth of the array."""
    if isinstance(array, pa.ExtensionArray):
        return _fault(array.storage, leaf_fault)
    kind, types = array.type, pa.types
    if types.is_dictionary(kind):
        return _fault(array.dictionary, leaf_fault)
    if types.is_map(kind):
        array = array.cast(pa.list_(pa.struct([kind.key_field, kind.item_field])))
        kind = array.type
    if types.is_struct(kind):
        members = (_fault(one, leaf_fault) for one in array.flatten())
        return next(filter(None, members), None)
    return (
        _fault(array.flatten(), leaf_fault) if hasattr(kind, "value_field") else leaf_fault(array)
    )


_NUMBERS: Final[dict[str, Callable[[Any], str | None]]] = {
    "decimals of its type": _decimal_fault,
    "times from 00:00 to 24:00": _time_fault,
}


# --- Rows that callers hand over: whether their arrays stay within their memory ---------
# Arrow reads a message, or takes another library's arrays, as they are: offsets, numbers of items
# of a dictionary and counts of nulls may be any at all. What reads values by these ends the
# process. Values are not looked at: texts need not be UTF-8, nor decimals have the digits of their
# type.

_NOTHING: Final = pa.struct([])

_ANY_VALUES: Final = frozenset(
    kind.id
    for kind in (
        pa.bool_(), pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(),
        pa.uint32(), pa.uint64(), pa.float16(), pa.float32(), pa.float64(), pa.null(), pa.binary(),
        pa.large_binary(), pa.binary(1), pa.timestamp("s"), pa.duration("s"), pa.date32(),
    )
)  # fmt: skip
"""Types without children of which validating refuses no values."""

_OTHER_TYPES: Final = {
    pa.string().id: pa.binary(),
    pa.large_string().id: pa.large_binary(),
    pa.string_view().id: pa.binary_view(),
    pa.date64().id: pa.int64(),
    pa.time32("s").id: pa.int32(),
    pa.time64("us").id: pa.int64(),
}
"""Types of the same memory whose values may be any."""

_Path = tuple[int, ...]
_Known = dict[_Path, Any]
"""The items of dictionaries that were looked at last, by column and member."""

Rows = Any
"""A record batch or a table."""


def checked_layout(rows: Iterable[Rows], what: str) -> Iterator[Rows]:
    """The rows, each of which is looked at before it is handed on.

    Costs about 1 ns for each text and list, 3 for each number of an item of a dictionary. Items of
    a dictionary that several batches share are looked at once.

    Raises
    ------
    SchemaError
        Names the column.
    """
    known: _Known = {}
    for item in rows:
        for at, column in enumerate(item.columns):
            for array in column.chunks if isinstance(column, pa.ChunkedArray) else [column]:
                try:
                    _check(array, known, (at,))
                except (pa.ArrowInvalid, pa.ArrowIndexError) as error:  # the latter of views
                    name = item.schema.field(at).name
                    raise SchemaError(
                        f"{what}: column {name!r} is no array of {array.type}: {error}. Check "
                        "where it comes from by validate(full=True) of it."
                    ) from None
        yield item


def _check(array: Any, known: _Known, path: _Path) -> None:
    """Refuse what leaves its memory, in the rows of an array alone: slices share their children."""
    kind, types = array.type, pa.types
    if kind.id in _ANY_VALUES:
        array.validate(full=True)
    elif kind.id in _OTHER_TYPES:
        array.view(_OTHER_TYPES[kind.id]).validate(full=True)
        fault = wild_length(array) if types.is_string_view(kind) else None
        if fault is not None:
            raise pa.ArrowInvalid(fault)
    elif types.is_decimal(kind):
        array.view(pa.binary(kind.bit_width // 8)).validate(full=True)
    elif isinstance(array, pa.ExtensionArray):
        _check(array.storage, known, path)
    else:
        array.validate()  # its children are as long as it says
        _check_nested(array, known, path)


def _check_nested(array: Any, known: _Known, path: _Path) -> None:
    kind, types = array.type, pa.types
    if types.is_dictionary(kind):
        _check_dictionary(array, known, path)
    elif types.is_struct(kind):
        _check_nulls(array)
        for at in range(kind.num_fields):
            _check(array.field(at), known, (*path, at))
    elif types.is_fixed_size_list(kind):
        _check_nulls(array)
        size = kind.list_size
        _check(array.values.slice(array.offset * size, len(array) * size), known, (*path, 0))
    elif types.is_list(kind) or types.is_large_list(kind) or types.is_map(kind):
        _check_lists(array, known, path)
    else:
        array.validate(full=True)
        fault = wild_length(array) if types.is_binary_view(kind) else None
        if fault is not None:
            raise pa.ArrowInvalid(fault)


def _check_nulls(array: Any) -> None:
    """The bitmap of an array, whatever its children are."""
    validity = array.buffers()[0]
    _of_buffers(_NOTHING, array, [validity], []).validate(full=True)


def _check_lists(array: Any, known: _Known, path: _Path) -> None:
    """The offsets of lists, then the items between the first and the last of them."""
    kind, items = array.type, array.values
    count = len(items)
    nulls = pa.Array.from_buffers(pa.null(), count, [None], count)
    plain = pa.large_list(pa.null()) if pa.types.is_large_list(kind) else pa.list_(pa.null())
    _of_buffers(plain, array, array.buffers()[:2], [nulls]).validate(full=True)
    if len(array):
        offsets = array.offsets
        first = offsets[0].as_py()
        _check(items.slice(first, offsets[-1].as_py() - first), known, (*path, 0))


def _of_buffers(kind: pa.DataType, array: Any, buffers: list[Any], children: list[Any]) -> Any:
    """An array of another type over the first buffers of one."""
    nulls, offset = array.null_count, array.offset
    return pa.Array.from_buffers(kind, len(array), buffers, nulls, offset, children=children)


def _check_dictionary(array: Any, known: _Known, path: _Path) -> None:
    """The numbers of items, and the items, if they are not those of a batch before."""
    items, numbers = array.dictionary, array.indices
    numbers.validate(full=True)
    if numbers.null_count < len(numbers):
        least, most = _bounds(numbers)
        if least < 0 or most >= len(items):
            raise pa.ArrowInvalid(f"number {least} or {most} of {len(items)} items")
    if path not in known or not _same_memory(items, known[path]):
        _check(items, known, (*path, 0))
        known[path] = items


def _bounds(numbers: Any) -> tuple[int, int]:
    import pyarrow.compute as pc

    found: Any = pc.min_max(numbers)
    return found["min"].as_py(), found["max"].as_py()


def _same_memory(items: Any, others: Any) -> bool:
    """Whether two arrays are the same part of the same memory, which ``others`` keeps."""
    kind = items.type
    if kind.num_fields or pa.types.is_dictionary(kind):  # buffers of dictionaries are not among its
        return False
    if kind != others.type or len(items) != len(others) or items.offset != others.offset:
        return False
    return [_place(one) for one in items.buffers()] == [_place(one) for one in others.buffers()]


def _place(buffer: pa.Buffer | None) -> tuple[int, int] | None:
    return None if buffer is None else (buffer.address, buffer.size)


# --- Rows of callers in memory that nobody else writes to -------------------------------
# Arrays of NumPy become Arrow's without a copy. A generator, or a function, may fill one again for
# its next rows, while a file being written still holds those before.

_MOST: Final = 16 << 20
"""Bytes of rows that are copied at a time."""


def in_own_memory(rows: Iterable[Any]) -> Iterator[Any]:
    """Each batch or table of a stream as :func:`own_rows`, before the next one is asked for.

    Large ones in parts: what is written of the first makes room for the next.
    """
    return map(own_rows, chain.from_iterable(map(_parts, rows)))


def _parts(rows: Any) -> Iterable[Any]:
    size = rows.nbytes
    if size <= _MOST:
        return (rows,)
    step = max(1, rows.num_rows * _MOST // size)
    return (rows.slice(first, step) for first in range(0, rows.num_rows, step))


def own_rows(rows: Any) -> Any:
    """A record batch or table of the same rows, with copies of columns that somebody can change.

    What is mapped or was read out of a message cannot be changed, and is not copied; nor are the
    items of a dictionary.
    """
    columns = rows.columns
    owned = list(map(_own_column, columns))
    if all(map(_is_same, columns, owned)):
        return rows
    return type(rows).from_arrays(owned, schema=rows.schema)


def _is_same(one: Any, other: Any) -> bool:
    return one is other


def _own_column(column: Any) -> Any:
    if not isinstance(column, pa.ChunkedArray):
        return _own_array(column)
    chunks = column.chunks
    owned = list(map(_own_array, chunks))
    return column if all(map(_is_same, chunks, owned)) else pa.chunked_array(owned, column.type)


def _own_array(array: Any) -> Any:
    if any(buffer is not None and buffer.is_mutable for buffer in array.buffers()):
        return concat_arrays([array, array.slice(0, 0)])  # Arrow hands on one array as it is
    return array


# --- What is asked of a schema before anything walks it: few levels, and names that are texts
# Code that walks types, also in Arrow, recurses; and parsers of Arrow do not look at names.

MAX_NESTING: Final = 64
"""Maximum levels of a type, the column included: far more than data need, and far fewer than
Python or the stack of a thread can take."""


_JSON_STRINGS: Final = re.compile(rb'"[^"\\\n]*+(?:\\.[^"\\\n]*+)*+"?')
"""Within a line, as JSON has them: one without an end hides nothing of the next line.

It is no JSON, and readers stop there. It is matched up to the end of its line: else each mark that
is escaped in it would begin another search for that end.
"""


def without_json_strings(text: bytes | memoryview) -> bytes:
    """JSON without its strings, in which brackets stand for nothing."""
    return _JSON_STRINGS.sub(b"", text)


def check_schema(schema: pa.Schema) -> None:
    """Refuse types that are nested too deeply, without recursion, and texts that are not UTF-8.

    Raises
    ------
    SchemaError
        A column has more than :data:`MAX_NESTING` levels, or a name or metadata is not UTF-8.
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


# --- Texts that are not UTF-8. Reading a column does not look for them: that takes as long again


@contextmanager
def refuse_half_characters(what: str) -> Iterator[None]:
    """Name what a caller gave if it turns out to be a text that UTF-8 cannot hold.

    Raises
    ------
    OptionError
        A text has half of a surrogate pair, as Python has of bytes that it could not decode.
    """
    try:
        yield
    except UnicodeEncodeError as error:
        if error.encoding != "utf-8":  # of the caller's own code, such as an iterator of rows
            raise
        near = str(error.object)[max(error.start - 20, 0) : error.start + 20]
        raise OptionError(
            f"{what}: {near!r} has half of a surrogate pair, which no text in UTF-8 has. Check how "
            "it was decoded."
        ) from None


# --- Metadata as Arrow's C data interface has it, which pyarrow does not show otherwise -
# That is the parameters of built-in extension types, and keys that are there more than once.


class _ArrowSchema(ctypes.Structure):
    """Head of ``ArrowSchema``."""

    _fields_ = (
        ("format", ctypes.c_char_p),
        ("name", ctypes.c_char_p),
        ("metadata", ctypes.c_void_p),
    )


@cache
def _pointer() -> Any:
    """``PyCapsule_GetPointer``, with types that nobody else's use of it sees."""
    kind = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)
    return kind(("PyCapsule_GetPointer", ctypes.pythonapi))


def exported_metadata(exporter: pa.Field[Any] | pa.Schema) -> list[tuple[bytes, bytes]]:
    """The metadata of a field or a schema, in order, with keys that repeat."""
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


# --- Structs within structs of a slice, for those who import Arrow's C data -------------
# A slice of a struct in Arrow is an offset above members that stay whole. DuckDB refuses such an
# offset above a struct, and other importers overlook it. Here members are cut instead.


def nests_structs(schema: pa.Schema) -> bool:
    """Whether a column is a struct with a struct for a member."""
    return any(_nests(field.type) for field in schema)


def cut_members(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The same rows, with no offset above a struct; copies nothing but the nulls of structs."""
    columns = [_cut(column) if _nests(column.type) else column for column in batch.columns]
    return pa.RecordBatch.from_arrays(columns, schema=batch.schema)


def _nests(kind: Any) -> bool:
    kind = _stored(kind)
    return pa.types.is_struct(kind) and any(
        pa.types.is_struct(_stored(member.type)) for member in kind
    )


def _stored(kind: Any) -> Any:
    return kind.storage_type if isinstance(kind, pa.BaseExtensionType) else kind


def _cut(array: Any) -> Any:
    if isinstance(array, pa.ExtensionArray):
        return pa.ExtensionArray.from_storage(array.type, _cut(array.storage))
    if not pa.types.is_struct(array.type) or not array.type.num_fields:
        return array
    members = [_cut(array.field(at)) for at in range(array.type.num_fields)]
    mask = array.is_null() if array.null_count else None
    return pa.StructArray.from_arrays(members, fields=list(array.type), mask=mask)
