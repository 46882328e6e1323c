"""Warnings of what pylance deprecates, and glaive with it."""

from __future__ import annotations

import warnings

__all__ = ["warn_deprecated"]


def warn_deprecated(words: str, above: int = 1) -> None:
    """Warn, in pylance's words, the caller of the function ``above`` calls above this one."""
    warnings.warn(words, DeprecationWarning, stacklevel=above + 2)
