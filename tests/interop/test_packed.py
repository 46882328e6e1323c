"""Packed structs of both libraries, read by each other: whole, by member, by row."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.interop.cases import as_bits, assert_same, column

import glaive
from glaive.errors import ColumnNotFoundError, SchemaError

lance = pytest.importorskip("lance", reason="install the 'interop' group")

pytestmark = pytest.mark.interop

DIRECTIONS = [(glaive, lance), (lance, glaive), (glaive, glaive)]
NAMES = ["glaive-to-pylance", "pylance-to-glaive", "glaive-to-glaive"]
ROWS = 3000
PACKED: Any = {"packed": "true"}
PACKED_KEY: Any = {"lance-encoding:packed": "true"}

FIXED = ("int64_full", "float32", "uint8_small", "decimal128", "timestamp_us", "fixed_binary_3")
VARIABLE = ("int32_full", "string", "large_string", "string_few", "binary")
LISTS = ("int16_small", "vector_f32_4", "vector_f64_3")

CASES = [(FIXED, "2.1"), (FIXED, "2.2"), (VARIABLE, "2.2"), (LISTS, "2.2")]
CASE_NAMES = ["fixed-2.1", "fixed-2.2", "variable", "lists"]


def _struct(names: tuple[str, ...], mask: Any = None) -> pa.StructArray:
    arrays = [column(name, ROWS, nulls=False) for name in names]
    return pa.StructArray.from_arrays(arrays, names=list(names), mask=mask)


def _table(names: tuple[str, ...]) -> pa.Table:
    places = np.arange(ROWS)
    plain, holes = _struct(names), _struct(names, pa.array(places % 3 == 1))
    ends = np.minimum(np.cumsum(places % 4), ROWS)
    lists = pa.ListArray.from_arrays(pa.array([0, *ends.tolist()], pa.int32()), plain)
    item = pa.field("item", plain.type, True, PACKED)
    fields = [
        pa.field("plain", plain.type, True, PACKED),
        pa.field("holes", plain.type, True, PACKED_KEY),
        pa.field("lists", pa.list_(item)),
        pa.field("outer", pa.struct([pa.field("inner", plain.type, True, PACKED)])),
        pa.field("none", plain.type, True, PACKED),
        pa.field("id", pa.int64()),
    ]
    arrays = [
        plain,
        holes,
        lists.cast(fields[2].type),
        pa.StructArray.from_arrays([holes], fields=[fields[3].type.field(0)]),
        _struct(names, pa.array(places >= 0)),
        pa.array(places),
    ]
    return pa.Table.from_arrays(arrays, schema=pa.schema(fields))


@pytest.mark.sampled(every=3)
@pytest.mark.parametrize(("writer", "reader"), DIRECTIONS, ids=NAMES)
@pytest.mark.parametrize(("names", "version"), CASES, ids=CASE_NAMES)
def test_packed_structs_survive(
    tmp_path: Path, names: tuple[str, ...], version: str, writer: ModuleType, reader: ModuleType
) -> None:
    written = _table(names)
    uri = str(tmp_path / "x")
    writer.write_dataset(written, uri, data_storage_version=version)
    dataset = reader.dataset(uri)
    assert_same(dataset.to_table(), written)
    assert_same(dataset.to_table(columns=["holes", "id"]), written.select(["holes", "id"]))
    wanted = [5, 0, ROWS - 1, 5, 1700, 1, 2]
    assert_same(dataset.take(wanted), written.take(wanted))
    assert_same(dataset.take([7]), written.take([7]))
    assert_same(dataset.to_table(offset=900, limit=300), written.slice(900, 300))


@pytest.mark.parametrize("writer", [glaive, lance], ids=["glaive", "pylance"])
@pytest.mark.parametrize(("names", "version"), CASES, ids=CASE_NAMES)
def test_members_can_be_read_alone(
    tmp_path: Path, names: tuple[str, ...], version: str, writer: ModuleType
) -> None:
    written = _table(names)
    uri = str(tmp_path / "x")
    writer.write_dataset(written, uri, data_storage_version=version)
    dataset = glaive.dataset(uri)
    (whole,) = written["holes"].chunks
    for at in (1, len(names) - 1):
        (found,) = dataset.to_table(columns=[f"holes.{names[at]}"]).columns
        values = found.combine_chunks()
        assert as_bits(values).equals(as_bits(whole.flatten()[at]))
    with pytest.raises(ColumnNotFoundError, match="else"):
        dataset.to_table(columns=["holes.else"])


def test_members_have_keys_of_their_own(tmp_path: Path) -> None:
    zstd: Any = {"lance-encoding:compression": "zstd"}
    none: Any = {"lance-encoding:compression": "none"}
    members = [
        pa.field("a", pa.int64()),
        pa.field("b", pa.string(), True, zstd),
        pa.field("c", pa.string(), True, none),
    ]
    texts = column("string", ROWS, nulls=False)
    array = pa.StructArray.from_arrays([pa.array(range(ROWS)), texts, texts], fields=members)
    schema = pa.schema([pa.field("x", array.type, True, PACKED)])
    written = pa.Table.from_arrays([array], schema=schema)
    sizes = []
    for writer, reader in DIRECTIONS[:2]:
        uri = str(tmp_path / writer.__name__)
        writer.write_dataset(written, uri, data_storage_version="2.2")
        assert_same(reader.dataset(uri).to_table(), written)
        (path,) = (Path(uri) / "data").iterdir()
        sizes.append(path.stat().st_size)
    assert sizes[0] <= sizes[1] * 1.03


@pytest.mark.parametrize("version", ["2.1", "2.2"])
def test_rows_too_wide_for_pylance_are_packed(tmp_path: Path, version: str) -> None:
    """pylance writes up to 255 bytes per row, and reads more."""
    wide = pa.StructArray.from_arrays(
        [column("fixed_binary_300", 500, nulls=False), pa.array(range(500))], names=["a", "b"]
    )
    schema = pa.schema([pa.field("x", wide.type, True, PACKED)])
    written = pa.Table.from_arrays([wide], schema=schema)
    uri = str(tmp_path / "x")
    glaive.write_dataset(written, uri, data_storage_version=version)
    assert_same(lance.dataset(uri).to_table(), written)
    assert_same(glaive.dataset(uri).take([499, 3]), written.take([499, 3]))


@pytest.mark.parametrize(
    ("member", "version"),
    [(pa.array(["a"]), "2.1"), (pa.array([True]), "2.2"), (pa.array([[1]]), "2.2")],
    ids=["text", "flag", "list"],
)
def test_members_that_cannot_be_packed_are_named(
    tmp_path: Path, member: pa.Array, version: str
) -> None:
    array = pa.StructArray.from_arrays([pa.array([1]), member], names=["a", "odd"])
    schema = pa.schema([pa.field("x", array.type, True, PACKED)])
    table = pa.Table.from_arrays([array], schema=schema)
    with pytest.raises(SchemaError, match=r"x\.odd.*packed structs"):
        glaive.write_dataset(table, str(tmp_path / "x"), data_storage_version=version)
