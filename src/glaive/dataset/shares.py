"""The share of one process of several: which parts of the work are its own, in which order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

from glaive.dataset.fragments.data_files import checked_integer
from glaive.dataset.shuffled_batches import check_order
from glaive.errors import OptionError
from glaive.types import integer_of

__all__ = ["MAX_ROWS", "Sharded", "without_rows"]

MAX_ROWS: Final = 2**62
"""Of a batch, or another part of a dataset: more than there are."""

_HIGHEST: Final = 2**128 - 1
"""Of a seed: NumPy draws such."""


class Sharded:
    """A share of the work: that of one process of several, in an order of this epoch.

    Raises
    ------
    OptionError
        There is no such rank, or a number is none.
    """

    def __init__(self, rank: int, world_size: int, randomize: bool = False, seed: int = 0) -> None:
        checked_integer(world_size, "world_size", MAX_ROWS)
        number = integer_of(rank)
        if number is None or not 0 <= number < world_size:
            raise OptionError(
                f"rank: expected 0 to {world_size - 1} of world_size {world_size}, found "
                f"{rank!r:.80}"
            )
        self._rank = rank
        self._world_size = world_size
        self._randomize = randomize
        self._seed = checked_integer(seed, "seed", _HIGHEST)
        self._epoch = 0

    def set_epoch(self, epoch: int) -> None:
        """Number of the pass: each has an order of its own, the same in all processes."""
        self._epoch = checked_integer(epoch, "epoch", _HIGHEST)

    @property
    def epoch(self) -> int | None:
        """Number of the pass whose order this is; None if all passes have the same."""
        return self._epoch if self._randomize else None

    def _share(self, count: int) -> Sequence[int]:
        """Which of ``count`` parts are of this process, in order; see :func:`check_order`."""
        if not self._randomize:
            return range(self._rank, count, self._world_size)
        check_order(count, "batch_size")
        order: Any = np.arange(count)
        np.random.default_rng([self._seed, self._epoch]).shuffle(order)
        return memoryview(order[self._rank :: self._world_size])


def without_rows(batches: Iterator[pa.RecordBatch], rows: int) -> Iterator[pa.RecordBatch]:
    """The batches without so many rows at their start."""
    for batch in batches:
        if rows < batch.num_rows:
            yield batch.slice(rows) if rows else batch
        rows = max(0, rows - batch.num_rows)
