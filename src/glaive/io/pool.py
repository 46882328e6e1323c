"""Run pure work on all cores, in order, with a bounded number of waiting results."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import chain, count, islice
from threading import Condition, Lock, local
from time import perf_counter
from typing import TYPE_CHECKING, Generic, TypeVar

from glaive.config import settings
from glaive.process import Origin

if TYPE_CHECKING:
    from concurrent.futures import Future, ThreadPoolExecutor

    from glaive.io.store import ObjectStore


T = TypeVar("T")
R = TypeVar("R")


def worker_count() -> int:
    """Return the number of decoding threads: ``GLAIVE_THREADS``, else usable cores."""
    if settings.threads:
        return settings.threads
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


TASK_BYTES = 128 << 20
"""Maximum bytes of files for one task of a job; the same as Spark's for files."""

_MIN_TASK_BYTES = 4 << 20
"""Least bytes of files that are worth the start of a task."""


def task_bytes(total: float, cores: int | None = None) -> float:
    """Return the bytes for each task, so that all cores get work. Default: this machine's cores."""
    return min(TASK_BYTES, max(total / (cores or worker_count()), _MIN_TASK_BYTES))


_pools: dict[tuple[int, int], ThreadPoolExecutor] = {}


def _executor(workers: int) -> ThreadPoolExecutor:
    """Return the pool for a size and process; a forked child creates its own."""
    from concurrent.futures import ThreadPoolExecutor

    key = (os.getpid(), workers)
    pool = _pools.get(key)
    if pool is None:  # threads are started when there is work: an unused pool is free
        pool = _pools.setdefault(key, ThreadPoolExecutor(workers, thread_name_prefix="glaive"))
    return pool


class _Thread(local):
    """Whether a thread is submitting work to a pool."""

    submits = False


_this_thread = _Thread()


def submitted(
    pool: Callable[[], ThreadPoolExecutor], work: Callable[..., R], *arguments: object
) -> Future[R]:
    """Begin work on a pool. If the main thread of the program has ended, do the work here.

    After the main thread has ended, Python lets other threads continue, but refuses them new pools
    and ends the existing pools. A signal handler or finaliser may interrupt this thread while
    it submits work. It does its work itself, too, because this thread holds the lock of the pool.
    """
    if not _this_thread.submits:
        _this_thread.submits = True
        try:
            return pool().submit(work, *arguments)
        except RuntimeError as error:
            if "after" not in str(error):  # starting a thread failed; the pool has the work
                raise
        finally:
            _this_thread.submits = False
    from concurrent.futures import Future

    done: Future[R] = Future()
    try:
        done.set_result(work(*arguments))
    except BaseException as error:
        done.set_exception(error)
    return done


def ordered_map(
    work: Callable[[T], R],
    items: Iterable[T],
    *,
    ahead: int | None = None,
    workers: int | None = None,
    in_order: bool = True,
    stop: Callable[[], object] | None = None,
) -> Iterator[R]:
    """Apply ``work`` to every item on the pool; results come in the order of the items.

    When the consumer stops early or an item fails, waiting work is cancelled.
    ``work`` must not call ``ordered_map`` itself with the same number of workers: the pool's
    threads would wait for each other.

    Parameters
    ----------
    work, items
        A function, and its arguments.
    ahead
        Most items that are running or finished and waiting; by default two per worker.
    workers
        Number of threads; may exceed the number of cores if ``work`` waits for a network.
    in_order
        With ``False``, results come as they are ready.
    stop
        Function that tells running work that its results have become useless; then ``ordered_map``
        waits for all work. If it is missing, work may run on for a while, so work should only read.
    """
    source = iter(items)
    workers = workers or worker_count()
    if workers == 1:
        yield from map(work, source)
        return
    first = list(islice(source, 2))
    if len(first) < 2:  # nothing to run concurrently
        yield from map(work, first)
        return
    from concurrent.futures import FIRST_COMPLETED, wait

    begun = None if stop is None else _Begun(work)
    source, work = chain(first, source), begun or work
    waiting: deque[Future[R]] = deque()
    limit = ahead or 2 * workers
    nothing = object()
    try:
        while True:
            while len(waiting) < limit:
                item = next(source, nothing)
                if item is nothing:
                    break
                waiting.append(submitted(partial(_executor, workers), work, item))
            if not waiting:
                return
            if not in_order and not waiting[0].done():
                done = wait(waiting, return_when=FIRST_COMPLETED).done
                waiting.remove(ready := next(future for future in waiting if future in done))
                yield ready.result()
                continue
            yield waiting.popleft().result()
    finally:
        for future in waiting:
            future.cancel()
        if stop is not None and begun is not None:
            stop()
            begun.end()


class _Begun(Generic[T, R]):
    """Running work, which can be waited for even if Ctrl-C came before its future was returned."""

    def __init__(self, work: Callable[[T], R]) -> None:
        self._work = work
        self._changed = Condition()
        self._running = 0
        self._ended = False
        self._origin = Origin()

    def __call__(self, item: T) -> R:
        """Apply the work to an item."""
        with self._changed:
            if self._ended:
                raise InterruptedError("the result of this work is not needed")
            self._running += 1
        try:
            return self._work(item)
        finally:
            with self._changed:
                self._running -= 1
                self._changed.notify_all()

    def end(self) -> None:
        """Refuse further work, and wait for running work, which only the parent of a fork has."""
        if not self._origin.is_this_process:
            return
        with self._changed:
            self._ended = True
            self._changed.wait_for(lambda: not self._running)


def map_requests(
    store: ObjectStore, work: Callable[[T], R], items: Iterable[T], *, ahead: int | None = None
) -> Iterator[R]:
    """Apply ``work``, which makes a request or two to a store, to every item; results in order.

    Over a network, at most ``ahead`` items are running or finished and waiting; by default the
    limit on concurrent requests. For other stores threads would only cost time.
    """
    if not store.is_remote:
        return map(work, items)
    max_workers = settings.io_concurrency
    return ordered_map(work, items, ahead=ahead or max_workers, workers=max_workers)


_MIN_SHARED_SECONDS = 8e-3
"""Seconds of work below which waking another thread costs more than it gains.

The threads wait for the interpreter lock, and the caches of another core are cold. Two threads need
12 ms for 9 ms of work, and 14 ms of processor time.
"""


def alone(work: Callable[[T], R], items: Iterator[T]) -> Iterator[R]:
    """Apply ``work`` to items on this thread, until sharing the remaining items may pay."""
    spent = 0.0
    for item in items:
        started = perf_counter()
        result = work(item)
        spent += perf_counter() - started
        yield result
        if spent > _MIN_SHARED_SECONDS:
            return


def gather(work: Callable[[T], R], items: Iterable[T], *, workers: int | None = None) -> list[R]:
    """Apply ``work`` to every item and return all results in order.

    The calling thread works, too, and starts alone. Other threads join if the first items take
    long enough and several items remain, so cheap work avoids the cost of threads. The first
    failure is raised when all threads have finished their current item.
    """
    workers, items = workers or worker_count(), iter(items)
    first = list(alone(work, items)) if workers > 1 else []
    job = _Job(work, items)
    others = workers - 1 if workers > 1 and job.several_remain() else 0
    helpers = [submitted(partial(_executor, workers), job.run) for _ in range(others)]
    job.run()
    for helper in helpers:
        if not helper.cancel():
            helper.result()
    return first + job.results()


class _Job(Generic[T, R]):
    """Items that several threads process."""

    def __init__(self, work: Callable[[T], R], items: Iterable[T]) -> None:
        self._work = work
        self._items = iter(items)
        self._lock = Lock()
        self._numbers = count()
        self._done: dict[int, R] = {}
        self._failure: BaseException | None = None

    def step(self) -> bool:
        """Process the next item; return whether there was an item."""
        with self._lock:
            if self._failure is not None:
                return False
            try:
                item = next(self._items)
            except StopIteration:
                return False
            except BaseException as error:
                self._failure = error
                return False
            number = next(self._numbers)
        try:
            self._done[number] = self._work(item)
        except BaseException as error:
            self._failure = error
            return False
        return True

    def several_remain(self) -> bool:
        """Return whether at least two items remain; called before other threads join."""
        try:
            ahead = list(islice(self._items, 2))
        except BaseException as error:
            self._failure = error
            return False
        self._items = chain(ahead, self._items)
        return len(ahead) == 2

    def run(self) -> None:
        """Process items until all are done or one fails."""
        while self.step():
            pass

    def results(self) -> list[R]:
        """Return all results in order, or raise the failure."""
        if self._failure is not None:
            raise self._failure
        return [self._done[number] for number in range(len(self._done))]


# --- Concurrent requests, on threads that only make one request each --------------------
# So work on any pool may make several requests. If the threads of a pool waited for work that the
# same pool received later, they would wait forever.

_request_pools: dict[tuple[int, int], ThreadPoolExecutor] = {}
"""Pools by process, because a forked child lacks the threads of its parent."""


def side_by_side(request: Callable[[T], R], items: Sequence[T]) -> list[R]:
    """Return the results of ``request``, in order; this thread makes the first request.

    When a request fails, waiting requests are cancelled.
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
    if key not in _request_pools:
        from concurrent.futures import ThreadPoolExecutor

        _request_pools.setdefault(key, ThreadPoolExecutor(key[1], thread_name_prefix="glaive-http"))
    return _request_pools[key]
