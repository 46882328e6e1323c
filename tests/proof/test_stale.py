"""A change made for a version that is no longer the newest: done as if after the others, or not."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.kit.model import Model, Predicate, made_rows, sorted_rows
from tests.kit.strategies import Merge

import glaive
from glaive.errors import CommitConflictError

os.environ.setdefault("LANCE_LOG", "error")
lance: Any = pytest.importorskip("lance", reason="install the 'interop' group")
pytestmark = pytest.mark.interop

Change = tuple[Callable[[Any], object], Callable[[Model], Model]]
"""A change of an opened dataset, and the same change of a model."""

SOURCE = made_rows([2, 12, 13, 50], 9)


def deletion(predicate: Predicate) -> Change:
    return (
        lambda at: at.delete(predicate.text),
        lambda model: model.without(model.matching(predicate)),
    )


def update(predicate: Predicate) -> Change:
    return (
        lambda at: at.update({"text": "'new'"}, predicate.text),
        lambda model: model.with_values(model.matching(predicate), "text", lambda _: "new"),
    )


def merge(clauses: Merge) -> Change:
    return (
        lambda at: clauses.build(at.merge_insert("id")).execute(SOURCE),
        lambda model: clauses.expected(model, SOURCE),
    )


def below(limit: int) -> Predicate:
    return Predicate(f"id < {limit}", lambda row: row["id"] < limit)


def exactly(number: int) -> Predicate:
    return Predicate(f"id = {number}", lambda row: row["id"] == number)


ALL = Predicate("true", lambda _: True)

CHANGES: dict[str, Change] = {
    "delete a row": deletion(exactly(2)),
    "delete another row": deletion(exactly(3)),
    "delete a fragment": deletion(below(10)),
    "delete all but a row": deletion(Predicate("id != 2", lambda row: row["id"] != 2)),
    "delete all": deletion(ALL),
    "update a row": update(exactly(2)),
    "update a fragment": update(below(10)),
    "update all": update(ALL),
    "upsert": merge(Merge("update", insert=True, prune=False)),
    "merge and prune": merge(Merge("update", insert=True, prune=True)),
    "delete what matches": merge(Merge("delete", insert=False, prune=False)),
    "insert what is new": merge(Merge("keep", insert=True, prune=False)),
    "compact": (
        lambda at: at.optimize.compact_files(materialize_deletions_threshold=0.0),
        lambda model: model,
    ),
    "drop a column": (lambda at: at.drop_columns(["words"]), lambda model: model.dropped("words")),
}
INSERTING = {"upsert", "merge and prune", "insert what is new"}
"""Not after "insert what is new": rows that appear meanwhile are no conflict, and not seen."""
AGAIN = {name for name in CHANGES if name not in ("compact", "drop a column")}
"""Changes that are done again when they conflict, until they go through."""


@pytest.mark.sampled(every=8)
@pytest.mark.parametrize("stable", [False, True], ids=["addresses", "stable-ids"])
@pytest.mark.parametrize("first", sorted(CHANGES.keys() - {"insert what is new"}))
def test_it_is_as_if_it_came_later(tmp_path: Path, first: str, stable: bool) -> None:
    rows = made_rows(range(20), 1)
    for number, second in enumerate(CHANGES):
        place = str(tmp_path / second)
        glaive.write_dataset(rows, place, max_rows_per_file=10, enable_stable_row_ids=stable)
        glaive.dataset(place).delete("id = 7")
        stale = glaive.dataset(place)
        other = (glaive, lance)[number % 2]
        CHANGES[first][0](other.dataset(place))
        before = CHANGES[first][1](Model.of(stale.to_table()))
        expected = CHANGES[second][1](before)
        if second in INSERTING and first == "drop a column":
            continue
        rows_after = expected.sorted()
        if second == "insert what is new":
            known = set(stale.to_table()["id"].to_pylist())
            added = [row for row in SOURCE.to_pylist() if row["id"] not in known]
            rows_after = sorted([*before.sorted(), *added], key=lambda row: int(row["id"]))
        try:
            CHANGES[second][0](stale)
        except CommitConflictError:
            assert second not in AGAIN, (first, second)
            rows_after = before.sorted()
        for library in (glaive, lance):
            opened = library.dataset(place)
            assert sorted_rows(opened.to_table()) == rows_after, (first, second)
            assert opened.count_rows() == len(rows_after)


def test_rows_that_fill_several_files_keep_their_ids(tmp_path: Path) -> None:
    count = 1024 * 1024 + 100
    place = str(tmp_path / "t")
    rows = pa.table({"id": np.arange(count), "number": np.zeros(count, np.int8)})
    glaive.write_dataset(rows, place, enable_stable_row_ids=True)
    glaive.dataset(place).update({"number": "1"})
    after = glaive.dataset(place)
    assert len(after.get_fragments()) == 2
    table = after.to_table(with_row_id=True)
    assert table["_rowid"].to_numpy().tobytes() == np.arange(count, dtype=np.uint64).tobytes()
    assert table["id"].to_numpy().tobytes() == np.arange(count).tobytes()
    last = lance.dataset(place).to_table(with_row_id=True, offset=count - 200)
    assert last["_rowid"].to_pylist() == last["id"].to_pylist() == list(range(count - 200, count))


def test_merged_rows_come_in_the_order_of_the_source(tmp_path: Path) -> None:
    orders = []
    for library in (glaive, lance):
        place = str(tmp_path / library.__name__)
        glaive.write_dataset(made_rows(range(10), 1), place, max_rows_per_file=4)
        builder = library.dataset(place).merge_insert("id")
        builder.when_matched_update_all().when_not_matched_insert_all()
        builder.execute(made_rows([7, 2, 21, 5, 20, 3], 9))
        orders.append(glaive.dataset(place).to_table()["id"].to_pylist())
    assert orders[0] == orders[1] == [0, 1, 4, 6, 8, 9, 7, 2, 5, 3, 21, 20]


@pytest.mark.parametrize("name", ["delete another row", "update a row", "delete what matches"])
def test_other_rows_of_a_fragment_are_no_reason_to_begin_anew(tmp_path: Path, name: str) -> None:
    place = str(tmp_path / "t")
    glaive.write_dataset(made_rows(range(20), 1), place)
    stale = glaive.dataset(place)
    glaive.dataset(place).delete("id = 5")
    expected = CHANGES[name][1](Model.of(glaive.dataset(place).to_table()))
    if name == "delete another row":
        stale.delete("id = 3", conflict_retries=0)
    elif name == "update a row":
        stale.update({"text": "'new'"}, "id = 2", conflict_retries=0)
    else:
        builder = stale.merge_insert("id").when_matched_delete().conflict_retries(0)
        builder.execute(SOURCE)
    assert stale.version == 3
    for library in (glaive, lance):
        assert sorted_rows(library.dataset(place).to_table()) == expected.sorted()


def test_a_key_that_is_there_is_not_inserted_however_often_it_is_given(tmp_path: Path) -> None:
    found = []
    for library in (glaive, lance):
        place = str(tmp_path / library.__name__)
        glaive.write_dataset(made_rows(range(5), 1), place)
        builder = library.dataset(place).merge_insert("id").when_not_matched_insert_all()
        counts = builder.execute(made_rows([2, 9, 2, 2], 3))
        found.append((counts["num_inserted_rows"], library.dataset(place).to_table().to_pylist()))
    assert found[0] == found[1]
    assert [row["id"] for row in found[0][1]] == [0, 1, 2, 3, 4, 9]


def test_what_several_others_deleted_stays_deleted(tmp_path: Path) -> None:
    place = str(tmp_path / "t")
    glaive.write_dataset(made_rows(range(20), 1), place, max_rows_per_file=10)
    stale = glaive.dataset(place)
    glaive.dataset(place).delete("id = 5")
    lance.dataset(place).delete("id = 15")
    stale.delete("id IN (2, 12)", conflict_retries=0)
    expected = [number for number in range(20) if number not in (2, 5, 12, 15)]
    for library in (glaive, lance):
        assert library.dataset(place).to_table()["id"].to_pylist() == expected
