"""Schemas as JSON: what Arrow refuses is an error of the schema."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from glaive.errors import SchemaError
from glaive.format.extension import json_to_schema, schema_to_json


def with_type(kind: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"fields": [{"name": "x", "nullable": True, "type": kind, **more}]}


def test_metadata_that_arrow_refuses_is_an_error_of_the_schema() -> None:
    with pytest.raises(SchemaError, match="json_to_schema: "):
        json_to_schema(with_type({"type": "int8"}, metadata={"key": [1]}))


@pytest.mark.parametrize("length", [0, -1, 2**31, 1.0, True, None])
def test_a_length_is_a_number_from_1_on(length: Any) -> None:
    with pytest.raises(SchemaError, match="length of 'x': expected an integer from 1 on"):
        json_to_schema(with_type({"type": "fixed_size_binary", "length": length}))


@pytest.mark.parametrize("text", ["list", "large_list", "fixed_size_list", "map"])
def test_a_list_has_one_field_and_a_map_has_two(text: str) -> None:
    item = {"name": "i", "nullable": text != "map", "type": {"type": "int8"}}
    wanted = 2 if text == "map" else 1
    for count in (0, 1, 2, 3):
        given = with_type({"type": text, "fields": [item] * count, "length": 3})
        if count == wanted:
            assert str(json_to_schema(given).field("x").type).startswith(text)
        else:
            with pytest.raises(SchemaError, match=rf"requires {wanted} field\(s\)"):
                json_to_schema(given)


def test_lists_and_binaries_of_each_size_come_back() -> None:
    kinds: list[Any] = [
        pa.list_(pa.int8()), pa.large_list(pa.int8()), pa.list_(pa.int8(), 3), pa.binary(5),
    ]  # fmt: skip
    schema = pa.schema([(f"c{at}", kind) for at, kind in enumerate(kinds)])
    told = schema_to_json(schema)
    assert [one["type"]["type"] for one in told["fields"]] == [
        "list", "large_list", "fixed_size_list", "fixed_size_binary",
    ]  # fmt: skip
    assert json_to_schema(told) == schema


def test_only_a_schema_becomes_json() -> None:
    not_one: Any = [1]
    with pytest.raises(SchemaError, match=r"expected a pyarrow.Schema, found \[1\]"):
        schema_to_json(not_one)
