"""Figures on what a dataset read and wrote."""

from __future__ import annotations

from glaive.io.stats import IOStats, counters_of
from glaive.io.store import ObjectStore

__all__ = ["incremental", "snapshot"]


def snapshot(store: ObjectStore) -> IOStats:
    """Operations and bytes since the dataset was opened or counting started again."""
    return counters_of(store).snapshot()


def incremental(store: ObjectStore) -> IOStats:
    """Operations and bytes since the last call; counting starts again."""
    return counters_of(store).take()
