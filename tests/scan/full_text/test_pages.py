"""Pages of a search, by limit and offset: each row is in one of them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from glaive.query import FullTextOperator, MatchQuery, PhraseQuery

import glaive

QUERIES: dict[str, Any] = {
    "any": MatchQuery("red apple", "text"),
    "all": MatchQuery("red apple", "text", operator=FullTextOperator.AND),
    "fuzzy": MatchQuery("appla", "text", fuzziness=1),
    "phrase": PhraseQuery("red apple", "text"),
}


def rows(first: int, count: int) -> pa.Table:
    texts = [("red apple", "an apple", "red apple", "a pear")[at % 4] for at in range(count)]
    return pa.table({"id": range(first, first + count), "text": texts})


def rows_move(dataset: Any) -> None:
    dataset.update({"id": "id"}, where="id % 3 = 0")


def fragments_move(dataset: Any) -> None:
    dataset.insert(rows(100, 30))
    dataset.insert(rows(200, 30))
    dataset.delete("id >= 100 and id < 110")
    dataset.optimize.compact_files(target_rows_per_fragment=25, num_threads=1)


@pytest.mark.sampled(every=3)
@pytest.mark.parametrize("change", [rows_move, fragments_move])
@pytest.mark.parametrize("query", QUERIES.values(), ids=QUERIES)
def test_each_row_is_on_one_page_where_scores_are_equal(
    tmp_path: Path, query: Any, change: Callable[[Any], None]
) -> None:
    dataset: Any = glaive.write_dataset(
        rows(0, 40), tmp_path, max_rows_per_file=10, enable_stable_row_ids=True
    )
    dataset.create_scalar_index("text", "INVERTED", with_position=True, remove_stop_words=False)
    change(dataset)
    dataset = glaive.dataset(tmp_path)
    search = {"columns": ["id", "_score"], "full_text_query": query}
    every = dataset.to_table(**search)
    assert every.num_rows > 15
    for size in (1, 3, 7):
        pages = [
            dataset.to_table(**search, limit=size, offset=offset)
            for offset in range(0, every.num_rows, size)
        ]
        assert pa.concat_tables(pages).equals(every)
