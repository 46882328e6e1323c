"""INVERTED: full-text indices.

Specification: "Files" in ``docs/format/text-indices.md``.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, ClassVar

from glaive.errors import CorruptFileError
from glaive.index.address_map import AddressMap
from glaive.index.protocol import BuiltSegment, IndexKind, RebuiltSegment
from glaive.index.registry import index_kind
from glaive.index.segment import IndexFile, Segment, SegmentWriter
from glaive.index.source import IndexSource
from glaive.index.text.building import METADATA, build_partitions, write_metadata
from glaive.index.text.documents import check_column
from glaive.index.text.partition import remap_partition
from glaive.index.text.partition_write import partition_files
from glaive.index.text.posting_layout import read_posting_layout
from glaive.index.text.text_format import TextFormat

__all__ = ["Inverted", "read_format"]

_IGNORED = "deleted_fragments"
_FORMATS = ("arrow", "fst")


@index_kind
class Inverted(IndexKind):
    """Tokens and the documents that contain them."""

    name: ClassVar[str] = "inverted"
    newest: ClassVar[int] = 3
    marker: ClassVar[str] = METADATA

    def remap(
        self, segment: Segment, address_map: AddressMap, out: SegmentWriter
    ) -> RebuiltSegment | None:
        """Remove deleted documents from all partitions."""
        if not segment.has(METADATA):
            return None
        file = segment.open(METADATA)
        layout = read_posting_layout(file)
        known = file.metadata.get("token_set_format", "arrow") in _FORMATS
        if layout is None or not known or "partitions" not in file.metadata:
            return None
        if _ignores_any(file, address_map.rewritten):
            # Documents are ignored by fragment: relocated ones would be found again.
            return None
        out.copy(segment, METADATA)
        for number in _partitions(file):
            if not remap_partition(segment, f"part_{number}", layout, address_map, out):
                out.abort()
                return None
        return RebuiltSegment()

    def build(
        self, source: IndexSource, parameters: Mapping[str, Any], out: SegmentWriter
    ) -> BuiltSegment:
        """Tokenize the texts of a source and write the lists of their tokens."""
        form = TextFormat.of(parameters)
        if check_column(source.field, by_element=form.by_element):
            form = replace(form, params=replace(form.params, lance_tokenizer="json"))
        write_metadata(out, form, build_partitions(source, form, out))
        return form.built()

    def parameters(self, segment: Segment) -> Mapping[str, Any]:
        """The parameters that the segment was built with."""
        return read_format(segment).options()


def read_format(segment: Segment) -> TextFormat:
    """How a segment was built.

    Raises
    ------
    CorruptFileError, DataFileMissingError
        Its metadata is damaged or absent.
    """
    file = segment.open(METADATA)
    numbers = _partitions(file) if "partitions" in file.metadata else []
    return TextFormat.read(file, segment.open(partition_files(numbers[0])[0]) if numbers else None)


def _partitions(file: IndexFile) -> list[int]:
    """Numbers of the partitions."""
    text = file.metadata["partitions"]
    try:
        stored = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _corrupt("partitions", str(error), file) from error
    numbers = stored if isinstance(stored, list) else [stored]
    good = all(isinstance(number, int) and number >= 0 for number in numbers)
    if not good or len(set(numbers)) != len(numbers):
        raise _corrupt("partitions", text[:80], file)
    return numbers


def _ignores_any(file: IndexFile, fragments: Iterable[int]) -> bool:
    """Whether the documents of one of these fragments are ignored.

    The bitmaps are not expanded: a few bytes can stand for billions of fragments.
    """
    if _IGNORED not in file.schema.names or not file.num_rows:
        return False
    from pyroaring import BitMap

    wanted, ignored = BitMap(fragments), False
    bitmaps: list[Any] = file.read([_IGNORED])[_IGNORED].to_pylist()
    for bitmap in bitmaps:
        try:
            ignored |= bool(bitmap) and wanted.intersect(BitMap.deserialize(bitmap))
        except (ValueError, IndexError, TypeError) as error:
            raise _corrupt(_IGNORED, str(error), file) from error
    return ignored


def _corrupt(name: str, found: str, file: IndexFile) -> CorruptFileError:
    return file.corrupt(f"{name!r} of an index", "integers", found)
