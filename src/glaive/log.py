"""Set-up of logging, under the names of ``lance.log``.

glaive logs to the loggers ``glaive.…``, and sets up none by itself; ``LANCE_LOG`` holds the level,
as for pylance.
"""

from __future__ import annotations

import logging
import os

__all__ = [
    "ENV_NAME_PYLANCE_LOGGING_LEVEL",
    "LOGGER",
    "get_log_level",
    "get_python_log_level",
    "set_logger",
]

ENV_NAME_PYLANCE_LOGGING_LEVEL = "LANCE_LOG"

_FORMAT = "%(asctime)s %(name)s [%(levelname)s] %(filename)s:%(lineno)d %(funcName)s : %(message)s"


def get_python_log_level(rust_log_level: str) -> str:
    """Python's name of a level: it has no ``trace``."""
    return "DEBUG" if rust_log_level.lower() == "trace" else rust_log_level


def get_log_level() -> str:
    """The level in ``LANCE_LOG``, ``INFO`` if there is none.

    Levels of single modules (``lance=debug``) are left out.
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
        A logger that gets the same handler, beside ``glaive``.
    level
        Lowest level that is written.
    format_string
        Of :class:`logging.Formatter`.
    log_handler
        In place of the file.
    """
    handler = log_handler if log_handler is not None else logging.FileHandler(str(file_path))
    handler.setLevel(level)
    handler.setFormatter(logging.Formatter(format_string or _FORMAT))
    for logger in (logging.getLogger("glaive"), logging.getLogger(name)):
        logger.setLevel(level)
        logger.addHandler(handler)
