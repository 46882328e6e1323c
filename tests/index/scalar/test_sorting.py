"""Sorting values with their rows."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from glaive.index.protocol import ValueBatch
from glaive.index.scalar.ordering import sort_keys
from glaive.index.scalar.sorting import merged, sorted_batch, sorted_runs

from .test_btree import EVERY_TYPE
from .values import values_of


def check(values: Any) -> None:
    rows = np.arange(len(values), dtype=np.uint64) * np.uint64(3)
    found = sorted_batch(ValueBatch(values, rows))
    assert found.values.type == values.type
    assert np.array_equal(np.sort(found.rows), rows)
    given = values.take(pa.array(found.rows // np.uint64(3)))
    assert repr(found.values.to_pylist()) == repr(given.to_pylist())
    nulls = values.null_count
    assert found.values[:nulls].null_count == nulls
    keys = sort_keys(found.values[nulls:])
    assert bool((keys[1:] >= keys[:-1]).all())


@pytest.mark.sampled(every=8)
@EVERY_TYPE
def test_values_of_every_type_are_sorted_nulls_first(kind: Any) -> None:
    check(values_of(kind, 6000, 1))
    check(values_of(kind, 6000, 1).drop_null())
    check(values_of(kind, 20, 1)[3:17])
    check(values_of(kind, 20, 1)[:0])


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string()], ids=str)
@pytest.mark.parametrize(
    "texts",
    [
        [f"user-{at * 7919 % 10007:08d}" for at in range(6000)],
        [f"{at * 7919 % 10007}" for at in range(6000)],
        ["a" * (at * 7919 % 307) for at in range(5000)],
        [f"{at * 7919 % 10007}" + "\0" * (at % 4) for at in range(6000)],
        [f"the same beginning {at % 2000}" + "\0" * (at % 3) for at in range(6000)],
        [f"{at % 3000:04d} tail {at * 7 % 6000}" for at in range(6000)],
        [f"{at % 7}" for at in range(6000)],
        [f"{at % 2500:08d}{'ÿ' * (at % 2)}" for at in range(5000)],
    ],
    ids=["common", "digits", "longer", "zeros", "zeros-later", "ties", "few", "halves"],
)
def test_texts_are_sorted_by_bytes(kind: Any, texts: list[str]) -> None:
    check(pa.array(texts, kind))
    check(pa.array(["before", None, *texts, None], kind)[1:])


@pytest.mark.parametrize("high", [10, 2**20, 2**62])
def test_numbers_far_apart_and_close_together_are_sorted(high: int) -> None:
    random = np.random.default_rng(1)
    check(pa.array(random.integers(-high, high, 5000)))
    check(pa.array(random.integers(0, high * 2, 5000).astype(np.uint64)))
    check(pa.array([2**63 - 1, -(2**63), 0] * 100))


def test_a_temporary_folder_is_made_for_values_beyond_the_memory_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    values = pa.array(range(1000))
    batches = [ValueBatch(values, np.arange(1000, dtype=np.uint64))] * 3
    with sorted_runs(batches, 1 << 20) as runs:
        assert [run.num_rows for run in runs] == [3000]
        assert not list(tmp_path.iterdir())
    with sorted_runs(batches, 1) as runs:
        assert [run.num_rows for run in runs] == [1000, 1000, 1000]
        (folder,) = tmp_path.iterdir()
        assert os.name == "nt" or not list(folder.iterdir())  # files are mapped, without names
    assert not list(tmp_path.iterdir())


@pytest.mark.nightly(reason="sorts more text than an array holds")
@pytest.mark.sampled(every=8)
@pytest.mark.parametrize("most", [1, 300, 2_000, 20_000])
@pytest.mark.parametrize("kind", [pa.string(), pa.large_string()], ids=str)
def test_texts_that_do_not_fit_one_array_are_sorted_in_several(
    most: int, kind: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    # 2 GiB of texts take too long: so few bytes stand for what offsets of 32 bits can count.
    monkeypatch.setattr("glaive.index.scalar.sorting.MAX_OFFSET", most)
    texts = [f"{at * 7919 % 911:04d}{'x' * (at * 31 % 200)}" for at in range(900)]
    values = pa.array([None, *texts, "0500", "0500"], kind)
    numbers = np.arange(len(values), dtype=np.uint64)
    batches = [ValueBatch(values[at : at + 60], numbers[at : at + 60]) for at in range(0, 903, 60)]
    with sorted_runs(batches, 1 << 30) as runs:
        assert len(runs) > 1 or kind != pa.string()
        found = list(merged(runs, 1 << 30))
    if kind == pa.string():
        sizes = [sum(map(len, batch.values.drop_null().to_pylist())) for batch in found]
        assert all(
            size <= most or len(batch.rows) == 1 for size, batch in zip(sizes, found, strict=True)
        )
    rows = np.concatenate([batch.rows for batch in found])
    assert np.array_equal(np.sort(rows), numbers)
    ordered = values.take(pa.array(rows)).to_pylist()
    assert ordered == [None, *sorted([*texts, "0500", "0500"])]
    assert [text for batch in found for text in batch.values.to_pylist()] == ordered
