"""An export: tasks write whole files of other formats, and then the driver writes a mark."""

from __future__ import annotations

import dataclasses
import json
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, ClassVar, Final, Literal, TypeAlias, get_args
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from glaive.arrow.chunked import decode_dictionary, has_dictionary
from glaive.dataclass import dataclass
from glaive.dataset.scanner import Scanner
from glaive.dataset.tasks import LOCAL, FragmentRange, TaskRunner
from glaive.dataset.version import OpenDataset, OpenedVersion
from glaive.errors import (
    CommitConflictError,
    DatasetExistsError,
    ObjectNotFoundError,
    OptionError,
    SchemaError,
    StoreError,
)
from glaive.ingestion.sources import Configured
from glaive.ingestion.task import JOB_ID
from glaive.io.access import open_store
from glaive.io.local_sink import final_name
from glaive.io.store import ObjectStore, Sink
from glaive.options import SWITCH, Kind, one_of
from glaive.process import random_bytes

# --- Arrow values as JSON, column by column ---------------------------------------------
#
# The values are as Spark writes them: times in ISO 8601, infinite numbers and NaN as strings,
# decimals as numbers. Nulls are written, so that every line has all columns.

_TEXT: Final = pa.large_string()
_CONTROL: Final = {number: json.dumps(chr(number))[1:-1] for number in range(32)}
"""Characters that JSON must escape, besides quotation mark and backslash."""


def json_lines(batch: pa.RecordBatch) -> pa.Buffer:
    """Return the rows of a batch, each a JSON object and a line end."""
    rows = pa.StructArray.from_arrays(batch.columns, fields=list(batch.schema))
    lines: Any = pc.binary_join_element_wise(json_texts(rows), _constant(""), _constant("\n"))
    offsets = np.frombuffer(lines.buffers()[1], np.int64)[lines.offset :]
    first, end = int(offsets[0]), int(offsets[len(lines)])
    data: pa.Buffer = lines.buffers()[2]
    return data.slice(first, end - first)


def json_texts(values: Any) -> Any:
    """Return the values of an array as JSON; ``null`` for null."""
    data_type = values.type
    if isinstance(values, pa.ExtensionArray):
        return json_texts(values.storage)
    if pa.types.is_null(data_type):
        return pa.repeat(_constant("null"), len(values))
    if pa.types.is_dictionary(data_type):
        return json_texts(values.cast(data_type.value_type))
    if pa.types.is_struct(data_type):
        texts = _members(values)
    elif pa.types.is_map(data_type):
        texts = _entries(values)
    elif hasattr(data_type, "value_field"):
        texts = _joined(values, json_texts(values.flatten()), "[", "]")
    else:
        texts = _plain(values)
    return pc.fill_null(texts, _constant("null"))


def _plain(values: Any) -> Any:
    """Return JSON of flat values; null for null."""
    data_type = values.type
    types = pa.types
    if types.is_boolean(data_type) or types.is_integer(data_type) or types.is_decimal(data_type):
        return values.cast(_TEXT)
    if types.is_floating(data_type):
        return _numbers(values)
    if types.is_timestamp(data_type):
        texts = values.cast(_TEXT)
        iso = pc.replace_substring(texts, " ", "T", max_replacements=1)
        return _quoted(pc.if_else(pc.starts_with(texts, "<"), texts, iso))  # <value out of range…>
    if types.is_duration(data_type):
        return values.cast(pa.int64()).cast(_TEXT)
    return _quoted(_escaped(values.cast(_TEXT)))


def _numbers(values: Any) -> Any:
    """Return JSON of numbers, which may be infinite."""
    if values.type == pa.float16():
        values = values.cast(pa.float32())
    texts = values.cast(_TEXT)
    for special, text in (
        (pc.is_nan(values), '"NaN"'),
        (pc.equal(values, pa.scalar(float("inf"), values.type)), '"Infinity"'),
        (pc.equal(values, pa.scalar(float("-inf"), values.type)), '"-Infinity"'),
    ):
        texts = pc.if_else(special, _constant(text), texts)
    return texts


def _escaped(texts: Any) -> Any:
    for character, escape in (("\\", "\\\\"), ('"', '\\"')):
        texts = pc.replace_substring(texts, character, escape)
    if pc.any(pc.match_substring_regex(texts, "[\\x00-\\x1f]")).as_py():
        for number, escape in _CONTROL.items():
            texts = pc.replace_substring(texts, chr(number), escape)
    return texts


def _quoted(texts: Any) -> Any:
    return _enclosed(texts, '"', '"')


def _members(values: Any) -> Any:
    """Return structs as JSON objects; null for null."""
    parts: list[Any] = []
    for number, (field, column) in enumerate(zip(values.type, values.flatten(), strict=True)):
        name = _quoted(_escaped(pa.array([field.name], _TEXT)))[0].as_py()
        parts += [_constant(f"{',' if number else '{'}{name}:"), json_texts(column)]
    if not parts:
        parts = [pa.repeat(_constant("{"), len(values))]
    texts = pc.binary_join_element_wise(*parts, _constant("}"), _constant(""))
    return pc.if_else(values.is_valid(), texts, pa.scalar(None, _TEXT))


def _entries(values: Any) -> Any:
    """Return maps as JSON objects with strings as keys; null for null."""
    # Cast to lists: Arrow then counts their entries, and leaves out entries of null maps.
    key, item = values.type.key_field, values.type.item_field
    lists = values.cast(pa.list_(pa.struct([key, item])))
    keys, items = lists.flatten().flatten()
    names = json_texts(keys)
    # Strings and times have quotes already; numbers, lists and structs stay unquoted.
    names = pc.if_else(pc.starts_with(names, '"'), names, _quoted(_escaped(names)))
    pairs = pc.binary_join_element_wise(names, json_texts(items), _constant(":"))
    return _joined(lists, pairs, "{", "}")


def _joined(values: Any, texts: Any, opening: str, closing: str) -> Any:
    """Return the strings of each list, joined with commas; null for null."""
    lengths = pc.fill_null(pc.list_value_length(values), 0)
    ends = np.cumsum(lengths.to_numpy(zero_copy_only=False), dtype=np.int64)
    offsets = pa.array(np.concatenate([np.zeros(1, np.int64), ends]))
    lists = pa.LargeListArray.from_arrays(offsets, texts)
    joined = _enclosed(pc.binary_join(lists, _constant(",")), opening, closing)
    return pc.if_else(values.is_valid(), joined, pa.scalar(None, _TEXT))


def _enclosed(texts: Any, before: str, after: str) -> Any:
    return pc.binary_join_element_wise(_constant(before), texts, _constant(after), _constant(""))


def _constant(text: str) -> Any:
    return pa.scalar(text, _TEXT)


def _has_bytes(data_type: Any) -> bool:
    if isinstance(data_type, pa.BaseExtensionType):
        return _has_bytes(data_type.storage_type)
    if pa.types.is_dictionary(data_type):
        return _has_bytes(data_type.value_type)
    if not data_type.num_fields:
        return "binary" in f"{data_type}"
    return any(_has_bytes(data_type.field(at).type) for at in range(data_type.num_fields))


_GROUP_BYTES = 64 << 20
"""Approximate bytes of the rows of a Parquet row group."""

_EMPTY_LINE = re.compile(rb"^(?=\n)", re.MULTILINE)

_INVALID_SEPARATOR = re.compile(r'[A-Za-z0-9+\-.:"\r\n\0]|[^\x00-\x7f]')
"""Parts of numbers and times, which stay unquoted, and characters that Arrow refuses."""


def _separator(given: Any) -> str:
    if len(given) != 1 or _INVALID_SEPARATOR.match(given):
        raise ValueError(given)
    return str(given)


_SEPARATOR: Final = Kind(
    "one ASCII character that cannot be part of a number or time, and no quote or end of line",
    _separator,
)


class FileFormat(Configured, ABC):
    """A format of files, with the options of its writer; can be pickled."""

    suffix: ClassVar[str]

    def check(self, schema: pa.Schema) -> None:  # right for formats with all types
        """Refuse types that the format lacks; the error names the column."""

    @abstractmethod
    def write(self, out: Any, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> None:
        """Write a file.

        Parameters
        ----------
        out
            A ``pyarrow.NativeFile``.
        """


class Parquet(FileFormat):
    """Parquet. Options: ``compression`` (``zstd``, ``snappy``, ``gzip``, ``lz4``, ``none``)."""

    name = "parquet"
    suffix = ".parquet"

    options: ClassVar = {"compression": (one_of("zstd", "snappy", "gzip", "lz4", "none"), "zstd")}

    def check(self, schema: pa.Schema) -> None:
        """Refuse types that Arrow cannot map to Parquet, also in nested columns.

        They are empty structs, and decimals whose scale is below 0 or above their digits.
        """
        from pyarrow import parquet

        for field in schema:
            try:
                parquet.ParquetWriter(pa.BufferOutputStream(), pa.schema([field])).close()
            except (pa.ArrowException, OSError) as error:
                raise SchemaError(
                    f"column {field.name}: Parquet has no {field.type}: {error}. Leave the column "
                    "out, or export as arrow or json"
                ) from error

    def write(self, out: Any, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> None:
        """Write row groups of about 64 MiB of rows."""
        from pyarrow import parquet

        held: list[pa.RecordBatch] = []
        size = 0
        with parquet.ParquetWriter(out, schema, compression=self.given.compression) as writer:
            for batch in batches:
                held.append(batch)
                size += batch.nbytes
                if size >= _GROUP_BYTES:
                    writer.write_table(pa.Table.from_batches(held, schema))
                    held, size = [], 0
            if held:
                writer.write_table(pa.Table.from_batches(held, schema))


class Csv(FileFormat):
    """CSV. Options: ``header`` (true), ``sep`` (``,``): a character outside numbers and times."""

    name = "csv"
    suffix = ".csv"

    options: ClassVar = {"header": (SWITCH, True), "sep": (_SEPARATOR, ",")}

    def check(self, schema: pa.Schema) -> None:
        """Refuse nested columns and bytes, and times that contain the separator."""
        for field in schema:
            stored = _stored(field.type)
            if self.given.sep == " " and pa.types.is_timestamp(stored):
                raise OptionError(
                    f"sep: times of column {field.name} have spaces, too. Give another character"
                )
            if pa.types.is_nested(stored) or "binary" in str(stored):
                raise SchemaError(
                    f"column {field.name}: CSV has no {field.type}. Leave the column out, compute "
                    "a text from it, or export as parquet, arrow or json"
                )

    def write(self, out: Any, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> None:
        """Write strings with quotes where needed; extension types as their storage.

        Null is empty, or ``""`` in a file of one column: readers skip empty lines.
        """
        from pyarrow import csv

        schema = pa.schema([field.with_type(_stored(field.type)) for field in schema])
        options = csv.WriteOptions(include_header=self.given.header, delimiter=self.given.sep)
        with csv.CSVWriter(out, schema, write_options=options) as writer:
            for batch in batches:
                columns = [getattr(column, "storage", column) for column in batch.columns]
                if len(columns) == 1 and columns[0].null_count:
                    out.write(_lines_of_one(columns[0]))
                else:
                    writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=schema))


class Json(FileFormat):
    """JSON lines. Options: none."""

    name = "json"
    suffix = ".json"

    def check(self, schema: pa.Schema) -> None:
        """Refuse bytes, which JSON lacks."""
        for field in schema:
            if _has_bytes(field.type):
                raise SchemaError(
                    f"column {field.name}: JSON has no bytes, found {field.type}. Leave the column "
                    "out, or export as parquet or arrow"
                )

    def write(self, out: Any, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> None:
        """Write a line for each row."""
        for batch in batches:
            out.write(json_lines(batch))


class Arrow(FileFormat):
    """Arrow's file format. Options: ``compression`` (``lz4``, ``zstd``, ``none``)."""

    name = "arrow"
    suffix = ".arrow"

    options: ClassVar = {"compression": (one_of("lz4", "zstd", "none"), "lz4")}

    def write(self, out: Any, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> None:
        """Write a record batch for each batch.

        A file has one dictionary for a column. It is the dictionary of the first batch;
        deltas add items of later batches.
        """
        codec: Any = None if self.given.compression == "none" else self.given.compression
        options = pa.ipc.IpcWriteOptions(compression=codec, emit_dictionary_deltas=True)
        encoded = any(map(has_dictionary, schema.types))
        written: pa.RecordBatch | None = None
        with pa.ipc.new_file(out, schema, options=options) as writer:
            for batch in batches:
                try:
                    writer.write_batch(batch)
                    written = batch
                except pa.ArrowInvalid:  # the batch has another dictionary
                    if not encoded or written is None:
                        raise
                    written = _with_items_of(written, batch)
                    writer.write_batch(written)


class Feather(Arrow):
    """Arrow's file format by its other name."""

    name = "feather"
    suffix = ".feather"


FORMATS: dict[str, type[FileFormat]] = {
    kind.name: kind for kind in (Parquet, Csv, Json, Arrow, Feather)
}


def format_named(name: str, options: Mapping[str, object]) -> FileFormat:
    """Return the format of this name.

    Raises
    ------
    OptionError
        The format is unknown, or an option is wrong.
    """
    kind = FORMATS.get(name)
    if kind is None:
        raise OptionError(
            f"format: expected one of {', '.join(FORMATS)}, found {name!r}. Write other formats "
            "with a frame of Spark"
        )
    return kind(options)


def _with_items_of(first: pa.RecordBatch, second: pa.RecordBatch) -> pa.RecordBatch:
    """Give the rows of the second batch dictionaries that begin with the first batch's."""
    both = pa.Table.from_batches([first.slice(0, 0), second]).unify_dictionaries()
    columns: Any = [column.chunk(column.num_chunks - 1) for column in both.columns]
    return pa.RecordBatch.from_arrays(columns, schema=second.schema)


def _lines_of_one(column: Any) -> bytes:
    """Return the lines of a CSV file's only column; nulls are ``""``."""
    from pyarrow import csv

    if pa.types.is_dictionary(column.type):
        column = decode_dictionary(column)
    is_text = "string" in str(column.type)
    if is_text:
        column = column.cast(pa.large_string()).fill_null("")
    lines = pa.BufferOutputStream()
    csv.write_csv(pa.table({"": column}), lines, csv.WriteOptions(include_header=False))
    written = lines.getvalue().to_pybytes()
    return written if is_text else _EMPTY_LINE.sub(b'""', written)


def _stored(data_type: pa.DataType) -> pa.DataType:
    """Return the storage type of an extension type; other types as they are."""
    return data_type.storage_type if isinstance(data_type, pa.BaseExtensionType) else data_type


# --- The folder: which run may write to it, and what happens to the files of others -------
#
# Names of files contain the job and the run, so that no run replaces the files of another. A run
# has a claim, the file ``_started-…``, until it ends. A run that takes its place removes the claim.
# Tasks check the claim before they make a file visible, and the driver checks it before it removes
# files of others. These are removed when all files of the run exist. The mark ``_SUCCESS`` comes
# last, and names the files that belong together.

DONE: Final = "_SUCCESS"
"""The mark, with the same name as Spark's."""

_JOB: Final = r"[A-Za-z0-9._-]+"
"""A name as opposed to a path: files in a folder below belong to somebody else."""

_ROWS: Final = r"part-(?:[mr]-)?[0-9]{5,}(?:[-_.][-A-Za-z0-9_.]*)?"
_EXPORTED: Final = re.compile(
    rf"{_ROWS}|_SUCCESS|_started-{_JOB}-[0-9a-f]{{16}}|\.(?:{_ROWS}|_SUCCESS)\.crc"
)
_CLAIM: Final = re.compile(rf"_started-({_JOB})-([0-9a-f]{{16}})")
_PART: Final = re.compile(rf"part-\d+-({_JOB})-([0-9a-f]{{16}})\.\w+")
"""A file with rows: its job, and the run that wrote it."""

ExportMode: TypeAlias = Literal["errorifexists", "ignore", "append", "overwrite"]


@dataclass(frozen=True, slots=True)
class ExportRun:
    """One run of an export; can be pickled.

    Parameters
    ----------
    folder
        Folder of the files.
    job, id
        The job, and a random name of this run.
    """

    folder: ObjectStore
    job: str
    id: str

    @property
    def claim(self) -> str:
        """The file that exists while the run continues."""
        return f"_started-{self.job}-{self.id}"

    def name(self, number: int, suffix: str) -> str:
        """Return the name of a file with rows."""
        return f"part-{number:05}-{self.job}-{self.id}{suffix}"

    def check(self) -> None:
        """Check that the run has its claim, with one request.

        Raises
        ------
        CommitConflictError
            Another run took its place, or it has ended.
        """
        try:
            self.folder.head(self.claim)
        except ObjectNotFoundError:
            raise CommitConflictError(
                f"another export to {self.folder.uri} began while this one ran ({self.job}), and "
                "took its place: no file of this export stays there. Run it again after the other "
                "export has ended, if its rows should be there instead",
                retryable=False,
            ) from None

    def withdraw(self, names: Iterable[str]) -> None:
        """End the run, and remove its files; failures of the store are ignored."""
        with suppress(StoreError):
            self.folder.delete([self.claim, *sorted(names)])


def _job_of(path: str) -> str | None:
    """Return the job that wrote a file; ``None`` for other files than an export's."""
    match = _PART.fullmatch(path) or _CLAIM.fullmatch(path)
    return None if match is None else match[1]


def _begin(run: ExportRun, mode: ExportMode) -> list[str] | None:
    """Claim the folder, and return the files to replace; ``None`` if the run is to be skipped.

    Raises
    ------
    DatasetExistsError
        The folder has files, and ``mode`` is ``errorifexists``.
    OptionError
        ``overwrite`` would remove files that no export wrote.
    """
    folder, listed = run.folder, _listed(run.folder)
    others = [path for path in listed if _job_of(path) != run.job]
    if others and mode == "errorifexists":
        raise DatasetExistsError(
            f"{folder.uri} has files, such as {others[0]}. Pass mode='append' or 'overwrite', or "
            "choose another folder"
        )
    if mode == "overwrite":
        _refuse_others(folder, others)
    if others and mode == "ignore":
        return None

    def replaces(path: str) -> bool:
        return _job_of(path) == run.job or (mode == "overwrite" and bool(_EXPORTED.fullmatch(path)))

    replaced = [path for path in listed if replaces(path)]
    replaced += [path for path, final in _unfinished(folder) if replaces(final) or final == DONE]
    # Runs that were stopped after they wrote a mark leave claims.
    files = read_mark(folder).get("files", ()) if DONE in listed else ()
    ended = {match[2] for path in files if (match := _PART.fullmatch(path))}
    claims = {path: match[2] for path in listed if (match := _CLAIM.fullmatch(path))}
    removed = {path for path, of in claims.items() if of in ended or path in replaced}
    folder.delete(sorted(removed))
    folder.delete([DONE] if DONE in listed else [])
    folder.put(run.claim, [json.dumps({"mode": mode}).encode()], mode="create")
    return [path for path in replaced if path != DONE and path not in removed]


def _finish(
    run: ExportRun, names: frozenset[str], replaced: Sequence[str], facts: Mapping[str, object]
) -> None:
    """Remove the files that the run replaces, write the mark, and end the run.

    Raises
    ------
    CommitConflictError
        Another run took the place of this one, or somebody removed its files.
    StoreError
        The store failed. If the mark is certainly missing, the files of the run are removed. They
        stay if files of others were already removed.
    """
    folder = run.folder
    try:
        run.check()
        listed = [path for path in _listed(folder) if path not in replaced]
        if lost := names.difference(listed):
            raise CommitConflictError(
                f"{len(lost)} files of the export {run.job} to {folder.uri} were removed by "
                f"somebody else, such as {min(lost)}. Run it again",
                retryable=False,
            )
    except CommitConflictError:
        run.withdraw(names)
        raise
    folder.delete(sorted(replaced))
    going = {match[2] for path in listed if (match := _CLAIM.fullmatch(path))} - {run.id}
    files = [
        path
        for path in listed
        if not any(part.startswith(("_", ".")) for part in path.split("/"))
        and not ((part := _PART.fullmatch(path)) and part[2] in going)
    ]
    mark = {"job": run.job, "run": run.id, **facts, "files": files}
    try:
        folder.put(DONE, [json.dumps(mark).encode()])
    except StoreError as error:
        if read_mark(folder).get("run") != run.id:
            if not replaced and not error.is_unanswered:
                run.withdraw(names)
            raise
    # The files stay from here on: the mark may exist.
    with suppress(StoreError):  # the next run removes it
        folder.delete([run.claim])


def read_mark(folder: ObjectStore) -> dict[str, Any]:
    """Return the facts in the mark of the last export, with one request; empty if missing."""
    try:
        facts = json.loads(folder.get(DONE).to_pybytes())
    except (ObjectNotFoundError, ValueError):
        return {}
    if not isinstance(facts, dict):  # a mark of another tool
        return {}
    files = facts.get("files")
    texts = files if isinstance(files, list) else []
    return {**facts, "files": [path for path in texts if isinstance(path, str)]}


def _refuse_others(folder: ObjectStore, listed: Iterable[str]) -> None:
    """Refuse to remove files of other programs.

    Raises
    ------
    OptionError
        Another program wrote a file; the message names the first one.
    """
    for path in listed:
        if not _EXPORTED.fullmatch(path):
            raise OptionError(
                f"mode 'overwrite': {path!r} in {folder.uri} is not a file of an export. Remove "
                "it, or choose another folder"
            )


def _listed(folder: ObjectStore) -> list[str]:
    return [meta.path for meta in folder.walk("")]


def _unfinished(folder: ObjectStore) -> Iterator[tuple[str, str]]:
    """Yield unfinished files, as of killed writers, with their final names."""
    for meta in folder.unfinished(""):
        final = final_name(meta.path)
        if final is not None:
            yield meta.path, final


# --- Tasks and the export ----------------------------------------------------------------

BATCH_BYTES: Final = 8 << 20

_COUNTS: Final = ("num_files", "num_rows", "bytes")


@dataclass(frozen=True, slots=True)
class ExportTask:
    """Write the rows of some fragments to a file; can be pickled.

    The task may run again, or twice at a time: the same rows then replace the file. It makes files
    visible only while its run lasts, and until another run takes the place of its run.

    Parameters
    ----------
    fragments
        Fragments and their version.
    run
        The run of the export.
    number
        Number of the file.
    file_format
        Format of the file.
    scan
        Options of the scan: columns, filter, handling of blobs.
    """

    fragments: FragmentRange
    run: ExportRun = dataclasses.field(repr=False)
    number: int
    file_format: FileFormat = dataclasses.field(repr=False)
    scan: Mapping[str, Any]

    @property
    def name(self) -> str:
        """The name of the file."""
        return self.run.name(self.number, self.file_format.suffix)

    def execute(self, dataset: OpenDataset) -> tuple[int, int]:
        """Write the file; return its rows and bytes. Memory: some batches, a row group.

        Raises
        ------
        CommitConflictError
            The run was ended; the file is discarded.
        SchemaError
            The format cannot represent a value; the file is discarded.
        """
        opened = self.fragments.opened(dataset)
        ids = self.fragments.ids(opened)
        scanner = Scanner.of(opened.views, fragments=ids, batch_size_bytes=BATCH_BYTES, **self.scan)
        rows = 0

        def counted() -> Iterator[pa.RecordBatch]:
            nonlocal rows
            for batch in scanner.to_batches():
                rows += batch.num_rows
                yield batch

        sink = self.run.folder.create(self.name)
        try:
            target: Any = _Writable(sink)  # has the methods that Arrow needs
            with pa.PythonFile(target, "w") as out:
                self._write(out, scanner.projected_schema, counted())
            self.run.check()
            return rows, self._finished(sink)
        except BaseException:
            sink.abort()
            raise

    def _write(self, out: Any, schema: pa.Schema, batches: Iterator[pa.RecordBatch]) -> None:
        try:
            self.file_format.write(out, schema, batches)
        except pa.ArrowException as error:
            raise SchemaError(
                f"export: a value does not fit {self.file_format.name}: {error}. Leave the column "
                "out, cast it, or export as arrow"
            ) from error

    def _finished(self, sink: Sink) -> int:
        try:
            return sink.finish()
        except StoreError:
            self.run.check()  # a run that took its place removes unfinished files, too
            raise


class _Writable:
    """A sink with the methods of a file; only the task makes it visible."""

    closed = False

    def __init__(self, sink: Sink) -> None:
        self._sink = sink

    def write(self, data: bytes) -> int:
        self._sink.write([data])
        return len(data)

    def tell(self) -> int:
        return self._sink.position

    def flush(self) -> None:
        """Return; the sink decides when to write."""

    def close(self) -> None:
        """Return; the task finishes the sink."""


def export_files(  # noqa: PLR0913  # one keyword for each option
    opened: OpenedVersion,
    path: str,
    format: str,  # the public name
    mode: ExportMode = "errorifexists",
    *,
    columns: Sequence[str] | Mapping[str, str] | None = None,
    filter: str | None = None,  # the name that scans have for it
    options: Mapping[str, object] | None = None,
    storage_options: Mapping[str, str] | None = None,
    job_id: str | None = None,
    runner: TaskRunner = LOCAL.runner,
) -> dict[str, int]:
    """Write rows of a version to files of a folder.

    Parameters
    ----------
    path
        The folder; local or a URI.
    format
        One of :data:`FORMATS`.
    mode
        If the folder has files: ``errorifexists`` raises an error; ``ignore`` keeps them;
        ``append`` adds files. ``overwrite`` removes the files of other exports when the new files
        exist, and takes the place of exports that still run.
    columns, filter
        As for scans; default: all columns and rows.
    options
        Options of the format; see its class.
    storage_options
        Options of the folder's store.
    job_id
        Name of this export. A call with the same name takes the place of earlier runs and removes
        their files. If a run has finished, the call returns its result.
    runner
        Runner of the tasks.

    Returns
    -------
    dict
        ``num_files``, ``num_rows``, ``bytes``.

    Raises
    ------
    DatasetExistsError
        The folder has files, and ``mode`` is ``errorifexists``.
    OptionError
        The format, the mode or an option is wrong, or ``overwrite`` would remove files that no
        export wrote.
    SchemaError
        The format cannot represent a column; the message names it. This is checked before tasks
        run.
    CommitConflictError
        Another export to the folder took the place of this export, and its files are removed.

    Notes
    -----
    The export needs three listings of the folder, and one request for each task besides its file.
    Readers of the folder see files when they are finished. The file ``_SUCCESS`` is written last,
    and removed when another export begins. Its ``files`` are the files that belong together.
    """
    one_of(*get_args(ExportMode)).check("mode", mode)
    file_format = format_named(format, options or {})
    scan = {"columns": columns, "filter": filter, "blob_handling": "all_binary"}
    file_format.check(Scanner.of(opened.views, **scan).projected_schema)
    folder = open_store(path, storage_options)
    job = f"{uuid4()}" if job_id is None else JOB_ID.check("job_id", job_id)
    done = None if job_id is None else _done(folder, job)
    if done is not None:
        return done
    run = ExportRun(folder, job, random_bytes(8).hex())
    replaced = _begin(run, mode)
    if replaced is None:
        return dict.fromkeys(_COUNTS, 0)
    parts = runner.parts(opened) or [FragmentRange(opened.manifest.version)]
    tasks = [ExportTask(part, run, at, file_format, scan) for at, part in enumerate(parts)]
    names = frozenset(task.name for task in tasks)
    try:
        written = runner.run(opened, tasks)
    except BaseException as error:
        run.withdraw(names)
        return _other_result(run, error, named=job_id is not None)
    rows, size = sum(rows for rows, _ in written), sum(size for _, size in written)
    counts = dict(zip(_COUNTS, (len(written), rows, size), strict=True))
    try:
        _finish(run, names, replaced, {"version": opened.manifest.version, **counts})
    except CommitConflictError as error:
        return _other_result(run, error, named=job_id is not None)
    return counts


def _other_result(run: ExportRun, error: BaseException, *, named: bool) -> dict[str, int]:
    """Return the result of a run of the same job that took this run's place; or raise the error."""
    conflict = named and isinstance(error, CommitConflictError)
    done = _done(run.folder, run.job) if conflict else None
    if done is None:
        raise error
    return done


def _done(folder: ObjectStore, job: str) -> dict[str, int] | None:
    """Return the result of an earlier run of the job, if it finished."""
    facts = read_mark(folder)
    if facts.get("job") != job:
        return None
    counts = {name: facts.get(name) for name in _COUNTS}
    if not all(type(count) is int and count >= 0 for count in counts.values()):
        return None
    # The last run of the job may have been stopped after it wrote the mark.
    marks = [path for path, final in _unfinished(folder) if final == DONE]
    claim = ExportRun(folder, job, f"{facts.get('run')}").claim
    folder.delete([*marks, *([claim] if _CLAIM.fullmatch(claim) else [])])
    return {name: int(count) for name, count in counts.items() if count is not None}
