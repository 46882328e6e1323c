"""What changes give to a simulated table, and what they read of it: keys of a type, and values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Any

import pyarrow as pa
from tests.kit.observe import expect_equal

from glaive.dataset.dataset import LanceDataset

__all__ = [
    "KEY_COLUMNS",
    "KEY_TYPES",
    "PART",
    "SCHEMA",
    "key_columns",
    "keys_of",
    "on",
    "pairs",
    "schema_of",
    "schema_with_keys",
    "table",
]

_KEY = "lance-schema:unenforced-primary-key"
PART = "part"
"""A second column of the key, in some tables: whether the key is even."""

KEY_COLUMNS = ("key", PART)

KEY_TYPES = (pa.int64(), pa.int16(), pa.float64(), pa.decimal128(12, 0))
"""Types of keys: the first is that of ordinary tables."""


def schema_with_keys(kind: pa.DataType, *, part: bool = False) -> pa.Schema:
    """A primary key of a type, of one column or of two, and values."""
    columns = [pa.field("key", kind, nullable=False, metadata={_KEY: "true"})]
    if part:
        names = [("key", kind), (PART, pa.bool_())]
        columns = [
            pa.field(name, one, nullable=False, metadata={_KEY: "true", f"{_KEY}:position": at})
            for at, (name, one) in zip("12", names, strict=True)
        ]
    return pa.schema([*columns, pa.field("value", pa.int64())])


SCHEMA = schema_with_keys(KEY_TYPES[0])


def schema_of(at: LanceDataset) -> pa.Schema:
    """The columns of a table that all of its versions have."""
    return pa.schema([field for field in at.schema if field.name in (*KEY_COLUMNS, "value")])


def on(at: LanceDataset, *, turned: bool) -> list[str]:
    """The columns of the key, for merges; or in the other order."""
    names = [name for name in KEY_COLUMNS if name in at.schema.names]
    return names[::-1] if turned else names


def key_columns(keys: Iterable[int], schema: pa.Schema) -> dict[str, list[Any]]:
    """The values of the columns of a key."""
    keys = list(keys)
    decimal = pa.types.is_decimal(schema.field("key").type)
    columns: dict[str, list[Any]] = {"key": [Decimal(key) for key in keys] if decimal else keys}
    if PART in schema.names:
        columns[PART] = [key % 2 == 0 for key in keys]
    return columns


def table(rows: Mapping[int, int], schema: pa.Schema = SCHEMA) -> pa.Table:
    """Rows of a key and a value each."""
    return pa.table({**key_columns(rows, schema), "value": list(rows.values())}, schema)


def keys_of(found: pa.Table) -> list[int]:
    """The numbers that keys stand for; the second column follows from the first."""
    keys = [int(key) for key in found["key"].to_pylist()]
    if PART in found.column_names:
        expect_equal(found[PART].to_pylist(), [key % 2 == 0 for key in keys])
    return keys


def pairs(found: pa.Table) -> list[tuple[int, int]]:
    """Keys and values, sorted."""
    return sorted(zip(keys_of(found), found["value"].to_pylist(), strict=True))
