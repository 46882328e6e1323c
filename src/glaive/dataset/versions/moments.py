"""Points in time and durations as users write them."""

from __future__ import annotations

from datetime import datetime, timedelta

from glaive.errors import OptionError

__all__ = ["sanitize_ts", "td_to_micros"]


def sanitize_ts(ts: object) -> datetime:
    """A point in time as a ``datetime``.

    Parameters
    ----------
    ts
        A ``datetime`` (also pandas' ``Timestamp``), or a text in ISO format.

    Raises
    ------
    OptionError
        It is no point in time.
    """
    if isinstance(ts, str):
        try:
            return datetime.fromisoformat(ts)
        except ValueError as error:
            raise OptionError(f"Failed to parse timestamp string {ts}: {error}") from error
    if hasattr(ts, "to_pydatetime"):
        ts = ts.to_pydatetime()
    if not isinstance(ts, datetime):
        raise OptionError(f"Unrecognized version timestamp {ts} of type {type(ts).__name__}")
    return ts


def td_to_micros(td: timedelta) -> int:
    """Microseconds of a duration."""
    return td // timedelta(microseconds=1)
