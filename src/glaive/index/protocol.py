"""What a kind of index has to offer.

Specification: "Kinds" in ``docs/format/indices.md``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from glaive.format.pb import table_pb2
from glaive.index.address_map import AddressMap
from glaive.index.segment import Segment, SegmentWriter

__all__ = ["IndexKind", "RebuiltSegment"]

Entry = table_pb2.IndexMetadata


@dataclass(frozen=True, slots=True)
class RebuiltSegment:
    """What the entry of a segment that was rebuilt says differently.

    Parameters
    ----------
    details
        Content of the details message; as before when omitted.
    version
        Version of the index's own format; as before when omitted.
    """

    details: bytes | None = None
    version: int | None = None


class IndexKind:
    """A kind of index. Implementations have no state: one file each, found by the registry.

    Adding a kind is adding a module in ``scalar/``, ``text/`` or ``vector/`` with a class
    that is decorated with :func:`glaive.index.registry.index_kind`.
    """

    name: ClassVar[str]
    """Of the details message without ``IndexDetails``, in small letters: ``btree``."""

    newest: ClassVar[int]
    """Newest version of the kind's own format that is known; newer ones stay unused."""

    marker: ClassVar[str] = ""
    """A file that only this kind has, if any: entries of old writers do not name their kind."""

    def remap(
        self, segment: Segment, moved: AddressMap, out: SegmentWriter
    ) -> RebuiltSegment | None:
        """Rebuild the segment into ``out``, for relocated rows.

        Entries of rows that are gone are left out; all others stay. ``out`` collects names
        and sizes of the files; a caller that gets an error removes them.

        Returns
        -------
        RebuiltSegment or None
            None where this kind cannot be rebuilt without the data: its segments then
            cover nothing of the new fragments. Kinds that never can inherit this function.

        Raises
        ------
        CorruptFileError, DataFileMissingError, NotLanceError, UnsupportedFeatureError
            A file of the segment is damaged, absent, or of a form not known here.
        """
        return None
