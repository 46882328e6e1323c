"""Parts of a full-text segment that several workers write under one id, and that one merges.

Specification: "Parts" in ``docs/format/text-indices.md``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from glaive.errors import OptionError, UnsupportedFeatureError
from glaive.index.protocol import BuiltSegment, IndexSource
from glaive.index.row_set import RowSet
from glaive.index.segment import STAGING, Segment, SegmentWriter
from glaive.index.text.inverted import MERGE_MEMORY, form_of, read_format, stored_partitions
from glaive.index.text.partition import (
    StoredPartition,
    build_partitions,
    merge_partitions,
    write_metadata,
)

_METADATA: Final = re.compile("part_([0-9]{1,20})_metadata.lance", re.ASCII)


class StagedSegment(Segment):
    """The parts of a segment, which are in a folder within its own."""

    __slots__ = ()

    @property
    def folder(self) -> str:
        """Path of the folder within the store."""
        return f"{Segment.folder.fget(self)}/{STAGING}"  # type: ignore[attr-defined]  # a property


def build_part(
    source: IndexSource, parameters: Mapping[str, Any], out: SegmentWriter
) -> BuiltSegment:
    """Write the documents of a source, with numbers of partitions that no other part has.

    Partitions are numbered from the first row of the first fragment on.
    """
    form = form_of(source, parameters)
    first = min((fragment.id for fragment in source.fragments), default=0) << 32
    numbers = build_partitions(source, form, out, first)
    write_metadata(out, form, numbers, f"part_{first}_metadata.lance")
    return form.built()


def merge_parts(parts: StagedSegment, out: SegmentWriter) -> list[str]:
    """Write one segment with the documents of all parts; paths of the files of the parts.

    Raises
    ------
    OptionError
        There is no part, or several have the same rows, which would be found twice.
    UnsupportedFeatureError
        Parts were built with different parameters.
    CorruptFileError, DataFileMissingError
        A file is damaged or absent.
    """
    matches = filter(None, map(_METADATA.fullmatch, parts.sizes()))
    ordered = [found[0] for found in sorted(matches, key=lambda found: int(found[1]))]
    if not ordered:
        raise OptionError(
            f"index_uuid: {parts.where} has no parts. Build them with create_scalar_index(..., "
            '"INVERTED", fragment_ids=..., index_uuid=...)'
        )
    form = read_format(parts, ordered[0])
    stored: list[StoredPartition] = []
    rows: list[RowSet] = []
    for name in ordered:
        if read_format(parts, name) != form:
            raise UnsupportedFeatureError(
                f"{parts.where}: {name} was built with other parameters than {ordered[0]}"
            )
        partitions = list(stored_partitions(parts, form, name))
        if partitions:
            rows.append(RowSet.union([partition.rows() for partition in partitions]))
        stored += partitions
    if rows and RowSet.union(rows).count != sum(one.count for one in rows):
        raise OptionError(
            f"index_uuid: several parts of {parts.where} have the same rows. Build parts over "
            "fragments of their own, under another id"
        )
    write_metadata(out, form, merge_partitions(stored, iter(()), form, MERGE_MEMORY, out))
    return [f"{parts.folder}/{name}" for name in parts.sizes()]
