"""Formats of files with typed columns: Parquet, ORC, Arrow, Avro."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from io import BufferedReader
from itertools import islice
from typing import Any, ClassVar, Final
from uuid import UUID

import pyarrow as pa

from glaive.errors import FormatError, GlaiveError, MissingDependencyError, UnsupportedFeatureError
from glaive.file.v2.writer import can_pass_through, with_items_of
from glaive.ingestion.sources import (
    Piece,
    Rejects,
    Rows,
    SourceFile,
    SourceFormat,
    in_groups,
    open_source,
    refuse_failure,
)

_BATCH_ROWS: Final = 64 * 1024
_BATCH_BYTES: Final = 64 << 20
"""Bytes of a batch, as the file states them: fewer rows if rows are large."""


def _grouped_pieces(file: SourceFile, sizes: Sequence[int], target_bytes: int) -> list[Piece]:
    """Group consecutive parts of a file, such as row groups, by about ``target_bytes``."""
    groups = in_groups(sizes, target_bytes)
    return [Piece(file, group.start, group.stop, sum(sizes[group])) for group in groups]


# --- Parquet: row groups become record batches with the types that they were written with

_SPARK_METADATA_KEY: Final = b"org.apache.spark.sql.parquet.row.metadata"
"""Entry in the metadata of all files that Spark wrote."""

_DICTIONARIES: Final = frozenset({"RLE_DICTIONARY", "PLAIN_DICTIONARY"})


def open_parquet(source: Any, **options: Any) -> Any:
    """Open a ``pyarrow.parquet.ParquetFile``; its footer is read once.

    By default Spark writes times as INT96. glaive reads these as microseconds, which cover all
    years, unlike Arrow's default, nanoseconds. Files of other writers keep nanoseconds.
    """
    from pyarrow import parquet

    opened = parquet.ParquetFile(source, **options)
    if _SPARK_METADATA_KEY not in (opened.schema_arrow.metadata or {}):
        return opened
    known = {**options, "metadata": opened.metadata}
    return parquet.ParquetFile(source, **known, coerce_int96_timestamp_unit="us")


class Parquet(SourceFormat):
    """Parquet files. Options: none."""

    name = "parquet"
    suffixes: ClassVar[tuple[str, ...]] = (".parquet", ".pq")

    def schema(self, file: SourceFile) -> pa.Schema:
        """Return columns from the footer, with two requests."""
        with open_source(file) as source:
            schema: pa.Schema = _opened_parquet(source, file).schema_arrow
        return schema.remove_metadata()

    def pieces(self, file: SourceFile, target_bytes: int) -> list[Piece]:
        """Return runs of row groups."""
        if file.size <= target_bytes:
            return super().pieces(file, target_bytes)
        with open_source(file) as source:
            footer = _opened_parquet(source, file).metadata
        groups = map(footer.row_group, range(footer.num_row_groups))
        sizes = [
            sum(group.column(at).total_compressed_size for at in range(group.num_columns))
            for group in groups
        ]
        return _grouped_pieces(file, sizes, target_bytes)

    def read(self, piece: Piece, schema: pa.Schema, rejects: Rejects) -> Iterator[Rows]:
        """Yield batches of at most 65,536 rows and 64 MiB; memory: a part of one row group.

        Columns of strings that the file stores as numbers of few items become dictionaries.
        """
        with open_source(piece.file) as source:
            opened = _opened_parquet(source, piece.file)
            given = set(opened.schema_arrow.names)
            names = [name for name in schema.names if name in given]
            stop = opened.num_row_groups if piece.stop is None else piece.stop
            groups = range(piece.start, stop)
            encoded = _encoded_texts(opened, schema, groups)
            if encoded:
                opened = _opened_parquet(source, piece.file, encoded, opened.metadata)
            for number in groups:
                try:
                    group = opened.metadata.row_group(number)
                    each = group.total_byte_size // max(1, group.num_rows)
                    rows = max(1, min(_BATCH_ROWS, _BATCH_BYTES // max(1, each)))
                    for batch in opened.iter_batches(
                        rows, row_groups=[number], columns=names, use_threads=False
                    ):
                        yield _with_texts(batch, schema, encoded) if encoded else batch
                except (pa.ArrowException, OSError) as error:
                    rejects.add_damaged(piece.file, f"row group {number}", error)


def _opened_parquet(
    source: pa.NativeFile, file: SourceFile, encoded: Iterable[str] = (), footer: Any = None
) -> Any:
    try:
        return open_parquet(source, metadata=footer, read_dictionary=list(encoded))
    except (pa.ArrowException, OSError) as error:
        refuse_failure(file, error)
        raise FormatError(f"{file.uri} is not a Parquet file: {error}") from error


def _encoded_texts(opened: Any, schema: pa.Schema, groups: Sequence[int]) -> set[str]:
    """Return the columns whose strings are nearly all numbers of items.

    Such a value takes a byte or less; a plain value takes at least four.
    """
    footer, found = opened.metadata, set()
    row_groups = [footer.row_group(number) for number in groups]
    for at in range(footer.num_columns if row_groups else 0):
        leaf = footer.schema.column(at)
        if leaf.max_repetition_level or leaf.path not in schema.names:
            continue
        chunks = [group.column(at) for group in row_groups]
        kinds = (one.field(leaf.path).type for one in (opened.schema_arrow, schema))
        is_text = {_text_kind(kind) for kind in kinds} in ({pa.string()}, {pa.binary()})
        if is_text and all(
            chunk.total_uncompressed_size <= chunk.num_values and _DICTIONARIES & {*chunk.encodings}
            for chunk in chunks
        ):
            found.add(leaf.path)
    return found


def _text_kind(kind: Any) -> Any:
    """Return ``string`` or ``binary`` for all types of strings; ``None`` for other types."""
    types = pa.types
    if types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind):
        return pa.string()
    is_bytes = types.is_binary(kind) or types.is_large_binary(kind) or types.is_binary_view(kind)
    return pa.binary() if is_bytes else None


def _with_texts(batch: pa.RecordBatch, schema: pa.Schema, names: set[str]) -> pa.RecordBatch:
    """Return rows whose dictionaries have items of the column's type.

    Raises
    ------
    pyarrow.ArrowInvalid
        The file has indices beyond its dictionary.
    """
    columns: list[Any] = list(batch.columns)
    for at, name in enumerate(batch.schema.names):
        if name in names:
            columns[at].validate(full=True)
            kind: Any = schema.field(name).type
            kind = kind if can_pass_through(kind) else _text_kind(kind)
            columns[at] = with_items_of(columns[at], kind)
    return pa.RecordBatch.from_arrays(columns, names=batch.schema.names)


# --- ORC: stripes become tables ----------------------------------------------------------


class Orc(SourceFormat):
    """ORC files. Options: none."""

    name = "orc"
    suffixes: ClassVar[tuple[str, ...]] = (".orc",)

    def schema(self, file: SourceFile) -> pa.Schema:
        """Return columns from the footer."""
        with open_source(file) as source:
            schema: pa.Schema = _opened_orc(source, file).schema
        return schema.remove_metadata()

    def pieces(self, file: SourceFile, target_bytes: int) -> list[Piece]:
        """Return runs of stripes."""
        if file.size <= target_bytes:
            return super().pieces(file, target_bytes)
        with open_source(file) as source:
            stripes = _opened_orc(source, file).nstripes
        return _grouped_pieces(file, [file.size // max(1, stripes)] * stripes, target_bytes)

    def read(self, piece: Piece, schema: pa.Schema, rejects: Rejects) -> Iterator[Rows]:
        """Yield a batch for each stripe; memory: one stripe."""
        with open_source(piece.file) as source:
            opened = _opened_orc(source, piece.file)
            given = set(opened.schema.names)
            names = [name for name in schema.names if name in given]
            stop = opened.nstripes if piece.stop is None else piece.stop
            for number in range(piece.start, stop):
                try:
                    stripe = opened.read_stripe(number, columns=names)
                except (pa.ArrowException, OSError) as error:
                    rejects.add_damaged(piece.file, f"stripe {number}", error)
                    continue
                yield stripe


def _opened_orc(source: pa.NativeFile, file: SourceFile) -> Any:
    from pyarrow import orc

    try:
        opened = orc.ORCFile(source)
        _ = opened.schema  # created here; it may have types that Arrow lacks
    except (pa.ArrowException, OSError) as error:
        refuse_failure(file, error)
        raise FormatError(f"{file.uri} is not an ORC file: {error}") from error
    return opened


# --- Arrow: record batches as they are ---------------------------------------------------


class Arrow(SourceFormat):
    """Files of Arrow, also called Feather. Options: none. A file is one task."""

    name = "arrow"
    suffixes: ClassVar[tuple[str, ...]] = (".arrow", ".feather", ".ipc")

    def schema(self, file: SourceFile) -> pa.Schema:
        """Return columns from the footer."""
        with open_source(file) as source:
            schema: pa.Schema = _opened_arrow(source, file).schema
        return schema

    def read(self, piece: Piece, schema: pa.Schema, rejects: Rejects) -> Iterator[Rows]:
        """Yield the batches of the file; memory: one batch."""
        with open_source(piece.file) as source:
            opened = _opened_arrow(source, piece.file)
            names = [name for name in schema.names if name in opened.schema.names]
            for number in range(opened.num_record_batches):
                try:
                    batch = opened.get_batch(number)
                    for column in map(_valid_times, batch.columns):
                        column.validate(full=True)  # offsets may be wrong: they are only mapped
                except (pa.ArrowException, OSError) as error:
                    rejects.add_damaged(piece.file, f"batch {number}", error)
                    continue
                yield batch.select(names)


def _opened_arrow(source: pa.NativeFile, file: SourceFile) -> Any:
    try:
        return pa.ipc.open_file(source)
    except (pa.ArrowException, OSError) as error:
        refuse_failure(file, error)
        raise FormatError(f"{file.uri} is not an Arrow file: {error}") from error


def _valid_times(column: Any) -> Any:
    """Return times as integers: Arrow refuses values such as 24:00, which are harmless."""
    kind = column.type
    if not (pa.types.is_time(kind) or pa.types.is_date(kind)):
        return column
    return column.view(pa.int64() if kind.bit_width == 64 else pa.int32())


# --- Avro: blocks of records become batches; read by the package fastavro -----------------

_PLAIN: Final[dict[str, pa.DataType]] = {
    "null": pa.null(),
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
    "enum": pa.string(),
    "int date": pa.date32(),
    "int time-millis": pa.time32("ms"),
    "long time-micros": pa.time64("us"),
    "long timestamp-millis": pa.timestamp("ms", "UTC"),
    "long timestamp-micros": pa.timestamp("us", "UTC"),
    "long local-timestamp-millis": pa.timestamp("ms"),
    "long local-timestamp-micros": pa.timestamp("us"),
}
"""Arrow types by stored type, and optional logical type. Other logical types are ignored."""

_MAX_FIXED_BYTES: Final = 1024
"""Largest ``fixed`` in bytes with its own type, as a null takes as many. Others are ``binary``."""


class Avro(SourceFormat):
    """Avro files. Options: none. A file is one task."""

    name = "avro"
    suffixes: ClassVar[tuple[str, ...]] = (".avro",)

    def schema(self, file: SourceFile) -> pa.Schema:
        """Return columns from the header."""
        with open_source(file) as source:
            return _avro_columns(_avro_blocks(source, file), file)

    def read(self, piece: Piece, schema: pa.Schema, rejects: Rejects) -> Iterator[Rows]:
        """Yield batches of at most 65,536 rows."""
        file = piece.file
        with open_source(file) as source:
            blocks = _avro_blocks(source, file)
            columns = _avro_columns(blocks, file)
            names = [name for name in schema.names if name in columns.names]
            number, records = -1, iter(())
            while True:
                try:
                    part = list(islice(records, _BATCH_ROWS))
                    if not part:
                        number += 1
                        block = next(blocks, None)
                        if block is None:
                            return
                        records = iter(block)
                        continue
                    batch = _avro_batch(part, columns, names)
                except Exception as error:  # fastavro raises errors of many types
                    if "codec" in f"{error}":  # the file is sound, but its codec is unknown
                        raise UnsupportedFeatureError(f"{file.uri}: its {error}") from error
                    # The start of the next block is unknown.
                    rejects.add_damaged(file, f"block {number}", error)
                    return
                yield batch


def _avro_blocks(source: pa.NativeFile, file: SourceFile) -> Any:
    try:
        import fastavro
    except ImportError as error:
        raise MissingDependencyError(
            "Avro files need the package fastavro: pip install 'glaive[avro]'"
        ) from error
    try:
        raw: Any = source  # has the methods that the buffer needs
        return fastavro.block_reader(BufferedReader(raw, 1 << 20))
    except Exception as error:
        refuse_failure(file, error)
        raise FormatError(f"{file.uri} is not an Avro file: {error!r}") from error


def _avro_columns(blocks: Any, file: SourceFile) -> pa.Schema:
    written: Any = blocks.writer_schema
    if not isinstance(written, dict) or written.get("type") != "record":
        raise UnsupportedFeatureError(f"{file.uri}: Avro values must be records")
    try:
        return pa.schema(_avro_type(written, file.uri, {}))
    except GlaiveError:
        raise
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise FormatError(f"{file.uri}: its Avro schema is damaged: {error!r}") from error


def _avro_type(written: Any, where: str, known: dict[str, Any]) -> Any:
    """Return the Arrow type of an Avro type; ``known`` has the types with a name."""
    if isinstance(written, list):
        kinds = [kind for kind in written if kind != "null"]
        if len(kinds) > 1 and all(kind in ("int", "long", "float", "double") for kind in kinds):
            kinds = ["long" if {*kinds} <= {"int", "long"} else "double"]
        if len(kinds) > 1:
            raise UnsupportedFeatureError(
                f"{where}: an Avro union of {kinds}; write the file with one type and null"
            )
        return _avro_type(kinds[0], where, known) if kinds else pa.null()
    if isinstance(written, str):
        kind = _PLAIN.get(written) or known[written]
        if kind is _UNFINISHED:
            raise UnsupportedFeatureError(f"{where}: the Avro record {written} contains itself")
        return kind
    kind = written["type"]
    if isinstance(kind, dict | list):
        return _avro_type(kind, where, known)
    name, logical = written.get("name"), written.get("logicalType")
    made: Any = _PLAIN.get(f"{kind} {logical}") or _PLAIN.get(kind)
    if logical == "decimal" and kind in ("bytes", "fixed"):
        decimal = pa.decimal256 if written["precision"] > 38 else pa.decimal128
        made = decimal(written["precision"], written.get("scale", 0))
    elif kind == "fixed":
        sized = pa.binary(written["size"])
        made = sized if written["size"] <= _MAX_FIXED_BYTES else pa.binary()
    elif kind == "array":
        made = pa.list_(_avro_type(written["items"], where, known))
    elif kind == "map":
        made = pa.map_(pa.string(), _avro_type(written["values"], where, known))
    elif kind in ("record", "error"):
        known[name] = _UNFINISHED
        made = pa.struct(
            [
                pa.field(field["name"], _avro_type(field["type"], where, known))
                for field in written["fields"]
            ]
        )
    elif made is None:
        made = known[kind]
    if name is not None:
        known[name] = made
    return made


_UNFINISHED: Final = object()
"""Placeholder for the type of a record whose fields are being read."""


def _avro_batch(records: list[Any], columns: pa.Schema, names: list[str]) -> pa.RecordBatch:
    kinds: list[Any] = [columns.field(name).type for name in names]
    arrays: list[Any] = [
        pa.array([_for_arrow(record[name], kind) for record in records], kind)
        for name, kind in zip(names, kinds, strict=True)
    ]
    return pa.record_batch(arrays, names)


def _for_arrow(value: Any, kind: Any) -> Any:
    """Return a value with maps as lists of pairs, and UUIDs as strings or bytes."""
    if isinstance(value, dict):
        if pa.types.is_map(kind):
            return [(key, _for_arrow(one, kind.item_type)) for key, one in value.items()]
        return {field.name: _for_arrow(value[field.name], field.type) for field in kind}
    if isinstance(value, list):
        return [_for_arrow(one, kind.value_type) for one in value]
    if isinstance(value, UUID):
        return value.bytes if pa.types.is_fixed_size_binary(kind) else str(value)
    return value
