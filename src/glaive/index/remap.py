"""Rebuild the segments that hold addresses of relocated rows.

A segment is rebuilt by one process, any one: it needs the version that was read, and where the rows
went. What it returns is small, and names its files for the commit.

Specification: "Rows that moved in indices" in ``docs/format/indices.md``.
"""

from __future__ import annotations

import logging
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
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
    covered_fragments,
    followed,
    holds_addresses,
    stored_relocations,
)
from glaive.types import Flags, Int64s

Entry = table_pb2.IndexMetadata
Rewritten = table_pb2.Transaction.Rewrite.RewrittenIndex


class _FragmentSize(NamedTuple):
    """A fragment as address maps need it."""

    id: int
    physical_rows: int


@dataclass(frozen=True, slots=True)
class MovedRows:
    """Rows that a rewrite moved from some fragments into others; compressed where it is pickled.

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
        """Pack what is needed of the fragments: 16 bytes each."""
        return cls(survivors, ids_and_rows(old), ids_and_rows(new))

    @property
    def group(self) -> _MovedGroup:
        """The same for an address map."""
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
    """A segment that was rebuilt, not committed; can be pickled.

    Parameters
    ----------
    wire
        What the operation says of it, as on the wire.
    coverage
        Fragments that it covers, if its old entry did not list them.
    """

    wire: bytes
    coverage: frozenset[int] | None = None


@dataclass(frozen=True, slots=True)
class RemappedIndices:
    """The rebuilt segments, for the operation that replaces fragments.

    Parameters
    ----------
    rewritten
        Segments that were rebuilt, as on the wire.
    coverage
        Fragments that they cover, by uuid, if their old entries did not list them.
    """

    rewritten: tuple[Rewritten, ...] = ()
    coverage: Mapping[bytes, frozenset[int]] = field(default_factory=dict)

    @classmethod
    def of(cls, segments: Iterable[RemappedSegment]) -> Self:
        """The segments that tasks have rebuilt."""
        rewritten, coverage = [], {}
        for segment in segments:
            message = parse(Rewritten(), segment.wire, "rebuilt index", "the result of a task")
            rewritten.append(message)
            if segment.coverage is not None:
                coverage[message.new_id.uuid] = segment.coverage
        return cls(tuple(rewritten), coverage)

    def discard(self, store: ObjectStore) -> None:
        """Remove the files, if that is possible; for when no manifest is going to name them."""
        for message in self.rewritten:
            folder = f"{INDICES}/{UUID(bytes=message.new_id.uuid)}"
            store.discard([f"{folder}/{file.path}" for file in message.new_index_files])


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


def segments_to_remap(manifest: Manifest, moved: Sequence[MovedRows]) -> list[bytes]:
    """Ids of the segments that hold addresses of rows that were moved."""
    fragments = frozenset(number for rows in moved for number in rows.old[0].tolist())
    entries = followed(manifest.indices) if moved else ()
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
        The dataset's own: new segments are written there, wherever the old ones are.
    ids
        Of the segments, as :func:`segments_to_remap` tells.
    moved
        All rows that were moved. No group without addresses may be among them.

    Returns
    -------
    list of RemappedSegment
        Those that were rebuilt; until the operation is committed, no manifest names their files.

    Raises
    ------
    CorruptFileError, NotLanceError, UnsupportedFeatureError
        A segment cannot be read; all new files were removed.

    Notes
    -----
    A segment with a missing file is not rebuilt, and so covers nothing of the new fragments.
    Memory: the map of the rows, as of an ``AddressMap``, and one segment.
    """
    wanted = frozenset(ids)
    entries = [entry for entry in followed(manifest.indices) if entry.uuid.uuid in wanted]
    groups = [rows.group for rows in moved]
    before = AddressMap.of_all(stored_relocations(store, manifest), manifest.where)
    latest = AddressMap.of(groups)
    address_map = AddressMap(before.then(latest))
    rebuilt: list[RemappedSegment] = []
    with _removed_on_failure() as writers:
        for entry in entries:
            writer = SegmentWriter.of(store, manifest)
            writers.append(writer)
            recorder = None if covered_fragments(entry) is not None else _Recorder(before, latest)
            segment = Segment.of(store, manifest, entry)
            files = () if entry.index_details.type_url else segment.sizes()
            kind = kind_of(entry, files, manifest.schema)
            message = _rebuild(segment, kind, recorder or address_map, writer)
            if message is not None:
                coverage = None if recorder is None else recorder.covered(groups)
                rebuilt.append(RemappedSegment(message.SerializeToString(), coverage))
    return rebuilt


@contextmanager
def _removed_on_failure() -> Iterator[list[SegmentWriter]]:
    """A list of writers, all of whose files are removed where the block raises."""
    writers: list[SegmentWriter] = []
    try:
        yield writers
    except BaseException:
        for writer in writers:
            writer.abort()
        raise


class _Recorder(AddressMap):
    """A map that records the old and new fragments of the addresses it is applied to."""

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
        """Fragments of the rows; new ones only if rows of all their old fragments were there."""
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
"""Names of details by kind, for entries by Lance up to 0.19, which have none."""

_LOG = logging.getLogger(__name__)
