"""Test tools for programs that use glaive: an in-memory model, random walks and faults.

``model`` is a table in memory, ``machine`` applies random operations to a dataset and to its
model, ``faults`` makes each request of an operation fail once, ``crashes`` kills the process at
each change of a file. ``machine`` requires hypothesis. :func:`force_tier` makes all kernels use
NumPy, or all use compiled code.
"""

from __future__ import annotations

from glaive.kernels._tier import Tier, force_tier

__all__ = ["Tier", "force_tier"]
