"""Indices of a dataset as far as its manifest tells them. Each method hands on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from glaive.dataset.opened import OpenedVersion

if TYPE_CHECKING:
    from glaive.dataset.versions.indices import IndexDescription

__all__ = ["DescribingIndices"]


class DescribingIndices(OpenedVersion):
    """The part of ``LanceDataset`` that tells which indices there are, and drops them."""

    def describe_indices(self) -> list[IndexDescription]:
        """All indices of this version, by name: type, fields, segments. Reads no index file."""
        from glaive.dataset.versions.indices import describe_indices

        return describe_indices(self.snapshot)

    def list_indices(self) -> list[dict[str, Any]]:
        """One dictionary for each segment: ``name``, ``type``, ``uuid``, ``fields``,
        ``version``, ``fragment_ids`` and ``base_id``.
        """
        from glaive.dataset.versions.indices import list_segments

        return list_segments(self.snapshot)

    def index_statistics(self, index_name: str) -> dict[str, Any]:
        """As ``stats.index_stats``."""
        return self.stats.index_stats(index_name)

    def remap_row_addrs(self, addrs: pa.Array) -> pa.Array | None:
        """New addresses of rows that compactions moved, by the map they left for indices.

        Rows that are gone become null; addresses that the map does not know stay. ``None`` when
        the version has no such map: it is there after ``defer_index_remap``, for a while.
        """
        from glaive.dataset.versions.indices import remapped

        return remapped(self.snapshot, addrs)

    def drop_index(self, name: str) -> None:
        """Remove an index and move this object to the new version.

        Its files stay until old versions are cleaned up.

        Raises
        ------
        IndexNotFoundError
            There is no index of this name.
        """
        from glaive.dataset.versions.drop_index import drop_index

        self.move_to(drop_index(self, name))
