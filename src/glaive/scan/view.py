"""A version of a dataset seen through a projection, with its fragments kept opened."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from glaive.format.fragment import LEGACY
from glaive.scan.fragment import BoundFragment, bind_fragment
from glaive.scan.projection import BlobHandling, Projection, project
from glaive.scan.snapshot import Snapshot

__all__ = ["View", "Views"]

_MANY_ROWS = 8
"""Rows of a take from which on it is worth a look whether files are in memory."""

_PROJECTIONS = 64
"""Projections kept per version; beyond, all are let go."""


_Key = tuple[tuple[str, ...] | None, bool, bool, BlobHandling]


class View:
    """Fragments of a snapshot, bound to a projection when first asked for."""

    __slots__ = ("_cache", "_token", "projection", "schema", "snapshot")

    def __init__(self, snapshot: Snapshot, projection: Projection) -> None:
        self.snapshot = snapshot
        self.projection = projection
        self.schema: pa.Schema = projection.schema
        # Not the view itself: what the session keeps must not keep the session.
        self._token = object()
        self._cache = snapshot.session.cache

    def fragment(self, position: int) -> BoundFragment:
        """The fragment at a position of the manifest's list."""
        found: BoundFragment | None = self._cache.get((self._token, position))
        return found or self._bind(position, announce=False)

    def for_taking(self, position: int, rows: int) -> BoundFragment:
        """The same fragment, but one that announces its reads where that pays.

        It pays for more than a few rows of mapped files that are not in memory.
        """
        bound = self.fragment(position)
        if rows < _MANY_ROWS or not bound.mapped or not bound.is_cold():
            return bound
        found: BoundFragment | None = self._cache.get((self._token, ~position))
        return found or self._bind(position, announce=True)

    def _bind(self, position: int, *, announce: bool) -> BoundFragment:
        found = bind_fragment(self.snapshot, position, self.projection, announce=announce)
        key = (self._token, ~position if announce else position)
        self._cache.put(key, found, found.nbytes)
        return found

    def empty(self) -> pa.Table:
        """A table of the result's schema without rows."""
        return self.schema.empty_table()

    def rows_alone(self, count: int) -> pa.Table:
        """A table of so many rows, for a projection without columns."""
        metadata: Any = self.schema.metadata
        one = pa.schema([pa.field("rows", pa.null())], metadata)
        return pa.Table.from_arrays([pa.nulls(count)], schema=one).select([])


class Views:
    """The projections of a snapshot that were asked for, each worked out once."""

    __slots__ = ("_kept", "snapshot")

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        self._kept: dict[object, View] = {}

    def scan(
        self,
        columns: tuple[str, ...] | None,
        *,
        with_row_id: bool = False,
        with_row_address: bool = False,
        blobs: BlobHandling = "descriptions",
    ) -> View:
        """The view of a scan: members of structs become columns of their own."""
        key: _Key = (columns, with_row_id, with_row_address, blobs)
        return self._kept.get(key) or self._keep(key, nested=False)

    def take(self, columns: tuple[str, ...] | None) -> View:
        """The view of a take: members stay within their structs."""
        key: _Key = (columns, False, False, "descriptions")
        return self._kept.get(columns) or self._keep(key, nested=True)

    def _keep(self, key: _Key, *, nested: bool) -> View:
        columns, row_id, row_address, blobs = key
        if self.snapshot.manifest.data_format == LEGACY:
            blobs = "values"  # format 0.1 keeps blobs as it keeps all binary
        projection = project(
            self.snapshot.manifest.schema,
            columns,
            with_row_id=row_id,
            with_row_address=row_address,
            nested=nested,
            blobs=blobs,
        )
        if len(self._kept) >= _PROJECTIONS:
            self._kept.clear()
        view = self._kept[columns if nested else key] = View(self.snapshot, projection)
        return view
