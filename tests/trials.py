"""How many examples tests draw that need others than the profiles of hypothesis say."""

from __future__ import annotations

from hypothesis import settings

__all__ = ["of_all", "trials"]


def trials(many: int) -> int:
    """A quarter of ``many`` for a pull request, and 50 times as many in ``make nightly``."""
    return max(1, many * settings().max_examples // 40)


def of_all(many: int) -> int:
    """A third of ``many`` for a pull request, and all in ``make nightly``."""
    return many if settings().max_examples >= 100 else -(-many // 3)
