"""Names with backticks: no other column is read, matched, changed or indexed in their place."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import glaive

NAMES = ["a`b", "ab", "`a`", "a"]
"""Without their backticks, some of these are the same as others."""


def columns_of_numbers(root: Path) -> glaive.LanceDataset:
    """A column of numbers for each of the names, and other numbers in each."""
    numbers = {name: [10 * at, 10 * at + 1] for at, name in enumerate(NAMES)}
    return glaive.write_dataset(pa.table(numbers), root / "numbers.lance")


def columns_of_structs(root: Path) -> glaive.LanceDataset:
    """A struct for each of the names, with a member for each of the names."""
    structs: dict[str, Any] = {
        name: [{member: 100 * at + 10 * below for below, member in enumerate(NAMES)}]
        for at, name in enumerate(NAMES)
    }
    return glaive.write_dataset(pa.table(structs), root / "structs.lance")


def quoted(*names: str) -> str:
    """The names as filters spell them."""
    return ".".join("`" + name.replace("`", "``") + "`" for name in names)


@pytest.mark.parametrize("name", NAMES)
def test_rows_are_merged_by_the_key_that_was_named(tmp_path: Path, name: str) -> None:
    dataset = columns_of_numbers(tmp_path)
    dataset.merge(pa.table({"key": [0, 10, 20, 30], "found": NAMES}), name, "key")
    assert dataset.to_table(columns=["found"])["found"].to_pylist() == [name, None]


@pytest.mark.parametrize("name", NAMES)
def test_the_column_that_was_named_is_cast(tmp_path: Path, name: str) -> None:
    dataset = columns_of_numbers(tmp_path)
    before = dataset.to_table()
    dataset.alter_columns({"path": name, "data_type": pa.int32()})
    changed = [field.name for field in dataset.schema if field.type == pa.int32()]
    assert (changed, dataset.to_table().to_pydict()) == ([name], before.to_pydict())


@pytest.mark.parametrize("name", NAMES)
def test_the_values_that_were_named_are_replaced(tmp_path: Path, name: str) -> None:
    dataset = columns_of_numbers(tmp_path)
    expected = dataset.to_table().to_pydict() | {name: [7, 8]}
    (fragment,) = dataset.get_fragments()
    key = NAMES[NAMES.index(name) - 1]
    given = pa.table({"key": expected[key], name: [7, 8]})
    updated, fields = fragment.update_columns(given, key, "key")[:2]
    operation = glaive.LanceOperation.Update(
        updated_fragments=[updated], fields_modified=fields, removed_fragment_ids=[],
        new_fragments=[],
    )  # fmt: skip
    changed = glaive.LanceDataset.commit(dataset.uri, operation, read_version=dataset.version)
    assert changed.to_table().to_pydict() == expected


@pytest.mark.sampled(every=2)
@pytest.mark.parametrize("column", NAMES)
@pytest.mark.parametrize("member", NAMES)
def test_members_that_were_named_are_found_with_and_without_an_index(
    tmp_path: Path, column: str, member: str
) -> None:
    dataset = columns_of_structs(tmp_path)
    value = 100 * NAMES.index(column) + 10 * NAMES.index(member)
    path = quoted(column, member)
    assert dataset.to_table(columns={"found": path})["found"].to_pylist() == [value]
    assert dataset.count_rows(f"{path} = {value}") == 1
    dataset.create_scalar_index(path, "BTREE", name="members")
    assert dataset.count_rows(f"{path} = {value}") == 1
    (index,) = dataset.describe_indices()
    dataset.drop_index("members")
    dataset.create_scalar_index(index.field_names[0], "BTREE", name="again")
    assert dataset.describe_indices()[0].fields == index.fields


@pytest.mark.sampled(every=2)
@pytest.mark.parametrize("column", NAMES)
@pytest.mark.parametrize("member", NAMES)
def test_the_member_that_was_named_is_cast(tmp_path: Path, column: str, member: str) -> None:
    dataset = columns_of_structs(tmp_path)
    before = dataset.to_table()
    dataset.alter_columns({"path": quoted(column, member), "data_type": pa.int32()})
    changed = [
        (field.name, below.name)
        for field in dataset.schema
        for below in field.type
        if below.type == pa.int32()
    ]
    assert (changed, dataset.to_table().to_pydict()) == ([(column, member)], before.to_pydict())


def test_inserted_rows_have_all_columns(tmp_path: Path) -> None:
    numbers = pa.table({name: [at] for at, name in enumerate(NAMES)})
    root = tmp_path / "inserted.lance"
    glaive.write_dataset(numbers, root, enable_stable_row_ids=True)
    dataset = glaive.write_dataset(numbers, root, mode="append")
    inserted = dataset.delta(compared_against=1).get_inserted_rows().read_all()
    assert inserted.select(NAMES).to_pydict() == numbers.to_pydict()
