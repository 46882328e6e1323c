"""What the planner and the tasks of a read do, run as Spark runs them, without a session."""

from __future__ import annotations

import pickle
from hashlib import sha512
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql.types import StructType

import glaive
from glaive.errors import MissingDependencyError, NotFoundError, OptionError, VersionNotFoundError
from glaive.spark.source import LanceDataSource, LanceReader


def planned(uri: str, **options: str) -> tuple[StructType, LanceReader]:
    source = LanceDataSource({"path": uri, **options})
    schema = source.schema()
    assert isinstance(schema, StructType)
    reader: Any = pickle.loads(pickle.dumps(source)).reader(schema)
    return schema, reader


def read(uri: str, **options: str) -> list[list[dict[str, Any]]]:
    """Return the rows of each task."""
    _, reader = planned(uri, **options)
    tasks = []
    for part in reader.partitions():
        task: LanceReader = pickle.loads(pickle.dumps(reader))
        tasks.append([row for batch in task.read(part) for row in batch.to_pylist()])
    return tasks


@pytest.fixture
def numbers(uri: str) -> str:
    rows = np.arange(100)
    emb = pa.FixedSizeListArray.from_arrays(pa.array(rows.repeat(2), pa.float32()), 2)
    words = ["red shoes" if row % 10 == 0 else "blue hat" for row in rows]
    table = pa.table({"id": rows, "emb": emb, "text": words})
    glaive.write_dataset(table, uri, max_rows_per_file=30)
    return uri


def test_a_limit_is_divided_among_tasks(numbers: str) -> None:
    tasks = read(numbers, columns="id", limit="50", split_bytes="160")

    assert [row["id"] for rows in tasks for row in rows] == list(range(50))
    assert len(tasks) > 1


def test_one_task_looks_for_the_first_rows_that_pass(numbers: str) -> None:
    (rows,) = read(numbers, columns="id", limit="3", filter="id > 60", split_bytes="160")

    assert rows == [{"id": 61}, {"id": 62}, {"id": 63}]


def test_one_task_sorts(numbers: str) -> None:
    order = '["text", {"column_name": "id", "ascending": false}]'
    (rows,) = read(numbers, columns="id", order_by=order, limit="2")

    assert rows == [{"id": 99}, {"id": 98}]


def test_one_task_searches_for_vectors(numbers: str) -> None:
    nearest = '{"column": "emb", "q": [7.1, 7.1], "k": 3}'
    (rows,) = read(numbers, columns="id", nearest=nearest, split_bytes="160")

    assert [row["id"] for row in rows] == [7, 8, 6]
    assert rows[0]["_distance"] == pytest.approx(0.02, abs=1e-4)


def test_one_task_searches_texts(numbers: str) -> None:
    glaive.dataset(numbers).create_scalar_index("text", "INVERTED")

    (rows,) = read(numbers, columns="id", full_text_query="red", split_bytes="160")

    assert sorted(row["id"] for row in rows) == list(range(0, 100, 10))
    assert rows[0]["_score"] > 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"blobs": "lazy"}, "blobs: expected 'descriptor' or 'bytes'"),
        ({"limit": "0"}, "limit: expected an integer ≥ 1"),
        ({"nearest": "[1, 2]"}, "nearest: expected a JSON object"),
        ({"order_by": '[{"name": "id"}]'}, "order_by: expected names of columns, or objects"),
    ],
)
def test_values_that_options_cannot_have_are_refused(
    numbers: str, options: dict[str, str], message: str
) -> None:
    with pytest.raises(OptionError, match=message):
        planned(numbers, **options)


def test_columns_of_searches_are_checked_by_the_planner(numbers: str) -> None:
    with pytest.raises(NotFoundError, match="idd"):
        planned(numbers, order_by="idd")


@pytest.mark.parametrize("version", ["2.1", "2.2"])
def test_blobs_are_read_as_descriptors_or_bytes(tmp_path: Path, version: str) -> None:
    uri = str(tmp_path / "t")
    values = pa.array([b"abc", None, b""], pa.large_binary())
    blob = pa.field("b", pa.large_binary(), metadata={"lance-encoding:blob": "true"})
    schema = pa.schema([pa.field("id", pa.int64()), blob])
    glaive.write_dataset(pa.table([[1, 2, 3], values], schema), uri, data_storage_version=version)

    (described,) = read(uri, columns='{"b": "b", "next": "id + 1"}')
    (whole,) = read(uri, blobs="bytes")

    assert described[0]["b"]["size"] == 3
    assert described[0]["next"] == 2
    assert [row["b"] for row in whole] == [b"abc", None, b""]


@pytest.mark.nightly(reason="makes large values")
def test_large_values_that_compress_well_are_read_in_bounded_memory(uri: str) -> None:
    values = (sha512(bytes(number)).hexdigest().encode() * 8192 for number in range(500))
    rows = (pa.record_batch({"image": pa.array([value])}) for value in values)
    first = next(rows)
    batches = pa.RecordBatchReader.from_batches(first.schema, (first, *rows))
    glaive.write_dataset(batches, uri)
    assert sum(path.stat().st_size for path in Path(uri, "data").iterdir()) < 1 << 20
    _, reader = planned(uri)
    (part,) = reader.partitions()

    count, most = 0, 0
    before = pa.total_allocated_bytes()
    for batch in reader.read(part):
        count += batch.num_rows
        most = max(most, pa.total_allocated_bytes() - before)

    assert count == 500
    assert most < 400 << 20


@pytest.mark.spec("rel-4")
def test_a_frame_does_not_become_one_of_a_dataset_made_in_the_place_of_its_own(
    numbers: str,
) -> None:
    _, reader = planned(numbers)
    (part, *_) = reader.partitions()
    glaive.LanceDataset.drop(numbers)
    glaive.write_dataset({"id": [-1], "emb": [[0.0, 0.0]], "text": ["none"]}, numbers)

    with pytest.raises(VersionNotFoundError, match="another dataset made in its place"):
        list(pickle.loads(pickle.dumps(reader)).read(part))
    with pytest.raises(VersionNotFoundError, match="another dataset made in its place"):
        reader.partitions()


def test_a_task_with_another_version_of_glaive_is_refused(numbers: str) -> None:
    _, reader = planned(numbers)
    (part, *_) = reader.partitions()
    reader.release = "0.0.9"

    with pytest.raises(MissingDependencyError, match=r"the driver has 0\.0\.9\. Install"):
        list(reader.read(part))
