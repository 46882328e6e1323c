"""Passes over a dataset: shuffled, shared out, stopped and continued, with and without workers."""

from __future__ import annotations

import json
from collections.abc import Iterable
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from glaive.torch.data import LanceDataset, LanceLoader, SafeLanceDataset

import glaive
from glaive.errors import OptionError
from glaive.sampler import FullScanSampler, ShardedBatchSampler, ShardedFragmentSampler

torch: Any = pytest.importorskip("torch", reason="install the 'loaders' group")

ROWS = 1000


@pytest.fixture(scope="module")
def uri(tmp_path_factory: pytest.TempPathFactory) -> str:
    place = str(tmp_path_factory.mktemp("passes") / "a.lance")
    dataset = glaive.write_dataset({"id": np.arange(ROWS + 10)}, place, max_rows_per_file=300)
    dataset.delete("id < 10")
    return place


def data(uri: str, **options: Any) -> LanceDataset:
    return LanceDataset(uri, 32, columns=["id"], **options)


def rows(batches: Iterable[Any]) -> list[int]:
    return [int(row) - 10 for batch in batches for row in batch]


SHUFFLED: dict[str, Any] = {"shuffle": True, "window_rows": 200, "seed": 3}
KINDS: dict[str, dict[str, Any]] = {
    "shuffled": SHUFFLED,
    "shuffled, filtered": {**SHUFFLED, "filter": "id % 3 = 0"},
    "whole batches": {**SHUFFLED, "drop_last": True},
    "in order": {},
    "in order, filtered": {"filter": "id % 3 = 0"},
    "batches dealt out": {"shard_granularity": "batch"},
    "fragments of a sampler": {"sampler": ShardedFragmentSampler(0, 1, randomize=True)},
    "batches of a sampler": {"sampler": ShardedBatchSampler(0, 1, randomize=True)},
}


class Backwards(FullScanSampler):
    """A sampler with a call of its own, which knows no offset."""

    def __call__(self, ds: Any, *args: Any, **options: Any) -> Any:  # type: ignore[override]  # shorter
        return reversed(list(super().__call__(ds, *args, **options)))


@pytest.mark.parametrize("kind", [*KINDS, "another sampler"])
@pytest.mark.parametrize("left_after", [0, 1, 7])
def test_a_pass_goes_on_where_it_was_left(uri: str, kind: str, left_after: int) -> None:
    options = KINDS.get(kind, {"sampler": Backwards()})
    whole = [batch.tolist() for batch in data(uri, **options)]
    first = data(uri, **options)
    begun = [batch.tolist() for _, batch in zip(range(left_after), first, strict=False)]
    state = first.state_dict()
    again = data(uri, **options)
    again.load_state_dict(state)
    assert begun + [batch.tolist() for batch in again] == whole
    assert len(list(first)) == len(whole)  # without a state, a pass begins at its start


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("drop_last", [False, True])
def test_a_loader_knows_its_number_of_batches(uri: str, kind: str, drop_last: bool) -> None:
    options = {**KINDS[kind], "drop_last": drop_last}
    for workers in (0, 2) if drop_last and "sampler" not in kind else (0,):
        loader = LanceLoader(data(uri, **options), num_workers=workers)
        assert len(loader) == len(list(loader)) > 0


@pytest.mark.parametrize("options", [{"samples": 3}, {"sampler": Backwards()}])
def test_a_number_of_batches_that_nobody_knows_is_a_type_error(uri: str, options: Any) -> None:
    with pytest.raises(TypeError, match="number of batches is not known before"):
        len(LanceLoader(data(uri, **options)))


def test_shuffled_rows_have_an_order_of_each_epoch(uri: str) -> None:
    one = data(uri, **SHUFFLED)
    epochs = [rows(one), rows(one)]
    assert sorted(epochs[0]) == sorted(epochs[1]) == list(range(ROWS))
    assert epochs[0] != epochs[1]
    one.set_epoch(0)
    assert rows(one) == epochs[0]
    assert rows(data(uri, **{**SHUFFLED, "seed": 4})) != epochs[0]
    ended = one.state_dict()
    assert (ended["epoch"], ended["batches"]) == (1, 0)


def test_shares_of_shuffled_rows_differ_by_one_row(uri: str) -> None:
    def share(rank: int, **options: Any) -> list[int]:
        with pytest.warns(DeprecationWarning, match="rank and world_size"):
            return rows(data(uri, rank=rank, world_size=3, **SHUFFLED, **options))

    shares = [share(rank) for rank in range(3)]
    assert [len(one) for one in shares] == [333, 333, 334]
    assert sorted(row for one in shares for row in one) == list(range(ROWS))
    assert [len(share(rank, drop_last=True)) for rank in range(3)] == [320, 320, 320]


SLOW = [pytest.param(one, marks=pytest.mark.slow) for one in ("forkserver", "spawn")]


@pytest.mark.parametrize("method", ["fork", *SLOW])
def test_workers_of_each_start_method_have_all_rows_after_threads_ran(
    uri: str, method: str
) -> None:
    glaive.dataset(uri).to_table()  # threads of this process have run
    loader = LanceLoader(
        data(uri, **SHUFFLED),
        num_workers=2,
        multiprocessing_context=method,
        persistent_workers=True,
    )
    epochs = [rows(loader), rows(loader)] if method == "fork" else [rows(loader)]
    assert all(sorted(one) == list(range(ROWS)) for one in epochs)
    assert method != "fork" or epochs[0] != epochs[1]


class Process:
    """What ``torch.distributed`` says in one of two processes."""

    def __init__(self, rank: int) -> None:
        self._rank = rank

    def get_rank(self) -> int:
        return self._rank

    def get_world_size(self) -> int:
        return 2


@pytest.mark.parametrize("method", ["fork", *SLOW])
def test_workers_share_out_the_rows_of_their_process(
    uri: str, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that are spawned do not use ``torch.distributed`` themselves."""
    read = []
    for rank in (0, 1):
        monkeypatch.setattr("glaive.torch.dist._distributed", partial(Process, rank))
        loader = LanceLoader(data(uri, **SHUFFLED), num_workers=2, multiprocessing_context=method)
        batches = list(loader)
        read.append(rows(batches))
        assert len(loader) == len(batches)
        assert loader.state_dict()["processes"] == 2
    assert sorted(read[0] + read[1]) == list(range(ROWS))


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("persistent", [False, True])
def test_a_loader_goes_on_behind_the_last_batch_it_gave(
    uri: str, workers: int, persistent: bool
) -> None:
    options: dict[str, Any] = {"num_workers": workers}
    if workers:
        options |= {"multiprocessing_context": "fork", "persistent_workers": persistent}

    def loader() -> LanceLoader:
        return LanceLoader(data(uri, **SHUFFLED), **options)

    first = loader()
    passes = [[batch.tolist() for batch in first] for _ in range(2)]
    whole = passes[1]
    begun = []
    first.set_epoch(1)
    for batch in first:
        begun.append(batch.tolist())
        if len(begun) == 5:
            break
    state = first.state_dict()
    assert begun == whole[:5]

    again = loader()
    again.load_state_dict(state)
    rest = [batch.tolist() for batch in again]
    assert sorted(begun + rest) == sorted(whole)
    assert rest[:-2] == whole[5:-2]
    assert again.state_dict()["epoch"] == 2
    assert [batch.tolist() for batch in first] == passes[1]  # left early: it begins again


@pytest.mark.parametrize("workers", [None, 0, 1])
@pytest.mark.parametrize("kind", ["shuffled", "batches of a sampler"])
@pytest.mark.parametrize("cache", [False, True])
def test_a_later_pass_goes_on_in_the_order_it_had(
    uri: str, workers: int | None, kind: str, cache: bool
) -> None:
    def begin() -> Any:
        sampler = ShardedBatchSampler(0, 1, randomize=True) if "sampler" in kind else None
        options = {"sampler": sampler} if sampler else SHUFFLED
        dataset = data(uri, cache=cache, **options)
        if workers is None:
            return dataset
        return LanceLoader(dataset, num_workers=workers, persistent_workers=workers > 0)

    batches = begin()
    for _ in range(2):
        assert sorted(rows(batches)) == list(range(ROWS))
    first = rows(islice(batches, 7))
    other = begin()
    other.load_state_dict(batches.state_dict())
    assert sorted(first + rows(other)) == list(range(ROWS))


def test_a_loader_that_goes_on_has_each_row_once_in_later_passes_too(uri: str) -> None:
    options = {"num_workers": 2, "persistent_workers": True}
    loader = LanceLoader(data(uri, cache=True), **options)
    first = rows(islice(loader, 1))  # the next turn is the second worker's
    other = LanceLoader(data(uri, cache=True), **options)
    other.load_state_dict(loader.state_dict())
    assert sorted(first + rows(other)) == list(range(ROWS))
    for _ in range(2):
        assert sorted(rows(other)) == list(range(ROWS))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"version": 1}, "the state is of version 1"),
        ({"batch_size": 8}, "the state is of batch_size 8"),
        ({"filter": "id > 3"}, "the state is of filter 'id > 3'"),
        ({"batches": -1}, "expected counts of batches"),
        ({"batches": "1"}, "expected counts of batches"),
        ({"by_share": [1, 2]}, "a loader with 2 workers, this one has no or 1 worker"),
        ({"by_share": 5}, "expected counts of batches"),
    ],
)
def test_states_of_other_batches_are_refused(
    uri: str, change: dict[str, Any], message: str
) -> None:
    def load_and_read() -> None:
        one = data(uri)
        one.load_state_dict(one.state_dict() | change)
        list(one)

    with pytest.raises(OptionError, match=message):
        load_and_read()


@pytest.mark.spec("rel-4")
def test_a_state_is_not_one_of_a_dataset_made_in_the_place_of_its_own(tmp_path: Path) -> None:
    place = str(tmp_path / "a.lance")

    def made() -> Any:
        glaive.write_dataset({"id": np.arange(ROWS)}, place)
        return data(place)

    state = made().state_dict()
    data(place).load_state_dict(json.loads(json.dumps(state)))
    glaive.LanceDataset.drop(place)
    with pytest.raises(OptionError, match="the state is of commit"):
        made().load_state_dict(state)


def test_options_that_contradict_each_other_are_refused(uri: str) -> None:
    calls: list[tuple[Any, str]] = [
        (lambda: data(uri, shuffle=True, samples=3), "shuffle: it chooses the order"),
        (lambda: data(uri, samples=3).state_dict(), "samples: rows chosen at random"),
        (lambda: data(uri).load_state_dict([]), "expected what state_dict returned"),
        (lambda: LanceLoader(data(uri), batch_size=3), "batch_size: give it to LanceDataset"),
        (lambda: LanceLoader(SafeLanceDataset(uri)), "use get_safe_loader"),
        (lambda: LanceLoader(data(uri)).load_state_dict(data(uri).state_dict()), "of a dataset"),
        (lambda: list(data(uri, shuffle=True, window_rows=0)), "window_rows: expected"),
    ]
    for call, message in calls:
        with pytest.raises(OptionError, match=message):
            call()


def test_batches_are_mixed_of_many_blocks_but_read_in_windows(tmp_path: Path) -> None:
    place = tmp_path / "a.lance"
    glaive.write_dataset({"id": np.arange(100_000)}, place)
    batches = LanceDataset(place, 1000, columns=["id"], shuffle=True, window_rows=20_000)
    first = next(iter(batches)).numpy()
    assert len(np.unique(first // 1024)) > 15
    assert batches.dataset.io_stats_snapshot().read_bytes < 400_000
