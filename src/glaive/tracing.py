"""Events of glaive as they happen, under the names of ``lance.tracing``.

Events are the messages that glaive logs (see :mod:`glaive.log`); spans of single steps are not
recorded. For where the time of a scan goes, use ``scanner.analyze_plan()`` or
``scan_stats_callback``.
"""

from __future__ import annotations

import atexit
import json
import logging
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from glaive.dataclass import dataclass
from glaive.log import get_log_level

__all__ = [
    "TraceEvent",
    "capture_trace_events",
    "shutdown_tracing",
    "trace_to_chrome",
]


@dataclass(frozen=True)
class TraceEvent:
    """One event: the part of glaive it is from, its message, and that and the level as ``args``."""

    target: str
    message: str
    args: dict[str, str]


class _Handler(logging.Handler):
    """Hands log records to a function."""

    def __init__(self, receive: Callable[[logging.LogRecord], None]) -> None:
        super().__init__(get_log_level())
        self._receive = receive

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self._receive(record)
        except Exception:
            self.handleError(record)


_handlers: list[_Handler] = []


def _listen(receive: Callable[[logging.LogRecord], None]) -> None:
    handler = _Handler(receive)
    logger = logging.getLogger("glaive")
    logger.addHandler(handler)
    if logger.getEffectiveLevel() > handler.level:
        logger.setLevel(handler.level)
    _handlers.append(handler)


def capture_trace_events(callback: Callable[[TraceEvent], None]) -> None:
    """Call a function with each event, in the thread that it happens in.

    ``LANCE_LOG`` holds the lowest level. :func:`shutdown_tracing` ends it.
    """

    def receive(record: logging.LogRecord) -> None:
        message = record.getMessage()
        args = {"message": message, "level": record.levelname}
        callback(TraceEvent(record.name, message, args))

    _listen(receive)


def shutdown_tracing() -> None:
    """No events any more for functions given to :func:`capture_trace_events`; ends trace files."""
    logger = logging.getLogger("glaive")
    while _handlers:
        handler = _handlers.pop()
        logger.removeHandler(handler)
        handler.close()


def trace_to_chrome(*, file: str | os.PathLike[str] | None = None) -> None:
    """Write events to a file for ``chrome://tracing`` or Perfetto; ends with the process.

    Parameters
    ----------
    file
        Default: ``trace-<microseconds>.json`` in the current folder.
    """
    path = Path(file if file is not None else f"trace-{time.time_ns() // 1000}.json")
    out = path.open("w", encoding="utf-8")
    out.write("[")
    lock, written = threading.Lock(), 0

    def receive(record: logging.LogRecord) -> None:
        nonlocal written
        event: dict[str, Any] = {
            "name": record.getMessage(),
            "cat": record.name,
            "ph": "i",
            "ts": record.created * 1e6,
            "pid": record.process,
            "tid": record.thread,
            "s": "t",
        }
        with lock:
            if not out.closed:
                out.write(("," if written else "") + "\n" + json.dumps(event))
                written += 1

    def finish() -> None:
        with lock:
            if not out.closed:
                out.write("\n]\n")
                out.close()

    _listen(receive)
    _handlers[-1].close = finish  # type: ignore[method-assign]  # ends the file with the handler
    atexit.register(finish)
