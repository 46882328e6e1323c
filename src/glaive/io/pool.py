"""Run pure work on all cores, in order, with a bounded number of results waiting."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from typing import TypeVar

from glaive.config import settings

__all__ = ["ordered_map", "worker_count"]

T = TypeVar("T")
R = TypeVar("R")


def worker_count() -> int:
    """Decoding threads: ``GLAIVE_THREADS``, else one per core this process may use."""
    if settings.threads:
        return settings.threads
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


_pool: tuple[int, ThreadPoolExecutor] | None = None


def _executor() -> ThreadPoolExecutor:
    """One pool per process; a forked child makes its own."""
    global _pool  # noqa: PLW0603  # the one pool of the process
    if _pool is None or _pool[0] != os.getpid():
        _pool = (os.getpid(), ThreadPoolExecutor(worker_count(), thread_name_prefix="glaive"))
    return _pool[1]


def ordered_map(
    work: Callable[[T], R], items: Iterable[T], *, ahead: int | None = None
) -> Iterator[R]:
    """Apply ``work`` to every item on the pool; results come in the order of the items.

    At most ``ahead`` items (default: two per worker) are under way or waiting at a time. When
    the consumer stops early or an item fails, what has not begun is cancelled.

    ``work`` must not call ``ordered_map`` itself: the pool's threads would wait for each other.
    """
    source = iter(items)
    if worker_count() == 1:
        yield from map(work, source)
        return
    first = list(islice(source, 2))
    if len(first) < 2:  # nothing to run side by side
        yield from map(work, first)
        return
    pool = _executor()
    waiting: deque[Future[R]] = deque(pool.submit(work, item) for item in first)
    limit = ahead or 2 * worker_count()
    try:
        while waiting:
            while len(waiting) < limit:
                item = next(source, None)
                if item is None:
                    break
                waiting.append(pool.submit(work, item))
            yield waiting.popleft().result()
    finally:
        for future in waiting:
            future.cancel()
