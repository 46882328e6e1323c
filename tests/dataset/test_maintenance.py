"""Maintenance: the steps that pay for a table, what they leave, and other writers meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest

import glaive
from glaive.dataset import maintenance
from glaive.errors import OptionError

ROWS = pa.table({"id": range(400), "name": [f"name {at % 7}" for at in range(400)]})

Change = Callable[[glaive.LanceDataset], object]


def appended(rows: int, times: int = 1) -> Change:
    def change(dataset: glaive.LanceDataset) -> None:
        for at in range(times):
            dataset.insert(ROWS.slice(at * rows, rows))

    return change


def indexed(dataset: glaive.LanceDataset) -> None:
    dataset.create_scalar_index("name", "BTREE")


def deleted(filter: str) -> Change:
    return lambda dataset: dataset.delete(filter)


def tagged(dataset: glaive.LanceDataset) -> None:
    dataset.tags.create("first")


SITUATIONS: dict[str, tuple[list[Change], dict[str, Any], list[tuple[str, str]]]] = {
    "one fragment": ([], {}, []),
    "few small fragments": ([appended(1, 31)], {}, []),
    "many small fragments": (
        [appended(1, 32)],
        {},
        [("compact", "33 of 33 fragments are below 1,048,576 rows")],
    ),
    "a lower threshold": (
        [appended(1)],
        {"small_fragments": 1},
        [("compact", "2 of 2 fragments are below 1,048,576 rows")],
    ),
    "a tenth deleted": ([deleted("id < 40")], {}, []),
    "more than a tenth deleted": (
        [deleted("id < 41")],
        {},
        [("compact", "1 of 1 fragment lost more than 10 % of the rows")],
    ),
    "an index of all rows": ([indexed], {}, []),
    "an index that lacks few rows": ([indexed, appended(40)], {}, []),
    "an index that lacks rows": (
        [indexed, appended(100)],
        {},
        [("optimize_indices", "index name_idx lacks 20 % of the rows")],
    ),
    "any row that an index lacks": (
        [indexed, appended(1)],
        {"unindexed_share": 0},
        [("optimize_indices", "index name_idx lacks 0.249 % of the rows")],
    ),
    "a young tag": ([tagged, appended(1)], {"tag_retention_days": 1}, []),
    "an old tag": (
        [tagged, appended(1)],
        {"tag_retention_days": 0},
        [("expire_tags", "1 tag from 0 days ago or earlier: first")],
    ),
    "tags are kept unless an age is given": ([tagged, appended(1)], {}, []),
    "only some steps": ([indexed, appended(1, 32)], {"steps": "vacuum"}, []),
    "all": (
        [tagged, indexed, appended(10, 33), deleted("id > 390")],
        {"tag_retention_days": 0, "retention_days": 0},
        [
            ("compact", "33 of 34 fragments are below 1,048,576 rows"),
            ("optimize_indices", "index name_idx lacks 45.8 % of the rows"),
            ("expire_tags", "1 tag from 0 days ago or earlier: first"),
            ("vacuum", "34 versions from 0 days ago or earlier; 68 unneeded files of 0.1 MB"),
        ],
    ),
}


def files(uri: str) -> dict[Path, int]:
    return {path: path.stat().st_mtime_ns for path in Path(uri).rglob("*") if path.is_file()}


@pytest.mark.parametrize("stable", [False, True], ids=["addresses", "stable ids"])
@pytest.mark.parametrize("situation", SITUATIONS)
def test_the_steps_that_pay_run_and_keep_all_rows(
    tmp_path: Path, situation: str, stable: bool
) -> None:
    changes, options, expected = SITUATIONS[situation]
    uri = str(tmp_path / "t.lance")
    dataset = glaive.write_dataset(ROWS, uri, enable_stable_row_ids=stable)
    for change in changes:
        change(dataset)
    before, found = files(uri), "name = 'name 3' AND id < 300"
    planned = dataset.optimize.maintain(dry_run=True, **options)
    assert [(step.step, step.reason) for step in planned] == expected
    assert files(uri) == before
    rows, matching = dataset.to_table(), dataset.to_table(filter=found)

    made = dataset.optimize.maintain(**options)
    assert [step.step for step in made] == [step for step, _ in expected]
    assert dataset.optimize.maintain(**options) == []
    read = lance.dataset(uri)
    assert read.version == dataset.version
    assert read.to_table().sort_by("id") == rows.sort_by("id")
    assert read.to_table(filter=found).sort_by("id") == matching.sort_by("id")
    assert dataset.to_table(filter=found).sort_by("id") == matching.sort_by("id")


def test_indices_cover_the_rows_again_that_a_compaction_moved(tmp_path: Path) -> None:
    dataset = glaive.write_dataset(ROWS, tmp_path / "t.lance", max_rows_per_file=10)
    dataset.create_scalar_index("id", "ZONEMAP")
    assert [step.step for step in dataset.optimize.maintain(dry_run=True)] == ["compact"]
    made = dataset.optimize.maintain()
    assert [step.step for step in made] == ["compact", "optimize_indices"]
    assert dataset.stats.index_stats("id_idx")["num_unindexed_rows"] == 0


def test_a_step_runs_again_after_a_conflict(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    uri = tmp_path / "t.lance"
    dataset = glaive.write_dataset(ROWS, uri, max_rows_per_file=10)
    rewrite_useful, calls = maintenance.rewrite_useful, list[object]()

    def overtaken(*given: Any) -> Any:
        results = rewrite_useful(*given)
        if not calls:
            calls.append(glaive.dataset(uri).delete("id = 5"))
        return results

    monkeypatch.setattr(maintenance, "rewrite_useful", overtaken)
    assert [step.step for step in dataset.optimize.maintain()] == ["compact"]
    assert calls
    assert lance.dataset(uri).to_table().sort_by("id")["id"].to_pylist() == [
        *range(5),
        *range(6, 400),
    ]
    assert len(dataset.get_fragments()) == 1


def test_wrong_options_are_refused(tmp_path: Path) -> None:
    dataset = glaive.write_dataset(ROWS, tmp_path / "t.lance")
    wrong: dict[str, Any] = {
        "steps": ["vacum"],
        "small_fragments": 0,
        "unindexed_share": 2,
        "retention_days": -1,
        "tag_retention_days": "old",
        "age": 3,
    }
    for name, value in wrong.items():
        with pytest.raises(OptionError, match=name):
            dataset.optimize.maintain(**{name: value})


def test_an_empty_table_needs_nothing(tmp_path: Path) -> None:
    dataset = glaive.write_dataset(ROWS.slice(0, 0), tmp_path / "t.lance")
    dataset.create_scalar_index("id", "BTREE")
    assert dataset.optimize.maintain() == []
