"""Values that Arrow takes as they are, and that are none of their type.

Reading a column does not look for them: for texts that takes as long again. Streams, which other
libraries read, look for decimals and times.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

import numpy as np
import pyarrow as pa

from glaive.arrow import compute as pc
from glaive.errors import CorruptFileError

__all__ = [
    "check_arrays",
    "check_numbers",
    "damaged_text",
    "has_checked_numbers",
    "wild_length",
]

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
