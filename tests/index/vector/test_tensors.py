"""Tensors of vector indices of other shapes than arrays have, or numbers than vectors have."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.damage import assembled, parts_of, rewritten

import glaive
from glaive.errors import CorruptFileError
from glaive.format.pb import index_pb2
from glaive.index.segment import IndexFile
from glaive.io.access import open_store

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


@pytest.mark.parametrize("kind", ["FLAT", "SQ", "PQ", "HNSW_SQ"])
def test_centroids_that_no_float32_holds_are_infinite_without_a_warning(
    tmp_path: Path, kind: str
) -> None:
    rows = np.random.default_rng(1).normal(size=(300, 16)).astype(np.float32)
    indexed(tmp_path, rows, kind, "l2")
    (file,) = tmp_path.glob("_indices/*/index.idx")
    replace_tensor(file, lambda model: model.centroids_tensor, index_pb2.IVF, 1)
    found = nearest(glaive.dataset(tmp_path), ZEROS)
    assert set(found) <= set(range(len(rows)))


def test_codebooks_that_no_float32_holds_are_infinite_without_a_warning(tmp_path: Path) -> None:
    rows = np.random.default_rng(1).normal(size=(300, 16)).astype(np.float32)
    indexed(tmp_path, rows, "PQ", "l2")
    (file,) = tmp_path.glob("_indices/*/auxiliary.idx")
    for number, raw in enumerate(parts_of(file.read_bytes())[0][1:], 1):
        if len(raw) > 1_000:  # the other buffer has the partitions
            replace_tensor(file, lambda model: model, index_pb2.Tensor, number)
    found = nearest(glaive.dataset(tmp_path), ZEROS)
    assert set(found) <= set(range(len(rows)))
    glaive.dataset(tmp_path).delete("_rowid < 20")
    glaive.dataset(tmp_path).optimize.optimize_indices(num_indices_to_merge=1)


@pytest.mark.parametrize("bounds", [(-3e38, 3e38), (-1e300, 1e300), (1e39, 2e39)])
def test_bounds_of_graphs_that_no_float32_holds_are_maintained_without_a_warning(
    tmp_path: Path, bounds: tuple[float, float]
) -> None:
    rows = np.random.default_rng(1).normal(size=(300, 16)).astype(np.float32)
    indexed(tmp_path, rows, "HNSW_SQ", "l2").delete("_rowid < 20")
    (file,) = tmp_path.glob("_indices/*/auxiliary.idx")
    opened = IndexFile(open_store(str(tmp_path)), str(file.relative_to(tmp_path)))
    (text,) = json.loads(opened.metadata["storage_metadata"])
    said = json.loads(text) | {"bounds": dict(zip(("start", "end"), bounds, strict=True))}
    told = json.dumps([json.dumps(said)]).encode()

    def change(descriptor: Any, _: list[Any]) -> None:
        descriptor.schema.metadata["storage_metadata"] = told

    file.write_bytes(rewritten(file.read_bytes(), change))
    dataset = glaive.dataset(tmp_path)
    dataset.optimize.compact_files(materialize_deletions_threshold=0.0)
    assert dataset.count_rows() == 280


def replace_tensor(file: Path, tensor_of: Callable[[Any], Any], message: Any, number: int) -> None:
    """Numbers of 64 bits in a tensor of a buffer, each far larger than any of 32 bits."""
    raw = file.read_bytes()
    buffers, columns, version = parts_of(raw)
    model = message.FromString(buffers[number])
    tensor = tensor_of(model)
    signs = np.random.default_rng(2).choice([-1.0, 1.0], math.prod(tensor.shape))
    tensor.data_type, tensor.data = index_pb2.Tensor.FLOAT64, (1e300 * signs).tobytes()
    buffers[number] = model.SerializeToString()
    file.write_bytes(assembled(bytearray(raw), buffers, columns, version))


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
