"""``LanceTable.applyChanges``: a feed of changes in any order gives what a model of it gives."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

import glaive
from glaive.errors import ColumnNotFoundError, GlaiveError, OptionError, SchemaError
from glaive.spark import LanceTable

pytestmark = pytest.mark.spark

FEED = "id bigint, ts bigint, op string, name string, n int"
Change = tuple[int, int, str, str | None, int | None]
"""Key, sequence, operation and two values."""


def feed(spark: SparkSession, changes: list[Change]) -> DataFrame:
    return spark.createDataFrame(changes, FEED)


def empty(spark: SparkSession, uri: str, scd: int = 1) -> LanceTable:
    columns = {"id": pa.int64(), "ts": pa.int64(), "name": pa.string(), "n": pa.int32()}
    if scd == 2:
        columns |= {"valid_from": pa.int64(), "valid_to": pa.int64(), "is_current": pa.bool_()}
    schema = pa.schema(columns)
    glaive.write_dataset(schema.empty_table(), uri)
    return LanceTable.forPath(spark, uri)


def rows(uri: str, *columns: str) -> list[tuple[Any, ...]]:
    table = lance.dataset(uri).to_table(columns=list(columns))
    found = zip(*(table[name].to_pylist() for name in columns), strict=True)
    return sorted(found, key=lambda row: [(value is not None, value) for value in row])


def random_changes(seed: int, keys: int = 6, count: int = 40) -> list[Change]:
    """Return changes with unique sequences, in the order of their sequences."""
    rng = random.Random(seed)
    return [
        (
            rng.randrange(keys),
            at,
            rng.choice("uuud"),
            rng.choice([None, f"name {at}"]),
            rng.choice([None, at * 10]),
        )
        for at in range(count)
    ]


def newest(changes: list[Change], *, keeps_values: bool) -> list[tuple[Any, ...]]:
    """Return the rows that changes in order leave."""
    held: dict[int, tuple[Any, ...]] = {}
    for key, at, op, *values in changes:
        if op == "d":
            held.pop(key, None)
            continue
        old = held.get(key, (None, None, None))[1:] if keeps_values else (None, None)
        new = (was if value is None else value for value, was in zip(values, old, strict=True))
        held[key] = (at, *new)
    return sorted((key, *values) for key, values in held.items())


def history(changes: list[Change]) -> list[tuple[Any, ...]]:
    """Return all values with the sequences between which they held."""
    found = []
    for at, (key, start, op, name, n) in enumerate(changes):
        later = [change[1] for change in changes[at + 1 :] if change[0] == key]
        if op != "d":
            found.append((key, start, later[0] if later else None, not later, name, n))
    return sorted(found, key=lambda row: row[:2])


@pytest.mark.parametrize("seed", range(2))
def test_late_and_repeated_changes_leave_the_newest_rows(
    spark: SparkSession, uri: str, seed: int
) -> None:
    table, changes = empty(spark, uri), random_changes(seed)
    shuffled = random.Random(seed).sample(changes, len(changes))
    for start in range(0, 40, 10):
        # Each batch repeats changes of the batch before.
        batch = feed(spark, shuffled[max(0, start - 5) : start + 10])
        table.applyChanges(batch, "id", "ts", "op = 'd'")
    assert rows(uri, "id", "ts", "name", "n") == newest(changes, keeps_values=False)
    version = table.version
    counts = table.applyChanges(
        feed(spark, shuffled), ["id"], sequence_by="ts", delete_where="op = 'd'"
    )
    assert isinstance(counts, dict)
    assert [counts[f"num_{done}_rows"] for done in ("inserted", "updated", "deleted")] == [0, 0, 0]
    assert glaive.dataset(uri, version=version).to_table() == glaive.dataset(uri).to_table()


def test_nulls_keep_values_until_the_row_is_deleted(spark: SparkSession, uri: str) -> None:
    table, changes = empty(spark, uri), random_changes(7)
    for start in range(0, 40, 8):
        batch = feed(spark, changes[start : start + 8])
        table.applyChanges(batch, "id", "ts", "op = 'd'", ignore_null_updates=True)
    assert rows(uri, "id", "ts", "name", "n") == newest(changes, keeps_values=True)


def test_a_history_keeps_all_values_in_whatever_order_they_come(
    spark: SparkSession, uri: str
) -> None:
    table, changes = empty(spark, uri, scd=2), random_changes(5, keys=4, count=24)
    shuffled = random.Random(5).sample(changes, len(changes))
    for start in range(0, 24, 8):
        before = table.version
        batch = feed(spark, shuffled[max(0, start - 3) : start + 8])
        table.applyChanges(batch, "id", "ts", "op = 'd'", scd=2)
        assert table.version == before + 1
    found = glaive.dataset(uri).to_table().sort_by([("id", "ascending"), ("ts", "ascending")])
    columns = ("id", "valid_from", "valid_to", "is_current", "name", "n")
    assert [tuple(row[name] for name in columns) for row in found.to_pylist()] == history(changes)


def test_rows_without_a_start_stay_as_they_are(spark: SparkSession, uri: str) -> None:
    table = empty(spark, uri, scd=2)
    glaive.dataset(uri).insert({"id": [1], "ts": [0], "name": ["old"]})
    for at in (1, 2):
        table.applyChanges(feed(spark, [(1, at, "u", "new", at)]), "id", "ts", "op = 'd'", scd=2)
    found = rows(uri, "name", "valid_from", "valid_to", "is_current")
    assert found == [("new", 1, 2, False), ("new", 2, None, True), ("old", None, None, None)]


def test_a_delete_wins_over_a_change_with_its_sequence(spark: SparkSession, tmp_path: Path) -> None:
    changes: list[Change] = [(1, 5, "u", "a", 1), (1, 5, "d", None, None), (2, 5, "u", "b", 2)]
    for name, batches in {"one": [changes], "each": [[change] for change in changes]}.items():
        newest_uri, history_uri = str(tmp_path / name), str(tmp_path / f"{name} history")
        table, past = empty(spark, newest_uri), empty(spark, history_uri, scd=2)
        for batch in batches:
            table.applyChanges(feed(spark, batch), "id", "ts", "op = 'd'")
            past.applyChanges(feed(spark, batch), "id", "ts", "op = 'd'", scd=2)
        assert rows(newest_uri, "id", "ts", "name", "n") == [(2, 5, "b", 2)]
        kept = rows(history_uri, "id", "valid_from", "valid_to", "is_current")
        assert kept == [(1, 5, 5, False), (2, 5, None, True)]


def test_a_stream_applies_its_batches_once(spark: SparkSession, uri: str, tmp_path: Path) -> None:
    table, changes = empty(spark, uri), random_changes(3)
    source = str(tmp_path / "feed.lance")
    checkpoint = str(tmp_path / "checkpoint")
    for start in (0, 25):
        glaive.spark.write(feed(spark, changes[start : start + 25]), source, mode="append")
        stream = spark.readStream.format("lance").load(source)
        writer: Any = table.applyChanges(stream, "id", "ts", delete_where="op = 'd'")
        query = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
        query.awaitTermination()
    assert rows(uri, "id", "ts", "name", "n") == newest(changes, keeps_values=False)


def test_deletes_of_a_killed_run_apply_when_it_runs_again(
    spark: SparkSession, uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = empty(spark, uri)
    table.applyChanges(
        feed(spark, [(1, 1, "u", "a", 1), (2, 1, "u", "b", 2)]), "id", "ts", "op = 'd'"
    )
    changes = feed(spark, [(1, 5, "d", None, None), (1, 7, "u", None, 3), (2, 5, "d", None, None)])

    def stopped(*_given: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("glaive.spark.lance_table.apply_changes.ChangeRules._newest", stopped)
        with pytest.raises(KeyboardInterrupt):
            table.applyChanges(changes, "id", "ts", "op = 'd'")
    assert glaive.dataset(uri).count_rows() == 2
    table.applyChanges(changes, "id", "ts", "op = 'd'", ignore_null_updates=True)
    assert rows(uri, "id", "ts", "name", "n") == [(1, 7, None, 3)]


def test_branches_remember_deletes_of_their_own(spark: SparkSession, uri: str) -> None:
    empty(spark, uri)
    glaive.dataset(uri).create_branch("dev")
    for branch in (None, "dev"):
        table = LanceTable.forPath(spark, uri, branch=branch)
        if branch is None:
            table.applyChanges(feed(spark, [(1, 5, "d", None, None)]), "id", "ts", "op = 'd'")
        table.applyChanges(feed(spark, [(1, 3, "u", "late", 1)]), "id", "ts", "op = 'd'")
        assert table.toDF().count() == (0 if branch is None else 1)


def test_deletes_outlive_a_clean_up(spark: SparkSession, uri: str) -> None:
    table = empty(spark, uri)
    table.applyChanges(feed(spark, [(1, 5, "d", None, None)]), "id", "ts", "op = 'd'")
    glaive.write_dataset(
        table.toDF().toArrow().cast(glaive.dataset(uri).schema), uri, mode="append"
    )
    table.vacuum(0)
    table.applyChanges(feed(spark, [(1, 3, "u", "late", 1)]), "id", "ts", "op = 'd'")
    assert glaive.dataset(uri).count_rows() == 0


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ({"scd": 3}, OptionError, "scd: expected 1 or 2"),
        ({"scd": 2}, SchemaError, "lacks the column 'valid_from'"),
        ({"scd": 2, "ignore_null_updates": True}, OptionError, "keeps the nulls of a change"),
        ({"keys": []}, OptionError, "keys: expected a column, found none"),
        ({"keys": "ident"}, ColumnNotFoundError, "ident"),
        ({"sequence_by": "op"}, SchemaError, "lacks the column 'op'"),
        ({"delete_where": None}, ColumnNotFoundError, "lacks the columns op"),
        ({"columns": ["nmae"]}, ColumnNotFoundError, "did you mean 'name'"),
        ({"delete_where": "opp = 'd'"}, ColumnNotFoundError, "did you mean 'op'"),
    ],
)
def test_mistakes_are_named_before_anything_is_written(
    spark: SparkSession, uri: str, given: dict[str, Any], error: type[GlaiveError], message: str
) -> None:
    table = empty(spark, uri)
    options = {"keys": "id", "sequence_by": "ts", "delete_where": "op = 'd'", **given}
    with pytest.raises(error, match=message):
        table.applyChanges(feed(spark, [(1, 1, "d", "a", 1)]), **options)
    assert not Path(uri, "_deleted_keys").exists()


@pytest.mark.parametrize("change", [(None, 1, "u", "a", 1), (1, None, "d", "a", 1)])
def test_a_change_without_key_or_sequence_stops_the_call(
    spark: SparkSession, uri: str, change: Any
) -> None:
    table = empty(spark, uri)
    with pytest.raises(Exception, match="which identifies or orders it"):
        table.applyChanges(feed(spark, [change]), "id", "ts", "op = 'd'")
    assert glaive.dataset(uri).count_rows() == 0
