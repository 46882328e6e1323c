"""Datasets as DuckDB reads them for a query.

Columns that it has no type for are in the next wider type that it has.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pyarrow.dataset as pads
from pyarrow import types

from glaive.dataset.interop import ArrowDataset
from glaive.errors import GlaiveError

__all__ = ["for_duckdb"]

_DIGITS = 38
"""Most digits of DuckDB's decimals."""


def for_duckdb(table: object, failures: list[GlaiveError]) -> object:
    """A table of a query as DuckDB can read it.

    DuckDB refuses a table for the type of any of its columns, also of one that a query does not
    name. Half floats become floats. Decimals of 256 bits become those of 128 bits, and those of a
    scale below 0 have all their digits, if these fit: all values stay what they are.

    Parameters
    ----------
    failures
        Errors of reading are appended: DuckDB passes on their text only.
    """
    return _QueriedDataset(table, failures) if isinstance(table, ArrowDataset) else table


class _QueriedDataset(pads.FileSystemDataset):
    """A dataset with wider types, of which DuckDB asks for a schema and scanners."""

    def __init__(self, dataset: ArrowDataset, failures: list[GlaiveError]) -> None:
        self._dataset, self._failures = dataset, failures
        super().__init__([], dataset.schema, pads.IpcFileFormat())

    @property
    def schema(self) -> pa.Schema:
        """With the wider types."""
        return _widened(self._dataset.schema)

    def scanner(self, *args: Any, **options: Any) -> Any:
        """Describe a scan; arguments as for the dataset."""
        with _noted(self._failures):
            return _QueriedScanner(self._dataset.scanner(*args, **options), self._failures)


class _QueriedScanner:
    def __init__(self, scanner: Any, failures: list[GlaiveError]) -> None:
        self._scanner, self._failures = scanner, failures

    @property
    def projected_schema(self) -> pa.Schema:
        return _widened(self._scanner.projected_schema)

    def to_reader(self) -> pa.RecordBatchReader:
        return pa.RecordBatchReader.from_batches(self.projected_schema, self._batches())

    def _batches(self) -> Iterator[pa.RecordBatch]:
        wanted = self.projected_schema
        is_wide = wanted == self._scanner.projected_schema
        with _noted(self._failures):
            for batch in self._scanner.to_reader():
                if is_wide:
                    yield batch
                    continue
                pairs = zip(batch.columns, wanted, strict=True)
                columns = [_cast(column, field.type) for column, field in pairs]
                yield pa.RecordBatch.from_arrays(columns, schema=wanted)


@contextmanager
def _noted(failures: list[GlaiveError]) -> Iterator[None]:
    try:
        yield
    except GlaiveError as error:
        failures.append(error)
        raise


def _cast(column: Any, kind: pa.DataType) -> Any:
    if column.type.equals(kind):
        return column
    return (column.storage if isinstance(column, pa.ExtensionArray) else column).cast(kind)


def _widened(schema: pa.Schema) -> pa.Schema:
    return pa.schema([field.with_type(_wider(field.type)) for field in schema])


def _wider(kind: Any) -> Any:
    """A type without half floats and odd decimals inside; itself, if it has none."""
    if types.is_float16(kind):
        return pa.float32()
    if types.is_decimal(kind):
        scale = max(kind.scale, 0)
        digits = kind.precision + scale - kind.scale
        is_odd = types.is_decimal256(kind) or digits > kind.precision
        return pa.decimal128(digits, scale) if is_odd and digits <= _DIGITS else kind
    made = kind
    if isinstance(kind, pa.BaseExtensionType):
        inner = _wider(kind.storage_type)
        return kind if inner.equals(kind.storage_type) else inner
    if types.is_struct(kind):
        made = pa.struct([field.with_type(_wider(field.type)) for field in kind])
    elif types.is_map(kind):
        made = pa.map_(_wider(kind.key_type), kind.item_field.with_type(_wider(kind.item_type)))
    elif types.is_fixed_size_list(kind):
        made = pa.list_(kind.value_field.with_type(_wider(kind.value_type)), kind.list_size)
    elif types.is_large_list(kind):
        made = pa.large_list(kind.value_field.with_type(_wider(kind.value_type)))
    elif types.is_list(kind):
        made = pa.list_(kind.value_field.with_type(_wider(kind.value_type)))
    return made
