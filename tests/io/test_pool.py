"""Work on all cores, in order."""

from __future__ import annotations

import threading
import time

import pytest

from glaive.io.pool import ordered_map, worker_count


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
            gate.wait(5)
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

    def work(item: int) -> int:
        begun.append(item)
        time.sleep(0.01)
        return item

    results = ordered_map(work, range(100), ahead=50, workers=2)
    next(results)
    results.close()  # type: ignore[attr-defined]  # it is a generator
    time.sleep(0.05)
    assert len(begun) < 20


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
