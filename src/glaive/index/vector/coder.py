"""Coders: turn a vector into what a vector index stores for it, the vector itself or a code.

Specification: "Codes" in ``docs/format/vector-codes.md``.
"""

from __future__ import annotations

import json
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Final, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from glaive.arrow.blocks import NUMPY_TYPES, number_array
from glaive.dataclass import NamedTuple, dataclass
from glaive.errors import OptionError, UnsupportedFeatureError
from glaive.format.pb import index_pb2
from glaive.index.segment import IndexFileWriter
from glaive.index.vector.storage import (
    DETAILS,
    PLAIN,
    PRODUCT,
    SCALAR,
    SIGNS,
    ColumnVectors,
    Rotation,
    VectorColumn,
    normalized,
    packed,
    transposed,
)
from glaive.io.pool import ordered_map
from glaive.kernels.distances import Centroids, Metric, find_nearest, sum_by_cluster
from glaive.kernels.graph_build import MAX_BYTES
from glaive.kernels.products import quantize_rotated
from glaive.types import Flags, Float32s, UInt8s

# --- K-means ----------------------------------------------------------------------------
# Lloyd's iterations from random vectors, in ``float32``. Above 256 clusters in two levels: k-means
# first trains coarse clusters, then divides each coarse cluster in proportion to its size. With an
# accelerator, torch runs the iterations.
#
# Specification: "Training" in ``docs/format/vector-indices.md``.

_MAX_SCORES: Final = 1 << 26
"""Scores in memory at a time: 256 MiB of ``float32``."""

Int32s = NDArray[np.int32]


def device_named(accelerator: object) -> str | None:
    """Return the torch name of a device, a name or a torch object; ``None`` for the processor.

    Raises
    ------
    OptionError
        The device is unknown, torch is not installed, or torch lacks the device.
    """
    given = accelerator if isinstance(accelerator, str) else None
    if accelerator is not None and given is None:
        kind, number = getattr(accelerator, "type", None), getattr(accelerator, "index", None)
        given = f"{kind}" if number is None else f"{kind}:{number}"
    if given is None or given == "cpu":
        return None
    kind = given.partition(":")[0]
    if kind not in ("cuda", "mps"):
        raise OptionError(
            f"only support 'cuda' or 'mps' as accelerator, and 'cpu', got {accelerator!r}"
        )
    if find_spec("torch") is None:
        raise OptionError(
            f"accelerator: {given} needs torch, which is not installed. Install it, or leave "
            "accelerator out to train on the processor"
        )
    torch: Any = import_module("torch")
    backend = torch.cuda if kind == "cuda" else torch.backends.mps
    if not backend.is_available():
        raise OptionError(
            f"accelerator: torch finds no {kind} device here. Leave accelerator out to train on "
            "the processor"
        )
    number = given.partition(":")[2]
    if number and not (number.isdecimal() and kind == "cuda" and _has(torch, int(number))):
        raise OptionError(f"accelerator: torch finds no device {given!r} here")
    return given


def _has(torch: Any, number: int) -> bool:
    return bool(number < torch.cuda.device_count())


class DeviceVectors:
    """Vectors on a torch device, which assigns them to centroids and sums them up.

    Parameters
    ----------
    vectors
        ``float32`` of shape ``(n, dimension)``.
    device
        Torch's name of the device.
    """

    def __init__(self, vectors: Float32s, device: str) -> None:
        self._torch: Any = import_module("torch")
        self._vectors = self._torch.tensor(vectors, device=device)
        self._device = device
        # Apple's devices lack ``float64``.
        self._wide = self._torch.float32 if device.startswith("mps") else self._torch.float64

    def assign(self, centroids: Float32s, *, dot: bool) -> tuple[Int32s, float]:
        """Return the nearest centroid of each vector, and the sum of distances (L2: squared)."""
        torch = self._torch
        origin = np.float32(0) if dot else centroids.mean(axis=0)
        table = torch.tensor(centroids - origin, device=self._device)
        bias = 0 if dot else -(table * table).sum(dim=1) / 2
        moved_by = torch.tensor(origin, device=self._device)
        ids, total = [], 0.0
        step = max(1, _MAX_SCORES // len(centroids))
        for start in range(0, len(self._vectors), step):
            part = self._vectors[start : start + step] - moved_by
            best = (part @ table.T + bias).max(dim=1)
            ids.append(best.indices)
            total += float(best.values.sum(dtype=self._wide))
            if not dot:
                total -= float((part * part).sum(dtype=self._wide)) / 2
        self._ids = torch.cat(ids)
        loss = len(self._vectors) - total if dot else max(0.0, -2 * total)
        return self._ids.cpu().numpy().astype(np.int32), loss

    def sums(self, count: int) -> NDArray[np.float64]:
        """Return the sum of the vectors of each centroid; :meth:`assign` has assigned them."""
        shape = (count, self._vectors.shape[1])
        sums = self._torch.zeros(shape, dtype=self._torch.float32, device=self._device)
        sums.index_add_(0, self._ids, self._vectors)
        made: NDArray[np.float64] = sums.cpu().numpy().astype(np.float64)
        return made


MAX_FLAT_CLUSTERS = 256
TOLERANCE = 1e-5
"""Relative decrease of the loss below which training stops."""

_REFINEMENTS = 2
"""Iterations over all clusters after the clusters within coarse clusters are trained."""

_ROWS_PER_CLUSTER = 256
_PART_ROWS = 8192
"""Rows that a thread assigns at a time."""

_SUMMED = 1 << 16
"""Squares to sum as ``float32`` before adding to a ``float64``."""

_LARGEST_SQUARE = np.finfo(np.float32).max / 8
"""Largest squared length of a vector for training: the squared distance of two is at most 4 ×."""


@dataclass(frozen=True, slots=True)
class Training:
    """Options for training centroids.

    Parameters
    ----------
    metric
        ``l2`` also for the cosine distance, whose vectors have length one. For ``dot``, centroids
        have length one. For ``hamming``, centroids are 0 or 1 in each dimension.
    iterations
        Maximum number of iterations.
    seed
        Seed of the random choices; equal seeds give equal centroids.
    parallel
        Use the threads of the pool. Set False for work that runs in the pool itself.
    device
        Torch device to train on; ``None``: the processor. Ignored for ``hamming``.
    """

    metric: Metric = "l2"
    iterations: int = 50
    seed: int = 0
    parallel: bool = True
    device: str | None = None


class Clusters:
    """Centroids with the table that assigns vectors to them. Immutable.

    Parameters
    ----------
    centroids
        ``float32`` of shape ``(clusters, dimension)``.
    metric
        As in :class:`Training`.
    """

    def __init__(self, centroids: Float32s, metric: Metric) -> None:
        self.centroids = np.ascontiguousarray(centroids, np.float32)
        self._dot = metric == "dot"
        # Move vectors near the origin: float32 loses less precision there.
        with np.errstate(all="ignore"):
            mean = self.centroids.mean(axis=0, dtype=np.float64).astype(np.float32)
        self._origin = None if self._dot or metric == "hamming" else mean
        moved = self._moved(self.centroids)
        squares = np.einsum("ij,ij->i", moved, moved)
        bias = np.zeros_like(squares) if self._dot else -squares / 2
        self._table = Centroids(moved, bias)

    def __len__(self) -> int:
        return len(self.centroids)

    def _moved(self, vectors: Float32s) -> Float32s:
        if self._origin is None:
            return vectors
        with np.errstate(all="ignore"):  # the distances of extreme vectors are infinite
            moved: Float32s = vectors - self._origin
        return moved

    def assign(self, vectors: Float32s) -> Int32s:
        """Return the nearest cluster of each vector."""
        return find_nearest(self._moved(vectors), self._table).ids

    def measure(self, vectors: Float32s) -> tuple[Int32s, float]:
        """Return the nearest cluster of each vector, and the sum of distances (L2: squared)."""
        moved = self._moved(vectors)
        ids, scores = find_nearest(moved, self._table)
        with np.errstate(all="ignore"):
            total = float(scores.sum(dtype=np.float64))
        if self._dot:
            return ids, len(ids) - total
        flat = moved.reshape(-1)
        with np.errstate(all="ignore"):
            squares = sum(
                float(np.dot(part, part))
                for part in (flat[at : at + _SUMMED] for at in range(0, len(flat), _SUMMED))
            )
        return ids, max(0.0, squares - 2 * total)


def assign_all(clusters: Clusters, vectors: Float32s, *, parallel: bool) -> tuple[Int32s, float]:
    """Call :meth:`Clusters.measure` for parts of the vectors, on all cores if ``parallel``."""
    # All parts have one size, so that sums of floats are the same for any number of cores.
    parts = [vectors[start : start + _PART_ROWS] for start in range(0, len(vectors), _PART_ROWS)]
    found = list((ordered_map if parallel else map)(clusters.measure, parts))
    return np.concatenate([ids for ids, _ in found]), sum(loss for _, loss in found)


def train_clusters(vectors: Float32s, count: int, training: Training) -> tuple[Float32s, float]:
    """Train centroids.

    Parameters
    ----------
    vectors
        ``float32`` of shape ``(n, dimension)``, ``n`` at least 1, contiguous. With fewer vectors
        than clusters, some vectors become several centroids.
    count
        Number of clusters, at least 1.
    training
        Options.

    Returns
    -------
    tuple
        ``float32`` of shape ``(count, dimension)``, and the loss: the sum of the distances of the
        vectors to their centroids.
    """
    vectors = _measurable(vectors)
    if count <= MAX_FLAT_CLUSTERS or len(vectors) <= count or training.device is not None:
        return _iterated(vectors, _first_centroids(vectors, count, training.seed), training)
    centroids = _divided(vectors, count, training)
    return _iterated(vectors, centroids, replace(training, iterations=_REFINEMENTS))


def _measurable(vectors: Float32s) -> Float32s:
    """Keep the vectors whose squared distances fit a ``float32``, or all vectors if all are larger.

    Other vectors are infinitely far from everything, and would make the centroids infinite.
    """
    with np.errstate(over="ignore"):
        near = np.einsum("ij,ij->i", vectors, vectors) < _LARGEST_SQUARE
    if near.all() or not near.any():
        return vectors
    kept: Float32s = vectors[near]
    return kept


def _first_centroids(vectors: Float32s, count: int, seed: int) -> Float32s:
    if len(vectors) <= count:
        return vectors[np.arange(count) % len(vectors)]
    random = np.random.default_rng(seed)
    return vectors[np.sort(random.choice(len(vectors), count, replace=False))]


def _iterated(vectors: Float32s, centroids: Float32s, training: Training) -> tuple[Float32s, float]:
    """Run Lloyd's iterations."""
    random = np.random.default_rng(training.seed + 1)
    centroids = _fitted(centroids, training.metric)
    there = None
    if training.device is not None and training.metric != "hamming":
        there = DeviceVectors(vectors, training.device)
    loss = math.inf
    for iteration in range(training.iterations + 1):
        before = loss
        if there is None:
            clusters = Clusters(centroids, training.metric)
            ids, loss = assign_all(clusters, vectors, parallel=training.parallel)
        else:
            ids, loss = there.assign(centroids, dot=training.metric == "dot")
        converged = math.isfinite(before) and before - loss <= TOLERANCE * abs(before)
        if converged or iteration == training.iterations:
            break
        sizes = np.bincount(ids, minlength=len(centroids))
        count = len(centroids)
        sums = sum_by_cluster(vectors, ids, count) if there is None else there.sums(count)
        centroids = (sums / np.maximum(sizes, 1)[:, None]).astype(np.float32)
        empty = np.flatnonzero(sizes == 0)
        if len(empty):
            # Random vectors mostly come from large clusters, so that large clusters are divided.
            centroids[empty] = vectors[random.integers(0, len(vectors), len(empty))]
        centroids = _fitted(centroids, training.metric)
    return centroids, loss


def _fitted(centroids: Float32s, metric: Metric) -> Float32s:
    """Normalize or round centroids as the metric requires."""
    if metric == "dot":
        unit = np.asarray(normalized(centroids), np.float32)
        return np.where(np.isfinite(unit), unit, np.float32(0))
    if metric == "hamming":
        return (centroids >= 0.5).astype(np.float32)
    return centroids


def _divided(vectors: Float32s, count: int, training: Training) -> Float32s:
    """Train centroids within coarse clusters."""
    coarse_count = round(math.sqrt(count))
    step = max(1, len(vectors) // (coarse_count * _ROWS_PER_CLUSTER))
    coarse, _ = train_clusters(np.ascontiguousarray(vectors[::step]), coarse_count, training)
    clusters = Clusters(coarse, training.metric)
    ids, _ = assign_all(clusters, vectors, parallel=training.parallel)
    order = np.argsort(ids, kind="stable")
    sizes = np.bincount(ids, minlength=coarse_count)
    stops = np.cumsum(sizes)
    shares = _shares(sizes, count)
    parts = [
        (vectors[order[stop - size : stop]], share)
        for stop, size, share in zip(stops.tolist(), sizes.tolist(), shares, strict=True)
        if share
    ]
    within = replace(training, parallel=False)
    trained = (ordered_map if training.parallel else map)(
        lambda part: train_clusters(part[0], part[1], within)[0], parts
    )
    return np.concatenate(list(trained))


def _shares(sizes: NDArray[np.int64], count: int) -> list[int]:
    """Return the number of clusters within each coarse cluster, in proportion to its vectors.

    A coarse cluster with vectors gets at least one cluster.
    """
    present = sizes > 0
    exact = sizes * ((count - int(present.sum())) / sizes.sum())
    shares = np.floor(exact).astype(np.int64) + present
    missing = count - int(shares.sum())
    order = np.argsort(-(exact - np.floor(exact)), kind="stable")
    shares[order[:missing]] += 1
    return [int(share) for share in shares]


_TENSOR_TYPES = {
    np.dtype(np.float16): index_pb2.Tensor.FLOAT16,
    np.dtype(np.float32): index_pb2.Tensor.FLOAT32,
    np.dtype(np.float64): index_pb2.Tensor.FLOAT64,
    np.dtype(np.uint8): index_pb2.Tensor.UINT8,
}


class GraphPoints(NamedTuple):
    """Vectors that a graph connects, and the distance between two of them.

    Parameters
    ----------
    vectors
        ``float32`` or ``uint8`` of shape ``(n, dimension)``.
    dot
        The distance is one minus the dot product; otherwise the squared distance.
    scale
        Multiply this distance by ``scale`` to get the stored distance.
    """

    vectors: NDArray[Any]
    dot: bool
    scale: float = 1.0


class Coder(ABC):
    """Encodes vectors, and describes the codes in a file. Immutable."""

    @property
    @abstractmethod
    def fields(self) -> list[pa.Field[Any]]:
        """Arrow fields of the columns with codes."""

    @property
    def dtypes(self) -> list[tuple[Any, ...]]:
        """The columns as members of a NumPy record: name, type, and shape of fixed-size lists."""
        members: list[tuple[Any, ...]] = []
        for field in self.fields:
            kind: Any = field.type
            if pa.types.is_fixed_size_list(kind):
                members.append((field.name, NUMPY_TYPES[kind.value_type], (kind.list_size,)))
            else:
                members.append((field.name, NUMPY_TYPES[kind]))
        return members

    @abstractmethod
    def encode(
        self, block: ColumnVectors, residuals: Float32s, partitions: NDArray[np.int32]
    ) -> Mapping[str, NDArray[Any]]:
        """Return the codes of a block, one array per column.

        Parameters
        ----------
        block
            Vectors to encode.
        residuals
            The vectors minus the centroids of their partitions.
        partitions
            Partition of each vector.
        """

    def is_arranged(self, name: str) -> bool:
        """Return whether a column stores codes of a partition in another order than by row."""
        return False

    def arranged(self, name: str, codes: NDArray[Any]) -> NDArray[Any]:
        """Reorder the codes of a complete partition, row by row, as the column stores them."""
        return codes

    @abstractmethod
    def points(self, records: NDArray[Any]) -> GraphPoints:
        """Return the points that a graph over the codes connects.

        Parameters
        ----------
        records
            Records of a complete partition.
        """

    @abstractmethod
    def describe(self, file: IndexFileWriter) -> dict[str, Any]:
        """Return the description of the codes for a file, and add the buffers that it refers to."""

    def add_to(self, file: IndexFileWriter) -> None:
        """Add the description of the codes, and its buffers, to a file."""
        text = json.dumps(self.describe(file), separators=(",", ":"))
        file.add_metadata({DETAILS: json.dumps([text], separators=(",", ":"))})


def encoded_tensor(numbers: NDArray[Any], shape: tuple[int, ...] | None = None) -> index_pb2.Tensor:
    """Encode a tensor as files store it.

    Parameters
    ----------
    shape
        Shape to store; default: the shape of ``numbers``.
    """
    little = numbers.astype(numbers.dtype.newbyteorder("<"), copy=False)
    return index_pb2.Tensor(
        data_type=_TENSOR_TYPES[numbers.dtype], shape=shape or numbers.shape, data=little.tobytes()
    )


def fixed_size_lists(numbers: NDArray[Any] | UInt8s, kind: pa.DataType) -> pa.Array[Any]:
    """Return the rows of a matrix as fixed-size lists, as a view if the matrix is contiguous."""
    flat = number_array(np.ascontiguousarray(numbers).reshape(-1))
    lists: Any = pa.FixedSizeListArray
    array: pa.Array[Any] = lists.from_arrays(flat, type=kind)
    return array


# --- Vectors stored as they are ---------------------------------------------------------
# Specification: "Codes" in ``docs/format/vector-codes.md``.


class PlainCoder(Coder):
    """Store vectors as they are, or normalized to length one for the cosine distance."""

    def __init__(self, column: VectorColumn) -> None:
        self._column = column

    @property
    def fields(self) -> list[pa.Field[Any]]:
        """The columns of codes."""
        column = self._column
        return [pa.field(PLAIN, pa.list_(column.kind, column.dimension), nullable=False)]

    def encode(
        self, block: ColumnVectors, residuals: Float32s, partitions: NDArray[np.int32]
    ) -> Mapping[str, NDArray[Any]]:
        """See :meth:`Coder.encode`."""
        return {PLAIN: block.stored}

    def points(self, records: NDArray[Any]) -> GraphPoints:
        """See :meth:`Coder.points`."""
        vectors = records[PLAIN]
        if self._column.metric == "hamming":
            bits = np.unpackbits(vectors, axis=1)
            if bits.shape[1] > MAX_BYTES:
                bits = bits.astype(np.float32)
            return GraphPoints(bits, dot=False)
        # Stored vectors have length one for ``cosine``: the distance is one minus the dot product.
        dot = self._column.metric in ("cosine", "dot")
        return GraphPoints(vectors.astype(np.float32), dot)

    def describe(self, file: IndexFileWriter) -> dict[str, Any]:
        """See :meth:`Coder.describe`."""
        return {"dim": self._column.dimension}


# --- Scalar quantisation: one byte for each number of a vector, within common bounds ----
# Specification: "Codes" in ``docs/format/vector-codes.md``.

_LEVELS = 255
_LARGEST = float(np.finfo(np.float32).max)


class ScalarCoder(Coder):
    """Encode each number of a vector as 0 to 255, linearly between ``start`` and ``end``.

    Parameters
    ----------
    dimension
        Numbers in a vector.
    start, end
        Numbers below ``start`` get code 0; numbers above ``end`` get code 255.
    dot
        Graphs compare dot products.
    """

    def __init__(self, dimension: int, start: float, end: float, *, dot: bool) -> None:
        self.dimension, self.start, self.end, self.dot = dimension, start, end, dot

    @property
    def fields(self) -> list[pa.Field[Any]]:
        """The columns of codes."""
        return [pa.field(SCALAR, pa.list_(pa.uint8(), self.dimension))]

    def encode(
        self, block: ColumnVectors, residuals: Float32s, partitions: NDArray[np.int32]
    ) -> Mapping[str, NDArray[Any]]:
        """See :meth:`Coder.encode`."""
        span = self.end - self.start
        scale = np.float32(_LEVELS / span if span > 0 else 0)
        if span > _LARGEST:  # the span exceeds float32
            codes = ((block.vectors.astype(np.float64) - self.start) * (_LEVELS / span)).astype(
                np.float32
            )
        else:
            with np.errstate(over="ignore"):  # numbers far beyond the bounds overflow
                codes = block.vectors - np.float32(self.start)
                codes *= scale
        np.clip(codes, 0, _LEVELS, out=codes)
        return {SCALAR: codes.astype(np.uint8)}

    def recoded(self, codes: NDArray[Any], stored: ScalarCoder) -> NDArray[Any]:
        """Convert codes with the bounds of ``stored`` to codes with the bounds of this coder."""
        if (self.start, self.end) == (stored.start, stored.end):
            return codes
        span = float(self.end) - self.start
        values = np.arange(_LEVELS + 1) * ((stored.end - stored.start) / _LEVELS) + stored.start
        table = np.rint((values - self.start) * (_LEVELS / span if span > 0 else 0))
        again: NDArray[Any] = np.clip(table, 0, _LEVELS).astype(np.uint8)[codes]
        return again

    def points(self, records: NDArray[Any]) -> GraphPoints:
        """See :meth:`Coder.points`."""
        codes = records[SCALAR]
        step = (self.end - self.start) / _LEVELS
        if self.dot or self.dimension > MAX_BYTES:
            if self.end - self.start > _LARGEST:
                return GraphPoints((codes * step + self.start).astype(np.float32), self.dot)
            vectors = codes * np.float32(step) + np.float32(self.start)
            return GraphPoints(vectors, self.dot)
        return GraphPoints(codes, dot=False, scale=step * step)

    def describe(self, file: IndexFileWriter) -> dict[str, Any]:
        """See :meth:`Coder.describe`."""
        bounds = {"start": self.start, "end": self.end}
        return {"dim": self.dimension, "num_bits": 8, "bounds": bounds}


# --- Product quantisation: cut vectors into parts, and encode each part with its codebook ---
# Specification: "Codes" in ``docs/format/vector-codes.md``.


def train_codebook(
    vectors: Float32s,
    parts: int,
    bits: int,
    training: Training,
    chosen: Sequence[int] | None = None,
) -> Float32s:
    """Train a codebook, part by part, by squared distance; for the dot product as well.

    Parameters
    ----------
    vectors
        ``float32`` of shape ``(n, dimension)``: residuals, or vectors for the dot product.
    parts
        Number of parts of a vector.
    bits
        Bits of a code: 4 or 8.
    chosen
        Numbers of the parts to train, at least one; default: all.
        Numbers of the parts to train, at least one; default: all.

    Returns
    -------
    numpy.ndarray
        ``float32`` of shape ``(parts, 2 ** bits, dimension / parts)``, for the chosen parts only.
    """
    width = vectors.shape[1] // parts
    within = replace(training, metric="l2", parallel=False)
    work = partial(_train_part, vectors=vectors, width=width, bits=bits, training=within)
    return np.stack(list(ordered_map(work, range(parts) if chosen is None else chosen)))


def _train_part(
    part: int, vectors: Float32s, width: int, bits: int, training: Training
) -> Float32s:
    columns = np.ascontiguousarray(vectors[:, part * width : (part + 1) * width])
    return train_clusters(columns, 1 << bits, training)[0]


class ProductCoder(Coder):
    """Encode each part of a vector with 4 or 8 bits.

    Parameters
    ----------
    codebook
        Shape ``(parts, 2 ** bits, dimension / parts)``, in the dtype that the file stores.
    bits
        Bits of a code.
    residual
        Encode residuals (the vector minus its centroid) instead of vectors.
    by_column
        Store byte 0 of all rows of a partition first, then byte 1, and so on.
    """

    def __init__(
        self, codebook: NDArray[Any], bits: int, *, residual: bool, by_column: bool = True
    ) -> None:
        self.codebook, self.bits, self.residual = codebook, bits, residual
        self.by_column = by_column
        self._parts = [Clusters(part.astype(np.float32), "l2") for part in codebook]

    @classmethod
    def like(cls, other: ProductCoder, *, by_column: bool) -> Self:
        """Copy a coder with another order of the codes."""
        return cls(other.codebook, other.bits, residual=other.residual, by_column=by_column)

    @property
    def dimension(self) -> int:
        """Numbers in a vector."""
        return int(self.codebook.shape[0] * self.codebook.shape[2])

    @property
    def fields(self) -> list[pa.Field[Any]]:
        """The columns of codes."""
        return [pa.field(PRODUCT, pa.list_(pa.uint8(), len(self._parts) * self.bits // 8))]

    def encode(
        self, block: ColumnVectors, residuals: Float32s, partitions: NDArray[np.int32]
    ) -> Mapping[str, NDArray[Any]]:
        """See :meth:`Coder.encode`."""
        vectors = residuals if self.residual else block.vectors
        codes = np.empty((len(vectors), len(self._parts)), np.uint8)
        width = self.codebook.shape[2]
        for at, part in enumerate(self._parts):
            codes[:, at] = part.assign(vectors[:, at * width : (at + 1) * width])
        return {PRODUCT: codes if self.bits == 8 else _packed_halves(codes)}

    def is_arranged(self, name: str) -> bool:
        """See :meth:`Coder.is_arranged`."""
        return self.by_column

    def arranged(self, name: str, codes: NDArray[Any]) -> NDArray[Any]:
        """See :meth:`Coder.arranged`."""
        return transposed(codes)

    def points(self, records: NDArray[Any]) -> GraphPoints:
        """See :meth:`Coder.points`."""
        codes = records[PRODUCT]
        if self.bits == 4:
            codes = np.stack([codes & 15, codes >> 4], axis=2).reshape(len(codes), -1)
        parts = [part.astype(np.float32)[codes[:, at]] for at, part in enumerate(self.codebook)]
        # Within a partition, residuals have the same distances as vectors.
        return GraphPoints(np.concatenate(parts, axis=1), dot=not self.residual)

    def describe(self, file: IndexFileWriter) -> dict[str, Any]:
        """See :meth:`Coder.describe`."""
        shape = (1 << self.bits, self.dimension)
        position = file.add_buffer(encoded_tensor(self.codebook, shape).SerializeToString())
        return {
            "codebook_position": position,
            "nbits": self.bits,
            "num_sub_vectors": len(self._parts),
            "dimension": self.dimension,
            "codebook_tensor": [],
            "transposed": self.by_column,
        }


def _packed_halves(codes: UInt8s) -> UInt8s:
    """Pack two 4-bit codes into each byte, the first in the low bits."""
    return codes[:, ::2] | codes[:, 1::2] << np.uint8(4)


# --- Extended RaBitQ codes: 1 to 8 bits in addition to the sign, in blocks of 64 dimensions -
# Specification: "Storage of other bits" in ``docs/format/rabitq.md``.

_BLOCK = 64


def to_blocked(codes: UInt8s, bits: int) -> UInt8s:
    """Arrange codes of ``bits`` bits, one byte each, as files store them.

    Parameters
    ----------
    codes
        Shape ``(n, dimension)``.
    bits
        From 1 to 8.
    """
    count, dimension = codes.shape
    blocks = -(-dimension // _BLOCK)
    padded = np.zeros((count, blocks * _BLOCK), np.uint8)
    padded[:, :dimension] = codes
    laid_out = _block(padded.reshape(-1, _BLOCK), bits)
    return laid_out.reshape(count, blocks * bits * 8)


def _block(codes: UInt8s, bits: int) -> UInt8s:
    """Arrange the codes of blocks of 64 dimensions."""
    if bits == 1:
        return np.packbits(codes, axis=1, bitorder="little")
    if bits == 8:
        return codes
    if bits % 2:
        top = np.uint8(bits - 1)
        low = codes & np.uint8((1 << (bits - 1)) - 1)
        planes = _halves(low) if bits == 5 else _block(low, bits - 1)
        return np.concatenate([planes, _top_plane(codes >> top)], axis=1)
    parts = codes.reshape(-1, 4, 16)
    if bits == 2:
        return _merged(parts[:, 0], parts[:, 1], parts[:, 2], parts[:, 3], step=2)
    if bits == 4:
        return _merged(parts[:, :, :8], parts[:, :, 8:], step=4).reshape(len(codes), _BLOCK // 2)
    last = parts[:, 3]
    tops = [last >> np.uint8(2 * k) & np.uint8(3) for k in range(3)]
    return np.concatenate([_merged(parts[:, k], top, step=6) for k, top in enumerate(tops)], axis=1)


def _halves(codes: UInt8s) -> UInt8s:
    """Pack the low four bits of dimensions that are 16 apart into a byte."""
    parts = codes.reshape(-1, 2, 2, 16)
    return _merged(parts[:, :, 0], parts[:, :, 1], step=4).reshape(len(codes), _BLOCK // 2)


def _merged(*codes: UInt8s, step: int) -> UInt8s:
    """Pack several codes into each byte, the first in the lowest bits."""
    merged = codes[0].copy()
    for at, more in enumerate(codes[1:], 1):
        merged |= more << np.uint8(at * step)
    return merged


def _top_plane(bits: UInt8s) -> UInt8s:
    """Pack a bit of each dimension: byte ``b`` holds dimensions 16 k + b and 16 k + 8 + b."""
    parts = bits.reshape(-1, 8, 8)
    shifted = parts << np.arange(8, dtype=np.uint8)[:, None]
    plane: UInt8s = np.bitwise_or.reduce(shifted, axis=1)
    return plane


# --- RaBitQ: signs of a rotated residual, and optionally more bits of its numbers -------
# Specification: "RaBitQ" in ``docs/format/rabitq.md``.

EXTRA: Final = "__blocked_ex_codes"
_FACTORS: Final = ("__add_factors", "__scale_factors", "__error_factors")
_EXTRA_FACTORS: Final = ("__add_factors_ex", "__scale_factors_ex")

Float64s = NDArray[np.float64]

_CONFIDENCE: Final = 1.9
"""Standard deviations of an estimate within which its error is expected."""

_STEPS: Final = {
    1: 0.9957, 2: 0.586, 3: 0.3352, 4: 0.1881, 5: 0.1041, 6: 0.0569, 7: 0.0308, 8: 0.0166,
}  # fmt: skip
"""Best step of uniform codes for a normal distribution, by the number of bits besides the sign."""

_TINY: Final = 1e-30
_TRIED_MULTIPLES: Final = np.geomspace(0.6, 1.6, 24).astype(np.float32)
"""Multiples of the best step to try for each vector."""


class RabitCoder(Coder):
    """Encode vectors with ``bits`` bits per dimension (RaBitQ).

    Parameters
    ----------
    clusters
        Centroids of the partitions.
    rotation
        Rotation of the residuals.
    bits
        From 1 to 9; the first bit is the sign.
    dot
        The metric is the dot product.
    in_blocks
        Store signs in blocks of 32 rows instead of row by row.
    """

    def __init__(
        self,
        clusters: Clusters,
        rotation: Rotation,
        bits: int,
        *,
        dot: bool,
        in_blocks: bool = True,
    ) -> None:
        self._in_blocks = in_blocks
        self._clusters, self.rotation, self.bits, self._dot = clusters, rotation, bits, dot
        self.dimension = clusters.centroids.shape[1]

    @cached_property
    def _centroids(self) -> Float32s:
        """Rotated centroids."""
        return self.rotation.apply(self._clusters.centroids)

    @property
    def fields(self) -> list[pa.Field[Any]]:
        """The columns of codes."""
        octets, dimension = pa.uint8(), self.dimension
        fields: list[Any] = [pa.field(SIGNS, pa.list_(octets, dimension // 8))]
        fields += [pa.field(name, pa.float32()) for name in _FACTORS]
        if self.bits > 1:
            width = -(-dimension // _BLOCK) * (self.bits - 1) * 8
            fields.append(pa.field(EXTRA, pa.list_(octets, width)))
            fields += [pa.field(name, pa.float32()) for name in _EXTRA_FACTORS]
        return fields

    def encode(
        self, block: ColumnVectors, residuals: Float32s, partitions: NDArray[np.int32]
    ) -> Mapping[str, NDArray[Any]]:
        """See :meth:`Coder.encode`."""
        rotated = self.rotation.apply(residuals)
        positive = rotated >= 0
        sizes = np.abs(rotated)
        squares = np.einsum("ij,ij->i", residuals, residuals).astype(np.float64)
        # Flip the signs of centroids with the signs of residuals, so that codes are positive.
        centroids = self._centroids[partitions]
        mirrored = np.where(positive, centroids, -centroids)
        products = np.einsum("ij,ij->i", sizes, mirrored).astype(np.float64)
        columns: dict[str, NDArray[Any]] = {SIGNS: np.packbits(positive, axis=1, bitorder="little")}
        length = sizes.sum(axis=1, dtype=np.float64) / 2
        offset = mirrored.sum(axis=1, dtype=np.float64) / 2
        factors = self._factors(squares, products, length, offset)
        error = self._error(squares, length)
        columns |= dict(zip(_FACTORS, (*factors, error), strict=True))
        if self.bits > 1:
            columns |= self._encode_extra_bits(sizes, positive, mirrored, squares, products)
        return columns

    def _factors(
        self, squares: Float64s, products: Float64s, length: Float64s, offset: Float64s
    ) -> tuple[Float64s, Float64s]:
        """Return the summand of a distance estimate, and the factor of its product.

        Parameters
        ----------
        squares
            Squared lengths of the residuals.
        products
            Products of residuals and centroids.
        length, offset
            Products of codes with residuals, and with centroids.
        """
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = np.where(length > 0, squares / length, 0)
            if self._dot:
                return 1 - products + ratio * offset, -ratio
            return squares + 2 * ratio * offset, -2 * ratio

    def _error(self, squares: Float64s, length: Float64s) -> Float64s:
        """Return the expected error of an estimate by signs alone."""
        with np.errstate(divide="ignore", invalid="ignore"):
            spread = np.where(length > 0, squares * self.dimension / 4 / length**2 - 1, 0)
            spread = np.maximum(spread, 0) / max(1, self.dimension - 1)
            error: Float64s = np.sqrt(squares * spread) * _CONFIDENCE
        return error if self._dot else 2 * error

    def _encode_extra_bits(
        self,
        sizes: Float32s,
        positive: Flags,
        mirrored: Float32s,
        squares: Float64s,
        products: Float64s,
    ) -> dict[str, NDArray[Any]]:
        """Encode the bits after the sign, and return their codes and factors."""
        bits = self.bits - 1
        max_code = (1 << bits) - 1
        # The numbers of a rotated vector are nearly normally distributed.
        deviations = np.sqrt(np.maximum(squares, _TINY) / self.dimension)
        with np.errstate(over="ignore", invalid="ignore"):
            scaled = (sizes / deviations[:, None]).astype(np.float32)
        finite = np.isfinite(scaled)
        if not finite.all():
            # Vectors or damaged centroids near the largest number have infinite squares and
            # distances: any code will do.
            scaled = np.where(finite, scaled, np.float32(0))
        codes = quantize_rotated(scaled, _TRIED_MULTIPLES / np.float32(_STEPS[bits]), max_code)
        values = codes + np.float32(0.5)
        length = np.einsum("ij,ij->i", values, sizes).astype(np.float64)
        offset = np.einsum("ij,ij->i", values, mirrored).astype(np.float64)
        stored = np.where(positive, codes, np.uint8(max_code) - codes)
        factors = self._factors(squares, products, length, offset)
        return {EXTRA: to_blocked(stored, bits), **dict(zip(_EXTRA_FACTORS, factors, strict=True))}

    def is_arranged(self, name: str) -> bool:
        """See :meth:`Coder.is_arranged`."""
        return name == SIGNS and self._in_blocks

    def arranged(self, name: str, codes: NDArray[Any]) -> NDArray[Any]:
        """See :meth:`Coder.arranged`."""
        return packed(codes)

    def points(self, records: NDArray[Any]) -> GraphPoints:
        """See :meth:`Coder.points`.

        Raises
        ------
        UnsupportedFeatureError
            Always: glaive builds no graphs over RaBitQ codes.
        """
        raise UnsupportedFeatureError("graphs over codes of RaBitQ are not built")

    def describe(self, file: IndexFileWriter) -> dict[str, Any]:
        """See :meth:`Coder.describe`."""
        signs, matrix = self.rotation.signs, self.rotation.matrix
        position = None
        if matrix is not None:
            position = file.add_buffer(encoded_tensor(matrix).SerializeToString())
        return {
            "rotate_mat_position": position,
            "fast_rotation_signs": None if signs is None else signs.tolist(),
            "rotation_type": "fast" if matrix is None else "matrix",
            "code_dim": self.dimension,
            "num_bits": self.bits,
            "packed": self._in_blocks,
            "query_estimator": "raw_query",
        }
