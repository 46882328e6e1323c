"""Keeping what searches read of an index: the contract between opened indices and sessions."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, TypeAlias

__all__ = ["Keep", "keep_nothing"]

Keep: TypeAlias = Callable[[Hashable, Callable[[], tuple[Any, int]]], Any]
"""Returns what is kept under a key; else what the function returns, kept with its bytes."""


def keep_nothing(_key: Hashable, load: Callable[[], tuple[Any, int]]) -> Any:
    """Load it each time."""
    return load()[0]
