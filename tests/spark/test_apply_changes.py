"""``LanceTable.applyChanges``: a feed of changes in any order gives what a model of it gives."""

from __future__ import annotations

import pickle
import random
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import IntegerType, LongType, StringType, StructType
from tests.kit.crashes import left_by_kills

import glaive
from glaive.errors import (
    ColumnNotFoundError,
    DatasetNotFoundError,
    GlaiveError,
    OptionError,
    SchemaError,
)
from glaive.spark import LanceTable
from glaive.spark.source import LanceDataSource

pytestmark = pytest.mark.spark

FRAME = StructType().add("id", LongType()).add("ts", LongType()).add("op", StringType())
FRAME.add("name", StringType()).add("n", IntegerType())
FEED = "id bigint, ts bigint, op string, name string, n int"
Change = tuple[int, int, str, str | None, int | None]
"""Key, sequence, operation and two values."""


def feed(spark: SparkSession, changes: list[Change]) -> DataFrame:
    return spark.createDataFrame(changes, FEED)


def make(uri: str, scd: int = 1) -> None:
    columns = {"id": pa.int64(), "ts": pa.int64(), "name": pa.string(), "n": pa.int32()}
    if scd == 2:
        columns |= {"valid_from": pa.int64(), "valid_to": pa.int64(), "is_current": pa.bool_()}
    schema = pa.schema(columns)
    glaive.write_dataset(schema.empty_table(), uri)


def empty(spark: SparkSession, uri: str, scd: int = 1) -> LanceTable:
    make(uri, scd)
    return LanceTable.forPath(spark, uri)


def rows(uri: str, *columns: str) -> list[tuple[Any, ...]]:
    table = lance.dataset(uri).to_table(columns=list(columns))
    found = zip(*(table[name].to_pylist() for name in columns), strict=True)
    return sorted(found, key=lambda row: [(value is not None, value) for value in row])


class Writes:
    """Applies changes by options of ``format("lance")``, as Spark's processes run a write."""

    def __init__(self, uri: str, **options: str) -> None:
        self.options = {"path": uri, "keys": "id", "sequence_by": "ts", **options}

    def writer(self, schema: StructType) -> Any:
        source = LanceDataSource(dict(self.options))
        return (
            source.streamWriter(schema, False) if self.is_stream else source.writer(schema, False)
        )

    @property
    def is_stream(self) -> bool:
        return "txnAppId" in self.options

    def run(self, schema: StructType, changes: list[Change], number: int = 0) -> None:
        """Write the changes in two tasks, and commit them."""
        messages = []
        for part in changes[::2], changes[1::2]:
            columns = zip(*part, strict=True) if part else [()] * 5
            types = to_arrow_schema(schema)
            arrays = [pa.array(one, of.type) for one, of in zip(columns, types, strict=True)]
            writer = pickle.loads(pickle.dumps(self.writer(schema)))
            batch = pa.RecordBatch.from_arrays(arrays, schema=types)
            messages.append(pickle.loads(pickle.dumps(writer.write(iter([batch])))))
        self.writer(schema).commit(messages, *([number] if self.is_stream else []))


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


@pytest.mark.sampled(every=2)
@pytest.mark.parametrize("seed", range(2))
def test_late_and_repeated_changes_leave_the_newest_rows(
    spark: SparkSession, uri: str, seed: int
) -> None:
    table, changes = empty(spark, uri), random_changes(seed)
    shuffled = random.Random(seed).sample(changes, len(changes))
    for start in (0, 20):
        # The second batch repeats changes of the first.
        batch = feed(spark, shuffled[max(0, start - 5) : start + 20])
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
    for start in (0, 20):
        batch = feed(spark, changes[start : start + 20])
        table.applyChanges(batch, "id", "ts", "op = 'd'", ignore_null_updates=True)
    assert rows(uri, "id", "ts", "name", "n") == newest(changes, keeps_values=True)


def test_a_history_keeps_all_values_in_whatever_order_they_come(
    spark: SparkSession, uri: str
) -> None:
    table, changes = empty(spark, uri, scd=2), random_changes(5, keys=4, count=24)
    shuffled = random.Random(5).sample(changes, len(changes))
    for start in (0, 12):
        before = table.version
        batch = feed(spark, shuffled[max(0, start - 3) : start + 12])
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
    for name, batches in {"one": [changes], "each": [changes[:1], changes[1:]]}.items():
        newest_uri, history_uri = str(tmp_path / name), str(tmp_path / f"{name} history")
        table, past = empty(spark, newest_uri), empty(spark, history_uri, scd=2)
        for batch in batches:
            table.applyChanges(feed(spark, batch), "id", "ts", "op = 'd'")
            past.applyChanges(feed(spark, batch), "id", "ts", "op = 'd'", scd=2)
        assert rows(newest_uri, "id", "ts", "name", "n") == [(2, 5, "b", 2)]
        kept = rows(history_uri, "id", "valid_from", "valid_to", "is_current")
        assert kept == [(1, 5, 5, False), (2, 5, None, True)]


@pytest.mark.parametrize("by_options", [False, True])
def test_a_stream_applies_its_batches_once(
    spark: SparkSession, uri: str, tmp_path: Path, by_options: bool
) -> None:
    table, changes = empty(spark, uri), random_changes(3)
    source = str(tmp_path / "feed.lance")
    checkpoint = str(tmp_path / "checkpoint")
    for start in (0, 25):
        glaive.spark.write(feed(spark, changes[start : start + 25]), source, mode="append")
        stream = spark.readStream.format("lance").load(source)
        if by_options:
            writer: Any = stream.writeStream.format("lance").option("path", uri)
            writer = writer.options(keys="id", sequence_by="ts", delete_where="op = 'd'")
        else:
            writer = table.applyChanges(stream, "id", "ts", delete_where="op = 'd'")
        query = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
        query.awaitTermination()
    assert rows(uri, "id", "ts", "name", "n") == newest(changes, keeps_values=False)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(
    "options",
    [{}, {"ignore_null_updates": "true"}, {"scd": "2"}],
    ids=["newest", "without nulls", "history"],
)
def test_options_of_a_write_apply_changes_as_the_model_does(
    uri: str, seed: int, options: dict[str, str]
) -> None:
    scd, keeps_values = int(options.get("scd", 1)), "ignore_null_updates" in options
    make(uri, scd)
    writes, changes = Writes(uri, delete_where="op = 'd'", **options), random_changes(seed)
    shuffled = random.Random(seed).sample(changes, len(changes))
    ordered = changes if keeps_values else shuffled
    for start in range(0, 40, 10):
        writes.run(FRAME, ordered[max(0, start - 5) : start + 10])
    if scd == 2:
        columns = ("id", "valid_from", "valid_to", "is_current", "name", "n")
        found = glaive.dataset(uri).to_table(columns=list(columns)).to_pylist()
        kept = sorted((tuple(row.values()) for row in found), key=lambda row: row[:2])
        assert kept == history(changes)
    else:
        assert rows(uri, "id", "ts", "name", "n") == newest(changes, keeps_values=keeps_values)
    version = glaive.dataset(uri).version
    writes.run(FRAME, shuffled)
    assert glaive.dataset(uri).version == version


@pytest.mark.slow
@pytest.mark.parametrize("scd", [1, 2])
def test_a_stream_that_is_killed_at_any_step_applies_each_batch_once(uri: str, scd: int) -> None:
    make(uri, scd)
    options = {"delete_where": "op = 'd'", "scd": str(scd), "txnAppId": "feed"}
    writes = Writes(uri, **options)
    changes = [*random_changes(1), (1, 50, "u", "later", 1), (2, 51, "d", None, None)]
    writes.run(FRAME, changes[:20], 0)
    run = partial(writes.run, FRAME, changes[20:], 1)
    left = left_by_kills(Path(uri), run, Path(uri).parent / "left")
    for place in map(str, left):
        Writes(place, **options).run(FRAME, changes[20:], 1)  # it starts from its checkpoint
        found = glaive.dataset(place).to_table().select(["id", "name", "n"])
        if scd == 1:
            kept = [(key, *values) for key, _, *values in newest(changes, keeps_values=False)]
        else:
            kept = [(key, *values) for key, _, _, _, *values in history(changes)]
        assert sorted(map(repr, zip(*found.to_pydict().values(), strict=True))) == sorted(
            map(repr, kept)
        )
        dataset = glaive.dataset(place)
        dataset.cleanup_old_versions(older_than=timedelta(0), delete_unverified=True)
        used = {file.path for part in dataset.manifest.fragments() for file in part.files}
        assert {path.name for path in Path(place, "data").glob("*.lance")} == used
    assert len(left) > 8


def test_changes_keep_columns_that_they_lack_and_follow_the_rules_of_the_table(uri: str) -> None:
    default = {"glaive.default": "'new'"}
    columns = {"id": pa.int64(), "ts": pa.int64(), "name": pa.string(), "n": pa.int32()}
    fields = [pa.field(name, kind) for name, kind in columns.items()]
    schema = pa.schema([*fields, pa.field("state", pa.string(), metadata=default)])
    old = {"id": [1, 2], "ts": [None, 1], "name": ["a", "b"], "n": [1, 2], "state": ["x", "y"]}
    glaive.write_dataset(pa.table(old, schema), uri)
    glaive.dataset(uri).add_constraint("positive", "n > 0")
    writes = Writes(uri, delete_where="op = 'd'")
    writes.run(FRAME, [(1, 1, "u", "c", 3), (2, 2, "d", None, -1), (3, 3, "u", "d", 4)])
    kept = ("id", "ts", "name", "n", "state")
    assert rows(uri, *kept) == [(1, 1, "c", 3, "x"), (3, 3, "d", 4, "new")]
    with pytest.raises(SchemaError, match="positive"):
        writes.run(FRAME, [(3, 9, "u", "e", -4)])
    assert rows(uri, *kept) == [(1, 1, "c", 3, "x"), (3, 3, "d", 4, "new")]


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
        patched.setattr("glaive.spark.lance_table.apply_changes.FrameChanges._newest", stopped)
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


@pytest.mark.parametrize(
    "options",
    [
        {"sequence_by": ""},
        {"keys": ""},
        {"keys": "", "sequence_by": "", "delete_where": "op = 'd'"},
        {"merge_schema": "true"},
        {"replace_where": "id = 1"},
        {"scd": "3"},
        {"scd": "2", "ignore_null_updates": "true"},
    ],
    ids=repr,
)
def test_options_of_changes_that_glaive_would_ignore_are_refused(
    uri: str, options: dict[str, str]
) -> None:
    make(uri)
    writes = Writes(uri, **options)
    writes.options = {name: text for name, text in writes.options.items() if text}
    with pytest.raises(OptionError):
        writes.writer(FRAME)


def test_changes_need_a_dataset(uri: str) -> None:
    with pytest.raises(DatasetNotFoundError, match="changes need a dataset"):
        Writes(uri).writer(FRAME)
