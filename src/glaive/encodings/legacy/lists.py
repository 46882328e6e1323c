"""Lists: offsets into the items of the same batch, one more than lists.

Specification: "Lists" in ``docs/format/legacy.md``.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from glaive.dataclass import dataclass
from glaive.encodings.fetch import Fetch, and_then
from glaive.encodings.legacy.pages import Ends, Pages, Spans
from glaive.encodings.legacy.var_binary import offsets_of
from glaive.errors import CapacityError, CorruptFileError
from glaive.memory import as_buffer
from glaive.types import MAX_OFFSET, Int64s

__all__ = ["ListParts", "encode_lists", "read_lists"]


@dataclass(frozen=True, slots=True)
class ListParts:
    """Arrow offsets of some lists, and which items they need, in order."""

    offsets: pa.Buffer
    items: Spans


def read_lists(pages: Pages, spans: Spans) -> Fetch[ListParts] | ListParts:
    """Offsets of the lists of spans, and the spans of their items.

    Raises
    ------
    CorruptFileError
        A span leaves its page, offsets descend, or lists of different rows have the same items.
    CapacityError
        There are more items than offsets reach.
    """

    def then(ends: Ends) -> ListParts:
        _check_apart(pages, spans, ends)
        items = Spans(spans.page, ends.firsts, ends.lasts - ends.firsts)
        total = items.total
        if pages.bits == 32 and total > MAX_OFFSET:
            raise CapacityError.of(total, "items of lists", where=pages.where)
        return ListParts(offsets_of(ends.lengths, pages.bits), items)

    return and_then(pages.ends(spans), then)


def _check_apart(pages: Pages, spans: Spans, ends: Ends) -> None:
    """Refuse lists of different rows that have the same items: each would be copied."""
    if _ascends(spans.page, ends.firsts, ends.lasts):
        return
    once = pages.once(spans)
    if not _ascends(spans.page[once], ends.firsts[once], ends.lasts[once]):
        raise CorruptFileError(
            "offsets", expected="items of one list each", found="others", where=pages.where
        )


def _ascends(page: Int64s, firsts: Int64s, lasts: Int64s) -> bool:
    later = (page[1:] == page[:-1]) & (firsts[1:] >= lasts[:-1])
    return bool((later | (page[1:] > page[:-1])).all())


def encode_lists(ends: NDArray[np.signedinteger], bounds: Int64s) -> tuple[pa.Buffer, Int64s]:
    """Offsets of the pages between ``bounds``, each from 0 on, and the position of each page."""
    counts = np.diff(bounds) + 1
    starts = np.cumsum(counts) - counts
    within = np.arange(int(counts.sum())) - np.repeat(starts, counts)
    offsets = ends[np.repeat(bounds[:-1], counts) + within]
    offsets -= np.repeat(ends[bounds[:-1]], counts)
    return as_buffer(offsets), starts * offsets.itemsize
