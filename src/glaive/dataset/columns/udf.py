"""Functions over batches that compute new columns, and the checkpoint file of their results."""

from __future__ import annotations

import hashlib
import json
import os
import re
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any, Final, Self

import pyarrow as pa

from glaive.arrow.chunked import join_batches
from glaive.arrow.validation import check_arrays, exported_metadata
from glaive.dataclass import dataclass
from glaive.dataset.fragments.metadata import DataFile
from glaive.dataset.writing.source import refuse_lost_times, refuse_objects, series_of
from glaive.errors import CapacityError, ObjectNotFoundError, OptionError, SchemaError, StoreError
from glaive.format import fragment as stored
from glaive.format.extension_metadata import without_unfit
from glaive.format.fragment import Fragment
from glaive.format.logical_types import EXTENSION_METADATA, EXTENSION_NAME
from glaive.io.failures import as_store_errors
from glaive.io.location import check_root
from glaive.io.sqlite import connect_checked, has_tables
from glaive.io.store import ObjectStore
from glaive.io.uri import open_store
from glaive.named_tuple import NamedTuple

# --- The file in which results of functions are kept: a database of SQLite --------------

_WAIT_SECONDS = 5.0
"""How long to wait for another process that is writing."""

_REMEDIES: Final = {
    sqlite3.SQLITE_BUSY: "wait until the other process that has it open has ended",
    sqlite3.SQLITE_FULL: "free some space and try again",
}
"""What to do about a file that is as it should be, by the code of SQLite."""

_OWN: Final = frozenset({"batches", "files", "kept_batches", "kept_fragments"})
"""Tables that checkpoints have."""

_PREFIX: Final = 8
"""Bytes before a message, at most: a mark, and its length."""

_NAME: Final = EXTENSION_NAME.encode()
_OTHER_NAME: Final = _NAME.lower()
_OF_TYPES: Final = {_OTHER_NAME: EXTENSION_NAME, EXTENSION_METADATA.encode(): EXTENSION_METADATA}


@contextmanager
def checkpoint_file(path: str | os.PathLike[str], tables: str) -> Iterator[sqlite3.Connection]:
    """A connection to the file, created if missing; what was done with it is committed at the end.

    ``tables`` are the statements that make the tables, if they are not there yet.

    Raises
    ------
    OptionError
        The file cannot be used, or is a database of something else: a checkpoint is deleted in the
        end. Or a number or a text that is looked for, or kept, is none that SQLite has.
    """
    check_root(os.fsdecode(path), is_local=True)
    try:
        with closing(connect_checked(path, _WAIT_SECONDS, "DEFERRED")) as connection, connection:
            _refuse_others(connection, path)
            if not has_tables(connection, tables):
                connection.executescript(tables)
            yield connection
    except (OverflowError, UnicodeEncodeError) as error:
        raise OptionError(f"checkpoint_file {path}: no value that it can hold: {error}") from error
    # Messages of SQLite cite a damaged file, which may have any bytes.
    except (sqlite3.Error, UnicodeDecodeError) as error:
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF  # the rest is of extended codes
        remedy = f"Choose another file, or {_REMEDIES.get(code, 'delete this one')}."
        raise OptionError(f"checkpoint_file {path}: {error}. {remedy}") from error


def _refuse_others(connection: sqlite3.Connection, path: str | os.PathLike[str]) -> None:
    query = "SELECT name FROM sqlite_master WHERE type IN ('table', 'view')"
    for (name,) in connection.execute(query):
        if str(name).lower() not in _OWN and not str(name).startswith("sqlite_"):
            raise OptionError(
                f"checkpoint_file {path}: it is a database with other tables, such as "
                f"{name!r:.60}, which would be deleted with it. Choose another file"
            )


def read_batch(data: object, path: object, subject: object) -> pa.RecordBatch:
    """The batch that is stored in a file; checked, as its offsets may be anything.

    Raises
    ------
    OptionError
        It is none; ``subject`` says of what it is.
    """
    try:
        if not isinstance(data, bytes):
            raise TypeError(f"expected bytes, found {type(data).__name__}")
        _check_types(data)
        with pa.ipc.open_stream(data) as reader:
            batch = reader.read_next_batch()
        check_arrays(batch)
    except (pa.ArrowException, EOFError, OSError, StopIteration, TypeError, ValueError) as error:
        raise OptionError(
            f"checkpoint_file {path}: the result for {subject} cannot be read ({error}). Delete "
            "the file to start over."
        ) from error
    return batch


def _check_types(data: bytes) -> None:
    """Refuse extension types that Arrow is not given from files: it makes them while it reads.

    Raises
    ------
    ValueError
        There is one whose parameters do not fit, or are neither text nor JSON.
    """
    head = data[: _PREFIX + pa.ipc.read_message(data).metadata.size]
    # By another name of the same length, it is metadata like any other.
    schema = pa.ipc.read_schema(pa.py_buffer(head.replace(_NAME, _OTHER_NAME)))
    if any(key == _OTHER_NAME for key, _ in exported_metadata(schema)):
        raise ValueError("the schema itself has an extension type, which no schema is of")
    ahead: list[pa.Field[Any]] = [*schema]
    while ahead:
        field = ahead.pop()
        pairs = exported_metadata(field)
        said = {_OF_TYPES[key]: value for key, value in pairs if key in _OF_TYPES}
        repeated = len(said) < sum(key in _OF_TYPES for key, _ in pairs)
        if EXTENSION_NAME in said and (repeated or without_unfit(said, field.type) != said):
            raise ValueError(f"column {field.name!r:.60} has an extension type of unfit parameters")
        ahead += _members(field.type)


def _members(kind: Any) -> list[pa.Field[Any]]:
    if isinstance(kind, pa.DictionaryType):
        kind = kind.value_type
    return [kind.field(at) for at in range(kind.num_fields)]


# --- A checkpoint of new columns that processes of a cluster share: a file for each fragment
# A finished fragment is a JSON file that names the data file with its new columns. Data files lie
# in the dataset, where no version refers to them before the commit; the folder is elsewhere.

_FILE_NAME: Final = re.compile(r"[0-9a-f]{64}\.json")
"""Of the file of a fragment; the folder may have others."""


@dataclass(frozen=True, slots=True)
class CheckpointFolder:
    """Finished fragments by what was to be done with them; can be pickled.

    Parameters
    ----------
    store
        The folder.
    job
        Identifies the new columns: files of other jobs are ignored.
    """

    store: ObjectStore
    job: str

    @classmethod
    def open(cls, uri: str, job: str, storage_options: Mapping[str, str] | None = None) -> Self:
        """Start or resume a checkpoint; the folder is made when a fragment is finished."""
        return cls(open_store(uri, storage_options), job)

    def _name(self, fragment: Fragment) -> str:
        """Of the file for a fragment in its current state: other files or deletions change it."""
        content = fragment.to_wire().SerializeToString(deterministic=True)
        return hashlib.sha256(self.job.encode() + content).hexdigest() + ".json"

    def batch(
        self, fragment: Fragment, start: int
    ) -> pa.RecordBatch | None:  # results of batches are not kept
        """None: fragments are kept whole."""
        return None

    def keep_batch(self, fragment: Fragment, start: int, batch: pa.RecordBatch) -> None:
        """Nothing: fragments are kept whole."""

    def file(self, fragment: Fragment) -> stored.DataFile | None:
        """The finished file of a fragment, if any.

        Raises
        ------
        OptionError
            What is there under its name is none.
        """
        name = self._name(fragment)
        try:
            data = self.store.get(name)
        except ObjectNotFoundError:
            return None
        try:
            return DataFile(**json.loads(bytes(data))).to_stored()
        except (TypeError, ValueError, RecursionError) as error:
            raise OptionError(
                f"checkpoint {self.store.full(name)}: no description of a data file ({error}). "
                "Choose another folder, or delete this file"
            ) from error

    def keep_file(self, fragment: Fragment, file: stored.DataFile) -> None:
        """Store a finished file; the last attempt counts."""
        text = json.dumps(DataFile.of(file).to_json())
        self.store.put(self._name(fragment), [text.encode()])

    def remove(self) -> None:
        """Delete the files of the folder that checkpoints made, if that is possible.

        The columns are committed.
        """
        with suppress(StoreError):
            names = [meta.path for meta in self.store.list("")]
            self.store.discard(list(filter(_FILE_NAME.fullmatch, names)))


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
        return None if self.checkpoint_file is None else BatchUDFCheckpoint(self.checkpoint_file)

    def __call__(self, batch: pa.RecordBatch) -> Any:
        """Call the function itself."""
        return self.func(batch)


def batch_udf(
    output_schema: pa.Schema | None = None, checkpoint_file: str | os.PathLike[str] | None = None
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


# --- ``BatchUDFCheckpoint``: results of a function by fragment and batch, under pylance's name

# Apart from the tables of Checkpoint, which may be in the same file.
_CHECKPOINT_TABLES = """
CREATE TABLE IF NOT EXISTS kept_batches
    (fragment_id INT, batch_index INT, result BLOB, PRIMARY KEY (fragment_id, batch_index));
CREATE TABLE IF NOT EXISTS kept_fragments (fragment_id INT PRIMARY KEY, data TEXT);
"""


class BatchUDFCheckpoint:
    """Batches and finished fragments in a file (SQLite), kept by hand.

    ``add_columns`` keeps its own results in the same file, by what was computed from which rows.

    Parameters
    ----------
    path
        Created if missing.

    Raises
    ------
    OptionError
        The file cannot be used.
    """

    class BatchInfo(NamedTuple):
        """Which batch: the fragment, and its number within it, from 0 on."""

        fragment_id: int
        batch_index: int

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = path
        with checkpoint_file(self.path, _CHECKPOINT_TABLES):
            pass  # it can be used

    def get_batch(self, info: BatchInfo) -> pa.RecordBatch | None:
        """The batch that was kept; None if there is none.

        Raises
        ------
        OptionError
            What the file has for it is no batch.
        """
        query = "SELECT result FROM kept_batches WHERE fragment_id = ? AND batch_index = ?"
        with checkpoint_file(self.path, _CHECKPOINT_TABLES) as connection:
            row = connection.execute(query, tuple(info)).fetchone()
        return None if row is None else read_batch(row[0], self.path, info)

    def insert_batch(self, info: BatchInfo, batch: pa.RecordBatch) -> None:
        """Keep a batch; one that was kept before is replaced."""
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, batch.schema) as writer:
            writer.write_batch(batch)
        values = (*info, sink.getvalue().to_pybytes())
        with checkpoint_file(self.path, _CHECKPOINT_TABLES) as connection:
            connection.execute("INSERT OR REPLACE INTO kept_batches VALUES (?, ?, ?)", values)

    def get_fragment(self, fragment_id: int) -> str | None:
        """The text that was kept for a fragment; None if there is none."""
        query = "SELECT data FROM kept_fragments WHERE fragment_id = ?"
        with checkpoint_file(self.path, _CHECKPOINT_TABLES) as connection:
            row = connection.execute(query, (fragment_id,)).fetchone()
        return None if row is None else str(row[0])

    def insert_fragment(self, fragment_id: int, fragment: str) -> None:
        """Keep the text of a finished fragment; its batches are no longer needed."""
        with checkpoint_file(self.path, _CHECKPOINT_TABLES) as connection:
            connection.execute(
                "INSERT OR REPLACE INTO kept_fragments VALUES (?, ?)", (fragment_id, fragment)
            )
            connection.execute("DELETE FROM kept_batches WHERE fragment_id = ?", (fragment_id,))

    def cleanup(self) -> None:
        """Delete the file.

        Raises
        ------
        StoreError
            The system refuses, or there is none.
        """
        with as_store_errors(os.fspath(self.path), "delete"):
            Path(self.path).unlink()
