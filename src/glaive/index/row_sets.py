"""Sets of rows: ranges in memory, roaring bitmaps on disk, and maps of moved rows.

Specification: "Sets of rows" in ``docs/format/indices.md``.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice, pairwise
from typing import TYPE_CHECKING, Any, Final, Protocol, Self, TypeAlias, cast

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from glaive.arrow.blocks import ascending, number_array
from glaive.arrow.chunked import as_numpy
from glaive.arrow.conditions import constants
from glaive.dataclass import NamedTuple, dataclass
from glaive.encodings.compression import check_decoded
from glaive.errors import CorruptFileError, LimitError, UnsupportedFeatureError
from glaive.format.bitmaps import MAX_NUMBERS, RANGE_BYTES, is_of_runs, ranges_of
from glaive.format.wire import parse_bitmap
from glaive.index.row_set_bytes import (
    MAX_LISTED,
    MIN_OFFSETS,
    RUN_COOKIE,
    SET_BYTES,
    ascending_sets,
    encode_ascending,
)
from glaive.types import Flags, Int64s, UInt64s

if TYPE_CHECKING:
    from pyroaring import BitMap, BitMap64


MAX_LISTED_ROWS = 1 << 22
"""Maximum rows of a set to list at a time: a set may have very many rows."""

RowNumbers: TypeAlias = NDArray[np.uint64]
"""Row addresses, or stable row ids."""


@dataclass(frozen=True, slots=True, eq=False)
class RowSet:
    """Rows by number: addresses or stable row ids. Immutable.

    Parameters
    ----------
    starts, stops
        Half-open ranges, ascending, with gaps between them, of numbers below 2^64 - 1.
    """

    starts: RowNumbers
    stops: RowNumbers

    @classmethod
    def of(cls, rows: RowNumbers) -> Self:
        """Build the set of some rows, in any order, possibly repeated."""
        if len(rows) == 0:
            return cls(rows, rows)
        rows = ascending(rows)
        if rows.item(-1) == _NO_ROW:
            return cls.of(rows[:-1])
        ends = np.flatnonzero(np.diff(rows) != 1)
        starts = rows[np.concatenate(([0], ends + 1))]
        return cls(starts, rows[np.append(ends, len(rows) - 1)] + np.uint64(1))

    @classmethod
    def of_ranges(cls, starts: RowNumbers, stops: RowNumbers) -> Self:
        """Build the union of ranges, in any order; ranges may be empty."""
        return cls._swept([starts], [stops], 1)

    @classmethod
    def union(cls, sets: Sequence[RowSet]) -> RowSet:
        """Return the rows in any of the sets."""
        if len(sets) == 1:
            return sets[0]
        return cls._swept([rows.starts for rows in sets], [rows.stops for rows in sets], 1)

    @classmethod
    def intersection(cls, sets: Sequence[RowSet]) -> Self:
        """Return the rows in all of the sets; there must be at least one set."""
        starts, stops = [rows.starts for rows in sets], [rows.stops for rows in sets]
        return cls._swept(starts, stops, len(sets))

    @classmethod
    def _swept(cls, starts: Sequence[RowNumbers], stops: Sequence[RowNumbers], depth: int) -> Self:
        """Return the rows in at least ``depth`` of the ranges."""
        begins = np.concatenate([np.empty(0, np.uint64), *starts])
        ends = np.concatenate([np.empty(0, np.uint64), *stops])
        kept = begins < ends
        if not bool(kept.all()):
            begins, ends = begins[kept], ends[kept]
        count = len(begins)
        points = np.concatenate((begins, ends))
        del begins, ends  # with tens of millions of ranges each array counts
        # Starts sort before equal ends, so that adjacent ranges become one.
        order = np.argsort(points, kind="stable")
        points = points[order]
        change = np.where(order < count, np.int8(1), np.int8(-1))
        del order
        inside = np.cumsum(change, dtype=np.int32) >= depth
        before = np.concatenate(([False], inside[:-1])) if len(inside) else inside
        firsts, lasts = points[inside & ~before], points[before & ~inside]
        # A range that begins where another ends leaves an empty range.
        real = firsts < lasts
        return cls(firsts, lasts) if bool(real.all()) else cls(firsts[real], lasts[real])

    def difference(self, other: RowSet) -> RowSet:
        """Return the rows in this set that are not in the other."""
        if not len(other.starts):
            return self
        limit = np.array([np.iinfo(np.uint64).max], np.uint64)
        first = np.zeros(1, np.uint64)
        rest = RowSet.of_ranges(
            np.concatenate((first, other.stops)), np.concatenate((other.starts, limit))
        )
        return RowSet.intersection([self, rest])

    @property
    def count(self) -> int:
        """Number of rows."""
        return int((self.stops - self.starts).sum())

    @property
    def nbytes(self) -> int:
        """Bytes of memory."""
        return int(self.starts.nbytes + self.stops.nbytes)

    def rows(self) -> RowNumbers:
        """Return all rows, ascending; memory: 8 bytes per row, see :attr:`count`."""
        if self.count == len(self.starts):
            return self.starts
        sizes = (self.stops - self.starts).astype(np.int64)
        before = np.cumsum(sizes) - sizes
        steps = np.arange(int(sizes.sum()), dtype=np.int64) - np.repeat(before, sizes)
        return np.repeat(self.starts, sizes) + steps.astype(np.uint64)

    def windows(self, max_rows: int) -> Iterator[RowNumbers]:
        """Yield all rows, ascending, at most ``max_rows`` at a time."""
        ends = np.cumsum(self.stops - self.starts)
        for start in range(0, self.count, max_rows):
            stop = min(start + max_rows, self.count)
            first = int(ends.searchsorted(np.uint64(start), side="right"))
            last = int(ends.searchsorted(np.uint64(stop), side="left")) + 1
            starts, stops = self.starts[first:last].copy(), self.stops[first:last].copy()
            stops[-1] -= ends[last - 1] - np.uint64(stop)
            starts[0] = self.stops[first] - (ends[first] - np.uint64(start))
            yield RowSet(starts, stops).rows()

    def mapped(self, change: Callable[[RowNumbers], RowSet], known: Callable[[], RowSet]) -> RowSet:
        """Return the set after ``change``; a large set is first restricted to ``known`` rows.

        A set of a few bytes may have billions of rows.
        """
        if self.count <= MAX_LISTED_ROWS:
            return change(self.rows())
        rows = RowSet.intersection([self, known()])
        return RowSet.union([NO_ROWS, *map(change, rows.windows(MAX_LISTED_ROWS))])

    def within(self, start: int, stop: int) -> RowSet:
        """Return the rows from ``start`` to ``stop``, exclusive."""
        first = int(np.searchsorted(self.stops, np.uint64(start), side="right"))
        last = int(np.searchsorted(self.starts, np.uint64(stop), side="left"))
        if first >= last:
            return RowSet(self.starts[:0], self.stops[:0])
        starts, stops = self.starts[first:last].copy(), self.stops[first:last].copy()
        starts[0] = max(int(starts[0]), start)
        stops[-1] = min(int(stops[-1]), stop)
        return RowSet(starts, stops)

    def within_ranges(self, ranges: RowSet) -> RowSet:
        """Return the rows that are also in ``ranges``, which should have few ranges."""
        first = ranges.stops.searchsorted(self.starts, side="right")
        touches = first < len(ranges.stops)
        inside = touches & (ranges.stops.searchsorted(self.stops, side="left") == first)
        begins = ranges.starts[first[touches]]
        inside[touches] &= begins <= self.starts[touches]
        if bool(inside.all()):
            return self
        touches[touches] = begins < self.stops[touches]
        cut = touches & ~inside
        whole = RowSet(self.starts[inside], self.stops[inside])
        if not bool(cut.any()):
            return whole
        crossing = RowSet(self.starts[cut], self.stops[cut])
        return RowSet.union([whole, RowSet.intersection([crossing, ranges])])

    def contains(self, rows: RowNumbers) -> NDArray[np.bool_]:
        """Return flags of the given rows that are in the set."""
        at = np.searchsorted(self.stops, rows, side="right")
        known = at < len(self.starts)
        flags: NDArray[np.bool_] = known.copy()
        flags[known] = self.starts[at[known]] <= rows[known]
        return flags


_NO_ROW: Final = 2**64 - 1
"""Number beyond all rows; a damaged index may contain it."""

NO_ROWS = RowSet(np.empty(0, np.uint64), np.empty(0, np.uint64))


# --- Maps from old to new addresses of moved rows ---------------------------------------
# Specification: "Rows that moved" in ``docs/format/refs.md``.

Addresses = UInt64s
"""Row addresses: the fragment in the upper 32 bits, the physical row in the lower 32 bits."""

Survivors = bytes | Addresses
"""Old addresses of surviving rows: a 64-bit roaring bitmap, or an array ascending per fragment."""

_SHIFT = np.uint64(32)
_OFFSET = np.uint64(0xFFFF_FFFF)
_DELETED = np.uint64(0xFFFF_FFFF_FFFF_FFFF)


class FragmentRows(Protocol):
    """A fragment for address maps: its id and number of physical rows."""

    @property
    def id(self) -> int:
        """Id of the fragment."""

    @property
    def physical_rows(self) -> int:
        """Rows of its files, including deleted rows."""


Groups = Sequence[tuple[Survivors, Sequence[FragmentRows], Sequence[FragmentRows]]]
"""Surviving rows, their old fragments, and their new fragments."""


class AddressMap:
    """Map from old to new row addresses; made by :meth:`of`.

    Parameters
    ----------
    tables
        Surviving rows of each rewritten fragment.

    Attributes
    ----------
    rewritten
        Ids of these fragments.

    Notes
    -----
    Memory: 24 bytes per range of rows that moved together; a few bytes on disk may describe any
    number of rows. The map joins all rewrites, so that an address is looked up once. A few bytes
    may describe thousands of rewrites, and a few more millions of addresses.
    """

    __slots__ = ("_ids", "_rows", "ranges", "rewritten")

    moves = True
    """Whether rows get new numbers; otherwise some rows are only dropped."""

    def __init__(self, tables: Mapping[int, MovedRanges]) -> None:
        ids = sorted(tables)
        self._ids = np.array(ids, np.uint64)
        self.ranges = MovedRanges.joined([tables[fragment] for fragment in ids])
        self._rows: Mapping[int, int] = {
            fragment: int(ranges.stops[-1]) - (fragment << 32) if len(ranges.stops) else 0
            for fragment, ranges in tables.items()
        }
        self.rewritten = frozenset(ids)

    @classmethod
    def of(cls, groups: Groups, where: object = "the rewrite") -> Self:
        """Build the map of groups that were rewritten together.

        The surviving rows become the rows of the new fragments, fragment by fragment. They are
        ordered by old fragment as listed, then by row.

        Raises
        ------
        CorruptFileError
            The new fragments have another number of rows, or a row is outside the old fragments.
        """
        return cls(_step(groups, where))

    @classmethod
    def of_all(cls, rewrites: Iterable[Groups], where: object) -> Self:
        """Build the map of several rewrites, the oldest first; errors as for :meth:`of`.

        Joins all rewrites at once: joining one at a time would copy all ranges for each.
        """
        return cls(_joined([cls(_step(groups, where)) for groups in rewrites]))

    def then(self, later: AddressMap) -> dict[int, MovedRanges]:
        """Return the rows of each fragment after a later rewrite."""
        return _joined([self, later])

    def followed_by(self, tables: Mapping[int, MovedRanges]) -> dict[int, MovedRanges]:
        """Return the ranges of each old fragment, with targets after later rewrites."""
        fragments = self.ranges.targets >> _SHIFT
        edges = np.flatnonzero(fragments[1:] != fragments[:-1]) + 1
        begins = [0, *edges.tolist()] if len(fragments) else []
        parts = [_NO_RANGES]
        for start, stop in pairwise([*begins, len(fragments)]):
            part, later = self.ranges.part(start, stop), tables.get(int(fragments[start]))
            parts.append(part if later is None else part.followed_by(later))
        ranges = MovedRanges.joined(parts)
        bounds = np.searchsorted(ranges.starts, np.append(self._ids << _SHIFT, _DELETED)).tolist()
        return {
            fragment: ranges.part(start, stop)
            for fragment, start, stop in zip(self._ids.tolist(), bounds, bounds[1:], strict=False)
        }

    def apply(self, addresses: Addresses) -> tuple[Addresses, Flags]:
        """Return new addresses, and flags of the rows that survive.

        Both are as long as ``addresses``; the new address of a deleted row is undefined. Addresses
        in other fragments stay the same.
        """
        relocated = np.isin(addresses >> _SHIFT, self._ids)
        new_addresses = np.where(relocated, _DELETED, addresses)
        starts, stops, targets = self.ranges
        at = np.searchsorted(starts, addresses, side="right") - 1
        inside = np.flatnonzero(relocated & (at >= 0))
        inside = inside[addresses[inside] < stops[at[inside]]]
        at = at[inside]
        new_addresses[inside] = targets[at] + (addresses[inside] - starts[at])
        # The address ``_DELETED`` is beyond all rows: its fragment would be the last of 2^32.
        return new_addresses, new_addresses != _DELETED

    def follow(self, rows: RowSet) -> RowSet:
        """Return the new addresses of the surviving rows of a set."""

        def change(some: Addresses) -> RowSet:
            moved, kept = self.apply(some)
            return RowSet.of(moved[kept])

        if rows.count <= MAX_LISTED_ROWS:
            return change(rows.rows())
        ids = sorted(self.rewritten)
        starts = np.array(ids, np.uint64) << _SHIFT
        stops = starts + np.array([self.rows_of(fragment) for fragment in ids], np.uint64)
        moved = rows.mapped(change, lambda: RowSet.of_ranges(starts, stops))
        return RowSet.union([rows.difference(RowSet.of_ranges(starts, starts + _OFFSET)), moved])

    def rows_of(self, fragment: int) -> int:
        """Return the rows of a rewritten fragment, up to the last surviving row."""
        return self._rows.get(fragment, 0)

    def remap_rows(self, rows: pa.Table, column: str) -> tuple[pa.Table, Flags]:
        """Drop deleted rows of an index file in order; return flags of the kept rows, too.

        Parameters
        ----------
        column
            Column of valid row addresses (uint64); new addresses replace them.
        """
        addresses = as_numpy(rows[column]).astype(np.uint64, copy=False)
        new_addresses, kept = self.apply(addresses)
        surviving = rows if kept.all() else rows.take(number_array(np.flatnonzero(kept)))
        at = surviving.schema.get_field_index(column)
        field = surviving.schema.field(at)
        return surviving.set_column(at, field, number_array(new_addresses[kept])), kept


def _step(groups: Groups, where: object) -> dict[int, MovedRanges]:
    tables: dict[int, MovedRanges] = {}
    filled = [fragment.id for _, _, new in groups for fragment in new if fragment.physical_rows]
    if len(set(filled)) < len(filled):
        raise CorruptFileError(
            "relocated rows", expected="new fragments that differ",
            found=f"{len(filled) - len(set(filled))} again", where=where,
        )  # fmt: skip
    for survivors, old, new in groups:
        rows = sum(fragment.physical_rows for fragment in new)
        starts, stops = _ranges(survivors, rows, where)
        parts = _in_fragments(starts, stops, old, rows, where)
        before = np.concatenate((np.zeros(1, np.uint64), np.cumsum(stops - starts)))
        listed = [np.r_[side[:0], *(side[a:b] for a, b in parts)] for side in (starts, stops)]
        runs = _map_ranges(listed[0], listed[1], new)
        counts = np.cumsum(runs.stops - runs.starts)
        begin, count = 0, 0
        for fragment, (first, last) in zip(old, parts, strict=True):
            size = int(stops[last - 1]) - (fragment.id << 32) if last > first else 0
            if fragment.id in tables or size > fragment.physical_rows:
                raise CorruptFileError(
                    f"relocated rows of fragment {fragment.id}",
                    expected=f"rows below {fragment.physical_rows}, in one group",
                    found=f"row {size - 1}",
                    where=where,
                )
            count += int(before[last] - before[first])
            end = int(np.searchsorted(counts, np.uint64(count), side="right"))
            tables[fragment.id] = runs.part(begin, end)
            begin = end
    return tables


def _map_ranges(starts: Addresses, stops: Addresses, new: Sequence[FragmentRows]) -> MovedRanges:
    """Map ranges of rows onto the rows of the new fragments, fragment by fragment."""
    filled = [fragment for fragment in new if fragment.physical_rows]
    ids = np.array([fragment.id for fragment in filled], np.uint64)
    sizes = np.array([fragment.physical_rows for fragment in filled], np.uint64)
    points, begins = np.cumsum(stops - starts) - (stops - starts), np.cumsum(sizes) - sizes
    places = np.searchsorted(points, begins)
    within = points.take(places, mode="clip") != begins  # new fragments that begin within a range
    places, cuts = places[within], begins[within]
    first = np.insert(starts, places, starts[places - 1] + (cuts - points[places - 1]))
    points = np.insert(points, places, cuts)
    ends = np.append(points[1:], sizes.sum(dtype=np.uint64))[: len(points)]
    counts = np.diff(np.searchsorted(points, begins), append=len(points))
    return MovedRanges(
        first, first + (ends - points), points + np.repeat((ids << _SHIFT) - begins, counts)
    )


def _ranges(survivors: Survivors, rows: int, where: object) -> tuple[Addresses, Addresses]:
    """Return the surviving rows as half-open ranges; memory depends on the bytes."""
    bitmap = None
    if isinstance(survivors, bytes):
        bitmap = decode_treemap(survivors or bytes(8), where, "relocated rows")
    surviving = len(survivors) if bitmap is None else len(bitmap)
    if rows != surviving or (bitmap and bitmap.max() == _NO_ROW):
        raise CorruptFileError(
            "relocated rows", expected=f"{rows} rows", found=f"{surviving}", where=where
        )
    if bitmap is not None and is_of_runs(rows, len(survivors)):
        return ranges_of(bitmap, lambda _: None)
    listed: Any = survivors if bitmap is None else bitmap.to_array()
    addresses = np.asarray(listed, np.uint64)
    if not rows:
        return addresses, addresses
    ends = np.flatnonzero(np.diff(addresses) != 1)
    starts = addresses[np.concatenate(([0], ends + 1))]
    stops = addresses[np.append(ends, rows - 1)] + np.uint64(1)
    fragments = starts >> _SHIFT
    if (fragments[1:] >= fragments[:-1]).all():
        return starts, stops
    order = np.argsort(fragments, kind="stable")
    return starts[order], stops[order]


def _in_fragments(
    starts: Addresses, stops: Addresses, old: Sequence[FragmentRows], rows: int, where: object
) -> list[tuple[int, int]]:
    """Return the ranges in each old fragment: the first, and the end."""
    fragments = starts >> _SHIFT
    ids = np.array([fragment.id for fragment in old], np.uint64)
    begins = np.searchsorted(fragments, ids).tolist()
    ends = np.searchsorted(fragments, ids, side="right").tolist()
    before = np.concatenate(([0], np.cumsum((stops - starts).astype(np.int64))))
    found = int((before[ends] - before[begins]).sum())
    if found != rows or ((stops - np.uint64(1)) >> _SHIFT != fragments).any():
        raise CorruptFileError(
            "relocated rows",
            expected=f"{rows} rows in the fragments {ids.tolist()}",
            found=f"{found}",
            where=where,
        )
    return list(zip(begins, ends, strict=True))


# --- Ranges of rows that rewrites moved together ----------------------------------------
# A few bytes may move billions of rows: memory must depend on the number of ranges.

_MIN_JOINED_RANGES, _JOINED_PER_RANGE = 1 << 22, 64
"""Maximum ranges that joined rewrites may make, in total or per stored range."""


class MovedRanges(NamedTuple):
    """Surviving rows as ranges that moved together; a range is in one old and one new fragment.

    Parameters
    ----------
    starts, stops
        Old addresses, half-open.
    targets
        New address of the first row of each range.
    """

    starts: UInt64s
    stops: UInt64s
    targets: UInt64s

    @classmethod
    def joined(cls, parts: Sequence[MovedRanges]) -> MovedRanges:
        """Concatenate the ranges of several parts."""
        if len(parts) == 1:
            return parts[0]
        starts, stops, targets = zip(_NO_RANGES, *parts, strict=True)
        return cls(np.concatenate(starts), np.concatenate(stops), np.concatenate(targets))

    def part(self, start: int, stop: int) -> MovedRanges:
        """Return ranges ``start`` to ``stop``."""
        return MovedRanges(
            self.starts[start:stop], self.stops[start:stop], self.targets[start:stop]
        )

    def followed_by(self, later: MovedRanges) -> MovedRanges:
        """Return the ranges after a later rewrite."""
        ends = self.targets + (self.stops - self.starts)
        first = np.searchsorted(later.stops, self.targets, side="right")
        counts = np.maximum(np.searchsorted(later.starts, ends, side="left") - first, 0)
        one = np.repeat(np.arange(len(counts)), counts)
        other = np.arange(len(one)) - np.repeat(np.cumsum(counts) - counts - first, counts)
        begin = np.maximum(self.targets[one], later.starts[other])
        end = np.minimum(ends[one], later.stops[other])
        starts = self.starts[one] + (begin - self.targets[one])
        targets = later.targets[other] + (begin - later.starts[other])
        return MovedRanges(starts, starts + (end - begin), targets)


_NO_RANGES = MovedRanges(*[np.empty(0, np.uint64)] * 3)


def _joined(steps: Sequence[AddressMap]) -> dict[int, MovedRanges]:
    """Return the ranges of each fragment after some rewrites, the oldest first."""
    tables: dict[int, MovedRanges] = {}
    stored = sum(len(step.ranges.starts) for step in steps)
    count, limit = 0, max(_MIN_JOINED_RANGES, _JOINED_PER_RANGE * stored)
    for step in reversed(steps):  # from the last, so that each row moves once, to its final place
        moved = step.followed_by(tables)
        count += sum(len(ranges.starts) for ranges in moved.values())
        if count > limit:
            raise UnsupportedFeatureError(
                f"{len(steps)} compactions moved rows in more than {limit} ranges; no more are "
                "followed. Build the indices again, or drop them."
            )
        tables.update(moved)
    return tables


# --- Rows of a segment that a merge keeps -----------------------------------------------
#
# A fragment leaves the coverage of a segment when one of its columns is replaced. A row with a
# stable id leaves it when the row is updated. Their entries stay in the segment until a merge drops
# them: the merged segment may cover the new rows. If a compaction moved rows but kept the segment,
# the merge gives them their new addresses.

_MAX_HALVES: Final = 1 << 16
"""Maximum upper halves of row ids: all known datasets have fewer."""


class RetainedRows(AddressMap):
    """Map that drops some rows; other rows keep their numbers unless compactions moved them.

    Parameters
    ----------
    limits
        Count of numbers for each upper half (for addresses: a fragment). Numbers with other upper
        halves stay as they are.
    locate
        Function that returns the addresses of rows, and flags of the rows to keep.
    moves
        Replace numbers by these addresses.
    """

    __slots__ = ("_locate", "moves")

    def __init__(
        self,
        limits: Mapping[int, int],
        locate: Callable[[Addresses], tuple[Addresses, Flags]],
        *,
        moves: bool = False,
    ) -> None:
        super().__init__({})
        self.rewritten, self._rows = frozenset(limits), limits
        self._locate, self.moves = locate, moves

    @classmethod
    def of_addresses(
        cls,
        physical_rows: Mapping[int, int],
        moved: AddressMap | None,
        locate: Callable[[Addresses], tuple[Addresses, Flags]],
    ) -> Self:
        """Build the map for addresses in fragments, including rows that were moved there."""
        if moved is None:
            return cls(physical_rows, locate)
        before = {fragment: moved.rows_of(fragment) for fragment in moved.rewritten}
        return cls({**before, **physical_rows}, locate, moves=True)

    @classmethod
    def of_ids(
        cls, next_row_id: int, locate: Callable[[Addresses], tuple[Addresses, Flags]]
    ) -> Self:
        """Build the map for stable row ids."""
        halves = range(min(next_row_id >> 32, _MAX_HALVES) + 1)
        return cls({half: min(next_row_id - (half << 32), 1 << 32) for half in halves}, locate)

    def apply(self, addresses: Addresses) -> tuple[Addresses, Flags]:
        """Return the numbers of the rows, and flags of the rows to keep."""
        if not len(addresses):
            return addresses, np.zeros(0, np.bool_)
        found, flags = self._locate(addresses)
        return found if self.moves else addresses, flags


# --- Stored sets of rows: a roaring bitmap per upper half of row numbers -----------------
# The bitmap holds the lower halves. For addresses, the upper half is a fragment.
#
# Specification: "Sets of rows" in ``docs/format/indices.md``,
# "NGRAM" in ``docs/format/scalar-indices.md``.

Halves: TypeAlias = "dict[int, BitMap | None]"
"""A bitmap per upper half, ascending; ``None``: all rows of a fragment."""

_COUNT, _ENTRY = struct.Struct("<I"), struct.Struct("<II")
_WIDE_COUNT, _UPPER, _SHORT = struct.Struct("<Q"), struct.Struct("<I"), struct.Struct("<H")


class SetFormat(NamedTuple):
    """Storage format of sets of rows.

    Parameters
    ----------
    split
        Function that returns the bitmaps of a set; raises ``CorruptFileError`` for invalid bytes.
    join
        Function that encodes bitmaps, whose upper halves may be unordered.
    """

    split: Callable[[bytes, object], Halves]
    join: Callable[[Mapping[int, BitMap | None]], bytes]

    def of(self, rows: RowNumbers) -> bytes:
        """Encode ascending rows."""
        return self.join(*_bitmaps(rows, np.array([0, len(rows)])))

    def encode(self, rows: RowNumbers, bounds: Int64s) -> Any:
        """Encode the sets between some bounds; rows of a set may be unordered and repeated."""
        rows, bounds = ascending_sets(rows, bounds)
        if self.join is _join_rowset:
            return encode_ascending(rows, bounds)
        return constants(list(map(self.join, _bitmaps(rows, bounds))), pa.binary())

    def union(self, sets: Sequence[bytes]) -> bytes:
        """Return the union of some encoded sets, encoded."""
        if len(sets) == 1:
            return sets[0]
        joined: Halves = {}
        for data in sets:
            for upper, rows in self.split(data, "a set of rows").items():
                known = joined.get(upper, rows)
                joined[upper] = None if known is None or rows is None else known | rows
        return self.join(joined)

    def remap(
        self,
        sets: Sequence[bytes],
        address_map: AddressMap,
        where: object,
        limit: RowLimit | None = None,
    ) -> list[bytes]:
        """Return the sets with new addresses.

        glaive looks up only rows that rewritten fragments had, however many a (damaged) bitmap may
        set.

        Parameters
        ----------
        limit
            Limit shared by all sets of the index; default: a limit for these sets.
        """
        limit = RowLimit(address_map, where) if limit is None else limit
        if not address_map.moves:
            return self._without(sets, address_map, where, limit)
        remapped: list[bytes] = []
        batch: list[tuple[Halves, Addresses]] = []
        listed = 0
        for data in sets:
            halves = self.split(data, where)
            size = len(data) // max(1, len(halves))  # approximately
            moved = [upper for upper in halves if upper in address_map.rewritten]
            parts = [limit.addresses(upper, halves.pop(upper), size) for upper in moved]
            batch.append((halves, np.concatenate([_NO_NUMBERS, *parts])))
            listed += len(batch[-1][1])
            if listed >= _BATCH_ROWS:
                remapped += self._moved(batch, address_map)
                batch, listed = [], 0
        return [*remapped, *self._moved(batch, address_map)]

    def _moved(
        self, batch: Sequence[tuple[Halves, Addresses]], address_map: AddressMap
    ) -> Iterator[bytes]:
        """Yield encoded sets of the bitmaps that stay and of the moved rows."""
        moved, kept = address_map.apply(np.concatenate([_NO_NUMBERS, *(rows for _, rows in batch)]))
        owner = np.repeat(np.arange(len(batch)), [len(rows) for _, rows in batch])[kept]
        moved = moved[kept]
        order = np.lexsort((moved, owner))
        bounds = np.searchsorted(owner, np.arange(len(batch) + 1))
        for (halves, _), found in zip(batch, _bitmaps(moved[order], bounds), strict=True):
            for upper, lower in found.items():
                known = halves.get(upper, lower)
                halves[upper] = None if known is None else known | lower
            yield self.join(halves)

    def _without(
        self, sets: Sequence[bytes], address_map: AddressMap, where: object, limit: RowLimit
    ) -> list[bytes]:
        """Remove dropped rows from the sets; looks each row up once."""
        from pyroaring import BitMap

        split = [self.split(data, where) for data in sets]
        every: dict[int, list[BitMap]] = {}
        for halves in split:
            for upper in address_map.rewritten.intersection(halves):
                every.setdefault(upper, []).append(_known(upper, halves[upper], where))
        dropped: dict[int, BitMap] = {}
        for upper, some in every.items():
            rows = BitMap.union(*some)
            addresses = limit.addresses(upper, rows, sum(map(len, sets)))
            kept = addresses[address_map.apply(addresses)[1]]
            dropped[upper] = rows - BitMap(kept.astype(np.uint32))
        return [
            self.join({upper: _kept(rows, dropped.get(upper)) for upper, rows in halves.items()})
            for halves in split
        ]


_NO_NUMBERS = np.empty(0, np.uint64)


def _kept(rows: BitMap | None, dropped: BitMap | None) -> BitMap | None:
    return rows if rows is None or dropped is None else rows - dropped


def _bitmaps(rows: RowNumbers, bounds: Int64s) -> list[dict[int, BitMap]]:
    """Make the bitmaps of the sets between some bounds; rows of a set must ascend."""
    from pyroaring import BitMap

    uppers, lowers = rows >> _SHIFT, rows.astype(np.uint32)
    begins = np.diff(uppers, prepend=_DELETED) != 0
    begins[bounds[:-1][bounds[:-1] < len(rows)]] = True
    starts = np.flatnonzero(begins)
    owners = (np.searchsorted(bounds, starts, side="right") - 1).tolist()
    sets: list[dict[int, BitMap]] = [{} for _ in bounds[1:]]
    places = pairwise([*starts.tolist(), len(rows)])
    for owner, upper, (start, stop) in zip(owners, uppers[starts].tolist(), places, strict=True):
        sets[owner][upper] = BitMap(lowers[start:stop])
    return sets


def _split_rowset(data: bytes, where: object) -> Halves:
    return {
        fragment: parse_bitmap(raw, "row set", where) if raw else None
        for fragment, raw in _entries(data, where)
    }


def _join_rowset(halves: Mapping[int, BitMap | None]) -> bytes:
    stored = [(upper, halves[upper]) for upper in sorted(halves)]
    raw = [
        (upper, b"" if rows is None else _serialized(rows))
        for upper, rows in stored
        if rows is None or rows
    ]
    parts = [_COUNT.pack(len(raw))]
    for upper, data in raw:
        parts += [_ENTRY.pack(upper, len(data)), data]
    return b"".join(parts)


def _serialized(rows: BitMap) -> bytes:
    rows.run_optimize()
    return rows.serialize()


def _entries(data: bytes, where: object) -> Iterator[tuple[int, bytes]]:
    """Yield the fragments of a row set, ascending, and the bytes of their bitmaps."""
    count = _COUNT.unpack_from(data)[0] if len(data) >= _COUNT.size else -1
    at, before = _COUNT.size, -1
    for _ in range(count):
        fragment, size = _ENTRY.unpack_from(data, at) if at + _ENTRY.size <= len(data) else (-1, 0)
        at += _ENTRY.size
        if fragment <= before or at + size > len(data):
            break
        yield fragment, data[at : at + size]
        at, before, count = at + size, fragment, count - 1
    if count or at != len(data):
        raise CorruptFileError(
            "row set",
            expected="one bitmap per fragment, fragments ascending, and nothing after them",
            found=f"{len(data)} other bytes",
            where=where,
        )


def decode_treemap(data: bytes, where: object, what: str = "rows of an index") -> BitMap64:
    """Decode a 64-bit roaring bitmap.

    Raises
    ------
    CorruptFileError
        The bitmap is invalid.
    """
    from pyroaring import BitMap64

    try:
        return BitMap64.deserialize(data)
    except (ValueError, IndexError) as error:
        raise CorruptFileError(
            what, expected="a 64-bit roaring bitmap", found=str(error), where=where
        ) from error


def _split_treemap(data: bytes, where: object) -> Halves:
    found: Halves = {}
    view = memoryview(decode_treemap(data, where).serialize())
    at = _WIDE_COUNT.size
    while at < len(view):
        (upper,) = _UPPER.unpack_from(view, at)
        at += _UPPER.size
        size = _size_of(view[at:])
        found[upper] = parse_bitmap(bytes(view[at : at + size]), "rows of an index", where)
        at += size
    return found


def _size_of(data: memoryview) -> int:
    """Return the size of the bitmap at the start of some bytes, which this process serialized."""
    cookie: int = _UPPER.unpack_from(data)[0]
    has_runs = cookie & 0xFFFF == RUN_COOKIE
    count: int = (cookie >> 16) + 1 if has_runs else _UPPER.unpack_from(data, 4)[0]
    at: int = 4 + (count + 7 >> 3 if has_runs else 4)
    kinds, counts = data[4:], data[at:]
    at += 4 * count
    first = 0
    if not has_runs or count >= MIN_OFFSETS:
        # Container offsets are stored: only the last container needs to be parsed.
        first = count - 1
        (at,) = _UPPER.unpack_from(data, at + 4 * first)
    for one in range(first, count):
        if has_runs and kinds[one >> 3] >> (one & 7) & 1:
            at += 2 + 4 * _SHORT.unpack_from(data, at)[0]
        else:
            rows = _SHORT.unpack_from(counts, 4 * one + 2)[0] + 1
            at += 2 * rows if rows <= MAX_LISTED else SET_BYTES
    return at


def _join_treemap(halves: Mapping[int, BitMap | None]) -> bytes:
    stored = [(upper, rows) for upper, rows in sorted(halves.items()) if rows]
    parts = [_WIDE_COUNT.pack(len(stored))]
    for upper, rows in stored:
        parts += [_UPPER.pack(upper), _serialized(rows)]
    return b"".join(parts)


ROWSETS = SetFormat(_split_rowset, _join_rowset)
TREEMAPS = SetFormat(_split_treemap, _join_treemap)


def rows_of_treemap(rows: BitMap64, where: object, stored: int) -> RowSet:
    """Convert a bitmap to ranges; memory depends on the number of ranges.

    Parameters
    ----------
    stored
        Bytes of the file: the set may be compressed to almost nothing.

    Raises
    ------
    CorruptFileError
        The set contains 2^64 - 1, which is beyond all rows.
    UnsupportedFeatureError
        The ranges exceed ``max_decoded_bytes_per_page`` and ``USUAL_RATIO`` times the bytes of the
        file.
    """
    if rows and rows.max() == _NO_ROW:
        raise CorruptFileError(
            "rows of an index", expected="rows below 2^64 - 1", found=f"{_NO_ROW}", where=where
        )
    return RowSet(*ranges_of(rows, lambda size: check_decoded(size, stored, where)))


def row_set_of(sets: pa.Array, where: object, stored: int) -> RowSet:
    """Return the rows in any of some stored sets.

    Memory depends on the bytes of the sets, and on the number of ranges in the result. Parameters
    and errors are as for :func:`rows_of_treemap`; a truncated set raises ``CorruptFileError``.
    """
    from pyroaring import BitMap, BitMap64

    joined, whole = BitMap64(), BitMap()
    known: dict[int, BitMap] = {}
    for start in range(0, len(sets), _MAX_SETS_IN_PYTHON):
        for data in cast("list[bytes]", sets[start : start + _MAX_SETS_IN_PYTHON].to_pylist()):
            for fragment, raw in _entries(data, where):
                if not raw:
                    whole.add(fragment)
                    continue
                bitmap = parse_bitmap(raw, "row set", where)
                if fragment in known:
                    known[fragment] |= bitmap
                    continue
                if len(known) == _MAX_SETS_IN_PYTHON:
                    joined |= decode_treemap(_join_treemap(known), where)
                    known = {}
                known[fragment] = bitmap
    joined |= decode_treemap(_join_treemap(known), where)
    rows = rows_of_treemap(joined, where, stored)
    if not whole:
        return rows
    check_decoded(RANGE_BYTES * len(whole), stored, where)
    first = np.asarray(whole.to_array(), np.uint64) << _SHIFT
    return RowSet.union([rows, RowSet.of_ranges(first, first + np.uint64(2**32 - 1))])


def row_set_in(data: bytes | None, where: object, stored: int) -> RowSet | None:
    """Return the rows of a stored set, or ``None`` for ``None``; see :func:`row_set_of`."""
    return None if data is None else row_set_of(constants([data], pa.binary()), where, stored)


_MAX_SETS_IN_PYTHON, _SAMPLED_BITMAPS = 1 << 12, 64
"""Maximum sets, and bitmaps, that are Python objects at a time; bitmaps of an estimate."""


def rows_per_byte(sets: pa.Array, where: object) -> float:
    """Estimate the rows per byte of some stored sets from their first bitmaps.

    Raises
    ------
    CorruptFileError
        A set is truncated, or a bitmap is invalid.
    """
    entries = (entry for data in sets for entry in _entries(data.as_py(), where))
    rows, size = 0, 1
    for _, bitmap in islice(entries, _SAMPLED_BITMAPS):
        # An empty bitmap is a whole fragment: assume a number of rows.
        rows += len(parse_bitmap(bitmap, "row set", where)) if bitmap else 1 << 20
        size += _ENTRY.size + len(bitmap)
    return rows / size


_RUN_ROWS, _RUN_ROWS_PER_ROW, _MAX_RUN_ROWS = 1 << 28, 1 << 12, 1 << 32
"""Rows of runs that may be listed: minimum, per rewritten row, and maximum. A million takes 40 ms.
In long texts, some hundred trigrams are in nearly all rows."""

_BATCH_ROWS = 1 << 21
"""Approximate rows of sets to look up at a time."""


class RowLimit:
    """Lists the rows of sets for remapping, until runs exceed a limit.

    The time depends on the number of rows: many sets of a few bytes may each contain all rows of a
    fragment.

    Parameters
    ----------
    address_map
        Map that rows are looked up in.
    where
        The index, for errors.
    least
        Rows that are always allowed.
    """

    def __init__(self, address_map: AddressMap, where: object, *, floor: int = _RUN_ROWS) -> None:
        self._rows_of, self._where = address_map.rows_of, where
        rows = sum(map(address_map.rows_of, address_map.rewritten))
        self._left = max(floor, min(_RUN_ROWS_PER_ROW * rows, _MAX_RUN_ROWS))

    def addresses(self, fragment: int, rows: BitMap | None, size: int) -> Addresses:
        """Return the addresses of the rows of a set that a fragment had.

        ``size`` is the number of bytes of the bitmap.

        Raises
        ------
        LimitError
            The limit is exceeded.
        """
        from pyroaring import BitMap

        had = _known(fragment, rows, self._where) & BitMap(range(self._rows_of(fragment)))
        if is_of_runs(len(had), size):
            self._left -= len(had)
        if self._left < 0 or len(had) > MAX_NUMBERS:
            raise LimitError(
                f"{self._where}: its sets have far more rows than there are; drop the index, "
                "compact, and create it again"
            )
        return np.asarray(had.to_array(), np.uint64) | np.uint64(fragment << 32)


def _known(fragment: int, rows: BitMap | None, where: object) -> BitMap:
    if rows is None:
        raise UnsupportedFeatureError(
            f"{where}: this version of glaive does not rebuild a set of all rows of fragment "
            f"{fragment}; drop the index, compact, and create it again"
        )
    return rows
