"""How a clean-up is divided: versions among readers, paths among listings, files to delete."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Final

from glaive.dataclass import dataclass
from glaive.format.paths import DATA, DELETIONS, INDICES, TRANSACTIONS, VERSIONS
from glaive.io.store import ObjectMeta, ObjectStore
from glaive.table.references import IdRange
from glaive.table.versions import ManifestLocation

__all__ = ["BATCH", "Division", "Span", "spans_of"]

BATCH: Final = 1000
"""Files deleted per call of the store."""

_MAX_BITS: Final = 10
"""Of the digits by which the names of data files are divided."""


@dataclass(frozen=True, slots=True)
class Division:
    """How much of a clean-up is one part.

    Parameters
    ----------
    versions
        Manifests that one part reads.
    fragments
        Fragments of each of them, whose files it reports.
    files
        Data files that one part lists.
    deletions
        Files that one part deletes.
    groups
        Groups of versions at most: what all of them have is reported by each.
    """

    versions: int = 16
    fragments: int = 1 << 16
    files: int = 1 << 13
    deletions: int = 4 * BATCH
    groups: int = 16

    def cuts(self, files: int) -> tuple[str, ...]:
        """Where paths are cut for listings of so many data files, in order.

        Names of data files begin with random digits: binary ones, or those of a UUID. Characters
        before ``0`` are in no cut, so that a data file and the folder of its blobs, which differ
        in ``.`` and ``/``, are never divided.
        """
        parts = -(-files // self.files)
        if parts < 2:
            return ()
        bits = min((parts - 1).bit_length(), _MAX_BITS)
        cuts = {f"{folder}/" for folder in (DATA, INDICES, TRANSACTIONS, VERSIONS)}
        cuts |= {f"{DATA}/{number:0{bits}b}" for number in range(1, 1 << bits)}
        cuts |= {f"{DATA}/{digit}" for digit in "23456789abcdef"}
        cuts |= {f"{DELETIONS}/{number}" for number in range(1, min(parts, 100))}
        return tuple(sorted(cuts))

    def readers(
        self, locations: Sequence[ManifestLocation], files: int, max_id: int
    ) -> list[tuple[Sequence[ManifestLocation], IdRange]]:
        """Versions and fragments for each part that reads manifests.

        Parts for other fragments tell other files. Parts for other versions tell most files
        again, so there are fewer of these where there are many files.
        """
        ranges = max(1, min(-(-files // self.fragments), max_id + 1))
        starts = [(max_id + 1) * at // ranges for at in range(ranges)]
        ids = [IdRange(*pair) for pair in zip(starts, [*starts[1:], None], strict=True)]
        wanted = -(-len(locations) // self.versions)
        groups = max(1, min(wanted, self.groups // ranges, len(locations)))
        cuts = [len(locations) * at // groups for at in range(groups + 1)]
        return [(locations[start:stop], each) for start, stop in pairwise(cuts) for each in ids]


@dataclass(frozen=True, slots=True)
class Span:
    """Paths from ``start`` on, before ``stop``; ``None`` for no limit."""

    start: str | None = None
    stop: str | None = None

    def __contains__(self, path: str) -> bool:
        return (self.start is None or self.start <= path) and (
            self.stop is None or path < self.stop
        )

    def meets(self, folder: str) -> bool:
        """Whether paths below a folder may be in it."""
        return (self.stop is None or f"{folder}/" < self.stop) and (
            self.start is None or self.start < f"{folder}0"  # the character after "/"
        )

    def listed(self, store: ObjectStore, folder: str) -> Iterator[ObjectMeta]:
        """Files below a folder, finished or not."""
        if self.start is None and self.stop is None:
            yield from store.walk(folder)
        else:
            yield from store.walk_between(folder, self.start, self.stop)
        yield from (meta for meta in store.unfinished(folder) if meta.path in self)


def spans_of(cuts: Sequence[str]) -> list[Span]:
    """The spans between cuts: one more than there are cuts."""
    return [Span(*pair) for pair in zip([None, *cuts], [*cuts, None], strict=True)]
