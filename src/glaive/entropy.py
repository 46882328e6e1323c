"""Random names and waiting times of this process: the system's, or those of a simulation.

What is written under a random name asks here, so that a simulated run
(``tests.kit.simulation``) is the same each time.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from uuid import UUID

__all__ = ["fraction", "hash_secret", "new_uuid", "random_bytes", "replaced_entropy"]

_draw: Callable[[int], bytes] = os.urandom


def random_bytes(count: int) -> bytes:
    """So many random bytes, which nobody can predict."""
    return _draw(count)


def new_uuid() -> UUID:
    """A random uuid, version 4."""
    return UUID(bytes=_draw(16), version=4)


def fraction() -> float:
    """A random number in [0, 1)."""
    return int.from_bytes(_draw(4), "little") / 2**32


def hash_secret() -> int:
    """An odd factor of 64 bits, as a signed number, for the hashes of one table.

    Each table keeps its own, also where it is sent to another process. Nothing that is written
    depends on it, so a simulation has it from the system, too.
    """
    return int.from_bytes(os.urandom(8), "little", signed=True) | 1


@contextmanager
def replaced_entropy(draw: Callable[[int], bytes]) -> Iterator[None]:
    """Take random bytes from ``draw`` in all threads of this process, for a simulation."""
    global _draw  # noqa: PLW0603  # the one place that it is changed
    before, _draw = _draw, draw
    try:
        yield
    finally:
        _draw = before
