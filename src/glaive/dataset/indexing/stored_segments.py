"""The segments that each index of a version has, and the rows that are in none of them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np

from glaive.dataclass import dataclass
from glaive.dataset.fragment_positions import FragmentPositions
from glaive.dataset.indexing.describe import missing_index
from glaive.errors import CorruptFileError, OptionError
from glaive.format.pb import table_pb2
from glaive.index.protocol import IndexKind
from glaive.scan.indices import SnapshotIndices
from glaive.table.index_coverage import covered_fragments
from glaive.table.relocated_rows import REUSE_INDEX, followed
from glaive.types import Flags, Int64s

if TYPE_CHECKING:
    from glaive.dataset.version import OpenedVersion

__all__ = ["IndexSegments", "StoredSegment", "index_segments"]


@dataclass(frozen=True, slots=True, eq=False)
class StoredSegment:
    """A segment, and what it covers of a version.

    Parameters
    ----------
    entry
        As the manifest has it.
    fragments
        Ids of the fragments.
    rows
        Live rows in these.
    """

    entry: table_pb2.IndexMetadata
    fragments: frozenset[int]
    rows: int


@dataclass(frozen=True, slots=True, eq=False)
class IndexSegments:
    """The segments of an index of a known kind, and the fragments that none of them covers.

    Parameters
    ----------
    name
        Of the index.
    kind
        Of its segments.
    segments
        At least one, oldest first.
    missing
        Ids of the fragments that are in none, in the order of the version.
    missing_rows
        Live rows of each of these.
    """

    name: str
    kind: IndexKind
    segments: tuple[StoredSegment, ...]
    missing: tuple[int, ...]
    missing_rows: Int64s

    @property
    def model(self) -> StoredSegment:
        """The segment that others are built like: the first that has rows of this version."""
        return next((one for one in self.segments if one.fragments), self.segments[0])

    @property
    def outdated(self) -> bool:
        """Whether all segments have to be written again where one is."""
        return any(self.kind.is_outdated(one.entry) for one in self.segments)

    def newest(self, count: int) -> tuple[table_pb2.IndexMetadata, ...]:
        """The entries of so many of the newest segments, oldest first."""
        return tuple(one.entry for one in self.segments[len(self.segments) - count :])


def index_segments(
    dataset: OpenedVersion, names: Iterable[str] | None = None
) -> dict[str, IndexSegments]:
    """The indices of a version, by name; reads no file of an index that names its kind.

    Parameters
    ----------
    names
        Of indices; by default all whose kind is known.

    Raises
    ------
    IndexNotFoundError
        There is no index of a name.
    CorruptFileError
        Two segments have one folder: the same files would be merged for each of the names. Or
        those of one name are over several columns, or of several kinds.
    OptionError
        ``names`` is a single text.
    """
    if isinstance(names, str):
        raise OptionError(f"index_names: expected a list of names, found {names!r}")
    manifest, entries = dataset.manifest, dataset.manifest.indices
    known = SnapshotIndices.of(dataset.snapshot)
    if names is not None:  # each of thousands of tasks asks for one of as many indices
        names = list(dict.fromkeys(names))
        wanted = {*names, REUSE_INDEX}
        entries = [entry for entry in entries if entry.name in wanted]
    ids, rows = manifest.fragment_ids, dataset.snapshot.live_counts
    positions = FragmentPositions(ids)
    by_name: dict[str, tuple[IndexKind, list[StoredSegment]]] = {}
    absent: dict[str, Flags] = {}
    owners: dict[bytes, str] = {}
    for entry in followed(entries):
        kind = None if entry.name == REUSE_INDEX else known.kind_of(entry)
        if kind is None:
            continue
        if entry.uuid.uuid in owners:
            raise CorruptFileError(
                f"folder of a segment of index {entry.name!r}",
                expected="one of its own",
                found=f"that of index {owners[entry.uuid.uuid]!r}",
                where=manifest.where,
            )
        owners[entry.uuid.uuid] = entry.name
        covered = covered_fragments(entry) or frozenset()
        present = positions.of(covered)
        fragments = frozenset(ids[present].tolist())
        first_kind, segments = by_name.setdefault(entry.name, (kind, []))
        if kind is not first_kind or (segments and segments[0].entry.fields != entry.fields):
            raise CorruptFileError(
                f"segments of index {entry.name!r}",
                expected="segments of one kind, over one column; drop the index",
                found="others",
                where=manifest.where,
            )
        segments.append(StoredSegment(entry, fragments, int(rows[present].sum())))
        absent.setdefault(entry.name, np.ones(len(ids), np.bool_))[present] = False
    found = {}
    for name in by_name if names is None else names:
        if name not in by_name:
            raise missing_index(manifest, name)
        kind, segments = by_name[name]
        missing = tuple(ids[absent[name]].tolist())
        found[name] = IndexSegments(name, kind, tuple(segments), missing, rows[absent[name]])
    return found
