"""What an ingest did, and what its tasks wrote."""

from __future__ import annotations

from glaive.dataclass import dataclass

__all__ = ["IngestResult", "IngestedPieces"]


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


@dataclass(frozen=True, slots=True, kw_only=True)
class IngestResult:
    """What an ingest did.

    Parameters
    ----------
    version
        The version with the rows.
    rows
        Rows that were written, or for ``merge`` inserted and updated.
    files
        Files that were read.
    bad_records
        Records that were put aside, because they cannot be read or are not as expected.
    dropped
        Rows that were left out, because they are not as expected.
    job_id
        Of the job.
    repeated
        The job had been committed before; nothing was done now.
    """

    version: int
    rows: int
    files: int
    bad_records: int
    dropped: int = 0
    job_id: str
    repeated: bool = False
