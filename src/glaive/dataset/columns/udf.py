"""Functions over batches that compute new columns, and the checkpoint file of their results."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from glaive.arrow.chunked import join_batches
from glaive.dataclass import dataclass
from glaive.dataset.columns.checkpoint_file import checkpoint_file, read_batch
from glaive.dataset.fragments.data_files import DataFile
from glaive.dataset.writing.lost_values import refuse_lost_times, series_of
from glaive.dataset.writing.source import refuse_objects
from glaive.errors import CapacityError, OptionError, SchemaError
from glaive.format import fragment as stored
from glaive.format.fragment import Fragment

if TYPE_CHECKING:
    from glaive.dataset.columns.udf_checkpoint import BatchUDFCheckpoint

__all__ = ["BatchUDF", "Checkpoint", "as_batch", "batch_udf"]

Function = Callable[[pa.RecordBatch], Any]

_TABLES = """
CREATE TABLE IF NOT EXISTS batches (work TEXT, start INT, result BLOB, PRIMARY KEY (work, start));
CREATE TABLE IF NOT EXISTS files (work TEXT PRIMARY KEY, file TEXT);
"""


class BatchUDF:
    """A function that computes new columns from batches; created by :func:`batch_udf`.

    Parameters
    ----------
    func
        Given a record batch; returns a record batch, table or data frame with as many rows.
    output_schema
        What it returns; inferred by a call with one row when omitted.
    checkpoint_file
        Stores results until the columns are committed.
    """

    def __init__(
        self,
        func: Function,
        output_schema: pa.Schema | None = None,
        checkpoint_file: str | os.PathLike[str] | None = None,
    ) -> None:
        if not callable(func):
            raise OptionError(f"batch_udf: expected a function, found {func!r:.60}")
        if output_schema is not None and not isinstance(output_schema, pa.Schema):
            raise OptionError(f"output_schema: expected a pyarrow.Schema, found {output_schema!r}")
        self.func = func
        self.output_schema = output_schema
        self.checkpoint_file = checkpoint_file

    @property
    def cache(self) -> BatchUDFCheckpoint | None:
        """The checkpoint file, opened; None without one."""
        from glaive.dataset.columns.udf_checkpoint import BatchUDFCheckpoint

        return None if self.checkpoint_file is None else BatchUDFCheckpoint(self.checkpoint_file)

    def __call__(self, batch: pa.RecordBatch) -> Any:
        """Call the function itself."""
        return self.func(batch)


def batch_udf(
    output_schema: pa.Schema | None = None,
    checkpoint_file: str | os.PathLike[str] | None = None,
) -> Callable[[Function], BatchUDF]:
    """Wrap a function for ``add_columns`` and ``merge_columns``.

    Parameters
    ----------
    output_schema
        What the function returns; inferred by a call with one row when omitted.
    checkpoint_file
        A file that stores results until the columns are committed: ``add_columns`` with the
        same file resumes where it stopped. It may grow to the size of the new columns.
    """

    def wrap(func: Function) -> BatchUDF:
        return BatchUDF(func, output_schema, checkpoint_file)

    return wrap


def as_batch(result: Any, schema: pa.Schema | None, rows: int | None) -> pa.RecordBatch:
    """The result of a function as one record batch.

    Raises
    ------
    SchemaError
        It has other columns than ``schema``, another number of rows, days and times in one column,
        objects of polars, or is not tabular.
    """
    if type(result).__module__.startswith("pandas."):
        frame, result = result, pa.RecordBatch.from_pandas(result, preserve_index=False)
        refuse_lost_times(lambda: dict(series_of(frame)), result.schema)
    elif not isinstance(result, pa.RecordBatch | pa.Table) and hasattr(
        result, "__arrow_c_stream__"
    ):
        if type(result).__module__.startswith("polars."):
            refuse_objects(result)
        result = pa.table(result)
    if isinstance(result, pa.Table):
        parts = join_batches(result)
        if len(parts) > 1:
            raise CapacityError(
                f"the function for new columns returned a table of {result.num_rows} rows, whose "
                "strings or lists do not fit one record batch; choose a smaller batch_size"
            )
        result = parts[0] if parts else pa.RecordBatch.from_pylist([], schema=result.schema)
    if not isinstance(result, pa.RecordBatch):
        raise SchemaError(
            f"the function for new columns returned {type(result).__name__}; expected a record "
            "batch, a table or a data frame"
        )
    if schema is not None and not result.schema.equals(schema):
        raise SchemaError(
            "Output schema of function does not match the expected schema: the function for new "
            "columns returned other columns than its output_schema: "
            f"expected {_text(schema)}; found {_text(result.schema)}"
        )
    if rows is not None and result.num_rows != rows:
        raise SchemaError(
            f"new batch has different size with the source batch: {rows} != {result.num_rows}: the "
            "function for new columns must return one row for each that it is given"
        )
    return result


def _text(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name}: {field.type}" for field in schema)


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Results of a function on disk (SQLite), by fragment and first row.

    Parameters
    ----------
    path
        Created if missing.
    job
        Identifies the new columns: results of other jobs are ignored.
    """

    path: str
    job: str

    @classmethod
    def open(cls, path: str | os.PathLike[str], job: str) -> Checkpoint:
        """Start or resume a checkpoint.

        Raises
        ------
        OptionError
            The file cannot be used.
        """
        checkpoint = cls(os.fspath(path), job)
        with checkpoint_file(checkpoint.path, _TABLES):
            pass  # it can be used
        return checkpoint

    def _work(self, fragment: Fragment) -> str:
        """The job for a fragment in its current state: other files or deletions change it."""
        content = fragment.to_wire().SerializeToString(deterministic=True)
        return hashlib.sha256(self.job.encode() + content).hexdigest()

    def batch(self, fragment: Fragment, start: int) -> pa.RecordBatch | None:
        """The stored result for the rows from ``start`` on, if any."""
        query = "SELECT result FROM batches WHERE work = ? AND start = ?"
        with checkpoint_file(self.path, _TABLES) as connection:
            row = connection.execute(query, (self._work(fragment), start)).fetchone()
        return None if row is None else read_batch(row[0], self.path, f"fragment {fragment.id}")

    def keep_batch(self, fragment: Fragment, start: int, batch: pa.RecordBatch) -> None:
        """Store a result."""
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, batch.schema) as writer:
            writer.write_batch(batch)
        values = (self._work(fragment), start, sink.getvalue().to_pybytes())
        with checkpoint_file(self.path, _TABLES) as connection:
            connection.execute("INSERT OR REPLACE INTO batches VALUES (?, ?, ?)", values)

    def file(self, fragment: Fragment) -> stored.DataFile | None:
        """The finished file of a fragment, if any.

        Raises
        ------
        OptionError
            What is stored for it is none.
        """
        query = "SELECT file FROM files WHERE work = ?"
        with checkpoint_file(self.path, _TABLES) as connection:
            row = connection.execute(query, (self._work(fragment),)).fetchone()
        try:
            return None if row is None else DataFile(**json.loads(row[0])).to_stored()
        except (TypeError, ValueError, RecursionError) as error:
            raise OptionError(
                f"checkpoint_file {self.path}: no description of the data file of fragment "
                f"{fragment.id} ({error}). Delete the file to start over."
            ) from error

    def keep_file(self, fragment: Fragment, file: stored.DataFile) -> None:
        """Store a finished file; its batches are no longer needed."""
        work, text = self._work(fragment), json.dumps(DataFile.of(file).to_json())
        with checkpoint_file(self.path, _TABLES) as connection:
            connection.execute("INSERT OR REPLACE INTO files VALUES (?, ?)", (work, text))
            connection.execute("DELETE FROM batches WHERE work = ?", (work,))

    def remove(self) -> None:
        """Delete the file, if that is possible: the columns are committed."""
        try:
            Path(self.path).unlink()
        except OSError as error:
            import logging

            logging.getLogger(__name__).warning(
                "checkpoint_file %s is no longer needed, and could not be deleted: %s",
                self.path,
                error.strerror,
            )
