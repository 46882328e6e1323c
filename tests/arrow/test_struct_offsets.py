"""Slices of structs within structs, as they are handed to other engines."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from glaive.arrow.validation import cut_members, nests_structs

ROWS: dict[str, Any] = {
    "twice": pa.array([{"a": {"b": i, "c": str(i)}, "l": [i]} for i in range(20)]),
    "thrice": pa.array([{"a": {"b": {"c": i % 2 == 0}}} for i in range(20)]),
    "nulls": pa.array([{"a": {"b": i} if i % 3 else None} if i % 4 else None for i in range(20)]),
}


@pytest.mark.parametrize("name", ROWS)
@pytest.mark.parametrize("start", [0, 7, 8])
def test_members_are_cut_and_values_stay(name: str, start: int) -> None:
    batch = pa.record_batch({"x": ROWS[name], "id": range(20)}).slice(start, 9)
    assert nests_structs(batch.schema)
    cut = cut_members(batch)
    cut.validate(full=True)
    assert cut.equals(batch, check_metadata=True)
    assert cut.column("x").offset == cut.column("x").field(0).offset == 0


def test_structs_without_members_stay() -> None:
    batch = pa.record_batch({"x": pa.array([{"a": {}}, {"a": None}, None, {"a": {}}])}).slice(1)
    assert cut_members(batch).equals(batch)


def test_extension_types_stay() -> None:
    kind = pa.opaque(ROWS["twice"].type, "pair", "somebody")
    batch = pa.record_batch({"x": pa.ExtensionArray.from_storage(kind, ROWS["twice"])}).slice(5)
    assert nests_structs(batch.schema)
    assert cut_members(batch).equals(batch)
    assert cut_members(batch).schema == batch.schema


def test_a_struct_of_values_needs_no_cut() -> None:
    assert not nests_structs(pa.schema({"x": pa.struct({"a": pa.list_(pa.int8())})}))
