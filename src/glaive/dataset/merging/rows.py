"""Run a merge: match keys, evaluate conditions, write rows and deletions.

glaive matches the keys of the source in blocks that fit in memory; usually there is one block.
It reads rows of the source, in memory or on disk, in windows as it writes them. It reads the key
columns of the dataset once per block. It reads other columns only for matched rows, if a condition
needs them or the source lacks them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from glaive.arrow.blocks import ascending, flag_array, number_array
from glaive.arrow.chunked import as_numpy, in_parts, join_column, one_array
from glaive.arrow.conditions import filled
from glaive.dataclass import dataclass
from glaive.dataset.columns.column_files import (
    physical_rows,
    replace_files,
    replaced_values,
    view_of,
    write_column_file,
)
from glaive.dataset.merging.source import (
    SOURCE_SHARE,
    InsertedKeys,
    Matches,
    MergeClauses,
    MergeSource,
    SourceKeys,
    ambiguous_source,
    check_source,
    find_matches,
    gather_rows,
    row_bytes,
    selected_rows,
)
from glaive.dataset.rows import (
    DeletedRows,
    RelocatedIds,
    RowsByFragment,
    delete_rows,
    rows_where,
    write_relocated,
)
from glaive.dataset.writing.conform import conform
from glaive.dataset.writing.rules import numbered, refuse_ruled
from glaive.errors import OptionError, SchemaError
from glaive.expr.bind import check_column_texts
from glaive.expr.coerce import is_list
from glaive.expr.filters import Filter, bind_filter, refuse_blob_uses
from glaive.format.bitmaps import bitmap_of
from glaive.format.blobs import is_blob
from glaive.format.fields import LanceSchema
from glaive.format.fragment import LEGACY, Fragment
from glaive.format.manifest import Feature
from glaive.format.rowids import check_at_once
from glaive.scan.bound import PassedPages
from glaive.scan.options import Meter
from glaive.scan.projection import ROW_ADDRESS, ROW_ID
from glaive.scan.take import find_rows, take_physical
from glaive.table.configuration import GENERATED, IDENTITY, Rules, has_value
from glaive.table.operations.update import Update
from glaive.types import Int64s

if TYPE_CHECKING:
    from glaive.dataset.version import OpenedVersion


# --- Structs with some members in the source: the other members keep their values -------


def is_partial(given: Any, full: Any) -> bool:
    """Return whether ``given`` lacks members of structs, at any depth, that ``full`` has."""
    if pa.types.is_struct(given) and pa.types.is_struct(full):
        if given.num_fields < full.num_fields:
            return True
        members = {field.name: field.type for field in full}
        return any(
            field.name in members and is_partial(field.type, members[field.name]) for field in given
        )
    if is_list(given, fixed=True) and is_list(full, fixed=True):
        return is_partial(given.value_type, full.value_type)
    return False


def keep_members(new: Any, old: Any, name: str) -> Any:
    """Return the values of ``new`` with the members that only ``old`` has.

    A struct is null if both are null, as a null in ``new`` leaves the missing members alone.
    List items are matched by position, so lists must keep their lengths.

    Parameters
    ----------
    new, old
        Arrays of equal length; ``old`` has all members.
    name
        Name of the column, for the message.

    Raises
    ------
    SchemaError
        The length of a list of structs differs.
    """
    if not is_partial(new.type, old.type):
        return new
    if pa.types.is_struct(old.type):
        return _structs(new, old, name)
    return _lists(new, old, name)


def _structs(new: Any, old: Any, name: str) -> Any:
    given = dict(zip((field.name for field in new.type), new.flatten(), strict=True))
    children = [
        keep_members(given[field.name], had, f"{name}.{field.name}") if field.name in given else had
        for field, had in zip(old.type, old.flatten(), strict=True)
    ]
    kinds = [field.with_type(child.type) for field, child in zip(old.type, children, strict=True)]
    neither = pc.and_(new.is_null(), old.is_null())
    return pa.StructArray.from_arrays(children, fields=kinds, mask=neither)


def _lists(new: Any, old: Any, name: str) -> Any:
    if pa.types.is_fixed_size_list(old.type):
        # Null fixed-size lists also have items.
        size = old.type.list_size
        given, had = (
            array.values.slice(array.offset * size, len(array) * size) for array in (new, old)
        )
        items = keep_members(given, had, f"{name}.item")
        data_type = pa.list_(old.type.value_field.with_type(items.type), size)
        return pa.FixedSizeListArray.from_arrays(items, type=data_type, mask=_nulls(new))
    counts = [filled(pc.list_value_length(array), 0) for array in (new, old)]
    differ = np.flatnonzero(as_numpy(pc.not_equal(*counts)))
    if len(differ):
        lengths = " and ".join(str(count[int(differ[0])].as_py()) for count in counts)
        raise SchemaError(
            f"column {name!r}: the source has only some members of structs in lists, {new.type}, "
            f"and the dataset has {old.type}. Keeping the other members requires lists of the same "
            f"length, found {lengths} items. Give all members, or leave the column out."
        )
    items = keep_members(new.flatten(), old.flatten(), f"{name}.item")
    ends = np.concatenate([np.zeros(1, np.int64), np.cumsum(as_numpy(counts[0]))])
    field = old.type.value_field.with_type(items.type)
    if pa.types.is_list(old.type):
        offsets: Any = number_array(ends.astype(np.int32))
        return pa.ListArray.from_arrays(offsets, items, type=pa.list_(field), mask=_nulls(new))
    offsets = number_array(ends)
    data_type = pa.large_list(field)
    return pa.LargeListArray.from_arrays(offsets, items, type=data_type, mask=_nulls(new))


def _nulls(array: Any) -> Any:
    return array.is_null() if array.null_count else None


# --- Existing values of matched rows: for the condition, and for columns kept -----------

Addresses = NDArray[np.uint64]

_SIZE_SAMPLE_FRAGMENTS: Final = 16
"""Fragments whose files are used to estimate the size of a row."""

_MAX_MAPPED_BYTES: Final = 8 * 1024 * 1024
"""Bytes of a take that may keep its pages mapped."""


class OldValues:
    """Existing values of some columns of the dataset, as written.

    Parameters
    ----------
    names
        The columns.
    """

    def __init__(self, dataset: OpenedVersion, names: Sequence[str]) -> None:
        self._snapshot = dataset.snapshot
        self._view = dataset.views.take(tuple(names), blobs="logical")
        self._passed = PassedPages(searched=True)

    @cached_property
    def row_bytes(self) -> int:
        """Approximate bytes of a row in memory: twice its bytes in the files."""
        manifest = self._snapshot.manifest
        size = rows = 0
        for position in range(min(manifest.num_fragments, _SIZE_SAMPLE_FRAGMENTS)):
            fragment = manifest.fragment(position)
            size += sum(file.size or 0 for file in fragment.files)
            rows += fragment.physical_rows
        return 2 * size // max(1, rows)

    def take(self, addresses: Addresses) -> pa.Table:
        """Return the values of the rows at these addresses."""
        selected = find_rows(self._snapshot, "addresses", addresses.astype(np.int64))
        table = take_physical(self._view, selected.fragment, selected.row)
        size = len(addresses) * self.row_bytes
        if size > _MAX_MAPPED_BYTES:
            fragments = ascending(selected.fragment).tolist()
            for position in fragments:
                self._passed.add(self._view.fragment(position), size // len(fragments))
        return table


def kept_columns(fits: LanceSchema, schema: LanceSchema) -> list[str]:
    """Return columns that the source lacks, fully or in part; updates keep their old values.

    The writer computes generated columns.
    """
    given = {field.name: field.type for field in fits.to_arrow()}
    return [
        name
        for name, field in schema.by_name.items()
        if (name not in given and GENERATED not in field.metadata)
        or (name in given and is_partial(given[name], field.to_arrow().type))
    ]


def is_complete(fits: LanceSchema, schema: LanceSchema) -> bool:
    """Return whether a source with these columns has all columns, with all members."""
    return not kept_columns(fits, schema)


def with_old_values(new: pa.Table, old: pa.Table, schema: LanceSchema) -> pa.Table:
    """Return rows of the source with all columns of the dataset.

    Parameters
    ----------
    old
        The columns of :func:`kept_columns`, for the same rows of the dataset.
    """
    whole = schema.to_arrow()
    for field in old.schema:
        name = field.name
        if name not in new.schema.names:
            new = new.append_column(field, old.column(name))
        elif is_partial(new.schema.field(name).type, whole.field(name).type):
            kept = _with_members(new.column(name), old.column(name), name)
            at = new.schema.get_field_index(name)
            new = new.set_column(at, new.schema.field(name).with_type(kept.type), kept)
    return new


def _with_members(new: Any, old: Any, name: str) -> Any:
    """Return the new structs of a column, with members that only ``old`` has, in chunks."""

    def work(start: int, stop: int) -> Any:
        rows = stop - start
        parts = one_array(new.slice(start, rows)), one_array(old.slice(start, rows))
        return keep_members(*parts, name)

    return pa.chunked_array(list(in_parts(work, 0, len(new))))


def padded_rows(rows: pa.Table, schema: LanceSchema) -> pa.Table:
    """Return the rows, with nulls in the columns that they lack and that have no rule."""
    for field, stored in zip(schema.to_arrow(), schema.fields, strict=True):
        if field.name not in rows.schema.names and not has_value(stored):
            rows = rows.append_column(field, pa.nulls(rows.num_rows, field.type))
    return rows


def without_numbers(rows: pa.Table, schema: LanceSchema) -> Iterator[pa.Table]:
    """Yield inserted rows; rows with a null in an identity column come apart, without it."""
    for field in schema.fields:
        if IDENTITY in field.metadata and field.name in rows.schema.names:
            column = rows.column(field.name)
            if column.null_count:
                lacks = pc.is_null(column)
                yield from without_numbers(rows.filter(lacks).drop([field.name]), schema)
                rows = rows.filter(pc.invert(lacks))
    yield rows


# --- The condition of an update, over matched rows of the source and of the dataset -----

_SYSTEM: Final = pa.field(ROW_ID, pa.uint64()), pa.field(ROW_ADDRESS, pa.uint64())
"""System columns of the target."""

_WINDOW_ROWS: Final = 256 * 1024
"""Number of matched rows for which a condition is evaluated at a time."""


def bind_condition(schema: LanceSchema, source: pa.Schema, condition: str) -> Filter:
    """Bind a condition over the columns of ``source`` and ``target``.

    Raises
    ------
    FilterError
        The condition is invalid; the message says what and where.
    UnsupportedFeatureError
        The condition uses a blob column of the target.
    """
    sides = pa.schema(
        [
            pa.field("source", pa.struct(list(source))),
            pa.field("target", pa.struct([*schema.to_arrow(), *_SYSTEM])),
        ]
    )
    joined = LanceSchema.from_arrow(sides)
    check_column_texts(joined, condition)
    bound = bind_filter(condition, joined)
    refuse_blob_uses(bound.expression, [joined.by_name["target"]], "the condition of a merge")
    return bound


def holds(
    dataset: OpenedVersion, condition: str, matches: Matches, rows: pa.Table
) -> NDArray[np.bool_]:
    """Return for each match whether the condition over ``source`` and ``target`` is true.

    Memory: the columns of the condition for some hundred thousand rows.
    """
    bound = bind_condition(dataset.manifest.schema, rows.schema, condition)
    sides = _Sides.of(dataset, bound, rows)
    count = len(matches.source)
    # In the order of the source, if it is read in several parts.
    order = np.arange(count) if count <= _WINDOW_ROWS else np.argsort(matches.source, kind="stable")
    held = np.zeros(count, np.bool_)

    def work(start: int, stop: int) -> None:
        part = order[start:stop]
        mask: Any = bound.mask(sides.of_matches(matches.only(part)))
        held[part] = as_numpy(mask)

    for start in range(0, count, _WINDOW_ROWS):
        for _ in in_parts(work, start, min(start + _WINDOW_ROWS, count)):
            pass
    return held


@dataclass(frozen=True, slots=True)
class _Sides:
    """The columns that a condition uses, of the source and of the dataset."""

    rows: pa.Table
    old: OldValues
    stored: tuple[str, ...]
    system: tuple[str, ...]

    @classmethod
    def of(cls, dataset: OpenedVersion, bound: Filter, rows: pa.Table) -> _Sides:
        def used(side: str) -> list[str]:
            paths = [path.split(".") for path in bound.columns]
            return sorted({path[1] for path in paths if path[0] == side})

        system = [field.name for field in _SYSTEM]
        stored = tuple(name for name in used("target") if name not in system)
        requested = tuple(name for name in used("target") if name in system)
        return cls(rows.select(used("source")), OldValues(dataset, stored), stored, requested)

    def of_matches(self, matches: Matches) -> pa.RecordBatch:
        """Return a struct of the source's columns and a struct of the target's columns."""
        columns: dict[str, Any] = {}
        if self.stored:
            table: Any = self.old.take(matches.addresses)
            columns = {name: one_array(table.column(name)) for name in self.stored}
        numbers = {ROW_ID: matches.ids, ROW_ADDRESS: matches.addresses}
        columns |= {name: number_array(numbers[name]) for name in self.system}
        new: Any = gather_rows(self.rows, matches.source)
        given = {name: one_array(new.column(name)) for name in new.schema.names}
        rows = len(matches.source)
        return pa.RecordBatch.from_arrays(
            [_struct(given, rows), _struct(columns, rows)], names=["source", "target"]
        )


def _struct(columns: Mapping[str, Any], rows: int) -> Any:
    if not columns:
        return pa.nulls(rows, pa.struct([]))
    return pa.StructArray.from_arrays(list(columns.values()), names=list(columns))


# --- Unmatched rows of the dataset ------------------------------------------------------


def unmatched_rows(
    dataset: OpenedVersion, condition: str | None, matched: RowsByFragment, *, into: RowsByFragment
) -> tuple[int, list[int]]:
    """Add the unmatched rows for which the condition is true, or all of them, to a set.

    Returns
    -------
    tuple
        The number of these rows, and the ids of unmatched fragments. Rows of these
        fragments are left out of the set.
    """
    if condition is not None:
        selected = rows_where(dataset, condition)
        count = 0
        for fragment_id, offsets in selected.items():
            known = matched[fragment_id] if fragment_id in matched else offsets[:0]
            rest = np.setdiff1d(offsets, known, assume_unique=True)
            if len(rest):
                into.add_offsets(fragment_id, rest)
            count += len(rest)
        return count, []
    snapshot, emptied, count = dataset.snapshot, [], 0
    for position, fragment_id in enumerate(dataset.manifest.fragment_ids.tolist()):
        live_count = int(snapshot.live_counts[position])
        unmatched = live_count - matched.count_of(fragment_id)
        count += unmatched
        if unmatched == live_count:
            emptied += [fragment_id] if live_count else []
        elif unmatched:
            fragment = dataset.manifest.fragment(position)
            check_at_once(fragment.physical_rows, dataset.manifest.where)
            live = snapshot.live_rows(fragment)
            is_unmatched = np.ones(fragment.physical_rows, np.bool_)
            is_unmatched[matched[fragment_id]] = False
            if live is not None:
                is_unmatched[live.deleted_between(0, live.rows)] = False
            into.add_offsets(fragment_id, np.flatnonzero(is_unmatched).astype(np.uint32))
    return count, emptied


# --- A merge that replaces columns in place: matched rows keep their addresses ----------


def replace_in_fragments(
    dataset: OpenedVersion,
    columns: LanceSchema,
    rows: pa.Table,
    addresses: NDArray[np.uint64],
    source: NDArray[np.int64],
) -> Update:
    """Return the operation that sets rows at ``addresses`` to the rows ``source`` of ``rows``.

    Raises
    ------
    SchemaError
        A rule of the table uses one of the columns.
    """
    refuse_ruled(dataset.manifest, columns.names, "written without their rows", own=True)
    order = np.argsort(addresses, kind="stable")
    addresses, source = addresses[order], source[order]
    fragments = (addresses >> np.uint64(32)).astype(np.int64)
    offsets = (addresses & np.uint64(0xFFFFFFFF)).astype(np.int64)
    updated: list[Fragment] = []
    changed: dict[int, bytes] = {}
    view = view_of(dataset.snapshot, columns.names)
    for fragment_id in ascending(fragments).tolist():
        in_fragment = fragments == fragment_id
        position = dataset.manifest.position_of(fragment_id)
        fragment = dataset.manifest.fragment(position)
        new = gather_rows(rows.select(columns.names), source[in_fragment])
        batches = replaced_values(physical_rows(view, position), offsets[in_fragment], new)
        file = write_column_file(dataset.snapshot, fragment, columns, batches)
        updated.append(replace_files(fragment, file))
        changed[fragment_id] = bitmap_of(offsets[in_fragment].astype(np.uint32))
    return Update(
        updated=tuple(updated),
        fields_modified=tuple(sorted(field.id for field in columns.walk())),
        columns=True,
        changed_offsets=changed,
    )


_KEY_BYTES: Final = 96
"""Bytes per row and key column of matches and of the tables that look up keys."""

_MIN_BLOCK_ROWS: Final = 1024
"""Minimum rows of a block: every block reads the key columns of the dataset."""

_PAIRS_PER_BATCH: Final = 1 << 20
"""Number of pairs (matched row, source row) for which a condition is evaluated at a time."""

_OLD_VALUES_SHARE: Final = 8
"""Share of the memory limit (1 / n) for rows that keep old values: long windows reread few
pages."""


def merge(
    dataset: OpenedVersion,
    clauses: MergeClauses,
    source: MergeSource,
    meter: Meter | None = None,
    *,
    deleted: RowsByFragment | None = None,
) -> tuple[Update, dict[str, int]]:
    """Write the files of a merge; return the operation to commit, and the counts.

    ``MergeInsertBuilder.execute`` lists errors and cost. ``meter`` records times and counts.
    ``deleted`` are rows to delete whose keys the source lacks.
    """
    meter = meter or Meter()
    schema = dataset.manifest.schema
    fits = check_source(schema, source.rows.schema, clauses, where=dataset.uri)
    rows: Any = conform(source.rows, fits.to_arrow())
    ids = RelocatedIds(kept=dataset.manifest.uses(Feature.STABLE_ROW_IDS))
    more = RowsByFragment() if deleted is None else deleted
    run = _Merge(dataset, clauses, fits, rows, source, meter, ids, deleted=more)
    return run.replaced() if clauses.mode == "rewrite_columns" else run.rewritten()


def merged_numbers(dataset: OpenedVersion, counts: Mapping[str, int]) -> dict[str, str]:
    """Return the properties of the commit of a merge, which numbers inserted rows."""
    rows = counts["num_inserted_rows"]
    return numbered(Rules.of_version(dataset.manifest), [rows]) if rows else {}


def relocating(
    opened: OpenedVersion, deleted: DeletedRows, new: Sequence[Fragment], keys: InsertedKeys | None
) -> Update:
    """Return the operation that replaces deleted rows by new rows and inserts ``keys``."""
    return Update(
        removed=deleted.removed,
        updated=deleted.updated,
        new=new,
        fields_touched=tuple(sorted(field.id for field in opened.manifest.schema.walk())),
        inserted_rows=None if keys is None else keys.message(),
        unfiltered_keys=keys is not None and keys.has_unsupported_keys,
        affected=deleted.affected,
    )


@dataclass(frozen=True, slots=True)
class _Block:
    """Consecutive rows of the source whose keys were matched. ``changed`` are the matches that
    change rows, numbered from the first row of the block.
    """

    start: int
    stop: int
    changed: Matches


@dataclass(slots=True)
class _Merge:
    """One merge into one version, and its results so far.

    Parameters
    ----------
    matched
        Rows of the dataset with a key of the source, if a clause needs them.
    deleted
        Rows to delete.
    inserted
        For each block one bit per row: whether to insert the row.
    """

    dataset: OpenedVersion
    clauses: MergeClauses
    fits: LanceSchema
    rows: pa.Table
    source: MergeSource
    meter: Meter
    ids: RelocatedIds
    matched: RowsByFragment = dataclasses.field(default_factory=RowsByFragment)
    deleted: RowsByFragment = dataclasses.field(default_factory=RowsByFragment)
    inserted: list[NDArray[np.uint8]] = dataclasses.field(default_factory=list)
    keys: InsertedKeys | None = None
    num_inserted: int = 0
    num_changed: int = 0

    # ------------------------------------------------------------------ kinds

    def rewritten(self) -> tuple[Update, dict[str, int]]:
        """Write changed rows as new rows; return the operation and the counts."""
        clauses, schema = self.clauses, self.dataset.manifest.schema
        if clauses.insert:
            self.keys = InsertedKeys.of(schema, clauses.on)
        blocks = self._matched_blocks()
        first = [next(blocks)]  # usually the only block
        with self.meter.step("write"):
            new = self._written(_all(first, blocks))
        unmatched, emptied = 0, list[int]()
        if clauses.delete_by_source:
            condition = clauses.by_source_condition
            unmatched, emptied = unmatched_rows(
                self.dataset, condition, self.matched, into=self.deleted
            )
        with self.meter.step("delete"):
            deleted = delete_rows(self.dataset, self.deleted)
        self.meter.count("files_written", sum(len(fragment.files) for fragment in new))
        operation = relocating(self.dataset, deleted, tuple(new), self.keys)
        if emptied:
            operation = replace(operation, removed=(*operation.removed, *emptied))
        return operation, self._counts(unmatched)

    def replaced(self) -> tuple[Update, dict[str, int]]:
        """Write columns in place. All matches stay in memory: glaive rewrites fragment by
        fragment.
        """
        addresses, source = [np.empty(0, np.uint64)], [np.empty(0, np.int64)]
        for block in self._matched_blocks():
            addresses.append(block.changed.addresses)
            source.append(block.changed.source + block.start)
        pairs = np.concatenate(addresses), np.concatenate(source)
        names = [name for name in self.fits.names if name not in self.clauses.on]
        self._refuse_columns(names)
        columns = self.fits.project(names)
        operation = replace_in_fragments(self.dataset, columns, self.rows, *pairs)
        return operation, {**self._counts(0), "num_updated_rows": len(pairs[1])}

    def _refuse_columns(self, names: Sequence[str]) -> None:
        """Refuse a merge that does more than set columns of matched rows."""
        clauses, fits = self.clauses, self.fits
        more = not clauses.update or clauses.insert or clauses.delete or clauses.delete_by_source
        schema, stored = self.dataset.manifest.schema, self.dataset.manifest.data_format
        reasons = {
            "it has other clauses than an update of matched rows": more,
            "the source covers every column": len(fits.names) == len(schema.names),
            "the source has no column but the keys": not names,
            "files of format 0.1 cannot be split": stored == LEGACY,
            "the source has a blob column": any(map(is_blob, fits.fields)),
        }
        faults = [reason for reason, applies in reasons.items() if applies]
        if faults:
            raise OptionError(
                "write_mode 'rewrite_columns' cannot express this merge insert: "
                f"{'; '.join(faults)}. Leave the mode out, or choose 'rewrite_rows'."
            )

    def _counts(self, unmatched: int) -> dict[str, int]:
        clauses = self.clauses
        return {
            "num_inserted_rows": self.num_inserted,
            "num_updated_rows": self.num_changed if clauses.update else 0,
            "num_deleted_rows": unmatched + (self.num_changed if clauses.delete else 0),
        }

    # --------------------------------------------------------------- matching

    def _blocks(self) -> list[tuple[int, int]]:
        """Return ranges of the source whose keys fit their share of the memory limit."""
        rows, keys = self.rows.num_rows, self.rows.select(self.clauses.on)
        size = keys.nbytes + rows * _KEY_BYTES * len(self.clauses.on)
        count = max(1, min(-(-size * SOURCE_SHARE // self.source.limit), rows // _MIN_BLOCK_ROWS))
        cuts = np.linspace(0, rows, count + 1).astype(np.int64).tolist()
        return list(pairwise(cuts))

    def _matched_blocks(self) -> Iterator[_Block]:
        """Look up the keys of the source, block by block."""
        blocks = self._blocks()
        for start, stop in blocks:
            yield self._match(start, stop, alone=len(blocks) == 1)

    def _match(self, start: int, stop: int, *, alone: bool) -> _Block:
        clauses, meter = self.clauses, self.meter
        rows = self.rows.slice(start, stop - start)
        keys = SourceKeys(clauses.on, [join_column(rows.column(name)) for name in clauses.on])
        with meter.step("match"):
            matches = find_matches(self.dataset, keys, meter, use_index=clauses.use_index)
        meter.count("rows_matched", len(matches.source))
        if clauses.fail and len(matches.source):
            raise SchemaError(
                f"Merge insert failed: found matching row with key values: "
                f"{keys.text(int(matches.source[0]))}: such a row exists already, which "
                f"when_matched_fail() forbids ({len(matches.source)} rows match)"
            )
        if clauses.delete_by_source:
            self.matched.add(matches.addresses)
        changed = matches if clauses.update or clauses.delete else matches.only(slice(0))
        repeats = len(changed.source) > 0 and bool(keys.repeated[changed.source].any())
        if clauses.update and clauses.update_condition is not None:
            with meter.step("condition"):
                changed = self._satisfied(keys, changed, rows, repeats=repeats)
        elif repeats:
            self._refuse(keys, changed.source[keys.repeated[changed.source]])
        if not alone:
            self._refuse(keys, changed.source[self.deleted.overlap(changed.addresses)])
        if clauses.insert:
            self._insert(_unmatched(keys, matches.source), keys)
        self.deleted.add(changed.addresses)
        self.num_changed += len(changed.source)
        self.source.release_pages()
        return _Block(start, stop, changed)

    def _satisfied(
        self, keys: SourceKeys, matches: Matches, rows: pa.Table, *, repeats: bool
    ) -> Matches:
        """Return matches for which the condition is true; it may choose among source rows of a
        key.
        """
        condition = str(self.clauses.update_condition)
        if not repeats:
            return matches.only(holds(self.dataset, condition, matches, rows))
        parts: list[Matches] = []
        for pairs in keys.pairs(matches, _PAIRS_PER_BATCH):
            held = pairs.only(holds(self.dataset, condition, pairs, rows))
            # Pairs of one row of the dataset follow each other.
            self._refuse(keys, held.source[1:][held.addresses[1:] == held.addresses[:-1]])
            parts.append(held)
        return Matches.joined(parts)

    def _refuse(self, keys: SourceKeys, twice: Int64s) -> None:
        """Raise if several rows of the source change one row of the dataset."""
        if len(twice):
            raise ambiguous_source(keys.text(int(twice[0])))

    def _insert(self, inserted: NDArray[np.bool_], keys: SourceKeys) -> None:
        """Record the rows of a block that are inserted."""
        self.inserted.append(np.packbits(inserted))
        count = int(np.count_nonzero(inserted))
        self.num_inserted += count
        if count and self.keys is not None:
            mask = flag_array(inserted)
            self.keys.add([column.filter(mask) for column in keys.columns])

    # ---------------------------------------------------------------- writing

    def _written(self, blocks: Iterator[_Block]) -> list[Fragment]:
        """Write new fragments with the updated rows, then the inserted rows."""
        if not (self.clauses.update or self.clauses.insert):
            for _ in blocks:  # rows are only deleted
                pass
            return []
        spans: list[tuple[int, int]] = []

        def parts() -> Iterator[pa.Table]:
            for block in blocks:
                spans.append((block.start, block.stop))
                if self.clauses.update:
                    yield from self._updated(block)
                del block  # free it before the next block is matched
            for (start, stop), bits in zip(spans, self.inserted, strict=self.clauses.insert):
                flags = np.unpackbits(bits, count=stop - start)
                yield from self._inserted(start, np.flatnonzero(flags))

        dataset = self.dataset
        bases = [base.path for base in dataset.manifest.base_paths.values()]
        options, inserts = self.clauses.options(bases), self.clauses.insert
        return write_relocated(dataset, parts(), self.ids, options, inserts=inserts)

    def _updated(self, block: _Block) -> Iterator[pa.Table]:
        """Yield updated rows, in the order of the source."""
        dataset, rows = self.dataset, self.rows.slice(block.start, block.stop - block.start)
        changed = block.changed.in_order_of_source(rows.num_rows)
        self.ids.add(changed.ids)
        if is_complete(self.fits, dataset.manifest.schema):
            yield from self._windows(rows, changed.source)
            return
        old = OldValues(dataset, kept_columns(self.fits, dataset.manifest.schema))
        step = max(1, self.source.limit // _OLD_VALUES_SHARE // (row_bytes(rows) + old.row_bytes))
        for start in range(0, len(changed.source), step):
            part = changed.only(slice(start, start + step))
            new = pa.concat_tables(self._windows(rows, part.source))
            yield with_old_values(new, old.take(part.addresses), dataset.manifest.schema)

    def _inserted(self, start: int, positions: Int64s) -> Iterator[pa.Table]:
        """Yield unmatched rows of a block, with all columns."""
        schema = self.dataset.manifest.schema
        for part in self._windows(self.rows, positions + start):
            yield from without_numbers(padded_rows(part, schema), schema)

    def _windows(self, rows: pa.Table, positions: Int64s) -> Iterator[pa.Table]:
        """Yield rows of the source at ascending positions; release rows on disk from memory."""
        for part in selected_rows(rows, positions):
            yield part
            self.source.release_pages()


def _all(first: list[_Block], others: Iterator[_Block]) -> Iterator[_Block]:
    """Yield all blocks and free each afterwards."""
    while first:
        yield first.pop(0)
    yield from others


def _unmatched(keys: SourceKeys, matched: Int64s) -> NDArray[np.bool_]:
    """Return for each source row whether its key is new to the dataset."""
    unmatched = np.ones(keys.rows, np.bool_)
    unmatched[matched] = False
    if keys.repeated.any():  # of rows with the same key, only the first was matched
        first = keys.first_rows
        known = first >= 0
        unmatched[known] = unmatched[first[known]]
    return unmatched
