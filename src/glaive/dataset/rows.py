"""Delete and update rows; functions that both share."""

from __future__ import annotations

import math
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from functools import cache, partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from glaive.arrow.blocks import ascending
from glaive.arrow.chunked import as_numpy, batch_parts
from glaive.dataclass import dataclass
from glaive.dataset.monitoring import current_line, note_rows
from glaive.dataset.scanner import Scanner
from glaive.dataset.tasks import LOCAL, FragmentRange, InProcess, Job, commit_operation
from glaive.dataset.writing.fragments import write_fragments
from glaive.dataset.writing.plan import WriteOptions, plan_write
from glaive.dataset.writing.rules import refuse_given, stored_values
from glaive.dataset.writing.source import Rows
from glaive.errors import (
    ColumnNotFoundError,
    CommitConflictError,
    CommitContentionError,
    FilterError,
    OptionError,
    UnsupportedFeatureError,
)
from glaive.expr.bind import check_column_texts
from glaive.expr.filters import Value, refuse_blob_uses
from glaive.format.blobs import has_blobs_v2
from glaive.format.deletions import MAX_DELETED_ROWS
from glaive.format.fields import LanceSchema
from glaive.format.fragment import Fragment, FragmentList
from glaive.format.manifest import Feature, Manifest, check_writable
from glaive.format.rowids import decode_row_ids, encode_row_ids
from glaive.index.scalar.ordering import is_text
from glaive.options import integer
from glaive.process import monotonic
from glaive.scan.options import REWRITE_BLOBS, ScanOptions
from glaive.scan.projection import ROW_ADDRESS, ROW_ID, refuse_reserved_names
from glaive.scan.query import make_query
from glaive.table.configuration import GENERATED
from glaive.table.operations.update import Delete, Update
from glaive.table.protocol import Offsets

if TYPE_CHECKING:
    from glaive.dataset.version import OpenDataset, OpenedVersion


# --- Sets of rows, by fragment: bitmaps of at most about one bit per row

_MAX_PENDING_ROWS: Final = 1 << 18
"""Rows that wait as given before they go to the sets of their fragments."""

_MAX_FEW: Final = 64
"""Rows of a fragment that take less time as an array than as a bitmap, and about as much memory."""


class RowsByFragment(Mapping[int, Offsets]):
    """A set of rows of a dataset: physical offsets, ascending, by fragment id.

    A lookup of a fragment makes its offsets. Only one thread may change the set. A set from another
    process stays packed until rows are asked for.
    """

    def __init__(self) -> None:
        self._pending: list[NDArray[np.uint64]] = []
        self._pending_rows = 0
        self._parts: dict[int, Any] = {}  # roaring bitmaps, or few offsets

    def __getstate__(self) -> dict[int, Any]:
        self._add_pending()
        return {number: _bitmap(part) for number, part in self._parts.items()}

    def __setstate__(self, parts: dict[int, Any]) -> None:
        self.__init__()  # type: ignore[misc]  # of the same class
        self._parts = parts

    def add(self, addresses: NDArray[np.uint64]) -> None:
        """Add rows, in any order; rows may be in the set already."""
        self._pending.append(addresses)
        self._pending_rows += len(addresses)
        if self._pending_rows >= _MAX_PENDING_ROWS:
            self._add_pending()

    def add_offsets(self, fragment_id: int, offsets: Offsets) -> None:
        """Add rows of one fragment, ascending."""
        if len(offsets):
            self._join(fragment_id, offsets if len(offsets) <= _MAX_FEW else _bitmap(offsets))

    def add_all(self, others: RowsByFragment) -> None:
        """Add the rows of another set."""
        self._add_pending()
        others._add_pending()  # of this class
        for fragment_id, part in others._parts.items():  # same
            self._join(fragment_id, part)

    def _join(self, fragment_id: int, part: Any) -> None:
        known = self._parts.get(fragment_id)
        self._parts[fragment_id] = part if known is None else _bitmap(known) | _bitmap(part)

    def divided(self, fragments: int) -> Iterator[RowsByFragment]:
        """Yield the rows in sets of ``fragments`` fragments each."""
        ids = list(self)
        for start in range(0, len(ids), fragments):
            part = RowsByFragment()
            part._parts = {number: self._parts[number] for number in ids[start : start + fragments]}
            yield part

    def overlap(self, addresses: NDArray[np.uint64]) -> NDArray[np.bool_]:
        """Return for each of these rows whether it is in the set."""
        self._add_pending()
        found = np.zeros(len(addresses), np.bool_)
        fragments = addresses >> np.uint64(32)
        for fragment_id in np.unique(fragments).tolist():
            if fragment_id in self._parts:
                selected = np.flatnonzero(fragments == fragment_id)
                found[selected] = np.isin(addresses[selected].astype(np.uint32), self[fragment_id])
        return found

    def first_common(self, others: RowsByFragment) -> int | None:
        """Return the address of a row that is in both sets; ``None`` if the sets are disjoint."""
        for fragment_id in others:
            if self.count_of(fragment_id):
                common = np.intersect1d(self[fragment_id], others[fragment_id], assume_unique=True)
                if len(common):
                    return (fragment_id << 32) | int(common[0])
        return None

    @property
    def count(self) -> int:
        """Number of rows."""
        self._add_pending()
        return sum(map(len, self._parts.values()))

    def count_of(self, fragment_id: int) -> int:
        """Return the number of rows of a fragment."""
        self._add_pending()
        return len(self._parts.get(fragment_id, ()))

    def __getitem__(self, fragment_id: int) -> Offsets:
        self._add_pending()
        part = self._parts[fragment_id]
        return part if isinstance(part, np.ndarray) else np.asarray(part.to_array(), np.uint32)

    def __iter__(self) -> Iterator[int]:
        self._add_pending()
        return iter(sorted(self._parts))

    def __len__(self) -> int:
        self._add_pending()
        return len(self._parts)

    def _add_pending(self) -> None:
        if self._pending:
            waiting, self._pending, self._pending_rows = self._pending, [], 0
            rows = waiting[0] if len(waiting) == 1 else np.concatenate(waiting)
            for fragment_id, offsets in _by_fragment(rows).items():
                self.add_offsets(fragment_id, offsets)


def _bitmap(offsets: Any) -> Any:
    """Return the bitmap of offsets; a bitmap as it is."""
    from pyroaring import BitMap

    if isinstance(offsets, BitMap):
        return offsets
    # An array is by far the fastest input of pyroaring.
    bitmap = BitMap(array("I", offsets.astype(np.uint32, copy=False).tobytes()))
    bitmap.run_optimize()
    return bitmap


def _by_fragment(addresses: NDArray[np.uint64]) -> dict[int, Offsets]:
    """Return offsets by fragment id, ascending and distinct, for row addresses in any order."""
    addresses = ascending(addresses)
    fragments = (addresses >> np.uint64(32)).astype(np.int64)
    offsets = addresses.astype(np.uint32)  # the low half
    cuts = (np.flatnonzero(fragments[1:] != fragments[:-1]) + 1).tolist()
    bounds = pairwise([0, *cuts, len(offsets)])
    return {int(fragments[first]): offsets[first:stop] for first, stop in bounds if stop}


# --- Retry a change for the newest version after another writer changed the same rows ---

RETRY_TIMEOUT = timedelta(seconds=30)
"""Default time limit for retries of a change."""

R = TypeVar("R")


def check_retries(conflict_retries: object, retry_timeout: object) -> None:
    """Check how often and how long to retry a change.

    Raises
    ------
    OptionError
        The number is negative or not an integer, or the duration is not a ``timedelta``.
    """
    integer(0).check("conflict_retries", conflict_retries)
    if not isinstance(retry_timeout, timedelta):
        raise OptionError(f"retry_timeout: expected a timedelta, found {retry_timeout!r}")


def with_retries(
    dataset: OpenDataset,
    change: Callable[[OpenedVersion], tuple[Manifest, R]],
    *,
    conflict_retries: int = 10,
    retry_timeout: timedelta = RETRY_TIMEOUT,
) -> R:
    """Execute a change and move the dataset to the new version; see ``LanceDataset.delete``.

    ``change`` gets the version to change. It commits and returns the new version and a result.
    A dataset with a feature that this writer lacks is refused first.
    """
    check_retries(conflict_retries, retry_timeout)
    until = monotonic() + retry_timeout.total_seconds()
    at = dataset.opened
    for attempt in range(int(conflict_retries) + 1):
        wire = at.manifest.wire
        check_writable(
            wire.reader_feature_flags, wire.writer_feature_flags, where=at.manifest.where
        )
        try:
            manifest, result = change(at)
        except CommitConflictError as error:
            if not error.retryable:
                raise
            if attempt == conflict_retries or monotonic() >= until:
                raise CommitContentionError(
                    f"Too many concurrent writers: {at.uri}: others changed the same rows at "
                    f"every one of {attempt + 1} attempts, the last in version {error.version} "
                    f"({error.operation}). Nothing was changed; try again, or allow more "
                    "conflict_retries or a longer retry_timeout."
                ) from error
            at = at.at_latest(error.version)
            line = current_line()
            if line is not None:
                line.move_to(0, None)
        else:
            dataset.move_to(manifest)
            return result
    raise AssertionError("unreachable: the last attempt returns or raises")


# --- Rewrite rows into new fragments; they keep stable row ids --------------------------


class RelocatedIds:
    """Row ids, in the order of the written rows, encoded with few bytes per row.

    Parameters
    ----------
    kept
        Whether the rows keep their ids.
    """

    __slots__ = ("_ends", "_parts", "kept")

    def __init__(self, *, kept: bool) -> None:
        self.kept = kept
        self._parts: list[bytes] = []
        self._ends = [0]

    def add(self, ids: NDArray[np.uint64]) -> None:
        """Append ids of rows."""
        if self.kept and len(ids):
            self._parts.append(encode_row_ids(ids))
            self._ends.append(self._ends[-1] + len(ids))

    def encoded(self, start: int, stop: int) -> bytes | None:
        """Return the sequence of the ids number ``start`` to ``stop``, or fewer, or None."""
        stop = min(stop, self._ends[-1])
        if start >= stop:
            return None
        first = int(np.searchsorted(self._ends, start, side="right")) - 1
        last = int(np.searchsorted(self._ends, stop, side="left"))
        pieces = [
            decode_row_ids(self._parts[at], self._ends[at + 1] - self._ends[at], where="new rows")
            for at in range(first, last)
        ]
        begin = start - self._ends[first]
        return encode_row_ids(np.concatenate(pieces)[begin : begin + stop - start])


@cache
def _appending(version: str | None) -> WriteOptions:
    return WriteOptions(mode="append", data_storage_version=version)


def write_relocated(
    dataset: OpenedVersion,
    rows: Iterable[Rows],
    ids: RelocatedIds,
    options: WriteOptions | None = None,
    *,
    inserts: bool = False,
) -> list[Fragment]:
    """Write rows into new fragments of a later version.

    Parameters
    ----------
    rows
        The rows, with at least the non-nullable columns of the dataset.
    ids
        Ids of the first rows, added while ``rows`` are produced. The commit assigns new ids to
        the other rows.
    options
        Format and locations of the files; default: as for the dataset.
    inserts
        Whether there are new rows, which the commit numbers.

    Raises
    ------
    OptionError
        The format or base path is unknown.
    """
    manifest = dataset.manifest
    plan = plan_write(dataset.store, manifest.schema, options or _appending(None), manifest)
    plan = plan.for_moved_rows(inserts=inserts)
    new = write_fragments(plan, rows, snapshot=dataset.snapshot)
    written = [fragment for fragment in new if fragment.physical_rows]
    return with_ids(written, ids)


def with_ids(written: Sequence[Fragment], ids: RelocatedIds) -> list[Fragment]:
    """Return new fragments with the ids that their first rows keep."""
    if not ids.kept:
        return list(written)
    moved, start = [], 0
    for fragment in written:
        kept = ids.encoded(start, start + fragment.physical_rows)
        start += fragment.physical_rows
        moved.append(fragment if kept is None else replace(fragment, row_ids=kept))
    return moved


# --- Rows that a filter selects, as offsets per fragment; and ``dataset.delete`` --------
# A deletion keeps all data files. Its tasks find the rows and write deletion files.

_FRAGMENTS_PER_TASK: Final = 64
"""Maximum fragments whose deletion files one process writes."""

_MAX_TASKS: Final = 4096
"""Approximate maximum of tasks that write deletion files; more fragments make larger tasks."""


@dataclass(frozen=True, slots=True)
class DeletedRows:
    """Fragments with new deletion files, their deleted rows, and ids of emptied fragments.

    ``count`` is the number of deleted rows, including rows of emptied fragments.
    """

    updated: Sequence[Fragment]
    removed: tuple[int, ...]
    affected: RowsByFragment
    count: int

    @classmethod
    def joined(cls, parts: Iterable[Self]) -> Self:
        """Join the rows of several tasks; each task has other fragments."""
        found, affected = list(parts), RowsByFragment()
        for part in found:
            affected.add_all(part.affected)
        updated = FragmentList.joined(part.updated for part in found)
        removed = tuple(number for part in found for number in part.removed)
        return cls(updated, removed, affected, sum(part.count for part in found))


@dataclass(frozen=True, slots=True)
class DeleteTask:
    """Delete the rows of some fragments for which a filter is true; can be pickled."""

    fragments: FragmentRange
    predicate: str | pc.Expression

    def execute(self, dataset: OpenDataset) -> DeletedRows:
        """Write deletion files for a later commit."""
        opened = self.fragments.opened(dataset)
        ids = self.fragments.ids(opened)
        whole = _fully_deleted(opened, self.predicate, ids)
        if not whole:
            return delete_rows(opened, rows_where(opened, self.predicate, fragments=ids))
        every = opened.manifest.fragment_ids.tolist() if ids is None else ids
        rest = tuple(one for one in every if one not in whole)
        found = rows_where(opened, self.predicate, fragments=rest) if rest else {}
        deleted = delete_rows(opened, found)
        removed, count = (*deleted.removed, *whole), deleted.count + sum(whole.values())
        return replace(deleted, removed=removed, count=count)


@dataclass(frozen=True, slots=True)
class MatchingFragments:
    """Find the fragments with rows for which a filter is true; can be pickled."""

    fragments: FragmentRange
    predicate: str | pc.Expression

    def execute(self, dataset: OpenDataset) -> tuple[int, ...]:
        """Return the ids of the fragments."""
        opened = self.fragments.opened(dataset)
        return tuple(rows_where(opened, self.predicate, fragments=self.fragments.ids(opened)))


def _fully_deleted(
    dataset: OpenedVersion, predicate: str | pc.Expression, ids: Sequence[int] | None
) -> dict[int, int]:
    """Return fragments whose rows all match and exceed a deletion file; with their rows.

    Such fragments are removed as a whole, which saves the memory for offsets.
    """
    manifest, views = dataset.manifest, dataset.views
    whole: dict[int, int] = {}
    for position in np.flatnonzero(manifest.physical_rows > MAX_DELETED_ROWS).tolist():
        number = int(manifest.fragment_ids[position])
        if ids is not None and number not in ids:
            continue
        options = ScanOptions.of(filter=predicate, fragments=[number])
        rows = int(dataset.snapshot.live_counts[position])
        if make_query(views, options, counting=True).count() == rows > MAX_DELETED_ROWS:
            whole[number] = rows
    return whole


def rows_where(
    dataset: OpenedVersion, predicate: Any, *, fragments: tuple[int, ...] | None = None
) -> dict[int, Offsets]:
    """Return physical offsets of the matching live rows, ascending, by fragment id.

    ``fragments`` are ids of the fragments to search; default: all.

    Raises
    ------
    UnsupportedFeatureError
        More rows of a fragment match than a deletion file may hold.
    """
    options = ScanOptions.of(filter=predicate, fragments=fragments)
    parts: dict[int, list[Offsets]] = {}
    counts: Counter[int] = Counter()
    query = make_query(dataset.views, options, counting=True)
    for fragment_id, rows in query.row_ranges():
        note_rows(len(rows))
        counts[fragment_id] += len(rows)
        # Few bytes of a file may encode any number of rows that match.
        if counts[fragment_id] > MAX_DELETED_ROWS:
            raise UnsupportedFeatureError(
                f"more than {MAX_DELETED_ROWS} rows of fragment {fragment_id} match (in "
                f"{dataset.manifest.where}), as many as can be deleted from one. Write the dataset "
                "with smaller fragments, or delete all of the fragment's rows."
            )
        parts.setdefault(fragment_id, []).append(rows.astype(np.uint32))
    return {
        fragment_id: rows[0] if len(rows) == 1 else np.concatenate(rows)
        for fragment_id, rows in parts.items()
    }


@dataclass(frozen=True, slots=True)
class DeleteRowsTask:
    """Delete given rows of some fragments; can be pickled."""

    read_version: int
    rows: RowsByFragment

    def execute(self, dataset: OpenDataset) -> DeletedRows:
        """Write deletion files for a later commit."""
        return delete_rows(FragmentRange(self.read_version).opened(dataset), self.rows)


def delete_in_tasks(dataset: OpenedVersion, rows: RowsByFragment, job: Job) -> DeletedRows:
    """Write deletion files for these rows: here, or in tasks if there are many fragments."""
    if len(rows) <= _FRAGMENTS_PER_TASK:
        return delete_rows(dataset, rows)
    tasks = delete_rows_tasks(dataset.manifest.version, rows)
    return DeletedRows.joined(job.runner.run(dataset, tasks))


def delete_rows_tasks(version: int, rows: RowsByFragment) -> list[DeleteRowsTask]:
    """Return tasks that each delete the rows of some fragments."""
    fragments = max(_FRAGMENTS_PER_TASK, math.ceil(len(rows) / _MAX_TASKS))
    return [DeleteRowsTask(version, part) for part in rows.divided(fragments)]


def delete_rows(dataset: OpenedVersion, rows: Mapping[int, Offsets]) -> DeletedRows:
    """Write deletion files for these rows. Only rows that were live count.

    Makes one request per fragment, or two if it has a deletion file that the session lacks.
    """
    manifest = dataset.manifest
    updated, removed, affected, count = [], [], RowsByFragment(), 0
    for fragment_id, offsets in rows.items():
        fragment = manifest.fragment(manifest.position_of(fragment_id))
        changed, added = dataset.snapshot.add_deletions(fragment, offsets)
        if not len(added):
            continue
        count += len(added)
        if changed is None:
            removed.append(fragment_id)
        else:
            affected.add_offsets(fragment_id, added)
            updated.append(changed)
    return DeletedRows(FragmentList.of(updated), tuple(removed), affected, count)


def delete_where(
    dataset: OpenedVersion, predicate: str | pc.Expression, job: Job = LOCAL
) -> tuple[Manifest, int]:
    """Commit the deletion of the matching rows; return the version and their number.

    Always makes a version, as pylance does.
    """
    if not isinstance(predicate, str | pc.Expression):
        raise OptionError(
            f"predicate must be a string or expression, found {predicate!r:.60}. Pass 'a > 1'."
        )
    check_column_texts(dataset.manifest.schema, predicate)
    bound = dataset.views.filter(predicate)
    text = predicate if isinstance(predicate, str) else bound.text
    if not bound.terms:
        return truncate(dataset, text, job)
    tasks = [DeleteTask(fragments, predicate) for fragments in job.runner.parts(dataset)]
    return commit_deleted(dataset, job.runner.run(dataset, tasks), text, job)


def commit_deleted(
    dataset: OpenedVersion, parts: Iterable[DeletedRows], predicate: str, job: Job = LOCAL
) -> tuple[Manifest, int]:
    """Commit the results of tasks; return the version and the number of rows."""
    deleted = DeletedRows.joined(parts)
    operation = Delete(
        updated=deleted.updated,
        removed=deleted.removed,
        predicate=predicate,
        affected=deleted.affected,
    )
    properties = job.recording(num_deleted_rows=deleted.count)
    manifest = commit_operation(dataset, operation, properties=properties, once=job.once)
    return manifest, deleted.count


def truncate(
    dataset: OpenedVersion, predicate: str = "true", job: Job = LOCAL
) -> tuple[Manifest, int]:
    """Commit the deletion of all rows, by manifests alone."""
    ids = tuple(dataset.manifest.fragment_ids.tolist())
    count = dataset.snapshot.num_rows
    operation = Delete(removed=ids, predicate=predicate)
    properties = job.recording(num_deleted_rows=count)
    return commit_operation(dataset, operation, properties=properties, once=job.once), count


# --- ``dataset.update``: set new values in the rows that match a filter -----------------
# glaive deletes the rows and writes them again, with all columns, into new fragments at the end.
# The rows keep stable row ids.


@dataclass(frozen=True, slots=True)
class UpdatedRows:
    """New fragments with the updated rows, and the deletion of the old rows."""

    new: Sequence[Fragment]
    old: DeletedRows


@dataclass(frozen=True, slots=True)
class UpdateTask:
    """Update the rows of some fragments for which a filter is true; can be pickled.

    Parameters
    ----------
    updates
        Expressions over the old values, by top-level column.
    where
        The filter; default: all rows.
    data_storage_version
        Format of the new files; default: the format of the dataset.
    """

    fragments: FragmentRange
    updates: Mapping[str, str]
    where: str | pc.Expression | None
    data_storage_version: str | None = None

    def execute(self, dataset: OpenDataset) -> UpdatedRows:
        """Write the rows and deletion files for a later commit."""
        opened = self.fragments.opened(dataset)
        schema = opened.manifest.schema
        values = _bind(opened, self.updates)
        stable = opened.manifest.uses(Feature.STABLE_ROW_IDS)
        system = [ROW_ADDRESS, *([ROW_ID] if stable else [])]
        refuse_reserved_names(schema, *system)
        columns = [*schema.names, *system]
        needed = {path for value in values.values() for path in value.columns}
        columns += sorted(needed - set(columns))
        reading = ScanOptions.of(
            columns=columns, filter=self.where, fragments=self.fragments.ids(opened)
        )
        reading = replace(reading, blob_handling=REWRITE_BLOBS)
        scanner = Scanner(opened.views, reading)
        updated, ids = RowsByFragment(), RelocatedIds(kept=stable)
        change = partial(_changed, values=values, schema=schema)

        def rows() -> Iterator[pa.RecordBatch]:
            for batch in scanner.to_batches():
                updated.add(as_numpy(batch.column(ROW_ADDRESS)))
                if stable:
                    ids.add(as_numpy(batch.column(ROW_ID)))
                yield from batch_parts(change, batch)

        options = _appending(self.data_storage_version)
        new = write_relocated(opened, rows(), ids, options)
        return UpdatedRows(FragmentList.of(new), delete_rows(opened, updated))


def update_where(
    dataset: OpenedVersion,
    updates: Mapping[str, str],
    where: str | pc.Expression | None,
    data_storage_version: str | None = None,
    job: Job = LOCAL,
) -> tuple[Manifest, int]:
    """Commit new values for the matching rows; return the version and the number of rows.

    Parameters
    ----------
    updates
        Expressions over the old values, by top-level column.
    """
    check_column_texts(dataset.manifest.schema, where)
    if not isinstance(job.runner, InProcess):  # there the only task checks the same first
        _bind(dataset, updates)
        if where is not None:
            dataset.views.filter(where)
    tasks = [
        UpdateTask(fragments, updates, where, data_storage_version)
        for fragments in job.runner.parts(dataset)
    ]
    parts = job.runner.run(dataset, tasks)
    deleted = DeletedRows.joined(part.old for part in parts)
    fields = dataset.manifest.schema.fields
    touched = sorted(one.id for one in fields if one.name in updates or GENERATED in one.metadata)
    operation = Update(
        removed=deleted.removed,
        updated=deleted.updated,
        new=FragmentList.joined(part.new for part in parts),
        fields_touched=tuple(touched),
        affected=deleted.affected,
    )
    properties = job.recording(num_rows_updated=deleted.count)
    manifest = commit_operation(dataset, operation, properties=properties, once=job.once)
    return manifest, deleted.count


def _bind(dataset: OpenedVersion, updates: Mapping[str, str]) -> dict[str, Value]:
    given: object = updates
    if not isinstance(given, Mapping) or not given:
        raise OptionError(
            "No updates provided: updates: expected expressions by column, such as "
            f"{{'a': 'a + 1'}}, found {updates!r}"
        )
    schema = dataset.manifest.schema
    bound = {}
    for name, text in given.items():
        if name not in schema.by_name:
            if isinstance(name, str) and "." in name and name.partition(".")[0] in schema.by_name:
                raise OptionError(
                    f"updates: {name!r} is a member of a struct; update the whole column instead"
                )
            raise ColumnNotFoundError.among(name, schema.names, where=dataset.uri)
        refuse_given(schema, [name])
        if not isinstance(text, str):
            example = repr(str(text)) if isinstance(text, int | float) else "'1' or \"'text'\""
            raise OptionError(
                f"updates: the value of {name!r} must be an expression as a string, found "
                f"{text!r:.60}. Write {example}."
            )
        try:
            check_column_texts(schema, text)
            bound[name] = dataset.views.value(text)
        except FilterError as error:
            if not is_text(schema.by_name[name].to_arrow().type) or {"'", '"', "("} & {*text}:
                raise
            quoted = f"'{text}'"
            raise type(error)(
                f"updates: {name!r} is set to an expression; for a string write {quoted!r}. {error}"
            ) from None
        if not has_blobs_v2(schema.by_name[name]):
            refuse_blob_uses(bound[name].expression, schema.fields, f"updates: {name!r}")
    return bound


def _changed(
    batch: pa.RecordBatch, values: Mapping[str, Value], schema: LanceSchema
) -> pa.RecordBatch:
    """Return the rows with their new values; other generated columns are left out."""
    arrays, names = [], []
    for field in schema.fields:
        name = field.name
        value = values.get(name)
        if value is None and GENERATED in field.metadata:
            continue  # the writer computes it again
        names.append(name)
        arrays.append(batch.column(name) if value is None else stored_values(value, field, batch))
    return pa.RecordBatch.from_arrays(arrays, names=names)
