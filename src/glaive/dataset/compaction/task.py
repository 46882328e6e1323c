"""Carry out the tasks of a compaction, and commit their results as one version."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from glaive.arrow.dictionaries import has_dictionary
from glaive.dataset.commits.commit import commit_operation
from glaive.dataset.compaction.plan import CompactionTask, read_json
from glaive.dataset.fragments.metadata import FragmentMetadata, stored_fragments
from glaive.dataset.writing.options import WriteOptions
from glaive.dataset.writing.source import Rows
from glaive.dataset.writing.write import find_target, write_fragments
from glaive.errors import CommitConflictError, CommitContentionError, OptionError
from glaive.file.versions import PROFILES
from glaive.format.flags import Feature
from glaive.format.fragment import Fragment
from glaive.format.manifest import Manifest
from glaive.format.rowids import (
    concatenate_row_ids,
    decode_versions,
    encode_version_array,
    select_row_ids,
)
from glaive.index.remap import any_holds_addresses, remap_segments
from glaive.scan.options import ScanOptions
from glaive.scan.query import make_query
from glaive.scan.view import Views
from glaive.table.operations.reserve_fragments import ReserveFragments
from glaive.table.operations.rewrite import Rewrite, RewriteGroup
from glaive.table.reuse import address_map, reuse_entry

if TYPE_CHECKING:
    from glaive.dataset.opened import OpenedVersion

__all__ = ["CompactionMetrics", "RewriteResult", "commit_rewrites", "rewrite"]


@dataclass(frozen=True, slots=True)
class CompactionMetrics:
    """What a compaction took away and added."""

    fragments_removed: int = 0
    fragments_added: int = 0
    files_removed: int = 0
    files_added: int = 0

    def __add__(self, other: CompactionMetrics) -> CompactionMetrics:
        return CompactionMetrics(
            *(mine + theirs for mine, theirs in zip(_figures(self), _figures(other), strict=True))
        )


def _figures(metrics: CompactionMetrics) -> tuple[int, ...]:
    return tuple(asdict(metrics).values())


@dataclass(frozen=True, slots=True)
class RewriteResult:
    """What a task made: fragments that no version has yet; can be pickled.

    Parameters
    ----------
    moved
        Old addresses of the rows that are left, as a bitmap; none where no index needs them.
    """

    read_version: int
    metrics: CompactionMetrics
    original_fragments: tuple[FragmentMetadata, ...]
    new_fragments: tuple[FragmentMetadata, ...]
    moved: bytes = b""

    def json(self) -> str:
        """As text."""
        return json.dumps(
            {
                "read_version": self.read_version,
                "metrics": asdict(self.metrics),
                "original_fragments": [one.to_json() for one in self.original_fragments],
                "new_fragments": [one.to_json() for one in self.new_fragments],
                "moved": self.moved.hex(),
            }
        )

    @classmethod
    def from_json(cls, json: str) -> Self:
        """Read what :meth:`json` gave."""
        return read_json(json, cls.__name__, cls._of)

    @classmethod
    def _of(cls, found: Any) -> Self:
        return cls(
            found["read_version"],
            CompactionMetrics(**found["metrics"]),
            tuple(map(FragmentMetadata.from_json, found["original_fragments"])),
            tuple(map(FragmentMetadata.from_json, found["new_fragments"])),
            bytes.fromhex(found["moved"]),
        )


def rewrite(dataset: OpenedVersion, task: CompactionTask) -> RewriteResult:
    """Write the live rows of a task's fragments into new ones, in their order.

    Raises
    ------
    OptionError
        The dataset is at another version than the plan.

    Notes
    -----
    Memory: the pages being written, whatever the size of the fragments.
    """
    if dataset.version != task.read_version:
        raise OptionError(
            f"the task was planned for version {task.read_version}, but the dataset is at "
            f"{dataset.version}; check that version out"
        )
    manifest = dataset.manifest
    options = task.options
    positions = list(dataset.snapshot.positions_of(task.fragment_ids))
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
    schema = manifest.schema.to_arrow()
    target = find_target(dataset.store, schema, writing, manifest)
    reading = ScanOptions.of(
        fragments=task.fragment_ids,
        blob_handling="all_binary",
        use_cache=False,
        batch_size=options.batch_size,
    )
    # Writers of such pages take text with the dictionaries that it was read with.
    coded = getattr(PROFILES[target.version], "pages", None) == "layouts"
    pieces = make_query(Views(dataset.snapshot), reading).pieces(coded=coded)
    new = write_fragments(
        dataset.store,
        _together(pieces),
        target.schema,
        writing,
        target.version,
        target.dictionaries,
        coded=coded,
    )
    new = [one for one in new if one.physical_rows]
    if manifest.uses(Feature.STABLE_ROW_IDS):
        new = _with_lineage(dataset, old, new)
    moved = b""
    if any_holds_addresses(manifest):
        moved = _left(dataset, old)
    metrics = CompactionMetrics(
        fragments_removed=len(old),
        fragments_added=len(new),
        files_removed=sum(len(one.files) + (one.deletion_file is not None) for one in old),
        files_added=sum(len(one.files) for one in new),
    )
    before, after = (tuple(map(FragmentMetadata.of, some)) for some in (old, new))
    return RewriteResult(task.read_version, metrics, before, after, moved)


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
    return pa.Table.from_batches(batches).combine_chunks().to_batches()


def commit_rewrites(
    dataset: OpenedVersion, rewrites: Sequence[RewriteResult], *, defer_index_remap: bool = False
) -> tuple[Manifest, CompactionMetrics]:
    """Commit the results of tasks: two versions, one that reserves ids and one that rewrites.

    Indices that hold addresses of the rows are made anew, unless that is deferred.

    Raises
    ------
    CommitConflictError
        Another writer changed one of the fragments since; plan anew.
    OptionError
        The results are of different versions.
    CorruptFileError, NotLanceError, UnsupportedFeatureError
        An index cannot be read; the fragments stay as they were.
    """
    versions = {one.read_version for one in rewrites}
    if len(versions) > 1:
        raise OptionError(f"rewrites of different versions cannot be committed as one: {versions}")
    total = sum((one.metrics for one in rewrites), CompactionMetrics())
    if not rewrites:
        return dataset.manifest, total
    base = dataset
    if versions != {dataset.version}:
        base = dataset.checked_out(versions.pop())
    count = sum(len(one.new_fragments) for one in rewrites)
    reserved = base
    following = 0
    if count:
        manifest = commit_operation(base, ReserveFragments(count))
        following = manifest.wire.max_fragment_id - count + 1
        reserved = base.checked_out(manifest)
    groups, moved = [], []
    for one in rewrites:
        numbered = []
        for fragment in stored_fragments(one.new_fragments, "new_fragments"):
            numbered.append(replace(fragment, id=following))
            following += 1
        old = stored_fragments(one.original_fragments, "original_fragments")
        groups.append(RewriteGroup(old, tuple(numbered)))
        moved.append((one.moved, old, numbered))
    if defer_index_remap and not base.manifest.uses(Feature.STABLE_ROW_IDS):
        moved = [(left or _left(base, old), old, new) for left, old, new in moved]
        entry = reuse_entry(dataset.store, reserved.manifest, moved)
        return commit_operation(base, Rewrite(groups=tuple(groups), reuse_index=entry)), total
    indices = remap_segments(dataset.store, base.manifest, moved)
    operation = Rewrite(
        groups=tuple(groups),
        rewritten_indices=indices.rewritten,
        coverage=indices.coverage,
    )
    try:
        return commit_operation(base, operation), total
    except (CommitConflictError, CommitContentionError):
        indices.discard()
        raise


def _left(dataset: OpenedVersion, fragments: Iterable[Fragment]) -> bytes:
    """Addresses of the live rows of fragments, as a bitmap."""
    return address_map(_addresses(dataset, one) for one in fragments)


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
        ids.append(select_row_ids(one.row_ids or b"", one.physical_rows, kept, where=where))
        created.append(_versions(one.created_at, one.physical_rows, where)[kept])
        updated.append(_versions(one.updated_at, one.physical_rows, where)[kept])
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


def _versions(wire: bytes | None, rows: int, where: str) -> NDArray[np.uint64]:
    if wire is None:
        return np.ones(rows, np.uint64)
    return decode_versions(wire, rows, where=where)
