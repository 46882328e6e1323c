"""Table functions in plain ``spark.sql``: scans, searches, changes, history and files."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

import glaive
import glaive.spark
from glaive.spark import LanceTable
from glaive.spark.table_functions import FUNCTIONS

pytestmark = pytest.mark.spark

VECTORS = np.random.default_rng(5).standard_normal((300, 8)).astype(np.float32)
WORDS = ["apple", "pear", "plum"]
ROWS = pa.table(
    {
        "id": range(300),
        "text": [f"{WORDS[n % 3]} number {n}" for n in range(300)],
        "v": pa.FixedSizeListArray.from_arrays(pa.array(VECTORS.ravel()), 8),
    }
)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return a dataset of four versions: made, appended to, indexed, some rows deleted."""
    uri = str(tmp_path_factory.mktemp("functions") / "t.lance")
    made = glaive.write_dataset(ROWS, uri, max_rows_per_file=100, enable_stable_row_ids=True)
    made = glaive.write_dataset(ROWS.slice(0, 2), uri, mode="append")
    made.create_scalar_index("text", "INVERTED")
    made.delete("id = 0")
    return uri


def rows(frame: DataFrame) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in frame.collect()]


def array(vector: Any) -> str:
    return f"array({', '.join(f'{value:.9g}' for value in vector)})"


SCANS = {
    "filter => 'id > 297', columns => 'id'": [(298,), (299,)],
    "columns => array('text', 'id'), limit => 1": [("pear number 1", 1)],
    """columns => '{"twice": "id * 2"}', filter => 'id = 5'""": [(10,)],
    "version => 1, columns => 'id', filter => 'id < 2'": [(0,), (1,)],
    "options => map('version', '1'), columns => 'id', limit => 1": [(0,)],
    "columns => 'id', order_by => 'id', limit => 1, with_row_id => true": [(1, 1)],
    "full_text_query => 'plum 299', columns => 'id', limit => 1": None,
}


@pytest.mark.parametrize("options", SCANS)
def test_a_scan_takes_the_options_of_a_read(spark: SparkSession, path: str, options: str) -> None:
    found = rows(spark.sql(f"select * from lance_scan('{path}', {options})"))
    assert found == SCANS[options] or (SCANS[options] is None and found[0][0] == 299)


def test_values_of_all_types_are_those_of_a_frame(spark: SparkSession, uri: str) -> None:
    at = datetime(2026, 10, 25, 0, 30, tzinfo=UTC)
    table = pa.table(
        {
            "at": pa.array([at, None]),
            "local": pa.array([at, None]).cast(pa.timestamp("us")),
            "day": [date(2026, 1, 1), None],
            "price": [Decimal("1.50"), None],
            "pairs": pa.array([[("a", 1)], None], pa.map_(pa.string(), pa.int32())),
            "nested": [{"x": [1, 2], "y": {"z": b"q"}}, None],
            "wait": pa.array([90_000_000, None], pa.duration("us")),
            "big": pa.array([2**63, None], pa.uint64()),
            "half": pa.array([0.5, None], pa.float16()),
            "flag": [True, None],
        }
    )
    glaive.write_dataset(table, uri)
    frame = glaive.spark.read(spark, uri)
    scanned = spark.sql(f"select * from lance_scan('{uri}')")
    assert scanned.schema.simpleString() == frame.schema.simpleString()
    assert scanned.collect() == frame.collect()
    assert scanned.selectExpr("unix_seconds(at)").first() == (int(at.timestamp()),)

    spark.range(3).selectExpr("id", "parse_json(concat('[', id, ']')) as doc").write.format(
        "lance"
    ).mode("overwrite").save(uri)
    texts = spark.sql(f"select to_json(doc) from lance_scan('{uri}') order by id")
    assert rows(texts) == [("[0]",), ("[1]",), ("[2]",)]


def test_searches_find_what_the_methods_of_a_table_find(spark: SparkSession, path: str) -> None:
    table, query = LanceTable.forPath(spark, path), array(VECTORS[42])
    nearest = {"column": "v", "q": VECTORS[42], "k": 5}
    expected = lance.dataset(path).to_table(["id", "_distance"], nearest=nearest).to_pylist()
    found = spark.sql(f"select id, _distance from lance_search('{path}', {query}, 'v', 5)")
    assert [row.id for row in found.collect()] == [row["id"] for row in expected]
    for more, keywords in (
        ("filter => 'id > 100'", {"filter": "id > 100"}),
        ("select => array('id')", {"select": ["id"]}),
        ("nprobes => 2, use_index => false", {"nprobes": 2, "use_index": False}),
    ):
        found = spark.sql(f"select * from lance_search('{path}', {query}, 'v', k => 4, {more})")
        assert rows(found) == rows(table.search(VECTORS[42], "v", 4, **keywords))  # type: ignore[arg-type]  # of a table
    for columns in ("'text'", "array('text')"):
        found = spark.sql(f"select * from lance_search_text('{path}', 'pear 7', {columns}, 3)")
        assert rows(found) == rows(table.searchText("pear 7", "text", 3))


def test_queries_of_glaive_take_a_parameter_named_select(spark: SparkSession, path: str) -> None:
    call = f"lance_search('{path}', q.v, 'v', k => 1, select => 'id')"
    query = f"select r.id, ', select => x' as text from t q, lateral {call} r where q.id in (3, 4)"
    found = glaive.spark.sql(spark, query, t=path)
    assert sorted(rows(found)) == [(3, ", select => x"), (4, ", select => x")]


def test_queries_of_other_rows_are_searched_by_lateral_joins(
    spark: SparkSession, path: str
) -> None:
    spark.sql(
        "select id as n, if(id = 5, null, v) as q, text as words from "
        f"lance_scan('{path}', filter => 'id between 3 and 6')"
    ).createOrReplaceTempView("queries")
    by_vector = "select n, r.id from queries, lateral lance_search('{}', q, 'v', k => 1) r"
    assert sorted(rows(spark.sql(by_vector.format(path)))) == [(3, 3), (4, 4), (6, 6)]
    by_text = "select n, r.* from queries, lateral lance_search_text('{}', words, 'text', 1) r"
    found = sorted(rows(spark.sql(by_text.format(path) + " where r.id > 3")))
    assert [row[:3] for row in found] == [(n, n, f"{WORDS[n % 3]} number {n}") for n in (4, 5, 6)]
    both = (
        "select n, r.id, _relevance_score as score from queries, "
        f"lateral lance_hybrid_search('{path}', q, words, 'v', 'text', k => 1) r"
    )
    scores = {n: (found, score) for n, found, score in rows(spark.sql(both))}
    assert {n: found for n, (found, _) in scores.items()} == {3: 3, 4: 4, 5: 5, 6: 6}
    assert scores[3][1] == pytest.approx(2 / 61)
    assert scores[5][1] == pytest.approx(1 / 61)  # without a vector


def test_a_hybrid_search_adds_the_reciprocal_ranks_of_both(spark: SparkSession, path: str) -> None:
    table = LanceTable.forPath(spark, path)
    scores: dict[int, float] = {}
    for ranked in (
        table.search(VECTORS[9], "v", 20, filter="id > 5"),
        table.searchText("apple", "text", 20, filter="id > 5"),
    ):
        for rank, row in enumerate(ranked.collect(), 1):
            scores[row.id] = scores.get(row.id, 0) + 1 / (10 + rank)
    query = array(VECTORS[9])
    found = spark.sql(
        f"select * from lance_hybrid_search('{path}', {query}, 'apple', 'v', 'text', k => 8, "
        "filter => 'id > 5', candidates => 20, rrf_k => 10, select => 'id')"
    )
    assert found.columns == ["id", "_relevance_score"]
    got = rows(found)
    assert [score for _, score in got] == pytest.approx(sorted(scores.values(), reverse=True)[:8])
    assert all(score == pytest.approx(scores[row_id]) for row_id, score in got)
    nothing = f"lance_hybrid_search('{path}', cast(null as array<float>), 'kiwi', 'v', 'text')"
    assert rows(spark.sql(f"select * from {nothing}")) == []


def test_a_frame_reads_the_version_of_its_creation(spark: SparkSession, uri: str) -> None:
    glaive.write_dataset(ROWS.slice(0, 10), uri, enable_stable_row_ids=True)
    calls = {
        f"lance_scan('{uri}')": 10,
        f"lance_files('{uri}')": 1,
        f"lance_history('{uri}')": 1,
        f"lance_changes('{uri}', 1)": 10,
        f"lance_search('{uri}', {array([0.0] * 8)}, 'v', 50)": 10,
    }
    frames = [spark.sql(f"select * from {call}") for call in calls]
    glaive.write_dataset(ROWS.slice(10, 20), uri, mode="append")
    assert [frame.count() for frame in frames] == list(calls.values())


def test_changes_history_and_files_are_those_of_the_table(spark: SparkSession, path: str) -> None:
    table = LanceTable.forPath(spark, path)
    for name, expected in (("history", table.history()), ("files", table.files())):
        found = spark.sql(f"select * from lance_{name}('{path}')")
        assert found.schema.simpleString() == expected.schema.simpleString()
        assert rows(found) == rows(expected)
    assert spark.sql(f"select * from lance_files('{path}', version => 1)").count() == 3
    assert rows(spark.sql(f"select version from lance_history('{path}', limit => 2)")) == [
        (4,),
        (3,),
    ]
    first = glaive.dataset(path).versions()[0]["timestamp"].astimezone(UTC).isoformat()
    day = "dateadd(DAY, -1, now())"
    for bounds in (
        "2",
        "2, 4",
        f"start => '{first}'",
        f"start => {day}",
        "2, columns => 'id,text,v'",
    ):
        found = spark.sql(f"select * from lance_changes('{path}', {bounds})")
        start = 1 if "start" in bounds else 2
        assert sorted(rows(found)) == sorted(rows(glaive.spark.read_changes(spark, path, start))), (
            bounds
        )
    net = f"lance_changes('{path}', 1, 4, deduplicationMode => 'netChanges', columns => 'id')"
    assert spark.sql(f"select * from {net}").count() == 301 - 1


REFUSED = {
    "lance_scan()": r"OptionError: uri: missing\. Arguments: uri",
    "lance_scan('{}', fiter => 'id > 3')": r"option 'fiter' .* did you mean filter\?",
    "lance_scan('{}-none')": "DatasetNotFoundError",
    "lance_scan('{}', filter => string(rand()))": "filter: expected a constant",
    "lance_changes('{}', now() - interval 1 day)": "start: expected a constant.* as a parameter",
    "lance_scan('{}', 1, 2)": r"at most 1 arguments by position \(uri\), found 3\. Name the others",
    "lance_search('{}', array(1.0f))": r"column: missing\. Arguments: uri, query, column, k",
    "lance_search('{}', array(1.0f), 'w')": "ColumnNotFoundError: No field named w",
    "lance_search('{}', array(1.0f), 'v', 0)": "k: expected an integer ≥ 1, found 0",
    "lance_search('{}', array(1.0f), 'v')": "column 'v' has vectors of 8 numbers",
    "lance_search('{}', array(1.0f), 'v', nprobe => 2)": "option 'nprobe'",
    "lance_search_text('{}', 5, 'text')": "expected a text",
    "lance_hybrid_search('{}', null, 'a', 'v', 'text', rrf_k => 0)": "rrf_k: expected an integer",
    "lance_changes('{}')": r"start: missing\. Arguments: uri, start, end",
    "lance_changes('{}', 1, filter => 'id = 1')": "change feeds have whole rows",
    "lance_files('{}', version => 99)": "VersionNotFoundError",
}


@pytest.mark.parametrize("call", REFUSED)
def test_calls_that_cannot_be_answered_are_refused_with_the_reason(
    spark: SparkSession, path: str, call: str
) -> None:
    with pytest.raises(PySparkException, match=REFUSED[call]):
        spark.sql(f"select * from {call.format(path)}").collect()


def test_a_dataset_with_the_name_of_a_score_is_searched_without_it(
    spark: SparkSession, uri: str
) -> None:
    glaive.write_dataset(ROWS.append_column("_distance", pa.array([0.5] * 300)), uri)
    call = f"lance_search('{uri}', {array(VECTORS[3])}, 'v', 1"
    with pytest.raises(PySparkException, match=r"has a column _distance.* select => 'a,b'"):
        spark.sql(f"select * from {call})")
    assert rows(spark.sql(f"select * from {call}, select => 'id')"))[0][0] == 3


def test_every_function_is_registered_with_a_session(spark: SparkSession) -> None:
    for name in FUNCTIONS:
        assert spark.catalog.functionExists(name)


def test_another_session_of_the_same_spark_has_sources_and_functions(
    spark: SparkSession, path: str
) -> None:
    other = spark.newSession()
    try:
        assert glaive.spark.read(other, path, columns=["id"]).count() == 300
        assert other.read.format("glaive").load(path).count() == 300
        assert other.sql(f"select * from lance_scan('{path}', limit => 2)").count() == 2
    finally:
        spark.createDataFrame([], "a int")  # active again
