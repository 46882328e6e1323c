"""Numbers of all fragments of a manifest, read without work per fragment.

Protobuf merges repeated occurrences of a message field. Parsed as a message whose numbers are
lists, all fragments become one message, so a single parse yields the list of their ids. Zeros are
omitted on the wire; if that makes a list too short, a marker is inserted before each fragment to
identify the fragments without a number.

Specification: "Fragments and data files" in ``docs/format``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from itertools import chain
from typing import Any, Final, TypeVar

import numpy as np
from google.protobuf.message import Message
from numpy.typing import NDArray

from glaive.errors import CorruptFileError
from glaive.format.limits import MAX_FRAGMENT_ID, MAX_FRAGMENT_ROWS
from glaive.format.pb import table_pb2
from glaive.format.wire import parse
from glaive.types import Int64s

__all__ = ["FragmentColumns"]

M = TypeVar("M", bound=Message)
_MARK: Final = 2**64 - 1
_PART: Final = 1 << 11
"""Fragments whose messages are copied at a time."""


class FragmentColumns:
    """Columns of the fragments of one manifest, computed on first use.

    Parameters
    ----------
    wire
        The manifest; never changed.
    where
        Full path of the manifest, for messages.
    raw
        The bytes of ``wire``, if available; released after first use.
    all_rows
        Whether row counts are physical rows. Manifests without a writer may have live rows for
        fragments with a deletion file.
    """

    def __init__(
        self,
        wire: table_pb2.ManifestOutline,
        where: str,
        raw: memoryview | None = None,
        *,
        all_rows: bool = True,
    ) -> None:
        self._wire = wire
        self._all_rows = all_rows
        self._where = where
        self._raw = raw

    def __len__(self) -> int:
        return len(self._wire.fragments)

    @cached_property
    def _merged(self) -> table_pb2.FragmentColumns:
        raw = self._raw
        if raw is None:  # the whole message: a copy of the fragments alone would cost more
            raw = memoryview(self._wire.SerializeToString())
        columns = self._parse(table_pb2.ManifestColumns(), raw)
        self._raw = None
        return columns.fragments

    @cached_property
    def ids(self) -> Int64s:
        """Id of each fragment, below 2^32. Shape ``(fragments,)``."""
        return self._within(self._numbers("id", self._merged.id), MAX_FRAGMENT_ID)

    @cached_property
    def physical_rows(self) -> Int64s:
        """Physical rows of each fragment, at most 2^32; 0 if unknown."""
        rows = self._numbers("physical_rows", self._merged.physical_rows)
        return self._within(rows, MAX_FRAGMENT_ROWS)

    @property
    def rows_known(self) -> bool:
        """Whether the manifest has the physical rows of each fragment."""
        merged = self._merged
        are_physical = self._all_rows or not merged.deletion_file
        return are_physical and len(merged.physical_rows) == len(self)

    @property
    def unknown_rows(self) -> Int64s:
        """Positions of the fragments whose physical rows are only in their data files."""
        unknown = self.physical_rows == 0
        if not self._all_rows:
            unknown |= self.deleted_rows != 0
        return np.flatnonzero(unknown)

    @cached_property
    def deleted_rows(self) -> Int64s:
        """Deleted rows of each fragment; -1 if only the deletion file has their number.

        At most its physical rows, if known.
        """
        if not len(self._merged.deletion_file):
            return np.zeros(len(self), np.int64)
        deleted, rows = self._deleted_rows(), self.physical_rows
        wrong = np.flatnonzero((deleted > rows) & (rows > 0))
        if len(wrong) and self._all_rows:
            raise CorruptFileError(
                f"deleted rows of fragment {self.ids[wrong[0]]}",
                expected=f"at most {rows[wrong[0]]}, its rows",
                found=f"{deleted[wrong[0]]}",
                where=self._where,
            )
        return deleted

    def _deleted_rows(self) -> Int64s:
        marked = table_pb2.DeletionColumns()
        marked.deletion_file.num_deleted_rows.append(_MARK)
        columns, found = [], 0
        for part in self._parts():
            raw = _between(part, marked)
            numbers = self._parse(table_pb2.DeletionColumns(), raw).deletion_file.num_deleted_rows
            columns.append(self._marked(numbers, len(part)))
            found += len(numbers)
        deleted = np.concatenate(columns)
        # One that is there as 0 says no more than one that is omitted.
        stated = int((deleted > 0).sum())
        if stated == len(self._merged.deletion_file) == found - len(self):
            return deleted
        fragments = (self._parse(table_pb2.DataFragment(), raw) for raw in self._wire.fragments)
        return self._column(map(_deleted_by, fragments))

    def count_rows(self) -> int | None:
        """Live rows; ``None`` in old datasets if the manifest lacks the counts."""
        merged = self._merged
        if not merged.deletion_file and self.rows_known:
            total = sum(merged.physical_rows)
            # Only if the total exceeds the limit, a fragment can exceed it.
            return total if total <= MAX_FRAGMENT_ROWS else int(self.physical_rows.sum())
        physical, deleted = self.physical_rows, self.deleted_rows
        if len(deleted) and (int(deleted.min()) < 0 or int(physical.min()) == 0):
            return None
        return int(physical.sum()) - int(deleted.sum())

    @property
    def file_count(self) -> int:
        """Data files of all fragments."""
        return len(self._merged.files.path)

    @property
    def deletion_file_count(self) -> int:
        """Deletion files of all fragments."""
        return len(self._merged.deletion_file)

    @property
    def file_bytes(self) -> int:
        """Total bytes of data files of known size."""
        return sum(self._merged.files.file_size_bytes)

    @cached_property
    def data_bytes(self) -> NDArray[np.float64]:
        """Bytes of the data files of each fragment; those of unknown size count as none."""
        return np.concatenate([np.zeros(0), *map(self._data_bytes, self._parts())])

    def _data_bytes(self, fragments: Sequence[bytes]) -> NDArray[np.float64]:
        marked = table_pb2.FragmentColumns()
        marked.files.file_size_bytes.append(_MARK)
        columns = self._parse(table_pb2.FragmentColumns(), _between(fragments, marked))
        sizes = columns.files.file_size_bytes
        flat = np.fromiter(sizes, np.uint64, len(sizes))
        is_marker = flat == np.uint64(_MARK)
        if int(is_marker.sum()) != len(fragments):  # a file claims to be as large as the marker
            parsed = (self._parse(table_pb2.DataFragment(), raw) for raw in fragments)
            totals = (sum(file.file_size_bytes for file in one.files) for one in parsed)
            return np.fromiter(totals, np.float64, len(fragments))
        owner = np.cumsum(is_marker) - 1
        # Numbers that cannot overflow: files may claim any size.
        known = flat[~is_marker].astype(np.float64)
        return np.bincount(owner[~is_marker], known, len(fragments)).astype(np.float64)

    def since(self, position: int) -> FragmentColumns:
        """The columns of the fragments from a list position on."""
        rest = table_pb2.ManifestOutline(fragments=self._wire.fragments[position:])
        return FragmentColumns(rest, self._where)

    @property
    def any_deleted(self) -> bool:
        """Whether a fragment has a deletion file."""
        return bool(self._merged.deletion_file)

    @property
    def any_lineage_in_files(self) -> bool:
        """Whether a fragment has row lineage in hidden columns of its files."""
        merged = self._merged
        return bool(
            merged.column_row_ids
            or merged.column_last_updated_at_versions
            or merged.column_created_at_versions
        )

    @property
    def row_ids(self) -> list[bytes] | None:
        """Row ids of each fragment in wire format; ``None`` unless all have them inline."""
        sequences = self._merged.inline_row_ids
        return list(sequences) if len(sequences) == len(self) else None

    def row_ids_at(self, position: int) -> bytes | None:
        """Row ids of one fragment in wire format; ``None`` if they are in its files."""
        fragment = self._parse(table_pb2.DataFragment(), self._wire.fragments[position])
        return None if fragment.HasField("column_row_ids") else fragment.inline_row_ids

    @cached_property
    def _alone(self) -> tuple[Int64s, Int64s, Int64s | None, Sequence[bytes] | None]:
        """Columns whose numbers fragments have in their own messages, too."""
        merged = self._merged
        deleted = self.deleted_rows if merged.deletion_file else None
        row_ids = merged.inline_row_ids
        known = len(row_ids) == len(self)
        return self.ids, self.physical_rows, deleted, row_ids if known else None

    def check_same(self, position: int, fragment: table_pb2.DataFragment) -> None:
        """Check that a fragment has the numbers of its columns here.

        A number that is there twice, or as another kind of field, stands for itself in its own
        message, and could stand for that of another fragment here.

        Raises
        ------
        CorruptFileError
            It has others.
        """
        ids, rows, deleted, row_ids = self._alone
        if (
            ids[position] != fragment.id
            or rows[position] != fragment.physical_rows
            or (deleted is not None and deleted[position] != _deleted_by(fragment))
            or (row_ids is not None and row_ids[position] != fragment.inline_row_ids)
        ):
            raise CorruptFileError(
                f"fragment {fragment.id}",
                expected="an id, numbers of rows and row ids that are there once each, as numbers",
                found="some twice, or in another form",
                where=self._where,
            )

    # ----------------------------------------------------------------- parsing

    def _numbers(self, name: str, merged: Any) -> Int64s:
        if len(merged) == len(self):
            return self._column(merged)
        if len(merged) == len(self) - 1:
            first = self._parse(table_pb2.DataFragment(), self._wire.fragments[0])
            if not getattr(first, name):  # usually the list starts with fragment 0
                return self._column(chain((0,), merged))
        marked = table_pb2.FragmentColumns()
        getattr(marked, name).append(_MARK)
        parts = [np.zeros(0, np.int64)]
        for part in self._parts():
            columns = self._parse(table_pb2.FragmentColumns(), _between(part, marked))
            parts.append(self._marked(getattr(columns, name), len(part)))
        return np.concatenate(parts)

    def _parts(self) -> Iterator[Sequence[bytes]]:
        """The messages of some fragments at a time, where copies of all would be large."""
        fragments = self._wire.fragments
        return (fragments[at : at + _PART] for at in range(0, len(self), _PART))

    def _within(self, numbers: Int64s, limit: int) -> Int64s:
        if len(numbers) and int(numbers.max()) > limit:
            raise self._beyond()
        return numbers

    def _marked(self, numbers: Any, count: int) -> Int64s:
        """The number after each marker: 0 if there is none, the last of several."""
        flat = np.fromiter(numbers, np.uint64, len(numbers))
        is_marker = flat == np.uint64(_MARK)
        if int(is_marker.sum()) != count:
            raise self._beyond()
        owner = np.cumsum(is_marker) - 1
        column = np.zeros(count, np.uint64)
        column[owner[~is_marker]] = flat[~is_marker]
        if len(column) and int(column.max()) >= 2**63:
            raise self._beyond()
        return column.view(np.int64)

    def _column(self, values: Iterable[int]) -> Int64s:
        try:
            return np.fromiter(values, np.int64, len(self))
        except OverflowError as error:
            raise self._beyond() from error

    def _parse(self, message: M, raw: bytes | memoryview) -> M:
        return parse(message, raw, "fragments", self._where)

    def _beyond(self) -> CorruptFileError:
        return CorruptFileError(
            "fragments",
            expected="ids below 2^32, and at most 2^32 rows each",
            found="more",
            where=self._where,
        )


def _deleted_by(fragment: table_pb2.DataFragment) -> int:
    """Deleted rows of a fragment; -1 if only the deletion file has their number."""
    if not fragment.HasField("deletion_file"):
        return 0
    number: int = fragment.deletion_file.num_deleted_rows
    return number or -1


def _between(fragments: Sequence[bytes], mark: Any) -> bytes:
    """The messages of fragments, each preceded by a marker."""
    marker: bytes = mark.SerializeToString()
    return marker + marker.join(fragments) if fragments else b""
