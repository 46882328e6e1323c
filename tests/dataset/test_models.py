"""Rows as pydantic models, and their schema."""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import glaive
from glaive.errors import OptionError, SchemaError

pydantic: Any = pytest.importorskip("pydantic", reason="install pydantic")

from glaive.pydantic import MultiVector, Vector, get_extras, pydantic_to_schema  # noqa: E402  # see above


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Size(Enum):
    SMALL = 1


class Place(pydantic.BaseModel):  # type: ignore[misc]  # pydantic may be absent
    name: str
    floor: int | None = None


class Picture(pydantic.BaseModel):  # type: ignore[misc]  # same
    id: int
    name: str | None
    score: float
    data: bytes
    seen: bool
    day: date
    time: datetime = pydantic.Field(json_schema_extra={"tz": "UTC"})
    words: list[str]
    marks: list[int | None]
    place: Place
    colour: Colour
    size: Size
    vector: Vector(3)  # type: ignore[valid-type]  # a class made here
    vectors: MultiVector(2, pa.float64(), nullable=False)  # type: ignore[valid-type]  # same


def picture(**changes: Any) -> Picture:
    values: dict[str, Any] = {
        "id": 1,
        "name": None,
        "score": 1.5,
        "data": b"x",
        "seen": True,
        "day": date(2026, 1, 2),
        "time": datetime.fromisoformat("2026-01-02T03:04:05+00:00"),
        "words": ["a"],
        "marks": [1, None],
        "place": Place(name="here"),
        "colour": Colour.BLUE,
        "size": Size.SMALL,
        "vector": np.array([1, 2, 3]),
        "vectors": [[1, 2], [3, 4]],
    }
    return Picture(**(values | changes))


def test_the_schema_is_that_of_the_model() -> None:
    place = pa.struct([pa.field("name", pa.string(), False), pa.field("floor", pa.int64())])
    assert pydantic_to_schema(Picture) == pa.schema(
        [
            pa.field("id", pa.int64(), False),
            pa.field("name", pa.string()),
            pa.field("score", pa.float64(), False),
            pa.field("data", pa.binary(), False),
            pa.field("seen", pa.bool_(), False),
            pa.field("day", pa.date32(), False),
            pa.field("time", pa.timestamp("us", "UTC"), False),
            pa.field("words", pa.list_(pa.string()), False),
            pa.field("marks", pa.list_(pa.int64()), False),
            pa.field("place", place, False),
            pa.field("colour", pa.dictionary(pa.int32(), pa.string()), False),
            pa.field("size", pa.int64(), False),
            pa.field("vector", pa.list_(pa.float32(), 3)),
            pa.field("vectors", pa.list_(pa.list_(pa.float64(), 2)), False),
        ]
    )
    assert get_extras(Picture.model_fields["time"], "tz") == "UTC"
    assert get_extras(Picture.model_fields["id"], "tz") is None


def test_models_are_written_as_rows(tmp_path: Path) -> None:
    rows = (picture(id=at) for at in range(3))
    dataset = glaive.write_dataset(rows, str(tmp_path / "a.lance"))
    table = dataset.to_table()
    assert table["id"].to_pylist() == [0, 1, 2]
    assert table["colour"].to_pylist() == ["blue"] * 3
    assert table["vector"].to_pylist()[0] == [1.0, 2.0, 3.0]
    assert table["place"].to_pylist()[0] == {"name": "here", "floor": None}


def test_a_dataset_has_the_name_of_its_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    dataset = glaive.LanceDataset.from_pydantic_model(Place, [Place(name="a")])
    assert dataset.uri == "place"
    more = glaive.LanceDataset.from_pydantic_model(
        Place, [Place(name="b", floor=1)], uri=dataset.uri, mode="append"
    )
    assert more.to_table().to_pylist() == [{"name": "a", "floor": None}, {"name": "b", "floor": 1}]
    for wrong in (iter([]), Place(name="a"), [picture()]):
        with pytest.raises(OptionError, match=r"list|must be an instance"):
            glaive.LanceDataset.from_pydantic_model(Place, wrong)


def test_values_are_checked_by_the_model() -> None:
    with pytest.raises(pydantic.ValidationError):
        picture(vector=[1, 2])
    with pytest.raises(pydantic.ValidationError):
        picture(vectors=[[1, 2], [3]])
    with pytest.raises(OptionError, match="dim: expected an integer from 1 on"):
        Vector(0)


def model(kind: Any) -> Any:
    return pydantic.create_model("Made", field=(kind, ...))


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (Decimal, "Give the schema"),
        (list, "Specify the type of items"),
        (dict[str, int], "unsupported type"),
        (int | str, "unsupported type"),
    ],
)
def test_types_without_a_counterpart_are_refused(kind: Any, message: str) -> None:
    with pytest.raises(SchemaError, match=message):
        pydantic_to_schema(model(kind))


def test_only_models_have_a_schema() -> None:
    with pytest.raises(SchemaError, match="expected a class derived from"):
        pydantic_to_schema(int)


def test_numbers_that_no_column_holds_are_refused(tmp_path: Path) -> None:
    place = Place(name="tower", floor=2**70)
    for write in (
        lambda: glaive.LanceDataset.from_pydantic_model(Place, [place], tmp_path / "a"),
        lambda: glaive.write_dataset([place], tmp_path / "b"),
    ):
        with pytest.raises(SchemaError, match="instances of Place do not fit its schema"):
            write()
    schema = pa.schema([("floor", pa.int64())])
    with pytest.raises(OptionError, match=r"data to write: .* too large"):
        glaive.write_dataset([{"floor": 2**70}], tmp_path / "c", schema=schema)
