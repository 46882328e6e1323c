"""Run a merge: match keys, evaluate conditions, write rows and deletions.

The keys of the source are matched block by block, so that those of a block fit in memory: usually
there is one block. Rows are read from the source, in memory or on disk, window by window as they
are written. The key columns of the dataset are read once per block; other columns only for matched
rows, if a condition needs them or the source lacks them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from glaive.arrow.chunked import join_column
from glaive.dataclass import dataclass
from glaive.dataset.merging.by_source import unmatched_rows
from glaive.dataset.merging.clauses import MergeClauses
from glaive.dataset.merging.condition import holds
from glaive.dataset.merging.inserted_keys import InsertedKeys
from glaive.dataset.merging.matches import (
    Matches,
    SourceKeys,
    ambiguous_source,
    find_matches,
)
from glaive.dataset.merging.old_values import (
    OldValues,
    is_complete,
    kept_columns,
    padded_rows,
    with_old_values,
)
from glaive.dataset.merging.row_windows import (
    WINDOW_BYTES,
    gather_rows,
    row_bytes,
    selected_rows,
)
from glaive.dataset.merging.source import HELD_SHARE, MergeSource, check_source
from glaive.dataset.rows.relocated_rows import RelocatedIds, write_relocated
from glaive.dataset.rows.rows_by_fragment import RowsByFragment
from glaive.dataset.rows.selected_rows import delete_rows
from glaive.dataset.writing.conform import conform
from glaive.errors import SchemaError
from glaive.format.fields import LanceSchema
from glaive.format.flags import Feature
from glaive.format.fragment import Fragment
from glaive.scan.metrics import Meter
from glaive.table.operations.update import Update
from glaive.types import Int64s

if TYPE_CHECKING:
    from glaive.dataset.version import OpenedVersion

__all__ = ["merge"]

_KEY_BYTES: Final = 96
"""Bytes per row and key column of the tables in which keys are looked up, and of matches."""

_MIN_BLOCK_ROWS: Final = 1024
"""Rows of a block at least: every block reads the key columns of the dataset."""

_PAIRS: Final = 1 << 20
"""Pairs of a matched row and a source row for which a condition is evaluated at a time."""

_OLD_VALUES_SHARE: Final = 8
"""The part of the memory limit for rows that keep some of their values: the longer the windows,
the fewer pages are read several times."""


def merge(
    dataset: OpenedVersion, clauses: MergeClauses, source: MergeSource, meter: Meter | None = None
) -> tuple[Update, dict[str, int]]:
    """Write the files of a merge; returns the operation to commit, and the counts.

    See ``MergeInsertBuilder.execute`` for errors and cost. ``meter`` records times and counts.
    """
    meter = meter or Meter()
    schema = dataset.manifest.schema
    fits = check_source(schema, source.rows.schema, clauses, where=dataset.uri)
    rows: Any = conform(source.rows, fits.to_arrow())
    ids = RelocatedIds(kept=dataset.manifest.uses(Feature.STABLE_ROW_IDS))
    run = _Merge(dataset, clauses, fits, rows, source, meter, ids)
    return run.replaced() if clauses.mode == "rewrite_columns" else run.rewritten()


@dataclass(frozen=True, slots=True)
class _Block:
    """Consecutive rows of the source whose keys were matched; ``changed`` are the matches that
    change something, numbered from the first row of the block.
    """

    start: int
    stop: int
    changed: Matches


@dataclass(slots=True)
class _Merge:
    """One merge into one version, and what was found so far.

    Parameters
    ----------
    matched
        Rows of the dataset with a key of the source, if that has to be known.
    deleted
        Those to delete.
    inserted
        For each block one bit per row: whether it is inserted.
    """

    dataset: OpenedVersion
    clauses: MergeClauses
    fits: LanceSchema
    rows: pa.Table
    source: MergeSource
    meter: Meter
    ids: RelocatedIds
    matched: RowsByFragment = field(default_factory=RowsByFragment)
    deleted: RowsByFragment = field(default_factory=RowsByFragment)
    inserted: list[NDArray[np.uint8]] = field(default_factory=list)
    keys: InsertedKeys | None = None
    num_inserted: int = 0
    num_changed: int = 0

    # ------------------------------------------------------------------ kinds

    def rewritten(self) -> tuple[Update, dict[str, int]]:
        """Write changed rows as new ones; the operation, and the counts."""
        clauses, schema = self.clauses, self.dataset.manifest.schema
        if clauses.insert:
            self.keys = InsertedKeys.of(schema, clauses.on)
        blocks = self._matched_blocks()
        first = [next(blocks)]  # usually all: nothing is written before
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
        operation = Update(
            removed=(*deleted.removed, *emptied),
            updated=deleted.updated,
            new=tuple(new),
            fields_touched=tuple(sorted(field.id for field in schema.walk())),
            inserted_rows=None if self.keys is None else self.keys.message(),
            unfiltered_keys=self.keys is not None and self.keys.lack_filter,
            affected=deleted.affected,
        )
        return operation, self._counts(unmatched)

    def replaced(self) -> tuple[Update, dict[str, int]]:
        """Write columns in place. All matches are in memory, as fragments are rewritten."""
        from glaive.dataset.merging.columns import replace_matched

        addresses, source = [np.empty(0, np.uint64)], [np.empty(0, np.int64)]
        for block in self._matched_blocks():
            addresses.append(block.changed.addresses)
            source.append(block.changed.source + block.start)
        pairs = np.concatenate(addresses), np.concatenate(source)
        return replace_matched(self.dataset, self.clauses, self.fits, self.rows, *pairs)

    def _counts(self, unmatched: int) -> dict[str, int]:
        clauses = self.clauses
        return {
            "num_inserted_rows": self.num_inserted,
            "num_updated_rows": self.num_changed if clauses.update else 0,
            "num_deleted_rows": unmatched + (self.num_changed if clauses.delete else 0),
        }

    # --------------------------------------------------------------- matching

    def _blocks(self) -> list[tuple[int, int]]:
        """Ranges of the source whose keys take about the share of the limit that is theirs."""
        rows, keys = self.rows.num_rows, self.rows.select(self.clauses.on)
        size = keys.nbytes + rows * _KEY_BYTES * len(self.clauses.on)
        count = max(1, min(-(-size * HELD_SHARE // self.source.limit), rows // _MIN_BLOCK_ROWS))
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
                changed = self._held(keys, changed, rows, repeats=repeats)
        elif repeats:
            self._refuse(keys, changed.source[keys.repeated[changed.source]])
        if not alone:
            self._refuse(keys, changed.source[self.deleted.overlap(changed.addresses)])
        if clauses.insert:
            self._insert(_unmatched(keys, matches.source), keys)
        self.deleted.add(changed.addresses)
        self.num_changed += len(changed.source)
        self.source.let_go()
        return _Block(start, stop, changed)

    def _held(
        self, keys: SourceKeys, matches: Matches, rows: pa.Table, *, repeats: bool
    ) -> Matches:
        """Matches for which the condition holds: of rows with the same key it may choose one."""
        condition = str(self.clauses.update_condition)
        if not repeats:
            return matches.only(holds(self.dataset, condition, matches, rows))
        parts: list[Matches] = []
        for pairs in keys.pairs(matches, _PAIRS):
            held = pairs.only(holds(self.dataset, condition, pairs, rows))
            # Those of a row of the dataset are behind each other.
            self._refuse(keys, held.source[1:][held.addresses[1:] == held.addresses[:-1]])
            parts.append(held)
        return Matches.joined(parts)

    def _refuse(self, keys: SourceKeys, twice: Int64s) -> None:
        """Several rows of the source must not change one of the dataset."""
        if len(twice):
            raise ambiguous_source(keys.text(int(twice[0])))

    def _insert(self, inserted: NDArray[np.bool_], keys: SourceKeys) -> None:
        """Rows of a block are to be inserted."""
        self.inserted.append(np.packbits(inserted))
        count = int(np.count_nonzero(inserted))
        self.num_inserted += count
        if count and self.keys is not None:
            mask: Any = pa.array(inserted)
            self.keys.add([column.filter(mask) for column in keys.columns])

    # ---------------------------------------------------------------- writing

    def _written(self, blocks: Iterator[_Block]) -> list[Fragment]:
        """New fragments with the updated rows, then the inserted ones."""
        if not (self.clauses.update or self.clauses.insert):
            for _ in blocks:  # rows are only deleted
                pass
            return []
        spans: list[tuple[int, int]] = []

        def parts() -> Iterator[pa.Table]:
            for block in blocks:
                if self._are_few(block):
                    yield self._at_once(block)
                    return
                spans.append((block.start, block.stop))
                if self.clauses.update:
                    yield from self._updated(block)
                del block  # not in memory while the next one is matched
            for (start, stop), bits in zip(spans, self.inserted, strict=self.clauses.insert):
                flags = np.unpackbits(bits, count=stop - start)
                yield from self._inserted(start, np.flatnonzero(flags))

        dataset = self.dataset
        bases = [base.path for base in dataset.manifest.base_paths.values()]
        return write_relocated(dataset, parts(), self.ids, self.clauses.options(bases))

    def _are_few(self, block: _Block) -> bool:
        """Whether all rows to be written are in this block, and fit one window."""
        rows = self.rows
        if block.stop - block.start < rows.num_rows or self.source.on_disk:
            return False
        whole = is_complete(self.fits, self.dataset.manifest.schema)
        return whole and (self.num_changed + self.num_inserted) * row_bytes(rows) <= WINDOW_BYTES

    def _at_once(self, block: _Block) -> pa.Table:
        """Updated rows, in the order of the source, then the inserted ones."""
        order = [np.empty(0, np.int64)]
        if self.clauses.update:
            changed = block.changed.in_order_of_source(block.stop)
            self.ids.add(changed.ids)
            order.append(changed.source)
        order += [np.flatnonzero(np.unpackbits(bits, count=block.stop)) for bits in self.inserted]
        return gather_rows(self.rows, np.concatenate(order))

    def _updated(self, block: _Block) -> Iterator[pa.Table]:
        """Updated rows, in the order of the source."""
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
        """Rows of a block that no row matched, with all columns."""
        schema = self.dataset.manifest.schema
        for part in self._windows(self.rows, positions + start):
            yield padded_rows(part, schema)

    def _windows(self, rows: pa.Table, positions: Int64s) -> Iterator[pa.Table]:
        """Rows of the source at ascending positions; those on disk do not stay in memory."""
        for part in selected_rows(rows, positions):
            yield part
            self.source.let_go()


def _all(first: list[_Block], others: Iterator[_Block]) -> Iterator[_Block]:
    """The blocks, none of which is kept here."""
    while first:
        yield first.pop(0)
    yield from others


def _unmatched(keys: SourceKeys, matched: Int64s) -> NDArray[np.bool_]:
    """Source rows whose key no row of the dataset has."""
    unmatched = np.ones(keys.rows, np.bool_)
    unmatched[matched] = False
    if keys.repeated.any():  # of rows with the same key, only the first was matched
        first = keys.first_rows
        known = first >= 0
        unmatched[known] = unmatched[first[known]]
    return unmatched
