"""Bitmap indices and label lists: built, merged, searched."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.counted_calls import counted_calls

import glaive
from glaive.arrow.conditions import HasText, IsNull
from glaive.errors import CorruptFileError
from glaive.index.protocol import HasLabels
from glaive.index.scalar import bitmap
from glaive.index.scalar.bitmap import LOOKUP, KeyBatch, merged_keys

from .built import answers, build, check, merge, opened, segments
from .test_btree import EVERY_TYPE, write
from .test_damage import replaced
from .values import conditions, values_of


@pytest.mark.sampled(every=32)
@pytest.mark.spec("bitmap-1")
@EVERY_TYPE
def test_rows_are_those_of_a_scan(tmp_path: Path, kind: Any) -> None:
    parts = [values_of(kind, 3000, 1), values_of(kind, 2500, 2)]
    path = write(tmp_path / "d", parts)
    build(path, "x", "bitmap")
    matches = [check(path, "x", condition) for condition in conditions(parts[0])]
    assert sum(map(bool, matches)) > 10


@pytest.mark.sampled(every=6)
@pytest.mark.parametrize("memory_limit", [1, 20_000, 1 << 30])
@pytest.mark.parametrize("stable", [False, True], ids=["addresses", "stable-ids"])
def test_merged_segments_have_the_rows_of_all(
    tmp_path: Path, memory_limit: int, stable: bool
) -> None:
    parts = [values_of(pa.string(), 4000, seed) for seed in range(4)]
    path = write(tmp_path / "d", parts, stable=stable)
    build(path, "x", "bitmap", fragments=[0, 1], memory_limit=memory_limit)
    build(path, "x", "bitmap", fragments=[2], memory_limit=memory_limit)
    merge(path, "x", "bitmap", new=[3])
    assert len(segments(path)) == 1
    for condition in conditions(parts[3]):
        check(path, "x", condition)


def test_keys_are_merged_without_going_through_all_sets_for_each() -> None:
    """Merging took time by the square of the keys: 2 s of 40,000, and half an hour of a million."""
    keys = 3000
    batches = [
        KeyBatch(pa.array(range(first, first + 300)), pa.array([b"set"] * 300, pa.binary()))
        for first in range(0, keys, 300)
    ]
    with counted_calls() as calls:
        (merged,) = merged_keys(batches)
    assert merged.keys.to_pylist() == [*range(keys)]
    assert merged.sets.to_pylist() == [b"set"] * keys
    assert calls["take"] < 10


def test_texts_are_found_by_any_part_of_them(tmp_path: Path) -> None:
    path = write(tmp_path / "d", [values_of(pa.string(), 1000, 1)])
    build(path, "x", "bitmap")
    for word in ("4", "ä", "z\0", "42"):
        assert check(path, "x", HasText(word=word))
        check(path, "x", HasText(word=word, ends=True))


LISTS = [None, [], [1, None], [1, 2], [None], [2, 2], [3]]


@pytest.mark.sampled(every=2)
@pytest.mark.spec("labels-1")
@pytest.mark.parametrize("make", [pa.list_, pa.large_list])
@pytest.mark.parametrize("stable", [False, True], ids=["addresses", "stable-ids"])
def test_lists_are_found_by_their_items(tmp_path: Path, make: Any, stable: bool) -> None:
    kind = make(pa.int64())
    parts = [pa.array(LISTS * 50, kind), pa.array(LISTS[::-1] * 20, kind)]
    path = write(tmp_path / "d", parts, stable=stable)
    build(path, "x", "labellist", fragments=[0])
    build(path, "x", "labellist", fragments=[1])
    for merged in (False, True):
        if merged:
            merge(path, "x", "labellist")
        for values, every, wanted in (
            ([1], False, [[1, None], [1, 2]]),
            ([1], True, [[1, None], [1, 2]]),
            ([1, 3], False, [[1, None], [1, 2], [3]]),
            ([1, 2], True, [[1, 2]]),
            ([2, 2], True, [[1, 2], [2, 2]]),
            ([1, 9], True, []),
            ([9], False, []),
        ):
            query = HasLabels(pa.array(values, pa.int64()), every)
            assert all(one.answers(query) for one in opened(path))
            found = answers(path, query, nulls=True)
            assert found.exact
            assert found.nulls is not None
            assert found.rows.count == 70 * len(wanted)
            assert lists_at(path, found.rows.rows()) == sorted(map(str, wanted * 70))
            assert lists_at(path, found.nulls.rows()) == ["None"] * 70
        assert answers(path, IsNull()).rows.count == 70


def lists_at(path: Path, rows: Any) -> list[str]:
    table = glaive.dataset(str(path)).to_table(with_row_id=True)
    chosen = np.isin(np.asarray(table["_rowid"]), rows)
    return sorted(str(one) for one in table["x"].filter(pa.array(chosen)).to_pylist())


def test_label_lists_do_not_answer_what_they_cannot_know(tmp_path: Path) -> None:
    path = write(tmp_path / "d", [pa.array(LISTS, pa.list_(pa.int64()))])
    build(path, "x", "labellist")
    (one,) = opened(path)
    assert not one.answers(HasLabels(pa.array([1], pa.int32())))
    assert not one.answers(HasLabels(pa.array([], pa.int64())))
    assert not one.answers(HasLabels(pa.array([None], pa.int64())))
    assert not one.answers(IsNull(negated=True))


@pytest.mark.spec("rel-12")
def test_floats_of_lists_are_found_as_by_a_scan(tmp_path: Path) -> None:
    lists = [[0.0], [-0.0], [float("nan"), None], [1.0, 0.0], None, [], [None]]
    dataset = glaive.write_dataset(pa.table({"id": range(7), "x": lists}), tmp_path / "t")
    dataset.create_scalar_index("x", "LABEL_LIST")
    for item, wanted in (("0.0", [0, 3]), ("-0.0", [1]), ("CAST('nan' AS double)", [2])):
        for test in (f"array_has(x, {item})", f"array_has_all(x, [{item}])"):
            for text, ids in ((test, wanted), (f"NOT {test}", {0, 1, 2, 3, 5, 6} - set(wanted))):
                for indexed in (True, False):
                    found = dataset.to_table(filter=text, use_scalar_index=indexed)["id"]
                    assert found.to_pylist() == sorted(ids), (text, indexed)


def test_decimals_of_a_negative_scale_are_grouped(tmp_path: Path) -> None:
    values = pa.array([100_000, 200_000, 100_000, None], pa.decimal128(20, 0))
    rows = pa.table({"d": values.cast(pa.decimal128(20, -5))})
    dataset = glaive.write_dataset(rows, tmp_path / "t")
    dataset.create_scalar_index("d", "BITMAP")
    assert dataset.to_table(filter="d IS NULL").num_rows == 1


@pytest.mark.parametrize("kind", ["BITMAP", "LABEL_LIST"])
def test_equal_keys_are_damage_before_their_sets_are_rebuilt(tmp_path: Path, kind: Any) -> None:
    values: Any = [f"v{at % 7}" for at in range(200)]
    rows = pa.table({"x": values if kind == "BITMAP" else [[value] for value in values]})
    dataset = glaive.write_dataset(rows, tmp_path / "d")
    dataset.create_scalar_index("x", kind)
    dataset.delete("_rowid < 20")
    replaced(
        tmp_path / "d", "bitmap_page_lookup.lance", lambda rows: rows.take(pa.array([2] * 5_000))
    )
    with pytest.raises(CorruptFileError, match=r"each key once.*_indices"):
        glaive.dataset(tmp_path / "d").optimize.compact_files(materialize_deletions_threshold=0.0)


@pytest.mark.spec("bitmap-1")
@pytest.mark.parametrize("resident", [0, 1 << 23])
def test_keys_in_any_order_are_searched_merged_and_rebuilt(
    tmp_path: Path, resident: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bitmap, "_RESIDENT_BYTES", resident)
    at = tmp_path / "d"
    rows = pa.table({"x": [None, 0.0, -0.0, float("nan"), 1.5, -2.0, 7.0] * 30})
    glaive.write_dataset(rows, at).create_scalar_index("x", "BITMAP")
    replaced(at, LOOKUP, lambda rows: rows.take(pa.array([3, 6, 0, 2, 5, 1, 4])))

    def check() -> None:
        dataset = glaive.dataset(at)
        for test in ("x = 1.5", "x < 1.5", "x IS NULL", "x IN (7.0, -2.0)", "x != 0.0"):
            scanned = dataset.to_table(filter=test, use_scalar_index=False)
            assert dataset.to_table(filter=test).num_rows == scanned.num_rows > 0, test
            plan = dataset.scanner(filter=test).explain_plan()
            assert "ScalarIndexQuery" in plan, test

    check()
    glaive.dataset(at).delete("_rowid < 20")
    glaive.dataset(at).optimize.compact_files(materialize_deletions_threshold=0.0)
    check()
    glaive.write_dataset(rows, at, mode="append")
    glaive.dataset(at).optimize.optimize_indices()
    check()
