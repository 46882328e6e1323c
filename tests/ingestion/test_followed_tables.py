"""Loads of Delta and Iceberg tables read what changed since the version before."""

from __future__ import annotations

import json
import random
import shutil
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import deltalake
import lance
import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.io.pyarrow import _dataframe_to_data_files
from tests.ingestion.test_delta import inline_vector, log_of
from tests.kit.crashes import left_by_kills

import glaive
from glaive.errors import FormatError, ObjectNotFoundError, OptionError, SchemaError, StoreError
from glaive.ingestion import IngestResult, IngestTask, ingest
from glaive.ingestion.formats import format_named
from glaive.ingestion.task import IngestedPieces


def rows(*numbers: int, value: str = "a") -> pa.Table:
    return pa.table(
        {"n": pa.array(numbers, pa.int64()), "v": pa.array([value] * len(numbers), pa.string())}
    )


class DeltaLake:
    """A table of Delta that a test changes."""

    format = "delta"

    def __init__(self, folder: Path) -> None:
        self.place = str(folder / "delta")

    def create(self) -> None:
        self.append(rows())

    def append(self, table: pa.Table) -> None:
        deltalake.write_deltalake(self.place, table, mode="append", schema_mode="merge")

    def overwrite(self, table: pa.Table) -> None:
        deltalake.write_deltalake(self.place, table, mode="overwrite")

    def delete(self, condition: str) -> None:
        deltalake.DeltaTable(self.place).delete(condition)

    def rewrite(self) -> None:
        assert deltalake.DeltaTable(self.place).optimize.compact()["numFilesAdded"]

    def rows(self) -> list[dict[str, Any]]:
        return list(deltalake.DeltaTable(self.place).to_pyarrow_table().to_pylist())

    def version(self) -> int:
        return int(deltalake.DeltaTable(self.place).version())


class IcebergLake:
    """A table of Iceberg that a test changes."""

    format = "iceberg"

    def __init__(self, folder: Path) -> None:
        where = {"uri": f"sqlite:///{folder}/c.db", "warehouse": f"file://{folder}/lake"}
        self.catalog = SqlCatalog("c", **where)
        self.catalog.create_namespace("db")
        self.place = f"{folder}/lake/db/t"

    def create(self) -> None:
        self.catalog.create_table("db.t", schema=rows().schema)

    def append(self, table: pa.Table) -> None:
        opened = self.catalog.create_table_if_not_exists("db.t", schema=table.schema)
        with opened.update_schema() as change:
            change.union_by_name(table.schema)
        opened.append(table)

    def overwrite(self, table: pa.Table) -> None:
        self.catalog.load_table("db.t").overwrite(table)

    def delete(self, condition: str) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # no row may match
            self.catalog.load_table("db.t").delete(condition)

    def rows(self) -> list[dict[str, Any]]:
        return list(self.catalog.load_table("db.t").scan().to_arrow().to_pylist())

    def version(self) -> int:
        snapshot = self.catalog.load_table("db.t").current_snapshot()
        assert snapshot is not None
        return snapshot.snapshot_id


Lake = DeltaLake | IcebergLake


@pytest.fixture(params=[DeltaLake, IcebergLake])
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Lake]:
    made = request.param(tmp_path)
    yield made
    if isinstance(made, IcebergLake):
        made.catalog.close()


def load(lake: Lake, uri: Path, **options: Any) -> IngestResult:
    how = {"format": lake.format, "mode": "append", "once": True, **options}
    return ingest(lake.place, uri, **how)


MERGE: dict[str, Any] = {"mode": "merge", "merge_keys": "n"}


def in_order(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(found, key=lambda row: int(row["n"]))


def loaded(uri: Path) -> list[dict[str, Any]]:
    return in_order(lance.dataset(str(uri)).to_table().to_pylist())


@pytest.mark.parametrize("options", [{}, MERGE])
def test_a_load_reads_the_rows_that_were_appended_since(
    lake: Lake, tmp_path: Path, options: dict[str, Any]
) -> None:
    uri = tmp_path / "t.lance"
    lake.append(rows(1, 2))
    assert load(lake, uri, **options).rows == 2
    first = glaive.dataset(uri).version
    again = load(lake, uri, **options)
    assert (again.version, again.files, again.rows) == (first, 0, 0)
    lake.append(rows(3))
    lake.append(rows(4, 5))
    result = load(lake, uri, **options)
    assert (result.files, result.rows) == (2, 3)
    assert loaded(uri) == in_order(lake.rows())
    assert load(lake, uri, **options).files == 0


@pytest.mark.parametrize("options", [{}, MERGE, {"mode": "create", "once": False}])
def test_a_table_without_rows_gives_a_dataset_without_rows(
    lake: Lake, tmp_path: Path, options: dict[str, Any]
) -> None:
    uri = tmp_path / "t.lance"
    lake.create()
    assert load(lake, uri, **options).rows == 0
    assert lance.dataset(str(uri)).schema == rows().schema
    assert load(lake, uri).files == 0
    lake.append(rows(1, 2))
    assert load(lake, uri).rows == 2
    lake.delete("n > 0")
    load(lake, uri, mode="overwrite", once=False)
    assert loaded(uri) == []
    lake.append(rows(3))
    load(lake, uri)
    assert loaded(uri) == in_order(lake.rows()) == rows(3).to_pylist()


def test_changed_and_removed_rows_are_found_by_their_keys(lake: Lake, tmp_path: Path) -> None:
    uri = tmp_path / "t.lance"
    lake.append(rows(*range(10)))
    lake.append(rows(*range(10, 20)))
    load(lake, uri, **MERGE)
    lake.delete("n < 3")
    lake.append(rows(1, 30, value="b"))
    lake.delete("n = 12")
    lake.append(rows(12, value="c"))
    with pytest.raises(OptionError, match="were changed or removed"):
        load(lake, uri)
    load(lake, uri, **MERGE)
    assert loaded(uri) == in_order(lake.rows())
    lake.overwrite(rows(5, 6, 99, value="d"))
    load(lake, uri, **MERGE)
    assert loaded(uri) == in_order(lake.rows()) == rows(5, 6, 99, value="d").to_pylist()
    assert load(lake, uri, **MERGE).files == 0
    left = {file.name for file in (uri / "data").iterdir()}
    named = {f.path for one in lance.dataset(str(uri)).get_fragments() for f in one.data_files()}
    stale = glaive.dataset(uri).cleanup_old_versions(older_than=None, retain_versions=1)
    assert stale is not None
    assert named <= left


@pytest.mark.sampled(every=3)
@pytest.mark.parametrize("stable", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_any_changes_give_the_rows_of_the_table(
    lake: Lake, tmp_path: Path, seed: int, stable: bool
) -> None:
    random_of = random.Random(seed)
    uri, options = tmp_path / "t.lance", {"write_options": {"enable_stable_row_ids": stable}}
    lake.append(rows(*range(50)))
    load(lake, uri, **MERGE, **options)
    following = 50
    for _ in range(4):
        for _ in range(random_of.randrange(1, 4)):
            if random_of.random() < 0.5:
                lake.delete(f"n >= {random_of.randrange(following)} and v = 'a'")
            numbers = range(following, following + random_of.randrange(1, 9))
            lake.append(rows(*numbers, value=random_of.choice("ab")))
            following = numbers.stop
        load(lake, uri, **MERGE, **(options if stable else {}))
        assert loaded(uri) == in_order(lake.rows())


def test_columns_may_be_added(lake: Lake, tmp_path: Path) -> None:
    uri = tmp_path / "t.lance"
    lake.append(rows(1))
    load(lake, uri)
    lake.append(rows(2).append_column("more", pa.array(["x"])))
    with pytest.raises(SchemaError, match="column more"):
        load(lake, uri)
    load(lake, uri, schema_drift="add")
    assert loaded(uri) == in_order(lake.rows())


@pytest.mark.parametrize("mode", ["create", "overwrite"])
def test_a_dataset_that_was_made_of_a_table_follows_it(
    lake: Lake, tmp_path: Path, mode: str
) -> None:
    uri = tmp_path / "t.lance"
    lake.append(rows(1))
    first = lake.version()
    lake.append(rows(2))
    of_first = {"mode": mode, "once": False, "reader_options": {"version": first}}
    load(lake, uri, **of_first)
    assert load(lake, uri).rows == 1
    assert loaded(uri) == in_order(lake.rows())
    load(lake, uri, mode="overwrite", once=False)
    assert load(lake, uri).files == 0
    with pytest.raises(OptionError, match="were changed or removed"):
        load(lake, uri, reader_options={"version": first})
    load(lake, uri, reader_options={"version": first}, **MERGE)  # back in time
    assert [row["n"] for row in loaded(uri)] == [1]


def test_a_restored_dataset_loads_again_what_it_lacks(lake: Lake, tmp_path: Path) -> None:
    uri = tmp_path / "t.lance"
    lake.append(rows(1))
    load(lake, uri)
    lake.append(rows(2))
    load(lake, uri)
    glaive.dataset(uri, version=1).restore()
    assert load(lake, uri).rows == 1
    assert loaded(uri) == in_order(lake.rows())


def test_a_table_that_was_created_again_is_refused(tmp_path: Path) -> None:
    uri, delta = tmp_path / "t.lance", DeltaLake(tmp_path)
    delta.append(rows(1))
    load(delta, uri)
    shutil.rmtree(delta.place)
    delta.append(rows(2))
    with pytest.raises(OptionError, match="created again"):
        load(delta, uri)
    load(delta, uri, mode="overwrite")
    delta.append(rows(3))
    assert load(delta, uri).rows == 1


def test_two_tables_and_files_are_followed_by_one_dataset(tmp_path: Path) -> None:
    uri, delta, iceberg = tmp_path / "t.lance", DeltaLake(tmp_path), IcebergLake(tmp_path)
    for number in range(0, 6, 2):
        delta.append(rows(number))
        iceberg.append(rows(number + 1))
        (tmp_path / "in").mkdir(exist_ok=True)
        (tmp_path / f"in/{number}.csv").write_text(f"n,v\n{number + 100},a\n")
        assert load(delta, uri).rows == load(iceberg, uri).rows == 1
        assert ingest(tmp_path / "in", uri, mode="append", once=True).rows == 1
    assert [row["n"] for row in loaded(uri)] == [0, 1, 2, 3, 4, 5, 100, 102, 104]
    iceberg.catalog.close()


def test_rows_that_delta_rewrites_are_not_read_again(tmp_path: Path) -> None:
    uri, delta = tmp_path / "t.lance", DeltaLake(tmp_path)
    delta.append(rows(1))
    load(delta, uri)
    delta.append(rows(2))
    delta.rewrite()
    assert load(delta, uri).rows == 1
    delta.append(rows(3))
    delta.rewrite()
    opened = deltalake.DeltaTable(delta.place)
    opened.vacuum(0, enforce_retention_duration=False, dry_run=False)
    with pytest.raises(ObjectNotFoundError, match="removed"):
        load(delta, uri)
    load(delta, uri, mode="overwrite")
    assert loaded(uri) == in_order(delta.rows())


def test_rows_that_iceberg_rewrites_are_not_read_again(tmp_path: Path) -> None:
    uri, iceberg = tmp_path / "t.lance", IcebergLake(tmp_path)
    iceberg.append(rows(1))
    load(iceberg, uri)
    iceberg.append(rows(2))
    table: Any = iceberg.catalog.load_table("db.t")
    old = [task.file for task in table.scan().plan_files()]
    [new] = _dataframe_to_data_files(table.metadata, rows(1, 2), table.io)
    with table.transaction() as change, change.update_snapshot().overwrite() as snapshot:
        for file in old:
            snapshot.delete_data_file(file)
        snapshot.append_data_file(new)
    # pyiceberg calls a snapshot an overwrite that Spark calls a replacement.
    metadata = json.loads(Path(table.metadata_location.removeprefix("file://")).read_text())
    assert metadata["snapshots"][-1]["summary"]["operation"] == "overwrite"
    metadata["snapshots"][-1]["summary"]["operation"] = "replace"
    last = Path(iceberg.place) / "metadata/99999-last.metadata.json"
    last.write_text(json.dumps(metadata))
    assert load(iceberg, uri).rows == 1
    assert loaded(uri) == rows(1, 2).to_pylist()
    iceberg.catalog.close()


def test_values_of_delta_partitions_come_from_the_log(tmp_path: Path) -> None:
    uri, delta = tmp_path / "t.lance", DeltaLake(tmp_path)
    kinds = {
        "day": (pa.date32(), "2026-01-01"),
        "at": (pa.timestamp("us", "UTC"), "2026-01-01 10:00:00.5"),
        "price": (pa.decimal128(5, 2), "1.50"),
        "flag": (pa.bool_(), "true"),
        "name": (pa.string(), "ü/ %20"),
        "float": (pa.float64(), "1.5"),
    }
    columns = {
        name: pa.array([text, None], pa.string()).cast(
            pa.timestamp("us") if pa.types.is_timestamp(kind) else kind
        )
        for name, (kind, text) in kinds.items()
    }
    columns["at"] = columns["at"].cast(pa.timestamp("us", "UTC"))
    more = pa.table({"n": [1, 2], **columns})
    deltalake.write_deltalake(delta.place, more, partition_by=list(kinds))
    load(delta, uri)
    deltalake.write_deltalake(delta.place, more, mode="append")
    assert load(delta, uri).rows == 2
    assert loaded(uri) == in_order(delta.rows())
    assert len(loaded(uri)) == 4


def test_only_rows_whose_deletion_changed_are_read(tmp_path: Path) -> None:
    uri, delta = tmp_path / "t.lance", DeltaLake(tmp_path)
    delta.append(rows(*range(100)))
    load(delta, uri, **MERGE)
    [add] = [entry["add"] for entry in log_of(delta.place, 0) if "add" in entry]
    features = {"readerFeatures": ["deletionVectors"], "writerFeatures": ["deletionVectors"]}
    protocol = {"protocol": {"minReaderVersion": 3, "minWriterVersion": 7, **features}}
    vectors = [[3, 4, 11, 90, 97, 98], [3, 5, 90, 99]]
    for version, gone in enumerate(vectors, 1):
        facts = ("path", "deletionVector")
        removed = {name: add[name] for name in facts if name in add}
        add["deletionVector"] = inline_vector(gone)
        entries = [protocol, {"remove": {**removed, "dataChange": True}}, {"add": add}]
        log_of(delta.place, version, entries)
        result = load(delta, uri, **MERGE)
        assert [row["n"] for row in loaded(uri)] == [n for n in range(100) if n not in gone]
        assert result.rows == (0 if version == 1 else 4)  # 4, 11, 97 and 98 are back


def test_a_version_of_delta_is_named_by_a_time(tmp_path: Path) -> None:
    uri, delta, times = tmp_path / "t.lance", DeltaLake(tmp_path), list[str]()
    for number in (1, 2):
        delta.append(rows(number))
        times.append(datetime.now(UTC).isoformat())
        time.sleep(0.01)
    how: dict[str, Any] = {"mode": "overwrite", "once": False}
    for count, moment in enumerate(times, 1):
        assert load(delta, uri, reader_options={"asof": moment}, **how).rows == count
    with pytest.raises(OptionError, match="no version is as old"):
        load(delta, uri, reader_options={"asof": "2000-01-01"}, **how)


def test_a_damaged_log_is_refused(tmp_path: Path) -> None:
    uri, delta = tmp_path / "t.lance", DeltaLake(tmp_path)
    delta.append(rows(1))
    load(delta, uri)
    delta.append(rows(2))
    good, real = log_of(delta.place, 1), deltalake.DeltaTable
    for field, value in [("modificationTime", 10**30), ("path", 7), ("partitionValues", ["x"])]:
        source: Any = format_named("delta", {})
        log_of(delta.place, 1, good)

        def opened(*args: Any, _field: str = field, _value: Any = value, **how: Any) -> Any:
            """The log changes after the package has read it."""
            table = real(*args, **how)
            for entry in (changed := json.loads(json.dumps(good))):
                if "add" in entry:
                    entry["add"][_field] = _value
            log_of(delta.place, 1, changed)
            return table

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(deltalake, "DeltaTable", opened)
            with pytest.raises(FormatError, match="is damaged"):
                source.files([delta.place], {}, lambda mark: mark.etag.replace(" 1", " 0"))


def test_a_log_without_the_last_load_is_read_by_keys(tmp_path: Path) -> None:
    uri, delta = tmp_path / "t.lance", DeltaLake(tmp_path)
    delta.append(rows(1))
    load(delta, uri)
    delta.append(rows(2))
    deltalake.DeltaTable(delta.place).create_checkpoint()
    delta.append(rows(3))
    (Path(delta.place) / f"_delta_log/{1:020}.json").unlink()
    with pytest.raises(OptionError, match="were changed or removed"):
        load(delta, uri)
    load(delta, uri, **MERGE)
    assert loaded(uri) == in_order(delta.rows())


def test_a_snapshot_that_expired_is_refused(tmp_path: Path) -> None:
    uri, iceberg = tmp_path / "t.lance", IcebergLake(tmp_path)
    iceberg.append(rows(1, 2))
    load(iceberg, uri)
    first = iceberg.version()
    iceberg.append(rows(3))
    table = iceberg.catalog.load_table("db.t")
    table.maintenance.expire_snapshots().by_id(first).commit()
    with pytest.raises(OptionError, match="history"):
        load(iceberg, uri)
    with pytest.raises(OptionError, match=f"snapshot {first} was removed"):
        load(iceberg, uri, **MERGE)
    load(iceberg, uri, mode="overwrite")
    assert loaded(uri) == in_order(iceberg.rows())
    iceberg.catalog.close()


@pytest.mark.parametrize("options", [{}, MERGE])
def test_loads_at_the_same_time_read_each_change_once(
    lake: Lake, tmp_path: Path, options: dict[str, Any]
) -> None:
    uri = tmp_path / "t.lance"
    lake.append(rows(1))
    load(lake, uri, **options)
    lake.append(rows(2))
    raced: list[IngestResult] = []

    def driver(tasks: Sequence[IngestTask]) -> Iterator[tuple[int, IngestedPieces]]:
        """Another load commits between the tasks of this one and its commit."""
        yield from enumerate([task.execute() for task in tasks])
        if not raced:
            raced.append(load(lake, uri, **options))
            lake.append(rows(3))

    result = load(lake, uri, driver=driver, **options)
    assert (raced[0].rows, result.rows) == (1, 1)
    assert loaded(uri) == in_order(lake.rows())
    assert load(lake, uri, **options).files == 0


@pytest.mark.sampled(every=2)
@pytest.mark.parametrize("job_id", [None, "tonight"])
@pytest.mark.parametrize(
    ("options", "change"),
    [
        ({}, lambda lake: lake.append(rows(4, 5))),
        (MERGE, lambda lake: [lake.delete("n = 2"), lake.append(rows(4, value="b"))]),
    ],
)
def test_a_load_killed_before_any_change_loses_and_doubles_nothing(
    lake: Lake,
    tmp_path: Path,
    options: dict[str, Any],
    change: Callable[[Lake], object],
    job_id: str | None,
) -> None:
    begun = tmp_path / "begun"
    lake.append(rows(1, 2, 3))
    load(lake, begun / "t.lance", **options)
    change(lake)
    expected = in_order(lake.rows())
    run = partial(load, lake, begun / "t.lance", job_id=job_id, **options)
    copies = left_by_kills(begun, run, tmp_path / "left")
    assert loaded(begun / "t.lance") == expected
    assert len(copies) > 5
    for copy in copies:
        load(lake, copy / "t.lance", job_id=job_id, **options)
        load(lake, copy / "t.lance", **options)
        assert loaded(copy / "t.lance") == expected, copy


def test_a_removed_row_without_a_key_is_refused(lake: Lake, tmp_path: Path) -> None:
    uri = tmp_path / "d.lance"
    lake.append(pa.table({"n": pa.array([1, None], pa.int64()), "v": ["a", "b"]}))
    load(lake, uri)
    lake.delete("n = 1")
    with pytest.raises(SchemaError, match=r"by n: .*found 1\. Pass mode='overwrite'$"):
        load(lake, uri, **MERGE)
    assert lance.dataset(str(uri)).count_rows() == 2


def test_a_removed_key_may_be_there_twice(lake: Lake, tmp_path: Path) -> None:
    uri = tmp_path / "d.lance"
    lake.append(rows(1, 1, 2, 3))
    lake.append(rows(1, 4))
    load(lake, uri)
    lake.delete("n = 1")
    lake.delete("n = 3")
    load(lake, uri, **MERGE)
    assert loaded(uri) == in_order(lake.rows()) == rows(2, 4).to_pylist()


def test_files_that_vacuum_removed_are_named_with_a_remedy(tmp_path: Path) -> None:
    lake, uri = DeltaLake(tmp_path), tmp_path / "d.lance"
    lake.append(rows(1, 2))
    load(lake, uri)
    lake.delete("n = 1")
    table = deltalake.DeltaTable(lake.place)
    assert table.vacuum(0, dry_run=False, enforce_retention_duration=False)
    with pytest.raises(ObjectNotFoundError, match=r"VACUUM.*mode='overwrite'"):
        load(lake, uri, **MERGE)
    load(lake, uri, mode="overwrite")
    assert loaded(uri) == in_order(lake.rows())


def test_errors_of_a_delta_table_hide_credentials(tmp_path: Path) -> None:
    options = {
        "endpoint": "http://user:hidden@127.0.0.1:1",
        "allow_http": "true",
        "aws_access_key_id": "a",
        "aws_secret_access_key": "hidden",
        "aws_region": "us-east-1",
        "max_retries": "0",
    }
    with pytest.raises(StoreError) as caught:
        ingest("s3://b/t", tmp_path / "d.lance", format="delta", source_options=options)
    assert "s3://b/t" in f"{caught.value}"
    assert "hidden" not in f"{caught.value}"
