"""Tasks that bring an index up to date: merge its segments, or add one for new rows.

They name the index and the version only: which fragments are in no segment is found again where
they run, so that they are small however many fragments there are.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from glaive.dataclass import dataclass
from glaive.dataset.commits.index_metadata import Index
from glaive.dataset.indexing.stored_segments import IndexSegments, index_segments
from glaive.dataset.indexing.task import extend_index, merge_segments
from glaive.dataset.tasks import opened_at
from glaive.errors import LimitError, UnsupportedFeatureError

if TYPE_CHECKING:
    from glaive.dataset.version import OpenDataset, OpenedVersion

__all__ = ["ExtendTask", "MergeTask", "UpdatedIndex"]


@dataclass(frozen=True, slots=True)
class UpdatedIndex:
    """A segment that was written, not committed.

    Parameters
    ----------
    segment
        The new one; None where segments could not be merged.
    merged
        How many of the newest segments it replaces.
    limit
        Which limit kept more of them from being merged; empty where none did.
    """

    segment: Index | None
    merged: int = 0
    limit: str = ""


@dataclass(frozen=True, slots=True)
class _UpdateTask:
    """What both tasks name; can be pickled.

    Parameters
    ----------
    read_version
        The version to read.
    name
        Of the index.
    """

    read_version: int
    name: str

    def _opened(self, dataset: OpenDataset) -> tuple[OpenedVersion, IndexSegments]:
        opened = opened_at(dataset, self.read_version)
        return opened, index_segments(opened, [self.name])[self.name]


@dataclass(frozen=True, slots=True)
class MergeTask(_UpdateTask):
    """Merge the newest segments of an index with all rows that are in none.

    Parameters
    ----------
    count
        Segments to merge.
    fewest
        Where so many cannot be merged, fewer are, down to this number.
    """

    count: int
    fewest: int

    def execute(self, dataset: OpenDataset) -> UpdatedIndex:
        """Write the segment, unless the segments cannot be merged.

        Raises
        ------
        VersionNotFoundError
            The version was cleaned up.
        CorruptFileError, DataFileMissingError, NotLanceError
            A file of a segment is damaged or absent.
        """
        opened, index = self._opened(dataset)
        limit = ""
        for count in _fewer(self.count, self.fewest):
            try:
                entry = merge_segments(opened, index.newest(count), index.missing)
            except LimitError as error:
                limit = limit or str(error)
                continue
            except UnsupportedFeatureError:  # They have models of their own, or zones.
                continue
            return UpdatedIndex(Index.from_wire(entry), count, limit)
        return UpdatedIndex(None, limit=limit)


def _fewer(count: int, fewest: int) -> Iterator[int]:
    """Numbers of segments to try, fewer by one, or by an eighth where there are many.

    So all attempts together read some eight times as much as the first, not its square.
    """
    while count > fewest:
        yield count
        count = max(fewest, count - max(1, count // 8))
    if count == fewest:
        yield count


@dataclass(frozen=True, slots=True)
class ExtendTask(_UpdateTask):
    """Add a segment for some of the fragments that are in none.

    Parameters
    ----------
    start, stop
        Positions among the fragments that are in no segment: the first, and the one after the last.
    """

    start: int
    stop: int

    def execute(self, dataset: OpenDataset) -> UpdatedIndex:
        """Write the segment, with the model of the others, unless that is in an old layout.

        Raises
        ------
        VersionNotFoundError
            The version was cleaned up.
        CorruptFileError, DataFileMissingError, NotLanceError
            A file is damaged or absent.
        """
        opened, index = self._opened(dataset)
        fragments = index.missing[self.start : self.stop]
        try:
            entry = extend_index(opened, index.model.entry, fragments)
        except UnsupportedFeatureError:
            return UpdatedIndex(None)
        return UpdatedIndex(Index.from_wire(entry))
