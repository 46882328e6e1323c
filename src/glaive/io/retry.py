"""Repeat reads whose response broke off, waiting longer each time.

The object store client repeats requests that were refused or not answered, but not a request
whose response ends early, because by then it has passed the response on. Reads can be repeated
safely, which is done here; writes are never repeated.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from glaive.clock import sleep
from glaive.entropy import fraction

__all__ = ["is_transient", "pause", "repeating"]

T = TypeVar("T")

_FIRST_WAIT = 0.1
"""Seconds before the first repetition, at most; each further one waits up to twice as long."""

_LONGEST_WAIT = 10.0
_DOUBLINGS = 7
"""Of the first wait, until it is the longest."""
_SIGNS = (
    "body",
    "closed connection",  # of FTP, whose server ends a connection that is idle
    "connection closed",
    "connection dropped",  # of SSH, by a server that ends or is restarted
    "connection reset",
    "end of file",
    "eof",
    "incomplete",
    "protocol banner",  # of SSH: a server drops some of many connections that begin at once
    "session not active",  # of SSH, as the next line: it ended a connection that was idle
    "socket is closed",
    "timed out",
    "timeout",
)
"""Parts of lower-case error messages when a response broke off."""


def repeating(read: Callable[[], T], times: int, *, refusals: tuple[type[BaseException], ...]) -> T:
    """Return what ``read`` returns, repeating it up to ``times`` after a transient failure.

    Before repetition ``n`` it sleeps a random time of up to ``2**n`` tenths of a second, ten
    seconds at most. Other failures, and the last one, are raised unchanged.
    """
    for attempt in range(times):
        try:
            return read()
        except refusals as error:
            if not is_transient(error):
                raise
        pause(attempt)
    return read()


def pause(attempt: int) -> None:
    """Sleep before repetition ``attempt`` (from 0 on): a random part of a time that doubles."""
    sleep(fraction() * min(_LONGEST_WAIT, _FIRST_WAIT * 2 ** min(attempt, _DOUBLINGS)))


def is_transient(error: BaseException) -> bool:
    """Whether a response broke off, so that repeating the request may help."""
    if isinstance(error, FileNotFoundError | PermissionError):
        return False
    if isinstance(error, ConnectionError | EOFError | TimeoutError):
        return True
    text = str(error).lower()
    # The client has used up its own retries: more of them would only take longer.
    if "after" in text and "retries" in text:
        return False
    return any(sign in text for sign in _SIGNS)
