"""Which fragments an index is said to cover after rows moved: as pylance leaves it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from tests.kit.model import made_rows
from tests.kit.observe import coverage

import glaive

os.environ.setdefault("LANCE_LOG", "error")
lance: Any = pytest.importorskip("lance", reason="install the 'interop' group")
pytestmark = pytest.mark.interop

INDICES = {
    "BTREE": ("text", "text = 't1'"),
    "BITMAP": ("text", "text = 't1'"),
    "LABEL_LIST": ("words", "array_has_any(words, ['w1'])"),
    "ZONEMAP": ("id", "id < 5"),
    "BLOOMFILTER": ("id", "id = 3"),
    "NGRAM": ("text", "contains(text, 't1')"),
}


def merged(library: Any, place: str, ids: list[int], columns: list[str]) -> None:
    rows = made_rows(ids, 5).select(columns)
    library.dataset(place).merge_insert("id").when_matched_update_all().execute(rows)


def updated(library: Any, place: str, where: str) -> None:
    library.dataset(place).update({"number": "number + 1"}, where)


def updated_with_more(library: Any, place: str) -> None:
    lance.write_dataset(made_rows(range(20, 30), 28), place, mode="append")
    updated(library, place, "id IN (3, 25)")


CHANGES: dict[str, Any] = {
    "one row": lambda lib, at: updated(lib, at, "id = 3"),
    "a fragment": lambda lib, at: updated(lib, at, "id < 10"),
    "no row": lambda lib, at: updated(lib, at, "id > 1000"),
    "rows of which one is not covered": updated_with_more,
    "the indexed columns": lambda lib, at: lib.dataset(at).update(
        {"text": "'x'", "words": "words", "id": "id"}, "id = 3"
    ),
    "merged rows": lambda lib, at: merged(
        lib, at, [1, 2], ["id", "number", "text", "words", "vector"]
    ),
    "merged columns": lambda lib, at: merged(lib, at, [1, 2], ["id", "number"]),
    "deleted": lambda lib, at: lib.dataset(at).delete("id < 3 OR id > 9"),
    "overwritten": lambda lib, at: lib.write_dataset(made_rows([1], 1), at, mode="overwrite"),
}


@pytest.mark.sampled(every=9)
@pytest.mark.parametrize("stable", [False, True], ids=["addresses", "stable-ids"])
@pytest.mark.parametrize("name", CHANGES)
def test_an_index_covers_the_same_fragments(tmp_path: Path, name: str, stable: bool) -> None:
    seen = []
    for library in (glaive, lance):
        place = str(tmp_path / library.__name__)
        dataset = lance.write_dataset(
            made_rows(range(20), 28), place, max_rows_per_file=10, enable_stable_row_ids=stable
        )
        for kind, (column, _) in INDICES.items():
            dataset.create_scalar_index(column, kind, name=kind)
        CHANGES[name](library, place)
        opened = lance.dataset(place)
        searches = {
            kind: [
                sorted(
                    opened.scanner(filter=text, use_scalar_index=use).to_table()["id"].to_pylist()
                )
                for use in (True, False)
            ]
            for kind, (_, text) in INDICES.items()
        }
        seen.append((coverage(lance, place), searches))
        for kind, (found, expected) in searches.items():
            assert found == expected or name == "merged rows", kind
    assert seen[0] == seen[1]


@pytest.mark.sampled(every=4)
@pytest.mark.parametrize("target", [3, 5, 7])
@pytest.mark.parametrize("rows", [1, 6, 11, 14, 20, 29, 35])
def test_compaction_shares_the_rows_out_alike(tmp_path: Path, rows: int, target: int) -> None:
    sizes = []
    for library in (glaive, lance):
        place = str(tmp_path / library.__name__)
        lance.write_dataset(made_rows(range(rows + 1), 1), place).delete(f"id = {rows}")
        library.dataset(place).optimize.compact_files(
            target_rows_per_fragment=target, materialize_deletions_threshold=0.0
        )
        sizes.append([one.physical_rows for one in glaive.dataset(place).get_fragments()])
    assert sizes[0] == sizes[1]
