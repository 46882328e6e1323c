"""Maps whose keys are null in a file are refused: Arrow would end the process.

It would, too, over entries of another type than the map's, however they are called in the file.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.damage import rewritten
from tests.proof.test_refusals import rewritten as rewritten_manifest

import glaive
from glaive.errors import CorruptFileError
from glaive.file.open import create_writer, open_reader
from glaive.format.fields import LanceSchema
from glaive.format.pb import table_pb2
from glaive.io.local import LocalStore

pytestmark = pytest.mark.spec("rel-23")

MAPS: Any = pa.array([[(1, 5), (2, None)], None, [(3, 7)]] * 20, pa.map_(pa.int32(), pa.int32()))


def written(folder: Path) -> bytes:
    source = pa.table({"m": MAPS})
    writer = create_writer(
        LocalStore(str(folder)), "whole.lance", LanceSchema.from_arrow(source.schema), "2.2"
    )
    writer.write(source)
    writer.finish()
    return (folder / "whole.lance").read_bytes()


def read(folder: Path, content: bytes) -> list[pa.Array]:
    (folder / "hurt.lance").write_bytes(content)
    columns = open_reader(LocalStore(str(folder)), "hurt.lance")
    bound = columns.bind(columns.schema.fields)
    return bound.read(0, bound.num_rows)


def other_names(descriptor: Any, _: list[Any]) -> None:
    """The parts of the map are called as writers of Rust call them by default."""
    for field in descriptor.schema.fields:
        field.name = {"key": "keys", "value": "values"}.get(field.name, field.name)


def nullable_keys(descriptor: Any, _: list[Any]) -> None:
    """Keys may be null, though none is."""
    for field in descriptor.schema.fields:
        field.nullable = True


@pytest.mark.spec("type-6")
@pytest.mark.parametrize("change", [other_names, nullable_keys])
def test_entries_are_those_of_the_type_of_the_map(change: Any, tmp_path: Path) -> None:
    (array,) = read(tmp_path, rewritten(written(tmp_path), change))
    assert array.type.equals(MAPS.type)
    assert [value.as_py() for value in array] == MAPS.to_pylist()  # as values, one by one


def values_for_keys(_: Any, columns: list[Any]) -> None:
    """The keys are where the values are, and some of these are null."""
    columns[-2].CopyFrom(columns[-1])


def test_keys_that_are_null_are_damage(tmp_path: Path) -> None:
    whole = written(tmp_path)
    assert read(tmp_path, whole)[0].equals(MAPS)
    with pytest.raises(CorruptFileError, match=r"keys of maps: .*hurt\.lance"):
        read(tmp_path, rewritten(whole, values_for_keys))


def without_keys(wire: Any) -> None:
    """The manifest says that no column of the file has the keys."""
    fragment = table_pb2.DataFragment.FromString(wire.fragments[0])
    (key,) = [field.id for field in wire.fields if field.name == "key"]
    fields = fragment.files[0].fields
    fields[list(fields).index(key)] = -2
    wire.fragments[0] = fragment.SerializeToString()


def test_keys_that_no_column_has_are_damage(tmp_path: Path) -> None:
    dataset = glaive.write_dataset({"m": MAPS}, tmp_path / "t", data_storage_version="2.2")
    assert dataset.to_table()["m"].combine_chunks().equals(MAPS)
    rewritten_manifest(tmp_path / "t", without_keys)
    with pytest.raises(CorruptFileError, match="keys of maps"):
        glaive.dataset(tmp_path / "t").to_table()
