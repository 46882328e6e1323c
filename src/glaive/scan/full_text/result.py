"""Columns of the rows that a search of texts found: those of the dataset, and the score.

Specification: "Searching" in ``docs/format/text-indices.md``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, cast

import pyarrow as pa

from glaive.arrow.chunked import join_large
from glaive.arrow.extensions import to_type
from glaive.expr.filters import Value, bind_value
from glaive.format.extension import storage_type
from glaive.format.flags import Feature
from glaive.index.text.term_search import Hits
from glaive.scan.metrics import Meter
from glaive.scan.options import ScanOptions
from glaive.scan.projection import Columns
from glaive.scan.system_columns import ROW_ADDRESS, ROW_ID, SYSTEM_COLUMNS
from glaive.scan.take import take_physical
from glaive.scan.views import BoundProjection, Views

__all__ = ["FOUND_COLUMNS", "SCORE", "ScoredColumns", "ScoredValues"]

SCORE: Final = "_score"

_ADDRESSES: Final = frozenset((ROW_ID, ROW_ADDRESS))
"""Columns that are the addresses of rows where row ids are not stable."""

_TYPE: Final = pa.float32()

FOUND_COLUMNS: Final[Mapping[str, pa.DataType]] = MappingProxyType({**SYSTEM_COLUMNS, SCORE: _TYPE})
"""Columns that rows have beside those of the dataset."""


def _take(source: BoundProjection, found: Hits, meter: Meter) -> pa.Table:
    return take_physical(source, *source.snapshot.places_of(found.rows), meter=meter)


@dataclass(frozen=True, slots=True, eq=False)
class ScoredValues:
    """Columns by path for rows that were found, for filters and orders.

    Parameters
    ----------
    source
        The columns that come from the dataset.
    paths
        Of all columns.
    """

    source: BoundProjection
    paths: tuple[str, ...]

    @classmethod
    def of(cls, views: Views, paths: Sequence[str]) -> ScoredValues:
        """Columns at some paths, as they are stored."""
        distinct = tuple(dict.fromkeys(paths))
        return cls(views.scan(tuple(path for path in distinct if path != SCORE)), distinct)

    def batch(self, found: Hits, meter: Meter) -> pa.RecordBatch:
        """One column for each path; of at least one row."""
        stored = [path for path in self.paths if path != SCORE]
        columns: dict[str, Any] = {SCORE: pa.array(found.scores)}
        if stored:
            table = _take(self.source, found, meter)
            columns |= dict(zip(stored, map(_stored, table.columns, stored), strict=True))
        return pa.RecordBatch.from_arrays([columns[path] for path in self.paths], list(self.paths))


@dataclass(frozen=True, slots=True, eq=False)
class ScoredColumns:
    """The columns of the result.

    Parameters
    ----------
    source
        The columns that come from the dataset.
    outputs
        For each column of the result its number among those, an expression with the score, or
        None: the score.
    schema
        Of the result.
    """

    source: BoundProjection
    outputs: tuple[int | Value | None, ...]
    schema: pa.Schema

    @classmethod
    def of(cls, views: Views, options: ScanOptions) -> ScoredColumns:
        """Work out the columns: as asked for, the score behind them, row ids last.

        Raises
        ------
        ColumnNotFoundError
            A column does not exist.
        FilterError
            An expression cannot be understood.
        """
        key = (
            "scored columns", options.columns, options.with_row_id, options.with_row_address,
            options.blobs, options.disable_scoring_autoprojection,
        )  # fmt: skip
        memo = views.snapshot.memo
        known: ScoredColumns | None = memo.get(key)
        if known is None:
            known = memo[key] = cls._made(views, options)
        return known

    @classmethod
    def _made(cls, views: Views, options: ScanOptions) -> ScoredColumns:
        schema = views.snapshot.manifest.schema
        last = [ROW_ID] * options.with_row_id + [ROW_ADDRESS] * options.with_row_address
        named: Sequence[Any] = schema.names if options.columns is None else options.columns
        wanted = [column for column in named if column not in last]
        shown = [column if isinstance(column, str) else column[0] for column in wanted]
        if SCORE not in shown and not options.disable_scoring_autoprojection:
            wanted.append(SCORE)
        stored: list[Any] = []
        inputs: list[str] = []
        outputs: list[int | Value | None] = []
        for column in (*wanted, *last):
            if column == SCORE or column[1:] == (SCORE,):
                outputs.append(None)
                continue
            if not isinstance(column, str) and SCORE in column[1]:
                value = bind_value(column[1], schema, system=FOUND_COLUMNS)
                if SCORE in value.columns:
                    inputs += [path for path in value.columns if path != SCORE]
                    outputs.append(value)
                    continue
            outputs.append(len(stored))
            stored.append(column)
        # Behind those of the result, so that these are found by their number.
        columns = cast("Columns", (*stored, *dict.fromkeys(inputs)))
        source = views.scan(columns, blobs=options.blobs)
        fields = []
        for column, output in zip((*wanted, *last), outputs, strict=True):
            name = column if isinstance(column, str) else column[0]
            if isinstance(output, int):
                fields.append(source.schema.field(output))
            else:
                fields.append(pa.field(name, _TYPE if output is None else output.type))
        metadata: Any = source.schema.metadata
        return cls(source, tuple(outputs), pa.schema(fields, metadata))

    def table(self, found: Hits, meter: Meter) -> pa.Table:
        """The rows, in this order."""
        size = len(found.rows)
        if not self.outputs:
            return self.source.rows_alone(size)
        if not size:
            return self.schema.empty_table()
        taken: list[Any] = []
        snapshot, names = self.source.snapshot, frozenset(self.source.schema.names)
        if names <= _ADDRESSES and not snapshot.manifest.uses(Feature.STABLE_ROW_IDS):
            taken = [pa.array(found.rows)] * len(self.source.schema)
        elif self.source.projection.outputs:
            taken = list(_take(self.source, found, meter).columns)
        columns: list[Any] = []
        for output in self.outputs:
            if isinstance(output, int):
                columns.append(taken[output])
            elif output is None:
                columns.append(pa.array(found.scores))
            else:
                columns.append(output.evaluate(self._inputs(output, taken, found)))
        return pa.Table.from_arrays(columns, schema=self.schema)

    def _inputs(self, value: Value, taken: list[Any], found: Hits) -> pa.RecordBatch:
        names = self.source.schema.names
        arrays: list[Any] = []
        for path in value.columns:
            if path == SCORE:
                arrays.append(pa.array(found.scores))
            else:
                arrays.append(_stored(taken[len(names) - 1 - names[::-1].index(path)], path))
        return pa.RecordBatch.from_arrays(arrays, list(value.columns))


def _stored(column: Any, path: str) -> Any:
    """A column as expressions see it."""
    return to_type(join_large(column.chunks), storage_type(column.type), f"column {path!r}")
