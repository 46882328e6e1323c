"""Clean up old versions every few commits, if the table's configuration enables it.

=============================== =========================================================
key                             meaning
=============================== =========================================================
``lance.auto_cleanup.interval``  number of versions between clean-ups
``….older_than``                 minimum age: ``14d``, ``1h 30m``; default: none
``….retain_versions``            number of newest versions to keep
``….delete_rate_limit``          maximum files per second, as far as a minute is enough
=============================== =========================================================

A failure is logged and does not affect the commit; the next clean-up tries again.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from datetime import timedelta
from typing import Final

from glaive.errors import GlaiveError, OptionError
from glaive.format.manifest import Manifest
from glaive.io.store import ObjectStore
from glaive.table.cleanup.old_versions import CleanupPolicy, delete_planned, plan_cleanup
from glaive.table.refs import root_store

__all__ = ["INTERVAL", "OLDER_THAN", "clean_after", "duration", "span_text"]

INTERVAL: Final = "lance.auto_cleanup.interval"
OLDER_THAN: Final = "lance.auto_cleanup.older_than"
_RETAIN: Final = "lance.auto_cleanup.retain_versions"
_RATE: Final = "lance.auto_cleanup.delete_rate_limit"

_MOST_SECONDS: Final = 60
"""Time that deleting takes at most because of a limit: a commit waits for it, and whoever made the
dataset may have written any limit into its configuration.
"""

_logger = logging.getLogger(__name__)

_PART: Final = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-zµ]*)\s*")
_DAY: Final = 86_400.0
_SECONDS: Final = {
    **dict.fromkeys(("nsec", "ns", "nanos"), 1e-9),
    **dict.fromkeys(("usec", "us", "µs", "micros"), 1e-6),
    **dict.fromkeys(("ms", "msec", "millis"), 1e-3),
    **dict.fromkeys(("", "s", "sec", "secs", "second", "seconds"), 1.0),
    **dict.fromkeys(("m", "min", "mins", "minute", "minutes"), 60.0),
    **dict.fromkeys(("h", "hr", "hrs", "hour", "hours"), 3600.0),
    **dict.fromkeys(("d", "day", "days"), _DAY),
    **dict.fromkeys(("w", "week", "weeks"), 7 * _DAY),
    **dict.fromkeys(("M", "month", "months"), 30.44 * _DAY),
    **dict.fromkeys(("y", "year", "years"), 365.25 * _DAY),
}


_UNITS: Final = (
    ("year", "years", 31_557_600), ("month", "months", 2_630_016), ("day", "days", 86_400),
    ("h", "h", 3_600), ("m", "m", 60), ("s", "s", 1),
)  # fmt: skip


def duration(text: str) -> timedelta:
    """A time span such as ``14d`` or ``1h 30m``; a number alone is seconds.

    Raises
    ------
    OptionError
        The text is no time span.
    """
    at, seconds = 0, 0.0
    while at < len(text):
        part = _PART.match(text, at)
        if part is None or part[2] not in _SECONDS:
            raise OptionError(f"expected a time span such as 14d or 1h 30m, found {text!r:.80}")
        seconds += float(part[1]) * _SECONDS[part[2]]
        at = part.end()
    if not text.strip():
        raise OptionError("expected a time span such as 14d or 1h 30m, found an empty string")
    try:
        return timedelta(seconds=seconds)
    except OverflowError:
        raise OptionError(f"the time span {text!r:.80} is too long") from None


def span_text(seconds: int) -> str:
    """A time span as pylance writes it: the whole units, the largest first; ``1h 30m``."""
    parts = []
    for name, plural, size in _UNITS:
        count, seconds = divmod(seconds, size)
        if count:
            parts.append(f"{count}{plural if count > 1 else name}")
    return " ".join(parts) or "0s"


def clean_after(store: ObjectStore, before: Manifest, made: Manifest) -> None:
    """Clean up if it is due, given the new version and the previous one.

    The previous version is kept, too, as it may be in use.
    """
    config: Mapping[str, str] = made.config
    try:
        interval = int(config[INTERVAL])
        if interval > 0 and made.version % interval:  # as pylance: 0 is every version
            return
        retain = config.get(_RETAIN)
        policy = CleanupPolicy(
            older_than=duration(config.get(OLDER_THAN, "0s")),
            retain_versions=None if retain is None else int(retain),
            error_if_tagged=False,
        )
        root = root_store(store, before.wire.branch or None)
        rate = int(config[_RATE]) if _RATE in config else None
        if rate is not None and rate < 1:
            raise OptionError(f"{_RATE} must be greater than 0, got {rate}")
        plan = plan_cleanup(store, root, before, policy)
        if rate is not None:
            rate = max(rate, len(plan.files) // _MOST_SECONDS)
        delete_planned(store, plan, rate=rate)
    except (GlaiveError, ValueError) as error:
        _logger.warning("old versions of %s were not cleaned up: %s", store.public_uri, error)
