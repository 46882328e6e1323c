"""Open vector indices of old writers: product codes in one file.

Specification: "Old indices" in ``docs/format/vector-indices.md``.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from glaive.errors import CorruptFileError, UnsupportedFeatureError
from glaive.format.pb import index_pb2
from glaive.index.row_set import RowNumbers
from glaive.index.segment import Segment
from glaive.index.vector.legacy import legacy_description
from glaive.index.vector.opened import OpenedVectorIndex
from glaive.index.vector.partitions import Partitions
from glaive.index.vector.product_codes import ProductCodes
from glaive.index.vector.tensors import single_precision, tensor_values
from glaive.kernels.codes import MAX_WIDTH
from glaive.kernels.distances import METRICS
from glaive.memory import as_array
from glaive.types import Float32s, UInt8s

__all__ = ["open_legacy"]

_NUMBER_BYTES: Final = 8


def open_legacy(segment: Segment, name: str) -> OpenedVectorIndex:
    """Read the description of an index of one file, which is read as a whole.

    Raises
    ------
    UnsupportedFeatureError
        It is not one of product codes.
    CorruptFileError
        It is damaged.
    """
    data = segment.get(name)
    path = segment.store.full(f"{segment.folder}/{name}")
    index, end = legacy_description(data, path)
    if index is None or index.vector_index.metric_type >= len(METRICS) - 1:
        raise UnsupportedFeatureError(
            f"{segment.where}: an index of this kind is not read: create it again"
        )
    metric = METRICS[index.vector_index.metric_type]
    ivf, pq = index.vector_index.stages[0].ivf, index.vector_index.stages[1].pq

    def damage(part: str, expected: str, found: str) -> CorruptFileError:
        return CorruptFileError(part, expected=expected, found=found, where=path)

    lengths, offsets = np.array(ivf.lengths, np.int64), np.array(ivf.offsets, np.uint64)
    dimension = int(pq.dimension)
    width = pq.num_sub_vectors * pq.num_bits // 8
    known = pq.num_bits in (4, 8) and 0 < dimension <= MAX_WIDTH and pq.num_sub_vectors > 0
    if not known or dimension % pq.num_sub_vectors or pq.num_sub_vectors * pq.num_bits % 8:
        found = f"{pq.num_sub_vectors} codes of {pq.num_bits} bits for {dimension} dimensions"
        raise damage("codes of an index", "codes of 4 or 8 bits", found)
    row_bytes = width + _NUMBER_BYTES
    good = len(lengths) == len(offsets) > 0 and bool((offsets <= end).all())
    good = good and bool((lengths <= (end - offsets.astype(np.int64)) // row_bytes).all())
    if not good or int(lengths.sum()) > end // row_bytes:  # some bytes would be rows many times
        raise damage(
            "partitions of an index",
            f"partitions before byte {end}",
            f"{len(offsets)} offsets, {len(lengths)} lengths up to {lengths.max(initial=0)}",
        )
    shape = (len(lengths), dimension)
    centroids = _numbers(ivf.centroids_tensor, ivf.centroids, shape, path)
    book_shape = (pq.num_sub_vectors, 1 << pq.num_bits, dimension // pq.num_sub_vectors)
    book = _numbers(pq.codebook_tensor, pq.codebook, book_shape, path)
    content = as_array(data)

    def read(number: int, _at: slice) -> tuple[RowNumbers, UInt8s]:
        start, rows = int(offsets[number]), int(lengths[number])
        codes = content[start : start + rows * width].reshape(rows, width)
        stored = content[start + rows * width :][: rows * _NUMBER_BYTES]
        return np.frombuffer(stored.tobytes(), "<u8").astype(np.uint64), codes.copy()

    partitions = Partitions(ivf, np.concatenate(([0], np.cumsum(lengths))))
    codes = ProductCodes(read, metric, centroids, book, path)
    codes.nbytes += len(content)
    return OpenedVectorIndex(segment, metric, centroids, partitions, codes)


def _numbers(tensor: index_pb2.Tensor, listed: Any, shape: tuple[int, ...], path: str) -> Float32s:
    """Numbers of a tensor or, as older writers have it, of a list."""
    numbers: NDArray[Any]
    if tensor.data:
        numbers = tensor_values(tensor, "model of an index", path)
    else:
        numbers = np.array(listed, np.float32)
    if numbers.size != int(np.prod(shape, dtype=object)):
        raise CorruptFileError(
            "model of an index",
            expected=f"numbers of shape {shape}",
            found=f"{numbers.size}",
            where=path,
        )
    return single_precision(numbers.reshape(shape))
