"""Names of extension types that other libraries are not told: copies have them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import glaive
from glaive.format.fields import LanceSchema

pd = pytest.importorskip("pandas")

NAME, SAID = b"ARROW:extension:name", b"ARROW:extension:metadata"
VARIANT: Any = pa.struct([
    pa.field("metadata", pa.binary(), nullable=False),
    pa.field("value", pa.binary(), nullable=False),
])  # fmt: skip
SEVEN = {"metadata": b"\x01\x00\x00", "value": b"\x0c\x07"}


def named(column: str, data_type: Any, name: bytes, said: bytes) -> Any:
    return pa.field(column, data_type, metadata={NAME: name, SAID: said, b"unit": b"m"})


def stored(place: Path) -> list[dict[str, bytes]]:
    schema: LanceSchema = glaive.dataset(place).lance_schema
    return [dict(field.metadata) for field in schema.fields]


@pytest.mark.spec("type-8")
@pytest.mark.parametrize(
    "field",
    [
        named("v", VARIANT, b"arrow.parquet.variant", b""),
        named("v", pa.int32(), b"pandas.interval", b'{"subtype": "int64", "closed": "left"}'),
    ],
    ids=["variant", "interval"],
)
def test_a_copy_of_a_column_has_the_name_that_readers_are_not_told(
    tmp_path: Path, field: Any
) -> None:
    pa.array(pd.period_range("2020", periods=1, freq="D"))  # registers the types of pandas
    values = pa.array([SEVEN if field.type == VARIANT else 7], field.type)
    rows = pa.table([values], schema=pa.schema([field]))
    made = glaive.write_dataset(rows, tmp_path / "t")
    found = made.to_table()
    assert found.schema.field("v").metadata == {
        b"glaive:extension:name": field.metadata[NAME],
        b"glaive:extension:metadata": field.metadata[SAID],
        b"unit": b"m",
    }
    glaive.write_dataset(found, tmp_path / "of_rows")
    glaive.write_dataset(made, tmp_path / "of_dataset")
    made.insert(found)
    made.insert(rows)
    made.optimize.compact_files()
    assert made.count_rows() == 3
    expected = [{key.decode(): value for key, value in field.metadata.items()}]
    for place in ("t", "of_rows", "of_dataset"):
        assert stored(tmp_path / place) == expected


@pytest.mark.spec("type-8")
def test_a_name_within_lists_is_kept_by_copies(tmp_path: Path) -> None:
    schema = pa.schema(
        [pa.field("l", pa.list_(named("v", VARIANT, b"arrow.parquet.variant", b"")))]
    )
    made = glaive.write_dataset(pa.table([pa.nulls(1, schema.types[0])], schema=schema), tmp_path)
    copied = LanceSchema.from_arrow(made.to_table().schema)
    assert copied.fields[0].children[0].metadata["ARROW:extension:name"] == b"arrow.parquet.variant"


def test_a_name_that_says_how_lance_stores_values_stays_withheld_in_copies(tmp_path: Path) -> None:
    schema = pa.schema([
        pa.field("v", pa.int32(), metadata={"glaive:extension:name": "arrow.json"}),
        pa.field("w", pa.int32(), metadata={"glaive:extension:name": "lance.blob.v2"}),
    ])  # fmt: skip
    made = glaive.write_dataset(pa.table([[1], [2]], schema=schema), tmp_path / "t")
    assert made.schema == schema
    assert [set(metadata) for metadata in stored(tmp_path / "t")] == [{"glaive:extension:name"}] * 2


@pytest.mark.spec("rel-23", "type-8")
@pytest.mark.parametrize("said", [b"1;2", b"", b"x"])
@pytest.mark.parametrize("name", [b"_POLARS_PYTHON_OBJECT", b"POLARS_EXTENSION_TYPE"])
def test_polars_takes_no_value_for_an_address_in_its_memory(
    tmp_path: Path, name: bytes, said: bytes
) -> None:
    pl = pytest.importorskip("polars")
    field = named("v", pa.binary(8), name, said)
    outer = pa.field("o", pa.list_(field))
    rows = [pa.array([b"12345678"], pa.binary(8)), pa.array([[b"12345678"]], outer.type)]
    made = glaive.write_dataset(pa.table(rows, schema=pa.schema([field, outer])), tmp_path / "t")
    schema = made.to_table().schema
    kept: Any = schema.field("o").type
    # With the name, the process would end here.
    assert not any(NAME in (one.metadata or {}) for one in (schema.field("v"), kept.value_field))
    for frame in (
        pl.from_arrow(made.to_table()),
        pl.DataFrame(made.scanner().to_reader()),
        pl.scan_pyarrow_dataset(made.to_pyarrow_dataset()).collect(),
    ):
        assert frame.to_dicts() == [{"v": b"12345678", "o": [b"12345678"]}]
    assert stored(tmp_path / "t")[0][NAME.decode()] == name


@pytest.mark.spec("rel-42", "type-8")
@pytest.mark.parametrize("key", ["_PL_ENUM_VALUES2", "_PL_ENUM_VALUES"])
def test_polars_makes_no_nulls_of_values_that_the_first_writer_of_a_column_did_not_have(
    tmp_path: Path, key: str
) -> None:
    pl = pytest.importorskip("polars")

    def rows(letter: str) -> pa.Table:
        kind: Any = pa.dictionary(pa.uint8(), pa.large_string())
        categories = {key: f"1;{letter}"}
        outer = pa.struct([pa.field("in", kind, metadata=categories)])
        fields = [pa.field("e", kind, metadata=categories), pa.field("s", outer)]
        letters = pa.array([letter]).cast(pa.large_string()).dictionary_encode().cast(kind)
        members = pa.StructArray.from_arrays([letters], fields=[*outer])
        return pa.table([letters, members], schema=pa.schema(fields))

    made = glaive.write_dataset(rows("a"), tmp_path / "t")
    made.insert(rows("b"))
    made.update({"e": "'q'"}, where="e = 'a'")
    expected = [{"e": "b", "s": {"in": "b"}}, {"e": "q", "s": {"in": "a"}}]
    for frame in (
        pl.from_arrow(made.to_table()),
        pl.DataFrame(made.scanner().to_reader()),
        pl.scan_pyarrow_dataset(made.to_pyarrow_dataset()).collect(),
    ):
        assert frame.to_dicts() == expected
    assert made.schema.field("e").metadata == {f"glaive:{key}".encode(): b"1;a"}
    glaive.write_dataset(made.to_table(), tmp_path / "copy")
    for place in ("t", "copy"):
        assert stored(tmp_path / place)[0] == {key: b"1;a"}
    assert glaive.dataset(tmp_path / "copy").to_table().to_pylist() == expected


def test_an_enum_of_polars_is_read_as_categories(tmp_path: Path) -> None:
    pl = pytest.importorskip("polars")
    frame = pl.DataFrame({"e": pl.Series(["b", "a"], dtype=pl.Enum(["a", "b"]))})
    made = glaive.write_dataset(frame, tmp_path / "t")
    found = pl.from_arrow(made.to_table())
    assert found["e"].dtype == pl.Categorical
    assert found.cast({"e": frame["e"].dtype}).equals(frame)
    made.insert(frame)
    assert made.count_rows("e = 'a'") == 2
