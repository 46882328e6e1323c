"""B-trees: built, merged, searched, and what pylance makes of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import glaive
from glaive.arrow.conditions import IsNull, IsOneOf

from .built import build, check, merge, opened, segments
from .values import TYPES, conditions, values_of

EVERY_TYPE = pytest.mark.parametrize("kind", TYPES.values(), ids=TYPES)


def write(path: Path, parts: list[Any], *, stable: bool = False, version: str = "2.2") -> Path:
    """A dataset with a fragment for each part of its column ``x``."""
    options: dict[str, Any] = {"data_storage_version": version, "enable_stable_row_ids": stable}
    for part in parts:
        glaive.write_dataset(pa.table({"x": part}), str(path), mode="append", **options)
    return path


@pytest.mark.sampled(every=32)
@pytest.mark.spec("btree-5")
@pytest.mark.spec("btree-1")
@pytest.mark.spec("btree-2")
@EVERY_TYPE
def test_rows_are_those_of_a_scan(tmp_path: Path, kind: Any) -> None:
    parts = [values_of(kind, 3000, 1), values_of(kind, 2500, 2)]
    path = write(tmp_path / "d", parts)
    build(path, "x", "btree")
    matches = [check(path, "x", condition) for condition in conditions(parts[0])]
    assert sum(map(bool, matches)) > 10


@pytest.mark.sampled(every=12)
@pytest.mark.parametrize("memory_limit", [1, 100_000, 1 << 30])
@pytest.mark.parametrize("kind", [pa.int64(), pa.float32(), pa.string(), pa.decimal128(20, 2)])
def test_merged_segments_have_the_rows_of_all(tmp_path: Path, memory_limit: int, kind: Any) -> None:
    parts = [values_of(kind, 6000, seed) for seed in range(4)]
    path = write(tmp_path / "d", parts)
    build(path, "x", "btree", fragments=[0, 1], memory_limit=memory_limit)
    build(path, "x", "btree", fragments=[2], memory_limit=memory_limit)
    merge(path, "x", "btree", new=[3])
    assert len(segments(path)) == 1
    for condition in conditions(parts[3]):
        check(path, "x", condition)


@pytest.mark.nightly(reason="builds an index several times")
@pytest.mark.sampled(every=2)
@pytest.mark.spec("btree-2")
@pytest.mark.parametrize("memory_limit", [1, 1 << 30])
def test_pages_are_the_same_whatever_the_limit_of_memory(tmp_path: Path, memory_limit: int) -> None:
    values = pa.array(np.random.default_rng(3).permutation(9_000))
    path = write(tmp_path / "d", [values[:4000], values[4000:]])
    build(path, "x", "btree", memory_limit=memory_limit)
    (segment,) = segments(path)
    pages = segment.open("page_data.lance").read()
    assert pages["values"].to_pylist() == list(range(9_000))
    numbers = glaive.dataset(str(path)).to_table(with_row_id=True).sort_by("x")
    assert pages["ids"].to_pylist() == numbers["_rowid"].to_pylist()
    lookup = segment.open("page_lookup.lance").read()
    assert lookup["min"].to_pylist() == list(range(0, 9_000, 4096))
    assert lookup["max"].to_pylist() == [4095, 8191, 8999]


def test_an_empty_index_finds_nothing(tmp_path: Path) -> None:
    path = write(tmp_path / "d", [pa.array([], pa.int64()), pa.array([7])])
    build(path, "x", "btree", fragments=[])
    assert [one.search(IsNull()).rows.count for one in opened(path)] == [0]
    merge(path, "x", "btree", new=[0])
    assert check(path, "x", IsOneOf(pa.array([7]))) == 1


@pytest.mark.parametrize("kind", [pa.int64(), pa.string()])
def test_answers_stay_the_same_once_all_pages_are_searched_as_one(
    tmp_path: Path, kind: Any
) -> None:
    numbers = np.random.default_rng(4).integers(0, 300, 2_000)
    values = pa.array(numbers, mask=numbers < 3).cast(kind)
    path = write(tmp_path / "d", [values])
    build(path, "x", "btree", {"zone_size": 64})
    dataset = glaive.dataset(str(path))
    few = [f"'{number}'" if kind == pa.string() else f"{number}" for number in (141, 241, 900)]
    tests = [f"x = {few[1]}", f"x IN ({', '.join(few)})", f"x >= {few[0]} AND x < {few[1]}"]
    tests += [f"x NOT IN ({', '.join(few)})", "x IS NULL", f"x IN ({few[0]}, NULL)"]
    wanted = {
        test: dataset.to_table(filter=test, use_scalar_index=False, with_row_id=True)
        for test in tests
    }
    assert [wanted[test].num_rows > 0 for test in tests[:5]] == [True] * 5
    for _ in range(12):
        for test in tests:
            found = dataset.to_table(filter=test, use_scalar_index=True, with_row_id=True)
            assert found.equals(wanted[test]), test
