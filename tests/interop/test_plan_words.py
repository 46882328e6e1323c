"""Names of steps that programs look for in plans are in glaive's where pylance has them."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
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


QUESTIONS = (
    "id = 7", "id > 7", "id >= 1 and id <= 2", "id in (1, 2, 3)", "id in (1, 2, 3, 4, 5)",
    "id not in (1, 2, 3, 4, 5)", "id != 3", "id is null", "id is not null", "not (id = 7)",
    "id = 7 and m = 2", "id = 7 or m = 2", "id = 7 and few = 3", "id = 7 or few = 3", "m = 2",
    "few > 3", "array_has(l, 1)", "array_has_any(l, [1, 2])", "array_has_all(l, [1, 2])", "z = 7",
    "z > 50", "f = 7", "f in (1, 2)", "contains(g, 'word77')", "s = 's7'", "s like 's7%'",
    "s >= 'a' and s < 'b'", "id < 5 or (id > 10 and m < 2)", "id = 3 and m = 4 and s = 'x'",
    "id > 3 and not (m < 2)",
)  # fmt: skip
KINDS = {
    "id": "BTREE", "m": "BITMAP", "l": "LABEL_LIST", "z": "ZONEMAP", "f": "BLOOMFILTER",
    "g": "NGRAM", "s": "BTREE",
}  # fmt: skip


@pytest.fixture(scope="module", params=[1_000, 10_000])
def every_kind(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    place, count = str(tmp_path_factory.mktemp("kinds") / "t"), request.param
    numbers, at = list(range(count)), range(count)
    columns = {"id": numbers, "m": [n % 5 for n in at], "l": [[n % 3] for n in at], "z": numbers}
    columns |= {"f": numbers, "g": [f"word{n}" for n in at], "s": [f"s{n}" for n in at]}
    dataset = glaive.write_dataset(pa.table({**columns, "few": numbers}), place)
    for column, kind in KINDS.items():
        dataset.create_scalar_index(column, kind)
    return place


def test_questions_for_indices_are_written_as_pylance_writes_them(every_kind: str) -> None:
    theirs, ours = lance.dataset(every_kind), glaive.dataset(every_kind)
    for question in QUESTIONS:
        for options in ({}, {"limit": 3}, {"order_by": ["few"], "limit": 3, "columns": ["few"]}):
            said, wanted = (
                one.scanner(filter=question, **options).explain_plan() for one in (ours, theirs)
            )
            asked = re.findall(r"ScalarIndexQuery: query=.*", wanted)
            assert len(asked) == said.count("ScalarIndexQuery"), question
            assert not asked or f"{asked[0].strip()}, " in said, question
            for words in re.findall(r"range_\w+=\w+|SortExec: \w+\S* ", wanted):
                assert words in said, (question, options)


def test_steps_are_measured_one_by_one_and_queries_of_sql_are_explained(every_kind: str) -> None:
    pytest.importorskip("datafusion")
    dataset = glaive.dataset(every_kind)
    names = r"output_rows=1, rows_scanned=\d+, bytes_read=\d+, iops=\d+, index_comparisons=[1-9]"
    assert re.search(
        rf"ScalarIndexQuery: .*metrics=\[{names}", dataset.scanner(filter="id = 7").analyze_plan()
    )
    for module in (lance, glaive):
        for word, kinds in (
            ("explain", ["logical_plan", "physical_plan"]),
            (" EXPLAIN ANALYZE", ["Plan with Metrics"]),
        ):
            query = f"{word} select s, count(*) from dataset where id = 7 group by s"
            batches = module.dataset(every_kind).sql(query).build().to_batch_records()
            table = pa.Table.from_batches(batches)
            assert table["plan_type"].to_pylist() == kinds
            said = table["plan"][-1].as_py()
            assert "LanceRead: uri=" in said
            assert "ScalarIndexQuery: query=[id = 7]@id_idx(BTree)" in said
            assert ("metrics=[output_rows=1" in said) == (len(kinds) == 1)


@pytest.mark.parametrize(
    ("values", "condition", "text"),
    [
        (pa.array(range(5000), pa.date32()), "v < arrow_cast(9999999, 'Date32')", "29349-01-25"),
        (
            pa.array(range(5000), pa.timestamp("ns")),
            "v > arrow_cast(1001, 'Timestamp(Nanosecond, None)')",
            "00:00:00.000001001",
        ),
    ],
    ids=["a day that Python has not", "nanoseconds"],
)
def test_plans_show_all_values_of_time(
    tmp_path: Path, values: pa.Array, condition: str, text: str
) -> None:
    dataset = glaive.write_dataset({"v": values}, tmp_path / "t")
    dataset.create_scalar_index("v", "BTREE")
    assert text in dataset.scanner(filter=condition).explain_plan()


def test_a_query_with_a_comment_is_explained(indexed: str) -> None:
    comments = "-- why?\n" + "/* so */\n" * 40
    query = glaive.dataset(indexed).sql(f"{comments}explain SELECT * FROM dataset")
    assert query.build().to_batch_records()[0].schema.names == ["plan_type", "plan"]


def test_a_step_that_is_not_made_is_not_named(indexed: str) -> None:
    plan = glaive.dataset(indexed).scanner(filter="id = 5", use_scalar_index=False).explain_plan()
    assert "ScalarIndexQuery" not in plan


def test_the_time_that_a_filter_takes_before_a_search_is_reported(indexed: str) -> None:
    options, _ = SCANS["vectors of rows that pass"]
    said = glaive.dataset(indexed).scanner(columns=["id"], **options).analyze_plan()
    assert "by index id_idx: about 1 rows of 1 fragments" in said
    assert "find the rows that are searched: " in said


def test_statistics_tell_whether_indices_were_read_compared_or_kept(every_kind: str) -> None:
    asked = {
        "id": "id = 7", "m": "m = 2", "l": "array_has(l, 1)", "z": "z = 7", "f": "f = 7",
        "g": "contains(g, 'word77')", "s": "s > 's5'",
    }  # fmt: skip

    def told(module: Any, prewarmed: str | None, **options: Any) -> tuple[bool, ...]:
        dataset = module.dataset(every_kind)
        if prewarmed is not None:
            dataset.prewarm_index(prewarmed)
        seen: list[Any] = []
        for _ in range(2):
            scan = dataset.scanner(columns=["id"], scan_stats_callback=seen.append, **options)
            scan.to_table()
        first, second = seen
        assert second.indices_loaded == 0
        return first.indices_loaded > 0, first.index_comparisons > 0

    for column, question in asked.items():
        assert told(glaive, None, filter=question) == (True, True), question
        assert told(glaive, f"{column}_idx", filter=question) == (False, True), question
        assert told(glaive, None, filter=question, use_scalar_index=False) == (False, False)
        assert told(lance, None, filter=question) == (True, True), question


@pytest.mark.parametrize("kind", ["BTREE", "BITMAP", "NGRAM", "INVERTED", "ZONEMAP"])
def test_nothing_of_an_index_is_read_again_that_was_prewarmed(tmp_path: Path, kind: str) -> None:
    words = [f"word{n % 300} x" for n in range(20_000)]
    dataset = glaive.write_dataset({"t": words}, tmp_path / "d")
    dataset.create_scalar_index("t", kind)
    text = kind == "INVERTED"
    options = {"full_text_query": "word7"} if text else {"filter": "contains(t, 'word77')"}
    if kind in ("BTREE", "BITMAP", "ZONEMAP"):
        options = {"filter": "t = 'word7 x'"}
    rows = dataset.to_table(**options, use_scalar_index=False if not text else None)
    opened = glaive.dataset(tmp_path / "d")
    opened.to_table(**options)
    for _ in range(2):
        opened.prewarm_index("t_idx")
    opened.io_stats_incremental()
    seen: list[Any] = []
    scan = opened.scanner(**options, scan_stats_callback=seen.append, use_scalar_index=True)
    assert scan.to_table().num_rows == rows.num_rows > 0
    assert (seen[0].indices_loaded, seen[0].parts_loaded) == (0, 0)
    shutil.rmtree(tmp_path / "d" / "_indices")
    assert opened.to_table(**options, use_scalar_index=True).num_rows == rows.num_rows
