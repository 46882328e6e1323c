"""Samplers: shares of processes, orders of epochs, rows at random."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.traced import traced_peak

import glaive
from glaive.errors import LimitError, OptionError, SchemaError
from glaive.sampler import (
    FullScanSampler,
    ShardedBatchSampler,
    ShardedFixedBatchSampler,
    ShardedFragmentSampler,
    ShuffledBlockSampler,
    maybe_sample,
    reservoir_sampling,
)

ROWS = 100


@pytest.fixture
def dataset(tmp_path: Path) -> glaive.LanceDataset:
    table = pa.table({"id": range(ROWS), "name": [str(row) for row in range(ROWS)]})
    return glaive.write_dataset(table, str(tmp_path / "a.lance"), max_rows_per_file=15)


def ids(batches: Iterable[Any]) -> list[int]:
    return [row for batch in batches for row in batch["id"].to_pylist()]


def test_a_full_scan_has_all_rows_in_order(dataset: glaive.LanceDataset) -> None:
    assert ids(FullScanSampler()(dataset)) == list(range(ROWS))
    named = list(FullScanSampler()(dataset, columns=["id"], with_row_id=True, filter="id < 3"))
    assert named[0].schema.names == ["id", "_rowid"]
    assert ids(named) == [0, 1, 2]


@pytest.mark.spec("rel-4")
@pytest.mark.parametrize(
    "sampler",
    [
        FullScanSampler(),
        ShardedFragmentSampler(0, 1, randomize=True),
        ShardedBatchSampler(0, 1, randomize=True),
        ShuffledBlockSampler(block_rows=4, window_rows=8),
    ],
    ids=lambda sampler: type(sampler).__name__,
)
@pytest.mark.parametrize("condition", [None, "id >= 0"])
def test_a_pass_has_the_rows_of_one_version(
    dataset: glaive.LanceDataset, sampler: Any, condition: str | None
) -> None:
    batches = sampler(dataset, batch_size=4, columns=["id"], filter=condition)
    found = next(batches)["id"].to_pylist()
    dataset.delete("id < 40")
    assert sorted([*found, *ids(batches)]) == list(range(ROWS))
    assert len(ids(sampler(dataset, batch_size=4))) == ROWS - 40


@pytest.mark.parametrize("condition", [None, "id >= 0"])
def test_rows_at_random_are_of_one_version(
    dataset: glaive.LanceDataset, condition: str | None
) -> None:
    batches = maybe_sample(dataset, ROWS - 1, ["id"], batch_size=4, filt=condition)
    found = next(batches)["id"].to_pylist()
    dataset.delete("id < 40")
    assert len({*found, *ids(batches)}) == ROWS - 1


@pytest.mark.parametrize("kind", [ShardedBatchSampler, ShardedFragmentSampler])
@pytest.mark.parametrize("condition", [None, "id % 3 = 0"])
@pytest.mark.parametrize("randomize", [False, True])
def test_shares_have_each_row_once(
    dataset: glaive.LanceDataset, kind: Any, condition: str | None, randomize: bool
) -> None:
    shares = [
        ids(kind(rank, 3, randomize)(dataset, batch_size=7, columns=["id"], filter=condition))
        for rank in range(3)
    ]
    wanted = [row for row in range(ROWS) if condition is None or row % 3 == 0]
    assert sorted(row for share in shares for row in share) == wanted
    assert all(shares)


@pytest.mark.parametrize("kind", [ShardedBatchSampler, ShardedFragmentSampler])
def test_each_epoch_has_an_order_of_its_own_that_a_seed_repeats(
    dataset: glaive.LanceDataset, kind: Any
) -> None:
    def order(seed: int, epoch: int) -> list[int]:
        sampler = kind(0, 1, randomize=True, seed=seed)
        sampler.set_epoch(epoch)
        return ids(sampler(dataset, batch_size=5))

    assert order(1, 2) == order(1, 2)
    assert order(1, 2) != order(1, 3)
    assert order(1, 2) != order(2, 2)
    assert sorted(order(1, 2)) == list(range(ROWS))


@pytest.mark.parametrize("rank", [-1, 2])
def test_a_rank_is_below_the_number_of_processes(rank: int) -> None:
    with pytest.raises(OptionError, match="rank: expected 0 to 1"):
        ShardedBatchSampler(rank, 2)


@pytest.mark.parametrize(
    ("options", "among"),
    [
        ({}, range(ROWS)),
        ({"max_takes": 7}, range(ROWS)),
        ({"filt": "id >= 50"}, range(50, ROWS)),
        ({"batch_size": 4}, range(ROWS)),
    ],
)
def test_a_sample_has_so_many_different_rows(
    dataset: glaive.LanceDataset, options: dict[str, Any], among: range
) -> None:
    found = ids(maybe_sample(dataset.uri, 20, "id", **options))
    assert len(found) == len(set(found)) == 20
    assert set(found) <= set(among)


@pytest.mark.sampled(every=2)
@pytest.mark.parametrize("condition", [None, "id % 3 = 0"])
@pytest.mark.parametrize("kind", [ShardedBatchSampler, ShardedFragmentSampler])
def test_a_share_goes_on_behind_the_rows_that_were_read_wherever_its_last_batch_is(
    dataset: glaive.LanceDataset, kind: Any, condition: str | None
) -> None:
    options: dict[str, Any] = {"batch_size": 8, "columns": ["id"], "filter": condition}
    for seed, rank in itertools.product(range(8), range(2)):
        sampler = kind(rank, 2, randomize=True, seed=seed)
        share = ids(sampler(dataset, **options))
        for done in (*range(0, len(share), 8), 3, len(share) - 1, len(share)):
            assert ids(sampler(dataset, **options, offset=done)) == share[done:]


@pytest.mark.parametrize("value", [None, -1, 1.5, "x", True, [], float("nan")])
def test_numbers_of_shares_and_batches_that_are_none_are_named(
    dataset: glaive.LanceDataset, value: Any
) -> None:
    kinds: list[Any] = [ShardedBatchSampler, ShardedFragmentSampler, ShuffledBlockSampler]
    for kind, name in itertools.product(kinds, ["rank", "world_size", "seed"]):
        with pytest.raises(OptionError, match=name):
            kind(**{"rank": 0, "world_size": 2, name: value})
    for kind in kinds:
        with pytest.raises(OptionError, match="epoch"):
            kind(0, 2).set_epoch(value)
    for name in ("batch_size", "offset"):
        for sampler in (ShardedBatchSampler(0, 2), ShuffledBlockSampler(0, 2)):
            with pytest.raises(OptionError, match=name):
                list(sampler(dataset, **{name: value}))
    with pytest.raises(OptionError, match="block_rows"):
        ShuffledBlockSampler(block_rows=value)
    with pytest.raises(OptionError, match="total_num_rows"):
        ShardedFixedBatchSampler(0, 2, batch_size=5, total_num_rows=value)
    for name in ("n", "batch_size", "max_takes"):
        given: dict[str, Any] = {"n": 5, "columns": ["id"], name: value}
        with pytest.raises(OptionError, match=name):
            maybe_sample(dataset, **given)


def test_no_row_is_twice_in_a_sample_of_nearly_all(dataset: glaive.LanceDataset) -> None:
    for takes in (7, 13, 30):
        for count in (takes + 1, 66, 92, 97, 98, 99):
            found = ids(maybe_sample(dataset, count, ["id"], max_takes=takes))
            assert len(found) == len(set(found)) == count


def test_a_sample_of_more_rows_than_there_are_has_all(dataset: glaive.LanceDataset) -> None:
    assert ids(maybe_sample(dataset, ROWS, ["id"])) == list(range(ROWS))
    assert len(ids(maybe_sample(dataset, 90, ["id"], filt="id < 10"))) == 10
    for name in ("n", "batch_size", "max_takes"):
        options = {"n": 1, "columns": ["id"], name: 0}
        with pytest.raises(OptionError, match=f"{name}: expected an integer ≥ 1"):
            maybe_sample(dataset, **options)


def test_samples_differ(dataset: glaive.LanceDataset) -> None:
    samples = {tuple(sorted(ids(maybe_sample(dataset, 20, ["id"])))) for _ in range(5)}
    assert len(samples) > 1


@pytest.mark.parametrize("rows", [0, 1, 10, 23])
def test_fixed_batches_are_neighbouring_rows_of_each_process(rows: int) -> None:
    samplers = [ShardedFixedBatchSampler(rank, 3, True, 5, 4, rows) for rank in range(3)]
    batches = [list(one) for one in samplers]
    assert [len(one) for one in batches] == [len(one) for one in samplers]
    assert all(len(one) <= 4 for share in batches for one in share)
    assert sorted(row for share in batches for one in share for row in one) == list(range(rows))
    assert batches == [list(one) for one in samplers]
    with pytest.raises(OptionError, match="batch_size"):
        ShardedFixedBatchSampler(0, 1, batch_size=0, total_num_rows=5)


def test_a_sample_of_a_stream_is_of_its_items() -> None:
    assert reservoir_sampling(iter("ab"), 3) == ["a", "b"]
    chosen = reservoir_sampling(iter(range(1000)), 10)
    assert len(set(chosen)) == 10
    assert max(chosen) > 10


@pytest.mark.nightly(reason="samples billions of rows")
@pytest.mark.spec("rel-24")
def test_rows_that_few_bytes_stand_for_are_sampled_in_little_memory(tmp_path: Path) -> None:
    rows = 2**31
    options: dict[str, Any] = {"max_rows_per_file": rows, "max_rows_per_group": rows}
    dataset = glaive.write_dataset(pa.table({"a": pa.nulls(rows)}), tmp_path, **options)

    def first(sampler: Any) -> list[pa.RecordBatch]:
        return list(islice(sampler(dataset, batch_size=8), 2))

    first(ShardedBatchSampler(0, 2))
    assert traced_peak(lambda: first(ShardedBatchSampler(1, 2))) < 2**26
    with pytest.raises(LimitError, match=r"268435456 parts.*batch_size"):
        first(ShardedBatchSampler(0, 2, randomize=True))
    with pytest.raises(LimitError, match=r"268435456 parts.*block_rows"):
        first(ShuffledBlockSampler(block_rows=8))
    assert [len(one) for one in first(ShuffledBlockSampler())] == [8, 8]


def test_names_that_are_reserved_are_not_taken_for_positions_of_rows(tmp_path: Path) -> None:
    glaive.write_dataset(pa.table({"a": [1, 2], "xrowoffset": ["x", "y"]}), tmp_path)
    (manifest,) = (tmp_path / "_versions").glob("*.manifest")
    manifest.write_bytes(manifest.read_bytes().replace(b"xrowoffset", b"_rowoffset"))
    with pytest.raises(SchemaError, match=r"'_rowoffset'.*reserved"):
        list(ShuffledBlockSampler()(glaive.dataset(tmp_path), filter="a = 1"))
