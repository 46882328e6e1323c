"""The mistakes that are most likely, and the whole message of each.

A message has two sentences: what is wrong, with the value; what to do. Words of pylance may
come first.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from click import ClickException
from click.testing import CliRunner
from tests.docs import style

import glaive
from glaive import LanceOperation, write_dataset
from glaive.cli.main import cli
from glaive.errors import (
    ColumnNotFoundError,
    CommitConflictError,
    DatasetExistsError,
    DatasetNotFoundError,
    FilterColumnError,
    FilterError,
    FormatError,
    IndexKindError,
    IndexNotFoundError,
    MissingDependencyError,
    OptionError,
    OptionRangeError,
    RefExistsError,
    RefNotFoundError,
    RowIndexError,
    SchemaError,
    VersionNotFoundError,
)
from glaive.spark import LanceTable

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        ("name", pa.string()),
        ("price", pa.float64()),
        ("vector", pa.list_(pa.float32(), 4)),
    ]
)


@dataclass(frozen=True)
class Given:
    """A folder with a dataset of 20 rows, and what else the mistakes need."""

    tmp: Path
    dataset: Any

    @property
    def uri(self) -> str:
        return str(self.tmp / "trips.lance")

    @property
    def new(self) -> Path:
        return self.tmp / "new.lance"

    @property
    def row(self) -> pa.Table:
        return rows(1)

    def nearest(self, **options: object) -> object:
        search = {"column": "vector", "q": [0.0] * 4, "k": 3, **options}
        return self.dataset.to_table(nearest=search)

    def drop_and_add(self) -> None:
        """Drop a column while another writer computes with it."""
        first = write_dataset(self.row, self.tmp / "shared.lance")
        glaive.dataset(first.uri).drop_columns(["price"])
        first.add_columns({"twice": "price * 2"})


class Mistake(NamedTuple):
    name: str
    make: Callable[[Any], object]
    error: type[Exception]
    message: str


def rows(count: int) -> pa.Table:
    values = {"id": range(count), "name": ["Ann"] * count, "price": [1.5] * count}
    return pa.table({**values, "vector": [[0.0] * 4] * count}, schema=SCHEMA)


def command(*arguments: object) -> None:
    """Run the command line; raise what it prints if it fails."""
    result = CliRunner().invoke(cli, [str(argument) for argument in arguments], prog_name="glaive")
    if result.exit_code:
        raise ClickException(result.output[result.output.index("Error: ") :].rstrip())


def without(package: str, use: Callable[[], object]) -> None:
    """Use something while a package cannot be imported."""

    class Hidden:
        @staticmethod
        def find_spec(name: str, *_: object) -> None:
            if name == package:
                raise ModuleNotFoundError(f"No module named {package!r}")

    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in sys.modules if name.partition(".")[0] == package]:
            patch.delitem(sys.modules, name)
        patch.setattr(sys, "meta_path", [Hidden, *sys.meta_path])
        use()


@pytest.fixture(scope="module")
def given(tmp_path_factory: pytest.TempPathFactory) -> Given:
    tmp = tmp_path_factory.mktemp("mistakes")
    dataset = write_dataset(rows(20), tmp / "trips.lance")
    dataset.tags.create("v1", 1)
    dataset.create_branch("dev")
    (tmp / "parquet").mkdir()
    (tmp / "parquet" / "a.parquet").write_bytes(b"PAR1")
    (tmp / "empty.csv").touch()
    (tmp / "bad.csv").write_text("id,name\n1,Ann\nbad,Bob\n")
    return Given(tmp, dataset)


MISTAKES = [
    Mistake(
        "open: nothing there",
        lambda g: glaive.dataset(g.tmp / "absent" / "trips.lance"),
        DatasetNotFoundError,
        (
            "Dataset at path TMP/absent/trips.lance was not found: expected manifests in "
            "_versions/, found none. Check the path, or create the dataset with "
            "write_dataset."
        ),
    ),
    Mistake(
        "open: a typo in the path",
        lambda g: glaive.dataset(g.tmp / "trip.lance"),
        DatasetNotFoundError,
        "Dataset at path TMP/trip.lance was not found; did you mean 'TMP/trips.lance'?",
    ),
    Mistake(
        "open: a folder of Parquet",
        lambda g: glaive.dataset(g.tmp / "parquet"),
        DatasetNotFoundError,
        (
            "Dataset at path TMP/parquet was not found: it is a folder of Parquet files. "
            "Convert them: glaive convert TMP/parquet TMP/parquet.lance --from parquet"
        ),
    ),
    Mistake(
        "open: a CSV file",
        lambda g: glaive.dataset(g.tmp / "bad.csv"),
        DatasetNotFoundError,
        (
            "Dataset at path TMP/bad.csv was not found: it is a CSV file. Convert it: "
            "glaive convert TMP/bad.csv TMP/bad.lance"
        ),
    ),
    Mistake(
        "open: a missing version",
        lambda g: glaive.dataset(g.uri, version=99),
        VersionNotFoundError,
        (
            "Not found: version 99 of TMP/trips.lance does not exist (was not found); the "
            "newest is 1. Existing versions: 1. Older versions may have been cleaned up."
        ),
    ),
    Mistake(
        "open: an unknown tag",
        lambda g: glaive.dataset(g.uri, version="v2"),
        RefNotFoundError,
        "tag v2 does not exist in TMP/trips.lance. Known: v1",
    ),
    Mistake(
        "open: no argument",
        lambda _: glaive.dataset(),
        OptionError,
        (
            "Must specify either 'uri' or both 'namespace_client' and 'table_id'. uri is None: "
            "pass a path or a URI."
        ),
    ),
    Mistake(
        "open: an unknown scheme",
        lambda _: glaive.dataset("s4://bucket/trips.lance"),
        OptionError,
        (
            "s4://bucket/trips.lance: no object store for the scheme 's4'. Use a path or "
            "file, memory, s3, s3a, gs, az, azure, abfs, abfss, http, https; for other "
            "schemes of fsspec, pip install 'glaive[fsspec]'."
        ),
    ),
    Mistake(
        "open: a bad storage option",
        lambda _: glaive.dataset("s3://bucket/t.lance", storage_options={"timeout": "x"}),
        OptionError,
        (
            "storage_options for s3://bucket/t.lance: Generic Config error: failed to "
            'parse "x" as Duration. Correct the value.'
        ),
    ),
    Mistake(
        "write: exists already",
        lambda g: write_dataset(g.row, g.uri),
        DatasetExistsError,
        (
            "Dataset already exists: TMP/trips.lance is a dataset already (version 1). Use "
            "mode='append' or mode='overwrite', or choose another location."
        ),
    ),
    Mistake(
        "write: mode",
        lambda g: write_dataset(g.row, g.uri, mode="apend"),
        OptionError,
        "Invalid mode apend: pass 'create', 'append' or 'overwrite'.",
    ),
    Mistake(
        "write: a missing column",
        lambda g: write_dataset(g.row.drop_columns(["id"]), g.uri, mode="append"),
        SchemaError,
        (
            "Append with different schema: the rows do not match TMP/trips.lance: 'id' is "
            "missing. Columns of the dataset: id, name, price, vector. Rename, cast or "
            "drop columns first."
        ),
    ),
    Mistake(
        "write: an extra column",
        lambda g: write_dataset(g.row.append_column("color", [["red"]]), g.uri, mode="append"),
        SchemaError,
        (
            "Append with different schema: the rows do not match TMP/trips.lance: 'color' "
            "is not a column of the dataset. Columns of the dataset: id, name, price, "
            "vector. Rename, cast or drop columns first."
        ),
    ),
    Mistake(
        "write: another type",
        lambda g: write_dataset(g.row.set_column(2, "price", [["x"]]), g.uri, mode="append"),
        SchemaError,
        (
            "Append with different schema: the rows do not match TMP/trips.lance: 'price' "
            "should be double, found string. Columns of the dataset: id, name, price, "
            "vector. Rename, cast or drop columns first."
        ),
    ),
    Mistake(
        "write: nulls in a required column",
        lambda g: write_dataset(
            g.row.set_column(0, "id", pa.array([None], pa.int64())), g.uri, mode="append"
        ),
        SchemaError,
        (
            "column 'id' (in TMP/trips.lance/data/FILE.lance): expected no nulls, found 1. "
            "Fill them, or declare the column nullable."
        ),
    ),
    Mistake(
        "write: no rows in a file",
        lambda g: write_dataset(g.row, g.new, max_rows_per_file=0),
        OptionRangeError,
        "max_rows_per_file: expected an integer ≥ 1, found 0",
    ),
    Mistake(
        "write: format version",
        lambda g: write_dataset(g.row, g.new, data_storage_version="stabel"),
        OptionError,
        (
            "data_storage_version: Unknown Lance storage version: 'stabel'; expected one "
            "of 0.1, 2.0, 2.1, 2.2, 2.3, stable, next, legacy, 0.3"
        ),
    ),
    Mistake(
        "write: an Arrow type of intervals",
        lambda g: write_dataset(
            pa.table({"a": pa.array([(1, 2, 3)], pa.month_day_nano_interval())}), g.new
        ),
        SchemaError,
        (
            "column 'a': Unsupported data type: Lance has no type for "
            "month_day_nano_interval. Cast the column before writing, to duration or to a "
            "struct of months, days and nanoseconds."
        ),
    ),
    Mistake(
        "write: columns of two lengths",
        lambda g: write_dataset({"a": [1, 2], "b": [1]}, g.new),
        OptionError,
        (
            "data to write: Column 1 named b expected length 2 but got length 1. Give "
            "lists of one length, each of one type."
        ),
    ),
    Mistake(
        "write: a value as column",
        lambda g: write_dataset({"a": 1}, g.new),
        OptionError,
        (
            "data to write: 'int' object is not iterable. Give lists of one length, each "
            "of one type."
        ),
    ),
    Mistake(
        "write: rows with two types",
        lambda g: write_dataset([{"a": 1}, {"a": "x"}], g.new),
        OptionError,
        (
            "data to write: Could not convert 'x' with type str: tried to convert to "
            "int64. Give lists of one length, each of one type."
        ),
    ),
    Mistake(
        "write: the path of a file",
        lambda g: write_dataset("trips.csv", g.new),
        OptionError,
        (
            "Unknown data type <class 'str'>. data to write: expected a table, record "
            "batches, a data frame, or a list of dicts; glaive.ingest reads files."
        ),
    ),
    Mistake(
        "write: nothing, and no schema",
        lambda g: write_dataset([], g.new),
        OptionError,
        "Must provide schema to write dataset: no rows and no schema were given; pass schema=",
    ),
    Mistake(
        "write: arguments in wrong order",
        lambda g: write_dataset(g.uri, g.row),
        OptionError,
        "uri: expected a path or a URI as a string, found <class 'pyarrow.lib.Table'>.",
    ),
    Mistake(
        "scan: a similar column",
        lambda g: g.dataset.to_table(columns=["prise"]),
        ColumnNotFoundError,
        "No field named prise; did you mean 'price'? Columns: id, name, price, vector",
    ),
    Mistake(
        "scan: a string as columns",
        lambda g: g.dataset.to_table(columns="price"),
        OptionError,
        (
            "columns must be a list or dict[name, expression], got <class 'str'>: 'price'. "
            "Pass a list of names such as ['a']."
        ),
    ),
    Mistake(
        "scan: a filter without its end",
        lambda g: g.dataset.to_table(filter="price >"),
        FilterError,
        (
            "Invalid user input: the expression ends where a value is expected (character "
            "8)\n"
            "  price >\n"
            "         ^"
        ),
    ),
    Mistake(
        "scan: a filter of other types",
        lambda g: g.dataset.to_table(filter="price > 'cheap'"),
        FilterError,
        (
            "Invalid user input: the constant 'cheap' of type string does not fit the "
            "column's type double; cast one of the two (character 9)\n"
            "  price > 'cheap'\n"
            "          ^"
        ),
    ),
    Mistake(
        "scan: a filter on no column",
        lambda g: g.dataset.to_table(filter="prise > 3"),
        FilterColumnError,
        (
            "Invalid user input: No field named prise; did you mean 'price'? Columns: id, "
            "name, price, vector, _rowid, _rowaddr, _rowoffset, _row_created_at_version, "
            "_row_last_updated_at_version (character 1)\n"
            "  prise > 3\n"
            "  ^"
        ),
    ),
    Mistake(
        "scan: an unknown function",
        lambda g: g.dataset.to_table(filter="lenght(name) > 3"),
        FilterError,
        (
            "Invalid user input: unknown function 'lenght'; did you mean 'length', "
            "'st_length', 'bit_length'? The guide to functions lists all N. "
            "(character 1)\n"
            "  lenght(name) > 3\n"
            "  ^"
        ),
    ),
    Mistake(
        "scan: a string without quotes",
        lambda g: g.dataset.to_table(filter="name = Bob"),
        FilterColumnError,
        (
            "Invalid user input: No field named Bob; a string needs quotes: 'Bob'. "
            "Columns: id, name, price, vector, _rowid, _rowaddr, _rowoffset, "
            "_row_created_at_version, _row_last_updated_at_version (character 8)\n"
            "  name = Bob\n"
            "         ^"
        ),
    ),
    Mistake(
        "scan: &&",
        lambda g: g.dataset.to_table(filter="price > 3 && id < 4"),
        FilterError,
        (
            "Invalid user input: expected an operator or the end, found '&'; write AND "
            "(character 11)\n"
            "  price > 3 && id < 4\n"
            "            ^"
        ),
    ),
    Mistake(
        "scan: a quote in a string",
        lambda g: g.dataset.to_table(filter="name = 'O'Brien'"),
        FilterError,
        (
            "Invalid user input: a string is not closed: end it with ', or double it within "
            "(character 16)\n"
            "  name = 'O'Brien'\n"
            "                 ^"
        ),
    ),
    Mistake(
        "scan: LIMIT in a filter",
        lambda g: g.dataset.to_table(filter="id > 1 LIMIT 5"),
        FilterError,
        (
            "Invalid user input: expected an operator or the end, found 'LIMIT'; pass the number "
            "as limit= (character 8)\n"
            "  id > 1 LIMIT 5\n"
            "         ^"
        ),
    ),
    Mistake(
        "scan: WHERE in a filter",
        lambda g: g.dataset.to_table(filter="WHERE id > 1"),
        FilterError,
        (
            "Invalid user input: expected an operator or the end, found 'id'; write a condition "
            "only, and a name with spaces as `Order Date` (character 7)\n"
            "  WHERE id > 1\n"
            "        ^"
        ),
    ),
    Mistake(
        "scan: a filter that is a number",
        lambda g: g.dataset.to_table(filter="price"),
        FilterError,
        (
            "Invalid user input: the filter does not return a boolean: its value is "
            "double; compare it with another value, such as a > 1 (character 1)\n"
            "  price\n"
            "  ^"
        ),
    ),
    Mistake(
        "scan: a filter of tuples",
        lambda g: g.dataset.to_table(filter=[("price", ">", 3)]),
        OptionError,
        (
            "filter: expected a string, a pyarrow expression or Substrait bytes, found "
            "[('price', '>', 3)]"
        ),
    ),
    Mistake(
        "scan: limit",
        lambda g: g.dataset.to_table(limit=-1),
        OptionRangeError,
        "Limit must be non-negative. limit: expected an integer ≥ 0, found -1",
    ),
    Mistake(
        "scan: batch_size",
        lambda g: g.dataset.to_table(batch_size=0),
        OptionRangeError,
        (
            "batch_size must be between 1 and 4294967295, got 0. batch_size: expected an "
            "integer ≥ 1, found 0"
        ),
    ),
    Mistake(
        "scan: order by no column",
        lambda g: g.dataset.to_table(order_by=["prise"]),
        ColumnNotFoundError,
        "No field named prise; did you mean 'price'? Columns: id, name, price, vector",
    ),
    Mistake(
        "take: a row beyond the end",
        lambda g: g.dataset.take([1, 20]),
        RowIndexError,
        "row position 20 is out of range: the dataset has 20 rows. Pass 0 to 19.",
    ),
    Mistake(
        "take: a negative row",
        lambda g: g.dataset.take([-1]),
        RowIndexError,
        "row position -1 is out of range: the dataset has 20 rows. Pass 0 to 19.",
    ),
    Mistake(
        "take: strings",
        lambda g: g.dataset.take(["a"]),
        OptionError,
        "row positions: expected a list of integers, found ['a']",
    ),
    Mistake(
        "search: a short vector",
        lambda g: g.nearest(q=[1.0, 2.0]),
        OptionError,
        (
            "Query vector size 2 does not match index column size 4. nearest: column "
            "'vector' has vectors of 4 numbers; pass as many as q, from the same model."
        ),
    ),
    Mistake(
        "search: a column of numbers",
        lambda g: g.nearest(column="price"),
        OptionError,
        (
            "Query column price must be a vector. Got double: nearest: name a column of "
            "fixed-size lists of numbers, or of lists of such lists."
        ),
    ),
    Mistake(
        "search: k",
        lambda g: g.nearest(k=0),
        OptionRangeError,
        "Nearest-K must be > 0 but got 0. nearest: k: expected an integer ≥ 1, found 0",
    ),
    Mistake(
        "search: metric",
        lambda g: g.nearest(metric="cosin"),
        OptionError,
        (
            "nearest: Metric cosin not supported. metric: expected one of l2, cosine, dot, "
            "hamming, found 'cosin'"
        ),
    ),
    Mistake(
        "search: an unknown key",
        lambda g: g.nearest(limit=3),
        OptionError,
        (
            "nearest: nearest() got an unexpected keyword argument 'limit': unknown key. "
            "Known: approx_mode, column, distance_range, ef, k, maximum_nprobes, metric, "
            "minimum_nprobes, nprobes, q, query_parallelism, refine_factor, search_effort, "
            "use_index"
        ),
    ),
    Mistake(
        "search: a query of text",
        lambda g: g.nearest(q="red shoes"),
        OptionError,
        (
            "nearest: q: expected a vector of numbers, or a list of vectors of one length, "
            "found 'red shoes'"
        ),
    ),
    Mistake(
        "search: no query",
        lambda g: g.dataset.to_table(nearest={"column": "vector"}),
        OptionError,
        "nearest: 'q' is missing. Add this key.",
    ),
    Mistake(
        "search: texts without an index",
        lambda g: g.dataset.to_table(full_text_query="hello"),
        OptionError,
        (
            "Cannot perform full text search unless an INVERTED index has been created on "
            "at least one column: no column has a full-text index. Call "
            "create_scalar_index('column', 'INVERTED'), or name columns: {'query': ..., "
            "'columns': [...]}."
        ),
    ),
    Mistake(
        "index: an unknown kind",
        lambda g: g.dataset.create_index("vector", "IVFPQ"),
        IndexKindError,
        (
            "index_type: expected one of IVF_FLAT, IVF_SQ, IVF_PQ, IVF_RQ, IVF_HNSW_FLAT, "
            "IVF_HNSW_SQ, IVF_HNSW_PQ, found 'IVFPQ'"
        ),
    ),
    Mistake(
        "index: vectors of a number",
        lambda g: g.dataset.create_index("price", "IVF_FLAT", num_partitions=2),
        OptionError,
        (
            "Vector column price must be FixedSizeListArray or a list of these, got "
            "double. Name a column of vectors, or cast the column to fixed-size lists of "
            "numbers."
        ),
    ),
    Mistake(
        "index: missing parameters",
        lambda g: g.dataset.create_index("vector", "IVF_PQ"),
        OptionError,
        (
            "num_partitions and num_sub_vectors are required for IVF_PQ: give "
            "num_sub_vectors, for example dimension/8."
        ),
    ),
    Mistake(
        "index: an unknown scalar kind",
        lambda g: g.dataset.create_scalar_index("name", "BTREES"),
        IndexKindError,
        (
            "index_type: Only BITMAP, BLOOMFILTER, BTREE, FM, INVERTED, JSON, LABELLIST, "
            "MINHASHLSH, NGRAM, RTREE, ZONEMAP are supported for scalar columns, and "
            "IVF_FLAT, IVF_SQ, IVF_PQ, IVF_RQ, IVF_HNSW_FLAT, IVF_HNSW_SQ and IVF_HNSW_PQ "
            "index types supported for vectors. Got BTREES"
        ),
    ),
    Mistake(
        "index: a B-tree of vectors",
        lambda g: g.dataset.create_scalar_index("vector", "BTREE"),
        IndexKindError,
        (
            "BTREE index column vector: column 'vector' of type fixed_size_list<item: "
            "float>[4] cannot have a BTREE index. Choose another kind or column."
        ),
    ),
    Mistake(
        "index: drop an unknown one",
        lambda g: g.dataset.drop_index("foo"),
        IndexNotFoundError,
        (
            'Index "foo" not found in version 1 of TMP/trips.lance (index not found: '
            "name=foo). Indices: none"
        ),
    ),
    Mistake(
        "merge: no clause",
        lambda g: g.dataset.merge_insert("id").execute(g.row),
        OptionError,
        (
            "The merge insert job is not configured to change the data in any way: the "
            "merge has no clauses. Add clauses, such as when_matched_update_all() and "
            "when_not_matched_insert_all()"
        ),
    ),
    Mistake(
        "merge: an unknown key",
        lambda g: g.dataset.merge_insert("idd").when_matched_update_all().execute(g.row),
        ColumnNotFoundError,
        (
            "Column idd does not exist in the dataset; did you mean 'id'? Columns: id, "
            "name, price, vector"
        ),
    ),
    Mistake(
        "merge: a repeated key",
        lambda g: (
            g.dataset.merge_insert("id")
            .when_matched_update_all()
            .execute(pa.concat_tables([g.row, g.row]))
        ),
        SchemaError,
        (
            "Ambiguous merge inserts are prohibited: multiple source rows match the same "
            "target row: several rows of the source have id = 0. Keep one row per key in "
            "the source, or have the condition of when_matched_update_all choose one."
        ),
    ),
    Mistake(
        "merge: an extra column",
        lambda g: (
            g.dataset.merge_insert("id")
            .when_matched_update_all()
            .execute(g.row.append_column("color", [["red"]]))
        ),
        SchemaError,
        (
            "Append with different schema: fields did not match: the source has columns "
            "that TMP/trips.lance does not have: color. Drop them or call add_columns "
            "first. Columns: id, name, price, vector"
        ),
    ),
    Mistake(
        "update: an unknown column",
        lambda g: g.dataset.update({"prise": "3"}),
        ColumnNotFoundError,
        (
            "Column prise does not exist in TMP/trips.lance; did you mean 'price'? "
            "Columns: id, name, price, vector"
        ),
    ),
    Mistake(
        "update: a number",
        lambda g: g.dataset.update({"price": 3}),
        OptionError,
        "updates: the value of 'price' must be an expression as a string, found 3. Write '3'.",
    ),
    Mistake(
        "update: a string without quotes",
        lambda g: g.dataset.update({"name": "Bob"}),
        FilterColumnError,
        (
            "updates: 'name' is set to an expression; for a string write \"'Bob'\". Invalid "
            "user input: No field named Bob; a string needs quotes: 'Bob'. Columns: id, "
            "name, price, vector, _rowid, _rowaddr, _rowoffset, _row_created_at_version, "
            "_row_last_updated_at_version (character 1)\n"
            "  Bob\n"
            "  ^"
        ),
    ),
    Mistake(
        "update: another type",
        lambda g: g.dataset.update({"price": "'cheap'"}),
        SchemaError,
        (
            "Cast error: Cannot cast 'cheap' of type string to double, the type of column "
            "'price'. Invalid user input: a value of type string cannot be cast to double: "
            "'cheap' is not of type double; write TRY_CAST to get null"
        ),
    ),
    Mistake(
        "delete: without its end",
        lambda g: g.dataset.delete("price ="),
        FilterError,
        (
            "Invalid user input: the expression ends where a value is expected (character "
            "8)\n"
            "  price =\n"
            "         ^"
        ),
    ),
    Mistake(
        "columns: add one that exists",
        lambda g: g.dataset.add_columns({"price": "1"}),
        SchemaError,
        (
            "Column price already exists in the dataset. Choose another name, or drop it "
            "first; to change its type, use alter_columns."
        ),
    ),
    Mistake(
        "columns: add a number",
        lambda g: g.dataset.add_columns({"one": 1}),
        OptionError,
        (
            "Column expressions must be a string: transforms has 'one': 1. Write "
            "expressions as strings, such as {'b': 'a + 1'}."
        ),
    ),
    Mistake(
        "columns: rename an unknown one",
        lambda g: g.dataset.alter_columns({"path": "prise", "name": "p"}),
        ColumnNotFoundError,
        (
            "Column \"prise\" does not exist in the dataset; did you mean 'price'? Columns: "
            "id, name, price, vector"
        ),
    ),
    Mistake(
        "columns: cast strings to integers",
        lambda g: g.dataset.alter_columns({"path": "name", "data_type": pa.int64()}),
        SchemaError,
        (
            "Cannot cast column 'name': it cannot be cast from string to int64. Casts are "
            "possible within integers, floats, strings, binary, dates, times, durations "
            "and decimals, or lists of these. For another cast, add a column with an "
            "expression and drop this one."
        ),
    ),
    Mistake(
        "columns: drop an unknown one",
        lambda g: g.dataset.drop_columns(["prise"]),
        ColumnNotFoundError,
        (
            "Column prise does not exist in the dataset; did you mean 'price'? Columns: "
            "id, name, price, vector"
        ),
    ),
    Mistake(
        "tags: exists already",
        lambda g: g.dataset.tags.create("v1", 1),
        RefExistsError,
        (
            "tag v1 already exists: TMP/trips.lance has it. Move it with update, or choose "
            "another name."
        ),
    ),
    Mistake(
        "tags: an invalid name",
        lambda g: g.dataset.tags.create("my tag", 1),
        OptionError,
        (
            "Ref is invalid: Ref characters must be either alphanumeric, '.', '-' or '_': "
            "'my tag' is not a valid tag name"
        ),
    ),
    Mistake(
        "branches: exists already",
        lambda g: g.dataset.create_branch("dev"),
        RefExistsError,
        (
            "branch dev already exists: TMP/trips.lance has it. Check it out, delete it, "
            "or choose another name."
        ),
    ),
    Mistake(
        "branches: a typo",
        lambda g: g.dataset.checkout_version(("devv", None)),
        RefNotFoundError,
        "branch devv does not exist in TMP/trips.lance; did you mean 'dev'? Known: dev",
    ),
    Mistake(
        "versions: restore an unknown one",
        lambda g: g.dataset.checkout_version(77).restore(),
        VersionNotFoundError,
        (
            "Not found: version 77 of TMP/trips.lance does not exist (was not found); the "
            "newest is 1. Existing versions: 1. Older versions may have been cleaned up."
        ),
    ),
    Mistake(
        "compaction: an unknown option",
        lambda g: g.dataset.optimize.compact_files(target_rows=10),
        OptionError,
        (
            "Invalid compaction option: target_rows; did you mean "
            "'target_rows_per_fragment' or 'max_source_rows'? Known: "
            "target_rows_per_fragment, max_rows_per_group, max_bytes_per_file, "
            "materialize_deletions, materialize_deletions_threshold, defer_index_remap, "
            "num_threads, batch_size, io_buffer_size, compaction_mode, "
            "binary_copy_read_batch_bytes, max_source_fragments, max_source_rows, "
            "max_source_bytes, excluded_fragment_ids, data_storage_version, compression"
        ),
    ),
    Mistake(
        "clean-up: days",
        lambda g: g.dataset.cleanup_old_versions(7),
        OptionError,
        "older_than: expected a timedelta ≥ 0, as timedelta(days=7), found 7",
    ),
    Mistake(
        "clean-up: a negative age",
        lambda g: g.dataset.cleanup_old_versions(timedelta(days=-1)),
        OptionRangeError,
        "older_than: expected a timedelta ≥ 0, as timedelta(days=7), found "
        "datetime.timedelta(days=-1)",
    ),
    Mistake(
        "commit: no read_version",
        lambda g: glaive.LanceDataset.commit(g.uri, LanceOperation.Append([])),
        OptionError,
        (
            "read_version is required for all operations except Overwrite and Restore. "
            "Pass the version that the operation was made for: dataset.version."
        ),
    ),
    Mistake(
        "commit: a column that was dropped",
        lambda g: g.drop_and_add(),
        CommitConflictError,
        (
            "Commit conflict for version 2: This Merge transaction is incompatible with "
            "concurrent transaction Project at version 2 of TMP/shared.lance: project "
            "replaced the schema that this changes. Read the newest version; repeat the "
            "change if it still makes sense there."
        ),
    ),
    Mistake(
        "ingest: no files",
        lambda g: glaive.ingest(g.tmp / "absent.csv", g.new),
        OptionError,
        "TMP/absent.csv: no such file, folder or pattern. Check the path.",
    ),
    Mistake(
        "ingest: an unknown option",
        lambda g: glaive.ingest(g.tmp / "bad.csv", g.new, reader_options={"seperator": ";"}),
        OptionError,
        (
            "csv: no option 'seperator'. Known: sep, header, quote, escape, null, decimal, "
            "encoding, multiline, timestamp_format"
        ),
    ),
    Mistake(
        "ingest: a bad record",
        lambda g: glaive.ingest(g.tmp / "bad.csv", g.new, schema="id bigint, name string"),
        FormatError,
        (
            "TMP/bad.csv, line 3: column id: int64: invalid value 'bad'. Pass "
            "reader_options={'null': 'bad'} if that means null, bad_records='…' to put "
            "such records into a dataset of their own, or schema= with types that fit."
        ),
    ),
    Mistake(
        "ingest: merge without keys",
        lambda g: glaive.ingest(g.tmp / "bad.csv", g.uri, mode="merge"),
        OptionError,
        "merge_keys: name key columns for mode='merge', and only for it.",
    ),
    Mistake(
        "command: an unknown option",
        lambda g: command("count", g.uri, "--filtr", "x"),
        ClickException,
        "Error: No such option '--filtr'. Did you mean '--filter'?",
    ),
    Mistake(
        "command: no dataset",
        lambda g: command("count", g.tmp / "absent" / "trips.lance"),
        ClickException,
        (
            "Error: Dataset at path TMP/absent/trips.lance was not found: expected "
            "manifests in _versions/, found none. Check the path, or create the dataset "
            "with write_dataset."
        ),
    ),
    Mistake(
        "without torch",
        lambda _: without("torch", glaive.torch.preferred_device),
        MissingDependencyError,
        (
            "preferred_device needs torch, which is not installed (No module named 'torch'). "
            "Install it: pip install torch"
        ),
    ),
    Mistake(
        "without DataFusion",
        lambda g: without(
            "datafusion", lambda: g.dataset.sql("select 1").build().to_batch_records()
        ),
        MissingDependencyError,
        (
            "sql: queries run in DataFusion (No module named 'datafusion'). Install it: "
            'pip install "glaive[sql]"'
        ),
    ),
    Mistake(
        "open: the number of a version as a string",
        lambda g: glaive.dataset(g.uri, version="1"),
        RefNotFoundError,
        (
            "tag 1 does not exist in TMP/trips.lance; did you mean 'v1'? Pass numbers of versions "
            "as integers. Known: v1"
        ),
    ),
    Mistake(
        "scan: a number as column",
        lambda g: g.dataset.to_table(columns=[1]),
        OptionError,
        "columns: expected names, found 1. Pass strings: ['a'].",
    ),
    Mistake(
        "scan: IN with brackets",
        lambda g: g.dataset.to_table(filter="id in [1, 2]"),
        FilterError,
        (
            "Invalid user input: expected '(' and values such as (1, 2) after IN, found '[' "
            "(character 7)\n"
            "  id in [1, 2]\n"
            "        ^"
        ),
    ),
    Mistake(
        "scan: LIKE of a number",
        lambda g: g.dataset.to_table(filter="id like '1%'"),
        FilterError,
        (
            "Invalid user input: LIKE compares strings, not bigint and string; cast to string "
            "(character 4)\n"
            "  id like '1%'\n"
            "     ^"
        ),
    ),
    Mistake(
        "scan: a sum",
        lambda g: g.dataset.to_table(filter="sum(id) > 3"),
        FilterError,
        (
            "Invalid user input: sum is an aggregate; compute it in SQL (character 1)\n"
            "  sum(id) > 3\n"
            "  ^"
        ),
    ),
    Mistake(
        "delete: no condition",
        lambda g: g.dataset.delete(None),
        OptionError,
        "predicate must be a string or expression, found None. Pass 'a > 1'.",
    ),
    Mistake(
        "open: a size with a unit",
        lambda g: glaive.dataset(g.uri, block_size="4k"),
        OptionError,
        "block_size: expected an integer ≥ 0, found '4k'",
    ),
    Mistake(
        "open: a negative number of indices",
        lambda g: glaive.dataset(g.uri, index_cache_size=-1),
        OptionRangeError,
        "index_cache_size: expected an integer ≥ 0, found -1",
    ),
    Mistake(
        "open: a cache of indices with a unit",
        lambda g: glaive.dataset(g.uri, index_cache_size_bytes="1GB"),
        OptionError,
        "index_cache_size_bytes: expected an integer ≥ 0, found '1GB'",
    ),
    Mistake(
        "open: a table of Spark without a path",
        lambda _: LanceTable.forPath(None, None),
        OptionError,
        "uri: expected a path or a URI as a string, found <class 'NoneType'>.",
    ),
    Mistake(
        "write: a schema of names",
        lambda g: write_dataset(g.row, g.new, schema={"id": "int"}),
        OptionError,
        "schema: expected a pa.Schema, found {'id': 'int'}. Call pa.schema.",
    ),
    Mistake(
        "scan: an order as a word",
        lambda _: glaive.ColumnOrdering("price", ascending="no"),
        OptionError,
        "ascending: expected True or False, found 'no'",
    ),
    Mistake(
        "columns: add nothing",
        lambda g: g.dataset.add_columns(None),
        OptionError,
        "transforms: expected rows or {'b': 'a+1'}, found None.",
    ),
    Mistake(
        "index: stems of near-duplicates",
        lambda g: g.dataset.create_scalar_index("name", "MINHASHLSH", stem=True),
        OptionError,
        (
            "parameter 'stem' is unknown. Parameters of MINHASHLSH: num_hashes, num_bands, "
            "shingle_size, tokenizer"
        ),
    ),
    Mistake(
        "ingest: an empty file alone",
        lambda g: glaive.ingest(g.tmp / "empty.csv", g.new),
        FormatError,
        "TMP/empty.csv is empty or lacks columns. Omit it, or pass schema=.",
    ),
]


@pytest.mark.parametrize("mistake", MISTAKES, ids=[mistake.name for mistake in MISTAKES])
def test_a_mistake_ends_in_a_message_that_says_what_to_do(given: Given, mistake: Mistake) -> None:
    with pytest.raises(mistake.error) as raised:
        mistake.make(given)
    assert type(raised.value) is mistake.error
    shown = str(raised.value).replace(str(given.tmp), "TMP")
    shown = re.sub(r"[0-9a-f]{40,}", "FILE", shown)
    assert re.sub(r"lists all \d+", "lists all N", shown) == mistake.message


def test_messages_are_plain_and_short() -> None:
    """At most three sentences; a full stop, a list or an excerpt at the end; no bad pattern."""
    for mistake in MISTAKES:
        said, _, excerpt = mistake.message.removeprefix("Invalid user input: ").partition("\n")
        text = style.CODE.sub("CODE", said)
        assert len(list(style.sentences(text))) <= 3, mistake
        assert re.search(r"[.?]$|: [^:]+$|\(character \d+\)$", said), mistake
        assert not excerpt or excerpt.endswith("^"), mistake
        found = {name for name, _ in style.findings(text)} - {"negations", "long"}
        assert not found, (mistake, found)
