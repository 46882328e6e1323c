"""The options and the statistics of a scan."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import field
from functools import partial
from threading import Lock
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any, Final

from glaive.config import default_batch_size
from glaive.dataclass import NamedTuple, dataclass
from glaive.errors import OptionError, UnsupportedFeatureError
from glaive.io.store import IoCounters, IOStats
from glaive.options import NAMES, SWITCH, Kind, TypedDict, integer, kinds_of, option, shows
from glaive.process import EXECUTION, anyone_listens, emit
from glaive.scan.projection import BlobHandling, Columns, column_names

if TYPE_CHECKING:
    from glaive.scan.nearest.options import MinHashQuery, NearestOptions
    from glaive.scan.run.compare import ColumnOrdering
    from glaive.scan.snapshot import Snapshot
    from glaive.scan.text_queries import FullTextQuery


# --- Statistics of a scan: time and rows per step, requests and bytes -------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanStatistics:
    """Statistics of one scan, passed to ``scan_stats_callback`` after the scan.

    Parameters
    ----------
    iops, requests
        Number of reads. glaive counts reads after joining near ranges, in both.
    bytes_read
        Bytes requested.
    indices_loaded, parts_loaded
        Indices opened, also to estimate their selectivity, and parts of indices read. Cached and
        prewarmed indices (``prewarm_index``) count 0.
    index_comparisons
        Index entries compared with the filter or the query.
    index_cache_hits, index_cache_misses
        Lookups in the session's cache of indices.
    all_counts
        Rows and fragments per step. ``fallbacks`` counts fast paths that were tried and abandoned,
        in total and by reason.
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


class Meter:
    """A collector of counts and times by name. Thread-safe."""

    __slots__ = ("_lock", "counts", "reads", "times")

    def __init__(self) -> None:
        self.counts, self.times = Counter[str](), Counter[str]()
        self.reads: dict[tuple[str, str], int] = {}
        self._lock = Lock()

    def count(self, name: str, number: int) -> None:
        """Add to a count."""
        with self._lock:
            self.counts[name] += number

    def fallback(self, path: str, reason: str, error: Exception | None = None) -> None:
        """Count and log a fast path that was tried and abandoned.

        Parameters
        ----------
        path
            Name of the fast path.
        reason
            Short reason from a small set: each reason has its own count.
        error
            The exception that caused the fallback, for the log.
        """
        with self._lock:
            self.counts["fallbacks"] += 1
            self.counts[f"fallbacks, {path}: {reason}"] += 1
        import logging

        logging.getLogger("glaive.scan").debug(
            "%s: %s; reading the general way", path, reason, exc_info=error
        )

    def step(self, name: str, counters: IoCounters | None = None) -> AbstractContextManager[None]:
        """Return a context manager that adds the time of its block, and the reads of a store."""
        return Step(self, name, counters)

    def spend(self, name: str, nanoseconds: int, iops: int = 0, size: int = 0) -> None:
        """Add to the time and the reads of a step."""
        with self._lock:
            self.times[name] += nanoseconds
            if iops:
                for kind, number in (("iops", iops), ("bytes", size)):
                    self.reads[name, kind] = self.reads.get((name, kind), 0) + number


class Step:
    """A context manager that adds the time of its block to a step. Use it once."""

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


class _UnreadMeter(Meter):
    """A meter that only logs."""

    __slots__ = ()

    def count(self, name: str, number: int) -> None:
        """Do nothing."""

    def step(self, name: str, counters: IoCounters | None = None) -> AbstractContextManager[None]:
        """Return a context manager that does nothing."""
        return _NO_STEP

    def spend(self, name: str, nanoseconds: int, iops: int = 0, size: int = 0) -> None:
        """Do nothing."""


_NO_STEP: Final = nullcontext()

UNREAD_METER: Final = _UnreadMeter()
"""The shared meter of scans whose statistics are unread."""


# --- Statistics of a scan or a search, for its callback ---------------------------------


class Reading(NamedTuple):
    """The counters of a store and of a cache of indices at one time."""

    store: IOStats
    indices: int
    parts: int
    hits: int
    misses: int

    @classmethod
    def of(cls, snapshot: Snapshot) -> Reading:
        """Read the counters of a version."""
        cache = snapshot.session.index_cache
        counts = cache.opened, cache.loaded, cache.hits, cache.misses
        return cls(snapshot.store.counters.snapshot(), *counts)


def report(
    snapshot: Snapshot, options: ScanOptions, meter: Meter, before: Reading, rows: int
) -> None:
    """Call ``scan_stats_callback``, if there is one; its errors are logged.

    Parameters
    ----------
    before
        The counters when the scan began.
    rows
        Rows of the result.
    """
    callback = options.scan_stats_callback
    if callback is None and not anyone_listens():
        return
    meter.count("output_rows", rows)
    figures = statistics(meter, before, Reading.of(snapshot))
    emit(
        EXECUTION,
        type="plan_run",
        output_rows=rows,
        iops=figures.iops,
        requests=figures.requests,
        bytes_read=figures.bytes_read,
        indices_loaded=figures.indices_loaded,
        parts_loaded=figures.parts_loaded,
        index_comparisons=figures.index_comparisons,
    )
    if callback is None:
        return
    import logging

    try:
        callback(figures)
    except Exception:
        logging.getLogger("glaive.scan").exception("scan_stats_callback failed")


def statistics(meter: Meter, before: Reading, after: Reading) -> ScanStatistics:
    """Return the figures between two readings of the counters."""
    reads = after.store.read_iops - before.store.read_iops
    counts = meter.counts
    return ScanStatistics(
        iops=reads,
        requests=reads,
        bytes_read=after.store.read_bytes - before.store.read_bytes,
        indices_loaded=after.indices - before.indices,
        parts_loaded=after.parts - before.parts,
        index_cache_hits=after.hits - before.hits,
        index_cache_misses=after.misses - before.misses,
        index_comparisons=counts["rows_compared"] + counts["index_comparisons"],
        all_counts=dict(counts),
        all_times=dict(meter.times),
    )


# --- The options themselves -------------------------------------------------------------

_ROW_ADDRESSES = "a filter chooses rows by their addresses: filter='_rowaddr IN (0, 7)'"
_REFUSED = {
    "index_segments": "searches use all segments of an index, and rows in none. Leave it out",
    "row_addr_allowlist": _ROW_ADDRESSES,
    "row_addr_blocklist": _ROW_ADDRESSES.replace("IN", "NOT IN"),
    "aggregate": "aggregate the table that comes back, or use dataset.sql(…)",
}
"""Options of pylance that glaive refuses, and what to do instead."""


_BLOBS: Mapping[str, BlobHandling] = {
    "all_binary": "values",
    "blobs_descriptions": "descriptions",
    "all_descriptions": "descriptions",
}
_ROW = integer(0)
_BATCH = f"batch_size must be between 1 and {2**32 - 1}, got {{}}. "


def _one_filter(source: Any) -> object:
    """Return the filter on values, also out of a mapping with ``search_filter``."""
    if isinstance(source, str) or not isinstance(source, Mapping):
        return source
    unknown = sorted(f"{key!s:.80}" for key in set(source) - {"expr_filter", "search_filter"})
    if unknown:
        raise OptionError(
            f"filter: expected the keys expr_filter and search_filter, found {unknown[:10]}. "
            "Leave out other keys."
        )
    if source.get("search_filter") is not None:
        raise UnsupportedFeatureError(
            "filter: 'search_filter' is not supported. Give the search as nearest= or "
            "full_text_query=, in addition to filter=."
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
    """The options of one scan.

    Parameters
    ----------
    columns
        Column paths in the order of the result, or a mapping of names to SQL expressions. By
        default all columns. System columns are ``_rowid``, ``_rowaddr``, ``_rowoffset``,
        ``_row_created_at_version`` and ``_row_last_updated_at_version``.
    filter
        Condition on the rows to return: a SQL string; in Python also an expression of pyarrow,
        or Substrait bytes.
    limit
        Maximum number of rows to return, counted over live rows that pass the filter.
    offset
        Number of such rows to skip.
    order_by
        Columns to sort by: names; in Python also :class:`glaive.ColumnOrdering`. Equal rows stay
        in the order of the dataset. With ``limit``, memory holds ``limit`` rows, else the result.
    batch_size
        Maximum rows per batch; a batch ends where its fragment ends. By default
        ``LANCE_DEFAULT_BATCH_SIZE``, or 8192.
    batch_size_bytes
        Approximate maximum of bytes per batch.
    strict_batch_size
        Return exactly ``batch_size`` rows in each batch except the last. This copies rows where a
        fragment ends.
    batch_readahead
        Maximum decoded windows that wait for the consumer. By default the number of cores plus 1.
    fragment_readahead
        Maximum fragments opened ahead, if files are fetched.
    io_buffer_size
        Approximate bytes of fetched windows in memory. It is ignored for mapped files.
    scan_in_order
        Return rows in the order of the dataset. ``False`` returns batches as they become ready.
    with_row_id, with_row_address
        Append the column ``_rowid`` or ``_rowaddr``.
    include_deleted_rows
        Return deleted rows as well, with null ``_rowid`` and ``_rowaddr``. Requires
        ``with_row_id``.
    late_materialization
        Read columns outside the filter only for passing rows: ``True``, ``False``, or a list of
        such columns. By default glaive chooses the faster way for each window.
    use_stats
        Skip pages by the statistics in the files.
    use_scalar_index
        Search scalar indices on columns of the filter: ``True`` or ``False``. By default glaive
        searches an index where that is faster than reading the rows.
    scan_stats_callback
        Function that the scan calls with :class:`glaive.scan.options.ScanStatistics` at its end.
        The scan then counts its requests and opens files itself.
    fragments
        Ids of the fragments to read, in order. By default all fragments.
    range_before
        First and last (exclusive) row to read, counted over live rows of the fragments before the
        filter. Use it to divide a scan among workers.
    use_cache
        With ``False`` the scan bypasses the session and opens files itself. Use it for scans of
        whole datasets, which would evict entries of other scans.
    blob_handling
        ``all_binary`` reads blob columns as large binary. ``blobs_descriptions`` and
        ``all_descriptions`` read structs with the location of each value.
    nearest
        Return the rows whose vectors are nearest to a query, by distance. Give a mapping as
        :class:`glaive.scan.nearest.options.NearestOptions` documents. Give a
        :class:`glaive.query.MinHashQuery` for the strings that are most similar to another.
    full_text_query
        Return the rows whose strings match a query, the best first: a string, a mapping with
        ``query`` and ``columns``, or a query of :mod:`glaive.query`.
    prefilter
        Apply the filter before the search. Otherwise glaive filters the rows that the search
        found, so fewer rows may remain.
    fast_search
        Skip rows that the index of the search does not cover. Skip also rows that the scalar
        indices of the filter do not cover, except if the filter runs after the search.
    disable_scoring_autoprojection
        Return the distance or the score only if ``columns`` names it.
    """

    columns: Columns | None = option(Kind("names such as 'id,text'", column_names, NAMES.text))
    filter: object = option(Kind("a filter", _one_filter))
    limit: int | None = option(integer(0, range_message="Limit must be non-negative. "))
    offset: int = option(integer(0, range_message="Offset must be non-negative. "), 0)
    order_by: tuple[ColumnOrdering, ...] = option(
        Kind("names such as 'id,text'", _order, NAMES.text), ()
    )
    batch_size: int = field(
        default_factory=default_batch_size, metadata={"kind": integer(1, range_message=_BATCH)}
    )
    batch_size_bytes: int | None = option(integer(1))
    strict_batch_size: bool = option(SWITCH, default=False)
    batch_readahead: int | None = option(
        integer(1, range_message="batch_readahead must be greater than 0. ")
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
        """How to read blobs, by ``blob_handling``."""
        return _BLOBS.get(self.blob_handling, "logical")

    def windows_ahead(self, size: int, *, mapped: bool) -> int | None:
        """Return the maximum number of windows of ``size`` bytes in memory; ``None`` by default."""
        if self.batch_readahead is not None or self.io_buffer_size is None or mapped:
            return self.batch_readahead
        return max(1, self.io_buffer_size // size)

    @classmethod
    def of(cls, **given: Any) -> ScanOptions:
        """Check keyword arguments as users write them; ``None`` means the default.

        Raises
        ------
        OptionError
            An option is unknown or has an invalid value.
        UnsupportedFeatureError
            The option exists in Lance, but glaive lacks it.
        """
        known = _KINDS
        kept: dict[str, Any] = {}
        if given.get("substrait_filter") is not None:
            if given.get("filter") is not None:
                raise OptionError("filter and substrait_filter are both given. Leave out one.")
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
        """Split keyword arguments into scan options and other arguments."""
        of_scans = {name: value for name, value in given.items() if name in _KNOWN}
        return of_scans, {name: value for name, value in given.items() if name not in of_scans}


REWRITE_BLOBS = "logical"
"""``blob_handling`` of rows to rewrite: for internal use."""
_SEARCHES = {"nearest": "a nearest neighbor search", "full_text_query": "an FTS search"}
_KINDS = kinds_of(ScanOptions)
_KNOWN = {*_KINDS, *_REFUSED, "substrait_filter"}


def _check_together(kept: dict[str, Any]) -> None:
    """Raise if two options exclude each other."""
    if kept.get("strict_batch_size") and "batch_size_bytes" in kept:
        raise OptionError(
            "strict_batch_size and batch_size_bytes: batches of batch_size rows may have more "
            "bytes. Leave out one of the options."
        )
    if kept.get("include_deleted_rows") and "range_before" in kept:
        raise OptionError(
            "range_before and include_deleted_rows: the range counts live rows. "
            "Leave out one of the options."
        )
    searches = [name for name in _SEARCHES if name in kept]
    for name in searches:
        if kept.get("include_deleted_rows"):
            raise OptionError(
                f"Cannot include deleted rows in {_SEARCHES[name]}: {name} and "
                "include_deleted_rows cannot be combined. Leave out one of the options."
            )
        if name != searches[-1]:
            both = f"{name} and {searches[-1]}"
            raise OptionError(f"{both} cannot be combined. Leave out one of the options.")
    if kept.get("include_deleted_rows") and not kept.get("with_row_id"):
        raise OptionError(
            "include_deleted_rows is set but with_row_id is false: deleted rows are marked by "
            "null row ids. Set with_row_id."
        )


def _refuse(name: str, value: object) -> None:
    """Refuse an unknown or unsupported option; ignore empty values."""
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
    """Options of scans, except columns, filter, limit and offset, as users write them.

    :class:`ScanOptions` documents them; ``None`` is the default. The last ten are for searches and
    indices.
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
    """Options of scans of one fragment, including limit and offset."""

    limit: int | None
    offset: int | None


class HeadKeywords(ScanKeywords, total=False):
    """Options of ``head``, which returns the first rows."""

    columns: Sequence[str] | Mapping[str, str] | None
    filter: object
    offset: int | None


shows_options = partial(shows, FragmentScanKeywords, ScanOptions)
"""Decorate a method that scans, so that its signature shows the options of scans."""
