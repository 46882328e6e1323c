"""Few rows of mapped files, with as little around their decoding as possible.

That is possible for rows of one fragment with one page for each column, and for fragments that
takes before have joined; all others are taken as ``glaive.scan.take`` does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pyarrow as pa

from glaive.arrow.buffers import distinct
from glaive.errors import CapacityError, CorruptFileError
from glaive.scan.metrics import NOBODY, Meter
from glaive.scan.views import BoundProjection
from glaive.types import Int64s

if TYPE_CHECKING:
    from glaive.scan.joined import JoinedFragments

__all__ = ["take_few"]

_MOST_ROWS: Final = 1024
"""Rows from which on a take is worth more around it: threads, and bulk reads."""


def take_few(
    source: BoundProjection, fragments: Int64s, rows: Int64s, meter: Meter | None = None
) -> list[pa.Array] | None:
    """Physical rows of fragments given by position, in this order, one array per column.

    None where takes have to work out first how they read these rows, or somebody asks for figures.
    """
    few = 0 < len(rows) < _MOST_ROWS and source.projection.outputs
    if not few or not (meter is None or meter is NOBODY):
        return None
    joined = source.joined_before()
    try:
        if joined is None:
            first = fragments.item(0)
            bound = source.fragment(first)
            if not bound.mapped or bound.has_many_pages or not bool((fragments == first).all()):
                return None
            # So that its files are looked at now and then, and not for each take.
            joined = source.joined([first])
            if joined is None:
                return source.for_taking(first, rows).take(rows)
        return _take_joined(joined, fragments, rows)
    except CapacityError as error:
        NOBODY.fallback("take of few rows", "values beyond one array", error)
    except CorruptFileError as error:  # a page alone says more
        NOBODY.fallback("take of few rows", "a file is damaged", error)
    return None


def _take_joined(joined: JoinedFragments, fragments: Int64s, rows: Int64s) -> list[pa.Array] | None:
    """Rows of fragments that are joined; None where some are not."""
    together = joined.together
    if together is None:
        return None
    if joined.is_trusted(fragments):
        numbers = joined.numbers(fragments, rows)
        return None if numbers is None else together.take(numbers)
    positions = distinct(fragments)
    if not joined.holds(positions):
        return None
    numbers = joined.numbers(fragments, rows)
    if numbers is None or not joined.prepare(positions, numbers):
        return None
    return together.take(numbers)
