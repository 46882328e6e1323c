"""The condition of an update, over matched rows of the source and of the dataset."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from glaive.arrow.buffers import integer_array
from glaive.arrow.capacity import in_parts
from glaive.arrow.chunked import one_array
from glaive.dataclass import dataclass
from glaive.dataset.merging.matches import Matches
from glaive.dataset.merging.old_values import OldValues
from glaive.dataset.merging.row_windows import gather_rows
from glaive.expr.blob_uses import refuse_blob_uses
from glaive.expr.filters import Filter, bind_filter
from glaive.expr.names import check_column_texts
from glaive.format.fields import LanceSchema
from glaive.scan.system_columns import ROW_ADDRESS, ROW_ID

if TYPE_CHECKING:
    from glaive.dataset.version import OpenedVersion

__all__ = ["bind_condition", "holds"]

_SYSTEM: Final = pa.field(ROW_ID, pa.uint64()), pa.field(ROW_ADDRESS, pa.uint64())
"""System columns of the target."""

_WINDOW_ROWS: Final = 256 * 1024
"""Matched rows for which a condition is evaluated at a time."""


def bind_condition(schema: LanceSchema, source: pa.Schema, condition: str) -> Filter:
    """A condition over the columns of ``source`` and ``target``.

    Raises
    ------
    FilterError
        It is invalid; the message says what and where.
    UnsupportedFeatureError
        It looks into a blob column of the target.
    """
    sides = pa.schema(
        [
            pa.field("source", pa.struct(list(source))),
            pa.field("target", pa.struct([*schema.to_arrow(), *_SYSTEM])),
        ]
    )
    joined = LanceSchema.from_arrow(sides)
    check_column_texts(joined, condition)
    bound = bind_filter(condition, joined)
    refuse_blob_uses(bound.expression, [joined.by_name["target"]], "the condition of a merge")
    return bound


def holds(
    dataset: OpenedVersion, condition: str, matches: Matches, rows: pa.Table
) -> NDArray[np.bool_]:
    """The matches for which the condition over ``source`` and ``target`` holds.

    Memory: the columns of the condition for some hundred thousand rows.
    """
    bound = bind_condition(dataset.manifest.schema, rows.schema, condition)
    sides = _Sides.of(dataset, bound, rows)
    count = len(matches.source)
    # In the order of the source where it is read in several parts.
    order = np.arange(count) if count <= _WINDOW_ROWS else np.argsort(matches.source, kind="stable")
    held = np.zeros(count, np.bool_)

    def work(start: int, stop: int) -> None:
        part = order[start:stop]
        mask: Any = bound.mask(sides.of_matches(matches.only(part)))
        held[part] = mask.to_numpy(zero_copy_only=False)

    for start in range(0, count, _WINDOW_ROWS):
        for _ in in_parts(work, start, min(start + _WINDOW_ROWS, count)):
            pass
    return held


@dataclass(frozen=True, slots=True)
class _Sides:
    """The columns that a condition uses, of the source and of the dataset."""

    rows: pa.Table
    old: OldValues
    stored: tuple[str, ...]
    system: tuple[str, ...]

    @classmethod
    def of(cls, dataset: OpenedVersion, bound: Filter, rows: pa.Table) -> _Sides:
        def used(side: str) -> list[str]:
            paths = [path.split(".") for path in bound.columns]
            return sorted({path[1] for path in paths if path[0] == side})

        system = [field.name for field in _SYSTEM]
        stored = tuple(name for name in used("target") if name not in system)
        asked = tuple(name for name in used("target") if name in system)
        return cls(rows.select(used("source")), OldValues(dataset, stored), stored, asked)

    def of_matches(self, matches: Matches) -> pa.RecordBatch:
        """A struct of either side."""
        columns: dict[str, Any] = {}
        if self.stored:
            table: Any = self.old.take(matches.addresses)
            columns = {name: one_array(table.column(name)) for name in self.stored}
        numbers = {ROW_ID: matches.ids, ROW_ADDRESS: matches.addresses}
        columns |= {name: integer_array(numbers[name]) for name in self.system}
        new: Any = gather_rows(self.rows, matches.source)
        given = {name: one_array(new.column(name)) for name in new.schema.names}
        rows = len(matches.source)
        return pa.RecordBatch.from_arrays(
            [_struct(given, rows), _struct(columns, rows)], names=["source", "target"]
        )


def _struct(columns: Mapping[str, Any], rows: int) -> Any:
    if not columns:
        return pa.nulls(rows, pa.struct([]))
    return pa.StructArray.from_arrays(list(columns.values()), names=list(columns))
