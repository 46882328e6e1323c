"""Functions over batches that compute new columns, and checkpoints of their results."""

from __future__ import annotations

import hashlib
import json
import os
import re
import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any, Final, Self

import pyarrow as pa

from glaive.arrow.chunked import join_batches
from glaive.dataclass import NamedTuple, dataclass
from glaive.dataset.fragment_metadata import DataFile
from glaive.dataset.writing.source import refuse_objects
from glaive.errors import CapacityError, ObjectNotFoundError, OptionError, SchemaError, StoreError
from glaive.format import fragment as stored
from glaive.format.fragment import Fragment
from glaive.io.access import open_store
from glaive.io.failures import as_store_errors
from glaive.io.location import check_root
from glaive.io.store import ObjectStore

# --- The file that keeps results of functions: an SQLite database -----------------------

_WAIT_SECONDS = 5.0
"""Maximum time to wait for another process that is writing."""

_REMEDIES: Final = {
    sqlite3.SQLITE_BUSY: "wait until the other process that has it open has ended",
    sqlite3.SQLITE_FULL: "free some space and try again",
}
"""Remedies for a valid file, by SQLite's error code."""

_TABLES: Final = """
CREATE TABLE IF NOT EXISTS batches (work TEXT, start INT, result BLOB, PRIMARY KEY (work, start));
CREATE TABLE IF NOT EXISTS files (work TEXT PRIMARY KEY, file TEXT);
"""
_OWN_TABLES: Final = frozenset({"batches", "files"})


@dataclass(frozen=True, slots=True)
class _Results:
    """Stored batches by work and number, and a string for each finished work.

    Raises
    ------
    OptionError
        The file is unusable. Or it is another database, which glaive must keep. Or a number or a
        string is invalid in SQLite.
    """

    path: str

    @classmethod
    def of(cls, path: str | os.PathLike[str]) -> Self:
        """Open the results in a file; create a missing file."""
        check_root(os.fsdecode(path), is_local=True)
        results = cls(os.fspath(path))
        with results._opened():
            pass  # the file can be used
        return results

    @contextmanager
    def _opened(self) -> Iterator[sqlite3.Connection]:
        """Yield a connection; commit its changes at the end."""
        where = f"checkpoint_file {self.path}"
        try:
            opened = sqlite3.connect(self.path, timeout=_WAIT_SECONDS)
            with closing(opened) as connection, connection:
                query = "SELECT name FROM sqlite_master WHERE type IN ('table', 'view')"
                for (name,) in connection.execute(query):
                    if str(name).lower() not in _OWN_TABLES and not str(name).startswith("sqlite_"):
                        raise OptionError(
                            f"{where}: it is a database with other tables, such as {name!r:.60}, "
                            "which would be deleted with it. Choose another file"
                        )
                connection.executescript(_TABLES)
                yield connection
        except (OverflowError, UnicodeEncodeError) as error:
            raise OptionError(f"{where}: no value that it can hold: {error}") from error
        # SQLite's messages cite a damaged file, which may have any bytes.
        except (sqlite3.Error, UnicodeDecodeError) as error:
            code = getattr(error, "sqlite_errorcode", 0) & 0xFF  # without the extended code
            remedy = f"Choose another file, or {_REMEDIES.get(code, 'delete this one')}."
            raise OptionError(f"{where}: {error}. {remedy}") from error

    def _value(self, query: str, *keys: object) -> Any:
        with self._opened() as connection:
            row = connection.execute(query, keys).fetchone()
        return None if row is None else row[0]

    def batch(self, work: str, number: int, subject: object) -> pa.RecordBatch | None:
        """Return the stored batch, if any; check it, as its offsets may be anything."""
        query = "SELECT result FROM batches WHERE work = ? AND start = ?"
        data = self._value(query, work, number)
        if data is None:
            return None
        try:
            with pa.ipc.open_stream(data) as reader:
                batch = reader.read_next_batch()
            batch.validate(full=True)
        except (
            pa.ArrowException,
            EOFError,
            OSError,
            StopIteration,
            TypeError,
            ValueError,
        ) as error:
            raise OptionError(
                f"checkpoint_file {self.path}: the result for {subject} cannot be read ({error}). "
                "Delete the file to start over."
            ) from error
        return batch

    def keep_batch(self, work: str, number: int, batch: pa.RecordBatch) -> None:
        """Store a batch; replace an earlier one."""
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, batch.schema) as writer:
            writer.write_batch(batch)
        values = (work, number, sink.getvalue().to_pybytes())
        with self._opened() as connection:
            connection.execute("INSERT OR REPLACE INTO batches VALUES (?, ?, ?)", values)

    def text(self, work: str) -> str | None:
        """Return the stored string of a finished work, if any."""
        text: str | None = self._value("SELECT file FROM files WHERE work = ?", work)
        return text

    def keep_text(self, work: str, text: str) -> None:
        """Store the string of a finished work; delete its batches."""
        with self._opened() as connection:
            connection.execute("INSERT OR REPLACE INTO files VALUES (?, ?)", (work, text))
            connection.execute("DELETE FROM batches WHERE work = ?", (work,))


# --- Checkpoints: the files of finished fragments, and results for batches --------------


class _Fragments(ABC):
    """Finished files, by the state of a fragment: other files or deletions change the state."""

    __slots__ = ()

    job: str

    def _work(self, fragment: Fragment) -> str:
        content = fragment.to_wire().SerializeToString(deterministic=True)
        return hashlib.sha256(self.job.encode() + content).hexdigest()

    @abstractmethod
    def _text(self, work: str) -> str | bytes | None:
        """Return the stored string of a finished work, if any."""

    @abstractmethod
    def _keep_text(self, work: str, text: str) -> None:
        """Store the string of a finished work; replace an earlier one."""

    def file(self, fragment: Fragment) -> stored.DataFile | None:
        """Return the finished file of a fragment, if any."""
        text = self._text(self._work(fragment))
        try:
            return None if text is None else DataFile(**json.loads(text)).to_stored()
        except (TypeError, ValueError, RecursionError) as error:
            raise OptionError(
                f"checkpoint: no description of the data file of fragment {fragment.id} ({error}). "
                "Delete it to start over, or choose another place."
            ) from error

    def keep_file(self, fragment: Fragment, file: stored.DataFile) -> None:
        """Store a finished file."""
        self._keep_text(self._work(fragment), json.dumps(DataFile.of(file).to_json()))


_FILE_NAME: Final = re.compile(r"[0-9a-f]{64}\.json")
"""Name of the file of a fragment; the folder may have other files."""


@dataclass(frozen=True, slots=True)
class CheckpointFolder(_Fragments):
    """A folder that processes of a cluster share, with a file for each fragment; can be pickled.

    Data files lie in the dataset; versions refer to them from the commit on. Only results of
    whole fragments are stored.

    Parameters
    ----------
    store
        The folder.
    job
        Identity of the computation.
    """

    store: ObjectStore
    job: str

    @classmethod
    def open(cls, uri: str, job: str, storage_options: Mapping[str, str] | None = None) -> Self:
        """Start or resume a checkpoint; the first finished fragment creates the folder."""
        return cls(open_store(uri, storage_options), job)

    def _text(self, work: str) -> bytes | None:
        try:
            return bytes(self.store.get(f"{work}.json"))
        except ObjectNotFoundError:
            return None

    def _keep_text(self, work: str, text: str) -> None:
        self.store.put(f"{work}.json", [text.encode()])

    def batch(self, fragment: Fragment, start: int) -> None:
        """Return None: only whole fragments are stored."""

    def keep_batch(self, fragment: Fragment, start: int, batch: pa.RecordBatch) -> None:
        """Ignore the batch: only whole fragments are stored."""

    def remove(self) -> None:
        """Delete the files of the folder that checkpoints made, if possible."""
        with suppress(StoreError):
            names = [meta.path for meta in self.store.list("")]
            self.store.discard(list(filter(_FILE_NAME.fullmatch, names)))


@dataclass(frozen=True, slots=True)
class Checkpoint(_Fragments):
    """An SQLite file with results for batches, and the files of finished fragments.

    Parameters
    ----------
    results
        The file.
    job
        Identity of the computation.
    """

    results: _Results
    job: str

    @classmethod
    def open(cls, path: str | os.PathLike[str], job: str) -> Checkpoint:
        """Start or resume a checkpoint; ``_Results`` lists the errors."""
        return cls(_Results.of(path), job)

    def _text(self, work: str) -> str | None:
        return self.results.text(work)

    def _keep_text(self, work: str, text: str) -> None:
        self.results.keep_text(work, text)

    def batch(self, fragment: Fragment, start: int) -> pa.RecordBatch | None:
        """Return the stored result for the rows from ``start`` on, if any."""
        return self.results.batch(self._work(fragment), start, f"fragment {fragment.id}")

    def keep_batch(self, fragment: Fragment, start: int, batch: pa.RecordBatch) -> None:
        """Store a result."""
        self.results.keep_batch(self._work(fragment), start, batch)

    def remove(self) -> None:
        """Delete the file, if possible: the columns are committed."""
        path = self.results.path
        try:
            Path(path).unlink()
        except OSError as error:
            import logging

            logging.getLogger(__name__).warning(
                "checkpoint_file %s is no longer needed, and could not be deleted: %s",
                path,
                error.strerror,
            )


class BatchUDFCheckpoint:
    """Batches and finished fragments in an SQLite file, with pylance's interface.

    Parameters
    ----------
    path
        The file, created if missing.
    """

    class BatchInfo(NamedTuple):
        """A batch: its fragment, and its number within the fragment, from 0."""

        fragment_id: int
        batch_index: int

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = path
        self._results = _Results.of(path)

    def get_batch(self, info: BatchInfo) -> pa.RecordBatch | None:
        """Return the stored batch; None if it is missing."""
        return self._results.batch(f"{info.fragment_id}", info.batch_index, info)

    def insert_batch(self, info: BatchInfo, batch: pa.RecordBatch) -> None:
        """Store a batch; replace an earlier one."""
        self._results.keep_batch(f"{info.fragment_id}", info.batch_index, batch)

    def get_fragment(self, fragment_id: int) -> str | None:
        """Return the stored string of a fragment; None if it is missing."""
        return self._results.text(f"{fragment_id}")

    def insert_fragment(self, fragment_id: int, fragment: str) -> None:
        """Store the string of a finished fragment; delete its batches."""
        self._results.keep_text(f"{fragment_id}", fragment)

    def cleanup(self) -> None:
        """Delete the file.

        Raises
        ------
        StoreError
            The file is missing, or deleting it failed.
        """
        with as_store_errors(os.fspath(self.path), "delete"):
            Path(self.path).unlink()


# --- Functions over batches -------------------------------------------------------------

Function = Callable[[pa.RecordBatch], Any]


class BatchUDF:
    """A function that computes new columns from batches; created by :func:`batch_udf`.

    Parameters
    ----------
    func
        Function from a record batch to a record batch, table or data frame with as many rows.
    output_schema
        Schema of the result; default: inferred by a call with one row.
    checkpoint_file
        File that stores results until the columns are committed.
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
        """The checkpoint file, opened, or None."""
        return None if self.checkpoint_file is None else BatchUDFCheckpoint(self.checkpoint_file)

    def __call__(self, batch: pa.RecordBatch) -> Any:
        """Call the function."""
        return self.func(batch)


def batch_udf(
    output_schema: pa.Schema | None = None, checkpoint_file: str | os.PathLike[str] | None = None
) -> Callable[[Function], BatchUDF]:
    """Wrap a function for ``add_columns`` and ``merge_columns``.

    Parameters
    ----------
    output_schema
        Schema of the function's result; default: inferred by a call with one row.
    checkpoint_file
        A file that stores results until the columns are committed. ``add_columns`` with the same
        file resumes where it stopped. The file may grow to the size of the new columns.
    """

    def wrap(func: Function) -> BatchUDF:
        return BatchUDF(func, output_schema, checkpoint_file)

    return wrap


def as_batch(result: Any, schema: pa.Schema | None, rows: int | None) -> pa.RecordBatch:
    """Return the result of a function as one record batch.

    Raises
    ------
    SchemaError
        The result is not a table, or differs from ``schema`` or the number of
        rows. Or it has dates and datetimes in one column, or polars objects.
    """
    if type(result).__module__.startswith("pandas."):
        result = pa.RecordBatch.from_pandas(result, preserve_index=False)
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
            f"new batch has different size with the source batch: {rows} != {result.num_rows}. The "
            "function for new columns must return one row for each row of its input"
        )
    return result


def _text(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name}: {field.type}" for field in schema)
