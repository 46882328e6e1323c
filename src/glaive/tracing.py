"""Events of glaive as they happen, under the names of ``lance.tracing``.

Events report changes of datasets, files and indices, with pylance's targets and fields, and the
messages that glaive logs. To see how long the steps of a scan take, use ``scanner.analyze_plan()``
or ``scan_stats_callback``.

=========================  ====================================================================
target                     fields of ``args``
=========================  ====================================================================
``lance::dataset_events``  ``event``: ``loading``, ``writing``, ``committed``, ``compacting``,
                           ``cleaning``, ``dropping_column``; ``uri``, versions, ``operation``
``lance::file_audit``      ``mode``: ``create`` or ``delete``; ``type``: ``data``, ``deletion``,
                           ``manifest``, ``index``, ...; ``path`` below the root or its folder
``lance::io_events``       ``type``: ``open_scalar_index``, ``open_vector_index``;
                           ``index_type``, ``index_uuid``
``lance::execution``       ``type``: ``plan_run``; ``output_rows``, ``iops``, ``requests``,
                           ``bytes_read`` and other figures of a scan
``glaive....``             ``message`` and ``level`` of log messages
=========================  ====================================================================

All events except log messages have a ``timestamp``.
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
from glaive.process import fork_safe, listen, stop_listening

# --- Set-up of logging, under the names of ``lance.log`` --------------------------------
# glaive logs to the loggers ``glaive.…``, and configures no logger itself. ``LANCE_LOG`` has the
# level, as for pylance.

ENV_NAME_PYLANCE_LOGGING_LEVEL = "LANCE_LOG"

_FORMAT = "%(asctime)s %(name)s [%(levelname)s] %(filename)s:%(lineno)d %(funcName)s : %(message)s"


def get_python_log_level(rust_log_level: str) -> str:
    """Return Python's name of a level, because Python lacks ``trace``."""
    return "DEBUG" if rust_log_level.lower() == "trace" else rust_log_level


def get_log_level() -> str:
    """Return the level in ``LANCE_LOG``; ``INFO`` by default.

    Levels of single modules (``lance=debug``) are ignored.
    """
    given = os.environ.get(ENV_NAME_PYLANCE_LOGGING_LEVEL, "").upper()
    levels = [entry.strip() for entry in given.split(",") if entry.strip() and "=" not in entry]
    return get_python_log_level(levels[0]) if levels else "INFO"


LOGGER = logging.getLogger("glaive")


def set_logger(
    file_path: str | os.PathLike[str] | None = "pylance.log",
    name: str = "pylance",
    level: int = logging.INFO,
    format_string: str | None = None,
    log_handler: logging.Handler | None = None,
) -> None:
    """Write log messages of glaive to a file, or to a handler.

    Parameters
    ----------
    file_path
        The file; unused with ``log_handler``.
    name
        Another logger that gets the same handler as ``glaive``.
    level
        Lowest level to write.
    format_string
        Format for :class:`logging.Formatter`.
    log_handler
        Handler to use instead of the file.
    """
    handler = log_handler if log_handler is not None else logging.FileHandler(str(file_path))
    handler.setLevel(level)
    handler.setFormatter(logging.Formatter(format_string or _FORMAT))
    for logger in (logging.getLogger("glaive"), logging.getLogger(name)):
        logger.setLevel(level)
        logger.addHandler(handler)


@dataclass(frozen=True)
class TraceEvent:
    """An event: its target and fields, and the message if it was logged."""

    target: str
    message: str
    args: dict[str, str]

    def __repr__(self) -> str:
        return f"TraceEvent(target={self.target}, args={json.dumps(self.args)})"


class _Handler(logging.Handler):
    """Handler that passes log records to a function."""

    def __init__(self, on_record: Callable[[logging.LogRecord], None]) -> None:
        super().__init__(get_log_level())
        self._receive = on_record

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self._receive(record)
        except Exception:
            self.handleError(record)


_handlers: list[_Handler] = []
_levels: list[int] = []
"""Levels of the logger before it got the level of a handler."""


def _listen(on_record: Callable[[logging.LogRecord], None]) -> None:
    handler = _Handler(on_record)
    logger = logging.getLogger("glaive")
    logger.addHandler(handler)
    if logger.getEffectiveLevel() > handler.level:
        _levels.append(logger.level)
        logger.setLevel(handler.level)
    _handlers.append(handler)


def capture_trace_events(callback: Callable[[TraceEvent], None]) -> None:
    """Call a function with each event, in the thread of the event.

    ``LANCE_LOG`` has the lowest level. :func:`shutdown_tracing` ends the calls.
    """

    def on_record(record: logging.LogRecord) -> None:
        message = record.getMessage()
        args = {"message": message, "level": record.levelname}
        callback(TraceEvent(record.name, message, args))

    def on_event(target: str, fields: dict[str, str]) -> None:
        callback(TraceEvent(target, "", fields))

    _listen(on_record)
    listen(on_event)


def shutdown_tracing() -> None:
    """Remove all functions of :func:`capture_trace_events`, and finish trace files.

    Raises
    ------
    StoreError
        Writing the end of a trace file failed.
    """
    stop_listening()
    logger = logging.getLogger("glaive")
    while _handlers:
        handler = _handlers.pop()
        logger.removeHandler(handler)
        handler.close()
    while _levels:
        logger.setLevel(_levels.pop())


def trace_to_chrome(*, file: str | os.PathLike[str] | None = None) -> None:
    """Write events to a file for ``chrome://tracing`` or Perfetto, until the process ends.

    Parameters
    ----------
    file
        Default: ``trace-<microseconds>.json`` in the current folder.

    Raises
    ------
    StoreError
        Writing the file failed.
    """
    from glaive.io.failures import as_store_errors

    path = Path(file if file is not None else f"trace-{time.time_ns() // 1000}.json")
    with as_store_errors(str(path), "write"):
        out = path.open("w", encoding="utf-8")
    out.write("[")
    lock, written = fork_safe(threading.RLock()), 0

    def on_record(record: logging.LogRecord) -> None:
        write({"name": record.getMessage(), "cat": record.name, "ts": record.created * 1e6})

    def on_event(target: str, fields: dict[str, str]) -> None:
        name = fields.get("event") or fields.get("type", target)
        write({"name": name, "cat": target, "ts": time.time() * 1e6, "args": fields})

    def write(event: dict[str, Any]) -> None:
        nonlocal written
        event |= {"ph": "i", "s": "t", "pid": os.getpid(), "tid": threading.get_ident()}
        with lock:
            if not out.closed:
                out.write(("," if written else "") + "\n" + json.dumps(event))
                written += 1

    def finish() -> None:
        with lock:
            if not out.closed:
                with as_store_errors(str(path), "write"), out:
                    out.write("\n]\n")

    _listen(on_record)
    listen(on_event)
    _handlers[-1].close = finish  # type: ignore[method-assign]  # ends the file with the handler
    atexit.register(finish)
