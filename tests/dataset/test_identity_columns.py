"""Identity columns: commits number the rows, once, whoever writes and whatever fails."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

import lance
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from click.testing import CliRunner
from tests.kit.crashes import left_by_kills

import glaive
from glaive.cli.main import cli
from glaive.dataset.writing import rows as writing
from glaive.dataset.writing.rules import numbered, places_of
from glaive.errors import (
    CommitConflictError,
    CorruptFileError,
    OptionError,
    SchemaError,
    UnsupportedFeatureError,
)
from glaive.format.fields import LanceSchema
from glaive.io.access import open_store
from glaive.io.store import ObjectStore
from glaive.table.configuration import IDENTITY, NEXT_NUMBER, IdentityGenerator, Rules
from glaive.testing import Kind, each_request, open_on


def columns(text: str = "{}", data_type: pa.DataType | None = None) -> pa.Schema:
    """Return a schema whose first column commits number."""
    number = pa.field("id", data_type or pa.int64(), metadata={IDENTITY: text})
    return pa.schema([number, pa.field("v", pa.string())])


def made(place: Path, text: str = "{}", **options: Any) -> glaive.LanceDataset:
    return glaive.write_dataset(columns(text).empty_table(), place / "t", **options)


def as_pylance_reads(dataset: glaive.LanceDataset) -> list[tuple[Any, ...]]:
    table = lance.dataset(dataset.uri).to_table(columns=["id", "v"]).sort_by("v")
    return [tuple(row.values()) for row in table.to_pylist()]


def next_row(dataset: glaive.LanceDataset) -> int:
    metadata = glaive.dataset(dataset.uri).manifest.table_metadata
    (entry,) = (int(text) for key, text in metadata.items() if key.startswith(NEXT_NUMBER))
    return entry


@pytest.mark.parametrize("stable", [False, True])
@pytest.mark.parametrize(
    ("text", "expected"), [("{}", (1, 2, 3, 4, 5)), ('{"start": 7, "step": -3}', (7, 4, 1, -2, -5))]
)
def test_commits_number_rows(
    text: str, expected: tuple[int, ...], stable: bool, tmp_path: Path
) -> None:
    dataset = made(tmp_path, text, enable_stable_row_ids=stable)
    dataset.insert({"v": ["a", "b"]})
    rows = pa.table({"v": ["b", "c"]})
    merge = dataset.merge_insert("v").when_matched_update_all().when_not_matched_insert_all()
    merge.execute(rows)
    transaction = glaive.fragment.write_fragments(
        pa.table({"v": ["d"]}), dataset, return_transaction=True
    )
    glaive.LanceDataset.commit(dataset, transaction)
    dataset = glaive.dataset(dataset.uri)
    dataset.update({"v": "'A'"}, where="v = 'a'")
    glaive.write_dataset(pa.table({"v": ["e"]}).to_reader(), dataset.uri, mode="append")
    found = as_pylance_reads(dataset)
    assert found == list(zip(expected, ["A", "b", "c", "d", "e"], strict=True))
    glaive.dataset(dataset.uri).validate()


def test_a_column_by_default_takes_values_that_rows_bring(tmp_path: Path) -> None:
    dataset = made(tmp_path, '{"always": false}')
    dataset.insert({"id": [10, None], "v": ["a", "b"]})
    dataset.insert({"v": ["c"]})
    dataset.update({"id": "id + 100"}, where="v = 'a'")
    assert as_pylance_reads(dataset) == [(110, "a"), (2, "b"), (3, "c")]
    dataset.validate()


GIVEN = pa.table({"id": [9], "v": ["x"]})


def _merge(dataset: glaive.LanceDataset) -> Any:
    return dataset.merge_insert("v").when_matched_update_all()


@pytest.mark.parametrize(
    "write",
    [
        lambda at: at.insert(GIVEN),
        lambda at: glaive.write_dataset(GIVEN, at, mode="append"),
        lambda at: glaive.write_dataset(GIVEN.cast(at.schema), at, mode="overwrite"),
        lambda at: _merge(at).execute(GIVEN),
        lambda at: at.merge_insert("id").when_not_matched_insert_all().execute(GIVEN),
        lambda at: at.update({"id": "5"}),
    ],
    ids=["insert", "append", "overwrite", "merge", "merge by it", "update"],
)
def test_a_column_always_generated_refuses_values(
    write: Callable[[glaive.LanceDataset], object], tmp_path: Path
) -> None:
    dataset = made(tmp_path)
    dataset.insert({"v": ["x"]})
    with pytest.raises(SchemaError, match="'id' is GENERATED ALWAYS"):
        write(dataset)
    dataset.merge_insert("id").when_matched_update_all().execute(pa.table({"id": [1], "v": ["y"]}))
    assert as_pylance_reads(dataset) == [(1, "y")]


def test_a_merge_numbers_the_inserted_rows_that_bring_no_value(tmp_path: Path) -> None:
    dataset = made(tmp_path, '{"always": false}')
    dataset.insert({"v": ["a"]})
    rows = pa.table({"id": pa.array([None, 70, None, 1], pa.int64()), "v": ["b", "c", "d", "a"]})
    merge = dataset.merge_insert("v").when_matched_update_all().when_not_matched_insert_all()
    merge.execute(rows)
    dataset.insert({"v": ["e"]})
    assert as_pylance_reads(dataset) == [(1, "a"), (2, "b"), (70, "c"), (3, "d"), (5, "e")]
    dataset.validate()


def test_numbers_go_on_after_overwrites_and_restores(tmp_path: Path) -> None:
    dataset = made(tmp_path)
    dataset.insert({"v": ["a", "b"]})
    before = dataset.version
    rows = pa.table({"id": pa.array([None], pa.int64()), "v": ["c"]}, schema=dataset.schema)
    dataset = glaive.write_dataset(rows, dataset, mode="overwrite")
    assert as_pylance_reads(dataset) == [(3, "c")]
    old = dataset.checkout_version(before)
    old.restore()
    dataset = glaive.dataset(dataset.uri)
    dataset.insert({"v": ["d"]})
    assert as_pylance_reads(dataset) == [(1, "a"), (2, "b"), (4, "d")]
    branch = dataset.create_branch("b")
    branch.insert({"v": ["e"]})
    dataset.insert({"v": ["f", "g"]})
    assert next_row(dataset) == 6
    assert branch.to_table(filter="v = 'e'")["id"].to_pylist() == [5]
    dataset.alter_columns({"path": "id", "name": "key"})
    dataset.insert({"v": ["h"]})
    assert dataset.to_table(filter="v = 'h'")["key"].to_pylist() == [7]
    fresh = glaive.write_dataset(columns().empty_table(), dataset, mode="overwrite")
    fresh.insert({"v": ["i"]})
    assert as_pylance_reads(fresh) == [(1, "i")]


def test_numbers_go_on_after_a_branch_is_published(tmp_path: Path) -> None:
    dataset = made(tmp_path)
    dataset.insert({"v": ["a"]})
    dataset.create_branch("b").insert({"v": ["b", "c"]})
    dataset.branches.publish("b")
    dataset = glaive.dataset(dataset.uri)
    dataset.insert({"v": ["d"]})
    assert as_pylance_reads(dataset) == [(1, "a"), (2, "b"), (3, "c"), (4, "d")]
    dataset.validate()


def test_writers_at_once_get_different_numbers(tmp_path: Path) -> None:
    dataset = made(tmp_path)

    def insert(writer: int) -> None:
        for row in range(4):
            name = {"v": [f"{writer} {row}"]}
            if row % 2:
                glaive.write_dataset(pa.table(name), dataset.uri, mode="append")
            else:
                merge = glaive.dataset(dataset.uri).merge_insert("v").when_not_matched_insert_all()
                merge.conflict_retries(100).execute(pa.table(name))

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(insert, range(4)))
    found = as_pylance_reads(dataset)
    assert sorted(number for number, _ in found) == list(range(1, 17))
    assert len({name for _, name in found}) == 16


@pytest.mark.parametrize(
    "kind",
    [dict, pd.DataFrame, pl.DataFrame, pa.table, pa.record_batch],
    ids=["dict", "pandas", "polars", "table", "batch"],
)
def test_rows_of_any_library_are_written_again_after_another_writer(
    kind: Callable[[dict[str, list[str]]], Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset, uri = made(tmp_path), str(tmp_path / "t")
    commit, late = writing.commit_plan, [{"v": ["a"]}]

    def commit_late(*given: Any, **more: Any) -> Any:
        if late:
            glaive.dataset(uri).insert(late.pop())
        return commit(*given, **more)

    monkeypatch.setattr(writing, "commit_plan", commit_late)
    dataset.insert(kind({"v": ["b", "c"]}))
    assert as_pylance_reads(dataset) == [(1, "a"), (2, "b"), (3, "c")]


def test_rows_that_are_read_once_fail_after_another_writer(tmp_path: Path) -> None:
    dataset = made(tmp_path)
    other = glaive.dataset(dataset.uri)
    other.insert({"v": ["a"]})
    with pytest.raises(CommitConflictError, match=r"the next row is number 1, .* begin with 0"):
        dataset.insert(pa.table({"v": ["b"]}).to_reader())
    lance.write_dataset(pa.table({"id": [2], "v": ["c"]}), dataset.uri, mode="append")
    other.insert(pa.table({"v": ["d"]}).to_reader())
    assert as_pylance_reads(dataset) == [(1, "a"), (2, "c"), (2, "d")]


def test_fragments_and_batches_cannot_be_numbered(tmp_path: Path) -> None:
    dataset = made(tmp_path, '{"always": false}')
    with pytest.raises(SchemaError, match="rows have the columns v, expected id, v"):
        glaive.fragment.write_fragments(pa.table({"v": ["a"]}), dataset)
    written = glaive.fragment.write_fragments(GIVEN, dataset)
    append = glaive.LanceOperation.Append(written)
    dataset = glaive.LanceDataset.commit(dataset.uri, append, read_version=dataset.version)
    assert as_pylance_reads(dataset) == [(9, "x")]
    two = [
        glaive.fragment.write_fragments(pa.table({"v": [name]}), dataset, return_transaction=True)
        for name in "ab"
    ]
    with pytest.raises(UnsupportedFeatureError, match="transaction 1 of the batch"):
        glaive.LanceDataset.commit_batch(dataset, two)


def test_each_failed_request_of_an_insert_loses_and_doubles_nothing() -> None:
    base = glaive.write_dataset(columns().empty_table(), f"memory://{uuid4().hex}/t")
    base.insert({"v": ["a"]})

    def copied() -> ObjectStore:
        target = open_store(f"memory://{uuid4().hex}/t")
        for one in base.store.walk(""):
            target.put(one.path, [base.store.get(one.path)])
        return target

    seen = set()
    kinds: tuple[Kind, ...] = ("fail", "lie", "repeat")
    for kind in kinds:
        for outcome in each_request(copied, lambda at: at.insert({"v": ["b", "c"]}), kind):
            at = open_on(outcome.store)
            rows = at.count_rows()
            seen.add(rows)
            assert outcome.error is not None or rows == 3
            at.insert({"v": ["d"]})
            assert at.to_table()["id"].to_pylist() == list(range(1, rows + 2))
    assert seen == {1, 3}


def test_an_insert_that_is_killed_at_any_step_numbers_rows_once(tmp_path: Path) -> None:
    begun = made(tmp_path)
    insert = partial(begun.insert, {"v": ["a"]})
    left = left_by_kills(Path(begun.uri), insert, tmp_path / "left")
    for place in left:
        dataset = glaive.dataset(place)
        dataset.insert({"v": ["b"]})
        found = [number for number, _ in as_pylance_reads(dataset)]
        assert found == list(range(1, len(found) + 1)), place
        dataset.validate()
    assert len(left) > 3


@pytest.mark.parametrize("rows", [1, 16, 17, 1_040, 1_041, 70_000])
def test_tasks_have_numbers_of_their_own(rows: int) -> None:
    tasks = 7
    places = np.concatenate([places_of(np.arange(rows), task) for task in range(tasks)])
    assert len(np.unique(places)) == len(places)
    rules = Rules.of(LanceSchema.from_arrow(columns()), {}, {})
    (text,) = numbered(rules, [rows] * tasks, tasks=tasks).values()
    assert text == f'{{"": [0, {places.max() + 1}]}}'


@pytest.mark.parametrize("number", [None, 9])
def test_checks_tell_of_numbers_that_pylance_wrote(number: int | None, tmp_path: Path) -> None:
    dataset = made(tmp_path)
    dataset.insert({"v": ["a"]})
    row = pa.table({"id": pa.array([number], pa.int64()), "v": ["b"]})
    lance.write_dataset(row, dataset.uri, mode="append")
    at = glaive.dataset(dataset.uri)
    message = f"identity column 'id' is broken by row 1, id = {number}"
    with pytest.raises(SchemaError, match=message):
        at.validate()
    told = CliRunner().invoke(cli, ["verify", at.uri, "--newest"])
    assert (told.exit_code, message in told.output) == (1, True)
    at.delete("v = 'b'")
    at.validate()


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        (columns("{"), "'id': its glaive.identity"),
        (columns('{"step": 0}'), "is invalid"),
        (columns('{"start": "1"}'), "is invalid"),
        (columns(data_type=pa.int32()), "type int32. Use int64"),
        (
            pa.schema(
                [
                    columns().field("v"),
                    columns().field("id").with_metadata({IDENTITY: "{}", "glaive.default": "1"}),
                ]
            ),
            "excludes the identity",
        ),
    ],
)
def test_invalid_identity_columns_are_refused(
    schema: pa.Schema, message: str, tmp_path: Path
) -> None:
    with pytest.raises(SchemaError, match=message):
        glaive.write_dataset(schema.empty_table(), tmp_path / "t")


def test_identity_columns_keep_their_type_and_end_with_it(tmp_path: Path) -> None:
    dataset = made(tmp_path, f'{{"start": {2**63 - 2}}}')
    with pytest.raises(SchemaError, match="cannot be cast"):
        dataset.alter_columns({"path": "id", "data_type": pa.int32()})
    dataset.insert({"v": ["a", "b"]})
    with pytest.raises(SchemaError, match="has no number for 1 rows"):
        dataset.insert({"v": ["c"]})
    assert as_pylance_reads(dataset) == [(2**63 - 2, "a"), (2**63 - 1, "b")]
    (key,) = (key for key in dataset.manifest.table_metadata if key.startswith(NEXT_NUMBER))
    theirs = lance.dataset(dataset.uri)
    theirs.update_metadata({key: "many"})
    with pytest.raises(CorruptFileError, match="number of the next row"):
        glaive.dataset(dataset.uri).insert({"v": ["d"]})


def test_ingested_rows_are_numbered(tmp_path: Path) -> None:
    dataset = made(tmp_path)
    for name in "abc":
        (tmp_path / f"{name}.csv").write_text(f"v\n{name}1\n{name}2\n")
    sources = [str(tmp_path / f"{name}.csv") for name in "abc"]
    glaive.ingest(sources, dataset.uri, mode="append", job_id="j", task_bytes=1)
    glaive.ingest(sources[:1], dataset.uri, mode="append")
    found = as_pylance_reads(dataset)
    assert len({number for number, _ in found}) == 8
    assert max(number for number, _ in found) == next_row(dataset)
    glaive.dataset(dataset.uri).validate()
    with pytest.raises(OptionError, match="merge of files cannot number"):
        glaive.ingest(sources[:1], dataset.uri, mode="merge", merge_keys="v")


def test_the_text_of_a_generator_is_its_metadata() -> None:
    assert IdentityGenerator(5, 2, always=False).text == (
        '{"start": 5, "step": 2, "always": false, "id": ""}'
    )
