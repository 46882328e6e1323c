"""A version of a dataset seen through a projection, with its fragments kept opened."""

from __future__ import annotations

from threading import Lock

import pyarrow as pa

from glaive.scan.fragment import BoundFragment, bind_fragment
from glaive.scan.projection import Projection
from glaive.scan.snapshot import Snapshot

__all__ = ["View"]

_KEPT = 4096
"""Fragments kept opened per view; beyond, all are let go and opened again when needed."""


class View:
    """Fragments of a snapshot, bound to a projection when first asked for."""

    __slots__ = ("_bound", "_lock", "projection", "schema", "snapshot")

    def __init__(self, snapshot: Snapshot, projection: Projection) -> None:
        self.snapshot = snapshot
        self.projection = projection
        self.schema: pa.Schema = projection.schema
        self._bound: dict[int, BoundFragment] = {}
        self._lock = Lock()

    def fragment(self, position: int) -> BoundFragment:
        """The fragment at a position of the manifest's list."""
        found = self._bound.get(position)
        if found is None:
            found = bind_fragment(self.snapshot, position, self.projection)
            with self._lock:
                if len(self._bound) >= _KEPT:
                    self._bound.clear()
                self._bound[position] = found
        return found

    def empty(self) -> pa.Table:
        """A table of the result's schema without rows."""
        return self.schema.empty_table()
