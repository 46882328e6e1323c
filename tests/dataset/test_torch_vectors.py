"""Clusters, distances and true neighbours in torch; a dataset that another process reads."""

from __future__ import annotations

import inspect
import os
import pickle
import signal
import time
from contextlib import suppress
from itertools import islice
from multiprocessing import active_children
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from glaive.torch.async_dataset import async_dataset
from glaive.torch.bench_utils import ground_truth, infer_vector_column, recall
from glaive.torch.data import LanceDataset
from glaive.torch.distance import cosine_distance, dot_distance, l2_distance, pairwise_l2
from glaive.torch.kmeans import KMeans

import glaive
from glaive.errors import JobError, OptionError, TrainingError

torch: Any = pytest.importorskip("torch", reason="install the 'loaders' group")

VECTORS = np.random.default_rng(0).standard_normal((300, 4)).astype(np.float32)
FAR = [[0.0, 0.0, 0.0, 0.0], [50.0, 50.0, 50.0, 50.0]]


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> glaive.LanceDataset:
    values = VECTORS.copy()
    values[200:] += 50
    values[7] = np.nan
    rows = pa.table({"v": pa.FixedSizeListArray.from_arrays(pa.array(values.reshape(-1)), 4)})
    return glaive.write_dataset(rows, tmp_path_factory.mktemp("torch") / "v.lance")


def test_the_nearest_vector_is_the_first_of_all_pairs() -> None:
    vectors, centroids = torch.from_numpy(VECTORS), torch.from_numpy(VECTORS[:9] + 0.1)
    numbers, distances = l2_distance(vectors, centroids)
    pairs = ((VECTORS[:, None] - VECTORS[None, :9] - 0.1) ** 2).sum(axis=2)
    assert numbers.tolist() == pairs.argmin(axis=1).tolist()
    np.testing.assert_allclose(distances, pairs.min(axis=1), rtol=1e-3)
    np.testing.assert_allclose(pairwise_l2(vectors, centroids), pairs, rtol=1e-3, atol=1e-4)
    norms = np.linalg.norm(VECTORS, axis=1)[:, None] * np.linalg.norm(centroids, axis=1)
    dots = VECTORS @ centroids.numpy().T
    assert cosine_distance(vectors, centroids)[0].tolist() == (dots / norms).argmax(1).tolist()
    assert dot_distance(vectors, centroids)[0].tolist() == dots.argmax(axis=1).tolist()


def test_vectors_that_are_not_numbers_have_no_nearest() -> None:
    assert l2_distance(torch.tensor([[np.nan], [1.0]]), torch.tensor([[1.0]]))[0].tolist() == [
        -1,
        0,
    ]


@pytest.mark.parametrize("wrong", [torch.zeros(4), torch.zeros(1, 4, dtype=torch.float64)])
def test_vectors_of_another_shape_or_type_are_refused(wrong: Any) -> None:
    with pytest.raises(OptionError, match=r"2-D matrix|data types do not match"):
        pairwise_l2(torch.zeros(2, 4), wrong)


def test_clusters_are_trained_from_a_dataset(dataset: glaive.LanceDataset) -> None:
    kmeans = KMeans(2, centroids=torch.tensor(FAR), device="cpu")
    kmeans.fit(LanceDataset(dataset, batch_size=64, columns=["v"]))
    clusters = kmeans.transform(dataset.to_table()["v"].combine_chunks())
    assert clusters[:200].tolist() == [0] * 7 + [-1] + [0] * 192
    assert clusters[200:].tolist() == [1] * 100
    np.testing.assert_allclose(kmeans.centroids[1], VECTORS[200:].mean(axis=0) + 50, rtol=1e-4)


def test_an_empty_cluster_gets_half_of_the_largest() -> None:
    start = torch.tensor([[0.0, 0.0], [1e3, 1e3]])
    kmeans = KMeans(2, centroids=start, device="cpu", max_iters=20)
    kmeans.fit(torch.tensor([[1.0, 1.0], [1.0, 1.1], [5.0, 5.0], [5.0, 5.1]]))
    assert sorted(kmeans.transform(torch.tensor([[1.0, 1.0], [5.0, 5.0]])).tolist()) == [0, 1]


def test_clusters_cannot_be_trained_from_nothing() -> None:
    for wrong in (VECTORS[:1], [torch.zeros(3, 4)]):
        with pytest.raises(TrainingError):
            KMeans(2, device="cpu").fit(wrong)
    with pytest.raises(TrainingError, match="train"):
        KMeans(2, device="cpu").transform(VECTORS)


def test_true_neighbours_are_those_of_a_search(dataset: glaive.LanceDataset) -> None:
    assert infer_vector_column(dataset) == "v"
    found = ground_truth(dataset, "v", VECTORS[:3], k=5, batch_size=64, device="cpu")
    options = {"columns": [], "with_row_id": True}
    searched = [
        dataset.to_table(nearest={"column": "v", "q": one, "k": 5}, **options)["_rowid"].to_pylist()
        for one in VECTORS[:3]
    ]
    assert recall(np.array(searched), found).tolist() == [1, 1, 1]


@pytest.mark.parametrize("metric", ["L2", "cosine"])
def test_true_neighbours_are_right_far_from_the_origin(tmp_path: Path, metric: str) -> None:
    vectors = (VECTORS + 1000).astype(np.float32)
    lists = pa.FixedSizeListArray.from_arrays(pa.array(vectors.reshape(-1)), 4)
    dataset = glaive.write_dataset(pa.table({"v": lists}), tmp_path / "far.lance")
    wide = vectors.astype(float)
    far = ((wide[:20, None] - wide[None]) ** 2).sum(axis=2)
    if metric == "cosine":
        wide /= np.linalg.norm(wide, axis=1)[:, None]
        far = ((wide[:20, None] - wide[None]) ** 2).sum(axis=2)  # in the order of the cosines
    found = ground_truth(dataset, "v", vectors[:20], metric, k=5, batch_size=64, device="cpu")
    assert found.tolist() == np.argsort(far, axis=1)[:, :5].tolist()


def test_another_process_reads_pass_after_pass() -> None:
    create: Any = lambda: [1, 2, 3]  # noqa: E731  # a function for this once
    with async_dataset(create, queue_size=2) as items:
        assert list(items) == [1, 2, 3]
        assert next(iter(items)) == 1
        assert list(items) == [1, 2, 3]
    with pytest.raises(OptionError, match="closed"):
        list(items)


def test_an_error_in_the_other_process_arrives(tmp_path: Path) -> None:
    def create() -> Any:
        return glaive.dataset(str(tmp_path / "none.lance"))

    with async_dataset(create) as items, pytest.raises(ValueError, match="not found"):
        list(items)


def test_a_process_that_is_killed_while_it_writes_is_an_error() -> None:
    def create() -> Any:
        yield from (np.zeros(1_000_000) for _ in range(100))

    with async_dataset(create) as items:
        numbers = iter(items)
        next(numbers)
        (process,) = active_children()
        process.kill()  # its pipe is full, so it is in the middle of an item
        with pytest.raises(JobError, match="the process that reads has ended"):
            list(numbers)


def test_a_process_that_reads_ahead_ends_with_its_items_unread() -> None:
    def create() -> Any:
        yield from (np.zeros(1_000_000) for _ in range(100))

    with async_dataset(create, queue_size=1) as items:
        next(iter(items))
    assert not active_children()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork processes")
def test_a_forked_child_takes_no_items_of_its_parent() -> None:
    create: Any = lambda: list(range(100))  # noqa: E731  # a function for this once
    with async_dataset(create, queue_size=2) as items:
        read = [*islice(begun := iter(items), 50)]
        child = os.fork()
        if not child:
            with suppress(JobError):
                next(begun)
                os._exit(1)
            failed = list(items) != list(range(100))
            items.close()
            os._exit(failed)
        assert os.waitpid(child, 0)[1] == 0
        assert [*read, *begun] == list(range(100))


class Harmful:
    """What makes a file when it is received."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def __reduce__(self) -> Any:
        return Path.touch, (self.file,)


class Slow:
    """Bytes that arrive in two parts, so that a reader can be interrupted in between."""

    def __init__(self, file: Path, harm: Path) -> None:
        self.file, self.harm = file, harm

    def __iter__(self) -> Any:
        yield 1
        here: Any = inspect.currentframe()
        ours = here.f_back.f_locals["ours"]  # the pipe of who reads this ahead
        if not self.file.exists():
            self.file.touch()
            harmful = pickle.dumps(Harmful(self.harm))  # as bytes of a dataset may be
            data = len(harmful).to_bytes(4, "big") + harmful
            os.write(ours.fileno(), len(data).to_bytes(4, "big"))
            time.sleep(0.5)
            os.kill(os.getppid(), signal.SIGINT)
            time.sleep(0.5)
            os.write(ours.fileno(), data)
        yield 2


@pytest.mark.spec("sec-1")
def test_the_rest_of_an_item_is_never_taken_for_others(tmp_path: Path) -> None:
    harm = tmp_path / "harm"
    with async_dataset(lambda: Slow(tmp_path / "interrupted", harm)) as items:
        with pytest.raises(KeyboardInterrupt):
            list(items)
        assert list(items) == [1, 2]
        assert list(items) == [1, 2]
    assert not harm.exists()
    assert not active_children()


class Stuck:
    """A dataset whose second item does not come."""

    def __iter__(self) -> Any:
        yield 1
        time.sleep(600)
        yield 2


class Deaf(Stuck):
    """One in a process that a request to end does not end."""

    def __iter__(self) -> Any:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        yield from super().__iter__()


class LateError(Exception):
    """An alarm."""


@pytest.mark.parametrize("made", [Stuck, Deaf])
@pytest.mark.parametrize("alarmed", [True, False])
def test_an_item_that_does_not_come_is_not_waited_for(alarmed: bool, made: type[Stuck]) -> None:
    def late(*_: Any) -> None:
        raise LateError

    before, began = signal.signal(signal.SIGALRM, late), time.monotonic()
    try:
        with async_dataset(made) as items:
            passing = iter(items)
            assert next(passing) == 1
            if alarmed:
                signal.setitimer(signal.ITIMER_REAL, 0.5)
                with pytest.raises(LateError):
                    next(passing)
    finally:
        signal.signal(signal.SIGALRM, before)
    assert time.monotonic() - began < 120
    assert not active_children()


def test_a_pass_after_its_process_was_killed_begins_with_another() -> None:
    with async_dataset(lambda: [1, 2]) as items:
        assert list(items) == [1, 2]
        (process,) = active_children()
        process.kill()
        process.join()
        with pytest.raises(JobError, match="the process that reads has ended"):
            list(items)
        assert list(items) == [1, 2]


def test_an_item_that_no_process_can_be_sent_is_an_error() -> None:
    create: Any = lambda: [1, lambda: 2]  # noqa: E731  # a function for this once
    with async_dataset(create) as items, pytest.raises(JobError, match="cannot be sent"):
        list(items)


class NotReceived(Exception):  # noqa: N818  # it stands for an error of a user
    """An error that can be pickled, but not made from what was."""

    def __init__(self, what: str, where: str) -> None:
        super().__init__(f"{what} in {where}")


class FailingOnce:
    """Items, of which one cannot be read as long as a file is there."""

    def __init__(self, file: Path, error: Exception) -> None:
        self.file, self.error = file, error

    def __iter__(self) -> Any:
        yield 1
        if self.file.exists():
            raise self.error
        yield 2


@pytest.mark.parametrize(
    ("error", "raised", "message"),
    [
        (ValueError("broken"), ValueError, "broken"),
        (NotReceived("a", "b"), JobError, "cannot be received"),
    ],
    ids=["an error", "an error that cannot be received"],
)
def test_passes_after_an_error_begin_again(
    tmp_path: Path, error: Exception, raised: type[Exception], message: str
) -> None:
    file = tmp_path / "broken"
    file.touch()
    with async_dataset(lambda: FailingOnce(file, error)) as items:
        for _ in range(3):
            with pytest.raises(raised, match=message):
                list(items)
        next(iter(items))  # a pass that is left has the error in its rest
        with pytest.raises(raised, match=message):
            list(items)
        file.unlink()
        assert list(items) == [1, 2]
        assert list(items) == [1, 2]
    assert not active_children()
