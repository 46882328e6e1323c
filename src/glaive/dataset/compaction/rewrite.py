"""Execute one task of a compaction: rewrite the live rows of fragments."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from glaive.arrow.coalesce import coalesced
from glaive.dataset.compaction.options import CompactionOptions
from glaive.dataset.compaction.result import CompactionMetrics, RewriteResult
from glaive.dataset.writing.fragments import write_fragments
from glaive.dataset.writing.options import WriteOptions
from glaive.dataset.writing.plan import plan_write
from glaive.file.comparison import has_checksums
from glaive.format.flags import Feature
from glaive.format.fragment import Fragment
from glaive.format.rowids import (
    check_at_once,
    concatenate_row_ids,
    encode_row_ids,
    encode_versions,
    select_row_ids,
    version_runs,
)
from glaive.index.remap import any_holds_addresses
from glaive.scan.options import TO_WRITE_AGAIN, ScanOptions
from glaive.scan.query import make_query
from glaive.scan.snapshot import Snapshot
from glaive.scan.views import Views
from glaive.table.lineage import load_lineage
from glaive.table.relocated_rows import address_map
from glaive.types import Int64s

if TYPE_CHECKING:
    from glaive.dataset.version import OpenedVersion

__all__ = ["live_addresses", "rewrite"]


def rewrite(
    dataset: OpenedVersion,
    read_version: int,
    fragment_ids: Sequence[int],
    options: CompactionOptions,
    known: Sequence[Fragment] = (),
) -> RewriteResult:
    """Write the live rows of fragments into new ones, in order, uncommitted.

    Reads ``read_version``, whichever version ``dataset`` is at. ``known`` are the fragments if
    they were read already.

    Notes
    -----
    Memory use is the pages being written, independent of the size of the fragments.
    """
    if dataset.manifest.version != read_version:
        dataset = dataset.at(read_version)
    manifest = dataset.manifest
    positions = list(dataset.snapshot.positions_of(fragment_ids))
    old = list(known)
    if [fragment.id for fragment in old] != list(fragment_ids):
        old = list(map(manifest.fragment, positions))
    writing = WriteOptions(
        mode="append",
        max_rows_per_group=options.max_rows_per_group,
        max_bytes_per_file=options.max_bytes_per_file,
        data_storage_version=options.data_storage_version,
        compression=options.compression,
    )
    rows = int(dataset.snapshot.live_counts[positions].sum())
    # As many fragments as the rows fill; their sizes differ by at most one row.
    count = max(1, rows // options.target_rows_per_fragment)
    most = max(1, -(-rows // count))
    # There are more files than that where bytes fill them first; none has fewer rows than aimed at.
    writing = replace(writing, max_rows_per_file=most, full_files=rows % count or None)
    plan = plan_write(dataset.store, manifest.schema, writing, manifest)
    reading = ScanOptions.of(fragments=fragment_ids, use_cache=False, batch_size=options.batch_size)
    reading = replace(reading, blob_handling=TO_WRITE_AGAIN)
    # Writers of such pages accept dictionary-encoded strings as they were read.
    keep_dictionaries = getattr(plan.profile, "pages", None) == "layouts"
    query = make_query(Views(dataset.snapshot), reading)
    # Opened as the scan opens it, so that it is opened once.
    if plan.checksums is None and _has_checksums(query.source.snapshot, old):
        plan = replace(plan, checksums=True)
    batches = coalesced(query.tables(keep_dictionaries=keep_dictionaries))
    stable, addressed = manifest.uses(Feature.STABLE_ROW_IDS), any_holds_addresses(manifest)
    if stable or addressed:  # fail before the rows are written
        for fragment in old:
            dataset.snapshot.check_rows(fragment)
            check_at_once(fragment.physical_rows, manifest.where)
    new = write_fragments(plan, batches, keep_dictionaries=keep_dictionaries)
    new = [fragment for fragment in new if fragment.physical_rows]
    if stable:
        new = _with_lineage(dataset, old, new)
    moved = live_addresses(dataset, old) if addressed else b""
    metrics = CompactionMetrics(
        fragments_removed=len(old),
        fragments_added=len(new),
        files_removed=sum(
            len(fragment.files) + (fragment.deletion_file is not None) for fragment in old
        ),
        files_added=sum(len(fragment.files) for fragment in new),
    )
    return RewriteResult(read_version, metrics, tuple(old), tuple(new), moved)


def _has_checksums(snapshot: Snapshot, fragments: Sequence[Fragment]) -> bool:
    """Whether the first of the files to be rewritten has checksums, as the new ones then do."""
    files = (file for fragment in fragments for file in fragment.files)
    first = next(files, None)
    return first is not None and has_checksums(snapshot.open_file(first))


def live_addresses(dataset: OpenedVersion, fragments: Iterable[Fragment]) -> bytes:
    """Addresses of the live rows of fragments, as a bitmap."""
    return address_map(
        part.astype(np.uint64) + np.uint64(fragment.id << 32)
        for fragment in fragments
        for part in _live_parts(dataset, fragment)
    )


def _live_parts(dataset: OpenedVersion, fragment: Fragment) -> Iterator[Int64s]:
    """Offsets of the live rows of a fragment, so many at a time as fit into memory."""
    live = dataset.snapshot.live_rows(fragment)
    for start in range(0, fragment.physical_rows, _ROWS_AT_ONCE):
        stop = min(fragment.physical_rows, start + _ROWS_AT_ONCE)
        yield np.arange(start, stop) if live is None else live.among(start, stop)


_ROWS_AT_ONCE = 1 << 20
"""Rows whose addresses are listed at a time: of a fragment, a few bytes may stand for billions."""


def _with_lineage(
    dataset: OpenedVersion, old: Sequence[Fragment], new: Sequence[Fragment]
) -> list[Fragment]:
    """New fragments with the row ids and versions of their rows. Memory: those of one fragment."""
    where = dataset.manifest.where
    ids: list[bytes] = []
    created, updated = _Runs(new), _Runs(new)
    for fragment in old:
        parts = [part.astype(np.uint32) for part in _live_parts(dataset, fragment)]
        offsets = np.concatenate([np.empty(0, np.uint32), *parts])
        load = partial(load_lineage, dataset.store, dataset.manifest, fragment)
        if fragment.row_ids_in_column:
            ids.append(encode_row_ids(load("row_ids").at(offsets)))
        else:
            row_ids, rows = fragment.row_ids or b"", fragment.physical_rows
            ids.append(select_row_ids(row_ids, rows, offsets, where=where))
        created.add(load("created_at").at(offsets))
        updated.add(load("updated_at").at(offsets))
    sequence = concatenate_row_ids(ids, where=where)
    total = sum(fragment.physical_rows for fragment in new)
    numbered, start = [], 0
    for at, fragment in enumerate(new):
        stop = start + fragment.physical_rows
        part = sequence
        if len(new) > 1:
            window = np.arange(start, stop, dtype=np.uint32)
            part = select_row_ids(sequence, total, window, where=where)
        numbered.append(
            replace(
                fragment,
                row_ids=part,
                created_at=encode_versions(created.parts[at]),
                updated_at=encode_versions(updated.parts[at]),
            )
        )
        start = stop
    return numbered


class _Runs:
    """Versions of rows that come in order, as runs for each of the new fragments."""

    def __init__(self, new: Sequence[Fragment]) -> None:
        self._missing = [fragment.physical_rows for fragment in new]
        self.parts: list[list[tuple[int, int]]] = [[] for _ in new]
        self._at = 0

    def add(self, versions: NDArray[np.uint64]) -> None:
        """Append the versions of some rows."""
        for length, version in version_runs(versions):
            rows = length
            while rows:
                while not self._missing[self._at]:
                    self._at += 1
                taken = min(rows, self._missing[self._at])
                runs = self.parts[self._at]
                if runs and runs[-1][1] == version:
                    runs[-1] = runs[-1][0] + taken, version
                else:
                    runs.append((taken, version))
                self._missing[self._at] -= taken
                rows -= taken
