"""Warnings of what pylance deprecates, and glaive with it."""

from __future__ import annotations

import warnings

__all__ = ["warn_deprecated"]


def warn_deprecated(what: str, instead: str) -> None:
    """Warn the caller of the method that calls this one."""
    warnings.warn(f"{what} is deprecated. Use {instead} instead.", DeprecationWarning, stacklevel=3)
