"""Runs of many small fragments in a plan: read as one.

A fragment of a few rows costs far more to open than to decode, so neighbours that are alike
are read together; see :mod:`glaive.file.v2.small_files`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate, pairwise
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from glaive.arrow.buffers import number_array, pack_flags
from glaive.arrow.dictionaries import concat_arrays
from glaive.errors import CapacityError, StoreError
from glaive.file.v2.small_files import MAX_BYTES, read_small_files
from glaive.format.paths import data_file_path
from glaive.format.pb import table_pb2
from glaive.io.read_many import read_many
from glaive.scan.filter.columns import Cells
from glaive.scan.plan import FragmentRows, value_bytes
from glaive.scan.system_columns import SystemColumns
from glaive.scan.views import View

__all__ = ["SmallFragments", "find_small"]

_FEWEST = 8
"""Fragments in a row that are worth reading together."""

_KEPT = 16
"""Projections whose small fragments are remembered; beyond, all are forgotten."""

_MOST = 1024
_MOST_BYTES = 8 * 1024 * 1024
"""Fragments and bytes read at a time."""

_MOST_DECODED = 256 * 1024 * 1024
"""Bytes that they are decoded, about: a few bytes can stand for any number of rows."""

_LARGE_BYTES = 16 * 1024 * 1024
_LARGE_DECODED = 32 * 1024 * 1024
"""The same, for those who keep as much waiting anyway."""

_WHOLE_BYTES = 512 * 1024
"""Bytes of a file that counts as small when all of its columns are read."""


class _Room(NamedTuple):
    """Bytes on disk and rows that are read at a time."""

    size: int
    rows: int


@dataclass(frozen=True, slots=True)
class SmallFragments:
    """Neighbouring ranges of a plan, each the whole of a small fragment.

    The files at ``paths``, of ``sizes`` bytes, have columns ``column_indices`` for ``fields``,
    in this order.
    ``deleted`` tells in which of them rows are deleted.
    """

    ranges: Sequence[FragmentRows]
    paths: Sequence[str]
    sizes: Sequence[int]
    deleted: Sequence[bool]
    fields: tuple[int, ...]
    column_indices: tuple[int, ...]

    def read(
        self, view: View, *, coded: bool = False
    ) -> tuple[list[list[pa.Array]], list[int]] | None:
        """Chunks per field of the view, and live rows per range.

        ``None`` when the fragments must be read one by one. With ``coded``, text may have a
        dictionary; see :mod:`glaive.file.v2.dictionary_passthrough`.
        """
        found = self._fields(view, coded=coded)
        rows = [one.stop for one in self.ranges]
        if found is None or not any(self.deleted):
            return None if found is None else (found, rows)
        keep = self._live(view)
        starts = list(accumulate(rows[:-1], initial=0))
        live = np.add.reduceat(keep, starts, dtype=np.int64).tolist()
        mask = pa.array(keep)
        return [_filtered(chunks, mask) for chunks in found], live

    def cells(self, view: View) -> Cells | None:
        """All rows of the fragments, deleted ones included; None as for :meth:`read`."""
        found = self._fields(view)
        if found is None:
            return None
        try:
            arrays = [concat_arrays(chunks) for chunks in found]
        except CapacityError:
            return None
        rows = sum(one.stop for one in self.ranges)
        # Views with extension types are never read this way.
        return Cells(rows, arrays.__getitem__, partial(self._system, view), _same)

    def live_mask(self, view: View, flags: NDArray[np.bool_]) -> Any:
        """Those of the rows with a flag that are not deleted."""
        if any(self.deleted):
            flags = flags & self._live(view)
        return pa.Array.from_buffers(pa.bool_(), len(flags), [None, pack_flags(flags)])

    def places(
        self, view: View, flags: NDArray[np.bool_]
    ) -> Iterator[tuple[int, NDArray[np.int64]]]:
        """Id and rows of each fragment that has live rows with a flag."""
        if any(self.deleted):
            flags = flags & self._live(view)
        rows = np.flatnonzero(flags)
        starts = list(accumulate((one.stop for one in self.ranges), initial=0))
        cuts = np.searchsorted(rows, starts).tolist()
        ids = view.snapshot.manifest.fragment_ids
        for at, (first, last) in enumerate(pairwise(cuts)):
            if first < last:
                yield int(ids[self.ranges[at].position]), rows[first:last] - starts[at]

    def _system(self, view: View, name: str) -> Any:
        snapshot = view.snapshot
        parts = []
        for one in self.ranges:
            rows = np.arange(one.stop, dtype=np.int64)
            parts.append(SystemColumns(snapshot, one.position).of(name, rows))
        return number_array(np.concatenate(parts))

    def _fields(self, view: View, *, coded: bool = False) -> list[list[pa.Array]] | None:
        """Chunks per field of the view, deleted rows included."""
        column_of = dict(zip(self.fields, self.column_indices, strict=True))
        try:
            files = read_many(view.snapshot.store, self.paths, self.sizes)
        except StoreError:
            files = None
        if files is None:
            return None  # the reader of single files tells what is wrong
        rows = [one.stop for one in self.ranges]
        fields = view.projection.fields
        try:
            return read_small_files(files, rows, fields, column_of, coded=coded)
        except CapacityError:
            return None

    def _live(self, view: View) -> NDArray[np.bool_]:
        """One flag per physical row: whether it is not deleted."""
        keep = np.ones(sum(one.stop for one in self.ranges), np.bool_)
        first = 0
        for one, some in zip(self.ranges, self.deleted, strict=True):
            if some:
                fragment = view.snapshot.manifest.fragment(one.position)
                live = view.snapshot.live_rows(fragment)
                if live is not None:
                    keep[first + live.deleted] = False
            first += one.stop
        return keep


def _same(_at: int, array: Any) -> Any:
    return array


def _filtered(chunks: list[pa.Array], mask: pa.Array) -> list[pa.Array]:
    found: list[pa.Array] = pa.chunked_array(chunks).filter(mask).chunks
    return found


def find_small(
    view: View, ranges: Sequence[FragmentRows], *, large: bool = False
) -> Sequence[SmallFragments | Sequence[FragmentRows]]:
    """Cut the ranges of a plan into runs of small fragments and those that are not.

    With ``large``, runs are as long as memory of a few pages allows.
    """
    if len(ranges) < _FEWEST or view.projection.presented:
        return [ranges]
    width = sum(value_bytes(field.to_arrow().type) for field in view.projection.fields) or 8
    if large:
        return list(_parts(view, ranges, _Room(_LARGE_BYTES, _LARGE_DECODED // width)))
    room = _Room(_MOST_BYTES, _MOST_DECODED // width)
    memo = view.snapshot.memo
    if ranges is not memo.get("rows"):  # not all there is: hardly asked for again
        return list(_parts(view, ranges, room))
    key = ("small", view.projection.leaves)
    found: list[SmallFragments | Sequence[FragmentRows]] | None = memo.get(key)
    if found is None:
        if len(memo) > _KEPT:
            memo.clear()
        found = memo[key] = list(_parts(view, ranges, room))
    return found


def _parts(
    view: View, ranges: Sequence[FragmentRows], room: _Room
) -> Iterator[SmallFragments | Sequence[FragmentRows]]:
    wire = view.snapshot.manifest.fragment_wire
    leaves = view.projection.leaves
    first, at, end = 0, 0, len(ranges)
    while at < end:
        run = _run(wire, ranges, at, leaves, room)
        if run is None:
            at += 1
            continue
        if len(run.ranges) >= _FEWEST:
            if first < at:
                yield ranges[first:at]
            yield run
            first = at + len(run.ranges)
        at += len(run.ranges)
    if first < end:
        yield ranges[first:]


def _run(
    wire: Callable[[int], table_pb2.DataFragment],
    ranges: Sequence[FragmentRows],
    start: int,
    leaves: frozenset[int],
    room: _Room,
) -> SmallFragments | None:
    """The longest run of small fragments from a range on."""
    fragment = wire(ranges[start].position)
    head = _small_file(fragment, ranges[start], leaves)
    if head is None:
        return None
    fields, columns = tuple(head.fields), tuple(head.column_indices)
    whole = len(fields) == len(columns) == len(set(fields))
    if not whole or not leaves <= {f for f, c in zip(fields, columns, strict=True) if c >= 0}:
        return None
    files, size, rows = [head], head.file_size_bytes, fragment.physical_rows
    deleted = [fragment.HasField("deletion_file")]
    for one in ranges[start + 1 : start + _MOST]:
        fragment = wire(one.position)
        file = _small_file(fragment, one, leaves)
        if file is None or file.fields != head.fields:
            break
        size += file.file_size_bytes
        rows += fragment.physical_rows
        if size > room.size or rows > room.rows or file.column_indices != head.column_indices:
            break
        files.append(file)
        deleted.append(fragment.HasField("deletion_file"))
    run = ranges[start : start + len(files)]
    paths = [data_file_path(file.path) for file in files]
    sizes = [file.file_size_bytes for file in files]
    return SmallFragments(run, paths, sizes, deleted, fields, columns)


def _small_file(
    wire: table_pb2.DataFragment, rows: FragmentRows, leaves: frozenset[int]
) -> table_pb2.DataFile | None:
    """The one small file of a fragment of which all rows are read."""
    files = wire.files
    if len(files) != 1:
        return None
    if rows.start or rows.stop != wire.physical_rows:
        return None
    file = files[0]
    size = file.file_size_bytes
    most = MAX_BYTES
    if size > most and len(leaves) == sum(column >= 0 for column in file.column_indices):
        most = _WHOLE_BYTES
    return None if not 0 < size <= most or file.HasField("base_id") else file
