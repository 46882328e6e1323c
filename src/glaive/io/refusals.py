"""What the client of object stores raises where a request fails."""

from __future__ import annotations

from obstore.exceptions import BaseError

from glaive.io.failures import PANIC

__all__ = ["refusals"]


def refusals() -> tuple[type[BaseException], ...]:
    """The classes of its errors, for an ``except``, which asks when there is one.

    The client panics at answers that no server should give, such as an error for an object that
    was not asked for. That is no ``Exception``, and its class is there after the first one only.
    """
    panics = (kind for kind in BaseException.__subclasses__() if kind.__name__ == PANIC)
    return (BaseError, OSError, ValueError, NotImplementedError, *panics)
