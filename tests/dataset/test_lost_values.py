"""Rows whose types differ: values that the type of the first does not hold are refused."""

from __future__ import annotations

from datetime import UTC, date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import glaive
from glaive.dataset.writing.source import lost_values
from glaive.errors import SchemaError

NOON = datetime(2024, 1, 2, 12, 30, tzinfo=UTC).replace(tzinfo=None)
LOSING = {
    "day": (pa.array([date(2024, 1, 1)]), pa.array([NOON])),
    "time": (pa.array([time(1)]), pa.array([NOON])),
    "zone": (pa.array([NOON]), pa.array([NOON], pa.timestamp("us", "Asia/Tokyo"))),
    "float": (pa.array([1.5], pa.float32()), pa.array([0.1])),
    "half": (pa.array([1.5], pa.float16()), pa.array([2049])),
    "decimal": (pa.array([1.5]), pa.array([Decimal("12345678901234567.89")])),
    "digits": (pa.array([Decimal("1.50")]), pa.array([0.123])),
    "flag": (pa.array([True]), pa.array([5])),
    "parsed": (pa.array([1]), pa.array(["007"])),
    "counted": (pa.array([1]), pa.array([NOON])),
}
KEPT = {
    "narrow": (pa.array([1]), pa.array([3], pa.int8())),
    "float": (pa.array([1.5]), pa.array([0.5], pa.float32())),
    "number": (pa.array([1.5]), pa.array([3])),
    "text": (pa.array(["x"]), pa.array(["y"], pa.large_string())),
    "coded": (pa.array(["x"]), pa.array(["y"]).dictionary_encode()),
    "unit": (pa.array([NOON]), pa.array([NOON], pa.timestamp("ms"))),
    "null": (pa.array([1]), pa.nulls(1)),
    "midnight": (pa.array([NOON]), pa.array([date(2024, 1, 1)])),
    "shown": (pa.array(["x"]), pa.array([7])),
}


def nested(values: Any) -> Any:
    """The values in lists of structs."""
    structs = pa.StructArray.from_arrays([values], ["m"])
    return pa.ListArray.from_arrays([0, len(values)], structs)


@pytest.mark.parametrize(("first", "later"), LOSING.values(), ids=LOSING)
def test_values_are_not_changed_to_fit_the_types_of_the_first_batch(
    tmp_path: Path, first: Any, later: Any
) -> None:
    for one, other in ((first, later), (nested(first), nested(later))):
        batches = [pa.table({"x": values}) for values in (one, other)]
        with pytest.raises(SchemaError, match="column 'x': item 1 of the data to write has values"):
            glaive.write_dataset(iter(batches), tmp_path / "t")
    assert not (tmp_path / "t").exists() or not list((tmp_path / "t").rglob("*.lance"))
    dataset = glaive.write_dataset(batches[0], tmp_path / "t")
    with pytest.raises(SchemaError, match="item 1"):
        dataset.insert(iter(batches))
    assert dataset.count_rows() == 1


@pytest.mark.parametrize(("first", "later"), KEPT.values(), ids=KEPT)
def test_values_that_stay_the_same_may_have_other_types_than_the_first(
    tmp_path: Path, first: Any, later: Any
) -> None:
    assert lost_values(later.type, first.type) is None
    batches = iter([pa.table({"x": first}), pa.table({"x": later})])
    rows = glaive.write_dataset(batches, tmp_path / "t").to_table()
    assert rows["x"].type == first.type
    assert rows["x"].to_pylist()[1] == later.cast(first.type)[0].as_py()


def test_who_names_the_type_gets_it(tmp_path: Path) -> None:
    batches = iter([pa.table({"x": values}) for values in LOSING["float"]])
    schema = pa.schema({"x": pa.float32()})
    rows = glaive.write_dataset(batches, tmp_path / "t", schema=schema).to_table()
    assert rows["x"].to_pylist() == [1.5, pytest.approx(0.1)]


def test_frames_of_pandas_keep_their_values(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    for name in ("float", "flag"):
        frames = [
            pandas.DataFrame({"x": values.to_numpy(zero_copy_only=False)})
            for values in LOSING[name]
        ]
        with pytest.raises(SchemaError, match="column 'x': item 1 of the data to write has values"):
            glaive.write_dataset(iter(frames), tmp_path / "t")


def test_a_column_in_which_all_are_missing_fits_one_of_flags(tmp_path: Path) -> None:
    """Pandas, and readers of text in pieces, call it one of floats."""
    pandas = pytest.importorskip("pandas")
    frames = [pandas.DataFrame({"x": [value]}) for value in (True, float("nan"))]
    rows = glaive.write_dataset(iter(frames), tmp_path / "t").to_table()
    assert rows["x"].to_pylist() == [True, None]


def test_a_batch_of_nulls_fits_any_type_that_arrow_casts_to(tmp_path: Path) -> None:
    batches = [pa.table({"x": [True]}), pa.table({"x": pa.nulls(2, pa.float64())})]
    rows = glaive.write_dataset(iter(batches), tmp_path / "t").to_table()
    assert rows["x"].to_pylist() == [True, None, None]


@pytest.mark.parametrize(
    ("first", "later"),
    [
        ([date(2024, 1, 1)], [NOON]),
        (np.array([1.5], np.float32), [0.1, None]),
        ([np.array([1.5], np.float32)], [np.array([0.1])]),
    ],
    ids=["times", "numbers", "vectors"],
)
def test_objects_of_later_frames_keep_their_values(tmp_path: Path, first: Any, later: Any) -> None:
    pandas = pytest.importorskip("pandas")
    objects = pandas.Series(later, dtype=object)
    for name in ("x", 0):
        frames = [pandas.DataFrame({name: first}), pandas.DataFrame({name: objects})]
        with pytest.raises(SchemaError, match=f"column '{name}': item 1 of the data to write has"):
            glaive.write_dataset(iter(frames), tmp_path / "t")
    same = [pandas.DataFrame({"x": pandas.Series(list(first), dtype=object)}) for _ in range(2)]
    assert glaive.write_dataset(iter(same), tmp_path / "t").count_rows() == 2


def test_levels_of_the_index_of_later_frames_keep_their_values(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    frames = [
        pandas.DataFrame({"x": [1]}, index=pandas.Index(values, name="i"))
        for values in (np.array([1.5], np.float32), np.array([0.1]))
    ]
    with pytest.raises(SchemaError, match="column 'i': item 1"):
        glaive.write_dataset(iter(frames), tmp_path / "t")


def test_a_column_that_a_later_batch_has_twice_is_an_error(tmp_path: Path) -> None:
    twice = pa.Table.from_arrays([pa.array([1.5]), pa.array([2.5])], ["x", "x"])
    for later in (twice, *twice.to_batches()):
        with pytest.raises(SchemaError):
            glaive.write_dataset(iter([pa.table({"x": [True]}), later]), tmp_path / "t")
