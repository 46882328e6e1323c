"""Figures about a dataset: the facet ``dataset.stats``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from glaive.format.fragment import LEGACY
from glaive.scan.snapshot import Snapshot

__all__ = ["DataStatistics", "FieldStatistics", "LanceStats"]


@dataclass(slots=True)
class FieldStatistics:
    """Bytes that the values of a field take in the data files, in pages as they are stored."""

    id: int
    bytes_on_disk: int


@dataclass(slots=True)
class DataStatistics:
    """Figures about the values of all fields, by id."""

    fields: list[FieldStatistics]


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

    def index_stats(self, index_name: str) -> dict[str, Any]:
        """Segments of an index, and how many rows and fragments it covers and does not cover.

        Figures of the manifest: no index file is read.

        Raises
        ------
        IndexNotFoundError
            There is no index of this name.
        """
        from glaive.dataset.versions.indices import index_figures

        return index_figures(self._snapshot, index_name)

    def data_stats(self) -> DataStatistics:
        """Bytes of each field in the data files; 0 in those of format 0.1, which do not tell.

        Opens every data file and reads no values.
        """
        from glaive.file.layout import file_layout

        manifest = self._snapshot.manifest
        sizes = dict.fromkeys(sorted(manifest.schema.field_ids()), 0)
        for at in range(manifest.num_fragments):
            for file in manifest.fragment(at).files:
                if file.version == LEGACY:
                    continue
                columns = file_layout(self._snapshot.open_file(file)).columns
                for number, column in file.columns().items():
                    if number in sizes and 0 <= column < len(columns):
                        sizes[number] += columns[column].size
        return DataStatistics([FieldStatistics(number, size) for number, size in sizes.items()])
