"""Words of errors that callers match on are in the messages of both libraries."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from importlib import import_module
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
