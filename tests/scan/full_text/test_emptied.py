"""Searches by indices of tables from which all rows were deleted: nothing is found."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from glaive.query import PhraseQuery

import glaive
from glaive.errors import OptionError

VECTORS = pa.FixedSizeListArray.from_arrays(np.arange(16, dtype=np.float32), 2)
ROWS = pa.table({"id": range(8), "text": ["apple banana"] * 8, "vector": VECTORS})
SEARCHES: list[dict[str, Any]] = [
    {"full_text_query": "apple"},
    {"nearest": {"column": "vector", "q": [1.0, 2.0], "k": 3}},
    {"filter": "id > 2"},
]


@pytest.mark.spec("rel-12")
@pytest.mark.parametrize("stable", [False, True], ids=["addresses", "stable ids"])
@pytest.mark.parametrize("search", SEARCHES, ids=lambda search: next(iter(search)))
def test_a_table_without_fragments_has_no_results_until_rows_are_added(
    tmp_path: Path, search: dict[str, Any], *, stable: bool
) -> None:
    dataset: Any = glaive.write_dataset(ROWS, tmp_path, enable_stable_row_ids=stable)
    dataset.create_scalar_index("text", "INVERTED")
    dataset.create_scalar_index("id", "BTREE")
    dataset.create_index("vector", "IVF_FLAT", num_partitions=1)
    assert dataset.to_table(**search).num_rows > 0
    dataset.truncate_table()
    assert dataset.to_table(**search).num_rows == 0
    dataset.insert(ROWS.slice(3, 2))
    assert sorted(dataset.to_table(columns=["id"], **search)["id"].to_pylist()) == [3, 4]


@pytest.mark.spec("rel-12")
def test_an_index_without_positions_that_answers_for_no_row_does_not_keep_phrases_from_being_found(
    tmp_path: Path,
) -> None:
    dataset = glaive.write_dataset(ROWS, tmp_path)
    dataset.create_scalar_index("text", "INVERTED")
    phrase = PhraseQuery("apple banana", "text")
    with pytest.raises(OptionError, match="has no positions"):
        dataset.to_table(full_text_query=phrase)
    dataset.update({"text": "'an ' || text"})
    assert dataset.to_table(full_text_query=phrase).num_rows == 8
    assert dataset.to_table(full_text_query=PhraseQuery("banana apple", "text")).num_rows == 0
