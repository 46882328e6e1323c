"""Columns that every dataset has and no file holds: row ids, addresses, positions, versions."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from glaive.arrow.buffers import ascending, flags_of, integer_array
from glaive.arrow.conditions import Condition, InRange, IsOneOf
from glaive.errors import SchemaError
from glaive.format.flags import Feature
from glaive.memory import items_of
from glaive.scan.snapshot import Snapshot

if TYPE_CHECKING:
    from glaive.format.fields import LanceSchema
    from glaive.format.rowids import RowValues
    from glaive.table.lineage import Lineage

__all__ = [
    "CREATED_AT",
    "ROW_ADDRESS",
    "ROW_ID",
    "ROW_OFFSET",
    "SYSTEM_COLUMNS",
    "UPDATED_AT",
    "SystemColumns",
    "bounds",
    "numbers",
    "refuse_taken",
]

ROW_ID = "_rowid"
ROW_ADDRESS = "_rowaddr"
ROW_OFFSET = "_rowoffset"
CREATED_AT = "_row_created_at_version"
UPDATED_AT = "_row_last_updated_at_version"

SYSTEM_COLUMNS: Mapping[str, pa.DataType] = MappingProxyType(
    dict.fromkeys((ROW_ID, ROW_ADDRESS, ROW_OFFSET, CREATED_AT, UPDATED_AT), pa.uint64())
)
"""Their names and types."""

_LINEAGE: Mapping[str, Lineage] = MappingProxyType(
    {ROW_ID: "row_ids", CREATED_AT: "created_at", UPDATED_AT: "updated_at"}
)
_NUMBERS: WeakKeyDictionary[IsOneOf, NDArray[np.uint64]] = WeakKeyDictionary()
"""Those of sets, for as long as these are used."""

_HIGHEST = 2**64 - 1
_FIRST_VERSION = 1
"""What rows have as versions in datasets that do not keep them."""


class SystemColumns:
    """The system columns of one fragment, each worked out when it is first needed."""

    __slots__ = ("_first_live", "_ids", "_kept", "_live", "_load", "rows", "stable")

    def __init__(self, snapshot: Snapshot, position: int) -> None:
        from glaive.table.lineage import load_lineage

        fragment = snapshot.manifest.fragment(position)
        # Not the snapshot: what the session keeps must not keep the session.
        store, manifest = snapshot.store, snapshot.manifest

        def load(what: Lineage) -> RowValues:
            return load_lineage(store, manifest, manifest.fragment(position), what)

        self._load = load
        self._kept: dict[str, RowValues] = {}
        self._live = snapshot.live_rows(fragment)
        self._ids = fragment.id << 32
        self._first_live = snapshot.row_start_list[position]
        self.rows = fragment.physical_rows
        self.stable = snapshot.manifest.uses(Feature.STABLE_ROW_IDS)

    def of(self, name: str, rows: NDArray[np.int64]) -> NDArray[np.uint64]:
        """Values of a column for physical rows, deleted ones included."""
        if name == ROW_OFFSET:
            before: NDArray[np.int64] = rows + self._first_live
            if self._live is not None:
                before = before - self._live.deleted_before(rows)
            return before.astype(np.uint64)
        if self._is_address(name):
            return rows.view(np.uint64) + np.uint64(self._ids)  # rows are not below 0
        values = self._kept.get(name)
        if values is None:
            values = self._kept[name] = self._decode(name)
        return values.at(rows)

    def find(self, name: str, condition: Condition, start: int, stop: int) -> NDArray[np.int64]:
        """The rows from ``start`` to ``stop`` whose value passes, ascending."""
        if self._is_address(name):
            if isinstance(condition, InRange):
                first, last = bounds(condition)
                first, last = max(start, first - self._ids), min(stop - 1, last - self._ids)
                return np.arange(first, max(first, last + 1), dtype=np.int64)
            if isinstance(condition, IsOneOf) and not condition.negated:
                wanted = numbers(condition)
                low = np.uint64(self._ids + start)
                rows = wanted[wanted.searchsorted(low) :] - np.uint64(self._ids)
                return rows[: rows.searchsorted(np.uint64(stop))].astype(np.int64)
        values = self.of(name, np.arange(start, stop, dtype=np.int64))
        mask: Any = condition.mask(integer_array(values))
        flags = flags_of(mask.buffers()[1], len(mask), mask.offset)
        return np.flatnonzero(flags) + start

    def _is_address(self, name: str) -> bool:
        return name == ROW_ADDRESS or (name == ROW_ID and not self.stable)

    def _decode(self, name: str) -> RowValues:
        from glaive.format.rowids import RowValues

        if name != ROW_ID and not self.stable:
            return RowValues.constant(_FIRST_VERSION, self.rows)
        return self._load(_LINEAGE[name])


def refuse_taken(schema: LanceSchema, *names: str) -> None:
    """Refuse to look for what is known of rows where columns have the names of it.

    Other writers give columns such names. Values of any type would be taken for those of the rows.

    Raises
    ------
    SchemaError
        There is such a column; the message says how to get rid of it.
    """
    for name in names:
        if name in schema.names:
            raise SchemaError(
                f"column {name!r} of the dataset has a name that is reserved for what is known of "
                "each row, which is needed here. Rename the column (alter_columns), drop it "
                "(drop_columns), or read a version without it"
            )


def bounds(condition: InRange) -> tuple[int, int]:
    """Lowest and highest number of a range, both included."""
    least: Any = condition.low
    most: Any = condition.high
    low = 0 if least is None else least.as_py() + (not condition.low_included)
    high = _HIGHEST if most is None else most.as_py() - (not condition.high_included)
    return low, high


def numbers(condition: IsOneOf) -> NDArray[np.uint64]:
    """The numbers of a set, ascending, each once: made once, as each fragment asks for them."""
    known = _NUMBERS.get(condition)
    if known is None:
        values: Any = condition.values.drop_null().cast(pa.uint64())
        data = items_of(values.buffers()[1], np.uint64, len(values), 8 * values.offset)
        known = _NUMBERS[condition] = ascending(data)
    return known
