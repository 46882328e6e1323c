"""Choices of a trial, and sequences of numbers that few bytes can describe."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

__all__ = ["Draws", "Impossible", "Runs", "Steps", "Wanted", "equal"]

T = TypeVar("T")


class Impossible(Exception):  # noqa: N818  # it is no error: another trial is made
    """What was chosen before leaves no choice here: the trial begins again."""


@dataclass(frozen=True)
class Runs:
    """Numbers in runs: each value, and how often it comes."""

    runs: tuple[tuple[int, int], ...]

    @property
    def count(self) -> int:
        return sum(length for _, length in self.runs)

    def listed(self) -> NDArray[np.uint64]:
        values = np.array([value for value, _ in self.runs], np.uint64)
        return values.repeat([length for _, length in self.runs])


@dataclass(frozen=True)
class Steps:
    """Numbers at equal distances."""

    start: int
    step: int
    count: int

    def listed(self) -> NDArray[np.uint64]:
        return np.arange(self.count, dtype=np.uint64) * np.uint64(self.step) + np.uint64(self.start)


Wanted = Runs | Steps


def equal(value: int, count: int) -> Runs:
    """One number, so many times."""
    return Runs(((value, count),)) if count else Runs(())


class Draws:
    """Choices by a seed."""

    def __init__(self, *seed: int) -> None:
        self._rng = np.random.default_rng(seed)

    def of(self, options: Sequence[T]) -> T:
        """One of some."""
        if not options:
            raise Impossible
        return options[int(self._rng.integers(len(options)))]

    def chance(self, share: float) -> bool:
        """Whether something of this probability happens."""
        return bool(self._rng.random() < share)

    def many(self, low: int, high: int) -> int:
        """A number between two powers of two; about each power alike."""
        power = int(self._rng.integers(low, high + 1))
        return (1 << power) + int(self._rng.choice([-1, 0, 0, 1]))
