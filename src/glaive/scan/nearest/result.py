"""Columns of the rows that a search found: those of the dataset, and what the search adds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, cast

import pyarrow as pa

from glaive.arrow.chunked import join_large
from glaive.arrow.extensions import to_type
from glaive.errors import ColumnNotFoundError, OptionError
from glaive.expr.filters import Value, bind_value
from glaive.expr.tree import Column
from glaive.format.extension import storage_type
from glaive.scan.metrics import Meter
from glaive.scan.nearest.top import Found
from glaive.scan.options import ScanOptions
from glaive.scan.projection import Columns
from glaive.scan.system_columns import ROW_ADDRESS, ROW_ID, SYSTEM_COLUMNS
from glaive.scan.take import take_physical
from glaive.scan.views import BoundProjection, Views

__all__ = ["DISTANCE", "QUERY", "FoundColumns", "SearchedValues", "check_known", "search_columns"]

DISTANCE: Final = "_distance"
QUERY: Final = "query_index"

_FIELDS: Final[Mapping[str, pa.Field[Any]]] = MappingProxyType(
    {
        DISTANCE: pa.field(DISTANCE, pa.float32()),
        QUERY: pa.field(QUERY, pa.int32(), nullable=False),
    }
)


def search_columns(*, batch: bool) -> Mapping[str, pa.DataType]:
    """Columns that rows have beside those of the dataset: system columns, and the search's."""
    own = [DISTANCE, QUERY] if batch else [DISTANCE]
    return {**SYSTEM_COLUMNS, **{name: _FIELDS[name].type for name in own}}


def _own_column(found: Found, name: str) -> pa.Array:
    """A column of the search."""
    return pa.array(found.distance if name == DISTANCE else found.query)


@dataclass(frozen=True, slots=True, eq=False)
class SearchedValues:
    """Columns by path for rows that were found, for filters and orders.

    Parameters
    ----------
    source
        The columns that come from the dataset.
    paths
        Their paths, in that order.
    own
        Columns of the search among those wanted.
    """

    source: BoundProjection
    paths: tuple[str, ...]
    own: tuple[str, ...]

    @classmethod
    def of(cls, views: Views, paths: Sequence[str]) -> SearchedValues:
        """Columns at some paths, as they are stored."""
        stored = tuple(path for path in dict.fromkeys(paths) if path not in _FIELDS)
        own = tuple(path for path in dict.fromkeys(paths) if path in _FIELDS)
        return cls(views.scan(stored), stored, own)

    def batch(self, found: Found, meter: Meter) -> pa.RecordBatch:
        """One column for each path; of at least one row."""
        columns: list[Any] = []
        if self.paths:
            table = take_physical(self.source, found.fragment, found.row, meter=meter)
            columns = list(map(_stored, table.columns, self.paths))
        columns += [_own_column(found, name) for name in self.own]
        return pa.RecordBatch.from_arrays(columns, names=[*self.paths, *self.own])


@dataclass(frozen=True, slots=True, eq=False)
class FoundColumns:
    """The columns of the result.

    Parameters
    ----------
    source
        The columns that come from the dataset, in their order.
    outputs
        For each column of the result its number among those, the name of one of the search's,
        or an expression.
    schema
        Of the result.
    """

    source: BoundProjection
    outputs: tuple[int | str | Value, ...]
    schema: pa.Schema

    @classmethod
    def of(cls, views: Views, options: ScanOptions, *, batch: bool) -> FoundColumns:
        """Work out the columns: as asked for, the distance behind them, row ids last.

        Raises
        ------
        ColumnNotFoundError
            A column does not exist.
        FilterError
            An expression cannot be understood.
        OptionError
            The dataset has a column with a name that the result of a batch needs.
        """
        names = views.snapshot.manifest.schema.names
        if batch and QUERY in names:
            raise OptionError(
                f"nearest: the dataset has a column {QUERY!r}, which is what the result of several "
                "queries calls the number of the query. Search with one query at a time."
            )
        last = [ROW_ID] * options.with_row_id + [ROW_ADDRESS] * options.with_row_address
        columns: Sequence[str | tuple[str, str]] = (
            names if options.columns is None else options.columns
        )
        wanted = [column for column in columns if column not in (*last, QUERY)]
        if not options.disable_scoring_autoprojection and DISTANCE not in map(_name, wanted):
            wanted.append(DISTANCE)
        return _Maker(views, options, batch=batch).made([*[QUERY] * batch, *wanted, *last])

    def table(self, found: Found, meter: Meter) -> pa.Table:
        """The rows, in this order."""
        if not self.outputs:
            return self.source.rows_alone(found.size)
        if not found.size:
            return self.schema.empty_table()
        taken: list[Any] = []
        if self.source.projection.outputs:
            rows = take_physical(self.source, found.fragment, found.row, meter=meter)
            taken = list(rows.columns)
        columns: list[Any] = []
        for output in self.outputs:
            if isinstance(output, int):
                columns.append(taken[output])
            elif isinstance(output, str):
                columns.append(_own_column(found, output))
            else:
                columns.append(output.evaluate(self._inputs(output, taken, found)))
        return pa.Table.from_arrays(columns, schema=self.schema)

    def _inputs(self, value: Value, taken: list[Any], found: Found) -> pa.RecordBatch:
        arrays: list[Any] = []
        for path in value.columns:
            if path in _FIELDS:
                arrays.append(_own_column(found, path))
            else:
                at = len(taken) - 1 - self.source.schema.names[::-1].index(path)
                arrays.append(_stored(taken[at], path))
        if not arrays:
            return pa.RecordBatch.from_arrays([pa.nulls(found.size)], ["rows"])
        return pa.RecordBatch.from_arrays(arrays, list(value.columns))


class _Maker:
    """Sorts columns into those of the dataset and those of the search."""

    def __init__(self, views: Views, options: ScanOptions, *, batch: bool) -> None:
        self._views, self._blobs = views, options.blobs
        self._batch = batch
        self._stored: list[str | tuple[str, str]] = []
        self._inputs: list[str] = []

    def made(self, wanted: Sequence[str | tuple[str, str]]) -> FoundColumns:
        outputs = tuple(map(self._output, wanted))
        # Behind those of the result, so that these are found by their number.
        stored = (*self._stored, *dict.fromkeys(self._inputs))
        source = self._views.scan(cast("Columns", stored), blobs=self._blobs)
        fields = [
            self._field(column, output, source)
            for column, output in zip(wanted, outputs, strict=True)
        ]
        metadata: Any = source.schema.metadata
        return FoundColumns(source, outputs, pa.schema(fields, metadata))

    def _output(self, column: str | tuple[str, str]) -> int | str | Value:
        text = column if isinstance(column, str) else column[1]
        if isinstance(column, str):
            if column in _FIELDS and (column == DISTANCE or self._batch):
                return column
        elif any(name in text for name in _FIELDS):
            schema = self._views.snapshot.manifest.schema
            value = bind_value(text, schema, system=search_columns(batch=self._batch))
            if isinstance(value.expression, Column) and value.expression.path in _FIELDS:
                return value.expression.path
            if any(path in _FIELDS for path in value.columns):
                self._inputs += [path for path in value.columns if path not in _FIELDS]
                return value
        self._stored.append(column)
        return len(self._stored) - 1

    @staticmethod
    def _field(
        column: str | tuple[str, str], output: int | str | Value, source: BoundProjection
    ) -> pa.Field[Any]:
        if isinstance(output, int):
            return source.schema.field(output)
        if isinstance(output, str):
            return _FIELDS[output].with_name(_name(column))
        return pa.field(_name(column), output.type)


def _stored(column: pa.ChunkedArray, path: str) -> Any:
    """A column as expressions see it."""
    return to_type(join_large(column.chunks), storage_type(column.type), f"column {path!r}")


def _name(column: str | tuple[str, str]) -> str:
    return column if isinstance(column, str) else column[0]


def check_known(views: Views, path: str, *, batch: bool) -> None:
    """Raise ``ColumnNotFoundError`` unless rows that were found have such a column."""
    if path not in search_columns(batch=batch):
        views.snapshot.manifest.schema.find(path)
    elif path == QUERY and not batch:
        raise ColumnNotFoundError(f"column {QUERY!r}: only the result of several queries has it")
