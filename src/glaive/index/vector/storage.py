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
from numpy.typing import NDArray

from glaive.arrow.chunked import one_array
from glaive.errors import CorruptFileError
from glaive.index.segment import IndexFile
from glaive.index.vector.layouts import keep_packed, keep_transposed
from glaive.index.vector.partitions import read_partitions

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

Codes = NDArray[np.uint8]
Keep = Callable[[Codes, NDArray[np.bool_]], Codes]


class Storage:
    """Codes of a vector index, opened.

    Raises
    ------
    CorruptFileError
        Columns, partitions or metadata are not those of a vector index.
    """

    def __init__(self, file: IndexFile) -> None:
        self.file = file
        file.check(**{ADDRESSES: pa.uint64()})
        self.partitions = read_partitions(file)
        self.column = self._column()

    def _column(self) -> str:
        names = self.file.schema.names
        found = [one for one in (PLAIN, PRODUCT, SCALAR, SIGNS) if one in names]
        kind: Any = self.type_of(found[0]) if len(found) == 1 else pa.null()
        good = pa.types.is_fixed_size_list(kind) and kind.list_size > 0
        of_bytes = good and (found[0] == PLAIN or kind.value_type == pa.uint8())
        if not of_bytes or not all(_has_fixed_width(self.type_of(name)) for name in names):
            raise CorruptFileError(
                "columns of a vector index",
                expected=f"{ADDRESSES} and codes of one kind",
                found=", ".join(names),
                where=self.file.path,
            )
        return found[0]

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
        """What the file says of its codes."""
        texts = json_list(self.file, DETAILS)
        details = _parsed(texts[0], DETAILS, self.file) if len(texts) == 1 else None
        if not isinstance(details, dict):
            raise CorruptFileError(
                f"metadata {DETAILS!r}",
                expected="one JSON object in a list",
                found=f"{texts}"[:80],
                where=self.file.path,
            )
        return details

    @property
    def metric(self) -> str:
        """Name of the distance: ``l2``, ``cosine``, ``dot`` or ``hamming``."""
        return self.file.metadata.get("distance_type", "l2")

    def keep(self) -> tuple[str, Keep] | None:
        """The column whose rows do not lie row by row, and how rows are taken out of it."""
        if self.column == PRODUCT and self.details.get("transposed"):
            return PRODUCT, keep_transposed
        if self.column == SIGNS and self.details.get("packed"):
            return SIGNS, keep_packed
        return None

    def read(self, start: int, stop: int) -> pa.Table:
        """Some rows with all columns."""
        rows = self.file.read(None, start, stop)
        for name in rows.column_names:
            inner = pa.types.is_fixed_size_list(rows[name].type)
            chunks: list[Any] = rows[name].chunks
            nulls = rows[name].null_count
            nulls += sum(chunk.flatten().null_count for chunk in chunks) if inner else 0
            if nulls:
                raise CorruptFileError(
                    f"column {name!r} of an index",
                    expected="values",
                    found=f"{nulls} nulls",
                    where=self.file.path,
                )
        return rows

    def kept(self, rows: pa.Table, partitions: list[slice], mask: NDArray[np.bool_]) -> pa.Table:
        """The rows of whole partitions that are left."""
        if mask.all():
            return rows
        left = rows.filter(pa.array(mask))
        special = self.keep()
        if special is not None:
            name, keep = special
            codes = bytes_of(rows[name])
            parts = [keep(codes[partition], mask[partition]) for partition in partitions]
            left = with_bytes(left, name, np.concatenate(parts or [codes[:0]]))
        return left


def _has_fixed_width(kind: pa.DataType) -> bool:
    if isinstance(kind, pa.FixedSizeListType):
        kind = kind.value_type
    return bool(pa.types.is_primitive(kind))


def bytes_of(column: pa.ChunkedArray) -> Codes:
    """Fixed-size lists of bytes as (rows, width), as they lie."""
    array: Any = one_array(column)
    width: int = array.type.list_size
    flat = array.flatten() if len(array) else pa.array([], pa.uint8())
    codes: Codes = flat.to_numpy().reshape(-1, width)
    return codes


def with_bytes(rows: pa.Table, name: str, codes: Codes) -> pa.Table:
    """Rows with other bytes in one column."""
    at = rows.schema.get_field_index(name)
    field = rows.schema.field(at)
    flat = pa.array(np.ascontiguousarray(codes).reshape(-1))
    array = pa.FixedSizeListArray.from_arrays(flat, type=field.type)
    return rows.set_column(at, field, array)


def json_list(file: IndexFile, key: str) -> list[str]:
    """Metadata that is a JSON list of texts."""
    found = _parsed(file.metadata.get(key, ""), key, file)
    if not (isinstance(found, list) and all(isinstance(one, str) for one in found)):
        raise CorruptFileError(
            f"metadata {key!r}",
            expected="a JSON list of texts",
            found=f"{found!r}"[:80],
            where=file.path,
        )
    return found


def _parsed(text: str, key: str, file: IndexFile) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise CorruptFileError(
            f"metadata {key!r}", expected="JSON", found=str(error), where=file.path
        ) from error
