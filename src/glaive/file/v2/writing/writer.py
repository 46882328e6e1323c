"""Write a 2.x file: arrays are queued per field, divided into pages, encoded and appended.

A field's page is written when about 8 MiB of its values are queued. Pages are encoded on all
cores (kernels release the interpreter lock) and appended in order. The footer comes last; until
then nothing is visible.

Specification: ``docs/format/container.md``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa

from glaive.arrow.dictionaries import check_column
from glaive.arrow.utf8 import refuse_half_characters
from glaive.encodings.protocol import EncodedPage
from glaive.encodings.writing.small_pages import MAX_TINY_BYTES, encode_small, whole_bytes
from glaive.errors import GlaiveError, SchemaError
from glaive.file.blob_options import BlobOptions
from glaive.file.profile import FormatProfile
from glaive.file.protocol import WrittenFile, unfinished
from glaive.file.types import check_types
from glaive.file.v2.dictionary_passthrough import (
    decode_or_keep,
    fits_with_dictionaries,
    is_passed_through,
)
from glaive.file.v2.reading.columns import Node, column_tree, number_columns
from glaive.file.v2.writing.column_options import GivenOptions, column_options
from glaive.file.v2.writing.metadata import ChecksumsOf, write_metadata
from glaive.file.v2.writing.page_queue import PageJob, PageQueue, Symbols, value_bits
from glaive.file.v2.writing.pending_blobs import PendingBlobs, pending_page
from glaive.format.blobs import has_blobs_v2, is_blob, stored
from glaive.format.fields import LanceSchema
from glaive.format.pb import file2_pb2, file_pb2
from glaive.format.wire import seal
from glaive.io.checksums import checksum_function
from glaive.io.pool import ordered_map
from glaive.io.sink import AlignedSink
from glaive.io.store import ObjectStore
from glaive.types import ByteRange

if TYPE_CHECKING:
    from glaive.encodings.writing.symbol_table import PageSymbols
    from glaive.file.v2.writing.blob_writer import BlobWriter
    from glaive.file.v2.writing.shred import Shredded

__all__ = ["COLUMN_URL", "PAGE_BYTES", "Columns", "FileV2Writer"]

PAGE_BYTES = 8 * 1024 * 1024
"""Approximate Arrow bytes per page and leaf column."""

_MIN_PARALLEL_BYTES = 1024 * 1024
"""Fewer Arrow bytes are encoded without other threads, which would cost more."""

COLUMN_URL = "/lance.encodings.ColumnEncoding"
_COLUMN_VALUES = b"\x0a\x00"  # ColumnEncoding{values: Empty}
_ENCODING = file2_pb2.DirectEncoding(encoding=seal(COLUMN_URL, _COLUMN_VALUES))
_COLUMN = file2_pb2.ColumnMetadata(
    encoding=file2_pb2.Encoding(direct=_ENCODING)
).SerializeToString()

Columns = list[tuple[int, EncodedPage]]
"""Pages of the same rows, one for each column of a field."""

_MAX_SMALL_ROWS = 4096
"""Rows of a file whose descriptor is cached for other files of the same size."""

_CACHED_SCHEMAS = 64
"""Schemas whose derived values are cached, because all files of a dataset share them."""


class FileV2Writer:
    """A file being written (a ``FileWriter``)."""

    page_url: ClassVar[str] = "/lance.encodings21.PageLayout"
    """Type of the message that describes a page."""

    keeps_dictionaries: ClassVar[bool] = True
    """Whether dictionary-encoded text may stay encoded.

    See :mod:`glaive.file.v2.dictionary_passthrough`.
    """

    writes_small_pages: ClassVar[bool] = True
    """Whether a few values become a page as :func:`encode_small` makes it."""

    packs_windows: ClassVar[bool] = True
    """Whether a page may be packed out of several arrays; see :func:`encode_windows`."""

    def __init__(
        self,
        store: ObjectStore,
        path: str,
        schema: LanceSchema,
        profile: FormatProfile,
        *,
        page_bytes: int = PAGE_BYTES,
        encoding_options: GivenOptions | None = None,
        blobs: BlobOptions | None = None,
        checksums: bool = False,
    ) -> None:
        self._given, given = schema.fields, schema
        self._arrow = schema.to_arrow()
        schema = _stored_schema(schema, profile)
        self._wanted = column_options(schema, encoding_options, profile)
        self.path = path
        self._where = store.full(path)
        self._schema = schema
        self._profile = profile
        column_of, nodes = self._trees(schema)
        self._column_of = column_of
        self._queues = []
        for node, (bits, width) in zip(nodes, _value_sizes(schema), strict=True):
            if bits is None:
                leaves = list(node.leaves())
                size, per_row = page_bytes * len(leaves), leaves[0].entries_per_row
            else:
                size, per_row = page_bytes, 1
            self._queues.append(PageQueue(node, size, per_row, bits, width))
        self._columns: list[Any] = [file2_pb2.ColumnMetadata.FromString(_COLUMN) for _ in column_of]
        self._rows = 0
        self._is_whole = True
        self._plain_bytes = MAX_TINY_BYTES
        self._global_ranges: list[ByteRange] = []
        function = checksum_function() if checksums else None
        self._checksums = None if function is None else ChecksumsOf(len(column_of), function)
        self._metadata = dict(schema.metadata)
        self._sink = AlignedSink(store.create(path))
        self._blobs: BlobWriter | None = None
        if _has_blobs(given):
            from glaive.file.v2.blob_files import BlobFiles
            from glaive.file.v2.writing.blob_writer import BlobWriter

            files = BlobFiles(store, path)
            self._blobs = BlobWriter(self._sink, files, blobs or BlobOptions())

    @property
    def position(self) -> int:
        """Bytes written plus bytes waiting in column buffers (estimate)."""
        return self._sink.position + sum(queue.waiting for queue in self._queues)

    @property
    def rows(self) -> int:
        """Rows taken so far."""
        return self._rows

    def write(self, batch: pa.RecordBatch | pa.Table) -> None:
        """Append rows; the columns must be the schema's, in its order."""
        same = batch.schema.equals(self._arrow, check_metadata=False)
        if not same and not fits_with_dictionaries(batch, self._arrow):
            raise SchemaError(
                f"Cannot write batch for {self._where}: expected the columns\n{self._arrow}\n"
                f"found\n{batch.schema}\nCast the batch to the schema first."
            )
        if batch.num_rows <= _MAX_SMALL_ROWS and isinstance(batch, pa.Table):
            batches = batch.to_batches()  # columns of batches cost less
            batch = batches[0] if len(batches) == 1 else batch
        columns: list[Any] = list(batch.columns)
        for field, queue, column in zip(self._given, self._queues, columns, strict=True):
            check_column(column, field.name, self._where, nullable=queue.node.nullable)
        is_whole, self._is_whole = self._is_whole, False
        for field, queue, column in zip(self._given, self._queues, columns, strict=True):
            chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
            for chunk in chunks:
                if len(chunk):
                    blobs = self._blobs
                    queue.put(blobs.describe(field, chunk, field.name) if blobs else chunk)
        self._rows += batch.num_rows
        full = [queue for queue in self._queues if queue.waiting >= queue.budget]
        if full:
            self._flush(full, last=False)
        self._is_whole = is_whole

    def finish(self) -> WrittenFile:
        """Write pending rows, the metadata and the footer; the file becomes visible."""
        if not self._is_whole:
            raise unfinished(self._where)
        self._flush([queue for queue in self._queues if queue.arrays], last=True)
        if self._blobs is not None:
            self._blobs.finish()
        size = self._write_footer()
        if self._blobs is not None:
            self._blobs.published()
        return WrittenFile(
            path=self.path,
            size=size,
            rows=self._rows,
            version=self._profile.version,
            fields=list(self._column_of),
            column_indices=list(self._column_of.values()),
        )

    def limit_cache(self, size: int) -> None:
        """Limit the pending Arrow bytes of all columns in total to about ``size``."""
        for queue in self._queues:
            queue.budget = max(1, size // len(self._queues))

    def store_plain(self, size: int) -> None:
        """Store columns of up to ``size`` bytes as in memory, without choosing an encoding.

        Values of a fixed width without nulls, if the whole column is written at once; for files
        whose columns cost more to encode than to read.
        """
        self._plain_bytes = size

    def add_global_buffer(self, data: bytes) -> int:
        """Append bytes that belong to no column; returns the number of the buffer."""
        self._global_ranges.extend(self._sink.write_aligned([data]))
        if self._checksums is not None:
            self._checksums.add_global(data)
        return len(self._global_ranges)

    def add_schema_metadata(self, key: str, value: str) -> None:
        """Add an entry to the schema's metadata, which is written at the end."""
        with refuse_half_characters("schema metadata"):
            key.encode()
            self._metadata[key] = value.encode()

    def abort(self) -> None:
        """Discard the file."""
        self._sink.abort()
        if self._blobs is not None:
            self._blobs.abort()

    # ------------------------------------------------------------------ columns

    def _trees(self, schema: LanceSchema) -> tuple[Mapping[int, int], Sequence[Node]]:
        """Column by field id, for all fields that own a column, and the nodes of the fields."""
        return _column_trees(schema)

    # ------------------------------------------------------------------ pages

    def _flush(self, queues: Sequence[PageQueue], *, last: bool) -> None:
        if sum([queue.waiting for queue in queues]) < _MIN_PARALLEL_BYTES:
            for queue in queues:
                if not (last and self._write_small(queue)):
                    self._write_pages(map(self._encode, queue.jobs(last=last)))
            return
        jobs = (job for queue in queues for job in queue.jobs(last=last))
        self._write_pages(ordered_map(self._encode, jobs))

    def _write_small(self, queue: PageQueue) -> bool:
        """Write the last page of a plain column directly, if it has only a few values."""
        node, arrays = queue.node, queue.arrays
        if (
            not self.writes_small_pages
            or len(arrays) != 1
            or node.kind != "leaf"
            or is_blob(node.field)
        ):
            return False
        if not queue.width and is_passed_through(arrays[0].type, node.type):
            return False
        wanted = self._wanted[node.field.id]
        page = encode_small(arrays[0], self._profile, wanted, self._plain_bytes, queue.width)
        if page is None or node.column is None:
            return False
        self._append(node.column, page, queue.written)
        return True

    def _write_pages(self, encoded: Iterable[tuple[PageQueue, list[Columns]]]) -> None:
        for queue, pages in encoded:
            for columns in pages:
                for column, page in columns:
                    self._append(column, page, queue.written)
                queue.written += columns[0][1].rows // queue.per_row

    def _encode(self, job: PageJob) -> tuple[PageQueue, list[Columns]]:
        with job:
            node = job.queue.node
            if self.packs_windows and len(job.arrays) > 1 and node.column is not None:
                from glaive.encodings.writing.windows import encode_windows

                page = encode_windows(job.arrays, self._profile, self._wanted[node.field.id])
                if page is not None:
                    return job.queue, [[(node.column, page)]]
            wanted = self._wanted.get(node.field.id) if self.keeps_dictionaries else None
            array = decode_or_keep(job.array, node.type, wanted)
            return job.queue, list(self._encode_rows(node, array, job.symbols))

    def _encode_rows(self, node: Node, array: pa.Array, symbols: Symbols) -> Iterator[Columns]:
        """Encode an array into one page per leaf, or several where there are too many levels."""
        from glaive.file.v2.writing.shred import shred

        pages = []
        for leaf in shred(node, array):
            page = self._encode_leaf(leaf, symbols.get(leaf.node.field.id))
            if page is None:
                half = len(array) // 2
                yield from self._encode_rows(node, array.slice(0, half), symbols)
                yield from self._encode_rows(node, array.slice(half), symbols)
                return
            if leaf.node.column is None:
                raise GlaiveError(f"leaf {leaf.node.name!r} of {self._where} has no column")
            pages.append((leaf.node.column, page))
        yield pages

    def _encode_leaf(self, leaf: Shredded, symbols: PageSymbols | None) -> EncodedPage | None:
        """Encode a leaf as one page; None when it has too many levels for one page."""
        if is_blob(leaf.node.field):
            large = self._profile.large_chunks
            return pending_page(leaf.values, leaf.levels, leaf.rows, large_chunks=large)
        from glaive.encodings.writing.page import encode_page

        wanted = self._wanted[leaf.node.field.id]
        return encode_page(leaf.values, leaf.levels, leaf.rows, self._profile, wanted, symbols)

    def _append(self, column: int, page: EncodedPage, first_row: int) -> None:
        if isinstance(page, PendingBlobs):
            page = page.describe(page.values.write(self._sink), page.values.sizes)
        buffers = [_plain(buffer) for buffer in page.buffers]
        written = self._sink.write_aligned(buffers)
        if self._checksums is not None:
            self._checksums.add_page(column, buffers)
        message = self._columns[column].pages.add(
            buffer_offsets=[part.offset for part in written],
            buffer_sizes=[part.size for part in written],
            length=page.rows,
            priority=first_row,
        )
        message.encoding.direct.encoding = _sealed(self.page_url, page.layout.SerializeToString())

    # ------------------------------------------------------------------ metadata

    def _write_footer(self) -> int:
        columns = [column.SerializeToString() for column in self._columns]
        version = self._profile.footer
        schema, checksums = self._descriptor(), self._checksums
        write_metadata(self._sink, schema, self._global_ranges, columns, version, checksums)
        return self._sink.finish()

    def _descriptor(self) -> bytes:
        fields = _wire_fields(self._schema)
        if not self._metadata and self._rows <= _MAX_SMALL_ROWS:
            return _small_descriptor(self._schema, self._rows)
        descriptor = file_pb2.FileDescriptor(schema=fields, length=self._rows)
        for key, value in self._metadata.items():
            descriptor.schema.metadata[key] = value
        return descriptor.SerializeToString()


@lru_cache(maxsize=_CACHED_SCHEMAS)
def _stored_schema(schema: LanceSchema, profile: FormatProfile) -> LanceSchema:
    """The schema as stored in a file of this format.

    Raises
    ------
    SchemaError
        The format does not support a column's type.
    """
    check_types(schema, profile)
    fields = tuple(map(stored, schema.fields))
    return schema if fields == schema.fields else replace(schema, fields=fields)


@lru_cache(maxsize=_CACHED_SCHEMAS)
def _has_blobs(schema: LanceSchema) -> bool:
    return any(map(has_blobs_v2, schema.fields))


@lru_cache(maxsize=_CACHED_SCHEMAS)
def _column_trees(schema: LanceSchema) -> tuple[Mapping[int, int], Sequence[Node]]:
    column_of = number_columns(schema.fields)
    return column_of, [column_tree(field, column_of) for field in schema.fields]


@lru_cache(maxsize=_CACHED_SCHEMAS)
def _value_sizes(schema: LanceSchema) -> Sequence[tuple[int | None, int]]:
    """Bits of a value of each column, and its bytes if it can be stored as in memory."""
    return [(value_bits(kind), whole_bytes(kind)) for kind in schema.to_arrow().types]


@lru_cache(maxsize=_CACHED_SCHEMAS)
def _wire_fields(schema: LanceSchema) -> Any:
    """The schema's message without metadata; not to be changed."""
    return file_pb2.Schema(fields=schema.to_wire())


@lru_cache(maxsize=_CACHED_SCHEMAS)
def _small_descriptor(schema: LanceSchema, rows: int) -> bytes:
    """The file descriptor, without metadata of the schema."""
    return file_pb2.FileDescriptor(schema=_wire_fields(schema), length=rows).SerializeToString()


@lru_cache(maxsize=1024)
def _sealed(url: str, layout: bytes) -> bytes:
    return seal(url, layout)


def _plain(buffer: Any) -> Any:
    return buffer if isinstance(buffer, (bytes, pa.Buffer, tuple)) else memoryview(buffer)
