"""Options as Spark hands them over: read strictly, with a way out in every message."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

import glaive
from glaive import ColumnOrdering
from glaive.errors import OptionError
from glaive.spark.options import from_spark, refuse_invalid_strings, spark_texts, stream_options
from glaive.spark.source import LanceDataSource


def test_texts_become_values() -> None:
    options = from_spark(
        {"path": "/t", "columns": "a, b", "version": "3", "allow_truncation": "TRUE"}
    )

    assert options.uri == "/t"
    assert options.columns == ("a", "b")
    assert options.version == 3
    assert options.allow_truncation is True


@pytest.mark.spec("rel-27", "rel-42")
@pytest.mark.parametrize(
    "given",
    [{"path": "/secret/t\udcff"}, {"path": "/t", "storage.aws_secret_access_key": "secret\ud800"}],
)
def test_a_text_that_java_does_not_have_is_named_and_not_shown(given: dict[str, str]) -> None:
    with pytest.raises(OptionError, match="half of a surrogate pair") as raised:
        refuse_invalid_strings(given)
    assert str(raised.value).startswith(f"{[*given][-1]}: ")
    assert "secret\ud800" not in str(raised.value)


def test_names_with_commas_are_given_as_json() -> None:
    assert from_spark({"path": "/t", "columns": '["a,b", "c"]'}).columns == ("a,b", "c")


def test_columns_with_expressions_are_a_json_object() -> None:
    options = from_spark(spark_texts({"columns": {"b": "a + 1", "a": "a"}}) | {"path": "/t"})

    assert options.columns == {"b": "a + 1", "a": "a"}
    assert list(options.columns) == ["b", "a"]


def test_versions_have_the_names_of_other_sources_too() -> None:
    assert from_spark({"path": "/t", "versionAsOf": "3"}).version == 3
    assert from_spark({"path": "/t", "timestampAsOf": "2026-05-01"}).asof == "2026-05-01"
    assert from_spark({"path": "/t", "timestamp": "2026-05-01"}).asof == "2026-05-01"
    assert from_spark({"path": "/t", "branch": "b", "version": "3"}).branch == "b"


@pytest.mark.parametrize(
    "given",
    [
        {"version": "1", "tag": "t"},
        {"versionAsOf": "1", "asof": "2026-05-01"},
        {"branch": "b", "tag": "t"},
        {"version": "1", "versionAsOf": "2"},
    ],
)
def test_a_version_is_named_once(given: dict[str, str]) -> None:
    with pytest.raises(OptionError, match="option"):
        from_spark({"path": "/t"} | given)


def test_values_survive_the_way_through_spark() -> None:
    schema = pa.schema([pa.field("v", pa.list_(pa.float16(), 4), metadata={"a": "b"})])
    given = {
        "columns": ["a,b", "c"],
        "arrow_schema": schema,
        "must_not_exist": True,
        "batch_size": 10,
        "storage": {"aws_region": "eu"},
        "encoding_options": {"a.b": {"compression": "zstd", "compression_level": 3}},
        "version": None,
    }

    options = from_spark(spark_texts(given) | {"path": "/t"})

    assert options.columns == ("a,b", "c")
    assert options.arrow_schema is not None
    assert options.arrow_schema.equals(schema, check_metadata=True)
    assert options.must_not_exist is True
    assert options.batch_size == 10
    assert options.storage == {"aws_region": "eu"}
    assert options.version is None
    assert options.encoding_options == given["encoding_options"]


def test_columns_to_sort_by_are_given_in_any_form() -> None:
    falling = ColumnOrdering("a", ascending=False)
    mapping = {"column_name": "a", "ascending": False}
    for given, expected in (
        ("a,b", ("a", "b")),
        (["a", falling], ("a", falling)),
        ([mapping], (falling,)),
    ):
        assert from_spark(spark_texts({"order_by": given}) | {"path": "/t"}).order_by == expected
    with pytest.raises(OptionError, match=r"order_by: expected names .*, found 5"):
        spark_texts({"order_by": [5]})


def test_an_unknown_option_names_the_closest_and_all() -> None:
    with pytest.raises(OptionError, match=r"'column' .* did you mean columns.*vector_columns"):
        from_spark({"path": "/t", "column": "a"})


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("version", "0"),
        ("version", "latest"),
        ("batch_size", "-1"),
        ("encoding_options", "a=zstd"),
        ("encoding_options", '{"a": "zstd"}'),
        ("encoding_options", "[]"),
        ("columns", ""),
        ("columns", "a,,b"),
        ("columns", "[1]"),
        ("columns", "[nope"),
        ("columns", "{nope"),
        ("columns", "{}"),
        ("columns", '{"a": 1}'),
        ("filter", " "),
        ("tag", ""),
        ("must_not_exist", "maybe"),
        ("arrow_schema", "???"),
        ("arrow_schema", "AAAA"),
    ],
)
def test_a_value_that_cannot_be_is_refused_with_what_was_expected(name: str, text: str) -> None:
    with pytest.raises(OptionError, match=f"option {name}: .*"):
        from_spark({"path": "/t", name: text})


def test_what_spark_adds_by_itself_is_no_unknown_option() -> None:
    added = {"provider": "lance", "owner": "me", "location": "file:/t", "option.columns": "a"}

    assert from_spark({"path": "/t"} | added).uri == "/t"


@pytest.mark.parametrize(
    ("given", "uri"), [("file:/t", "/t"), ("file:///t", "file:///t"), ("s3://b/t", "s3://b/t")]
)
def test_paths_of_catalog_tables_become_plain_again(given: str, uri: str) -> None:
    assert from_spark({"path": given}).uri == uri


def test_without_a_path_the_message_tells_what_works() -> None:
    with pytest.raises(OptionError, match="TEMPORARY VIEW v USING lance OPTIONS"):
        from_spark({})


def test_several_paths_are_refused() -> None:
    with pytest.raises(OptionError, match="one dataset at a time"):
        from_spark({"paths": '["/a", "/b"]'})


def test_a_place_in_the_memory_of_one_process_is_refused() -> None:
    with pytest.raises(OptionError, match="memory of one process"):
        from_spark({"path": "memory://t"})


@pytest.mark.parametrize("name", ["columns", "encoding_options", "base_store_params"])
@pytest.mark.parametrize("text", ["[" * 100_000, '{"a":' * 100_000, "[" + "9" * 6000 + "]"])
def test_json_without_end_is_refused(name: str, text: str) -> None:
    with pytest.raises(OptionError, match=f"option {name}: "):
        from_spark({"path": "/t", name: text})


def test_a_number_of_more_digits_than_any_count_has_is_refused() -> None:
    with pytest.raises(OptionError, match="option version: expected an integer"):
        from_spark({"path": "/t", "version": "9" * 5000})


def test_text_that_is_no_json_is_not_shown_as_it_may_hold_credentials() -> None:
    with pytest.raises(OptionError, match="not JSON") as failed:
        from_spark({"path": "/t", "base_store_params": '{"s3://b": {"token": "hidden"'})
    assert "hidden" not in str(failed.value)


@pytest.mark.parametrize("given", ["dbfs:/t.lance", "s3:/bucket/t"])
def test_a_scheme_with_one_slash_is_no_relative_path(given: str) -> None:
    with pytest.raises(OptionError, match=f"expected two slashes.*write ./{given}"):
        from_spark({"path": given})


def test_relative_paths_are_those_of_the_driver() -> None:
    assert from_spark({"path": "t"}).uri == str(Path("t").absolute())


@pytest.mark.parametrize(
    ("given", "known"), [("maxFilesPerTriger", "maxFilesPerTrigger"), ("mergekeys", "merge_keys")]
)
def test_a_misspelt_option_of_streams_is_answered_with_its_name(given: str, known: str) -> None:
    with pytest.raises(OptionError, match=f"option '{given}' .* did you mean {known}\\?"):
        stream_options({"path": "t.lance", given: "1"})
    _, others = stream_options({"path": "t.lance", "mergeSchema": "true", "storage.x": "1"})
    assert set(others) == {"path", "mergeSchema", "storage.x"}


def test_tasks_of_a_stream_read_the_relative_path_of_the_driver(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    glaive.write_dataset(pa.table({"id": [1, 2]}), "t.lance")
    source = LanceDataSource({"path": "t.lance"})
    reader: Any = source.streamReader(source.schema())
    start = reader.initialOffset()
    parts = reader.partitions(start, reader.latestOffset(start, ReadAllAvailable()))
    sent = pickle.dumps((reader, list(parts)))

    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    worker, parts = pickle.loads(sent)
    rows = [row for part in parts for batch in worker.read(part) for row in batch.to_pylist()]
    assert rows == [{"id": 1}, {"id": 2}]


def test_a_folder_named_like_a_scheme_can_be_given() -> None:
    assert from_spark({"path": "./dbfs:/t"}).uri == str(Path("dbfs:/t").absolute())
