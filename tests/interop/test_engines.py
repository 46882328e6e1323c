"""Other engines read datasets: DuckDB, Polars, pandas, SQL; of columns and rows what they need."""

from __future__ import annotations

import pickle
import subprocess
import sys
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pads
import pytest

import glaive
from glaive.dataset.dataset import LanceDataset
from glaive.errors import DataFileMissingError, NotLanceError, OptionError, UnsupportedFeatureError

lance = pytest.importorskip("lance", reason="install the 'interop' group")
duckdb: Any = pytest.importorskip("duckdb", reason="install the 'interop' group")
pl: Any = pytest.importorskip("polars", reason="install the 'interop' group")

ROWS = 50_000


@pytest.fixture(scope="module")
def uri(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return a dataset of a narrow, a middling and a very wide column."""
    rng = np.random.default_rng(1)
    table = pa.table(
        {
            "id": np.arange(ROWS),
            "group": [f"g{i % 7}" for i in range(ROWS)],
            "score": pa.array(rng.random(ROWS), mask=rng.random(ROWS) < 0.1),
            "day": pa.array((np.arange(ROWS) // 100).astype("datetime64[D]")),
            "wide": pa.FixedSizeListArray.from_arrays(
                pa.array(rng.random(ROWS * 32), pa.float32()), 32
            ),
        }
    )
    place = str(tmp_path_factory.mktemp("engines") / "t")
    glaive.write_dataset(table, place, max_rows_per_file=20_000).delete("id % 100 = 3")
    return place


@pytest.fixture
def dataset(uri: str) -> LanceDataset:
    return glaive.dataset(uri)


def bytes_read(uri: str, work: Callable[[LanceDataset], Any]) -> int:
    """Return what some work reads of a dataset that was not read from before."""
    dataset = glaive.dataset(uri)
    work(dataset)
    return dataset.io_stats_snapshot().read_bytes


QUERIES = [
    'SELECT count(*), sum("id") FROM {} WHERE "id" < 1000',
    'SELECT "group", round(avg(score), 9) FROM {} WHERE score > 0.5 GROUP BY 1 ORDER BY 1',
    "SELECT id FROM {} WHERE \"group\" = 'g3' AND id BETWEEN 100 AND 300 ORDER BY 1",
    "SELECT id FROM {} WHERE \"group\" IN ('g1', 'g2') AND score IS NULL ORDER BY 1",
    "SELECT id FROM {} WHERE id IN (5, 3, 4, 49999) OR score > 0.9999 ORDER BY 1",
    "SELECT id FROM {} WHERE day = DATE '1970-01-05' ORDER BY 1",
    "SELECT id FROM {} WHERE \"group\" LIKE 'g%' AND id >= 49990 ORDER BY 1",
    "SELECT wide FROM {} WHERE id = 77",
    "SELECT count(*) FROM {}",
]


@pytest.mark.sampled(every=3)
@pytest.mark.parametrize("query", QUERIES)
def test_duckdb_finds_what_it_finds_in_a_table(dataset: LanceDataset, query: str) -> None:
    whole, through = dataset.to_table(), dataset.to_pyarrow_dataset()
    assert whole is not None
    assert through is not None

    found = duckdb.sql(query.format("through")).fetchall()

    assert found == duckdb.sql(query.format("whole")).fetchall()
    assert found == duckdb.sql(query.format("dataset")).fetchall()


def test_duckdb_reads_the_columns_it_needs(uri: str) -> None:
    def ask(dataset: LanceDataset) -> None:
        through = dataset.to_pyarrow_dataset()
        assert through is not None
        assert duckdb.sql("SELECT count(id) FROM through WHERE id < 1000").fetchall() == [(990,)]

    assert bytes_read(uri, ask) < bytes_read(uri, LanceDataset.to_table) / 8


def test_duckdb_reads_what_it_needs_of_a_dataset_itself(uri: str) -> None:
    def ask(dataset: LanceDataset) -> None:
        assert dataset is not None
        found = duckdb.sql("SELECT count(id) FROM dataset WHERE id < 1000").fetchall()
        assert found == [(990,)]

    assert bytes_read(uri, ask) < bytes_read(uri, LanceDataset.to_table) / 8
    code = f"""
import duckdb, glaive
dataset = glaive.dataset({uri!r})
print(duckdb.sql("SELECT max(id) FROM dataset WHERE id < 1000").fetchall())
"""
    alone = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert alone.stdout.strip() == "[(999,)]"  # nothing else had loaded pyarrow.dataset


def test_polars_reads_the_columns_it_needs(uri: str) -> None:
    table = glaive.dataset(uri).to_table(["id", "group"], filter="id < 1000 and `group` = 'g3'")

    def ask(dataset: LanceDataset) -> None:
        lazy = pl.scan_pyarrow_dataset(dataset.to_pyarrow_dataset())
        query = lazy.filter((pl.col("id") < 1000) & (pl.col("group") == "g3"))
        found = query.select("id", "group").collect()
        assert found.to_dict(as_series=False) == table.to_pydict()

    assert bytes_read(uri, ask) < bytes_read(uri, LanceDataset.to_table) / 8


def test_polars_finds_nulls_where_it_asks_for_them(tmp_path: Path) -> None:
    rows = pa.table({"id": [1, 2, None, 3]})
    lazy = pl.scan_pyarrow_dataset(glaive.write_dataset(rows, tmp_path / "t"))
    for nulls_equal in (False, True):
        among = pl.col("id").is_in([1, None], nulls_equal=nulls_equal)
        for condition in (among, ~among):
            expected = pl.from_arrow(rows).filter(condition)
            assert lazy.filter(condition).collect().equals(expected)


def test_pandas_and_polars_take_the_whole(dataset: LanceDataset) -> None:
    table = dataset.to_table(columns=["id", "score"])

    assert dataset.to_pandas(columns=["id", "score"]).equals(table.to_pandas())
    assert pl.DataFrame(dataset.scanner(columns=["id", "score"])).equals(pl.DataFrame(table))


def test_it_is_a_dataset_of_arrow(dataset: LanceDataset) -> None:
    through = dataset.to_pyarrow_dataset()
    few = pc.field("id") < 10

    assert isinstance(through, pads.Dataset)
    assert through.schema == dataset.schema
    assert through.count_rows() == len(dataset)
    assert through.filter(few).count_rows() == 9
    assert through.filter(few).filter(pc.field("id") > 4).to_table(["id"])["id"].to_pylist() == [
        5, 6, 7, 8, 9,
    ]  # fmt: skip
    assert through.filter(few).take([0, 3], columns=["id"])["id"].to_pylist() == [0, 4]
    assert through.take([0, 3])["id"].to_pylist() == [0, 4]
    assert through.head(2, columns=["id"], use_threads=False).num_rows == 2
    assert sum(batch.num_rows for batch in through.to_batches(filter=few)) == 9
    ordered = through.filter(few).sort_by([("id", "descending")]).to_table()
    assert ordered["id"].to_pylist()[:2] == [9, 8]
    again = pickle.loads(pickle.dumps(through.filter(few)))
    assert again.count_rows() == 9
    assert through.partition_expression.equals(pc.scalar(True))


def test_datasets_are_joined_by_arrow(dataset: LanceDataset, tmp_path: Path) -> None:
    some = dataset.to_table(["id", "group"], limit=10)
    through = glaive.write_dataset(some, str(tmp_path / "some")).to_pyarrow_dataset()
    names = pa.table({"group": ["g1", "g2"], "name": ["one", "two"]})

    for right in (names, pads.dataset(names)):
        joined = through.join(right, "group", join_type="inner").to_table()
        assert sorted(joined["name"].to_pylist()) == ["one", "one", "two", "two"]
    near = pa.table({"id": [5], "what": ["five"]})
    nearest = through.join_asof(near, on="id", by=[], tolerance=-1).to_table()
    assert nearest["what"].to_pylist().count("five") == 2


def test_what_arrow_would_do_with_files_is_refused(dataset: LanceDataset) -> None:
    through = dataset.to_pyarrow_dataset()

    with pytest.raises(UnsupportedFeatureError, match="get_fragments"):
        through.get_fragments()
    with pytest.raises(UnsupportedFeatureError, match="replace_schema"):
        through.replace_schema(pa.schema([]))
    with pytest.raises(pa.ArrowInvalid, match="a Lance dataset, which Arrow's own scanner"):
        pads.Scanner.from_dataset(through).to_table()


def test_arrow_reads_no_file_of_the_working_directory_in_place_of_a_dataset(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    through = glaive.write_dataset(pa.table({"a": [1]}), tmp_path / "t").to_pyarrow_dataset()
    monkeypatch.chdir(tmp_path)
    others = pa.table({"a": [666]})
    for name in through.files:
        with pa.ipc.new_file(name.rstrip("\0"), others.schema) as file:
            file.write_table(others)

    with pytest.raises(pa.ArrowInvalid, match="a Lance dataset"):
        pads.Scanner.from_dataset(through).to_table()


SQL = [
    'SELECT id, "group" FROM dataset WHERE id < 20 ORDER BY id',
    "SELECT count(*) AS n, sum(id) AS total FROM dataset WHERE \"group\" = 'g2'",
    "SELECT id + 1 AS more FROM dataset WHERE score IS NULL AND id < 300 ORDER BY id",
    "SELECT id % 2 AS rest FROM dataset WHERE id < 5 ORDER BY id",
    "SELECT count(*), min(id) AS first FROM dataset WHERE id < 50",
    "SELECT score / 0.0 AS far FROM dataset WHERE score > 0 AND id < 50 ORDER BY id",
]


@pytest.mark.spec("rel-4")
def test_queries_stay_at_the_version_that_they_were_made_of(tmp_path: Path) -> None:
    made = glaive.write_dataset(pa.table({"a": range(10)}), str(tmp_path / "t"))
    through, query = made.to_pyarrow_dataset(), made.sql("SELECT a FROM dataset").build()
    lazy = pl.scan_pyarrow_dataset(made.to_pyarrow_dataset())
    made.delete("a < 5")
    made.add_columns({"b": "a * 2"})

    assert through.schema.names == ["a"]
    assert through.count_rows() == 10
    assert lazy.collect()["a"].to_list() == list(range(10))
    assert pa.Table.from_batches(query.to_batch_records())["a"].to_pylist() == list(range(10))
    assert made.to_pyarrow_dataset().to_table() == made.to_table()


@pytest.mark.parametrize("sql", SQL)
def test_sql_gives_what_pylance_gives(uri: str, dataset: LanceDataset, sql: str) -> None:
    theirs = lance.dataset(uri).sql(sql).build().to_batch_records()
    ours = dataset.sql(sql).build().to_batch_records()

    assert pa.Table.from_batches(ours).to_pylist() == pa.Table.from_batches(theirs).to_pylist()


def test_sql_options_are_those_of_pylance(uri: str, dataset: LanceDataset) -> None:
    sql = "SELECT id, _rowid, _rowaddr FROM things WHERE id < 5 ORDER BY id"

    def run(opened: Any) -> list[Any]:
        query = opened.sql(sql).table_name("things").with_row_id().with_row_addr().batch_size(2)
        reader = query.build().to_stream_reader()
        return reader.read_all().to_pylist()

    assert run(dataset) == run(lance.dataset(uri))


@pytest.mark.parametrize(
    "items",
    [
        "sum(id), sum(small), sum(id + 1) AS more, sum(CASE WHEN id > 3 THEN 1 ELSE 0 END)",
        "count(id), count(1), count(*), count(DISTINCT text), avg(id), min(text)",
        "id + 1, (id + 1) * 2, -id, id % 3, upper(text), text || 'z'",
        "id > 3, id = 1 AND NOT small < 2, text LIKE 'a%', text IN ('a', 'b'), text IS NOT NULL",
        "1, 1 AS one, 1.5, 'x', CASE WHEN id > 3 THEN 1 ELSE 0 END, id BETWEEN 1 AND 2",
        "nested.a, dataset.id, small, id AS key, coalesce(text, 'none')",
    ],
)
def test_names_and_types_of_sql_are_those_of_pylance(tmp_path: Path, items: str) -> None:
    table = pa.table({
        "id": range(9), "small": pa.array(range(9), pa.int16()), "text": list("abcabcabc"),
        "nested": [{"a": row} for row in range(9)],
    })  # fmt: skip
    lance.write_dataset(table, str(tmp_path / "d"))
    ours, theirs = (
        pa.Table.from_batches(
            library.dataset(str(tmp_path / "d")).sql(sql).build().to_batch_records()
        )
        for sql in [f"SELECT {items} FROM dataset"]
        for library in (glaive, lance)
    )
    assert ours.column_names == theirs.column_names
    assert ours.schema.types == theirs.schema.types
    assert sorted(map(str, ours.to_pylist())) == sorted(map(str, theirs.to_pylist()))


def test_literals_of_a_union_have_the_type_of_its_rows(tmp_path: Path) -> None:
    dataset = glaive.write_dataset({"t": ["007", "x"]}, tmp_path / "u")
    query = "SELECT 1 AS x UNION ALL SELECT t FROM dataset"
    found = dataset.sql(query).build().to_stream_reader().read_all()
    assert sorted(found["x"].to_pylist()) == ["007", "1", "x"]


@pytest.mark.parametrize("sql", ["SELEKT 1", "SELECT nothing FROM dataset", ""])
def test_wrong_sql_is_refused(dataset: LanceDataset, sql: str) -> None:
    with pytest.raises(OptionError, match="sql"):
        dataset.sql(sql).build().to_batch_records()


@pytest.mark.parametrize("levels", [450, 900])
def test_an_expression_of_hundreds_of_levels_is_computed(
    dataset: LanceDataset, levels: int
) -> None:
    sql = f"SELECT {' + '.join(['1'] * levels)} FROM dataset LIMIT 1"
    (batch,) = dataset.sql(sql).build().to_batch_records()
    assert batch.column(0).to_pylist() == [levels]


def test_columns_keep_their_types_in_sql(tmp_path: Path) -> None:
    rows = pa.table(
        {
            "text": pa.array(["a", None], pa.large_string()),
            "items": pa.array([[["x"]], []], pa.large_list(pa.list_(pa.large_string()))),
            "pair": pa.array([[1.0, 2.0], None], pa.list_(pa.float32(), 2)),
            "inner": pa.array([{"n": [1]}, None]),
        }
    )
    lance.write_dataset(rows, tmp_path / "a.lance")
    for sql in ("SELECT * FROM dataset", "SELECT text, count(*) AS n FROM dataset GROUP BY text"):
        theirs, ours = (
            lib.dataset(str(tmp_path / "a.lance")).sql(sql).build().to_stream_reader().read_all()
            for lib in (lance, glaive)
        )
        assert str(ours.schema) == str(theirs.schema)
        assert ours.sort_by("text").to_pylist() == theirs.sort_by("text").to_pylist()


def test_columns_of_any_type_are_queried_as_by_pylance(tmp_path: Path) -> None:
    halves = pa.array(np.arange(4, dtype=np.float16))
    pairs = pa.FixedSizeListArray.from_arrays(halves, 2)
    tensor, inner = pa.fixed_shape_tensor(pa.float16(), [2]), pa.list_(pa.float16())
    rows = pa.table(
        {
            "id": [1, 2],
            "half": halves.slice(0, 2),
            "vector": pairs,
            "image": pa.ExtensionArray.from_storage(tensor, pairs),
            "price": pa.array([Decimal("1.25"), None], pa.decimal256(38, 2)),
            "inner": pa.array([{"h": [np.float16(2)]}, None], pa.struct({"h": inner})),
            "named": pa.array([[("a", np.float16(1))], None], pa.map_(pa.string(), pa.float16())),
        }
    )
    lance.write_dataset(rows, tmp_path / "a.lance")
    for sql in (
        "SELECT count(*) FROM dataset",
        "SELECT id FROM dataset WHERE half > 0.5",
        "SELECT id FROM dataset WHERE price = 1.25 AND half < 1",
        "SELECT id FROM dataset WHERE price IS NULL",
        "SELECT * FROM dataset ORDER BY id",
    ):
        theirs, ours = (
            lib.dataset(str(tmp_path / "a.lance")).sql(sql).build().to_stream_reader().read_all()
            for lib in (lance, glaive)
        )
        assert ours.to_pylist() == theirs.to_pylist()
        assert ours.schema.types == theirs.schema.types


@pytest.mark.sampled(every=2)
@pytest.mark.parametrize("scale", [-3, -1])
@pytest.mark.parametrize(
    "decimal",
    [
        pytest.param(
            pa.decimal128,
            marks=pytest.mark.xfail(
                raises=OptionError, reason="DataFusion 54.1 divides by zero when it compares them"
            ),
        ),
        pa.decimal256,
    ],
)
def test_decimals_of_tens_are_queried(tmp_path: Path, decimal: Any, scale: int) -> None:
    values = [Decimal(number).scaleb(-scale) for number in (-999, -1, 0, 1, 120)]
    texts = pa.array([f"{value:f}" for value in values])
    prices = pa.array([*values, None], decimal(3, scale))
    rows = pa.table(
        {"id": range(6), "price": prices, "all": pa.ListArray.from_arrays(list(range(7)), prices)}
    )
    table = glaive.write_dataset(rows, tmp_path / "t")
    for at, text in enumerate(texts.to_pylist()):
        query = f"SELECT id, price, \"all\" FROM t WHERE price = CAST('{text}' AS DECIMAL(12, 5))"
        (found,) = glaive.sql(query, t=table).read_all().to_pylist()
        assert found == {"id": at, "price": values[at], "all": [values[at]]}
    query = "SELECT count(*) AS n FROM t WHERE price < 1"
    assert glaive.sql(query, t=table).read_all()["n"].to_pylist() == [sum(v < 1 for v in values)]


@pytest.mark.nightly(reason="queries a large table")
@pytest.mark.sampled(every=2)
@pytest.mark.parametrize("rows_per_file", [10_000, 7], ids=["batches", "small files"])
def test_structs_within_structs_are_queried_batch_by_batch(
    tmp_path: Path, rows_per_file: int
) -> None:
    inner = [{"a": {"b": n} if n % 3 else None} if n % 4 else None for n in range(10_000)]
    rows = pa.table({"x": inner, "id": range(10_000)})
    found = glaive.write_dataset(rows, tmp_path / "a.lance", max_rows_per_file=rows_per_file)
    found.delete("id % 11 = 3")
    assert duckdb.sql("SELECT count(*) FROM found").fetchall() == [(9_091,)]
    wanted = [row for row in rows.to_pylist() if row["id"] % 11 != 3]
    assert duckdb.sql("SELECT * FROM found").to_arrow_table().to_pylist() == wanted
    (total,) = found.sql("SELECT sum(x.a.b) AS b FROM dataset").build().to_batch_records()
    numbers = [n for n in range(10_000) if n % 11 != 3 and n % 4 and n % 3]
    assert total.to_pylist() == [{"b": sum(numbers)}]


def test_members_that_are_never_null_are_so_in_structs_that_are(tmp_path: Path) -> None:
    member = pa.field("n", pa.int32(), nullable=False)
    rows = pa.table({"inner": pa.array([{"n": 1}, None], pa.struct([member]))})
    lance.write_dataset(rows, tmp_path / "a.lance")
    query = glaive.dataset(str(tmp_path / "a.lance")).sql("SELECT * FROM dataset").build()
    assert query.to_stream_reader().read_all().to_pylist() == [{"inner": {"n": 1}}, {"inner": None}]


def test_a_query_that_fails_while_it_runs_says_so(dataset: LanceDataset) -> None:
    query = dataset.sql('SELECT CAST("group" AS integer) FROM dataset').build()
    with pytest.raises(OptionError, match="Cannot cast string"):
        query.to_batch_records()


@pytest.mark.parametrize("streamed", [False, True])
def test_a_query_of_a_damaged_dataset_has_the_error_of_a_scan(
    tmp_path: Path, streamed: bool
) -> None:
    made = glaive.write_dataset(pa.table({"a": [1, 2]}), tmp_path / "a.lance")
    (file,) = (tmp_path / "a.lance" / "data").iterdir()

    def query() -> None:
        if streamed:
            glaive.sql("SELECT a + 1 FROM t", t=glaive.dataset(made.uri)).read_all()
        else:
            made.sql("SELECT sum(a) FROM dataset").build().to_batch_records()

    file.write_bytes(bytes(file.stat().st_size))
    with pytest.raises(NotLanceError, match=f"{file.name} is not a Lance file") as caught:
        query()
    assert "\n" not in str(caught.value)
    file.unlink()
    with pytest.raises(DataFileMissingError, match=file.name):
        query()


@pytest.mark.spec("sec-12")
def test_sql_sees_the_dataset_only(dataset: LanceDataset, uri: str) -> None:
    with pytest.raises(OptionError, match="sql"):
        dataset.sql(f"SELECT * FROM read_text('{uri}/*')").build().to_batch_records()


def test_sql_joins_datasets_places_and_tables(
    uri: str, dataset: LanceDataset, tmp_path: Path
) -> None:
    names = pa.table({"group": ["g1", "g2"], "name": ["one", "two"]})
    few = glaive.write_dataset({"id": [1, 2, 3, 8]}, tmp_path / "few.lance")
    query = 'SELECT name, count(*) AS n FROM a JOIN b USING (id) JOIN c USING ("group") GROUP BY 1'
    dataset.io_stats_incremental()
    for frame in (names, pl.DataFrame(names), names.to_pandas()):
        found = glaive.sql(query + " ORDER BY 1", a=dataset, b=few.uri, c=frame).read_all()
        assert found.to_pylist() == [{"name": "one", "n": 2}, {"name": "two", "n": 1}]
    assert dataset.io_stats_incremental().read_bytes < bytes_read(uri, LanceDataset.to_table) / 2
    for tables, message in (({}, "name the tables"), ({"a": 5}, "Unknown data type")):
        with pytest.raises(OptionError, match=message):
            glaive.sql("SELECT 1 FROM a", **tables)
