"""Batches as NumPy arrays: shapes, types, nulls, and which share memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import glaive
from glaive.errors import FormatError


def test_columns_become_arrays(tmp_path: Path) -> None:
    pixels = np.arange(24, dtype=np.uint8).reshape(4, 1, 2, 3)
    table = pa.table(
        {
            "id": np.arange(4),
            "gap": pa.array([1, None, 3, 4]),
            "flag": [True, False, True, False],
            "v": pa.array([[1.0, 2.0], None, [5.0, 6.0], [7.0, 8.0]], pa.list_(pa.float32(), 2)),
            "grid": pa.array([[[1, 2]] * 3] * 4, pa.list_(pa.list_(pa.int16(), 2), 3)),
            "image": pa.FixedShapeTensorArray.from_numpy_ndarray(pixels),
            "day": pa.array([0, None, 2, 3], pa.date32()),
            "text": ["a", None, "c", "d"],
            "many": [[1], [], None, [2, 3]],
            "both": [{"n": 1, "m": "p"}, {"n": 2, "m": "q"}, None, {"n": 4, "m": "s"}],
            "half": pa.array(np.arange(4, dtype=np.float16)),
        }
    )
    dataset = glaive.write_dataset(table, tmp_path / "a.lance", data_storage_version="2.2")
    batches: list[dict[str, Any]] = list(dataset.to_numpy_batches(batch_size=3))
    assert [len(batch["id"]) for batch in batches] == [3, 1]
    first = batches[0]
    both = first.pop("both")
    assert {name: (array.dtype.str, array.shape) for name, array in first.items()} == {
        "id": ("<i8", (3,)),
        "gap": ("<f8", (3,)),
        "flag": ("|b1", (3,)),
        "v": ("<f4", (3, 2)),
        "grid": ("<i2", (3, 3, 2)),
        "image": ("|u1", (3, 1, 2, 3)),
        "day": ("<M8[D]", (3,)),
        "text": ("|O", (3,)),
        "many": ("|O", (3,)),
        "half": ("<f2", (3,)),
    }
    assert np.isnan(first["gap"]).tolist() == [False, True, False]
    assert np.isnan(first["v"]).tolist() == [[False, False], [True, True], [False, False]]
    assert np.isnat(first["day"]).tolist() == [False, True, False]
    assert first["text"].tolist() == ["a", None, "c"]
    assert first["many"][0].tolist() == [1]
    assert both["m"].tolist() == ["p", "q", None]
    assert np.array_equal(first["image"], pixels[:3])
    assert batches[1]["v"].tolist() == [[7.0, 8.0]]


def test_numbers_and_vectors_share_memory_with_arrow(tmp_path: Path) -> None:
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(np.arange(800.0)), 8)
    place = tmp_path / "a.lance"
    dataset = glaive.write_dataset(pa.table({"id": range(100), "v": vectors}), place)
    (batch,) = dataset.to_numpy_batches(columns=["id", "v"], filter="id >= 0", batch_size=200)
    assert not any(array.flags.owndata or array.flags.writeable for array in batch.values())
    (doubled,) = dataset.to_numpy_batches(columns={"twice": "id * 2"}, limit=3)
    assert doubled["twice"].tolist() == [0, 2, 4]


@pytest.mark.parametrize(
    "values",
    [
        pa.array([1], pa.time64("ns")),
        pa.array([[1]], pa.list_(pa.time64("ns"))),
        pa.Array.from_buffers(
            pa.string(), 1, [None, pa.py_buffer(bytes(4) + b"\1\0\0\0"), pa.py_buffer(b"\xff")]
        ),
        pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int64())).cast(
            pa.map_(pa.string(), pa.timestamp("us", "No/Where"))
        ),
    ],
    ids=["nanoseconds", "within a list", "damaged text", "zone"],
)
def test_values_that_python_does_not_have_end_in_an_error_of_their_column(
    tmp_path: Path, values: pa.Array
) -> None:
    dataset = glaive.write_dataset(pa.table({"here": values}), tmp_path / "a.lance")
    assert dataset.to_table().num_rows == 1
    with pytest.raises(FormatError, match="column 'here': Python does not have a value"):
        list(dataset.to_numpy_batches())


def test_tensors_of_structs_are_objects(tmp_path: Path) -> None:
    structs = pa.StructArray.from_arrays([pa.array(range(4))], ["x"])
    pairs: Any = pa.FixedSizeListArray.from_arrays(structs, 2)
    named = {
        "ARROW:extension:name": "arrow.fixed_shape_tensor",
        "ARROW:extension:metadata": '{"shape": [2]}',
    }
    schema = pa.schema([pa.field("t", pairs.type, metadata=named)])
    dataset = glaive.write_dataset(pa.table([pairs], schema), tmp_path / "a.lance")
    (batch,) = dataset.to_numpy_batches()
    assert [row.tolist() for row in batch["t"]] == pairs.to_pylist()
