"""Requests side by side, on threads that make one request each and wait for nothing else.

So work on any pool may ask for several: a pool whose threads wait for work that the same pool was
given later would wait without end.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

from glaive.config import settings
from glaive.io.pool import submitted

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

__all__ = ["side_by_side"]

T = TypeVar("T")
R = TypeVar("R")

_pools: dict[tuple[int, int], ThreadPoolExecutor] = {}
"""By process: a forked child has no threads."""


def side_by_side(request: Callable[[T], R], items: Sequence[T]) -> list[R]:
    """Results of ``request``, which makes one, in order; the first is made by this thread.

    When one fails, those that have not begun are cancelled.
    """
    if not items:
        return []
    others = [submitted(_threads, request, one) for one in items[1:]]
    try:
        return [request(items[0]), *(one.result() for one in others)]
    finally:
        for one in others:
            one.cancel()


def _threads() -> ThreadPoolExecutor:
    key = (os.getpid(), settings.io_concurrency)
    if key not in _pools:
        from concurrent.futures import ThreadPoolExecutor

        _pools.setdefault(key, ThreadPoolExecutor(key[1], thread_name_prefix="glaive-http"))
    return _pools[key]
