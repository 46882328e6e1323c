"""Compiled ranking of vectors by their distance; its wrapper is in ``glaive.kernels.ranking``."""

from __future__ import annotations

import math

import numpy as np

from glaive.kernels.loops.candidates import insert
from glaive.kernels.loops.distances import dot_f32, hamming, squared_f32
from glaive.kernels.loops.memory import kernel_of, load_f32, load_i64
from glaive.kernels.vector_records import RankVectors

_L2, _HAMMING = 0, 3


@kernel_of(RankVectors, sums=True)
def rank_vectors(
    values: int, step: int, among: int, vector_count: int, dimension: int, metric: int,
    queries: int, query_count: int, query_bytes: int, most: int, numbers: int, distances: int,
) -> None:  # fmt: skip
    """List the vectors nearest to each query, the nearest first, of equal ones the first.

    NaN is the farthest. ``among`` are the numbers of those that are ranked, 0: all; there are
    at least ``most``.
    """
    for place in range(query_count):
        query = queries + place * query_bytes
        ids, far_of = numbers + place * most * 4, distances + place * most * 4
        size = 0
        for i in range(vector_count):
            number = i
            if among:
                number = load_i64(among + i * 8)
            vector = values + number * step
            if metric == _HAMMING:
                far = hamming(vector, query, dimension)
            elif metric == _L2:
                far = squared_f32(vector, query, dimension)
            else:
                far = np.float32(1) - dot_f32(vector, query, dimension)
            if size == most:
                last = load_f32(far_of + (size - 1) * 4)
                if math.isnan(far) or last <= far:
                    continue
            insert(ids, far_of, size, most, number, far)
            size = min(size + 1, most)
