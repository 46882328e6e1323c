"""Figures about a dataset: the facet ``dataset.stats``."""

from __future__ import annotations

from glaive.scan.snapshot import Snapshot

__all__ = ["LanceStats"]


class LanceStats:
    """Figures about one version, from the manifest alone where it tells."""

    __slots__ = ("_snapshot",)

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot

    def dataset_stats(self, max_rows_per_group: int = 1024) -> dict[str, int]:
        """Deleted rows, fragments, and fragments with fewer rows than ``max_rows_per_group``."""
        physical = self._snapshot.manifest.physical_rows
        live = self._snapshot.live_counts
        return {
            "num_deleted_rows": int(physical.sum() - live.sum()),
            "num_fragments": len(physical),
            "num_small_files": int((physical < max_rows_per_group).sum()),
        }
