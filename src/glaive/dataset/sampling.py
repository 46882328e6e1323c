"""Rows of a sample or a slice."""

from __future__ import annotations

import operator

from glaive.errors import OptionError


def sample_positions(
    total: int, count: int, *, randomize_order: bool, seed: int | None = None
) -> list[int]:
    """``count`` different positions below ``total``, chosen with Python's ``random``.

    ``random.seed``, or a seed of its own, makes the choice repeatable.

    Raises
    ------
    OptionError
        ``count`` is no integer, is negative, or exceeds ``total``.
    """
    try:
        count = operator.index(count)
    except TypeError:
        raise OptionError(f"num_rows: expected an integer, found {count!r:.80}") from None
    if not 0 <= count <= total:
        raise OptionError(
            "Sample larger than population or is negative: num_rows: expected 0 to "
            f"{total} (all rows), found {count}"
        )
    import random  # not needed to open and read

    # Samples of rows are no secrets.
    choose = random.sample if seed is None else random.Random(seed).sample  # noqa: S311  # see above
    rows = choose(range(total), count)
    return rows if randomize_order else sorted(rows)


def slice_length(start: int, end: int) -> int:
    """Number of rows from ``start`` to ``end``; ``OptionError`` if that is no range."""
    if start < 0 or end < start:
        wrong = (
            f"start must be non-negative, got {start}"
            if start < 0
            else f"end ({end}) must be >= start ({start})"
        )
        raise OptionError(f"slice: {wrong}")
    return end - start
