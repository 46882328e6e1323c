"""Numbers of all fragments of a manifest, read without a step per fragment.

Parsing merges a message field that is there more than once. Read as a message whose numbers
are lists, all fragments become one: their ids, one after the other, come out of a single
parse. A number that is 0 is left out on the wire; where that leaves a list too short, a
marker is put between the fragments, so that the list shows which of them has none.

Specification: "Fragments and data files" in ``docs/format``.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property, partial
from itertools import chain
from typing import Any, Final

import numpy as np
from google.protobuf.message import DecodeError
from numpy.typing import NDArray

from glaive.errors import CorruptFileError
from glaive.format.limits import MAX_FRAGMENT_ID, MAX_FRAGMENT_ROWS
from glaive.format.pb import table_pb2

__all__ = ["FragmentColumns"]

Int64s = NDArray[np.int64]

_MARK: Final = 2**64 - 1


class FragmentColumns:
    """Columns of the fragments of one manifest, each made when it is first asked for.

    Parameters
    ----------
    wire
        The manifest; never changed.
    where
        Full path of the manifest, for messages.
    raw
        The bytes ``wire`` was parsed from, if they are at hand; let go of after first use.
    all_rows
        Rows that are told are all rows of a fragment. Manifests that name no writer may tell
        only the live ones where there is a deletion file.
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
        if raw is None:
            alone = table_pb2.ManifestOutline(fragments=self._wire.fragments)
            raw = memoryview(alone.SerializeToString())
        columns: table_pb2.ManifestColumns = self._parse(table_pb2.ManifestColumns, raw)
        self._raw = None
        return columns.fragments

    @cached_property
    def ids(self) -> Int64s:
        """Id of each fragment, below 2^32. Shape ``(fragments,)``."""
        return self._within(self._numbers("id", self._merged.id), MAX_FRAGMENT_ID)

    @cached_property
    def physical_rows(self) -> Int64s:
        """Rows in the files of each fragment, 2^32 at most; 0 where the manifest does not tell."""
        rows = self._numbers("physical_rows", self._merged.physical_rows)
        return self._within(rows, MAX_FRAGMENT_ROWS)

    @property
    def rows_known(self) -> bool:
        """Whether the manifest tells the rows of each fragment, deleted ones included."""
        merged = self._merged
        told = self._all_rows or not merged.deletion_file
        return told and len(merged.physical_rows) == len(self)

    @property
    def unknown_rows(self) -> Int64s:
        """Positions of the fragments whose rows only their data files tell."""
        unknown = self.physical_rows == 0
        if not self._all_rows:
            unknown |= self.deleted_rows != 0
        return np.flatnonzero(unknown)

    @cached_property
    def deleted_rows(self) -> Int64s:
        """Deleted rows of each fragment; -1 where only the deletion file tells.

        Not more than the fragment has rows, where the manifest tells these.
        """
        if not len(self._merged.deletion_file):
            return np.zeros(len(self), np.int64)
        found, rows = self._deleted_rows(), self.physical_rows
        wrong = np.flatnonzero((found > rows) & (rows > 0))
        if len(wrong) and self._all_rows:
            raise CorruptFileError(
                f"deleted rows of fragment {self.ids[wrong[0]]}",
                expected=f"at most {rows[wrong[0]]}, its rows",
                found=f"{found[wrong[0]]}",
                where=self._where,
            )
        return found

    def _deleted_rows(self) -> Int64s:
        marked = table_pb2.DeletionColumns()
        marked.deletion_file.num_deleted_rows.append(_MARK)
        raw = self._between(marked)
        found: table_pb2.DeletionColumns = self._parse(table_pb2.DeletionColumns, raw)
        numbers = found.deletion_file.num_deleted_rows
        if len(numbers) == len(self) + len(self._merged.deletion_file):
            return self._placed(numbers)
        parsed = partial(self._parse, table_pb2.DataFragment)
        return self._column(
            (fragment.deletion_file.num_deleted_rows or -1)
            if fragment.HasField("deletion_file")
            else 0
            for fragment in map(parsed, self._wire.fragments)
        )

    def count_rows(self) -> int | None:
        """Live rows; ``None`` in an old dataset where only the files tell."""
        merged = self._merged
        if not merged.deletion_file and self.rows_known:
            total = sum(merged.physical_rows)
            # Only of more rows in all can one fragment have too many.
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
    def file_bytes(self) -> int:
        """Bytes of all data files as far as their sizes are known."""
        return sum(self._merged.files.file_size_bytes)

    def since(self, position: int) -> FragmentColumns:
        """The columns of the fragments from a position of the list on."""
        rest = table_pb2.ManifestOutline(fragments=self._wire.fragments[position:])
        return FragmentColumns(rest, self._where)

    @property
    def any_deleted(self) -> bool:
        """Whether a fragment has a deletion file."""
        return bool(self._merged.deletion_file)

    @property
    def any_lineage_in_files(self) -> bool:
        """Whether row ids or row versions of a fragment are hidden columns of its files."""
        merged = self._merged
        return bool(
            merged.column_row_ids
            or merged.column_last_updated_at_versions
            or merged.column_created_at_versions
        )

    @property
    def row_ids(self) -> list[bytes] | None:
        """Wire form of the row ids of each fragment; ``None`` unless all carry them so."""
        found = self._merged.inline_row_ids
        return list(found) if len(found) == len(self) else None

    def row_ids_at(self, position: int) -> bytes | None:
        """Wire form of the row ids of one fragment; ``None`` where they are elsewhere."""
        one = self._parse(table_pb2.DataFragment, self._wire.fragments[position])
        return None if one.HasField("column_row_ids") else one.inline_row_ids

    # ----------------------------------------------------------------- parsing

    def _numbers(self, name: str, merged: Any) -> Int64s:
        if len(merged) == len(self):
            return self._column(merged)
        if len(merged) == len(self) - 1:
            first = self._parse(table_pb2.DataFragment, self._wire.fragments[0])
            if not getattr(first, name):  # as of a list that begins with fragment 0
                return self._column(chain((0,), merged))
        marked = table_pb2.FragmentColumns()
        getattr(marked, name).append(_MARK)
        found = self._parse(table_pb2.FragmentColumns, self._between(marked))
        return self._placed(getattr(found, name))

    def _between(self, mark: Any) -> bytes:
        """All fragments, each behind a marker."""
        marker = mark.SerializeToString()
        return marker + marker.join(self._wire.fragments) if len(self) else b""

    def _within(self, numbers: Int64s, most: int) -> Int64s:
        if len(numbers) and int(numbers.max()) > most:
            raise self._beyond()
        return numbers

    def _placed(self, numbers: Any) -> Int64s:
        """The number behind each marker; 0 where there is none, the last of several."""
        flat = np.fromiter(numbers, np.uint64, len(numbers))
        marks = flat == np.uint64(_MARK)
        if int(marks.sum()) != len(self):
            raise self._beyond()
        owner = np.cumsum(marks) - 1
        placed = np.zeros(len(self), np.uint64)
        placed[owner[~marks]] = flat[~marks]
        if len(placed) and int(placed.max()) >= 2**63:
            raise self._beyond()
        return placed.view(np.int64)

    def _column(self, values: Iterable[int]) -> Int64s:
        try:
            return np.fromiter(values, np.int64, len(self))
        except OverflowError as error:
            raise self._beyond() from error

    def _parse(self, kind: Any, raw: bytes | memoryview) -> Any:
        try:
            return kind.FromString(raw)
        except DecodeError as error:
            raise CorruptFileError(
                "fragments",
                expected="protobuf messages",
                found=f"{len(raw)} bytes that are none",
                where=self._where,
            ) from error

    def _beyond(self) -> CorruptFileError:
        return CorruptFileError(
            "fragments",
            expected="ids below 2^32, and at most 2^32 rows each",
            found="more",
            where=self._where,
        )
