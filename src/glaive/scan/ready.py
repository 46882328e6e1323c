"""Scans of every kind, made ready to run: scans of rows, and searches."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast

from glaive.scan.options import ScanOptions
from glaive.scan.query import Query, make_query
from glaive.scan.views import Views

if TYPE_CHECKING:
    from glaive.scan.nearest.indexed import ClosedIndex
    from glaive.scan.nearest.options import NearestOptions
    from glaive.scan.nearest.scan import NearestScan
    from glaive.scan.ranked import RankedScan


def ready_scan(views: Views, options: ScanOptions, *, counting: bool = False) -> Query | RankedScan:
    """Make a scan of any kind ready to run: a scan of rows, or a search; see :func:`make_query`."""
    if options.nearest is None and options.full_text_query is None:
        return make_query(views, options, counting=counting)
    if not options.use_cache or options.scan_stats_callback is not None:
        views = Views(views.snapshot.private(shares_indices=options.use_cache))
    if options.full_text_query is not None:
        from glaive.scan.text_search import FullTextScan

        return FullTextScan.of(views, options, options.full_text_query)
    from glaive.scan.nearest.options import MinHashQuery

    if isinstance(options.nearest, MinHashQuery):
        from glaive.scan.nearest.minhash_scan import MinHashScan

        return MinHashScan.of(views, options, options.nearest)
    from glaive.scan.nearest.scan import NearestScan

    return NearestScan.of(views, options, cast("NearestOptions", options.nearest))


# --- Repeated searches: the same options with another query vector ----------------------
# Options are checked once for each version of a dataset. Each search chooses the index again, so
# that the session knows the entries in use.
#
# Only options that are cheap and safe to compare are remembered: strings, numbers and lists of
# names. Searches with other options, such as expressions, are prepared like any scan.

_CACHE_KEY: Final = "searches"
_MAX_KEPT: Final = 64
"""Searches kept for a version. With one more, all are dropped."""

_PLAIN: Final = frozenset((str, int, float, bool))
"""Types of values that are equal only if they mean the same."""

_Kept: TypeAlias = "tuple[NearestScan, ClosedIndex | None]"

_LISTS: Final = (list, tuple)
_NAMES: Final = frozenset((str,))


def search_with(views: Views, given: Mapping[str, Any]) -> Query | RankedScan:
    """Make a search ready to run, from options with ``nearest``, as users write them.

    Raises
    ------
    OptionError
        An option has an invalid value, or the query does not fit the column.
    ColumnNotFoundError, FilterError
        A column is missing, or the filter is invalid.
    """
    key = _key_of(given)
    if key is None:
        return ready_scan(views, ScanOptions.of(**given))
    kept: dict[object, _Kept] = views.snapshot.memo.setdefault(_CACHE_KEY, {})
    known = kept.get(key)
    if known is not None:
        search, index = known
        return search.with_query(given["nearest"]["q"], index)
    from glaive.scan.indices import SnapshotIndices
    from glaive.scan.nearest.scan import NearestScan

    made = ready_scan(views, ScanOptions.of(**given))
    if isinstance(made, NearestScan) and made.views is views:
        if len(kept) >= _MAX_KEPT:
            kept.clear()
        chosen = made.index
        closed = None if chosen is None else chosen.closed(SnapshotIndices.of(views.snapshot))
        kept[key] = replace(made, index=None), closed  # the opened index may go
    return made


def _key_of(given: Mapping[str, Any]) -> tuple[object, ...] | None:
    """Return the options and the dimensions of an array as query, as a key.

    ``None`` if some options are expensive to compare.
    """
    nearest = given["nearest"]
    if type(nearest) is not dict or nearest.get("q") is None:
        return None
    key: list[object] = [getattr(nearest["q"], "ndim", None)]
    for options in (given, nearest):
        for item in options.items():
            name, value = item
            kind = type(value)
            if kind in _PLAIN:
                key += (kind, item)
            elif value is None or name in ("nearest", "q"):
                continue
            elif name == "columns" and kind in _LISTS and _NAMES.issuperset(map(type, value)):
                key.append(tuple(value))
            else:
                return None
        key.append(None)
    return tuple(key)
