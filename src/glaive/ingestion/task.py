"""Tasks of an ingest: values that can be sent to other processes."""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from decimal import Decimal
from typing import Any, Final, Literal, Self, TypeAlias, get_args
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc

from glaive.arrow.chunked import cut_views
from glaive.arrow.conditions import python_rows
from glaive.dataclass import dataclass
from glaive.dataset.version import OpenDataset
from glaive.dataset.writing.conform import conform
from glaive.dataset.writing.fragments import write_fragments
from glaive.dataset.writing.plan import DataLocation, WritePlan
from glaive.errors import (
    CommitError,
    ExpectationError,
    GlaiveError,
    ObjectNotFoundError,
    OptionError,
    SchemaError,
    StoreError,
)
from glaive.expr.bind import check_column_texts
from glaive.expr.filters import bind_filter
from glaive.format.fields import LanceSchema
from glaive.format.fragment import packed_fragments, unpacked_fragments
from glaive.format.paths import is_generated_data_file_name
from glaive.ingestion.sources import Piece, Rejects, Rows, SourceFile, SourceFormat
from glaive.io.store import ObjectStore
from glaive.options import Kind, one_of
from glaive.process import random_bytes
from glaive.table.references import can_be_committed

# --- The journal of a job: what its finished tasks wrote, so that the next run can reuse it ---
#
# No version depends on the journal: one commit, with the id of the job, makes the version. A job
# that runs again finds its commit in the newest manifest, or else its finished tasks in the
# journal. The manifest forgets a job after many other jobs. Then only the journal can say that a
# commit may exist.
#
# Runs of a job that overlap share the results of their tasks. Each run writes its notes about its
# own commit to a separate file, so that no run removes the note of another.
#
# Entries of tasks and notes have a digest. An entry that was damaged or replaced counts as missing.
# A note like this may mean any version.

# --- The result of an ingest, and the results of its tasks -------------------------------


@dataclass(frozen=True, slots=True)
class IngestedPieces:
    """The uncommitted result of a task; can be pickled.

    Parameters
    ----------
    fragments
        The serialized fragments, before they get ids.
    bad_fragments
        Fragments of the dataset of bad records, serialized.
    bad_records
        Number of bad records.
    dropped
        Number of rows that were left out because they violate ``expect``.
    """

    fragments: tuple[bytes, ...]
    bad_fragments: tuple[bytes, ...] = ()
    bad_records: int = 0
    dropped: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class IngestResult:
    """The result of an ingest.

    Parameters
    ----------
    version
        The version with the rows.
    rows
        Number of rows written, or for ``merge`` inserted and updated.
    files
        Number of files read.
    bad_records
        Number of records put aside, because they are malformed or violate ``expect``.
    dropped
        Number of rows left out, because they violate ``expect``.
    job_id
        Id of the job.
    repeated
        Whether an earlier run had committed the job, so that this run was skipped.
    changed
        With ``once``: number of files left out that changed since an earlier load read them.
    """

    version: int
    rows: int
    files: int
    bad_records: int
    dropped: int = 0
    job_id: str
    repeated: bool = False
    changed: int = 0


JOBS: Final = "_glaive/jobs"
"""Folder of journals below the root of a dataset; other libraries ignore it."""

NotedCommit: TypeAlias = Literal["rows", "bad"]
"""A job may make two versions: one of the dataset of bad records, and then its own."""


def _job_id(given: Any) -> str:
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}", given):
        raise ValueError(given)
    return str(given)


JOB_ID: Final = Kind("up to 128 letters, digits, '.', '_' or '-'", _job_id)

_ENTRY: Final = re.compile(r"(?:[0-9a-f]{32}|(?:rows|bad)-[0-9a-f]{16}|committing)\.json")
"""Names of entries that are removed when the version exists. Earlier releases wrote the last one.
The folder may have other files: it may be a link to another folder of the dataset."""


@dataclass(frozen=True, slots=True)
class Journal:
    """The journal of one job.

    Parameters
    ----------
    store
        Root of the dataset.
    job_id
        Letters, digits, ``.``, ``_`` and ``-``, 128 at most.

    Raises
    ------
    OptionError
        The id has other characters.
    """

    store: ObjectStore
    job_id: str

    def __post_init__(self) -> None:
        JOB_ID.check("job_id", self.job_id)

    @property
    def _folder(self) -> str:
        return f"{JOBS}/{self.job_id}"

    @property
    def end(self) -> str:
        """The file with the version that the job made."""
        return f"{self._folder}/committed.json"

    def finished(
        self, key: str, *, rows: Sequence[DataLocation], bad_records: Sequence[DataLocation]
    ) -> IngestedPieces | None:
        """Return the result of a task, if it is finished and its files exist, and will stay.

        ``rows`` and ``bad_records`` are the locations to which tasks write these. This takes one
        request for an unfinished task; otherwise one more for each file.
        """
        entry = self._read_sealed(f"{self._folder}/{key}.json")
        if entry is None:
            return None
        try:
            count = entry["bad_records"]
            if not isinstance(count, int):
                return None
            dropped = entry["dropped"]
            if not isinstance(dropped, int):
                return None
            result = IngestedPieces(
                _decoded(entry["fragments"]), _decoded(entry["bad_fragments"]), count, dropped
            )
            places = [*_file_locations(result.fragments, rows)]
            places += _file_locations(result.bad_fragments, bad_records)
        except (KeyError, TypeError, ValueError):
            return None
        try:
            stays = all(can_be_committed(store.head(path)) for store, path in places)
        except ObjectNotFoundError:
            return None
        return result if stays else None

    def finish(self, key: str, result: IngestedPieces) -> None:
        """Record the result of a task."""
        entry = {
            "fragments": [base64.b64encode(data).decode() for data in result.fragments],
            "bad_fragments": [base64.b64encode(data).decode() for data in result.bad_fragments],
            "bad_records": result.bad_records,
            "dropped": result.dropped,
        }
        self._put_sealed(f"{self._folder}/{key}.json", entry)

    def begun(self, commit: NotedCommit) -> int | None:
        """Return the last version before a run of the job began a commit with an unknown end.

        This takes one listing, and one request for each such run, and for an end in the journal.
        """
        wanted = f"{self._folder}/{commit}-"
        paths = [meta.path for meta in self.store.list(self._folder)]
        notes = map(self._read_sealed, (path for path in paths if path.startswith(wanted)))
        noted = list(map(_version, notes))
        if self.end in paths and self.committed() is None:
            noted.append(None)
        # A note or an end that is unreadable may mean any version.
        return min((version or 0 for version in noted), default=None)

    @contextmanager
    def committing(self, commit: NotedCommit, since: int) -> Iterator[None]:
        """Note, while a run of the job commits, that the version of the job comes next.

        Parameters
        ----------
        commit
            Commit of the rows, or of the bad records.
        since
            The version of the job is later than this version.
        """
        path = f"{self._folder}/{commit}-{random_bytes(8).hex()}.json"
        self._put_sealed(path, {"version": since})
        try:
            yield
        except GlaiveError as error:
            # Errors of a store, and of a commit without an answer: the version may exist.
            if type(error) is not CommitError and not isinstance(error, StoreError):
                with suppress(StoreError):
                    self.store.delete([path])
            raise

    def committed(self) -> int | None:
        """Return the version that the job made, if the journal has its end."""
        return _version(self._read(self.end)) or None

    def commit(self, version: int) -> None:
        """Record the version, and remove the entries of the tasks.

        Ignore failures of the store: the version exists, and the next run of the job finds it.
        """
        try:
            self.store.put(self.end, [json.dumps({"version": version}).encode()])
        except StoreError as error:
            _log_failure(error)
        else:
            self.clear()

    def clear(self) -> None:
        """Remove the entries of the tasks, which are unused when the version exists.

        If the store fails, the other entries stay for the next run of the job.
        """
        try:
            entries = list(self._entries())
            if entries:
                self.store.delete(entries)
        except StoreError as error:
            _log_failure(error)

    def _entries(self) -> Iterator[str]:
        for meta in self.store.list(self._folder):
            if _ENTRY.fullmatch(meta.path.rpartition("/")[2]):
                yield meta.path

    def _put_sealed(self, path: str, entry: dict[str, object]) -> None:
        sealed = {**entry, "digest": _digest(path, entry)}
        self.store.put(path, [json.dumps(sealed).encode()])

    def _read_sealed(self, path: str) -> dict[str, object] | None:
        """Read an entry, if it is as written under this name."""
        entry = self._read(path)
        if entry is None or entry.pop("digest", None) != _digest(path, entry):
            return None
        return entry

    def _read(self, path: str) -> dict[str, object] | None:
        try:
            entry = json.loads(self.store.get(path).to_pybytes())
        except (ObjectNotFoundError, ValueError, RecursionError):
            return None
        return entry if isinstance(entry, dict) else None


def _version(entry: dict[str, object] | None) -> int | None:
    version = None if entry is None else entry.get("version")
    return version if type(version) is int and version >= 0 else None


def _digest(path: str, entry: dict[str, object]) -> str | None:
    """Return a digest of an entry and its name; ``None`` for a foreign entry."""
    try:
        text = json.dumps([path.rpartition("/")[2], entry], sort_keys=True)
    except RecursionError:
        return None
    return hashlib.sha256(text.encode()).hexdigest()


def _log_failure(error: StoreError) -> None:
    import logging

    logging.getLogger(__name__).debug("the end of a job was not written down: %s", error)


def _decoded(texts: object) -> tuple[bytes, ...]:
    if not isinstance(texts, list):
        raise TypeError(texts)
    return tuple(base64.b64decode(text, validate=True) for text in texts)


def _file_locations(
    fragments: tuple[bytes, ...], locations: Sequence[DataLocation]
) -> Iterator[tuple[ObjectStore, str]]:
    """Yield the locations of a task's files; refuse names and locations of other programs."""
    known = {location.base_id: location for location in locations}
    for fragment in unpacked_fragments(fragments, "the journal"):
        for file in fragment.files:
            if not is_generated_data_file_name(file.path):
                raise ValueError(file)
            location = known[file.base_id]
            yield location.store, location.path_of(file.path)


# --- Conditions that rows must meet, and the treatment of rows that violate them ---------

OnViolation: TypeAlias = Literal["fail", "drop", "quarantine"]

_MAX_SHOWN = 300
"""Characters of a row in a message."""


@dataclass(frozen=True, slots=True)
class Expectations:
    """Conditions by name; can be pickled.

    A row violates a condition that is false or null.

    Parameters
    ----------
    conditions
        Names and conditions, in the filter language.
    on_violation
        ``fail`` raises an error at the first violating row, ``drop`` leaves such rows out and
        counts them, ``quarantine`` makes them bad records.
    """

    conditions: tuple[tuple[str, str], ...]
    on_violation: OnViolation = "fail"

    @classmethod
    def of(
        cls, expect: str | Mapping[str, str] | None, on_violation: str, *, has_quarantine: bool
    ) -> Self | None:
        """Return the conditions of a user; ``None`` if they are missing.

        Raises
        ------
        OptionError
            ``expect`` has another type than a string or strings by name, or ``quarantine`` lacks a
            dataset.
        """
        one_of(*get_args(OnViolation)).check("on_violation", on_violation)
        if expect is None:
            return None
        given: Any = {"expect": expect} if isinstance(expect, str) else expect
        if not isinstance(given, Mapping) or not all(
            isinstance(part, str) and part.strip() for pair in given.items() for part in pair
        ):
            raise OptionError(
                "expect: expected a condition such as 'price > 0', or conditions by name, found "
                f"{expect!r:.80}"
            )
        if on_violation == "quarantine" and not has_quarantine:
            raise OptionError("on_violation='quarantine': name the dataset for the rows")
        return cls(tuple(given.items()), on_violation)  # type: ignore[arg-type]  # checked above

    def check(self, schema: LanceSchema) -> None:
        """Refuse conditions that are invalid for rows of a schema.

        Raises
        ------
        FilterError
            A condition is wrong; the message names the error and its position.
        """
        for _, condition in self.conditions:
            check_column_texts(schema, condition)
            bind_filter(condition, schema)

    def kept(
        self, rows: Rows, columns: pa.Schema, schema: LanceSchema, file: SourceFile, into: Rejects
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows that meet all conditions.

        Parameters
        ----------
        columns, schema
            The types of the rows, as an Arrow schema and as the schema of the dataset.
        file
            File of the rows.
        into
            Counts the other rows, or puts them aside.

        Raises
        ------
        ExpectationError
            A row violates a condition, and ``on_violation`` is ``fail``.
        """
        filters = [(name, text, bind_filter(text, schema)) for name, text in self.conditions]
        for batch in conformed(rows, columns):
            left = batch
            for name, text, bound in filters:
                mask = bound.mask(left)
                if mask.true_count == len(left):
                    continue
                self._violated(left.filter(pc.invert(mask)), f"{name}: {text}", file, into)
                left = left.filter(mask)
            if left.num_rows:
                yield left

    def _violated(
        self, rows: pa.RecordBatch, expectation: str, file: SourceFile, into: Rejects
    ) -> None:
        if self.on_violation == "drop":
            into.drop(rows.num_rows)
            return
        if self.on_violation == "fail":
            shown = _row_texts(rows.slice(0, 1))[0].decode()[:_MAX_SHOWN]
            raise ExpectationError(
                f"{file.uri}: a row violates the expectation {expectation}: {shown}. Correct the "
                "source, or drop or quarantine such rows with on_violation"
            )
        for text in _row_texts(rows):
            into.add(file, None, f"expectation {expectation}", text)


def _row_texts(rows: pa.RecordBatch) -> list[bytes]:
    """Return each row as JSON."""
    return [json.dumps(row, default=str, ensure_ascii=False).encode() for row in python_rows(rows)]


def conformed(rows: Rows, columns: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield rows with the types of columns; raise ``SchemaError`` if a value does not fit."""
    for part in cut_views(rows):
        fitted = conform(part, columns)
        yield from fitted.to_batches() if isinstance(fitted, pa.Table) else [fitted]


# --- Columns whose values are in the names of folders, as Spark writes them: ``day=3/a.parquet``

_NULL: Final = ("", "__HIVE_DEFAULT_PARTITION__")

_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,39}")
_NUMBER: Final = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
_DOUBLE: Final = re.compile(rf"\s*({_NUMBER.pattern}[fFdD]?|[+-]?(NaN|Infinity))\s*", re.ASCII)
_TIME: Final = re.compile(r"\d{4}-\d\d-\d\d( \d\d:\d\d:\d\d(\.\d{1,6})?)?", re.ASCII)

_INFERRED: Final[tuple[tuple[frozenset[str], Any], ...]] = (
    (frozenset(), pa.string()),
    (frozenset({"int"}), pa.int32()),
    (frozenset({"int", "long"}), pa.int64()),
    (frozenset({"int", "long", "decimal"}), pa.decimal128(38, 0)),
    (frozenset({"int", "double"}), pa.float64()),
    (frozenset({"date"}), pa.date32()),
    (frozenset({"date", "timestamp"}), pa.timestamp("us", "UTC")),
)
"""The type of a column by the kinds of its values; string for other kinds, as in Spark."""


def folder_texts(folder: str, path: str) -> dict[str, str | None]:
    """Return the names and values of columns in the names of the folders of a file.

    Parameters
    ----------
    folder
        The source that the caller gave. Its own name counts, and the names of folders directly
        above it that have values.
    path
        Path of the file, relative to the folder.
    """
    if "://" in folder:
        path = path.partition("?")[0]  # the rest is the signature of a URL
    parts = path.split("/")[:-1]
    for part in reversed(folder.rstrip("/").split("/")):
        if "=" not in part:
            break
        parts.insert(0, part)
    named = (part.partition("=") for part in parts if "=" in part[1:])
    return {
        _unescaped(name): None if text in _NULL else _unescaped(text) for name, _, text in named
    }


def folder_columns(files: Iterable[tuple[str, str]]) -> list[pa.Field[Any]]:
    """Return the columns in the names of folders.

    Parameters
    ----------
    files
        As for :func:`folder_texts`.
    """
    names: dict[str, str] = {}
    kinds: dict[str, set[str]] = {}
    for folder, path in files:
        for name, text in folder_texts(folder, path).items():
            names.setdefault(name.lower(), name)
            kinds.setdefault(name.lower(), set()).update(() if text is None else [_kind(text)])
    return [
        pa.field(name, next((made for of, made in _INFERRED if kinds[key] <= of), pa.string()))
        for key, name in names.items()
    ]


def folder_values(
    folder: str, path: str, columns: Iterable[pa.Field[Any]], own: Collection[str]
) -> dict[str, Any]:
    """Return the values of a file's columns that are in the names of its folders, as scalars.

    Parameters
    ----------
    folder, path
        As for :func:`folder_texts`.
    columns
        All columns.
    own
        Names of columns that the file has; their values stay.

    Raises
    ------
    SchemaError
        A value has another type than its column.
    """
    texts = {name.lower(): text for name, text in folder_texts(folder, path).items()}
    return {
        column.name: scalar_of(texts[key], column, f"{folder}{path}")
        for column in columns
        if column.name not in own and (key := column.name.lower()) in texts
    }


def completed(
    rows: pa.RecordBatch | pa.Table, schema: pa.Schema, values: Mapping[str, Any]
) -> pa.Table:
    """Return rows with the columns of a schema: existing columns unchanged, others null.

    The values fill columns that the rows lack.
    """
    columns: list[Any] = []
    for field in schema:
        if field.name in values:
            columns.append(pa.repeat(values[field.name], len(rows)))
            continue
        at = rows.schema.get_field_index(field.name)
        columns.append(pa.nulls(len(rows), field.type) if at < 0 else rows.column(at))
    return pa.table(columns, names=schema.names)


def scalar_of(text: str | None, column: pa.Field[Any], where: str) -> Any:
    """Return a value of a column from its text, as Spark and Delta write it."""
    kind: Any = column.type
    if text is not None and pa.types.is_integer(kind):
        text = text.removeprefix("+")
    elif text is not None and pa.types.is_floating(kind):
        text = text.strip()
        text = text[:-1] if text[-1:] in "fFdD" and _NUMBER.fullmatch(text[:-1]) else text
    values: Any = pa.array([text], pa.string())
    try:
        if pa.types.is_timestamp(kind) and kind.tz is not None:
            values = pc.utf8_rtrim(values, "Z").cast(pa.timestamp(kind.unit))
        return values.cast(kind)[0]
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise SchemaError(
            f"{where}: the value {text!r} in the name of a folder is not {kind}, the type of the "
            f"column {column.name!r}. Name another type in schema= for a new dataset, pass "
            "schema_drift='widen' for a wider type of the same kind, or rename the folder"
        ) from error


def _kind(text: str) -> str:
    """Return the kind of value that Spark infers from a string."""
    if _INTEGER.fullmatch(text) and -(2**63) <= int(text) < 2**63:
        return "int" if -(2**31) <= int(text) < 2**31 else "long"
    if (number := _NUMBER.fullmatch(text)) and len(number[2] or "") < 6:
        exponent: Any
        _, digits, exponent = Decimal(text).as_tuple()
        if exponent >= 0 and len(digits) + exponent <= 38:
            return "decimal"
    if _DOUBLE.fullmatch(text):
        return "double"
    if found := _TIME.fullmatch(text):
        try:
            datetime.fromisoformat(text)
        except ValueError:  # a date such as 2026-02-30
            return "text"
        return "timestamp" if found[1] else "date"
    return "text"


def _unescaped(text: str) -> str:
    """Resolve escapes such as ``%3A``.

    Raises
    ------
    SchemaError
        The name of the folder is invalid UTF-8.
    """
    try:
        text.encode()
        return unquote(text, errors="strict")
    except UnicodeDecodeError:  # Spark escapes characters instead of bytes
        return unquote(text, encoding="latin-1")
    except UnicodeEncodeError:
        raise SchemaError(
            f"{text!a}, in the name of a folder, is not UTF-8. Rename the folder"
        ) from None


def whole_rows(
    piece: Piece, source_format: SourceFormat, schema: pa.Schema, rejects: Rejects
) -> Iterator[Rows]:
    """Yield the rows of a piece with all columns, in order.

    If the file lacks a column, the names of folders give its values, or the values are null.
    """
    file, own = piece.file, None
    if not source_format.named and folder_texts(file.folder, file.path):
        own = set(source_format.schema(file).names)  # its rows have the other columns as nulls
    for rows in source_format.read(piece, schema, rejects):
        if not len(rows):
            continue
        given = set(rows.schema.names) if own is None else own
        values = folder_values(file.folder, file.path, schema, given)
        same = rows.schema.names == schema.names and not values
        yield rows if same else completed(rows, schema, values)


@dataclass(frozen=True, slots=True)
class IngestTask:
    """Read pieces of files and write their rows to data files. :meth:`execute` runs it.

    The task may run again, or twice at the same time. Each run writes separate files, and readers
    see only the files that the commit names.

    Parameters
    ----------
    pieces
        The pieces to read, in order.
    source_format
        The format, which reads the pieces.
    schema
        Columns to write.
    write
        The plan of the write.
    bad_records
        The plan of the write of unreadable records; ``None``: such a record is an error.
    job_id
        Id of the job, for bad records.
    journal
        The journal that records finished tasks, so that they run once.
    expectations
        Conditions that rows must meet.
    """

    pieces: tuple[Piece, ...]
    source_format: SourceFormat = dataclasses.field(repr=False)
    schema: pa.Schema = dataclasses.field(repr=False)
    write: WritePlan = dataclasses.field(repr=False)
    bad_records: WritePlan | None = dataclasses.field(default=None, repr=False)
    job_id: str | None = None
    journal: Journal | None = dataclasses.field(default=None, repr=False)
    expectations: Expectations | None = None

    @property
    def size(self) -> int:
        """Bytes of the sources."""
        return sum(piece.size for piece in self.pieces)

    @property
    def key(self) -> str:
        """A key of tasks that read the same bytes into the same columns of the same datasets.

        It leaves out the location of the new files: the journal checks their location.
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
        """Yield the rows that meet the conditions, with all columns."""
        expected, stored = self.expectations, self.write.schema
        for piece in self.pieces:
            for whole in whole_rows(piece, self.source_format, self.schema, rejects):
                if expected is None:
                    yield whole
                else:
                    yield from expected.kept(whole, self.schema, stored, piece.file, rejects)

    def execute(
        self, dataset: OpenDataset | None = None
    ) -> IngestedPieces:  # the dataset may be missing
        """Read and write, unless an earlier run of the job has done this.

        Raises
        ------
        FormatError
            A file or a record is malformed.
        ExpectationError
            A row violates a condition.
        StoreError
            A store failed.

        Notes
        -----
        Memory: a block of 16 MiB of a file with its values, or a batch, and a page of each
        column. A failed task removes its files.
        """
        journal, quarantine = self.journal, self.bad_records
        if journal is not None:
            places = () if quarantine is None else quarantine.locations
            done = journal.finished(self.key, rows=self.write.locations, bad_records=places)
            if done is not None:
                return done
        rejects = Rejects(keep=quarantine is not None, job_id=self.job_id)
        # Writers of such pages accept dictionary-encoded strings as they were read.
        keep = getattr(self.write.profile, "pages", None) == "layouts"
        fragments = write_fragments(self.write, self.rows(rejects), keep_dictionaries=keep)
        bad = []
        if quarantine is not None and len(rejects):
            bad = write_fragments(quarantine, rejects.batches())
        written, put_aside = packed_fragments(fragments), packed_fragments(bad)
        result = IngestedPieces(written, put_aside, len(rejects), rejects.dropped)
        if journal is not None:
            journal.finish(self.key, result)
        return result


def _form(plan: WritePlan) -> str:
    """Return a string for two plans, equal if files of one fit the dataset of the other."""
    columns = [
        (entry.id, entry.name, entry.logical_type, entry.nullable) for entry in plan.schema.walk()
    ]
    items = [(number, values.to_pylist()) for number, values in sorted(plan.dictionaries.items())]
    numbers = () if plan.rules is None else (plan.rules.numbers, plan.rules.task)
    return repr((f"{plan.version}", columns, sorted(plan.blobs.bases.items()), items, *numbers))
