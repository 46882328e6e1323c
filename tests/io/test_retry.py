"""How long repetitions wait."""

from __future__ import annotations

from tests.kit.replaced import replaced_clock

from glaive.io.remote import pause
from glaive.process import Clock


class Counting(Clock):
    """A clock that notes how long it was asked to wait, and does not."""

    def __init__(self) -> None:
        self.waited: list[float] = []

    def sleep(self, seconds: float) -> None:
        """Wait no time."""
        self.waited.append(seconds)


def test_a_repetition_of_any_number_waits_no_longer_than_the_longest_time() -> None:
    """So does the 5,000th: two to that power is no float."""
    with replaced_clock(clock := Counting()):
        for attempt in (0, 7, 1023, 5000):
            pause(attempt)
    assert len(clock.waited) == 4
    assert 0 <= clock.waited[0] <= 0.1
    assert 0 <= max(clock.waited) <= 10
