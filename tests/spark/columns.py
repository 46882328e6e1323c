"""A table with one column for every type a dataset and Spark can both hold."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

INTEGERS = [getattr(pa, f"{sign}int{bits}")() for sign in ("", "u") for bits in (8, 16, 32, 64)]
FLOATS = [pa.float16(), pa.float32(), pa.float64()]
TIMESTAMPS = [
    pa.timestamp(unit, zone)
    for unit in ("s", "ms", "us", "ns")
    for zone in (None, "UTC", "Asia/Tokyo")
]
TIMES = [pa.time32("s"), pa.time32("ms"), pa.time64("us"), pa.time64("ns")]
DURATIONS = [pa.duration(unit) for unit in ("s", "ms", "us", "ns")]


def columns() -> dict[str, pa.Array]:
    """Return five rows of each type, the second one null."""
    made: dict[str, pa.Array] = {"bool": pa.array([True, None, False, True, True])}
    for kind in INTEGERS:
        most = 2 ** (kind.bit_width - (not str(kind).startswith("u"))) - 1
        made[str(kind)] = pa.array([0, None, 1, most, 7], kind)
    for kind in FLOATS:
        made[str(kind)] = pa.array(np.array([0.5, 0, -2, 1e4, 7]), mask=null_second()).cast(kind)
    for kind in (pa.string(), pa.large_string()):
        made[str(kind)] = pa.array(["", None, "z", "grüße", "x" * 300], kind)
    for kind in (pa.binary(), pa.large_binary()):
        made[str(kind)] = pa.array([b"", None, b"z", b"\x00\xff", b"x" * 300], kind)
    made["fixed"] = pa.array([b"abc", None, b"def", b"\x00\x00\x00", b"xyz"], pa.binary(3))
    made["date32"] = pa.array([0, None, 19000, -5, 1], pa.date32())
    made["date64"] = pa.array([0, None, 86_400_000, 0, 86_400_000 * 3], pa.date64())
    for kind in TIMES + TIMESTAMPS + DURATIONS:
        made[str(kind)] = pa.array([0, None, 1000, 2000, 3000], kind)
    made["decimal"] = decimals(pa.decimal128(20, 4))
    made["decimal_wide"] = decimals(pa.decimal256(60, 4))
    for digits in (5, 38):
        shifted = [Decimal(0), None, Decimal(12300), Decimal(-100), Decimal(900)]
        made[f"hundreds_{digits}"] = pa.array(shifted, pa.decimal128(digits, -2))
    made["json"] = pa.array(['{"a":1}', None, "[1,2]", '"x"', "null"], pa.json_())
    made["jsons"] = pa.array([["1", None], None, [], ["{}"], ["[]"]]).cast(pa.list_(pa.json_()))
    made["vector"] = pa.array([[1, 2], None, [3, 4], [5, 6], [7, 8]], pa.list_(pa.float32(), 2))
    made["half_vector"] = made["vector"].cast(pa.list_(pa.float16(), 2))
    made["byte_vector"] = made["vector"].cast(pa.list_(pa.uint8(), 2))
    made["list"] = pa.array([[1, None], None, [], [2], [3, 4, 5]], pa.list_(pa.int32()))
    made["large_list"] = made["list"].cast(pa.large_list(pa.uint16()))
    made["lists"] = pa.array(
        [[["a"], []], None, [], [None], [["b", None]]], pa.list_(pa.list_(pa.string()))
    )
    inner = pa.struct([("a", pa.uint8()), ("b", pa.large_string())])
    made["struct"] = pa.array(
        [{"a": 1, "b": "x"}, None, {"a": None, "b": "y"}, {"a": 255, "b": None}, {"a": 0, "b": ""}],
        inner,
    )
    made["structs"] = pa.array(
        [[{"a": 1, "b": "x"}, None], None, [], [{"a": 2}], []], pa.list_(inner)
    )
    return made


def table() -> pa.Table:
    """Return all columns as a table."""
    return pa.table(columns())


def batch(of: pa.Table | None = None) -> pa.RecordBatch:
    """Return a table as one batch."""
    return (table() if of is None else of).combine_chunks().to_batches()[0]


def null_second() -> Any:
    """Return the mask of five rows whose second is null."""
    return np.array([False, True, False, False, False])


def decimals(kind: pa.DataType) -> pa.Array:
    """Return five decimals, the second null."""
    return pa.array([Decimal(0), None, Decimal("-1.5"), Decimal("12345678.1234"), Decimal(9)], kind)
