"""The file with the codes of a vector index: ``auxiliary.idx``.

Specification: "Codes" in ``docs/format/vector-indices.md``.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cached_property
from typing import Any, Final

import numpy as np
import pyarrow as pa

from glaive.arrow.chunked import one_array
from glaive.errors import UnsupportedFeatureError
from glaive.index.segment import IndexFile
from glaive.index.vector.layouts import select_packed, select_transposed
from glaive.index.vector.partitions import read_partitions
from glaive.types import Flags, UInt8s

__all__ = [
    "ADDRESSES",
    "DETAILS",
    "PLAIN",
    "PRODUCT",
    "SCALAR",
    "SIGNS",
    "Storage",
    "bytes_of",
    "json_list",
    "with_bytes",
]

ADDRESSES: Final = "_rowid"
PRODUCT: Final = "__pq_code"
SCALAR: Final = "__sq_code"
SIGNS: Final = "_rabit_codes"
PLAIN: Final = "flat"

DETAILS: Final = "storage_metadata"

Select = Callable[[UInt8s, Flags], UInt8s]


class Storage:
    """The codes of a vector index.

    Raises
    ------
    CorruptFileError
        Columns, partitions or metadata are not those of a vector index.
    """

    def __init__(self, file: IndexFile) -> None:
        self.file = file
        # Lance up to 0.20 also wrote the partition of each row.
        at = file.schema.get_field_index("__ivf_part_id")
        self.schema = file.schema if at < 0 else file.schema.remove(at)
        file.check(**{ADDRESSES: pa.uint64()})
        self.partitions = read_partitions(file)
        self.column = self._column()

    def _column(self) -> str:
        names = self.schema.names
        code_columns = [name for name in (PLAIN, PRODUCT, SCALAR, SIGNS) if name in names]
        kind: Any = self.type_of(code_columns[0]) if len(code_columns) == 1 else pa.null()
        good = pa.types.is_fixed_size_list(kind) and kind.list_size > 0
        of_bytes = good and (code_columns[0] == PLAIN or kind.value_type == pa.uint8())
        if not of_bytes or not all(_has_fixed_width(self.type_of(name)) for name in names):
            expected = f"{ADDRESSES} and codes of one kind"
            raise self.file.corrupt("columns of a vector index", expected, ", ".join(names))
        return code_columns[0]

    def type_of(self, column: str) -> Any:
        """Type of a column."""
        return self.file.schema.field(column).type

    def bytes_of_row(self, column: str) -> int:
        """Bytes of one value of a column."""
        kind = self.type_of(column)
        if pa.types.is_fixed_size_list(kind):
            return int(kind.list_size * kind.value_type.bit_width) // 8
        return int(kind.bit_width) // 8

    @cached_property
    def details(self) -> dict[str, Any]:
        """The description of the codes."""
        documents = json_list(self.file, DETAILS)
        if len(documents) > 1:
            raise UnsupportedFeatureError(
                f"{self.file.path}: codes that are described by partition, as Lance 0.16 wrote "
                "them, are not read: create the index again"
            )
        details = _parsed(documents[0], DETAILS, self.file) if len(documents) == 1 else None
        if not isinstance(details, dict):
            found = f"{documents}"[:80]
            raise self.file.corrupt(f"metadata {DETAILS!r}", "one JSON object in a list", found)
        if self.column == PRODUCT and "num_bits" in details:
            details.setdefault("nbits", details["num_bits"])  # as Lance up to 0.26 names them
        return details

    @property
    def metric(self) -> str:
        """Name of the distance: ``l2``, ``cosine``, ``dot`` or ``hamming``."""
        return self.file.metadata.get("distance_type", "l2")

    def _special_layout(self) -> tuple[str, Select] | None:
        """The column that is not stored row by row, and the function that selects rows of it."""
        if self.column == PRODUCT and self.details.get("transposed"):
            return PRODUCT, select_transposed
        if self.column == SIGNS and self.details.get("packed"):
            return SIGNS, select_packed
        return None

    def read(self, start: int, stop: int) -> pa.Table:
        """Rows ``start`` to ``stop`` of all columns."""
        rows = self.file.read(self.schema.names, start, stop)
        for name in rows.column_names:
            inner = pa.types.is_fixed_size_list(rows[name].type)
            chunks: list[Any] = rows[name].chunks
            nulls = rows[name].null_count
            nulls += sum(chunk.flatten().null_count for chunk in chunks) if inner else 0
            if nulls:
                raise self.file.corrupt_column(name, "values", f"{nulls} nulls")
        return rows

    def select(self, rows: pa.Table, partitions: list[slice], mask: Flags) -> pa.Table:
        """The rows in the mask, out of complete partitions."""
        if mask.all():
            return rows
        surviving = rows.filter(pa.array(mask))
        special = self._special_layout()
        if special is not None:
            name, select = special
            codes = bytes_of(rows[name])
            parts = [select(codes[partition], mask[partition]) for partition in partitions]
            surviving = with_bytes(surviving, name, np.concatenate(parts or [codes[:0]]))
        return surviving


def _has_fixed_width(kind: pa.DataType) -> bool:
    if isinstance(kind, pa.FixedSizeListType):
        kind = kind.value_type
    return bool(pa.types.is_primitive(kind))


def bytes_of(column: pa.ChunkedArray) -> UInt8s:
    """Fixed-size lists of bytes as (rows, width), in stored order."""
    array: Any = one_array(column)
    width: int = array.type.list_size
    flat = array.flatten() if len(array) else pa.array([], pa.uint8())
    codes: UInt8s = flat.to_numpy().reshape(-1, width)
    return codes


def with_bytes(rows: pa.Table, name: str, codes: UInt8s) -> pa.Table:
    """Rows with other codes in one column."""
    at = rows.schema.get_field_index(name)
    field = rows.schema.field(at)
    flat = pa.array(np.ascontiguousarray(codes).reshape(-1))
    array = pa.FixedSizeListArray.from_arrays(flat, type=field.type)
    return rows.set_column(at, field, array)


def json_list(file: IndexFile, key: str) -> list[str]:
    """Metadata that is a JSON list of strings."""
    items = _parsed(file.metadata.get(key, ""), key, file)
    if not (isinstance(items, list) and all(isinstance(item, str) for item in items)):
        raise file.corrupt(f"metadata {key!r}", "a JSON list of strings", f"{items!r}"[:80])
    return items


def _parsed(text: str, key: str, file: IndexFile) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise file.corrupt(f"metadata {key!r}", "JSON", str(error)) from error
