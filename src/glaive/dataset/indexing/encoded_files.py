"""Files between the steps of a vector index: codes of rows, unsorted and by partition.

Specification: "Training" in ``docs/format/vector-indices.md``.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from glaive.arrow.chunked import one_array
from glaive.clock import now_ns
from glaive.dataset.commits.index_metadata import Index
from glaive.dataset.opening import find
from glaive.errors import CorruptFileError, OptionError
from glaive.file.files import LanceFileReader, LanceFileWriter
from glaive.format.bitmaps import bitmap_of
from glaive.format.pb import table_pb2
from glaive.index.segment import SegmentWriter
from glaive.index.vector.coder import fixed_size_lists
from glaive.index.vector.details import TYPE_URL, details_of, version_of
from glaive.index.vector.index_writer import encoded_blocks, write_index
from glaive.index.vector.model import VectorModel
from glaive.index.vector.parameters import VectorParameters
from glaive.index.vector.partition_sort import PartitionSort
from glaive.index.vector.product_coder import ProductCoder
from glaive.index.vector.storage import ADDRESSES, PRODUCT
from glaive.io.access import AccessPolicy
from glaive.scan.options import ScanOptions
from glaive.scan.query import make_query
from glaive.scan.session import Session
from glaive.scan.snapshot import Snapshot
from glaive.scan.views import Views
from glaive.table.checksums import wants_checksums

if TYPE_CHECKING:
    from glaive.dataset.indexing.source import ColumnSource
    from glaive.dataset.version import OpenedVersion

__all__ = ["EncodedVectors", "computed_partitions", "load_sorted", "sort_encoded", "write_encoded"]

PARTITION: Final = "__ivf_part_id"
_FRAGMENTS: Final = "glaive:fragments"
"""Metadata key: JSON list of the fragments whose rows are in the file."""

_MEMORY_LIMIT: Final = 1 << 29
_BATCH_ROWS: Final = 1 << 16


class EncodedVectors:
    """A model with centroids and a codebook, and the parameters it was trained for."""

    def __init__(self, parameters: VectorParameters) -> None:
        centroids, codebook = parameters.centroids, parameters.codebook
        if centroids is None or codebook is None:
            raise OptionError("ivf_centroids, pq_codebook: both are needed to encode vectors")
        self.parameters = parameters
        residual = parameters.column.metric != "dot"
        coder = ProductCoder(codebook, parameters.num_bits, residual=residual)
        self.model = VectorModel(parameters.column, centroids, coder)


def write_encoded(
    source: ColumnSource, encoded: EncodedVectors, uri: str, partitions_uri: str | None
) -> None:
    """Write number, partition and code of each row of a source."""
    kind = pa.list_(pa.uint8(), encoded.model.dtype[PRODUCT].shape[0])
    fragments = [fragment.id for fragment in source.fragments]
    schema = _schema(kind, fragments)
    known = None if partitions_uri is None else computed_partitions(partitions_uri)
    with LanceFileWriter(uri, schema) as writer:
        for ids, records in encoded_blocks(source, encoded.model, known):
            writer.write_batch(_table(ids, records, schema))


def computed_partitions(uri: str) -> pa.Table:
    """Columns ``row_id`` and ``partition`` of a dataset that has them of each row."""
    store, manifest, _ = find(uri, None, None, None, None, None, AccessPolicy.of(None, None))
    options = ScanOptions(columns=("row_id", "partition"))
    return make_query(Views(Snapshot(store, manifest, Session())), options).table()


def _schema(kind: pa.DataType, fragments: Sequence[int]) -> pa.Schema:
    fields = [
        pa.field(ADDRESSES, pa.uint64()),
        pa.field(PARTITION, pa.uint32()),
        pa.field(PRODUCT, kind, nullable=False),
    ]
    return pa.schema(fields, metadata={_FRAGMENTS: json.dumps(sorted(fragments))})


def _table(ids: NDArray[np.int32], records: NDArray[Any], schema: pa.Schema) -> pa.Table:
    columns: list[Any] = [
        pa.array(np.ascontiguousarray(records[ADDRESSES])),
        pa.array(ids.astype(np.uint32)),
        fixed_size_lists(records[PRODUCT], schema.field(PRODUCT).type),
    ]
    return pa.Table.from_arrays(columns, schema=schema)


def sort_encoded(names: Sequence[str], folder: str, partitions: int, into: str) -> None:
    """Write the rows of files by partition into one file."""
    files = [_EncodedFile(f"{folder}/{name}", partitions) for name in names]
    width = files[0].width
    schema = _schema(pa.list_(pa.uint8(), width), _fragments(files))
    with PartitionSort(partitions, _record(width), _MEMORY_LIMIT) as sort:
        for file in files:
            for ids, records in file.records(width):
                sort.add(ids, records)
        with LanceFileWriter(f"{folder}/{into}", schema) as writer:
            for group in sort.groups():
                first = group.first
                sizes = np.diff(group.bounds)
                ids = np.repeat(np.arange(first, first + len(sizes), dtype=np.int32), sizes)
                writer.write_batch(_table(ids, group.records, schema))


def load_sorted(
    dataset: OpenedVersion,
    column: str,
    encoded: EncodedVectors,
    names: Sequence[str],
    folder: str,
) -> Index:
    """Write a segment with the rows of files; nothing is committed."""
    model, parameters = encoded.model, encoded.parameters
    files = [_EncodedFile(f"{folder}/{name}", len(model)) for name in names]
    out = SegmentWriter(
        dataset.store,
        dataset.manifest.data_format,
        checksums=wants_checksums(dataset.manifest.wire),
    )
    try:
        with PartitionSort(len(model), model.dtype, _MEMORY_LIMIT) as sort:
            for file in files:
                for ids, records in file.records(model.dtype[PRODUCT].shape[0]):
                    sort.add(ids, records)
            write_index(sort, model, parameters, out)
        written = out.finish()
    except BaseException:
        out.abort()
        raise
    entry = table_pb2.IndexMetadata(
        name=column,
        fields=[dataset.manifest.schema.find(column)[-1].id],
        dataset_version=dataset.manifest.version,
        fragment_bitmap=bitmap_of(_fragments(files)),
        index_version=version_of(parameters),
        created_at=now_ns() // 1_000_000,
        files=written,
    )
    entry.uuid.uuid = out.id.bytes
    entry.index_details.type_url = TYPE_URL
    entry.index_details.value = details_of(parameters)
    return Index.from_wire(entry)


def _fragments(files: Sequence[_EncodedFile]) -> list[int]:
    return sorted({number for file in files for number in file.fragments})


def _record(width: int) -> np.dtype[Any]:
    return np.dtype([(ADDRESSES, np.uint64), (PRODUCT, np.uint8, (width,))])


class _EncodedFile:
    """A file of this module.

    Raises
    ------
    CorruptFileError
        It is something else.
    """

    def __init__(self, uri: str, partitions: int) -> None:
        self._uri, self._partitions = uri, partitions
        self._reader = LanceFileReader(uri)
        schema = self._reader.schema
        types = [schema.field(at).type for at in map(schema.get_field_index, _COLUMNS) if at >= 0]
        kind: Any = types[-1] if len(types) == len(_COLUMNS) else pa.null()
        is_list = pa.types.is_fixed_size_list(kind) and kind.value_type == pa.uint8()
        if not is_list or types[:2] != [pa.uint64(), pa.uint32()]:
            raise self._corrupt("columns", ", ".join(_COLUMNS), ", ".join(schema.names))
        self.width = int(kind.list_size)
        said = (schema.metadata or {}).get(_FRAGMENTS.encode(), b"")
        try:
            numbers = json.loads(said)
        except (ValueError, RecursionError) as error:
            raise self._corrupt(f"metadata {_FRAGMENTS!r}", "JSON", str(error)) from error
        if not isinstance(numbers, list) or not all(
            isinstance(one, int) and 0 <= one < 1 << 32 for one in numbers
        ):
            raise self._corrupt(f"metadata {_FRAGMENTS!r}", "fragments", f"{said!r}"[:80])
        self.fragments: list[int] = numbers

    def _corrupt(self, part: str, expected: str, found: str) -> CorruptFileError:
        return CorruptFileError(part, expected=expected, found=found, where=self._uri)

    def records(self, width: int) -> Iterator[tuple[NDArray[np.int32], NDArray[Any]]]:
        """Partitions and records of all rows, some at a time."""
        if width != self.width:
            raise self._corrupt("codes", f"{width} bytes", f"{self.width}")
        for batch in self._reader.read_all(batch_size=_BATCH_ROWS).to_batches():
            columns = [one_array(pa.chunked_array([batch.column(name)])) for name in _COLUMNS]
            rows, ids, lists = columns
            codes: Any = lists.flatten()
            if any(column.null_count for column in (*columns, codes)):
                raise self._corrupt("rows", "numbers", "nulls")
            numbers = np.asarray(ids.to_numpy())
            if len(numbers) and int(numbers.max()) >= self._partitions:
                raise self._corrupt("partitions", f"below {self._partitions}", f"{numbers.max()}")
            records = np.empty(len(rows), _record(width))
            records[ADDRESSES] = rows.to_numpy()
            records[PRODUCT] = codes.to_numpy().reshape(-1, width)
            yield numbers.astype(np.int32), records


_COLUMNS: Final = (ADDRESSES, PARTITION, PRODUCT)
