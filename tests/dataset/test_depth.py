"""What is nested too deeply ends in an error of ours, on threads too: never in a RecursionError."""

from __future__ import annotations

import struct
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import glaive
from glaive.arrow.validation import MAX_NESTING, check_schema
from glaive.errors import (
    CorruptFileError,
    FilterError,
    GlaiveError,
    OptionError,
    SchemaError,
    UnsupportedFeatureError,
)
from glaive.format.pb import table_pb2

TABLE = pa.table(
    {
        "a": [1, 2, 3],
        "s": ["x", "y", "z"],
        "v": pa.array([[1.0, 2.0]] * 3, pa.list_(pa.float32(), 2)),
    }
)
FOOTER, SIZE = struct.Struct("<QHH4s"), struct.Struct("<I")
DEEP = [MAX_NESTING + 1, 1000, 100_000]


@pytest.fixture
def place(tmp_path: Path) -> Path:
    glaive.write_dataset(TABLE, tmp_path / "t")
    return tmp_path / "t"


def rewrite(place: Path, change: Callable[[Any], object], more: bytes = b"") -> None:
    """Change the message of the newest manifest, and put ``more`` behind it."""
    (path,) = (place / "_versions").glob("*.manifest")
    raw = path.read_bytes()
    position, *footer = FOOTER.unpack(raw[-FOOTER.size :])
    (size,) = SIZE.unpack_from(raw, position)
    wire = table_pb2.Manifest.FromString(raw[position + SIZE.size :][:size])
    change(wire)
    message = wire.SerializeToString() + more
    written = raw[:position] + SIZE.pack(len(message)) + message
    path.write_bytes(written + FOOTER.pack(position, *footer))


def nested(make: Callable[[pa.DataType], pa.DataType], levels: int) -> pa.DataType:
    kind: pa.DataType = pa.int32()
    for _ in range(levels):
        kind = make(kind)
    return kind


NESTINGS: dict[str, Callable[[pa.DataType], pa.DataType]] = {
    "list": pa.list_,
    "fixed-size list": lambda kind: pa.list_(kind, 1),
    "struct": lambda kind: pa.struct([("a", kind)]),
    "map": lambda kind: pa.map_(pa.string(), kind),
}


@pytest.mark.parametrize("levels", DEEP)
@pytest.mark.parametrize("part", ["fixed_size_list:{}:2", "dict:{}:int32:false"])
def test_a_logical_type_in_a_manifest_has_a_depth(place: Path, part: str, levels: int) -> None:
    before, after = part.split("{}")

    def change(wire: Any) -> None:
        wire.fields[2].logical_type = before * levels + "float" + after * levels

    rewrite(place, change)
    with pytest.raises(UnsupportedFeatureError, match="nested deeper than 64 levels"):
        glaive.dataset(place).to_table()


@pytest.mark.parametrize("levels", [MAX_NESTING, 1000])
def test_fields_in_a_manifest_have_a_depth(place: Path, levels: int) -> None:
    def change(wire: Any) -> None:
        wire.fields[0].logical_type = "struct"
        parent = wire.fields[0].id
        for at in range(levels):
            wire.fields.add(
                id=100 + at, parent_id=parent, name=f"c{at}", logical_type="struct", nullable=True
            )
            parent = 100 + at

    rewrite(place, change)
    with pytest.raises(UnsupportedFeatureError, match=f"nested {levels + 1} levels deep"):
        _ = glaive.dataset(place).schema


@pytest.mark.sampled(every=3)
@pytest.mark.parametrize("levels", [MAX_NESTING, 300])
@pytest.mark.parametrize("make", NESTINGS.values(), ids=NESTINGS)
def test_types_that_users_write_have_a_depth(
    tmp_path: Path, make: Callable[[pa.DataType], pa.DataType], levels: int
) -> None:
    schema = pa.schema([("x", nested(make, levels))])
    with pytest.raises(SchemaError, match="column 'x': nested deeper than 64 levels"):
        glaive.write_dataset(schema.empty_table(), tmp_path / "t")
    assert not (tmp_path / "t").exists()


@pytest.mark.parametrize("make", NESTINGS.values(), ids=NESTINGS)
def test_types_up_to_the_limit_pass(make: Callable[[pa.DataType], pa.DataType]) -> None:
    check_schema(pa.schema([("x", nested(make, MAX_NESTING // 2 - 1))]))


@pytest.mark.parametrize("version", ["0.1", "2.0", "2.1", "2.2", "2.3"])
def test_vectors_of_vectors_have_a_depth_that_every_version_describes(
    tmp_path: Path, version: str
) -> None:
    most, place = nested(NESTINGS["fixed-size list"], 16), tmp_path / "t"
    value: Any = 7
    for _ in range(16):
        value = [value]
    table = pa.table({"x": pa.array([value], most)})
    glaive.write_dataset(table, place, data_storage_version=version)
    assert glaive.dataset(place).to_table() == table
    deeper = pa.schema([("y", pa.list_(most, 1))]).empty_table()
    with pytest.raises(SchemaError, match="'y': more than 16 fixed_size_lists in one another"):
        glaive.write_dataset(deeper, tmp_path / "other", data_storage_version=version)


def test_dictionaries_and_extensions_are_looked_into() -> None:
    deep = nested(pa.list_, MAX_NESTING)
    for kind in (pa.dictionary(pa.int32(), deep), pa.opaque(deep, "name", "vendor")):
        with pytest.raises(SchemaError, match="nested deeper"):
            check_schema(pa.schema([("x", kind)]))


def test_two_columns_of_one_name_in_a_manifest_are_damage(place: Path) -> None:
    rewrite(place, lambda wire: setattr(wire.fields[1], "name", "a"))
    with pytest.raises(CorruptFileError, match="unique names among siblings, found 'a' twice"):
        glaive.dataset(place).to_table()


FILTERS: dict[str, Callable[[int], str]] = {
    "brackets": lambda n: "(" * n + "a = 1" + ")" * n,
    "NOT": lambda n: "NOT " * n + "a = 1",
    "minus": lambda n: "-" * n + "a > 0",
    "sums": lambda n: "a" + " + 1" * n + " > 0",
    "calls": lambda n: "abs(" * n + "a" + ")" * n + " > 0",
    "casts": lambda n: "CAST(" * n + "a" + " AS BIGINT)" * n + " > 0",
    "CASE": lambda n: "CASE WHEN a = 1 THEN " * n + "1" + " ELSE 2 END" * n + " = 1",
    "list types": lambda n: "CAST(v AS " + "LIST<" * n + "int" + ">" * n + ") IS NULL",
    "subscripts": lambda n: "v" + "[0]" * n + " = 1",
}


@pytest.mark.sampled(every=2)
@pytest.mark.parametrize("levels", [200, 20_000])
@pytest.mark.parametrize("text", FILTERS.values(), ids=FILTERS)
def test_expressions_have_a_depth(place: Path, text: Callable[[int], str], levels: int) -> None:
    dataset, caught = glaive.dataset(place), []

    def evaluate() -> None:
        with pytest.raises(FilterError) as error:
            dataset.to_table(filter=text(levels))
        caught.append(error)

    evaluate()
    thread = threading.Thread(target=evaluate)  # its stack is smaller
    thread.start()
    thread.join()
    assert len(caught) == 2


def test_long_expressions_are_not_deep(place: Path) -> None:
    dataset = glaive.dataset(place)
    numbers = ",".join(map(str, range(2, 100_000)))
    assert dataset.count_rows(filter=f"a IN ({numbers})") == 2
    assert dataset.count_rows(filter=" OR ".join([f"a = {i}" for i in range(2, 5000)])) == 2


def test_nested_groups_in_a_message_are_refused(place: Path) -> None:
    rewrite(place, lambda _: None, b"\xa3\x06" * 100_000 + b"\xa4\x06" * 100_000)
    with pytest.raises(CorruptFileError):
        glaive.dataset(place)


@pytest.mark.parametrize("text", ["[" * 100_000, '{"a":' * 100_000])
@pytest.mark.parametrize("path", ["tags/x.json", "branches/x.json"])
def test_json_beside_the_manifests_has_a_depth(place: Path, path: str, text: str) -> None:
    file = place / "_refs" / path
    file.parent.mkdir(parents=True)
    file.write_text(text, "utf-8")
    dataset = glaive.dataset(place)
    with pytest.raises(GlaiveError, match="x"):
        dataset.tags.list() if "tags" in path else dataset.branches.list()
    (place / "_versions" / "latest_version_hint.json").write_text(text, "utf-8")
    assert glaive.dataset(place).count_rows() == 3


def test_json_that_users_give_has_a_depth() -> None:
    for kind in (
        glaive.FragmentMetadata,
        glaive.fragment.DeletionFile,
        glaive.fragment.RowDatasetVersionMeta,
        glaive.fragment.RowIdMeta,
        glaive.optimize.RewriteResult,
    ):
        with pytest.raises(OptionError):
            kind.from_json("[" * 100_000)


def test_types_of_new_columns_have_a_depth(place: Path) -> None:
    deep = nested(pa.list_, 300)
    with pytest.raises(SchemaError, match="column 'deep': nested deeper than 64 levels"):
        glaive.dataset(place).add_columns(pa.field("deep", deep))


def test_names_of_types_in_expressions_have_a_depth(place: Path) -> None:
    deep = "List(" * 5000 + "Int32" + ")" * 5000
    with pytest.raises(FilterError, match="Recursion level in ArrowSchema"):
        glaive.dataset(place).to_table(columns={"x": f"arrow_cast(v, '{deep}')"})
