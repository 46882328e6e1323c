"""Batches on their way from the workers of a loader: all tensors of one in one block of memory."""

from __future__ import annotations

import gc
import os
import pickle
import signal
from collections.abc import Iterator
from multiprocessing import active_children
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from glaive.torch.data import (
    LanceDataset,
    LanceLoader,
    SafeLanceDataset,
    get_safe_loader,
    to_tensor,
)

import glaive
from glaive.errors import JobError

torch: Any = pytest.importorskip("torch", reason="install the 'loaders' group")

from torch.utils.data import DataLoader  # noqa: E402  # after it is known to be installed

from glaive.torch.tensors import MappedBlock, SharedBatch  # noqa: E402  # they import torch

ROWS = 4000


@pytest.fixture(scope="module")
def uri(tmp_path_factory: pytest.TempPathFactory) -> str:
    place = str(tmp_path_factory.mktemp("sent") / "a.lance")
    numbers = np.arange(ROWS)
    table = {"id": numbers, "text": [str(one) for one in numbers], "many": [[1, 2]] * ROWS}
    glaive.write_dataset(table, place, max_rows_per_file=1000)
    return place


def sent(batch: Any) -> Any:
    """What another process receives, but in this one."""
    return pickle.loads(ForkingPickler.dumps(SharedBatch(batch)))


def mapped() -> int:
    """Blocks of batches that this process has mapped, those that it lends included."""
    return Path("/proc/self/maps").read_text(encoding="utf-8").count("glaive-batch")


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_all_tensors_of_a_batch_are_in_one_block() -> None:
    flat = torch.arange(12.0)
    batch = {
        "id": torch.arange(3),
        "half": torch.tensor([1.5, 2.5, 3.5]).to(torch.bfloat16),
        "flags": torch.tensor([True, False, True]),
        "turned": torch.arange(6).reshape(2, 3).T,
        "some": torch.arange(10)[3:9:2],
        "lists": [*torch.split(flat, [5, 0, 7]), None],
        "struct": {"text": ["a", None], "deep": (torch.ones(1, 1), b"x")},
        "none": torch.empty(0, 4),
        "text": ["u", "v"],
    }
    before = mapped()
    received = sent(batch)
    assert type(received) is dict
    assert mapped() == before + 2  # the block that is lent, and the same one received
    assert list(received) == list(batch)
    for name in ("id", "half", "flags", "turned", "some", "none"):
        assert received[name].dtype == batch[name].dtype
        assert torch.equal(received[name], batch[name])
    assert [None if one is None else one.tolist() for one in received["lists"]] == [
        [0, 1, 2, 3, 4],
        [],
        [5, 6, 7, 8, 9, 10, 11],
        None,
    ]
    assert received["struct"]["text"] == ["a", None]
    assert torch.equal(received["struct"]["deep"][0], torch.ones(1, 1))
    assert received["text"] == ["u", "v"]
    received["id"].add_(1)
    assert received["id"].tolist() == [1, 2, 3]
    assert batch["id"].tolist() == [0, 1, 2]


def lists_of(lengths: list[int | None], *, width: int = 0, dtype: Any = None) -> list[Any]:
    """Tensors cut from one, as those of a list column are; None for nulls."""
    sizes = [one for one in lengths if one is not None]
    shape = (sum(sizes), width) if width else (sum(sizes),)
    flat = torch.arange(sum(sizes) * max(1, width)).reshape(shape).to(dtype or torch.int64)
    pieces = iter(torch.split(flat, sizes))
    return [None if one is None else next(pieces) for one in lengths]


def assert_equal(found: list[Any], expected: list[Any]) -> None:
    assert type(found) is list
    assert [None if one is None else one.dtype for one in found] == [
        None if one is None else one.dtype for one in expected
    ]
    assert [None if one is None else (one.shape, one.tolist()) for one in found] == [
        None if one is None else (one.shape, one.tolist()) for one in expected
    ]


def test_lists_of_several_lengths_are_sent_as_the_tensor_they_were_cut_from() -> None:
    lengths = [0, *(one % 7 for one in range(1000)), None, 0, 3, None]
    for column in (lists_of(lengths), lists_of(lengths, width=3, dtype=torch.float16)):
        batch = {"id": torch.arange(len(lengths)), "column": column}
        assert len(ForkingPickler.dumps(SharedBatch(batch))) < 4 * len(lengths)
        assert_equal(sent(batch)["column"], column)


def test_lists_that_do_not_follow_each_other_in_memory_are_sent_as_they_are() -> None:
    column = lists_of([3, 0, 2, 5, 4, 1])
    strided = torch.arange(40).reshape(10, 4)
    for changed in (
        column[::-1],
        [column[0], *column],
        [*column[:3], *column[4:]],
        [*column, torch.ones(2, dtype=torch.int64)],
        [*column, torch.ones(2)],
        [*column, torch.empty(0)],
        [strided[one, ::2] for one in range(10)],
        [strided[one : one + 2, 1:2] for one in range(0, 10, 2)],
        list(torch.arange(40).reshape(10, 2, 2).transpose(1, 2)),
        [torch.tensor(float(one)) for one in range(5)],
        [strided[0, :2], strided[0, 2], *torch.split(strided.reshape(40)[3:], [9, 8, 20])],
        [torch.empty(0, 2) for _ in range(5)],
        [torch.ones(1, 4)[:, :2].contiguous() for _ in range(5)],
    ):
        assert_equal(sent({"x": changed})["x"], changed)
    learnt = [one.requires_grad_() for one in lists_of([1, 2, 3, 4], dtype=torch.float32)]
    received = sent({"x": learnt, "y": torch.ones(2)})["x"]
    assert all(one.requires_grad for one in received)


def test_a_list_may_be_changed_before_the_backward_pass_of_another_one() -> None:
    lists = pa.array([[1.0, 2.0], [3.0], None, [4.0, 5.0], [6.0]])
    made = to_tensor(pa.record_batch({"x": lists, "id": range(5)}))
    for batch in (made, sent(made)):
        first, second, *_ = batch["x"]
        weights = torch.ones(2, requires_grad=True)
        scores = weights * first
        second.add_(1.0)
        scores.sum().backward()
        assert weights.grad.tolist() == [1.0, 2.0]


def test_a_block_is_used_again_when_its_tensors_are_deleted() -> None:
    batch = {"x": torch.arange(100_000)}
    kept = sent(batch)["x"][10:20]  # keeps the block
    others = [sent({"x": torch.full((100_000,), one)}) for one in range(3)]
    assert kept.tolist() == list(range(10, 20))
    assert [int(one["x"][0]) for one in others] == [0, 1, 2]
    del others
    before = mapped(), descriptors()
    for number in range(200):
        again = sent({"x": torch.full((100_000,), number)})
        assert int(again["x"][-1]) == number
        del again
    assert (mapped(), descriptors()) == before
    assert kept.tolist() == list(range(10, 20))


def test_batches_of_growing_sizes_and_many_at_once_keep_their_values() -> None:
    batches = [sent({"x": torch.full((size,), size)}) for size in range(1, 20_000, 150)]
    assert len(batches) > 100  # more than there are blocks
    assert all(bool((one["x"] == len(one["x"])).all()) for one in batches)
    batches.clear()
    sent({"x": torch.ones(1)})
    assert mapped() <= 8  # few are kept for the next batches


def test_a_child_that_was_forked_with_a_batch_keeps_its_values() -> None:
    batch = sent({"x": torch.zeros(1000)})
    ready, wake = os.pipe(), os.pipe()
    child = os.fork()
    if not child:
        os.read(wake[0], 1)
        os.write(ready[1], b"y" if not batch["x"].any() else b"n")
        os._exit(0)
    del batch
    others = [sent({"x": torch.ones(1000)}) for _ in range(3)]
    os.write(wake[1], b"!")
    answer = os.read(ready[0], 1)
    os.waitpid(child, 0)
    for end in (*ready, *wake):
        os.close(end)
    assert answer == b"y"
    assert all(bool(one["x"].all()) for one in others)


def test_pickles_and_copies_of_a_batch_are_dictionaries_with_values_of_their_own() -> None:
    batch = SharedBatch(x=torch.arange(3))
    kept = pickle.dumps(batch)
    del batch
    sent({"x": torch.full((3,), 7)})
    assert pickle.loads(kept)["x"].tolist() == [0, 1, 2]


def test_a_block_of_a_process_that_ended_is_an_error() -> None:
    child = os.fork()
    if not child:
        os._exit(0)
    os.waitpid(child, 0)
    with pytest.raises(JobError, match=f"process {child} ended before its batch was read"):
        MappedBlock.at((child, 3, 1, 100))
    with pytest.raises(JobError, match="another file"):
        MappedBlock.at((os.getpid(), 0, -1, 100))


def kinds(uri: str, **options: Any) -> Iterator[tuple[str, Any]]:
    made = LanceDataset(uri, 40, columns=["id", "text", "many"])
    yield "LanceLoader", LanceLoader(made, **options)
    yield "DataLoader", DataLoader(made, batch_size=None, **options)
    by_position = SafeLanceDataset(uri, columns=["id", "text"])
    yield "get_safe_loader", get_safe_loader(by_position, batch_size=40, **options)


@pytest.mark.parametrize("kind", ["LanceLoader", "DataLoader", "get_safe_loader"])
def test_batches_of_workers_are_those_of_the_process_itself(uri: str, kind: str) -> None:
    forked = {"num_workers": 2, "multiprocessing_context": "fork", "persistent_workers": True}
    with_workers = dict(kinds(uri, **forked))[kind]
    alone = list(dict(kinds(uri, num_workers=0))[kind])
    first = list(with_workers)  # kept while the next pass is read
    for batches in (list(with_workers), first):
        assert sorted(int(one) for batch in batches for one in batch["id"]) == list(range(ROWS))
        for batch in batches:
            assert type(batch) is dict
            assert batch["text"] == [str(int(one)) for one in batch["id"]]
            assert list(batch) == list(alone[0])
            if "many" in batch:
                assert all(one.tolist() == [1, 2] for one in batch["many"])
    del first, batches, batch, alone
    gc.collect()
    before = mapped(), descriptors()
    for _ in range(4):
        for batch in with_workers:
            assert len(batch["id"])
    del batch
    gc.collect()
    assert (mapped(), descriptors()) == before


# The signal's handler of torch may also raise where torch itself ends the loader.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_worker_that_is_killed_is_an_error(uri: str) -> None:
    loader = LanceLoader(
        LanceDataset(uri, 4, columns=["id"]), num_workers=2, multiprocessing_context="fork"
    )
    others = set(active_children())
    batches = iter(loader)
    next(batches)
    (worker, _) = set(active_children()) - others
    os.kill(worker.pid or 0, signal.SIGKILL)
    with pytest.raises(RuntimeError, match=r"exited unexpectedly|ended before|killed"):
        list(batches)
