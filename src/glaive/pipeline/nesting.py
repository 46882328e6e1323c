"""How deep values are nested that a file of TOML or JSON has: what shows them calls itself."""

from __future__ import annotations

from typing import Any, Final

__all__ = ["MAX_LEVELS", "is_too_deep"]

MAX_LEVELS: Final = 32
"""Tables and lists within each other, at most."""


def is_too_deep(values: Any) -> bool:
    """Whether there are more levels of tables and lists within each other than there may be."""
    levels = 0
    inner: list[Any] = [values] if isinstance(values, dict | list) else []
    while inner and levels <= MAX_LEVELS:
        levels += 1
        lists = [list(table.values()) if isinstance(table, dict) else table for table in inner]
        inner = [one for items in lists for one in items if isinstance(one, dict | list)]
    return levels > MAX_LEVELS
