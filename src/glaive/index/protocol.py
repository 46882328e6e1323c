"""What a kind of index implements.

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
    """What changes in the entry of a segment that was rebuilt; None: as before.

    Parameters
    ----------
    details
        Content of the details message.
    version
        Version of the index's own format.
    """

    details: bytes | None = None
    version: int | None = None


class IndexKind:
    """A kind of index. Implementations have no state; the registry finds their modules.

    Adding a kind is adding a module in ``scalar/``, ``text/`` or ``vector/`` with a class
    that is decorated with :func:`glaive.index.registry.index_kind`.
    """

    name: ClassVar[str]
    """Name of the details message without ``IndexDetails``, in small letters: ``btree``."""

    newest: ClassVar[int]
    """Newest known version of the kind's own format; segments of newer ones are left alone."""

    marker: ClassVar[str] = ""
    """A file that only this kind has, if any: entries by old writers do not name their kind."""

    def remap(
        self, segment: Segment, address_map: AddressMap, out: SegmentWriter
    ) -> RebuiltSegment | None:
        """Rebuild the segment into ``out``, for relocated rows.

        Entries of deleted rows are left out; all others stay. ``out`` collects names and
        sizes of the new files; on an error, the caller removes them.

        Returns
        -------
        RebuiltSegment or None
            None if the segment cannot be rebuilt without the data: it then covers nothing of
            the new fragments. Kinds that never can be inherit this method.

        Raises
        ------
        CorruptFileError, DataFileMissingError, NotLanceError, UnsupportedFeatureError
            A file of the segment is damaged, absent, or of an unknown layout.
        """
        return None
