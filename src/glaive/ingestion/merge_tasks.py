"""Tasks of a merge whose source are files that were written but not committed: staged fragments.

A row of the source replaces whole rows of the dataset. So the fragments become part of the dataset
as they are, and only rows of the dataset with their keys are deleted. A fragment is written again
if its rows get the stable ids of those that they replace, or replace several rows each.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from glaive.arrow.chunked import join_column
from glaive.dataclass import dataclass
from glaive.dataset.merging.inserted_keys import InsertedKeys
from glaive.dataset.merging.matches import Matches, SourceKeys, find_matches
from glaive.dataset.merging.old_values import OldValues
from glaive.dataset.merging.row_windows import WINDOW_BYTES
from glaive.dataset.rows.relocated_rows import RelocatedIds, write_relocated
from glaive.dataset.rows.rows_by_fragment import RowsByFragment
from glaive.dataset.scanner import Scanner
from glaive.dataset.tasks import FragmentRange
from glaive.dataset.version import OpenDataset, OpenedVersion
from glaive.dataset.writing.plan import WritePlan
from glaive.dataset.writing.staged import staged_rows
from glaive.format.column_path import quoted_name
from glaive.format.flags import Feature
from glaive.format.fragment import Fragment
from glaive.format.fragment_list import packed_fragments, unpacked_fragments
from glaive.scan.metrics import Meter

if TYPE_CHECKING:
    from glaive.types import Int64s

__all__ = [
    "CompleteTask",
    "CompletedFragment",
    "MatchTask",
    "MergeDivision",
    "StagedBlock",
    "StagedMatches",
    "StagedMerge",
]


@dataclass(frozen=True, slots=True)
class MergeDivision:
    """How much of a merge is one task.

    Parameters
    ----------
    block_rows
        Rows of the source whose keys a task holds at a time, at about a hundred bytes each.
    match_tasks
        Tasks that look for keys, about: each is for one block and a part of the dataset.
    """

    block_rows: int = 1 << 20
    match_tasks: int = 4096


@dataclass(frozen=True, slots=True)
class StagedMerge:
    """What the tasks of a merge share; can be pickled.

    Parameters
    ----------
    write
        By which the source was written.
    keys
        Columns.
    primary_key
        Whether these are the primary key that the dataset declares.
    division
        How much is one task.
    """

    write: WritePlan = field(repr=False)
    keys: tuple[str, ...]
    primary_key: bool
    division: MergeDivision


@dataclass(frozen=True, slots=True)
class StagedBlock:
    """Neighbouring fragments of the source.

    Parameters
    ----------
    number
        Of the first one among all fragments of the source.
    fragments
        Serialized.
    """

    number: int
    fragments: tuple[bytes, ...] = field(repr=False)

    @classmethod
    def divided(cls, fragments: Sequence[Fragment], block_rows: int) -> list[StagedBlock]:
        """Blocks of about so many rows, at least a fragment each."""
        blocks, group, rows = [], list[Fragment](), 0
        for number, fragment in enumerate(fragments):
            if group and rows + fragment.physical_rows > block_rows:
                blocks.append(cls(number - len(group), packed_fragments(group)))
                group, rows = [], 0
            group.append(fragment)
            rows += fragment.physical_rows
        if group:
            blocks.append(cls(len(fragments) - len(group), packed_fragments(group)))
        return blocks

    def opened(self, target: OpenedVersion, shared: StagedMerge) -> OpenedVersion:
        """The rows as a version, whose fragments have the ids 0, 1, …"""
        fragments = unpacked_fragments(self.fragments, "a task of the merge")
        staged = staged_rows(shared.write, fragments, target.manifest.wire.base_paths)
        return OpenedVersion.of(shared.write.store, staged.snapshot.manifest)


def _keys(source: OpenedVersion, shared: StagedMerge) -> Iterator[tuple[int, SourceKeys]]:
    """The keys of a source, some rows at a time, with the first row's position."""
    quoted = list(map(quoted_name, shared.keys))
    count = shared.division.block_rows
    for start in range(0, source.snapshot.num_rows, count):
        rows = Scanner.of(source.views, columns=quoted, offset=start, limit=count).to_table()
        yield start, SourceKeys(shared.keys, [join_column(column) for column in rows.columns])


@dataclass(frozen=True, slots=True)
class StagedMatches:
    """Which rows of a dataset and a source have the same keys.

    Parameters
    ----------
    old
        Rows of the dataset.
    new
        Rows of the source, by numbers of fragments.
    pairs
        How many pairs of an old and a new row there are, by numbers of fragments.
    repeated
        The key of several rows of the source that match one of the dataset, as a text; ``None`` if
        there are no such rows.
    """

    old: RowsByFragment
    new: RowsByFragment
    pairs: dict[int, int]
    repeated: str | None = None


@dataclass(frozen=True, slots=True)
class MatchTask:
    """Find the rows of some fragments that have a key of a block; can be pickled.

    Parameters
    ----------
    target
        Fragments of the dataset.
    block
        Part of the source.
    """

    target: FragmentRange
    block: StagedBlock

    def execute(self, dataset: OpenDataset, shared: StagedMerge) -> StagedMatches:
        """Look up the keys; writes nothing.

        Memory: about a hundred bytes for each of ``shared.division.block_rows`` keys.
        """
        opened = self.target.opened(dataset)
        ids = self.target.ids(opened)
        source = self.block.opened(opened, shared)
        starts = source.snapshot.row_starts
        found = StagedMatches(RowsByFragment(), RowsByFragment(), {})
        for start, keys in _keys(source, shared):
            matches = find_matches(opened, keys, Meter(), fragments=ids)
            if not len(matches.source):
                continue
            twice = matches.source[keys.repeated[matches.source]]
            if not len(twice):
                twice = matches.source[found.old.overlap(matches.addresses)]
            if len(twice):
                text = keys.text(int(twice[0]))
                return StagedMatches(found.old, found.new, found.pairs, text)
            found.old.add(matches.addresses)
            rows = matches.source + start
            at = np.searchsorted(starts, rows, side="right") - 1
            number = at + self.block.number
            found.new.add((number << 32 | (rows - starts[at])).astype(np.uint64))
            for name, count in enumerate(np.bincount(at).tolist(), self.block.number):
                if count:
                    found.pairs[name] = found.pairs.get(name, 0) + count
        return found


@dataclass(frozen=True, slots=True)
class CompletedFragment:
    """What a fragment of the source becomes.

    Parameters
    ----------
    written
        Serialized fragments that replace it; ``None``: it stays.
    keys
        Those that it inserts, if the merge is by the primary key.
    """

    written: tuple[bytes, ...] | None
    keys: InsertedKeys | None


@dataclass(frozen=True, slots=True)
class CompleteTask:
    """Complete a fragment of the source, when it is known which of its rows match.

    Parameters
    ----------
    block
        The fragment.
    matched
        Those rows, by its number.
    targets
        Where they have matches.
    rewrite
        Whether to write it again.
    """

    block: StagedBlock
    matched: RowsByFragment
    targets: tuple[FragmentRange, ...]
    rewrite: bool

    def execute(self, dataset: OpenDataset, shared: StagedMerge) -> CompletedFragment:
        """Write new files, uncommitted, or none.

        Memory: as for :class:`MatchTask`, 24 bytes for each match, and a few windows of rows.
        """
        opened = self.targets[0].opened(dataset) if self.targets else dataset.opened
        source = self.block.opened(opened, shared)
        inserted = np.ones(source.snapshot.num_rows, np.bool_)
        if self.block.number in self.matched:
            inserted[self.matched[self.block.number]] = False
        keys = InsertedKeys.of(opened.manifest.schema, shared.keys) if shared.primary_key else None
        if keys is not None:
            for start, block in _keys(source, shared):
                mask: Any = pa.array(inserted[start : start + block.rows])
                keys.add([column.filter(mask) for column in block.columns])
        if not self.rewrite:
            return CompletedFragment(None, keys)
        written = self._written(opened, source, np.flatnonzero(inserted), shared)
        return CompletedFragment(packed_fragments(written), keys)

    def _written(
        self, opened: OpenedVersion, source: OpenedVersion, inserted: Int64s, shared: StagedMerge
    ) -> list[Fragment]:
        """Rows that replace others, with their ids, then those that are inserted."""
        ids = RelocatedIds(kept=opened.manifest.uses(Feature.STABLE_ROW_IDS))
        values = OldValues(source, source.manifest.schema.names)
        step = max(1, WINDOW_BYTES // max(1, values.row_bytes))

        def parts() -> Iterator[pa.Table]:
            for start, keys in _keys(source, shared):
                changed = self._matches(opened, keys)
                ids.add(changed.ids)
                yield from taken(changed.source + start)
            yield from taken(inserted)

        def taken(rows: Int64s) -> Iterator[pa.Table]:
            for start in range(0, len(rows), step):  # a block is one fragment: its id is 0
                yield values.take(rows[start : start + step].astype(np.uint64))

        return write_relocated(opened, parts(), ids, shared.write.options)

    def _matches(self, opened: OpenedVersion, keys: SourceKeys) -> Matches:
        """Rows of the dataset in the order of the source."""
        ids: list[int] = []
        for part in self.targets:
            at = part.positions(opened)
            ids += opened.manifest.fragment_ids[at.start : at.stop].tolist()
        found = find_matches(opened, keys, Meter(), fragments=tuple(ids))
        return found.in_order_of_source(keys.rows)
