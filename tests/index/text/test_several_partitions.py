"""Partitions of a segment are searched as if they were one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.index.text.sources import RowsInMemory
from tests.index.text.test_merge_text import built

from glaive.index.protocol import ValueBatch
from glaive.index.text.inverted import Inverted
from glaive.index.text.opened import (
    Hits,
    OpenedInverted,
    SearchedPartition,
    TermQuery,
    search_terms,
)

ROWS = 6000
MEMORY = 400_000


class ScatteredRows(RowsInMemory):
    """The same texts, in rows of every third number."""

    def batches(self) -> Iterator[ValueBatch]:
        rows = np.concatenate([np.arange(first, ROWS, 3, dtype=np.uint64) for first in (2, 0, 1)])
        for values, _ in super().batches():
            yield ValueBatch(values, rows)


def opened(source: type[RowsInMemory]) -> OpenedInverted:
    # Few words and lengths: many documents have the same score.
    random = np.random.default_rng(7)
    texts = pa.array(
        [
            " ".join(f"w{number}" for number in random.zipf(1.4, 1 + at % 5) % 40)
            for at in range(ROWS)
        ]
    )
    index: Any = Inverted().open(built(source([texts], MEMORY), with_position=True))
    assert len(index.partitions) > 2
    return index  # type: ignore[no-any-return]  # an opened index


def searched(index: OpenedInverted, allowed: Any) -> list[SearchedPartition]:
    found = []
    for partition in index.partitions:
        rows = partition.documents.rows
        mask = None if allowed is None else allowed[rows.astype(np.int64)]
        found.append(SearchedPartition(partition, rows, mask))
    return found


QUERIES = {
    "one word": TermQuery((("w1", 0),)),
    "any of three": TermQuery((("w1", 0), ("w7", 1), ("w12", 2))),
    "all of two": TermQuery((("w1", 0), ("w2", 1)), every=True),
    "a phrase": TermQuery((("w1", 0), ("w2", 1)), phrase=True),
    "a phrase with a word twice": TermQuery((("w1", 0), ("w1", 1)), phrase=True, slop=1),
    "a word that few have": TermQuery((("w39", 0), ("unknown", 1))),
}


@pytest.mark.sampled(every=4)
@pytest.mark.parametrize("source", [RowsInMemory, ScatteredRows])
def test_the_best_rows_are_those_of_all_partitions_with_ties_by_row(
    source: type[RowsInMemory],
) -> None:
    index = opened(source)
    some = (np.random.default_rng(1).random(ROWS) < 0.3).astype(np.uint8)
    for name, query in QUERIES.items():
        for allowed in (None, some):
            everything = search_terms(searched(index, allowed), query, index.statistics, None)
            assert len(everything.rows), name
            for most in (1, 10, 150):
                together = searched(index, allowed)
                hits = search_terms(together, query, index.statistics, most)
                expected = everything.best(most)
                assert_equal(hits.best(most), expected, name)


def assert_equal(found: Hits, expected: Hits, name: str) -> None:
    assert found.rows.tolist() == expected.rows.tolist(), name
    np.testing.assert_allclose(found.scores, expected.scores, rtol=1e-6)
