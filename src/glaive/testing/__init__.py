"""Tests for what is built on glaive: a plain model of a table, a random walk, and faults.

``model`` is a table without a format, ``machine`` does random things to a dataset and to a
model of it, ``faults`` makes every request of an operation fail once, ``crashes`` ends the
process at every one. ``machine`` needs hypothesis. :func:`force_tier` makes all kernels use
NumPy, or all use compiled code.
"""

from __future__ import annotations

from glaive.kernels._tier import Tier, force_tier

__all__ = ["Tier", "force_tier"]
