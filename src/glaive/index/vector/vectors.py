"""Decode the codes of a vector index: graphs measure distances between these vectors.

Specification: "Codes" in ``docs/format/vector-indices.md``.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pyarrow as pa

from glaive.arrow.chunked import one_array
from glaive.errors import CorruptFileError
from glaive.format.pb import index_pb2
from glaive.format.wire import parse
from glaive.index.vector.layouts import row_major
from glaive.index.vector.storage import PLAIN, PRODUCT, SCALAR, Storage, bytes_of
from glaive.index.vector.tensors import single_precision
from glaive.types import Float32s, UInt8s

__all__ = ["Vectors", "read_bounds", "read_codebook", "stored_integer"]

_FLOATS = {
    index_pb2.Tensor.FLOAT16: np.float16,
    index_pb2.Tensor.FLOAT32: np.float32,
    index_pb2.Tensor.FLOAT64: np.float64,
}


class Vectors:
    """Turns the codes of one partition into vectors: plain, product or scalar quantised ones.

    Raises
    ------
    CorruptFileError
        The codebook or the bounds are not stored, or do not fit the codes.
    """

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self.column = storage.column
        # For the cosine distance, plain vectors have length one; decoded ones use L2.
        normalized = storage.metric == "cosine" and self.column == PLAIN
        self.dot = storage.metric == "dot" or normalized
        if self.column == PRODUCT:
            self._codebook = read_codebook(storage)
        elif self.column == SCALAR:
            self._start, self._step = read_bounds(storage)

    def of(self, column: pa.ChunkedArray) -> Float32s:
        """Vectors of all rows of one partition."""
        if self.column == PRODUCT:
            codes = bytes_of(column)
            return self._from_products(row_major(codes) if self._transposed else codes)
        if self.column == SCALAR:
            with np.errstate(over="ignore", invalid="ignore"):  # of bounds near the largest number
                return bytes_of(column) * np.float32(self._step) + np.float32(self._start)
        array: Any = one_array(column)
        flat = array.flatten().to_numpy(zero_copy_only=False)
        if flat.dtype == np.uint8:
            flat = np.unpackbits(flat)
        vectors: Float32s = single_precision(flat).reshape(len(column), -1)
        return vectors

    @property
    def _transposed(self) -> bool:
        return bool(self._storage.details.get("transposed"))

    def _from_products(self, codes: UInt8s) -> Float32s:
        if self._codebook.shape[1] == 16:
            halves = np.empty((len(codes), 2 * codes.shape[1]), np.uint8)
            halves[:, ::2], halves[:, 1::2] = codes & 15, codes >> 4
            codes = halves
        parts, _, width = self._codebook.shape
        vectors = np.empty((len(codes), parts, width), np.float32)
        for part in range(parts):
            vectors[:, part] = self._codebook[part][codes[:, part]]
        return vectors.reshape(len(codes), -1)


def read_codebook(storage: Storage) -> Float32s:
    """The stored codebook, as (parts, entries, elements of a part).

    Raises
    ------
    CorruptFileError
        It is not stored, or does not fit the codes.
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
    """The tensor in its buffer; of old releases, at position 0, in the metadata byte by byte."""
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
    """The least number that scalar codes stand for, and the step from one to the next.

    Raises
    ------
    CorruptFileError
        They are not stored, or are no numbers.
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
    """An integer of the description of the codes, below 2^20.

    Raises
    ------
    CorruptFileError
        It is absent, or something else.
    """
    number = storage.details.get(key)
    if not isinstance(number, int) or not 0 <= number < 1 << 20:
        raise _wrong(storage, key, number)
    return number


def _wrong(storage: Storage, key: str, stored: object) -> CorruptFileError:
    part = f"{key!r} of the codes of an index"
    return storage.file.corrupt(part, "numbers", f"{stored!r}"[:80])
