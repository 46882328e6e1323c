"""Formats of exported files: their options, the types they hold, and their writers."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

import pyarrow as pa

from glaive.arrow.dictionaries import decode_dictionary, has_dictionary
from glaive.errors import OptionError, SchemaError
from glaive.exporting.json_text import check_json_types, json_lines
from glaive.ingestion.formats.options import known_options, option

__all__ = ["FORMATS", "Arrow", "Csv", "Feather", "FileFormat", "Json", "Parquet", "format_named"]

_GROUP_BYTES = 64 << 20
"""Bytes of the rows of a Parquet row group, about."""

_EMPTY_LINE = re.compile(rb"^(?=\n)", re.MULTILINE)

_NO_SEPARATOR = re.compile(r'[A-Za-z0-9+\-.:"\r\n\0]|[^\x00-\x7f]')
"""Parts of numbers and times, which are not quoted, and what the writer of Arrow refuses."""


class FileFormat(ABC):
    """A format of files, with the options of its writer; can be pickled.

    Parameters
    ----------
    options
        By name.

    Raises
    ------
    OptionError
        An option does not exist, or has an invalid value.
    """

    name: ClassVar[str]
    suffix: ClassVar[str]

    @abstractmethod
    def __init__(self, options: Mapping[str, object]) -> None: ...

    def check(self, schema: pa.Schema) -> None:  # noqa: B027  # right for formats with all types
        """Refuse types that the format lacks; names the column."""

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

    def __init__(self, options: Mapping[str, object]) -> None:
        known_options(self.name, options, ("compression",))
        self.compression: Any = _one_of(options, "zstd", ("snappy", "gzip", "lz4", "none"))

    def check(self, schema: pa.Schema) -> None:
        """Refuse types that Arrow has no Parquet for, wherever they are.

        Structs without members, and decimals whose scale is below 0 or above their digits.
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
        """Row groups of about 64 MiB of rows."""
        from pyarrow import parquet

        held: list[pa.RecordBatch] = []
        size = 0
        with parquet.ParquetWriter(out, schema, compression=self.compression) as writer:
            for batch in batches:
                held.append(batch)
                size += batch.nbytes
                if size >= _GROUP_BYTES:
                    writer.write_table(pa.Table.from_batches(held, schema))
                    held, size = [], 0
            if held:
                writer.write_table(pa.Table.from_batches(held, schema))


class Csv(FileFormat):
    """CSV. Options: ``header`` (true), ``sep`` (``,``): a character that no number or time has."""

    name = "csv"
    suffix = ".csv"

    def __init__(self, options: Mapping[str, object]) -> None:
        known_options(self.name, options, ("header", "sep"))
        self.header, self.separator = option(options, "header", True), option(options, "sep", ",")
        if len(self.separator) != 1 or _NO_SEPARATOR.match(self.separator):
            raise OptionError(
                "sep: expected one ASCII character that is no part of a number or time, and no "
                f"quote or end of line, found {self.separator!r:.40}"
            )

    def check(self, schema: pa.Schema) -> None:
        """Refuse nested columns and bytes, and times where the separator is a part of them."""
        for field in schema:
            stored = _stored(field.type)
            if self.separator == " " and pa.types.is_timestamp(stored):
                raise OptionError(
                    f"sep: times of column {field.name} have spaces, too. Give another character"
                )
            if pa.types.is_nested(stored) or "binary" in str(stored):
                raise SchemaError(
                    f"column {field.name}: CSV has no {field.type}. Leave the column out, compute "
                    "a text from it, or export as parquet, arrow or json"
                )

    def write(self, out: Any, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> None:
        """Texts are quoted where needed; extension types are what they store.

        Null is empty, and ``""`` in a file of one column: readers pass over lines that are empty.
        """
        from pyarrow import csv

        schema = pa.schema([field.with_type(_stored(field.type)) for field in schema])
        options = csv.WriteOptions(include_header=self.header, delimiter=self.separator)
        with csv.CSVWriter(out, schema, write_options=options) as writer:
            for batch in batches:
                columns = [getattr(column, "storage", column) for column in batch.columns]
                if len(columns) == 1 and columns[0].null_count:
                    out.write(_lines_of_one(columns[0]))
                else:
                    writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=schema))


class Json(FileFormat):
    """JSON lines. No options."""

    name = "json"
    suffix = ".json"

    def __init__(self, options: Mapping[str, object]) -> None:
        known_options(self.name, options, ())

    def check(self, schema: pa.Schema) -> None:
        """Refuse bytes."""
        check_json_types(schema)

    def write(self, out: Any, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> None:
        """A line for each row."""
        for batch in batches:
            out.write(json_lines(batch))


class Arrow(FileFormat):
    """Arrow's file format. Options: ``compression`` (``lz4``, ``zstd``, ``none``)."""

    name = "arrow"
    suffix = ".arrow"

    def __init__(self, options: Mapping[str, object]) -> None:
        known_options(self.name, options, ("compression",))
        self.compression = _one_of(options, "lz4", ("zstd", "none"))

    def write(self, out: Any, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> None:
        """A record batch for each batch.

        A file has one dictionary for a column: the first one, to which deltas add the items that
        those of other batches have, too.
        """
        codec: Any = None if self.compression == "none" else self.compression
        options = pa.ipc.IpcWriteOptions(compression=codec, emit_dictionary_deltas=True)
        encoded = any(map(has_dictionary, schema.types))
        written: pa.RecordBatch | None = None
        with pa.ipc.new_file(out, schema, options=options) as writer:
            for batch in batches:
                try:
                    writer.write_batch(batch)
                    written = batch
                except pa.ArrowInvalid:  # another dictionary, in the place of the one before
                    if not encoded or written is None:
                        raise
                    written = _with_items_of(written, batch)
                    writer.write_batch(written)


class Feather(Arrow):
    """The same under its other name."""

    name = "feather"
    suffix = ".feather"


FORMATS: dict[str, type[FileFormat]] = {
    kind.name: kind for kind in (Parquet, Csv, Json, Arrow, Feather)
}


def format_named(name: str, options: Mapping[str, object]) -> FileFormat:
    """The format of this name.

    Raises
    ------
    OptionError
        There is none, or an option is wrong.
    """
    kind = FORMATS.get(name)
    if kind is None:
        raise OptionError(f"format: expected one of {', '.join(FORMATS)}, found {name!r}")
    return kind(options)


def _one_of(options: Mapping[str, object], default: str, others: tuple[str, ...]) -> str:
    value = option(options, "compression", default).lower()
    if value not in (default, *others):
        known = ", ".join((default, *others))
        raise OptionError(f"compression: expected one of {known}, found {value!r}")
    return value


def _with_items_of(first: pa.RecordBatch, second: pa.RecordBatch) -> pa.RecordBatch:
    """The rows of the second batch, with dictionaries that begin with those of the first one."""
    both = pa.Table.from_batches([first.slice(0, 0), second]).unify_dictionaries()
    columns: Any = [column.chunk(column.num_chunks - 1) for column in both.columns]
    return pa.RecordBatch.from_arrays(columns, schema=second.schema)


def _lines_of_one(column: Any) -> bytes:
    """Lines of the only column of a CSV file, in which nulls are ``""``."""
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
    """What an extension type is stored as; other types as they are."""
    return data_type.storage_type if isinstance(data_type, pa.BaseExtensionType) else data_type
