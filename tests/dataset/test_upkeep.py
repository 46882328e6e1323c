"""Upkeep after appends: what properties of the table ask for, its bounds, and its failures."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest

import glaive
from glaive.dataset import upkeep

FIRST = 100
APPENDS = 60


def rows(start: int, count: int) -> pa.Table:
    return pa.table({"id": range(start, start + count)})


def made(uri: str, properties: dict[str, str], *, stable: bool = False) -> glaive.LanceDataset:
    dataset = glaive.write_dataset(rows(0, FIRST), uri, enable_stable_row_ids=stable)
    dataset.create_scalar_index("id", "BTREE")
    dataset.update_config(properties)
    return dataset


def unindexed(dataset: glaive.LanceDataset) -> int:
    return int(dataset.stats.index_stats("id_idx")["num_unindexed_rows"])


PROPERTIES: dict[str, tuple[dict[str, str], int, int]] = {
    "neither": ({}, 61, 600),
    "off": ({"glaive.auto_compact": "false", "glaive.auto_index": ""}, 61, 600),
    "compaction": ({"glaive.auto_compact": "true"}, 15, 600),
    "compaction of four": ({"glaive.auto_compact": "4"}, 5, 600),
    "indices": ({"glaive.auto_index": "True"}, 61, 10),
    "indices always": ({"glaive.auto_index": "0"}, 61, 0),
    "both": ({"glaive.auto_compact": "true", "glaive.auto_index": "true"}, 17, 10),
}
"""By name: properties, and the fragments and unindexed rows after some appends."""


@pytest.mark.parametrize("stable", [False, True], ids=["addresses", "stable ids"])
@pytest.mark.parametrize("name", PROPERTIES)
def test_appends_keep_fragments_few_and_indices_complete(
    tmp_path: Path, name: str, stable: bool
) -> None:
    properties, fragments, lacking = PROPERTIES[name]
    uri = str(tmp_path / "t.lance")
    dataset = made(uri, properties, stable=stable)
    for at in range(APPENDS):
        before = dataset.version
        dataset.insert(rows(FIRST + 10 * at, 10))
        assert before < dataset.version == dataset.latest_version <= before + 6
    assert (len(dataset.get_fragments()), unindexed(dataset)) == (fragments, lacking)
    read = lance.dataset(uri)
    assert read.to_table() == dataset.to_table() == rows(0, FIRST + 10 * APPENDS)
    for wanted in (7, 333, 699):
        assert read.to_table(filter=f"id = {wanted}")["id"].to_pylist() == [wanted]
        assert dataset.to_table(filter=f"id = {wanted}")["id"].to_pylist() == [wanted]


def test_fragments_that_fill_one_are_merged_at_any_number(tmp_path: Path) -> None:
    properties = {
        "glaive.auto_compact": "true",
        "lance.compaction.target_rows_per_fragment": f"{FIRST}",
    }
    dataset = made(str(tmp_path / "t.lance"), properties)
    for at in range(10):
        dataset.insert(rows(FIRST + at * 20, 20))
    assert [one.count_rows() for one in dataset.get_fragments()] == [FIRST] * 3
    assert lance.dataset(dataset.uri).to_table() == rows(0, 3 * FIRST)


def test_a_commit_merges_and_indexes_a_bounded_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset = made(str(tmp_path / "t.lance"), {"glaive.auto_compact": "2"})
    size = sum(path.stat().st_size for path in Path(dataset.uri, "data").iterdir())
    monkeypatch.setattr(upkeep, "_MAX_BYTES", 3 * size)
    for at in range(8):
        dataset.insert(rows(FIRST * at, FIRST))
    assert max(one.count_rows() for one in dataset.get_fragments()) < 8 * FIRST
    dataset.update_config({"glaive.auto_index": "true"})
    monkeypatch.setattr(upkeep, "_MAX_ROWS", 8 * FIRST)
    dataset.insert(rows(0, FIRST))
    assert unindexed(dataset) == 9 * FIRST


def test_a_failure_of_upkeep_keeps_the_append(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    dataset = made(str(tmp_path / "t.lance"), {"glaive.auto_compact": "2"})
    dataset.insert(rows(0, 1))

    def fails(*_: Any) -> None:
        raise RuntimeError("no memory")

    monkeypatch.setattr(upkeep, "rewrite_groups", fails)
    dataset.insert(rows(1, 1))
    assert lance.dataset(dataset.uri).count_rows() == FIRST + 2
    assert "glaive.auto_compact" in caplog.text
    assert "no memory" in caplog.text
    dataset.update_config({"glaive.auto_compact": "many", "glaive.auto_index": "2"})
    dataset.insert(rows(2, 1))
    assert lance.dataset(dataset.uri).count_rows() == FIRST + 3
    assert "expected an integer ≥ 2, found 'many'" in caplog.text
    assert "expected a number from 0 to 1, found '2'" in caplog.text


def test_upkeep_yields_to_other_writers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    uri = str(tmp_path / "t.lance")
    dataset = made(uri, {"glaive.auto_compact": "2"})
    dataset.insert(rows(FIRST, 5))
    rewrite_groups = upkeep.rewrite_groups

    def overtaken(*given: Any) -> Any:
        results = rewrite_groups(*given)
        glaive.dataset(uri).delete(f"id = {FIRST}")
        return results

    monkeypatch.setattr(upkeep, "rewrite_groups", overtaken)
    with caplog.at_level(logging.INFO, "glaive.dataset.upkeep"):
        dataset.insert(rows(FIRST + 5, 5))
    assert "a later append tries again" in caplog.text
    named = {row["path"] for row in glaive.dataset(uri).tracked_files().read_all().to_pylist()}
    assert {f"data/{path.name}" for path in Path(uri, "data").iterdir()} <= named
    monkeypatch.undo()
    dataset.insert(rows(FIRST + 10, 5))
    expected = [*range(FIRST), *range(FIRST + 1, FIRST + 15)]
    assert sorted(lance.dataset(uri).to_table()["id"].to_pylist()) == expected
    assert len(dataset.get_fragments()) == 2


def test_files_that_are_ingested_are_compacted_too(tmp_path: Path) -> None:
    uri = str(tmp_path / "t.lance")
    made(uri, {"glaive.auto_compact": "2"})
    for at in range(4):
        (tmp_path / f"{at}.csv").write_text(f"id\n{FIRST + at}\n")
        glaive.ingest(tmp_path / f"{at}.csv", uri, mode="append")
    assert len(glaive.dataset(uri).get_fragments()) == 2
    assert lance.dataset(uri).to_table() == rows(0, FIRST + 4)
