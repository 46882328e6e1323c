"""Parquet: row groups become record batches with the types that they were written with."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, ClassVar

import pyarrow as pa

from glaive.errors import FormatError
from glaive.ingestion.formats.options import known_options
from glaive.ingestion.formats.parquet_footer import can_be_described
from glaive.ingestion.formats.parquet_texts import has_all_items, item_counts, tidied
from glaive.ingestion.formats.parquet_times import open_parquet
from glaive.ingestion.formats.protocol import Piece, Rows, SourceFormat
from glaive.ingestion.formats.ranges import grouped_pieces
from glaive.ingestion.rejects import Rejects, refuse_failure
from glaive.ingestion.sources import SourceFile, open_source

__all__ = ["Parquet", "parquet_batches"]

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
    source: pa.NativeFile,
    file: SourceFile,
    encoded: Iterable[str] = (),
    footer: Any = None,
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
