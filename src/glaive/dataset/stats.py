"""Statistics of a dataset: ``dataset.stats``."""

from __future__ import annotations

from collections import Counter
from typing import Any, NoReturn

from glaive.dataclass import dataclass
from glaive.format.fragment import LEGACY
from glaive.scan.snapshot import Snapshot

__all__ = ["DataStatistics", "FieldStatistics", "LanceStats"]


@dataclass(slots=True)
class FieldStatistics:
    """Stored bytes of the pages of a field."""

    id: int
    bytes_on_disk: int


@dataclass(slots=True)
class DataStatistics:
    """Statistics of the values of all fields, by id."""

    fields: list[FieldStatistics]


class LanceStats:
    """Statistics of one version, from the manifest alone if possible."""

    __slots__ = ("_snapshot",)

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot

    def __repr__(self) -> str:
        manifest = self._snapshot.manifest
        return f"LanceStats(version={manifest.version}, fragments={manifest.num_fragments})"

    def __reduce__(self) -> NoReturn:
        raise TypeError("statistics cannot be pickled: pickle the dataset, and take its stats")

    def dataset_stats(self, max_rows_per_group: int = 1024) -> dict[str, int]:
        """Deleted rows, fragments, and fragments with fewer rows than ``max_rows_per_group``."""
        physical = self._snapshot.manifest.physical_rows
        live = self._snapshot.live_counts
        return {
            "num_deleted_rows": int(physical.sum() - live.sum()),
            "num_fragments": len(physical),
            "num_small_files": int((physical < max_rows_per_group).sum()),
        }

    def index_stats(self, index_name: str, recall_queries: int | None = None) -> dict[str, Any]:
        """Segments of an index, and the numbers of covered and uncovered rows and fragments.

        And what its kind tells of each segment: pages, zones, tokens, partitions, as in pylance.
        Opens the files of the index and reads few of their values. For indices of vectors also
        ``share_unindexed`` of the rows, ``search_defaults``, and ``recall``: the share of the ten
        nearest rows that searches find by default, of rows of the dataset drawn at random.

        Parameters
        ----------
        recall_queries
            Rows to measure the recall with, at the cost of one pass over all vectors; 0 for
            none. By default 30, none where vectors are more than 1 GiB.

        Raises
        ------
        IndexNotFoundError
            There is no index of this name.
        CorruptFileError, DataFileMissingError
            A file of the index is damaged or absent.
        """
        from glaive.dataset.indexing.describe import index_statistics

        return index_statistics(self._snapshot, index_name, recall_queries)

    def data_stats(self) -> DataStatistics:
        """Bytes of each field in the data files; files of format 0.1 count as 0.

        Opens every data file and reads no values.
        """
        from glaive.file.layout import file_layout

        manifest = self._snapshot.manifest
        sizes = dict.fromkeys(sorted(manifest.schema.field_ids()), 0)
        positions = range(manifest.num_fragments)
        named = Counter(file.path for at in positions for file in manifest.fragment(at).files)
        kept: dict[tuple[str, int | None], list[int]] = {}  # of files that several fragments name
        for at in positions:
            for file in manifest.fragment(at).files:
                if file.version == LEGACY:
                    continue
                place = file.path, file.base_id
                columns = kept.get(place)
                if columns is None:
                    layout = file_layout(self._snapshot.open_file(file))
                    columns = [column.size for column in layout.columns]
                if named[file.path] > 1:
                    kept[place] = columns
                for number, column in file.columns().items():
                    if number in sizes and 0 <= column < len(columns):
                        sizes[number] += columns[column]
        return DataStatistics([FieldStatistics(number, size) for number, size in sizes.items()])
