"""Spark: sessions, frames, SQL and jobs over datasets.

:func:`session` starts Spark. :func:`read` and :func:`write` read and write frames. :func:`sql`
runs queries over datasets. ``spark.read.format("lance")`` works if glaive is installed for the
workers. Functions are loaded on first use, as Spark imports this package in every process it
starts.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from glaive.spark.api import catalog, read, read_changes, register_view
    from glaive.spark.files import ingest, load
    from glaive.spark.frame_writing import write
    from glaive.spark.lance_table.table import LanceTable
    from glaive.spark.launch import ensure_java, register, session
    from glaive.spark.statements import sql

__all__ = [
    "LanceTable",
    "catalog",
    "ensure_java",
    "ingest",
    "load",
    "read",
    "read_changes",
    "register",
    "register_view",
    "session",
    "sql",
    "write",
]

_HOMES = {
    "LanceTable": "lance_table.table",
    "catalog": "api",
    "ensure_java": "launch",
    "ingest": "files",
    "load": "files",
    "read": "api",
    "read_changes": "api",
    "register": "launch",
    "register_view": "api",
    "session": "launch",
    "sql": "statements",
    "write": "frame_writing",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    # No module here has the name of a function, as importing it would hide the function.
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
