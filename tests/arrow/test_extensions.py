"""Arrays of extension types, and what they are stored as, at any depth."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from glaive.arrow.extensions import to_type
from glaive.format.extension import extended

UUID = pa.binary(16)


def uuids() -> Any:
    raw = [bytes([at]) * 16 if at % 3 else None for at in range(6)]
    return pa.ExtensionArray.from_storage(pa.uuid(), pa.array(raw, UUID))


def wrapped(items: Any, shape: str) -> Any:
    if shape == "list":
        offsets = pa.array([0, 2, 2, 5, 6], pa.int32())
        return pa.ListArray.from_arrays(offsets, items, mask=pa.array([False, True, False, False]))
    if shape == "large_list":
        return pa.LargeListArray.from_arrays(pa.array([0, 2, 2, 5, 6], pa.int64()), items)
    if shape == "fixed":
        return pa.FixedSizeListArray.from_arrays(items, 2, mask=pa.array([False, True, False]))
    if shape == "map":
        keys = pa.array(list("abcdef"))
        return pa.MapArray.from_arrays(pa.array([0, 1, 4, 6], pa.int32()), keys, items)
    if shape == "struct":
        mask = pa.array([True, False, False, False, True, False])
        return pa.StructArray.from_arrays([items, pa.array(range(6))], names=["u", "i"], mask=mask)
    return items


SHAPES = ["plain", "list", "large_list", "fixed", "map", "struct"]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("first", [0, 1])
def test_storage_and_back(shape: str, first: int) -> None:
    seen = wrapped(uuids(), shape).slice(first)
    stored = to_type(seen, wrapped(uuids().storage, shape).type, "here")
    stored.validate(full=True)
    back = to_type(stored, seen.type, "here")
    back.validate(full=True)
    assert back.to_pylist() == seen.to_pylist()


@pytest.mark.parametrize("shape", SHAPES)
def test_json_is_text_outside_and_binary_inside(shape: str) -> None:
    texts = pa.array(["1", None, '{"a":[]}', "[2]", '"x"', "null"], pa.json_())
    seen = wrapped(texts, shape)
    stored = to_type(seen, wrapped(pa.nulls(6, pa.large_binary()), shape).type, "here")
    assert to_type(stored, seen.type, "here").to_pylist() == seen.to_pylist()


def test_equal_types_are_the_same_array() -> None:
    array = pa.array([1, 2])
    assert to_type(array, pa.int64(), "here") is array


def test_views_become_plain() -> None:
    array = pa.array(["a", None], pa.string_view())
    assert to_type(array, pa.string(), "here").type == pa.string()


@pytest.mark.spec("type-4")
def test_metadata_stands_for_types() -> None:
    stored = pa.schema(
        [
            pa.field("u", UUID, metadata={"ARROW:extension:name": "arrow.uuid", "unit": "1"}),
            pa.field(
                "j",
                pa.list_(
                    pa.field(
                        "item",
                        pa.large_binary(),
                        metadata={
                            "ARROW:extension:name": "lance.json",
                            "ARROW:extension:metadata": "",
                        },
                    )
                ),
            ),
        ]
    )
    seen = extended(stored)
    assert seen.field("u").type == pa.uuid()
    assert seen.field("u").metadata == {b"unit": b"1"}
    assert seen.field("j").type.value_type == pa.json_()
    assert extended(stored, json=False).field("j").type == pa.list_(pa.large_binary())


def test_metadata_of_unknown_types_stays() -> None:
    stored = pa.schema([pa.field("a", UUID, metadata={"ARROW:extension:name": "acme.thing"})])
    assert extended(stored).equals(stored, check_metadata=True)


def test_a_known_name_on_another_storage_stays_metadata() -> None:
    stored = pa.schema([pa.field("a", pa.int8(), metadata={"ARROW:extension:name": "arrow.uuid"})])
    assert extended(stored).field("a").type == pa.int8()
