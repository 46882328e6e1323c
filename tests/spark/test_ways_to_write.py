"""All ways to write rows refuse the same with the same words, or leave equal datasets.

Spark's own conversion of frames is left out, so that no session is needed: its writer gets the
schema and the batches that the others get, and runs as Spark runs it. One test at the end has a
session.
"""

from __future__ import annotations

import pickle
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from glaive.fragment import write_fragments
from pyspark.sql import SparkSession
from tests.table.places import change_newest

import glaive
import glaive.spark
from glaive.errors import (
    ColumnNotFoundError,
    DatasetExistsError,
    GlaiveError,
    OptionError,
    OptionRangeError,
    SchemaError,
    UnsupportedFeatureError,
)
from glaive.format.manifest import Feature
from glaive.io.access import open_store
from glaive.spark.options import Options
from glaive.spark.writer import LanceArrowWriter, WriteJob, _plan, open_target

ONE = pa.array([1])
BASE = pa.table({"id": pa.array([1, 2], pa.int64()), "name": ["a", None]})
STRUCT = pa.table({"s": pa.array([{"a": 1, "b": "x"}])})
STRICT = pa.table([[1], ["a"]], pa.schema([pa.field("id", pa.int64(), False), ("name", "string")]))
CODED = pa.table({"d": pa.array(["x", "y", "x"]).dictionary_encode()})
BLOBS = pa.schema([pa.field("b", pa.large_binary(), True, {"lance-encoding:blob": "true"})])


def deep(levels: int) -> pa.Table:
    kind: Any = pa.int8()
    for _ in range(levels):
        kind = pa.list_(kind)
    return pa.table({"deep": pa.nulls(1, kind)})


def marked(**metadata: str) -> pa.Table:
    keys = {f"lance-encoding:{key}": value for key, value in metadata.items()}
    return pa.table([[1, 2]], pa.schema([pa.field("id", pa.int64(), True, keys)]))


@dataclass(frozen=True)
class Case:
    """Rows to write, what is there before, and how it ends."""

    rows: pa.Table
    base: pa.Table | None = None
    mode: str = "create"
    error: type[GlaiveError] | None = None
    base_version: str = "2.2"
    options: dict[str, Any] = field(default_factory=dict)


def write(case: Case, uri: str) -> glaive.LanceDataset:
    return glaive.write_dataset(case.rows, uri, mode=case.mode, **case.options)


def write_uncommitted(case: Case, uri: str) -> glaive.LanceDataset:
    made: Any = write_fragments(
        case.rows, uri, mode=case.mode, return_transaction=True, **case.options
    )
    stable = case.options.get("enable_stable_row_ids", False)
    return glaive.LanceDataset.commit(uri, made, enable_stable_row_ids=stable)


def write_one_fragment(case: Case, uri: str) -> glaive.LanceDataset:
    options = {key: value for key, value in case.options.items() if not key.startswith("max_")}
    glaive.LanceFragment.create(uri, case.rows, mode=case.mode, **options)
    return write(case, uri)


def spark_job(case: Case, uri: str) -> WriteJob:
    schema, overwrite = case.rows.schema, case.mode == "overwrite"
    options = Options(uri=uri, must_not_exist=case.mode == "create", **case.options)
    store, base = open_target(options)
    return _plan(schema, schema, options, store, base, overwrite=overwrite)


def write_from_spark(case: Case, uri: str) -> glaive.LanceDataset:
    writer = LanceArrowWriter(spark_job(case, uri))
    task: LanceArrowWriter = pickle.loads(pickle.dumps(writer))
    messages: list[Any] = [task.write(iter(case.rows.to_batches()))]
    writer.commit(messages)
    return glaive.dataset(uri)


WAYS: dict[str, Callable[[Case, str], glaive.LanceDataset]] = {
    "write_dataset": write,
    "write_fragments": write_uncommitted,
    "LanceFragment.create": write_one_fragment,
    "Spark": write_from_spark,
}

NEW = {
    **{
        name: Case(pa.table({name: [1]}), error=SchemaError)
        for name in ("_rowid", "_rowaddr", "_rowoffset", "_row_created_at_version", "a.b", "")
    },
    "two of a name": Case(pa.table([[1], [2]], ["a", "a"]), error=SchemaError),
    "two members of a name": Case(
        pa.table({"s": pa.StructArray.from_arrays([ONE, ONE], ["a", "a"])}), error=SchemaError
    ),
    "nested too deeply": Case(deep(70), error=SchemaError),
    "nested deeply": Case(deep(20)),
    "months": Case(
        pa.table({"m": pa.array([(1, 2, 3)], pa.month_day_nano_interval())}), error=SchemaError
    ),
    "run ends": Case(
        pa.table({"r": pa.RunEndEncodedArray.from_arrays([1], [2])}), error=SchemaError
    ),
    "a map in 2.1": Case(
        pa.table({"m": pa.array([[(1, 2)]], pa.map_(pa.int8(), pa.int8()))}),
        error=SchemaError,
        options={"data_storage_version": "2.1"},
    ),
    "a map in 2.2": Case(pa.table({"m": pa.array([[(1, 2)]], pa.map_(pa.int8(), pa.int8()))})),
    "blobs in 0.1": Case(
        pa.table([[b"a"]], BLOBS), error=SchemaError, options={"data_storage_version": "0.1"}
    ),
    "blobs in 2.1": Case(pa.table([[b"a"]], BLOBS), options={"data_storage_version": "2.1"}),
    "blobs in 2.2": Case(pa.table([[b"a", None]], BLOBS)),
    "members with dots": Case(pa.table({"s": pa.array([{"a.b": 1}])})),
    "not null": Case(STRICT),
    "a dictionary in 0.1": Case(CODED, options={"data_storage_version": "0.1"}),
    "stable row ids": Case(BASE, options={"enable_stable_row_ids": True}),
    "small files": Case(BASE, options={"max_rows_per_file": 1}),
    "unknown version": Case(BASE, error=OptionError, options={"data_storage_version": "9.9"}),
    "no rows in a file": Case(BASE, error=OptionRangeError, options={"max_rows_per_file": 0}),
    "no bytes in a file": Case(BASE, error=OptionRangeError, options={"max_bytes_per_file": -1}),
    "row ids of a text": Case(BASE, error=OptionError, options={"enable_stable_row_ids": "yes"}),
    "unknown encoding": Case(
        BASE, error=OptionError, options={"encoding_options": {"id": {"compression": "rar"}}}
    ),
    "an encoding of no column": Case(
        BASE, error=ColumnNotFoundError, options={"encoding_options": {"idd": {}}}
    ),
    "unknown encoding in the metadata": Case(marked(compression="rar"), error=OptionError),
    "encoding in the metadata": Case(marked(compression="zstd")),
    "where one is": Case(BASE, BASE, error=DatasetExistsError),
}
OLD = {
    "more rows": Case(BASE, BASE),
    "in another order": Case(BASE.select(["name", "id"]), BASE),
    "large text": Case(BASE.set_column(1, "name", pa.array(["a", "b"], "large_string")), BASE),
    "another column": Case(BASE.append_column("nam", [[1, 2]]), BASE, error=SchemaError),
    "a reserved name": Case(BASE.append_column("_rowid", [[1, 2]]), BASE, error=SchemaError),
    "twice a column": Case(BASE.append_column("id", [[1, 2]]), BASE, error=SchemaError),
    "text for numbers": Case(BASE.set_column(0, "id", [["1", "2"]]), BASE, error=SchemaError),
    "no column that must be": Case(STRICT.select(["name"]), STRICT, error=SchemaError),
    "another member": Case(
        pa.table({"s": [{"a": 1, "b": "x", "c": 1}]}), STRUCT, error=SchemaError
    ),
    "another type of member": Case(
        pa.table({"s": [{"a": "1", "b": "x"}]}), STRUCT, error=SchemaError
    ),
    "another version": Case(BASE, BASE, options={"data_storage_version": "2.1"}),
    "0.1 to 2.2": Case(
        BASE, BASE, error=UnsupportedFeatureError, options={"data_storage_version": "0.1"}
    ),
    "the same dictionary": Case(CODED, CODED, base_version="0.1"),
    "blobs": Case(pa.table([[b"a", None]], BLOBS), pa.table([[b"b"]], BLOBS)),
}
CASES = (
    [pytest.param(case, id=f"create, {name}") for name, case in NEW.items()]
    + [
        pytest.param(
            Case(case.rows, BASE, "overwrite", case.error, options=case.options),
            id=f"overwrite, {name}",
        )
        for name, case in NEW.items()
        if case.base is None
    ]
    + [
        pytest.param(
            Case(case.rows, case.base, "append", case.error, case.base_version, case.options),
            id=f"append, {name}",
        )
        for name, case in OLD.items()
    ]
)


def prepared(case: Case, uri: str) -> str:
    if case.base is not None:
        glaive.write_dataset(case.base, uri, data_storage_version=case.base_version)
    return uri


def files(uri: str) -> list[str]:
    return sorted(path.name for path in Path(uri).rglob("*") if path.is_file())


def described(dataset: glaive.LanceDataset) -> tuple[object, ...]:
    """What users see of a dataset, and the ids of its columns."""
    fields = [
        (one.id, one.name, one.logical_type, one.nullable, one.metadata)
        for one in dataset.lance_schema.walk()
    ]
    stored = {str(file.version) for one in dataset.get_fragments() for file in one.data_files()}
    flags = dataset.has_stable_row_ids, dataset.data_storage_version
    return fields, stored, flags, dataset.to_table(blob_handling="all_binary").to_pylist()


def message_of(case: Case, uri: str, way: Callable[[Case, str], object]) -> str:
    before = files(prepared(case, uri))
    assert case.error is not None
    with pytest.raises(GlaiveError) as caught:
        way(case, uri)
    assert type(caught.value) is case.error
    assert files(uri) == before
    return str(caught.value).replace(uri, "PLACE")


@pytest.mark.sampled(every=4)
@pytest.mark.parametrize("case", CASES)
def test_all_ways_refuse_the_same_or_leave_the_same(case: Case, tmp_path: Path) -> None:
    if case.error is not None:
        ways: dict[str, Callable[[Case, str], object]] = {
            name: way
            for name, way in WAYS.items()
            if name != "LanceFragment.create" or not any(key[:4] == "max_" for key in case.options)
        }
        if case.mode == "create" and case.base is not None:
            del ways["LanceFragment.create"]  # its rows are committed later, over the others
        ways["Spark"] = spark_job  # refused on the driver, before any task
        found = {name: message_of(case, str(tmp_path / name), way) for name, way in ways.items()}
        assert len(set(found.values())) == 1, found
        return
    written = {
        name: described(way(case, prepared(case, str(tmp_path / name))))
        for name, way in WAYS.items()
    }
    for name, seen in written.items():
        assert seen == written["write_dataset"], name


@pytest.mark.parametrize("mode", ["create", "append", "overwrite"])
def test_types_are_refused_where_there_are_no_rows(mode: str, tmp_path: Path) -> None:
    rows = NEW["a map in 2.1"].rows.slice(0, 0)
    case = Case(rows, mode=mode, error=SchemaError, options={"data_storage_version": "2.1"})
    found = {
        message_of(case, str(tmp_path / name), WAYS[name]) for name in ("write_dataset", "Spark")
    }
    assert len(found) == 1


@pytest.mark.parametrize("mode", ["append", "overwrite"])
def test_a_dataset_that_may_not_be_written_is_refused_before_rows_are(
    mode: str, tmp_path: Path
) -> None:
    case = Case(BASE, mode=mode, error=UnsupportedFeatureError)
    found = []
    for name, way in {**WAYS, "Spark": spark_job}.items():
        uri = str(tmp_path / name)
        glaive.write_dataset(BASE, uri)
        change_newest(open_store(uri), writer_feature_flags=1 << 12)
        found.append(message_of(case, uri, way))
    assert "needs clustering" in found[0]
    assert len(set(found)) == 1


@pytest.mark.parametrize("way", WAYS)
def test_an_overwrite_counts_ids_of_columns_on(way: str, tmp_path: Path) -> None:
    uri = str(tmp_path / "t")
    glaive.write_dataset(BASE, uri)
    flag = int(Feature.UNIQUE_FIELD_IDS)
    change_newest(open_store(uri), writer_feature_flags=flag, max_allocated_field_id=7)

    written = WAYS[way](Case(BASE, mode="overwrite"), uri)

    assert written.lance_schema.field_ids() == [8, 9]


# --- values -----------------------------------------------------------------------------------


@pytest.mark.parametrize("way", WAYS)
def test_another_dictionary_in_0_1_is_refused_before_the_commit(way: str, tmp_path: Path) -> None:
    uri = str(tmp_path / "t")
    glaive.write_dataset(CODED, uri, data_storage_version="0.1")
    before = files(uri)
    other = pa.table({"d": pa.array(["z"]).dictionary_encode()})

    with pytest.raises(SchemaError, match="one dictionary per dataset"):
        WAYS[way](Case(other, mode="append"), uri)
    assert files(uri) == before


@pytest.mark.parametrize("way", WAYS)
def test_nulls_where_none_may_be_are_refused(way: str, tmp_path: Path) -> None:
    uri = str(tmp_path / "t")
    glaive.write_dataset(STRICT, uri)
    nulls = pa.table({"id": pa.array([1, None], pa.int64()), "name": ["a", "b"]})

    with pytest.raises(SchemaError, match=r"'id'.*found 1.*Fill them"):
        WAYS[way](Case(nulls, mode="append"), uri)
    assert glaive.dataset(uri).version == 1


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("version", ["0.1", "2.0", "2.1", "2.2"])
def test_nulls_in_members_and_items_that_are_never_null_are_refused(
    way: str, version: str, tmp_path: Path
) -> None:
    uri = str(tmp_path / "t")
    never = pa.field("item" if version == "0.1" else "never", pa.int64(), version == "0.1")
    struct = pa.struct([pa.field("a", pa.int64(), nullable=False), ("l", pa.list_(never))])
    glaive.write_dataset(
        pa.table({"s": pa.array([{"a": 1, "l": [1]}], struct)}), uri, data_storage_version=version
    )
    loose = pa.struct([("a", pa.int64()), ("l", pa.list_(pa.int64()))])

    def append(*values: Any) -> glaive.LanceDataset:
        return WAYS[way](Case(pa.table({"s": pa.array(values, loose)}), mode="append"), uri)

    with pytest.raises(SchemaError, match=r"'s(\.a)?'.*null"):
        append({"a": 2, "l": []}, {"a": None, "l": []})
    if version != "0.1":
        with pytest.raises(SchemaError, match=r"'(s\.l\.never|l|s)'.*null"):
            append({"a": 2, "l": [None]})
    assert glaive.dataset(uri).version == 1
    if version in ("2.1", "2.2"):  # others have no null structs around such members
        assert append(None, {"a": 2, "l": None}).count_rows() == 3


@pytest.mark.parametrize("way", [write, write_uncommitted])
def test_a_schema_given_beside_a_table_is_that_of_the_dataset(
    way: Callable[[Case, str], glaive.LanceDataset], tmp_path: Path
) -> None:
    wanted = pa.schema([("id", pa.int8()), ("name", pa.large_string())])
    written = way(Case(BASE, options={"schema": wanted}), str(tmp_path / "t"))
    assert written.schema == wanted

    with pytest.raises(SchemaError, match="rows have the columns id, name, expected id"):
        way(Case(BASE, options={"schema": wanted.remove(1)}), str(tmp_path / "u"))


def test_of_all_ways_spark_alone_needs_all_columns(tmp_path: Path) -> None:
    """By choice: it appends by name to no table of any kind when columns are missing."""
    rows = BASE.select(["id"])
    for name in ("write_dataset", "write_fragments", "LanceFragment.create"):
        uri = prepared(Case(rows, BASE), str(tmp_path / name))
        assert WAYS[name](Case(rows, mode="append"), uri).to_table()["name"].null_count == 3
    uri = prepared(Case(rows, BASE), str(tmp_path / "Spark"))
    with pytest.raises(SchemaError, match=r"lacks columns of .*: name. .*lit\(None\)"):
        spark_job(Case(rows, mode="append"), uri)
    uri = prepared(Case(rows, STRUCT), str(tmp_path / "members"))
    with pytest.raises(SchemaError, match=r"lacks columns of .*: s\.b\. "):
        spark_job(Case(pa.table({"s": [{"a": 1}]}), mode="append"), uri)


def test_a_plan_is_small_however_large_the_dataset(tmp_path: Path) -> None:
    uri = str(tmp_path / "t")
    glaive.write_dataset(pa.table({"id": range(300)}), uri, max_rows_per_file=1)

    writer = LanceArrowWriter(spark_job(Case(pa.table({"id": [1]}), mode="append"), uri))

    assert len(pickle.dumps(writer)) < 4_000
    copy = pickle.loads(pickle.dumps(writer))
    copy.commit([copy.write(iter(pa.table({"id": [1]}).to_batches()))])
    assert glaive.dataset(uri).count_rows() == 301


# --- in a session -----------------------------------------------------------------------------


@pytest.mark.sampled(every=4)
@pytest.mark.spark
@pytest.mark.parametrize("mode", ["errorifexists", "overwrite"])
@pytest.mark.parametrize("name", ["_rowid", "_rowaddr", "a.b", ""])
def test_names_that_cannot_be_are_refused_before_any_task_runs(
    spark: SparkSession, uri: str, mode: Any, name: str
) -> None:
    with pytest.raises(SchemaError) as expected:
        glaive.write_dataset(pa.table({name: [1]}), uri)
    failing = spark.range(3).selectExpr("raise_error('a task ran') as x").toDF(name)

    with pytest.raises(SchemaError, match=f"^{re.escape(str(expected.value))}$"):
        glaive.spark.write(failing, uri, mode=mode)
    assert files(uri) == []


@pytest.mark.spark
def test_a_write_returns_its_version(spark: SparkSession, uri: str) -> None:
    rows = spark.range(3)
    assert glaive.spark.write(rows, uri) == 1
    glaive.write_dataset(pa.table({"id": [9]}), uri, mode="append")
    assert glaive.spark.write(rows, uri, mode="append") == 3
    assert glaive.spark.write(rows.limit(0), uri, mode="append") == 3
    assert glaive.spark.write(rows, uri, mode="ignore") == 3
    assert glaive.spark.write(rows, uri, mode="overwrite") == 4
    assert glaive.dataset(uri).count_rows() == 3
