"""Projections of a dataset version, with their fragments kept open."""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable
from functools import partial
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
    refuse_reserved_names,
)
from glaive.scan.snapshot import Snapshot

if TYPE_CHECKING:
    from glaive.expr.filters import Filter, Value
    from glaive.scan.joined import JoinedFragments

T = TypeVar("T")

MIN_SMALL_FILES = 4
"""Minimum number of small files that are read in bulk: adjacent in a scan, unopened in a take."""

_MIN_PREFETCHED_ROWS = 2
"""Minimum rows of a take that checks whether files are in memory."""

_JOINS_PER_TAKE = 8
"""Fragments that can be joined in the time of a take from one."""

_KEPT_PER_READ = 16
"""Fragments that a take keeps, for each fragment that takes have read before."""

NEVER = sys.maxsize
"""Takes before all files are kept, where takes cannot keep them."""

_MIN_UNJOINED = 4
"""Unjoined fragments that takes read before any are joined or kept: the code loads in 12 ms."""

_MIN_JOIN_ALL = 64
"""Minimum fragments read before all are joined, once takes have read half of them."""

_READS_UNOPENED = 4
"""Reads of a small file in the time of opening and joining it, about."""

_MAX_KEPT = 64
"""Projections and filters kept per version, or per schema; one more clears them all."""

_MAX_SHARED = 1_000
"""Maximum columns, or characters of a filter, of what is kept per schema."""


_Key = tuple[Columns | None, bool, bool, BlobHandling, tuple[str, ...]]


class BoundProjection:
    """A projection of a snapshot, bound to each fragment on its first read."""

    __slots__ = (
        "__weakref__",
        "_cache",
        "_inputs",
        "_joins",
        "_joins_all",
        "_reread",
        "_taken_from",
        "_token",
        "_unjoined",
        "_without_inputs",
        "kept_after",
        "limited_scans",
        "projection",
        "schema",
        "snapshot",
        "takes",
    )

    def __init__(self, snapshot: Snapshot, projection: Projection) -> None:
        self.snapshot = snapshot
        self.projection = projection
        self.schema: pa.Schema = projection.schema
        # A weak reference: cache entries must not keep the projection, and so the session, alive.
        self._token = weakref.ref(self)
        self._cache = snapshot.session.cache
        self._taken_from: set[int] = set()
        self._unjoined = self._reread = self.limited_scans = 0
        self.takes = 0
        #: Takes keep all files of a small version after this many takes.
        few = snapshot.manifest.num_fragments < MIN_SMALL_FILES
        self.kept_after = _MIN_UNJOINED if few else 1
        self._joins = self._joins_all = projection.plain and not projection.has_extension_types
        self._without_inputs: BoundProjection | None = None
        self._inputs: dict[tuple[str, ...], BoundProjection] = {}

    def without_inputs(self) -> BoundProjection:
        """Return the same projection without the filter's columns, for rows that pass already."""
        projection = self.projection.without_inputs
        if projection is self.projection:
            return self
        if self._without_inputs is None:
            self._without_inputs = BoundProjection(self.snapshot, projection)
        return self._without_inputs

    def of_inputs(self, paths: tuple[str, ...]) -> BoundProjection:
        """Return a projection of some filter columns, to test rows before reading other columns."""
        known = self._inputs.get(paths)
        if known is None:
            blobs = self.projection.blobs  # a filter may read values
            projection = project(self.snapshot.manifest.schema, paths, blobs=blobs)
            known = self._inputs[paths] = BoundProjection(self.snapshot, projection)
        return known

    def fragment(self, position: int) -> BoundFragment:
        """Return the fragment at a position of the manifest's list, bound to the projection."""
        bound: BoundFragment | None = self._cache.get((self._token, position))
        if bound is None:
            bound = bind_fragment(self.snapshot, position, self.projection)
            self._cache.put((self._token, position), bound, bound.nbytes)
        return bound

    def is_mapped(self, position: int) -> bool:
        """Return whether the file of a fragment is mapped; no column is bound for that."""
        memo, key = self.snapshot.memo, ("mapped", position)
        if key not in memo:
            files = self.snapshot.manifest.fragment(position).files
            only: Any = self.snapshot.open_file(files[0]).reader if len(files) == 1 else None
            memo[key] = (only or self.fragment(position)).mapped
        return bool(memo[key])

    def kept(self, what: str, load: Callable[[], tuple[T, int]]) -> T:
        """Return a cached value; ``load`` returns it, with its size in bytes, on a miss."""
        value: T = self._cache.get_or_load((self._token, what), load)
        return value

    def known(self, what: str) -> bool:
        """Return whether a value is cached."""
        return self._cache.get((self._token, what)) is not None

    def for_taking(self, position: int, rows: NDArray[np.int64]) -> BoundFragment:
        """Return a fragment after starting the reads that a take of physical rows needs.

        Only cold mapped files are prefetched, for two rows or more.
        """
        self._taken_from.add(position)
        bound = self.fragment(position)
        bound.expect("random")
        if len(rows) >= _MIN_PREFETCHED_ROWS and bound.mapped and bound.is_cold():
            bound.prefetch(rows)
        return bound

    def joined(self, positions: NDArray[np.int64]) -> JoinedFragments | None:
        """Return the joined fragments if they include these positions, or join them if it pays.

        Joining pays once takes from single fragments have cost as much time as joining them.
        """
        joined = self.joined_before()
        if not self._joins or (joined is not None and joined.holds(positions)):
            return joined
        if not self.fragment(int(positions[0])).mapped:
            return None
        before = {} if joined is None else joined.fragments
        further = [position for position in positions.tolist() if position not in before]
        self._unjoined += len(further)
        if self._unjoined < max(_MIN_UNJOINED, (len(before) + len(further)) // _JOINS_PER_TAKE):
            return None
        from glaive.scan.joined import are_few, join_fragments

        fragments = before | {position: self.fragment(position) for position in further}
        if not are_few(fragments, self._cache.budget):
            return None
        self._unjoined = 0
        total = len(self.snapshot.manifest.fragment_ids)
        joined = self._join_all(fragments, total) or join_fragments(fragments, total)
        if joined is None:
            self._joins = False
            return None
        self._cache.put((self._token, "joined"), joined, joined.nbytes)
        return joined

    def _join_all(self, read: dict[int, BoundFragment], total: int) -> JoinedFragments | None:
        """Join all fragments once takes have read at least half of them.

        Otherwise each take would open a few more fragments and join all of them again.
        Return None where it is too early, or if joining all was tried before.
        """
        from glaive.scan.joined import are_few, join_fragments

        known = len(self._taken_from.union(read))
        if not self._joins_all or known < _MIN_JOIN_ALL or known < total // 2 or len(read) == total:
            return None
        self._joins_all = False
        if not are_few(read, self._cache.budget, total):
            return None
        try:
            whole = {position: self.fragment(position) for position in range(total)}
            joined = join_fragments(whole, total) if are_few(whole, self._cache.budget) else None
        except GlaiveError:  # in files that no take has read yet
            return None
        return joined if joined is not None and all(joined.columns) else None

    def joined_before(self) -> JoinedFragments | None:
        """Return the fragments that earlier takes joined."""
        joined: JoinedFragments | None = self._cache.get((self._token, "joined"))
        return joined

    @property
    def keeps_files(self) -> bool:
        """Whether so many takes have read so many fragments that all files are kept."""
        if self.takes <= self.kept_after:
            return False
        return len(self._taken_from) * _KEPT_PER_READ >= self.snapshot.manifest.num_fragments

    def is_unopened(self, position: int) -> bool:
        """Return whether a take reads a small file without opening it.

        That pays until takes have read the files several times, on average.
        """
        if self._cache.get((self._token, position)) is not None:
            return False
        self._reread += position in self._taken_from
        self._taken_from.add(position)
        return self._reread < _READS_UNOPENED * len(self._taken_from)

    def empty(self) -> pa.Table:
        """Return a table of the result's schema without rows."""
        from glaive.arrow.chunked import empty_table

        return empty_table(self.schema)

    def rows_alone(self, count: int) -> pa.Table:
        """Return a table of ``count`` rows, for a projection without columns."""
        metadata: Any = self.schema.metadata
        schema = pa.schema([pa.field("rows", pa.null())], metadata)
        return pa.Table.from_arrays([pa.nulls(count)], schema=schema).select([])


def bare_batch(rows: int) -> pa.RecordBatch:
    """Return a batch of ``rows`` rows without columns, which takes no memory."""
    without: Any = pa.Array.from_buffers(pa.struct([]), rows, [None])
    return pa.RecordBatch.from_struct_array(without)


class Views:
    """The projections of a snapshot in use, each computed once.

    ``before`` are the views of another version: a version with the same schema uses their
    projections, which know the sizes of rows.
    """

    __slots__ = ("_kept", "_projections", "snapshot")

    def __init__(self, snapshot: Snapshot, before: Views | None = None) -> None:
        self.snapshot = snapshot
        self._kept: dict[object, Any] = {}
        self._projections: dict[object, Any] = {}
        if before is not None and snapshot.manifest.shares_schema(before.snapshot.manifest):
            self._projections = before._projections  # noqa: SLF001  # of this class

    def scan(
        self,
        columns: Columns | None,
        *,
        with_row_id: bool = False,
        with_row_address: bool = False,
        blobs: BlobHandling = "descriptions",
        inputs: tuple[str, ...] = (),
    ) -> BoundProjection:
        """Return the projection of a scan: members of structs become top-level columns.

        ``inputs`` are paths that the filter or the order needs.
        """
        key: _Key = (columns, with_row_id, with_row_address, blobs, inputs)
        return self._kept.get(key) or self._keep(key, key, nested=False)

    def filter(self, source: Any) -> Filter:
        """Bind a filter to the columns; filters given as strings are cached."""
        from glaive.expr.filters import bind_filter

        schema = self.snapshot.manifest.schema
        load = partial(bind_filter, source, schema, system=SYSTEM_COLUMNS)
        if not isinstance(source, str):
            return load()
        condition: Filter = _once(self._shared(len(source)), ("filter", source), load)
        return condition

    def value(self, source: str) -> Value:
        """Bind an expression to the columns; cached."""
        from glaive.expr.filters import bind_value

        schema = self.snapshot.manifest.schema
        load = partial(bind_value, source, schema, system=SYSTEM_COLUMNS)
        value: Value = _once(self._shared(len(source)), ("value", source), load)
        return value

    def _shared(self, size: int) -> dict[object, Any]:
        """Return the store of values that depend on the schema alone; large ones stay here."""
        return self._kept if size > _MAX_SHARED else self.snapshot.manifest.schema.derived

    def take(
        self, columns: Columns | None, *, blobs: BlobHandling = "descriptions"
    ) -> BoundProjection:
        """Return the projection of a take: members stay within their structs."""
        key: _Key = (columns, False, False, blobs, ())
        short: object = columns if blobs == "descriptions" else (columns, blobs)
        return self._kept.get(short) or self._keep(key, short, nested=True)

    def _keep(self, key: _Key, kept_as: object, *, nested: bool) -> BoundProjection:
        columns, row_id, row_address, blobs, inputs = key
        if self.snapshot.manifest.data_format == LEGACY:
            blobs = "values"  # format 0.1 stores blobs as plain binary
        schema = self.snapshot.manifest.schema

        def load() -> Projection:
            refuse_reserved_names(schema, *[ROW_ID] * row_id, *[ROW_ADDRESS] * row_address)
            with refuse_half_characters("columns"):
                return project(
                    schema,
                    columns,
                    with_row_id=row_id,
                    with_row_address=row_address,
                    nested=nested,
                    blobs=blobs,
                    inputs=inputs,
                )

        def unmeasured() -> Projection:
            width = len(schema.fields if columns is None else columns)
            return _once(self._shared(width), known_as, load).unmeasured()

        known_as = (key, blobs, nested)
        bind = partial(BoundProjection, self.snapshot)
        projection = _once(self._projections, known_as, unmeasured)
        return _once(self._kept, kept_as, lambda: bind(projection))


def _once(kept: dict[object, Any], key: object, load: Callable[[], T]) -> T:
    """Return a value that is kept, or load it and keep it."""
    known: T | None = kept.get(key)
    if known is None:
        known = load()
        if len(kept) >= _MAX_KEPT:
            kept.clear()
        kept[key] = known
    return known
