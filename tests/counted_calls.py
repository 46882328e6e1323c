"""Python's calls, counted: what takes no step for each row, item or letter makes few."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

__all__ = ["counted_calls"]


@contextmanager
def counted_calls() -> Iterator[Counter[str]]:
    """Count the calls of this thread by the name of the function, those of C as ``C``."""
    calls: Counter[str] = Counter()

    def count(frame: FrameType, event: str, _argument: object) -> None:
        if event == "call":
            calls[frame.f_code.co_name] += 1
        elif event == "c_call":
            calls["C"] += 1

    sys.setprofile(count)
    try:
        yield calls
    finally:
        sys.setprofile(None)
