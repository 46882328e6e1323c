"""Records that cannot be read: the job fails at the first, or they are put aside."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

import pyarrow as pa

from glaive.errors import FormatError, GlaiveError, StoreError
from glaive.ingestion.sources import SourceFile
from glaive.io.failures import from_system

__all__ = ["BAD_RECORDS", "Rejects", "refuse_failure"]

_FIELDS: list[pa.Field[Any]] = [
    pa.field("file", pa.string(), nullable=False),
    pa.field("line", pa.int64()),
    pa.field("reason", pa.string(), nullable=False),
    pa.field("record", pa.binary()),
    pa.field("job_id", pa.string()),
]

BAD_RECORDS: Final = pa.schema(_FIELDS)
"""Columns of a dataset of bad records; ``line`` is null where a file has none."""

_MAX_RECORD: Final = 1 << 20
"""Bytes that are kept of a bad record."""

_MAX_REASON: Final = 4 << 10
"""Letters that are kept of a reason: those of Arrow repeat the value that it cannot convert."""

_NULL_WORD: Final = re.compile(r"invalid value '([^'\d]{1,9})'")
"""A short value without digits where Arrow expects a number: perhaps a null, such as NA."""

_BATCH_ROWS: Final = 10_000
_BATCH_BYTES: Final = 64 << 20
"""Of the records in a batch: a column of Arrow has 2 GiB at most."""


_CALLED: Final = " Detail: Python exception: "
"""In errors of Arrow that a source caused which is read by Python."""


def refuse_failure(file: SourceFile, error: Exception) -> None:
    """Raise errors that are not of the bytes of a file, but of the place that they come from.

    Raises
    ------
    StoreError
        A store, or the system, failed.
    """
    if isinstance(error, GlaiveError):
        raise error
    if isinstance(error, OSError) and error.errno is not None:
        raise from_system(error, file.uri, "read") from error
    said, called, _ = str(error).partition(_CALLED)
    if called:
        raise StoreError(f"{file.uri}: {said}") from error


class Rejects:
    """Collects the bad records of a task.

    Parameters
    ----------
    keep
        Put them aside; otherwise the first is an error.
    job_id
        Of the job, for each record.
    """

    def __init__(self, *, keep: bool, job_id: str | None = None) -> None:
        self._keep = keep
        self._job_id = job_id
        self.dropped = 0
        self._rows: list[tuple[str, int | None, str, bytes | None]] = []
        self._bytes = 0  # of the records in these
        self._batches: list[pa.RecordBatch] = []

    def __len__(self) -> int:
        return sum(batch.num_rows for batch in self._batches) + len(self._rows)

    def add(self, file: SourceFile, line: int | None, reason: str, record: bytes | None) -> None:
        """Put a record aside.

        Raises
        ------
        FormatError
            Bad records are not kept: names file, line and reason.
        """
        reason = reason[:_MAX_REASON]
        if not self._keep:
            place = file.uri if line is None else f"{file.uri}, line {line}"
            word = _NULL_WORD.search(reason)
            null = f"reader_options={{'null': '{word[1]}'}} if that means null, " if word else ""
            raise FormatError(
                f"{place}: {reason}. Pass {null}bad_records='…' to put such records into a dataset "
                "of their own, or schema= with types that fit."
            )
        kept = None if record is None else record[:_MAX_RECORD]
        self._rows.append((file.named[0], line, reason, kept))
        self._bytes += len(kept or b"")
        if len(self._rows) >= _BATCH_ROWS or self._bytes >= _BATCH_BYTES:
            self._pack()

    def add_damaged(self, file: SourceFile, part: str, error: Exception) -> None:
        """Put the rest of a part of a file aside, whose bytes an error says to be wrong.

        Raises
        ------
        FormatError
            Bad records are not kept; or there is no memory for the rows, which may be sound.
        GlaiveError
            The error is not of the bytes, but of the place that they come from.
        """
        refuse_failure(file, error)
        # Others than Arrow's and those of files mean little without their names.
        said = f"{error}" if isinstance(error, pa.ArrowException | OSError) else repr(error)
        reason = f"{part} is damaged, from some row on: {said}"
        if isinstance(error, MemoryError):
            raise FormatError(f"{file.uri}: {reason}. Or there is too little memory") from error
        self.add(file, None, reason, None)

    def drop(self, rows: int) -> None:
        """Count rows that are left out."""
        self.dropped += rows

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The records, as rows of :data:`BAD_RECORDS`."""
        if self._rows:
            self._pack()
        yield from self._batches

    def _pack(self) -> None:
        """Make the rows a batch: as objects of Python they take some times as much memory."""
        files, lines, reasons, records = zip(*self._rows, strict=True)
        columns = [files, lines, reasons, records, [self._job_id] * len(files)]
        arrays = [
            pa.array(values, field.type) for values, field in zip(columns, BAD_RECORDS, strict=True)
        ]
        self._batches.append(pa.RecordBatch.from_arrays(arrays, schema=BAD_RECORDS))
        self._rows, self._bytes = [], 0
