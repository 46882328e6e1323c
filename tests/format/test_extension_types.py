"""Extension types of a file: Arrow makes those that it knows and that fit, others are storage."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import glaive
from glaive.format.field import Field
from glaive.format.fields import LanceSchema

NAME, SAID = "ARROW:extension:name", "ARROW:extension:metadata"
TENSOR = "arrow.fixed_shape_tensor"


@pytest.mark.spec("rel-23", "type-8")
@pytest.mark.parametrize(
    ("name", "said", "kind"),
    [
        (TENSOR, "", "fixed_size_list:float:2"),
        (TENSOR, "[" * 1_000_000, "fixed_size_list:float:2"),
        (TENSOR, '{"shape": [2]}', "int32"),
        (TENSOR, '{"shape": [-1, -2]}', "fixed_size_list:float:2"),
        (TENSOR, '{"shape": [2], "permutation": [5]}', "fixed_size_list:float:2"),
        ("arrow.uuid", "", "int32"),
        ("arrow.json", "x", "int32"),
        ("acme.unknown", "\x80pickle", "int32"),
    ],
    ids=lambda text: text[:32],
)
def test_a_type_that_does_not_fit_is_its_storage(name: str, said: str, kind: str) -> None:
    metadata = {NAME: name.encode(), SAID: said.encode(), "unit": b"m"}
    field = Field(id=0, name="t", logical_type=kind, metadata=metadata)
    outer = Field(id=1, name="outer", logical_type="struct", children=(field,))
    schema = LanceSchema((field, outer))
    found = schema.logical_schema()
    assert found.types == schema.to_arrow().types
    assert (found.field("t").metadata or {})[NAME.encode()] == name.encode()


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
