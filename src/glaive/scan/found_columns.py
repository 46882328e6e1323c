"""Columns of the rows that a search found: dataset columns and columns that the search adds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, cast

import pyarrow as pa

from glaive.arrow.chunked import empty_table, join_large
from glaive.arrow.extensions import to_type
from glaive.dataclass import dataclass
from glaive.format.extension import storage_type
from glaive.scan.options import Meter, ScanOptions
from glaive.scan.projection import ROW_ADDRESS, ROW_ID, SYSTEM_COLUMNS, Columns
from glaive.scan.snapshot import Snapshot
from glaive.scan.take import take_physical
from glaive.scan.views import BoundProjection, Views
from glaive.types import Int64s

if TYPE_CHECKING:
    from glaive.expr.filters import Value


class FoundRows(Protocol):
    """Rows in the order of the result."""

    @property
    def size(self) -> int:
        """Number of rows."""

    def places(self, snapshot: Snapshot) -> tuple[Int64s, Int64s]:
        """Return the position of the fragment in the manifest, and the physical row, of each."""

    def added(self, name: str) -> pa.Array:
        """Return a column that the search adds."""

    def stored(self, name: str, snapshot: Snapshot) -> pa.Array | None:
        """Return a column of the dataset that the search has read, or ``None`` to take it."""


@dataclass(frozen=True, slots=True)
class AddedColumns:
    """Columns that a search adds.

    Parameters
    ----------
    fields
        By name.
    first
        Names of the columns that come first in the result.
    scores
        Name of the column of scores. It follows the other columns unless ``columns`` names it.
    """

    fields: Mapping[str, pa.Field[Any]]
    first: tuple[str, ...]
    scores: str

    @property
    def types(self) -> Mapping[str, pa.DataType]:
        """Types of system columns and of these columns, by name."""
        return {**SYSTEM_COLUMNS, **{name: field.type for name, field in self.fields.items()}}


@dataclass(frozen=True, slots=True, eq=False)
class FoundValues:
    """Columns by path of the rows found, for filters and orders.

    Parameters
    ----------
    source
        The columns that come from the dataset.
    paths
        Paths of all columns, in the order of the result.
    added
        The columns that the search adds.
    """

    source: BoundProjection
    paths: tuple[str, ...]
    added: AddedColumns

    @classmethod
    def of(cls, views: Views, paths: Sequence[str], added: AddedColumns) -> FoundValues:
        """Return the columns at some paths, in their storage types."""
        distinct = tuple(dict.fromkeys(paths))
        stored = tuple(path for path in distinct if path not in added.fields)
        return cls(views.scan(stored), distinct, added)

    def batch(self, found: FoundRows, meter: Meter) -> pa.RecordBatch:
        """Return one column for each path; at least one row must be found."""
        stored = [path for path in self.paths if path not in self.added.fields]
        columns: dict[str, Any] = {}
        if stored:
            columns = stored_columns(
                self.source, stored, *found.places(self.source.snapshot), meter
            )
        arrays = [columns[path] if path in columns else found.added(path) for path in self.paths]
        return pa.RecordBatch.from_arrays(arrays, list(self.paths))


@dataclass(frozen=True, slots=True, eq=False)
class FoundColumns:
    """The columns of the result.

    Parameters
    ----------
    source
        The columns that come from the dataset. Result columns come first, in order; inputs of
        expressions follow.
    outputs
        For each column of the result: its index in ``source``, the name of a column that the
        search adds, or an expression.
    schema
        Schema of the result.
    added
        Columns that the search adds.
    plain
        Paths of the columns that come from the dataset; ``None`` for an expression.
    """

    source: BoundProjection
    outputs: tuple[int | str | Value, ...]
    schema: pa.Schema
    added: AddedColumns
    plain: tuple[str | None, ...]

    @classmethod
    def of(cls, views: Views, options: ScanOptions, added: AddedColumns) -> FoundColumns:
        """Plan the columns: as requested, then the score, then row ids.

        Raises
        ------
        ColumnNotFoundError
            A column does not exist.
        FilterError
            An expression is invalid.
        """
        key = (
            "found columns", *added.fields, options.columns, options.with_row_id,
            options.with_row_address, options.blobs, options.disable_scoring_autoprojection,
        )  # fmt: skip
        memo = views.snapshot.memo
        known: FoundColumns | None = memo.get(key)
        if known is None:
            last = [ROW_ID] * options.with_row_id + [ROW_ADDRESS] * options.with_row_address
            schema = views.snapshot.manifest.schema
            named: Sequence[Any] = schema.names if options.columns is None else options.columns
            wanted = [column for column in named if column not in (*last, *added.first)]
            if not options.disable_scoring_autoprojection and added.scores not in map(
                _name, wanted
            ):
                wanted.append(added.scores)
            planner = _Planner(views, options, added)
            known = memo[key] = planner.plan([*added.first, *wanted, *last])
        return known

    def table(self, found: FoundRows, meter: Meter) -> pa.Table:
        """Return the rows found, in order."""
        if not self.outputs:
            return self.source.rows_alone(found.size)
        if not found.size:
            return empty_table(self.schema)
        taken = self._take(found, meter)
        columns: list[Any] = []
        for output in self.outputs:
            if isinstance(output, int):
                columns.append(taken[output])
            elif isinstance(output, str):
                columns.append(found.added(output))
            else:
                columns.append(output.evaluate(self._inputs(output, taken, found)))
        return pa.Table.from_arrays(columns, schema=self.schema)

    def _take(self, found: FoundRows, meter: Meter) -> list[Any]:
        """Return the columns of the dataset for the rows found."""
        snapshot = self.source.snapshot
        known: list[Any] = []
        for name in self.plain:
            column = None if name is None else found.stored(name, snapshot)
            if column is None:
                return take_physical(self.source, *found.places(snapshot), meter=meter).columns
            known.append(column)
        return known

    def _inputs(self, value: Value, taken: list[Any], found: FoundRows) -> pa.RecordBatch:
        names = self.source.schema.names
        arrays: list[Any] = []
        for path in value.columns:
            if path in self.added.fields:
                arrays.append(found.added(path))
            else:
                arrays.append(_stored(taken[len(names) - 1 - names[::-1].index(path)], path))
        if not arrays:
            return pa.RecordBatch.from_arrays([pa.nulls(found.size)], ["rows"])
        return pa.RecordBatch.from_arrays(arrays, list(value.columns))


class _Planner:
    """A planner that separates dataset columns from columns that the search adds."""

    def __init__(self, views: Views, options: ScanOptions, added: AddedColumns) -> None:
        self._views, self._blobs, self._added = views, options.blobs, added
        self._stored: list[str | tuple[str, str]] = []
        self._inputs: list[str] = []

    def plan(self, wanted: Sequence[str | tuple[str, str]]) -> FoundColumns:
        outputs = tuple(map(self._output, wanted))
        # After the columns of the result, so that the indices of these stay valid.
        stored = (*self._stored, *dict.fromkeys(self._inputs))
        source = self._views.scan(cast("Columns", stored), blobs=self._blobs)
        fields = [
            self._field(column, output, source)
            for column, output in zip(wanted, outputs, strict=True)
        ]
        metadata: Any = source.schema.metadata
        plain = tuple(column if isinstance(column, str) else None for column in stored)
        return FoundColumns(source, outputs, pa.schema(fields, metadata), self._added, plain)

    def _output(self, column: str | tuple[str, str]) -> int | str | Value:
        added = self._added.fields
        if isinstance(column, str):
            if column in added:
                return column
        elif any(name in column[1] for name in added):
            from glaive.expr.filters import bind_value
            from glaive.expr.tree import Column

            schema = self._views.snapshot.manifest.schema
            value = bind_value(column[1], schema, system=self._added.types)
            if isinstance(value.expression, Column) and value.expression.path in added:
                return value.expression.path
            if any(path in added for path in value.columns):
                self._inputs += [path for path in value.columns if path not in added]
                return value
        self._stored.append(column)
        return len(self._stored) - 1

    def _field(
        self, column: str | tuple[str, str], output: int | str | Value, source: BoundProjection
    ) -> pa.Field[Any]:
        if isinstance(output, int):
            return source.schema.field(output)
        if isinstance(output, str):
            return self._added.fields[output].with_name(_name(column))
        return pa.field(_name(column), output.type)


def stored_columns(
    source: BoundProjection, paths: Sequence[str], fragments: Int64s, rows: Int64s, meter: Meter
) -> dict[str, Any]:
    """Take physical rows of a projection; return storage columns by path, for expressions."""
    columns = take_physical(source, fragments, rows, meter=meter).columns
    return dict(zip(paths, map(_stored, columns, paths), strict=True))


def _stored(column: Any, path: str) -> Any:
    """Convert a column to one array of its storage type, for expressions."""
    array = join_large(column.chunks) if isinstance(column, pa.ChunkedArray) else column
    return to_type(array, storage_type(column.type), f"column {path!r}")


def _name(column: str | tuple[str, str]) -> str:
    return column if isinstance(column, str) else column[0]
