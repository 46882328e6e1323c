"""Work on all cores, in order."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from glaive.io.pool import gather, ordered_map, submitted, worker_count


def test_results_come_in_the_order_of_the_items() -> None:
    def work(item: int) -> int:
        time.sleep(0.002 if item % 3 == 0 else 0)
        return item * item

    assert list(ordered_map(work, range(40), workers=4)) == [i * i for i in range(40)]


@pytest.mark.parametrize("count", [0, 1, 2])
def test_few_items_work_too(count: int) -> None:
    assert list(ordered_map(str, range(count), workers=4)) == [str(i) for i in range(count)]


def test_out_of_order_results_are_complete_and_come_when_ready() -> None:
    gate = threading.Event()

    def work(item: int) -> int:
        if item == 0:
            gate.wait(60)
        return item

    results = ordered_map(work, range(10), workers=3, in_order=False)
    first = next(results)
    assert first != 0
    gate.set()
    assert sorted([first, *results]) == list(range(10))


def test_no_more_than_asked_for_is_under_way() -> None:
    begun: list[int] = []

    def work(item: int) -> int:
        begun.append(item)
        return item

    results = ordered_map(work, range(100), ahead=3, workers=2)
    next(results)
    time.sleep(0.02)
    assert len(begun) <= 4


def test_stopping_early_cancels_what_has_not_begun() -> None:
    begun: list[int] = []
    gate = threading.Event()

    def work(item: int) -> int:
        begun.append(item)
        if item:
            gate.wait(60)
        return item

    results = ordered_map(work, range(100), ahead=50, workers=2)
    next(results)
    results.close()  # type: ignore[attr-defined]  # it is a generator
    gate.set()
    # An item more for each worker; items that come later are done after all that were there.
    assert list(ordered_map(str, range(2), workers=2)) == ["0", "1"]
    assert len(begun) <= 3


def test_work_that_changes_something_has_ended_when_a_failure_comes_out() -> None:
    stopped, both, ended = threading.Event(), threading.Barrier(2), []

    def work(item: int) -> None:
        both.wait(60)
        if item:
            raise ValueError("one")
        assert stopped.wait(60)
        time.sleep(0.02)
        ended.append(item)

    with pytest.raises(ValueError, match="one"):
        list(ordered_map(work, range(2), workers=2, in_order=False, stop=stopped.set))
    assert ended == [0]


def test_so_has_that_of_which_a_signal_took_the_future(monkeypatch: pytest.MonkeyPatch) -> None:
    stopped, running, ended = threading.Event(), threading.Event(), []

    def interrupted(*arguments: Any) -> Any:
        submitted(*arguments)
        assert running.wait(60)
        raise KeyboardInterrupt  # as in the start of a thread

    def work(item: int) -> None:
        running.set()
        assert stopped.wait(60)
        time.sleep(0.02)
        ended.append(item)

    monkeypatch.setattr("glaive.io.pool.submitted", interrupted)
    with pytest.raises(KeyboardInterrupt):
        list(ordered_map(work, range(2), workers=2, in_order=False, stop=stopped.set))
    assert ended == [0]


def test_a_failure_comes_out_where_the_result_would() -> None:
    def work(item: int) -> int:
        if item == 5:
            raise ValueError("five")
        return item

    seen: list[int] = []
    with pytest.raises(ValueError, match="five"):
        seen.extend(ordered_map(work, range(10), workers=2))
    assert seen == [0, 1, 2, 3, 4]


def test_there_is_a_worker_at_least() -> None:
    assert worker_count() >= 1


@pytest.mark.parametrize("seconds", [0.0, 0.001])
@pytest.mark.parametrize("workers", [1, 3])
def test_gathered_results_are_in_order(seconds: float, workers: int) -> None:
    def work(item: int) -> int:
        time.sleep(seconds if item % 4 == 0 else 0)
        return -item

    assert gather(work, range(60), workers=workers) == [-i for i in range(60)]


def test_slow_items_are_gathered_on_several_threads_and_cheap_ones_on_one() -> None:
    two = threading.Barrier(2)

    def slow(item: int) -> str:
        time.sleep(0 if item else 0.01)
        if item in (1, 2):  # of the same thread, it would wait in vain
            two.wait(60)
        return threading.current_thread().name

    assert len(set(gather(slow, range(12), workers=3))) > 1
    assert gather(lambda _: threading.current_thread().name, [0], workers=3) == [
        threading.current_thread().name
    ]


@pytest.mark.parametrize("workers", [1, 3])
def test_a_failure_ends_the_gathering(workers: int) -> None:
    begun: list[int] = []

    def work(item: int) -> int:
        begun.append(item)
        time.sleep(0.001)
        if item == 5:
            raise ValueError("five")
        return item

    with pytest.raises(ValueError, match="five"):
        gather(work, range(3000), workers=workers)
    assert len(begun) < 1500  # two seconds after the failure


@pytest.mark.parametrize("good", [1, 2, 3, 4])
def test_items_that_cannot_be_had_end_the_gathering(good: int) -> None:
    def items() -> Iterator[int]:
        yield from range(good)
        raise ValueError("no more items")

    def slow(item: int) -> int:
        time.sleep(0.001)
        return item

    with pytest.raises(ValueError, match="no more items"):
        gather(slow, items(), workers=2)


def test_the_last_item_stays_on_the_calling_thread() -> None:
    def slow(_item: int) -> int:
        time.sleep(0.001)
        return threading.get_ident()

    assert gather(slow, range(2), workers=4) == [threading.get_ident()] * 2


def test_gathering_within_pool_work_makes_progress() -> None:
    def inner(item: int) -> int:
        time.sleep(0.0005)
        return item

    def outer(item: int) -> int:
        return sum(gather(inner, range(item), workers=2))

    assert list(ordered_map(outer, range(8), workers=2)) == [sum(range(i)) for i in range(8)]


@pytest.mark.parametrize("ahead", [1, 2, 3, 50])
@pytest.mark.parametrize("in_order", [True, False])
def test_every_item_is_done_however_few_are_under_way(ahead: int, in_order: bool) -> None:
    items = [3, 0, None, 7, *range(20)]
    results = ordered_map(str, items, ahead=ahead, workers=2, in_order=in_order)
    wanted = [str(item) for item in items]
    assert list(results) == wanted if in_order else sorted(results) == sorted(wanted)


AFTER_THE_MAIN_THREAD = """
import sys, threading, time
from pathlib import Path
from typing import Any

import pyarrow as pa
import glaive

place, is_used_before = sys.argv[1:]
rows = pa.table({"id": range(40_000)})
glaive.write_dataset(rows, place, max_rows_per_file=2000)
if is_used_before == "True":
    glaive.dataset(place).count_rows("id > 5")


def work():
    threading.main_thread().join()
    time.sleep(0.05)
    dataset = glaive.dataset(place)
    dataset.add_columns({"more": "id + 1"})
    dataset.create_scalar_index("id", "BTREE")
    dataset.optimize.compact_files()
    assert dataset.to_table().num_rows == 40_000
    sources = [Path(f"{place}-{number}.csv") for number in range(3)]
    for source in sources:
        source.write_text("id\\n1\\n")
    assert glaive.ingest(list(map(str, sources)), f"{place}-ingested").rows == 3
    print(dataset.count_rows("more > 6"), flush=True)


threading.Thread(target=work).start()
"""


@pytest.mark.sampled(every=2)
@pytest.mark.parametrize("is_used_before", [False, True])
def test_threads_that_go_on_after_the_main_thread_work_alone(
    tmp_path: Path, *, is_used_before: bool
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", AFTER_THE_MAIN_THREAD, str(tmp_path / "t"), str(is_used_before)],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert (done.stdout, done.stderr) == ("39994\n", "")
