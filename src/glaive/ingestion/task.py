"""Tasks of an ingest: values that can be sent to other processes."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator
from dataclasses import field

import pyarrow as pa

from glaive.dataclass import dataclass
from glaive.dataset.version import OpenDataset
from glaive.dataset.writing.fragments import write_fragments
from glaive.dataset.writing.plan import WritePlan
from glaive.format.fragment_list import packed_fragments
from glaive.ingestion.expectations import Expectations
from glaive.ingestion.formats.protocol import Piece, Rows, SourceFormat
from glaive.ingestion.ingested import IngestedPieces
from glaive.ingestion.journal import Journal
from glaive.ingestion.partition_folders import completed, folder_texts, folder_values
from glaive.ingestion.rejects import Rejects
from glaive.ingestion.sources import SourceFile

__all__ = ["IngestTask"]


@dataclass(frozen=True, slots=True)
class IngestTask:
    """Read pieces of files and write their rows to data files. :meth:`execute` runs it.

    It may run again, or twice at the same time: each run writes files of its own, and only what
    the commit names is seen.

    Parameters
    ----------
    pieces
        What to read, in order.
    source_format
        How to read it.
    schema
        Columns.
    write
        Where to write.
    bad_records
        Where to write records that cannot be read; None: they are an error.
    job_id
        Of the job, for bad records.
    journal
        Where finished tasks are written down, so that none of them is repeated.
    expectations
        Conditions that rows have to fulfil.
    """

    pieces: tuple[Piece, ...]
    source_format: SourceFormat = field(repr=False)
    schema: pa.Schema = field(repr=False)
    write: WritePlan = field(repr=False)
    bad_records: WritePlan | None = field(default=None, repr=False)
    job_id: str | None = None
    journal: Journal | None = field(default=None, repr=False)
    expectations: Expectations | None = None

    @property
    def size(self) -> int:
        """Bytes of the sources."""
        return sum(piece.size for piece in self.pieces)

    @property
    def key(self) -> str:
        """The same for tasks that read the same bytes into the same columns of the same datasets.

        Places of files are no part of it: the journal looks for each where it would be written.
        """
        digest = hashlib.sha256()
        for piece in self.pieces:
            file = piece.file
            fact = (file.uri, file.size, str(file.modified), piece.start, piece.stop)
            digest.update(repr(fact).encode())
        digest.update(repr(self.source_format.described()).encode())
        digest.update(str(self.schema.to_string(show_field_metadata=True)).encode())
        digest.update(repr(self.expectations).encode())
        digest.update(_form(self.write).encode(errors="surrogatepass"))
        if self.bad_records is not None:
            digest.update(_form(self.bad_records).encode(errors="surrogatepass"))
        return digest.hexdigest()[:32]

    def rows(self, rejects: Rejects) -> Iterator[Rows]:
        """The rows that are as expected, complete.

        The names of folders have the values of columns that a file lacks, or these are null.
        """
        expected, stored = self.expectations, self.write.schema
        for piece in self.pieces:
            own = self._own_columns(piece.file)
            for rows in self.source_format.read(piece, self.schema, rejects):
                if not len(rows):
                    continue
                whole = self._completed(rows, piece.file, own)
                if expected is None:
                    yield whole
                else:
                    yield from expected.kept(whole, self.schema, stored, piece.file, rejects)

    def _own_columns(self, file: SourceFile) -> Collection[str] | None:
        """Return the columns that a file has; None if its rows have these and no others."""
        if self.source_format.named or not folder_texts(file.folder, file.path):
            return None
        return set(self.source_format.schema(file).names)

    def _completed(self, rows: Rows, file: SourceFile, own: Collection[str] | None) -> Rows:
        """Rows with all columns, in order."""
        given = set(rows.schema.names) if own is None else own
        values = folder_values(file.folder, file.path, self.schema, given)
        if rows.schema.names == self.schema.names and not values:
            return rows
        return completed(rows, self.schema, values)

    def execute(
        self, dataset: OpenDataset | None = None
    ) -> IngestedPieces:  # there may be none yet
        """Read and write, unless an earlier run of the job did.

        Raises
        ------
        FormatError
            A file or a record cannot be read.
        ExpectationError
            A row is not as expected.
        StoreError
            A store failed.

        Notes
        -----
        Memory: a block of 16 MiB of a file with its values, or a batch; and a page of each
        column. If it fails, it removes what it wrote.
        """
        journal, aside = self.journal, self.bad_records
        if journal is not None:
            places = () if aside is None else aside.locations
            done = journal.finished(self.key, rows=self.write.locations, bad_records=places)
            if done is not None:
                return done
        rejects = Rejects(keep=aside is not None, job_id=self.job_id)
        # Writers of such pages accept dictionary-encoded strings as they were read.
        keep = getattr(self.write.profile, "pages", None) == "layouts"
        fragments = write_fragments(self.write, self.rows(rejects), keep_dictionaries=keep)
        bad = []
        if aside is not None and len(rejects):
            bad = write_fragments(aside, rejects.batches())
        written, put_aside = packed_fragments(fragments), packed_fragments(bad)
        result = IngestedPieces(written, put_aside, len(rejects), rejects.dropped)
        if journal is not None:
            journal.finish(self.key, result)
        return result


def _form(plan: WritePlan) -> str:
    """A text that two plans share if files written by one fit the dataset of the other."""
    columns = [
        (entry.id, entry.name, entry.logical_type, entry.nullable) for entry in plan.schema.walk()
    ]
    items = [(number, values.to_pylist()) for number, values in sorted(plan.dictionaries.items())]
    return repr((f"{plan.version}", columns, sorted(plan.blobs.bases.items()), items))
