"""What pandas notes of a frame holds for columns that are still as they were written."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import glaive
from glaive.format.extension import fitting

pd = pytest.importorskip("pandas")

WRITTEN: dict[str, Any] = {
    "Int64": pd.array([1, None, 3], dtype="Int64"),
    "Float32": pd.array([1, None, 3], dtype="Float32"),
    "string": pd.array(["a", None, "c"], dtype="string"),
    "texts": pd.array(["a", None, "c"], dtype="string[pyarrow]"),
    "large": pd.array(["a", None, "c"], dtype=pd.ArrowDtype(pa.large_string())),
    "bytes": pd.array([b"a", None, b"c"], dtype=pd.ArrowDtype(pa.large_binary())),
    "boolean": pd.array([True, None, False], dtype="boolean"),
    "bool of Arrow": pd.array([True, None, False], dtype="bool[pyarrow]"),
    "float of Arrow": pd.array([0.5, None, 1.5], dtype="float[pyarrow]"),
    "day": pd.array([1, None, 3], dtype="date32[day][pyarrow]"),
    "moment": pd.array([1, None, 3], dtype="timestamp[us][pyarrow]"),
    "category": pd.Categorical(["a", "b", "a"]),
    "zone": pd.to_datetime(["2020", "2021", "2022"]).tz_localize("Europe/Berlin"),
    "period": pd.period_range("2020", periods=3, freq="D"),
    "interval": pd.interval_range(0, 3),
    "duration": pd.to_timedelta([1, 2, 3]),
    "duration of Arrow": pd.array([1, None, 3], dtype="duration[s][pyarrow]"),
    "lists": [[1], [2, 3], None],
    "numbers": np.arange(3),
}
MOMENT = "cast('2020-01-01T12:00:00.123456' as timestamp)"


def changed(place: Path, kind: str, value: str) -> Any:
    """A dataset of a frame whose column was dropped and made again."""
    made = glaive.write_dataset(pd.DataFrame({"x": WRITTEN[kind], "y": [1, 2, 3]}), place)
    made.drop_columns(["x"])
    made.add_columns({"x": value})
    return made


@pytest.mark.parametrize("kind", WRITTEN)
def test_types_of_columns_that_are_as_they_were_written_come_back(
    tmp_path: Path, kind: str
) -> None:
    frame = pd.DataFrame({"x": WRITTEN[kind], "y": [1, 2, 3]})
    noted = (pa.Table.from_pandas(frame).schema.metadata or {})[b"pandas"]
    made = glaive.write_dataset(frame, tmp_path / "t")
    assert (made.schema.metadata or {})[b"pandas"] == noted
    found = made.to_pandas()
    assert found.dtypes["x"] == pa.Table.from_pandas(frame).to_pandas().dtypes["x"]
    assert (made.to_table(columns=["y", "x"]).schema.metadata or {})[b"pandas"] == noted


@pytest.mark.sampled(every=2)
@pytest.mark.spec("rel-42")
@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        ("string", "y * 2", [2, 4, 6]),
        ("texts", "y * 2", [2, 4, 6]),
        ("large", "y * 2", [2, 4, 6]),
        ("boolean", "y * 2", [2, 4, 6]),
        ("bool of Arrow", "y * 2", [2, 4, 6]),
        ("period", "y * 2", [2, 4, 6]),
        ("Int64", "cast(y as double) / 2.0", [0.5, 1.0, 1.5]),
        ("Float32", "cast(y as double) / 10.0", [0.1, 0.2, 0.3]),
        ("float of Arrow", "cast(y as double) / 10.0", [0.1, 0.2, 0.3]),
        ("day", MOMENT, [pd.Timestamp("2020-01-01T12:00:00.123456")] * 3),
        ("zone", MOMENT, [pd.Timestamp("2020-01-01T12:00:00.123456")] * 3),
        ("moment", "cast(y as string)", ["1", "2", "3"]),
    ],
)
def test_values_of_a_column_that_was_made_again_are_not_converted_to_what_it_was(
    tmp_path: Path, kind: str, value: str, expected: list[Any]
) -> None:
    made = changed(tmp_path / "t", kind, value)
    again = glaive.write_dataset(made.to_table(), tmp_path / "copy")
    for frame in (made.to_pandas(), made.to_table().to_pandas(), again.to_pandas()):
        assert frame["x"].tolist() == expected
        assert frame["y"].tolist() == [1, 2, 3]


@pytest.mark.spec("rel-42")
@pytest.mark.parametrize(
    ("kind", "values"),
    [
        ("period", pa.array([1, None, 3], pa.duration("us"))),
        ("period", pa.array([{"a": 1}, None, {"a": 2}])),
        ("interval", pa.array([1, None, 3], pa.duration("us"))),
        ("interval", pa.array([[1], None, [2, 3]])),
        ("moment", pa.array([1, None, 3], pa.timestamp("ns"))),
        ("duration of Arrow", pa.array([1, None, 3], pa.duration("us"))),
        ("duration of Arrow", pa.array([[1], None, [2, 3]])),
    ],
)
def test_nor_are_those_that_a_note_calls_the_same_as_before(
    tmp_path: Path, kind: str, values: pa.Array
) -> None:
    made = glaive.write_dataset(pd.DataFrame({"x": WRITTEN[kind]}), tmp_path / "t")
    made.add_columns(pa.table({"z": values}))
    made.drop_columns(["x"])
    made.alter_columns({"path": "z", "name": "x"})
    expected = pa.table({"x": values}).to_pandas()
    for frame in (made.to_pandas(), made.to_table().to_pandas()):
        pd.testing.assert_frame_equal(frame, expected)


@pytest.mark.parametrize("values", [[{"a": 1}], [{"a": b"1"}]])
def test_a_note_of_structs_of_arrow_is_kept(values: list[Any]) -> None:
    frame = pd.DataFrame({"x": pd.arrays.ArrowExtensionArray(pa.array(values))})
    written = pa.Table.from_pandas(frame).schema
    noted = (written.metadata or {})[b"pandas"]
    assert fitting(noted, written) == noted


@pytest.mark.spec("rel-42")
def test_a_column_of_a_wider_type_keeps_its_digits(tmp_path: Path) -> None:
    frame = pd.DataFrame({"x": WRITTEN["Float32"], "y": [1, 2, 3]})
    made = glaive.write_dataset(frame, tmp_path / "t")
    made.alter_columns({"path": "x", "data_type": pa.float64()})
    made.update({"x": "0.1"}, where="y = 2")
    assert made.to_pandas(filter="y = 2")["x"].tolist() == [0.1]


@pytest.mark.spec("rel-42")
@pytest.mark.parametrize("kind", ["bool of Arrow", "string", "period"])
def test_nor_are_those_that_are_computed_under_its_name(tmp_path: Path, kind: str) -> None:
    frame = pd.DataFrame({"x": WRITTEN[kind], "y": [1, 2, 3]})
    made = glaive.write_dataset(frame, tmp_path / "t")
    for columns in ({"x": "y * 2"}, {"y": "x is null", "x": "y + y"}):
        table = made.to_table(columns=columns)
        assert table.to_pandas()["x"].tolist() == [2, 4, 6]
    assert made.to_table(columns={"x": "y"}).to_pandas()["x"].tolist() == [1, 2, 3]


def test_an_index_of_another_type_is_still_the_index(tmp_path: Path) -> None:
    frame = pd.DataFrame({"x": WRITTEN["string"], "y": [1, 2, 3]}).set_index("x")
    made = glaive.write_dataset(frame, tmp_path / "t")
    made.drop_columns(["x"])
    made.add_columns({"x": "y * 2"})
    found = made.to_table().to_pandas()
    assert found.index.tolist() == [2, 4, 6]
    assert found.index.name == "x"


@pytest.mark.parametrize("mode", ["lazy", "bytes"])
@pytest.mark.parametrize("columns", [None, ["name", "clip"], ["name", "clip", "n"]])
def test_blobs_beside_a_column_that_is_the_index_of_the_frame_have_their_place(
    tmp_path: Path, mode: str, columns: list[str] | None
) -> None:
    rows = pa.Table.from_pandas(
        pd.DataFrame({"n": [1, 2]}, index=pd.Index(["a", "b"], name="name"))
    )
    noted = rows.schema.metadata
    kind = pa.field("clip", pa.large_binary(), metadata={"lance-encoding:blob": "true"})
    rows = rows.append_column(kind, pa.array([b"one", None], pa.large_binary()))
    made = glaive.write_dataset(rows.replace_schema_metadata(noted), tmp_path / "t")
    found = made.to_pandas(columns=columns, blob_mode=mode)
    assert list(found.index) == ["a", "b"]
    assert list(found.columns) == [one for one in columns or made.schema.names if one != "name"]
    first = found["clip"].iloc[0]
    assert (first.read() if mode == "lazy" else first) == b"one"


@pytest.mark.parametrize("names", [["a", None], [1, 2], [("a", 1), ("b", 2)]])
def test_columns_and_an_index_with_odd_names_come_back_as_arrow_has_them(
    tmp_path: Path, names: list[Any]
) -> None:
    frame = pd.DataFrame([[1, 2]], columns=names, index=pd.Index([5], name="a"))
    with warnings.catch_warnings(action="ignore"):  # of mixed names
        rows = pa.Table.from_pandas(frame)
    found = glaive.write_dataset(rows, tmp_path / "t").to_pandas()
    pd.testing.assert_frame_equal(found, rows.to_pandas())
