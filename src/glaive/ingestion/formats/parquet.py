"""Parquet: row groups become record batches with the types that they were written with."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, ClassVar, Final

import numpy as np
import pyarrow as pa

from glaive.errors import FormatError
from glaive.file.v2.dictionary_passthrough import can_pass_through, with_items_of
from glaive.ingestion.formats.options import grouped_pieces, known_options
from glaive.ingestion.sources import (
    Piece,
    RangeFile,
    Rejects,
    Rows,
    SourceFile,
    SourceFormat,
    open_source,
    refuse_failure,
)
from glaive.types import ByteRange

# --- Whether Python may look at what a Parquet file says of its columns -----------------
# pyarrow ends the process where these parts of the footer are damaged: it does not expect an error
# of Arrow when Python asks for one of them. Reading the columns does.


def can_be_described(footer: Any, groups: Sequence[int], size: int) -> bool:
    """Whether row groups of a footer tell where their columns lie; nothing is read.

    Parameters
    ----------
    footer
        The ``FileMetaData``.
    groups
        Numbers of the row groups.
    size
        Bytes of the file.
    """
    from pyarrow import parquet

    source: Any = _Unread(size)  # of a reader, all that is asked
    file: Any = pa.PythonFile(RangeFile(source), "r")
    try:
        # Reading ahead begins with the places of all columns.
        opened: Any = parquet.ParquetFile(file, metadata=footer, pre_buffer=True)
        next(opened.iter_batches(1, row_groups=groups, use_threads=False), None)
    except (pa.ArrowException, OSError):
        return bool(source.was_asked)
    return False  # there is nothing to read


class _Unread:
    """A source of bytes that notes that somebody wants them, and refuses."""

    was_asked = False

    def __init__(self, size: int) -> None:
        self.size = size

    def read(self, ranges: Sequence[ByteRange]) -> list[pa.Buffer]:
        self.was_asked = True
        raise OSError(f"{ranges} are not read")

    def close(self) -> None:
        """Nothing is open."""


# --- Texts that a Parquet file has as numbers of few items, and that are read as such ---
# Arrow merges equal items of a dictionary, and then confuses its numbers. So the file's own count
# of items is compared with that of the dictionary that was read.

_DICTIONARIES: Final = frozenset({"RLE_DICTIONARY", "PLAIN_DICTIONARY"})
_HEADER_BYTES: Final = 64
_INTEGER, _STRUCT, _FIRST_INTEGER, _DICTIONARY_HEADER = 5, 12, 0x15, 7


def item_counts(
    source: Any, opened: Any, schema: pa.Schema, groups: Sequence[int]
) -> dict[str, list[int]]:
    """Columns whose texts are nearly all numbers of items; how many items each row group has.

    Such a value takes a byte or less, one without a dictionary at least four. A wrong guess, as
    for columns that are mostly null, only takes longer to read. One small read for each column
    and row group.

    Parameters
    ----------
    source
        The file, as Arrow has it.
    opened
        The ``ParquetFile`` over it.
    schema
        Columns to read, and the types they are to have.
    """
    footer, found = opened.metadata, {}
    row_groups = [footer.row_group(number) for number in groups]
    for at in range(footer.num_columns):
        leaf = footer.schema.column(at)
        index = schema.get_field_index(leaf.path)
        in_file = opened.schema_arrow.get_field_index(leaf.path)
        if min(index, in_file) < 0 or leaf.max_repetition_level:
            continue
        stored, wanted = opened.schema_arrow.field(in_file).type, schema.field(index).type
        if _is_string(stored) is None or _is_string(stored) != _is_string(wanted):
            continue
        chunks = [group.column(at) for group in row_groups]
        if all(map(_is_encoded, chunks)):
            counts = [_items(source, chunk) for chunk in chunks]
            present = [count for count in counts if count is not None]
            if counts and len(present) == len(counts):
                found[leaf.path] = present
    return found


def has_all_items(batch: pa.RecordBatch, counts: Mapping[str, int]) -> bool:
    """Whether the dictionaries of the first rows of a row group have as many items as the file."""
    columns: list[Any] = [batch.column(name) for name in counts]
    return all(
        len(column.dictionary) == count
        for column, count in zip(columns, counts.values(), strict=True)
    )


def tidied(batch: pa.RecordBatch, schema: pa.Schema, names: Mapping[str, Any]) -> pa.RecordBatch:
    """Rows whose dictionaries have items of the type of the column.

    Raises
    ------
    pyarrow.ArrowInvalid
        The file has numbers of items that do not exist.
    """
    columns: list[Any] = []
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        if name in names:
            _check(name, column)
            kind: Any = schema.field(name).type
            if not can_pass_through(kind):  # a view, which is stored as plain text
                kind = pa.string() if _is_string(kind) else pa.binary()
            columns.append(with_items_of(column, kind))
        else:
            columns.append(column)
    return pa.RecordBatch.from_arrays(columns, names=batch.schema.names)


def _check(name: str, column: Any) -> None:
    numbers = column.indices.drop_null() if column.null_count else column.indices
    found = np.asarray(numbers).view(np.uint32)
    if len(found) and int(found.max()) >= len(column.dictionary):
        raise pa.ArrowInvalid(f"column {name!r} has numbers of items that do not exist")


def _is_string(kind: Any) -> bool | None:
    """Whether texts of this type are strings, else bytes; None for other types."""
    types = pa.types
    if types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind):
        return True
    is_bytes = types.is_binary(kind) or types.is_large_binary(kind) or types.is_binary_view(kind)
    return False if is_bytes else None


def _is_encoded(chunk: Any) -> bool:
    small = chunk.total_uncompressed_size <= chunk.num_values
    return bool(small and _DICTIONARIES & {*chunk.encodings} and chunk.dictionary_page_offset)


def _items(source: Any, chunk: Any) -> int | None:
    """Items of the dictionary of a chunk, by the header of its page; None if it is another page.

    The header is a struct of Thrift's compact protocol: its members up to the header of the
    dictionary, whose first is the count, are integers.
    """
    header = iter(source.read_at(_HEADER_BYTES, chunk.dictionary_page_offset))
    member = 0
    for byte in header:
        member += byte >> 4
        if byte & 15 == _STRUCT and member == _DICTIONARY_HEADER:
            return _integer(header) if next(header, 0) == _FIRST_INTEGER else None
        if byte & 15 != _INTEGER or byte >> 4 == 0 or _integer(header) is None:
            return None
    return None


def _integer(data: Iterator[int]) -> int | None:
    """The next integer: 7 bits in each byte, the sign in the lowest one."""
    value = shift = 0
    for byte in data:
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return value >> 1 ^ -(value & 1)
    return None


# --- Times of Parquet files that Spark wrote, which are microseconds --------------------
# Unless it is set otherwise, Spark writes them as INT96, which Arrow reads as nanoseconds: those
# before 1677 and after 2262, such as the last day of 9999, would become others without a word.
# Files of other writers keep their nanoseconds.

_OF_SPARK: Final = b"org.apache.spark.sql.parquet.row.metadata"
"""Entry of the metadata of all files that Spark wrote."""


def open_parquet(source: Any, **options: Any) -> Any:
    """A ``pyarrow.parquet.ParquetFile``; its footer is read once.

    Parameters
    ----------
    source
        The file.
    **options
        Of ``ParquetFile``.
    """
    from pyarrow import parquet

    opened = parquet.ParquetFile(source, **options)
    if _OF_SPARK not in (opened.schema_arrow.metadata or {}):
        return opened
    known = {**options, "metadata": opened.metadata}
    return parquet.ParquetFile(source, **known, coerce_int96_timestamp_unit="us")


_BATCH_ROWS = 64 * 1024
_BATCH_BYTES = 64 << 20
"""Bytes of a batch, as the file states them: fewer rows where rows are large."""


class Parquet(SourceFormat):
    """Parquet files. No options."""

    name = "parquet"
    suffixes: ClassVar[tuple[str, ...]] = (".parquet", ".pq")

    def __init__(self, options: Mapping[str, object]) -> None:
        known_options(self.name, options, ())

    def schema(self, file: SourceFile) -> pa.Schema:
        """Columns from the footer. Two requests."""
        with open_source(file) as source:
            schema: pa.Schema = _opened(source, file).schema_arrow
        return schema.remove_metadata()

    def pieces(self, file: SourceFile, target_bytes: int) -> list[Piece]:
        """Runs of row groups."""
        if file.size <= target_bytes:
            return [Piece(file, 0, None, file.size)]
        with open_source(file) as source:
            footer = _opened(source, file).metadata
        groups = range(footer.num_row_groups)
        if not can_be_described(footer, groups, file.size):
            return [Piece(file, 0, None, file.size)]  # its reader says what is wrong
        sizes = [_compressed_size(footer.row_group(number)) for number in groups]
        return grouped_pieces(file, sizes, target_bytes)

    def read(self, piece: Piece, schema: pa.Schema, rejects: Rejects) -> Iterator[Rows]:
        """Batches of at most 65,536 rows, and about 64 MiB; memory for a part of one row group.

        Texts that the file has as numbers of few items come as dictionaries.
        """
        with open_source(piece.file) as source:
            opened = _opened(source, piece.file)
            given = set(opened.schema_arrow.names)
            names = [name for name in schema.names if name in given]
            stop = opened.num_row_groups if piece.stop is None else piece.stop
            groups = range(piece.start, stop)
            sound = can_be_described(opened.metadata, groups, piece.file.size)
            counts = item_counts(source, opened, schema, groups) if sound else {}
            encoded = _opened(source, piece.file, counts, opened.metadata) if counts else None
            for at, number in enumerate(groups):
                rows = _batch_rows(opened.metadata.row_group(number)) if sound else _BATCH_ROWS
                try:
                    if encoded is not None:
                        here = {name: of_groups[at] for name, of_groups in counts.items()}
                        batches = _batches(encoded, number, names, rows)
                        first = next(batches, None)
                        if first is None:
                            continue
                        if has_all_items(first, here):
                            for batch in chain([first], batches):
                                yield tidied(batch, schema, here)
                            continue
                    yield from _batches(opened, number, names, rows)
                except (pa.ArrowException, OSError) as error:
                    rejects.add_damaged(piece.file, f"row group {number}", error)


def parquet_batches(file: SourceFile, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Those columns of a file that it has, by batches; memory for a part of one row group.

    Raises
    ------
    FormatError
        The file is damaged: names it.
    """
    with open_source(file) as source:
        opened = _opened(source, file)
        given = set(opened.schema_arrow.names)
        names = [name for name in names if name in given]
        groups = range(opened.num_row_groups)
        sound = can_be_described(opened.metadata, groups, file.size)
        try:
            for number in groups:
                rows = _batch_rows(opened.metadata.row_group(number)) if sound else _BATCH_ROWS
                yield from _batches(opened, number, names, rows, use_threads=True)
        except (pa.ArrowException, OSError) as error:
            refuse_failure(file, error)
            raise FormatError(f"{file.uri} is damaged: {error}") from error


def _opened(
    source: pa.NativeFile, file: SourceFile, encoded: Iterable[str] = (), footer: Any = None
) -> Any:
    try:
        return open_parquet(source, metadata=footer, read_dictionary=list(encoded))
    except (pa.ArrowException, OSError) as error:
        refuse_failure(file, error)
        raise FormatError(f"{file.uri} is not a Parquet file: {error}") from error


def _batch_rows(group: Any) -> int:
    each = group.total_byte_size // max(1, group.num_rows)
    return int(max(1, min(_BATCH_ROWS, _BATCH_BYTES // max(1, each))))


def _batches(
    opened: Any, group: int, names: Sequence[str], rows: int, *, use_threads: bool = False
) -> Iterator[pa.RecordBatch]:
    batches: Iterator[pa.RecordBatch] = opened.iter_batches(
        rows, row_groups=[group], columns=names, use_threads=use_threads
    )
    return batches


def _compressed_size(group: Any) -> int:
    return sum(group.column(i).total_compressed_size for i in range(group.num_columns))
