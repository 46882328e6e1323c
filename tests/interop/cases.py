"""Columns of every type that the file format holds, of any length, for the interop matrix."""

from __future__ import annotations

import datetime as dt
import os
from collections.abc import Callable
from decimal import Decimal
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

__all__ = [
    "COLUMNS",
    "NIGHTLY",
    "SIZES",
    "as_bits",
    "assert_reads_same",
    "assert_same",
    "column",
    "same_bits",
    "table",
]

NIGHTLY = os.environ.get("HYPOTHESIS_PROFILE") == "nightly"

SIZES = (0, 1, 1023, 1024, 1025, 50_000 if NIGHTLY else 10_000)
"""Row counts around the borders of chunks, and many chunks."""

Maker = Callable[[np.random.Generator, int], pa.Array]


def _nulls(rng: np.random.Generator, values: pa.Array, share: float = 0.2) -> pa.Array:
    """Make about a fifth of the values null."""
    if len(values) == 0:
        return values
    gone = pa.array(rng.random(len(values)) < share)
    return pc.if_else(gone, pa.scalar(None, values.type), values)


def _int(kind: pa.DataType) -> Maker:
    def make(rng: np.random.Generator, count: int) -> pa.Array:
        limits = np.iinfo(np.dtype(str(kind)))
        return pa.array(rng.integers(limits.min, limits.max, count, limits.dtype, endpoint=True))

    return make


def _small(kind: pa.DataType) -> Maker:
    return lambda rng, count: pa.array(rng.integers(0, 100, count)).cast(kind)


def _runs(_rng: np.random.Generator, count: int) -> pa.Array:
    return pa.array(np.repeat(np.arange(count // 50 + 1), 50)[:count].astype(np.int32))


def _float(kind: type) -> Maker:
    def make(rng: np.random.Generator, count: int) -> pa.Array:
        values = rng.normal(size=count).astype(kind)
        values[::7] = -0.0
        values[1::11] = np.nan
        values[2::13] = np.inf
        return pa.array(values)

    return make


def _view(storage: pa.DataType, kind: pa.DataType, high: int) -> Maker:
    low = 0 if pa.types.is_time(kind) else -high
    return lambda rng, count: pa.array(rng.integers(low, high, count), storage).view(kind)


def _decimal(kind: pa.DataType) -> Maker:
    def make(rng: np.random.Generator, count: int) -> pa.Array:
        numbers = rng.integers(-(10**12), 10**12, count)
        return pa.array([Decimal(int(n)).scaleb(-2) for n in numbers], kind)

    return make


_WORDS = ["", "a", "lance", "columnar format", "größe", "日本語", "x" * 40]


def _text(kind: pa.DataType, *, distinct: bool = True) -> Maker:
    def make(rng: np.random.Generator, count: int) -> pa.Array:
        if not distinct:
            return pa.array([_WORDS[i] for i in rng.integers(0, len(_WORDS), count)], kind)
        picks = rng.integers(0, len(_WORDS), (count, 3)).tolist()
        words = [f"{_WORDS[a]} {_WORDS[b]} {i} {_WORDS[c]}" for i, (a, b, c) in enumerate(picks)]
        return pa.array(words).cast(kind)

    return make


def _long(kind: pa.DataType, size: int) -> Maker:
    def make(rng: np.random.Generator, count: int) -> pa.Array:
        few = min(count, 300)
        body = rng.integers(97, 123, size, np.uint8).tobytes()
        cuts = rng.integers(0, size, few).tolist()
        values = [body[cut:] for cut in cuts]
        return pa.array([values[i % few] for i in range(count)], pa.large_binary()).cast(kind)

    return make


def _fixed_binary(width: int) -> Maker:
    def make(rng: np.random.Generator, count: int) -> pa.Array:
        raw = rng.integers(0, 256, count * width, np.uint8).tobytes()
        return pa.Array.from_buffers(pa.binary(width), count, [None, pa.py_buffer(raw)])

    return make


def _vector(kind: type, size: int) -> Maker:
    def make(rng: np.random.Generator, count: int) -> pa.Array:
        flat = rng.normal(size=count * size).astype(kind)
        return pa.FixedSizeListArray.from_arrays(pa.array(flat), size)

    return make


def _vector_with_holes(rng: np.random.Generator, count: int) -> pa.Array:
    flat = _nulls(rng, pa.array(rng.normal(size=count * 4).astype(np.float32)))
    return pa.FixedSizeListArray.from_arrays(flat, 4)


def _vector_of_nulls(_rng: np.random.Generator, count: int) -> pa.Array:
    """Lists that are there, and none of their items."""
    return pa.FixedSizeListArray.from_arrays(pa.nulls(count * 3, pa.float32()), 3)


def _offsets(rng: np.random.Generator, count: int, kind: type, most: int = 6) -> pa.Array:
    lengths = rng.integers(0, most, count)
    return pa.array(np.concatenate(([0], np.cumsum(lengths))).astype(kind))


def _list(item: Maker, *, large: bool = False, most: int = 6) -> Maker:
    def make(rng: np.random.Generator, count: int) -> pa.Array:
        offsets = _offsets(rng, count, np.int64 if large else np.int32, most)
        items = _nulls(rng, item(rng, offsets[-1].as_py()))
        return (pa.LargeListArray if large else pa.ListArray).from_arrays(offsets, items)

    return make


def _struct(**members: Maker) -> Maker:
    def make(rng: np.random.Generator, count: int) -> pa.Array:
        arrays = [_nulls(rng, member(rng, count)) for member in members.values()]
        return pa.StructArray.from_arrays(arrays, names=list(members))

    return make


def _all_null(kind: pa.DataType) -> Maker:
    return lambda _rng, count: pa.nulls(count, kind)


def _constant(value: object, kind: pa.DataType) -> Maker:
    return lambda _rng, count: pa.array([value] * count, kind)


_I32 = _int(pa.int32())

COLUMNS: dict[str, Maker] = {
    **{f"{k}_full": _int(k) for k in (pa.int8(), pa.int16(), pa.int32(), pa.int64())},
    **{f"{k}_full": _int(k) for k in (pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64())},
    **{f"{k}_small": _small(k) for k in (pa.int8(), pa.int16(), pa.int32(), pa.int64())},
    **{f"{k}_small": _small(k) for k in (pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64())},
    "int32_runs": _runs,
    "float16": _float(np.float16),
    "float32": _float(np.float32),
    "float64": _float(np.float64),
    "bool": lambda rng, count: pa.array(rng.random(count) < 0.5),
    "date32": _view(pa.int32(), pa.date32(), 20_000),
    "date64": lambda rng, count: pa.array(rng.integers(0, 9000, count) * 86_400_000).view(
        pa.date64()
    ),
    "time32_s": _view(pa.int32(), pa.time32("s"), 86_000),
    "time32_ms": _view(pa.int32(), pa.time32("ms"), 86_000_000),
    "time64_us": _view(pa.int64(), pa.time64("us"), 10**9),
    "time64_ns": _view(pa.int64(), pa.time64("ns"), 10**12),
    **{
        f"timestamp_{u}": _view(pa.int64(), pa.timestamp(u), 10**9) for u in ("s", "ms", "us", "ns")
    },
    "timestamp_tz": _view(pa.int64(), pa.timestamp("us", "Europe/Berlin"), 10**15),
    **{f"duration_{u}": _view(pa.int64(), pa.duration(u), 10**9) for u in ("s", "ms", "us", "ns")},
    "decimal128": _decimal(pa.decimal128(20, 2)),
    "decimal256": _decimal(pa.decimal256(50, 2)),
    "string": _text(pa.string()),
    "string_few": _text(pa.string(), distinct=False),
    "large_string": _text(pa.large_string()),
    "large_string_few": _text(pa.large_string(), distinct=False),
    "string_long": _long(pa.string(), 700),
    "binary": _text(pa.binary()),
    "large_binary": _text(pa.large_binary()),
    "binary_long": _long(pa.binary(), 400),
    "fixed_binary_3": _fixed_binary(3),
    "fixed_binary_8": _fixed_binary(8),
    "fixed_binary_16": _fixed_binary(16),
    "fixed_binary_300": _fixed_binary(300),
    "vector_f32_4": _vector(np.float32, 4),
    "vector_f32_100": _vector(np.float32, 100),
    "vector_f16_64": _vector(np.float16, 64),
    "vector_f64_3": _vector(np.float64, 3),
    "vector_holes": _vector_with_holes,
    "vector_of_nulls": _vector_of_nulls,
    "list_int32": _list(_I32),
    "list_string": _list(_text(pa.string())),
    "large_list_int64": _list(_int(pa.int64()), large=True),
    "list_bool": _list(lambda rng, count: pa.array(rng.random(count) < 0.5)),
    "list_list": _list(_list(_I32), most=4),
    "list_vector": _list(_vector(np.float32, 4)),
    "list_long": _list(_I32, most=3000),
    "struct": _struct(a=_I32, b=_text(pa.string()), c=_float(np.float64)),
    "struct_struct": _struct(inner=_struct(x=_I32, y=_text(pa.string())), z=_small(pa.int16())),
    "list_struct": _list(_struct(a=_I32, b=_text(pa.string()))),
    "struct_list": _struct(tags=_list(_text(pa.string())), n=_I32),
    "list_struct_list": _list(_struct(tags=_list(_I32), n=_small(pa.int8())), most=3),
    "all_null": _all_null(pa.int32()),
    "all_null_string": _all_null(pa.string()),
    "all_null_list": _all_null(pa.list_(pa.int32())),
    "constant_int": _constant(7, pa.int64()),
    "constant_string": _constant("the same", pa.string()),
    "constant_bool": _constant(True, pa.bool_()),
    "constant_date": _constant(dt.date(2024, 2, 29), pa.date32()),
}
"""Makers by name; each takes a generator and a number of rows."""


def column(name: str, rows: int, *, nulls: bool) -> pa.Array:
    """One column; the same name, rows and nulls always give the same values."""
    rng = np.random.default_rng([rows, *name.encode()])
    made = COLUMNS[name](rng, rows)
    return _nulls(rng, made) if nulls else made


@lru_cache(maxsize=8)
def table(name: str, rows: int) -> pa.Table:
    """The column without nulls, with nulls, and declared as non-nullable."""
    plain, holes = column(name, rows, nulls=False), column(name, rows, nulls=True)
    fields = [pa.field("plain", plain.type), pa.field("holes", holes.type)]
    arrays = [plain, holes]
    if plain.null_count == 0:
        fields.append(pa.field("required", plain.type, nullable=False))
        arrays.append(plain)
    return pa.Table.from_arrays(arrays, schema=pa.schema(fields))


def as_bits(array: pa.Array) -> pa.Array:
    """The array with floats seen as integers: NaN equals NaN, and -0.0 is not 0.0."""
    kind = array.type
    if pa.types.is_floating(kind):
        return array.view({16: pa.uint16(), 32: pa.uint32(), 64: pa.uint64()}[kind.bit_width])
    if pa.types.is_struct(kind):
        members = [as_bits(member) for member in array.flatten()]
        names = [field.name for field in kind]
        return pa.StructArray.from_arrays(members, names=names, mask=array.is_null())
    if pa.types.is_fixed_size_list(kind):
        flat = as_bits(array.flatten())
        return pa.ListArray.from_arrays(_ends(array), flat)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        flat = as_bits(array.flatten())
        made = pa.LargeListArray.from_arrays(_ends(array), flat)
        return pc.if_else(array.is_null(), pa.scalar(None, made.type), made)
    return array


def _ends(array: pa.Array) -> pa.Array:
    lengths = pc.fill_null(pc.list_value_length(array), 0)
    ends = np.concatenate(([0], np.cumsum(np.asarray(lengths, np.int64))))
    wide = not pa.types.is_fixed_size_list(array.type)
    return pa.array(ends, pa.int64() if wide else pa.int32())


def assert_same(found: pa.Table, expected: pa.Table) -> None:
    """Equal schema (types, nullability) and equal values, bit for bit."""
    assert found.schema.equals(expected.schema), f"{found.schema} is not {expected.schema}"
    assert found.num_rows == expected.num_rows
    found.validate(full=True)
    for at, name in enumerate(expected.column_names):
        assert same_bits(found.column(at), expected.column(at)), f"column {name!r} differs"


def same_bits(found: pa.ChunkedArray, expected: pa.ChunkedArray) -> bool:
    """Whether two columns of a type have the same values, bit for bit."""
    one, other = (
        as_bits(column.chunk(0) if column.num_chunks == 1 else column.combine_chunks())
        for column in (found, expected)
    )
    return bool(one.equals(other))


def assert_reads_same(dataset: Any, expected: pa.Table) -> None:
    """Scan, projection, slice and take give these rows."""
    rows = expected.num_rows
    assert dataset.count_rows() == rows
    assert_same(dataset.to_table(), expected)
    assert_same(dataset.to_table(columns=["holes"]), expected.select(["holes"]))
    if not rows:
        return
    rng = np.random.default_rng(rows)
    wanted = rng.integers(0, rows, 40).tolist()
    wanted += [0, rows - 1, wanted[0], wanted[0]]
    for some in (wanted, [rows // 2]):
        assert_same(dataset.take(some), expected.take(pa.array(some, pa.int64())))
    offset, limit = rows // 3, max(1, rows // 2)
    found = dataset.to_table(offset=offset, limit=limit)
    assert_same(found, expected.slice(offset, limit))
