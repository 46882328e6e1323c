"""Carry out one task of a compaction: the live rows of fragments, rewritten."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from glaive.arrow.chunked import join_batches
from glaive.arrow.dictionaries import has_dictionary
from glaive.dataset.compaction.options import CompactionOptions
from glaive.dataset.compaction.result import CompactionMetrics, RewriteResult
from glaive.dataset.writing.fragments import write_fragments
from glaive.dataset.writing.options import WriteOptions
from glaive.dataset.writing.plan import plan_write
from glaive.dataset.writing.source import Rows
from glaive.format.flags import Feature
from glaive.format.fragment import Fragment
from glaive.format.rowids import (
    check_at_once,
    concatenate_row_ids,
    encode_row_ids,
    encode_version_array,
    select_row_ids,
)
from glaive.index.remap import any_holds_addresses
from glaive.scan.options import TO_WRITE_AGAIN, ScanOptions
from glaive.scan.query import make_query
from glaive.scan.views import Views
from glaive.table.lineage import load_lineage
from glaive.table.moved_rows import address_map

if TYPE_CHECKING:
    from glaive.dataset.version import OpenedVersion

__all__ = ["addresses_left", "rewrite"]


def rewrite(
    dataset: OpenedVersion,
    read_version: int,
    fragment_ids: Sequence[int],
    options: CompactionOptions,
    known: Sequence[Fragment] = (),
) -> RewriteResult:
    """Write the live rows of fragments into new ones, in their order; no version has those yet.

    The rows are those of the version of the plan, whichever ``dataset`` is at. ``known`` are the
    fragments if they were read already.

    Raises
    ------
    VersionNotFoundError
        That version was cleaned up.

    Notes
    -----
    Memory: the pages being written, whatever the size of the fragments.
    """
    if dataset.manifest.version != read_version:
        dataset = dataset.at(read_version)
    manifest = dataset.manifest
    positions = list(dataset.snapshot.positions_of(fragment_ids))
    old = list(known)
    if [one.id for one in old] != list(fragment_ids):
        old = list(map(manifest.fragment, positions))
    writing = WriteOptions(
        mode="append",
        max_rows_per_group=options.max_rows_per_group,
        max_bytes_per_file=options.max_bytes_per_file,
        data_storage_version=options.data_storage_version,
    )
    rows = int(dataset.snapshot.live_counts[positions].sum())
    # As many fragments as fill, all of one size but for a row.
    count = max(1, rows // options.target_rows_per_fragment)
    most = max(1, -(-rows // count))
    writing = replace(writing, max_rows_per_file=most, full_files=rows % count or count)
    plan = plan_write(dataset.store, manifest.schema, writing, manifest)
    reading = ScanOptions.of(fragments=fragment_ids, use_cache=False, batch_size=options.batch_size)
    reading = replace(reading, blob_handling=TO_WRITE_AGAIN)
    # Writers of such pages take text with the dictionaries that it was read with.
    keep_dictionaries = getattr(plan.profile, "pages", None) == "layouts"
    pieces = make_query(Views(dataset.snapshot), reading).tables(
        keep_dictionaries=keep_dictionaries
    )
    stable, addressed = manifest.uses(Feature.STABLE_ROW_IDS), any_holds_addresses(manifest)
    if stable or addressed:  # told before the rows are written
        for one in old:
            dataset.snapshot.check_rows(one)
            check_at_once(one.physical_rows, manifest.where)
    new = write_fragments(plan, _together(pieces), keep_dictionaries=keep_dictionaries)
    new = [one for one in new if one.physical_rows]
    if stable:
        new = _with_lineage(dataset, old, new)
    moved = b""
    if addressed:
        moved = addresses_left(dataset, old)
    metrics = CompactionMetrics(
        fragments_removed=len(old),
        fragments_added=len(new),
        files_removed=sum(len(one.files) + (one.deletion_file is not None) for one in old),
        files_added=sum(len(one.files) for one in new),
    )
    return RewriteResult(read_version, metrics, tuple(old), tuple(new), moved)


_PIECE_ROWS = 64 * 1024
_PIECE_BYTES = 16 * 1024 * 1024


def _together(pieces: Iterator[Rows]) -> Iterator[Rows]:
    """The same rows in fewer batches: of small ones, each costs more than its rows do."""
    waiting: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in pieces:
        if isinstance(batch, pa.Table):
            yield from _joined(waiting)
            waiting, rows, size = [], 0, 0
            yield batch
            continue
        waiting.append(batch)
        rows += batch.num_rows
        size += batch.nbytes
        if rows >= _PIECE_ROWS or size >= _PIECE_BYTES:
            yield from _joined(waiting)
            waiting, rows, size = [], 0, 0
    yield from _joined(waiting)


def _joined(batches: list[pa.RecordBatch]) -> Sequence[pa.RecordBatch]:
    if len(batches) < 2 or any(map(has_dictionary, batches[0].schema.types)):
        return batches
    return join_batches(pa.Table.from_batches(batches))


def addresses_left(dataset: OpenedVersion, fragments: Iterable[Fragment]) -> bytes:
    """Addresses of the live rows of fragments, as a bitmap."""
    return address_map(_addresses(dataset, fragment) for fragment in fragments)


def _addresses(dataset: OpenedVersion, fragment: Fragment) -> NDArray[np.uint64]:
    """Addresses of the live rows of a fragment."""
    return _kept(dataset, fragment).astype(np.uint64) + np.uint64(fragment.id << 32)


def _kept(dataset: OpenedVersion, fragment: Fragment) -> NDArray[np.uint32]:
    live = dataset.snapshot.live_rows(fragment)
    kept = np.arange(fragment.physical_rows, dtype=np.uint32)
    return kept if live is None else np.delete(kept, live.deleted)


def _with_lineage(
    dataset: OpenedVersion, old: Sequence[Fragment], new: Sequence[Fragment]
) -> list[Fragment]:
    """New fragments with the row ids and versions of their rows."""
    where = dataset.manifest.where
    ids, created, updated = [], [], []
    for one in old:
        kept = _kept(dataset, one)
        load = partial(load_lineage, dataset.store, dataset.manifest, one)
        if one.row_ids_in_column:
            ids.append(encode_row_ids(load("row_ids").at(kept)))
        else:
            ids.append(select_row_ids(one.row_ids or b"", one.physical_rows, kept, where=where))
        created.append(load("created_at").at(kept))
        updated.append(load("updated_at").at(kept))
    sequence = concatenate_row_ids(ids, where=where)
    made, stops = np.concatenate(created), np.concatenate(updated)
    rows = len(made)
    placed, start = [], 0
    for one in new:
        stop = start + one.physical_rows
        part = sequence
        if len(new) > 1:
            some = np.arange(start, stop, dtype=np.uint32)
            part = select_row_ids(sequence, rows, some, where=where)
        placed.append(
            replace(
                one,
                row_ids=part,
                created_at=encode_version_array(made[start:stop]),
                updated_at=encode_version_array(stops[start:stop]),
            )
        )
        start = stop
    return placed
