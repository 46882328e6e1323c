"""FM: what partitions say of their bytes is added up, also where that is more than there can be."""

from __future__ import annotations

from typing import Any, cast

import numpy as np

from glaive.arrow.conditions import HasText
from glaive.index.scalar.fm import FMPartition, OpenedFM
from glaive.index.segment import load_uncached


def test_partitions_of_more_bytes_than_an_integer_counts_have_an_estimate() -> None:
    each = np.zeros(256, np.int64)
    each[[ord(letter) for letter in "word"]] = 3 * 10**17
    counts = np.concatenate(([0], np.cumsum(each)))
    file = cast("Any", None)  # not read by estimates
    one = FMPartition(file, np.zeros(3, np.uint64), np.arange(3), counts)
    opened = OpenedFM([one] * 12, load_uncached)
    with np.errstate(all="raise"):
        estimates = [opened.estimate(HasText(word=word)) for word in ("word", "word" * 8)]
    assert estimates[0] == 36
    assert 0 < estimates[1] <= 36
