"""What the tasks of an ingest wrote."""

from __future__ import annotations

from glaive.dataclass import dataclass

__all__ = ["IngestedPieces"]


@dataclass(frozen=True, slots=True)
class IngestedPieces:
    """What a task wrote, not committed; can be pickled.

    Parameters
    ----------
    fragments
        Serialized, without ids.
    bad_fragments
        Those of the dataset of bad records.
    bad_records
        How many there are.
    dropped
        Rows that were left out, as expected.
    """

    fragments: tuple[bytes, ...]
    bad_fragments: tuple[bytes, ...] = ()
    bad_records: int = 0
    dropped: int = 0
