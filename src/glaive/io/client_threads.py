"""Threads of the client of buckets, which a fork does not copy.

obstore makes requests with threads that it starts at the first one and never again. A child that is
forked afterwards would wait for them without end, in every request to any bucket, so it gets an
error. One that is forked before has its own.
"""

from __future__ import annotations

import os

from glaive.errors import StoreError

__all__ = ["require_client_threads"]


class _Threads:
    """Whether this process, or one that it was forked from, has started them."""

    started = False
    left_behind = False


def require_client_threads(uri: str, *, is_remote: bool) -> None:
    """Note that a request begins; what is in the memory of this process needs no thread for it.

    Raises
    ------
    StoreError
        The threads are those of another process.
    """
    _Threads.started = True
    if _Threads.left_behind and is_remote:
        raise StoreError(
            f"cannot reach {uri}: this process was forked from one that had made requests to a "
            "bucket, and the client's threads (obstore) stayed there. Start processes by "
            "'forkserver' or 'spawn' (multiprocessing_context='forkserver' of a DataLoader), or "
            "fork before the first request."
        )


def _after_fork() -> None:
    _Threads.left_behind = _Threads.started


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
