"""Parameters of Arrow's extension types that a stranger wrote: Arrow sees those that fit."""

from __future__ import annotations

import json
import pickle
from time import process_time
from typing import Any

import pytest

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


def test_files_keep_what_arrow_is_not_told() -> None:
    said = '{"shape": [3]}'
    (field, *_) = schema(TENSOR, said).to_wire()
    assert dict(field.metadata)[SAID] == said.encode()
