"""The options of a scan, checked once and kept as one value."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field
from functools import partial
from threading import Lock
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any, Final

from glaive.config import default_batch_size
from glaive.dataclass import dataclass
from glaive.errors import OptionError, UnsupportedFeatureError
from glaive.io.store import IoCounters, IOStats
from glaive.options import SWITCH, Kind, TypedDict, integer, kinds_of, option, shows
from glaive.scan.projection import BlobHandling, Columns, column_names

if TYPE_CHECKING:
    from glaive.scan.nearest.options import MinHashQuery, NearestOptions
    from glaive.scan.run.compare import ColumnOrdering
    from glaive.scan.text_queries import FullTextQuery


# --- What a scan did: time and rows per step, requests and bytes ------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanStatistics:
    """Figures of one scan, handed to ``scan_stats_callback`` when it has ended.

    Parameters
    ----------
    iops, requests
        Reads before and after near ones were joined; both count joined ones here.
    bytes_read
        Bytes requested.
    indices_loaded, parts_loaded
        Indices that were opened, also to ask what they would find, and parts of them that were
        read; 0 where they were kept from another search, or by ``prewarm_index``.
    index_comparisons
        Entries of indices that were compared with the filter or the query.
    index_cache_hits, index_cache_misses
        Lookups in the session's cache of indices.
    all_counts
        Rows and fragments per step; and ``fallbacks``, how often a quicker way was tried and
        given up, in all and by reason.
    all_times
        Nanoseconds per step, summed over threads.
    """

    iops: int = 0
    requests: int = 0
    bytes_read: int = 0
    indices_loaded: int = 0
    parts_loaded: int = 0
    index_comparisons: int = 0
    index_cache_hits: int = 0
    index_cache_misses: int = 0
    all_counts: dict[str, int] = field(default_factory=dict)
    all_times: dict[str, int] = field(default_factory=dict)


_NOTHING: Final = IOStats()


class Figures(dict[str, int]):
    """Figures by name, 0 where there is none: a ``Counter`` takes longer to make than to use."""

    __slots__ = ()

    def __missing__(self, name: str) -> int:
        return 0


class Meter:
    """Sums up figures by name. Threads may share one."""

    __slots__ = ("_lock", "counts", "reads", "times")

    def __init__(self) -> None:
        self.counts, self.times = Figures(), Figures()
        self.reads: dict[tuple[str, str], int] = {}
        self._lock = Lock()

    def count(self, name: str, number: int) -> None:
        """Add to a count."""
        with self._lock:
            self.counts[name] += number

    def fallback(self, path: str, reason: str, error: Exception | None = None) -> None:
        """Count that a quicker way was tried and given up, and why.

        Parameters
        ----------
        path
            What was tried.
        reason
            Few different ones: each is a count of its own.
        error
            What happened, for the log.
        """
        with self._lock:
            self.counts["fallbacks"] += 1
            self.counts[f"fallbacks, {path}: {reason}"] += 1
        _log_fallback(path, reason, error)

    def step(self, name: str, counters: IoCounters | None = None) -> Step:
        """Add the time that a block takes, and what is read of a store meanwhile."""
        return Step(self, name, counters)

    def spend(self, name: str, nanoseconds: int, iops: int = 0, size: int = 0) -> None:
        """Add to the time of a step, and to its reads."""
        with self._lock:
            self.times[name] += nanoseconds
            if iops:
                for kind, number in (("iops", iops), ("bytes", size)):
                    self.reads[name, kind] = self.reads.get((name, kind), 0) + number


class Step:
    """A block whose time is added to that of a step. Used once."""

    __slots__ = ("_before", "_counters", "_meter", "_name", "_started")

    def __init__(self, meter: Meter, name: str, counters: IoCounters | None = None) -> None:
        self._meter, self._name, self._counters = meter, name, counters

    def __enter__(self) -> None:
        self._before = _NOTHING if self._counters is None else self._counters.snapshot()
        self._started = perf_counter_ns()

    def __exit__(self, *_error: object) -> None:
        spent, before = perf_counter_ns() - self._started, self._before
        after = before if self._counters is None else self._counters.snapshot()
        size = after.read_bytes - before.read_bytes
        self._meter.spend(self._name, spent, after.read_iops - before.read_iops, size)


class _NoStep(Step):
    """A block whose time nobody asks for. Used any number of times, by any thread."""

    __slots__ = ()

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_error: object) -> None:
        pass


class UnreadMeter(Meter):
    """A meter whose figures nobody reads: it keeps none, so that all scans may share one."""

    __slots__ = ("_step",)

    def __init__(self) -> None:
        super().__init__()
        self._step = _NoStep(self, "")

    def count(self, name: str, number: int) -> None:
        """Add nothing."""

    def spend(self, name: str, nanoseconds: int, iops: int = 0, size: int = 0) -> None:
        """Add nothing."""

    def step(self, name: str, counters: IoCounters | None = None) -> Step:
        """A block that is not timed."""
        return self._step

    def fallback(self, path: str, reason: str, error: Exception | None = None) -> None:
        """Only log that a quicker way was tried and given up."""
        _log_fallback(path, reason, error)


UNREAD_METER: Final = UnreadMeter()
"""The meter of scans of which no figures are asked for."""


def _log_fallback(path: str, reason: str, error: Exception | None) -> None:
    import logging

    logging.getLogger("glaive.scan").debug(
        "%s: %s; reading the general way", path, reason, exc_info=error
    )


_ROW_ADDRESSES = "a filter chooses rows by their addresses: filter='_rowaddr IN (0, 7)'"
_REFUSED = {
    "index_segments": "searches use all segments of an index, and rows in none. Leave it out",
    "row_addr_allowlist": _ROW_ADDRESSES,
    "row_addr_blocklist": _ROW_ADDRESSES.replace("IN", "NOT IN"),
    "aggregate": "aggregate the table that comes back, or use dataset.sql(…)",
}
"""Options of pylance that scans do not have, and the way round."""


_BLOBS: Mapping[str, BlobHandling] = {
    "all_binary": "values",
    "blobs_descriptions": "descriptions",
    "all_descriptions": "descriptions",
}
_ROW = integer(0)
_BATCH = f"batch_size must be between 1 and {2**32 - 1}, got {{}}: "


def _one_filter(source: Any) -> object:
    """The filter on values, where it is given together with one that searches an index."""
    if isinstance(source, str) or not isinstance(source, Mapping):
        return source
    unknown = sorted(f"{key!s:.80}" for key in set(source) - {"expr_filter", "search_filter"})
    if unknown:
        raise OptionError(
            f"filter: expected the keys expr_filter and search_filter, found {unknown[:10]}"
        )
    if source.get("search_filter") is not None:
        raise UnsupportedFeatureError(
            "filter: 'search_filter' is not supported. Give the search as nearest= or "
            "full_text_query=, beside the filter."
        )
    return source.get("expr_filter")


def _fragment_ids(given: object) -> tuple[int, ...]:
    if not isinstance(given, Iterable):
        raise TypeError(given)
    return tuple(_ROW.check("fragments", getattr(entry, "fragment_id", entry)) for entry in given)


def _row_range(given: Any) -> tuple[int, int]:
    start, stop = (_ROW.check("range_before", row) for row in given)
    return start, max(start, stop)


def _nearest(given: object) -> NearestOptions | MinHashQuery:
    from glaive.scan.nearest.options import NearestOptions, minhash_query_of

    return minhash_query_of(given) or NearestOptions.of(given)


def _full_text_query(given: object) -> FullTextQuery:
    from glaive.scan.text_queries import full_text_query_of

    return full_text_query_of(given)


def _order(given: Any) -> tuple[ColumnOrdering, ...]:
    from glaive.scan.run.compare import orderings

    return orderings(given)


def _late(given: Any) -> bool | tuple[str, ...]:
    if isinstance(given, bool):
        return given
    listed = isinstance(given, Iterable) and not isinstance(given, str)
    names = tuple(given) if listed else (None,)
    if not all(isinstance(name, str) for name in names):
        raise TypeError(given)
    return names


def _blob_handling(given: object) -> object:
    if not isinstance(given, str) or given not in _BLOBS:
        raise OptionError(
            f"Invalid blob_handling: {given!s:.80}. Expected one of: {', '.join(sorted(_BLOBS))}"
        )
    return given


def _callback(given: object) -> object:
    if not callable(given):
        raise OptionError(
            f"Callback must be callable: scan_stats_callback: expected a function, found {given!r}"
        )
    return given


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanOptions:
    """One scan.

    Parameters
    ----------
    columns
        Column paths in the order wanted, or a mapping of names to SQL expressions; all
        columns when ``None``. ``_rowid``, ``_rowaddr``, ``_rowoffset``,
        ``_row_created_at_version`` and ``_row_last_updated_at_version`` are columns, too.
    filter
        Rows to return: SQL text, an expression of pyarrow, or Substrait bytes.
    limit, offset
        Rows to return and to leave out before, counted over live rows that pass the filter.
    order_by
        Columns to sort by: names, or :class:`glaive.ColumnOrdering`. Equal rows stay in the
        order of the dataset. With ``limit``, memory holds so many rows, else the result.
    batch_size
        Rows per batch, at most; batches end where fragments end. By default
        ``LANCE_DEFAULT_BATCH_SIZE``, or 8192.
    batch_size_bytes
        Bytes per batch, at most and about.
    strict_batch_size
        Make all batches but the last exactly ``batch_size`` rows, at the price of a copy
        where a fragment ends.
    batch_readahead
        Decoded windows waiting for the consumer, at most; by default one more than there are cores.
    fragment_readahead
        Fragments opened before they are read, at most, where files must be fetched.
    io_buffer_size
        Bytes of fetched windows under way, about; of mapped files nothing is held.
    scan_in_order
        Return rows in the order of the dataset; otherwise as they become ready.
    with_row_id, with_row_address
        Add the column ``_rowid`` or ``_rowaddr`` at the end.
    include_deleted_rows
        Return deleted rows as well, their ``_rowid`` and ``_rowaddr`` null; needs
        ``with_row_id``.
    late_materialization
        Whether columns that the filter does not need are read row by row: ``True``,
        ``False``, or a list of those that are. By default what fewer rows passing makes
        quicker, measured window by window.
    use_stats
        Look at statistics in the files, to leave out pages.
    use_scalar_index
        Whether indices on columns of the filter are searched: ``True``, ``False``, or by default
        where that is quicker than to look at the rows.
    scan_stats_callback
        Called with :class:`glaive.scan.options.ScanStatistics` when the scan has ended. The
        scan then counts its requests, and opens files for itself.
    fragments
        Ids of the only fragments to read, in this order.
    range_before
        First and last (excluded) of the rows to look at, counted over live rows of the
        fragments before the filter. For those who share a scan among several workers.
    use_cache
        With ``False`` the scan opens files for itself: the session is neither asked nor
        filled. For scans of all there is, which would drive out what others use.
    blob_handling
        ``all_binary`` reads blob columns as large binary; ``blobs_descriptions`` and
        ``all_descriptions`` as structs that say where each value is.
    nearest
        Return the rows whose vectors are nearest to a query, by distance: a mapping that
        :class:`glaive.scan.nearest.options.NearestOptions` documents; or a
        :class:`glaive.query.MinHashQuery`, for the texts that are most like another.
    full_text_query
        Return the rows whose texts match a query, the best first: a text, a mapping with ``query``
        and ``columns``, or a query of :mod:`glaive.query`.
    prefilter
        Search among the rows that pass the filter; otherwise the filter is applied to those
        found, of which fewer may remain.
    fast_search
        Leave out rows that no index covers: that of a search; and those that answer terms of the
        filter, if there are any, unless it is applied to what a search has found.
    disable_scoring_autoprojection
        Return the distance, or the score, only if ``columns`` names it.
    """

    columns: Columns | None = option(Kind("names", column_names))
    filter: object = option(Kind("a filter", _one_filter))
    limit: int | None = option(integer(0, beyond="Limit must be non-negative: "))
    offset: int = option(integer(0, beyond="Offset must be non-negative: "), 0)
    order_by: tuple[ColumnOrdering, ...] = option(Kind("names", _order), ())
    batch_size: int = field(
        default_factory=default_batch_size, metadata={"kind": integer(1, beyond=_BATCH)}
    )
    batch_size_bytes: int | None = option(integer(1))
    strict_batch_size: bool = option(SWITCH, default=False)
    batch_readahead: int | None = option(
        integer(1, beyond="batch_readahead must be greater than 0: ")
    )
    fragment_readahead: int | None = option(integer(0))
    scan_in_order: bool = option(SWITCH, default=True)
    with_row_id: bool = option(SWITCH, default=False)
    with_row_address: bool = option(SWITCH, default=False)
    include_deleted_rows: bool = option(SWITCH, default=False)
    late_materialization: bool | tuple[str, ...] | None = option(
        Kind("True, False or a list of names", _late)
    )
    use_stats: bool = option(SWITCH, default=True)
    use_scalar_index: bool | None = option(SWITCH)
    io_buffer_size: int | None = option(integer(0))
    scan_stats_callback: Callable[[ScanStatistics], object] | None = option(
        Kind("a function", _callback)
    )
    fragments: tuple[int, ...] | None = option(Kind("a list of fragments or ids", _fragment_ids))
    range_before: tuple[int, int] | None = option(Kind("first and last row", _row_range))
    blob_handling: str = option(Kind("", _blob_handling), "blobs_descriptions")
    use_cache: bool = option(SWITCH, default=True)
    nearest: NearestOptions | MinHashQuery | None = option(Kind("a mapping", _nearest))
    full_text_query: FullTextQuery | None = option(Kind("a text", _full_text_query))
    prefilter: bool = option(SWITCH, default=False)
    fast_search: bool = option(SWITCH, default=False)
    disable_scoring_autoprojection: bool = option(SWITCH, default=False)

    @property
    def blobs(self) -> BlobHandling:
        """What ``blob_handling`` comes to."""
        return _BLOBS.get(self.blob_handling, "logical")

    def windows_ahead(self, size: int, *, mapped: bool) -> int | None:
        """Windows of ``size`` bytes that may be under way; None where nothing was said."""
        if self.batch_readahead is not None or self.io_buffer_size is None or mapped:
            return self.batch_readahead
        return max(1, self.io_buffer_size // size)

    @classmethod
    def of(cls, **given: Any) -> ScanOptions:
        """Check keyword arguments as users write them; ``None`` means the default.

        Raises
        ------
        OptionError
            An option does not exist or has a value it cannot have.
        UnsupportedFeatureError
            An option of Lance that this version does not know how to serve.
        """
        known = _KINDS
        kept: dict[str, Any] = {}
        if given.get("substrait_filter") is not None:
            if given.get("filter") is not None:
                raise OptionError("filter and substrait_filter: give one of them")
            given["filter"] = given["substrait_filter"]
        given.pop("substrait_filter", None)
        for name, value in given.items():
            if name not in known:
                _refuse(name, value)
            elif value is not None:
                kept[name] = known[name].check(name, value)
        _check_together(kept)
        return cls(**kept)

    @staticmethod
    def split(given: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        """Those keyword arguments that are scan options, and the rest."""
        of_scans = {name: value for name, value in given.items() if name in _KNOWN}
        return of_scans, {name: value for name, value in given.items() if name not in of_scans}


TO_WRITE_AGAIN = "logical"
"""``blob_handling`` of rows that are written again, which users cannot ask for."""
_RANKED = {"nearest": "a nearest neighbor search", "full_text_query": "an FTS search"}
_KINDS = kinds_of(ScanOptions)
_KNOWN = {*_KINDS, *_REFUSED, "substrait_filter"}


def _check_together(kept: dict[str, Any]) -> None:
    """Check which options are given together."""
    if kept.get("strict_batch_size") and "batch_size_bytes" in kept:
        raise OptionError(
            "strict_batch_size and batch_size_bytes: batches of so many rows may have more "
            "bytes. Leave one of them out."
        )
    if kept.get("include_deleted_rows") and "range_before" in kept:
        raise OptionError(
            "range_before and include_deleted_rows: the range is of live rows. "
            "Leave one of them out."
        )
    searches = [name for name in _RANKED if name in kept]
    for name in searches:
        if kept.get("include_deleted_rows"):
            raise OptionError(
                f"Cannot include deleted rows in {_RANKED[name]}: {name} and "
                "include_deleted_rows cannot be combined. Leave one of them out."
            )
        if name != searches[-1]:
            both = f"{name} and {searches[-1]}"
            raise OptionError(f"{both} cannot be combined. Leave one of them out.")
    if kept.get("include_deleted_rows") and not kept.get("with_row_id"):
        raise OptionError(
            "include_deleted_rows is set but with_row_id is false: deleted rows are marked by "
            "null row ids. Set with_row_id."
        )


def _refuse(name: str, value: object) -> None:
    """Pass over an option that asks for nothing; raise for all others."""
    if name not in _REFUSED:
        raise OptionError(
            f"Unknown option {name}: scanner() got an unexpected keyword argument {name!r}"
            f"{OptionError.did_you_mean(name, sorted(_KNOWN))}"
        )
    if value is not None and value not in ([], ()):
        raise UnsupportedFeatureError(
            f"the scan option {name!r} is not supported (found {value!r:.80}): {_REFUSED[name]}."
        )


# --- Keyword arguments of methods that scan, for type checkers and for ``inspect.signature``


class ScanKeywords(TypedDict, total=False):
    """Options of scans beside columns, filter, limit and offset, as users write them.

    :class:`ScanOptions` says what they mean; ``None`` is its default. The last ten need an index
    or change nothing without one.
    """

    order_by: Sequence[str | ColumnOrdering] | None
    batch_size: int | None
    batch_size_bytes: int | None
    strict_batch_size: bool | None
    batch_readahead: int | None
    fragment_readahead: int | None
    scan_in_order: bool | None
    with_row_id: bool | None
    with_row_address: bool | None
    include_deleted_rows: bool | None
    late_materialization: bool | Sequence[str] | None
    use_stats: bool | None
    io_buffer_size: int | None
    scan_stats_callback: Callable[[ScanStatistics], object] | None
    fragments: Iterable[object] | None
    range_before: Sequence[int] | None
    blob_handling: str | None
    use_cache: bool | None
    substrait_filter: bytes | None
    nearest: object
    full_text_query: object
    index_segments: object
    row_addr_allowlist: object
    row_addr_blocklist: object
    aggregate: object
    prefilter: bool | None
    use_scalar_index: bool | None
    fast_search: bool | None
    disable_scoring_autoprojection: bool | None


class FragmentScanKeywords(ScanKeywords, total=False):
    """Options of scans of one fragment, which name limit and offset like all others."""

    limit: int | None
    offset: int | None


class HeadKeywords(ScanKeywords, total=False):
    """Options of scans of the first rows."""

    columns: Sequence[str] | Mapping[str, str] | None
    filter: object
    offset: int | None


shows_options = partial(shows, FragmentScanKeywords, ScanOptions)
"""Let a method that scans show the options of scans."""
