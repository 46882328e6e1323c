"""Options of streams and change feeds: names, meanings and parsing.

Those with names of their own in other sources have these names. They are taken out of the options
before the others are parsed by :mod:`glaive.spark.options`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from difflib import get_close_matches
from typing import Any, Literal

from glaive.dataclass import dataclass
from glaive.errors import OptionError
from glaive.spark.option_text import ALIASES, READERS, flag, names_of, positive, text_of

__all__ = ["StreamOptions", "stream_options"]


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamOptions:
    """Options of streams and change feeds.

    Parameters
    ----------
    starting_version
        ``startingVersion``: the first version whose changes are read; ``latest`` for those after
        the newest one. A stream without it starts with all rows of the newest version.
    starting_timestamp
        ``startingTimestamp``: the first version created at or after this point in time.
    ending_version, ending_timestamp
        ``endingVersion``, ``endingTimestamp``: the last version of a change feed that is no stream.
    read_change_feed
        ``readChangeFeed``: read changes of rows, with ``_change_type``, ``_commit_version`` and
        ``_commit_timestamp``, instead of new rows.
    preimages
        Whether a change feed has updated rows as they were before; true when omitted.
    deduplication_mode
        ``deduplicationMode``: ``netChanges`` for the difference of the two ends, in a change feed
        that is no stream; ``none`` when omitted.
    max_files, max_rows, max_bytes
        ``maxFilesPerTrigger``, ``maxRowsPerTrigger``, ``maxBytesPerTrigger``: limits of a batch.
    skip_change_commits
        ``skipChangeCommits``: leave out versions that update or delete rows; otherwise they are an
        error in a stream of new rows.
    ignore_deletes
        ``ignoreDeletes``: leave out versions that only delete rows.
    merge_keys
        Writing: update the rows that have the keys of new ones, insert the others.
    merge_order_by
        Writing with ``merge_keys``: of several rows with one key, keep the one that has the highest
        value in this column; rows of the dataset with a higher value stay as they are.
    app_id
        ``txnAppId``: name of the application; by default the id of the query, from its checkpoint.
    auto_compact_files
        Writing: compact small files after a batch, once there are so many of them.
    """

    starting_version: int | Literal["latest"] | None = None
    starting_timestamp: str | None = None
    ending_version: int | None = None
    ending_timestamp: str | None = None
    read_change_feed: bool = False
    preimages: bool = True
    deduplication_mode: Literal["none", "netChanges"] = "none"
    max_files: int | None = None
    max_rows: int | None = None
    max_bytes: int | None = None
    skip_change_commits: bool = False
    ignore_deletes: bool = False
    merge_keys: tuple[str, ...] = ()
    merge_order_by: str | None = None
    app_id: str | None = None
    auto_compact_files: int | None = None


def stream_options(options: Mapping[str, str]) -> tuple[StreamOptions, dict[str, str]]:
    """Parse the options of streams; also returns the others.

    Raises
    ------
    OptionError
        A value is invalid, or two options contradict each other.
    """
    values: dict[str, Any] = {}
    others: dict[str, str] = {}
    for key, text in options.items():
        if key.lower() in _SET_BY_SPARK:
            continue
        found = _PARSERS.get(key.lower())
        if found is None:
            _refuse_misspelt(key)
            others[key] = text
            continue
        name, parse = found
        values[name] = parse(key, text)
    for first, second in _EXCLUSIVE:
        if first in values and second in values:
            raise OptionError(f"options {_SPARK[first]} and {_SPARK[second]}: give only one")
    if "merge_order_by" in values and "merge_keys" not in values:
        raise OptionError("option merge_order_by needs merge_keys, the columns that identify a row")
    return StreamOptions(**values), others


def _refuse_misspelt(name: str) -> None:
    """Refuse a name that is nearly that of an option of streams; others are parsed elsewhere."""
    lowered = name.lower()
    if lowered in READERS or lowered in ALIASES:
        return
    for close in get_close_matches(lowered, _PARSERS, 1, _MISSPELT):
        known = _SPARK[_PARSERS[close][0]]
        raise OptionError(
            f"option {name!r} of the lance source does not exist; did you mean {known}?"
        )


def _bytes(name: str, text: str) -> int:
    from glaive.config import memory_size

    digits = text.strip()
    return memory_size(f"option {name}", int(digits) if digits.isdecimal() else digits)


def _start(name: str, text: str) -> int | str:
    return "latest" if text.strip().lower() == "latest" else positive(name, text)


def _keys(name: str, text: str) -> tuple[str, ...]:
    names = names_of(name, text)
    if len(set(names)) < len(names):
        raise OptionError(f"option {name}: expected distinct names as in 'a,b', found {text!r}")
    return names


def _mode(name: str, text: str) -> str:
    for known in ("none", "netChanges"):
        if text.strip().lower() == known.lower():
            return known
    raise OptionError(f"option {name}: expected none or netChanges, found {text!r}")


_SPARK = {
    "starting_version": "startingVersion",
    "starting_timestamp": "startingTimestamp",
    "ending_version": "endingVersion",
    "ending_timestamp": "endingTimestamp",
    "read_change_feed": "readChangeFeed",
    "preimages": "preimages",
    "deduplication_mode": "deduplicationMode",
    "max_files": "maxFilesPerTrigger",
    "max_rows": "maxRowsPerTrigger",
    "max_bytes": "maxBytesPerTrigger",
    "skip_change_commits": "skipChangeCommits",
    "ignore_deletes": "ignoreDeletes",
    "merge_keys": "merge_keys",
    "merge_order_by": "merge_order_by",
    "app_id": "txnAppId",
    "auto_compact_files": "auto_compact_files",
}
"""What users write for each parameter."""

_READERS: dict[str, Callable[[str, str], object]] = {
    "starting_version": _start,
    "starting_timestamp": text_of,
    "ending_version": positive,
    "ending_timestamp": text_of,
    "read_change_feed": flag,
    "preimages": flag,
    "deduplication_mode": _mode,
    "max_files": positive,
    "max_rows": positive,
    "max_bytes": _bytes,
    "skip_change_commits": flag,
    "ignore_deletes": flag,
    "merge_keys": _keys,
    "merge_order_by": text_of,
    "app_id": text_of,
    "auto_compact_files": positive,
}

_PARSERS = {_SPARK[name].lower(): (name, parse) for name, parse in _READERS.items()}

_MISSPELT = 0.85
"""How alike two names are of which one is taken for the other misspelt, of at most 1."""

_SET_BY_SPARK = frozenset({"queryname"})
"""Keys that Spark adds to the options of a sink, besides those it adds everywhere."""

_EXCLUSIVE = (
    ("starting_version", "starting_timestamp"),
    ("ending_version", "ending_timestamp"),
)
