"""Searches with options that were asked for before, and another query vector.

What options come to is worked out once for each version of a dataset; that takes 25 to 30 of the
200 µs of a search of ten nearest rows. An index is chosen again each time, so that the session
knows what is in use, and may let go of it.

Only options that can be compared cheaply and for certain are remembered: texts, numbers, lists of
names. With others, such as expressions, a search is made ready as any scan is.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from glaive.scan.indices import SnapshotIndices
from glaive.scan.nearest.indexed import ClosedIndex
from glaive.scan.nearest.options import query_vectors
from glaive.scan.nearest.scan import NearestScan
from glaive.scan.options import ScanOptions
from glaive.scan.ready import ready_scan
from glaive.scan.views import Views

if TYPE_CHECKING:
    from glaive.scan.query import Query
    from glaive.scan.ranked import RankedScan


_KEPT: Final = "searches"
_MAX_KEPT: Final = 64
"""Searches kept per version; beyond, all are let go."""

_PLAIN: Final = frozenset((str, int, float, bool))
"""Types of values that are equal only if they mean the same."""

_Kept: TypeAlias = tuple[NearestScan, ClosedIndex | None]

_LISTS: Final = (list, tuple)
_NAMES: Final = frozenset((str,))


def search_with(views: Views, given: Mapping[str, Any]) -> Query | RankedScan:
    """A search that is ready to run, of options with ``nearest``, as users write them.

    Raises
    ------
    OptionError
        An option has a value it cannot have, or the query does not fit the column.
    ColumnNotFoundError, FilterError
        A column does not exist, or the filter cannot be understood.
    """
    key = _key_of(given)
    if key is None:
        return ready_scan(views, ScanOptions.of(**given))
    kept: dict[object, _Kept] = views.snapshot.memo.setdefault(_KEPT, {})
    vectors = query_vectors(given["nearest"]["q"])
    known = kept.get((key, vectors.ndim))
    if known is not None:
        search, index = known
        return search.asked_again(vectors, index)
    made = ready_scan(views, ScanOptions.of(**given))
    if isinstance(made, NearestScan) and made.views is views:
        if len(kept) >= _MAX_KEPT:
            kept.clear()
        chosen = made.index
        closed = None if chosen is None else chosen.closed(SnapshotIndices.of(views.snapshot))
        kept[key, vectors.ndim] = made.without_index(), closed
    return made


def _key_of(given: Mapping[str, Any]) -> tuple[object, ...] | None:
    """What distinguishes options, but for the query; None where that is not certain."""
    nearest = given["nearest"]
    if type(nearest) is not dict or nearest.get("q") is None:
        return None
    key: list[object] = []
    for options in (given, nearest):
        for name, value in options.items():
            if value is None or name in ("nearest", "q"):
                continue
            kind = type(value)
            if kind in _PLAIN:
                key += (name, kind, value)
            elif name == "columns" and kind in _LISTS and _NAMES.issuperset(map(type, value)):
                key += (name, *value)
            else:
                return None
        key.append(None)
    return tuple(key)
