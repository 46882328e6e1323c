"""Tensors of vector indices whose shape is none of an array are damage that names the index."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.damage import assembled, parts_of

import glaive
from glaive.errors import CorruptFileError
from glaive.format.pb import index_pb2

from .test_largest_numbers import indexed, nearest

ZEROS = np.zeros(16, np.float32)

SHAPES = {
    "many sizes of one": [4, 16, *[1] * 70],
    "no numbers, and large sizes": [0, *[2**32 - 1] * 3],
    "no numbers, and many sizes": [0] * 70,
}


@pytest.mark.parametrize("name", SHAPES)
def test_centroids_of_a_shape_that_no_array_has_are_damaged(tmp_path: Path, name: str) -> None:
    rows = np.random.default_rng(1).normal(size=(300, 16)).astype(np.float32)
    indexed(tmp_path, rows, "FLAT", "l2")
    (file,) = tmp_path.glob("_indices/*/index.idx")
    reshape(file, SHAPES[name])
    with pytest.raises(CorruptFileError, match=r"centroids of an index: .*index\.idx"):
        nearest(glaive.dataset(tmp_path), ZEROS)


def reshape(file: Path, shape: list[int]) -> None:
    """Give the centroids another shape, and no numbers if it has a size of 0."""
    raw = file.read_bytes()
    buffers, columns, version = parts_of(raw)
    model: Any = index_pb2.IVF.FromString(buffers[1])
    model.centroids_tensor.shape[:] = shape
    if 0 in shape:
        model.centroids_tensor.data = b""
    buffers[1] = model.SerializeToString()
    file.write_bytes(assembled(bytearray(raw), buffers, columns, version))
