"""K-means: centroids that lie in the middle of the vectors nearest to them.

Lloyd's iterations from random vectors, in ``float32``. Above 256 clusters in two levels: coarse
clusters, each of which is divided in proportion to its size.

Specification: "Training" in ``docs/format/vector-indices.md``.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from glaive.dataclass import dataclass
from glaive.errors import OptionError
from glaive.index.vector.vector_column import normalized
from glaive.io.pool import ordered_map
from glaive.kernels.distances import Centroids, Metric, find_nearest, sum_by_cluster
from glaive.types import Float32s

# --- K-means on another device than the processor, by torch -----------------------------
# Specification: "Training" in ``docs/format/vector-indices.md``.

_SCORES: Final = 1 << 26
"""Scores that are held at a time: 256 MiB."""

Int32s = NDArray[np.int32]


def device_named(accelerator: object) -> str | None:
    """The device that is meant by a name, or by torch's object; None: the processor.

    Raises
    ------
    OptionError
        It is not known, torch is not installed, or finds no such device.
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
    """Vectors on a device, which are assigned to centroids and summed up there.

    Parameters
    ----------
    vectors
        ``float32`` of shape ``(n, dimension)``.
    device
        As torch calls it.
    """

    def __init__(self, vectors: Float32s, device: str) -> None:
        self._torch: Any = import_module("torch")
        self._vectors = self._torch.tensor(vectors, device=device)
        self._device = device
        # Devices of Apple have no wider floats.
        self._wide = self._torch.float32 if device.startswith("mps") else self._torch.float64

    def assign(self, centroids: Float32s, *, dot: bool) -> tuple[Int32s, float]:
        """The nearest centroid of each vector, and the sum of the distances: squared for L2."""
        torch = self._torch
        origin = np.float32(0) if dot else centroids.mean(axis=0)
        table = torch.tensor(centroids - origin, device=self._device)
        bias = 0 if dot else -(table * table).sum(dim=1) / 2
        moved_by = torch.tensor(origin, device=self._device)
        ids, total = [], 0.0
        step = max(1, _SCORES // len(centroids))
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
        """The sum of the vectors that :meth:`assign` gave to each of so many centroids."""
        shape = (count, self._vectors.shape[1])
        sums = self._torch.zeros(shape, dtype=self._torch.float32, device=self._device)
        sums.index_add_(0, self._ids, self._vectors)
        made: NDArray[np.float64] = sums.cpu().numpy().astype(np.float64)
        return made


MAX_FLAT_CLUSTERS = 256
TOLERANCE = 1e-5
"""Relative decrease of the loss below which training stops."""

_REFINEMENTS = 2
"""Iterations over all clusters after those within coarse ones."""

_ROWS_PER_CLUSTER = 256
_PART = 8192
"""Rows that one thread assigns at a time."""

_SUMMED = 1 << 16
"""Squares that are added up as ``float32``."""

_LARGEST_SQUARE = np.finfo(np.float32).max / 8
"""A distance between two vectors is at most four times as large."""


@dataclass(frozen=True, slots=True)
class Training:
    """How centroids are trained.

    Parameters
    ----------
    metric
        L2 for the cosine distance, too, whose vectors have length one. For the dot product,
        centroids have length one. For the hamming distance they are 0 or 1 in each dimension.
    iterations
        At most so many.
    seed
        Of the random choices; equal seeds give equal centroids.
    parallel
        Whether to use the threads of the pool. False within work that runs there.
    device
        Of torch, on which to train; None: the processor. Not for the hamming distance.
    """

    metric: Metric = "l2"
    iterations: int = 50
    seed: int = 0
    parallel: bool = True
    device: str | None = None


class Clusters:
    """Centroids, ready to be assigned to. Immutable.

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
        # Near to the origin, squares and products of float32 lose less.
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
        with np.errstate(all="ignore"):  # near the largest number: all distances are infinite
            moved: Float32s = vectors - self._origin
        return moved

    def assign(self, vectors: Float32s) -> Int32s:
        """The nearest cluster of each vector."""
        return find_nearest(self._moved(vectors), self._table).ids

    def measure(self, vectors: Float32s) -> tuple[Int32s, float]:
        """The nearest cluster of each vector, and the sum of the distances: squared for L2."""
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
    """:meth:`Clusters.measure` on all cores."""
    # Parts of one size, so that sums of floats do not depend on the number of cores.
    parts = [vectors[start : start + _PART] for start in range(0, len(vectors), _PART)]
    found = list((ordered_map if parallel else map)(clusters.measure, parts))
    return np.concatenate([ids for ids, _ in found]), sum(loss for _, loss in found)


def train_clusters(vectors: Float32s, count: int, training: Training) -> tuple[Float32s, float]:
    """Train centroids.

    Parameters
    ----------
    vectors
        ``float32`` of shape ``(n, dimension)``, ``n`` at least 1, contiguous. Of fewer
        vectors than clusters some are taken twice.
    count
        Clusters, at least 1.
    training
        How.

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
    """Those whose distances a ``float32`` holds; all if there are none of them.

    Others are infinitely far from everything, and would make the centroids infinite, too.
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
    """Lloyd's iterations."""
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
            # Random vectors are in large clusters, mostly: these are divided.
            centroids[empty] = vectors[random.integers(0, len(vectors), len(empty))]
        centroids = _fitted(centroids, training.metric)
    return centroids, loss


def _fitted(centroids: Float32s, metric: Metric) -> Float32s:
    """Centroids as the metric wants them."""
    if metric == "dot":
        unit = np.asarray(normalized(centroids), np.float32)
        return np.where(np.isfinite(unit), unit, np.float32(0))
    if metric == "hamming":
        return (centroids >= 0.5).astype(np.float32)
    return centroids


def _divided(vectors: Float32s, count: int, training: Training) -> Float32s:
    """Centroids of clusters within coarse clusters."""
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
    work = partial(_divided_part, training=within)
    if training.parallel:
        return np.concatenate(list(ordered_map(work, parts)))
    return np.concatenate(list(map(work, parts)))


def _divided_part(part: tuple[Float32s, int], training: Training) -> Float32s:
    vectors, share = part
    return train_clusters(vectors, share, training)[0]


def _shares(sizes: NDArray[np.int64], count: int) -> list[int]:
    """Clusters for each coarse cluster: in proportion to its vectors, one at least, if any."""
    present = sizes > 0
    exact = sizes * ((count - int(present.sum())) / sizes.sum())
    shares = np.floor(exact).astype(np.int64) + present
    missing = count - int(shares.sum())
    order = np.argsort(-(exact - np.floor(exact)), kind="stable")
    shares[order[:missing]] += 1
    return [int(share) for share in shares]
