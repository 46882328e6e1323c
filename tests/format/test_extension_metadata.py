"""Parameters of Arrow's extension types that a stranger wrote: Arrow sees those that fit."""

from __future__ import annotations

import base64
import json
import pickle
import pickletools
from collections.abc import Iterator
from pathlib import Path
from time import process_time
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet

import glaive
from glaive.errors import SchemaError
from glaive.format.field import Field
from glaive.format.fields import LanceSchema

NAME, SAID = "ARROW:extension:name", "ARROW:extension:metadata"
DEEP = "[" * 1_000_000
TENSOR = "arrow.fixed_shape_tensor"
FIXED_16 = "fixed_size_binary:16"
VARIABLE = "arrow.variable_shape_tensor"


def schema(name: str, said: str, kind: str = "fixed_size_list:float:2") -> LanceSchema:
    metadata = {NAME: name.encode(), SAID: said.encode(), "unit": b"m"}
    children: tuple[Field, ...] = ()
    if kind == "struct":
        axes = Field(id=1, name="shape", logical_type="fixed_size_list:int32:2")
        children = (axes, Field(id=2, name="data", logical_type="int32"))
    field = Field(id=0, name="t", logical_type=kind, metadata=metadata, children=children)
    outer = Field(id=3, name="outer", logical_type="struct", children=(field,))
    return LanceSchema((field, outer))


@pytest.mark.spec("rel-25")
def test_a_text_of_escaped_marks_without_an_end_is_looked_through_once() -> None:
    started = process_time()
    assert (
        schema("arrow.opaque", '"' + '\\"' * 500_000, "int32").to_arrow().field(0).type == "int32"
    )
    assert process_time() - started < 10  # an hour, where each mark began another search


@pytest.mark.spec("rel-23")
@pytest.mark.parametrize(
    ("name", "said", "kind"),
    [
        (TENSOR, "", "fixed_size_list:float:2"),
        (TENSOR, DEEP, "fixed_size_list:float:2"),
        (TENSOR, f'{{"shape": [2], "more": {DEEP}', "fixed_size_list:float:2"),
        (TENSOR, '{"shape": [2]}', "int32"),
        (TENSOR, '{"shape": [3]}', "fixed_size_list:float:2"),
        (TENSOR, '{"shape": [-1, -2]}', "fixed_size_list:float:2"),
        (TENSOR, '{"shape": [2.0]}', "fixed_size_list:float:2"),
        (TENSOR, '{"shape": [2], "permutation": [99999999]}', "fixed_size_list:float:2"),
        (TENSOR, '{"shape": [2], "permutation": null}', "fixed_size_list:float:2"),
        (TENSOR, '{"shape": [2], "permutation": ["a"]}', "fixed_size_list:float:2"),
        (
            TENSOR,
            '{"shape": [2], "permutation": [9], "permutation": [0]}',
            "fixed_size_list:float:2",
        ),
        (TENSOR, '{"shape": [1, 2], "permutation": [1, 1]}', "fixed_size_list:float:2"),
        (TENSOR, '{"shape": [1, 2], "dim_names": ["a"]}', "fixed_size_list:float:2"),
        (TENSOR, '{"shape": [1, 2], "dim_names": [1, 2]}', "fixed_size_list:float:2"),
        (TENSOR, '{"shape": [1, 2], "dim_names": []}', "fixed_size_list:float:2"),
        (TENSOR, '{"shape": [1, 2], "permutation": []}', "fixed_size_list:float:2"),
        (VARIABLE, '{"permutation": [0, 2]}', "struct"),
        (VARIABLE, '{"uniform_shape": [1, -1]}', "struct"),
        (VARIABLE, '{"uniform_shape": [1, 2, 3]}', "struct"),
        (VARIABLE, "{}", "int32"),
        ("arrow.opaque", DEEP, "int32"),
        ("arrow.opaque", '{"type_name": [], "vendor_name": "x"}', "int32"),
        ("arrow.opaque", '{"type_name": "hugeint", "vendor_name": "DuckDB"}', "int32"),
        ("arrow.opaque", '{"type_name": "uhugeint", "vendor_name": "DuckDB"}', "struct"),
        ("arrow.opaque", '{"type_name": "time_tz", "vendor_name": "DuckDB"}', FIXED_16),
        ("arrow.opaque", '{"type_name": "bit", "vendor_name": "DuckDB"}', "binary"),
        ("arrow.opaque", '{"type_name": "Bignum", "vendor_name": "duckdb"}', "large_binary"),
        ("arrow.uuid", "", "fixed_size_list:float:2"),
        ("arrow.bool8", "", "struct"),
    ],
    ids=lambda text: text[:48],
)
def test_a_type_whose_parameters_do_not_fit_is_its_storage_and_no_reader_is_told_of_it(
    name: str, said: str, kind: str
) -> None:
    made = schema(name, said, kind)
    outer: Any = made.to_arrow().field("outer").type
    for field in (made.to_arrow().field("t"), made.logical_schema().field("t"), outer.field(0)):
        assert field.metadata == {b"unit": b"m"}
    # Workers make the types once more from what is pickled.
    assert pickle.loads(pickle.dumps(made.to_arrow())) == made.to_arrow()


@pytest.mark.parametrize(
    ("name", "said", "kind"),
    [
        (TENSOR, '{"shape": [2]}', "fixed_size_list:float:2"),
        (
            TENSOR,
            '{"shape": [1, 2], "permutation": [1, 0], "dim_names": ["a", "b"]}',
            "fixed_size_list:float:2",
        ),
        (TENSOR, '{"shape": [0, 5]}', "fixed_size_list:float:0"),
        (VARIABLE, '{"permutation": [1, 0], "uniform_shape": [null, 4]}', "struct"),
        ("arrow.opaque", '{"type_name": "geometry", "vendor_name": "acme"}', "int32"),
        ("arrow.opaque", json.dumps({"type_name": '[{"' * 99, "vendor_name": "x"}), "int32"),
        ("arrow.opaque", '{"type_name": "hugeint", "vendor_name": "DuckDB"}', FIXED_16),
        ("arrow.opaque", '{"type_name": "hugeint", "vendor_name": "acme"}', "int32"),
        ("arrow.uuid", "", FIXED_16),
        ("arrow.bool8", "", "int8"),
        ("acme.thing", DEEP, "int32"),
    ],
    ids=lambda text: text[:48],
)
def test_parameters_that_fit_and_unknown_extension_types_stay(
    name: str, said: str, kind: str
) -> None:
    found = schema(name, said, kind).to_arrow().field("t").metadata
    assert found == {NAME.encode(): name.encode(), SAID.encode(): said.encode(), b"unit": b"m"}


@pytest.mark.spec("type-8", "sec-1")
@pytest.mark.parametrize("column", [
    pa.array(["a", None, "b"]).dictionary_encode(),
    pa.array([1, None, 2], pa.timestamp("us", "UTC")),
], ids=["dictionary", "time"])  # fmt: skip
def test_types_of_other_systems_do_not_end_the_process_in_pandas(
    column: Any, tmp_path: Path
) -> None:
    kind = pa.opaque(column.type, "kind", "acme")
    named = pa.ExtensionArray.from_storage(kind, column)
    entries = pa.MapArray.from_arrays([0, 1, 2, 3], pa.array([1, 2, 3]), named)
    table = pa.table({"c": named, "m": entries})
    dataset = glaive.write_dataset(table, tmp_path / "a.lance")
    found = dataset.schema.field("c")
    assert found.type == column.type
    assert found.metadata == {
        b"glaive:extension:name": b"arrow.opaque",
        b"glaive:extension:metadata": b'{"type_name":"kind","vendor_name":"acme"}',
    }
    frame = dataset.to_pandas()
    assert frame["c"].isna().tolist() == [False, True, False]
    assert [len(one) for one in frame["m"]] == [1, 1, 1]
    # It is kept in what is written, and columns of the type are still added.
    again = glaive.write_dataset(dataset.to_table(), tmp_path / "b.lance")
    again.insert(table)
    assert again.to_table()["c"].to_pylist() == [*column.to_pylist(), *column.to_pylist()]
    assert again.lance_schema.fields[0].option(NAME) == "arrow.opaque"


def test_files_keep_what_arrow_is_not_told() -> None:
    said = '{"shape": [3]}'
    (field, *_) = schema(TENSOR, said).to_wire()
    assert dict(field.metadata)[SAID] == said.encode()


class Unpickled(pa.ExtensionType):
    """A type as other packages register: it unpickles its parameters."""

    def __init__(self) -> None:
        super().__init__(pa.int32(), "acme.unpickled")

    def __arrow_ext_serialize__(self) -> bytes:
        return pickle.dumps({})

    @classmethod
    def __arrow_ext_deserialize__(cls, _storage: pa.DataType, said: bytes) -> Unpickled:
        pickle.loads(said)
        return cls()


RUN: list[str] = []


class Planted:
    """Where it is unpickled, code runs."""

    def __reduce__(self) -> tuple[Any, ...]:
        return run_code, ("code of the file ran",)


def run_code(what: str) -> str:
    """What a hostile file would call."""
    RUN.append(what)
    return what


@pytest.fixture
def unpickled() -> Iterator[None]:
    """Register the type, as an import of its package does."""
    pa.register_extension_type(Unpickled())
    yield
    pa.unregister_extension_type("acme.unpickled")


@pytest.mark.spec("sec-17")
@pytest.mark.usefixtures("unpickled")
@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_pickled_parameters_are_never_given_to_the_class_of_a_type(
    protocol: int, tmp_path: Path
) -> None:
    said = pickle.dumps(Planted(), protocol)
    assert pickle.loads(said) == RUN.pop() == "code of the file ran"
    field = pa.field("c", pa.int32(), metadata={NAME: "acme.unpickled", SAID: said})
    outer = pa.field("o", pa.list_(field))
    table = pa.table(
        [pa.array([1], pa.int32()), pa.array([[2]], outer.type)], pa.schema([field, outer])
    )
    dataset = glaive.write_dataset(table, tmp_path / "a.lance")
    assert dataset.schema.field("c").metadata == {
        b"glaive:extension:name": b"acme.unpickled",
        b"glaive:extension:metadata": said,
    }
    read = pa.table(dataset.scanner())
    assert read.schema.types == [pa.int32(), pa.list_(pa.int32())]
    assert not RUN
    # They are kept for those who trust the file, and in what is written of it.
    again = glaive.write_dataset(read, tmp_path / "b.lance")
    assert again.schema == dataset.schema
    (manifest,) = tmp_path.glob("b.lance/_versions/*.manifest")
    written = manifest.read_bytes()
    assert b"ARROW:extension:metadata" in written
    assert b"glaive:extension" not in written
    assert not RUN


class PickledValue(pa.ExtensionScalar):
    """A value as some packages have them: who looks at it runs what it says."""

    def as_py(self, **_options: Any) -> object:
        return pickle.loads(self.value.as_py())


class OfPickles(pa.ExtensionType):
    """A type whose values are pickles, by the name that a package gives it."""

    def __init__(self, name: str = "ray.data.arrow_pickled_object", said: bytes = b"") -> None:
        self.said = said
        super().__init__(pa.large_binary(), name)

    def __arrow_ext_serialize__(self) -> bytes:
        return self.said

    @classmethod
    def __arrow_ext_deserialize__(cls, _storage: pa.DataType, said: bytes) -> OfPickles:
        return cls("daft.super_extension" if said else "ray.data.arrow_pickled_object", said)

    def __arrow_ext_scalar_class__(self) -> type:
        return PickledValue


DAFT = '{"datatype":%s,"daft_version":"0.6.0","daft_build_type":"release"}'
OF_PICKLES = [
    ("ray.data.arrow_pickled_object", ""),
    ("daft.super_extension", DAFT % '"Python"'),
    ("daft.super_extension", DAFT % '"\\u0050ython"'),
    ("daft.super_extension", DAFT % '{"List":"Python"}'),
]


@pytest.mark.spec("sec-17", "type-8")
@pytest.mark.parametrize(("name", "said"), OF_PICKLES)
def test_no_values_are_given_to_a_type_that_unpickles_them(
    name: str, said: str, tmp_path: Path
) -> None:
    field = pa.field("c", pa.large_binary(), metadata={NAME: name, SAID: said})
    outer = pa.field("o", pa.list_(field))
    pickled = pickle.dumps(Planted())
    table = pa.table([[pickled], [[pickled]]], pa.schema([field, outer]))
    dataset = glaive.write_dataset(table, tmp_path / "a.lance")
    pa.register_extension_type(OfPickles(name, said.encode()))
    try:
        read = pa.table(dataset.scanner())
        assert read["c"].type == pa.large_binary()
        assert read.to_pylist() == dataset.to_table().to_pylist()
        assert read.to_pylist() == [{"c": pickled, "o": [pickled]}]
        assert [*dataset.to_pandas()["c"]] == [pickled]
        assert not RUN
        again = glaive.write_dataset(read, tmp_path / "b.lance")
        assert again.lance_schema.fields[0].option(NAME) == name
    finally:
        pa.unregister_extension_type(name)


def test_other_types_of_daft_keep_their_name() -> None:
    said = DAFT % '{"Image":"RGB"}'
    found: Any = schema("daft.super_extension", said, "int32").to_arrow().field("t").metadata
    assert found[NAME.encode()] == b"daft.super_extension"


@pytest.mark.spec("sec-17")
@pytest.mark.usefixtures("unpickled")
@pytest.mark.parametrize("version", ["0.1", "2.0", "2.1"])
@pytest.mark.parametrize("of_column", [{}, {NAME: "arrow.uuid"}], ids=["plain", "extended"])
def test_nor_are_those_of_a_schema_which_arrow_takes_for_a_struct(
    version: str, of_column: dict[str, str], tmp_path: Path
) -> None:
    said = pickle.dumps(Planted(), 0)
    field = pa.field("c", pa.binary(16), metadata=of_column)
    planted = pa.schema([field], {NAME: "acme.unpickled", SAID: said, "unit": "m"})
    table = pa.table([pa.array([b"0" * 16], pa.binary(16))], planted)
    glaive.write_dataset(table, tmp_path / "a.lance", data_storage_version=version)
    dataset = glaive.dataset(tmp_path / "a.lance")
    assert dataset.schema.metadata == {
        b"glaive:extension:name": b"acme.unpickled",
        b"glaive:extension:metadata": said,
        b"unit": b"m",
    }
    read = pa.table(dataset.scanner())
    assert read.schema.metadata == dataset.schema.metadata
    assert dataset.count_rows("c IS NOT NULL") == read.num_rows == 1
    assert not RUN
    again = glaive.write_dataset(read, tmp_path / "b.lance")
    assert again.lance_schema.metadata[SAID] == said
    assert not RUN


@pytest.mark.spec("sec-17")
@pytest.mark.usefixtures("unpickled")
def test_nor_are_those_in_columns_that_a_file_of_parquet_would_seem_to_have(tmp_path: Path) -> None:
    said = pickle.dumps(Planted(), 0)
    field = pa.field("c", pa.int32(), metadata={NAME: "acme.unpickled", SAID: said})
    columns = base64.b64encode(pa.schema([field]).serialize().to_pybytes())
    planted = pa.schema([pa.field("c", pa.int32())], {"ARROW:schema": columns, "unit": "m"})
    dataset = glaive.write_dataset(pa.table([[1]], planted), tmp_path / "a.lance")
    assert dataset.schema.metadata == {b"unit": b"m"}
    parquet.write_table(dataset.to_table(), tmp_path / "a.parquet")
    assert parquet.read_table(tmp_path / "a.parquet") == dataset.to_table()
    assert not RUN
    assert dataset.lance_schema.metadata["ARROW:schema"] == columns


@pytest.mark.spec("sec-17")
@pytest.mark.usefixtures("unpickled")
def test_nor_are_those_of_a_schema_that_a_catalogue_gives_as_json() -> None:
    said = {NAME: "acme.unpickled", SAID: pickle.dumps(Planted(), 0).decode()}
    column = {"name": "c", "type": {"type": "int32"}, "nullable": True, "metadata": said}
    inner = {"name": "s", "type": {"type": "struct", "fields": [column]}, "nullable": True}
    for given in (
        {"fields": [column]},
        {"fields": [inner]},
        {"fields": [{**column, "metadata": {"unit": "m"}}], "metadata": said},
        {"fields": [{**column, "metadata": {NAME.encode(): b"acme.unpickled", SAID: b"\x80"}}]},
    ):
        made = glaive.json_to_schema(given)
        assert pa.schema(Exported(made)) == made
        assert "glaive:extension:name" in json.dumps(glaive.schema_to_json(made))
    assert not RUN
    for wrong in ({"unit": []}, [*map(list, said.items())], "unit", 1):
        with pytest.raises(SchemaError, match="json_to_schema: metadata: expected"):
            glaive.json_to_schema({"fields": [{**column, "metadata": wrong}]})
        with pytest.raises(SchemaError, match="json_to_schema: metadata: expected"):
            glaive.json_to_schema({"fields": [], "metadata": wrong})


def test_a_file_of_parquet_has_nothing_of_the_columns_of_another_one(tmp_path: Path) -> None:
    """Spark would read the columns that there were when it wrote the rows."""
    said = {"org.apache.spark.sql.parquet.row.metadata": "{}", "parquet.avro.schema": "{}"}
    table = pa.table([[1]], pa.schema([("a", pa.int64())], {**said, "unit": "m"}))
    dataset = glaive.write_dataset(table, tmp_path / "a.lance")
    dataset.add_columns({"b": "a + 1"})
    parquet.write_table(dataset.to_table(), tmp_path / "a.parquet")
    found = parquet.read_metadata(tmp_path / "a.parquet").metadata
    assert set(found or ()) == {b"ARROW:schema", b"unit"}
    assert said.keys() < dataset.lance_schema.metadata.keys()


class Exported:
    """A schema by Arrow's C interface."""

    def __init__(self, schema: pa.Schema) -> None:
        self.schema = schema

    def __arrow_c_schema__(self) -> object:
        """The capsule."""
        return self.schema.__arrow_c_schema__()


class Scaled(pa.ExtensionType):
    """A type with a text for its parameters."""

    def __init__(self, scale: int) -> None:
        self.scale = scale
        super().__init__(pa.int32(), "acme.scaled")

    def __arrow_ext_serialize__(self) -> bytes:
        return f"scale={self.scale}".encode()

    @classmethod
    def __arrow_ext_deserialize__(cls, _storage: pa.DataType, said: bytes) -> Scaled:
        return cls(int(said.removeprefix(b"scale=")))


def test_a_registered_type_comes_back_where_its_parameters_are_text(tmp_path: Path) -> None:
    pa.register_extension_type(Scaled(1))
    try:
        stored = pa.ExtensionArray.from_storage(Scaled(3), pa.array([7], pa.int32()))
        dataset = glaive.write_dataset(pa.table({"c": stored}), tmp_path / "a.lance")
        assert dataset.schema.field("c").type == Scaled(3)
        assert dataset.to_table()["c"].type == Scaled(3)
    finally:
        pa.unregister_extension_type("acme.scaled")


def test_no_pickle_that_names_a_function_is_a_text_in_one_line_or_begins_as_json() -> None:
    starts = {ord(opcode.code) for opcode in pickletools.opcodes}
    assert starts.isdisjoint(b'{["')
    naming = ("GLOBAL", "INST", "STACK_GLOBAL", "EXT1", "EXT2", "EXT4")
    for opcode in pickletools.opcodes:
        if opcode.name in naming:
            line = opcode.arg is not None and opcode.arg.name.startswith("stringnl")
            assert line or not opcode.code.isascii(), opcode.name


@pytest.mark.parametrize(
    ("name", "said", "stays"),
    [
        ("acme.thing", b"", True),
        ("acme.thing", b"unit=m, scale=3", True),
        ("acme.thing", '{"crs": "Système"}'.encode(), True),
        ("acme.thing", b'{"crs": "\xff"}', False),
        ("acme.thing", b"two\nlines", False),
        ("acme.thing", "Système".encode(), False),
        ("acme.\x1b[2J", b"", False),
        ("arrow.json", b"\xff", False),
    ],
)
def test_parameters_of_types_of_others_are_text_or_json(
    name: str, said: bytes, stays: bool
) -> None:
    metadata = {NAME: name.encode(), SAID: said}
    made = Field(id=0, name="t", logical_type="int32", metadata=metadata).to_arrow()
    prefix = "ARROW" if stays else "glaive"
    assert made.metadata == {
        f"{prefix}:extension:name".encode(): name.encode(),
        f"{prefix}:extension:metadata".encode(): said,
    }


def test_types_of_lance_keep_their_names_without_parameters_that_are_no_text() -> None:
    metadata = {NAME: b"lance.bfloat16", SAID: b"\xff"}
    made = Field(id=0, name="t", logical_type="int32", metadata=metadata).to_arrow()
    assert made.metadata == {NAME.encode(): b"lance.bfloat16"}
