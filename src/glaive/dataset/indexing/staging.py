"""Segments that workers write under an id of the user's: nothing is committed.

Specification: "Building" in ``docs/format/indices.md``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final
from uuid import UUID

from glaive.dataset.indexing.describe import uuid_of
from glaive.dataset.indexing.parameters import kind_named
from glaive.dataset.indexing.progress import IndexProgress, reporting
from glaive.dataset.indexing.task import IndexTask, build_segment, source_of
from glaive.errors import OptionError
from glaive.format.pb import table_pb2
from glaive.index.segment import STAGING, Segment, SegmentWriter
from glaive.table.checksums import wants_checksums
from glaive.table.load import open_latest

if TYPE_CHECKING:
    from glaive.dataset.version import OpenedVersion

__all__ = ["finish_parts", "merge_parts", "write_part"]

_TEXTS: Final = "inverted"

ProgressCallback = Callable[[IndexProgress], object]


def write_part(dataset: OpenedVersion, task: IndexTask, progress: ProgressCallback | None) -> None:
    """Write the segment of a task, or, of a full-text index, a part of it.

    Raises
    ------
    OptionError
        There is a segment of this id; a part may be written again.
    """
    positions = dataset.snapshot.positions_of(task.fragment_ids)
    total = int(dataset.snapshot.live_counts[list(positions)].sum())
    with reporting(progress, "load_data", total) as count_rows:
        if task.kind != _TEXTS:
            build_segment(dataset, task, count_rows)
            return
        from glaive.index.text.parts import build_part

        source, parameters = source_of(dataset, task, count_rows)
        out = SegmentWriter(
            dataset.store,
            dataset.manifest.data_format,
            UUID(task.uuid),
            part=True,
            checksums=wants_checksums(dataset.manifest.wire),
        )
        try:
            build_part(source, parameters, out)
            out.finish()
        except BaseException:
            out.abort(finished=False)  # another attempt may have ended well
            raise


def merge_parts(
    dataset: OpenedVersion, uuid: object, index_type: object, progress: ProgressCallback | None
) -> None:
    """Make one segment of the parts under an id, which are removed.

    Raises
    ------
    OptionError
        There are no parts, or the kind has none; or an index has this id, whose files would be
        replaced.
    UnsupportedFeatureError
        The parts were built with different parameters.
    """
    kind, _ = kind_named(index_type, {})
    if kind.name != _TEXTS:
        raise OptionError(
            f"index_type: {index_type!r} has no parts. Build segments with "
            "create_index_uncommitted, merge them with merge_existing_index_segments, and commit "
            "them with commit_existing_index_segments"
        )
    chosen = uuid_of("index_uuid", uuid)
    for index in open_latest(dataset.store).indices:  # that of this handle may be an older one
        if index.uuid.uuid == chosen.bytes:
            raise OptionError(
                f"index_uuid: {chosen} is the index {index.name!r} already. Build the parts under "
                "another id"
            )
    with reporting(progress, "merge_metadata", 0):
        _merge(dataset, chosen)


def finish_parts(dataset: OpenedVersion, entry: table_pb2.IndexMetadata) -> table_pb2.IndexMetadata:
    """A segment whose parts are merged, if it has some; errors as for :func:`merge_parts`."""
    if not any(file.path.startswith(f"{STAGING}/") for file in entry.files):
        return entry
    from glaive.index.text.text_format import METADATA

    finished = table_pb2.IndexMetadata()
    finished.CopyFrom(entry)
    del finished.files[:]
    segment = Segment(dataset.store, finished)
    if segment.has(METADATA):  # an earlier commit of the segment was a conflict
        for name, size in segment.sizes().items():
            if "/" not in name:
                finished.files.add(path=name, size_bytes=size)
    else:
        finished.files.extend(_merge(dataset, UUID(bytes=entry.uuid.uuid)))
    return finished


def _merge(dataset: OpenedVersion, chosen: UUID) -> list[table_pb2.IndexFile]:
    from glaive.index.text.parts import StagedSegment
    from glaive.index.text.parts import merge_parts as merge

    entry = table_pb2.IndexMetadata(name=str(chosen))
    entry.uuid.uuid = chosen.bytes
    out = SegmentWriter(
        dataset.store,
        dataset.manifest.data_format,
        chosen,
        checksums=wants_checksums(dataset.manifest.wire),
    )
    try:
        merged = merge(StagedSegment(dataset.store, entry), out)
        files = out.finish()
    except BaseException:
        out.abort(finished=False)  # another process may have merged and removed the parts
        raise
    dataset.store.discard(merged, own=False)
    return list(files)
