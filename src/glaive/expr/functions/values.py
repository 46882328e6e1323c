"""Shared by functions on strings: sizes, and computing some rows again row by row."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from glaive.errors import FilterError
from glaive.expr.functions.untyped import pa, pc
from glaive.expr.rows import count_rows, map_rows
from glaive.expr.sizes import MAX_VALUE_BYTES, check_bytes, has_offsets, largest
from glaive.types import MAX_OFFSET

_CUT_OFF: Final = "Invalid UTF8 sequence in input"

_FIRST_BYTES: Final = (0xC0, 0xE0, 0xF0)
"""The least first byte of a letter that goes on behind the last, last but one, and so on."""

_JOINED: Final = 16
"""Values of a row may be joined to one of this many times the largest of them, however large."""


def all_valid(*arguments: Any) -> Any:
    """Which rows have no null in any argument."""
    valid = pa.repeat(pa.scalar(True), count_rows(arguments))
    for argument in arguments:
        valid = pc.and_(valid, pc.is_valid(argument))
    return valid


def check_growth(name: str, rows: int, before: int, size: int) -> None:
    """Check that the value of a single row, of ``before`` bytes, may become one of ``size`` bytes.

    Calls may be nested, and each make a value longer many times: without a limit a filter of a few
    words would ask for any amount of memory.

    Raises
    ------
    FilterError
        It would be longer than a function may make it.
    """
    if rows == 1 and size > max(MAX_VALUE_BYTES, before):
        raise FilterError(
            f"{name} would make up to {size} bytes for one row; at most {MAX_VALUE_BYTES} fit"
        )


def check_joined(name: str, rows: int, given: Sequence[Any], size: int, kind: Any) -> None:
    """Check that the values of each row may be joined to one of a type, ``size`` bytes in all.

    A call may name a column of long values any number of times.

    Raises
    ------
    CapacityError
        Process fewer rows at a time.
    FilterError
        There is one row, and its value would be too long.
    """
    check_bytes(name, size, rows, kind)
    if size > MAX_VALUE_BYTES:
        check_growth(name, rows, _JOINED * max(map(largest, given)), size)


def compute_strings(name: str, compute: Callable[[Any], Any], text: Any, size: int) -> Any:
    """Compute strings with Arrow, whose offsets overflow if they get too long for their type.

    Parameters
    ----------
    size
        Upper bound of the bytes of the result.

    Raises
    ------
    CapacityError
        Process fewer rows at a time.
    """
    if len(text) > 1:
        check_bytes(name, size, len(text), text.type)
    if size <= MAX_OFFSET or not has_offsets(text.type):
        return compute(text)
    return compute(text.cast(pa.large_string())).cast(text.type)


def patch(result: Any, rows: Any, compute: Callable[[str], Any], text: Any) -> Any:
    """Compute some rows again with a Python function.

    Parameters
    ----------
    result
        Values for all rows.
    rows
        A boolean array: the rows to replace.
    """
    rows = pc.fill_null(rows, False)
    if not rows.true_count:
        return result
    right = map_rows(result.type, compute, text.filter(rows))
    return pc.replace_with_mask(result, rows, right)


def whole_letters(text: Any) -> Any:
    """The texts, if they are UTF-8: else Arrow takes the rest of a letter from the bytes behind.

    Behind the last text is other memory of this process. For functions that change letters.

    Raises
    ------
    pyarrow.ArrowInvalid
        They are not.
    """
    try:
        text.validate(full=True)
    except pa.ArrowInvalid:
        raise pa.ArrowInvalid(_CUT_OFF) from None
    return text


def whole_end(text: Any) -> Any:
    """The texts, if the last of them does not end within a letter.

    For functions of Arrow that look for the end of a letter in the bytes behind, but return bytes
    of the text alone. Those that count letters, compare, or search do neither.

    Raises
    ------
    pyarrow.ArrowInvalid
        It does.
    """
    if not isinstance(text, pa.Array) or not len(text):
        return text
    _, offsets, data = text.buffers()
    dtype = np.dtype(np.int64 if text.type == pa.large_string() else np.int32)
    begin, end = (
        int(np.frombuffer(offsets, dtype, 1, dtype.itemsize * at)[0])
        for at in (text.offset, text.offset + len(text))
    )
    last = data[max(begin, end - len(_FIRST_BYTES)) : end].to_pybytes() if end > begin else b""
    if any(byte >= first for byte, first in zip(last[::-1], _FIRST_BYTES, strict=False)):
        raise pa.ArrowInvalid(_CUT_OFF)
    return text


def check_size(name: str, sizes: Any, *, unit: str = "bytes of text", unit_bytes: int = 1) -> None:
    """Check that values of these sizes may be made.

    Parameters
    ----------
    sizes
        Size of each row's value, an Arrow array; nulls count as 0.
    unit, unit_bytes
        The unit of sizes, and its bytes.

    Raises
    ------
    FilterError
        A single value is too large.
    CapacityError
        Process fewer rows at a time.
    """
    largest = int(pc.max(sizes).as_py() or 0)
    if largest * unit_bytes > MAX_VALUE_BYTES:
        limit = MAX_VALUE_BYTES // unit_bytes
        raise FilterError(f"{name} would make {largest} {unit} for one row; at most {limit} fit")
    check_bytes(name, int(pc.sum(sizes).as_py() or 0) * unit_bytes, len(sizes))
