"""Tests for what is built on glaive: a plain model of a table, a random walk, and faults.

``model`` is a table without a format, ``machine`` does random things to a dataset and to a
model of it, ``faults`` makes every request of an operation fail once, ``crashes`` ends the
process at every one, ``corrupt`` damages bytes. ``machine`` needs hypothesis.
"""

from __future__ import annotations

__all__: list[str] = []
