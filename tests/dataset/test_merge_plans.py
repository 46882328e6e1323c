"""Merges tell what they are going to do, and what they did."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import glaive
from glaive.errors import FilterError, OptionError, SchemaError, UnsupportedFeatureError


@pytest.fixture
def dataset(tmp_path: Path) -> glaive.LanceDataset:
    rows = {"id": list(range(100)), "name": list(map(str, range(100))), "w": [1] * 100}
    return glaive.write_dataset(rows, tmp_path / "d", max_rows_per_file=40)


def files(dataset: glaive.LanceDataset) -> list[Path]:
    return sorted(Path(dataset.uri).rglob("*"))


def test_explaining_changes_nothing(dataset: glaive.LanceDataset) -> None:
    before = files(dataset)
    upsert = dataset.merge_insert("id").when_matched_update_all("source.w > target.w")
    plan = upsert.when_not_matched_insert_all().explain_plan()
    assert plan.splitlines() == [
        (
            "MergeInsert: on=[id], when_matched=UpdateIf(source.w > target.w), "
            "when_not_matched=InsertAll, when_not_matched_by_source=Keep"
        ),
        "  write: rows of the source, in new fragments",
        "    condition on matched rows: source.w > target.w, columns source.w, target.w",
        "      find keys in encoded pages: id [HashJoinExec]",
        "        scan: 100 rows of 3 fragments, columns id [LanceRead]",
    ]
    assert files(dataset) == before
    verbose = upsert.explain_plan(verbose=True).splitlines()
    assert verbose[-1].strip() == "fragment 2: rows 0..20"


def test_what_a_source_lacks_is_said(dataset: glaive.LanceDataset) -> None:
    update = dataset.merge_insert(["id", "name"]).when_matched_update_all()
    source = pa.schema([("id", pa.int64()), ("name", pa.string())])
    plan = update.when_not_matched_by_source_delete("w = 1").explain_plan(source)
    for text in (
        "when_not_matched_by_source=DeleteIf(w = 1)",
        "old values of w",
        "scan for rows to delete: w = 1",
        "look keys up by their values: name [HashJoinExec]",
    ):
        assert text in plan
    replaced = dataset.merge_insert("id").when_matched_update_all().write_mode("rewrite_columns")
    assert "write: columns in place: name" in replaced.explain_plan(source)
    for clauses, shown in (
        (dataset.merge_insert("id").when_matched_delete(), "when_matched=Delete"),
        (dataset.merge_insert("id").when_matched_fail(), "when_matched=Fail"),
    ):
        assert shown in clauses.explain_plan()


def test_what_cannot_be_done_is_refused(dataset: glaive.LanceDataset) -> None:
    merge = dataset.merge_insert("id")
    with pytest.raises(OptionError, match="has no clauses"):
        merge.explain_plan()
    merge.when_matched_update_all("source.z = 1")
    with pytest.raises(FilterError, match="z"):
        merge.explain_plan()
    with pytest.raises(SchemaError, match="does not have: z"):
        merge.explain_plan(pa.schema([("id", pa.int64()), ("z", pa.int64())]))
    with pytest.raises(UnsupportedFeatureError, match="MemWAL"):
        merge.mark_sstables_as_compacted([])
    with pytest.raises(OptionError, match="no base paths"):
        dataset.merge_insert("id").when_not_matched_insert_all().target_all_bases(
            include_primary=False
        ).execute({"id": [1000], "name": ["x"], "w": [1]})


def test_analyzing_commits_nothing(dataset: glaive.LanceDataset) -> None:
    upsert = dataset.merge_insert("id").when_matched_update_all().when_not_matched_insert_all()
    source: Any = pa.table({"id": [1, 99, 500], "name": ["a", "b", "c"], "w": [2, 2, 2]})
    told = dict(
        re.split("=|: ", line, maxsplit=1)
        for line in upsert.analyze_plan(source).splitlines()
        if re.search("=|: ", line)
    )
    for name, count in {
        "num_updated_rows": 2,
        "num_inserted_rows": 1,
        "num_deleted_rows": 0,
        "num_files_written": 1,
        "rows_matched": 2,
    }.items():
        assert int(told[name]) == count
    assert int(told["bytes_read"]) > 0
    assert int(told["bytes_written"]) > 500
    assert "ms" in told["read and match keys"]
    assert dataset.version == 1
    assert glaive.dataset(dataset.uri).to_table()["w"].to_pylist() == [1] * 100
    assert upsert.execute(source)["num_updated_rows"] == 2


def test_keys_are_found_without_an_array_of_them(tmp_path: Path) -> None:
    rows: Any = pa.table({"k": range(200_000), "text": [f"{at:07d}" for at in range(200_000)]})
    dataset = glaive.write_dataset(rows, tmp_path / "d")
    for on, step in (("k", "find keys in encoded columns"), ("text", "look decoded keys up")):
        told = dataset.merge_insert(on).when_matched_delete().analyze_plan(rows.slice(70_000, 9))
        assert f"of that: {step}" in told
        assert "rows_scanned=200000" in told
        assert "num_deleted_rows=9" in told
