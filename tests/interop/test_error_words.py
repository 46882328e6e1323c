"""Words of errors that callers match on are in the messages of both libraries."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import glaive

lance = pytest.importorskip("lance", reason="install the 'interop' group")

pytestmark = pytest.mark.interop

VECTORS = pa.array([[0.0, 1.0], [2.0, 3.0], [4.0, 5.0]], pa.list_(pa.float32(), 2))
ROWS = pa.table({"id": [1, 2, 3], "name": list("abc"), "l": [[1], [2], [3]], "v": VECTORS})
TWINS = pa.concat_tables([ROWS, ROWS])

Call = Callable[[Any, Any], object]
"""Of a library and a dataset with a tag "t" of version 1 and an index "id_idx"."""


def compaction(dataset: Any) -> Any:
    package = type(dataset).__module__.partition(".")[0]
    return import_module(f"{package}.optimize").Compaction


def builder(dataset: Any) -> Any:
    """A builder of scans, of the library that the dataset is from."""
    package = type(dataset).__module__.partition(".")[0]
    return import_module(f"{package}.dataset").ScannerBuilder(dataset)


def nearest(dataset: Any, **options: Any) -> object:
    return dataset.to_table(nearest={"column": "v", "q": [1.0, 2.0]} | options)


def fresh(lib: Any, ds: Any) -> Any:
    """Another dataset, with the rows that other calls may have deleted from ``ds``."""
    return lib.write_dataset(ROWS, f"{ds.uri}.fresh", mode="overwrite")


def replaced(lib: Any, ds: Any, rows: pa.Table) -> object:
    return fresh(lib, ds).merge_insert("id").when_matched_update_all().execute(rows)


def outdated(lib: Any, ds: Any) -> Any:
    """A dataset at a version whose rows another writer has updated since."""
    old = fresh(lib, ds)
    lib.dataset(old.uri).update({"name": "'z'"})
    return old


def one_row(_: pa.RecordBatch) -> pa.RecordBatch:
    return pa.record_batch({"z": [1]})


WORDS: dict[str, Call] = {
    "Dataset already exists": lambda lib, ds: lib.write_dataset(ROWS, ds.uri),
    "was not found": lambda _, ds: ds.checkout_version(99),
    "Dataset at path .* was not found": lambda lib, ds: lib.dataset(f"{ds.uri}.no"),
    "[Mm]ust provide schema": lambda lib, ds: lib.write_dataset(iter([]), f"{ds.uri}.no"),
    "Unknown data type <class 'int'>": lambda lib, ds: lib.write_dataset(3, f"{ds.uri}.no"),
    "imit must be non-negative": lambda _, ds: ds.to_table(limit=-1),
    "ffset must be non-negative": lambda _, ds: ds.to_table(offset=-1),
    "Sample larger than population": lambda _, ds: ds.sample(20),
    "No field named nope": lambda _, ds: ds.count_rows("nope = 1"),
    "does not return a boolean": lambda _, ds: ds.count_rows("id"),
    "predicate must be a string": lambda _, ds: ds.delete(3),
    "No updates provided": lambda _, ds: ds.update({}),
    "Version must be an int, a str": lambda _, ds: ds.checkout_version(1.5),
    "tag t already exists": lambda _, ds: ds.tags.create("t", 1),
    "tag nope does not exist": lambda _, ds: ds.tags.delete("nope"),
    "[Bb]ranch nope does not exist": lambda _, ds: ds.branches.delete("nope"),
    "version .*does not exist": lambda _, ds: ds.tags.create("u", 99),
    "Ref is invalid": lambda _, ds: ds.tags.create("a b", 1),
    "Ref characters must be either alphanumeric": lambda _, ds: ds.tags.create("a/b", 1),
    "Invalid sort order 'x'. Valid values are: asc, desc": lambda _, ds: ds.tags.list_ordered("x"),
    r"1 tagged version\(s\) have been marked for cleanup": lambda _, ds: ds.cleanup_old_versions(
        older_than=timedelta(0)
    ),
    "retain_versions must be greater than 0, got 0": lambda _, ds: ds.cleanup_old_versions(
        retain_versions=0
    ),
    "delete_rate_limit must be greater than 0, got 0": lambda _, ds: ds.cleanup_old_versions(
        delete_rate_limit=0
    ),
    "delete_concurrency must be": lambda _, ds: ds.cleanup_old_versions(delete_concurrency=0),
    "The `on` argument to merge_insert must be a str or iterable of str": lambda _, ds: (
        ds.merge_insert(5)
    ),
    "Merge operation reduced fragment count from 1 to 0": lambda lib, ds: lib.LanceDataset.commit(
        ds.uri, lib.LanceOperation.Merge([], ds.lance_schema), read_version=ds.version
    ),
    "Dataset already exists:": lambda _, ds: ds.shallow_clone(ds.uri, 1),
    "Must specify either compared_against": lambda _, ds: ds.delta(),
    "Column id already exists in the dataset": lambda _, ds: ds.add_columns({"id": "1"}),
    "Column expressions must be a string": lambda _, ds: ds.add_columns({"z": 3}),
    "All-null columns must be nullable": lambda _, ds: ds.add_columns(
        pa.field("z", pa.int8(), nullable=False)
    ),
    "Stream ended before producing values for all rows in dataset": lambda _, ds: ds.add_columns(
        pa.table({"z": [1]})
    ),
    "Stream produced more values than expected for dataset": lambda _, ds: ds.add_columns(
        pa.table({"z": range(4)})
    ),
    "Column nope does not exist in the dataset": lambda _, ds: ds.drop_columns(["nope"]),
    "Cannot drop all columns": lambda _, ds: ds.drop_columns(ROWS.column_names),
    "path is required": lambda _, ds: ds.alter_columns({"name": "x"}),
    "At least one of name, nullable, or data_type": lambda _, ds: ds.alter_columns({"path": "id"}),
    "Unknown key: x. Valid keys are name, nullable, and data_type": lambda _, ds: ds.alter_columns(
        {"path": "id", "x": 1}
    ),
    "Duplicate field name": lambda _, ds: ds.alter_columns({"path": "id", "name": "name"}),
    "Cannot cast column": lambda _, ds: ds.alter_columns({"path": "l", "data_type": pa.int8()}),
    "exists in both sides of the dataset": lambda _, ds: ds.merge(ROWS.drop(["l"]), "id"),
    "Merge insert key column|does not exist in": lambda _, ds: ds.merge_insert("nope"),
    "not configured to change the data in any way": lambda _, ds: ds.merge_insert("id").execute(
        ROWS
    ),
    "found matching row with key values": lambda _, ds: (
        ds.merge_insert("id").when_matched_fail().execute(ROWS)
    ),
    "Ambiguous merge inserts are prohibited": lambda _, ds: (
        ds.merge_insert("id").when_matched_update_all().execute(TWINS)
    ),
    "Invalid write_mode": lambda _, ds: ds.merge_insert("id").write_mode("x"),
    "read_version is required for all operations": lambda lib, ds: lib.LanceDataset.commit(
        ds.uri, lib.LanceOperation.Append([])
    ),
    "operation must be a LanceOperation.BaseOperation or Transaction": lambda lib, ds: (
        lib.LanceDataset.commit(ds.uri, "x", 1)
    ),
    r"fragments must be list\[FragmentMetadata\], got <class 'int'>": lambda lib, _: (
        lib.LanceOperation.Append([3])
    ),
    "earlier than the first version": lambda lib, ds: lib.dataset(
        ds.uri, asof="2001-01-01 00:00:00"
    ),
    "op level field .*cannot contain `.`": lambda lib, ds: lib.write_dataset(
        pa.table({"a.b": [1]}), f"{ds.uri}.no"
    ),
    "reserved name|is reserved": lambda lib, ds: lib.write_dataset(
        pa.table({"_rowid": [1]}), f"{ds.uri}.no"
    ),
    "Unsupported data type": lambda lib, ds: lib.write_dataset(
        pa.table({"a": pa.array([(1, 2, 3)], pa.month_day_nano_interval())}), f"{ds.uri}.no"
    ),
    "[Nn]o object store .*for .*scheme": lambda lib, _: lib.write_dataset(ROWS, "nope://a/b"),
    "Unknown Lance storage version": lambda lib, ds: lib.write_dataset(
        ROWS, f"{ds.uri}.no", data_storage_version="9.9"
    ),
    "Invalid mode": lambda _, ds: ds.insert(ROWS, mode="x"),
    r"columns must be a list or dict\[name, expression\]": lambda _, ds: ds.to_table(columns=5),
    "only support a single column": lambda _, ds: ds.create_scalar_index(["id", "name"], "BTREE"),
    "must fit \\(train\\) first": lambda lib, _: (
        import_module(f"{lib.__name__}.util").KMeans(2).predict(np.zeros((1, 2), np.float32))
    ),
    "No transactions to commit": lambda lib, ds: lib.LanceDataset.commit_batch(ds.uri, []),
    "Only append transactions are supported in batch commits": lambda lib, ds: (
        lib.LanceDataset.commit_batch(ds.uri, [lib.Transaction(1, lib.LanceOperation.Restore(1))])
    ),
    "Commit conflict for version|Retryable commit conflict for version": lambda lib, ds: (
        lib.LanceDataset.commit(
            ds.uri, lib.LanceOperation.Delete([], [0], "true"), 1, max_retries=0
        ),
        lib.LanceDataset.commit(
            ds.uri, lib.LanceOperation.Delete([], [0], "true"), 1, max_retries=0
        ),
    ),
    'Index "nope" not found': lambda _, ds: ds.stats.index_stats("nope"),
    "index not found: name=nope": lambda _, ds: ds.drop_index("nope"),
    "Index name 'id_idx' already exists": lambda _, ds: ds.create_scalar_index(
        "id", "BTREE", replace=False
    ),
    "index_type must be str or IndexConfig": lambda _, ds: ds.create_scalar_index("id", 3),
    "NGRAM index column id": lambda _, ds: ds.create_scalar_index("id", "NGRAM"),
    "INVERTED index column id must be": lambda _, ds: ds.create_scalar_index("id", "INVERTED"),
    "Append with different schema": lambda lib, ds: lib.write_dataset(
        pa.table({"z": [1]}), ds.uri, mode="append"
    ),
    "Nearest-K must be > 0 but got 0": lambda _, ds: nearest(ds, k=0),
    "Nprobes must be > 0 but got 0": lambda _, ds: nearest(ds, nprobes=0),
    "commit_lock must be a function": lambda lib, ds: lib.LanceDataset.commit(
        ds.uri, lib.LanceOperation.Restore(1), commit_lock=3
    ),
    "nope not found in schema": lambda _, ds: ds.create_scalar_index("nope", "BTREE"),
    "Refine factor must be 1 or more got 0": lambda _, ds: nearest(ds, refine_factor=0),
    "minimum_nprobes must be <= maximum_nprobes": lambda _, ds: nearest(
        ds, minimum_nprobes=3, maximum_nprobes=2
    ),
    "Query vector size 3 does not match index column size 2": lambda _, ds: nearest(
        ds, q=[1.0, 2.0, 3.0]
    ),
    "Metric x not supported": lambda _, ds: ds.create_index("v", "IVF_FLAT", metric="x"),
    "must be divisible by num_sub_vectors": lambda _, ds: ds.create_index(
        "v", "IVF_PQ", num_partitions=1, num_sub_vectors=3
    ),
    "num_partitions must be int": lambda _, ds: ds.create_index(
        "v", "IVF_PQ", num_partitions="2", num_sub_vectors=1
    ),
    "Vector column id must be FixedSizeListArray": lambda _, ds: ds.create_index(
        "id", "IVF_FLAT", "other", num_partitions=1
    ),
    "Ivf centroids has 1 clusters, but num_partitions=2": lambda _, ds: ds.create_index(
        "v", "IVF_FLAT", num_partitions=2, ivf_centroids=np.zeros((1, 2), np.float32)
    ),
    "Cannot perform full text search unless an INVERTED index has been created": lambda _, ds: (
        ds.to_table(full_text_query="x")
    ),
    "unknown base tokenizer x": lambda _, ds: ds.create_scalar_index(
        "name", "INVERTED", base_tokenizer="x"
    ),
    "The number of boosts must match": lambda lib, _: lib.query.MultiMatchQuery(
        "x", ["name"], boosts=[1.0, 2.0]
    ),
    "Exactly one of ids, indices, or addresses must be specified": lambda _, ds: ds.take_blobs(
        "name"
    ),
    "Invalid compaction option": lambda _, ds: compaction(ds).plan(ds, {"x": 1}),
    "Schema is unknown and file cannot be created": lambda lib, ds: lib.file.LanceFileWriter(
        f"{ds.uri}/x.lance"
    ).close(),
    "get_fragments.. does not support filter yet": lambda _, ds: ds.get_fragments("id = 1"),
    "Cannot replace the schema of a dataset": lambda _, ds: ds.replace_schema(ROWS.schema),
    "Limit must be non-negative": lambda _, ds: builder(ds).limit(-1),
    "Offset must be non-negative": lambda _, ds: builder(ds).offset(-1),
    "earest-K must be > 0": lambda _, ds: builder(ds).nearest("v", [1.0, 2.0], k=0),
    "[Uu]nknown .*option '?nope": lambda _, ds: builder(ds).apply_defaults({"nope": 1}),
    "columns must be a list or dict": lambda _, ds: builder(ds).columns(3),
    "distance_range": lambda _, ds: builder(ds).nearest("v", [1.0, 2.0], distance_range=(5.0,)),
    "[Vv]ersion not found error": lambda _, ds: ds.delta(compared_against=99).list_transactions(),
    "got an unexpected keyword argument 'nope'": lambda _, ds: ds.scanner(nope=1),
    "got an unexpected keyword argument 'nop'": lambda lib, ds: lib.write_dataset(
        ROWS, f"{ds.uri}.no", nop=1
    ),
    "Unknown option nope": lambda lib, ds: lib.dataset(
        ds.uri, default_scan_options={"nope": 1}
    ).to_table(),
    "Not found: .*": lambda lib, ds: lib.dataset(ds.uri, version=99),
    "version must be an integer or a string": lambda lib, ds: lib.dataset(ds.uri, version=1.5),
    "Must specify either 'uri' or both 'namespace_client' and 'table_id'": lambda lib, _: (
        lib.write_dataset(ROWS)
    ),
    "either 'uri' or both 'namespace_client' and 'table_id'": lambda lib, _: lib.dataset(),
    "Invalid mode nope": lambda lib, ds: lib.fragment.write_fragments(ROWS, ds.uri, mode="nope"),
    "Duplicate field name .a": lambda lib, ds: lib.write_dataset(
        pa.table([[1], [2]], names=["a", "a"]), f"{ds.uri}.no"
    ),
    "Duplicate column name: id": lambda _, ds: ds.to_table(columns=["id", "id"]),
    'No field named "?nope': lambda _, ds: ds.to_table(columns=["nope"]),
    "batch_size must be between 1 and 4294967295, got 0": lambda _, ds: ds.to_table(batch_size=0),
    "batch_readahead must be greater than 0": lambda _, ds: ds.to_table(batch_readahead=0),
    "Invalid blob_handling: x. Expected one of: all_binary, all_descriptions": lambda _, ds: (
        ds.to_table(blob_handling="x")
    ),
    "include_deleted_rows is set but with_row_id is false": lambda _, ds: ds.to_table(
        include_deleted_rows=True
    ),
    "Callback must be callable": lambda _, ds: ds.scanner(scan_stats_callback=5),
    r"end \(1\) must be >= start \(2\)": lambda _, ds: ds.slice(2, 1),
    "start must be non-negative, got -1": lambda _, ds: ds.slice(-1, 1),
    "blob_mode must be one of: 'lazy', 'bytes', 'descriptions'": lambda _, ds: ds.to_pandas(
        blob_mode="x"
    ),
    "Invalid read params": lambda lib, ds: fresh(lib, ds).get_fragments()[0].take([9]),
    "Query column id must be a vector. Got int64": lambda _, ds: nearest(ds, column="id"),
    "Index column type mismatch": lambda lib, ds: fresh(lib, ds).merge(
        pa.table({"id": ["1"], "z": [1]}), "id"
    ),
    "Append with different schema: fields did not match": lambda lib, ds: replaced(
        lib, ds, ROWS.append_column("z", pa.array([1, 2, 3]))
    ),
    "Base reference 'nope' not found in available bases": lambda _, ds: (
        ds.merge_insert("id").when_matched_update_all().target_bases(["nope"]).execute(ROWS)
    ),
    "Column zz in right side fragment does not exist in left side": lambda lib, ds: (
        fresh(lib, ds)
        .get_fragments()[0]
        .update_columns(pa.table({"id": [1], "zz": [1]}), left_on="id")
    ),
    "Too many concurrent writers": lambda lib, ds: outdated(lib, ds).delete(
        "id = 1", conflict_retries=0
    ),
    "This Merge transaction was preempted by concurrent transaction Update at version": (
        lambda lib, ds: outdated(lib, ds).add_columns({"z": "id"})
    ),
    "This Delete transaction is incompatible with concurrent transaction Overwrite at version": (
        lambda lib, ds: (fresh(lib, ds), fresh(lib, ds))[0].delete("id = 1")
    ),
    "Could not load CompactionPlan due to error": lambda lib, _: (
        lib.optimize.CompactionPlan.from_json("{}")
    ),
    "Invalid compaction mode": lambda _, ds: ds.optimize.compact_files(compaction_mode="x"),
    "Cannot write batch": lambda lib, ds: lib.file.LanceFileWriter(
        f"{ds.uri}/x.lance", ROWS.schema
    ).write_batch(pa.table({"z": [1]})),
    "num_partitions and num_sub_vectors are required for IVF_PQ": lambda _, ds: ds.create_index(
        "v", "IVF_PQ"
    ),
    r"nearest\(\) got an unexpected keyword argument 'x'": lambda _, ds: nearest(ds, x=1),
    "Unknown Lance storage version: '?7": lambda _, ds: ds.merge_insert("id").data_storage_version(
        "7.7"
    ),
    "new batch has different size with the source batch: 3 != 1": lambda lib, ds: fresh(
        lib, ds
    ).add_columns(lib.batch_udf()(one_row)),
    "Cannot cast .*'x'": lambda lib, ds: fresh(lib, ds).update({"id": "'x'"}),
    "Must specify both with_begin_version and with_end_version": lambda _, ds: ds.delta(
        begin_version=1
    ).list_transactions(),
    "Ref is invalid: Ref cannot be empty": lambda _, ds: ds.tags.create("", 1),
    "Ref is invalid: Ref cannot begin with a dot": lambda _, ds: ds.tags.create(".a", 1),
    "Ref is invalid: Ref cannot end with a dot": lambda _, ds: ds.tags.create("a.", 1),
    "Ref cannot have two consecutive dots": lambda _, ds: ds.tags.create("a..b", 1),
    "Ref is invalid: Ref cannot end with .lock": lambda _, ds: ds.tags.create("a.lock", 1),
    "Ref is invalid: Branch name cannot be empty": lambda _, ds: ds.create_branch(""),
    '"main" is reserved for the default branch': lambda _, ds: ds.create_branch("main"),
    "Branch segment 'a b' contains invalid characters": lambda _, ds: ds.create_branch("a b"),
    "Branch name cannot contain consecutive '/'": lambda _, ds: ds.create_branch("a//b"),
    "Branch name cannot start or end with a '/'": lambda _, ds: ds.create_branch("a/"),
    "Branch name cannot contain '..' or": lambda _, ds: ds.create_branch("a..b"),
    "Branch name cannot end with '.lock'": lambda _, ds: ds.create_branch("a.lock"),
    "are supported for scalar columns": lambda _, ds: ds.create_scalar_index("id", "NOPE"),
    "index types supported.* Got NOPE": lambda _, ds: ds.create_index("v", "NOPE"),
    "unknown FTS index parameter 'nope'": lambda _, ds: ds.create_scalar_index(
        "name", "INVERTED", nope=1
    ),
    "Cannot create MultiMatchQuery with no columns": lambda lib, _: lib.query.MultiMatchQuery(
        "x", []
    ),
    "BlobArray values must be bytes-like, str .URI., Blob, or None; got <class 'int'>": (
        lambda lib, _: lib.blob_array([5])
    ),
    "Blob must set `data` or `uri`": lambda lib, _: lib.Blob(),
    "Blob uri cannot be empty": lambda lib, _: lib.Blob(uri=""),
    "partitioning not yet supported": lambda _, ds: ds.partition_expression,
    "Not implemented yet for LanceFragment": lambda lib, ds: (
        fresh(lib, ds).get_fragments()[0].partition_expression
    ),
}

WARNINGS: dict[str, Call] = {
    "The 'list_indices' method is deprecated. It may be removed in a future version. Use "
    "describe_indices": lambda _, ds: ds.list_indices(),
    "LanceDataset.index_statistics.. is deprecated, use LanceDataset.stats.index_stats.. instead": (
        lambda _, ds: ds.index_statistics("id_idx")
    ),
    "replace_field_metadata is deprecated. Use update_field_metadata with field paths": (
        lambda _, ds: ds.replace_field_metadata("id", {})
    ),
    "Passing a pyarrow.Schema to Merge is deprecated. Please use a LanceSchema": lambda lib, _: (
        lib.LanceOperation.Merge([], ROWS.schema)
    ),
    "FragmentMetadata.data_files is deprecated. Use .files instead": lambda lib, _: (
        lib.FragmentMetadata(0, [], 1).data_files()
    ),
    "DataFile.field_ids is deprecated, use DataFile.fields instead": lambda lib, _: (
        lib.fragment.DataFile("x", [0], [0], 2, 0).field_ids()
    ),
    "DataFile.path.. is deprecated, use DataFile.path instead": lambda lib, _: (
        lib.fragment.DataFile("x", [0], [0], 2, 0).path()
    ),
    "use_legacy_format is deprecated, use data_storage_version instead": lambda lib, ds: (
        lib.write_dataset(ROWS, f"{ds.uri}.legacy", mode="overwrite", use_legacy_format=False)
    ),
}


@pytest.fixture(scope="module", params=[glaive, lance], ids=["glaive", "pylance"])
def library(request: pytest.FixtureRequest) -> Any:
    return request.param


@pytest.fixture(scope="module")
def place(library: Any, tmp_path_factory: pytest.TempPathFactory) -> str:
    place = str(tmp_path_factory.mktemp("words") / "t")
    library.write_dataset(ROWS, place).tags.create("t", 1)
    library.dataset(place).create_scalar_index("id", "BTREE")
    return place


@pytest.mark.parametrize("words", WORDS)
def test_callers_find_the_words_they_match_on(library: Any, place: str, words: str) -> None:
    dataset = library.dataset(place)
    with pytest.raises(Exception, match=words):
        WORDS[words](library, dataset)


@pytest.mark.parametrize("words", WARNINGS)
def test_warnings_of_deprecation_have_the_words_of_pylance(
    library: Any, place: str, words: str
) -> None:
    dataset = library.dataset(place)
    with pytest.warns(DeprecationWarning, match=words):
        WARNINGS[words](library, dataset)


def test_programs_find_the_words_of_pylance_in_errors(tmp_path: Path) -> None:
    """Words that public programs look for, with an error of both libraries each."""
    rows = pa.table(
        {"k": range(9), "t": ["w"] * 9, "v": pa.array([[1.0, 2.0]] * 9, pa.list_(pa.float32(), 2))}
    )
    deleted = {"include_deleted_rows": True, "with_row_id": True}
    text = {"columns": ["t"], "query": "w"}
    for lib in (lance, glaive):
        place = str(tmp_path / lib.__name__)
        ds = lib.write_dataset(rows, place)
        lib.write_dataset(rows, place, mode="append")
        overwrite = lib.LanceOperation.Overwrite(ds.schema, [])
        for words, call in (
            ("Invalid user input", partial(ds.to_table, filter="zz > 1")),
            ("Invalid user input", partial(ds.count_rows, "k >")),
            ("Invalid user input", partial(ds.delete, "zz = 1")),
            (
                "Cannot include deleted rows in a nearest neighbor search",
                partial(ds.to_table, nearest={"column": "v", "q": [1.0, 2.0]}, **deleted),
            ),
            (
                "Cannot include deleted rows in an FTS search",
                partial(ds.to_table, full_text_query=text, **deleted),
            ),
            (
                "^Commit conflict for version 2: Failed to commit the transaction after 0 retries",
                partial(lib.LanceDataset.commit, place, overwrite, read_version=1, max_retries=0),
            ),
        ):
            with pytest.raises((ValueError, OSError), match=words):
                call()
