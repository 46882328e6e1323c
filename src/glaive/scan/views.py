"""A version of a dataset seen through a projection, with its fragments kept opened."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from glaive.arrow.validation import refuse_half_characters
from glaive.errors import GlaiveError
from glaive.format.fragment import LEGACY
from glaive.scan.bound import BoundFragment, bind_fragment
from glaive.scan.projection import (
    ROW_ADDRESS,
    ROW_ID,
    SYSTEM_COLUMNS,
    BlobHandling,
    Columns,
    Projection,
    project,
    refuse_taken,
)
from glaive.scan.snapshot import Snapshot

if TYPE_CHECKING:
    from glaive.expr.filters import Filter
    from glaive.scan.joined import JoinedFragments

T = TypeVar("T")

MIN_SMALL_FILES = 4
"""Small files that takes meet for the first time which are worth reading in bulk."""

_MIN_PREFETCHED_ROWS = 2
"""Rows of a take from which on it is worth a look whether files are in memory."""

_JOINED_FOR_ONE = 8
"""Fragments that are joined in the time that a take from one costs."""

_MIN_MISSED = 4
"""Fragments that takes meet before any are joined: the modules for that take 12 ms to load."""

_MIN_SPREAD = 64
"""Fragments met from which on takes that met half of all are taken to go on to the others."""

_MAX_PROJECTIONS = 64
"""Projections kept per version; beyond, all are let go."""


_Key = tuple[Columns | None, bool, bool, BlobHandling, tuple[str, ...]]


class BoundProjection:
    """A projection of a snapshot, bound to each of its fragments when that is first read."""

    __slots__ = (
        "__weakref__",
        "_cache",
        "_inputs",
        "_joins",
        "_met",
        "_missed",
        "_spreads",
        "_token",
        "_without_inputs",
        "projection",
        "schema",
        "snapshot",
    )

    def __init__(self, snapshot: Snapshot, projection: Projection) -> None:
        self.snapshot = snapshot
        self.projection = projection
        self.schema: pa.Schema = projection.schema
        # Not the projection itself: what the session keeps must not keep the session.
        self._token = weakref.ref(self)
        self._cache = snapshot.session.cache
        self._met: set[int] = set()
        self._missed = 0
        self._joins = self._spreads = projection.plain and not projection.has_extension_types
        self._without_inputs: BoundProjection | None = None
        self._inputs: dict[tuple[str, ...], BoundProjection] = {}

    def without_inputs(self) -> BoundProjection:
        """The same result, for rows that are known to pass: columns of the filter are not read."""
        projection = self.projection.without_inputs
        if projection is self.projection:
            return self
        if self._without_inputs is None:
            self._without_inputs = BoundProjection(self.snapshot, projection)
        return self._without_inputs

    def of_inputs(self, paths: tuple[str, ...]) -> BoundProjection:
        """These columns of the filter alone, for rows that are tested before others are read."""
        known = self._inputs.get(paths)
        if known is None:
            blobs = self.projection.blobs  # a test may look at values
            projection = project(self.snapshot.manifest.schema, paths, blobs=blobs)
            known = self._inputs[paths] = BoundProjection(self.snapshot, projection)
        return known

    def fragment(self, position: int) -> BoundFragment:
        """The fragment at a position of the manifest's list."""
        bound: BoundFragment | None = self._cache.get((self._token, position))
        if bound is None:
            bound = bind_fragment(self.snapshot, position, self.projection)
            self._cache.put((self._token, position), bound, bound.nbytes)
        return bound

    def kept(self, what: str, load: Callable[[], tuple[T, int]]) -> T:
        """What ``load`` returned once, and its size in bytes; it may be loaded again later."""
        value: T = self._cache.get_or_load((self._token, what), load)
        return value

    def for_taking(self, position: int, rows: NDArray[np.int64]) -> BoundFragment:
        """The same fragment, once what the physical rows need is being read, if that is known.

        That pays for more than a few rows of mapped files that are not in memory.
        """
        bound = self.fragment(position)
        bound.expect("random")
        if len(rows) >= _MIN_PREFETCHED_ROWS and bound.mapped and bound.is_cold():
            bound.prefetch(rows)
        return bound

    def joined(self, positions: NDArray[np.int64]) -> JoinedFragments | None:
        """Fragments that takes met, joined, if these are among them or joining them pays.

        Fragments are joined once takes of single ones have cost what joining costs.
        """
        joined = self.joined_before()
        if not self._joins or (joined is not None and joined.holds(positions)):
            return joined
        if not self.fragment(int(positions[0])).mapped:
            return None
        before = {} if joined is None else joined.fragments
        further = [position for position in positions.tolist() if position not in before]
        self._missed += len(further)
        if self._missed < max(_MIN_MISSED, (len(before) + len(further)) // _JOINED_FOR_ONE):
            return None
        from glaive.scan.joined import are_few, join_fragments

        fragments = before | {position: self.fragment(position) for position in further}
        if not are_few(fragments, self._cache.budget):
            return None
        self._missed = 0
        total = len(self.snapshot.manifest.fragment_ids)
        joined = self._join_all(fragments, total) or join_fragments(fragments, total)
        if joined is None:
            self._joins = False
            return None
        self._cache.put((self._token, "joined"), joined, joined.nbytes)
        return joined

    def _join_all(self, met: dict[int, BoundFragment], total: int) -> JoinedFragments | None:
        """All fragments joined, once takes met so many that they will soon have met all.

        Else each take would open a few more, and join all of them again. None where it is too
        early, or where all cannot be joined: that is tried once.
        """
        from glaive.scan.joined import are_few, join_fragments

        if not self._spreads or len(met) < _MIN_SPREAD or not total // 2 <= len(met) < total:
            return None
        self._spreads = False
        if not are_few(met, self._cache.budget, total):
            return None
        try:
            every = {position: self.fragment(position) for position in range(total)}
            joined = join_fragments(every, total) if are_few(every, self._cache.budget) else None
        except GlaiveError:  # of files that no take has asked for
            return None
        return joined if joined is not None and all(joined.columns) else None

    def joined_before(self) -> JoinedFragments | None:
        """The fragments that takes before have joined."""
        joined: JoinedFragments | None = self._cache.get((self._token, "joined"))
        return joined

    def meets(self, position: int) -> bool:
        """Whether the fragment is met for the first time: neither opened nor met by a take."""
        if position in self._met or self._cache.get((self._token, position)) is not None:
            return False
        self._met.add(position)
        return True

    def empty(self) -> pa.Table:
        """A table of the result's schema without rows."""
        from glaive.arrow.chunked import empty_table

        return empty_table(self.schema)

    def rows_alone(self, count: int) -> pa.Table:
        """A table of so many rows, for a projection without columns."""
        metadata: Any = self.schema.metadata
        schema = pa.schema([pa.field("rows", pa.null())], metadata)
        return pa.Table.from_arrays([pa.nulls(count)], schema=schema).select([])


def bare_batch(rows: int) -> pa.RecordBatch:
    """A batch of so many rows without columns, which takes no memory."""
    without: Any = pa.Array.from_buffers(pa.struct([]), rows, [None])
    return pa.RecordBatch.from_struct_array(without)


class Views:
    """The projections of a snapshot that were needed, each worked out once."""

    __slots__ = ("_filters", "_kept", "snapshot")

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        self._kept: dict[object, BoundProjection] = {}
        self._filters: dict[str, Filter] = {}

    def scan(
        self,
        columns: Columns | None,
        *,
        with_row_id: bool = False,
        with_row_address: bool = False,
        blobs: BlobHandling = "descriptions",
        inputs: tuple[str, ...] = (),
    ) -> BoundProjection:
        """The projection of a scan: members of structs become columns of their own.

        ``inputs`` are paths that its filter or its order needs.
        """
        key: _Key = (columns, with_row_id, with_row_address, blobs, inputs)
        return self._kept.get(key) or self._keep(key, key, nested=False)

    def filter(self, source: Any) -> Filter:
        """A filter bound to the columns; what was written as text is kept."""
        condition = self._filters.get(source) if isinstance(source, str) else None
        if condition is None:
            from glaive.expr.filters import bind_filter

            schema = self.snapshot.manifest.schema
            condition = bind_filter(source, schema, system=SYSTEM_COLUMNS)
            if isinstance(source, str):
                if len(self._filters) >= _MAX_PROJECTIONS:
                    self._filters.clear()
                self._filters[source] = condition
        return condition

    def take(
        self, columns: Columns | None, *, blobs: BlobHandling = "descriptions"
    ) -> BoundProjection:
        """The projection of a take: members stay within their structs."""
        key: _Key = (columns, False, False, blobs, ())
        short: object = columns if blobs == "descriptions" else (columns, blobs)
        return self._kept.get(short) or self._keep(key, short, nested=True)

    def _keep(self, key: _Key, kept_as: object, *, nested: bool) -> BoundProjection:
        columns, row_id, row_address, blobs, inputs = key
        if self.snapshot.manifest.data_format == LEGACY:
            blobs = "values"  # format 0.1 keeps blobs as it keeps all binary
        schema = self.snapshot.manifest.schema
        refuse_taken(schema, *[ROW_ID] * row_id, *[ROW_ADDRESS] * row_address)
        with refuse_half_characters("columns"):
            projection = project(
                schema,
                columns,
                with_row_id=row_id,
                with_row_address=row_address,
                nested=nested,
                blobs=blobs,
                inputs=inputs,
            )
        if len(self._kept) >= _MAX_PROJECTIONS:
            self._kept.clear()
        bound = self._kept[kept_as] = BoundProjection(self.snapshot, projection)
        return bound
