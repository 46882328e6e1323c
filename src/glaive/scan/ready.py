"""Scans of every kind, made ready to run: scans of rows, and searches."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from glaive.scan.options import ScanOptions
from glaive.scan.query import Query, make_query
from glaive.scan.views import Views

if TYPE_CHECKING:
    from glaive.scan.nearest.options import NearestOptions
    from glaive.scan.ranked import RankedScan


def ready_scan(views: Views, options: ScanOptions, *, counting: bool = False) -> Query | RankedScan:
    """Make a scan of any kind ready to run: a scan of rows, or a search; see :func:`make_query`."""
    if options.nearest is None and options.full_text_query is None:
        return make_query(views, options, counting=counting)
    if not options.use_cache or options.scan_stats_callback is not None:
        views = Views(views.snapshot.apart(shares_indices=options.use_cache))
    if options.full_text_query is not None:
        from glaive.scan.text_search import FullTextScan

        return FullTextScan.of(views, options, options.full_text_query)
    from glaive.scan.nearest.options import MinHashQuery

    if isinstance(options.nearest, MinHashQuery):
        from glaive.scan.nearest.minhash_scan import MinHashScan

        return MinHashScan.of(views, options, options.nearest)
    from glaive.scan.nearest.scan import NearestScan

    return NearestScan.of(views, options, cast("NearestOptions", options.nearest))
