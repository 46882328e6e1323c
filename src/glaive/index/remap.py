"""Make the segments anew that hold addresses of rows which moved.

Specification: "Rows that moved in indices" in ``docs/format/indices.md``.
"""

from __future__ import annotations

from collections.abc import Sequence

from glaive.format.flags import Feature
from glaive.format.manifest import Manifest
from glaive.format.pb import table_pb2
from glaive.index.address_map import AddressMap
from glaive.index.registry import kind_of
from glaive.index.segment import Segment, SegmentWriter
from glaive.io.store import ObjectStore
from glaive.table.indices import covered_fragments, holds_addresses
from glaive.table.reuse import REUSE_INDEX, MovedGroup

__all__ = ["needs_remap", "remap_segments"]

Entry = table_pb2.IndexMetadata
Rewritten = table_pb2.Transaction.Rewrite.RewrittenIndex


def needs_remap(manifest: Manifest, entry: Entry, touched: frozenset[int]) -> bool:
    """Whether a segment holds addresses of rows in ``touched`` fragments."""
    if entry.name == REUSE_INDEX:
        return False
    if manifest.uses(Feature.STABLE_ROW_IDS) and not holds_addresses(entry):
        return False
    covered = covered_fragments(entry)
    return covered is not None and not covered.isdisjoint(touched)


def remap_segments(
    store: ObjectStore, manifest: Manifest, groups: Sequence[MovedGroup]
) -> tuple[Rewritten, ...]:
    """Write the segments of ``manifest`` anew that hold addresses of rows in these groups.

    Parameters
    ----------
    store
        The dataset's own: new segments are written there, wherever the old ones are.
    groups
        Old addresses of the rows that are left, fragments they were in, those they are in.

    Returns
    -------
    tuple
        What the operation that replaces the fragments has to say of indices. No manifest
        names the new files before it is committed.

    Raises
    ------
    CorruptFileError, DataFileMissingError, NotLanceError, UnsupportedFeatureError
        A segment cannot be read; all new files were removed.

    Notes
    -----
    Memory: eight bytes per moved row, and one segment.
    """
    touched = frozenset(one.id for _, old, _ in groups for one in old)
    entries = [one for one in manifest.indices if needs_remap(manifest, one, touched)]
    if not entries:
        return ()
    moved = AddressMap.of(groups)
    made: list[Rewritten] = []
    writers: list[SegmentWriter] = []
    try:
        for entry in entries:
            writers.append(SegmentWriter(store, manifest.data_format))
            rewritten = _remake(Segment.of(store, manifest, entry), moved, writers[-1])
            if rewritten is not None:
                made.append(rewritten)
    except BaseException:
        for writer in writers:
            writer.abort()
        raise
    return tuple(made)


def _remake(segment: Segment, moved: AddressMap, out: SegmentWriter) -> Rewritten | None:
    entry = segment.entry
    kind = kind_of(entry)
    remade = None if kind is None else kind.remap(segment, moved, out)
    if remade is None:
        return None
    version = entry.index_version if remade.version is None else remade.version
    message = Rewritten(new_index_version=version, new_index_files=out.finish())
    message.old_id.CopyFrom(entry.uuid)
    message.new_id.uuid = out.id.bytes
    message.new_index_details.CopyFrom(entry.index_details)
    if remade.details is not None:
        message.new_index_details.value = remade.details
    return message
