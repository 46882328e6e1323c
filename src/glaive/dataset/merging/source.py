"""The source of a merge: rows that match the schema of the dataset, in memory or on disk."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, Final, Literal, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from glaive.arrow.blocks import inverse_permutation
from glaive.arrow.chunked import BATCH_BYTES, coalesced, empty_table, join_batches, take_rows
from glaive.arrow.widths import cut_views
from glaive.dataclass import dataclass
from glaive.dataset.writing.conform import conform, match_schema
from glaive.dataset.writing.plan import WriteOptions
from glaive.dataset.writing.source import Rows, read_source
from glaive.errors import ColumnNotFoundError, OptionError, SchemaError
from glaive.expr.bind import check_column_texts
from glaive.format import field as declared_keys
from glaive.format.fields import LanceSchema
from glaive.io.failures import spilling
from glaive.io.mapped import advise, map_file
from glaive.table.operations.update import Filter, hash_keys, key_filter
from glaive.types import ByteRange, Int64s

if TYPE_CHECKING:
    from glaive.dataset.version import OpenedVersion


# --- The clauses of a merge: what it does with matched and unmatched rows ---------------

WriteMode = Literal["auto", "rewrite_rows", "rewrite_columns"]


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeClauses:
    """What a merge does with matched and unmatched rows.

    Parameters
    ----------
    on
        Key columns.
    update, update_condition
        Update matched rows from the source, if the condition over ``source`` and ``target``
        holds.
    delete, fail
        Delete matched rows; or fail if there are any.
    insert
        Insert unmatched rows of the source.
    delete_by_source, by_source_condition
        Delete unmatched rows of the dataset for which the condition holds.
    mode
        Whether updated rows are rewritten as new rows, or columns are replaced in place.
    data_storage_version
        Format of the new files; default: that of the dataset.
    target_bases
        Base paths for new files, used in turn; None for all of them.
    primary_base
        Whether "all" includes the dataset's own root.
    use_index
        Whether scalar indices may be searched for keys.
    compression
        Of the new files.
    """

    on: tuple[str, ...]
    update: bool = False
    update_condition: str | None = None
    delete: bool = False
    fail: bool = False
    insert: bool = False
    delete_by_source: bool = False
    by_source_condition: str | None = None
    mode: WriteMode = "auto"
    data_storage_version: str | None = None
    target_bases: tuple[str, ...] | None = ()
    primary_base: bool = True
    use_index: bool = True
    compression: Literal["automatic", "balanced"] = "automatic"

    @property
    def does_nothing(self) -> bool:
        """Whether there is no clause."""
        return not (self.update or self.delete or self.fail or self.insert or self.delete_by_source)

    def options(self, bases: Sequence[str]) -> WriteOptions:
        """Write options for a dataset with these base paths.

        Raises
        ------
        OptionError
            The files must go to base paths, but there are none.
        """
        targets, everywhere = self.target_bases or (), self.target_bases is None
        if everywhere and not self.primary_base:
            if not bases:
                raise OptionError("target_all_bases: the dataset has no base paths. Add one first")
            targets, everywhere = tuple(bases), False
        return WriteOptions(
            mode="append",
            data_storage_version=self.data_storage_version,
            target_bases=targets,
            target_all_bases=everywhere,
            compression=self.compression,
        )

    def describe(self) -> str:
        """The clauses in one line."""
        matched = "DoNothing"
        if self.update:
            matched = f"UpdateIf({self.update_condition})" if self.update_condition else "UpdateAll"
        elif self.delete or self.fail:
            matched = "Delete" if self.delete else "Fail"
        by_source = "Keep"
        if self.delete_by_source:
            condition = self.by_source_condition
            by_source = "Delete" if condition is None else f"DeleteIf({condition})"
        return (
            f"on=[{', '.join(self.on)}], when_matched={matched}, "
            f"when_not_matched={'InsertAll' if self.insert else 'DoNothing'}, "
            f"when_not_matched_by_source={by_source}"
        )


def primary_key(schema: LanceSchema) -> tuple[str, ...]:
    """The primary key columns that the schema declares, in key order."""
    return tuple(field.name for field in declared_keys.primary_key(schema.fields))


# --- The keys that a merge inserts, by which other writers see that both insert the same


class InsertedKeys:
    """A filter of keys that are added block by block; its size does not depend on their number.

    Parameters
    ----------
    field_ids
        Ids of the columns of the primary key, in its order.
    order
        Where these are among the columns that are added.
    """

    def __init__(self, field_ids: Sequence[int], order: Sequence[int]) -> None:
        self._filter = key_filter(field_ids, np.empty(0, np.uint64))
        self._order = tuple(order)
        self._count = 0
        self._all_hashed = True

    @classmethod
    def of(cls, schema: LanceSchema, on: Sequence[str]) -> Self | None:
        """Those of a merge on some columns; None unless these are the primary key."""
        declared = primary_key(schema)
        if not declared or set(declared) != set(on):
            return None
        ids = [schema.find(name)[-1].id for name in declared]
        return cls(ids, [on.index(name) for name in declared])

    def add(self, columns: Sequence[Any]) -> None:
        """Add keys; arrays of the key columns, of equal length.

        Those with nulls are equal to none, so they are left out.
        """
        given = [columns[at] for at in self._order]
        if any(column.null_count for column in given):
            mask: Any = pa.array(np.all([column.is_valid() for column in given], axis=0))
            given = [column.filter(mask) for column in given]
        self._count += len(given[0])
        hashes = hash_keys(given) if self._all_hashed else None
        if hashes is None:
            self._all_hashed = False
            return
        more = key_filter(list(self._filter.field_ids), hashes)
        self._filter.bloom.bitmap = (_bits_of(self._filter) | _bits_of(more)).tobytes()

    def add_all(self, others: InsertedKeys) -> None:
        """Add the keys of another filter of the same columns."""
        self._all_hashed &= others._all_hashed
        self._count += others._count
        bits = _bits_of(self._filter) | _bits_of(others._filter)
        self._filter.bloom.bitmap = bits.tobytes()

    def message(self) -> Filter | None:
        """The filter in wire format; None if there are no keys, or unsupported ones."""
        return self._filter if self._all_hashed and self._count else None

    @property
    def lack_filter(self) -> bool:
        """Whether there are keys that no filter tells of."""
        return bool(self._count) and not self._all_hashed


def _bits_of(made: Filter) -> NDArray[np.uint8]:
    return np.frombuffer(made.bloom.bitmap, np.uint8)


# --- Rows of a source, window by window: it may be on disk, or in many chunks -----------

WINDOW_BYTES: Final = 16 * 1024 * 1024
"""Bytes of rows that are taken at a time, about."""


def row_bytes(rows: pa.Table) -> int:
    """Bytes of a row, about."""
    return max(1, rows.nbytes // max(1, rows.num_rows))


def selected_rows(rows: pa.Table, positions: Int64s) -> Iterator[pa.Table]:
    """Rows at ascending positions, window by window; neighbours are not copied."""
    step = max(1, WINDOW_BYTES // row_bytes(rows))
    for start in range(0, len(positions), step):
        part = positions[start : start + step]
        first = int(part[0])
        span = int(part[-1]) + 1 - first
        window = rows.slice(first, span)
        dense = span == len(part) and bool((part[1:] > part[:-1]).all())
        yield window if dense else take_rows(window, part - first)


def gather_rows(rows: pa.Table, positions: Int64s) -> pa.Table:
    """Rows at positions in any order; each part of the source is read once, in its order."""
    if all(column.num_chunks < 2 for column in rows.columns) or len(positions) < 2:
        return take_rows(rows, positions)
    order = np.argsort(positions, kind="stable")
    ascending = pa.concat_tables(selected_rows(rows, positions[order]))
    if bool((order[1:] > order[:-1]).all()):
        return ascending
    return take_rows(ascending, inverse_permutation(order))


# --- Rows on disk for as long as a merge needs them: written once, read as views of the file
# The file is in the system's temporary folder (``TMPDIR``) and has no name, so that it is removed
# however the process ends. Its format is Arrow's stream format, uncompressed.
#
# Nothing waits in a buffer while rows are asked for: a child that is forked there, and ends, would
# write it into the file of its parent.

_ROWS: Final = "rows of the source, which exceed memory_limit,"


class SpilledRows:
    """A temporary file of record batches. Close it to release the disk space.

    Raises
    ------
    StoreError
        There is no temporary folder in which files can be made.
    """

    def __init__(self, schema: pa.Schema) -> None:
        with spilling(_ROWS):
            self._file: Any = tempfile.TemporaryFile(prefix="glaive-")  # noqa: SIM115  # closed by close()
        self._writer: Any = pa.ipc.new_stream(pa.PythonFile(self._file, mode="w"), schema)
        with spilling(_ROWS):
            self._file.flush()
        self._map: pa.Buffer | None = None

    def write(self, batch: pa.RecordBatch) -> None:
        """Append rows.

        Raises
        ------
        StoreError
            They could not be written; the disk may be full.
        """
        with spilling(_ROWS):
            self._writer.write_batch(batch)
            self._file.flush()

    def finish(self) -> pa.Table:
        """All rows, as views of the file; no more can be written.

        Raises
        ------
        StoreError
            They could not be written; the disk may be full.
        """
        with spilling(_ROWS):
            self._writer.close()
            self._file.flush()
            self._map = map_file(self._file.fileno(), self._file.tell())
        return pa.ipc.open_stream(pa.BufferReader(self._map)).read_all()

    def let_go(self) -> None:
        """Take the pages of the file out of this process's memory; views stay valid."""
        if self._map is not None:
            advise(self._map, [ByteRange(0, self._map.size)], "dontneed")

    def close(self) -> None:
        """Release the file; its disk space is free once no view is left."""
        self._map = None
        with suppress(OSError):  # rows that were not written yet, which nobody needs
            self._file.close()


HELD_SHARE: Final = 2
"""The part of the memory limit for rows of the source; as much is for their keys."""


class MergeSource:
    """The rows of a source, which can be read several times. A context manager: closes itself.

    Parameters
    ----------
    rows
        The rows, with columns of the dataset's types, in any order.
    limit
        Bytes of memory that the merge may hold: ``memory_limit``.
    spilled
        The file of which ``rows`` are views, if they are on disk.
    """

    __slots__ = ("_spilled", "limit", "rows")

    def __init__(self, rows: pa.Table, limit: int, spilled: SpilledRows | None = None) -> None:
        self.rows, self.limit, self._spilled = rows, limit, spilled

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.rows = empty_table(self.rows.schema)
        if self._spilled is not None:
            self._spilled.close()

    @property
    def on_disk(self) -> bool:
        """Whether the rows exceeded the limit."""
        return self._spilled is not None

    def let_go(self) -> None:
        """Take rows that are on disk out of memory, until they are read again."""
        if self._spilled is not None:
            self._spilled.let_go()


def read_rows(
    data: object,
    schema: pa.Schema | None,
    dataset: OpenedVersion,
    clauses: MergeClauses,
    limit: int,
) -> MergeSource:
    """Read the source of a merge; beyond the limit it goes to a temporary file.

    Rows that the caller holds in one table are used where they are.

    Raises
    ------
    OptionError, ColumnNotFoundError, SchemaError
        As for :func:`check_source`; or ``data`` is no source of rows.
    StoreError
        The rows could not be written to a temporary file.
    """
    given, rows = read_source(data, schema)
    wanted = check_source(dataset.manifest.schema, given, clauses, where=dataset.uri).to_arrow()
    first = list(islice(rows, 2))
    same = all(given.field(field.name).type.equals(field.type) for field in wanted)
    if len(first) < 2 and same:
        return MergeSource(_in_place(first, wanted), limit)
    size = max(1, min(BATCH_BYTES, limit // 16))
    batches = coalesced(_conformed(chain(first, rows), wanted, size), size)
    return _held(batches, wanted, limit)


def _in_place(parts: list[Rows], wanted: pa.Schema) -> pa.Table:
    """Rows that are in memory already; small ones as one chunk, which is faster."""
    if not parts:
        return empty_table(wanted)
    table = pa.Table.from_arrays([parts[0].column(name) for name in wanted.names], schema=wanted)
    if table.nbytes <= BATCH_BYTES:
        return pa.Table.from_batches(join_batches(table), wanted)
    return table


def _conformed(parts: Iterable[Rows], wanted: pa.Schema, most: int) -> Iterator[pa.RecordBatch]:
    """The rows with columns as in the dataset; large parts are cut, as a cast may copy them."""
    for part in chain.from_iterable(map(cut_views, parts)):
        step = max(1, most * part.num_rows // max(1, part.nbytes))
        for start in range(0, part.num_rows, step):
            fitted = conform(part.slice(start, step), wanted)
            yield from fitted.to_batches() if isinstance(fitted, pa.Table) else [fitted]


def _held(batches: Iterator[pa.RecordBatch], schema: pa.Schema, limit: int) -> MergeSource:
    """The rows in memory, or on disk if they are too many."""
    held: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        held.append(batch)
        size += batch.nbytes
        if size > limit // HELD_SHARE:
            break
    else:
        return MergeSource(pa.Table.from_batches(held, schema), limit)
    spilled = SpilledRows(schema)
    try:
        while held:
            spilled.write(held.pop(0))
        pa.default_memory_pool().release_unused()
        for batch in batches:
            spilled.write(batch)
        return MergeSource(spilled.finish(), limit, spilled)
    except BaseException:
        spilled.close()
        raise


def check_source(
    schema: LanceSchema, source: pa.Schema, clauses: MergeClauses, *, where: str
) -> LanceSchema:
    """The columns of the dataset that the source has.

    Raises
    ------
    OptionError
        There is no clause.
    FilterError
        A text of a condition is the name of a column.
    ColumnNotFoundError, SchemaError
        The source lacks a key, or does not match the schema.
    """
    if clauses.does_nothing:
        raise OptionError(
            "The merge insert job is not configured to change the data in any way: the merge has "
            "no clauses: add some, such as when_matched_update_all() and "
            "when_not_matched_insert_all()"
        )
    check_column_texts(schema, clauses.by_source_condition, clauses.update_condition)
    for name in clauses.on:
        if name not in source.names:
            raise ColumnNotFoundError.among(name, source.names, where="the source of the merge")
    unknown = [name for name in source.names if name not in schema.by_name]
    if unknown:
        raise SchemaError(
            "Append with different schema: fields did not match: the source has columns that "
            f"{where} does not have: {', '.join(unknown)}. "
            f"Columns of the dataset: {', '.join(schema.names)}"
        )
    given = set(source.names)
    present = LanceSchema(
        tuple(field for field in schema.fields if field.name in given), schema.metadata
    )
    if clauses.insert:
        missing = [
            field.name for field in schema.fields if field.name not in given and not field.nullable
        ]
        if missing:
            raise SchemaError(
                f"the source lacks non-nullable columns: {', '.join(missing)}; rows without them "
                "cannot be inserted"
            )
    return match_schema(source, present, where=where)
