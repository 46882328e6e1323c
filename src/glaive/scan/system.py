"""Columns that every dataset has and no file holds: row ids, addresses, positions, versions."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from glaive.format.flags import Feature
from glaive.format.fragment import Fragment
from glaive.format.rowids import decode_row_ids, decode_versions
from glaive.scan.snapshot import Snapshot

__all__ = [
    "CREATED_AT",
    "ROW_ADDRESS",
    "ROW_ID",
    "ROW_OFFSET",
    "SYSTEM_COLUMNS",
    "UPDATED_AT",
    "SystemColumns",
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

_FIRST_VERSION = 1
"""What rows have as versions in datasets that do not keep them."""


class SystemColumns:
    """The system columns of one fragment, each worked out when first asked for."""

    __slots__ = ("_deleted", "_fragment", "_ids", "_kept", "_where", "first_live", "stable")

    def __init__(self, snapshot: Snapshot, fragment: Fragment, first_live: int) -> None:
        self._fragment = fragment
        self._where = f"{snapshot.manifest.where}, fragment {fragment.id}"
        self._kept: dict[str, NDArray[np.uint64]] = {}
        live = snapshot.live_rows(fragment)
        self._deleted = None if live is None else live.deleted
        self._ids = fragment.id << 32
        self.first_live = first_live
        self.stable = snapshot.manifest.uses(Feature.STABLE_ROW_IDS)

    def of(self, name: str, rows: NDArray[np.int64]) -> NDArray[np.uint64]:
        """Values of a column for physical rows, deleted ones included."""
        if name == ROW_OFFSET:
            before: NDArray[np.int64] = rows + self.first_live
            if self._deleted is not None:
                before = before - np.searchsorted(self._deleted, rows)
            return before.astype(np.uint64)
        if name == ROW_ADDRESS or (name == ROW_ID and not self.stable):
            return rows.astype(np.uint64) + np.uint64(self._ids)
        found = self._kept.get(name)
        if found is None:
            found = self._kept[name] = self._decode(name)
        return found[rows]

    def _decode(self, name: str) -> NDArray[np.uint64]:
        one, rows = self._fragment, self._fragment.physical_rows
        if name == ROW_ID:
            return decode_row_ids(one.row_ids or b"", rows, where=self._where)
        wire = one.created_at if name == CREATED_AT else one.updated_at
        if wire is None:
            return np.full(rows, _FIRST_VERSION, np.uint64)
        return decode_versions(wire, rows, where=self._where)
