"""Trained models of vector indices, which can be kept in files.

Specification: "Training" in ``docs/format/vector-indices.md``.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from glaive.arrow.chunked import one_array
from glaive.dataset.indexing.describe import missing_index
from glaive.dataset.lance_operation import Index
from glaive.dataset.version import find
from glaive.errors import (
    CorruptFileError,
    IndexNotFoundError,
    OptionError,
    PartitionIndexError,
    UnsupportedFeatureError,
)
from glaive.file.files import LanceFileReader, LanceFileWriter
from glaive.format.bitmaps import bitmap_of
from glaive.format.pb import table_pb2
from glaive.index.segment import Segment, SegmentWriter
from glaive.index.vector.coder import ProductCoder, fixed_size_lists
from glaive.index.vector.graph import PartitionSort
from glaive.index.vector.index_writer import StoredIndex, encoded_blocks, write_index
from glaive.index.vector.parameters import (
    TYPE_URL,
    VectorModel,
    VectorParameters,
    details_of,
    version_of,
)
from glaive.index.vector.storage import ADDRESSES, PRODUCT
from glaive.io.access import AccessPolicy
from glaive.process import now_ns
from glaive.scan.indices import LogicalIndex, SnapshotIndices
from glaive.scan.options import ScanOptions
from glaive.scan.query import make_query
from glaive.scan.snapshot import Session, Snapshot
from glaive.scan.views import Views

if TYPE_CHECKING:
    from glaive.dataset.indexing.task import ColumnSource
    from glaive.dataset.version import OpenDataset, OpenedVersion


class IvfModel:
    """Centroids of the partitions of a vector index.

    Parameters
    ----------
    centroids
        Fixed-size lists of numbers, one per partition.
    distance_type
        The metric: ``l2``, ``cosine``, ``dot`` or ``hamming``.
    """

    def __init__(self, centroids: pa.FixedSizeListArray[Any, Any], distance_type: str) -> None:
        self.centroids, self.distance_type = centroids, distance_type

    @property
    def num_partitions(self) -> int:
        """Number of centroids."""
        return len(self.centroids)

    def save(self, uri: str, *, storage_options: Mapping[str, str] | None = None) -> None:
        """Write a file with the column ``centroids``.

        Raises
        ------
        StoreError
            The file cannot be written.
        """
        _save(
            uri, "centroids", self.centroids, {"distance_type": self.distance_type}, storage_options
        )

    @classmethod
    def load(cls, uri: str, *, storage_options: Mapping[str, str] | None = None) -> Self:
        """Read a file that :meth:`save` or pylance wrote.

        Raises
        ------
        CorruptFileError, NotLanceError, StoreError
            The file is missing or invalid.
        """
        centroids, metadata = _load(uri, "centroids", storage_options)
        return cls(centroids, _text(metadata, "distance_type", uri))


class PqModel:
    """The codebook of product quantisation.

    Parameters
    ----------
    num_subvectors
        Number of parts of a vector.
    codebook
        ``2 ** num_bits`` fixed-size lists of the dimension. Their flat numbers are the vectors of
        part 0 for each code, then of part 1, and so on.
    num_bits
        Bits per code.
    """

    def __init__(
        self, num_subvectors: int, codebook: pa.FixedSizeListArray[Any, Any], *, num_bits: int = 8
    ) -> None:
        self.num_subvectors, self.codebook, self.num_bits = num_subvectors, codebook, num_bits

    @property
    def dimension(self) -> int:
        """Number of values in a vector."""
        return int(self.codebook.type.list_size)

    def save(self, uri: str, *, storage_options: Mapping[str, str] | None = None) -> None:
        """Write a file with the column ``codebook``.

        Raises
        ------
        StoreError
            The file cannot be written.
        """
        metadata: dict[bytes | str, bytes | str] = {
            "num_subvectors": str(self.num_subvectors),
            "num_bits": str(self.num_bits),
        }
        _save(uri, "codebook", self.codebook, metadata, storage_options)

    @classmethod
    def load(cls, uri: str, *, storage_options: Mapping[str, str] | None = None) -> Self:
        """Read a file that :meth:`save` or pylance wrote.

        Raises
        ------
        CorruptFileError, NotLanceError, StoreError
            The file is missing or invalid.
        """
        codebook, stored = _load(uri, "codebook", storage_options)
        parts, bits = (
            _text({b"num_bits": b"8", **stored}, key, uri) for key in ("num_subvectors", "num_bits")
        )
        # Python refuses to convert thousands of digits to a number.
        if not all(one.isascii() and one.isdecimal() and len(one) < 10 for one in (parts, bits)):
            found = f"{parts}, {bits}"[:80]
            raise CorruptFileError(
                "metadata of a codebook", expected="numbers", found=found, where=uri
            )
        return cls(int(parts), codebook, num_bits=int(bits))


def _save(
    uri: str,
    name: str,
    numbers: pa.FixedSizeListArray[Any, Any],
    metadata: dict[bytes | str, bytes | str],
    storage_options: Mapping[str, str] | None,
) -> None:
    table = pa.table(
        [numbers], schema=pa.schema([pa.field(name, numbers.type)], metadata=dict(metadata))
    )
    with LanceFileWriter(uri, table.schema, storage_options=storage_options) as writer:
        writer.write_batch(table)


def _load(
    uri: str, name: str, storage_options: Mapping[str, str] | None
) -> tuple[Any, dict[bytes, bytes]]:
    """Return a column of fixed-size lists of valid numbers, and the metadata."""
    reader = LanceFileReader(uri, storage_options=storage_options)
    at = reader.schema.get_field_index(name)
    kind = reader.schema.field(at).type if at >= 0 else None
    if kind is None or not pa.types.is_fixed_size_list(kind):
        raise CorruptFileError(
            f"column {name!r}", expected="fixed-size lists", found=f"{kind}", where=uri
        )
    numbers: Any = one_array(reader.read_all().to_table()[name])
    if numbers.null_count or numbers.flatten().null_count or not len(numbers):
        raise CorruptFileError(
            f"column {name!r}", expected="numbers", found=f"{len(numbers)} rows, nulls", where=uri
        )
    return numbers, dict(reader.schema.metadata or {})


def _text(metadata: Mapping[bytes, bytes], key: str, uri: str) -> str:
    value = metadata.get(key.encode())
    if value is None:
        raise CorruptFileError(f"metadata {key!r}", expected="text", found="nothing", where=uri)
    return value.decode(errors="replace")


# --- Contents of a vector index: its centroids, and the rows of its partitions ----------
# Specification: "Partitions" in ``docs/format/vector-indices.md``.


class VectorIndexReader:
    """Reads the partitions of a vector index one by one.

    Parameters
    ----------
    dataset
        The version whose index is read.
    index_name
        Name of the index.

    Raises
    ------
    IndexNotFoundError
        The index is missing.
    OptionError
        The index is not a vector index.
    """

    def __init__(self, dataset: OpenDataset, index_name: str) -> None:
        self.dataset, self.index_name = dataset, index_name
        snapshot = dataset.opened.snapshot
        self._segments = [
            StoredIndex(Segment.of(snapshot.store, snapshot.manifest, segment.entry))
            for segment in _index_of(snapshot, index_name).segments
        ]

    def num_partitions(self) -> int:
        """Return the number of partitions of the first segment; usually all segments have as
        many.
        """
        return len(self._segments[0].storage.partitions)

    def read_partition(self, partition_id: int, *, with_vector: bool = False) -> pa.Table:
        """Return the rows of a partition, over all segments.

        Parameters
        ----------
        partition_id
            Number of the partition, from 0.
        with_vector
            Read the stored form of the vectors as well: vectors or codes.

        Returns
        -------
        pyarrow.Table
            ``_rowid``, as the index numbers rows. Codes are stored row by row.

        Raises
        ------
        PartitionIndexError
            The partition is missing.
        CorruptFileError, DataFileMissingError
            The index is damaged.
        UnsupportedFeatureError
            Segments have codes of different types.
        """
        count = self.num_partitions()
        if not 0 <= partition_id < count:
            raise PartitionIndexError(
                f"partition_id: Partition id {partition_id!r} is out of range, expected a number "
                f"from 0 to {count - 1}"
            )
        parts: list[pa.Table] = []
        for segment in self._segments:
            if partition_id >= len(segment.storage.partitions):
                continue
            part = segment.partition(partition_id, codes=with_vector)
            if parts and not part.schema.equals(parts[0].schema):
                raise UnsupportedFeatureError(
                    f"{segment.storage.file.path}: has other columns of codes than the first "
                    "segment, so that they are no one table. Read it without with_vector"
                )
            parts.append(part)
        return pa.concat_tables(parts)


def ivf_model(snapshot: Snapshot, name: str) -> IvfModel:
    """Return centroids and metric of the first segment of an index.

    Raises
    ------
    IndexNotFoundError
        The index is missing.
    OptionError
        The index is not a vector index, or is empty.
    """
    segment = _index_of(snapshot, name).segments[0]
    opened: Any = SnapshotIndices.of(snapshot).open(segment)
    flat = np.ascontiguousarray(opened.centroids).reshape(-1)
    centroids: Any = pa.FixedSizeListArray.from_arrays(pa.array(flat), opened.dimension)
    return IvfModel(centroids, opened.metric)


def vector_index_on(snapshot: Snapshot, column: str | None) -> str:
    """Return the name of the first vector index on a column.

    Raises
    ------
    IndexNotFoundError
        The column lacks a vector index.
    OptionError, ColumnNotFoundError
        The column is missing or unknown.
    """
    if column is None:
        raise OptionError("index_name, column: one of them has to be given")
    field = snapshot.manifest.schema.find(column)[-1]
    for index in SnapshotIndices.of(snapshot).on(field.id):
        if _is_of_vectors(index):
            return index.name
    raise IndexNotFoundError(
        f"No IVF index for column {column!r}: it has no vector index with rows in "
        f"{snapshot.manifest.title}"
    )


def _is_of_vectors(index: LogicalIndex) -> bool:
    return index.kind.name == "vector"


def _index_of(snapshot: Snapshot, name: str) -> LogicalIndex:
    """Return the vector index with this name."""
    if all(entry.name != name for entry in snapshot.manifest.indices):
        raise missing_index(snapshot.manifest, name)
    index = next((one for one in SnapshotIndices.of(snapshot).all if one.name == name), None)
    if index is None or not _is_of_vectors(index):
        raise OptionError(f"index_name: {name!r} is not a vector index with rows")
    return index


# --- Files between the steps of a vector index: codes of rows, unsorted and by partition
# Specification: "Training" in ``docs/format/vector-indices.md``.

PARTITION: Final = "__ivf_part_id"
_FRAGMENTS: Final = "glaive:fragments"
"""Metadata key of the fragments whose rows are in the file, as a JSON list."""

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
    fragments = list(source.fragment_ids)
    schema = _schema(kind, fragments)
    known = None if partitions_uri is None else computed_partitions(partitions_uri)
    with LanceFileWriter(uri, schema) as writer:
        for ids, records in encoded_blocks(source, encoded.model, known):
            writer.write_batch(_table(ids, records, schema))


def computed_partitions(uri: str) -> pa.Table:
    """Return columns ``row_id`` and ``partition`` of a dataset."""
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
    """Write the rows of files into one file, sorted by partition."""
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
    dataset: OpenedVersion, column: str, encoded: EncodedVectors, names: Sequence[str], folder: str
) -> Index:
    """Write a segment with the rows of files, for a later commit."""
    model, parameters = encoded.model, encoded.parameters
    files = [_EncodedFile(f"{folder}/{name}", len(model)) for name in names]
    out = SegmentWriter.of(dataset.store, dataset.manifest)
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
    """A file that :func:`write_encoded` or :func:`sort_encoded` wrote.

    Raises
    ------
    CorruptFileError
        The file is invalid.
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
        stored = (schema.metadata or {}).get(_FRAGMENTS.encode(), b"")
        try:
            numbers = json.loads(stored)
        except (ValueError, RecursionError) as error:
            raise self._corrupt(f"metadata {_FRAGMENTS!r}", "JSON", str(error)) from error
        if not isinstance(numbers, list) or not all(
            isinstance(one, int) and 0 <= one < 1 << 32 for one in numbers
        ):
            raise self._corrupt(f"metadata {_FRAGMENTS!r}", "fragments", f"{stored!r}"[:80])
        self.fragments: list[int] = numbers

    def _corrupt(self, part: str, expected: str, found: str) -> CorruptFileError:
        return CorruptFileError(part, expected=expected, found=found, where=self._uri)

    def records(self, width: int) -> Iterator[tuple[NDArray[np.int32], NDArray[Any]]]:
        """Yield partitions and records of all rows, in batches."""
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
