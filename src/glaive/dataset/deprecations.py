"""Warnings of what pylance deprecates, and glaive with it."""

from __future__ import annotations

import warnings

__all__ = ["warn_deprecated"]


def warn_deprecated(what: str, instead: str, above: int = 1) -> None:
    """Warn the caller of the function that is ``above`` calls above this one."""
    said = f"{what} is deprecated. Use {instead} instead."
    warnings.warn(said, DeprecationWarning, stacklevel=above + 2)
