"""Zones: stretches of neighbouring rows of a fragment, and what is known of their values.

Specification: "Zones" in ``docs/format/indices.md``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, Self

import numpy as np
import pyarrow as pa

from glaive.dataclass import dataclass
from glaive.errors import IndexKindError, OptionError, UnsupportedFeatureError
from glaive.index.address_map import AddressMap
from glaive.index.protocol import PARAMETERS, IndexSource, RebuiltSegment, stored_batches
from glaive.index.row_set import RowNumbers, RowSet
from glaive.index.scalar.rowsets import encode_rowset, remap_rowsets, row_set_of
from glaive.index.segment import IndexFile, Segment, SegmentWriter
from glaive.named_tuple import NamedTuple
from glaive.types import Flags, Int64s

# --- Parameters and column types of scalar indices: refused by name, before anything is read
# Specification: "Building" in ``docs/format/indices.md``.


def no_parameters(kind: str, parameters: Mapping[str, Any]) -> None:
    """Raise an ``OptionError`` if there are parameters that no kind of index has."""
    known_parameters(kind, parameters, ())


def known_parameters(kind: str, parameters: Mapping[str, Any], known: tuple[str, ...]) -> None:
    """Raise an ``OptionError`` if there are parameters that no kind of index has.

    Parameters of other kinds are ignored, as one set of them may be given to several kinds.
    """
    unknown = sorted(set(parameters).difference(known, PARAMETERS))
    if unknown:
        those = f"only {', '.join(known)}" if known else "none"
        raise OptionError(f"parameter {unknown[0]!r} of a {kind} index: the kind has {those}")


def check_type(kind: str, field: pa.Field[pa.DataType], *, supported: bool) -> None:
    """Raise an ``IndexKindError`` if values of a column cannot be indexed."""
    if not supported:
        raise IndexKindError(
            f"{kind} index column {field.name}: column {field.name!r} of type {field.type} cannot "
            f"have a {kind} index"
        )


def check_same_type(file: IndexFile, name: str, kind: pa.DataType) -> None:
    """Raise a ``CorruptFileError`` if a column of a file has not the type of values to be added."""
    stored = file.schema.field(name).type
    if stored != kind:
        raise file.corrupt_column(name, f"type {kind}, as the column that is indexed", f"{stored}")


_MAX_INTEGER = 2**31 - 1


def integer(parameters: Mapping[str, Any], name: str, default: int) -> int:
    """An integer from 1 on; raises an ``OptionError`` if the parameter is something else."""
    value = parameters.get(name, default)
    if type(value) is not int or not 1 <= value <= _MAX_INTEGER:
        raise OptionError(f"{name}: expected an integer from 1 to {_MAX_INTEGER}, found {value!r}")
    return value


def probability(parameters: Mapping[str, Any], name: str, default: float) -> float:
    """A number between 0 and 1; raises an ``OptionError`` if the parameter is something else."""
    value = parameters.get(name, default)
    if type(value) not in (int, float) or not 0 < value < 1:
        raise OptionError(f"{name}: expected a number between 0 and 1, found {value!r}")
    return float(value)


NULLS = "null_bitmap"
_SHIFT = np.uint64(32)
_NO_ROWS = np.empty(0, np.uint64)

ZONE_FIELDS: tuple[pa.Field[Any], ...] = tuple(
    pa.field(name, pa.uint64(), nullable=False)
    for name in ("fragment_id", "zone_start", "zone_length")
)


@dataclass(frozen=True, eq=False)
class StoredZones:
    """The zones of a segment: their rows by address, and the rows that are null.

    Parameters
    ----------
    starts, stops
        Addresses of the rows of each zone, half-open.
    nulls
        Addresses of rows that are null; None if an old writer did not say.
    """

    starts: RowNumbers
    stops: RowNumbers
    nulls: RowSet | None

    @classmethod
    def read(cls, file: IndexFile) -> Self:
        """Read them.

        Raises
        ------
        CorruptFileError
            Columns are absent, or a zone leaves the addresses of its fragment.
        """
        names = [field.name for field in ZONE_FIELDS]
        file.check(**dict.fromkeys(names, pa.uint64()))
        rows = file.read(names)
        for name in names:
            file.check_present(rows[name])
        fragments, starts, lengths = (rows[name].to_numpy() for name in names)
        limit = np.uint64(2**32 - 1)
        wrong = (fragments >= limit) | (starts > limit) | (lengths > limit)
        if bool(wrong.any()) or bool((starts + lengths > limit).any()):
            raise file.corrupt("zones of an index", "rows of a fragment", "others")
        first = (fragments << _SHIFT) + starts
        nulls = None
        if NULLS in file.metadata:
            data = file.buffer(file.number(NULLS)).to_pybytes()
            nulls = row_set_of(pa.array([data], pa.binary()), file.path, file.size)
        return cls(first, first + lengths, nulls)

    @property
    def nbytes(self) -> int:
        """Bytes of memory."""
        nulls = 0 if self.nulls is None else self.nulls.nbytes
        return int(self.starts.nbytes + self.stops.nbytes + nulls)

    def rows(self, zones: Flags) -> RowSet:
        """All rows of some zones."""
        return RowSet.of_ranges(self.starts[zones], self.stops[zones])

    def count(self, zones: Flags) -> int:
        """Number of rows of some zones."""
        return int((self.stops[zones] - self.starts[zones]).sum())

    @cached_property
    def every(self) -> Flags:
        """All zones."""
        return np.ones(len(self.starts), np.bool_)


class ZoneBatch(NamedTuple):
    """Neighbouring rows of a fragment, and the zone of each.

    Parameters
    ----------
    values
        Their values.
    zones
        Number of each zone in the batch, ascending, from 0 for the first zone of the source. The
        first may have begun, and the last may go on, in another batch.
    starts
        Where each of these zones begins in the batch.
    """

    values: Any
    zones: Int64s
    starts: Int64s


class Zoned:
    """The rows of a source, cut into zones of so many live rows; a zone is in one fragment.

    Collects where zones are, and which rows are null, while batches are read.
    """

    def __init__(self, source: IndexSource, rows_per_zone: int) -> None:
        self._source, self._per_zone = source, rows_per_zone
        self._fragment, self._live, self._count = -1, 0, 0
        self._parts: list[tuple[Int64s, RowNumbers, RowNumbers, Int64s]] = []
        self._null_rows: list[RowNumbers] = []

    def batches(self) -> Iterator[ZoneBatch]:
        """Batches of rows with the zones that they are in."""
        for values, rows in stored_batches(self._source):
            if len(rows):
                yield self._zoned(values, rows)

    def _zoned(self, values: Any, rows: RowNumbers) -> ZoneBatch:
        fragment = int(rows[0] >> _SHIFT)
        if fragment != self._fragment:
            self._fragment, self._live = fragment, 0
        inside = self._live % self._per_zone
        starts = np.arange(-inside % self._per_zone, len(rows), self._per_zone)
        if inside:
            starts = np.concatenate((np.zeros(1, np.int64), starts))
        zones = np.arange(len(starts)) + (self._count - (inside > 0))
        self._live += len(rows)
        self._count = int(zones[-1]) + 1
        nulls = np.zeros(len(starts), np.int64)
        if values.null_count:
            absent = np.asarray(values.is_null())
            nulls = np.add.reduceat(absent.astype(np.int64), starts)
            self._null_rows.append(rows[absent])
        lasts = np.append(starts[1:], len(rows)) - 1
        self._parts.append((zones, rows[starts], rows[lasts], nulls))
        return ZoneBatch(values, zones, starts)

    @property
    def count(self) -> int:
        """Zones so far."""
        return self._count

    def columns(self) -> tuple[Sequence[pa.Array], Int64s]:
        """``fragment_id``, ``zone_start`` and ``zone_length``; and the nulls of each zone."""
        if not self._parts:
            none = pa.array(np.empty(0, np.uint64))
            return (none, none, none), np.empty(0, np.int64)
        zones, first, last, nulls = (
            np.concatenate(part) for part in zip(*self._parts, strict=True)
        )
        begins = np.flatnonzero(np.diff(zones, prepend=-1))
        ends = np.append(begins[1:], len(zones)) - 1
        first, last = first[begins], last[ends]
        offsets = first & np.uint64(0xFFFF_FFFF)
        found = (first >> _SHIFT, offsets, last - first + np.uint64(1))
        return [pa.array(column) for column in found], np.add.reduceat(nulls, begins)

    def nulls(self) -> bytes:
        """The rows that are null, encoded."""
        return encode_rowset(np.sort(np.concatenate([_NO_ROWS, *self._null_rows])))


# --- merging ------------------------------------------------------------------------------


def retained_zones(
    segment: Segment, name: str, address_map: AddressMap, out: SegmentWriter
) -> RebuiltSegment | None:
    """Write the zones of a segment again, without nulls that are dropped; all zones stay.

    A zone of rows that the segment answers for no more is looked at in vain, for nothing worse.
    None if rows move, which zones cannot follow, or an old writer did not say which are null.
    """
    file = segment.open(name)
    if address_map.moves or NULLS not in file.metadata:
        return None
    (nulls,) = remap_rowsets([stored_nulls(file)], address_map, file.path)
    kept = encode_rowset(_NO_ROWS) if nulls is None else nulls
    metadata = {key: value for key, value in file.metadata.items() if key != NULLS}
    rows = file.read().replace_schema_metadata()
    out.write(name, rows, metadata=metadata, buffers={NULLS: kept})
    return RebuiltSegment()


def shared_setting(files: Sequence[IndexFile], key: str, default: str) -> str:
    """A value of the metadata that all files have.

    Raises
    ------
    UnsupportedFeatureError
        They have different ones.
    """
    found = {file.metadata.get(key, default) for file in files}
    if len(found) > 1:
        raise UnsupportedFeatureError(
            f"{files[0].path}: segments with different {key} ({', '.join(sorted(found))}) are not "
            "merged: build the index again"
        )
    return found.pop()


def stored_setting(file: IndexFile, given: Mapping[str, int], name: str) -> int:
    """A number of the metadata that is a parameter of a build; damage if it cannot be one."""
    try:
        return integer(given, name, 1)
    except OptionError as error:
        raise file.corrupt(f"setting {name!r}", "a number of rows", str(error)) from error


def stored_nulls(file: IndexFile) -> bytes:
    """The rows that are null, encoded.

    Raises
    ------
    UnsupportedFeatureError
        An old writer did not say which these are.
    """
    if NULLS not in file.metadata:
        raise UnsupportedFeatureError(
            f"{file.path}: an old writer did not say which rows are null: build the index again"
        )
    return file.buffer(file.number(NULLS)).to_pybytes()


def joined(tables: Sequence[pa.Table], files: Sequence[IndexFile]) -> pa.Table:
    """The zones of some files, and of others that were made of a source, as one table."""
    schema = tables[-1].schema.remove_metadata()
    for table, file in zip(tables, files, strict=False):
        if not table.schema.equals(schema):
            raise file.corrupt("zones of an index", f"{schema}", f"{table.schema}")
    return pa.concat_tables([table.replace_schema_metadata() for table in tables])
