"""Rows chosen at random, as batches."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

import numpy as np
import pyarrow as pa

from glaive.dataset.dataset import LanceDataset
from glaive.dataset.open import dataset as open_dataset
from glaive.errors import OptionError
from glaive.types import Int64s, integer_of

__all__ = ["maybe_sample", "reservoir_sampling"]

T = TypeVar("T")


def maybe_sample(
    dataset: str | os.PathLike[str] | LanceDataset,
    n: int,
    columns: Sequence[str] | Mapping[str, str] | str | None,
    batch_size: int = 10240,
    max_takes: int = 2048,
    filt: str | None = None,
) -> Iterator[pa.RecordBatch]:
    """Rows chosen at random, or all rows if there are not more than ``n``.

    Parameters
    ----------
    dataset
        A dataset, or where it is.
    n
        Number of rows.
    columns
        Names of columns, or expressions by name.
    batch_size
        Rows of a batch.
    max_takes
        Runs of neighbouring rows that ``n`` rows are taken as, at most.
    filt
        Rows to choose from. The ids of all that pass are held in memory.

    Raises
    ------
    OptionError
        A number is not positive.
    """
    opened = dataset if isinstance(dataset, LanceDataset) else open_dataset(dataset)
    names = [columns] if isinstance(columns, str) else columns
    for name, number in (("n", n), ("batch_size", batch_size), ("max_takes", max_takes)):
        if (integer_of(number) or 0) < 1:
            raise OptionError(f"{name}: expected an integer from 1 on, found {number!r:.80}")
    if n >= len(opened):
        return iter(opened.to_batches(columns=names, batch_size=batch_size, filter=filt))
    return _sampled_batches(opened, n, names, batch_size, max_takes, filt)


def reservoir_sampling(stream: Iterable[T], k: int) -> list[T]:
    """``k`` items of a stream of unknown length, each with the same chance; all if it has fewer."""
    if integer_of(k) is None:
        raise OptionError(f"k: expected an integer, found {k!r:.80}")
    random = np.random.default_rng()
    chosen: list[T] = []
    for number, item in enumerate(stream):
        if len(chosen) < k:
            chosen.append(item)
            continue
        place = int(random.integers(0, number + 1))
        if place < k:
            chosen[place] = item
    return chosen


def _sampled_batches(
    dataset: LanceDataset,
    count: int,
    columns: Sequence[str] | Mapping[str, str] | None,
    batch_size: int,
    max_takes: int,
    filter: str | None,
) -> Iterator[pa.RecordBatch]:
    """Rows at random, fewer than there are; neighbours if there are more than ``max_takes``."""
    dataset = dataset.holding(dataset.opened)  # of one version, whatever becomes of the object
    random = np.random.default_rng()
    if filter is not None:
        found = dataset.scanner(columns=[], filter=filter, with_row_id=True)
        ids = found.to_table()["_rowid"].to_numpy()
        if len(ids) > count:
            ids = np.sort(random.choice(ids, count, replace=False))
        for first in range(0, len(ids), batch_size):
            rows = ids[first : first + batch_size]
            yield from _batches(dataset._take_rows(rows, columns))  # noqa: SLF001  # pylance's name
        return
    positions = _positions(random, len(dataset), count, max_takes)
    for first in range(0, count, batch_size):
        yield from _batches(dataset.take(positions[first : first + batch_size], columns))


def _batches(table: pa.Table) -> list[pa.RecordBatch]:
    return table.combine_chunks().to_batches()


def _positions(random: np.random.Generator, rows: int, count: int, max_takes: int) -> Int64s:
    """Positions of rows: single ones, or one run in each of ``max_takes`` windows."""
    if count <= max_takes:
        return np.asarray(random.choice(rows, count, replace=False), np.int64)
    # Each window has its share of the rows, and room for others, both divided evenly: so that no
    # share is larger than its window, whose rows would be there twice.
    windows = np.arange(max_takes + 1)
    taken, left = windows * count // max_takes, windows * (rows - count) // max_takes
    shares, room = np.diff(taken), np.diff(left)
    first = (taken + left)[:-1] + random.integers(0, room + 1)
    ends = np.cumsum(shares)
    inside = np.arange(count) - np.repeat(ends - shares, shares)
    positions: Int64s = np.repeat(first, shares) + inside
    return positions
