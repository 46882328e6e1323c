"""Which rows a sample or a slice is made of."""

from __future__ import annotations

import random

from glaive.errors import OptionError

__all__ = ["sample_positions", "slice_length"]


def sample_positions(total: int, count: int, *, randomize_order: bool) -> list[int]:
    """``count`` different positions below ``total``, chosen with Python's ``random``.

    ``random.seed`` makes the choice repeatable.

    Raises
    ------
    OptionError
        More rows are asked for than there are, or fewer than none.
    """
    if not 0 <= count <= total:
        raise OptionError(f"num_rows: expected 0 to {total} (the rows there are), found {count}")
    rows = random.sample(range(total), count)
    return rows if randomize_order else sorted(rows)


def slice_length(start: int, end: int) -> int:
    """Rows from ``start`` to ``end``, where these can be the ends of a slice."""
    if start < 0 or end < start:
        raise OptionError(f"slice: expected 0 ≤ start ≤ end, found start {start}, end {end}")
    return end - start
