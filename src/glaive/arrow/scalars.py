"""Constants of plain types, made without ``pyarrow.array``, which imports pandas (0.2 s)."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from itertools import accumulate
from typing import Any, Final

import pyarrow as pa

__all__ = ["FALSE", "constants", "scalar"]

_FORMATS: Final = {
    pa.int8(): "b",
    pa.int16(): "h",
    pa.int32(): "i",
    pa.int64(): "q",
    pa.uint8(): "B",
    pa.uint16(): "H",
    pa.uint32(): "I",
    pa.uint64(): "Q",
    pa.float32(): "f",
    pa.float64(): "d",
}

_OFFSETS: Final = {
    pa.string(): ("i", str),
    pa.large_string(): ("q", str),
    pa.binary(): ("i", bytes),
    pa.large_binary(): ("q", bytes),
}

_FEW: Final = 10_000
"""Values that are made one by one; more take longer than pandas."""


def scalar(value: object, kind: pa.DataType) -> Any:
    """A value of a type, as ``pyarrow.scalar`` makes it; raises what that raises."""
    if value is None:
        null: Any = kind
        return pa.nulls(1, null)[0]
    array = _plain([value], kind)
    return pa.scalar(value, kind) if array is None else array[0]


def constants(values: Sequence[Any], kind: pa.DataType) -> Any:
    """Values of a type, as ``pyarrow.array`` makes them; raises what that raises."""
    array = _plain(values, kind)
    return pa.array(values, kind) if array is None else array


def _plain(values: Sequence[Any], kind: pa.DataType) -> Any:
    """An array without nulls; None where ``pyarrow`` has to make it, or to say what is wrong."""
    if len(values) > _FEW:
        return None
    types = set(map(type, values))
    form = _FORMATS.get(kind)
    if form is None and pa.types.is_temporal(kind) and not pa.types.is_interval(kind):
        form = {32: "i", 64: "q"}[kind.bit_width]
    buffers: list[pa.Buffer | None] = [None]
    if form is not None and types == {float if form in "fd" else int}:
        try:
            buffers.append(pa.py_buffer(struct.pack(f"<{len(values)}{form}", *values)))
        except (struct.error, OverflowError):
            return None
    elif kind == pa.bool_() and types == {bool} and len(values) == 1:
        buffers.append(pa.py_buffer(bytes(values)))
    elif kind in _OFFSETS and types == {_OFFSETS[kind][1]}:
        try:
            raw = [value if isinstance(value, bytes) else value.encode() for value in values]
        except UnicodeEncodeError:
            return None
        ends = list(accumulate(map(len, raw), initial=0))
        form, _ = _OFFSETS[kind]
        if form == "i" and ends[-1] >= 2**31:
            return None
        offsets = struct.pack(f"<{len(ends)}{form}", *ends)
        buffers += [pa.py_buffer(offsets), pa.py_buffer(b"".join(raw))]
    else:
        return None
    return pa.Array.from_buffers(kind, len(values), buffers)


FALSE: Final = scalar(False, pa.bool_())
"""``False``, which ``pyarrow.compute`` would make with ``pyarrow.scalar``."""
