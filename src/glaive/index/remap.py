"""Rebuild the segments that store addresses of moved rows.

Any process can rebuild a segment. It needs the version that was read, and the new addresses of the
rows. The result is small, and names the segment's files for the commit.

Specification: "Rows that moved in indices" in ``docs/format/indices.md``.
"""

from __future__ import annotations

import logging
import zlib
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import field
from typing import Any, Self
from uuid import UUID

import numpy as np

from glaive.arrow.blocks import ascending
from glaive.dataclass import NamedTuple, dataclass
from glaive.errors import DataFileMissingError, UnsupportedFeatureError
from glaive.format.fragment import Fragment, ids_and_rows
from glaive.format.manifest import Feature, Manifest
from glaive.format.paths import INDICES
from glaive.format.pb import table_pb2
from glaive.format.wire import parse
from glaive.index.protocol import IndexKind, kind_of
from glaive.index.row_sets import Addresses, AddressMap
from glaive.index.segment import Segment, SegmentWriter
from glaive.io.store import ObjectStore
from glaive.table.index_coverage import (
    REUSE_INDEX,
    after_remapping,
    covered_fragments,
    holds_addresses,
    stored_relocations,
)
from glaive.types import Flags, Int64s

Entry = table_pb2.IndexMetadata
Rewritten = table_pb2.Transaction.Rewrite.RewrittenIndex


class _FragmentSize(NamedTuple):
    """A fragment, for address maps."""

    id: int
    physical_rows: int


@dataclass(frozen=True, slots=True)
class MovedRows:
    """Rows that a rewrite moved between fragments; pickles in compressed form.

    Parameters
    ----------
    survivors
        Old addresses of the rows, as a 64-bit roaring bitmap.
    old, new
        Ids and physical rows of the fragments; shape ``(2, fragments)``.
    """

    survivors: bytes
    old: Int64s
    new: Int64s

    @classmethod
    def of(cls, survivors: bytes, old: Sequence[Fragment], new: Sequence[Fragment]) -> Self:
        """Pack ids and sizes of the fragments: 16 bytes each."""
        return cls(survivors, ids_and_rows(old), ids_and_rows(new))

    @property
    def group(self) -> _MovedGroup:
        """The group for an address map."""
        return self.survivors, _sizes(self.old), _sizes(self.new)

    def __reduce__(self) -> tuple[Any, ...]:
        arrays = (self.old.tobytes(), self.new.tobytes())
        return _unpacked, tuple(zlib.compress(data, 1) for data in (self.survivors, *arrays))


def _unpacked(*compressed: bytes) -> MovedRows:
    survivors, *arrays = map(zlib.decompress, compressed)
    old, new = (np.frombuffer(data, np.int64).reshape(2, -1) for data in arrays)
    return MovedRows(survivors, old, new)


_MovedGroup = tuple[bytes, Sequence[_FragmentSize], Sequence[_FragmentSize]]


def _sizes(packed: Int64s) -> list[_FragmentSize]:
    return list(map(_FragmentSize, *packed.tolist()))


@dataclass(frozen=True, slots=True)
class RemappedSegment:
    """An uncommitted rebuilt segment; can be pickled.

    Parameters
    ----------
    wire
        Serialized message of the operation.
    coverage
        Fragments of the segment, if its old entry omitted them.
    """

    wire: bytes
    coverage: frozenset[int] | None = None


@dataclass(frozen=True, slots=True)
class RemappedIndices:
    """The rebuilt segments, for the operation that replaces fragments.

    Parameters
    ----------
    rewritten
        Messages of the rebuilt segments.
    coverage
        Fragments of segments by uuid, if their old entries omitted them.
    """

    rewritten: tuple[Rewritten, ...] = ()
    coverage: Mapping[bytes, frozenset[int]] = field(default_factory=dict)

    @classmethod
    def of(cls, segments: Iterable[RemappedSegment]) -> Self:
        """Collect the segments that tasks rebuilt."""
        rewritten, coverage = [], {}
        for segment in segments:
            message = parse(Rewritten(), segment.wire, "rebuilt index", "the result of a task")
            rewritten.append(message)
            if segment.coverage is not None:
                coverage[message.new_id.uuid] = segment.coverage
        return cls(tuple(rewritten), coverage)

    def discard(self, store: ObjectStore) -> None:
        """Remove the files as far as possible, after the operation was given up."""
        for message in self.rewritten:
            folder = f"{INDICES}/{UUID(bytes=message.new_id.uuid)}"
            store.discard([f"{folder}/{file.path}" for file in message.new_index_files])


def any_holds_addresses(manifest: Manifest) -> bool:
    """Return whether a segment stores row addresses."""
    return any(_holds_addresses(manifest, index) for index in manifest.indices)


def _holds_addresses(manifest: Manifest, entry: Entry) -> bool:
    if entry.name == REUSE_INDEX:
        return False
    return not manifest.uses(Feature.STABLE_ROW_IDS) or holds_addresses(entry)


def _covers(entry: Entry, fragments: frozenset[int]) -> bool:
    """Return whether a segment may contain rows of these fragments."""
    covered = covered_fragments(entry)
    return covered is None or not covered.isdisjoint(fragments)


def pinned_fragments(manifest: Manifest) -> frozenset[int]:
    """Return the fragments covered by an index of an unknown kind or version.

    If row ids are addresses, keep these rows in place: libraries that know the index would lose it.
    """
    if manifest.uses(Feature.STABLE_ROW_IDS):
        return frozenset()
    pinned: set[int] = set()
    for entry in after_remapping(manifest.indices):
        named = entry.name != REUSE_INDEX and entry.index_details.type_url
        if named and kind_of(entry) is None:
            pinned |= covered_fragments(entry) or frozenset()
    return frozenset(pinned)


def segments_to_remap(manifest: Manifest, moved: Sequence[MovedRows]) -> list[bytes]:
    """Return the ids of the segments that store addresses of moved rows."""
    fragments = frozenset(number for rows in moved for number in rows.old[0].tolist())
    entries = after_remapping(manifest.indices) if moved else ()
    return list(
        dict.fromkeys(
            entry.uuid.uuid
            for entry in entries
            if _holds_addresses(manifest, entry) and _covers(entry, fragments)
        )
    )


def remap_segments(
    store: ObjectStore, manifest: Manifest, ids: Iterable[bytes], moved: Sequence[MovedRows]
) -> list[RemappedSegment]:
    """Rebuild some segments of ``manifest`` with the new addresses of rows.

    Parameters
    ----------
    store
        Store of the dataset: new segments are written there, even if the old are elsewhere.
    ids
        Ids of the segments, from :func:`segments_to_remap`.
    moved
        All moved rows; each group must have its addresses.

    Returns
    -------
    list of RemappedSegment
        Rebuilt segments; the commit of the operation adds their files to the manifest.

    Raises
    ------
    CorruptFileError, NotLanceError, UnsupportedFeatureError
        A segment is unreadable; glaive removed all new files.

    Notes
    -----
    A segment with a missing file is skipped: it leaves out the new fragments.
    Memory: the address map, and one segment.
    """
    wanted = frozenset(ids)
    entries = [entry for entry in after_remapping(manifest.indices) if entry.uuid.uuid in wanted]
    groups = [rows.group for rows in moved]
    before = AddressMap.of_all(stored_relocations(store, manifest), manifest.where)
    latest = AddressMap.of(groups)
    address_map = AddressMap(before.then(latest))
    rebuilt: list[RemappedSegment] = []
    with ExitStack() as on_failure:
        for entry in entries:
            writer = SegmentWriter.of(store, manifest)
            on_failure.callback(writer.abort)
            recorder = None if covered_fragments(entry) is not None else _Recorder(before, latest)
            segment = Segment.of(store, manifest, entry)
            files = () if entry.index_details.type_url else segment.sizes()
            kind = kind_of(entry, files, manifest.schema)
            message = _rebuild(segment, kind, recorder or address_map, writer)
            if message is not None:
                coverage = None if recorder is None else recorder.covered(groups)
                rebuilt.append(RemappedSegment(message.SerializeToString(), coverage))
        on_failure.pop_all()
    return rebuilt


class _Recorder(AddressMap):
    """An address map that records the old and new fragments of the addresses it maps."""

    __slots__ = ("_before", "_fragments", "_origins")

    def __init__(self, before: AddressMap, latest: AddressMap) -> None:
        super().__init__(before.then(latest))
        self._before = before
        self._fragments: set[int] = set()
        self._origins: set[int] = set()

    def apply(self, addresses: Addresses) -> tuple[Addresses, Flags]:
        new_addresses, kept = super().apply(addresses)
        self._fragments |= _fragments(new_addresses[kept])
        self._origins |= _fragments(self._before.apply(addresses)[0][kept])
        return new_addresses, kept

    def covered(self, groups: Sequence[_MovedGroup]) -> frozenset[int]:
        """Return fragments of the rows; a new fragment only if all its old fragments occurred."""
        partly: set[int] = set()
        for _, old, new in groups:
            if not self._origins.issuperset(fragment.id for fragment in old):
                partly.update(fragment.id for fragment in new)
        return frozenset(self._fragments - partly)


def _fragments(addresses: Addresses) -> set[int]:
    return set(ascending(addresses >> np.uint64(32)).tolist())


def _rebuild(
    segment: Segment, kind: IndexKind | None, address_map: AddressMap, out: SegmentWriter
) -> Rewritten | None:
    if kind is None:
        return None
    entry = segment.entry
    try:
        rebuilt = kind.remap(segment, address_map, out)
    except (DataFileMissingError, UnsupportedFeatureError) as error:
        why = "a file is missing" if isinstance(error, DataFileMissingError) else "it is not read"
        _LOG.warning(
            "Index %r does not cover the compacted fragments any more: %s: %s. Build it again",
            entry.name,
            why,
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
    if not message.new_index_details.type_url and kind.name in _DETAILS:
        message.new_index_details.type_url = f"/lance.table.{_DETAILS[kind.name]}IndexDetails"
    if rebuilt.details is not None:
        message.new_index_details.value = rebuilt.details
    return message


_DETAILS = {
    "bitmap": "Bitmap", "btree": "BTree", "inverted": "Inverted", "labellist": "LabelList",
    "vector": "Vector",
}  # fmt: skip
"""Names of details messages by kind, for entries by Lance up to 0.19, which lack details."""

_LOG = logging.getLogger(__name__)
