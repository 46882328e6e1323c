"""Rebuild the segments that hold addresses of relocated rows.

Specification: "Rows that moved in indices" in ``docs/format/indices.md``.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any

import numpy as np

from glaive.arrow.buffers import ascending
from glaive.dataclass import dataclass
from glaive.errors import DataFileMissingError
from glaive.format.flags import Feature
from glaive.format.manifest import Manifest
from glaive.format.pb import table_pb2
from glaive.index.address_map import Addresses, AddressMap
from glaive.index.registry import kind_of
from glaive.index.segment import Segment, SegmentWriter
from glaive.io.store import ObjectStore
from glaive.table.index_coverage import covered_fragments, holds_addresses
from glaive.table.relocated_rows import REUSE_INDEX, RelocatedGroup, followed, stored_relocations
from glaive.types import Flags

__all__ = ["RemappedIndices", "any_holds_addresses", "pinned_fragments", "remap_segments"]

Entry = table_pb2.IndexMetadata
Rewritten = table_pb2.Transaction.Rewrite.RewrittenIndex


@dataclass(frozen=True, slots=True)
class RemappedIndices:
    """The rebuilt segments, for the operation that replaces fragments.

    Parameters
    ----------
    rewritten
        Segments that were rebuilt, as on the wire.
    coverage
        Fragments that they cover, by uuid, if their old entries did not list them.
    writers
        Their writers.
    """

    rewritten: tuple[Rewritten, ...] = ()
    coverage: Mapping[bytes, frozenset[int]] = field(default_factory=dict)
    writers: tuple[SegmentWriter, ...] = ()

    def discard(self) -> None:
        """Remove the files; for when no manifest is going to name them."""
        for writer in self.writers:
            writer.abort()


def any_holds_addresses(manifest: Manifest) -> bool:
    """Whether a segment holds row addresses."""
    return any(_holds_addresses(manifest, index) for index in manifest.indices)


def _holds_addresses(manifest: Manifest, entry: Entry) -> bool:
    if entry.name == REUSE_INDEX:
        return False
    return not manifest.uses(Feature.STABLE_ROW_IDS) or holds_addresses(entry)


def _covers(entry: Entry, fragments: frozenset[int]) -> bool:
    """Whether a segment may hold rows of these fragments."""
    covered = covered_fragments(entry)
    return covered is None or not covered.isdisjoint(fragments)


def pinned_fragments(manifest: Manifest) -> frozenset[int]:
    """Fragments covered by an index of an unknown kind, or of an unknown version of its kind.

    Where row ids are addresses, their rows must stay where they are: the index would be lost
    for the libraries that know it.
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
    store: ObjectStore, manifest: Manifest, groups: Sequence[RelocatedGroup]
) -> RemappedIndices:
    """Rebuild the segments of ``manifest`` that hold addresses of rows in these groups.

    Parameters
    ----------
    store
        The dataset's own: new segments are written there, wherever the old ones are.
    groups
        Old addresses of the surviving rows, their old and their new fragments. Groups without
        addresses (no segment needs them) are skipped.

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
    A segment with a missing file is not rebuilt, and so covers nothing of the new fragments.
    Memory: eight bytes per relocated row, and one segment.
    """
    groups = [group for group in groups if group[0]]
    rewritten_fragments = frozenset(fragment.id for _, old, _ in groups for fragment in old)
    entries = [
        entry
        for entry in followed(manifest.indices)
        if _holds_addresses(manifest, entry) and _covers(entry, rewritten_fragments)
    ]
    if not entries:
        return RemappedIndices()
    address_map = AddressMap.of(groups)
    for before in reversed(stored_relocations(store, manifest)):
        address_map = address_map.after(AddressMap.of(before, manifest.where))
    rewritten: list[Rewritten] = []
    coverage: dict[bytes, frozenset[int]] = {}
    writers: list[SegmentWriter] = []
    try:
        for entry in entries:
            writer = SegmentWriter(store, manifest.data_format)
            writers.append(writer)
            recorder = (
                None if covered_fragments(entry) is not None else _Recorder(address_map.steps)
            )
            message = _rebuild(Segment.of(store, manifest, entry), recorder or address_map, writer)
            if message is not None:
                rewritten.append(message)
                if recorder is not None:
                    coverage[message.new_id.uuid] = recorder.covered(groups)
    except BaseException:
        for writer in writers:
            writer.abort()
        raise
    return RemappedIndices(tuple(rewritten), coverage, tuple(writers))


class _Recorder(AddressMap):
    """A map that records the old and new fragments of the addresses it is applied to."""

    __slots__ = ("_before", "_fragments", "_origins")

    def __init__(self, steps: Sequence[Any]) -> None:
        super().__init__(steps)
        self._before = AddressMap(steps[:-1])
        self._fragments: set[int] = set()
        self._origins: set[int] = set()

    def apply(self, addresses: Addresses) -> tuple[Addresses, Flags]:
        new_addresses, kept = super().apply(addresses)
        self._fragments |= _fragments(new_addresses[kept])
        self._origins |= _fragments(self._before.apply(addresses)[0][kept])
        return new_addresses, kept

    def covered(self, groups: Sequence[RelocatedGroup]) -> frozenset[int]:
        """Fragments of the rows; new ones only if rows of all their old fragments were there."""
        partly: set[int] = set()
        for _, old, new in groups:
            if not self._origins.issuperset(fragment.id for fragment in old):
                partly.update(fragment.id for fragment in new)
        return frozenset(self._fragments - partly)


def _fragments(addresses: Addresses) -> set[int]:
    return set(ascending(addresses >> np.uint64(32)).tolist())


def _rebuild(segment: Segment, address_map: AddressMap, out: SegmentWriter) -> Rewritten | None:
    entry = segment.entry
    kind = kind_of(entry, () if entry.index_details.type_url else segment.sizes())
    try:
        rebuilt = None if kind is None else kind.remap(segment, address_map, out)
    except DataFileMissingError as error:
        _LOG.warning(
            "Index %r does not cover the compacted fragments any more: a file is missing: %s",
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
