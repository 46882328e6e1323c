"""INVERTED: full-text indices.

Specification: "Files" in ``docs/format/text-indices.md``.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, ClassVar

from glaive.errors import CorruptFileError
from glaive.index.address_map import AddressMap
from glaive.index.protocol import IndexKind, RebuiltSegment
from glaive.index.registry import index_kind
from glaive.index.segment import IndexFile, Segment, SegmentWriter
from glaive.index.text.form import read_form
from glaive.index.text.partition import remap_partition

__all__ = ["Inverted"]

METADATA = "metadata.lance"
_IGNORED = "deleted_fragments"
_FORMATS = ("arrow", "fst")


@index_kind
class Inverted(IndexKind):
    """Tokens and the documents that have them."""

    name: ClassVar[str] = "inverted"
    newest: ClassVar[int] = 3
    marker: ClassVar[str] = METADATA

    def remap(
        self, segment: Segment, moved: AddressMap, out: SegmentWriter
    ) -> RebuiltSegment | None:
        """Take documents that are gone out of all partitions."""
        if not segment.has(METADATA):
            return None
        file = segment.open(METADATA)
        form = read_form(file)
        known = file.metadata.get("token_set_format", "arrow") in _FORMATS
        if form is None or not known or "partitions" not in file.metadata:
            return None
        if _ignores_any(file, moved.touched):
            # Documents that are ignored by fragment would be found again elsewhere.
            return None
        out.copy(segment, METADATA)
        for number in _partitions(file):
            if not remap_partition(segment, f"part_{number}", form, moved, out):
                out.abort()
                return None
        return RebuiltSegment()


def _partitions(file: IndexFile) -> list[int]:
    """Numbers of the partitions."""
    text = file.metadata["partitions"]
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _corrupt("partitions", str(error), file) from error
    numbers = found if isinstance(found, list) else [found]
    good = all(isinstance(number, int) and number >= 0 for number in numbers)
    if not good or len(set(numbers)) != len(numbers):
        raise _corrupt("partitions", text[:80], file)
    return numbers


def _ignores_any(file: IndexFile, fragments: Iterable[int]) -> bool:
    """Whether the documents of one of these fragments are ignored.

    The fragments in the bitmaps are not listed: a few bytes can stand for billions.
    """
    if _IGNORED not in file.schema.names or not file.num_rows:
        return False
    from pyroaring import BitMap

    sought, found = BitMap(fragments), False
    bitmaps: list[Any] = file.read([_IGNORED])[_IGNORED].to_pylist()
    for bitmap in bitmaps:
        try:
            found |= bool(bitmap) and sought.intersect(BitMap.deserialize(bitmap))
        except (ValueError, IndexError, TypeError) as error:
            raise _corrupt(_IGNORED, str(error), file) from error
    return found


def _corrupt(what: str, found: str, file: IndexFile) -> CorruptFileError:
    return CorruptFileError(
        f"{what!r} of an index", expected="numbers", found=found, where=file.path
    )
