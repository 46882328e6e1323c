"""What happens to datasets, for those who listen: see :mod:`glaive.tracing`.

Targets and fields have the names of ``lance.tracing``, because programs sort events by them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

__all__ = [
    "DATASETS",
    "EXECUTION",
    "FILES",
    "INDICES",
    "anyone_listens",
    "emit",
    "listen",
    "stop_listening",
]

DATASETS: Final = "lance::dataset_events"
"""A dataset is opened, written, committed, compacted, cleaned up; or loses columns."""

EXECUTION: Final = "lance::execution"
"""A scan or a search has ended, with its figures."""

FILES: Final = "lance::file_audit"
"""A file is created or deleted."""

INDICES: Final = "lance::io_events"
"""An index is opened."""

Listener = Callable[[str, dict[str, str]], None]
"""Called with a target and the fields."""

_listeners: list[Listener] = []
_thread = threading.local()


def listen(listener: Listener) -> None:
    """Call a function with each event from now on, in the thread that it happens in."""
    _listeners.append(listener)


def stop_listening() -> None:
    """No events any more for any listener."""
    _listeners.clear()


def anyone_listens() -> bool:
    """Whether there is a listener, for events whose fields take time to find out."""
    return bool(_listeners)


def emit(target: str, **fields: object) -> None:
    """Call the listeners with an event, its fields as texts. Does nothing if there are none.

    An error of a listener is logged: it is not one of the change that the event is about. What a
    listener does itself is no event: it would be called without end. Passwords and keys in URLs
    are left out.
    """
    if not _listeners or getattr(_thread, "listens", False):
        return
    from glaive.clock import now
    from glaive.errors import GlaiveError

    public = GlaiveError.without_secrets
    texts = {name: public(str(value)) for name, value in fields.items() if value is not None}
    texts["timestamp"] = now().strftime("%Y-%m-%dT%H:%M:%SZ")
    _thread.listens = True
    try:
        for listener in _listeners[:]:
            _tell(listener, target, texts)
    finally:
        _thread.listens = False


def _tell(listener: Listener, target: str, fields: dict[str, str]) -> None:
    try:
        listener(target, fields)
    except Exception:
        import logging

        logging.getLogger("glaive.events").exception("a listener of events failed")
