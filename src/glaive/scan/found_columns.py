"""Columns of the rows that a search found: those of the dataset, and what the search adds."""

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
        """Position of the fragment in the list, and physical row, of each."""

    def added(self, name: str) -> pa.Array:
        """A column that the search adds."""

    def stored(self, name: str, snapshot: Snapshot) -> pa.Array | None:
        """A column of the dataset that is known already; None: it has to be taken."""


@dataclass(frozen=True, slots=True)
class AddedColumns:
    """Columns that a search adds.

    Parameters
    ----------
    fields
        By name.
    first
        Names of those that come before the others.
    scores
        Name of the one that is added behind the others, unless it is asked for elsewhere.
    """

    fields: Mapping[str, pa.Field[Any]]
    first: tuple[str, ...]
    scores: str

    @property
    def types(self) -> Mapping[str, pa.DataType]:
        """Columns that rows have beside those of the dataset: system columns, and these."""
        return {**SYSTEM_COLUMNS, **{name: field.type for name, field in self.fields.items()}}


@dataclass(frozen=True, slots=True, eq=False)
class FoundValues:
    """Columns by path for rows that were found, for filters and orders.

    Parameters
    ----------
    source
        The columns that come from the dataset.
    paths
        Of all columns, in the order of the result.
    added
        Those of the search.
    """

    source: BoundProjection
    paths: tuple[str, ...]
    added: AddedColumns

    @classmethod
    def of(cls, views: Views, paths: Sequence[str], added: AddedColumns) -> FoundValues:
        """Columns at some paths, as they are stored."""
        distinct = tuple(dict.fromkeys(paths))
        stored = tuple(path for path in distinct if path not in added.fields)
        return cls(views.scan(stored), distinct, added)

    def batch(self, found: FoundRows, meter: Meter) -> pa.RecordBatch:
        """One column for each path; of at least one row."""
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
        The columns that come from the dataset: those of the result in their order, then those
        that expressions need.
    outputs
        For each column of the result its number among those, the name of one of the search's,
        or an expression.
    schema
        Of the result.
    added
        Columns of the search.
    plain
        Paths of the columns that come from the dataset; None for an expression.
    """

    source: BoundProjection
    outputs: tuple[int | str | Value, ...]
    schema: pa.Schema
    added: AddedColumns
    plain: tuple[str | None, ...]

    @classmethod
    def of(cls, views: Views, options: ScanOptions, added: AddedColumns) -> FoundColumns:
        """Work out the columns: as asked for, the score behind them, row ids last.

        Raises
        ------
        ColumnNotFoundError
            A column does not exist.
        FilterError
            An expression cannot be understood.
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
            maker = _Maker(views, options, added)
            known = memo[key] = maker.made([*added.first, *wanted, *last])
        return known

    def table(self, found: FoundRows, meter: Meter) -> pa.Table:
        """The rows, in this order."""
        if not self.outputs:
            return self.source.rows_alone(found.size)
        if not found.size:
            return empty_table(self.schema)
        taken = self._taken(found, meter)
        columns: list[Any] = []
        for output in self.outputs:
            if isinstance(output, int):
                columns.append(taken[output])
            elif isinstance(output, str):
                columns.append(found.added(output))
            else:
                columns.append(output.evaluate(self._inputs(output, taken, found)))
        return pa.Table.from_arrays(columns, schema=self.schema)

    def _taken(self, found: FoundRows, meter: Meter) -> list[Any]:
        """The columns of the dataset."""
        snapshot = self.source.snapshot
        known = [None if name is None else found.stored(name, snapshot) for name in self.plain]
        if all(column is not None for column in known):
            return known
        return list(take_physical(self.source, *found.places(snapshot), meter=meter).columns)

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


class _Maker:
    """Sorts columns into those of the dataset and those of the search."""

    def __init__(self, views: Views, options: ScanOptions, added: AddedColumns) -> None:
        self._views, self._blobs, self._added = views, options.blobs, added
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
    """The columns of a projection, of physical rows, as expressions see them: by path."""
    columns = take_physical(source, fragments, rows, meter=meter).columns
    return dict(zip(paths, map(_stored, columns, paths), strict=True))


def _stored(column: Any, path: str) -> Any:
    """A column as expressions see it."""
    array = join_large(column.chunks) if isinstance(column, pa.ChunkedArray) else column
    return to_type(array, storage_type(column.type), f"column {path!r}")


def _name(column: str | tuple[str, str]) -> str:
    return column if isinstance(column, str) else column[0]
