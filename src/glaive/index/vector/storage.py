"""The file with the codes of a vector index: ``auxiliary.idx``.

Specification: "Codes" in ``docs/format/vector-codes.md``.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from functools import cached_property
from io import BytesIO
from math import prod
from typing import Any, Final, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from glaive.arrow.blocks import NUMPY_TYPES, flag_array, number_array
from glaive.arrow.chunked import as_numpy, one_array
from glaive.arrow.conditions import filled
from glaive.dataclass import NamedTuple, dataclass
from glaive.errors import CorruptFileError, OptionError, UnsupportedFeatureError
from glaive.format.pb import index_pb2
from glaive.format.wire import parse
from glaive.index.protocol import IndexSource
from glaive.index.row_sets import RowNumbers
from glaive.index.segment import IndexFile
from glaive.io.access import open_store
from glaive.kernels.distances import MAX_LENGTH, METRICS, MIN_LENGTH, Metric
from glaive.kernels.products import ROUNDS, rotate
from glaive.types import Flags, Float32s, Int64s, UInt8s

# --- Distances of vector indices: names, and normalized vectors -------------------------
# Specification: "Files" in ``docs/format/vector-indices.md``.

_OTHER_NAMES = {"euclidean": "l2"}


def metric_named(name: object) -> Metric:
    """Return the distance of a name, in any case; ``euclidean`` is ``l2``.

    Raises
    ------
    OptionError
        The name is unknown.
    """
    text = name.lower() if isinstance(name, str) else ""
    text = _OTHER_NAMES.get(text, text)
    if text not in METRICS:
        raise OptionError(
            f"Metric {name} not supported. metric: expected one of {', '.join(METRICS)}, found "
            f"{name!r}"
        )
    return text


def normalized(vectors: NDArray[np.floating]) -> NDArray[np.floating]:
    """Normalize vectors to length one, in their own dtype; NaN for vectors of length 0 or infinity.

    Parameters
    ----------
    vectors
        Shape ``(n, dimension)``.
    """
    wide = vectors if vectors.dtype == np.float64 else vectors.astype(np.float32, copy=False)
    with np.errstate(all="ignore"):
        lengths = np.sqrt(np.einsum("ij,ij->i", wide, wide))
        unit: NDArray[np.floating] = wide / lengths[:, None]
        odd = np.flatnonzero(~((lengths > MIN_LENGTH) & (lengths < MAX_LENGTH)))
        if len(odd):  # squares of these vectors may be 0, inexact or infinite
            rows = wide[odd] / np.abs(wide[odd]).max(axis=1, keepdims=True)
            unit[odd] = rows / np.sqrt(np.einsum("ij,ij->i", rows, rows))[:, None]
        return unit.astype(vectors.dtype, copy=False)


# --- Matrices that users pass: arrays of NumPy, Arrow or torch, or NumPy files ----------
# Specification: "Training" in ``docs/format/vector-indices.md``.


def matrix_of(numbers: Any, name: str) -> NDArray[Any]:
    """Convert an array of NumPy, Arrow or torch to NumPy.

    Raises
    ------
    OptionError
        The numbers have a type besides floats and bytes, or some are null.
    """
    if isinstance(numbers, pa.ChunkedArray):
        numbers = numbers.combine_chunks()
    if isinstance(numbers, pa.ExtensionArray):
        numbers = numbers.storage
    if isinstance(numbers, pa.FixedSizeListArray):
        if numbers.null_count or numbers.flatten().null_count:
            raise OptionError(f"{name}: has nulls")
        size = numbers.type.list_size
        return as_numpy(numbers.flatten()).reshape(-1, size)
    if hasattr(numbers, "detach"):
        numbers = numbers.detach().cpu().numpy()
    array = np.asarray(numbers)
    if array.dtype.kind not in "fu" or (array.dtype.kind == "u" and array.dtype != np.uint8):
        raise OptionError(f"{name}: expected floats, found {array.dtype}")
    return array


def load_matrix(uri: object, name: str) -> NDArray[Any]:
    """Load the array of a NumPy file, ``.npy``.

    Raises
    ------
    OptionError
        The file holds something else.
    ObjectNotFoundError, StoreError
        The file is missing or unreadable.
    """
    from tokenize import TokenError  # NumPy parses the header as a Python literal

    folder, _, file = str(uri).rpartition("/")
    data = open_store(folder or ".").get(file).to_pybytes()
    if data[:2] == b"PK":
        raise OptionError(f"{name}: {uri} holds several arrays, expected one (.npy)")
    wrong = (ValueError, TypeError, OverflowError, SyntaxError, TokenError, RecursionError)
    try:
        array: Any = np.load(BytesIO(data), allow_pickle=False)
    except (*wrong, OSError, EOFError, MemoryError) as error:
        raise OptionError(f"{name}: {uri} is not an array of NumPy: {error}") from error
    numbers: NDArray[Any] = array
    return numbers


def check_finite(matrix: NDArray[Any], name: str) -> None:
    """Raise an ``OptionError`` if a number is NaN or infinite."""
    if matrix.dtype.kind == "f" and not np.isfinite(matrix).all():
        raise OptionError(f"{name}: expected finite numbers, found NaN or infinity")


# --- Vectors of a column: which types can be indexed, and arrays of valid vectors -------
# Specification: "Files" in ``docs/format/vector-indices.md``.

_BLOCK_BYTES = 8 << 20
_MIN_BLOCK_ROWS = 1024


class ColumnVectors(NamedTuple):
    """Vectors of some rows.

    Parameters
    ----------
    stored
        Shape ``(n, dimension)``, in the dtype of the column; of length one for the cosine distance.
    vectors
        The same vectors as ``float32``; for ``hamming`` each bit is a number, 0 or 1.
    rows
        Row number of each vector; rows with several vectors repeat.
    """

    stored: NDArray[Any]
    vectors: Float32s
    rows: RowNumbers


@dataclass(frozen=True, slots=True)
class VectorColumn:
    """A column of vectors, and the metric of its index.

    Parameters
    ----------
    name
        Name of the column.
    dimension
        Numbers in a vector.
    kind
        Arrow type of a number: ``halffloat``, ``float``, ``double`` or ``uint8``.
    metric
        The distance.
    several
        A row has a list of vectors.
    """

    name: str
    dimension: int
    kind: pa.DataType
    metric: Metric
    several: bool

    @classmethod
    def of(cls, field: pa.Field[Any], metric: Metric) -> VectorColumn:
        """Check the type of a column.

        Raises
        ------
        OptionError
            The column has other values than vectors, or the metric is undefined for them.
        """
        kind: Any = field.type
        several = pa.types.is_list(kind) or pa.types.is_large_list(kind)
        if several:
            kind = kind.value_type
        if not pa.types.is_fixed_size_list(kind) or kind.list_size < 1:
            raise OptionError(
                f"Vector column {field.name} must be FixedSizeListArray or a list of these, got "
                f"{field.type}. Name a column of vectors, or cast the column to fixed-size lists "
                "of numbers."
            )
        number, dimension = kind.value_type, int(kind.list_size)
        if metric == "hamming":
            if number != pa.uint8():
                raise OptionError(
                    f"metric: hamming compares uint8, column {field.name!r} has {number}"
                )
        elif not pa.types.is_floating(number):
            raise OptionError(
                f"metric: {metric} compares floats, column {field.name!r} has {number}"
            )
        if several and metric != "cosine":
            raise OptionError(
                f"metric: column {field.name!r} has several vectors in a row, which only cosine"
                f" compares, found {metric!r}"
            )
        return cls(field.name, dimension, number, metric, several)

    @property
    def dtype(self) -> np.dtype[Any]:
        """NumPy type of a number."""
        return NUMPY_TYPES[self.kind]

    @property
    def trained_dimension(self) -> int:
        """Numbers in a training vector: the number of bits for the hamming distance."""
        return self.dimension * 8 if self.metric == "hamming" else self.dimension

    def blocks(self, source: IndexSource) -> Iterator[ColumnVectors]:
        """Yield all vectors of a source, in bounded blocks."""
        size = self.dimension * (8 if self.metric == "hamming" else 4)
        limit = max(_MIN_BLOCK_ROWS, _BLOCK_BYTES // max(1, size))
        for values, rows in source.batches():
            for start in range(0, len(values), limit):
                yield self.block(values.slice(start, limit), rows[start : start + limit])

    def block(self, values: pa.Array[Any], rows: RowNumbers) -> ColumnVectors:
        """Return the valid and finite vectors of an array."""
        stored, owners = self._numbers(values)
        rows = rows[owners]
        if self.metric == "hamming":
            bits = np.unpackbits(stored, axis=1, bitorder="little")
            return ColumnVectors(stored, bits.astype(np.float32), rows)
        if self.metric == "cosine":
            stored = normalized(stored)
        # An infinite sum may have overflowed: check its numbers one by one.
        with np.errstate(over="ignore", invalid="ignore"):
            vectors = stored.astype(np.float32, copy=False)
            finite = np.isfinite(vectors.sum(axis=1, dtype=np.float64))
        if not finite.all():
            finite |= np.isfinite(vectors).all(axis=1)
            stored, vectors, rows = stored[finite], vectors[finite], rows[finite]
        return ColumnVectors(stored, vectors, rows)

    def _numbers(self, values: pa.Array[Any]) -> tuple[NDArray[Any], NDArray[np.int64]]:
        """Return the valid vectors of an array, and the array position of each."""
        lists: Any = values
        owners = np.arange(len(values), dtype=np.int64)
        if self.several:
            lengths = as_numpy(filled(lists.value_lengths(), 0))
            owners = np.repeat(owners, lengths)
            lists = lists.flatten()
        elif lists.null_count:
            owners = owners[as_numpy(lists.is_valid())]
            lists = lists.drop_null()
        if self.several and lists.null_count:
            owners = owners[as_numpy(lists.is_valid())]
            lists = lists.drop_null()
        numbers = lists.flatten()
        if numbers.null_count:
            absent = as_numpy(numbers.is_null()).reshape(-1, self.dimension)
            complete = ~absent.any(axis=1)
            flat = as_numpy(filled(numbers, 0))
            return flat.reshape(-1, self.dimension)[complete], owners[complete]
        flat = as_numpy(numbers)
        return flat.astype(self.dtype, copy=False).reshape(-1, self.dimension), owners


# --- Partitions of a vector index: which rows of a file belong to each ------------------
# Specification: "Partitions" in ``docs/format/vector-indices.md``.

MODEL = "lance:ivf"
"""Metadata key with the number of the buffer of partitions."""


class Partitions(NamedTuple):
    """Partitions of the rows of a file, one after the other.

    Parameters
    ----------
    model
        The stored message.
    bounds
        First row of each partition, and the end of the last.
    """

    model: index_pb2.IVF
    bounds: Int64s

    def __len__(self) -> int:
        return len(self.bounds) - 1

    def rows(self, partition: int) -> slice:
        """Return the rows of a partition."""
        return slice(int(self.bounds[partition]), int(self.bounds[partition + 1]))

    def without(self, kept: Flags) -> Partitions:
        """Return the partitions of the rows that are kept."""
        before = np.concatenate([[0], np.cumsum(kept)])
        return self.with_bounds(before[self.bounds])

    def with_bounds(self, bounds: Int64s) -> Partitions:
        """Return the model with other partition bounds."""
        model = index_pb2.IVF()
        model.CopyFrom(self.model)
        del model.offsets[:], model.lengths[:]
        model.offsets.extend(bounds[:-1].tolist())
        model.lengths.extend(np.diff(bounds).tolist())
        return Partitions(model, bounds)

    def encoded(self) -> bytes:
        """Serialize the model."""
        return self.model.SerializeToString()


def read_model(file: IndexFile) -> index_pb2.IVF:
    """Read the model of a file; an index without graphs may have the partitions in another file."""
    return parse(
        index_pb2.IVF(), file.buffer(file.number(MODEL)), "partitions of an index", file.path
    )


def read_partitions(file: IndexFile) -> Partitions:
    """Read the partitions of a file.

    Raises
    ------
    CorruptFileError
        The partitions are missing, or differ from the rows of the file.
    UnsupportedFeatureError
        The file has format 0.1.
    """
    file.buffer(0)
    model = read_model(file)
    rows = file.num_rows
    # In a damaged file, offsets may be any 64-bit integer; lengths have 32 bits.
    lengths = np.array(model.lengths, np.int64)
    offsets = np.array(model.offsets, np.uint64)
    bounds = np.concatenate([[0], np.cumsum(lengths)])
    fits = len(offsets) == len(lengths) and int(bounds[-1]) == rows
    if not fits or (offsets[lengths > 0] != bounds[:-1][lengths > 0].astype(np.uint64)).any():
        raise file.corrupt(
            "partitions of an index",
            f"{rows} rows, one partition after the other",
            f"{len(offsets)} offsets and {len(lengths)} lengths of {int(bounds[-1])} rows",
        )
    return Partitions(model, bounds)


# --- Layouts of the codes of a partition, and selecting rows in each --------------------
# Codes are stored row by row, with two exceptions. Product codes may be *transposed*: byte 0 of all
# rows of the partition comes first, then byte 1, and so on. RaBitQ bits may be *packed*: 32 rows
# side by side, so that a search looks up 32 nibbles at a time.
#
# Specification: "Codes" in ``docs/format/vector-codes.md``,
# "Storage of first bits" in ``docs/format/rabitq.md``.

Codes = UInt8s
"""The bytes of a partition, of shape ``(rows, width)`` in every layout."""

BLOCK: Final = 32
_ORDER: Final = np.array([0, 8, 1, 9, 2, 10, 3, 11, 4, 12, 5, 13, 6, 14, 7, 15])
"""Rows that the nibbles of a block's bytes hold: of the first 16 rows, and of the last 16."""


def select_transposed(codes: Codes, kept: Flags) -> Codes:
    """Select rows of transposed codes."""
    rows, width = codes.shape
    surviving = codes.reshape(width, rows)[:, kept]
    return np.ascontiguousarray(surviving).reshape(-1, width)


def row_major(codes: Codes) -> Codes:
    """Turn transposed codes into rows."""
    rows, width = codes.shape
    return np.ascontiguousarray(codes.reshape(width, rows).T)


def transposed(codes: Codes) -> Codes:
    """Turn rows into transposed codes."""
    return np.ascontiguousarray(codes.T).reshape(codes.shape)


def select_packed(codes: Codes, kept: Flags) -> Codes:
    """Select rows of packed bits."""
    return packed(unpacked(codes)[kept])


def unpacked(codes: Codes) -> Codes:
    """Convert packed bits to rows."""
    rows, width = codes.shape
    block_rows = rows // BLOCK * BLOCK
    flat = codes.reshape(-1)
    blocks = flat[: block_rows * width].reshape(-1, width, 2, BLOCK // 2)
    # For each byte column, low nibbles of 32 rows, then high nibbles: 16 bytes each.
    values = np.empty((len(blocks), BLOCK, width), np.uint8)
    low, high = blocks[:, :, 0].transpose(0, 2, 1), blocks[:, :, 1].transpose(0, 2, 1)
    values[:, _ORDER] = (low & 15) | (high & 15) << 4
    values[:, _ORDER + BLOCK // 2] = low >> 4 | high & 0xF0
    rest = flat[block_rows * width :].reshape(width, rows - block_rows).T
    return np.concatenate([values.reshape(-1, width), rest])


def packed(values: Codes) -> Codes:
    """Convert rows of bits to packed bits."""
    rows, width = values.shape
    block_rows = rows // BLOCK * BLOCK
    blocks = values[:block_rows].reshape(-1, BLOCK, width)
    first, last = blocks[:, _ORDER], blocks[:, _ORDER + BLOCK // 2]
    packed = np.empty((len(blocks), width, 2, BLOCK // 2), np.uint8)
    packed[:, :, 0] = ((first & 15) | (last & 15) << 4).transpose(0, 2, 1)
    packed[:, :, 1] = (first >> 4 | last & 0xF0).transpose(0, 2, 1)
    rest = np.ascontiguousarray(values[block_rows:].T)
    return np.concatenate([packed.reshape(-1), rest.reshape(-1)]).reshape(-1, width)


ADDRESSES: Final = "_rowid"
PRODUCT: Final = "__pq_code"
SCALAR: Final = "__sq_code"
SIGNS: Final = "_rabit_codes"
PLAIN: Final = "flat"

DETAILS: Final = "storage_metadata"

Select = Callable[[UInt8s, Flags], UInt8s]


class Storage:
    """The file of codes of a vector index.

    Raises
    ------
    CorruptFileError
        Columns, partitions or metadata are invalid for a vector index.
    """

    def __init__(self, file: IndexFile) -> None:
        self.file = file
        # Lance up to 0.20 also stored the partition of each row.
        at = file.schema.get_field_index("__ivf_part_id")
        self.schema = file.schema if at < 0 else file.schema.remove(at)
        file.check(**{ADDRESSES: pa.uint64()})
        self.partitions = read_partitions(file)
        self.column = self._column()

    def _column(self) -> str:
        names = self.schema.names
        code_columns = [name for name in (PLAIN, PRODUCT, SCALAR, SIGNS) if name in names]
        kind: Any = self.type_of(code_columns[0]) if len(code_columns) == 1 else pa.null()
        good = pa.types.is_fixed_size_list(kind) and kind.list_size > 0
        of_bytes = good and (code_columns[0] == PLAIN or kind.value_type == pa.uint8())
        if not of_bytes or not all(_has_fixed_width(self.type_of(name)) for name in names):
            expected = f"{ADDRESSES} and codes of one kind"
            raise self.file.corrupt("columns of a vector index", expected, ", ".join(names))
        return code_columns[0]

    def type_of(self, column: str) -> Any:
        """Return the type of a column."""
        return self.file.schema.field(column).type

    def bytes_of_row(self, column: str) -> int:
        """Return the bytes of one value of a column."""
        kind = self.type_of(column)
        if pa.types.is_fixed_size_list(kind):
            return int(kind.list_size * kind.value_type.bit_width) // 8
        return int(kind.bit_width) // 8

    @cached_property
    def details(self) -> dict[str, Any]:
        """Description of the codes."""
        documents = json_list(self.file, DETAILS)
        if len(documents) > 1:
            raise UnsupportedFeatureError(
                f"{self.file.path}: codes that are described by partition, as Lance 0.16 wrote "
                "them, are not read: create the index again"
            )
        details = _parsed(documents[0], DETAILS, self.file) if len(documents) == 1 else None
        if not isinstance(details, dict):
            found = f"{documents}"[:80]
            raise self.file.corrupt(f"metadata {DETAILS!r}", "one JSON object in a list", found)
        if self.column == PRODUCT and "num_bits" in details:
            details.setdefault("nbits", details["num_bits"])  # the name in Lance up to 0.26
        return details

    @property
    def metric(self) -> str:
        """Name of the distance: ``l2``, ``cosine``, ``dot`` or ``hamming``."""
        return self.file.metadata.get("distance_type", "l2")

    def _special_layout(self) -> tuple[str, Select] | None:
        """Return the column that is stored in blocks, and the function that selects its rows."""
        if self.column == PRODUCT and self.details.get("transposed"):
            return PRODUCT, select_transposed
        if self.column == SIGNS and self.details.get("packed"):
            return SIGNS, select_packed
        return None

    def read(self, start: int, stop: int) -> pa.Table:
        """Read rows ``start`` to ``stop`` of all columns; raise if a value is null."""
        rows = self.file.read(self.schema.names, start, stop)
        for name in rows.column_names:
            inner = pa.types.is_fixed_size_list(rows[name].type)
            chunks: list[Any] = rows[name].chunks
            nulls = rows[name].null_count
            nulls += sum(chunk.flatten().null_count for chunk in chunks) if inner else 0
            if nulls:
                raise self.file.corrupt_column(name, "values", f"{nulls} nulls")
        return rows

    def select(self, rows: pa.Table, partitions: list[slice], mask: Flags) -> pa.Table:
        """Select the rows of a mask, from complete partitions."""
        if mask.all():
            return rows
        surviving = rows.filter(flag_array(mask))
        special = self._special_layout()
        if special is not None:
            name, select = special
            codes = bytes_of(rows[name])
            parts = [select(codes[partition], mask[partition]) for partition in partitions]
            surviving = with_bytes(surviving, name, np.concatenate(parts or [codes[:0]]))
        return surviving


def _has_fixed_width(kind: pa.DataType) -> bool:
    if isinstance(kind, pa.FixedSizeListType):
        kind = kind.value_type
    return bool(pa.types.is_primitive(kind))


def bytes_of(column: pa.ChunkedArray) -> UInt8s:
    """Return fixed-size lists of bytes as an array of shape ``(rows, width)``, in stored order."""
    array: Any = one_array(column)
    width: int = array.type.list_size
    flat = array.flatten() if len(array) else pa.nulls(0, pa.uint8())
    return as_numpy(flat).reshape(-1, width)


def with_bytes(rows: pa.Table, name: str, codes: UInt8s) -> pa.Table:
    """Replace the codes of a column."""
    at = rows.schema.get_field_index(name)
    field = rows.schema.field(at)
    flat = number_array(codes.reshape(-1))
    array = pa.FixedSizeListArray.from_arrays(flat, type=field.type)
    return rows.set_column(at, field, array)


def json_list(file: IndexFile, key: str) -> list[str]:
    """Return metadata that is a JSON list of strings."""
    items = _parsed(file.metadata.get(key, ""), key, file)
    if not (isinstance(items, list) and all(isinstance(item, str) for item in items)):
        raise file.corrupt(f"metadata {key!r}", "a JSON list of strings", f"{items!r}"[:80])
    return items


def _parsed(text: str, key: str, file: IndexFile) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise file.corrupt(f"metadata {key!r}", "JSON", str(error)) from error


# --- Tensors of vector indices: centroids, codebooks, rotations -------------------------
# Specification: "Partitions" in ``docs/format/vector-indices.md``,
# "Codes" in ``docs/format/vector-codes.md``.

_TYPES: Final = {
    index_pb2.Tensor.FLOAT16: "<f2",
    index_pb2.Tensor.FLOAT32: "<f4",
    index_pb2.Tensor.FLOAT64: "<f8",
    index_pb2.Tensor.UINT8: "u1",
}

_MAX_SIZES, _MAX_EMPTY = 4, 1 << 15
"""Limits of a shape: number of sizes, and the largest size next to a 0; NumPy fails beyond."""


def tensor_values(tensor: index_pb2.Tensor, part: str, path: str) -> NDArray[Any]:
    """Return the numbers of a tensor as a flat view of the message's bytes.

    Raises
    ------
    CorruptFileError
        The bytes end within a number, or the element type is unknown.
    """
    kind = "<u2" if tensor.data_type == index_pb2.Tensor.BFLOAT16 else _TYPES.get(tensor.data_type)
    if kind is None or len(tensor.data) % np.dtype(kind).itemsize:
        found = f"{len(tensor.data)} bytes of type {tensor.data_type}"
        raise CorruptFileError(part, expected="numbers of a known type", found=found, where=path)
    numbers: NDArray[Any] = np.frombuffer(tensor.data, kind)
    if tensor.data_type == index_pb2.Tensor.BFLOAT16:
        numbers = (numbers.astype(np.uint32) << np.uint32(16)).view(np.float32)
    return numbers


def read_tensor(tensor: index_pb2.Tensor, part: str, file: IndexFile) -> NDArray[Any]:
    """Return the numbers of a tensor in its shape, as a view of the message's bytes.

    Raises
    ------
    CorruptFileError
        The number of bytes is wrong, or the element type is unknown.
    """
    numbers = tensor_values(tensor, part, file.path)
    shape = [int(size) for size in tensor.shape]
    # Multiply Python numbers, which are exact. A size of 0 hides sizes that NumPy refuses.
    known = len(shape) <= _MAX_SIZES and not (0 in shape and max(shape) > _MAX_EMPTY)
    if not shape or not known or prod(shape) != len(numbers):
        found = f"{len(numbers)} for shape {shape[:8]}"
        raise file.corrupt(part, "as many numbers as the shape says", found)
    return numbers.reshape(shape)


def single_precision(numbers: NDArray[Any]) -> Float32s:
    """Convert numbers to ``float32``, as a view if possible; large ones become infinite."""
    with np.errstate(over="ignore"):
        return np.ascontiguousarray(numbers, np.float32)


def stored_tensor(file: IndexFile, position: int, part: str) -> NDArray[Any]:
    """Return the tensor in a global buffer; see :func:`read_tensor`."""
    message = parse(index_pb2.Tensor(), file.buffer(position), part, file.path)
    return read_tensor(message, part, file)


# --- Read what decodes codes: codebook, bounds, integers ---------------------------------
# Specification: "Codes" in ``docs/format/vector-codes.md``.

_FLOATS = {
    index_pb2.Tensor.FLOAT16: np.float16,
    index_pb2.Tensor.FLOAT32: np.float32,
    index_pb2.Tensor.FLOAT64: np.float64,
}


def read_codebook(storage: Storage) -> Float32s:
    """Read the codebook, of shape ``(parts, entries, elements of a part)``.

    Raises
    ------
    CorruptFileError
        The codebook is missing, or contradicts the codes.
    """
    details, file = storage.details, storage.file
    bits, parts, dimension = (
        stored_integer(storage, key) for key in ("nbits", "num_sub_vectors", "dimension")
    )
    tensor = parse(index_pb2.Tensor(), _codebook_message(storage), "codebook", file.path)
    dtype: Any = _FLOATS.get(tensor.data_type)
    stored = storage.type_of(storage.column).list_size * 8
    supported = bits in (4, 8) and parts > 0 and dimension % max(1, parts) == 0
    size = 0 if dtype is None else (dimension << bits) * np.dtype(dtype).itemsize
    if not supported or parts * bits != stored or size != len(tensor.data) or not size:
        found = f"{len(tensor.data)} bytes for {details}"[:200]
        raise file.corrupt("codebook of an index", f"one for {stored} bits per row", found)
    values = np.frombuffer(tensor.data, np.dtype(dtype).newbyteorder("<"))
    return single_precision(values).reshape(parts, 1 << bits, -1)


def _codebook_message(storage: Storage) -> pa.Buffer | bytes:
    """Return the bytes of the codebook tensor; old releases store them in the metadata."""
    position = stored_integer(storage, "codebook_position")
    if position:
        return storage.file.buffer(position)
    stored = storage.details.get("codebook_tensor")
    try:
        return bytes(stored if isinstance(stored, list) else ())
    except (TypeError, ValueError) as error:
        found = str(error)
        raise storage.file.corrupt("codebook of an index", "a list of bytes", found) from error


def read_bounds(storage: Storage) -> tuple[float, float]:
    """Return the number that scalar code 0 decodes to, and the step between codes.

    Raises
    ------
    CorruptFileError
        The bounds are missing, infinite or NaN.
    """
    bounds = storage.details.get("bounds")
    stored = [bounds.get(key) for key in ("start", "end")] if isinstance(bounds, dict) else []
    try:
        numbers = [float(bound) for bound in stored if isinstance(bound, int | float)]
    except OverflowError as error:  # JSON has integers of any size
        raise _wrong(storage, "bounds", bounds) from error
    if len(numbers) != 2 or not all(map(math.isfinite, numbers)):
        raise _wrong(storage, "bounds", bounds)
    return numbers[0], (numbers[1] - numbers[0]) / 255


def stored_integer(storage: Storage, key: str) -> int:
    """Return an integer of the description of the codes; it must be below 2^20.

    Raises
    ------
    CorruptFileError
        The integer is missing, or something else.
    """
    number = storage.details.get(key)
    if not isinstance(number, int) or not 0 <= number < 1 << 20:
        raise _wrong(storage, key, number)
    return number


def _wrong(storage: Storage, key: str, stored: object) -> CorruptFileError:
    part = f"{key!r} of the codes of an index"
    return storage.file.corrupt(part, "numbers", f"{stored!r}"[:80])


# --- The rotation of RaBitQ: a stored matrix, or signs and Walsh-Hadamard transforms ----
# Specification: "Rotation" in ``docs/format/rabitq.md``.


@dataclass(frozen=True, eq=False)
class Rotation:
    """A rotation: ``signs`` for the fast kind, or a ``matrix`` to multiply vectors with."""

    signs: UInt8s | None
    matrix: Float32s | None = None

    @classmethod
    def random(cls, kind: str, dimension: int) -> Self:
        """Return a random rotation; each call with equal arguments returns the same."""
        random = np.random.default_rng(dimension)
        if kind == "fast":
            return cls(random.integers(0, 256, ROUNDS * dimension // 8, dtype=np.uint8))
        matrix, triangle = np.linalg.qr(random.standard_normal((dimension, dimension)))
        return cls(None, (matrix * np.sign(np.diag(triangle))).astype(np.float32))

    def apply(self, vectors: Float32s) -> Float32s:
        """Rotate vectors of shape ``(n, dimension)``."""
        if self.signs is not None:
            return rotate(vectors, self.signs)
        return vectors @ self.matrix.T  # type: ignore[union-attr]  # signs or a matrix


def read_rotation(storage: Storage, dimension: int) -> Rotation:
    """Read the rotation of stored codes; ``dimension`` must be divisible by 8.

    Raises
    ------
    CorruptFileError
        The rotation is damaged, or has a wrong dimension.
    """
    details, file = storage.details, storage.file
    kind = str(details.get("rotation_type", "matrix")).lower()
    if kind == "fast":
        signs = details.get("fast_rotation_signs")
        good = isinstance(signs, list) and len(signs) == ROUNDS * dimension // 8
        if not good or not all(isinstance(sign, int) and 0 <= sign < 256 for sign in signs or ()):
            expected = f"{ROUNDS * dimension // 8} bytes of signs"
            raise file.corrupt("rotation of an index", expected, f"{signs!r}"[:80])
        return Rotation(np.array(signs, np.uint8))
    position = stored_integer(storage, "rotate_mat_position")
    matrix = stored_tensor(file, position, "rotation of an index")
    if matrix.shape != (dimension, dimension) or matrix.dtype.kind != "f":
        expected = f"a matrix of {dimension} rows and columns"
        raise file.corrupt("rotation of an index", expected, f"{matrix.dtype} {matrix.shape}")
    return Rotation(None, single_precision(matrix))
