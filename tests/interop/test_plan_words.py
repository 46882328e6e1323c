"""Names of steps that programs look for in plans are in glaive's where pylance has them."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import glaive

lance = pytest.importorskip("lance", reason="install the 'interop' group")
pytestmark = pytest.mark.interop
ROWS = 2_000
QUERY = np.zeros(8, np.float32)
SCANS: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "scan": ({}, ("LanceRead",)),
    "index of values": (
        {"filter": "id = 5", "use_scalar_index": True},
        ("ScalarIndexQuery", "LanceRead"),
    ),
    "words": ({"full_text_query": "word5"}, ("MatchQuery",)),
    "vectors": ({"nearest": {"column": "v", "q": QUERY, "k": 5}}, ("ANNSubIndex",)),
    "vectors of rows that pass": (
        {
            "nearest": {"column": "v", "q": QUERY, "k": 5},
            "filter": "id = 5",
            "prefilter": True,
            "use_scalar_index": True,
        },
        ("ScalarIndexQuery", "ANNSubIndex"),
    ),
    "words of rows that pass": (
        {
            "full_text_query": "word5",
            "filter": "id = 5",
            "prefilter": True,
            "use_scalar_index": True,
        },
        ("ScalarIndexQuery", "MatchQuery"),
    ),
    "vectors whose rows pass afterwards": (
        {
            "nearest": {"column": "v", "q": QUERY, "k": 5, "use_index": False},
            "filter": "t = 'word5'",
        },
        ("KNNVectorDistance", "FilterExec"),
    ),
    "exact": (
        {"nearest": {"column": "v", "q": QUERY, "k": 5, "use_index": False}},
        ("KNNVectorDistance",),
    ),
}


@pytest.fixture(scope="module")
def indexed(tmp_path_factory: pytest.TempPathFactory) -> str:
    place = str(tmp_path_factory.mktemp("plans") / "t")
    vectors = np.random.default_rng(0).random(8 * ROWS, np.float32)
    table = pa.table(
        {
            "id": range(ROWS),
            "t": [f"word{n % 97}" for n in range(ROWS)],
            "v": pa.FixedSizeListArray.from_arrays(vectors, 8),
        }
    )
    dataset = glaive.write_dataset(table, place)
    dataset.create_scalar_index("id", "BTREE")
    dataset.create_scalar_index("t", "INVERTED")
    dataset.create_index("v", "IVF_FLAT", num_partitions=4)
    return place


@pytest.mark.parametrize("name", SCANS)
def test_plans_have_the_names_of_steps(indexed: str, name: str) -> None:
    options, words = SCANS[name]
    for module in (lance, glaive):
        plan = module.dataset(indexed).scanner(columns=["id"], **options).explain_plan()
        for word in words:
            assert word in plan


def test_what_a_plan_took_names_the_rows_it_returned(indexed: str) -> None:
    for module in (lance, glaive):
        said = module.dataset(indexed).scanner(filter="id < 7").analyze_plan()
        assert "output_rows=7" in said
        assert re.search(r"bytes_read=[1-9]", said)
        assert "iops=" in said
        assert "AnalyzeExec verbose=true" in said
        assert "Sort" in module.dataset(indexed).scanner(order_by=["id"]).explain_plan()


def test_plans_of_merges_have_the_names_of_steps(indexed: str) -> None:
    for module in (lance, glaive):
        merge = module.dataset(indexed).merge_insert("id").use_index(False)
        assert "HashJoin" in merge.when_matched_update_all().explain_plan()
        rows = module.dataset(indexed).to_table(limit=3)
        said = merge.when_not_matched_insert_all().analyze_plan(rows)
        assert "MergeInsert" in said
        assert re.search("bytes_written[:=]", said)


def test_a_step_that_is_not_made_is_not_named(indexed: str) -> None:
    plan = glaive.dataset(indexed).scanner(filter="id = 5", use_scalar_index=False).explain_plan()
    assert "ScalarIndexQuery" not in plan


def test_the_time_that_a_filter_takes_before_a_search_is_reported(indexed: str) -> None:
    options, _ = SCANS["vectors of rows that pass"]
    said = glaive.dataset(indexed).scanner(columns=["id"], **options).analyze_plan()
    assert "by index id_idx: about 1 rows of 1 fragments" in said
    assert "find the rows that are searched: " in said
