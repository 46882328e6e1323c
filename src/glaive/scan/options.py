"""What a scan can be told, checked once and kept as one value."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any

from glaive.errors import OptionError, UnsupportedFeatureError
from glaive.scan.projection import BlobHandling, column_names

__all__ = ["DEFAULT_BATCH_SIZE", "ScanOptions"]

DEFAULT_BATCH_SIZE = 8192
"""Rows per batch."""

_NEUTRAL: Mapping[str, Collection[object] | None] = {
    "filter": (None,),
    "nearest": (None,),
    "full_text_query": (None,),
    "order_by": (None,),
    "include_deleted_rows": (None, False),
    "index_segments": (None,),
    "prefilter": (None, False, True),
    "use_stats": (None, False, True),
    "use_scalar_index": (None, False, True),
    "fast_search": (None, False, True),
    "late_materialization": (None, False, True),
    "io_buffer_size": None,
    "scan_stats_callback": (None,),
    "disable_scoring_autoprojection": (None, False, True),
    "row_addr_allowlist": (None,),
    "row_addr_blocklist": (None,),
    "substrait_filter": (None,),
    "aggregate": (None,),
}
"""Options known elsewhere, and the values of them that ask for nothing we cannot do yet.

``None``: any value will do.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanOptions:
    """One scan.

    Parameters
    ----------
    columns
        Column paths in the order wanted, ``_rowid`` and ``_rowaddr`` among them; all columns
        when ``None``.
    limit, offset
        Rows to return and to leave out before, counted over live rows.
    batch_size
        Rows per batch, at most; batches end where fragments end.
    batch_size_bytes
        Bytes per batch, at most and about.
    strict_batch_size
        Make all batches but the last exactly ``batch_size`` rows, at the price of a copy
        where a fragment ends.
    batch_readahead
        Decoded windows waiting for the consumer, at most; by default one more than there are cores.
    fragment_readahead
        Accepted; readahead is bounded in windows, not in fragments.
    scan_in_order
        Return rows in the order of the dataset; otherwise as they become ready.
    with_row_id, with_row_address
        Add the column ``_rowid`` or ``_rowaddr`` at the end.
    fragments
        Ids of the only fragments to read, in this order.
    use_cache
        With ``False`` the scan opens files for itself: the session is neither asked nor
        filled. For scans of all there is, which would drive out what others use.
    blob_handling
        ``all_binary`` reads blob columns as large binary; ``blobs_descriptions`` and
        ``all_descriptions`` as structs that say where each value is.
    """

    columns: tuple[str, ...] | None = None
    limit: int | None = None
    offset: int = 0
    batch_size: int = DEFAULT_BATCH_SIZE
    batch_size_bytes: int | None = None
    strict_batch_size: bool = False
    batch_readahead: int | None = None
    fragment_readahead: int | None = None
    scan_in_order: bool = True
    with_row_id: bool = False
    with_row_address: bool = False
    fragments: tuple[int, ...] | None = None
    blob_handling: str = "blobs_descriptions"
    use_cache: bool = True

    @property
    def blobs(self) -> BlobHandling:
        """What ``blob_handling`` comes to."""
        return "values" if self.blob_handling == "all_binary" else "descriptions"

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
        known = _NAMES
        kept: dict[str, Any] = {}
        for name, value in given.items():
            if name not in known:
                _refuse(name, value)
            elif value is not None:
                kept[name] = value
        if "columns" in kept:
            kept["columns"] = column_names(kept["columns"])
        for name, least in _LEAST.items():
            if name in kept:
                kept[name] = _whole(name, kept[name], least)
        for name in _SWITCHES:
            if name in kept and not isinstance(kept[name], bool):
                raise OptionError(f"{name}: expected True or False, found {kept[name]!r}")
        if kept.get("blob_handling", _BLOBS[0]) not in _BLOBS:
            raise OptionError(
                f"blob_handling: expected {', '.join(_BLOBS)}, found {kept['blob_handling']!r}"
            )
        if "fragments" in kept:
            kept["fragments"] = _fragment_ids(kept["fragments"])
        return cls(**kept)

    @staticmethod
    def split(given: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        """Those keyword arguments that are scan options, and the rest."""
        of_scans = {
            name: value for name, value in given.items() if name in _NAMES | _NEUTRAL.keys()
        }
        return of_scans, {name: value for name, value in given.items() if name not in of_scans}


_BLOBS = ("all_binary", "blobs_descriptions", "all_descriptions")
_SWITCHES = (
    "strict_batch_size",
    "scan_in_order",
    "with_row_id",
    "with_row_address",
    "use_cache",
)
_NAMES = frozenset(field.name for field in fields(ScanOptions))
_LEAST = {
    "limit": 0,
    "offset": 0,
    "batch_size": 1,
    "batch_size_bytes": 1,
    "batch_readahead": 1,
    "fragment_readahead": 1,
}


def _refuse(name: str, value: object) -> None:
    if name not in _NEUTRAL:
        from difflib import get_close_matches

        close = get_close_matches(name, [*_NAMES, *_NEUTRAL], n=1)
        hint = f"; did you mean {close[0]!r}?" if close else "."
        raise OptionError(f"unknown scan option {name!r}{hint} Known: {', '.join(sorted(_NAMES))}")
    neutral = _NEUTRAL[name]
    if neutral is None or any(value is one for one in neutral) or value in ([], ()):
        return
    raise UnsupportedFeatureError(
        f"the scan option {name!r} is not supported yet (found {value!r}). Leave it out and "
        "work on the table that comes back."
    )


def _whole(name: str, value: object, least: int) -> int:
    try:
        number = value.__index__()  # type: ignore[attr-defined]  # whatever is a whole number
    except AttributeError:
        raise OptionError(f"{name}: expected a whole number ≥ {least}, found {value!r}") from None
    if number < least or isinstance(value, bool):
        raise OptionError(f"{name}: expected a whole number ≥ {least}, found {value!r}")
    return int(number)


def _fragment_ids(given: object) -> tuple[int, ...]:
    if not isinstance(given, Iterable):
        raise OptionError(f"fragments: expected a list of fragments or ids, found {given!r}")
    return tuple(_whole("fragments", getattr(one, "fragment_id", one), 0) for one in given)
