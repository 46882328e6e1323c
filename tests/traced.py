"""Memory of Python and NumPy that some work takes."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable

__all__ = ["traced_peak"]


def traced_peak(work: Callable[[], object]) -> int:
    """Bytes that Python and NumPy take at most."""
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
