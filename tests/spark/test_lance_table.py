"""``LanceTable``: facts about a table, its versions, and changes of rows as jobs."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession, functions

import glaive
from glaive.errors import (
    CommitConflictError,
    DatasetNotFoundError,
    FilterError,
    OptionError,
    VersionNotFoundError,
)
from glaive.spark import LanceTable

ROWS = pa.table({"id": list(range(40)), "group": [n % 4 for n in range(40)], "text": ["x"] * 40})


@pytest.fixture
def table(spark: SparkSession, uri: str) -> LanceTable:
    """A table of four fragments."""
    glaive.write_dataset(ROWS, uri, max_rows_per_file=10)
    return LanceTable.forPath(spark, uri)


def seen_by_pylance(uri: str) -> list[dict[str, Any]]:
    return lance.dataset(uri).to_table().sort_by("id").to_pylist()


def test_maintenance_runs_the_steps_that_pay(table: LanceTable, uri: str) -> None:
    table.createIndex("id", "btree", segments=1)
    glaive.write_dataset(ROWS.slice(0, 10), uri, mode="append")
    before = seen_by_pylance(uri)
    planned = table.maintain(dryRun=True, small_fragments=3, retention_days=0).collect()
    assert [row.step for row in planned] == ["compact", "optimize_indices", "vacuum"]
    assert planned[0].reason == "4 of 5 fragments are below 1,048,576 rows"
    assert planned[1].arguments == '{"index_names": ["id_idx"]}'
    assert lance.dataset(uri).version == 3
    made = table.maintain(small_fragments=3, retention_days=0).collect()
    assert made[:2] == planned[:2]
    assert seen_by_pylance(uri) == before
    assert (len(table.toDF().collect()), len(lance.dataset(uri).versions())) == (50, 1)
    assert table.maintain(small_fragments=3, retention_days=0).count() == 0


def test_appends_obey_the_properties_for_upkeep(table: LanceTable, uri: str) -> None:
    glaive.dataset(uri).update_config({"glaive.auto_compact": "3"})
    before = glaive.dataset(uri).latest_version
    frame = table.toDF().where("id < 4").coalesce(1)
    assert glaive.spark.write(frame, uri, mode="append") == before + 1
    assert len(glaive.dataset(uri).get_fragments()) == 1
    assert lance.dataset(uri).count_rows() == 44


def test_a_table_is_found_by_its_path(spark: SparkSession, table: LanceTable, uri: str) -> None:
    assert LanceTable.isLanceTable(spark, uri)
    assert not LanceTable.isLanceTable(spark, uri + ".other")
    with pytest.raises(DatasetNotFoundError):
        LanceTable.forPath(spark, uri + ".other")
    assert table.version == 1
    assert table.toDF().count() == 40
    assert table.alias("t").toDF().where("t.id < 3").count() == 3


def test_facts_about_a_table_are_frames(table: LanceTable) -> None:
    table.delete("id = 3", job_id="first")
    (detail,) = table.detail().collect()
    assert (detail.version, detail.branch, detail.num_rows) == (2, "main", 39)
    assert (detail.num_fragments, detail.num_files, detail.num_deleted_rows) == (4, 4, 1)
    newest, oldest = table.history().collect()
    assert (newest.version, newest.operation, newest.job_id) == (2, "delete", "first")
    assert newest.counts == {"num_deleted_rows": 1}
    assert (oldest.version, oldest.operation, oldest.job_id) == (1, "overwrite", None)
    assert [row.version for row in table.history(limit=1).collect()] == [2]
    with pytest.raises(OptionError, match="limit"):
        table.history(limit=0)
    assert [tuple(row) for row in table.fragments().collect()][:2] == [(0, 9, 1), (1, 10, 0)]
    kinds = [row.kind for row in table.files().collect()]
    assert (kinds.count("data"), kinds.count("deletion")) == (4, 1)
    assert table.indices().count() == 0


def test_rows_are_deleted_by_tasks(table: LanceTable, uri: str) -> None:
    assert table.delete("group = 1 or id < 10") == {"version": 2, "num_deleted_rows": 17}
    expected = [row for row in ROWS.to_pylist() if row["group"] != 1 and row["id"] >= 10]
    assert seen_by_pylance(uri) == expected
    assert len(lance.dataset(uri).get_fragments()) == 3  # the first one was emptied
    with pytest.raises(FilterError):
        table.delete("grp = 1 +")
    assert table.version == 2
    assert table.delete()["num_deleted_rows"] == len(expected)
    assert seen_by_pylance(uri) == []


@pytest.mark.parametrize("stable", [False, True])
def test_rows_are_updated_by_tasks(spark: SparkSession, uri: str, stable: bool) -> None:
    glaive.write_dataset(ROWS, uri, max_rows_per_file=10, enable_stable_row_ids=stable)
    before = glaive.dataset(uri).to_table(with_row_id=True)
    table = LanceTable.forPath(spark, uri)
    counts = table.update("id % 10 = 3", {"text": "'new'", "group": "group + id"})
    assert counts == {"version": 2, "num_rows_updated": 4}
    expected = ROWS.to_pylist()
    for row in expected:
        if row["id"] % 10 == 3:
            row |= {"text": "new", "group": row["group"] + row["id"]}
    assert seen_by_pylance(uri) == expected
    if stable:
        after = glaive.dataset(uri).to_table(with_row_id=True).sort_by("id")
        assert after.column("_rowid") == before.column("_rowid")
    with pytest.raises(OptionError, match="updates"):
        table.update("id = 1", {})


def test_changes_of_versions_are_rows(spark: SparkSession, uri: str) -> None:
    rows = pa.table({"id": [1, 2, 3], "name": ["a", "b", "c"]})
    glaive.write_dataset(rows, uri, enable_stable_row_ids=True)
    table = LanceTable.forPath(spark, uri)
    table.update("id = 2", {"name": "'x'"})
    table.delete("id = 3")

    feed = glaive.spark.read_changes(spark, uri, 2, columns=["id", "name"])
    fed = feed.orderBy("id", "_change_type").collect()

    assert [(row["id"], row["name"], row["_change_type"]) for row in fed] == [
        (2, "x", "update_postimage"),
        (2, "b", "update_preimage"),
        (3, "c", "delete"),
    ]
    net = glaive.spark.read_changes(spark, uri, 1, 3, columns=["id"], net=True)
    assert {row["id"] for row in net.collect()} == {1, 2}


def test_a_job_that_runs_again_returns_the_version_it_made(table: LanceTable, uri: str) -> None:
    first = table.update("id = 5", {"group": "group + 100"}, job_id="tuesday")
    table.delete("id = 6")
    again = table.update("id = 5", {"group": "group + 100"}, job_id="tuesday")
    assert again == first
    assert glaive.dataset(uri).version == 3
    assert seen_by_pylance(uri)[5]["group"] == 101
    with pytest.raises(OptionError, match="job_id"):
        table.delete("id = 1", job_id="")


def test_a_job_whose_version_was_cleaned_up_does_not_run_again(table: LanceTable, uri: str) -> None:
    table.update("id = 5", {"group": "group + 100"}, job_id="tuesday")
    table.delete("id = 6")
    table.vacuum(0)
    assert [row.version for row in table.history().collect()] == [3]
    assert table.update("id = 5", {"group": "group + 100"}, job_id="tuesday") == {"version": 3}
    assert seen_by_pylance(uri)[5]["group"] == 101


def test_a_compaction_with_an_id_makes_all_its_passes(spark: SparkSession, uri: str) -> None:
    for rows in (10, 10, 100, 10, 10):  # what the first pass writes of the small ones meets
        glaive.write_dataset(pa.table({"id": range(rows)}), uri, mode="append")
    table = LanceTable.forPath(spark, uri)
    counts = table.optimize().executeCompaction(job_id="tonight", target_rows_per_fragment=100)
    assert [part.count_rows() for part in glaive.dataset(uri).get_fragments()] == [100, 40]
    again = table.optimize().executeCompaction(job_id="tonight", target_rows_per_fragment=100)
    assert again == counts


def test_small_files_are_merged_by_tasks(table: LanceTable, uri: str) -> None:
    counts = table.optimize().executeCompaction(target_rows_per_fragment=20)
    assert (counts["fragments_removed"], counts["fragments_added"]) == (4, 2)
    assert seen_by_pylance(uri) == ROWS.to_pylist()
    assert len(lance.dataset(uri).get_fragments()) == 2
    nothing = table.optimize().executeCompaction(target_rows_per_fragment=20)
    assert nothing == {**dict.fromkeys(counts, 0), "version": counts["version"]}
    with pytest.raises(OptionError, match="target_rows"):
        table.optimize().executeCompaction(target_rows=20)


def test_only_fragments_with_matching_rows_are_merged(table: LanceTable, uri: str) -> None:
    counts = table.optimize().where("id between 10 and 29").executeCompaction()
    assert (counts["fragments_removed"], counts["fragments_added"]) == (2, 1)
    assert [fragment.count_rows() for fragment in lance.dataset(uri).get_fragments()] == [
        10,
        10,
        20,
    ]
    assert seen_by_pylance(uri) == ROWS.to_pylist()


def test_versions_are_restored_and_named(spark: SparkSession, table: LanceTable, uri: str) -> None:
    table.delete("id < 30")
    table.createTag("short")
    assert table.restoreToVersion(1) == 3
    assert table.toDF().count() == 40
    with pytest.raises(VersionNotFoundError):
        table.restoreToVersion(9)
    moment = datetime.now(UTC)
    table.delete("id < 20")
    assert table.restoreToTimestamp(moment.isoformat()) == 5
    with pytest.raises(OptionError, match=r"^timestamp: expected a datetime"):
        table.restoreToTimestamp("nonsense")
    branch = table.createBranch("try")
    branch.delete("id = 1")
    assert (branch.toDF().count(), table.toDF().count()) == (39, 40)
    assert LanceTable.forPath(spark, uri, branch="try").toDF().count() == 39
    refs = {row.name: (row.kind, row.version) for row in table.refs().collect()}
    assert refs == {"short": ("tag", 2), "try": ("branch", 5)}


def test_clean_up_keeps_what_the_newest_version_and_tags_need(
    table: LanceTable, uri: str, tmp_path: Path
) -> None:
    table.createTag("whole")
    table.optimize().executeCompaction()
    table.update("id = 1", {"text": "'b'"})
    table.update("id = 2", {"text": "'c'"})
    before = {path.relative_to(uri).as_posix() for path in Path(uri).rglob("*") if path.is_file()}
    planned = {row.path for row in table.vacuum(0, dryRun=True).collect()}
    stats = table.vacuum(0)
    after = {path.relative_to(uri).as_posix() for path in Path(uri).rglob("*") if path.is_file()}
    assert before - after == planned
    assert stats["old_versions"] >= 1
    assert planned
    assert not any((Path(uri) / path).exists() for path in planned)
    assert [row["text"] for row in seen_by_pylance(uri)[:3]] == ["x", "b", "c"]
    assert lance.dataset(uri, version="whole").to_table() == ROWS
    for wrong in (-1, True):  # a call with True means dryRun
        with pytest.raises(OptionError, match="retentionHours"):
            table.vacuum(wrong)
    clone = table.shallowClone(tmp_path / "clone.lance")
    assert clone.toDF().count() == 40


def test_columns_are_renamed_and_dropped(table: LanceTable, uri: str) -> None:
    assert table.renameColumn("text", "words") == 2
    assert table.alterColumn("group", data_type=pa.int32()) == 3
    assert table.dropColumns("words") == 4
    assert lance.dataset(uri).schema == pa.schema([("id", pa.int64()), ("group", pa.int32())])


def test_a_branch_is_published_by_tasks(table: LanceTable, uri: str) -> None:
    branch = table.createBranch("checked")
    branch.update("id < 4", {"text": "'new'"})
    branch.delete("id = 9")
    counts = table.publish("checked", job_id="tonight")
    assert counts["version"] == 2
    assert counts["num_files_copied"] > 0
    expected = [row for row in ROWS.to_pylist() if row["id"] != 9]
    for row in expected[:4]:
        row["text"] = "new"
    assert seen_by_pylance(uri) == expected
    assert table.publish("checked", job_id="tonight") == counts
    assert table.publish("checked") == {"num_files_copied": 0, "version": 2}
    table.delete("id = 1")
    branch.delete("id = 2")
    with pytest.raises(CommitConflictError):
        table.publish("checked")


def test_rows_are_clustered_by_the_names_of_delta(table: LanceTable, uri: str) -> None:
    assert table.optimize().executeZOrderBy("group", "id")["fragments_added"] >= 1
    assert table.optimize().executeClusterBy(["id"])["fragments_added"] >= 1
    assert lance.dataset(uri).to_table() == ROWS


def test_types_of_columns_are_changed_by_names_of_spark(table: LanceTable, uri: str) -> None:
    table.alterColumn("id", data_type="int")

    assert glaive.dataset(uri).schema.field("id").type == pa.int32()
    with pytest.raises(OptionError, match="alterColumn: 'dubble' is not a type"):
        table.alterColumn("id", data_type="dubble")


def test_columns_of_spark_are_refused_where_tasks_have_no_jvm(table: LanceTable) -> None:
    low: Any = functions.lit(1) < functions.lit(2)

    with pytest.raises(OptionError, match=r"delete: expected a string .* merge"):
        table.delete(low)
    with pytest.raises(OptionError, match=r"update: expected a string .* merge"):
        table.update(set={"id": low})
