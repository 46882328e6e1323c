"""Brain floats: values, arrays, casts, columns of datasets and of pandas frames."""

from __future__ import annotations

import math
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import glaive
from glaive.arrow import BFloat16, BFloat16Array, BFloat16Type, bfloat16_array, cast
from glaive.arrow.bfloat16 import bits_of, floats_of
from glaive.errors import MissingDependencyError, SchemaError

pytestmark = pytest.mark.usefixtures("own_types")


@pytest.mark.parametrize(
    ("value", "nearest"),
    [
        (1.1, 1.1015625),
        (1.00390625, 1.0),  # half-way: to even
        (1.01171875, 1.015625),  # half-way: to even
        (-2.0, -2.0),
        (3.4e38, math.inf),
        (1e-45, 0.0),
        (math.inf, math.inf),
    ],
)
def test_a_number_becomes_the_nearest_brain_float(value: float, nearest: float) -> None:
    assert BFloat16(value).as_float() == nearest
    assert floats_of(bits_of(np.array([value], np.float32)))[0] == nearest


def test_not_a_number_stays_so() -> None:
    for bits in (0x7F800001, 0xFFFFFFFF, 0x7FC00000):
        given = np.array([bits], np.uint32).view(np.float32)
        assert np.isnan(floats_of(bits_of(given))[0])
    assert repr(BFloat16(math.nan)) == "NaN"


def test_every_brain_float_survives_a_float() -> None:
    bits = np.arange(2**16, dtype=np.uint16)
    finite = ~np.isnan(floats_of(bits))
    np.testing.assert_array_equal(bits_of(floats_of(bits))[finite], bits[finite])


def test_values_compare_and_come_from_bytes() -> None:
    value = BFloat16.from_bytes(b"\x8d\x3f")
    assert value == BFloat16(1.1)
    assert value < BFloat16(2)
    assert value >= BFloat16(1)
    assert value != 1.1015625
    assert pickle.loads(pickle.dumps(value)) == value
    with pytest.raises(SchemaError, match="expected 2 bytes, got 1"):
        BFloat16.from_bytes(b"a")
    with pytest.raises(SchemaError, match="expected a number, found '1'"):
        BFloat16("1")


def test_arrays_keep_nulls_and_slices() -> None:
    array: Any = bfloat16_array([1.5, None, BFloat16(2), 3])
    assert type(array) is BFloat16Array
    assert array.type == BFloat16Type()
    assert [one.as_py() for one in array] == [BFloat16(1.5), None, BFloat16(2), BFloat16(3)]
    assert str(array.slice(2)) == "[\n  2,\n  3\n]"
    assert array.slice(2).bits().tolist() == [0x4000, 0x4040]
    assert array[0] == BFloat16(1.5)
    assert array[1].as_py() is None
    with pytest.raises(SchemaError, match="expected numbers"):
        bfloat16_array(["a"])
    with pytest.raises(SchemaError, match="null values"):
        array.to_numpy()


def test_casts_go_both_ways_at_any_depth() -> None:
    floats = pa.array([1.5, None, 2.0], pa.float32())
    brain = cast(floats, "bfloat16")
    assert cast(brain, pa.float32()).equals(floats)
    assert cast(brain.slice(1), "double").to_pylist() == [None, 2.0]
    vectors = pa.FixedSizeListArray.from_arrays(pa.array([1.0, 2.0, 3.0, 4.0], pa.float32()), 2)
    lists = cast(vectors.slice(1), pa.list_(BFloat16Type(), 2))
    assert cast(lists, pa.list_(pa.float16(), 2)).to_pylist() == [[3.0, 4.0]]
    assert cast(pa.chunked_array([floats]), "bf16").num_chunks == 1
    assert cast(pa.array([1]), pa.int8()).type == pa.int8()
    for array, kind in (
        (brain, pa.int32()),
        (pa.array([1]), "bf16"),
        (vectors, pa.list_(pa.float16(), 3)),
    ):
        with pytest.raises(SchemaError, match="Only support casting"):
            cast(array, kind)


def test_columns_of_brain_floats_come_back(tmp_path: Path) -> None:
    values = bfloat16_array([1.5, None, 2])
    vectors = cast(
        pa.FixedSizeListArray.from_arrays(pa.array(np.arange(6, dtype=np.float32)), 2),
        pa.list_(BFloat16Type(), 2),
    )
    dataset = glaive.write_dataset(pa.table({"a": values, "v": vectors}), str(tmp_path / "a.lance"))
    table = dataset.to_table()
    assert table["a"].combine_chunks().equals(values)
    assert table.schema.field("v").type.value_type == BFloat16Type()


def test_a_storage_type_that_does_not_fit_is_no_brain_float() -> None:
    with pytest.raises(SchemaError, match="stored as int64"):
        BFloat16Type.__arrow_ext_deserialize__(pa.int64(), b"")


def test_pandas_columns_select_and_take() -> None:
    pd = pytest.importorskip("pandas", reason="install pandas")
    frame = pa.table({"a": bfloat16_array([1, None, 2])}).to_pandas()
    assert str(frame["a"].dtype) == "lance.bfloat16"
    assert frame["a"].isna().tolist() == [False, True, False]
    assert frame["a"][frame["a"].notna()].tolist() == [BFloat16(1), BFloat16(2)]
    assert frame["a"].iloc[[2, 0]].tolist() == [BFloat16(2), BFloat16(1)]
    made = pd.Series([1.1, 2.1], dtype=frame["a"].dtype)
    assert pa.array(made).equals(bfloat16_array([1.1, 2.1]))
    assert len(pd.concat([made, made])) == 4


def test_numpy_has_brain_floats_by_a_package() -> None:
    array = bfloat16_array([1, 2])
    try:
        import ml_dtypes
    except ImportError:
        with pytest.raises(MissingDependencyError, match="ml_dtypes"):
            array.to_numpy()
        return
    numbers = array.to_numpy()
    assert numbers.dtype == ml_dtypes.bfloat16
    assert BFloat16Array.from_numpy(numbers).equals(array)


@pytest.mark.parametrize("wrong", [np.zeros(2), np.zeros(2, np.uint16)])
def test_other_numpy_arrays_are_refused(wrong: np.ndarray) -> None:
    with pytest.raises(SchemaError, match="non-bfloat16"):
        BFloat16Array.from_numpy(wrong)


def test_vectors_whose_items_only_say_what_they_are_stay_what_they_are(tmp_path: Path) -> None:
    # As they are read where nothing has registered the extension with Arrow.
    said = {"ARROW:extension:name": "lance.bfloat16", "ARROW:extension:metadata": ""}
    kind = pa.list_(pa.field("item", pa.binary(2), metadata=said), 2)
    numbers = pa.array([b"\x80\x3f", b"\x00\x40", b"\x40\x40", b"\x80\x40"], pa.binary(2))
    vectors = pa.FixedSizeListArray.from_arrays(numbers, type=kind)
    rows = pa.table([vectors], schema=pa.schema([pa.field("v", kind)]))
    dataset = glaive.write_dataset(rows, tmp_path / "d")
    dataset.add_columns(pa.table([vectors], schema=pa.schema([pa.field("w", kind)])))
    dataset.insert(dataset.to_table())
    for name in ("v", "w"):
        found = dataset.to_table([], nearest={"column": name, "q": [3.0, 4.0], "k": 3})
        assert found["_distance"].to_pylist() == [0, 0, 8]
