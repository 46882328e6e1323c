"""Run pure work on all cores, in order, with a bounded number of results waiting."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
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


_pools: dict[tuple[int, int], ThreadPoolExecutor] = {}


def _executor(workers: int) -> ThreadPoolExecutor:
    """One pool per size and process; a forked child makes its own."""
    key = (os.getpid(), workers)
    if key not in _pools:
        _pools[key] = ThreadPoolExecutor(workers, thread_name_prefix="glaive")
    return _pools[key]


def ordered_map(
    work: Callable[[T], R],
    items: Iterable[T],
    *,
    ahead: int | None = None,
    workers: int | None = None,
    in_order: bool = True,
) -> Iterator[R]:
    """Apply ``work`` to every item on the pool; results come in the order of the items.

    At most ``ahead`` items (default: two per worker) are under way or waiting at a time. When
    the consumer stops early or an item fails, what has not begun is cancelled. Work that
    waits for a network takes more ``workers`` than there are cores. With ``in_order`` off,
    results come as they are ready.

    ``work`` must not call ``ordered_map`` itself with the same number of workers: the pool's
    threads would wait for each other.
    """
    source = iter(items)
    workers = workers or worker_count()
    if workers == 1:
        yield from map(work, source)
        return
    first = list(islice(source, 2))
    if len(first) < 2:  # nothing to run side by side
        yield from map(work, first)
        return
    pool = _executor(workers)
    waiting: deque[Future[R]] = deque(pool.submit(work, item) for item in first)
    limit = ahead or 2 * workers
    try:
        while waiting:
            while len(waiting) < limit:
                item = next(source, None)
                if item is None:
                    break
                waiting.append(pool.submit(work, item))
            if not in_order and not waiting[0].done():
                done = wait(waiting, return_when=FIRST_COMPLETED).done
                waiting.remove(ready := next(one for one in waiting if one in done))
                yield ready.result()
                continue
            yield waiting.popleft().result()
    finally:
        for future in waiting:
            future.cancel()
