"""The source of a merge: its rows, and lookups of its keys in the dataset."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cached_property, partial
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from glaive.arrow.blocks import flag_array, inverse_permutation, spread
from glaive.arrow.build import offset_bits
from glaive.arrow.chunked import (
    BATCH_BYTES,
    as_numpy,
    coalesced,
    cut_views,
    decode_large,
    empty_table,
    join_batches,
    take_rows,
)
from glaive.arrow.conditions import IsOneOf, python_values
from glaive.dataclass import dataclass
from glaive.dataset.writing.conform import conform, match_schema
from glaive.dataset.writing.plan import WriteOptions
from glaive.dataset.writing.rules import refuse_given
from glaive.dataset.writing.source import Rows, read_source
from glaive.encodings.predicate import integer_ranges
from glaive.errors import ColumnNotFoundError, OptionError, SchemaError
from glaive.expr import tree
from glaive.expr.bind import check_column_texts
from glaive.expr.coerce import is_list
from glaive.expr.filters import Term
from glaive.format import field as declared_keys
from glaive.format.fields import LanceSchema
from glaive.format.manifest import Feature
from glaive.io.failures import as_store_errors, spilling
from glaive.io.mapped import advise, map_file
from glaive.kernels.hashing import StringTable, WordTable
from glaive.kernels.strings import Strings
from glaive.scan.filter_scan import FilteredScan
from glaive.scan.filter_search import Search, answers_of
from glaive.scan.options import Meter, ScanOptions
from glaive.scan.projection import ROW_ADDRESS, ROW_ID, refuse_reserved_names
from glaive.scan.run.scheduler import ScanRun
from glaive.table.configuration import has_value
from glaive.table.operations.update import Filter, hash_keys, key_filter
from glaive.types import ByteRange, Int64s, as_buffer, items_of

if TYPE_CHECKING:
    from glaive.dataset.version import OpenedVersion
    from glaive.scan.snapshot import Snapshot


# --- The clauses of a merge: what it does with matched and unmatched rows ---------------

WriteMode = Literal["auto", "rewrite_rows", "rewrite_columns"]


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeClauses:
    """The clauses of a merge.

    Parameters
    ----------
    on
        Key columns.
    update, update_condition
        Update matched rows from the source, if the condition over ``source`` and ``target``
        is true.
    delete, fail
        Delete matched rows; or raise if a row matches.
    insert
        Insert unmatched rows of the source.
    delete_by_source, by_source_condition
        Delete unmatched rows of the dataset for which the condition is true.
    mode
        Whether to rewrite updated rows as new rows, or to replace columns in place.
    data_storage_version
        Format of the new files; default: the format of the dataset.
    target_bases
        Base paths for new files, used in turn; None: all.
    primary_base
        Whether "all" includes the dataset's own root.
    use_index
        Whether glaive may search scalar indices for keys.
    compression
        Compression of the new files.
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
    def is_empty(self) -> bool:
        """Whether the merge has no clause."""
        return not (self.update or self.delete or self.fail or self.insert or self.delete_by_source)

    def options(self, bases: Sequence[str]) -> WriteOptions:
        """Return write options for a dataset with these base paths.

        Raises
        ------
        OptionError
            The files must go to base paths, which the dataset lacks.
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
        """Describe the clauses in one line."""
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
    """Return the primary key columns that the schema declares, in key order."""
    return tuple(field.name for field in declared_keys.primary_key(schema.fields))


# --- The keys that a merge inserts: other writers see whether both insert the same key --


class InsertedKeys:
    """A filter of keys that are added block by block. Its size is constant.

    Parameters
    ----------
    field_ids
        Ids of the columns of the primary key, in its order.
    order
        Positions of these columns among the columns that are added.
    """

    def __init__(self, field_ids: Sequence[int], order: Sequence[int]) -> None:
        self._filter = key_filter(field_ids, np.empty(0, np.uint64))
        self._order = tuple(order)
        self._count = 0
        self._all_hashed = True

    @classmethod
    def of(cls, schema: LanceSchema, on: Sequence[str]) -> Self | None:
        """Return the keys of a merge on columns that are the primary key, or None."""
        declared = primary_key(schema)
        if not declared or set(declared) != set(on):
            return None
        ids = [schema.find(name)[-1].id for name in declared]
        return cls(ids, [on.index(name) for name in declared])

    def add(self, columns: Sequence[Any]) -> None:
        """Add keys: arrays of the key columns, of equal length.

        Keys with nulls differ from all keys, so they are left out.
        """
        given = [columns[at] for at in self._order]
        if any(column.null_count for column in given):
            mask = flag_array(np.all([as_numpy(column.is_valid()) for column in given], axis=0))
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
        """Return the filter in wire format; None if it is empty or a key type is unsupported."""
        return self._filter if self._all_hashed and self._count else None

    @property
    def has_unsupported_keys(self) -> bool:
        """Whether keys of unsupported types were added."""
        return bool(self._count) and not self._all_hashed


def _bits_of(made: Filter) -> NDArray[np.uint8]:
    return np.frombuffer(made.bloom.bitmap, np.uint8)


# --- Rows of a source in windows: a source may be on disk, or in many chunks ------------

WINDOW_BYTES: Final = 16 * 1024 * 1024
"""Approximate bytes of rows that are taken at a time."""


def row_bytes(rows: pa.Table) -> int:
    """Return the approximate bytes of a row."""
    return max(1, rows.nbytes // max(1, rows.num_rows))


def selected_rows(rows: pa.Table, positions: Int64s) -> Iterator[pa.Table]:
    """Yield rows at ascending positions, in windows; adjacent rows share the table's memory."""
    step = max(1, WINDOW_BYTES // row_bytes(rows))
    for start in range(0, len(positions), step):
        part = positions[start : start + step]
        first = int(part[0])
        span = int(part[-1]) + 1 - first
        window = rows.slice(first, span)
        dense = span == len(part) and bool((part[1:] > part[:-1]).all())
        yield window if dense else take_rows(window, part - first)


def gather_rows(rows: pa.Table, positions: Int64s) -> pa.Table:
    """Return rows at positions in any order; read each part of the source once, in its order."""
    if all(column.num_chunks < 2 for column in rows.columns) or len(positions) < 2:
        return take_rows(rows, positions)
    order = np.argsort(positions, kind="stable")
    ascending = pa.concat_tables(selected_rows(rows, positions[order]))
    if bool((order[1:] > order[:-1]).all()):
        return ascending
    return take_rows(ascending, inverse_permutation(order))


# --- Rows on disk while a merge needs them: written once, read as views of the file ------
# The file is in the system's temporary folder (``TMPDIR``) and is unnamed. So the system removes
# the file however the process ends. Its format is Arrow's uncompressed stream format.
#
# Write buffers are empty while glaive asks for rows. A child process forked then would write a
# buffer again when it ends, into the file of its parent.

_ROWS: Final = "rows of the source, which exceed memory_limit,"


class SpilledRows:
    """A temporary file of record batches. Close it to release the disk space.

    Parameters
    ----------
    schema
        Of the batches.
    what
        What is written, for errors.
    folder
        Where the file is; default: the system's temporary folder.

    Raises
    ------
    StoreError
        The temporary folder is missing or read-only.
    """

    def __init__(
        self, schema: pa.Schema, what: str = _ROWS, folder: str | os.PathLike[str] | None = None
    ) -> None:
        in_folder = partial(as_store_errors, os.fspath(folder or ""), "write")
        self._failing = partial(spilling, what) if folder is None else in_folder
        with self._failing():
            if folder is not None:
                Path(folder).mkdir(parents=True, exist_ok=True)
            self._file: Any = tempfile.TemporaryFile(prefix="glaive-", dir=folder)  # noqa: SIM115  # closed by close()
        self._writer: Any = pa.ipc.new_stream(pa.PythonFile(self._file, mode="w"), schema)
        with self._failing():
            self._file.flush()
        self._map: pa.Buffer | None = None

    def write(self, batch: pa.RecordBatch) -> None:
        """Append rows.

        Raises
        ------
        StoreError
            Writing the rows failed; the disk may be full.
        """
        with self._failing():
            self._writer.write_batch(batch)
            self._file.flush()

    def finish(self) -> pa.Table:
        """Return all rows, as views of the file; end writing.

        Raises
        ------
        StoreError
            Writing the rows failed; the disk may be full.
        """
        with self._failing():
            self._writer.close()
            self._file.flush()
            self._map = map_file(self._file.fileno(), self._file.tell())
        return pa.ipc.open_stream(pa.BufferReader(self._map)).read_all()

    def release_pages(self) -> None:
        """Release the pages of the file from this process's memory; views stay valid."""
        if self._map is not None:
            advise(self._map, [ByteRange(0, self._map.size)], "dontneed")

    def close(self) -> None:
        """Release the file; the system frees its disk space with the last view."""
        self._map = None
        with suppress(OSError):  # unwritten rows are useless
            self._file.close()


SOURCE_SHARE: Final = 2
"""Share of the memory limit (1 / n) for rows of the source; their keys get as much."""


class MergeSource:
    """The rows of a source, which can be read several times. A context manager that closes itself.

    Parameters
    ----------
    rows
        The rows, with columns of the dataset's types, in any order.
    limit
        Maximum bytes of memory of the merge: ``memory_limit``.
    spilled
        The file that ``rows`` are views of, if they are on disk.
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

    def release_pages(self) -> None:
        """Release rows on disk from memory, until they are read again."""
        if self._spilled is not None:
            self._spilled.release_pages()


def read_rows(
    data: object,
    schema: pa.Schema | None,
    dataset: OpenedVersion,
    clauses: MergeClauses,
    limit: int,
) -> MergeSource:
    """Read the source of a merge; beyond the limit it goes to a temporary file.

    A table in memory is used as it is.

    Raises
    ------
    OptionError, ColumnNotFoundError, SchemaError
        See :func:`check_source`; or ``data`` is not a source of rows.
    StoreError
        Writing the rows to a temporary file failed.
    """
    given, rows = read_source(data, schema)
    wanted = check_source(dataset.manifest.schema, given, clauses, where=dataset.uri).to_arrow()
    first = list(islice(rows, 2))
    same = all(given.field(field.name).type.equals(field.type) for field in wanted)
    if len(first) < 2 and same:
        return MergeSource(_in_place(first, wanted), limit)
    size = max(1, min(BATCH_BYTES, limit // 16))
    batches = coalesced(_conformed(chain(first, rows), wanted, size), size)
    return _store_rows(batches, wanted, limit)


def _in_place(parts: list[Rows], wanted: pa.Schema) -> pa.Table:
    """Return rows that are in memory already; few rows as one chunk, which is faster."""
    if not parts:
        return empty_table(wanted)
    table = pa.Table.from_arrays([parts[0].column(name) for name in wanted.names], schema=wanted)
    if table.nbytes <= BATCH_BYTES:
        return pa.Table.from_batches(join_batches(table), wanted)
    return table


def _conformed(parts: Iterable[Rows], wanted: pa.Schema, limit: int) -> Iterator[pa.RecordBatch]:
    """Yield the rows with columns as in the dataset; cut large parts, as a cast may copy them."""
    for part in chain.from_iterable(map(cut_views, parts)):
        step = max(1, limit * part.num_rows // max(1, part.nbytes))
        for start in range(0, part.num_rows, step):
            fitted = conform(part.slice(start, step), wanted)
            yield from fitted.to_batches() if isinstance(fitted, pa.Table) else [fitted]


def _store_rows(batches: Iterator[pa.RecordBatch], schema: pa.Schema, limit: int) -> MergeSource:
    """Return the rows in memory, or on disk if they are too large."""
    held: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        held.append(batch)
        size += batch.nbytes
        if size > limit // SOURCE_SHARE:
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
    """Return the columns of the dataset that the source has.

    Raises
    ------
    OptionError
        The merge has no clause.
    FilterError
        A string literal of a condition is the name of a column.
    ColumnNotFoundError, SchemaError
        The source lacks a key, or does not match the schema.
    """
    if clauses.is_empty:
        raise OptionError(
            "The merge insert job is not configured to change the data in any way: the merge has "
            "no clauses. Add clauses, such as when_matched_update_all() and "
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
            f"Drop them or call add_columns first. Columns: {', '.join(schema.names)}"
        )
    given = set(source.names)
    present = LanceSchema(
        tuple(field for field in schema.fields if field.name in given), schema.metadata
    )
    if clauses.insert or clauses.update:
        refuse_given(schema, given if clauses.insert else given.difference(clauses.on))
    if clauses.insert:
        needed = [one for one in schema.fields if not (one.nullable or has_value(one))]
        missing = [one.name for one in needed if one.name not in given]
        if missing:
            raise SchemaError(
                f"the source lacks non-nullable columns: {', '.join(missing)}; rows without them "
                "cannot be inserted"
            )
    return match_schema(source, present, where=where)


# --- Find rows of a dataset that have a key of the source, while decoding key columns ---
# The keys become a predicate on each column. glaive tests numbers and times while encoded,
# dictionaries once per entry, and other columns in windows. It looks up keys only for rows that
# pass, and reads only the key columns.
#
# Keys have one or more columns. A key with a null in one of its columns matches nothing. A null
# within a struct or a list is a value like any other.

# --- Codes of key values: equal values have equal codes, whatever their type ------------
# Numbers, times, booleans and floats are hashed as machine words, by their bits. Strings, binary
# and wide decimals are hashed by their bytes; structs and lists by their string form. Equality is
# pylance's: -0.0 differs from 0.0, and NaNs are equal if their bits are equal.


class KeyValues:
    """The values of one column of the source.

    Parameters
    ----------
    name
        Name of the column, for messages.
    array
        Values of the column.

    Attributes
    ----------
    codes
        For each value the position of the first equal value; for a null ``size - 1``, the number
        of values.

    Raises
    ------
    SchemaError
        Values of the type cannot be compared.
    """

    def __init__(self, name: str, array: Any) -> None:
        array = _storage_of(array)
        self._are_words = is_word_type(array.type)
        if not (self._are_words or _is_byte_string(array.type)):
            raise SchemaError(f"rows cannot be matched by column {name!r} of type {array.type}")
        self.size = len(array) + 1
        self._rows: Int64s | None = None
        given = array
        if array.null_count:
            self._rows = np.flatnonzero(~_nulls_of(array))
            given = array.drop_null()
        self._table: Any = (
            WordTable(_words_of(given))
            if self._are_words
            else StringTable(_strings_of(given), len(given))
        )
        self.codes: Int64s = self._table.firsts
        if self._rows is not None:
            self.codes = np.full(len(array), len(array), np.int64)
            self.codes[self._rows] = self._rows[self._table.firsts]

    def find(self, array: Any) -> Int64s:
        """Return the codes of other values; -1 for values that the source lacks."""
        array = _storage_of(array)
        codes: Int64s
        if self._are_words:
            codes = self._table.find(_words_of(array))
        else:
            codes = self._table.find(_strings_of(array), len(array))
        if self._rows is not None:
            known = codes >= 0
            codes[known] = self._rows[codes[known]]
        if array.null_count:
            codes[_nulls_of(array)] = self.size - 1
        return codes


def _storage_of(array: Any) -> Any:
    """Replace extension types, dictionaries and views of an array; return nested values as
    strings.
    """
    types = pa.types
    if isinstance(array.type, pa.BaseExtensionType):
        array = array.storage
    if types.is_dictionary(array.type):
        array = decode_large(array)
    kind = array.type
    if types.is_string_view(kind) or types.is_binary_view(kind) or types.is_null(kind):
        return array.cast(pa.large_binary())
    if types.is_struct(kind) or types.is_map(kind) or is_list(kind, fixed=True):
        texts = [None if value is None else repr(value) for value in python_values(array)]
        return pa.array(texts, pa.large_string())
    return array


def is_word_type(data_type: pa.DataType) -> bool:
    """Return whether values fit in a machine word of 64 bits."""
    types = pa.types
    if types.is_boolean(data_type):
        return True
    wide = types.is_decimal(data_type) or types.is_primitive(data_type)
    return bool(wide and data_type.bit_width in (8, 16, 32, 64))


def _nulls_of(array: Any) -> NDArray[np.bool_]:
    """Return for each value whether it is null."""
    mask: NDArray[np.bool_] = as_numpy(array.is_null())
    return mask


class Combined:
    """Combines the codes of several columns into one code: the position of the first equal row.

    Parameters
    ----------
    parts
        For each column the codes of all rows, and an exclusive upper bound of the codes.
    """

    def __init__(self, parts: list[tuple[Int64s, int]]) -> None:
        self._tables: list[tuple[int, WordTable]] = []
        codes, _ = parts[0]
        self.codes = codes
        for codes, size in parts[1:]:
            table = WordTable(_joined(self.codes, codes, size))
            self._tables.append((size, table))
            self.codes = table.firsts

    def find(self, parts: list[Int64s]) -> Int64s:
        """Return the position of the first row with these codes; with one column, its codes."""
        rows = parts[0]
        for (size, table), codes in zip(self._tables, parts[1:], strict=True):
            unknown = (rows < 0) | (codes < 0)
            rows = table.find(_joined(rows, codes, size))
            rows[unknown] = -1
        return rows


def _joined(high: Int64s, low: Int64s, size: int) -> NDArray[np.uint64]:
    # Both are below 2^31, so the result is below 2^63.
    return (high * size + low).view(np.uint64)


def _words_of(array: Any) -> NDArray[np.uint64]:
    if pa.types.is_boolean(array.type):
        array = array.cast(pa.uint8())
    width = array.type.bit_width // 8
    if not len(array):
        return np.empty(0, np.uint64)
    words = items_of(array.buffers()[1], f"<u{width}", len(array), array.offset * width)
    return words.astype(np.uint64, copy=False)


def _is_byte_string(data_type: pa.DataType) -> bool:
    types = pa.types
    wide = (
        types.is_fixed_size_binary(data_type)
        or types.is_decimal(data_type)
        or types.is_interval(data_type)
    )
    return bool(offset_bits(data_type) or wide)


def _strings_of(array: Any) -> Strings:
    """Return the values as byte strings."""
    bits = offset_bits(array.type)
    if not len(array):
        return Strings(as_buffer(np.zeros(1, np.int64)), 64, _EMPTY)
    buffers = array.buffers()
    if bits:
        return Strings(buffers[1].slice(array.offset * bits // 8), bits, buffers[2] or _EMPTY)
    width = int(array.type.bit_width) // 8
    offsets = np.arange(len(array) + 1, dtype=np.int64) * width
    return Strings(as_buffer(offsets), 64, buffers[1].slice(array.offset * width))


_EMPTY: Any = pa.py_buffer(b"")


Addresses = NDArray[np.uint64]
_MAX_PREFILTER_RATIO: Final = 0.25
"""Maximum ratio of source rows to dataset rows for which filtering rows before lookup pays off."""

_MIN_STREAMED_ROWS: Final = 1 << 20
"""Rows of a dataset beyond which lookups begin before all keys are decoded."""


@dataclass(frozen=True, slots=True)
class Matches:
    """Matched rows of the dataset, in its order.

    Parameters
    ----------
    addresses, ids
        Addresses and ids of the rows; the same unless row ids are stable.
    source
        The first row of the source with the key of each row.
    """

    addresses: Addresses
    ids: Addresses
    source: Int64s

    def only(self, kept: NDArray[np.bool_] | Int64s | slice) -> Matches:
        """Return the matches that a mask, positions or a range select."""
        addresses = self.addresses[kept]
        ids = addresses if self.ids is self.addresses else self.ids[kept]
        return Matches(addresses, ids, self.source[kept])

    @classmethod
    def joined(cls, parts: Sequence[Matches]) -> Matches:
        """Concatenate matches; at least one part."""
        return cls(
            np.concatenate([part.addresses for part in parts]),
            np.concatenate([part.ids for part in parts]),
            np.concatenate([part.source for part in parts]),
        )

    def in_order_of_source(self, rows: int) -> Matches:
        """Return the matches in the order of the source, which has ``rows`` rows."""
        if bool((self.source[1:] >= self.source[:-1]).all()):
            return self
        matched = np.full(rows, -1, np.int64)
        matched[self.source] = np.arange(len(self.source))
        order = matched[matched >= 0]
        if len(order) < len(self.source):  # several rows match one source row
            order = np.argsort(self.source, kind="stable")
        return self.only(order)


def find_matches(
    dataset: OpenedVersion,
    keys: SourceKeys,
    meter: Meter,
    *,
    use_index: bool = True,
    fragments: tuple[int, ...] | None = None,
) -> Matches:
    """Look up the keys of all live rows among the keys of the source.

    With ``use_index``, scalar indices find candidate rows where that is faster. ``fragments`` are
    ids of the fragments to search; default: all.

    Memory: a few windows of the key columns, and 24 bytes per match.
    """
    snapshot = dataset.snapshot
    stable = snapshot.manifest.uses(Feature.STABLE_ROW_IDS)
    system = [ROW_ADDRESS, *([ROW_ID] if stable else [])]
    refuse_reserved_names(snapshot.manifest.schema, *system)
    columns = (*keys.names, *system)
    source = dataset.views.scan(columns, inputs=keys.names)
    terms = _terms(keys) if keys.rows <= _MAX_PREFILTER_RATIO * snapshot.num_rows else ()
    run = ScanRun(source, ScanOptions(fragments=fragments), meter)
    answers = answers_of(run, [_indexed(term, snapshot) for term in terms]) if use_index else {}
    search = Search(run, terms, answers=answers)
    num_keys = len(keys.names)
    parts: dict[str, list[NDArray[Any]]] = {name: [] for name in (*system, "source")}
    stream = snapshot.num_rows > _MIN_STREAMED_ROWS
    for chunk in FilteredScan.of(search).chunks(stream=stream):
        with meter.step("look up"):
            rows = keys.find(chunk[:num_keys])
            matched = rows >= 0
        for name, column in zip((*system, "source"), (*chunk[num_keys:], rows), strict=True):
            values = column if name == "source" else as_numpy(column)
            parts[name].append(values if matched.all() else values[matched])
    addresses = _joined_columns(parts[ROW_ADDRESS], np.uint64)
    return Matches(
        addresses,
        _joined_columns(parts[ROW_ID], np.uint64) if stable else addresses,
        _joined_columns(parts["source"], np.int64),
    )


def ambiguous_source(key: str) -> SchemaError:
    """Return the error for several source rows that match the same row of the dataset."""
    return SchemaError(
        "Ambiguous merge inserts are prohibited: multiple source rows match the same "
        f"target row: several rows of the source have {key}. Keep one row per key in the source, "
        "or have the condition of when_matched_update_all choose one."
    )


def _joined_columns(parts: list[NDArray[Any]], dtype: Any) -> NDArray[Any]:
    return np.concatenate([np.empty(0, dtype), *(part.view(dtype) for part in parts)])


def _indexed(term: _KeyTerm, snapshot: Snapshot) -> Term:
    """Return the term as a condition that indices answer, if the column holds strings."""
    stored: Any = snapshot.manifest.schema.find(term.path)[-1].to_arrow().type
    values: Any = term.keys
    text = pa.types.is_string(stored) or pa.types.is_large_string(stored)
    if term.condition is not None or not text or values.type != stored:
        return term
    return replace(term, condition=(term.path, IsOneOf(values.drop_null())))


def _terms(keys: SourceKeys) -> tuple[_KeyTerm, ...]:
    """Return predicates that all rows with a key of the source pass, and few other rows."""
    terms = []
    for name, column, values in zip(keys.names, keys.columns, keys.values, strict=True):
        if isinstance(column.type, pa.BaseExtensionType) or pa.types.is_nested(column.type):
            continue  # files may store another type
        condition = None
        if is_word_type(column.type):
            condition = name, IsOneOf(column.drop_null())
            integer_ranges(condition[1], column.type)  # computed once here, not in each thread
        terms.append(
            _KeyTerm(expression=_ANY, condition=condition, path=name, values=values, keys=column)
        )
    return tuple(sorted(terms, key=lambda term: term.condition is None))  # the fast ones first


_ANY: Final = tree.Literal(True, pa.bool_())


@dataclass(frozen=True, slots=True, kw_only=True)
class _KeyTerm(Term):
    """Whether a column has one of the source's values."""

    path: str
    values: KeyValues
    keys: pa.Array

    @property
    def columns(self) -> tuple[str, ...]:
        return (self.path,)

    def mask(self, batch: pa.RecordBatch) -> Any:
        array: Any = batch.column(batch.schema.get_field_index(self.path))
        codes = self.values.find(array)
        return flag_array((codes >= 0) & (codes < self.values.size - 1))


class SourceKeys:
    """The keys of a source, ready for lookups.

    Parameters
    ----------
    names
        Names of the key columns, for messages.
    columns
        The key columns, one array each, of equal length.

    Raises
    ------
    SchemaError
        The values of a column cannot be compared.
    """

    def __init__(self, names: Sequence[str], columns: Sequence[pa.Array]) -> None:
        self.names = tuple(names)
        self.columns = tuple(columns)
        self.rows = len(columns[0])
        self.values = [KeyValues(name, column) for name, column in zip(names, columns, strict=True)]
        self._combined = Combined([(value.codes, value.size) for value in self.values])

    @cached_property
    def first_rows(self) -> Int64s:
        """For each source row the first row with the same key; -1 if the key has a null."""
        return self._without_nulls(self._combined.codes, [value.codes for value in self.values])

    @cached_property
    def repeated(self) -> NDArray[np.bool_]:
        """For each source row whether another row has the same key."""
        first = self.first_rows
        known = first >= 0
        counts = np.bincount(first[known], minlength=len(first))
        repeated = np.zeros(len(first), np.bool_)
        repeated[known] = counts[first[known]] > 1
        return repeated

    def pairs(self, matches: Matches, limit: int) -> Iterator[Matches]:
        """Yield all pairs of a matched row and a source row with its key, about ``limit`` at once.

        All pairs of a matched row come together, even if they are more than ``limit``.
        """
        rows = np.flatnonzero(self.first_rows >= 0)
        first = self.first_rows[rows]
        order = rows[np.argsort(first, kind="stable")]
        counts = np.bincount(first, minlength=self.rows)
        starts = np.cumsum(counts) - counts
        sizes = counts[matches.source]
        ends = np.cumsum(sizes)
        begin = done = 0
        while begin < len(sizes):
            end = max(begin + 1, int(np.searchsorted(ends, done + limit, side="right")))
            part = matches.only(np.repeat(np.arange(begin, end), sizes[begin:end]))
            sources = order[spread(starts[matches.source[begin:end]], sizes[begin:end])]
            yield replace(part, source=sources)
            begin, done = end, int(ends[end - 1])

    def find(self, columns: Sequence[Any]) -> Int64s:
        """Return the first source row with the key of each row, or -1."""
        parts = [values.find(column) for values, column in zip(self.values, columns, strict=True)]
        return self._without_nulls(self._combined.find(parts), parts)

    def text(self, row: int) -> str:
        """Return the key of a source row, for messages."""
        columns = zip(self.names, self.columns, strict=True)
        return ", ".join(
            f"{name} = {python_values(column.slice(row, 1))[0]!r:.60}" for name, column in columns
        )

    def _without_nulls(self, rows: Int64s, parts: Sequence[Int64s]) -> Int64s:
        rows = rows.copy()
        for values, codes in zip(self.values, parts, strict=True):
            rows[codes == values.size - 1] = -1
        return rows
