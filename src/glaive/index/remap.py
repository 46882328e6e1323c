"""Rebuild the segments that hold addresses of relocated rows.

Specification: "Rows that moved in indices" in ``docs/format/indices.md``.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glaive.errors import DataFileMissingError
from glaive.format.flags import Feature
from glaive.format.manifest import Manifest
from glaive.format.pb import table_pb2
from glaive.index.address_map import Addresses, AddressMap
from glaive.index.registry import kind_of
from glaive.index.segment import Segment, SegmentWriter
from glaive.io.store import ObjectStore
from glaive.table.index_coverage import covered_fragments, holds_addresses
from glaive.table.moved_rows import REUSE_INDEX, MovedGroup, followed, moves_before

__all__ = ["RemappedIndices", "any_holds_addresses", "pinned_fragments", "remap_segments"]

Entry = table_pb2.IndexMetadata
Rewritten = table_pb2.Transaction.Rewrite.RewrittenIndex


@dataclass(frozen=True, slots=True)
class RemappedIndices:
    """What an operation that replaces fragments has to say of indices.

    Parameters
    ----------
    rewritten
        Segments that were rebuilt, as on the wire.
    coverage
        Fragments they cover, by uuid, where their entries before did not say.
    writers
        What wrote them.
    """

    rewritten: tuple[Rewritten, ...] = ()
    coverage: Mapping[bytes, frozenset[int]] = field(default_factory=dict)
    writers: tuple[SegmentWriter, ...] = ()

    def discard(self) -> None:
        """Remove the files, if no manifest is going to name them."""
        for writer in self.writers:
            writer.abort()


def any_holds_addresses(manifest: Manifest) -> bool:
    """Whether a segment holds row addresses."""
    return any(_holds_addresses(manifest, index) for index in manifest.indices)


def _holds_addresses(manifest: Manifest, entry: Entry) -> bool:
    if entry.name == REUSE_INDEX:
        return False
    return not manifest.uses(Feature.STABLE_ROW_IDS) or holds_addresses(entry)


def _covers(entry: Entry, touched: frozenset[int]) -> bool:
    """Whether a segment holds rows of ``touched`` fragments, or may."""
    covered = covered_fragments(entry)
    return covered is None or not covered.isdisjoint(touched)


def pinned_fragments(manifest: Manifest) -> frozenset[int]:
    """Fragments under an index of a kind, or a version of it, that is not known here.

    Where row ids are addresses, they are not to be moved: the index would be lost to those
    who know it.
    """
    if manifest.uses(Feature.STABLE_ROW_IDS):
        return frozenset()
    pinned: set[int] = set()
    for entry in followed(manifest.indices):
        named = entry.name != REUSE_INDEX and entry.index_details.type_url
        if named and kind_of(entry) is None:
            pinned |= covered_fragments(entry) or frozenset()
    return frozenset(pinned)


def remap_segments(
    store: ObjectStore, manifest: Manifest, groups: Sequence[MovedGroup]
) -> RemappedIndices:
    """Rebuild the segments of ``manifest`` that hold addresses of rows in these groups.

    Parameters
    ----------
    store
        The dataset's own: new segments are written there, wherever the old ones are.
    groups
        Old addresses of the rows that are left, fragments they were in, those they are in.
        Groups without addresses, for no segment needed them, count for nothing.

    Returns
    -------
    RemappedIndices
        For the operation that replaces the fragments; until it is committed, no manifest
        names the new files.

    Raises
    ------
    CorruptFileError, NotLanceError, UnsupportedFeatureError
        A segment cannot be read; all new files were removed.

    Notes
    -----
    A segment with a file that does not exist is left as it is, and so covers nothing of the
    new fragments. Memory: eight bytes per moved row, and one segment.
    """
    groups = [group for group in groups if group[0]]
    touched = frozenset(one.id for _, old, _ in groups for one in old)
    entries = [
        one
        for one in followed(manifest.indices)
        if _holds_addresses(manifest, one) and _covers(one, touched)
    ]
    if not entries:
        return RemappedIndices()
    moved = AddressMap.of(groups)
    for before in reversed(moves_before(store, manifest)):
        moved = moved.after(AddressMap.of(before, manifest.where))
    rewritten: list[Rewritten] = []
    coverage: dict[bytes, frozenset[int]] = {}
    writers: list[SegmentWriter] = []
    try:
        for entry in entries:
            writer = SegmentWriter(store, manifest.data_format)
            writers.append(writer)
            seen = None if covered_fragments(entry) is not None else _Seen(moved.steps)
            made = _remake(Segment.of(store, manifest, entry), seen or moved, writer)
            if made is not None:
                rewritten.append(made)
                if seen is not None:
                    coverage[made.new_id.uuid] = seen.covered(groups)
    except BaseException:
        for writer in writers:
            writer.abort()
        raise
    return RemappedIndices(tuple(rewritten), coverage, tuple(writers))


class _Seen(AddressMap):
    """A map that notes in which fragments rows are that it was asked for, and where they were."""

    __slots__ = ("_before", "_fragments", "_origins")

    def __init__(self, steps: Sequence[Any]) -> None:
        super().__init__(steps)
        self._before = AddressMap(steps[:-1])
        self._fragments: set[int] = set()
        self._origins: set[int] = set()

    def apply(self, addresses: Addresses) -> tuple[Addresses, NDArray[np.bool_]]:
        found, kept = super().apply(addresses)
        self._fragments |= _fragments(found[kept])
        self._origins |= _fragments(self._before.apply(addresses)[0][kept])
        return found, kept

    def covered(self, groups: Sequence[MovedGroup]) -> frozenset[int]:
        """Fragments of the rows; new ones only if there were rows of all that they are made of."""
        partly: set[int] = set()
        for _, old, new in groups:
            if not self._origins.issuperset(one.id for one in old):
                partly.update(one.id for one in new)
        return frozenset(self._fragments - partly)


def _fragments(addresses: Addresses) -> set[int]:
    return set(np.unique(addresses >> np.uint64(32)).tolist())


def _remake(segment: Segment, moved: AddressMap, out: SegmentWriter) -> Rewritten | None:
    entry = segment.entry
    kind = kind_of(entry, () if entry.index_details.type_url else segment.sizes())
    try:
        rebuilt = None if kind is None else kind.remap(segment, moved, out)
    except DataFileMissingError as error:
        _LOG.warning(
            "Index %r does not cover the compacted fragments any more, for a file of it is "
            "missing: %s",
            entry.name,
            error,
        )
        out.abort()
        return None
    if rebuilt is None:
        return None
    version = entry.index_version if rebuilt.version is None else rebuilt.version
    message = Rewritten(new_index_version=version, new_index_files=out.finish())
    message.old_id.CopyFrom(entry.uuid)
    message.new_id.uuid = out.id.bytes
    if entry.HasField("index_details"):
        message.new_index_details.CopyFrom(entry.index_details)
    if rebuilt.details is not None:
        message.new_index_details.value = rebuilt.details
    return message


_LOG = logging.getLogger(__name__)
