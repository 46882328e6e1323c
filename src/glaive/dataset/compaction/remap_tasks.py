"""Tasks that rebuild the indices of a compaction before its commit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from glaive.dataclass import dataclass
from glaive.dataset.tasks import TaskRunner, opened_at
from glaive.index.remap import (
    MovedRows,
    RemappedIndices,
    RemappedSegment,
    remap_segments,
    segments_to_remap,
)

if TYPE_CHECKING:
    from glaive.dataset.version import OpenDataset, OpenedVersion

__all__ = ["RemapTask", "remapped_indices"]


@dataclass(frozen=True, slots=True)
class RemapTask:
    """Rebuild segments with the new addresses of rows; can be pickled.

    Where the rows went is what all tasks of a compaction share.

    Parameters
    ----------
    read_version
        The version that was rewritten.
    segments
        Ids of the segments.
    """

    read_version: int
    segments: tuple[bytes, ...]

    def execute(
        self, dataset: OpenDataset, shared: Sequence[MovedRows]
    ) -> tuple[RemappedSegment, ...]:
        """Write the segments, uncommitted; those with a missing file are left out.

        Raises
        ------
        VersionNotFoundError
            The version was cleaned up.
        CorruptFileError, NotLanceError, UnsupportedFeatureError
            A segment cannot be read; what this task wrote was removed.
        """
        opened = opened_at(dataset, self.read_version)
        return tuple(remap_segments(opened.store, opened.manifest, self.segments, shared))


def remapped_indices(
    dataset: OpenedVersion, moved: Sequence[MovedRows], runner: TaskRunner
) -> RemappedIndices:
    """Have tasks rebuild the segments that hold addresses of rows that were moved.

    A task for each segment; one for all where tasks run one after the other, which makes the map
    of addresses once.
    """
    ids = segments_to_remap(dataset.manifest, moved)
    version = dataset.manifest.version
    if len(ids) > 1 and runner.parallelism > 1:
        tasks = [RemapTask(version, (segment,)) for segment in ids]
    else:
        tasks = [RemapTask(version, tuple(ids))] if ids else []
    made = runner.run(dataset, tasks, tuple(moved)) if tasks else []
    return RemappedIndices.of(segment for segments in made for segment in segments)
